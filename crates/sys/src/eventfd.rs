//! A counter in the kernel that wakes whoever waits on its descriptor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::call::own;

/// Readable once [`signal`](EventFd::signal)led, until [`clear`](EventFd::clear)ed.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A new one, not signalled.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: the call takes no pointers.
        own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(|fd| EventFd(fd.into()))
    }

    /// Makes it readable. Signals that nobody has cleared add up to one wake-up.
    pub fn signal(&self) {
        // The only failure of a write is a counter at its maximum, in which case it is readable already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it unreadable; how often it was signalled since the last time.
    pub fn clear(&self) -> u64 {
        let mut count = [0; 8];
        match (&self.0).read(&mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

/// One that another process made. Whoever has a descriptor of it can make its calls wait.
impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> EventFd {
        EventFd(fd.into())
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_add_up_and_are_cleared_at_once() {
        let event = EventFd::new().unwrap();
        assert_eq!(event.clear(), 0);
        event.signal();
        event.signal();
        assert_eq!(event.clear(), 2);
        assert_eq!(event.clear(), 0);
    }
}
