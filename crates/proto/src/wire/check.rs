//! Integrity of packets (protocol.md §2.3).
//!
//! The checksum of a DATA packet leaves out the payload of messages: the bearer's own checksum covers that, and
//! the sender can take the sum over its headers alone, before any payload is gathered.

use super::field::{fault, u32_at};
use super::header::CHECK_OFFSET;
use super::message::payload_offset;
use super::walk::Walk;
use super::{FLAG_FULL_CHECK, FLAG_SEALED, Fault, HEADER_BYTES, Header, Malformed, PacketType, SEAL_BYTES};
use crc32c::{crc32c, crc32c_append};

/// Parses the header of a received packet and checks the packet's integrity, before any state is touched.
///
/// Of a sealed packet only the form is checked: opening it proves the rest.
pub fn verify(packet: &[u8]) -> Result<Header, Malformed> {
    let header = Header::parse(packet)?;
    if !header.has(FLAG_SEALED) {
        check_plain(packet, &header)?;
    } else if header.check != 0 {
        return Err(fault(Fault::Checksum, CHECK_OFFSET));
    } else if packet.len() < HEADER_BYTES + SEAL_BYTES {
        return Err(fault(Fault::Truncated, packet.len()));
    }
    Ok(header)
}

/// As [`verify`], for BEACON and VERSIONS packets of any wire version: their layout is frozen (protocol.md §3), so
/// that a node which can't be talked to can at least be named. Other types report their version as a fault.
pub fn verify_any_version(packet: &[u8]) -> Result<Header, Malformed> {
    match super::peek_type(packet) {
        Some(PacketType::Beacon | PacketType::Versions) => {
            let header = Header::parse_any_version(packet)?;
            check_plain(packet, &header)?;
            Ok(header)
        }
        _ => verify(packet),
    }
}

/// The `check` of a packet whose bytes outside of the payloads are `headers`, with `check` itself still zero.
#[inline]
pub fn check_of(headers: &[u8]) -> u32 {
    crc32c(headers)
}

/// The `check` over `parts` one after the other: for `FLAG_FULL_CHECK`, with headers and payloads in packet order.
pub fn check_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().fold(0, crc32c_append)
}

/// Writes `check` into a packet or into its header.
///
/// # Panics
/// If `packet` is shorter than a header.
#[inline]
pub fn put_check(packet: &mut [u8], check: u32) {
    packet[CHECK_OFFSET..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
}

/// Computes the `check` of a whole unsealed packet and writes it: for packets that lie in one piece.
pub fn finish(packet: &mut [u8]) -> Result<(), Malformed> {
    let header = Header::parse(packet)?;
    let check = sum(packet, &header)?;
    put_check(packet, check);
    Ok(())
}

fn check_plain(packet: &[u8], header: &Header) -> Result<(), Malformed> {
    if sum(packet, header)? == u32_at(packet, CHECK_OFFSET) {
        Ok(())
    } else {
        Err(fault(Fault::Checksum, CHECK_OFFSET))
    }
}

/// The checksum that `packet` should carry.
fn sum(packet: &[u8], header: &Header) -> Result<u32, Malformed> {
    let mut sum = Sum { packet, crc: 0, covered: 0, gathered: [0; GATHERED_BYTES_MAX], len: 0 };
    if header.kind == PacketType::Data && !header.has(FLAG_FULL_CHECK) {
        for raw in Walk::new(&packet[HEADER_BYTES..], HEADER_BYTES) {
            let raw = raw?;
            if let Some(payload) = payload_offset(raw.kind, raw.flags) {
                if payload > raw.bytes.len() {
                    return Err(fault(Fault::FrameLength, raw.at + 2));
                }
                // The padding of the frame before and this header lie together: one step.
                sum.add(raw.at + payload);
                sum.covered = raw.at + raw.bytes.len();
            }
        }
    }
    sum.add(packet.len());
    Ok(sum.end())
}

/// A checksum under way over a packet. Each step of it costs more than the bytes of some headers, so what lies in small pieces is
/// gathered first.
struct Sum<'a> {
    packet: &'a [u8],
    crc: u32,
    covered: usize,
    gathered: [u8; GATHERED_BYTES_MAX],
    len: usize,
}

/// Most bytes that are gathered for one step.
const GATHERED_BYTES_MAX: usize = 256;

impl Sum<'_> {
    /// Takes in the bytes from where the sum ends up to `end`.
    #[inline]
    fn add(&mut self, end: usize) {
        if self.covered == 0 {
            // The check counts as zero.
            self.gather(HEADER_BYTES);
            self.gathered[CHECK_OFFSET..HEADER_BYTES].fill(0);
        }
        if end - self.covered > GATHERED_BYTES_MAX - self.len {
            self.step();
        }
        if end - self.covered <= GATHERED_BYTES_MAX {
            return self.gather(end);
        }
        self.crc = crc32c_append(self.crc, &self.packet[self.covered..end]);
        self.covered = end;
    }

    /// Copies the bytes up to `end`, for which there is room.
    #[inline]
    fn gather(&mut self, end: usize) {
        let bytes = &self.packet[self.covered..end];
        self.gathered[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self.covered = end;
    }

    /// Sums what was gathered.
    fn step(&mut self) {
        self.crc = crc32c_append(self.crc, &self.gathered[..self.len]);
        self.len = 0;
    }

    fn end(mut self) -> u32 {
        self.step();
        self.crc
    }
}
