//! Frames about connections: CONNECT, ACCEPT, SHUTDOWN (protocol.md §4.15-§4.17).

use super::field::{Draft, expect_zero, fault, u16_at, u32_at, u64_at};
use super::flow::exact;
use super::frame::{Accept, Connect, RefusedConnect, Shutdown, kind};
use super::{Fault, Malformed};
use crate::address::ServiceAddress;
use crate::id::PortId;

const CLASS_MASK: u8 = 0x03;
const FLAG_STREAM: u8 = 1 << 2;
const FLAG_SERVICE: u8 = 1 << 3;
const FLAG_REFUSED: u8 = 1 << 0;
const FLAG_SENT_ALL: u8 = 1 << 0;
const FLAG_DEAF: u8 = 1 << 1;
const FLAG_ABORT: u8 = 1 << 2;

/// The receiver's end of a connection; `connecting`: the end of the side that connects.
fn end_at(frame: &[u8], at: usize, connecting: bool) -> Result<PortId, Malformed> {
    let end = PortId(u32_at(frame, at));
    if end.is_connection() && end.is_connecting_end() == connecting {
        Ok(end)
    } else {
        Err(fault(Fault::Value, at))
    }
}

/// A port that is none of a connection's ends.
fn port_at(frame: &[u8], at: usize) -> Result<PortId, Malformed> {
    let port = PortId(u32_at(frame, at));
    if port.0 == 0 || port.is_connection() { Err(fault(Fault::Value, at)) } else { Ok(port) }
}

impl Connect {
    pub(crate) const BYTES: usize = 40;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let stream = if self.stream { FLAG_STREAM } else { 0 };
        let addressed = if self.service.is_some() { FLAG_SERVICE } else { 0 };
        let service = self.service.unwrap_or_default();
        Draft::<{ Connect::BYTES }>::frame(
            kind::CONNECT,
            self.class & CLASS_MASK | stream | addressed,
            Connect::BYTES,
        )
        .u32(self.control)
        .u32(self.end.0)
        .u32(self.from.0)
        .u32(self.to.0)
        .u32(self.credit.1)
        .u64(self.credit.0)
        .u32(service.kind)
        .u32(service.instance)
        .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Connect, Malformed> {
        let b = exact::<{ Connect::BYTES }>(frame, CLASS_MASK | FLAG_STREAM | FLAG_SERVICE)?;
        let service = if b[1] & FLAG_SERVICE != 0 {
            Some(ServiceAddress::new(u32_at(b, 32), u32_at(b, 36)))
        } else {
            expect_zero(b, 32, 40)?;
            None
        };
        Ok(Connect {
            control: u32_at(b, 4),
            end: end_at(b, 8, false)?,
            from: port_at(b, 12)?,
            to: port_at(b, 16)?,
            class: b[1] & CLASS_MASK,
            stream: b[1] & FLAG_STREAM != 0,
            credit: (u64_at(b, 24), u32_at(b, 20)),
            service,
        })
    }
}

impl Accept {
    pub(crate) const BYTES: usize = 32;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (flags, port, reason) = match self.answer {
            Ok(port) => (0, port.0, 0),
            Err(reason) => (FLAG_REFUSED, 0, reason as u16),
        };
        Draft::<{ Accept::BYTES }>::frame(kind::ACCEPT, flags, Accept::BYTES)
            .u32(self.control)
            .u32(self.end.0)
            .u32(port)
            .u16(reason)
            .zero(2)
            .u32(self.credit.1)
            .u64(self.credit.0)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Accept, Malformed> {
        let b = exact::<{ Accept::BYTES }>(frame, FLAG_REFUSED)?;
        expect_zero(b, 18, 20)?;
        let answer = if b[1] & FLAG_REFUSED == 0 {
            expect_zero(b, 16, 18)?;
            Ok(port_at(b, 12)?)
        } else {
            expect_zero(b, 12, 16)?;
            let reasons =
                [RefusedConnect::Backlog, RefusedConnect::NobodyListens, RefusedConnect::NotAllowed];
            Err(reasons
                .into_iter()
                .find(|reason| *reason as u16 == u16_at(b, 16))
                .ok_or(fault(Fault::Value, 16))?)
        };
        Ok(Accept {
            control: u32_at(b, 4),
            end: end_at(b, 8, true)?,
            answer,
            credit: (u64_at(b, 24), u32_at(b, 20)),
        })
    }
}

impl Shutdown {
    pub(crate) const BYTES: usize = 24;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags =
            flag(self.sent_all, FLAG_SENT_ALL) | flag(self.deaf, FLAG_DEAF) | flag(self.abort, FLAG_ABORT);
        Draft::<{ Shutdown::BYTES }>::frame(kind::SHUTDOWN, flags, Shutdown::BYTES)
            .u32(self.control)
            .u32(self.end.0)
            .u32(self.messages)
            .zero(8)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Shutdown, Malformed> {
        let b = exact::<{ Shutdown::BYTES }>(frame, FLAG_SENT_ALL | FLAG_DEAF | FLAG_ABORT)?;
        expect_zero(b, 16, 24)?;
        let end = PortId(u32_at(b, 8));
        if !end.is_connection() {
            return Err(fault(Fault::Value, 8));
        }
        Ok(Shutdown {
            control: u32_at(b, 4),
            end,
            messages: u32_at(b, 12),
            sent_all: b[1] & FLAG_SENT_ALL != 0,
            deaf: b[1] & FLAG_DEAF != 0,
            abort: b[1] & FLAG_ABORT != 0,
        })
    }
}
