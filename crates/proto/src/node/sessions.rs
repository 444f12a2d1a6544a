//! Where sessions are: each has a slot, and a number that no earlier one of that slot had. How they are announced and end.

use super::{Node, Slot};
use crate::address::MediaAddress;
use crate::error::LinkSetError;
use crate::event::Event;
use crate::id::{BearerId, LinkId, NodeId, SessionId};
use crate::link::Link;
use crate::link::state::LinkEvent;
use crate::session::{Cx, Session};
use crate::store::Store;
use crate::time::Instant;
use crate::wire::LinkStatus;

impl Node {
    pub(super) fn session_id(&self, slot: usize) -> SessionId {
        SessionId(slot as u32 | (self.slots[slot].generation as u32) << 16)
    }

    pub(super) fn slot_of(&self, id: SessionId) -> Option<usize> {
        let slot = (id.0 & 0xffff) as usize;
        let entry = self.slots.get(slot)?;
        #[cfg(feature = "planted")]
        if self.config.planted(crate::planted::Planted::StaleSession) && entry.session.is_some() {
            return Some(slot);
        }
        (entry.generation == (id.0 >> 16) as u16 && entry.session.is_some()).then_some(slot)
    }

    pub(super) fn free_slot(&mut self) -> usize {
        match self.slots.iter().position(|s| s.session.is_none() && !s.reserved) {
            Some(slot) => slot,
            None => {
                // Zero is "no session yet" on the wire. Where generations start is drawn, or packets on their way to an
                // earlier life of this node would meet the sessions of this one.
                let generation = (self.draw() as u16).max(1);
                self.slots.push(Slot { generation, ..Slot::default() });
                self.slots.len() - 1
            }
        }
    }

    pub(super) fn session_with(&self, node: NodeId) -> Option<&Session> {
        self.slots[*self.by_node.get(&node)?].session.as_deref()
    }

    pub(super) fn session_with_mut(&mut self, node: NodeId) -> Option<&mut Session> {
        self.slots[*self.by_node.get(&node)?].session.as_deref_mut()
    }

    /// An operator's word for a link: active, standby or drain (protocol.md §6.4). It holds as long as the session.
    ///
    /// # Errors
    /// No such link, or the last one that takes messages is to be drained.
    pub fn set_link(&mut self, node: NodeId, link: LinkId, status: LinkStatus) -> Result<(), LinkSetError> {
        let session = self.session_with_mut(node).ok_or(LinkSetError::NoNode(node))?;
        session.set_link(link, status)
    }

    pub(super) fn end_session(&mut self, now: Instant, slot: usize, store: &mut dyn Store, left: bool) {
        let Some(mut session) = self.slots[slot].session.take() else { return };
        self.slots[slot].generation = self.slots[slot].generation.wrapping_add(1).max(1);
        session.end(cx!(self, now, store));
        self.handle_freed(std::mem::take(&mut session.freed), store);
        if self.by_node.get(&session.peer.node) == Some(&slot) {
            self.by_node.remove(&session.peer.node);
        }
        self.forget_names_of(session.peer.node);
        self.tell_links_gone(&session);
        if session.announced {
            let (node, incarnation) = (session.peer.node, session.peer.incarnation);
            self.events.push_back(Event::PeerDown { node, incarnation, left });
        }
        self.revive_attempts(now, session.peer.node);
        self.discovery.restart(now);
    }

    /// The node at `to`, which shares memory with us by `bearer`, has ended; its machine, which is ours, says so. It need not be
    /// waited for.
    pub fn handle_gone(&mut self, now: Instant, bearer: BearerId, to: &MediaAddress, store: &mut dyn Store) {
        let is_it = |link: &Link| link.spec.near && link.spec.bearer == bearer && link.spec.to == *to;
        for slot in 0..self.slots.len() {
            let session = self.slots[slot].session.as_deref_mut();
            let Some(session) = session.filter(|session| session.links.iter().any(is_it)) else { continue };
            for index in 0..session.links.len() {
                session.link_event(cx!(self, now, store), index, LinkEvent::PeerEnded);
            }
            self.end_session(now, slot, store, false);
        }
    }

    pub(super) fn announce_peers(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            let Some(session) = &mut self.slots[slot].session else { continue };
            if session.is_up() && !session.announced {
                session.announce();
                let (node, incarnation, name) =
                    (session.peer.node, session.peer.incarnation, session.peer.name);
                self.events.push_back(Event::PeerUp { node, incarnation, name });
                self.extend_session(now, slot);
            }
            self.tell_names(slot);
            self.tell_digest(now, slot);
        }
    }
}
