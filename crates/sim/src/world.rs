//! One run: nodes under test, their machines and applications, the network between them, one virtual clock.
//!
//! The world plays the driver of every node: it lets a node turn when data, room, a deadline or an application's
//! call asks for it, and only when the machine under it runs. Turns are bounded; a node that is not done gets
//! another one, after the time that the last one cost.

mod app;
mod casts;
mod connections;
mod contest;
mod faults;
mod links;
mod names;
mod report;

pub use report::Outcome;

pub(crate) use app::{EXCLUSIVE_KIND, SERVICE_KIND};

use crate::bearer::{SharedNetwork, SimBearer, lock};
use crate::check::links::End;
use crate::check::{Oracle, PortKey};
use crate::contest::LONE_MESSAGES;
use crate::coverage::Coverage;
use crate::host::Host;
use crate::network::{Network, Wake};
use crate::plan::Plan;
use crate::prng::Prng;
use crate::queue::{EventQueue, MS, TimeNs};
use crate::subject::{Happening, Subject};
use app::App;
use names::Names;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// What a new life of a node is made from.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its index in the run.
    pub index: usize,
    /// Its identity.
    pub id: u64,
    /// Its life, counted from 0.
    pub life: u32,
    /// The number of that life on the wire: later lives have larger ones, a clone's differ from the original's.
    pub incarnation: u64,
    /// The machine's mark: differs between a node and its clone.
    pub host: u64,
    /// Seed of what it draws.
    pub seed: u64,
    /// Its own clock at the start.
    pub now_ns: u64,
}

/// Makes the nodes of a run.
pub type Factory = Box<dyn FnMut(&Plan, &NodeSpec, Vec<SimBearer>) -> Box<dyn Subject>>;

#[derive(Clone, Copy, Debug)]
enum Event {
    Start(usize),
    Turn(usize),
    Act(usize),
    FaultStarts(usize),
    FaultEnds(usize),
    /// A node that took its leave is gone.
    Gone(usize),
    Carrier {
        node: usize,
        rail: usize,
        up: bool,
    },
    Garbage(usize),
    /// A contest begins.
    Contest,
    /// An urgent message of it is due.
    Urgent,
    /// The next of the messages that follow it may go.
    Lone,
    Check,
}

struct Node {
    subject: Option<Box<dyn Subject>>,
    host: Host,
    life: u32,
    turn_at_ns: Option<TimeNs>,
    /// Turns since the last check: without work, with work.
    turns: [u64; 2],
    app: App,
}

/// A run under way.
pub struct World {
    plan: Plan,
    factory: Factory,
    network: SharedNetwork,
    events: EventQueue<Event>,
    now_ns: TimeNs,
    nodes: Vec<Node>,
    active: Vec<usize>,
    oracle: Oracle,
    coverage: Coverage,
    garbage: Prng,
    /// Per station: since when its node knows that the carrier is gone.
    carrier_known_lost_ns: Vec<Option<TimeNs>>,
    /// Which node has met which, in their present lives.
    met: BTreeSet<(usize, usize)>,
    names: Names,
    finished_at_ns: Option<TimeNs>,
    wakes: Vec<Wake>,
    happenings: Vec<Happening>,
    /// Turns of all nodes without work, with work.
    turns: [u64; 2],
    /// Sends accepted, blocked, refused.
    sends: [u64; 3],
    /// Bytes of a message.
    content: Vec<u8>,
    /// Messages that are to go alone after a contest.
    lone_left: usize,
    /// Links that changed in the turn under way.
    links_changed: Vec<End>,
}

/// Between two looks at whether everything is settled.
const CHECK_EVERY_NS: TimeNs = 5 * MS;
/// After everything is settled, late copies may still show themselves for so long.
const AFTERMATH_NS: TimeNs = 50 * MS;

/// The identity of node `index` in a run with `seed`.
pub fn node_id(seed: u64, index: usize) -> u64 {
    ((crate::prng::mix(seed) << 8) | (index as u64 + 1)) & 0x7fff_ffff_ffff_ffff
}

impl World {
    /// The world before anything happened.
    pub fn new(plan: Plan, factory: Factory) -> World {
        let seats = plan.seats();
        let mut network = Network::new(seats, plan.rails.clone(), plan.seed);
        network.record.verbose = plan.trace;
        let nodes = (0..seats)
            .map(|index| {
                let options = plan.hosts[plan.cloned().filter(|_| index >= plan.nodes).unwrap_or(index)];
                Node {
                    subject: None,
                    host: Host::new(options, Prng::for_component(plan.seed, "host", index as u64)),
                    life: 0,
                    turn_at_ns: None,
                    turns: [0; 2],
                    app: App::new(&plan, index),
                }
            })
            .collect();
        for index in 0..seats {
            network.set_listening(index, false);
        }
        let stations = seats * plan.rails.len();
        World {
            garbage: Prng::for_component(plan.seed, "garbage", 0),
            factory,
            network: Arc::new(Mutex::new(network)),
            events: EventQueue::new(),
            now_ns: 0,
            nodes,
            active: Vec::new(),
            oracle: Oracle::default(),
            coverage: Coverage::default(),
            carrier_known_lost_ns: vec![None; stations],
            met: BTreeSet::new(),
            names: Names::default(),
            finished_at_ns: None,
            wakes: Vec::new(),
            happenings: Vec::new(),
            turns: [0; 2],
            sends: [0; 3],
            content: Vec::new(),
            lone_left: plan.contest.as_ref().map_or(0, |_| LONE_MESSAGES),
            links_changed: Vec::new(),
            plan,
        }
    }

