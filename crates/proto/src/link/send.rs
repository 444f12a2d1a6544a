//! What one link has in flight: trains, their acknowledgement and loss (protocol.md §5.4).
//!
//! The train is the unit of bookkeeping: up to 64 packets with consecutive numbers, whose fate is two 64-bit
//! masks, so the usual acknowledgement costs as much for 64 KiB as for one packet. Packets are never sent again;
//! what they carried goes back to its owner, and any link may take it.

use crate::id::{PortId, TransferId};
use crate::limits;
use crate::time::{Duration, Instant};
use crate::wire::Ack;
use std::collections::VecDeque;

/// What a packet carried, by the name that its owner knows it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// Whole messages `first..first + count` of a flow.
    Messages {
        /// Index of the flow.
        flow: u32,
        /// Number of the first message.
        first: u64,
        /// How many.
        count: u32,
    },
    /// Bytes of an eager message.
    Fragment {
        /// Index of the flow.
        flow: u32,
        /// The message.
        seq: u64,
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// The announcement of a large message.
    Rts {
        /// Index of the flow.
        flow: u32,
        /// The message.
        seq: u64,
    },
    /// Bytes of a transfer.
    Extent {
        /// The sender's name of the transfer.
        token: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// A control frame.
    Control {
        /// Its number.
        number: u32,
    },
    /// The credit of a port.
    Credit {
        /// The port.
        port: PortId,
    },
    /// A grant.
    Cts {
        /// The transfer granted.
        transfer: TransferId,
    },
    /// A probe for the path's MTU.
    MtuProbe {
        /// Its size.
        size: u16,
    },
}

/// A contiguous extent of one transfer, cut evenly over the packets of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The sender's name of the transfer.
    pub token: u32,
    /// First packet of the train that carries a part.
    pub packet: u8,
    /// First byte.
    pub offset: u64,
    /// Bytes in that first packet.
    pub first_len: u32,
    /// Bytes in each following one.
    pub len: u32,
    /// End of the extent (exclusive).
    pub end: u64,
}

impl Extent {
    /// The bytes `start..end` that packets `from..to` of the train carry, if any.
    fn part(&self, from: u8, to: u8) -> Option<(u64, u64)> {
        let boundary = |packet: u8| {
            if packet <= self.packet {
                self.offset
            } else {
                let whole = (packet - self.packet - 1) as u64 * self.len as u64;
                (self.offset + self.first_len as u64 + whole).min(self.end)
            }
        };
        let (start, end) = (boundary(from), boundary(to));
        (start < end).then_some((start, end))
    }
}

/// One train in flight.
#[derive(Debug)]
pub struct SentTrain {
    first: u64,
    count: u8,
    packet_bytes: u16,
    last_bytes: u16,
    sent_at: Instant,
    acked: u64,
    lost: u64,
    items: Vec<(u8, Item)>,
    extent: Option<Extent>,
    copied: bool,
}

impl SentTrain {
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.count)
    }
    fn open(&self) -> u64 {
        self.mask() & !(self.acked | self.lost)
    }
    fn bytes_of(&self, packets: u64) -> u64 {
        let last = packets >> (self.count - 1) & 1;
        (packets.count_ones() as u64 - last) * self.packet_bytes as u64 + last * self.last_bytes as u64
    }
    /// Calls `each` for everything that the packets of `mask` carried.
    fn visit(&self, mask: u64, each: &mut impl FnMut(Item)) {
        for &(packet, item) in &self.items {
            if mask >> packet & 1 == 1 {
                each(item);
            }
        }
        let Some(extent) = self.extent else { return };
        let mut rest = mask;
        while rest != 0 {
            let from = rest.trailing_zeros() as u8;
            let run = (!(rest >> from)).trailing_zeros() as u8;
            if let Some((start, end)) = extent.part(from, from + run) {
                each(Item::Extent { token: extent.token, offset: start, len: (end - start) as u32 });
            }
            rest = if from + run >= 64 { 0 } else { rest >> (from + run) << (from + run) };
        }
    }
}

