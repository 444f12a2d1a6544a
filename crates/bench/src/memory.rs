//! How much memory a process occupies, at its start, while it is blocked, and at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use polyrail_sys::process::resident_bytes;
use serde::{Deserialize, Serialize};

/// Resident memory of one process over one run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Once it was connected, before the first message; of transactions, after the first thousand.
    pub start_bytes: u64,
    /// The most until the receiver read on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_bytes_max: Option<u64>,
    /// The most over the whole run; of transactions, when it was reported, at the end if it came to one.
    pub bytes_max: u64,
}

/// After so many rounds everything has been used once that is used again by each.
const ROUNDS_UNTIL_START: u64 = 1_000;

/// The memory of a run of many equal rounds, looked at once they have begun and for each report, a few times a second:
/// a look takes as long as a round.
#[derive(Default)]
pub(crate) struct RoundsMemory {
    start_bytes: Option<u64>,
}

impl RoundsMemory {
    /// So many rounds are over.
    #[inline]
    pub(crate) fn note(&mut self, rounds: u64) {
        if rounds == ROUNDS_UNTIL_START {
            self.start_bytes = resident_bytes().ok();
        }
    }

    /// What has become of it; `None` before it began.
    pub(crate) fn report(&self) -> Option<MemoryUse> {
        let (start_bytes, bytes_max) = (self.start_bytes?, resident_bytes().ok()?);
        Some(MemoryUse { start_bytes, blocked_bytes_max: None, bytes_max })
    }
}

/// How often the memory is looked at.
const EVERY: Duration = Duration::from_millis(10);

/// A thread that looks at this process's resident memory every 10 ms.
pub(crate) struct MemoryWatch {
    start_bytes: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    bytes_max: AtomicU64,
}

impl MemoryWatch {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let thread = std::thread::spawn(move || {
            while !seen.ended.load(Ordering::Relaxed) {
                look(&seen);
                std::thread::sleep(EVERY);
            }
        });
        Self { start_bytes: resident_bytes().unwrap_or(0), shared, thread: Some(thread) }
    }

    /// The most so far, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        look(&self.shared);
        self.shared.bytes_max.load(Ordering::Relaxed)
    }

    /// The figures, with what [`MemoryWatch::bytes_max`] said when the blockade ended.
    pub(crate) fn report(&self, blocked_bytes_max: u64) -> MemoryUse {
        MemoryUse {
            start_bytes: self.start_bytes,
            blocked_bytes_max: Some(blocked_bytes_max),
            bytes_max: self.bytes_max(),
        }
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(shared: &Shared) {
    shared.bytes_max.fetch_max(resident_bytes().unwrap_or(0), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_touched_is_seen_even_after_it_was_given_back() {
        let watch = MemoryWatch::start();
        let block = vec![1_u8; 32 << 20];
        let held = watch.bytes_max();
        assert!(block.iter().all(|&byte| byte == 1));
        drop(block);
        let report = watch.report(held);
        assert_eq!(report.blocked_bytes_max, Some(held));
        assert!(held >= report.start_bytes.min(32 << 20));
        assert!(report.bytes_max >= held && report.bytes_max >= 32 << 20, "{report:?}");
    }

    #[test]
    fn what_rounds_add_is_what_came_after_the_first_thousand() {
        let mut memory = RoundsMemory::default();
        memory.note(ROUNDS_UNTIL_START - 1);
        assert!(memory.report().is_none(), "it has not begun");
        memory.note(ROUNDS_UNTIL_START);
        let block = vec![1_u8; 64 << 20];
        memory.note(2 * ROUNDS_UNTIL_START);
        let used = memory.report().unwrap();
        assert!(block.iter().all(|&byte| byte == 1));
        // Other tests give memory back meanwhile.
        assert!(used.bytes_max > used.start_bytes + (16 << 20), "{used:?}");
        assert_eq!(used.blocked_bytes_max, None);
    }
}
