//! A ring of 128-byte slots from one producer to one consumer, in which each slot says itself that it is full.
//!
//! Where an index beside the entries shows what is full, as in [`crate::ring`], a consumer that waits fetches two cache
//! lines for each message, one after the other: that of the index and that of the entry. Here the first word of a slot is
//! its stamp, and what the consumer waits for brings the message along. A slot is two lines that lie in one pair, which
//! processors fetch together: up to [`LINE_BODY_BYTES`] bytes take one line, up to [`BODY_BYTES`] both.
//!
//! ```text
//! word 0  stamp: low 32 bits of the entry's number, counted from 1 | note (32 bits)
//! word 1  meta
//! word 2  body
//! ```
//!
//! What was in a slot a lap ago has the stamp of a lap ago, so nothing is wiped. The consumer says how far it is on a line
//! of its own, seldom: when it finds nothing more, and each quarter of a lap. The producer looks there only when the ring
//! seems full.
//!
//! Nothing that the other side writes is trusted: numbers of slots are masked, a head that cannot be is noted and not
//! believed, and a stamp that is not the next one is nothing. Note, meta and body are the producer's claims, each copied
//! once.
//!
//! Two acquire/release pairs hold it together, named at both ends: `slot.stamp` (a slot is whole before it is seen) and
//! `slot.head` (a slot has been copied before it is filled again).

use std::sync::Arc;

use crate::ring::{Corrupt, ENTRIES_MAX, Full, believe};
use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::cpu_relax;
use crate::words::Words;

/// Bytes of one slot.
pub const SLOT_BYTES: u64 = 128;

/// Bytes of a message that a slot takes.
pub const BODY_BYTES: usize = 112;

/// Bytes of a message that its first line takes.
pub const LINE_BODY_BYTES: usize = 48;

/// The consumer's head has a pair of lines of its own before the slots.
const HEAD: usize = 0;
const SLOTS: usize = 16;
const SLOT_WORDS: usize = SLOT_BYTES as usize / 8;
const META: usize = 1;
const BODY: usize = 2;
const SECOND: usize = 8;

/// A consumer that has caught up with a stream waits for this many turns of a spin loop at most before it looks again, one
/// less than it has just taken messages: at the producer's heels it would take each line away while that one writes it.
const SLIP_MAX: u32 = 16;

/// What a message says of itself beside its bytes: both are the upper layer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// 32 bits for what the message is.
    pub note: u32,
    /// 64 bits more.
    pub meta: u64,
}

/// Bytes that a ring of `slots` slots takes in a segment.
pub const fn slot_ring_bytes(slots: u32) -> u64 {
    (SLOTS * 8) as u64 + slots as u64 * SLOT_BYTES
}

/// The filling end.
#[derive(Debug)]
pub struct SlotProducer {
    words: Words,
    mask: u64,
    /// Number of the next entry, from 0 on.
    tail: u64,
    head_cached: u64,
    corrupt: Option<Corrupt>,
}

