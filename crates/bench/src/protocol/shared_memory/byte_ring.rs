//! A ring of bytes each way: the sender copies in, the receiver copies out.
//!
//! Two copies, by one core each and at the same time, and one line that tells how far the other is: who moves bytes
//! between two processes by copying them can do no less. Long messages go in pieces, so that one side copies out while
//! the other copies in.

use std::cell::RefCell;
use std::io;

use polyrail_shm::{Doorbell, Region, Word, WordView};

use super::{Shared, impossible, inside};
use crate::protocol::byte_stream::{ByteStream, StreamPipe};
use crate::protocol::{Pipe, Setup};

/// Bytes of a ring: both rings and a message of that size come near what the second-level caches of two cores hold.
const RING_BYTES: u64 = 1 << 20;
/// Bytes that are shown to the other side at a time: enough that telling costs nothing, and few enough that the other
/// core copies while this one does.
const PIECE_BYTES: u64 = 16 << 10;
/// Bytes of one call of the library's copy. From 2 to 4 KiB on, the C library leaves a copy to one instruction (`rep movsb`),
/// which on some processors is ten times slower where the target begins 16 bytes after the source, counted modulo a page; so
/// it does between a large vector (an allocator's header, then the bytes) and pages. Below, it copies by vectors. A limit
/// must not know that loss.
const STEP_BYTES: usize = 2048;

// One direction: how far it is filled and drained, the bells, the bytes.
const FILLED: u64 = 0;
const DRAINED: u64 = 128;
const FILL_BELL: u64 = 256;
const ROOM_BELL: u64 = 384;
const BYTES: u64 = 4096;

/// Bytes of one direction, in whole pages.
pub(super) const AREA_BYTES: u64 = BYTES + RING_BYTES;

/// This process's end of both rings.
pub(super) fn pipe(shared: Shared, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
    let rings = Rings {
        outgoing: RefCell::new(Filling::new(&shared)?),
        incoming: RefCell::new(Draining::new(&shared)?),
        shared,
    };
    Ok(Box::new(StreamPipe::new(rings, setup)))
}

struct Rings {
    outgoing: RefCell<Filling>,
    incoming: RefCell<Draining>,
    shared: Shared,
}

impl ByteStream for Rings {
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize> {
        let Filling { ring, room_bell, fill_bell } = &mut *self.outgoing.borrow_mut();
        let fill = || ring.fill(bytes, || self.shared.ring(fill_bell));
        self.shared.attempt(room_bell, io::ErrorKind::BrokenPipe, may_sleep, fill)
    }

    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize> {
        let Draining { ring, room_bell, fill_bell } = &mut *self.incoming.borrow_mut();
        let drain = || ring.drain(room, || self.shared.ring(room_bell));
        self.shared.attempt(fill_bell, io::ErrorKind::UnexpectedEof, may_sleep, drain)
    }
}

struct Filling {
    ring: FillingRing,
    room_bell: Doorbell,
    fill_bell: Doorbell,
}

impl Filling {
    fn new(shared: &Shared) -> io::Result<Self> {
        let (segment, at) = (&shared.segment, shared.outgoing);
        Ok(Self {
            ring: FillingRing {
                filled: inside(Word::new(segment, at + FILLED))?,
                drained: inside(WordView::new(segment, at + DRAINED))?,
                drained_seen: 0,
                bytes: inside(Region::new(segment, at + BYTES, RING_BYTES))?,
            },
            room_bell: inside(Doorbell::new(segment, at + ROOM_BELL))?,
            fill_bell: inside(Doorbell::new(segment, at + FILL_BELL))?,
        })
    }
}

struct Draining {
    ring: DrainingRing,
    room_bell: Doorbell,
    fill_bell: Doorbell,
}

impl Draining {
    fn new(shared: &Shared) -> io::Result<Self> {
        let (segment, at) = (&shared.segment, shared.incoming);
        Ok(Self {
            ring: DrainingRing {
                filled: inside(WordView::new(segment, at + FILLED))?,
                drained: inside(Word::new(segment, at + DRAINED))?,
                filled_seen: 0,
                bytes: inside(Region::new(segment, at + BYTES, RING_BYTES))?,
            },
            room_bell: inside(Doorbell::new(segment, at + ROOM_BELL))?,
            fill_bell: inside(Doorbell::new(segment, at + FILL_BELL))?,
        })
    }
}

/// The filling side of a ring; positions count bytes since the beginning.
struct FillingRing {
    filled: Word,
    drained: WordView,
    drained_seen: u64,
    bytes: Region,
}

impl FillingRing {
    /// Copies in what there is room for, piece by piece, and calls `shown` after each; none if there is no room.
    #[inline]
    fn fill(&mut self, data: &[u8], shown: impl Fn()) -> io::Result<Option<usize>> {
        let mut done = 0;
        while done < data.len() {
            let wanted = PIECE_BYTES.min((data.len() - done) as u64);
            let room = self.room(wanted)?;
            let filled = self.filled.load();
            let length = stretch(filled, wanted.min(room));
            if length == 0 {
                break;
            }
            let end = done + length as usize;
            let places = (filled % RING_BYTES..).step_by(STEP_BYTES);
            for (place, part) in places.zip(data[done..end].chunks(STEP_BYTES)) {
                inside(self.bytes.write_at(place, part))?;
            }
            self.filled.add(length);
            shown();
            done = end;
        }
        Ok((done > 0).then_some(done))
    }

    /// Bytes that are free; asks the other side's line only if what is known is less than `wanted`.
    #[inline]
    fn room(&mut self, wanted: u64) -> io::Result<u64> {
        let filled = self.filled.load();
        if RING_BYTES - (filled - self.drained_seen) < wanted {
            let drained = self.drained.load();
            if drained < self.drained_seen || drained > filled {
                return Err(impossible("drained position", drained));
            }
            self.drained_seen = drained;
        }
        Ok(RING_BYTES - (filled - self.drained_seen))
    }
}

/// The draining side of a ring.
struct DrainingRing {
    filled: WordView,
    drained: Word,
    filled_seen: u64,
    bytes: Region,
}

impl DrainingRing {
    /// Copies out what is there, piece by piece, and calls `freed` after each; none if there is nothing.
    #[inline]
    fn drain(&mut self, room: &mut [u8], freed: impl Fn()) -> io::Result<Option<usize>> {
        let mut done = 0;
        while done < room.len() {
            let drained = self.drained.load();
            if drained == self.filled_seen {
                self.look()?;
            }
            let wanted = PIECE_BYTES.min((room.len() - done) as u64);
            let length = stretch(drained, wanted.min(self.filled_seen - drained));
            if length == 0 {
                break;
            }
            let end = done + length as usize;
            let places = (drained % RING_BYTES..).step_by(STEP_BYTES);
            for (place, part) in places.zip(room[done..end].chunks_mut(STEP_BYTES)) {
                inside(self.bytes.read_at(place, part))?;
            }
            self.drained.add(length);
            freed();
            done = end;
        }
        Ok((done > 0).then_some(done))
    }

    fn look(&mut self) -> io::Result<()> {
        let (filled, drained) = (self.filled.load(), self.drained.load());
        if filled < self.filled_seen || filled - drained > RING_BYTES {
            return Err(impossible("filled position", filled));
        }
        self.filled_seen = filled;
        Ok(())
    }
}

/// As much of `length` as lies before the ring's end.
fn stretch(position: u64, length: u64) -> u64 {
    length.min(RING_BYTES - position % RING_BYTES)
}
