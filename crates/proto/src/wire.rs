//! The wire format: one packet is one datagram of a bearer (protocol.md §2-§4).
//!
//! Bytes become values here, once; inside the core there are no lengths to check again. All integers are
//! little-endian; frames start on 8-byte boundaries of the packet.

mod ack;
mod binding;
mod check;
mod connection;
mod digest;
mod field;
mod flow;
pub mod frame;
mod frames;
pub mod handshake;
pub mod header;
mod hello;
mod message;
mod notice;
mod parts;
mod piece;
pub mod seal;
mod show;
mod supervise;
mod walk;

pub use binding::BINDING_BYTES;
pub use check::{check_of, check_of_parts, finish, put_check, verify, verify_any_version};
pub use field::padding;
pub use frame::{
    Accept, Ack, BearerSet, BearerState, Binding, BindingOp, Bindings, BindingsIter, Close, Connect,
    Consumed, Credit, Cts, DigestSays, Fragment, Frame, Frames, LinkSet, LinkStatus, MESSAGE_BYTES_MAX,
    Message, Multicast, NameDigest, Probe, ProbeKind, ProbeReply, Refuse, RefuseReason, RefusedConnect,
    Rejected, Rts, Shutdown, TransferFragment,
};
pub use handshake::{
    Beacon, BearerAddress, FEATURE_BEARERS, FEATURE_CONNECTIONS, FEATURE_CONSUMED, FEATURE_MULTICAST,
    FEATURE_NAMES, FEATURES, Hello, Reset, Versions,
};
pub use header::{
    CHECK_OFFSET, FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_ACK_SOON, FLAG_FULL_CHECK, FLAG_KEY_PHASE,
    FLAG_SEALED, FLAG_TRAIN_LAST, Header, PACKET_NUMBER_MAX, PacketType, peek_type, peek_version,
};
pub use message::DATA_HEADER_BYTES_MAX;
pub(crate) use parts::{Parts, parts};
pub use piece::{Piece, piece};
pub(crate) use piece::{PieceHead, Pieces, pieces};
pub use show::describe;
pub use walk::FRAME_HEADER_BYTES;

/// The wire version that this build speaks (protocol.md §2.1).
pub const VERSION: u8 = 1;

/// Bytes of a packet header.
pub const HEADER_BYTES: usize = 24;

/// Bytes of the tag at the end of a sealed packet.
pub const SEAL_BYTES: usize = 16;

/// What is wrong with bytes that a peer sent, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The kind of fault.
    pub what: Fault,
    /// Offset in the packet at which it was noticed.
    pub offset: u16,
}

/// Kinds of malformed input, each counted apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Fewer bytes than the format needs.
    Truncated,
    /// A version that this build does not speak; the nibble received.
    Version(u8),
    /// An unknown packet type.
    PacketType(u8),
    /// The checksum does not match.
    Checksum,
    /// A frame length smaller than its fixed part, or beyond the packet.
    FrameLength,
    /// An unknown frame type of the critical half (0x80 and above).
    CriticalFrame(u8),
    /// Acknowledged ranges that reach below packet 0 or overlap.
    AckRange,
    /// A field outside of its range.
    Value,
    /// Text that is not UTF-8 or too long.
    Text,
    /// More entries than the format allows.
    Count,
    /// A byte that must be zero is not.
    Reserved,
}

impl Fault {
    /// Number of kinds.
    pub const KINDS: usize = 11;

    /// The kind as an index into an array of [`Fault::KINDS`] counters.
    pub const fn index(self) -> usize {
        match self {
            Fault::Truncated => 0,
            Fault::Version(_) => 1,
            Fault::PacketType(_) => 2,
            Fault::Checksum => 3,
            Fault::FrameLength => 4,
            Fault::CriticalFrame(_) => 5,
            Fault::AckRange => 6,
            Fault::Value => 7,
            Fault::Text => 8,
            Fault::Count => 9,
            Fault::Reserved => 10,
        }
    }
}
