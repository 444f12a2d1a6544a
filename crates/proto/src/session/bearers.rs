//! Bearers of ours and of the peer's that come, change and go while the session lasts (protocol.md §6.6).

use super::{Cx, Notice, Session};
use crate::address::MediaAddress;
use crate::id::{BearerId, LinkId};
use crate::limits;
use crate::link::Link;
use crate::link::state::LinkEvent;
use crate::time::Instant;
use crate::wire::{self, BearerAddress, BearerSet};

/// Closed links that are remembered: more than could be closed while a packet is under way.
const RETIRED_MAX: usize = 64;

impl Session {
    /// Whether the peer understands what is said of bearers.
    fn speaks_of_bearers(&self) -> bool {
        self.peer.features & wire::FEATURE_BEARERS != 0
    }

    /// Whether the peer is told otherwise than link by link.
    pub(super) fn is_told_of(&self, why: LinkEvent) -> bool {
        why == LinkEvent::BearerClosed && self.speaks_of_bearers()
    }

    /// Tells the peer how one of our bearers is reached from now on.
    pub(crate) fn tell_bearer(&mut self, bearer: BearerAddress) {
        if self.speaks_of_bearers() {
            self.notify(Notice::BearerSet(BearerSet { control: 0, bearer, gone: false }));
        }
    }

    /// Tells the peer that one of our bearers is gone.
    pub(crate) fn tell_bearer_gone(&mut self, bearer: BearerId) {
        if self.speaks_of_bearers() {
            let bearer = BearerAddress { bearer, mtu: 0, window_bytes: 0, address: MediaAddress::default() };
            self.notify(Notice::BearerSet(BearerSet { control: 0, bearer, gone: true }));
        }
    }

    /// Closes links, for their bearer is closed: what was in flight leaves by the others. Which they were.
    pub(crate) fn close_links(
        &mut self,
        cx: &mut Cx<'_>,
        is_over: impl Fn(&Link) -> bool,
    ) -> Vec<(LinkId, BearerId)> {
        let mut closed = Vec::new();
        for index in 0..self.links.len() {
            if is_over(&self.links[index]) {
                closed.push((self.links[index].spec.id, self.links[index].spec.bearer));
                self.link_event(cx, index, LinkEvent::BearerClosed);
                // What left by a link that was down already has waiting owners too.
                let mut items = std::mem::take(&mut self.scratch);
                self.links[index].sent.abandon(|item| items.push(item));
                self.repeat(&mut items, index);
                items.clear();
                self.scratch = items;
            }
        }
        if closed.is_empty() {
            return closed;
        }
        self.links.retain(|link| !is_over(link));
        self.quiet.set_links(self.links.iter().map(|link| link.spec.bearer));
        self.forget_choices();
        self.note_isolation(cx.now);
        self.retired.extend(closed.iter().map(|(id, _)| *id));
        let beyond = self.retired.len().saturating_sub(RETIRED_MAX);
        self.retired.drain(..beyond);
        closed
    }

    /// Whether it is the number of a link that was closed.
    pub(crate) fn is_retired(&self, id: LinkId) -> bool {
        self.retired.contains(&id)
    }

    /// Takes in what the peer says of one of its bearers. Whether it is another one than it was under that number, so that
    /// the links to it are over.
    pub(crate) fn learn_bearer(&mut self, set: &BearerSet) -> bool {
        let bearer = &set.bearer;
        let known = self.peer.bearers.iter().position(|known| known.bearer == bearer.bearer);
        let is_other = match known {
            _ if set.gone => true,
            Some(at) => self.peer.bearers[at].address != bearer.address,
            // Not announced before, but perhaps heard: of such a link nothing else is known.
            None => false,
        };
        match known {
            Some(at) if set.gone => drop(self.peer.bearers.remove(at)),
            Some(at) => self.peer.bearers[at] = bearer.clone(),
            None if set.gone => {}
            None => drop(self.peer.bearers.try_push(bearer.clone())),
        }
        is_other
    }

    /// Whoever asks to join tells by which of its bearers. That is news where the peer has another bearer at an address than the
    /// one that we know of: what it says of the other one does not concern this link.
    pub(super) fn learn_peer_bearer(&mut self, index: usize, target: u64) {
        let bearer = BearerId(target as u8);
        if usize::from(bearer.0) < limits::BEARERS_MAX {
            self.links[index].spec.peer_bearer = bearer;
        }
    }

    /// The link that the initiator has given up, if it asks for link `id` over the pair of bearers of another one: there is one
    /// at a time, and it numbers them upwards.
    pub(crate) fn superseded_by(&self, id: LinkId, bearer: BearerId, from: &MediaAddress) -> Option<LinkId> {
        let over = |link: &&Link| link.spec.bearer == bearer && link.spec.to == *from && link.spec.id < id;
        self.links.iter().find(over).map(|link| link.spec.id).filter(|_| !self.initiator)
    }

    /// The largest packet of a link over `bearer`, which takes `own` bytes, to a bearer of the peer's.
    pub(crate) fn mtu_between(&self, own: u16, peer_bearer: BearerId) -> u16 {
        let theirs = self.peer.bearers.iter().find(|b| b.bearer == peer_bearer);
        let mtu = theirs.map_or(own, |theirs| own.min(theirs.mtu));
        mtu.clamp(limits::DATAGRAM_BYTES_BASE, limits::DATAGRAM_BYTES_MAX)
    }

    /// The bearer of some links, ours or the peer's, takes packets of another size: a smaller one holds at once, a larger one
    /// is looked for. `own` tells what our bearers take.
    pub(crate) fn resize_links(&mut self, now: Instant, own: impl Fn(BearerId) -> u16) {
        for index in 0..self.links.len() {
            let spec = &self.links[index].spec;
            if !spec.lossless {
                let mtu = self.mtu_between(own(spec.bearer), spec.peer_bearer);
                let link = &mut self.links[index];
                link.spec.mtu = mtu;
                link.mtu.set_bearer_mtu(now, mtu & !7);
            }
        }
        self.quiet.stir();
    }
}
