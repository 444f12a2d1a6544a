//! The applications of a contest: each keeps its flow supplied, one sends urgent messages beside them.

use super::{Event, World};
use crate::check::{PortKey, Target};
use crate::content;
use crate::contest::{
    Contest, LONE_BYTES_MAX, LONE_GAP_NS, NORMAL, URGENT, URGENT_BYTES, Urgent, lone_max_ns,
};
use crate::subject::{SendAnswer, To, Wish};
use polyrail_proto::config::Policy;
use polyrail_proto::id::{NodeId, PortAddress, PortId};

impl World {
    /// The flows are known from here on, and begin.
    pub(super) fn begin_contest(&mut self) {
        let Some(contest) = self.plan.contest.clone() else { return };
        for index in 0..contest.flows.len() {
            let (from, to) = self.ports_of(&contest, index);
            self.oracle.shares.add_flow(from, to);
        }
        if let Some(urgent) = contest.urgent {
            let to = self.urgent_ports(&contest).1;
            self.oracle.shares.set_urgent(to, urgent.settles_ns());
            self.events.schedule(contest.from_ns, Event::Urgent);
        }
        self.events.schedule(contest.lone_from_ns, Event::Lone);
        for node in 0..self.plan.nodes {
            self.supply(node);
            self.wake(node, 0);
        }
    }

    fn ports_of(&self, contest: &Contest, index: usize) -> (PortKey, PortKey) {
        let ((from, to), places) = (contest.flows[index], contest.places(index));
        (self.nodes[from].app.ports[places.0].key, self.nodes[to].app.ports[places.1].key)
    }

    /// Urgent messages have the last ports of their nodes.
    fn urgent_ports(&self, contest: &Contest) -> (PortKey, PortKey) {
        let (from, to) = contest.flows[0];
        let last = contest.ports_per_node() - 1;
        (self.nodes[from].app.ports[last].key, self.nodes[to].app.ports[last].key)
    }

    /// Sends on until enough of each flow of a node is under way.
    pub(super) fn supply(&mut self, node: usize) {
        let Some(contest) = &self.plan.contest else { return };
        if self.now_ns >= contest.until_ns {
            return;
        }
        let (class, bytes, ahead_bytes) = (contest.class, contest.bytes, contest.ahead_bytes);
        for index in 0..self.oracle.shares.flows().len() {
            let flow = &self.oracle.shares.flows()[index];
            let (from, to) = (flow.from, flow.to);
            if from.node != node {
                continue;
            }
            while self.oracle.shares.ahead_bytes(index) < ahead_bytes
                && self.send_plainly(from, to, class, bytes)
            {
                self.oracle.shares.on_sent(index, bytes);
            }
        }
    }

    /// The next urgent message.
    pub(super) fn on_urgent(&mut self) {
        let Some(contest) = self.plan.contest.clone() else { return };
        let Some(urgent) = contest.urgent.filter(|_| self.now_ns < contest.until_ns) else { return };
        let (from, to) = self.urgent_ports(&contest);
        if self.send_plainly(from, to, URGENT, URGENT_BYTES) {
            self.oracle.shares.on_urgent_sent(self.now_ns);
        }
        self.wake(from.node, 0);
        let gap_ns = self.nodes[from.node].app.draws().exponential(urgent.gap_ns) + 1;
        self.events.schedule(self.now_ns + gap_ns, Event::Urgent);
    }

    /// The next message that goes alone, if everything before it has arrived.
    pub(super) fn on_lone(&mut self) {
        let Some(contest) = self.plan.contest.clone().filter(|_| self.lone_left > 0) else { return };
        self.events.schedule(self.now_ns + LONE_GAP_NS, Event::Lone);
        if !self.oracle.shares.is_quiet() {
            return;
        }
        let (from, to) = self.urgent_ports(&contest);
        let bytes = self.nodes[from.node].app.sizes.log_uniform(URGENT_BYTES as u64, LONE_BYTES_MAX) as usize;
        if self.send_plainly(from, to, NORMAL, bytes) {
            self.lone_left -= 1;
            let max_ns = lone_max_ns(&self.plan, bytes);
            self.oracle.shares.on_lone_sent(self.now_ns, to, bytes, max_ns);
            self.wake(from.node, 0);
        }
    }

    /// Sends one message to a port; false if the node did not take it.
    fn send_plainly(&mut self, from: PortKey, to: PortKey, class: u8, bytes: usize) -> bool {
        let id = self.oracle.next_id();
        let state = &mut self.nodes[from.node];
        let local_ns = state.host.local_ns(self.now_ns);
        let Some(subject) = state.subject.as_mut() else { return false };
        content::fill(id, bytes, &mut self.content);
        let node = NodeId(super::node_id(self.plan.seed, to.node));
        let address = To::Port(PortAddress { node, port: PortId(to.port) });
        let wish = Wish { class, tag: None, returns: false, expires_at_ns: None };
        let answer = subject.send(local_ns, from.port, address, wish, id, &self.content);
        match answer {
            SendAnswer::Accepted => {
                self.sends[0] += 1;
                self.oracle.returns.on_asked(id, from, address, wish, bytes);
                self.oracle.on_sent(self.now_ns, from, Target::Port(to), class, bytes, false);
            }
            SendAnswer::Blocked => self.sends[1] += 1,
            SendAnswer::Refused => self.sends[2] += 1,
        }
        answer == SendAnswer::Accepted
    }

    /// I18, I19 and I21, in the end.
    pub(super) fn check_contest(&mut self) {
        let Some(contest) = &self.plan.contest else { return };
        let (from_ns, until_ns) = (contest.from_ns, contest.until_ns);
        let urgent = contest.urgent;
        self.coverage.add("contest", "flows", contest.flows.len() as u64);
        self.coverage.add("contest", "urgent messages", self.oracle.shares.urgent_count());
        let least = self.oracle.shares.least_permille(from_ns, until_ns);
        let p99_ns = self.oracle.shares.urgent_p99_ns();
        self.note(|| format!("contest: least index {least:?} / 1000, 99 of 100 urgent ones {p99_ns:?} ns"));
        // The other policies are there to be compared with, and promise neither.
        let promised = self.plan.policy == Policy::Adaptive;
        let urgent = urgent.filter(|_| promised);
        if promised && let Some((at_ns, what)) = self.oracle.shares.unfair(from_ns, until_ns) {
            self.oracle.violation("I18", at_ns, what);
        }
        if let Some((at_ns, what)) = self.oracle.shares.late() {
            self.oracle.violation("I21", at_ns, what);
        }
        let slow = |urgent: Urgent| self.oracle.shares.slow(urgent.p99_max_ns, urgent.first_max_ns);
        if let Some(what) = urgent.and_then(slow) {
            self.oracle.violation("I19", from_ns, what);
        }
    }
}