/// A train as it is handed to the books.
#[derive(Debug)]
pub struct NewTrain {
    /// Packets.
    pub count: u8,
    /// Bytes of each packet but the last.
    pub packet_bytes: u16,
    /// Bytes of the last.
    pub last_bytes: u16,
    /// What they carry: (packet, item), in the order of packets.
    pub items: Vec<(u8, Item)>,
    /// The even part, if any.
    pub extent: Option<Extent>,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Packets newly acknowledged.
    pub packets: u64,
    /// Packets that had been declared lost.
    pub spurious: u64,
    /// The largest number is newly acknowledged (a round-trip sample).
    pub largest_is_new: bool,
    /// When the newest packet acknowledged was sent.
    pub newest_sent_at: Instant,
}

/// Packets in flight on one link.
#[derive(Debug)]
pub struct Sent {
    trains: VecDeque<SentTrain>,
    spare: Vec<Vec<(u8, Item)>>,
    next: u64,
    largest_acked: Option<u64>,
    inflight_bytes: u64,
    inflight_packets: u64,
    reorder: u64,
    last_sent_at: Instant,
}

/// Initial packet threshold (RFC 9002 §6.1.1).
const REORDER_MIN: u64 = 3;
const REORDER_MAX: u64 = 64;

impl Default for Sent {
    fn default() -> Self {
        Sent {
            trains: VecDeque::new(),
            spare: Vec::new(),
            next: 0,
            largest_acked: None,
            inflight_bytes: 0,
            inflight_packets: 0,
            reorder: REORDER_MIN,
            last_sent_at: Instant::ZERO,
        }
    }
}

impl Sent {
    /// The number that the next packet gets.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Numbers a packet that nobody needs to acknowledge and that is not kept.
    pub fn skip(&mut self, packets: u64) {
        self.next += packets;
    }

    /// Bytes sent and neither acknowledged nor declared lost.
    pub fn inflight_bytes(&self) -> u64 {
        self.inflight_bytes
    }

    /// Whether anything waits for acknowledgement.
    pub fn is_empty(&self) -> bool {
        self.inflight_packets == 0
    }

    /// Whether the books are full (protocol.md §5.6).
    pub fn is_full(&self) -> bool {
        self.trains.len() >= limits::INFLIGHT_TRAINS_MAX
            || self.inflight_packets >= limits::INFLIGHT_PACKETS_MAX
    }

    /// When the newest packet that waits for acknowledgement was sent.
    pub fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// A recycled list for a new train's items.
    pub fn items(&mut self) -> Vec<(u8, Item)> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a list back.
    pub fn recycle(&mut self, mut items: Vec<(u8, Item)>) {
        if self.spare.len() < 64 {
            items.clear();
            self.spare.push(items);
        }
    }

    /// Enters a train that is about to leave; returns the number of its first packet.
    pub fn push(&mut self, now: Instant, train: NewTrain) -> u64 {
        assert!((1..=limits::TRAIN_PACKETS_MAX as u8).contains(&train.count));
        let first = self.next;
        let entry = SentTrain {
            first,
            count: train.count,
            packet_bytes: train.packet_bytes,
            last_bytes: train.last_bytes,
            sent_at: now,
            acked: 0,
            lost: 0,
            items: train.items,
            extent: train.extent,
            copied: false,
        };
        self.inflight_bytes += entry.bytes_of(entry.mask());
        self.inflight_packets += train.count as u64;
        self.next += train.count as u64;
        self.last_sent_at = now;
        self.trains.push_back(entry);
        first
    }

    /// Takes a train back that the bearer did not take at all. Its numbers are used again if it is the newest.
    pub fn take_back(&mut self, first: u64, mut each: impl FnMut(Item)) {
        let Ok(index) = self.trains.binary_search_by_key(&first, |t| t.first) else { return };
        let Some(train) = self.trains.remove(index) else { return };
        let open = train.open();
        self.inflight_bytes -= train.bytes_of(open);
        self.inflight_packets -= open.count_ones() as u64;
        train.visit(open, &mut each);
        if self.next == first + train.count as u64 {
            self.next = first;
        }
        self.recycle(train.items);
    }

    /// Declares a whole train lost: the local queue refused it.
    pub fn lose(&mut self, first: u64, mut each: impl FnMut(Item)) -> u64 {
        let Ok(index) = self.trains.binary_search_by_key(&first, |t| t.first) else { return 0 };
        let train = &mut self.trains[index];
        let open = train.open();
        train.lost |= open;
        let packets = open.count_ones() as u64;
        self.inflight_bytes -= train.bytes_of(open);
        self.inflight_packets -= packets;
        train.visit(open, &mut each);
        self.forget_settled(Instant::ZERO);
        packets
    }

