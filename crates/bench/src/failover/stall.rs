//! When the machine itself was away: threads that sleep a millisecond at a time and note when they woke too late.
//!
//! They have the real-time priority where that is permitted, so that what they note is not the measured program's own
//! use of the cores, which must not excuse it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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
    ended: Arc<AtomicBool>,
    found: Arc<Mutex<Vec<Stall>>>,
    threads: Vec<JoinHandle<()>>,
}

impl StallWatch {
    /// Watches `cores`.
    pub(super) fn start(cores: &[usize]) -> Self {
        let (ended, found) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let watch = |&core: &usize| {
            let (ended, found) = (ended.clone(), found.clone());
            std::thread::spawn(move || watch(core, &ended, &found))
        };
        let threads = cores.iter().map(watch).collect();
        Self { ended, found, threads }
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Vec<Stall> {
        self.found.lock().map(|found| found.clone()).unwrap_or_default()
    }

    pub(super) fn summary(&self) -> StallSummary {
        summary(&self.found())
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn summary(stalls: &[Stall]) -> StallSummary {
    let lengths = || stalls.iter().map(|stall| stall.until_ns - stall.from_ns);
    StallSummary {
        count: stalls.len() as u64,
        longest_ns: lengths().max().unwrap_or(0),
        sum_ns: lengths().sum(),
    }
}

fn watch(core: usize, ended: &AtomicBool, found: &Mutex<Vec<Stall>>) {
    // Where either is refused, the watch sees less or is itself held up by the measured program; the figures
    // without subtraction stand beside.
    let _ = pin_thread(core);
    let _ = set_realtime(1);
    while !ended.load(Ordering::Relaxed) {
        let due_ns = machine_ns() + STEP.as_nanos() as u64;
        std::thread::sleep(STEP);
        let woken_ns = machine_ns();
        if let Some(stall) = late(due_ns, woken_ns)
            && let Ok(mut found) = found.lock()
        {
            found.push(stall);
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
