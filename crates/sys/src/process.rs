//! The process and the thread themselves: scheduling, signals, name spaces, what they cost.

mod fork;
mod namespace;
mod schedule;
mod signal;
mod usage;

use std::io;
use std::os::fd::OwnedFd;

use crate::call::{check, check_long, check_size, own};

pub use fork::fork_count;
pub use namespace::{enter_netns, unshare_netns};
pub use schedule::{cpus_allowed, pin_thread, set_autogroup_nice, set_nice, set_realtime};
pub use signal::SignalFd;
pub use usage::{CpuUsage, Whose, cpu_usage, resident_bytes};

/// The number of this process.
pub fn pid() -> u32 {
    std::process::id()
}

/// A descriptor that becomes readable when process `pid` ends.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    own(fd as i32)
}

/// Asks for `signal` when the thread that started this process ends; 0 takes the wish back.
pub fn set_parent_death_signal(signal: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) })?;
    Ok(())
}

/// Fills `bytes` with randomness fit for keys.
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the pointer and the length describe `rest`.
        let got = check_size(unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) });
        match got {
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events, Interest};
    use std::os::fd::AsRawFd;

    #[test]
    fn the_end_of_a_process_is_seen_on_its_descriptor() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let (fd, epoll) = (pidfd_open(child.id()).unwrap(), Epoll::new().unwrap());
        let mut events = Events::new(1);
        epoll.add(fd.as_raw_fd(), 1, Interest::READ).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
        drop(child.stdin.take());
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        child.wait().unwrap();
    }

    #[test]
    fn random_bytes_fill_all_and_differ() {
        let (mut a, mut b) = ([0u8; 300], [0u8; 300]);
        random_bytes(&mut a).unwrap();
        random_bytes(&mut b).unwrap();
        assert_ne!(a, b);
        assert!(a[256..].iter().any(|&byte| byte != 0));
        random_bytes(&mut []).unwrap();
    }

    #[test]
    fn parent_death_signal_can_be_set_and_taken_back() {
        set_parent_death_signal(libc::SIGTERM).unwrap();
        set_parent_death_signal(0).unwrap();
        assert!(set_parent_death_signal(-1).is_err());
    }
}
