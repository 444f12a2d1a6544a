//! When peers know what this node has bound (protocol.md §7.2).
//!
//! Operations of the log travel in control frames, which each peer processes in order and once. So a peer knows an
//! operation when it was told it and has confirmed every control frame up to then.

use super::Node;
use crate::id::SessionId;
use crate::service::Feed;
use crate::session::Session;
use std::collections::BTreeMap;

/// A moment in the life of this node's bindings, and which peers are not known to have come so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Barrier {
    /// The last operation of the log then.
    seq: u64,
    /// Sessions that are behind, with the end of the control frames that tell them all of it, once these are there.
    behind: BTreeMap<SessionId, Option<u32>>,
}

impl Node {
    /// A barrier behind all that was bound and unbound so far, before the peers that are there now: also those that
    /// have only just come, and are told nothing yet, for they may be known by what they have bound.
    pub fn begin_barrier(&self) -> Barrier {
        let own = self.config.node;
        let peers = self.sessions().filter(|session| session.peer.node != own);
        Barrier { seq: self.log.last(), behind: peers.map(|session| (session.index, None)).collect() }
    }

    /// Whether all its peers have come as far as the barrier, or are gone.
    pub fn is_past(&self, barrier: &mut Barrier) -> bool {
        let seq = barrier.seq;
        barrier.behind.retain(|id, end| {
            let session = self.slot_of(*id).and_then(|slot| self.slots[slot].session.as_deref());
            let Some(session) = session else { return false };
            if end.is_none() && session.feed.as_ref().is_some_and(|feed: &Feed| feed.has_told(seq)) {
                *end = Some(session.control_end());
            }
            !end.is_some_and(|end| session.control_is_confirmed(end))
        });
        barrier.behind.is_empty()
    }

    /// The sessions that were behind when [`Node::is_past`] was asked last.
    pub fn behind(&self, barrier: &Barrier) -> impl Iterator<Item = &Session> {
        self.sessions().filter(|session| barrier.behind.contains_key(&session.index))
    }
}
