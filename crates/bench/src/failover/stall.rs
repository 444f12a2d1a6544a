//! When the machine itself was away: threads that sleep a millisecond at a time and note when they woke too late.
//!
//! They have real-time priority, so that what they note is not the measured program's own use of the cores, which must
//! not excuse it. Where that is not permitted nothing is noted, and nothing subtracted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use polyrail_sys::process::set_realtime;
use serde::{Deserialize, Serialize};

use super::judge::Stall;
use crate::clock::machine_ns;
use crate::process::pin_thread;

/// Interruptions of the watched cores over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallSummary {
    /// How many.
    pub count: u64,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// All together, in ns; those of several cores are added.
    pub sum_ns: u64,
}

/// One step of sleep.
const STEP: Duration = Duration::from_millis(1);
/// Waking this much too late is a stall.
const STALL_NS_MIN: u64 = 1_000_000;

/// Threads that watch cores until it is dropped.
pub(super) struct StallWatch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    found: Mutex<Vec<Stall>>,
    /// Why a core is not watched.
    refused: Mutex<Vec<String>>,
}

impl StallWatch {
    /// Watches `cores`.
    pub(super) fn start(cores: &[usize]) -> Self {
        let shared = Arc::new(Shared::default());
        let watch = |&core: &usize| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                if let Err(reason) =
                    pin_thread(core).and_then(|()| set_realtime(1).map_err(|e| e.to_string()))
                {
                    locked(&shared.refused).push(reason);
                    return;
                }
                watch(&shared);
            })
        };
        let threads = cores.iter().map(watch).collect();
        Self { shared, threads }
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Vec<Stall> {
        locked(&self.shared.found).clone()
    }

    pub(super) fn summary(&self) -> StallSummary {
        summary(&self.found())
    }

    /// What could not be watched.
    pub(super) fn notes(&self) -> Vec<String> {
        let refused = locked(&self.shared.refused);
        refused.iter().map(|reason| format!("stalls of a core not watched: {reason}")).collect()
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    // A list is whole whoever panicked beside it.
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn summary(stalls: &[Stall]) -> StallSummary {
    let lengths = || stalls.iter().map(|stall| stall.until_ns - stall.from_ns);
    StallSummary {
        count: stalls.len() as u64,
        longest_ns: lengths().max().unwrap_or(0),
        sum_ns: lengths().sum(),
    }
}

fn watch(shared: &Shared) {
    while !shared.ended.load(Ordering::Relaxed) {
        let due_ns = machine_ns() + STEP.as_nanos() as u64;
        std::thread::sleep(STEP);
        if let Some(stall) = late(due_ns, machine_ns()) {
            locked(&shared.found).push(stall);
        }
    }
}

fn late(due_ns: u64, woken_ns: u64) -> Option<Stall> {
    (woken_ns > due_ns + STALL_NS_MIN).then_some(Stall { from_ns: due_ns, until_ns: woken_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_over_a_millisecond_late_is_a_stall_from_when_it_was_due() {
        assert_eq!(late(5_000_000, 6_000_000), None);
        let stall = Stall { from_ns: 5_000_000, until_ns: 6_000_001 };
        assert_eq!(late(5_000_000, 6_000_001), Some(stall));
        let summary = summary(&[stall, Stall { from_ns: 0, until_ns: 5_000_000 }]);
        assert_eq!((summary.count, summary.longest_ns, summary.sum_ns), (2, 5_000_000, 6_000_001));
    }
}
