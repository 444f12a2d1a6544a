//! A row of 64-bit words of a segment, reached only as atomics.
//!
//! Rings and counters are written against this type, so that they hold no unsafe code and run on loom's atomics as well
//! as on shared memory. Because entries too are moved word by word with relaxed atomics, a peer that writes where it
//! must not gives us wrong values but never undefined behaviour.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::segment::Segment;
use crate::sync::AtomicU64;

/// Words of one cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// A row of words; keeps its segment mapped.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    first: NonNull<AtomicU64>,
    count: usize,
    segment: Arc<Segment>,
}

// SAFETY: it is a shared reference to atomics in memory that `segment` keeps alive; both may be used by any thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// The `count` words at byte `offset`; `None` when they are not wholly inside the segment or not aligned.
    pub(crate) fn new(segment: &Arc<Segment>, offset: u64, count: usize) -> Option<Words> {
        let first = segment.word_pointer(offset, count)?;
        Some(Words { first, count, segment: Arc::clone(segment) })
    }

    /// All words.
    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU64] {
        // SAFETY: `new` asked the segment for exactly this row, and the segment lives as long as `self`. Zeroed or
        // foreign bytes are valid atomics.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// Word `index`; panics beyond the end, so an index that came from the other side is bounded before.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
        &self.all()[index]
    }

    /// The eight words that start at word `index`; panics beyond the end.
    #[inline]
    pub(crate) fn line(&self, index: usize) -> &[AtomicU64; LINE_WORDS] {
        self.all()[index..].first_chunk().expect("a line inside the row")
    }

    /// Sleeps while word `index` equals `expected`; may wake early.
    pub(crate) fn futex_wait(&self, index: usize, expected: u32, timeout: Option<Duration>) {
        self.segment.futex_wait(self.at(index), expected, timeout);
    }

    /// Wakes who sleeps on word `index`.
    pub(crate) fn futex_wake(&self, index: usize) {
        self.segment.futex_wake(self.at(index));
    }
}