    /// Takes in an acknowledgement; `each` gets everything newly confirmed. An error: it names a packet that was
    /// never sent.
    pub fn acknowledge(
        &mut self,
        ranges: &[(u64, u64)],
        mut each: impl FnMut(Item),
    ) -> Result<Acked, crate::error::Violation> {
        let mut told = Acked::default();
        let Some(&(_, largest)) = ranges.first() else { return Ok(told) };
        if largest >= self.next {
            return Err(crate::error::Violation::AckOfUnsent);
        }
        for &(low, high) in ranges {
            self.acknowledge_range(low, high, &mut told, &mut each);
        }
        if self.largest_acked.is_none_or(|l| largest > l) {
            self.largest_acked = Some(largest);
        }
        Ok(told)
    }

    fn acknowledge_range(&mut self, low: u64, high: u64, told: &mut Acked, each: &mut impl FnMut(Item)) {
        let start = self.trains.partition_point(|t| t.first + t.count as u64 <= low);
        let fresh_largest = self.largest_acked.is_none_or(|l| high > l);
        for train in self.trains.range_mut(start..) {
            if train.first > high {
                break;
            }
            let from = low.max(train.first) - train.first;
            let to = (high - train.first).min(train.count as u64 - 1);
            let range = (u64::MAX >> (63 - (to - from))) << from;
            let fresh = range & !train.acked;
            if fresh == 0 {
                continue;
            }
            let late = fresh & train.lost;
            let open = fresh & !train.lost;
            train.acked |= fresh;
            train.lost &= !fresh;
            told.bytes += train.bytes_of(open);
            told.packets += open.count_ones() as u64;
            told.spurious += late.count_ones() as u64;
            told.largest_is_new |= fresh_largest && train.first + to == high;
            told.newest_sent_at = told.newest_sent_at.max(train.sent_at);
            self.inflight_bytes -= train.bytes_of(open);
            self.inflight_packets -= open.count_ones() as u64;
            train.visit(fresh, each);
        }
    }

    /// Adapts to reordering that was taken for loss.
    pub fn on_spurious_loss(&mut self) {
        self.reorder = (self.reorder * 2).min(REORDER_MAX);
    }

    /// Declares lost what is `reorder` packets or `threshold` older than the newest acknowledged packet. Returns
    /// the packets lost and when to look again.
    pub fn detect(
        &mut self,
        now: Instant,
        threshold: Duration,
        mut each: impl FnMut(Item),
    ) -> (u64, Instant) {
        let Some(largest) = self.largest_acked else { return (0, Instant::NEVER) };
        if self.is_empty() {
            self.forget_settled(now - threshold.times(4));
            return (0, Instant::NEVER);
        }
        let (mut packets, mut again) = (0, Instant::NEVER);
        for train in self.trains.iter_mut() {
            if train.first > largest {
                break;
            }
            let open = train.open();
            if open == 0 {
                continue;
            }
            let below = (largest - train.first).min(64);
            let older = if below >= 64 { u64::MAX } else { (1u64 << below) - 1 };
            let distant = (largest + 1).saturating_sub(self.reorder + train.first).min(64);
            let distant = if distant >= 64 { u64::MAX } else { (1u64 << distant) - 1 };
            let late = if train.sent_at + threshold <= now { older } else { 0 };
            let lost = open & (distant | late);
            if open & older & !lost != 0 {
                again = again.min(train.sent_at + threshold);
            }
            if lost != 0 {
                train.lost |= lost;
                packets += lost.count_ones() as u64;
                self.inflight_bytes -= train.bytes_of(lost);
                self.inflight_packets -= lost.count_ones() as u64;
                train.visit(lost, &mut each);
            }
        }
        self.forget_settled(now - threshold.times(4));
        (packets, again)
    }

