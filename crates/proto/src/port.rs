//! What is known of a port of this node, beside its bindings and its flows.

use crate::service::Lookup;

/// A port of this node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Port {
    /// It takes nothing any more; what it sent is still being confirmed.
    pub closing: bool,
    /// It accepts connections.
    pub listening: Option<Listening>,
    /// How it chooses among those that serve what it sends to.
    pub lookup: Lookup,
    /// Ends of connections that belong to it, in all sessions.
    pub connections: u32,
}

/// A port that accepts connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    /// So many may wait for the application.
    pub backlog: u32,
    /// So many do.
    pub waiting: u32,
}
