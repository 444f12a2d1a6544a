//! Bearers come, change and go while the node runs; its peers are told (protocol.md §6.6).

use super::turns::Turns;
use super::{Bearer, BearerInfo, Node};
use crate::address::MediaAddress;
use crate::id::{BearerId, LinkId, NodeId};
use crate::limits;
use crate::service::Update;
use crate::session::Cx;
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::wire::{BearerAddress, BearerSet};
use std::collections::VecDeque;

/// The number of a bearer that was closed is not given to another for so long, as long as there are others: what peers still
/// have of its links would be taken for the new one's.
const NUMBER_RESTS: Duration = Duration::s(60);

impl Node {
    /// Adds a bearer; beacons start at once, and the peers that there are are told.
    ///
    /// # Panics
    /// If there are [`limits::BEARERS_MAX`] already: see [`Node::try_add_bearer`].
    pub fn add_bearer(&mut self, now: Instant, info: BearerInfo) -> BearerId {
        let added = self.try_add_bearer(now, info);
        assert!(added.is_some(), "at most {} bearers", limits::BEARERS_MAX);
        added.unwrap_or_default()
    }

    /// The same; none, which is counted, if there are as many as there may be.
    pub fn try_add_bearer(&mut self, now: Instant, info: BearerInfo) -> Option<BearerId> {
        let Some(at) = self.free_bearer(now) else {
            self.drops.bearers_refused += 1;
            return None;
        };
        let bearer =
            Bearer { info, carrier: true, closed_at: None, turns: Turns::default(), outbox: VecDeque::new() };
        if at == self.bearers.len() {
            self.bearers.push(bearer);
        } else {
            self.bearers[at] = bearer;
        }
        self.bearers_at = now;
        self.discovery.restart(now);
        let id = BearerId(at as u8);
        self.tell_bearer(id);
        let own = self.loopback;
        for slot in 0..self.slots.len() {
            let session = self.slots[slot].session.as_ref();
            if session.is_some_and(|session| session.announced && Some(session.index) != own) {
                self.extend_session(now, slot);
            }
        }
        Some(id)
    }

    /// The number for another bearer: a new one, or that of the one that was closed longest ago.
    fn free_bearer(&self, now: Instant) -> Option<usize> {
        let closed = self.bearers.iter().enumerate().filter_map(|(at, b)| Some((b.closed_at?, at)));
        let oldest = closed.min();
        match oldest {
            Some((closed_at, at)) if now.since(closed_at) >= NUMBER_RESTS => Some(at),
            _ if self.bearers.len() < limits::BEARERS_MAX => Some(self.bearers.len()),
            oldest => oldest.map(|(_, at)| at),
        }
    }

    /// A bearer is gone: its links are closed, at the peers too, and what they carried goes by others. Its number may be given
    /// to another bearer.
    pub fn remove_bearer(&mut self, now: Instant, bearer: BearerId, store: &mut dyn Store) {
        let Some(entry) = self.open_bearer(bearer) else { return };
        (entry.closed_at, entry.carrier) = (Some(now), false);
        entry.outbox.clear();
        entry.info = BearerInfo { address: MediaAddress::default(), broadcast: false, ..entry.info.clone() };
        self.bearers_at = now;
        self.drop_attempts_by(bearer);
        for slot in 0..self.slots.len() {
            let own = self.loopback;
            let Some(session) = self.slots[slot].session.as_mut().filter(|s| Some(s.index) != own) else {
                continue;
            };
            session.tell_bearer_gone(bearer);
            let closed = session.close_links(cx!(self, now, store), |link| link.spec.bearer == bearer);
            let node = session.peer.node;
            self.tell_links_closed(node, &closed);
        }
    }

    /// A bearer takes packets of another size.
    pub fn set_bearer_mtu(&mut self, now: Instant, bearer: BearerId, mtu: u16) {
        let Some(entry) = self.open_bearer(bearer).filter(|entry| entry.info.mtu != mtu) else { return };
        entry.info.mtu = mtu;
        self.bearers_at = now;
        self.tell_bearer(bearer);
        for slot in 0..self.slots.len() {
            self.resize_links(now, slot);
        }
    }

    /// The carrier of a bearer came or went.
    pub fn handle_carrier(&mut self, now: Instant, bearer: BearerId, carrier: bool, store: &mut dyn Store) {
        let Some(entry) = self.open_bearer(bearer).filter(|entry| entry.carrier != carrier) else { return };
        entry.carrier = carrier;
        if carrier {
            self.discovery.restart(now);
        }
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.handle_carrier(cx!(self, now, store), bearer, carrier);
            }
        }
    }

    fn open_bearer(&mut self, bearer: BearerId) -> Option<&mut Bearer> {
        self.bearers.get_mut(bearer.0 as usize).filter(|entry| entry.closed_at.is_none())
    }

    /// What peers are told of a bearer; nothing of one that they could not find by it.
    pub(super) fn bearer_address(&self, bearer: BearerId) -> Option<BearerAddress> {
        let entry = self.bearers.get(bearer.0 as usize)?;
        let info = &entry.info;
        let is_told = entry.closed_at.is_none() && (info.broadcast || !info.ambiguous);
        is_told.then(|| BearerAddress {
            bearer,
            mtu: info.mtu,
            window_bytes: info.window,
            address: info.address.clone(),
        })
    }

    /// Tells all peers of a bearer.
    fn tell_bearer(&mut self, bearer: BearerId) {
        let Some(address) = self.bearer_address(bearer) else { return };
        let own = self.loopback;
        let sessions = self.slots.iter_mut().filter_map(|slot| slot.session.as_mut());
        for session in sessions.filter(|session| Some(session.index) != own) {
            session.tell_bearer(address.clone());
        }
    }

    /// Tells a peer that may have been told what is out of date of all bearers.
    pub(super) fn tell_bearers_again(&mut self, slot: usize) {
        for at in 0..self.bearers.len() {
            let bearer = BearerId(at as u8);
            let address = self.bearer_address(bearer);
            let is_closed = self.bearers[at].closed_at.is_some();
            let Some(session) = &mut self.slots[slot].session else { return };
            match address {
                Some(address) => session.tell_bearer(address),
                None if is_closed => session.tell_bearer_gone(bearer),
                None => {}
            }
        }
    }

    /// A peer says something of one of its bearers.
    pub(super) fn on_bearer_set(
        &mut self,
        now: Instant,
        slot: usize,
        set: &BearerSet,
        store: &mut dyn Store,
    ) {
        let Some(session) = &mut self.slots[slot].session else { return };
        if session.learn_bearer(set) {
            let over = set.bearer.bearer;
            let closed = session.close_links(cx!(self, now, store), |link| link.spec.peer_bearer == over);
            let node = session.peer.node;
            self.tell_links_closed(node, &closed);
        }
        if !set.gone {
            self.resize_links(now, slot);
            self.extend_session(now, slot);
        }
    }

    fn resize_links(&mut self, now: Instant, slot: usize) {
        let bearers = &self.bearers;
        let own = |bearer: BearerId| bearers.get(bearer.0 as usize).map_or(0, |entry| entry.info.mtu);
        if let Some(session) = &mut self.slots[slot].session {
            session.resize_links(now, own);
        }
    }

    /// Subscribers hear of links that are no more.
    pub(super) fn tell_links_closed(&mut self, node: NodeId, closed: &[(LinkId, BearerId)]) {
        if closed.is_empty() || self.subscriptions.is_empty() {
            return;
        }
        self.observe();
        for &(link, bearer) in closed {
            self.subscriptions.on_link(node, link, Update::LinkGone { node, link, bearer });
        }
    }
}
