//! Which work goes next (protocol.md §5.11).
//!
//! Bulk is pulled: a link with room takes the next stretch, so every link works at the rate at which it serves,
//! without any estimate. Small messages have a link of their own (`choice`).

use crate::flow::Class;
use crate::flow::send::SendFlow;
use crate::time::{Duration, Instant};
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
    /// Bytes that the front of each ring has had in its turn.
    turn_bytes: [u64; 4],
    /// Bytes of normal work since bulk had its turn.
    normal_bytes: u64,
    /// When bulk was last sent, and when anything else was.
    bulk_at: Option<Instant>,
    prompt_at: Option<Instant>,
}

/// Bytes that one entry may send before the next has its turn.
const QUANTUM_BYTES: u64 = 65_536;
/// Normal work that may pass before bulk gets one turn (8:1).
const NORMAL_PER_BULK_BYTES: u64 = 8 * QUANTUM_BYTES;
/// Bulk and other classes share the links if both were sent within this span.
const SHARED_SPAN: Duration = Duration::ms(100);

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

    /// The most urgent class of which something waits.
    pub(super) fn urgency(&self) -> Class {
        Class::ALL.into_iter().find(|class| !self.rings[*class as usize].is_empty()).unwrap_or_default()
    }

    /// Whether what comes next leaves room in its packets: pieces of large messages fill theirs.
    pub(super) fn has_flows(&self) -> bool {
        self.rings.iter().any(|ring| matches!(ring.front(), Some(Work::Flow(_))))
    }

    /// Flows with messages to send.
    pub(super) fn flows(&self) -> impl Iterator<Item = u32> {
        self.flows_of(&Class::ALL)
    }

    /// The same of these classes.
    pub(super) fn flows_of(&self, classes: &[Class]) -> impl Iterator<Item = u32> {
        classes.iter().flat_map(|class| &self.rings[*class as usize]).filter_map(|work| match work {
            Work::Flow(key) => Some(*key),
            Work::Transfers(_) => None,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rings.iter().map(VecDeque::len).sum()
    }

    /// Entries by class.
    pub(super) fn lens(&self) -> [usize; 4] {
        std::array::from_fn(|class| self.rings[class].len())
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
            self.turn_bytes[class as usize] = 0;
        } else {
            ring.remove(index);
        }
    }

    /// Accounts bytes to an entry; the next one has its turn when it has had enough.
    pub(super) fn account(&mut self, class: Class, index: usize, bytes: u64) {
        self.note(class, bytes);
        let turn_bytes = &mut self.turn_bytes[class as usize];
        *turn_bytes += bytes;
        if *turn_bytes >= QUANTUM_BYTES {
            *turn_bytes = 0;
            let ring = &mut self.rings[class as usize];
            if ring.len() > 1
                && let Some(work) = ring.remove(index)
            {
                ring.push_back(work);
            }
        }
    }

    /// Accounts the last bytes of an entry, which leaves the ring.
    pub(super) fn finish(&mut self, class: Class, index: usize, bytes: u64) {
        self.note(class, bytes);
        self.remove(class, index);
    }

    fn note(&mut self, class: Class, bytes: u64) {
        match class {
            Class::Normal => self.normal_bytes += bytes,
            Class::Bulk => self.normal_bytes = 0,
            _ => {}
        }
    }

    /// Notes that something of a class was sent.
    pub(super) fn note_sent(&mut self, class: Class, now: Instant) {
        let at = if class == Class::Bulk { &mut self.bulk_at } else { &mut self.prompt_at };
        *at = Some(now);
    }

    /// Whether bulk shares the links with other classes, which are not to wait behind it.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        let of_late = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < SHARED_SPAN);
        of_late(self.bulk_at) && of_late(self.prompt_at)
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
        let message = Outgoing {
            buffer: BufferId(0),
            len: 1 << 20,
            service: None,
            range: None,
            tag: None,
            returns: false,
        };
        for (token, seq) in [(10, 7), (11, 5), (12, 6)] {
            let mut transfer = SendTransfer::new(3, seq, message);
            transfer.grant(&Cts { token, transfer: TransferId(1), granted: 1 << 20, done: 0 });
            schedule.enqueue_transfer(token, &mut transfer, &mut flow);
            schedule.enqueue_transfer(token, &mut transfer, &mut flow);
        }
        assert_eq!(flow.transfers, [(5, 11), (6, 12), (7, 10)]);
        assert_eq!((schedule.len(), schedule.get(Class::Normal, 0)), (1, Some(Work::Transfers(3))));
    }

    #[test]
    fn bulk_shares_the_links_while_it_and_others_are_sent() {
        let mut schedule = Schedule::default();
        let at = |ms| Instant::ZERO + Duration::ms(ms);
        schedule.note_sent(Class::Bulk, at(1));
        assert!(!schedule.is_shared(at(1)), "there is nothing else");
        schedule.note_sent(Class::Normal, at(50));
        assert!(schedule.is_shared(at(50)) && schedule.is_shared(at(100)) && !schedule.is_shared(at(101)));
        schedule.note_sent(Class::Bulk, at(120));
        assert!(schedule.is_shared(at(149)) && !schedule.is_shared(at(150)));
        schedule.note_sent(Class::Urgent, at(200));
        assert!(schedule.is_shared(at(219)) && !schedule.is_shared(at(220)));
    }

    fn ring(schedule: &Schedule, class: Class) -> Vec<Work> {
        (0..).map_while(|index| schedule.get(class, index)).collect()
    }

    #[test]
    fn each_entry_has_its_quantum_and_then_the_next_one() {
        use Work::Flow;
        let mut schedule = Schedule::default();
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Urgent };
        for n in 1..=3 {
            schedule.enqueue_flow(n, &mut SendFlow::new(key, 0));
        }
        assert_eq!((schedule.len(), schedule.is_empty()), (3, false));
        let mut account = |index, bytes| {
            schedule.account(Class::Urgent, index, bytes);
            ring(&schedule, Class::Urgent)
        };
        assert_eq!(account(0, QUANTUM_BYTES - 1), [Flow(1), Flow(2), Flow(3)]);
        assert_eq!(account(0, 1), [Flow(2), Flow(3), Flow(1)]);
        assert_eq!(account(0, QUANTUM_BYTES - 1), [Flow(2), Flow(3), Flow(1)], "its turn began with nothing");
        schedule.remove(Class::Urgent, 1);
        schedule.account(Class::Urgent, 0, 1);
        assert_eq!(ring(&schedule, Class::Urgent), [Flow(1), Flow(2)], "that another left changes nothing");
        schedule.account(Class::Urgent, 0, QUANTUM_BYTES - 1);
        schedule.remove(Class::Urgent, 0);
        schedule.enqueue_flow(4, &mut SendFlow::new(key, 0));
        schedule.account(Class::Urgent, 0, 1);
        assert_eq!(ring(&schedule, Class::Urgent), [Flow(2), Flow(4)], "what one had is not the next one's");
        schedule.account(Class::Urgent, 0, 2 * QUANTUM_BYTES);
        schedule.remove(Class::Urgent, 0);
        schedule.account(Class::Urgent, 0, QUANTUM_BYTES);
        assert_eq!((ring(&schedule, Class::Urgent), schedule.len()), (vec![Flow(2)], 1), "alone it goes on");
        schedule.remove(Class::Urgent, 0);
        assert!(schedule.is_empty());
    }

    #[test]
    fn the_turns_of_a_class_are_its_own() {
        use Work::Flow;
        let mut schedule = Schedule::default();
        let key = |class| FlowKey { from: PortId(1), to: PortId(2), class };
        for n in 1..=2 {
            schedule.enqueue_flow(n, &mut SendFlow::new(key(Class::Bulk), 0));
        }
        schedule.account(Class::Bulk, 0, QUANTUM_BYTES - 1);
        schedule.enqueue_flow(3, &mut SendFlow::new(key(Class::Urgent), 0));
        schedule.finish(Class::Urgent, 0, 64);
        assert_eq!(ring(&schedule, Class::Bulk), [Flow(1), Flow(2)]);
        schedule.account(Class::Bulk, 0, 1);
        assert_eq!(ring(&schedule, Class::Bulk), [Flow(2), Flow(1)], "what was urgent gave it no new turn");
    }

    #[test]
    fn what_is_finished_leaves_and_the_next_one_begins_with_nothing() {
        use Work::Flow;
        let mut schedule = Schedule::default();
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
        for n in 1..=4 {
            schedule.enqueue_flow(n, &mut SendFlow::new(key, 0));
        }
        schedule.account(Class::Normal, 0, QUANTUM_BYTES - 1);
        schedule.finish(Class::Normal, 1, QUANTUM_BYTES);
        assert_eq!(
            ring(&schedule, Class::Normal),
            [Flow(1), Flow(3), Flow(4)],
            "it is still the first one's turn"
        );
        schedule.finish(Class::Normal, 0, QUANTUM_BYTES);
        schedule.account(Class::Normal, 0, QUANTUM_BYTES - 1);
        assert_eq!(ring(&schedule, Class::Normal), [Flow(3), Flow(4)]);
        schedule.account(Class::Normal, 0, 1);
        assert_eq!(ring(&schedule, Class::Normal), [Flow(4), Flow(3)]);
        assert_eq!(schedule.classes(), Class::ALL);
        schedule.finish(Class::Normal, 0, 5 * QUANTUM_BYTES);
        assert_eq!(schedule.classes()[2], Class::Bulk, "what was finished counts as normal work");
    }

    #[test]
    fn bulk_has_a_turn_after_eight_of_normal_work() {
        let in_order = Class::ALL;
        let bulk_first = [Class::Control, Class::Urgent, Class::Bulk, Class::Normal];
        let mut schedule = Schedule::default();
        for _ in 0..2 {
            schedule.account(Class::Urgent, 0, 100 * QUANTUM_BYTES);
            schedule.account(Class::Normal, 0, 8 * QUANTUM_BYTES - 1);
            assert_eq!(schedule.classes(), in_order);
            schedule.account(Class::Normal, 0, 1);
            assert_eq!(schedule.classes(), bulk_first);
            schedule.account(Class::Bulk, 0, 1);
            assert_eq!(schedule.classes(), in_order);
        }
    }
}
