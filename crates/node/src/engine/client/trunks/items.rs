//! What the two ends of a trunk say to each other: one slot each. What it is, of which connection, and how that goes on stands in
//! the slot's note.

use polyrail_proto::id::{ConnectionId, PortId, SessionId};

/// What an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A connection is asked for, with the first message if [`FIRST`]. Meta: the service that was addressed, if [`SERVED`].
    Open = 0,
    /// Nothing but flags. Meta, with [`ANSWER`]: how many connections the receiver may ask for in all.
    Signal = 1,
    /// A message. Meta as of a signal.
    Data = 2,
    /// A piece of a message that is longer than there was room for at once. Meta: the bytes of all its pieces.
    Piece = 3,
    /// No more pieces follow of the message that was begun: it was given up.
    Abort = 4,
    /// More may be sent. Meta: bytes in all; the word before the bytes: messages in all.
    Credit = 5,
    /// The connection is not wanted. Meta: why in its low byte, and above it how many may be asked for in all.
    Refuse = 6,
    /// How many connections the receiver may ask for in all, in meta.
    Grant = 7,
}

const KINDS: [Kind; 8] =
    [Kind::Open, Kind::Signal, Kind::Data, Kind::Piece, Kind::Abort, Kind::Credit, Kind::Refuse, Kind::Grant];

const KIND_AT: u32 = 8;
const NUMBER_AT: u32 = 16;

/// Of each kind: its sender sends nothing more on that connection.
pub(super) const LAST: u32 = 1 << 11;
/// Of [`Kind::Open`]: there is a message; it carries a stream; who asks waits to be told that it is accepted; a service was addressed.
pub(super) const FIRST: u32 = 1 << 12;
pub(super) const STREAM: u32 = 1 << 13;
pub(super) const WAITS: u32 = 1 << 14;
pub(super) const SERVED: u32 = 1 << 15;
/// Of all others: the connection is accepted; the sender has asked for it; the sender receives nothing more.
pub(super) const ANSWER: u32 = 1 << 12;
pub(super) const OPENER: u32 = 1 << 13;
pub(super) const DEAF: u32 = 1 << 14;

pub(super) fn note(kind: Kind, key: Key, flags: u32) -> u32 {
    (kind as u32) << KIND_AT | u32::from(key.number) << NUMBER_AT | flags
}

/// Whether a word stands before the bytes of such an item.
pub(super) fn has_front(kind: Kind) -> bool {
    kind == Kind::Credit
}

pub(super) fn kind_of(note: u32) -> Kind {
    KINDS[(note >> KIND_AT) as usize % KINDS.len()]
}

/// Of which connection, as its receiver knows it.
pub(super) fn key_of(note: u32) -> Key {
    let ours = kind_of(note) != Kind::Open && note & OPENER == 0;
    Key { ours, number: (note >> NUMBER_AT) as u16 }
}

/// Names a connection among those of a trunk, at one end: each end numbers those that it has asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub ours: bool,
    pub number: u16,
}

impl Key {
    /// What each item that goes out says of whose connection it is.
    pub(super) fn side(self) -> u32 {
        if self.ours { OPENER } else { 0 }
    }
}

/// What stands for a session's slot in the numbers of connections that are of none: sessions have lower ones
/// (`proto::limits::SESSIONS_MAX`).
const NO_SLOT: u32 = 0xffff;

/// A connection's name at its port, by the trunk and its place there.
pub(super) fn id_of(trunk: u16, key: Key) -> ConnectionId {
    let end = PortId::accepting_end(u32::from(key.number));
    let end = if key.ours { end.far_end() } else { end };
    ConnectionId { session: SessionId(u32::from(trunk) << 16 | NO_SLOT), end }
}

/// The trunk of a connection and its place there; `None`: it goes by the engine.
pub(super) fn place_of(id: ConnectionId) -> Option<(u16, Key)> {
    let session = id.session.0;
    let key = Key { ours: id.end.is_connecting_end(), number: id.end.connection_number() as u16 };
    (session & 0xffff == NO_SLOT).then_some(((session >> 16) as u16, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_proto::limits::SESSIONS_MAX;

    #[test]
    fn items_and_names_say_what_they_were_made_of() {
        const { assert!(SESSIONS_MAX < NO_SLOT as usize) };
        for number in [0, 1, 0x1234, u16::MAX] {
            for ours in [true, false] {
                let key = Key { ours, number };
                for kind in KINDS {
                    let note = note(kind, key, LAST | ANSWER | key.side() | 0xff);
                    assert_eq!(kind_of(note), kind);
                    let seen = key_of(note);
                    assert_eq!(seen.number, number);
                    assert_eq!(seen.ours, !ours && kind != Kind::Open, "what is theirs is not ours");
                }
                for trunk in [0, 7, u16::MAX] {
                    assert_eq!(place_of(id_of(trunk, key)), Some((trunk, key)));
                }
            }
        }
        let of_a_session = ConnectionId { session: SessionId(0xffff_0fff), end: PortId(3) };
        assert_eq!(place_of(of_a_session), None);
    }
}
