//! A reader of packet headers and frame types that shares nothing with the protocol's own parser, so that a fault
//! there cannot hide itself from the checks (protocol.md §2.1, §2.2).

/// Bytes of a packet header.
pub const HEADER_BYTES: usize = 24;
/// Packets of an established session.
pub const TYPE_DATA: u8 = 0;
/// Opens a session.
pub const TYPE_INIT: u8 = 1;
/// Answers an opening.
pub const TYPE_RESP: u8 = 2;
/// Frame type of an acknowledgement.
pub const FRAME_ACK: u8 = 0x04;

const FLAG_SEALED: u8 = 1 << 1;
const FLAG_FULL_CHECK: u8 = 1 << 2;

/// The fields of a header that the checks use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peek {
    /// Packet type.
    pub kind: u8,
    /// Flag bits.
    pub flags: u8,
    /// Link inside the session.
    pub link: u16,
    /// The receiver's session index.
    pub session: u32,
    /// Packet number.
    pub number: u64,
}

/// What an answer to who wants to open a session says of it (protocol.md §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The sender's index of the session.
    pub session: u32,
    /// The attempt that it answers.
    pub attempt: u32,
}

/// Reads a header; `None` if the datagram is shorter than one or of another version.
pub fn header(datagram: &[u8]) -> Option<Peek> {
    if datagram.len() < HEADER_BYTES || datagram[0] >> 4 != 1 {
        return None;
    }
    Some(Peek {
        kind: datagram[0] & 0x0f,
        flags: datagram[1],
        link: u16::from_le_bytes([datagram[2], datagram[3]]),
        session: u32::from_le_bytes(datagram[4..8].try_into().ok()?),
        number: u64::from_le_bytes(datagram[8..16].try_into().ok()?),
    })
}

/// Reads an answer to an opening; `None` if the datagram is none.
pub fn answer(datagram: &[u8]) -> Option<Answer> {
    let word = |at: usize| Some(u32::from_le_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
    header(datagram).filter(|peek| peek.kind == TYPE_RESP)?;
    Some(Answer { session: word(72)?, attempt: word(76)? })
}

/// The packet type of a datagram that is one of ours.
pub fn packet_type(datagram: &[u8]) -> Option<u8> {
    header(datagram).map(|peek| peek.kind)
}

/// Whether the protocol's own checks cover every byte of the packet.
pub fn fully_checked(datagram: &[u8]) -> bool {
    header(datagram)
        .is_some_and(|peek| peek.flags & (FLAG_SEALED | FLAG_FULL_CHECK) != 0 || peek.kind != TYPE_DATA)
}

/// The frame types of a data packet that is not sealed, in order.
pub fn frame_types(datagram: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let readable =
        header(datagram).is_some_and(|peek| peek.kind == TYPE_DATA && peek.flags & FLAG_SEALED == 0);
    let mut at = if readable { HEADER_BYTES } else { usize::MAX };
    std::iter::from_fn(move || {
        let frame = datagram.get(at..)?;
        let (&kind, bytes) = (frame.first()?, frame.get(2..4)?);
        let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        if kind == 0 || length < 4 {
            return None;
        }
        at += length.next_multiple_of(8);
        Some(kind)
    })
}

/// Whether a data packet carries a frame of type `kind`.
pub fn has_frame(datagram: &[u8], kind: u8) -> bool {
    frame_types(datagram).any(|found| found == kind)
}

/// Whether a frame of this type carries a message or a part of one.
pub fn is_of_message(kind: u8) -> bool {
    (1..=3).contains(&kind)
}

/// A name for a frame type, for the coverage table.
pub fn frame_name(kind: u8) -> &'static str {
    match kind {
        0x01 => "message",
        0x02 => "fragment",
        0x03 => "transfer fragment",
        0x04 => "ack",
        0x05 => "bearer state",
        0x06 => "credit",
        0x07 => "refuse",
        0x08 => "rts",
        0x09 => "cts",
        0x0a => "transfer abort",
        0x10 => "bindings",
        0x11 => "name digest",
        0x14 => "port closed",
        0x18 => "probe",
        0x19 => "probe reply",
        0x1c => "link set",
        0x20 => "connect",
        0x21 => "accept",
        0x22 => "shutdown",
        0x24 => "consumed",
        0x80 => "close",
        _ => "other",
    }
}

/// A name for a packet type, for the coverage table.
pub fn packet_name(kind: u8) -> &'static str {
    match kind {
        0 => "data",
        1 => "init",
        2 => "resp",
        3 => "cookie",
        4 => "beacon",
        5 => "versions",
        6 => "reset",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_walked_on_eight_byte_bounds() {
        let mut packet = vec![0u8; HEADER_BYTES];
        packet[0] = 0x10;
        packet.extend_from_slice(&[0x01, 0, 17, 0]);
        packet.extend_from_slice(&[9; 13 + 7]);
        packet.extend_from_slice(&[0x04, 0, 8, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(&[0, 0, 0, 0]);
        assert_eq!(frame_types(&packet).collect::<Vec<_>>(), [0x01, 0x04]);
        assert!(has_frame(&packet, FRAME_ACK));
        packet[1] = FLAG_SEALED;
        assert_eq!(frame_types(&packet).count(), 0);
        assert_eq!(frame_types(&[0x10, 0]).count(), 0);
    }

    #[test]
    fn an_answer_names_its_session_and_attempt() {
        let mut packet = vec![0u8; 104];
        (packet[0], packet[72], packet[76]) = (0x12, 7, 9);
        assert_eq!(answer(&packet), Some(Answer { session: 7, attempt: 9 }));
        assert_eq!(answer(&packet[..79]), None);
        packet[0] = 0x11;
        assert_eq!(answer(&packet), None, "a question");
    }
}
