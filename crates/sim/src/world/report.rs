//! The end of a run: continuous checks, the verdict, and what it covered.

use super::{CHECK_EVERY_NS, Event, World};
use crate::bearer::lock;
use crate::check::Violation;
use crate::check::links::TRANSITIONS;
use crate::coverage::Coverage;
use crate::network::record::Reused;
use crate::queue::TimeNs;
use crate::subject::Memory;

/// Between two checks so many turns without work are no storm (a storm on the slowest machine has 1,000).
const IDLE_TURNS_MAX: u64 = 700;

/// What connections may go through.
const CONNECTION_ROWS: [&str; 11] = [
    "asked for",
    "accepted",
    "data with the question",
    "half closed",
    "given up",
    "the other side gave it up",
    "complete",
    "refused: Backlog",
    "refused: NobodyListens",
    "refused: NotAllowed",
    "over by a node that was lost",
];

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Hash of the whole trace: equal when the seed is run again.
    pub hash: u64,
    /// What must not have happened, in order.
    pub violations: Vec<Violation>,
    /// Sends accepted, delivered, failed.
    pub totals: (u64, u64, u64),
    /// Virtual time at the end.
    pub virtual_ns: TimeNs,
    /// What was reached.
    pub coverage: Coverage,
}

impl World {
    /// Looks at what must hold at any time, and whether the run is over.
    pub(super) fn on_check(&mut self) {
        self.check_counters();
        self.check_turns();
        self.check_failover();
        self.check_damped();
        self.check_directories();
        let workload = self.plan.workload;
        let sent_all = self.oracle.next_id() >= workload.messages || self.now_ns >= workload.until_ns;
        let over = sent_all
            && self.now_ns >= self.plan.heal_ns
            && self.oracle.settled()
            && self.lone_left == 0
            && self.connections_settled()
            && self.cast_missing().is_none()
            && self.memory_kept().is_none();
        // A verdict that was under way when the faults ended may still fall: then nodes have to meet again.
        if !over || !(self.names_settled() || self.names_are_late()) {
            self.finished_at_ns = None;
        } else if self.finished_at_ns.is_none() {
            self.finished_at_ns = Some(self.now_ns);
        }
        self.events.schedule(self.now_ns + CHECK_EVERY_NS, Event::Check);
    }

    /// I7: a node with nothing to do is left alone. A deadline that has come, yet stays, would wake it for ever.
    fn check_turns(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let [idle, busy] = std::mem::take(&mut node.turns);
            self.turns = [self.turns[0] + idle, self.turns[1] + busy];
            if idle > 2 * busy + IDLE_TURNS_MAX {
                let what = format!("node {index} had {idle} turns without and {busy} with work in 5 ms");
                self.oracle.violation("I7", self.now_ns, what);
            }
        }
    }

    /// Memory that a node keeps although every message has come to its end.
    fn memory_kept(&mut self) -> Option<String> {
        self.nodes.iter_mut().enumerate().find_map(|(index, node)| {
            let memory = node.subject.as_mut()?.memory();
            let kept = memory != Memory::default();
            kept.then(|| format!("node {index} keeps {memory:?} of messages that are all over"))
        })
    }

    fn check_counters(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(subject) = node.subject.as_ref() else { continue };
            for (name, value, bound) in subject.counters().values {
                if bound.is_some_and(|bound| value > bound) {
                    let what = format!("node {index}: {name} is {value}, its bound {bound:?}");
                    self.oracle.violation("I5", self.now_ns, what);
                }
            }
        }
    }

    /// Rows of what may occur, so that what never does is seen.
    fn add_rows(&mut self) {
        for name in CONNECTION_ROWS {
            self.coverage.add("connection", name, 0);
        }
        for name in ["sent", "copies received"] {
            self.coverage.add("multicast", name, 0);
        }
        for (from, to) in TRANSITIONS {
            self.coverage.add("link", format!("{from} -> {to}"), 0);
        }
    }

    /// I9 and I10: what the headers said.
    fn check_streams(&mut self) {
        let network = lock(&self.network);
        let streams = &network.record.streams;
        let (number, link) = (streams.number, streams.link);
        let rail = |reused: &Reused| network.place(reused.from);
        let number = number.map(|reused| (reused, rail(&reused)));
        let link = link.map(|reused| (reused, rail(&reused)));
        drop(network);
        if let Some((Reused { at_ns, peek, .. }, (node, rail))) = number {
            let what = format!(
                "node {node} used number {} of link {} (session {}) again, on rail {rail}",
                peek.number, peek.link, peek.session
            );
            self.oracle.violation("I9", at_ns, what);
        }
        if let Some((Reused { at_ns, peek, .. }, (node, rail))) = link {
            let what = format!(
                "node {node} calls a link of rail {rail} {} (session {}), as another one was called before",
                peek.link, peek.session
            );
            self.oracle.violation("I10", at_ns, what);
        }
    }

    pub(super) fn conclude(mut self) -> Outcome {
        self.oracle.finish(self.now_ns);
        self.check_names_at_the_end();
        self.check_connections_at_the_end();
        self.check_contest();
        if let Some(what) = self.cast_missing() {
            self.oracle.violation("I12", self.now_ns, what);
        }
        if let Some(what) = self.memory_kept() {
            self.oracle.violation("I5", self.now_ns, what);
        }
        if self.plan.trace {
            for (index, node) in self.nodes.iter().enumerate() {
                println!(
                    "state of node {index}: {}",
                    node.subject.as_ref().map_or(String::new(), |s| s.describe())
                );
            }
        }
        self.check_streams();
        let network = lock(&self.network);
        self.coverage.add_record(&network.record);
        self.coverage.add("turn", "without work", self.turns[0]);
        self.coverage.add("turn", "with work", self.turns[1]);
        // Refused sends are left out: an engine refuses only what comes from a port that it does not have.
        self.coverage.add("send", "accepted", self.sends[0]);
        self.coverage.add("send", "blocked", self.sends[1]);
        let mut hash = network.record.hash();
        drop(network);
        self.add_rows();
        let totals = self.oracle.totals();
        for (index, node) in self.nodes.iter().enumerate().take(self.plan.nodes) {
            let Some(subject) = node.subject.as_ref() else { continue };
            let counters = subject.counters();
            self.coverage.add("engine", "refused for want of room", counters.refused);
            // Nothing reached, so no rows: sizes, and breaches of the protocol, which no node of a run commits.
            if counters.violations > 0 {
                self.coverage.add("engine", "breaches of the protocol", counters.violations);
            }
            for (name, value, bound) in counters.values {
                if bound.is_none() {
                    self.coverage.add("engine", name, value);
                }
                hash = crate::prng::mix(hash ^ value ^ (index as u64) << 56);
            }
        }
        let (casts, copies) = self.oracle.casts.totals();
        for value in [totals.0, totals.1, totals.2, casts, copies, self.now_ns] {
            hash = crate::prng::mix(hash ^ value);
        }
        Outcome {
            seed: self.plan.seed,
            hash,
            violations: self.oracle.violations().to_vec(),
            totals,
            virtual_ns: self.now_ns,
            coverage: self.coverage,
        }
    }
}
