//! The applications of a node: what they send, what they do with what arrives.

use super::connections::Connections;
use super::{Event, World};
use crate::check::connections::BACKLOG;
use crate::check::returns::Back;
use crate::check::{PortKey, TINY_CLASS, Target, casts};
use crate::content;
use crate::plan::Plan;
use crate::prng::Prng;
use crate::queue::{MS, TimeNs, US};
use crate::subject::{FailReason, Happening, SendAnswer, To, Wish};
use crate::workload::Action;
use polyrail_proto::address::{ServiceAddress, ServiceRange};
use polyrail_proto::id::{NodeId, PortAddress, PortId};

/// Services of a run are instances 0..8 of this type.
pub(crate) const SERVICE_KIND: u32 = 1_000;
const INSTANCES: u64 = 8;
/// Of this type all bindings want to be the only ones; nothing is sent to them.
pub(crate) const EXCLUSIVE_KIND: u32 = 1_001;
/// Share of bindings that only the own node may know of.
const NODE_SCOPE_PPM: u32 = 150_000;
/// Most things that an application takes from a port at one time.
const POLL_MOST: usize = 64;

/// A port as its application sees it.
#[derive(Debug)]
pub(super) struct AppPort {
    pub(super) key: PortKey,
    /// Ranges, and whether the cluster knows of them.
    pub(super) bound: Vec<(ServiceRange, bool)>,
    /// Ranges of which it asked to be the only port, and was not told that it is not any more.
    wished: Vec<ServiceRange>,
    asleep_until_ns: TimeNs,
    /// It has begun to take connections.
    pub(super) listening: bool,
    /// It looks at no request before.
    pub(super) accepts_from_ns: TimeNs,
}

/// The applications of one node.
#[derive(Debug)]
pub(super) struct App {
    pub(super) ports: Vec<AppPort>,
    asleep_until_ns: TimeNs,
    pub(super) connections: Connections,
    actions: Prng,
    scopes: Prng,
    exclusives: Prng,
    wishes: Prng,
    pub(super) sizes: Prng,
    content: Vec<u8>,
}

impl App {
    pub(super) fn new(plan: &Plan, node: usize) -> App {
        App {
            ports: Vec::new(),
            asleep_until_ns: 0,
            connections: Connections::default(),
            actions: Prng::for_component(plan.seed, "actions", node as u64),
            sizes: Prng::for_component(plan.seed, "sizes", node as u64),
            scopes: Prng::for_component(plan.seed, "scopes", node as u64),
            exclusives: Prng::for_component(plan.seed, "exclusives", node as u64),
            wishes: Prng::for_component(plan.seed, "wishes", node as u64),
            content: Vec::new(),
        }
    }

    /// The node died: its ports, for the oracle.
    pub(super) fn take_ports(&mut self) -> Vec<PortKey> {
        self.connections.clear();
        std::mem::take(&mut self.ports).into_iter().map(|port| port.key).collect()
    }

    /// What its actions are drawn from.
    pub(super) fn draws(&mut self) -> &mut Prng {
        &mut self.actions
    }

    /// Nothing is received until then.
    pub(super) fn asleep(&mut self, until_ns: TimeNs) {
        self.asleep_until_ns = self.asleep_until_ns.max(until_ns);
    }
}

/// Some of the services of a run.
pub(super) fn draw_range(prng: &mut Prng) -> ServiceRange {
    let lower = prng.below(INSTANCES) as u32;
    let upper = prng.between(u64::from(lower), INSTANCES - 1) as u32;
    ServiceRange::new(SERVICE_KIND, lower, upper)
}

impl World {
    pub(super) fn open_ports(&mut self, node: usize) {
        self.tell_carriers(node);
        if node < self.plan.nodes {
            for _ in 0..self.plan.workload.ports_per_node {
                self.open_port(node);
            }
        }
    }

    fn open_port(&mut self, node: usize) {
        let local_ns = self.nodes[node].host.local_ns(self.now_ns);
        let Some(port) = self.nodes[node].subject.as_mut().and_then(|subject| subject.open_port(local_ns))
        else {
            return;
        };
        let key = self.key(node, port);
        self.nodes[node].app.ports.push(AppPort {
            key,
            bound: Vec::new(),
            wished: Vec::new(),
            asleep_until_ns: 0,
            listening: false,
            accepts_from_ns: 0,
        });
        if self.plan.workload.connect_ppm > 0
            && let Some(connector) = self.connector(node, key)
        {
            connector.listen(BACKLOG);
        }
        self.note(|| format!("{key} opens"));
        if self.plan.workload.service_ppm > 0 {
            let index = self.nodes[node].app.ports.len() - 1;
            self.bind(node, index);
        }
    }

