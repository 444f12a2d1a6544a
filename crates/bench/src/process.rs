//! What a measured process sets about itself: session, weight, core; and the CPU time it used.

use polyrail_sys::process::{Whose, cpu_usage, set_autogroup_nice, set_nice};

/// Gives this process a session of its own and the highest weight of an ordinary process; call it from the first
/// thread, so that all others inherit it.
///
/// Where the kernel groups processes by session ("autogroup"), niceness counts only within a session: the weight must
/// be given to the session itself. Gives what could not be had, which a report must tell.
pub(crate) fn claim_the_machine() -> Vec<String> {
    let mut notes = Vec::new();
    if let Err(error) = rustix::process::setsid() {
        notes.push(format!("no session of its own: {error}"));
    }
    match set_autogroup_nice(-20) {
        // A kernel that does not group by session needs no weight for one.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            notes.push(format!("session's weight not raised: {error}"));
        }
        _ => {}
    }
    if let Err(error) = set_nice(-20) {
        notes.push(format!("priority not raised: {error}"));
    }
    notes
}

/// Pins the calling thread to one core. A protocol's own threads are left where they are.
pub(crate) fn pin_thread(core: usize) -> Result<(), String> {
    polyrail_sys::process::pin_thread(core).map_err(|error| format!("not pinned to core {core}: {error}"))
}

/// CPU time of this whole process, user and system, in ns.
pub(crate) fn cpu_time_ns() -> u64 {
    cpu_usage(Whose::Process).map_or(0, |usage| usage.user_ns + usage.system_ns)
}

/// A machine's cores, and for how long they have had nothing to do, all together, since it was started. The kernel tells that in
/// steps of 10 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    cores: u64,
    idle_ns: u64,
}

impl Machine {
    /// This machine now; `None`: it can't be told.
    pub(crate) fn now() -> Option<Machine> {
        Machine::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// By the contents of `/proc/stat` (proc_stat(5)). What the host took from a virtual machine is no work of this one.
    fn of(stat: &str) -> Option<Machine> {
        let (all, rest) = stat.split_once('\n')?;
        let mut fields = all.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<u64>);
        let (idle, waiting) = (fields.nth(3)?.ok()?, fields.next()?.ok()?);
        let stolen = fields.nth(2)?.ok()?;
        let cores = rest.lines().take_while(|line| line.starts_with("cpu")).count() as u64;
        Some(Machine { cores, idle_ns: (idle + waiting + stolen) * 10_000_000 })
    }

    /// How long its cores were busy in a window of `window_ns` since `before`, all together, whoever they worked for.
    pub(crate) fn busy_ns_since(&self, before: &Machine, window_ns: u64) -> u64 {
        (self.cores * window_ns).saturating_sub(self.idle_ns.saturating_sub(before.idle_ns))
    }
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
        while cpu_time_ns() == before {
            std::hint::spin_loop();
        }
        assert!(cpu_time_ns() > before);
    }

    #[test]
    fn a_machine_tells_how_long_its_cores_had_nothing_to_do() {
        let stat =
            "cpu  480143 259369 121567 1693518 2929 7 19294 2709 3 4\ncpu0 1 2\ncpu1 3 4\nintr 5\ncpu2\n";
        let idle_ns = (1_693_518 + 2_929 + 2_709) * 10_000_000;
        assert_eq!(Machine::of(stat), Some(Machine { cores: 2, idle_ns }));
        for broken in ["", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 7\n", "cpu  1 2 3 x 5 6 7 8\n"] {
            assert_eq!(Machine::of(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_machine_is_busy_while_its_cores_are_not_idle() {
        let [before, after] = [1_000, 3_500].map(|idle_ns| Machine { cores: 4, idle_ns });
        assert_eq!(after.busy_ns_since(&before, 1_000), 1_500);
        assert_eq!(after.busy_ns_since(&before, 600), 0, "its steps are coarse");
        assert!(Machine::now().is_some_and(|machine| machine.cores > 0 && machine.idle_ns > 0));
    }

    #[test]
    fn pinning_to_a_core_that_does_not_exist_says_so() {
        let error = std::thread::spawn(|| pin_thread(1_000)).join().unwrap().unwrap_err();
        assert!(error.contains("core 1000"), "{error}");
    }
}
