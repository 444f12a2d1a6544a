//! Packets of a bulk stream, read in one go (protocol.md §4.3).

use super::field::{u32_at, u64_at};
use super::frame::{TransferFragment, kind};
use super::header::{
    CHECK_OFFSET, FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_ACK_SOON, FLAG_TRAIN_LAST, PACKET_NUMBER_MAX,
};
use super::message::payload_offset;
use super::{HEADER_BYTES, Header, PacketType, VERSION};
use crate::transfer::PIECE_HEAD_BYTES;
use crc32c::crc32c;

/// A packet that carries one piece of a transfer and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The packet's header.
    pub header: Header,
    /// Which transfer, and where in it.
    pub fragment: TransferFragment,
    /// The bytes.
    pub payload: &'a [u8],
}

/// The header bytes of a packet that carries one piece of a message, large or not, and nothing else; and then of those after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceHead {
    words: [u64; HEAD_WORDS_MAX],
    count: usize,
    /// The place of the payload stands in the last word, above so many bits.
    place_shift: u32,
}

/// Those of a piece that goes to several (protocol.md §4.18).
const HEAD_WORDS_MAX: usize = (HEADER_BYTES + 32) / WORD;

impl PieceHead {
    /// If `head` is all that stands before the payload of such a packet, and nothing behind it.
    pub(crate) fn of(head: &[u8]) -> Option<PieceHead> {
        let frame = head.get(HEADER_BYTES..)?;
        let (&kind, &flags) = (frame.first()?, frame.get(1)?);
        let place_shift = match kind {
            kind::TRANSFER_FRAGMENT => 0,
            kind::FRAGMENT | kind::MULTICAST => u32::BITS,
            _ => return None,
        };
        // Optional fields would stand behind the place.
        if payload_offset(kind, 0) != Some(frame.len()) || payload_offset(kind, flags) != Some(frame.len()) {
            return None;
        }
        let (mut words, count) = ([0; HEAD_WORDS_MAX], head.len() / WORD);
        words.iter_mut().take(count).enumerate().for_each(|(at, word)| *word = u64_at(head, at * WORD));
        Some(PieceHead { words, count, place_shift })
    }

    /// Those of the next packet but for the check, if each carries `len` bytes.
    #[inline]
    pub(crate) fn step(&mut self, len: usize) {
        let place = &mut self.words[self.count - 1];
        *place = place.wrapping_add((len as u64) << self.place_shift);
        let number = &mut self.words[NUMBER_OFFSET / WORD];
        *number = number.wrapping_add(1);
        self.words[CHECK_OFFSET / WORD] &= NOT_CHECK;
    }

    /// Whether `packet` begins with them, whatever its check.
    #[inline]
    pub(crate) fn is_of(&self, packet: &[u8]) -> bool {
        packet.len() >= self.count * WORD
            && self.words.iter().take(self.count).enumerate().all(|(at, word)| {
                let mask = if at == CHECK_OFFSET / WORD { NOT_CHECK } else { u64::MAX };
                (u64_at(packet, at * WORD) ^ word) & mask == 0
            })
    }

    /// Appends those of the next packet, if each carries `len` bytes, a multiple of 8.
    #[inline]
    pub(crate) fn emit_next(&mut self, len: usize, out: &mut Vec<u8>) {
        debug_assert!(len.is_multiple_of(8), "a piece of {len} bytes needs padding");
        self.step(len);
        let room = &mut [0; HEAD_WORDS_MAX * WORD];
        let check = crc32c(self.bytes(room));
        room[CHECK_OFFSET..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
        out.extend_from_slice(&room[..self.count * WORD]);
    }

    fn bytes<'a>(&self, room: &'a mut [u8; HEAD_WORDS_MAX * WORD]) -> &'a [u8] {
        for (bytes, word) in room.chunks_exact_mut(WORD).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        &room[..self.count * WORD]
    }
}

/// Offsets in such a packet: of its number, and of the place of its payload (protocol.md §2.1, §4.3).
const NUMBER_OFFSET: usize = 8;
const FRAGMENT_OFFSET: usize = HEADER_BYTES + 8;
const WORD: usize = size_of::<u64>();
/// Of the word that the check is in, what is not check.
const NOT_CHECK: u64 = !(u64::MAX << (CHECK_OFFSET % WORD * 8));
const _: () =
    assert!(PIECE_HEAD_BYTES.is_multiple_of(WORD) && CHECK_OFFSET / WORD == (HEADER_BYTES - 1) / WORD);