    /// The next action of a node's applications.
    pub(super) fn on_act(&mut self, node: usize) {
        let workload = self.plan.workload;
        let done = self.oracle.next_id() >= workload.messages || self.now_ns >= workload.until_ns;
        if done {
            return;
        }
        let app = &mut self.nodes[node].app;
        let gap_ns = app.actions.exponential(workload.gap_ns) + 1;
        self.events.schedule(self.now_ns + gap_ns, Event::Act(node));
        if self.nodes[node].subject.is_none() || self.nodes[node].app.ports.is_empty() {
            return;
        }
        // A machine that is held up runs no application either.
        if self.nodes[node].host.runs_at(self.now_ns) > self.now_ns + MS {
            return;
        }
        match workload.action(&mut self.nodes[node].app.actions) {
            Action::Send { count, service, local } => self.send_burst(node, count, service, local),
            Action::Multicast(count) => self.cast_burst(node, count),
            Action::Connect { count, service, local } => self.connect(node, count, service, local),
            Action::Churn => self.churn(node),
            Action::Rebind => self.rebind(node),
            Action::Sleep(for_ns) => {
                let until_ns = self.now_ns + for_ns;
                let port = self.draw_port(node);
                self.nodes[node].app.ports[port].asleep_until_ns = until_ns;
            }
        }
        self.wake(node, 0);
    }

    pub(super) fn draw_port(&mut self, node: usize) -> usize {
        let app = &mut self.nodes[node].app;
        app.actions.below(app.ports.len() as u64) as usize
    }

    fn send_burst(&mut self, node: usize, count: u64, service: bool, local: bool) {
        let from = self.draw_port(node);
        let Some((to, target)) = self.draw_target(node, service, local) else { return };
        for _ in 0..count {
            if self.oracle.next_id() >= self.plan.workload.messages || !self.send_one(node, from, to, target)
            {
                break;
            }
        }
    }

    pub(super) fn draw_target(&mut self, node: usize, service: bool, local: bool) -> Option<(To, Target)> {
        let prng = &mut self.nodes[node].app.actions;
        if service {
            let instance = prng.below(INSTANCES) as u32;
            let address = ServiceAddress::new(SERVICE_KIND, instance);
            return Some((To::Service(address), Target::Service(SERVICE_KIND, instance)));
        }
        let draw = prng.next_u64() as usize;
        let nodes = self.plan.nodes;
        let peer = if local { node } else { (node + 1 + draw % (nodes - 1)) % nodes };
        let ports = &self.nodes[peer].app.ports;
        let key = ports.get(draw / nodes % ports.len().max(1))?.key;
        let address =
            PortAddress { node: NodeId(super::node_id(self.plan.seed, peer)), port: PortId(key.port) };
        Some((To::Port(address), Target::Port(key)))
    }

    /// Sends one message; false if the node did not take it.
    fn send_one(&mut self, node: usize, from: usize, to: To, target: Target) -> bool {
        let id = self.oracle.next_id();
        let state = &mut self.nodes[node];
        let app = &mut state.app;
        let bytes = self.plan.workload.bytes(&mut app.sizes);
        let mut class = self.plan.workload.class(&mut app.sizes);
        // A message without number is known by its place in its flow only; so it must be clear which flow that is.
        let tiny = bytes < 8;
        let tagged =
            app.sizes.chance_ppm(self.plan.workload.tagged_ppm) || tiny && matches!(to, To::Service(_));
        let tag = tagged.then_some(content::tag_of(id));
        if tiny && !tagged {
            class = TINY_CLASS;
        }
        content::fill(id, bytes, &mut app.content);
        let key = app.ports[from].key;
        let local_ns = state.host.local_ns(self.now_ns);
        let Some(subject) = state.subject.as_mut() else { return false };
        let (returns, lifetime_ns) = self.plan.workload.wish(&mut app.wishes);
        // What can't be told from others can't be missed.
        let returns = returns && (tagged || !tiny);
        let expires_at_ns = lifetime_ns.map(|lifetime_ns| local_ns + lifetime_ns);
        let wish = Wish { class, tag, returns, expires_at_ns };
        let answer = subject.send(local_ns, key.port, to, wish, id, &app.content);
        match answer {
            SendAnswer::Accepted => {
                self.sends[0] += 1;
                let anonymous = tiny && !tagged;
                self.oracle.returns.on_asked(id, key, to, wish, bytes);
                self.oracle.on_sent(self.now_ns, key, target, class, bytes, anonymous);
                self.note(|| {
                    format!("{key} sends message {id} ({bytes} bytes, class {class}) to {target:?}")
                });
            }
            SendAnswer::Blocked => self.sends[1] += 1,
            SendAnswer::Refused => self.sends[2] += 1,
        }
        answer == SendAnswer::Accepted
    }

