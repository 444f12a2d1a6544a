//! Faults begin and end.

use super::{Event, MS, World};
use crate::bearer::lock;
use crate::fault::{Fault, FaultKind, conditions};
use crate::network::peek;
use crate::queue::TimeNs;

/// A node that said goodbye goes on for so long, so that the word gets out.
pub(super) const LEAVE_NS: TimeNs = MS / 2;
/// A node that knows of a lost carrier may need one turn to move its traffic.
const FAILOVER_LOCAL_NS: TimeNs = 2 * MS;

impl World {
    pub(super) fn on_fault_starts(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        self.active.push(index);
        self.coverage.add("fault", fault.kind.name(), 1);
        self.note(|| format!("fault {index} begins: {fault:?}"));
        match fault.kind {
            FaultKind::Pause => self.nodes[fault.node].host.pause(fault.until_ns),
            FaultKind::Stalls(stalls) => self.nodes[fault.node].host.set_stalls(self.now_ns, Some(stalls)),
            FaultKind::Restart | FaultKind::Crash => self.end_node(fault.node),
            FaultKind::Leave => self.leave(fault.node),
            FaultKind::Clone => self.start_node(self.plan.nodes),
            FaultKind::SlowConsumer => self.nodes[fault.node].app.asleep(fault.until_ns),
            FaultKind::Garbage => self.events.schedule(self.now_ns, Event::Garbage(index)),
            _ => self.apply(&fault),
        }
    }

    pub(super) fn on_fault_ends(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        self.active.retain(|active| *active != index);
        self.note(|| format!("fault {index} ends: {:?}", fault.kind));
        match fault.kind {
            FaultKind::Stalls(_) => self.nodes[fault.node].host.set_stalls(self.now_ns, None),
            FaultKind::Restart | FaultKind::Leave => self.start_node(fault.node),
            FaultKind::Clone => self.end_node(self.plan.nodes),
            FaultKind::SlowConsumer => self.wake(fault.node, 0),
            FaultKind::Pause | FaultKind::Crash | FaultKind::Garbage => {}
            _ => self.apply(&fault),
        }
    }

    /// A node says goodbye; what its applications had under way may end in any way.
    fn leave(&mut self, node: usize) {
        for port in self.nodes[node].app.take_ports() {
            self.oracle.on_port_gone(port);
        }
        self.oracle.connections.on_life_over(node, self.nodes[node].life);
        let local_ns = self.nodes[node].host.local_ns(self.now_ns);
        if let Some(subject) = self.nodes[node].subject.as_mut() {
            subject.leave(local_ns);
        }
        self.wake(node, 0);
        self.events.schedule(self.now_ns + LEAVE_NS, Event::Gone(node));
    }

    /// Derives conditions, cuts and carriers anew from the faults that are active.
    fn apply(&mut self, changed: &Fault) {
        let active: Vec<Fault> = self.active.iter().map(|index| self.plan.faults[*index]).collect();
        let mut network = lock(&self.network);
        for rail in 0..self.plan.rails.len() {
            network.set_conditions(rail, conditions(self.plan.rails[rail], rail, active.iter()));
            for from in 0..self.plan.nodes {
                for to in 0..self.plan.nodes {
                    let cut = active.iter().any(|fault| fault.stops(rail, from, to));
                    network.set_cut(rail, from, to, cut);
                }
            }
            for node in 0..self.plan.nodes {
                let station = network.station(node, rail);
                let up = !active.iter().any(|fault| fault.pulls(rail, node));
                if network.carrier(station) == up {
                    continue;
                }
                network.set_carrier(station, up);
                let notice_ns = match changed.kind {
                    FaultKind::CarrierLoss { notice_ns } => notice_ns,
                    _ => MS,
                };
                self.events.schedule(self.now_ns + notice_ns, Event::Carrier { node, rail, up });
            }
        }
    }

    /// A machine tells its node that a cable was pulled or plugged.
    pub(super) fn on_carrier(&mut self, node: usize, rail: usize, up: bool) {
        let network = lock(&self.network);
        let station = network.station(node, rail);
        if network.carrier(station) != up {
            return; // Outdated: it has changed again, and that notice is on its way.
        }
        drop(network);
        let state = &mut self.nodes[node];
        let local_ns = state.host.local_ns(self.now_ns);
        let Some(subject) = state.subject.as_mut() else { return };
        subject.carrier(local_ns, rail, up);
        self.carrier_known_lost_ns[station] = (!up).then_some(self.now_ns);
        self.note(|| format!("node {node} learns that carrier of rail {rail} is {up}"));
        self.wake(node, 0);
    }

    /// I8: nothing is handed to a link whose carrier is known to be lost.
    pub(super) fn check_failover(&mut self) {
        let undisturbed =
            !self.plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Pause | FaultKind::Stalls(_)));
        let tries: Vec<(usize, TimeNs)> = lock(&self.network)
            .record
            .tried_without_carrier_ns
            .iter()
            .map(|(s, at_ns)| (*s, *at_ns))
            .collect();
        for (station, at_ns) in tries {
            let Some(known_ns) = self.carrier_known_lost_ns[station] else { continue };
            if undisturbed && at_ns > known_ns + FAILOVER_LOCAL_NS {
                let (node, rail) = lock(&self.network).place(station);
                let what =
                    format!("node {node} sends messages by rail {rail}, whose carrier it knew to be lost");
                self.oracle.violation("I8", at_ns, what);
                self.carrier_known_lost_ns[station] = None;
            }
        }
    }

    /// A node that starts anew looks at its carriers.
    pub(super) fn tell_carriers(&mut self, node: usize) {
        for rail in 0..self.plan.rails.len() {
            let network = lock(&self.network);
            let station = network.station(node, rail);
            let up = network.carrier(station);
            drop(network);
            self.carrier_known_lost_ns[station] = None;
            if !up {
                self.events.schedule(self.now_ns, Event::Carrier { node, rail, up });
            }
        }
    }

    /// An adversary damages copies of what passed, or makes bytes up.
    pub(super) fn on_garbage(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        if self.now_ns >= fault.until_ns {
            return;
        }
        let mut network = lock(&self.network);
        let (from, to) = (network.station(fault.peer, fault.rail), network.station(fault.node, fault.rail));
        let prng = &mut self.garbage;
        let copy = network.record.sample(from).filter(|_| prng.chance_ppm(800_000)).map(<[u8]>::to_vec);
        let bytes = match copy {
            Some(mut bytes) if prng.chance_ppm(500_000) => {
                bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
                bytes
            }
            Some(mut bytes) => {
                crate::network::flip_bits(&mut bytes, prng);
                bytes
            }
            None => {
                let mut bytes: Vec<u8> = (0..prng.below(200)).map(|_| prng.next_u64() as u8).collect();
                if let Some(first) = bytes.first_mut() {
                    *first = 0x10 | *first & 7;
                }
                bytes
            }
        };
        debug_assert!(bytes.len() < peek::HEADER_BYTES + 65_536);
        network.inject(from, to, bytes);
        drop(network);
        let gap_ns = self.garbage.exponential(MS) + 1;
        self.events.schedule(self.now_ns + gap_ns, Event::Garbage(index));
    }
}
