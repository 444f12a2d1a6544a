//! The packet header: 24 bytes, always in clear (protocol.md §2.1).

use super::field::{Draft, fault, u16_at, u32_at, u64_at};
use super::{Fault, HEADER_BYTES, Malformed, VERSION};
use crate::id::{LinkId, SessionId};

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketType {
    /// Frames of an established session.
    Data = 0,
    /// Opens a session.
    Init = 1,
    /// Answers `Init`.
    Resp = 2,
    /// Asks the initiator to prove its address (security issue).
    Cookie = 3,
    /// Here I am.
    Beacon = 4,
    /// Names the versions that the sender speaks.
    Versions = 5,
    /// The addressed session does not exist here.
    Reset = 6,
}

/// Key phase bit (sealed packets).
pub const FLAG_KEY_PHASE: u8 = 1 << 0;
/// The packet is sealed: an AEAD tag ends it, `check` is 0.
pub const FLAG_SEALED: u8 = 1 << 1;
/// `check` covers the whole packet, not only the headers.
pub const FLAG_FULL_CHECK: u8 = 1 << 2;
/// The packet wants to be acknowledged.
pub const FLAG_ACK_ELICITING: u8 = 1 << 3;
/// The packet wants to be acknowledged at once.
pub const FLAG_ACK_NOW: u8 = 1 << 4;
/// Last packet of a train.
pub const FLAG_TRAIN_LAST: u8 = 1 << 5;
/// The packet wants to be acknowledged by what leaves next, or soon.
pub const FLAG_ACK_SOON: u8 = 1 << 6;

/// Packet header (protocol.md §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Packet type; the version is that of this build.
    pub kind: PacketType,
    /// `FLAG_*`.
    pub flags: u8,
    /// The link inside the session; 0 outside of one.
    pub link: LinkId,
    /// The receiver's session index; 0 when none exists yet.
    pub to: SessionId,
    /// Packet number on this link.
    pub number: u64,
    /// Sender's clock in units of 256 ns.
    pub stamp: u32,
    /// CRC32C, see protocol.md §2.3; 0 when sealed.
    pub check: u32,
}

/// Highest packet number: 48 bits are used, so that arithmetic on them can't overflow.
pub const PACKET_NUMBER_MAX: u64 = (1 << 48) - 1;

/// Offset of `check` in a packet; it is counted as zero while the checksum is computed.
pub const CHECK_OFFSET: usize = 20;

/// Flag bits without a meaning.
const FLAGS_RESERVED: u8 = 0x80;

impl PacketType {
    const fn from_nibble(nibble: u8) -> Option<PacketType> {
        Some(match nibble {
            0 => PacketType::Data,
            1 => PacketType::Init,
            2 => PacketType::Resp,
            3 => PacketType::Cookie,
            4 => PacketType::Beacon,
            5 => PacketType::Versions,
            6 => PacketType::Reset,
            _ => return None,
        })
    }
}

impl Header {
    /// The header of a packet outside of a session: no flags, no link, no number, `check` still 0.
    pub const fn outside(kind: PacketType, to: SessionId, stamp: u32) -> Header {
        Header { kind, flags: 0, link: LinkId(0), to, number: 0, stamp, check: 0 }
    }

    /// Reads the header of a packet of this build's version. The checksum is not looked at: see [`super::verify`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Header, Malformed> {
        let version = peek_version(packet).ok_or(fault(Fault::Truncated, 0))?;
        if version != VERSION {
            return Err(fault(Fault::Version(version), 0));
        }
        Header::parse_any_version(packet)
    }

    /// Reads a header whatever its version: the place of its fields is frozen (protocol.md §2.1).
    pub(crate) fn parse_any_version(packet: &[u8]) -> Result<Header, Malformed> {
        let b: &[u8; HEADER_BYTES] = packet.first_chunk().ok_or(fault(Fault::Truncated, packet.len()))?;
        let nibble = b[0] & 0x0F;
        let kind = PacketType::from_nibble(nibble).ok_or(fault(Fault::PacketType(nibble), 0))?;
        let header = Header {
            kind,
            flags: b[1],
            link: LinkId(u16_at(b, 2)),
            to: SessionId(u32_at(b, 4)),
            number: u64_at(b, 8),
            stamp: u32_at(b, 16),
            check: u32_at(b, CHECK_OFFSET),
        };
        let flags_reserved = if kind == PacketType::Data { FLAGS_RESERVED } else { 0xFF };
        if header.flags & flags_reserved != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        if kind != PacketType::Data && header.link != LinkId(0) {
            return Err(fault(Fault::Reserved, 2));
        }
        if header.number > PACKET_NUMBER_MAX {
            return Err(fault(Fault::Value, 8));
        }
        Ok(header)
    }

    /// Appends the 24 bytes, `check` as it stands.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<HEADER_BYTES>::new()
            .u8(VERSION << 4 | self.kind as u8)
            .u8(self.flags)
            .u16(self.link.0)
            .u32(self.to.0)
            .u64(self.number)
            .u32(self.stamp)
            .u32(self.check)
            .end(out);
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// The wire version of a packet, readable for every version. `None` for an empty packet.
#[inline]
pub fn peek_version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|byte| byte >> 4)
}

/// The type of a packet, readable for every version. `None` if it is empty or of an unknown type.
#[inline]
pub fn peek_type(packet: &[u8]) -> Option<PacketType> {
    packet.first().and_then(|byte| PacketType::from_nibble(byte & 0x0F))
}
