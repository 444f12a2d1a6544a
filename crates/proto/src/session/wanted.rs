//! What operators want of a link: active, standby or drain (protocol.md §6.4).
//!
//! Each end keeps its own word and the other's, and the stricter one holds for what either sends: who drains a link is
//! about to take it away, and does not want to be sent anything there either.

use super::{Notice, Session};
use crate::error::LinkSetError;
use crate::id::LinkId;
use crate::link::Link;
use crate::link::state::LinkState;
use crate::wire::LinkStatus;

impl Session {
    /// The word of our operator for a link, from now on; the peer is told. What is in flight on it is left in peace.
    pub(crate) fn set_link(&mut self, id: LinkId, status: LinkStatus) -> Result<(), LinkSetError> {
        let node = self.peer.node;
        let index = self.link_index(id).ok_or(LinkSetError::NoLink(node, id))?;
        match status {
            LinkStatus::Down => return Err(LinkSetError::Down(node, id)),
            LinkStatus::Drain if !self.has_other_than(index) => return Err(LinkSetError::LastLink(node, id)),
            _ => {}
        }
        if self.links[index].status == status {
            return Ok(());
        }
        if !self.control.has_room() {
            return Err(LinkSetError::Busy(node));
        }
        self.links[index].status = status;
        self.tell_wish(index);
        self.forget_choices();
        Ok(())
    }

    /// Whether another link could take the messages of link `index`.
    fn has_other_than(&self, index: usize) -> bool {
        let takes = |link: &Link| link.usable() && link.wanted() < LinkStatus::Drain;
        self.links.iter().enumerate().any(|(other, link)| other != index && takes(link))
    }

    /// The word of the peer's operator. It comes exactly once and in order, so that the last one holds.
    pub(super) fn peer_wants(&mut self, id: LinkId, status: LinkStatus) {
        let Some(index) = self.link_index(id) else { return };
        self.links[index].status_of_peer = status;
        self.forget_choices();
        self.quiet.stir();
    }

    /// A link that the peer had not heard of when our operator spoke is up now: the peer is told again.
    pub(super) fn repeat_wish(&mut self, index: usize, from: LinkState) {
        if from == LinkState::New && self.links[index].status != LinkStatus::Active && self.control.has_room()
        {
            self.tell_wish(index);
        }
    }

    fn tell_wish(&mut self, index: usize) {
        let link = &self.links[index];
        let notice = Notice::LinkSet(link.spec.id, link.status, link.sent.next() as u32);
        self.notify(notice);
    }
}
