//! Packets of an eager message, read in one go (protocol.md §4.2, §4.18).

use super::field::{u16_at, u32_at};
use super::frame::{Fragment, Message, Multicast, kind};
use super::header::PACKET_NUMBER_MAX;
use super::message::payload_offset;
use super::piece::{PieceHead, is_plain_data};
use super::{HEADER_BYTES, Header, verify};
use crate::address::ServiceRange;

/// Packets of which each carries a piece of an eager message and nothing else, and goes on where the one before it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The first packet's header.
    pub header: Header,
    pub message: Message,
    /// To whom it goes, if to several.
    pub range: Option<ServiceRange>,
    /// Bytes of the message.
    pub total: u32,
    /// Where in it the first piece lies.
    pub offset: u32,
    /// Bytes of each packet before its piece, and of that.
    pub head_bytes: usize,
    pub piece_bytes: usize,
    /// How many packets there are: two at least.
    pub count: usize,
}

/// The pieces that `packets`, of `stride` bytes each, begin with. What `None` is given for may be anything, a lone piece among it. As
/// of [`pieces`](super::pieces) only the first one's check is looked at.
#[inline]
pub(crate) fn parts(packets: &[u8], stride: usize) -> Option<Parts> {
    if packets.len() < 2 * stride {
        return None;
    }
    let mut chunks = packets.chunks(stride);
    let packet = chunks.next()?;
    let frame = packet.get(HEADER_BYTES..)?;
    let &[kind @ (kind::FRAGMENT | kind::MULTICAST), flags, ..] = frame else { return None };
    is_plain_data(packet).then_some(())?;
    let head_bytes = HEADER_BYTES + payload_offset(kind, flags)?;
    let mut next = PieceHead::of(packet.get(..head_bytes)?)?;
    let piece_bytes = stride - head_bytes;
    // The first piece of a message goes on where nothing ended: to look at those behind it would be for nothing.
    if usize::from(u16_at(frame, 2)) != frame.len() || u32_at(packet, head_bytes - 4) == 0 {
        return None;
    }
    let header = verify(packet).ok()?;
    let (message, range, total, offset) = match kind {
        kind::FRAGMENT => Fragment::parse(frame).map(|(f, _)| (f.message, None, f.total, f.offset)),
        _ => Multicast::parse(frame).map(|(m, _)| (m.message, Some(m.range), m.total, m.offset)),
    }
    .ok()?;
    // No packet has a higher number, whatever a peer puts there.
    let most = usize::try_from(PACKET_NUMBER_MAX - header.number).unwrap_or(usize::MAX);
    let follows = |packet: &&[u8]| {
        next.step(piece_bytes);
        packet.len() == stride && next.is_of(packet)
    };
    let count = 1 + chunks.take(most).take_while(follows).count();
    (count > 1).then_some(Parts { header, message, range, total, offset, head_bytes, piece_bytes, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{LinkId, PortId, SessionId};
    use crate::wire::{CHECK_OFFSET, FLAG_ACK_ELICITING, FLAG_FULL_CHECK, FLAG_SEALED, PacketType, finish};

    const LEN: usize = 1_416;
    const TOTAL: u32 = 65_536;

    /// A packet with a piece from `offset` on, and with `tag`.
    fn packet(number: u64, offset: u32, to_several: bool, tag: Option<u64>) -> Vec<u8> {
        let (from, to) = (PortId(6), if to_several { PortId::MULTICAST } else { PortId(7) });
        let message = Message { class: 3, from, to, seq: u32::MAX, service: None, tag, notify: false };
        let (kind, link, to) = (PacketType::Data, LinkId(3), SessionId(4));
        let mut packet = vec![];
        Header { kind, flags: FLAG_ACK_ELICITING, link, to, number, stamp: 5, check: 0 }.emit(&mut packet);
        if to_several {
            let range = ServiceRange::new(11, 12, 13);
            Multicast { message, range, total: TOTAL, offset }.emit(&mut packet, LEN);
        } else {
            Fragment { message, total: TOTAL, offset }.emit(&mut packet, LEN);
        }
        packet.resize(packet.len() + LEN, 7);
        finish(&mut packet).unwrap();
        packet
    }

    fn train(first: u64, from: u32, to_several: bool) -> (Vec<u8>, usize) {
        let packets = (0..5).map(|n| packet(first + n, from + n as u32 * LEN as u32, to_several, None));
        let packets: Vec<_> = packets.collect();
        (packets.concat(), packets[0].len())
    }

    #[test]
    fn parts_are_those_that_go_on() {
        for to_several in [false, true] {
            let (bytes, stride) = train(256, 2 * LEN as u32, to_several);
            let count = |bytes: &[u8]| parts(bytes, stride).map(|parts| parts.count);
            let found = parts(&bytes, stride).unwrap();
            assert_eq!((found.header.number, found.offset, found.total), (256, 2 * LEN as u32, TOTAL));
            assert_eq!((found.head_bytes + found.piece_bytes, found.piece_bytes), (stride, LEN));
            assert_eq!(found.range.is_some(), to_several);
            assert_eq!(count(&bytes), Some(5));
            assert_eq!(count(&bytes[..5 * stride - 8]), Some(4), "the last is shorter");
            assert_eq!((count(&bytes[..2 * stride]), count(&bytes[..2 * stride - 1])), (Some(2), None));
            assert_eq!((count(&bytes[..3]), count(&[])), (None, None));
            let mut last = bytes.clone();
            for packet in last.chunks_mut(stride) {
                let number = u64::from_le_bytes(packet[8..16].try_into().unwrap());
                packet[8..16].copy_from_slice(&(number + PACKET_NUMBER_MAX - 1 - 256).to_le_bytes());
            }
            finish(&mut last[..stride]).unwrap();
            assert_eq!(count(&last), Some(2), "numbers end");
            for bit in 0..8 * found.head_bytes {
                for (packet, left) in [(0, None), (2, Some(2))] {
                    let mut copy = train(256, LEN as u32, to_several).0;
                    copy[packet * stride + bit / 8] ^= 1 << (bit % 8);
                    let check = (CHECK_OFFSET..HEADER_BYTES).contains(&(bit / 8)) && packet > 0;
                    assert_eq!(count(&copy), if check { Some(5) } else { left }, "bit {bit} of {packet}");
                }
            }
        }
    }

    #[test]
    fn places_that_pass_the_end_of_all_places_are_no_panic() {
        for to_several in [false, true] {
            // The last places that there are: what goes on from them would lie near the start again.
            let mut bytes = train(1, 0, to_several).0;
            let stride = bytes.len() / 5;
            for (packet, left) in bytes.chunks_mut(stride).zip([2, 1, 0, 0, 0]) {
                let (place, offset) = (stride - LEN - 4, (u32::MAX - 7).wrapping_sub(left * LEN as u32));
                packet[place..place + 4].copy_from_slice(&offset.to_le_bytes());
                packet[place - 4..place].copy_from_slice(&u32::MAX.to_le_bytes());
            }
            finish(&mut bytes[..stride]).unwrap();
            assert_eq!(parts(&bytes, stride).map(|parts| parts.count), Some(3));
        }
    }

    #[test]
    fn what_is_sealed_or_checked_as_a_whole_is_read_packet_by_packet() {
        for flag in [FLAG_SEALED, FLAG_FULL_CHECK] {
            let (mut bytes, stride) = train(1, LEN as u32, false);
            for packet in bytes.chunks_mut(stride) {
                packet[1] |= flag;
                packet[CHECK_OFFSET..HEADER_BYTES].fill(0);
                if flag == FLAG_FULL_CHECK {
                    finish(packet).unwrap();
                }
                assert!(verify(packet).is_ok());
            }
            assert!(parts(&bytes, stride).is_none(), "flag {flag:#x}");
        }
    }

    #[test]
    fn the_first_piece_of_a_message_goes_on_from_nothing() {
        for to_several in [false, true] {
            let (bytes, stride) = train(1, 0, to_several);
            assert!(parts(&bytes, stride).is_none() && parts(&bytes[stride..], stride).is_some());
            let both = [packet(1, 0, to_several, Some(9)), packet(2, LEN as u32, to_several, None)].concat();
            assert!(parts(&both, both.len() / 2).is_none());
        }
    }
}
