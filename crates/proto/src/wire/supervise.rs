//! Frames about bearers and links: BEARER_STATE, PROBE, PROBE_REPLY, LINK_SET, BEARER_SET, CLOSE
//! (protocol.md §4.5, §4.11, §4.12, §4.14).

use super::field::{Draft, expect_zero, fault, u16_at, u32_at, u64_at};
use super::flow::exact;
use super::frame::{BearerSet, BearerState, Close, LinkSet, LinkStatus, Probe, ProbeKind, ProbeReply, kind};
use super::handshake::{BEARERS_MAX, BearerAddress};
use super::header::PACKET_NUMBER_MAX;
use super::{Fault, Malformed};
use crate::address::MediaAddress;
use crate::id::{BearerId, LinkId};

/// Highest state of a bearer: leaving.
const BEARER_STATE_MAX: u8 = 3;
/// Flags of PROBE and PROBE_REPLY: the kind.
const PROBE_KIND_MASK: u8 = 0x0F;
/// Flag of PROBE_REPLY: the bearer has carrier.
const PROBE_CARRIER: u8 = 0x80;

/// Room for an address.
const ADDRESS_BYTES: usize = 24;

impl BearerState {
    pub(crate) const BYTES: usize = 32;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ BearerState::BYTES }>::frame(kind::BEARER_STATE, 0, BearerState::BYTES)
            .u8(self.bearer.0)
            .u8(self.tx_state)
            .u8(self.rx_state)
            .zero(1)
            .u32(self.tx_backlog)
            .u32(self.rx_backlog)
            .u32(self.rx_window)
            .zero(2)
            .u16(self.senders)
            .u32(self.rx_rate)
            .u32(self.seq)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<BearerState, Malformed> {
        let b = exact::<{ BearerState::BYTES }>(frame, 0)?;
        for at in [5, 6] {
            if b[at] > BEARER_STATE_MAX {
                return Err(fault(Fault::Value, at));
            }
        }
        expect_zero(b, 7, 8)?;
        expect_zero(b, 20, 22)?;
        Ok(BearerState {
            bearer: BearerId(b[4]),
            tx_state: b[5],
            rx_state: b[6],
            tx_backlog: u32_at(b, 8),
            rx_backlog: u32_at(b, 12),
            rx_window: u32_at(b, 16),
            senders: u16_at(b, 22),
            rx_rate: u32_at(b, 24),
            seq: u32_at(b, 28),
        })
    }
}

impl ProbeKind {
    fn from_flags(flags: u8) -> Result<ProbeKind, Malformed> {
        Ok(match flags & PROBE_KIND_MASK {
            0 => ProbeKind::Liveness,
            1 => ProbeKind::Indirect,
            2 => ProbeKind::Mtu,
            3 => ProbeKind::State,
            4 => ProbeKind::Join,
            _ => return Err(fault(Fault::Value, 1)),
        })
    }
}

impl Probe {
    pub(crate) const BYTES: usize = 24;

    /// Appends the frame. The padding of kind `Mtu` is the caller's: zeros up to `size`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Probe::BYTES }>::frame(kind::PROBE, self.kind as u8, Probe::BYTES)
            .u16(self.about.0)
            .u16(self.size)
            .u64(self.id)
            .u64(self.target)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Probe, Malformed> {
        let b = exact::<{ Probe::BYTES }>(frame, PROBE_KIND_MASK)?;
        Ok(Probe {
            id: u64_at(b, 8),
            about: LinkId(u16_at(b, 4)),
            kind: ProbeKind::from_flags(b[1])?,
            target: u64_at(b, 16),
            size: u16_at(b, 6),
        })
    }
}

