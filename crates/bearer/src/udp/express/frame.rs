//! An express frame as bytes (docs/protocol.md §2.5).

use std::io::IoSlice;

use polyrail_sys::packet::ETHERNET_HEADER_BYTES;

use crate::Address;

/// For local use and experiments (IEEE 802, clause 9.2.4); the mark below tells our frames from others'.
pub(super) const ETHER_TYPE: u16 = 0x88b5;
const MARK: u16 = 0x7072;
/// Where the receiver's port is.
pub(super) const TO_PORT_AT: u32 = ETHERNET_HEADER_BYTES as u32 + 2;
/// Ethernet header and ours.
pub(super) const HEADERS_BYTES: usize = ETHERNET_HEADER_BYTES + 18;
/// Larger packets go as datagrams.
pub(super) const PACKET_BYTES_MAX: usize = 1_500;
/// Address and its length, in questions and answers.
const ADDRESS_BYTES: usize = 25;
const BEHIND: u8 = 1;
pub(super) const EVERYBODY: [u8; 6] = [0xff; 6];

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Content {
    /// A packet.
    Packet = 0,
    /// Do frames reach you?
    Question = 1,
    /// They do.
    Answer = 2,
}

/// Everything about a frame but the packet in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub content: Content,
    /// Of a packet's frame only the port counts: its sender is known by hardware address and port.
    pub from: Address,
    pub to: Address,
    pub hardware_from: [u8; 6],
    pub hardware_to: [u8; 6],
    /// Whether datagrams went before it, since the frame before.
    pub behind: bool,
    /// Number of a packet's frame, counted by its sender for this receiver.
    pub number: u16,
    /// The highest number that its sender has heard from this receiver.
    pub heard: u16,
}

impl Frame {
    /// Writes the frame into `out`; false if the addresses cannot be written.
    pub fn emit(&self, packet: &[IoSlice<'_>], out: &mut Vec<u8>) -> bool {
        let (Address::Ip(from), Address::Ip(to)) = (self.from, self.to) else { return false };
        let mut head = [0; HEADERS_BYTES];
        head[..6].copy_from_slice(&self.hardware_to);
        head[6..12].copy_from_slice(&self.hardware_from);
        let mut word = |at: usize, word: u16| head[at..at + 2].copy_from_slice(&word.to_be_bytes());
        word(12, ETHER_TYPE);
        word(14, MARK);
        word(16, to.port());
        word(18, from.port());
        word(20, u16::from_be_bytes([self.content as u8, if self.behind { BEHIND } else { 0 }]));
        word(22, self.number);
        word(24, self.heard);
        out.clear();
        out.extend_from_slice(&head);
        if self.content == Content::Packet {
            packet.iter().for_each(|slice| out.extend_from_slice(slice));
        } else {
            for address in [&self.from, &self.to] {
                let (bytes, len) = address.to_bytes();
                out.push(len as u8);
                out.extend_from_slice(&bytes);
            }
        }
        let len = (out.len() - HEADERS_BYTES) as u16;
        out[26..28].copy_from_slice(&len.to_be_bytes());
        let sum = sum(out);
        out[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        true
    }

    /// Reads a frame for `local`, and the packet in it; `None` if it is none, or for somebody else, or damaged.
    pub fn parse<'a>(bytes: &'a [u8], local: &Address) -> Option<(Frame, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEADERS_BYTES>()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let hardware =
            |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3], head[at + 4], head[at + 5]];
        let content = match head[20] {
            0 => Content::Packet,
            1 => Content::Question,
            2 => Content::Answer,
            _ => return None,
        };
        let Address::Ip(mut to) = *local else { return None };
        if word(12) != ETHER_TYPE || word(14) != MARK || word(16) != to.port() {
            return None;
        }
        // The medium pads short frames.
        let rest = rest.get(..usize::from(word(26)))?;
        if sum(&bytes[..HEADERS_BYTES + rest.len()]).to_be_bytes() != head[SUM_AT..] {
            return None;
        }
        let mut frame = Frame {
            content,
            from: *local,
            to: *local,
            hardware_from: hardware(6),
            hardware_to: hardware(0),
            behind: head[21] & BEHIND != 0,
            number: word(22),
            heard: word(24),
        };
        if content == Content::Packet {
            to.set_port(word(18));
            frame.from = Address::Ip(to);
            return Some((frame, rest));
        }
        let (from, to) = rest.split_at_checked(ADDRESS_BYTES)?;
        frame.from = address(from)?;
        let Address::Ip(ip) = frame.from else { return None };
        (address(to)? == *local && ip.port() == word(18)).then_some((frame, &[]))
    }
}

