//! A subscriber of a node under test: whatever happens, what it was told must be what the node knows.
//!
//! It begins anew again and again and reads slowly at first, so that changes meet snapshots that are half read.

use crate::world::SERVICE_KIND;
use polyrail::LinkState;
use polyrail::engine::Engine;
use polyrail_proto::Node;
use polyrail_proto::address::ServiceRange;
use polyrail_proto::service::{Publication, SubscriptionId, Topic, Update};
use std::collections::BTreeMap;

/// All that applications of a run bind.
const ALL: ServiceRange = ServiceRange::new(SERVICE_KIND, 0, u32::MAX);
/// It begins anew after so many calls, and reads slowly for so many of them.
const LIFE: u32 = 400;
const SLOW: u32 = 100;
/// Every so many calls what it was told is held against the truth.
const CHECKED_EVERY: u32 = 16;
/// Updates that it reads at a time while it is slow.
const SLOWLY: usize = 2;

/// What it was told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    nodes: BTreeMap<u64, u64>,
    links: BTreeMap<(u64, u16), LinkState>,
    bindings: BTreeMap<(u64, u64), Publication>,
}

/// One after the other.
#[derive(Default)]
pub struct Subscriber {
    id: Option<SubscriptionId>,
    calls: u32,
    told: Told,
    /// It has read everything.
    up_to_date: bool,
    contradiction: Option<String>,
}

impl Subscriber {
    /// Reads on.
    pub fn read(&mut self, now_ns: u64, engine: &mut Engine) {
        if self.calls == LIFE
            && let Some(id) = self.id.take()
        {
            engine.unsubscribe(id);
            let contradiction = self.contradiction.take();
            *self = Subscriber { contradiction, ..Subscriber::default() };
        }
        let topic = Topic::services(ALL).and_nodes().and_links();
        let id = *self.id.get_or_insert_with(|| engine.subscribe(now_ns, topic, None).expect("the only one"));
        self.calls += 1;
        let most = if self.calls < SLOW { SLOWLY } else { usize::MAX };
        self.up_to_date = false;
        for _ in 0..most {
            let update = engine.poll_subscription(id).expect("it has no end");
            let Some(update) = update else {
                self.up_to_date = true;
                break;
            };
            if let Err(what) = self.told.take(&update) {
                self.contradiction.get_or_insert(what);
            }
        }
        if self.calls.is_multiple_of(CHECKED_EVERY) {
            self.contradiction = self.objection(engine.core());
        }
    }

    /// What is wrong with what it was told.
    pub fn objection(&self, core: &Node) -> Option<String> {
        if self.contradiction.is_some() || !self.up_to_date {
            return self.contradiction.clone();
        }
        let truth = Told::of(core);
        (truth != self.told).then(|| format!("it was told {:?}, true is {truth:?}", self.told))
    }
}

impl Told {
    /// What a node knows.
    fn of(core: &Node) -> Told {
        let others = || core.sessions().filter(|session| session.peer.node != core.config().node);
        let nodes = others().filter(|session| session.announced);
        let links = others().flat_map(|session| session.links.iter().map(|link| (session.peer.node.0, link)));
        let links = links.filter(|(_, link)| link.state.state() != LinkState::New);
        let bindings = core.table().overlapping(ALL).map(|(range, bound)| {
            let (port, key, scope, weight) = (bound.address(), bound.key, bound.scope, bound.weight);
            ((port.node.0, key), Publication { range, port, key, scope, weight })
        });
        Told {
            nodes: nodes.map(|session| (session.peer.node.0, session.peer.incarnation.0)).collect(),
            links: links.map(|(node, link)| ((node, link.spec.id.0), link.state.state())).collect(),
            bindings: bindings.collect(),
        }
    }

    /// Takes an update in.
    ///
    /// # Errors
    /// It contradicts what was told before.
    fn take(&mut self, update: &Update) -> Result<(), String> {
        let fits = match *update {
            Update::Published(p) => self.bindings.insert((p.port.node.0, p.key), p).is_none(),
            Update::Withdrawn(p) => self.bindings.remove(&(p.port.node.0, p.key)) == Some(p),
            Update::NodeUp { node, incarnation, .. } => self.nodes.insert(node.0, incarnation.0).is_none(),
            Update::NodeDown { node, incarnation, .. } => {
                let alone = !self.bindings.keys().any(|(of, _)| *of == node.0)
                    && !self.links.keys().any(|(of, _)| *of == node.0);
                self.nodes.remove(&node.0) == Some(incarnation.0) && alone
            }
            Update::Link { node, link, from, to, .. } => {
                let before = self.links.insert((node.0, link.0), to);
                before == from || (before.is_none() && from == Some(LinkState::New))
            }
            Update::LinkGone { node, link, .. } => self.links.remove(&(node.0, link.0)).is_some(),
            Update::SnapshotEnd => true,
            Update::Overflow => {
                *self = Told::default();
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("{update:?} does not follow from what was told before")) }
    }
}
