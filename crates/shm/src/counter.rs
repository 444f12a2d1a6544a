//! Words of the control page: counters and states that one side writes and the other reads.

use std::sync::Arc;

use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::words::Words;

/// The writing side's end of a word. It knows its own value privately: what a hostile reader scribbles over the shared
/// copy is neither believed nor counted on.
#[derive(Debug)]
pub struct Word {
    words: Words,
    value: u64,
}

impl Word {
    /// The word at `offset` (a multiple of 8), which no one else writes; `None` when it is not inside the segment.
    pub fn new(segment: &Arc<Segment>, offset: u64) -> Option<Word> {
        let words = Words::new(segment, offset, 1)?;
        let value = words.at(0).load(Relaxed);
        Some(Word { words, value })
    }

    /// The value last written by this side.
    #[inline]
    pub fn load(&self) -> u64 {
        self.value
    }

    /// Writes `value`; what was written before it is visible to a reader who sees it.
    #[inline]
    pub fn store(&mut self, value: u64) {
        self.value = value;
        // Release of `word`.
        self.words.at(0).store(value, Release);
    }

    /// Adds `amount`, wrapping, and gives the new value.
    #[inline]
    pub fn add(&mut self, amount: u64) -> u64 {
        self.store(self.value.wrapping_add(amount));
        self.value
    }
}

/// The reading side's end of a word. The value is the other side's claim.
#[derive(Clone, Debug)]
pub struct WordView {
    words: Words,
}

impl WordView {
    /// The word at `offset` (a multiple of 8); `None` when it is not inside the segment.
    pub fn new(segment: &Arc<Segment>, offset: u64) -> Option<WordView> {
        Some(WordView { words: Words::new(segment, offset, 1)? })
    }

    /// The value now.
    #[inline]
    pub fn load(&self) -> u64 {
        // Acquire of `word`.
        self.words.at(0).load(Acquire)
    }
}