    /// Runs until everything is settled or the time is up.
    pub fn run(mut self) -> Outcome {
        self.schedule_plan();
        let limit_ns = self.plan.heal_ns.max(self.plan.workload.until_ns) + self.plan.drain_ns;
        while self.step(limit_ns) {}
        self.conclude()
    }

    fn schedule_plan(&mut self) {
        let mut prng = Prng::for_component(self.plan.seed, "start", 0);
        for node in 0..self.plan.nodes {
            self.events.schedule(prng.below(5 * MS), Event::Start(node));
            self.events.schedule(self.plan.start_ns + prng.below(20 * MS), Event::Act(node));
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.events.schedule(fault.from_ns, Event::FaultStarts(index));
            if fault.until_ns != TimeNs::MAX {
                self.events.schedule(fault.until_ns, Event::FaultEnds(index));
            }
        }
        if self.plan.contest.is_some() {
            self.events.schedule(self.plan.start_ns, Event::Contest);
        }
        self.events.schedule(CHECK_EVERY_NS, Event::Check);
    }

    /// One event of the network or of the world; false at the end of the run.
    fn step(&mut self, limit_ns: TimeNs) -> bool {
        let network_ns = lock(&self.network).next_at_ns().unwrap_or(TimeNs::MAX);
        let world_ns = self.events.next_at_ns().unwrap_or(TimeNs::MAX);
        let end_ns = self.finished_at_ns.map_or(limit_ns, |at_ns| at_ns + AFTERMATH_NS);
        if network_ns.min(world_ns) > end_ns {
            return false;
        }
        if network_ns <= world_ns {
            self.now_ns = network_ns;
            let mut network = lock(&self.network);
            network.step();
            network.take_wakes(&mut self.wakes);
        } else if let Some((at_ns, event)) = self.events.pop() {
            self.now_ns = at_ns;
            let mut network = lock(&self.network);
            network.set_now(at_ns);
            drop(network);
            self.on_event(event);
            lock(&self.network).take_wakes(&mut self.wakes);
        }
        self.wake_nodes();
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Start(node) => self.start_node(node),
            Event::Turn(node) => self.on_turn(node),
            Event::Act(node) => self.on_act(node),
            Event::FaultStarts(index) => self.on_fault_starts(index),
            Event::FaultEnds(index) => self.on_fault_ends(index),
            Event::Gone(node) => self.end_node(node),
            Event::Carrier { node, rail, up } => self.on_carrier(node, rail, up),
            Event::Garbage(index) => self.on_garbage(index),
            Event::Contest => self.begin_contest(),
            Event::Urgent => self.on_urgent(),
            Event::Lone => self.on_lone(),
            Event::Check => self.on_check(),
        }
    }

    fn wake_nodes(&mut self) {
        for wake in std::mem::take(&mut self.wakes) {
            let (Wake::Readable(station) | Wake::Writable(station) | Wake::Unreachable(station, _)) = wake;
            let node = lock(&self.network).place(station).0;
            self.wake(node, self.nodes[node].host.options().wake_ns);
        }
    }

    /// Lets a node turn after `delay_ns`, if it does not do so before.
    fn wake(&mut self, node: usize, delay_ns: TimeNs) {
        self.turn_by(node, self.now_ns + delay_ns);
    }

    fn turn_by(&mut self, node: usize, at_ns: TimeNs) {
        let state = &mut self.nodes[node];
        if state.subject.is_none() || state.turn_at_ns.is_some_and(|pending_ns| pending_ns <= at_ns) {
            return;
        }
        state.turn_at_ns = Some(at_ns);
        self.events.schedule(at_ns, Event::Turn(node));
    }

    /// Starts a life of a node. A clone (a seat beyond the nodes) has the identity of its original, on another
    /// machine.
    fn start_node(&mut self, index: usize) {
        let original = if index < self.plan.nodes { index } else { self.plan.cloned().unwrap_or(index) };
        let state = &mut self.nodes[index];
        let spec = NodeSpec {
            index,
            id: node_id(self.plan.seed, original),
            life: state.life,
            incarnation: 1_000 + u64::from(state.life) + ((0x57 + index as u64) << 32),
            host: 0x4057 + index as u64,
            seed: Prng::for_component(self.plan.seed, "node", (index as u64) << 32 | u64::from(state.life))
                .next_u64(),
            now_ns: state.host.local_ns(self.now_ns),
        };
        let bearers =
            (0..self.plan.rails.len()).map(|rail| SimBearer::new(&self.network, index, rail)).collect();
        self.names.on_start(spec.incarnation, index, spec.life, self.now_ns);
        lock(&self.network).set_listening(index, true);
        state.subject = Some((self.factory)(&self.plan, &spec, bearers));
        self.note(|| format!("node {index} starts life {}", spec.life));
        self.open_ports(index);
        self.wake(index, 0);
    }

    /// Ends the life of a node without a word.
    fn end_node(&mut self, index: usize) {
        let state = &mut self.nodes[index];
        self.oracle.connections.on_life_over(index, state.life);
        state.subject = None;
        state.turn_at_ns = None;
        state.life += 1;
        for port in state.app.take_ports() {
            self.oracle.on_port_gone(port);
        }
        self.met.retain(|(a, b)| *a != index && *b != index);
        self.names.on_change(self.now_ns);
        let mut network = lock(&self.network);
        network.set_listening(index, false);
        network.record.on_restart(index);
        drop(network);
        self.note(|| format!("node {index} dies"));
    }

    fn on_turn(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let Some(subject) = state.subject.as_mut() else { return };
        if state.turn_at_ns != Some(self.now_ns) {
            return;
        }
        state.turn_at_ns = None;
        let runs_ns = state.host.runs_at(self.now_ns);
        if runs_ns > self.now_ns {
            return self.turn_by(node, runs_ns);
        }
        let local_ns = state.host.local_ns(self.now_ns);
        let stalled_ns = state.host.take_stall();
        if stalled_ns > 2 * MS {
            subject.stall(local_ns, stalled_ns);
        }
        let sent_before = lock(&self.network).record.sent_trains;
        let turned = subject.turn(local_ns);
        state.turns[usize::from(turned.worked)] += 1;
        let sends = lock(&self.network).record.sent_trains - sent_before;
        state.host.spend(self.now_ns, sends);
        let busy_ns = self.now_ns + state.host.options().turn_ns + sends * state.host.options().send_ns;
        let next_ns = match turned.deadline_ns {
            _ if !turned.drained => Some(busy_ns),
            Some(local_ns) => Some(state.host.virtual_ns(local_ns).max(busy_ns)),
            None => None,
        };
        if let Some(at_ns) = next_ns {
            self.turn_by(node, at_ns);
        }
        self.poll_node(node);
        self.check_carriers_of_messages(node);
        self.poll_ports(node);
        self.supply(node);
    }

    /// Whether two nodes have a reason to hold each other for lost.
    fn excused(&self, a: usize, b: usize) -> bool {
        let clone = a >= self.plan.nodes || b >= self.plan.nodes;
        clone || self.plan.excused_from_ns(a, b).is_some_and(|from_ns| from_ns <= self.now_ns)
    }

    fn node_of_id(&self, id: u64) -> Option<usize> {
        (0..self.plan.nodes).find(|index| node_id(self.plan.seed, *index) == id)
    }

    fn poll_node(&mut self, node: usize) {
        let mut happenings = std::mem::take(&mut self.happenings);
        if let Some(subject) = self.nodes[node].subject.as_mut() {
            subject.poll_node(&mut happenings);
        }
        let lost = happenings.iter().any(|happening| matches!(happening, Happening::NodeDown(_)));
        for happening in happenings.drain(..) {
            self.on_node_happening(node, happening);
        }
        self.happenings = happenings;
        if lost {
            self.check_directory(node);
        }
    }

    fn on_node_happening(&mut self, node: usize, happening: Happening) {
        match happening {
            Happening::NodeDown(id) => {
                self.coverage.add("event", "node down", 1);
                self.oracle.links.forget(node, self.nodes[node].life, id);
                self.note(|| format!("node {node} holds {id:x} for lost"));
                let Some(peer) = self.node_of_id(id) else { return };
                if node == peer || !self.excused(node, peer) {
                    let what = format!("node {node} holds node {peer} for lost without cause");
                    self.oracle.violation("I8", self.now_ns, what);
                }
            }
            Happening::NodeUp(id) => {
                self.coverage.add("event", "node up", 1);
                self.note(|| format!("node {node} meets {id:x}"));
                self.met.extend(self.node_of_id(id).map(|peer| (node, peer)));
            }
            Happening::DuplicateIdentity(id) => {
                self.coverage.add("event", format!("duplicate identity, seen by node {node}"), 1);
                self.note(|| format!("node {node} sees identity {id:x} twice"));
                if self.plan.cloned().is_none() {
                    self.oracle.violation(
                        "I8",
                        self.now_ns,
                        format!("node {node} sees a clone where none is"),
                    );
                }
            }
            Happening::Link { peer, link, from, to } => self.on_link_change(node, (peer, link), from, to),
            Happening::Received { .. } | Happening::Failed { .. } | Happening::Returned { .. } => {
                unreachable!("these belong to a port")
            }
            Happening::Taken | Happening::Unbound(_) => unreachable!("these belong to a port"),
        }
    }

    fn key(&self, node: usize, port: u32) -> PortKey {
        PortKey { node, life: self.nodes[node].life, port }
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if self.plan.trace {
            println!("{:>12} ns  {}", self.now_ns, text());
        }
    }
}

#[cfg(test)]
mod tests;
