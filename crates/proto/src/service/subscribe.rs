//! Standing questions about services, nodes and links (protocol.md §7.3).
//!
//! A subscriber gets a snapshot of what there is, a mark at its end, and then every change in order. The snapshot is
//! not copied: it is read from the tables as the subscriber takes it, from the spot on that he saw last. A change behind
//! that spot is of something he was told, so it is told next; a change before it he will see when he gets there. So a
//! snapshot of any size costs no memory.
//!
//! The changes that wait are bounded. One too many, and all are dropped, the subscriber is told so once, and his snapshot
//! starts again: he may be late, he may have to begin anew, but he never takes a wrong picture for a right one.

use super::table::{Change, Spot as BindingSpot, Table};
use crate::address::{Scope, ServiceRange};
use crate::id::{BearerId, Incarnation, LinkId, NodeId, PortAddress};
use crate::limits::{SUBSCRIPTION_UPDATES_MAX, SUBSCRIPTIONS_MAX};
use crate::link::state::LinkState;
use crate::time::{Duration, Instant};
use crate::wire::BindingOp;
use arrayvec::ArrayString;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a subscriber asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Topic {
    services: Option<ServiceRange>,
    first_and_last: bool,
    nodes: bool,
    links: bool,
}

impl Topic {
    const NOTHING: Topic = Topic { services: None, first_and_last: false, nodes: false, links: false };

    /// Bindings that share an instance with `range`: each one that is published or withdrawn.
    pub fn services(range: impl Into<ServiceRange>) -> Topic {
        Topic { services: Some(range.into()), ..Topic::NOTHING }
    }

    /// Other nodes that join and leave.
    pub fn nodes() -> Topic {
        Topic { nodes: true, ..Topic::NOTHING }
    }

    /// Links to other nodes that come, change their state, and go.
    pub fn links() -> Topic {
        Topic { links: true, ..Topic::NOTHING }
    }

    /// Of several bindings of exactly the same range, only the first that comes and the last that goes.
    #[must_use]
    pub fn first_and_last(self) -> Topic {
        Topic { first_and_last: true, ..self }
    }

    /// Nodes too.
    #[must_use]
    pub fn and_nodes(self) -> Topic {
        Topic { nodes: true, ..self }
    }

    /// Links too.
    #[must_use]
    pub fn and_links(self) -> Topic {
        Topic { links: true, ..self }
    }
}

/// A binding as a subscriber is told of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Publication {
    /// All that was bound, though the subscriber may have asked about a part of it.
    pub range: ServiceRange,
    /// The port.
    pub port: PortAddress,
    /// Unique for the life of the port's node: what tells two bindings of one port and range apart.
    pub key: u64,
    /// How far it is known.
    pub scope: Scope,
    /// Its share among the bindings of one service.
    pub weight: u8,
}

/// What a subscriber is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Update {
    /// A binding is there.
    Published(Publication),
    /// A binding is gone.
    Withdrawn(Publication),
    /// Another node is there.
    NodeUp {
        /// Who.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// Its name.
        name: ArrayString<63>,
    },
    /// Another node is gone. Its bindings and links are too, and that was told before.
    NodeDown {
        /// Who.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// It said so itself; else it was lost.
        left: bool,
    },
    /// A link is in another state, or there is one that was not known.
    Link {
        /// The peer.
        node: NodeId,
        /// The link.
        link: LinkId,
        /// Our bearer.
        bearer: BearerId,
        /// State before; `None` in a snapshot.
        from: Option<LinkState>,
        /// State now.
        to: LinkState,
    },
    /// A link is gone, with its session.
    LinkGone {
        /// The peer.
        node: NodeId,
        /// The link.
        link: LinkId,
        /// Our bearer.
        bearer: BearerId,
    },
    /// The snapshot ends here: what follows are changes.
    SnapshotEnd,
    /// Changes were lost, because too many waited. What was told so far is void: a new snapshot follows.
    Overflow,
    /// The time given is over, and so is the subscription.
    TimedOut,
}

/// Why a subscription was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The first instance is larger than the last.
    #[error("the range is inverted")]
    Inverted,
    /// The node has [`SUBSCRIPTIONS_MAX`] subscriptions.
    #[error("too many subscriptions")]
    TooMany,
}

/// The subscription is over: its time was, or it was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the subscription is over")]
pub struct Over;

/// Names a subscription; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SubscriptionId(u64);

