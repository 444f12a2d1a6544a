//! Packets as a capture file has them: pcap with nanosecond time stamps, each packet behind IP and UDP headers.
//!
//! The headers are made from the addresses: a bearer never sees the real ones. Addresses, ports and lengths are true;
//! time to live, identification and the like say nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::Address;

/// Bytes of the header of a file.
pub const FILE_HEADER_BYTES: usize = 24;
/// Bytes before each packet with its IP header.
pub const RECORD_HEADER_BYTES: usize = 16;

/// Classic format with nanosecond time stamps.
const MAGIC_NS: u32 = 0xA1B2_3C4D;
/// LINKTYPE_RAW: a packet begins with its IP header.
const LINKTYPE_RAW: u32 = 101;
const SNAP_BYTES: u32 = 65_535;
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const TIME_TO_LIVE: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// The port that seats of an in-process hub get in a file, so that the packets are known for what they are.
const MEMORY_PORT: u16 = 7430;

/// What a file begins with.
pub fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0; FILE_HEADER_BYTES];
    out[..4].copy_from_slice(&MAGIC_NS.to_le_bytes());
    out[4..6].copy_from_slice(&2u16.to_le_bytes());
    out[6..8].copy_from_slice(&4u16.to_le_bytes());
    out[16..20].copy_from_slice(&SNAP_BYTES.to_le_bytes());
    out[20..].copy_from_slice(&LINKTYPE_RAW.to_le_bytes());
    out
}

/// A packet that was sent or received.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// When, nanoseconds since 1970.
    pub unix_ns: u64,
    /// Who sent it.
    pub from: Address,
    /// Who was to get it.
    pub to: Address,
    /// Its first bytes, or all of them.
    pub bytes: &'a [u8],
    /// How many it had.
    pub whole_bytes: usize,
}

impl Captured<'_> {
    /// Appends the packet to what is to be written to a file.
    pub fn put(&self, out: &mut Vec<u8>) {
        let (from, to) = (ip(&self.from), ip(&self.to));
        let start = out.len() + RECORD_HEADER_BYTES;
        out.resize(start, 0);
        let udp_bytes = self.whole_bytes + UDP_HEADER_BYTES;
        put_ip(out, from.ip(), to.ip(), udp_bytes);
        let ip_bytes = out.len() - start;
        for field in [from.port(), to.port(), udp_bytes as u16, 0] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(self.bytes);
        let sum = self.udp_sum(from.ip(), to.ip(), &out[start + ip_bytes..]);
        out[start + ip_bytes + 6..start + ip_bytes + 8].copy_from_slice(&sum.to_be_bytes());
        let (seconds, rest) = (self.unix_ns / 1_000_000_000, self.unix_ns % 1_000_000_000);
        let (kept, whole) = (out.len() - start, ip_bytes + udp_bytes);
        let head = &mut out[start - RECORD_HEADER_BYTES..start];
        for (place, field) in head.chunks_mut(4).zip([seconds as u32, rest as u32, kept as u32, whole as u32])
        {
            place.copy_from_slice(&field.to_le_bytes());
        }
    }

    /// The checksum of a packet that is whole. That of one that was cut cannot be known, and nobody can check it.
    fn udp_sum(&self, from: IpAddr, to: IpAddr, udp: &[u8]) -> u16 {
        if self.bytes.len() < self.whole_bytes {
            return if from.is_ipv4() { 0 } else { 0xffff };
        }
        let length = (udp.len() as u32).to_be_bytes();
        let sum = ones_sum(udp) + ones_sum(&octets(from)) + ones_sum(&octets(to));
        match fold(sum + ones_sum(&length) + u64::from(UDP)) {
            // Zero would say that there is none.
            0xffff => 0xffff,
            sum => !sum,
        }
    }
}

fn put_ip(out: &mut Vec<u8>, from: IpAddr, to: IpAddr, udp_bytes: usize) {
    if let (IpAddr::V4(_), IpAddr::V4(_)) = (from, to) {
        let start = out.len();
        let total = (udp_bytes + 20) as u16;
        out.extend_from_slice(&[0x45, 0]);
        for field in [total, 0, DO_NOT_FRAGMENT, u16::from_be_bytes([TIME_TO_LIVE, UDP]), 0] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&octets(from));
        out.extend_from_slice(&octets(to));
        let sum = !fold(ones_sum(&out[start..]));
        out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        out.extend_from_slice(&[0x60, 0, 0, 0]);
        out.extend_from_slice(&(udp_bytes as u16).to_be_bytes());
        out.extend_from_slice(&[UDP, TIME_TO_LIVE]);
        out.extend_from_slice(&wide(from));
        out.extend_from_slice(&wide(to));
    }
}

