//! The segment as loom sees it: a row of loom's atomics, and one lock that stands for the kernel's futex table.
//!
//! Bytes are not modelled; a model watches them through a `loom::cell::UnsafeCell` of its own.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Unit in which segments are sized and laid out.
pub const PAGE_BYTES: usize = 4096;

/// A row of modelled words.
#[derive(Debug)]
pub struct Segment {
    words: Vec<AtomicU64>,
    futex_lock: loom::sync::Mutex<()>,
    futex_queue: loom::sync::Condvar,
}

impl Segment {
    /// Words for `len` bytes.
    pub fn private(len: usize) -> io::Result<Arc<Segment>> {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(Segment {
            words,
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

    /// Compares and sleeps under the lock, as the kernel does under the lock of its hash bucket.
    pub(crate) fn futex_wait(&self, word: &AtomicU64, expected: u32, timeout: Option<Duration>) {
        assert!(timeout.is_none(), "a model has no time");
        let guard = self.futex_lock.lock().unwrap();
        if word.load(Ordering::Relaxed) as u32 == expected {
            drop(self.futex_queue.wait(guard).unwrap());
        }
    }

    /// Wakes all sleepers under the lock.
    pub(crate) fn futex_wake(&self, _word: &AtomicU64) {
        let _guard = self.futex_lock.lock().unwrap();
        self.futex_queue.notify_all();
    }
}