    fn churn(&mut self, node: usize) {
        let index = self.draw_port(node);
        let port = self.nodes[node].app.ports.swap_remove(index);
        self.names.on_change(self.now_ns);
        for (range, _) in &port.bound {
            (range.lower..=range.upper).for_each(|instance| self.oracle.on_unbound((range.kind, instance)));
        }
        self.oracle.on_port_gone(port.key);
        self.close_connections(node, port.key);
        let local_ns = self.nodes[node].host.local_ns(self.now_ns);
        if let Some(subject) = self.nodes[node].subject.as_mut() {
            subject.close_port(local_ns, port.key.port);
        }
        self.note(|| format!("{} closes", port.key));
        self.coverage.add("application", "port closed", 1);
        self.open_port(node);
    }

    fn rebind(&mut self, node: usize) {
        let index = self.draw_port(node);
        self.compete(node, index);
        let local_ns = self.nodes[node].host.local_ns(self.now_ns);
        let Some((range, cluster)) = self.nodes[node].app.ports[index].bound.pop() else {
            return self.bind(node, index);
        };
        self.names.on_change(self.now_ns);
        let key = self.nodes[node].app.ports[index].key;
        let port = key.port;
        self.oracle.casts.on_unbound(key, range);
        (range.lower..=range.upper).for_each(|instance| self.oracle.on_unbound((range.kind, instance)));
        if let Some(subject) = self.nodes[node].subject.as_mut() {
            subject.unbind(local_ns, port, range, cluster);
        }
        self.note(|| format!("node {node} port {port} gives {range:?} up, cluster {cluster}"));
        self.coverage.add("application", "unbind", 1);
    }

    /// A port wants to be the only one of a few instances that others want too, or no longer does.
    fn compete(&mut self, node: usize, index: usize) {
        let state = &mut self.nodes[node];
        let local_ns = state.host.local_ns(self.now_ns);
        let (port, draws) = (&mut state.app.ports[index], &mut state.app.exclusives);
        let key = port.key;
        let Some(subject) = state.subject.as_mut() else { return };
        if draws.chance_ppm(300_000)
            && let Some(range) = port.wished.pop()
        {
            subject.unbind(local_ns, key.port, range, true);
            return self.names.on_change(self.now_ns);
        }
        let lower = draws.below(INSTANCES) as u32;
        let range = ServiceRange::new(EXCLUSIVE_KIND, lower, lower + draws.below(2) as u32);
        subject.bind_exclusive(local_ns, key.port, range);
        port.wished.push(range);
        self.names.on_bound(key, range, true, self.now_ns);
        self.note(|| format!("{key} wants {range:?} for itself"));
        self.coverage.add("application", "exclusive bind", 1);
    }

    fn bind(&mut self, node: usize, index: usize) {
        let state = &mut self.nodes[node];
        let range = draw_range(&mut state.app.actions);
        let cluster = !state.app.scopes.chance_ppm(NODE_SCOPE_PPM);
        let key = state.app.ports[index].key;
        let local_ns = state.host.local_ns(self.now_ns);
        if let Some(subject) = state.subject.as_mut() {
            subject.bind(local_ns, key.port, range, cluster);
        }
        state.app.ports[index].bound.push((range, cluster));
        self.names.on_bound(key, range, cluster, self.now_ns);
        self.oracle.casts.on_bound(key, range, cluster);
        (range.lower..=range.upper)
            .for_each(|instance| self.oracle.on_bound((SERVICE_KIND, instance), key, cluster));
        self.note(|| format!("{key} binds {range:?}, cluster {cluster}"));
        self.coverage.add("application", "bind", 1);
    }

