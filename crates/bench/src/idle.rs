//! What a process that does nothing costs: memory, processor time and wake-ups, read from outside, so that the
//! reading is not among them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// The cost of one process over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleCost {
    /// Resident memory, in bytes, pages shared with other processes included.
    pub resident_bytes: u64,
    /// The part of it that is this process's alone, in bytes.
    pub private_bytes: u64,
    /// Share of one core, in percent.
    pub cpu_percent: f64,
    /// Switches to any of its threads per second.
    pub wakeups_per_s: f64,
}

/// What one thread has cost since it began.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadCost {
    cpu_ns: u64,
    switches: u64,
}

/// The counters of one process at one moment, thread by thread: a thread that ends takes its counters with it, so
/// that sums over all threads may shrink.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    now_ns: u64,
    threads: HashMap<OsString, ThreadCost>,
}

impl Snapshot {
    /// Reads the counters of the process `pid`.
    ///
    /// # Errors
    /// The process has ended, or this kernel does not tell.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut threads = HashMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            let read = |file: &str| fs::read_to_string(task.path().join(file));
            let (Ok(schedstat), Ok(status)) = (read("schedstat"), read("status")) else {
                continue; // It has ended since the folder was listed.
            };
            let switches =
                field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
            threads.insert(task.file_name(), ThreadCost { cpu_ns: first_number(&schedstat), switches });
        }
        Ok(Self { now_ns: crate::clock::now_ns(), threads })
    }

    /// What the process has cost since `earlier`, and its memory now. A thread that ended meanwhile counts as nothing,
    /// one that began counts whole.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn since(&self, earlier: &Self, pid: u32) -> io::Result<IdleCost> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |name: &str| field(&rollup, name) * 1024;
        let seconds = (self.now_ns - earlier.now_ns) as f64 / 1e9;
        let cost = self.threads_since(earlier);
        Ok(IdleCost {
            resident_bytes: kib("Rss:"),
            private_bytes: kib("Private_Clean:") + kib("Private_Dirty:"),
            cpu_percent: cost.cpu_ns as f64 / 1e7 / seconds,
            wakeups_per_s: cost.switches as f64 / seconds,
        })
    }

    /// What the threads that still run have cost since `earlier`.
    fn threads_since(&self, earlier: &Self) -> ThreadCost {
        let mut sum = ThreadCost::default();
        for (thread, now) in &self.threads {
            let before = earlier.threads.get(thread).copied().unwrap_or_default();
            // The number of a thread that ended may go to a new one, which has cost less.
            sum.cpu_ns += now.cpu_ns.saturating_sub(before.cpu_ns);
            sum.switches += now.switches.saturating_sub(before.switches);
        }
        sum
    }
}

/// The number behind `name` at the start of a line; 0 where it is missing.
fn field(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, first_number)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_lines() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\nRss:   34 kB\n";
        assert_eq!(field(text, "voluntary_ctxt_switches:"), 12);
        assert_eq!(field(text, "nonvoluntary_ctxt_switches:"), 7);
        assert_eq!((field(text, "Rss:"), field(text, "Pss:")), (34, 0));
        assert_eq!(first_number("99856 1 2"), 99_856);
    }

    #[test]
    fn a_process_that_works_and_sleeps_costs_time_and_wakeups() {
        let pid = std::process::id();
        let before = Snapshot::of(pid).unwrap();
        let sleeps = 20;
        for _ in 0..sleeps {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        while Snapshot::of(pid).unwrap().threads_since(&before).cpu_ns < 5_000_000 {}
        let after = Snapshot::of(pid).unwrap();
        assert!(after.threads_since(&before).switches >= sleeps);
        let cost = after.since(&before, pid).unwrap();
        assert!(cost.cpu_percent > 0.0 && cost.wakeups_per_s > 0.0, "{cost:?}");
        assert!(cost.resident_bytes >= cost.private_bytes && cost.private_bytes > 0, "{cost:?}");
    }

    #[test]
    fn a_thread_that_ended_takes_nothing_away() {
        let pid = std::process::id();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            for _ in 0..1000 {
                std::thread::sleep(std::time::Duration::from_micros(1));
            }
            ready.send(()).unwrap();
            ended.recv().unwrap_err();
        });
        is_ready.recv().unwrap();
        let before = Snapshot::of(pid).unwrap();
        drop(end);
        worker.join().unwrap();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        assert!(Snapshot::of(pid).unwrap().threads_since(&before).switches >= 20);
    }
}
