//! A ring of 128-byte slots from one producer to one consumer, in which each slot says itself that it is full.
//!
//! Where an index beside the entries shows what is full, as in [`crate::ring`], a consumer that waits fetches two cache
//! lines for each message, one after the other: that of the index and that of the entry. Here the first word of a slot is
//! its stamp, and what the consumer waits for brings the message along. A slot is two lines that lie in one pair, which
//! processors fetch together: up to [`LINE_BODY_BYTES`] bytes take one line, up to [`BODY_BYTES`] both.
//!
//! ```text
//! word 0  stamp: low 31 bits of the entry's number, counted from 1 | 1 bit: the next one is in the first slot | note (32 bits)
//! word 1  meta
//! word 2  body
//! ```
//!
//! How far a lap goes is the producer's choice. A stream goes by the whole ring, which is to be larger than the cache that is the
//! consumer's own: lines that have left it come to the producer without asking that core, and several at a time. Messages that
//! are waited for go by its front, whose lines are near. (Example `slot_rate` has figures for rings and laps of any length.)
//!
//! What was in a slot a lap ago has the stamp of a lap ago, so nothing is wiped; only where a lap goes further than the one before is
//! the next slot looked at, for what lies there could be as old as numbers go round. The consumer says how far it is on a line
//! of its own, seldom: when it finds nothing more, and each quarter of the ring. The producer looks there only when the ring
//! seems full, or a lap could end.
//!
//! Nothing that the other side writes is trusted: each end knows by itself where it is, a head that cannot be is noted and not
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

/// Slots of a lap at least: with fewer, so many fewer messages would find room.
const LAP_SLOTS_MIN: usize = 1_024;

/// So many messages with nothing else between them are a stream.
const STREAM_MESSAGES: u64 = 8;

/// In a stamp's word: the next message is in the first slot.
const BACK: u64 = 1 << 32;
const NUMBER_AT: u32 = 33;

/// A consumer that has caught up with a stream waits for this many turns of a spin loop at most before it looks again, one
/// less than it has just taken messages: at the producer's heels it would take each line away while that one writes it.
const SLIP_MAX: u64 = 16;

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
    slots: usize,
    /// Slots of a lap at least, a power of two, less one.
    lap_mask: usize,
    /// Number of the next entry, from 0 on, and its slot.
    tail: u64,
    place: usize,
    /// Entries below this number are put in without a look at anything else: there is room, and no lap may end there.
    plain_until: u64,
    /// Number of the entry in the first slot: of this lap, and of the one before, with the slots of that one.
    lap_first: u64,
    before: (u64, usize),
    head_cached: u64,
    corrupt: Option<Corrupt>,
    /// Number of the first entry since the producer did something else.
    run_from: u64,
    /// There was a stream in this lap.
    streams: bool,
}

