//! Frames that carry payload: MSG, EFRAG, RFRAG (protocol.md §4.1-§4.3). The payload follows the header that is
//! emitted here; the sender gathers it from where it lies.

use super::field::{Draft, fault, u32_at, u64_at};
use super::frame::{Fragment, MESSAGE_BYTES_MAX, Message, Multicast, TransferFragment, kind};
use super::{Fault, Malformed};
use crate::address::{ServiceAddress, ServiceRange};
use crate::id::{PortId, TransferId};

const CLASS_MASK: u8 = 0x03;
const FLAG_TAG: u8 = 1 << 3;
const FLAG_NOTIFY: u8 = 1 << 4;
const FLAG_SERVICE: u8 = 1 << 5;
const FLAG_CRC: u8 = 1 << 7;
/// Unordered, joinable, CRC: laid down in protocol.md §4.20, spoken by no build yet.
const FLAGS_RESERVED: u8 = !(CLASS_MASK | FLAG_TAG | FLAG_NOTIFY | FLAG_SERVICE);

/// Header bytes of a TRANSFER FRAGMENT.
const TRANSFER_FRAGMENT_BYTES: usize = 16;
/// Most header bytes that a data frame has.
pub const DATA_HEADER_BYTES_MAX: usize = 40;

/// Where the payload starts in a frame that carries payload outside of the checksum; `None` for all others.
#[inline]
pub(crate) const fn payload_offset(kind: u8, flags: u8) -> Option<usize> {
    match kind {
        kind::MESSAGE => Some(16 + options_bytes(flags)),
        kind::FRAGMENT => Some(24 + options_bytes(flags)),
        kind::TRANSFER_FRAGMENT => Some(TRANSFER_FRAGMENT_BYTES),
        kind::MULTICAST => Some(32 + options_bytes(flags & FLAG_TAG)),
        _ => None,
    }
}

/// Bytes of the optional fields that `flags` announce, 8 each.
const fn options_bytes(flags: u8) -> usize {
    // Not every processor counts bits in one step.
    8 * (flags & FLAG_SERVICE != 0) as usize
        + 8 * (flags & FLAG_TAG != 0) as usize
        + 8 * (flags & FLAG_CRC != 0) as usize
}

impl Message {
    /// Bytes before the payload: 16, 24 or 32.
    pub const fn header_bytes(&self) -> usize {
        16 + options_bytes(self.flags())
    }

    /// Appends the frame header of this message with `payload_len` bytes, which the caller adds, and their padding.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>, payload_len: usize) {
        Draft::<16>::frame(kind::MESSAGE, self.flags(), self.header_bytes() + payload_len)
            .u32(self.from.0)
            .u32(self.to.0)
            .u32(self.seq)
            .end(out);
        self.emit_options(out);
    }

    pub(crate) const fn flags(&self) -> u8 {
        let notify = if self.notify { FLAG_NOTIFY } else { 0 };
        let service = if self.service.is_some() { FLAG_SERVICE } else { 0 };
        self.class_flags() | notify | service | self.tag_flag()
    }

    const fn class_flags(&self) -> u8 {
        debug_assert!(self.class <= CLASS_MASK, "there are four classes");
        self.class & CLASS_MASK
    }

    const fn tag_flag(&self) -> u8 {
        if self.tag.is_some() { FLAG_TAG } else { 0 }
    }

    pub(crate) const fn options_bytes(&self) -> usize {
        options_bytes(self.flags())
    }

    /// Appends service and tag, those that are there.
    pub(crate) fn emit_options(&self, out: &mut Vec<u8>) {
        if let Some(service) = self.service {
            Draft::<8>::new().u32(service.kind).u32(service.instance).end(out);
        }
        if let Some(tag) = self.tag {
            out.extend_from_slice(&tag.to_le_bytes());
        }
    }

    /// Reads the fields that MSG, EFRAG and RTS share. `options` is where the optional fields start; gives the place
    /// after them too. `frame` reaches at least to `options`.
    #[inline]
    pub(crate) fn parse_fields(frame: &[u8], options: usize) -> Result<(Message, usize), Malformed> {
        let flags = frame[1];
        if flags & FLAGS_RESERVED != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        if frame.len() < options + options_bytes(flags) {
            return Err(fault(Fault::FrameLength, 2));
        }
        let mut at = options;
        let service = (flags & FLAG_SERVICE != 0).then(|| {
            at += 8;
            ServiceAddress::new(u32_at(frame, options), u32_at(frame, options + 4))
        });
        let tag = (flags & FLAG_TAG != 0).then(|| {
            at += 8;
            u64_at(frame, at - 8)
        });
        let (from, to) = (PortId(u32_at(frame, 4)), PortId(u32_at(frame, 8)));
        let (class, notify, seq) = (flags & CLASS_MASK, flags & FLAG_NOTIFY != 0, u32_at(frame, 12));
        let message = Message { class, from, to, seq, service, tag, notify };
        Ok((message, at))
    }

    #[inline]
    pub(crate) fn parse(frame: &[u8]) -> Result<(Message, &[u8]), Malformed> {
        if frame.len() < 16 {
            return Err(fault(Fault::FrameLength, 2));
        }
        let (message, payload) = Message::parse_fields(frame, 16)?;
        Ok((message, &frame[payload..]))
    }
}

