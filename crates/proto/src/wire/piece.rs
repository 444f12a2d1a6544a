//! Packets of a bulk stream, read in one go (protocol.md §4.3).

use super::field::{u32_at, u64_at};
use super::frame::{TransferFragment, kind};
use super::header::{CHECK_OFFSET, FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_TRAIN_LAST, PACKET_NUMBER_MAX};
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

/// The header bytes of such a packet, and then of those after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceHead(pub(crate) [u8; PIECE_HEAD_BYTES]);

impl PieceHead {
    /// Those of the next packet, if each carries `len` bytes, a multiple of 8.
    pub(crate) fn go_on(&mut self, len: usize) {
        debug_assert!(len.is_multiple_of(8), "a piece of {len} bytes needs padding");
        self.add(NUMBER_OFFSET, 1);
        self.add(FRAGMENT_OFFSET, len as u64);
        let check = head_check(&self.0);
        self.0[CHECK_OFFSET..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    }

    fn add(&mut self, at: usize, more: u64) {
        let value = u64_at(&self.0, at) + more;
        self.0[at..][..8].copy_from_slice(&value.to_le_bytes());
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
const FLAGS: u8 = FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST;

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
    let of_kind = head[0] == FIRST_BYTE && head[1] & !FLAGS == 0 && frame[0] == kind::TRANSFER_FRAGMENT;
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
    use crate::id::{LinkId, SessionId, TransferId};

    #[test]
    fn heads_that_go_on_are_those_of_the_packets_one_by_one() {
        let header = |number| Header {
            kind: PacketType::Data,
            flags: FLAG_ACK_ELICITING,
            link: LinkId(3),
            to: SessionId(4),
            number,
            stamp: 5,
            check: 0,
        };
        let fragment = |offset| TransferFragment { transfer: TransferId(6), offset };
        // Numbers that carry into the next byte while they count.
        let (first, from) = (0x00ff_ffff_fffe, 0xffff_ff00);
        let mut bytes = Vec::new();
        header(first - 1).emit(&mut bytes);
        fragment(from - 1_432).emit(&mut bytes, 1_432);
        let mut head = PieceHead(bytes.try_into().unwrap());
        for n in 0..5 {
            head.go_on(1_432);
            let mut packet = head.0.to_vec();
            packet.resize(PIECE_HEAD_BYTES + 1_432, 7);
            let piece = piece(&packet).unwrap();
            assert_eq!(Header { check: 0, ..piece.header }, header(first + n));
            assert_eq!(piece.fragment, fragment(from + n * 1_432));
            assert_eq!((piece.payload.len(), crate::wire::verify(&packet).is_ok()), (1_432, true));
        }
    }

    /// A train of `count` packets of 1,432 bytes each, from number `first` on.
    fn train(first: u64, count: usize) -> Vec<u8> {
        let header = Header {
            kind: PacketType::Data,
            flags: FLAG_ACK_ELICITING,
            link: LinkId(3),
            to: SessionId(4),
            number: first - 1,
            stamp: 5,
            check: 0,
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        TransferFragment { transfer: TransferId(6), offset: 1_432 }.emit(&mut bytes, 1_432);
        let mut head = PieceHead(bytes.try_into().unwrap());
        let mut packet = || {
            head.go_on(1_432);
            [&head.0[..], &[7; 1_432]].concat()
        };
        (0..count).flat_map(|_| packet()).collect()
    }

    #[test]
    fn pieces_are_those_that_go_on() {
        const STRIDE: usize = PIECE_HEAD_BYTES + 1_432;
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
