//! Names of things, one type each, so that one can't be passed for another.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

/// Identity of a node: configured, or random per start. Zero is nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

id! {
    /// One life of a node: a restart makes a new one (protocol.md §6.1).
    Incarnation(u64)
}
id! {
    /// A local attachment to a medium, dense from 0 (protocol.md §1).
    BearerId(u8)
}
id! {
    /// A link inside a session; allocated by the session's initiator, never reused in a session (protocol.md §6.3).
    LinkId(u16)
}
id! {
    /// Index of a session at its owner; the `to` field of a packet header (protocol.md §2.1).
    SessionId(u32)
}
id! {
    /// A port of a node; never zero, not reused while the node lives.
    PortId(u32)
}
id! {
    /// A large message under way, numbered by its receiver (protocol.md §5.3).
    TransferId(u32)
}
id! {
    /// Bytes that the driver keeps for the core; opaque here.
    BufferId(u64)
}

/// Where a message came from or goes to: a port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortAddress {
    /// The node.
    pub node: NodeId,
    /// The port on it.
    pub port: PortId,
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}
