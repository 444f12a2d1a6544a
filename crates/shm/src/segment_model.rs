//! The segment as loom sees it: a row of loom's atomics, and one lock that stands for the kernel's futex table.
//!
//! Whole lines, that is ring entries, are kept in loom's cells beside the atomics: loom then reports each access to
//! them that no acquire/release pair orders. Bytes are not modelled.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;

use crate::sync::{AtomicU64, Ordering};
use crate::words::{LINE_WORDS, Line};

/// Unit in which segments are sized and laid out.
pub const PAGE_BYTES: usize = 4096;

/// A row of modelled words.
#[derive(Debug)]
pub struct Segment {
    words: Vec<AtomicU64>,
    lines: Vec<UnsafeCell<Line>>,
    futex_lock: loom::sync::Mutex<()>,
    futex_queue: loom::sync::Condvar,
}

// SAFETY: a model runs one thread at a time, and loom fails it when two accesses to a line could meet.
unsafe impl Sync for Segment {}

impl Segment {
    /// Words for `len` bytes.
    pub fn private(len: usize) -> io::Result<Arc<Segment>> {
        let count = len.div_ceil(8);
        Ok(Arc::new(Segment {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            lines: (0..count.div_ceil(LINE_WORDS)).map(|_| UnsafeCell::new(Line::default())).collect(),
            futex_lock: loom::sync::Mutex::new(()),
            futex_queue: loom::sync::Condvar::new(),
        }))
    }

    /// The first of `count` words at `offset`; `None` when they are not inside or not aligned.
    pub(crate) fn word_pointer(&self, offset: u64, count: usize) -> Option<NonNull<AtomicU64>> {
        let first = usize::try_from(offset / 8).ok()?;
        let row = self.words.get(first..first.checked_add(count)?)?;
        offset.is_multiple_of(8).then(|| NonNull::from(row).cast())
    }

    pub(crate) fn read_line(&self, first: &AtomicU64) -> Line {
        // SAFETY: the pointer is to a live cell, and loom checks that nobody writes it meanwhile.
        self.line_of(first).with(|line| unsafe { *line })
    }

    pub(crate) fn write_line(&self, first: &AtomicU64, value: &Line) {
        // SAFETY: the pointer is to a live cell, and loom checks that nobody uses it meanwhile.
        self.line_of(first).with_mut(|line| unsafe { *line = *value });
    }

    /// Compares and sleeps under the lock, as the kernel does under the lock of its hash bucket.
    pub(crate) fn futex_wait(&self, word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> bool {
        assert!(timeout.is_none(), "a model has no time");
        let guard = self.futex_lock.lock().unwrap();
        if word.load(Ordering::Relaxed) as u32 == expected {
            drop(self.futex_queue.wait(guard).unwrap());
        }
        false
    }

    /// Wakes all sleepers under the lock.
    pub(crate) fn futex_wake(&self, _word: &AtomicU64) {
        let _guard = self.futex_lock.lock().unwrap();
        self.futex_queue.notify_all();
    }

    fn line_of(&self, first: &AtomicU64) -> &UnsafeCell<Line> {
        let bytes = std::ptr::from_ref(first).addr() - self.words.as_ptr().addr();
        &self.lines[bytes / size_of::<AtomicU64>() / LINE_WORDS]
    }
}
