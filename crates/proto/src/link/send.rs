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

/// What an extent is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// A transfer, by its sender's name.
    Transfer(u32),
    /// An eager message: index of its flow, and its number.
    Message(u32, u64),
}

/// A contiguous extent of one message, cut evenly over the packets of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Of what.
    pub of: Whole,
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
    /// Its bytes `start..end`.
    fn item(&self, start: u64, end: u64) -> Item {
        let len = (end - start) as u32;
        match self.of {
            Whole::Transfer(token) => Item::Extent { token, offset: start, len },
            Whole::Message(flow, seq) => Item::Fragment { flow, seq, offset: start as u32, len },
        }
    }

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
    /// How long it is expected to take.
    expected: Duration,
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
        (count_of(packets) - last) * self.packet_bytes as u64 + last * self.last_bytes as u64
    }
    /// Calls `each` for everything that the packets of `mask` carried.
    /// Hands out copies of what is unacknowledged; how many packets, `None` if that is nothing or was done before.
    fn copy(&mut self, each: &mut impl FnMut(Item)) -> Option<u64> {
        let open = self.open();
        if open == 0 || self.copied {
            return None;
        }
        self.copied = true;
        self.visit(open, each);
        Some(open.count_ones() as u64)
    }

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
                each(extent.item(start, end));
            }
            rest = if from + run >= 64 { 0 } else { rest >> (from + run) << (from + run) };
        }
    }
}

/// How many packets `packets` names. Most trains have one, and not every processor counts bits in one step.
#[inline]
fn count_of(packets: u64) -> u64 {
    if packets <= 1 { packets } else { count_many(packets) }
}

#[inline(never)]
fn count_many(packets: u64) -> u64 {
    packets.count_ones() as u64
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
    /// How long it is expected to take, where another link could help.
    pub expected: Duration,
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
    /// When the oldest packet newly acknowledged was sent.
    pub oldest_sent_at: Option<Instant>,
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

    /// When the oldest packet that waits for acknowledgement was sent.
    pub fn oldest_sent_at(&self) -> Option<Instant> {
        self.trains.iter().find(|train| train.open() != 0).map(|train| train.sent_at)
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
    #[inline]
    pub fn push(&mut self, now: Instant, train: NewTrain) -> u64 {
        assert!((1..=limits::TRAIN_PACKETS_MAX as u8).contains(&train.count));
        let first = self.next;
        let entry = SentTrain {
            first,
            count: train.count,
            packet_bytes: train.packet_bytes,
            last_bytes: train.last_bytes,
            sent_at: now,
            expected: train.expected,
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
        let is_below = |train: &SentTrain| train.first + train.count as u64 <= low;
        // Nearly always it is about the oldest.
        let mut at =
            if self.trains.front().is_some_and(is_below) { self.trains.partition_point(is_below) } else { 0 };
        let fresh_largest = self.largest_acked.is_none_or(|l| high > l);
        while let Some(train) = self.trains.get_mut(at) {
            if train.first > high {
                break;
            }
            at += 1;
            let from = low.max(train.first) - train.first;
            let to = (high - train.first).min(train.count as u64 - 1);
            let range = (u64::MAX >> (63 - (to - from))) << from;
            let fresh = range & !train.acked;
            if fresh == 0 {
                continue;
            }
            let late = fresh & train.lost;
            let open = fresh & !train.lost;
            let (open_bytes, open_packets) = (train.bytes_of(open), count_of(open));
            train.acked |= fresh;
            train.lost &= !fresh;
            told.bytes += open_bytes;
            told.packets += open_packets;
            told.spurious += count_of(late);
            told.largest_is_new |= fresh_largest && train.first + to == high;
            let oldest = told.oldest_sent_at.unwrap_or(train.sent_at);
            told.oldest_sent_at = Some(oldest.min(train.sent_at));
            self.inflight_bytes -= open_bytes;
            self.inflight_packets -= open_packets;
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
    /// links to carry too. The originals stay in flight. How many packets that were.
    pub fn copy_older(&mut self, before: Instant, mut each: impl FnMut(Item)) -> u64 {
        let old = self.trains.iter_mut().take_while(|train| train.sent_at <= before);
        old.filter_map(|train| train.copy(&mut each)).sum()
    }

    /// The same of the oldest such train alone; 0 if there is none.
    pub fn copy_oldest(&mut self, before: Instant, mut each: impl FnMut(Item)) -> u64 {
        let mut old = self.trains.iter_mut().take_while(|train| train.sent_at <= before);
        old.find_map(|train| train.copy(&mut each)).unwrap_or(0)
    }

    /// When the oldest train was sent of which something is unacknowledged and that was not copied, and how long it was
    /// expected to take; `None` if there is none.
    pub fn oldest_uncopied(&self) -> Option<(Instant, Duration)> {
        let open = self.trains.iter().find(|train| train.open() != 0 && !train.copied);
        open.map(|train| (train.sent_at, train.expected))
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
mod tests;
