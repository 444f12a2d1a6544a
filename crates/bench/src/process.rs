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
    fn pinning_to_a_core_that_does_not_exist_says_so() {
        let error = std::thread::spawn(|| pin_thread(1_000)).join().unwrap().unwrap_err();
        assert!(error.contains("core 1000"), "{error}");
    }
}
