//! The receive buffers of a station: trains that arrived and wait to be read, charged by the memory they take.

use super::conditions::truesize;
use super::unit::Unit;
use crate::queue::TimeNs;
use std::collections::VecDeque;

/// Most bytes and datagrams that one read gives, as the kernel merges them.
pub(super) const GROUP_BYTES_MAX: usize = 65_535;
pub(super) const GROUP_DATAGRAMS_MAX: usize = 64;

/// A train that arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) at_ns: TimeNs,
    pub(super) unit: Unit,
}

/// One station's data and beacon sockets.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    data: VecDeque<Arrived>,
    beacons: VecDeque<Arrived>,
    memory_bytes: u64,
}

impl Ingress {
    /// Stores a train if the buffer has room for it. Trains to everyone go to the beacon socket, which is small.
    pub(super) fn offer(&mut self, at_ns: TimeNs, unit: Unit, rcvbuf_bytes: u64) -> bool {
        if unit.to.is_none() {
            let room = self.beacons.len() < 256;
            if room {
                self.beacons.push_back(Arrived { at_ns, unit });
            }
            return room;
        }
        let memory = truesize(unit.bytes.len(), unit.segment);
        if self.memory_bytes + memory > rcvbuf_bytes {
            return false;
        }
        self.memory_bytes += memory;
        self.data.push_back(Arrived { at_ns, unit });
        true
    }

    /// The next group of the data socket: one train, merged with those that follow it from the same sender, of the
    /// same segment size, arrived in the same instant. A short datagram ends a group.
    pub(super) fn take_group(&mut self) -> Option<Unit> {
        let Arrived { at_ns, unit: mut group } = self.pop()?;
        while let Some(next) = self.data.front() {
            let whole = group.bytes.len().is_multiple_of(group.segment) && !group.bytes.is_empty();
            let fits = group.bytes.len() + next.unit.bytes.len() <= GROUP_BYTES_MAX
                && group.count() + next.unit.count() <= GROUP_DATAGRAMS_MAX;
            let alike = next.at_ns == at_ns
                && next.unit.from == group.from
                && (next.unit.segment == group.segment
                    || next.unit.count() == 1 && next.unit.bytes.len() < group.segment)
                && !next.unit.bytes.is_empty();
            if !(whole && fits && alike) {
                break;
            }
            let next = self.pop().expect("it was seen at the front");
            group.bytes.extend_from_slice(&next.unit.bytes);
        }
        Some(group)
    }

    /// The next beacon.
    pub(super) fn take_beacon(&mut self) -> Option<Unit> {
        self.beacons.pop_front().map(|arrived| arrived.unit)
    }

    /// Whether something waits.
    pub(super) fn waits(&self) -> bool {
        !self.data.is_empty() || !self.beacons.is_empty()
    }

    /// The process died: its sockets are closed.
    pub(super) fn clear(&mut self) {
        *self = Ingress::default();
    }

    fn pop(&mut self) -> Option<Arrived> {
        let arrived = self.data.pop_front()?;
        self.memory_bytes -= truesize(arrived.unit.bytes.len(), arrived.unit.segment);
        Some(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(from: usize, bytes: usize, segment: usize) -> Unit {
        Unit::new(from, Some(9), vec![from as u8; bytes], segment)
    }

    #[test]
    fn a_full_receive_buffer_drops() {
        let mut ingress = Ingress::default();
        assert!(ingress.offer(1, unit(0, 1_000, 1_000), 5_000));
        assert!(ingress.offer(1, unit(0, 1_000, 1_000), 5_000));
        assert!(!ingress.offer(1, unit(0, 1_000, 1_000), 5_000));
        ingress.take_group();
        assert!(ingress.offer(2, unit(0, 1_000, 1_000), 5_000));
    }

    #[test]
    fn datagrams_of_one_sender_and_instant_come_as_one_group() {
        let mut ingress = Ingress::default();
        for (at_ns, from, bytes) in
            [(1, 0, 100), (1, 0, 100), (1, 0, 40), (1, 0, 100), (1, 1, 100), (2, 1, 100)]
        {
            ingress.offer(at_ns, unit(from, bytes, bytes), 1 << 20);
        }
        let groups: Vec<_> =
            std::iter::from_fn(|| ingress.take_group().map(|g| (g.from, g.bytes.len(), g.segment))).collect();
        assert_eq!(groups, [(0, 240, 100), (0, 100, 100), (1, 100, 100), (1, 100, 100)]);
        assert!(!ingress.waits());
    }
}