const SUM_AT: usize = HEADERS_BYTES - 4;

fn address(bytes: &[u8]) -> Option<Address> {
    let (&len, rest) = bytes.split_first()?;
    Address::from_bytes(rest.get(..usize::from(len))?)
}

/// Most bytes of a packet that are copied behind the header to be summed with it: a step of its own costs more.
const COPIED_BYTES_MAX: usize = 242;

/// What is summed in one step, laid where that begins without a part of a word.
#[repr(align(8))]
struct Copied([u8; SUM_AT - ETHERNET_HEADER_BYTES + COPIED_BYTES_MAX]);

/// CRC32C over the frame but its Ethernet header and the sum itself: there is no UDP checksum here, and a switch may
/// damage what it stores.
fn sum(bytes: &[u8]) -> u32 {
    let (head, rest) = (&bytes[ETHERNET_HEADER_BYTES..SUM_AT], &bytes[HEADERS_BYTES..]);
    if rest.len() > COPIED_BYTES_MAX {
        return crc32c::crc32c_append(crc32c::crc32c(head), rest);
    }
    let mut copied = Copied([0; SUM_AT - ETHERNET_HEADER_BYTES + COPIED_BYTES_MAX]);
    let all = &mut copied.0[..head.len() + rest.len()];
    let (to_head, to_rest) = all.split_at_mut(head.len());
    to_head.copy_from_slice(head);
    to_rest.copy_from_slice(rest);
    crc32c::crc32c(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn frame(content: Content, from: &str, to: &str) -> Frame {
        let (from, to) = (ip(from), ip(to));
        let (hardware_from, hardware_to) = ([2; 6], [3; 6]);
        Frame { content, from, to, hardware_from, hardware_to, behind: true, number: 7, heard: 65_535 }
    }

    #[test]
    fn frames_come_back_padded_or_not() {
        for (from, to) in [("10.0.0.1:1", "10.0.0.2:7430"), ("[fd00::1]:1", "[fd00::2]:7430")] {
            for content in [Content::Packet, Content::Question, Content::Answer] {
                let sent = frame(content, from, to);
                let mut bytes = Vec::new();
                assert!(sent.emit(&[IoSlice::new(b"pack"), IoSlice::new(b"et")], &mut bytes));
                bytes.extend_from_slice(&[0; 28]);
                let (got, packet) = Frame::parse(&bytes, &ip(to)).unwrap();
                assert_eq!(packet, if content == Content::Packet { &b"packet"[..] } else { b"" });
                match (got.from, content) {
                    (Address::Ip(from), Content::Packet) => assert_eq!(from.port(), 1),
                    (from, _) => assert_eq!(from, sent.from),
                }
                assert_eq!(Frame { from: sent.from, ..got }, sent);
            }
        }
    }

    #[test]
    fn the_sum_is_the_same_in_one_step_and_in_two() {
        let bytes: Vec<u8> = (0..HEADERS_BYTES + PACKET_BYTES_MAX).map(|n| (n * 7) as u8).collect();
        for len in [0, 1, COPIED_BYTES_MAX - 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, PACKET_BYTES_MAX] {
            let bytes = &bytes[..HEADERS_BYTES + len];
            let (head, rest) = (&bytes[ETHERNET_HEADER_BYTES..SUM_AT], &bytes[HEADERS_BYTES..]);
            assert_eq!(sum(bytes), crc32c::crc32c(&[head, rest].concat()), "{len} bytes");
        }
    }

    #[test]
    fn damage_truncation_and_what_is_for_others_are_noticed() {
        let here = ip("10.0.0.2:7430");
        for content in [Content::Packet, Content::Question] {
            let mut bytes = Vec::new();
            frame(content, "10.0.0.1:1", "10.0.0.2:7430").emit(&[IoSlice::new(b"packet")], &mut bytes);
            for end in 0..bytes.len() {
                assert_eq!(Frame::parse(&bytes[..end], &here), None);
            }
            for bit in ETHERNET_HEADER_BYTES * 8..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Frame::parse(&damaged, &here), None, "bit {bit}");
            }
            assert_eq!(Frame::parse(&bytes, &ip("10.0.0.2:7431")), None);
            assert_eq!(Frame::parse(&bytes, &ip("10.0.0.3:7430")).is_some(), content == Content::Packet);
        }
    }
}
