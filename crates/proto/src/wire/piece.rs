//! Packets of a bulk stream, read in one go (protocol.md §4.3).

use super::field::u32_at;
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

const FIRST_BYTE: u8 = VERSION << 4 | PacketType::Data as u8;
const FLAGS: u8 = FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST;

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
    let mut summed = *head;
    summed[CHECK_OFFSET..HEADER_BYTES].fill(0);
    if crc32c(&summed) != u32_at(head, CHECK_OFFSET) {
        return None;
    }
    let header = Header::parse(packet).ok()?;
    let (fragment, payload) = TransferFragment::parse(frame).ok()?;
    Some(Piece { header, fragment, payload })
}
