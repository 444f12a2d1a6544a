//! What the core wants sent: one train as header bytes and references to payload.
//!
//! The caller brings the memory: one `Train` is filled again and again. Payload stays where the application put
//! it; the driver turns pieces into a gather list (ARCHITECTURE.md, decision 2).

use crate::address::MediaAddress;
use crate::flow::Class;
use crate::id::BufferId;
use crate::wire::{self, PieceHead};

/// One stretch of a train's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// `head[start..start + len]`.
    Head {
        /// First byte in [`Train::head`].
        start: u32,
        /// Bytes.
        len: u32,
    },
    /// `len` bytes at `offset` of a buffer of the application.
    Body {
        /// The buffer.
        buffer: BufferId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
}

/// Names a train that was handed out, for reporting its fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainId {
    pub(crate) session: u32,
    pub(crate) link: u16,
    pub(crate) first: u64,
    pub(crate) count: u8,
    pub(crate) tracked: bool,
}

/// A train under construction or ready to leave.
#[derive(Clone, Debug, Default)]
pub struct Train {
    /// Where to.
    pub to: MediaAddress,
    /// Header bytes and padding.
    pub head: Vec<u8>,
    /// The bytes in order.
    pub pieces: Vec<Piece>,
    /// Size of every datagram but the last.
    pub segment_bytes: usize,
    /// Bytes in all.
    pub bytes: usize,
    /// Datagrams.
    pub packets: usize,
    /// Whether it may take a quicker way than other trains. Not if it is to prove that these get there (protocol.md §6.4).
    pub express: bool,
    /// The most urgent class of the messages in it.
    urgency: Option<Class>,
    /// Its name.
    pub id: TrainId,
    /// Where in `head` the bytes begin that are in no piece yet.
    unlisted: usize,
    mark: Mark,
}

/// State of a train before the packet under construction.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    head: usize,
    pieces: usize,
    unlisted: usize,
    bytes: usize,
}

impl Train {
    /// An empty one.
    pub fn new() -> Self {
        Train::default()
    }

    /// As which class the medium is to treat it: the most urgent one of the messages of which something is in it, or control
    /// where there is none. What rides along with messages waits for them anyway, and is not to have bulk pass for control.
    pub fn class(&self) -> Class {
        self.urgency.unwrap_or(Class::Control)
    }

    /// Notes that something of a message of `class` is in it.
    #[inline]
    pub(crate) fn carry(&mut self, class: Class) {
        self.urgency = Some(self.urgency.map_or(class, |urgent| urgent.min(class)));
    }

    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.pieces.clear();
        (self.segment_bytes, self.bytes, self.packets, self.express) = (0, 0, 0, false);
        (self.unlisted, self.urgency) = (0, None);
    }

    #[inline]
    pub(crate) fn begin_packet(&mut self, header: &wire::Header) {
        let (head, pieces) = (self.head.len(), self.pieces.len());
        self.mark = Mark { head, pieces, unlisted: self.unlisted, bytes: self.bytes };
        self.with_head(|head| header.emit(head));
    }

    /// Appends header bytes.
    #[inline]
    pub(crate) fn with_head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.head.len();
        write(&mut self.head);
        self.bytes += self.head.len() - start;
    }

    /// Lists the header bytes since the last piece as one: before what follows them, and at the end of the train.
    #[inline]
    pub(crate) fn list_head(&mut self) {
        let (start, end) = (self.unlisted, self.head.len());
        if start < end {
            self.pieces.push(Piece::Head { start: start as u32, len: (end - start) as u32 });
            self.unlisted = end;
        }
    }

    /// Appends payload and pads it to 8 bytes.
    #[inline]
    pub(crate) fn body(&mut self, buffer: BufferId, offset: u64, len: usize) {
        if len > 0 {
            self.list_head();
            self.pieces.push(Piece::Body { buffer, offset, len: len as u32 });
            self.bytes += len;
        }
        self.pad(wire::padding(len));
    }

    /// The header of the packet just ended, and the length of its payload, if it carries one piece of a message and nothing else.
    pub(crate) fn lone_piece(&self) -> Option<(PieceHead, usize)> {
        let Some(&Piece::Body { len, .. }) = self.pieces.last() else { return None };
        Some((PieceHead::of(&self.head[self.mark.head..])?, len as usize))
    }

    /// Appends the packets that follow such a one, which has this header, with the next pieces of that message, of the same length.
    pub(crate) fn repeat_piece(&mut self, mut head: PieceHead, count: usize) {
        let Some(&Piece::Body { buffer, offset, len }) = self.pieces.last() else { return };
        for number in 1..=count as u64 {
            self.with_head(|bytes| head.emit_next(len as usize, bytes));
            self.body(buffer, offset + number * len as u64, len as usize);
            self.packets += 1;
        }
    }

    pub(crate) fn pad(&mut self, bytes: usize) {
        if bytes > 0 {
            self.with_head(|head| head.resize(head.len() + bytes, 0));
        }
    }

    /// Bytes of the packet under construction.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.bytes - self.mark.bytes
    }

    /// Takes back the packet under construction.
    pub(crate) fn abandon_packet(&mut self) {
        let mark = self.mark;
        self.head.truncate(mark.head);
        self.pieces.truncate(mark.pieces);
        (self.unlisted, self.bytes) = (mark.unlisted, mark.bytes);
    }

    /// Completes the packet: flags and check go into its header.
    #[inline]
    pub(crate) fn end_packet(&mut self, flags: u8) {
        let head = &mut self.head[self.mark.head..];
        head[1] = flags;
        let check = wire::check_of(head);
        head[20..24].copy_from_slice(&check.to_le_bytes());
        self.packets += 1;
        if self.packets == 1 {
            self.segment_bytes = self.bytes - self.mark.bytes;
        }
    }
}