impl SlotProducer {
    /// The filling end of the fresh ring at `offset` (a multiple of 128); `None` when it does not fit in the segment or
    /// `slots` is not a power of two from 2 to [`ENTRIES_MAX`]. One ring has one producer.
    pub fn new(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<SlotProducer> {
        let words = ring_words(segment, offset, slots)?;
        Some(SlotProducer {
            words,
            slots: slots as usize,
            lap_mask: LAP_SLOTS_MIN - 1,
            tail: 0,
            place: 0,
            plain_until: 0,
            lap_first: 0,
            before: (0, 0),
            head_cached: 0,
            corrupt: None,
            run_from: 0,
            streams: false,
        })
    }

    /// Has laps go so many slots at least, a power of two, 1,024 if nothing else is said: so many messages find room in any case, if the
    /// ring has as many slots.
    pub fn set_lap_min(&mut self, slots: u32) {
        self.lap_mask = slots.next_power_of_two() as usize - 1;
        self.look_ahead();
    }

    /// Puts a message in, and shows it to the consumer: ring its doorbell afterwards. The body is cut at [`BODY_BYTES`].
    #[inline]
    pub fn push(&mut self, label: Label, body: &[u8]) -> Result<(), Full> {
        self.push_behind(label, None, body)
    }

    /// The same with a word before the body, which is that much shorter then.
    #[inline(always)]
    pub fn push_behind(&mut self, label: Label, front: Option<u64>, body: &[u8]) -> Result<(), Full> {
        if self.tail >= self.plain_until && !self.has_room() {
            return Err(Full);
        }
        let slot = slot_index(self.place);
        self.words.at(slot + META).store(label.meta, Relaxed);
        match front {
            Some(front) => {
                self.words.at(slot + BODY).store(front, Relaxed);
                self.words.write_bytes(slot + BODY + 1, &body[..body.len().min(BODY_BYTES - 8)]);
            }
            None => self.words.write_bytes(slot + BODY, &body[..body.len().min(BODY_BYTES)]),
        }
        let back = self.step();
        // Release of `slot.stamp`: all of the slot is written before its stamp.
        self.words.at(slot).store(stamp(self.tail) | back | u64::from(label.note), Release);
        Ok(())
    }

    /// The producer has done something else since it last put a message in, such as look for an answer: what follows is no stream.
    #[inline]
    pub fn rest(&mut self) {
        self.note_stream();
        self.run_from = self.tail;
    }

    #[inline]
    fn note_stream(&mut self) {
        self.streams |= self.tail - self.run_from > STREAM_MESSAGES;
    }

    /// Counts an entry, and finds the slot of the next: what the entry's stamp says of that.
    #[inline]
    fn step(&mut self) -> u64 {
        self.place += 1;
        self.tail += 1;
        if self.tail < self.plain_until { 0 } else { self.look_around() }
    }

    /// Does what there is to do in the slot of the next entry before that is seen: what the entry before it says.
    #[cold]
    fn look_around(&mut self) -> u64 {
        let is_plain = self.place & self.lap_mask != 0 && self.place < self.before.1;
        let back = if is_plain { 0 } else { self.turn() };
        self.look_ahead();
        back
    }

    /// Finds out how far it goes on without a look at anything.
    fn look_ahead(&mut self) {
        let (first, slots) = self.before;
        let taken = usize::try_from(self.head_cached.saturating_sub(first)).unwrap_or(usize::MAX);
        let end = ((self.place | self.lap_mask) + 1).min(slots).min(taken);
        self.plain_until = self.lap_first + end as u64;
    }

    /// The lap may end here, or goes further than the one before.
    fn turn(&mut self) -> u64 {
        self.note_stream();
        let next = self.place;
        let may_end = next & self.lap_mask == 0 && !self.streams;
        if next == self.slots || may_end && self.taken() == self.tail - 1 {
            (self.before, self.lap_first) = ((self.lap_first, next), self.tail);
            (self.place, self.streams) = (0, false);
            return BACK;
        }
        if next >= self.before.1 {
            self.clear_stamp(next);
        }
        0
    }

    /// Sees to it that what lies in a slot is not taken for the next entry: no lap has gone there lately.
    fn clear_stamp(&self, place: usize) {
        let word = self.words.at(slot_index(place));
        if is_stamp_of(word.load(Relaxed), self.tail + 1) {
            // Before the entry that leads there: the release of its stamp comes behind.
            word.store(stamp(self.tail), Relaxed);
        }
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

    /// Whether there is room for one more; the consumer can only make more.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.tail < self.plain_until || !self.is_blocked() || {
            self.refresh();
            !self.is_blocked()
        }
    }

    /// Whether the entry that was in the next slot a lap ago may be there still.
    #[inline]
    fn is_blocked(&self) -> bool {
        let (first, slots) = self.before;
        self.place < slots && self.head_cached <= first + self.place as u64
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.slots
    }

    /// The impossible head that the consumer wrote, if it ever did. The ring then counts as full where it stood.
    pub fn health(&self) -> Result<(), Corrupt> {
        self.corrupt.map_or(Ok(()), Err)
    }

