//! Where and how urgently a thread runs.

use std::io;
use std::mem::size_of;

use crate::call::check;

/// Keeps the calling thread on processor `cpu`.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = empty_set();
    // SAFETY: `cpu` is within the set, as just checked.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the length describe `set`; 0 means the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// The processors on which the calling thread may run, in rising order.
pub fn cpus_allowed() -> io::Result<Vec<usize>> {
    let mut set = empty_set();
    // SAFETY: the pointer and the length describe `set`; 0 means the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: all numbers asked for are within the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Sets the nice value (-20 urgent to 19 patient) of the calling thread.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers; 0 means the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

/// Sets the nice value of the whole session's scheduling group: where the kernel groups by session, the nice
/// value of a thread counts within its session only.
pub fn set_autogroup_nice(nice: i32) -> io::Result<()> {
    std::fs::write("/proc/self/autogroup", nice.to_string())
}

/// Lets the calling thread run before all ordinary ones (SCHED_FIFO, 1 to 99), or with 0 among them again. A
/// thread that spins like this stops everything else on its processor.
pub fn set_realtime(priority: i32) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` is valid for the call; 0 means the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })?;
    Ok(())
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: the set is plain integers; all zeros is the empty set.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_one_processor() {
        std::thread::spawn(|| {
            let last = *cpus_allowed().unwrap().last().unwrap();
            pin_thread(last).unwrap();
            assert_eq!(cpus_allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert!(pin_thread(1 << 20).is_err());
    }

    #[test]
    fn a_thread_can_become_more_patient() {
        std::thread::spawn(|| {
            set_nice(19).unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            assert_eq!(fields[16], "19");
        })
        .join()
        .unwrap();
    }
}