/// What snapshots are read from.
pub trait Picture {
    /// Who is bound to what.
    fn table(&self) -> &Table;
    /// The node of the lowest identity above `after`, with its life and its name. (Zero is nobody.)
    fn node_after(&self, after: NodeId) -> Option<(NodeId, Incarnation, ArrayString<63>)>;
    /// The link behind `after` in the order of nodes and links, with our bearer and its state. Links that have not been
    /// up yet are left out.
    fn link_after(&self, after: (NodeId, LinkId)) -> Option<(NodeId, LinkId, BearerId, LinkState)>;
}

/// All subscriptions of a node.
#[derive(Debug, Default)]
pub struct Subscriptions {
    next: u64,
    all: BTreeMap<SubscriptionId, Subscription>,
    /// Those that ask about services, by kind.
    by_kind: BTreeSet<(u32, SubscriptionId)>,
    deadlines: BTreeSet<(Instant, SubscriptionId)>,
    /// Whose subscriber had seen all and has something new to see now.
    told: VecDeque<SubscriptionId>,
    overflows: u64,
}

/// How far a snapshot was read. The order of a snapshot is the order of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Spot {
    Start,
    Node(NodeId),
    Link(NodeId, LinkId),
    Binding(BindingSpot),
    End,
}

#[derive(Debug)]
struct Subscription {
    topic: Topic,
    deadline: Instant,
    seen: Spot,
    changes: VecDeque<Update>,
    /// To be told that changes were lost.
    overflowed: bool,
    /// No changes any more: what is left of the snapshot is still told, then that time is up.
    over: bool,
    /// The subscriber has seen all and waits.
    waits: bool,
}

impl Subscriptions {
    /// Adds a subscription. Its snapshot can be read at once. After `timeout` there are no more changes, and the last
    /// update says so; a timeout of zero is a snapshot and nothing else.
    ///
    /// # Errors
    /// An inverted range, or too many subscriptions.
    pub fn add(
        &mut self,
        now: Instant,
        topic: Topic,
        timeout: Option<Duration>,
    ) -> Result<SubscriptionId, SubscribeError> {
        if topic.services.is_some_and(|range| range.lower > range.upper) {
            return Err(SubscribeError::Inverted);
        }
        if self.all.len() >= SUBSCRIPTIONS_MAX {
            return Err(SubscribeError::TooMany);
        }
        let id = SubscriptionId(self.next);
        self.next += 1;
        let deadline = timeout.map_or(Instant::NEVER, |span| now + span);
        let over = timeout == Some(Duration::ZERO);
        if deadline != Instant::NEVER && !over {
            self.deadlines.insert((deadline, id));
        }
        if let Some(range) = topic.services {
            self.by_kind.insert((range.kind, id));
        }
        let (seen, changes) = (Spot::Start, VecDeque::new());
        let entry = Subscription { topic, deadline, seen, changes, overflowed: false, over, waits: false };
        self.all.insert(id, entry);
        Ok(id)
    }

    /// Ends a subscription; what waits for its subscriber is dropped.
    pub fn remove(&mut self, id: SubscriptionId) {
        let Some(entry) = self.all.remove(&id) else { return };
        self.deadlines.remove(&(entry.deadline, id));
        if let Some(range) = entry.topic.services {
            self.by_kind.remove(&(range.kind, id));
        }
    }

    /// The next update of a subscription; `None` if its subscriber has seen all.
    ///
    /// # Errors
    /// It is over.
    pub fn poll(&mut self, id: SubscriptionId, picture: &impl Picture) -> Result<Option<Update>, Over> {
        let entry = self.all.get_mut(&id).ok_or(Over)?;
        let update = entry.poll(picture);
        if update == Some(Update::TimedOut) {
            self.remove(id);
        }
        Ok(update)
    }

    /// Whether the subscriber has seen all there is, as far as he was told.
    pub fn waits(&self, id: SubscriptionId) -> bool {
        self.all.get(&id).is_some_and(|entry| entry.waits)
    }

    /// The next subscription whose subscriber had seen all and has something new to see.
    pub fn poll_told(&mut self) -> Option<SubscriptionId> {
        self.told.pop_front()
    }

    /// Whether nobody asks about anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether anybody asks about services.
    pub fn ask_about_services(&self) -> bool {
        !self.by_kind.is_empty()
    }

