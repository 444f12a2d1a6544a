//! INIT and RESP: how a session opens (protocol.md §3.2).

use super::field::{Draft, expect_zero, fault, pad, padded, u16_at, u32_at, u64_at};
use super::handshake::{BEARERS_MAX, BearerAddress, Hello, NAME_BYTES_MAX};
use super::walk::{CRITICAL, PAD, Raw, Walk};
use super::{Fault, HEADER_BYTES, Header, Malformed, PacketType};
use crate::address::MediaAddress;
use crate::id::{BearerId, Incarnation, NodeId, SessionId};
use arrayvec::{ArrayString, ArrayVec};

/// Bytes before the parameters.
const FIXED_BYTES: usize = 80;
/// Parameter: the node's name.
const PARAMETER_NAME: u8 = 0x01;
/// Parameter: one of the node's bearers.
const PARAMETER_BEARER: u8 = 0x02;
/// Bytes of a bearer parameter before the address.
const BEARER_BYTES: usize = 12;

impl Hello {
    /// Appends a whole packet of type `kind` (`Init` or `Resp`). `to` is the receiver's session index, 0 in INIT.
    pub fn emit_packet(&self, kind: PacketType, to: SessionId, stamp: u32, out: &mut Vec<u8>) {
        debug_assert!(matches!(kind, PacketType::Init | PacketType::Resp), "these two carry a Hello");
        let start = out.len();
        Header::outside(kind, to, stamp).emit(out);
        self.emit_fixed(out);
        if !self.name.is_empty() {
            let len = 4 + self.name.len();
            Draft::<4>::frame(PARAMETER_NAME, 0, len).end(out);
            out.extend_from_slice(self.name.as_bytes());
            pad(len, out);
        }
        for bearer in &self.bearers {
            bearer.emit(out);
        }
        super::check::finish(&mut out[start..]).expect("the header was just written");
    }

    /// Bytes of the whole packet.
    pub fn emitted_bytes(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { padded(4 + self.name.len()) };
        let bearers: usize =
            self.bearers.iter().map(|bearer| padded(BEARER_BYTES + bearer.address.as_bytes().len())).sum();
        HEADER_BYTES + FIXED_BYTES + name + bearers
    }

    fn emit_fixed(&self, out: &mut Vec<u8>) {
        Draft::<FIXED_BYTES>::new()
            .u64(self.cluster)
            .u64(self.node.0)
            .u64(self.incarnation.0)
            .u64(self.echo.0)
            .u64(self.features)
            .u64(self.host)
            .u32(self.session.0)
            .u32(self.attempt)
            .u32(self.eager_bytes_max)
            .u32(self.initial_credit.0)
            .u32(self.initial_credit.1)
            .u32(self.tolerance_ms)
            .u8(self.versions.0)
            .u8(self.versions.1)
            .u8(self.bearer.0)
            .zero(5)
            .end(out);
    }

    /// Reads the body of an INIT or RESP packet: what follows the header.
    pub fn parse(body: &[u8]) -> Result<Hello, Malformed> {
        let Some((b, parameters)) = body.split_first_chunk::<FIXED_BYTES>() else {
            return Err(fault(Fault::Truncated, HEADER_BYTES + body.len()));
        };
        let mut hello = parse_fixed(b).map_err(|e| fault(e.what, HEADER_BYTES + usize::from(e.offset)))?;
        for raw in Walk::new(parameters, HEADER_BYTES + FIXED_BYTES) {
            let raw = raw?;
            hello.parse_parameter(&raw).map_err(|e| fault(e.what, raw.at + usize::from(e.offset)))?;
        }
        Ok(hello)
    }

    fn parse_parameter(&mut self, raw: &Raw<'_>) -> Result<(), Malformed> {
        let content = raw.bytes.get(4..).unwrap_or(&[]);
        match raw.kind {
            PAD => expect_zero(raw.bytes, 0, raw.bytes.len())?,
            PARAMETER_NAME => {
                if !self.name.is_empty() {
                    return Err(fault(Fault::Count, 0));
                }
                self.name = parse_name(content)?;
            }
            PARAMETER_BEARER => {
                let bearer = BearerAddress::parse(raw.bytes)?;
                self.bearers.try_push(bearer).map_err(|_| fault(Fault::Count, 0))?;
            }
            CRITICAL.. => return Err(fault(Fault::CriticalFrame(raw.kind), 0)),
            _ => {}
        }
        Ok(())
    }
}

fn parse_fixed(b: &[u8; FIXED_BYTES]) -> Result<Hello, Malformed> {
    let node = NodeId(u64_at(b, 8));
    if node == NodeId(0) {
        return Err(fault(Fault::Value, 8));
    }
    let versions = (b[72], b[73]);
    if versions.0 > versions.1 {
        return Err(fault(Fault::Value, 72));
    }
    if usize::from(b[74]) >= BEARERS_MAX {
        return Err(fault(Fault::Value, 74));
    }
    expect_zero(b, 75, FIXED_BYTES)?;
    Ok(Hello {
        cluster: u64_at(b, 0),
        node,
        incarnation: Incarnation(u64_at(b, 16)),
        session: SessionId(u32_at(b, 48)),
        attempt: u32_at(b, 52),
        echo: Incarnation(u64_at(b, 24)),
        versions,
        features: u64_at(b, 32),
        bearer: BearerId(b[74]),
        eager_bytes_max: u32_at(b, 56),
        initial_credit: (u32_at(b, 60), u32_at(b, 64)),
        tolerance_ms: u32_at(b, 68),
        host: u64_at(b, 40),
        name: ArrayString::new(),
        bearers: ArrayVec::new(),
    })
}

/// Names are shown on terminals: control characters are not text here.
fn parse_name(content: &[u8]) -> Result<ArrayString<NAME_BYTES_MAX>, Malformed> {
    let text = core::str::from_utf8(content).map_err(|e| fault(Fault::Text, 4 + e.valid_up_to()))?;
    if text.chars().any(char::is_control) {
        return Err(fault(Fault::Text, 4));
    }
    ArrayString::from(text).map_err(|_| fault(Fault::Text, 4))
}

impl BearerAddress {
    fn emit(&self, out: &mut Vec<u8>) {
        let address = self.address.as_bytes();
        let len = BEARER_BYTES + address.len();
        Draft::<BEARER_BYTES>::frame(PARAMETER_BEARER, 0, len)
            .u8(self.bearer.0)
            .zero(1)
            .u16(self.mtu)
            .u32(self.window_bytes)
            .end(out);
        out.extend_from_slice(address);
        pad(len, out);
    }

    fn parse(bytes: &[u8]) -> Result<BearerAddress, Malformed> {
        let Some((b, address)) = bytes.split_first_chunk::<BEARER_BYTES>() else {
            return Err(fault(Fault::FrameLength, 2));
        };
        if usize::from(b[4]) >= BEARERS_MAX {
            return Err(fault(Fault::Value, 4));
        }
        expect_zero(b, 5, 6)?;
        let address = MediaAddress::from_bytes(address).ok_or(fault(Fault::FrameLength, 2))?;
        Ok(BearerAddress { bearer: BearerId(b[4]), mtu: u16_at(b, 6), window_bytes: u32_at(b, 8), address })
    }
}
