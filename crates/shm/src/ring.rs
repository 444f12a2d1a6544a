//! A ring of 64-byte entries from one producer to one consumer.
//!
//! The two indices lie on cache lines of their own, 128 bytes apart because processors fetch lines in pairs. Each side
//! keeps its own index privately and a cached copy of the other's, so in a running stream a line is fetched once per
//! lap or batch and not once per entry. Indices count entries since the beginning and do not wrap in practice (2^64).
//!
//! Nothing that the other side writes is trusted. An index that is impossible is not followed: the consumer stops and
//! says [`Corrupt`]; the producer sees a full ring. Slots are reached by masked indices, so no value leads outside.
//!
//! Two acquire/release pairs hold it together, named at both ends: `ring.tail` (an entry is whole before it is seen) and
//! `ring.head` (an entry has been copied before its slot is filled again).

use std::fmt;
use std::sync::Arc;

use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::words::{LINE_WORDS, Words};

/// What travels in a ring: one cache line.
pub type Entry = [u64; LINE_WORDS];

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = size_of::<Entry>();

/// Most entries a ring may have.
pub const ENTRIES_MAX: u32 = 1 << 24;

const HEAD: usize = 0;
const TAIL: usize = 16;
const SLOTS: usize = 32;

/// The ring has no free slot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ring is full")
    }
}

impl std::error::Error for Full {}

/// The other side wrote an index that cannot be: the ring is not followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Index of the entry that would have come next.
    pub expected: u64,
    /// The index that the other side wrote.
    pub found: u64,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ring index {} is impossible at entry {}", self.found, self.expected)
    }
}

impl std::error::Error for Corrupt {}

/// Bytes that a ring of `entries` entries takes in a segment.
pub const fn ring_bytes(entries: u32) -> u64 {
    (SLOTS * 8) as u64 + entries as u64 * ENTRY_BYTES as u64
}

/// The filling end of a ring.
#[derive(Debug)]
pub struct Producer {
    words: Words,
    mask: u64,
    /// Next slot to fill, also beyond what is published.
    tail: u64,
    /// What the consumer has been shown.
    tail_published: u64,
    head_cached: u64,
    corrupt: Option<Corrupt>,
}

impl Producer {
    /// The filling end of the ring at `offset` (a multiple of 64); `None` when it does not fit in the segment or
    /// `entries` is not a power of two from 2 to [`ENTRIES_MAX`]. One ring has one producer.
    pub fn new(segment: &Arc<Segment>, offset: u64, entries: u32) -> Option<Producer> {
        let words = ring_words(segment, offset, entries)?;
        let tail = words.at(TAIL).load(Relaxed);
        let mask = u64::from(entries) - 1;
        let mut producer =
            Producer { words, mask, tail, tail_published: tail, head_cached: tail, corrupt: None };
        producer.head_cached = tail.wrapping_sub(u64::from(entries));
        producer.refresh();
        Some(producer)
    }

    /// Puts one entry into the ring and shows it to the consumer.
    #[inline]
    pub fn push(&mut self, entry: &Entry) -> Result<(), Full> {
        self.stage(entry)?;
        self.publish();
        Ok(())
    }

