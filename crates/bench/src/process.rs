//! What a measured process sets about itself: session, weight, core; and the CPU time it used.

use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Gives this process a session of its own and the highest weight of an ordinary process.
///
/// Where the kernel groups processes by session ("autogroup"), niceness counts only within a session: the weight must
/// be given to the session itself. Gives what could not be had, which a report must tell.
pub(crate) fn claim_the_machine() -> Vec<String> {
    let mut notes = Vec::new();
    if let Err(error) = rustix::process::setsid() {
        notes.push(format!("no session of its own: {error}"));
    }
    let autogroup = "/proc/self/autogroup";
    if fs::exists(autogroup).unwrap_or(false)
        && let Err(error) = fs::write(autogroup, "-20")
    {
        notes.push(format!("autogroup weight not raised: {error}"));
    }
    if let Err(error) = rustix::process::setpriority_process(None, -20) {
        notes.push(format!("priority not raised: {error}"));
    }
    notes
}

/// Pins the calling thread to one core. A protocol's own threads are left where they are.
pub(crate) fn pin_thread(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None::<Pid>, &set).map_err(|error| format!("pinning to core {core}: {error}"))
}

/// CPU time of this whole process, user and system, in ns.
pub(crate) fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Number of cores this process may use.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time_ns();
        let mut sum = 0_u64;
        while cpu_time_ns() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time_ns() > before);
    }

    #[test]
    fn pinning_to_a_core_that_does_not_exist_says_so() {
        let error = std::thread::spawn(|| pin_thread(1_000)).join().unwrap().unwrap_err();
        assert!(error.contains("core 1000"), "{error}");
    }
}
