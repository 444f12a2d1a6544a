//! Waiting for many descriptors at once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use crate::call::{check, check_long, own};
use crate::clock::timespec;

/// Set once the kernel (before 5.11) turns out to lack `epoll_pwait2`.
static ONLY_MILLISECONDS: OnceLock<()> = OnceLock::new();

/// What to wait for. Errors and hang-ups always wake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    /// Until there is something to read.
    pub readable: bool,
    /// Until there is room to write.
    pub writable: bool,
    /// Once for each time that it becomes so, even if nobody has read or written since. An event counter does with each
    /// signal.
    pub once: bool,
}

impl Interest {
    /// Reading only.
    pub const READ: Interest = Interest { readable: true, writable: false, once: false };
    /// Writing only.
    pub const WRITE: Interest = Interest { readable: false, writable: true, once: false };
    /// Both.
    pub const BOTH: Interest = Interest { readable: true, writable: true, once: false };
    /// Nothing: for one that is to be waited for again later.
    pub const NONE: Interest = Interest { readable: false, writable: false, once: false };
    /// News to read.
    pub const NEWS: Interest = Interest { readable: true, writable: false, once: true };

    fn bits(self) -> u32 {
        let readable = if self.readable { libc::EPOLLIN as u32 } else { 0 };
        let writable = if self.writable { libc::EPOLLOUT as u32 } else { 0 };
        let once = if self.once { libc::EPOLLET as u32 } else { 0 };
        readable | writable | once
    }
}

/// One descriptor is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What `add` was given for it.
    pub token: u64,
    /// Reading will give something (or an error).
    pub readable: bool,
    /// Writing will find room (or an error).
    pub writable: bool,
    /// An error is pending, or the other end is gone.
    pub error: bool,
}

/// Room for what one wait returns.
pub struct Events {
    list: Vec<libc::epoll_event>,
    ready: usize,
}

impl Events {
    /// Room for `events_max` (at least 1) descriptors at once.
    pub fn new(events_max: usize) -> Events {
        Events { list: vec![libc::epoll_event { events: 0, u64: 0 }; events_max.max(1)], ready: 0 }
    }

    /// What the last wait found.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> {
        self.list[..self.ready].iter().map(|event| {
            let bits = event.events;
            Event {
                token: event.u64,
                readable: bits & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0,
                writable: bits & (libc::EPOLLOUT | libc::EPOLLERR) as u32 != 0,
                error: bits & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0,
            }
        })
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: the call takes no pointers.
        own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Epoll)
    }

    /// Adds `fd`; its events carry `token`. A closed descriptor leaves the set by itself.
    pub fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest.bits())
    }

    /// Changes what `fd` is waited for.
    pub fn modify(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest.bits())
    }

    /// Takes `fd` out.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits until something is ready, `timeout_ns` have passed (`None`: for ever) or a signal came; how many
    /// are ready. A kernel without nanosecond waits gets the next full millisecond.
    pub fn wait(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        events.ready = 0;
        let result = if ONLY_MILLISECONDS.get().is_none() {
            self.wait_ns(events, timeout_ns)
        } else {
            self.wait_ms(events, timeout_ns)
        };
        match result {
            Ok(ready) => events.ready = ready,
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && ONLY_MILLISECONDS.set(()).is_ok() => {
                return self.wait(events, timeout_ns);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(events.ready)
    }

    fn wait_ns(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        let timeout = timeout_ns.map(timespec);
        let timeout_at = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (fd, room) = (self.0.as_raw_fd(), events.list.len().min(i32::MAX as usize));
        let (list, mask) = (events.list.as_mut_ptr(), std::ptr::null::<libc::sigset_t>());
        // SAFETY: `list` has room for `room` events, `timeout_at` is null or lives on this frame, no mask.
        let result =
            unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, list, room, timeout_at, mask, 0usize) };
        Ok(check_long(result)? as usize)
    }

    fn wait_ms(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        let timeout_ms =
            timeout_ns.map_or(-1, |ns| i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let room = events.list.len().min(i32::MAX as usize) as i32;
        let list = events.list.as_mut_ptr();
        // SAFETY: `list` has room for `room` events.
        Ok(check(unsafe { libc::epoll_wait(self.0.as_raw_fd(), list, room, timeout_ms) })? as usize)
    }

    fn control(&self, operation: i32, fd: RawFd, token: u64, bits: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits, u64: token };
        // SAFETY: `event` is valid for the call; a wrong `fd` is an error, not a fault.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &raw mut event) })?;
        Ok(())
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn reports_what_is_ready_for_as_long_as_it_is() {
        let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::new(4);
        epoll.add(event.as_raw_fd(), 7, Interest::READ).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
        event.signal();
        for _ in 0..2 {
            assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
            let ready = Event { token: 7, readable: true, writable: false, error: false };
            assert_eq!(events.iter().collect::<Vec<_>>(), [ready]);
        }
        epoll.modify(event.as_raw_fd(), 8, Interest::BOTH).unwrap();
        epoll.wait(&mut events, None).unwrap();
        assert!(events.iter().all(|e| e.token == 8 && e.readable && e.writable));
        epoll.remove(event.as_raw_fd()).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
    }

    #[test]
    fn each_signal_is_news_once_though_nobody_clears_it() {
        let (inner, outer, event) = (Epoll::new().unwrap(), Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::new(4);
        inner.add(event.as_raw_fd(), 7, Interest::NEWS).unwrap();
        outer.add(inner.as_raw_fd(), 8, Interest::READ).unwrap();
        for _ in 0..3 {
            event.signal();
            assert_eq!(outer.wait(&mut events, Some(0)).unwrap(), 1, "it shows through another set");
            assert_eq!(inner.wait(&mut events, Some(0)).unwrap(), 1);
            assert_eq!(inner.wait(&mut events, Some(0)).unwrap(), 0);
            assert_eq!(outer.wait(&mut events, Some(0)).unwrap(), 0);
        }
    }

    #[test]
    fn both_ways_of_waiting_respect_the_timeout() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(1));
        let start_ns = crate::clock::monotonic_ns();
        assert_eq!(epoll.wait_ns(&mut events, Some(1_500_000)).unwrap(), 0);
        assert!(crate::clock::monotonic_ns() >= start_ns + 1_500_000);
        assert_eq!(epoll.wait_ms(&mut events, Some(1_500_000)).unwrap(), 0);
        assert!(crate::clock::monotonic_ns() >= start_ns + 3_000_000);
        let event = EventFd::new().unwrap();
        event.signal();
        epoll.add(event.as_raw_fd(), 1, Interest::READ).unwrap();
        assert_eq!(epoll.wait_ms(&mut events, None).unwrap(), 1);
        assert_eq!(epoll.wait_ns(&mut events, None).unwrap(), 1);
    }
}
