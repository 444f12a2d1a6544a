//! Settings of the core, validated by whoever makes them.

use crate::flow::Class;
use crate::id::{Incarnation, NodeId};
use crate::limits;
use crate::mix::fnv1a;
use crate::time::Duration;
use arrayvec::ArrayString;

/// How messages are shared among the links to a peer (protocol.md §5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Each link takes what it has room for, small messages the one that delivers them first. All others are there to be
    /// compared with.
    #[default]
    Adaptive,
    /// Each flow has its link.
    Static,
    /// Of the links, one end sends by every other one, and the other end by the rest.
    OneWay,
    /// Each message by the next link, large ones in equal parts by all.
    RoundRobin,
    /// By links that have nothing to do at either end, large messages in equal parts.
    Mnc,
    /// The same, and the peer is asked what its links do before each large message.
    MncRtt,
    /// Every message by every link: the first copy counts.
    Redundant,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 7] = [
        Policy::Adaptive,
        Policy::Static,
        Policy::OneWay,
        Policy::RoundRobin,
        Policy::Mnc,
        Policy::MncRtt,
        Policy::Redundant,
    ];

    /// Its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Adaptive => "adaptive",
            Policy::Static => "static",
            Policy::OneWay => "one-way",
            Policy::RoundRobin => "round-robin",
            Policy::Mnc => "mnc",
            Policy::MncRtt => "mnc-rtt",
            Policy::Redundant => "redundant",
        }
    }
}

/// Settings of one node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Identity; never zero.
    pub node: NodeId,
    /// This life; larger than any earlier one of the same identity.
    pub incarnation: Incarnation,
    /// Name for people.
    pub name: ArrayString<63>,
    /// Hash of the cluster's name; see [`cluster_hash`].
    pub cluster: u64,
    /// Random per machine or network namespace: tells a clone from a restart.
    pub host: u64,
    /// Seed of everything that is drawn: port numbers, attempt numbers.
    pub seed: u64,
    /// Silence after which a node is declared lost.
    pub tolerance: Duration,
    /// Interval of keepalives on links of a session that carries messages.
    pub keepalive_busy: Duration,
    /// The same when the session is idle.
    pub keepalive_idle: Duration,
    /// Smallest probe time-out.
    pub pto_min: Duration,
    /// How long packets may wait in a bearer's queue: while messages of class bulk and of other classes share it, and
    /// otherwise (ARCHITECTURE.md, queue target).
    pub queue_target: (Duration, Duration),
    /// Beacons are sent and heard.
    pub discovery: bool,
    /// Packets carry a check over their payload too.
    pub full_check: bool,
    /// How messages are shared among links.
    pub policy: Policy,
    /// The same for the messages of one class, by its number, where that differs.
    pub class_policies: [Option<Policy>; 4],
    /// Largest message accepted for a port without its asking.
    pub auto_accept_bytes_max: u64,
    /// A fault to plant, for testing the tests.
    #[cfg(feature = "planted")]
    pub planted: Option<crate::planted::Planted>,
}

impl Config {
    /// Defaults for the identity given.
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Config {
            node,
            incarnation,
            name: ArrayString::new(),
            cluster: cluster_hash("default"),
            host: 0,
            seed: node.0 ^ incarnation.0,
            tolerance: limits::TOLERANCE,
            keepalive_busy: Duration::ms(10),
            keepalive_idle: Duration::s(1),
            pto_min: Duration::ms(4),
            queue_target: (Duration::us(100), Duration::ms(1)),
            discovery: true,
            full_check: false,
            policy: Policy::Adaptive,
            class_policies: [None; 4],
            auto_accept_bytes_max: 4 << 20,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }

    /// How messages of a class are shared among links.
    pub fn policy_of(&self, class: Class) -> Policy {
        self.class_policies[class as usize].unwrap_or(self.policy)
    }

    /// Whether the fault `which` is planted; always false in a build without the feature.
    #[cfg(feature = "planted")]
    pub(crate) fn planted(&self, which: crate::planted::Planted) -> bool {
        self.planted == Some(which)
    }

    /// Whether the fault that is planted is one that digests would mend, were they not blind to it.
    #[cfg(feature = "planted")]
    pub(crate) fn hides_from_digests(&self) -> bool {
        use crate::planted::Planted;
        self.planted(Planted::LostWithdrawal) || self.planted(Planted::StalePublication)
    }
}

/// 64-bit FNV-1a of a cluster's name: nodes of another name are ignored (protocol.md §3.1).
pub fn cluster_hash(name: &str) -> u64 {
    fnv1a(name.as_bytes())
}