const _: () = assert!(NUMBER_OFFSET.is_multiple_of(WORD) && FRAGMENT_OFFSET.is_multiple_of(WORD));
const FIRST_BYTE: u8 = VERSION << 4 | PacketType::Data as u8;
const FLAGS: u8 = FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST | FLAG_ACK_SOON;

/// Whether a packet is one of messages without anything to its header that matters to how it is read.
#[inline]
pub(super) fn is_plain_data(packet: &[u8]) -> bool {
    matches!(packet, [FIRST_BYTE, flags, ..] if flags & !FLAGS == 0)
}

/// The check of such header bytes, whatever stands in its place. It is put together word by word: to read a word of which a part
/// has just been written makes a processor wait until that is in its cache, for as long as the rest takes.
#[inline]
fn head_check(head: &[u8; PIECE_HEAD_BYTES]) -> u32 {
    let mut summed = [0; PIECE_HEAD_BYTES];
    for (bytes, word) in summed.chunks_exact_mut(WORD).zip(words(head)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    crc32c(&summed)
}

/// The piece in `packet`, if it is whole and of that kind, without padding. What `None` is given for may be anything:
/// [`verify`](super::verify) and [`Frames`](super::Frames) say what.
#[inline]
pub fn piece(packet: &[u8]) -> Option<Piece<'_>> {
    let head: &[u8; PIECE_HEAD_BYTES] = packet.first_chunk()?;
    let frame = &packet[HEADER_BYTES..];
    let of_kind = is_plain_data(head) && frame[0] == kind::TRANSFER_FRAGMENT;
    let len = usize::from(u16::from_le_bytes([frame[2], frame[3]]));
    if !of_kind || len != frame.len() || !len.is_multiple_of(8) {
        return None;
    }
    if head_check(head) != u32_at(head, CHECK_OFFSET) {
        return None;
    }
    let header = Header::parse(packet).ok()?;
    let (fragment, payload) = TransferFragment::parse(frame).ok()?;
    Some(Piece { header, fragment, payload })
}

/// Packets of which each goes on where the one before it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a> {
    pub(crate) first: Piece<'a>,
    /// How many there are, the first among them.
    pub(crate) count: usize,
}

/// The pieces that `packets`, of `stride` bytes each, begin with. What makes the headers of the others what the first one's goes on
/// to needs no check: that is more than a check could tell (protocol.md §2.3).
#[inline]
pub(crate) fn pieces(packets: &[u8], stride: usize) -> Option<Pieces<'_>> {
    let mut chunks = packets.chunks(stride);
    let first = piece(chunks.next()?)?;
    let mut next = packets.first_chunk().map(words)?;
    // No packet has a higher number, whatever a peer puts there.
    let most = usize::try_from(PACKET_NUMBER_MAX - first.header.number).unwrap_or(usize::MAX);
    let follows = |packet: &&[u8]| {
        next[NUMBER_OFFSET / WORD] = next[NUMBER_OFFSET / WORD].wrapping_add(1);
        next[FRAGMENT_OFFSET / WORD] = next[FRAGMENT_OFFSET / WORD].wrapping_add(first.payload.len() as u64);
        packet.len() == stride && packet.first_chunk().map(words) == Some(next)
    };
    Some(Pieces { first, count: 1 + chunks.take(most).take_while(follows).count() })
}

