//! Between two stations: cuts, size limits, loss, corruption, copies, delay, and a switch port at the end.

use super::conditions::{OVERHEAD_BYTES, wire_bytes};
use super::{Conditions, DropReason, Event, Network, Station, Unit, peek};
use crate::prng::Prng;
use crate::queue::{MS, S};

impl Network {
    /// A train has left its sender.
    pub(super) fn on_medium(&mut self, unit: Unit) {
        let (from_node, rail) = self.place(unit.from);
        match unit.to {
            Some(to) => self.cross(unit, to),
            None => {
                for node in (0..self.nodes).filter(|node| *node != from_node) {
                    let to = self.station(node, rail);
                    self.cross(unit.clone(), to);
                }
            }
        }
    }

    fn cross(&mut self, unit: Unit, to: Station) {
        let rail = self.rails[self.place(unit.from).1];
        let index = self.direction_index(unit.from, to);
        if self.directions[index].cut || self.place(unit.from).1 != self.place(to).1 {
            return self.record.drops(DropReason::Cut, unit.count() as u64);
        }
        for unit in self.survivors(unit, &rail, index) {
            if self.prng.chance_ppm(rail.duplicate_ppm) {
                self.record.duplicated += 1;
                self.deliver(unit.clone(), to, &rail, index);
            }
            if self.replay.chance_ppm(rail.replay_ppm) {
                self.record.replayed += 1;
                let at_ns = self.now_ns + self.replay.log_uniform(MS, S);
                self.events.schedule(at_ns, Event::Arrival(to, unit.clone()));
            }
            self.deliver(unit, to, &rail, index);
        }
    }

    /// What is left of a train after size limits, loss and corruption.
    fn survivors(&mut self, unit: Unit, rail: &Conditions, index: usize) -> Vec<Unit> {
        let full_bytes = rail.mtu_bytes.min(rail.path_mtu_bytes);
        let (record, prng, state) = (&mut self.record, &mut self.prng, &mut self.directions[index].loss);
        if rail.loss_by_train {
            let first = unit.datagrams().next().unwrap_or(&[]);
            if state.loses(rail.loss, first, full_bytes, prng) {
                record.drops(DropReason::Loss, unit.count() as u64);
                return Vec::new();
            }
        }
        let mut units = unit.without(|_, datagram| {
            if datagram.len() > rail.path_mtu_bytes {
                record.drops(DropReason::PathMtu, 1);
                return true;
            }
            let lost = !rail.loss_by_train && state.loses(rail.loss, datagram, full_bytes, prng);
            if lost {
                record.drops(DropReason::Loss, 1);
                return true;
            }
            let caught = rail.corrupt_ppm > rail.checksum_miss_ppm_of_all()
                && prng.chance_ppm(rail.corrupt_ppm - rail.checksum_miss_ppm_of_all());
            if caught {
                record.drops(DropReason::Checksum, 1);
            }
            caught
        });
        let slip_ppm = rail.checksum_miss_ppm_of_all();
        if slip_ppm > 0 {
            for unit in &mut units {
                let segment = unit.segment;
                for datagram in unit.bytes.chunks_mut(segment) {
                    if prng.chance_ppm(slip_ppm) {
                        flip_bits(datagram, prng);
                        record.corrupted += 1;
                    }
                }
            }
        }
        units
    }

    fn deliver(&mut self, unit: Unit, to: Station, rail: &Conditions, index: usize) {
        let mut at_ns = self.now_ns + rail.propagation_ns + self.prng.below(rail.jitter_ns + 1);
        if let Some(port) = rail.port {
            let wire = wire_bytes(unit.bytes.len(), unit.segment);
            let busy_until_ns = &mut self.ports[to].port_busy_until_ns;
            let backlog =
                u128::from(busy_until_ns.saturating_sub(at_ns)) * u128::from(port.rate) / u128::from(S);
            if backlog as u64 + wire > port.limit.max(OVERHEAD_BYTES as u64 + 65_536) {
                return self.record.drops(DropReason::SwitchPort, unit.count() as u64);
            }
            at_ns = at_ns.max(*busy_until_ns) + wire * S / port.rate.max(1);
            *busy_until_ns = at_ns;
        }
        let last_ns = &mut self.directions[index].last_arrival_ns;
        if !rail.reorder {
            at_ns = at_ns.max(*last_ns);
        }
        *last_ns = at_ns.max(*last_ns);
        self.events.schedule(at_ns, Event::Arrival(to, unit));
    }
}

impl Conditions {
    /// Corrupted datagrams that slip through the UDP checksum, per million of all.
    fn checksum_miss_ppm_of_all(&self) -> u32 {
        (u64::from(self.corrupt_ppm) * u64::from(self.checksum_miss_ppm) / 1_000_000) as u32
    }
}

/// Flips one to four bits where the protocol's own checks must notice: anywhere if they cover the whole packet,
/// else in the header (the payload trusts the UDP checksum then).
pub fn flip_bits(datagram: &mut [u8], prng: &mut Prng) {
    let covered =
        if peek::fully_checked(datagram) { datagram.len() } else { datagram.len().min(peek::HEADER_BYTES) };
    if covered == 0 {
        return;
    }
    let mut flipped = 0u128;
    for _ in 0..prng.between(1, 4) {
        let bit = prng.below(covered as u64 * 8);
        // Never the same bit twice: that would repair it.
        let mark = 1u128 << (bit % 128);
        if flipped & mark == 0 {
            flipped |= mark;
            datagram[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}