    /// Puts one entry into the ring without showing it yet: several staged entries cost one [`Producer::publish`].
    #[inline]
    pub fn stage(&mut self, entry: &Entry) -> Result<(), Full> {
        if self.used() > self.mask {
            self.refresh();
            if self.used() > self.mask {
                return Err(Full);
            }
        }
        self.words.write_line(slot_index(self.tail, self.mask), entry);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Shows all staged entries to the consumer. Ring its doorbell afterwards.
    #[inline]
    pub fn publish(&mut self) {
        if self.tail != self.tail_published {
            // Release of `ring.tail`: the entries are whole before the index that shows them.
            self.words.at(TAIL).store(self.tail, Release);
            self.tail_published = self.tail;
        }
    }

    /// Entries shown to the consumer so far, as a count that wraps around.
    #[inline]
    pub fn published(&self) -> u64 {
        self.tail_published
    }

    /// Free slots now; the consumer can only make it more.
    pub fn free(&mut self) -> usize {
        self.refresh();
        self.capacity() - self.used() as usize
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// The impossible index that the consumer wrote, if it ever did. The ring then counts as full where it stood.
    pub fn health(&self) -> Result<(), Corrupt> {
        self.corrupt.map_or(Ok(()), Err)
    }

    #[inline]
    fn used(&self) -> u64 {
        self.tail.wrapping_sub(self.head_cached)
    }

    /// Learns how far the consumer is. A head outside the entries under way is noted and not believed.
    fn refresh(&mut self) {
        // Acquire of `ring.head`: the consumer has copied the entries below it.
        let head = self.words.at(HEAD).load(Acquire);
        believe(head, self.tail_published, &mut self.head_cached, &mut self.corrupt);
    }
}

/// Takes in what the consumer says of its head, if entries up to `tail` are under way beyond `known`; else notes that it cannot be.
#[inline]
pub(crate) fn believe(head: u64, tail: u64, known: &mut u64, corrupt: &mut Option<Corrupt>) {
    if head.wrapping_sub(*known) <= tail.wrapping_sub(*known) {
        *known = head;
    } else {
        corrupt.get_or_insert(Corrupt { expected: *known, found: head });
    }
}

/// The draining end of a ring.
#[derive(Debug)]
pub struct Consumer {
    words: Words,
    mask: u64,
    /// Next entry to copy, also beyond what is committed.
    head: u64,
    /// What the producer has been told.
    head_committed: u64,
    tail_cached: u64,
    corrupt: Option<Corrupt>,
}

impl Consumer {
    /// The draining end of the ring at `offset` (a multiple of 64); `None` when it does not fit in the segment or
    /// `entries` is not a power of two from 2 to [`ENTRIES_MAX`]. One ring has one consumer.
    pub fn new(segment: &Arc<Segment>, offset: u64, entries: u32) -> Option<Consumer> {
        let words = ring_words(segment, offset, entries)?;
        let head = words.at(HEAD).load(Relaxed);
        let mask = u64::from(entries) - 1;
        Some(Consumer { words, mask, head, head_committed: head, tail_cached: head, corrupt: None })
    }

    /// Takes the next entry and frees its slot. For many entries [`Consumer::pop_batch`] or [`Consumer::take`] with one
    /// [`Consumer::commit`] costs less: each freed slot here is a store to a line that the producer reads.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        let entry = self.take()?;
        self.commit();
        Some(entry)
    }

    /// Takes the next entry; its slot stays occupied until [`Consumer::commit`].
    #[inline]
    pub fn take(&mut self) -> Option<Entry> {
        let entry = self.peek()?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Frees the slots of all entries taken so far.
    #[inline]
    pub fn commit(&mut self) {
        if self.head != self.head_committed {
            // Release of `ring.head`: the entries have been copied before their slots are given back.
            self.words.at(HEAD).store(self.head, Release);
            self.head_committed = self.head;
        }
    }

    /// Whether the slots of all entries taken so far are free.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.head == self.head_committed
    }

    /// Takes up to `entries_max` entries, hands each to `each`, and frees all their slots with one store.
    /// Gives how many there were.
    #[inline]
    pub fn pop_batch(&mut self, entries_max: usize, mut each: impl FnMut(Entry)) -> usize {
        let mut taken = 0;
        while taken < entries_max {
            let Some(entry) = self.take() else { break };
            each(entry);
            taken += 1;
        }
        self.commit();
        taken
    }

    /// A copy of the next entry, which stays in the ring. Against a hostile producer the copy is what counts: a second
    /// look may show another entry.
    #[inline]
    pub fn peek(&mut self) -> Option<Entry> {
        if self.head == self.tail_cached && !self.refresh() {
            return None;
        }
        Some(self.words.read_line(slot_index(self.head, self.mask)))
    }

    /// Drops the next entry, which [`Consumer::peek`] showed, and frees its slot; does nothing when there is none.
    #[inline]
    pub fn advance(&mut self) {
        if self.head != self.tail_cached || self.refresh() {
            self.head = self.head.wrapping_add(1);
            self.commit();
        }
    }

    /// Whether there is no entry to take now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.tail_cached && !self.refresh()
    }

    /// Entries that can be taken now; the producer can only make it more.
    pub fn len(&mut self) -> usize {
        self.refresh();
        self.tail_cached.wrapping_sub(self.head) as usize
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// The impossible index that the producer wrote, if it ever did. No entry after it is taken.
    pub fn health(&self) -> Result<(), Corrupt> {
        self.corrupt.map_or(Ok(()), Err)
    }

    /// Learns how far the producer is, and says whether there is an entry. A tail that goes back or runs more than the
    /// capacity ahead of the slots given back is noted and nothing is read any more.
    fn refresh(&mut self) -> bool {
        // Acquire of `ring.tail`: the entries below it are whole.
        let tail = self.words.at(TAIL).load(Acquire);
        if tail == self.tail_cached {
            return self.head != tail;
        }
        let room = self.mask + 1 - self.tail_cached.wrapping_sub(self.head_committed);
        if self.corrupt.is_none() && tail.wrapping_sub(self.tail_cached) <= room {
            self.tail_cached = tail;
        } else {
            self.corrupt.get_or_insert(Corrupt { expected: self.head, found: tail });
            self.tail_cached = self.head;
        }
        self.head != self.tail_cached
    }
}

fn ring_words(segment: &Arc<Segment>, offset: u64, entries: u32) -> Option<Words> {
    if !entries.is_power_of_two()
        || !(2..=ENTRIES_MAX).contains(&entries)
        || !offset.is_multiple_of(ENTRY_BYTES as u64)
    {
        return None;
    }
    Words::new(segment, offset, usize::try_from(ring_bytes(entries)).ok()? / 8)
}

#[inline]
fn slot_index(index: u64, mask: u64) -> usize {
    SLOTS + (index & mask) as usize * LINE_WORDS
}