    #[cold]
    fn refresh(&mut self) {
        // Acquire of `slot.head`: the consumer has copied the slots below it.
        let head = self.words.at(HEAD).load(Acquire);
        believe(head, self.tail, &mut self.head_cached, &mut self.corrupt);
        self.look_ahead();
    }
}

/// The draining end.
#[derive(Debug)]
pub struct SlotConsumer {
    words: Words,
    slots: usize,
    /// Number of the next entry, from 0 on, and its slot.
    head: u64,
    place: usize,
    /// The entry that was looked at is the last of its lap.
    is_last: bool,
    head_told: u64,
    /// The producer is told again once this end is so far.
    tell_at: u64,
    /// The last message took both lines of its slot.
    was_long: bool,
    /// Number of the first message since there was none.
    run_from: u64,
}

impl SlotConsumer {
    /// The draining end of the fresh ring at `offset`, as for [`SlotProducer::new`]. One ring has one consumer.
    pub fn new(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<SlotConsumer> {
        let words = ring_words(segment, offset, slots)?;
        Some(SlotConsumer {
            words,
            slots: slots as usize,
            head: 0,
            place: 0,
            is_last: false,
            head_told: 0,
            tell_at: u64::from(slots).div_ceil(4),
            was_long: false,
            run_from: 0,
        })
    }

    /// What the next message says of itself; `None` when there is none now. Then the producer is told how far this end is.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<Label> {
        let slot = slot_index(self.place);
        // Acquire of `slot.stamp`: what was written before the stamp is read after it.
        let word = self.words.at(slot).load(Acquire);
        if !is_stamp_of(word, self.head + 1) {
            self.find_nothing(slot);
            return None;
        }
        self.is_last = word & BACK != 0;
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
        for _ in 1..(self.head - self.run_from).min(SLIP_MAX) {
            cpu_relax();
        }
        self.run_from = self.head;
    }

    /// The word before the body of the message that [`SlotConsumer::peek`] showed, if it has one.
    #[inline]
    pub fn front(&self) -> u64 {
        self.words.at(slot_index(self.place) + BODY).load(Relaxed)
    }

    /// Copies the front of the body behind that word, once.
    #[inline]
    pub fn read_behind(&mut self, into: &mut [u8]) {
        let len = into.len().min(BODY_BYTES - 8);
        self.was_long = len + 8 > LINE_BODY_BYTES;
        self.words.read_bytes(slot_index(self.place) + BODY + 1, &mut into[..len]);
    }

    /// Copies the front of the body of the message that [`SlotConsumer::peek`] showed, at most [`BODY_BYTES`], once.
    #[inline]
    pub fn read_body(&mut self, into: &mut [u8]) {
        let len = into.len().min(BODY_BYTES);
        self.was_long = len > LINE_BODY_BYTES;
        self.words.read_bytes(slot_index(self.place) + BODY, &mut into[..len]);
    }

    /// Is done with the message that [`SlotConsumer::peek`] showed.
    #[inline]
    pub fn advance(&mut self) {
        self.head += 1;
        self.place += 1;
        if self.is_last || self.place == self.slots {
            self.place = 0;
        }
        if self.head == self.tell_at {
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
            self.tell_at = self.head + (self.slots as u64).div_ceil(4);
        }
    }

    /// Entries taken so far.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.slots
    }
}

/// The stamp of entry `number`, counted from 1, in its place in the word.
#[inline]
fn stamp(number: u64) -> u64 {
    number << NUMBER_AT
}

#[inline]
fn is_stamp_of(word: u64, number: u64) -> bool {
    (word ^ stamp(number)) >> NUMBER_AT == 0
}

fn ring_words(segment: &Arc<Segment>, offset: u64, slots: u32) -> Option<Words> {
    if !slots.is_power_of_two() || !(2..=ENTRIES_MAX).contains(&slots) || !offset.is_multiple_of(SLOT_BYTES) {
        return None;
    }
    Words::new(segment, offset, usize::try_from(slot_ring_bytes(slots)).ok()? / 8)
}

#[inline]
fn slot_index(place: usize) -> usize {
    SLOTS + place * SLOT_WORDS
}