impl ProbeReply {
    pub(crate) const BYTES: usize = 40;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let carrier = if self.carrier { PROBE_CARRIER } else { 0 };
        Draft::<{ ProbeReply::BYTES }>::frame(
            kind::PROBE_REPLY,
            self.kind as u8 | carrier,
            ProbeReply::BYTES,
        )
        .u16(self.about.0)
        .u16(self.size)
        .u64(self.id)
        .u64(self.last_rx)
        .u64(self.next_tx)
        .u32(self.last_rx_age)
        .u32(self.stall_us)
        .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<ProbeReply, Malformed> {
        let b = exact::<{ ProbeReply::BYTES }>(frame, PROBE_KIND_MASK | PROBE_CARRIER)?;
        let reply = ProbeReply {
            id: u64_at(b, 8),
            about: LinkId(u16_at(b, 4)),
            kind: ProbeKind::from_flags(b[1])?,
            last_rx: u64_at(b, 16),
            last_rx_age: u32_at(b, 32),
            next_tx: u64_at(b, 24),
            carrier: b[1] & PROBE_CARRIER != 0,
            stall_us: u32_at(b, 36),
            size: u16_at(b, 6),
        };
        // One past the highest number is a legal "next", and all ones is not taken for "none".
        if reply.last_rx > PACKET_NUMBER_MAX {
            return Err(fault(Fault::Value, 16));
        }
        if reply.next_tx > PACKET_NUMBER_MAX + 1 {
            return Err(fault(Fault::Value, 24));
        }
        Ok(reply)
    }
}

impl LinkSet {
    pub(crate) const BYTES: usize = 16;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ LinkSet::BYTES }>::frame(kind::LINK_SET, 0, LinkSet::BYTES)
            .u32(self.control)
            .u16(self.link.0)
            .u8(self.status as u8)
            .zero(1)
            .u32(self.number)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<LinkSet, Malformed> {
        let b = exact::<{ LinkSet::BYTES }>(frame, 0)?;
        let status = match b[10] {
            0 => LinkStatus::Active,
            1 => LinkStatus::Standby,
            2 => LinkStatus::Drain,
            3 => LinkStatus::Down,
            _ => return Err(fault(Fault::Value, 10)),
        };
        expect_zero(b, 11, 12)?;
        let (link, number) = (LinkId(u16_at(b, 8)), u32_at(b, 12));
        Ok(LinkSet { control: u32_at(b, 4), link, status, number })
    }
}

impl BearerSet {
    pub(crate) const BYTES: usize = 48;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let address = self.bearer.address.as_bytes();
        let mut padded = [0; ADDRESS_BYTES];
        padded[..address.len()].copy_from_slice(address);
        Draft::<{ BearerSet::BYTES }>::frame(kind::BEARER_SET, 0, BearerSet::BYTES)
            .u32(self.control)
            .u8(self.bearer.bearer.0)
            .u8(u8::from(!self.gone))
            .u16(self.bearer.mtu)
            .u32(self.bearer.window_bytes)
            .u8(address.len() as u8)
            .zero(7)
            .put(padded)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<BearerSet, Malformed> {
        let b = exact::<{ BearerSet::BYTES }>(frame, 0)?;
        if usize::from(b[8]) >= BEARERS_MAX {
            return Err(fault(Fault::Value, 8));
        }
        let gone = match b[9] {
            0 => true,
            1 => false,
            _ => return Err(fault(Fault::Value, 9)),
        };
        let len = usize::from(b[16]);
        if len > ADDRESS_BYTES {
            return Err(fault(Fault::Value, 16));
        }
        if gone {
            expect_zero(b, 10, 17)?;
        }
        expect_zero(b, 17, 24)?;
        expect_zero(b, 24 + len, BearerSet::BYTES)?;
        let address = MediaAddress::from_bytes(&b[24..24 + len]).unwrap_or_default();
        let (bearer, mtu, window_bytes) = (BearerId(b[8]), u16_at(b, 10), u32_at(b, 12));
        let bearer = BearerAddress { bearer, mtu, window_bytes, address };
        Ok(BearerSet { control: u32_at(b, 4), bearer, gone })
    }
}

impl Close {
    pub(crate) const BYTES: usize = 8;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ Close::BYTES }>::frame(kind::CLOSE, 0, Close::BYTES).u16(self.reason).zero(2).end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<Close, Malformed> {
        let b = exact::<{ Close::BYTES }>(frame, 0)?;
        expect_zero(b, 6, 8)?;
        Ok(Close { reason: u16_at(b, 4) })
    }
}
