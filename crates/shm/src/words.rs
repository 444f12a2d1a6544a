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
#[cfg(not(loom))]
use crate::sync::Ordering::Relaxed;

/// Words of one cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// The words of one cache line, copied out.
pub(crate) type Line = [u64; LINE_WORDS];

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

    /// A copy of the eight words that start at word `index`; panics beyond the end.
    #[inline]
    #[cfg(not(loom))]
    pub(crate) fn read_line(&self, index: usize) -> Line {
        let words: &[AtomicU64; LINE_WORDS] =
            self.all()[index..].first_chunk().expect("a line inside the row");
        std::array::from_fn(|i| words[i].load(Relaxed))
    }

    /// Writes the eight words that start at word `index`; panics beyond the end.
    #[inline]
    #[cfg(not(loom))]
    pub(crate) fn write_line(&self, index: usize, line: &Line) {
        let words: &[AtomicU64; LINE_WORDS] =
            self.all()[index..].first_chunk().expect("a line inside the row");
        for (word, value) in words.iter().zip(line) {
            word.store(*value, Relaxed);
        }
    }

    /// Fills `into` from word `index` on; panics beyond the end.
    #[inline]
    #[cfg(not(loom))]
    pub(crate) fn read_bytes(&self, index: usize, into: &mut [u8]) {
        let words = &self.all()[index..index + into.len().div_ceil(8)];
        let (whole, rest) = into.as_chunks_mut::<8>();
        let (first, last) = words.split_at(whole.len());
        // By lines of eight words first, of which nothing has to be counted.
        let ((lines, words), (into, rest_of_lines)) =
            (first.as_chunks::<LINE_WORDS>(), whole.as_chunks_mut::<LINE_WORDS>());
        for (bytes, line) in into.iter_mut().zip(lines) {
            for (bytes, word) in bytes.iter_mut().zip(line) {
                *bytes = word.load(Relaxed).to_ne_bytes();
            }
        }
        for (bytes, word) in rest_of_lines.iter_mut().zip(words) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        if let Some(word) = last.first() {
            rest.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..rest.len()]);
        }
    }

    /// Writes `bytes` from word `index` on, the last word filled up with zeros; panics beyond the end.
    #[inline(always)]
    #[cfg(not(loom))]
    pub(crate) fn write_bytes(&self, index: usize, bytes: &[u8]) {
        let words = &self.all()[index..index + bytes.len().div_ceil(8)];
        let (whole, rest) = bytes.as_chunks::<8>();
        let (first, last) = words.split_at(whole.len());
        // By lines first, as in `read_bytes`.
        let ((lines, words), (from, rest_of_lines)) =
            (first.as_chunks::<LINE_WORDS>(), whole.as_chunks::<LINE_WORDS>());
        for (line, bytes) in lines.iter().zip(from) {
            for (word, bytes) in line.iter().zip(bytes) {
                word.store(u64::from_ne_bytes(*bytes), Relaxed);
            }
        }
        for (word, bytes) in words.iter().zip(rest_of_lines) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if let Some(word) = last.first() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(bytes), Relaxed);
        }
    }

    /// In a model a line is no atomic at all: loom reports any read or write that is not ordered with the others.
    #[cfg(loom)]
    pub(crate) fn read_line(&self, index: usize) -> Line {
        self.segment.read_line(self.at(index))
    }

    /// See the model's `read_line`.
    #[cfg(loom)]
    pub(crate) fn write_line(&self, index: usize, line: &Line) {
        self.segment.write_line(self.at(index), line);
    }

    /// Bytes of up to one word stand for those of a whole line, see the model's `read_line`.
    #[cfg(loom)]
    pub(crate) fn read_bytes(&self, index: usize, into: &mut [u8]) {
        let line = self.segment.read_line(self.at(index));
        into.copy_from_slice(&line[0].to_ne_bytes()[..into.len()]);
    }

    /// See the model's `read_bytes`.
    #[cfg(loom)]
    pub(crate) fn write_bytes(&self, index: usize, bytes: &[u8]) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.segment.write_line(self.at(index), &[u64::from_ne_bytes(word); LINE_WORDS]);
    }

    /// Sleeps while word `index` equals `expected`; may wake early. Whether the time is over.
    pub(crate) fn futex_wait(&self, index: usize, expected: u32, timeout: Option<Duration>) -> bool {
        self.segment.futex_wait(self.at(index), expected, timeout)
    }

    /// Wakes who sleeps on word `index`.
    pub(crate) fn futex_wake(&self, index: usize) {
        self.segment.futex_wake(self.at(index));
    }
}
