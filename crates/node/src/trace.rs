//! Packets as a running node sends and receives them, for `polyrail trace`: what its control socket writes
//! (docs/operating.md, "Traces"), and how to read that.

use polyrail_bearer::Address;
use polyrail_bearer::capture::RECORD_HEADER_BYTES;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

pub use polyrail_bearer::capture::FILE_HEADER_BYTES;

/// Bytes before each packet of a stream: time, and lengths.
pub const HEAD_BYTES: usize = RECORD_HEADER_BYTES;
/// The length of what is no packet: the end of a stream, behind which one line of JSON tells what was captured.
pub const END: u32 = u32::MAX;
/// Longest record: an IPv6 header, and a UDP datagram of any size.
pub const RECORD_BYTES_MAX: u32 = 40 + 65_535;

/// The lengths that the head of a record tells: bytes that follow, and bytes that there were.
pub fn lengths(head: &[u8; HEAD_BYTES]) -> (u32, u32) {
    (word(head, 8), word(head, 12))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A packet of a stream. As text it is one line: time, sender, receiver, and everything in it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it passed, nanoseconds since 1970.
    pub unix_ns: u64,
    /// Who sent it.
    pub from: SocketAddr,
    /// Who was to get it.
    pub to: SocketAddr,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a record; `None` if it is none of a stream.
    pub fn read(head: &[u8; HEAD_BYTES], record: &'a [u8]) -> Option<Packet<'a>> {
        let unix_ns = u64::from(word(head, 0)) * 1_000_000_000 + u64::from(word(head, 4));
        let (from, to, udp) = match record.first()? >> 4 {
            4 => {
                let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(record.get(at..at + 4)?).ok()?));
                (ip(12)?.into(), ip(16)?.into(), record.get(20..)?)
            }
            6 => {
                let ip =
                    |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(record.get(at..at + 16)?).ok()?));
                (ip(8)?.into(), ip(24)?.into(), record.get(40..)?)
            }
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(udp.get(at..at + 2)?.try_into().ok()?));
        let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
        Some(Packet { unix_ns, from, to, bytes: udp.get(8..)? })
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.unix_ns / 1_000_000_000, self.unix_ns % 1_000_000_000);
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{hour:02}:{minute:02}:{second:02}.{rest:09} {} > {} ", self.from, self.to)?;
        write!(f, "{} B: {}", self.bytes.len(), describe(self.bytes))
    }
}

/// One line about a packet of the protocol: its header, its frames, and the first fault if there is one.
pub fn describe(packet: &[u8]) -> String {
    polyrail_proto::wire::describe(packet)
}

/// The bytes of an address in the core's words, as an address.
pub(crate) fn plain(media: &polyrail_proto::address::MediaAddress) -> Option<Address> {
    Address::from_bytes(media.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_bearer::capture::Captured;

    fn put(from: &str, to: &str, bytes: &[u8]) -> Vec<u8> {
        let address = |text: &str| Address::Ip(text.parse().unwrap());
        let (unix_ns, whole_bytes) = (3_661_000_000_042, bytes.len());
        let mut out = Vec::new();
        Captured { unix_ns, from: address(from), to: address(to), bytes, whole_bytes }.put(&mut out);
        out
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for (from, to) in [("10.0.0.1:7430", "239.255.74.30:7431"), ("[fd00::1]:1", "[ff02::7430]:7431")] {
            let out = put(from, to, b"\x10bad");
            let (head, record) = out.split_first_chunk::<HEAD_BYTES>().unwrap();
            assert_eq!(lengths(head).0 as usize, record.len());
            let packet = Packet::read(head, record).unwrap();
            assert_eq!((packet.from.to_string(), packet.to.to_string()), (from.to_owned(), to.to_owned()));
            assert_eq!((packet.unix_ns, packet.bytes), (3_661_000_000_042, &b"\x10bad"[..]));
            let line = packet.to_string();
            assert!(
                line.starts_with(&format!("01:01:01.000000042 {from} > {to} 4 B: malformed: truncated")),
                "{line}"
            );
            for end in 0..record.len() - 4 {
                assert!(Packet::read(head, &record[..end]).is_none(), "{end}");
            }
        }
    }
}
