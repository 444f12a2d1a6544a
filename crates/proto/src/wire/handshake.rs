//! Packets outside of a session: beacon, session opening, version notice, reset (protocol.md §3).

use crate::address::MediaAddress;
use crate::id::{BearerId, Incarnation, NodeId, SessionId};
use arrayvec::{ArrayString, ArrayVec};

/// Longest node or cluster name, bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Most bearers that a node announces.
pub const BEARERS_MAX: usize = 16;

/// Feature bit: connections (protocol.md §5.8).
pub const FEATURE_CONNECTIONS: u64 = 1 << 0;
/// Feature bit: messages to ranges of services (protocol.md §5.9).
pub const FEATURE_MULTICAST: u64 = 1 << 1;
/// Feature bit: how far messages were read (protocol.md §5.10).
pub const FEATURE_CONSUMED: u64 = 1 << 2;
/// Feature bit: digests of binding logs and exclusive bindings (protocol.md §7.2, §7.4).
pub const FEATURE_NAMES: u64 = 1 << 3;
/// Feature bit: bearers that come, change and go during a session (protocol.md §6.6).
pub const FEATURE_BEARERS: u64 = 1 << 4;
/// What this build knows beside wire version 1.
pub const FEATURES: u64 =
    FEATURE_CONNECTIONS | FEATURE_MULTICAST | FEATURE_CONSUMED | FEATURE_NAMES | FEATURE_BEARERS;

/// "Here I am", sent to a bearer's broadcast or multicast address (protocol.md §3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beacon {
    /// Hash of the cluster's name; others are ignored and counted.
    pub cluster: u64,
    /// Who.
    pub node: NodeId,
    /// Which life.
    pub incarnation: Incarnation,
    /// Which of its bearers speaks.
    pub bearer: BearerId,
    /// The sender would like an answer soon (first beacons of a life).
    pub solicit: bool,
}

/// One bearer of a node as announced to peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerAddress {
    /// Its number at its owner.
    pub bearer: BearerId,
    /// Largest datagram, bytes.
    pub mtu: u16,
    /// Bytes that one peer may have in flight towards it (half the receive buffer), truesize counted.
    pub window_bytes: u32,
    /// The address that peers send to.
    pub address: MediaAddress,
}

/// Body of INIT and RESP (protocol.md §3.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Hash of the cluster's name.
    pub cluster: u64,
    /// The sender.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The sender's index of this session: the `to` of all packets towards it.
    pub session: SessionId,
    /// Chosen by the initiator, echoed in RESP; tells attempts apart.
    pub attempt: u32,
    /// In RESP: the initiator's incarnation, echoed. In INIT: 0.
    pub echo: Incarnation,
    /// Lowest and highest wire version spoken.
    pub versions: (u8, u8),
    /// Feature bits.
    pub features: u64,
    /// The bearer that this packet was sent from.
    pub bearer: BearerId,
    /// Largest message sent without asking, bytes.
    pub eager_bytes_max: u32,
    /// Credit of a port one has never talked to: bytes and messages.
    pub initial_credit: (u32, u32),
    /// Silence after which the sender's node may be declared lost, ms (`progress = manual` raises it).
    pub tolerance_ms: u32,
    /// Random per boot of the machine or per network namespace: tells a clone with our identity from a restart.
    pub host: u64,
    /// The node's name.
    pub name: ArrayString<NAME_BYTES_MAX>,
    /// All bearers of the sender.
    pub bearers: ArrayVec<BearerAddress, BEARERS_MAX>,
}

/// "I speak these versions" (protocol.md §3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// Lowest.
    pub min: u8,
    /// Highest.
    pub max: u8,
    /// Who says so.
    pub node: NodeId,
}

/// "I know no such session" (protocol.md §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// The session index that the offending packet named.
    pub session: SessionId,
    /// Who says so.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
}
