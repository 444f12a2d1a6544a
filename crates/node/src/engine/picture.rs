//! What whoever asks for one thing of an engine may look at: facts that no list has. Nothing here is kept up to date
//! for that; it is read when asked for.

use super::Engine;
use super::history::History;
use super::store::PortMemory;
use super::tap::Tap;
use polyrail_proto::Event;
use polyrail_proto::id::{NodeId, PortId};
use polyrail_proto::session::Session;
use polyrail_proto::time::Instant;

impl Engine {
    /// Takes in what is to be remembered of links and peers.
    pub(super) fn remember(&mut self, now: Instant, event: &Event) {
        let own = self.node.config().node;
        let (Event::Link { node, .. } | Event::PeerUp { node, .. } | Event::PeerDown { node, .. }) = *event
        else {
            return;
        };
        if node == own {
            return;
        }
        let sessions = &self.node;
        let name = |node| {
            let session = sessions.sessions().find(|s| s.peer.node == node)?;
            Some(session.peer.name.to_string())
        };
        self.history.note(now, event, name);
    }

    /// What became of links and peers of late.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// When the engine began.
    pub(crate) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Passes over everything so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Processes that are attached.
    pub(crate) fn attached(&self) -> usize {
        self.news.listeners()
    }

    /// Buffers for large messages that are the engine's at the moment.
    pub(crate) fn held_buffers(&self) -> (usize, u64) {
        self.store.held()
    }

    /// Copies packets into the ring of `tap` from now on, and into no other.
    pub(crate) fn open_tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    /// Ends that; how many packets found no room in the ring.
    pub(crate) fn close_tap(&mut self) -> u64 {
        self.tap.take().map_or(0, |tap| tap.missed())
    }

    /// The sessions with other nodes.
    pub(crate) fn remote_sessions(&self) -> impl Iterator<Item = &Session> {
        let own = self.node.config().node;
        self.node.sessions().filter(move |s| s.peer.node != own)
    }

    /// The session with a node.
    pub(crate) fn session_with(&self, node: NodeId) -> Option<&Session> {
        self.node.sessions().find(|s| s.peer.node == node)
    }

    /// The ports of the node's programs.
    pub(crate) fn port_ids(&self) -> Vec<PortId> {
        self.store.ports().collect()
    }

    /// What the memory and the queues of one hold.
    pub(crate) fn port_memory(&mut self, port: PortId) -> Option<PortMemory> {
        self.store.memory_of(port)
    }

    /// Whether the medium of a bearer has no room, and how many bytes wait in its queue.
    pub(crate) fn bearer_queue(&mut self, index: usize) -> Option<(bool, u32)> {
        let entry = self.bearers.get_mut(index)?;
        Some((entry.blocked, entry.bearer.backlog_bytes()))
    }
}