impl SlotProducer {
    /// The filling end of the fresh ring at `offset` (a multiple of 128); `None` when it does not fit in the segment or
    /// `slots` is not a power of two from 2 to [`ENTRIES_MAX`]. One ring has one producer.
    pub fn new(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<SlotProducer> {
        let words = ring_words(segment, offset, slots)?;
        Some(SlotProducer { words, mask: u64::from(slots) - 1, tail: 0, head_cached: 0, corrupt: None })
    }

    /// Puts a message in, and shows it to the consumer: ring its doorbell afterwards. The body is cut at [`BODY_BYTES`].
    #[inline]
    pub fn push(&mut self, label: Label, body: &[u8]) -> Result<(), Full> {
        if self.used() > self.mask {
            self.refresh();
            if self.used() > self.mask {
                return Err(Full);
            }
        }
        let slot = slot_index(self.tail, self.mask);
        self.tail += 1;
        self.words.at(slot + META).store(label.meta, Relaxed);
        self.words.write_bytes(slot + BODY, &body[..body.len().min(BODY_BYTES)]);
        // Release of `slot.stamp`: all of the slot is written before its stamp.
        self.words.at(slot).store(stamp(self.tail) | u64::from(label.note), Release);
        Ok(())
    }

    /// Entries put in so far.
    pub fn pushed(&self) -> u64 {
        self.tail
    }

    /// Entries that the consumer is known to have taken: looks at its line.
    pub fn taken(&mut self) -> u64 {
        self.refresh();
        self.head_cached
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

    /// The impossible head that the consumer wrote, if it ever did. The ring then counts as full where it stood.
    pub fn health(&self) -> Result<(), Corrupt> {
        self.corrupt.map_or(Ok(()), Err)
    }

    #[inline]
    fn used(&self) -> u64 {
        self.tail - self.head_cached
    }

    #[cold]
    fn refresh(&mut self) {
        // Acquire of `slot.head`: the consumer has copied the slots below it.
        let head = self.words.at(HEAD).load(Acquire);
        believe(head, self.tail, &mut self.head_cached, &mut self.corrupt);
    }
}

/// The draining end.
#[derive(Debug)]
pub struct SlotConsumer {
    words: Words,
    mask: u64,
    /// Number of the next entry, from 0 on.
    head: u64,
    head_told: u64,
    /// The last message took both lines of its slot.
    was_long: bool,
    /// Messages since there was none.
    run: u32,
}

impl SlotConsumer {
    /// The draining end of the fresh ring at `offset`, as for [`SlotProducer::new`]. One ring has one consumer.
    pub fn new(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<SlotConsumer> {
        let words = ring_words(segment, offset, slots)?;
        Some(SlotConsumer {
            words,
            mask: u64::from(slots) - 1,
            head: 0,
            head_told: 0,
            was_long: false,
            run: 0,
        })
    }

    /// What the next message says of itself; `None` when there is none now. Then the producer is told how far this end is.
    #[inline]
    pub fn peek(&mut self) -> Option<Label> {
        let slot = slot_index(self.head, self.mask);
        // Acquire of `slot.stamp`: what was written before the stamp is read after it.
        let word = self.words.at(slot).load(Acquire);
        if (word ^ stamp(self.head + 1)) >> 32 != 0 {
            self.find_nothing(slot);
            return None;
        }
        Some(Label { note: word as u32, meta: self.words.at(slot + META).load(Relaxed) })
    }

    /// There is no message in `slot` yet.
    #[inline]
    fn find_nothing(&mut self, slot: usize) {
        if self.was_long {
            // The next one is likely to be long too: its second line is to come along with the first, not after it.
            std::hint::black_box(self.words.at(slot + SECOND).load(Relaxed));
        }
        self.tell();
        for _ in 1..self.run.min(SLIP_MAX) {
            cpu_relax();
        }
        self.run = 0;
    }

    /// Copies the front of the body of the message that [`SlotConsumer::peek`] showed, at most [`BODY_BYTES`], once.
    #[inline]
    pub fn read_body(&mut self, into: &mut [u8]) {
        let len = into.len().min(BODY_BYTES);
        self.was_long = len > LINE_BODY_BYTES;
        self.words.read_bytes(slot_index(self.head, self.mask) + BODY, &mut into[..len]);
    }

    /// Is done with the message that [`SlotConsumer::peek`] showed.
    #[inline]
    pub fn advance(&mut self) {
        self.head += 1;
        self.run = self.run.saturating_add(1);
        if self.head - self.head_told > self.mask / 4 {
            self.tell();
        }
    }

    /// Tells the producer how far this end is.
    #[inline]
    pub fn tell(&mut self) {
        if self.head != self.head_told {
            // Release of `slot.head`: the slots have been copied before they are given back.
            self.words.at(HEAD).store(self.head, Release);
            self.head_told = self.head;
        }
    }

    /// Entries taken so far.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }
}

/// The stamp of entry `number`, counted from 1, in its place in the word.
#[inline]
fn stamp(number: u64) -> u64 {
    number << 32
}

fn ring_words(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<Words> {
    if !slots.is_power_of_two() || !(2..=ENTRIES_MAX).contains(&slots) || !offset.is_multiple_of(SLOT_BYTES) {
        return None;
    }
    Words::new(segment, offset, usize::try_from(slot_ring_bytes(slots)).ok()? / 8)
}

#[inline]
fn slot_index(number: u64, mask: u64) -> usize {
    SLOTS + (number & mask) as usize * SLOT_WORDS
}
