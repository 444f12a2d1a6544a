//! Names of things, one type each, so that one can't be passed for another.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

/// Identity of a node: configured, or random per start. Zero is nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
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
/// Ports from here on are ends of connections, and unique in their session only (protocol.md §5.8).
const CONNECTION: u32 = 1 << 31;
/// Marks the end of the side that connected.
const CONNECTING: u32 = 1 << 30;

impl PortId {
    /// Stands for all who have bound something of a range, where a message goes to no port in particular.
    pub const MULTICAST: PortId = PortId(0);

    /// The accepting end of the connection with this number.
    pub const fn accepting_end(number: u32) -> PortId {
        PortId(CONNECTION | number & (CONNECTING - 1))
    }

    /// Whether this is an end of a connection.
    pub const fn is_connection(self) -> bool {
        self.0 & CONNECTION != 0
    }

    /// Whether this is the end of the side that connected.
    pub const fn is_connecting_end(self) -> bool {
        self.0 & CONNECTING != 0
    }

    /// The other end of the same connection.
    pub const fn far_end(self) -> PortId {
        PortId(self.0 ^ CONNECTING)
    }

    /// The number of the connection, chosen by the side that connected.
    pub const fn connection_number(self) -> u32 {
        self.0 & (CONNECTING - 1)
    }
}

id! {
    /// A large message under way, numbered by its receiver (protocol.md §5.3).
    TransferId(u32)
}
id! {
    /// Bytes that the driver keeps for the core; opaque here.
    BufferId(u64)
}

/// One end of a connection, as its own node knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId {
    /// The session that it is part of.
    pub session: SessionId,
    /// Its number there.
    pub end: PortId,
}

/// Where a message came from or goes to: a port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
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