    /// How often a subscriber lost changes, because too many waited for him.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// When the first of them is over; `NEVER` if none will be.
    pub fn deadline(&self) -> Instant {
        self.deadlines.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// Ends those whose time is up.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(entry) = self.all.get_mut(&id) {
                entry.over = true;
                if std::mem::take(&mut entry.waits) {
                    self.told.push_back(id);
                }
            }
        }
    }

    /// Bindings came and went.
    pub fn on_changes(&mut self, changes: &[Change]) {
        for change in changes {
            let kind = change.range.kind;
            let asked = (kind, SubscriptionId(0))..=(kind, SubscriptionId(u64::MAX));
            for (_, id) in self.by_kind.range(asked) {
                let Some(entry) = self.all.get_mut(id) else { continue };
                let topic = entry.topic;
                let hit = topic.services.is_some_and(|range| range.overlaps(&change.range));
                if hit && (change.alone || !topic.first_and_last) {
                    let spot = Spot::Binding(BindingSpot::of(change.range, &change.bound));
                    entry.tell(*id, spot, change.into(), &mut self.told, &mut self.overflows);
                }
            }
        }
    }

    /// A node joined or left, as `update` says.
    pub fn on_node(&mut self, node: NodeId, update: Update) {
        self.tell_all(|topic| topic.nodes, Spot::Node(node), update);
    }

    /// A link changed its state or is gone, as `update` says.
    pub fn on_link(&mut self, node: NodeId, link: LinkId, update: Update) {
        self.tell_all(|topic| topic.links, Spot::Link(node, link), update);
    }

    fn tell_all(&mut self, who: impl Fn(&Topic) -> bool, spot: Spot, update: Update) {
        for (id, entry) in self.all.iter_mut().filter(|(_, entry)| who(&entry.topic)) {
            entry.tell(*id, spot, update, &mut self.told, &mut self.overflows);
        }
    }
}

impl Subscription {
    fn tell(
        &mut self,
        id: SubscriptionId,
        spot: Spot,
        update: Update,
        told: &mut VecDeque<SubscriptionId>,
        overflows: &mut u64,
    ) {
        // Also when time is up a snapshot that is half read has to stay true.
        if spot > self.seen || (self.over && self.seen == Spot::End) {
            return;
        }
        if self.changes.len() >= SUBSCRIPTION_UPDATES_MAX {
            self.changes = VecDeque::new();
            self.seen = Spot::Start;
            self.overflowed = true;
            *overflows += 1;
            return;
        }
        self.changes.push_back(update);
        if std::mem::take(&mut self.waits) {
            told.push_back(id);
        }
    }

    fn poll(&mut self, picture: &impl Picture) -> Option<Update> {
        if std::mem::take(&mut self.overflowed) {
            return Some(Update::Overflow);
        }
        // Changes come before the rest of the snapshot: what the subscriber was told is then at any time what was true of
        // that part, and what he reads of a node's new life comes after the end of its old one.
        if let Some(update) = self.changes.pop_front() {
            return Some(update);
        }
        if self.seen != Spot::End {
            let (seen, update) = self.look(picture);
            self.seen = seen;
            return Some(update);
        }
        self.waits = !self.over;
        self.over.then_some(Update::TimedOut)
    }

    /// The next part of the snapshot, and its spot: nodes first, then links, then services.
    fn look(&self, picture: &impl Picture) -> (Spot, Update) {
        let Topic { services, first_and_last, nodes, links } = self.topic;
        let after_node = match self.seen {
            Spot::Start => Some(NodeId(0)),
            Spot::Node(node) => Some(node),
            _ => None,
        };
        let node = after_node.filter(|_| nodes).and_then(|after| picture.node_after(after));
        if let Some((node, incarnation, name)) = node {
            return (Spot::Node(node), Update::NodeUp { node, incarnation, name });
        }
        let after_link = match self.seen {
            Spot::Start | Spot::Node(_) => Some((NodeId(0), LinkId(u16::MAX))),
            Spot::Link(node, link) => Some((node, link)),
            _ => None,
        };
        let link = after_link.filter(|_| links).and_then(|after| picture.link_after(after));
        if let Some((node, link, bearer, to)) = link {
            return (Spot::Link(node, link), Update::Link { node, link, bearer, from: None, to });
        }
        let after = match self.seen {
            Spot::Binding(spot) => Some(spot),
            _ => None,
        };
        let next = services.and_then(|range| picture.table().overlapping_after(range, after).next());
        let Some((range, bound)) = next else { return (Spot::End, Update::SnapshotEnd) };
        let spot = if first_and_last { BindingSpot::behind(range) } else { BindingSpot::of(range, bound) };
        (Spot::Binding(spot), Update::Published(Publication::new(range, bound)))
    }
}

impl Publication {
    fn new(range: ServiceRange, bound: &super::Bound) -> Publication {
        let &super::Bound { key, scope, weight, .. } = bound;
        Publication { range, port: bound.address(), key, scope, weight }
    }
}

impl From<&Change> for Update {
    fn from(change: &Change) -> Update {
        let publication = Publication::new(change.range, &change.bound);
        match change.op {
            BindingOp::Publish => Update::Published(publication),
            BindingOp::Withdraw => Update::Withdrawn(publication),
        }
    }
}

#[cfg(test)]
mod tests;
