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
    /// Once it was connected, before the first message.
    pub start_bytes: u64,
    /// The most until the receiver read on.
    pub blocked_bytes_max: u64,
    /// The most over the whole run.
    pub bytes_max: u64,
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
        MemoryUse { start_bytes: self.start_bytes, blocked_bytes_max, bytes_max: self.bytes_max() }
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
        assert!(report.blocked_bytes_max >= report.start_bytes.min(32 << 20));
        assert!(report.bytes_max >= report.blocked_bytes_max && report.bytes_max >= 32 << 20, "{report:?}");
    }
}
