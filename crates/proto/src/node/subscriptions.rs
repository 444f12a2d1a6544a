//! Subscribers are told what happens to names, nodes and links (protocol.md §7.3).
//!
//! Bindings change here, links inside sessions, which leave word in the queue of events. Each event is looked at before
//! anything else is told, so that a subscriber hears of everything in the order in which it came about.

use super::{Node, Slot};
use crate::event::Event;
use crate::id::{BearerId, Incarnation, LinkId, NodeId};
use crate::link::state::LinkState;
use crate::service::{Over, Picture, SubscribeError, SubscriptionId, Subscriptions, Table, Topic, Update};
use crate::session::Session;
use crate::time::{Duration, Instant};
use arrayvec::ArrayString;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

impl Node {
    /// Asks about `topic`: what there is now, and from then on whatever changes, until `timeout` is over (`None`: for
    /// ever; zero: only what there is).
    ///
    /// # Errors
    /// An inverted range, or too many subscriptions.
    pub fn subscribe(
        &mut self,
        now: Instant,
        topic: Topic,
        timeout: Option<Duration>,
    ) -> Result<SubscriptionId, SubscribeError> {
        if self.subscriptions.is_empty() {
            // What happened before anybody asked is part of the snapshot.
            self.observed = self.events.len();
        }
        self.observe();
        let id = self.subscriptions.add(now, topic, timeout)?;
        self.table.keep_changes(self.subscriptions.ask_about_services());
        Ok(id)
    }

    /// Ends a subscription; what its subscriber has not taken is dropped.
    pub fn unsubscribe(&mut self, id: SubscriptionId) {
        self.subscriptions.remove(id);
        self.table.keep_changes(self.subscriptions.ask_about_services());
    }

    /// The next update of a subscription; `None` if its subscriber has seen all.
    ///
    /// # Errors
    /// It is over.
    pub fn poll_subscription(&mut self, id: SubscriptionId) -> Result<Option<Update>, Over> {
        self.observe();
        let own = self.config.node;
        let picture = Known { own, table: &self.table, by_node: &self.by_node, slots: &self.slots };
        let update = self.subscriptions.poll(id, &picture);
        if matches!(update, Ok(Some(Update::TimedOut))) {
            self.table.keep_changes(self.subscriptions.ask_about_services());
        }
        update
    }

    /// The next subscription whose subscriber had seen all and has something new to see.
    pub fn poll_told(&mut self) -> Option<SubscriptionId> {
        self.subscriptions.poll_told()
    }

    /// The subscriptions.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    pub(super) fn end_subscriptions(&mut self, now: Instant) {
        if self.subscriptions.deadline() <= now {
            self.observe();
            self.subscriptions.handle_timeout(now);
        }
    }

    /// Tells subscribers of what they were not told yet. This is asked for each event of each message.
    #[inline]
    pub(super) fn observe(&mut self) {
        if !self.subscriptions.is_empty() && self.observed < self.events.len() {
            self.observe_events();
        }
    }

    fn observe_events(&mut self) {
        let own = self.config.node;
        for event in self.events.range(self.observed..) {
            match *event {
                Event::PeerUp { node, incarnation, name } => {
                    self.subscriptions.on_node(node, Update::NodeUp { node, incarnation, name });
                }
                Event::PeerDown { node, incarnation, left } => {
                    self.subscriptions.on_node(node, Update::NodeDown { node, incarnation, left });
                }
                Event::Link { node, link, bearer, from, to, .. } if node != own => {
                    let update = Update::Link { node, link, bearer, from: Some(from), to };
                    self.subscriptions.on_link(node, link, update);
                }
                _ => {}
            }
        }
        self.observed = self.events.len();
    }

    /// The service table changed.
    pub(super) fn tell_names_changed(&mut self) {
        if self.subscriptions.ask_about_services() {
            self.observe();
            let changes = self.table.take_changes();
            self.subscriptions.on_changes(&changes);
        }
    }

    /// A session is over, and its links with it.
    pub(super) fn tell_links_gone(&mut self, session: &Session) {
        let node = session.peer.node;
        if self.subscriptions.is_empty() || node == self.config.node {
            return;
        }
        self.observe();
        for link in session.links.iter().filter(|link| link.state.state() != LinkState::New) {
            let (id, bearer) = (link.spec.id, link.spec.bearer);
            self.subscriptions.on_link(node, id, Update::LinkGone { node, link: id, bearer });
        }
    }
}

/// What a node knows, as snapshots are read from it.
struct Known<'a> {
    own: NodeId,
    table: &'a Table,
    by_node: &'a BTreeMap<NodeId, usize>,
    slots: &'a [Slot],
}

impl Known<'_> {
    /// The sessions with other nodes from `first` on, in the order of these.
    fn sessions(&self, first: std::ops::Bound<NodeId>) -> impl Iterator<Item = (NodeId, &Session)> {
        let slots = self.by_node.range((first, Unbounded)).filter(|(node, _)| **node != self.own);
        slots.filter_map(|(node, slot)| Some((*node, self.slots[*slot].session.as_deref()?)))
    }
}

impl Picture for Known<'_> {
    fn table(&self) -> &Table {
        self.table
    }

    fn node_after(&self, after: NodeId) -> Option<(NodeId, Incarnation, ArrayString<63>)> {
        let (node, session) = self.sessions(Excluded(after)).find(|(_, session)| session.announced)?;
        Some((node, session.peer.incarnation, session.peer.name))
    }

    fn link_after(&self, after: (NodeId, LinkId)) -> Option<(NodeId, LinkId, BearerId, LinkState)> {
        self.sessions(Included(after.0)).find_map(|(node, session)| {
            let known = session.links.iter().filter(|link| link.state.state() != LinkState::New);
            let further = known.filter(|link| (node, link.spec.id) > after);
            let link = further.min_by_key(|link| link.spec.id)?;
            Some((node, link.spec.id, link.spec.bearer, link.state.state()))
        })
    }
}
