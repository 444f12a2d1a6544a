//! Packets of one fixed part outside of a session: BEACON, VERSIONS, RESET (protocol.md §3.1, §3.3, §3.4).

use super::field::{Draft, fault, u32_at, u64_at};
use super::handshake::{Beacon, Reset, Versions};
use super::{Fault, HEADER_BYTES, Header, Malformed, PacketType};
use crate::id::{BearerId, Incarnation, NodeId, SessionId};

const SOLICIT: u8 = 1 << 0;

/// The fixed part of a body. Later versions append to it: bytes beyond are not looked at.
fn fixed<const N: usize>(body: &[u8]) -> Result<&[u8; N], Malformed> {
    body.first_chunk().ok_or(fault(Fault::Truncated, HEADER_BYTES + body.len()))
}

fn node_at(body: &[u8], at: usize) -> Result<NodeId, Malformed> {
    match u64_at(body, at) {
        0 => Err(fault(Fault::Value, HEADER_BYTES + at)),
        id => Ok(NodeId(id)),
    }
}

fn emit_packet<const N: usize>(kind: PacketType, stamp: u32, body: &Draft<N>, out: &mut Vec<u8>) {
    let start = out.len();
    Header::outside(kind, SessionId(0), stamp).emit(out);
    body.end(out);
    super::check::finish(&mut out[start..]).expect("the header was just written");
}

impl Beacon {
    const BYTES: usize = 32;

    /// Appends a whole BEACON packet.
    pub fn emit_packet(&self, stamp: u32, out: &mut Vec<u8>) {
        let mut body = Draft::<{ Beacon::BYTES }>::new();
        body.u64(self.cluster)
            .u64(self.node.0)
            .u64(self.incarnation.0)
            .u8(self.bearer.0)
            .u8(if self.solicit { SOLICIT } else { 0 })
            .zero(6);
        emit_packet(PacketType::Beacon, stamp, &body, out);
    }

    /// Reads the body of a BEACON packet of any wire version.
    pub fn parse(body: &[u8]) -> Result<Beacon, Malformed> {
        let b: &[u8; Beacon::BYTES] = fixed(body)?;
        Ok(Beacon {
            cluster: u64_at(b, 0),
            node: node_at(b, 8)?,
            incarnation: Incarnation(u64_at(b, 16)),
            bearer: BearerId(b[24]),
            solicit: b[25] & SOLICIT != 0,
        })
    }
}

impl Versions {
    const BYTES: usize = 16;

    /// Appends a whole VERSIONS packet.
    pub fn emit_packet(&self, stamp: u32, out: &mut Vec<u8>) {
        let mut body = Draft::<{ Versions::BYTES }>::new();
        body.u64(self.node.0).u8(self.min).u8(self.max).zero(6);
        emit_packet(PacketType::Versions, stamp, &body, out);
    }

    /// Reads the body of a VERSIONS packet of any wire version.
    pub fn parse(body: &[u8]) -> Result<Versions, Malformed> {
        let b: &[u8; Versions::BYTES] = fixed(body)?;
        let (min, max) = (b[8], b[9]);
        if min > max {
            return Err(fault(Fault::Value, HEADER_BYTES + 8));
        }
        Ok(Versions { min, max, node: node_at(b, 0)? })
    }
}

impl Reset {
    const BYTES: usize = 24;

    /// Appends a whole RESET packet. It has no `to`: the sender knows of no session.
    pub fn emit_packet(&self, stamp: u32, out: &mut Vec<u8>) {
        let mut body = Draft::<{ Reset::BYTES }>::new();
        body.u32(self.session.0).zero(4).u64(self.node.0).u64(self.incarnation.0);
        emit_packet(PacketType::Reset, stamp, &body, out);
    }

    /// Reads the body of a RESET packet.
    pub fn parse(body: &[u8]) -> Result<Reset, Malformed> {
        let b: &[u8; Reset::BYTES] = fixed(body)?;
        super::field::expect_zero(b, 4, 8)
            .map_err(|e| fault(e.what, HEADER_BYTES + usize::from(e.offset)))?;
        Ok(Reset {
            session: SessionId(u32_at(b, 0)),
            node: node_at(b, 8)?,
            incarnation: Incarnation(u64_at(b, 16)),
        })
    }
}