    /// Applications take what arrived.
    pub(super) fn poll_ports(&mut self, node: usize) {
        if node >= self.plan.nodes {
            return;
        }
        self.take_answers(node);
        let node_until_ns = self.nodes[node].app.asleep_until_ns;
        let mut again_ns: Option<TimeNs> = None;
        for index in 0..self.nodes[node].app.ports.len() {
            let port = &mut self.nodes[node].app.ports[index];
            port.listening = true;
            let until_ns = port.asleep_until_ns.max(node_until_ns);
            if until_ns > self.now_ns {
                again_ns = Some(again_ns.map_or(until_ns, |at_ns| at_ns.min(until_ns)));
                continue;
            }
            let key = port.key;
            if self.plan.workload.connect_ppm > 0 {
                let connections_ns = self.poll_connections(node, index);
                again_ns = [again_ns, connections_ns].into_iter().flatten().min();
            }
            if self.poll_port(node, key) > 0 {
                again_ns = Some(self.now_ns + US);
            }
        }
        if let Some(at_ns) = again_ns {
            self.turn_by(node, at_ns);
        }
    }

    fn poll_port(&mut self, node: usize, key: PortKey) -> usize {
        let mut happenings = std::mem::take(&mut self.happenings);
        let local_ns = self.nodes[node].host.local_ns(self.now_ns);
        if let Some(subject) = self.nodes[node].subject.as_mut() {
            subject.poll(local_ns, key.port, POLL_MOST, &mut happenings);
        }
        let count = happenings.len();
        for happening in happenings.drain(..) {
            self.on_port_happening(key, happening);
        }
        self.happenings = happenings;
        count
    }

    fn on_port_happening(&mut self, key: PortKey, happening: Happening) {
        match happening {
            Happening::Received { from, tag, bytes, .. } => {
                self.note(|| format!("{key} receives {} bytes from {from}", bytes.len()));
                let Some(sender) = self.node_of_id(from.node.0) else {
                    let what = format!("{key} got a message of the unknown node {}", from.node);
                    return self.oracle.violation("I4", self.now_ns, what);
                };
                let number = tag.map(content::id_of_tag).or_else(|| content::claimed_id(&bytes));
                if let Some(index) = number.and_then(casts::index_of) {
                    return self.on_cast_received(index, key, (sender, from.port.0), &bytes);
                }
                self.oracle.shares.on_received(self.now_ns, key, bytes.len());
                self.oracle.on_received(self.now_ns, key, sender, from.port.0, tag, &bytes);
            }
            Happening::Failed { id, reason } if casts::index_of(id).is_some() => {
                self.note(|| format!("{key} is told that {id:x} failed: {reason:?}"));
                self.on_cast_failed(casts::index_of(id).unwrap_or_default(), key, reason);
            }
            Happening::Failed { id, reason } => {
                let local_ns = self.nodes[key.node].host.local_ns(self.now_ns);
                let objection = self.oracle.returns.objection_to_failure(id, reason, local_ns);
                self.on_failed(key, id, reason, objection);
            }
            Happening::Returned { id, reason, to, class, tag, bytes } => {
                self.note(|| format!("message {id} comes back"));
                self.coverage.add("returned", format!("{reason:?}"), 1);
                let local_ns = self.nodes[key.node].host.local_ns(self.now_ns);
                let back = Back { port: key, to, class, tag, bytes: &bytes };
                let objection = self.oracle.returns.objection_to(id, back, reason, local_ns);
                self.on_failed(key, id, reason, objection);
            }
            Happening::Taken => self.coverage.add("application", "exclusive bind refused", 1),
            Happening::Unbound(range) => {
                self.note(|| format!("{key} has lost {range:?}"));
                self.coverage.add("application", "exclusive bind lost", 1);
                self.names.on_change(self.now_ns);
                let ports = &mut self.nodes[key.node].app.ports;
                if let Some(port) = ports.iter_mut().find(|port| port.key == key) {
                    port.wished.retain(|wished| *wished != range);
                }
            }
            _ => unreachable!("the others belong to the node"),
        }
    }

    /// A port was told that a message of it failed, which may be told wrongly.
    fn on_failed(&mut self, key: PortKey, id: u64, reason: FailReason, objection: Option<String>) {
        self.note(|| format!("{key} is told that message {id} failed: {reason:?}"));
        self.coverage.add("failure", format!("{reason:?}"), 1);
        if let Some(what) = objection {
            return self.oracle.violation("I17", self.now_ns, what);
        }
        let excused = match self.oracle.ends(id) {
            Some((from, Target::Port(to))) => {
                // A session that never came up fails what was handed to it.
                let met = from.node == to.node || self.met.contains(&(from.node, to.node));
                let early = !met && reason == FailReason::NotSent;
                early || self.excused(from.node, to.node)
            }
            Some((from, Target::Service(..))) => {
                (0..self.plan.nodes).any(|peer| peer != from.node && self.excused(from.node, peer))
            }
            None => false,
        };
        self.oracle.on_failed(self.now_ns, id, reason, excused);
    }
}