    /// Hands out copies of everything unacknowledged that was sent before `before` and not copied yet, for other
    /// links to carry too. The originals stay in flight.
    pub fn copy_older(&mut self, before: Instant, mut each: impl FnMut(Item)) -> u64 {
        let mut packets = 0;
        for train in self.trains.iter_mut() {
            if train.sent_at > before {
                break;
            }
            let open = train.open();
            if open != 0 && !train.copied {
                train.copied = true;
                packets += open.count_ones() as u64;
                train.visit(open, &mut each);
            }
        }
        packets
    }

    /// Declares everything lost: the link is dead.
    pub fn abandon(&mut self, mut each: impl FnMut(Item)) -> u64 {
        let mut packets = 0;
        for train in self.trains.iter_mut() {
            let open = train.open();
            packets += open.count_ones() as u64;
            train.lost |= open;
            train.visit(open, &mut each);
        }
        self.inflight_bytes = 0;
        self.inflight_packets = 0;
        packets
    }

    /// The driver was away: everything in flight counts as sent that much later.
    pub fn shift(&mut self, by: Duration) {
        for train in &mut self.trains {
            train.sent_at += by;
        }
        self.last_sent_at += by;
    }

    /// Forgets what was sent before `before` and carried nothing that anybody waits for. A link that is dead asks
    /// again and again, for days if need be, and no acknowledgement settles any of it.
    pub fn forget_unanswered(&mut self, before: Instant) {
        while let Some(train) = self.trains.front() {
            let open = train.open();
            let waited_for = open != 0 && !(train.items.is_empty() && train.extent.is_none());
            if train.sent_at > before || waited_for {
                break;
            }
            self.inflight_bytes -= train.bytes_of(open);
            self.inflight_packets -= open.count_ones() as u64;
            if let Some(train) = self.trains.pop_front() {
                self.recycle(train.items);
            }
        }
    }

    /// Forgets trains whose fate is settled: acknowledged ones at once, lost ones when sent before `before`, so
    /// that a late acknowledgement is recognised as such.
    pub fn forget_settled(&mut self, before: Instant) {
        while let Some(train) = self.trains.front() {
            let settled = train.acked == train.mask() || (train.open() == 0 && train.sent_at <= before);
            if !settled {
                break;
            }
            if let Some(train) = self.trains.pop_front() {
                self.recycle(train.items);
            }
        }
    }
}

