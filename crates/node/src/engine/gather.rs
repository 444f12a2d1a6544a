//! From a train's pieces to the gather list of one send call.
//!
//! Each slice costs the kernel some 25 ns, so small payloads are copied beside their headers, while fragments of
//! large messages are sent from where the application put them.

use super::store::EngineStore;
use arrayvec::ArrayVec;
use polyrail_proto::id::BufferId;
use polyrail_proto::wire::header::FLAG_FULL_CHECK;
use polyrail_proto::wire::{self, PacketType};
use polyrail_proto::{Piece, Train};
use std::io::IoSlice;

/// Payloads up to this size are copied.
const COPY_BYTES_MAX: u32 = 512;
/// A header and a body for each packet of a train, and some more where messages meet.
const SLICES_MAX: usize = 224;

#[derive(Clone, Copy)]
enum Part {
    /// Of the scratch memory.
    Copied { start: usize, len: usize },
    /// Of an application's memory.
    Body { buffer: BufferId, offset: u64, len: usize },
}

/// Reusable memory for making gather lists.
pub(super) struct Gather {
    scratch: Vec<u8>,
    parts: Vec<Part>,
    /// Packets carry a check over their payload too (protocol.md §2.3), which needs them in one piece.
    full_check: bool,
}

impl Gather {
    /// `full_check`: see the field.
    pub(super) fn new(full_check: bool) -> Gather {
        Gather { scratch: Vec::new(), parts: Vec::new(), full_check }
    }

    /// Makes the list and hands it to `send`; `None` if the train refers to memory that does not exist.
    pub(super) fn with<R>(
        &mut self,
        train: &Train,
        store: &EngineStore,
        send: impl FnOnce(&[IoSlice<'_>]) -> R,
    ) -> Option<R> {
        self.scratch.clear();
        self.parts.clear();
        if self.full_check {
            self.copy_whole(train, store)?;
            return Some(send(&[IoSlice::new(&self.scratch)]));
        }
        if !train.pieces.iter().any(is_large) {
            self.copy_all(train, store)?;
            return Some(send(&[IoSlice::new(&self.scratch)]));
        }
        if let Some(slices) = slices_in_place(train, store) {
            return Some(send(&slices));
        }
        self.copy_small(train, store)?;
        let mut slices: ArrayVec<IoSlice<'_>, SLICES_MAX> = ArrayVec::new();
        for part in &self.parts {
            slices
                .try_push(match *part {
                    Part::Copied { start, len } => IoSlice::new(&self.scratch[start..start + len]),
                    Part::Body { buffer, offset, len } => store.io_slice(buffer, offset, len)?,
                })
                .ok()?;
        }
        Some(send(&slices))
    }

    fn copy_all(&mut self, train: &Train, store: &EngineStore) -> Option<()> {
        for piece in &train.pieces {
            match *piece {
                Piece::Head { start, len } => {
                    self.scratch.extend_from_slice(&train.head[start as usize..(start + len) as usize]);
                }
                Piece::Body { buffer, offset, len } => {
                    store.copy_out(buffer, offset, len as usize, &mut self.scratch).then_some(())?;
                }
            }
        }
        Some(())
    }

    fn copy_whole(&mut self, train: &Train, store: &EngineStore) -> Option<()> {
        self.copy_all(train, store)?;
        for packet in self.scratch.chunks_mut(train.segment_bytes.max(1)) {
            if wire::header::peek_type(packet) == Some(PacketType::Data) {
                packet[1] |= FLAG_FULL_CHECK;
                wire::finish(packet).ok()?;
            }
        }
        Some(())
    }

    fn copy_small(&mut self, train: &Train, store: &EngineStore) -> Option<()> {
        let all = train.pieces.len() > SLICES_MAX;
        for piece in &train.pieces {
            let start = self.scratch.len();
            match *piece {
                Piece::Head { start, len } => {
                    let (start, len) = (start as usize, len as usize);
                    self.scratch.extend_from_slice(&train.head[start..start + len]);
                }
                Piece::Body { buffer, offset, len } if all || len <= COPY_BYTES_MAX => {
                    if !store.copy_out(buffer, offset, len as usize, &mut self.scratch) {
                        return None;
                    }
                }
                Piece::Body { buffer, offset, len } => {
                    let parts = store.parts(buffer, offset, len as usize);
                    self.parts.extend(parts.map(|(offset, len)| Part::Body { buffer, offset, len }));
                    continue;
                }
            }
            let len = self.scratch.len() - start;
            match self.parts.last_mut() {
                Some(Part::Copied { start: s, len: l }) if *s + *l == start => *l += len,
                _ => self.parts.push(Part::Copied { start, len }),
            }
        }
        Some(())
    }
}

fn is_large(piece: &Piece) -> bool {
    matches!(piece, Piece::Body { len, .. } if *len > COPY_BYTES_MAX)
}

/// The list for a train of which nothing is worth a copy, if there is room in it.
fn slices_in_place<'a>(
    train: &'a Train,
    store: &'a EngineStore,
) -> Option<ArrayVec<IoSlice<'a>, SLICES_MAX>> {
    let mut slices = ArrayVec::new();
    for piece in &train.pieces {
        match *piece {
            Piece::Head { start, len } => {
                let bytes = &train.head[start as usize..(start + len) as usize];
                slices.try_push(IoSlice::new(bytes)).ok()?;
            }
            Piece::Body { buffer, offset, len } => {
                is_large(piece).then_some(())?;
                for (offset, len) in store.parts(buffer, offset, len as usize) {
                    slices.try_push(store.io_slice(buffer, offset, len)?).ok()?;
                }
            }
        }
    }
    Some(slices)
}
