//! Ports that wait until the node's peers know what it has bound.

use super::Engine;
use polyrail_proto::id::PortId;
use polyrail_proto::node::Barrier;
use std::collections::BTreeMap;

/// Barriers that somebody waits at. Their number is that of waiting ports.
#[derive(Default)]
pub(super) struct Barriers {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    port: PortId,
    barrier: Barrier,
    past: bool,
}

impl Engine {
    /// Begins a barrier behind all that was bound and unbound so far, and wakes `port` when all peers are past it. Its
    /// number.
    pub fn begin_barrier(&mut self, port: PortId) -> u64 {
        let mut barrier = self.node.begin_barrier();
        let past = self.node.is_past(&mut barrier);
        let number = self.barriers.next;
        self.barriers.next += 1;
        self.barriers.waiting.insert(number, Waiting { port, barrier, past });
        number
    }

    /// Whether all peers are past the barrier, or gone.
    pub fn is_past(&self, number: u64) -> bool {
        self.barriers.waiting.get(&number).is_none_or(|waiting| waiting.past)
    }

    /// Forgets a barrier; the names of the peers that are still behind.
    pub fn end_barrier(&mut self, number: u64) -> Vec<String> {
        let Some(mut waiting) = self.barriers.waiting.remove(&number) else { return Vec::new() };
        self.node.is_past(&mut waiting.barrier);
        self.node.behind(&waiting.barrier).map(|session| session.peer.name.to_string()).collect()
    }

    /// Wakes those whose barrier all peers have passed.
    #[inline]
    pub(super) fn pass_barriers(&mut self) {
        for waiting in self.barriers.waiting.values_mut().filter(|waiting| !waiting.past) {
            if self.node.is_past(&mut waiting.barrier) {
                waiting.past = true;
                self.store.ring(waiting.port);
            }
        }
    }
}
