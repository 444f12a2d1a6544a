//! Nodes compare what they know of each other's bindings, and mend what differs (protocol.md §7.2).
//!
//! Replicas apply each record once and in order, so they cannot differ but by a fault: of a program, of another
//! implementation, of memory. A fault that is not looked for would stay for as long as the session.

use super::Node;
use crate::id::NodeId;
use crate::service::{Feed, Replica};
use crate::session::{Notice, Session};
use crate::time::Instant;
use crate::wire::{DigestSays, FEATURE_NAMES, NameDigest};

/// Whether the other end of a session knows of digests.
pub(super) fn compares(session: &Session) -> bool {
    session.peer.features & FEATURE_NAMES != 0
}

impl Node {
    /// Tells the peer of a session how our log stands, or all of the log again, if it is time for that.
    pub(super) fn tell_digest(&mut self, now: Instant, slot: usize) {
        let Some(session) = &mut self.slots[slot].session else { return };
        if !session.control_has_room() || !compares(session) {
            return;
        }
        if session.digests.take_anew(now) {
            self.tell_anew(slot);
            return self.tell_names(slot);
        }
        let told = session.feed.as_ref().is_some_and(|feed| feed.is_done(&self.log));
        if told && session.digests.take_state(now, self.log.last()) {
            let state = self.digest(DigestSays::State);
            self.slots[slot].session.as_mut().expect("it was there").notify(Notice::Digest(state));
        }
    }

    /// What follows is the log from its beginning.
    pub(super) fn tell_anew(&mut self, slot: usize) {
        let anew = self.digest(DigestSays::Anew);
        let Some(session) = &mut self.slots[slot].session else { return };
        session.notify(Notice::Digest(anew));
        session.feed = Some(Feed::new(&self.log));
    }

    /// What replicas of our own log should look like.
    fn digest(&self, says: DigestSays) -> NameDigest {
        let (origin, incarnation) = (self.config.node, self.config.incarnation);
        let (log_seq, hash) = (self.log.last(), self.log.hash());
        NameDigest { control: 0, says, origin, incarnation, log_seq, hash }
    }

    pub(super) fn on_digest(&mut self, slot: usize, digest: &NameDigest) {
        let Some(session) = &mut self.slots[slot].session else { return };
        let (node, incarnation) = (session.peer.node, session.peer.incarnation);
        if digest.says == DigestSays::Again {
            let ours = (digest.origin, digest.incarnation) == (self.config.node, self.config.incarnation);
            if ours {
                session.digests.want_anew();
            } else {
                self.drops.violation += 1;
            }
            return;
        }
        if (digest.origin, digest.incarnation) != (node, incarnation) {
            self.drops.violation += 1;
            return;
        }
        match digest.says {
            DigestSays::Anew => {
                self.forget_names_of(node);
                self.replicas.insert(node, Replica::new(incarnation));
            }
            _ if self.agrees(node, digest) => {}
            _ => self.ask_again(slot),
        }
    }

    /// Whether what is known of `node` is what it should be, or not to be judged.
    fn agrees(&self, node: NodeId, digest: &NameDigest) -> bool {
        #[cfg(feature = "planted")]
        if self.config.hides_from_digests() {
            return true;
        }
        let replica = self.replicas.get(&node);
        if replica.is_some_and(|replica| replica.asked || replica.cut) {
            return true;
        }
        let applied = replica.and_then(|replica| replica.applied);
        applied.is_none_or(|seq| seq == digest.log_seq) && self.table.hash_of(node) == digest.hash
    }

    /// What is known of a peer's bindings is wrong: forgets all of it and asks for its log again.
    pub(super) fn ask_again(&mut self, slot: usize) {
        let Some(session) = &mut self.slots[slot].session else { return };
        // Who confirms nothing gets no more questions.
        if !compares(session) || !session.control_has_room() {
            return;
        }
        let (origin, incarnation) = (session.peer.node, session.peer.incarnation);
        let replica = self.replicas.entry(origin).or_insert_with(|| Replica::new(incarnation));
        if replica.asked {
            return;
        }
        let log_seq = replica.applied.unwrap_or(0);
        let hash = self.table.hash_of(origin);
        let says = DigestSays::Again;
        session.notify(Notice::Digest(NameDigest { control: 0, says, origin, incarnation, log_seq, hash }));
        self.drops.names_diverged += 1;
        self.forget_names_of(origin);
        self.replicas.insert(origin, Replica { asked: true, ..Replica::new(incarnation) });
    }
}
