//! A run as data: machines, rails, faults, workload. Scenarios write it down, the swarm draws it from a seed.

use crate::contest::Contest;
use crate::fault::{Fault, FaultKind};
use crate::host::HostOptions;
use crate::network::Conditions;
use crate::queue::{MS, S, TimeNs};
use crate::workload::WorkloadOptions;
use polyrail_proto::config::Policy;

/// After a cut has ended, so long may a link still be on probation.
const READMISSION_NS: TimeNs = 300 * MS;
/// From this many failures on, a link may be kept out for long.
const DAMPING_FAILURES: usize = 3;

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all that is drawn during the run.
    pub seed: u64,
    /// Nodes that take part; a spare seat is added when a fault wants a clone.
    pub nodes: usize,
    /// One entry per rail.
    pub rails: Vec<Conditions>,
    /// Whether rails are direct cables between two nodes, so that both ends lose the carrier together.
    pub cables: bool,
    /// One entry per node.
    pub hosts: Vec<HostOptions>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What applications do.
    pub workload: WorkloadOptions,
    /// Silence after which a node is declared lost.
    pub tolerance_ns: TimeNs,
    /// How nodes share messages among links.
    pub policy: Policy,
    /// Whether packets carry a check over their payload.
    pub full_check: bool,
    /// Receive memory of a port, bytes.
    pub rx_arena_bytes: u64,
    /// Sending memory of a port, bytes; a message may have a quarter of it.
    pub tx_arena_bytes: u64,
    /// When applications begin to send.
    pub start_ns: TimeNs,
    /// When all faults are over.
    pub heal_ns: TimeNs,
    /// How long after that everything must be settled.
    pub drain_ns: TimeNs,
    /// Flows that compete, instead of a workload.
    pub contest: Option<Contest>,
    /// Prints what happens.
    pub trace: bool,
}

impl Plan {
    /// Healthy nodes on clean rails with a small workload.
    pub fn new(seed: u64, nodes: usize, rails: usize) -> Plan {
        Plan {
            seed,
            nodes,
            rails: vec![Conditions::default(); rails],
            cables: false,
            hosts: vec![HostOptions::default(); nodes],
            faults: Vec::new(),
            workload: WorkloadOptions::default(),
            tolerance_ns: 500 * MS,
            policy: Policy::Adaptive,
            full_check: false,
            rx_arena_bytes: 4 << 20,
            tx_arena_bytes: 4 << 20,
            start_ns: 10 * MS,
            heal_ns: S / 2,
            drain_ns: 40 * S,
            contest: None,
            trace: false,
        }
    }

    /// The node whose identity a clone takes, if there is one.
    pub fn cloned(&self) -> Option<usize> {
        self.faults.iter().find(|fault| fault.kind == FaultKind::Clone).map(|fault| fault.node)
    }

    /// Seats on every rail: the nodes and the clone.
    pub fn seats(&self) -> usize {
        self.nodes + usize::from(self.cloned().is_some())
    }

    /// From when on nodes `a` and `b` may hold each other for lost: some time into a span in which no rail could be
    /// relied upon. `None`: never.
    pub fn excused_from_ns(&self, a: usize, b: usize) -> Option<TimeNs> {
        let silent: Vec<Vec<(TimeNs, TimeNs)>> =
            (0..self.rails.len()).map(|r| self.silences(r, a, b)).collect();
        let patience_ns = self.tolerance_ns / 2;
        // A span of common silence begins where some rail's silence begins.
        let starts = silent.iter().flatten().map(|span| span.0);
        starts
            .filter(|start_ns| {
                let start_ns = *start_ns;
                let ends = silent.iter().map(|spans| {
                    let covering = spans.iter().filter(|span| span.0 <= start_ns && start_ns < span.1);
                    covering.map(|span| span.1).max().unwrap_or(0)
                });
                let end_ns = ends.min().unwrap_or(0);
                end_ns > start_ns && end_ns - start_ns >= patience_ns
            })
            .min()
    }

    /// Spans in which `rail` can't be relied upon between two nodes, overlaps merged.
    fn silences(&self, rail: usize, a: usize, b: usize) -> Vec<(TimeNs, TimeNs)> {
        let mut spans: Vec<(TimeNs, TimeNs)> = self
            .faults
            .iter()
            .filter(|fault| fault.silences(rail, a, b) || self.cables && fault.silences(rail, b, a))
            .map(|fault| (fault.from_ns, fault.until_ns.saturating_add(READMISSION_NS)))
            .collect();
        spans.sort_unstable();
        if let Some(damped) = spans.get_mut(DAMPING_FAILURES - 1) {
            damped.1 = TimeNs::MAX;
        }
        let mut merged: Vec<(TimeNs, TimeNs)> = Vec::new();
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
                _ => merged.push(span),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rail: usize, from_ms: u64, until_ms: u64) -> Fault {
        Fault::new(FaultKind::SilentCut, rail, 0, from_ms * MS, until_ms * MS).towards(1)
    }

    #[test]
    fn only_silence_on_every_rail_excuses() {
        let mut plan = Plan::new(1, 3, 2);
        assert_eq!(plan.excused_from_ns(0, 1), None);
        plan.faults = vec![cut(0, 100, 900)];
        assert_eq!(plan.excused_from_ns(0, 1), None);
        plan.faults.push(cut(1, 400, 800));
        assert_eq!(plan.excused_from_ns(0, 1), Some(400 * MS));
        assert_eq!(plan.excused_from_ns(1, 2), None);
        plan.faults = vec![cut(0, 100, 300), cut(1, 590, 800)];
        assert_eq!(plan.excused_from_ns(0, 1), None, "too short an overlap");
    }

    #[test]
    fn a_restart_excuses_every_pair_of_its_node() {
        let mut plan = Plan::new(1, 3, 4);
        plan.faults = vec![Fault::new(FaultKind::Restart, 0, 2, 50 * MS, 60 * MS)];
        assert_eq!(plan.excused_from_ns(2, 0), Some(50 * MS));
        assert_eq!(plan.excused_from_ns(1, 0), None);
    }
}
