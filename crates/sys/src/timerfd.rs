//! A timer that wakes whoever waits on its descriptor.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::call::{check, own};
use crate::clock::timespec;

/// One deadline on the clock of [`monotonic_ns`](crate::clock::monotonic_ns).
#[derive(Debug)]
pub struct TimerFd(File);

impl TimerFd {
    /// A new one without a deadline.
    pub fn new() -> io::Result<TimerFd> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: the call takes no pointers.
        own(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(|fd| TimerFd(fd.into()))
    }

    /// Becomes readable at `deadline_ns` (at once if that is past) and stays so until cleared or set anew.
    pub fn set(&self, deadline_ns: u64) -> io::Result<()> {
        // A deadline of 0 would disarm the timer; moment 1 is as much in the past.
        self.arm(deadline_ns.max(1))
    }

    /// Forgets the deadline.
    pub fn disarm(&self) -> io::Result<()> {
        self.arm(0)
    }

    /// Makes it unreadable; whether the deadline had passed.
    pub fn clear(&self) -> bool {
        matches!((&self.0).read(&mut [0; 8]), Ok(8))
    }

    fn arm(&self, at_ns: u64) -> io::Result<()> {
        let when = libc::itimerspec { it_interval: timespec(0), it_value: timespec(at_ns) };
        let (fd, flags) = (self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
        // SAFETY: `when` is valid for the call; the old value is not asked for.
        check(unsafe { libc::timerfd_settime(fd, flags, &raw const when, std::ptr::null_mut()) })?;
        Ok(())
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::epoll::{Epoll, Events, Interest};

    #[test]
    fn fires_at_its_deadline_and_not_before() {
        let (epoll, timer) = (Epoll::new().unwrap(), TimerFd::new().unwrap());
        let mut events = Events::new(4);
        epoll.add(timer.as_raw_fd(), 5, Interest::READ).unwrap();
        let deadline_ns = monotonic_ns() + 2_000_000;
        timer.set(deadline_ns).unwrap();
        epoll.wait(&mut events, None).unwrap();
        assert!(monotonic_ns() >= deadline_ns);
        assert_eq!(events.iter().next().unwrap().token, 5);
        assert!(timer.clear());
        assert!(!timer.clear());
    }

    #[test]
    fn a_past_deadline_fires_at_once_and_a_disarmed_one_never() {
        let timer = TimerFd::new().unwrap();
        timer.set(0).unwrap();
        assert!(timer.clear());
        timer.set(monotonic_ns() + 3_600_000_000_000).unwrap();
        assert!(!timer.clear());
        timer.set(1).unwrap();
        timer.disarm().unwrap();
        assert!(!timer.clear());
    }
}