/// The ranges of an ACK frame, checked by its parser, in the form that [`Sent::acknowledge`] wants.
pub fn ranges_of(ack: &Ack) -> &[(u64, u64)] {
    &ack.ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(sent: &mut Sent, now: Instant, packets: u8) -> u64 {
        let items = (0..packets)
            .map(|p| (p, Item::Messages { flow: 0, first: sent.next() + p as u64, count: 1 }))
            .collect();
        sent.push(now, NewTrain { count: packets, packet_bytes: 1000, last_bytes: 500, items, extent: None })
    }

    fn numbers(log: &[Item]) -> Vec<u64> {
        let mut all: Vec<u64> = log
            .iter()
            .map(|i| match i {
                Item::Messages { first, .. } => *first,
                other => panic!("{other:?}"),
            })
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_acknowledgement_frees_exactly_its_packets() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(1), 10);
        bundle(&mut sent, Instant(2), 64);
        assert_eq!(sent.inflight_bytes(), 9 * 1000 + 500 + 63 * 1000 + 500);
        let mut log = vec![];
        let told = sent.acknowledge(&[(5, 20), (2, 3)], |i| log.push(i)).unwrap();
        assert_eq!(told.packets, 18);
        assert_eq!(told.bytes, 18 * 1000 - 500);
        assert!(told.largest_is_new);
        assert_eq!(numbers(&log), [2, 3].into_iter().chain(5..=20).collect::<Vec<_>>());
        let again = sent.acknowledge(&[(5, 20), (2, 3)], |_| panic!("acknowledged twice")).unwrap();
        assert_eq!(again.packets, 0);
    }

    #[test]
    fn packets_three_behind_are_lost_and_nearer_ones_wait_for_time() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(0), 10);
        sent.acknowledge(&[(6, 6)], |_| {}).unwrap();
        let mut log = vec![];
        let (packets, again) = sent.detect(Instant(10), Duration(100), |i| log.push(i));
        assert_eq!((packets, again), (4, Instant(100)));
        assert_eq!(numbers(&log), [0, 1, 2, 3]);
        log.clear();
        let (packets, again) = sent.detect(Instant(100), Duration(100), |i| log.push(i));
        assert_eq!((packets, again), (2, Instant::NEVER));
        assert_eq!(numbers(&log), [4, 5]);
    }

    #[test]
    fn a_late_acknowledgement_is_told_as_spurious_loss() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(1000), 8);
        sent.acknowledge(&[(7, 7)], |_| {}).unwrap();
        assert_eq!(sent.detect(Instant(1001), Duration(100), |_| {}).0, 5);
        let told = sent.acknowledge(&[(0, 7)], |_| {}).unwrap();
        assert_eq!((told.spurious, told.packets), (5, 2));
        assert!(sent.is_empty());
        assert_eq!(sent.inflight_bytes(), 0);
    }

    #[test]
    fn an_extent_comes_back_as_the_ranges_that_were_lost() {
        let mut sent = Sent::default();
        let extent = Extent { token: 7, packet: 1, offset: 100, first_len: 50, len: 100, end: 430 };
        sent.push(
            Instant(0),
            NewTrain { count: 5, packet_bytes: 120, last_bytes: 100, items: vec![], extent: Some(extent) },
        );
        let mut log = vec![];
        sent.acknowledge(&[(4, 4), (2, 2)], |i| log.push(i)).unwrap();
        assert_eq!(
            log,
            [
                Item::Extent { token: 7, offset: 350, len: 80 },
                Item::Extent { token: 7, offset: 150, len: 100 }
            ]
        );
        log.clear();
        sent.abandon(|i| log.push(i));
        assert_eq!(
            log,
            [
                Item::Extent { token: 7, offset: 100, len: 50 },
                Item::Extent { token: 7, offset: 250, len: 100 }
            ]
        );
    }

    #[test]
    fn a_train_taken_back_gives_its_numbers_back() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(0), 4);
        let first = bundle(&mut sent, Instant(0), 4);
        let mut log = vec![];
        sent.take_back(first, |i| log.push(i));
        assert_eq!(numbers(&log), [4, 5, 6, 7]);
        assert_eq!(sent.next(), 4);
        assert_eq!(sent.inflight_bytes(), 3500);
    }

    #[test]
    fn questions_without_an_answer_are_forgotten_and_messages_are_not() {
        let mut sent = Sent::default();
        let question =
            || NewTrain { count: 1, packet_bytes: 48, last_bytes: 48, items: vec![], extent: None };
        (0..10).for_each(|n| _ = sent.push(Instant(n), question()));
        sent.forget_unanswered(Instant(6));
        assert_eq!((sent.inflight_bytes(), sent.trains.len()), (3 * 48, 3));
        sent.forget_unanswered(Instant(9));
        assert_eq!((sent.inflight_bytes(), sent.is_empty()), (0, true));
        bundle(&mut sent, Instant(10), 2);
        sent.forget_unanswered(Instant(20));
        assert_eq!((sent.inflight_bytes(), sent.trains.len()), (1500, 1));
        assert_eq!(sent.acknowledge(&[(0, 11)], |_| {}).unwrap().packets, 2);
    }

    #[test]
    fn an_acknowledgement_of_the_future_is_a_violation() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(0), 4);
        assert!(sent.acknowledge(&[(0, 4)], |_| {}).is_err());
    }

    /// `packets` packets of 100 bytes of one transfer, nothing else.
    fn extent(sent: &mut Sent, packets: u8) {
        let extent = Extent { token: 7, packet: 0, offset: 0, first_len: 100, len: 100, end: 6_400 };
        let train = NewTrain {
            count: packets,
            packet_bytes: 100,
            last_bytes: 100,
            items: vec![],
            extent: Some(extent),
        };
        sent.push(Instant(0), train);
    }

    #[test]
    fn any_run_of_packets_of_a_full_train_is_told_as_its_bytes() {
        for (low, high) in [(0, 63), (1, 63), (0, 62), (5, 5), (32, 63), (63, 63)] {
            let mut sent = Sent::default();
            extent(&mut sent, 64);
            let mut log = vec![];
            sent.acknowledge(&[(low, high)], |item| log.push(item)).unwrap();
            let (offset, len) = (low * 100, (high - low + 1) as u32 * 100);
            assert_eq!(log, [Item::Extent { token: 7, offset, len }]);
        }
        // A packet in front of the even part carries none of it.
        let mut sent = Sent::default();
        let extent = Extent { token: 7, packet: 1, offset: 0, first_len: 10, len: 10, end: 20 };
        let train =
            NewTrain { count: 3, packet_bytes: 10, last_bytes: 10, items: vec![], extent: Some(extent) };
        sent.push(Instant(0), train);
        sent.acknowledge(&[(0, 0)], |item| panic!("{item:?}")).unwrap();
    }

    #[test]
    fn only_the_first_word_of_the_largest_number_is_a_round_trip() {
        let mut sent = Sent::default();
        (1..=3).for_each(|n| _ = bundle(&mut sent, Instant(n), 4));
        let mut ack = |ranges: &[(u64, u64)]| {
            let told = sent.acknowledge(ranges, |_| {}).unwrap();
            (told.largest_is_new, told.packets, told.newest_sent_at)
        };
        assert_eq!(ack(&[(5, 5)]), (true, 1, Instant(2)));
        assert_eq!(
            ack(&[(5, 5), (2, 3)]),
            (false, 2, Instant(1)),
            "an earlier number is news, not the largest"
        );
        assert_eq!(ack(&[(4, 5)]), (false, 1, Instant(2)));
        assert_eq!(ack(&[(4, 9)]), (true, 4, Instant(3)));
    }

    #[test]
    fn numbers_can_be_skipped_and_what_was_skipped_acknowledged() {
        let mut sent = Sent::default();
        sent.skip(3);
        assert_eq!((sent.next(), bundle(&mut sent, Instant(1), 2)), (3, 3));
        assert_eq!(sent.acknowledge(&[(0, 4)], |_| {}).unwrap().packets, 2);
    }

    #[test]
    fn the_books_hold_so_many_trains_and_so_many_packets() {
        for (packets, trains) in
            [(1, limits::INFLIGHT_TRAINS_MAX), (64, limits::INFLIGHT_PACKETS_MAX.div_ceil(64) as usize)]
        {
            let mut sent = Sent::default();
            for _ in 0..trains {
                assert!(!sent.is_full());
                bundle(&mut sent, Instant(1), packets);
            }
            assert!(sent.is_full());
            sent.acknowledge(&[(0, 63)], |_| {}).unwrap();
            sent.detect(Instant(1), Duration(100), |_| {});
            assert!(!sent.is_full(), "what was acknowledged leaves room");
        }
    }

    #[test]
    fn a_train_that_the_local_queue_refused_is_lost_at_once_and_once() {
        let mut sent = Sent::default();
        let first = bundle(&mut sent, Instant(1), 4);
        let second = bundle(&mut sent, Instant(1), 3);
        sent.acknowledge(&[(5, 5)], |_| {}).unwrap();
        let mut log = vec![];
        assert_eq!(sent.lose(second, |item| log.push(item)), 2);
        assert_eq!((numbers(&log), sent.inflight_bytes(), sent.is_empty()), (vec![4, 6], 3_500, false));
        assert_eq!(sent.lose(second, |_| panic!("lost twice")), 0);
        assert_eq!(sent.acknowledge(&[(4, 6)], |_| {}).unwrap().spurious, 2);
        assert_eq!(sent.lose(first, |_| {}), 4);
        assert_eq!((sent.inflight_bytes(), sent.is_empty()), (0, true));
        assert_eq!(sent.lose(99, |_| {}), 0);
    }

    #[test]
    fn the_only_train_taken_back_leaves_nothing() {
        let mut sent = Sent::default();
        let first = bundle(&mut sent, Instant(1), 4);
        sent.take_back(first + 1, |_| panic!("no train begins there"));
        sent.take_back(first, |_| {});
        assert_eq!((sent.next(), sent.inflight_bytes(), sent.is_empty()), (0, 0, true));
        bundle(&mut sent, Instant(1), 4);
        bundle(&mut sent, Instant(1), 4);
        sent.take_back(0, |_| {});
        assert_eq!(sent.next(), 8, "only the newest numbers are used again");
    }

    #[test]
    fn reordering_taken_for_loss_doubles_what_is_borne_up_to_a_train() {
        let mut sent = Sent::default();
        for bound in [3, 6, 12, 24, 48, 64, 64] {
            let first = sent.next();
            // The last train is acknowledged, the one before is one packet beyond the bound.
            bundle(&mut sent, Instant(1), 1);
            for _ in 1..bound {
                bundle(&mut sent, Instant(1), 1);
            }
            let last = bundle(&mut sent, Instant(1), 1);
            assert_eq!(last - first, bound);
            sent.acknowledge(&[(last - 1, last - 1)], |_| {}).unwrap();
            assert_eq!(sent.detect(Instant(1), Duration(100), |_| {}).0, 0, "{bound}");
            sent.acknowledge(&[(last, last)], |_| {}).unwrap();
            assert_eq!(sent.detect(Instant(1), Duration(100), |_| {}).0, 1, "{bound}");
            assert_eq!(sent.acknowledge(&[(first, last)], |_| {}).unwrap().spurious, 1);
            sent.on_spurious_loss();
            assert!(sent.is_empty());
        }
    }

    #[test]
    fn a_lost_train_is_remembered_for_four_thresholds() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(1_000), 4);
        bundle(&mut sent, Instant(1_000), 8);
        sent.acknowledge(&[(4, 11)], |_| {}).unwrap();
        assert_eq!(sent.detect(Instant(1_100), Duration(100), |_| {}), (4, Instant::NEVER));
        for (at, trains) in [(1_399, 2), (1_400, 0)] {
            assert_eq!(
                sent.detect(Instant(at), Duration(100), |_| panic!("lost twice")),
                (0, Instant::NEVER)
            );
            assert_eq!(sent.trains.len(), trains);
        }
    }

    #[test]
    fn copies_are_made_once_of_what_was_sent_so_early_and_is_still_open() {
        let mut sent = Sent::default();
        (1..=3).for_each(|n| _ = bundle(&mut sent, Instant(n), 4));
        sent.acknowledge(&[(1, 2)], |_| {}).unwrap();
        let mut log = vec![];
        assert_eq!(sent.copy_older(Instant(2), |item| log.push(item)), 6);
        assert_eq!((numbers(&log), sent.inflight_bytes()), (vec![0, 3, 4, 5, 6, 7], 1_500 + 2 * 3_500));
        assert_eq!(sent.copy_older(Instant(2), |_| panic!("copied twice")), 0);
        log.clear();
        assert_eq!(sent.abandon(|item| log.push(item)), 10);
        assert_eq!((numbers(&log).len(), sent.inflight_bytes(), sent.is_empty()), (10, 0, true));
        assert_eq!(sent.abandon(|_| panic!("lost twice")), 0);
        let late = sent.acknowledge(&[(0, 11)], |_| {}).unwrap();
        assert_eq!((late.packets, late.spurious), (0, 10));
    }

    #[test]
    fn lists_are_used_again_and_few_are_kept() {
        let mut sent = Sent::default();
        (0..100).for_each(|_| sent.recycle(vec![(0, Item::Control { number: 1 })]));
        assert_eq!(sent.spare.len(), 64);
        let items = sent.items();
        assert!(items.is_empty() && items.capacity() > 0);
        assert_eq!(sent.spare.len(), 63);
    }

    #[test]
    fn what_was_sent_after_the_largest_acknowledged_is_not_lost_however_old() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(0), 10);
        bundle(&mut sent, Instant(0), 10);
        sent.acknowledge(&[(14, 14), (0, 9)], |_| {}).unwrap();
        let mut log = vec![];
        assert_eq!(sent.detect(Instant(1_000), Duration(100), |item| log.push(item)), (4, Instant::NEVER));
        assert_eq!(numbers(&log), [10, 11, 12, 13]);
    }

    #[test]
    fn time_that_the_driver_was_away_makes_nothing_older() {
        let mut sent = Sent::default();
        bundle(&mut sent, Instant(1_000), 4);
        sent.acknowledge(&[(2, 2)], |_| {}).unwrap();
        sent.shift(Duration(500));
        assert_eq!(sent.last_sent_at(), Instant(1_500));
        assert_eq!(sent.detect(Instant(1_599), Duration(100), |_| {}), (0, Instant(1_600)));
        assert_eq!(sent.detect(Instant(1_600), Duration(100), |_| {}), (2, Instant::NEVER));
    }
}