/// An address as it stands in a file. Seats of a hub and of a machine are hosts of 127/8.
fn ip(address: &Address) -> SocketAddr {
    match *address {
        Address::Ip(address) => address,
        Address::Memory(seat) => host_of_seat(seat),
        Address::Shm { seat, .. } => host_of_seat(seat as u32),
    }
}

fn host_of_seat(seat: u32) -> SocketAddr {
    let [_, b, c, d] = seat.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, b, c, d), MEMORY_PORT))
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The sum of 16-bit words that IP's checksums are made of, not folded yet.
fn ones_sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: &str, to: &str, bytes: &[u8], whole_bytes: usize) -> Vec<u8> {
        let address = |text: &str| Address::Ip(text.parse().unwrap());
        let unix_ns = 3_000_000_007;
        let mut out = vec![0xee];
        Captured { unix_ns, from: address(from), to: address(to), bytes, whole_bytes }.put(&mut out);
        assert_eq!(out.remove(0), 0xee, "what was there stays");
        out
    }

    fn head(record: &[u8]) -> Vec<u32> {
        let words = record[..RECORD_HEADER_BYTES].as_chunks::<4>().0.iter();
        words.map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn a_packet_over_ipv4_has_true_addresses_lengths_and_sums() {
        let out = record("10.0.0.1:7430", "10.0.0.2:7431", b"abc", 3);
        assert_eq!(head(&out), [3, 7, 31, 31]);
        let ip = &out[RECORD_HEADER_BYTES..];
        assert_eq!(ip[..10], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(fold(ones_sum(&ip[..20])), 0xffff, "the sum over a header with its checksum");
        assert_eq!(ip[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(ip[20..26], [0x1d, 0x06, 0x1d, 0x07, 0, 11]);
        assert_eq!(&ip[28..], b"abc");
        let pseudo = ones_sum(&ip[12..20]) + u64::from(UDP) + 11;
        assert_eq!(fold(pseudo + ones_sum(&ip[20..])), 0xffff);
    }

    #[test]
    fn a_packet_over_ipv6_has_true_addresses_lengths_and_sums() {
        let out = record("[fd00::1]:1", "[fd00::2]:2", b"abcd", 4);
        assert_eq!(head(&out), [3, 7, 52, 52]);
        let ip = &out[RECORD_HEADER_BYTES..];
        assert_eq!(ip[..8], [0x60, 0, 0, 0, 0, 12, 17, 64]);
        assert_eq!((ip[8], ip[23], ip[39]), (0xfd, 1, 2));
        let pseudo = ones_sum(&ip[8..40]) + u64::from(UDP) + 12;
        assert_eq!(fold(pseudo + ones_sum(&ip[40..])), 0xffff);
    }

    #[test]
    fn a_packet_that_was_cut_says_how_long_it_was() {
        let out = record("10.0.0.1:7430", "10.0.0.2:7431", b"abc", 1_000);
        assert_eq!(head(&out), [3, 7, 31, 1_028]);
        assert_eq!(out[RECORD_HEADER_BYTES + 2..][..2], 1_028u16.to_be_bytes());
        assert_eq!(out[RECORD_HEADER_BYTES + 24..][..4], [3, 240, 0, 0], "length, and no sum");
        assert_eq!(
            record("[fd00::1]:1", "[fd00::2]:2", b"abc", 9)[RECORD_HEADER_BYTES + 46..][..2],
            [255; 2]
        );
    }

    #[test]
    fn seats_of_a_hub_are_hosts_that_cannot_be_others() {
        assert_eq!(ip(&Address::Memory(0x0102_0304)).to_string(), "127.2.3.4:7430");
        assert_eq!(ip(&Address::Shm { machine: 9, seat: 0xff_0102_0304 }).to_string(), "127.2.3.4:7430");
    }
}
