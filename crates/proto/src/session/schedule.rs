//! Which work goes next, and by which link (protocol.md §5.6).
//!
//! Bulk is pulled: a link with room takes the next stretch, so every link works at the rate at which it serves,
//! without any estimate. Small messages choose the link of least expected delay.

use super::serving::Serving;
use crate::flow::Class;
use crate::flow::send::SendFlow;
use crate::link::Link;
use crate::transfer::SendTransfer;
use std::collections::VecDeque;

/// A piece of work in a class's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// A flow with messages or pieces to send.
    Flow(u32),
    /// A flow with transfers that have granted bytes to send. They share one place in the ring, lest a flow that sends
    /// many large messages at once crowds the others out; the oldest goes first, for it is delivered first.
    Transfers(u32),
}

/// Rings of work by class.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    rings: [VecDeque<Work>; 4],
    /// Bytes that the front of the ring has had in its turn.
    turn_bytes: u64,
    /// Bytes of normal work since bulk had its turn.
    normal_bytes: u64,
    choice: Option<usize>,
}

/// Bytes that one entry may send before the next has its turn.
const QUANTUM_BYTES: u64 = 65_536;
/// Normal work that may pass before bulk gets one turn (8:1).
const NORMAL_PER_BULK_BYTES: u64 = 8 * QUANTUM_BYTES;
/// A link must be better by this to take over small messages, lest they hop at every packet.
const CHOICE_GAIN_NS: u64 = 20_000;

impl Schedule {
    pub(super) fn enqueue_flow(&mut self, key: u32, flow: &mut SendFlow) {
        if !flow.queued {
            flow.queued = true;
            self.rings[flow.key.class as usize].push_back(Work::Flow(key));
        }
    }

    pub(super) fn enqueue_transfer(&mut self, token: u32, transfer: &mut SendTransfer, flow: &mut SendFlow) {
        if transfer.queued || !transfer.ready() {
            return;
        }
        transfer.queued = true;
        let at = flow.transfers.partition_point(|(seq, _)| *seq < transfer.seq);
        flow.transfers.insert(at, (transfer.seq, token));
        if !flow.transfers_queued {
            flow.transfers_queued = true;
            self.rings[flow.key.class as usize].push_back(Work::Transfers(transfer.flow));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rings.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.rings.iter().map(VecDeque::len).sum()
    }

    /// The class whose turn it is, `skip` work items passed over in it so far.
    pub(super) fn classes(&self) -> [Class; 4] {
        let mut order = Class::ALL;
        if self.normal_bytes >= NORMAL_PER_BULK_BYTES {
            order.swap(Class::Normal as usize, Class::Bulk as usize);
        }
        order
    }

    pub(super) fn get(&self, class: Class, index: usize) -> Option<Work> {
        self.rings[class as usize].get(index).copied()
    }

    /// Removes an entry that has nothing to send now.
    pub(super) fn remove(&mut self, class: Class, index: usize) {
        let ring = &mut self.rings[class as usize];
        if index == 0 {
            ring.pop_front();
            self.turn_bytes = 0;
        } else {
            ring.remove(index);
        }
    }

    /// Accounts bytes to an entry; the next one has its turn when it has had enough.
    pub(super) fn account(&mut self, class: Class, index: usize, bytes: u64) {
        match class {
            Class::Normal => self.normal_bytes += bytes,
            Class::Bulk => self.normal_bytes = 0,
            _ => {}
        }
        self.turn_bytes += bytes;
        if self.turn_bytes >= QUANTUM_BYTES {
            self.turn_bytes = 0;
            let ring = &mut self.rings[class as usize];
            if ring.len() > 1
                && let Some(work) = ring.remove(index)
            {
                ring.push_back(work);
            }
        }
    }

    /// The link for small messages: least expected delay, with a preference for the last choice.
    pub(super) fn choose(&mut self, links: &[Link]) -> Option<usize> {
        let serving = Serving::of(links);
        let (mut best, mut old) = (None, None);
        for (index, link) in links.iter().enumerate() {
            if !serving.includes(link) || link.room() == 0 {
                continue;
            }
            let delay_ns = link.delay(1_500).0;
            if best.is_none_or(|(_, least_ns)| delay_ns < least_ns) {
                best = Some((index, delay_ns));
            }
            if self.choice == Some(index) && !link.blocked {
                old = Some(delay_ns);
            }
        }
        if let (Some(old_ns), Some((_, least_ns))) = (old, best)
            && old_ns <= least_ns + CHOICE_GAIN_NS.max(least_ns / 10)
        {
            return self.choice;
        }
        self.choice = best.map(|(index, _)| index);
        self.choice
    }

    pub(super) fn forget_choice(&mut self) {
        self.choice = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowKey;
    use crate::flow::send::Outgoing;
    use crate::id::{BufferId, PortId, TransferId};
    use crate::wire::Cts;

    #[test]
    fn the_transfers_of_a_flow_share_one_place_oldest_first() {
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
        let mut flow = SendFlow::new(key, 0);
        let mut schedule = Schedule::default();
        let message = Outgoing { buffer: BufferId(0), len: 1 << 20, service: None, tag: None };
        for (token, seq) in [(10, 7), (11, 5), (12, 6)] {
            let mut transfer = SendTransfer::new(3, seq, message);
            transfer.grant(&Cts { token, transfer: TransferId(1), granted: 1 << 20, done: 0 });
            schedule.enqueue_transfer(token, &mut transfer, &mut flow);
            schedule.enqueue_transfer(token, &mut transfer, &mut flow);
        }
        assert_eq!(flow.transfers, [(5, 11), (6, 12), (7, 10)]);
        assert_eq!((schedule.len(), schedule.get(Class::Normal, 0)), (1, Some(Work::Transfers(3))));
    }
}
