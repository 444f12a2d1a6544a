//! Packets of a bulk stream, read in one go (protocol.md §4.3).

use super::field::{u32_at, u64_at};
use super::frame::{TransferFragment, kind};
use super::header::{CHECK_OFFSET, FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_TRAIN_LAST};
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
const FIRST_BYTE: u8 = VERSION << 4 | PacketType::Data as u8;
const FLAGS: u8 = FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST;

/// The check of such header bytes, whatever stands in its place. It is put together word by word: to read a word of which a part
/// has just been written makes a processor wait until that is in its cache, for as long as the rest takes.
#[inline]
fn head_check(head: &[u8; PIECE_HEAD_BYTES]) -> u32 {
    const WORD: usize = size_of::<u64>();
    const { assert!(PIECE_HEAD_BYTES.is_multiple_of(WORD) && CHECK_OFFSET / WORD == (HEADER_BYTES - 1) / WORD) };
    let mut summed = [0; PIECE_HEAD_BYTES];
    for (at, word) in summed.chunks_exact_mut(WORD).enumerate() {
        let check = u64::MAX << (CHECK_OFFSET % WORD * 8);
        let kept = if at == CHECK_OFFSET / WORD { !check } else { u64::MAX };
        word.copy_from_slice(&(u64_at(head, at * WORD) & kept).to_le_bytes());
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
}
