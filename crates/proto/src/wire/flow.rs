//! Frames about messages and memory: CREDIT, REFUSE, RTS, CTS, TRANSFER_ABORT, PORT_CLOSED, CONSUMED
//! (protocol.md §4.6-§4.9, §4.13, §4.19).

use super::field::{Draft, expect_zero, fault, padded, u16_at, u32_at, u64_at};
use super::frame::{
    Consumed, Credit, Cts, MESSAGE_BYTES_MAX, Message, Refuse, RefuseReason, Rejected, Rts, kind,
};
use super::{Fault, Malformed};
use crate::id::{PortId, TransferId};

/// The bytes of a frame without optional fields: exactly `N`, flags within `flags`.
pub(crate) fn exact<const N: usize>(frame: &[u8], flags: u8) -> Result<&[u8; N], Malformed> {
    let b: &[u8; N] = frame.try_into().map_err(|_| fault(Fault::FrameLength, 2))?;
    if b[1] & !flags != 0 {
        return Err(fault(Fault::Reserved, 1));
    }
    Ok(b)
}

fn message_bytes(frame: &[u8], at: usize) -> Result<u64, Malformed> {
    let bytes = u64_at(frame, at);
    if bytes > MESSAGE_BYTES_MAX { Err(fault(Fault::Value, at)) } else { Ok(bytes) }
}

impl Credit {
    pub(crate) const BYTES: usize = 24;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Credit::BYTES }>::frame(kind::CREDIT, 0, Credit::BYTES)
            .u32(self.port.0)
            .u32(self.messages)
            .zero(4)
            .u64(self.bytes)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Credit, Malformed> {
        let b = exact::<{ Credit::BYTES }>(frame, 0)?;
        expect_zero(b, 12, 16)?;
        Ok(Credit { port: PortId(u32_at(b, 4)), messages: u32_at(b, 8), bytes: u64_at(b, 16) })
    }
}

impl Refuse {
    pub(crate) const BYTES: usize = 32;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Refuse::BYTES }>::frame(kind::REFUSE, self.class & 3, Refuse::BYTES)
            .u32(self.control)
            .u32(self.from.0)
            .u32(self.to.0)
            .u32(self.seq)
            .u16(self.reason as u16)
            .zero(2)
            .u32(self.retry_after_us)
            .zero(4)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Refuse, Malformed> {
        let b = exact::<{ Refuse::BYTES }>(frame, 3)?;
        expect_zero(b, 22, 24)?;
        expect_zero(b, 28, 32)?;
        let reason = match u16_at(b, 20) {
            1 => RefuseReason::NoRoom,
            2 => RefuseReason::NoPort,
            3 => RefuseReason::TooLarge,
            _ => return Err(fault(Fault::Value, 20)),
        };
        Ok(Refuse {
            control: u32_at(b, 4),
            from: PortId(u32_at(b, 8)),
            to: PortId(u32_at(b, 12)),
            seq: u32_at(b, 16),
            class: b[1],
            reason,
            retry_after_us: u32_at(b, 24),
        })
    }
}

impl Rts {
    const FIXED_BYTES: usize = 32;

    /// Bytes that [`Rts::emit`] appends: 32, 40 or 48.
    pub const fn emitted_bytes(&self) -> usize {
        Rts::FIXED_BYTES + self.message.options_bytes()
    }

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Rts::FIXED_BYTES }>::frame(kind::RTS, self.message.flags(), self.emitted_bytes())
            .u32(self.message.from.0)
            .u32(self.message.to.0)
            .u32(self.message.seq)
            .u32(self.token)
            .zero(4)
            .u64(self.total)
            .end(out);
        self.message.emit_options(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Rts, Malformed> {
        if frame.len() < Rts::FIXED_BYTES {
            return Err(fault(Fault::FrameLength, 2));
        }
        let (message, end) = Message::parse_fields(frame, Rts::FIXED_BYTES)?;
        if end != frame.len() {
            return Err(fault(Fault::FrameLength, 2));
        }
        expect_zero(frame, 20, 24)?;
        Ok(Rts { message, token: u32_at(frame, 16), total: message_bytes(frame, 24)? })
    }
}

impl Cts {
    pub(crate) const BYTES: usize = 32;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Cts::BYTES }>::frame(kind::CTS, 0, Cts::BYTES)
            .u32(self.token)
            .u32(self.transfer.0)
            .zero(4)
            .u64(self.granted)
            .u64(self.done)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Cts, Malformed> {
        let b = exact::<{ Cts::BYTES }>(frame, 0)?;
        expect_zero(b, 12, 16)?;
        Ok(Cts {
            token: u32_at(b, 4),
            transfer: TransferId(u32_at(b, 8)),
            granted: message_bytes(b, 16)?,
            done: message_bytes(b, 24)?,
        })
    }
}

impl Consumed {
    pub(crate) const BYTES: usize = 24;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Consumed::BYTES }>::frame(kind::CONSUMED, self.class & 3, Consumed::BYTES)
            .u32(self.control)
            .u32(self.from.0)
            .u32(self.to.0)
            .u32(self.seq)
            .u16(self.rest.map_or(0, |why| why as u16))
            .zero(2)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Consumed, Malformed> {
        let b = exact::<{ Consumed::BYTES }>(frame, 3)?;
        expect_zero(b, 22, 24)?;
        let rest = match u16_at(b, 20) {
            0 => None,
            1 => Some(Rejected::PortClosed),
            2 => Some(Rejected::OwnerDied),
            3 => Some(Rejected::ByOwner),
            _ => return Err(fault(Fault::Value, 20)),
        };
        Ok(Consumed {
            control: u32_at(b, 4),
            from: PortId(u32_at(b, 8)),
            to: PortId(u32_at(b, 12)),
            seq: u32_at(b, 16),
            class: b[1],
            rest,
        })
    }
}

/// TRANSFER_ABORT and PORT_CLOSED: a control number and one number more.
pub(crate) const NOTICE_BYTES: usize = 16;

pub(crate) fn emit_notice(kind: u8, control: u32, number: u32, out: &mut Vec<u8>) {
    Draft::<NOTICE_BYTES>::frame(kind, 0, NOTICE_BYTES).u32(control).u32(number).zero(4).end(out);
}

pub(crate) fn parse_notice(frame: &[u8]) -> Result<(u32, u32), Malformed> {
    let b = exact::<NOTICE_BYTES>(frame, 0)?;
    expect_zero(b, 12, 16)?;
    Ok((u32_at(b, 4), u32_at(b, 8)))
}

const _: () = assert!(padded(Credit::BYTES) == Credit::BYTES && padded(Refuse::BYTES) == Refuse::BYTES);
