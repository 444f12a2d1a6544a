//! What a process that does nothing costs: memory, processor time and wake-ups, read from outside, so that the
//! reading is not among them.

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

/// The counters of one process at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    now_ns: u64,
    cpu_ns: u64,
    switches: u64,
}

impl Snapshot {
    /// Reads the counters of the process `pid`.
    ///
    /// # Errors
    /// The process has ended, or this kernel does not tell.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let (mut cpu_ns, mut switches) = (0, 0);
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            // A thread that ends in between has no more to add.
            let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
            cpu_ns += first_number(&read("schedstat"));
            switches += field(&read("status"), "voluntary_ctxt_switches:")
                + field(&read("status"), "nonvoluntary_ctxt_switches:");
        }
        Ok(Self { now_ns: crate::clock::now_ns(), cpu_ns, switches })
    }

    /// What the process has cost since `earlier`, and its memory now.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn since(&self, earlier: &Self, pid: u32) -> io::Result<IdleCost> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |name: &str| field(&rollup, name) * 1024;
        let seconds = (self.now_ns - earlier.now_ns) as f64 / 1e9;
        Ok(IdleCost {
            resident_bytes: kib("Rss:"),
            private_bytes: kib("Private_Clean:") + kib("Private_Dirty:"),
            cpu_percent: self.cpu_ns.saturating_sub(earlier.cpu_ns) as f64 / 1e7 / seconds,
            wakeups_per_s: self.switches.saturating_sub(earlier.switches) as f64 / seconds,
        })
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
        while Snapshot::of(pid).unwrap().cpu_ns < before.cpu_ns + 5_000_000 {}
        let after = Snapshot::of(pid).unwrap();
        assert!(after.switches >= before.switches + sleeps);
        let cost = after.since(&before, pid).unwrap();
        assert!(cost.cpu_percent > 0.0 && cost.wakeups_per_s > 0.0, "{cost:?}");
        assert!(cost.resident_bytes >= cost.private_bytes && cost.private_bytes > 0, "{cost:?}");
    }
}
