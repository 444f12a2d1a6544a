//! What is known of a port of this node, beside its bindings and its flows.

use crate::config::Policy;
use crate::id::ConnectionId;
use crate::service::Lookup;
use crate::stats::PortStats;
use std::collections::BTreeSet;

/// A port of this node.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// It takes nothing any more; what it sent is still being confirmed.
    pub closing: bool,
    /// It accepts connections.
    pub listening: Option<Listening>,
    /// How it chooses among those that serve what it sends to.
    pub lookup: Lookup,
    /// The policy by which its flows go, if it has one of its own.
    pub policy: Option<Policy>,
    /// Ends of connections that belong to it, in all sessions.
    pub connections: u32,
    /// What it did.
    pub stats: PortStats,
}

/// A port that accepts connections.
#[derive(Debug)]
pub(crate) struct Listening {
    /// So many may wait for the application.
    pub backlog: u32,
    /// Those that do. One whose asker has given up waits all the same until the application has answered, for its question
    /// takes memory until then.
    pub waiting: BTreeSet<ConnectionId>,
}