impl Fragment {
    /// Bytes before the payload: 24, and service and tag in a piece with offset 0.
    pub const fn header_bytes(&self) -> usize {
        24 + options_bytes(self.flags())
    }

    /// Appends the frame header of this piece with `payload_len` bytes, which the caller adds, and their padding.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>, payload_len: usize) {
        Draft::<24>::frame(kind::FRAGMENT, self.flags(), self.header_bytes() + payload_len)
            .u32(self.message.from.0)
            .u32(self.message.to.0)
            .u32(self.message.seq)
            .u32(self.total)
            .u32(self.offset)
            .end(out);
        if self.offset == 0 {
            self.message.emit_options(out);
        }
    }

    const fn flags(&self) -> u8 {
        if self.offset == 0 { self.message.flags() } else { self.message.class_flags() }
    }

    #[inline]
    pub(crate) fn parse(frame: &[u8]) -> Result<(Fragment, &[u8]), Malformed> {
        if frame.len() < 24 {
            return Err(fault(Fault::FrameLength, 2));
        }
        let (message, payload) = Message::parse_fields(frame, 24)?;
        let fragment = Fragment { message, total: u32_at(frame, 16), offset: u32_at(frame, 20) };
        if fragment.offset != 0 && (payload != 24 || fragment.message.notify) {
            return Err(fault(Fault::Value, 1));
        }
        let payload = &frame[payload..];
        if u64::from(fragment.offset) + payload.len() as u64 > u64::from(fragment.total) {
            return Err(fault(Fault::Value, 20));
        }
        Ok((fragment, payload))
    }
}

impl Multicast {
    const FIXED_BYTES: usize = 32;

    /// Bytes before the payload: 32, and the tag in a piece with offset 0.
    pub const fn header_bytes(&self) -> usize {
        Multicast::FIXED_BYTES + options_bytes(self.flags())
    }

    const fn flags(&self) -> u8 {
        self.message.class_flags() | if self.offset == 0 { self.message.tag_flag() } else { 0 }
    }

    /// Appends the frame header of this piece with `payload_len` bytes, which the caller adds, and their padding.
    pub fn emit(&self, out: &mut Vec<u8>, payload_len: usize) {
        Draft::<{ Multicast::FIXED_BYTES }>::frame(
            kind::MULTICAST,
            self.flags(),
            self.header_bytes() + payload_len,
        )
        .u32(self.message.from.0)
        .u32(self.message.seq)
        .u32(self.range.kind)
        .u32(self.range.lower)
        .u32(self.range.upper)
        .u32(self.total)
        .u32(self.offset)
        .end(out);
        if let Some(tag) = self.message.tag.filter(|_| self.offset == 0) {
            out.extend_from_slice(&tag.to_le_bytes());
        }
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<(Multicast, &[u8]), Malformed> {
        if frame.len() < Multicast::FIXED_BYTES {
            return Err(fault(Fault::FrameLength, 2));
        }
        let flags = frame[1];
        if flags & !(CLASS_MASK | FLAG_TAG) != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        let (total, offset) = (u32_at(frame, 24), u32_at(frame, 28));
        if flags & FLAG_TAG != 0 && offset != 0 {
            return Err(fault(Fault::Value, 1));
        }
        let start = Multicast::FIXED_BYTES + options_bytes(flags);
        let payload = frame.get(start..).ok_or(fault(Fault::FrameLength, 2))?;
        let tag = (flags & FLAG_TAG != 0).then(|| u64_at(frame, Multicast::FIXED_BYTES));
        let range = ServiceRange::new(u32_at(frame, 12), u32_at(frame, 16), u32_at(frame, 20));
        if range.lower > range.upper {
            return Err(fault(Fault::Value, 20));
        }
        if u64::from(offset) + payload.len() as u64 > u64::from(total) {
            return Err(fault(Fault::Value, 28));
        }
        let (from, to, seq) = (PortId(u32_at(frame, 4)), PortId::MULTICAST, u32_at(frame, 8));
        let message = Message { class: flags & CLASS_MASK, from, to, seq, service: None, tag, notify: false };
        Ok((Multicast { message, range, total, offset }, payload))
    }
}

impl TransferFragment {
    /// Bytes before the payload.
    pub const HEADER_BYTES: usize = TRANSFER_FRAGMENT_BYTES;

    /// Appends the frame header of this piece with `payload_len` bytes, which the caller adds, and their padding.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>, payload_len: usize) {
        let len = TRANSFER_FRAGMENT_BYTES + payload_len;
        Draft::<TRANSFER_FRAGMENT_BYTES>::frame(kind::TRANSFER_FRAGMENT, 0, len)
            .u32(self.transfer.0)
            .u64(self.offset)
            .end(out);
    }

    #[inline]
    pub(crate) fn parse(frame: &[u8]) -> Result<(TransferFragment, &[u8]), Malformed> {
        if frame.len() < TRANSFER_FRAGMENT_BYTES {
            return Err(fault(Fault::FrameLength, 2));
        }
        if frame[1] != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        let (fragment, payload) = (
            TransferFragment { transfer: TransferId(u32_at(frame, 4)), offset: u64_at(frame, 8) },
            &frame[TRANSFER_FRAGMENT_BYTES..],
        );
        if fragment.offset > MESSAGE_BYTES_MAX - payload.len() as u64 {
            return Err(fault(Fault::Value, 8));
        }
        Ok((fragment, payload))
    }
}
