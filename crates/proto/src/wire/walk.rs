//! Steps from frame to frame (protocol.md §2.2). Parameters of INIT and RESP obey the same rule (§3.2).

use super::field::{fault, padded, u16_at};
use super::{Fault, Malformed};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 4;

/// Type of the frame that says: the rest of the packet is padding.
pub(crate) const PAD: u8 = 0x00;

/// First type of the critical half: a receiver that does not know such a frame must not go on.
pub(crate) const CRITICAL: u8 = 0x80;

/// A frame whose length is known to lie inside the packet, and nothing more is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// Type.
    pub kind: u8,
    /// Flags of that type.
    pub flags: u8,
    /// Header and content, without the padding. Everything that is left for `PAD`.
    pub bytes: &'a [u8],
    /// Between this frame and the next.
    pub padding: &'a [u8],
    /// Offset in the packet.
    pub at: usize,
}

/// Iterates raw frames; ends after the first error.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Walk<'a> {
    /// Walks `body`, which starts at offset `base` (a multiple of 8) of the packet.
    pub(crate) fn new(body: &'a [u8], base: usize) -> Self {
        Walk { body, at: 0, base }
    }

    /// Yields nothing more.
    pub(crate) fn stop(&mut self) {
        self.at = self.body.len();
    }

    fn fail(&mut self, what: Fault, offset: usize) -> Option<Result<Raw<'a>, Malformed>> {
        let offset = self.base + self.at + offset;
        self.stop();
        Some(Err(fault(what, offset)))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Raw<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = &self.body[at..];
        let kind = *rest.first()?;
        if kind == PAD {
            self.stop();
            return Some(Ok(Raw { kind, flags: 0, bytes: rest, padding: &[], at: self.base + at }));
        }
        if rest.len() < FRAME_HEADER_BYTES {
            return self.fail(Fault::Truncated, 0);
        }
        let len = usize::from(u16_at(rest, 2));
        if len < FRAME_HEADER_BYTES || len > rest.len() {
            return self.fail(Fault::FrameLength, 2);
        }
        // The padding of the last frame may be left out: the packet's end ends it too.
        let next = padded(len).min(rest.len());
        self.at = at + next;
        Some(Ok(Raw {
            kind,
            flags: rest[1],
            bytes: &rest[..len],
            padding: &rest[len..next],
            at: self.base + at,
        }))
    }
}