/// The words of such header bytes, without the check.
#[inline]
fn words(head: &[u8; PIECE_HEAD_BYTES]) -> [u64; PIECE_HEAD_BYTES / WORD] {
    let mut words = std::array::from_fn(|at| u64_at(head, at * WORD));
    words[CHECK_OFFSET / WORD] &= NOT_CHECK;
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{ServiceAddress, ServiceRange};
    use crate::id::{LinkId, PortId, SessionId, TransferId};
    use crate::wire::{Fragment, Message, Multicast};

    fn header(number: u64) -> Header {
        Header {
            kind: PacketType::Data,
            flags: FLAG_ACK_ELICITING,
            link: LinkId(3),
            to: SessionId(4),
            number,
            stamp: 5,
            check: 0,
        }
    }

    /// The heads that go on from the packet before number `first`, of which `frame` emits the frame by its place in the message.
    fn go_on(first: u64, from: u64, len: usize, frame: &dyn Fn(u64, &mut Vec<u8>)) {
        let mut bytes = Vec::new();
        header(first - 1).emit(&mut bytes);
        frame(from - len as u64, &mut bytes);
        let mut head = PieceHead::of(&bytes).unwrap();
        for n in 0..5 {
            let (mut packet, mut expected) = (Vec::new(), Vec::new());
            head.emit_next(len, &mut packet);
            header(first + n).emit(&mut expected);
            frame(from + n * len as u64, &mut expected);
            let check = crate::wire::check_of(&expected);
            expected[CHECK_OFFSET..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
            assert_eq!(packet, expected);
            packet.resize(packet.len() + len, 7);
            assert!(crate::wire::verify(&packet).is_ok());
        }
    }

    #[test]
    fn heads_that_go_on_are_those_of_the_packets_one_by_one() {
        let message = Message {
            class: 3,
            from: PortId(6),
            to: PortId(7),
            seq: u32::MAX,
            service: Some(ServiceAddress::new(8, 9)),
            tag: Some(10),
            notify: false,
        };
        let (range, total) = (ServiceRange::new(11, 12, u32::MAX), u32::MAX);
        // Numbers that carry into the next byte while they count.
        let first = 0x00ff_ffff_fffe;
        go_on(first, 0xffff_ff00, 1_432, &|offset, out| {
            TransferFragment { transfer: TransferId(6), offset }.emit(out, 1_432);
        });
        go_on(first, 0x00ff_ff00, 1_424, &|offset, out| {
            Fragment { message, total, offset: offset as u32 }.emit(out, 1_424);
        });
        go_on(first, u32::MAX as u64 - 5 * 1_416, 1_416, &|offset, out| {
            Multicast { message, range, total, offset: offset as u32 }.emit(out, 1_416);
        });
    }

    #[test]
    fn heads_of_other_packets_do_not_go_on() {
        let message = |tag| Message {
            class: 3,
            from: PortId(6),
            to: PortId(7),
            seq: 8,
            service: None,
            tag,
            notify: false,
        };
        let goes_on = |frame: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            header(1).emit(&mut bytes);
            frame(&mut bytes);
            PieceHead::of(&bytes).is_some()
        };
        let piece = |offset, tag| Fragment { message: message(tag), total: 9_000, offset };
        assert!(goes_on(&|out| piece(800, None).emit(out, 800)));
        assert!(goes_on(&|out| piece(800, Some(1)).emit(out, 800)), "only the first piece tells the tag");
        assert!(goes_on(&|out| piece(0, None).emit(out, 800)));
        assert!(!goes_on(&|out| piece(0, Some(1)).emit(out, 800)));
        assert!(!goes_on(&|out| message(None).emit(out, 800)), "a whole message");
        assert!(
            !goes_on(&|out| {
                piece(800, None).emit(out, 795);
                out.extend_from_slice(&[0; 5]);
            }),
            "padding behind the payload"
        );
        assert!(!goes_on(&|out| {
            piece(800, None).emit(out, 0);
            piece(800, None).emit(out, 800);
        }));
        assert!(!goes_on(&|_| ()));
        assert!(PieceHead::of(&[0; 8]).is_none());
    }

    const STRIDE: usize = PIECE_HEAD_BYTES + 1_432;

    /// A train of `count` packets of 1,432 bytes each, from number `first` on.
    fn train(first: u64, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        header(first - 1).emit(&mut bytes);
        TransferFragment { transfer: TransferId(6), offset: 1_432 }.emit(&mut bytes, 1_432);
        let mut head = PieceHead::of(&bytes).unwrap();
        let mut packet = || {
            let mut packet = Vec::new();
            head.emit_next(1_432, &mut packet);
            packet.resize(STRIDE, 7);
            packet
        };
        (0..count).flat_map(|_| packet()).collect()
    }

    #[test]
    fn pieces_are_those_that_go_on() {
        let bytes = train(256, 5);
        let count = |bytes: &[u8]| pieces(bytes, STRIDE).map(|pieces| pieces.count);
        assert_eq!(count(&bytes), Some(5));
        assert_eq!(pieces(&bytes, STRIDE).unwrap().first.header.number, 256);
        assert_eq!(count(&bytes[..5 * STRIDE - 8]), Some(4), "the last is shorter");
        assert_eq!(count(&bytes[..STRIDE - 1]), None);
        assert_eq!(count(&[]), None);
        assert_eq!(count(&train(PACKET_NUMBER_MAX - 1, 5)), Some(2), "numbers end");
        for bit in 0..8 * PIECE_HEAD_BYTES {
            let mut copy = bytes.clone();
            copy[2 * STRIDE + bit / 8] ^= 1 << (bit % 8);
            let check = (CHECK_OFFSET..HEADER_BYTES).contains(&(bit / 8));
            assert_eq!(count(&copy), Some(if check { 5 } else { 2 }), "bit {bit}");
        }
    }
}
