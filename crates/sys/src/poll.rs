//! Waiting for a few descriptors, with what to wait for said anew each time: the sockets of a node come and go, and
//! room is waited for only where there is none.

use std::io;
use std::os::fd::RawFd;

use crate::call::check;
use crate::clock::timespec;

/// What to wait for, made anew for each wait.
#[derive(Debug, Default)]
pub struct PollSet {
    entries: Vec<libc::pollfd>,
}

impl PollSet {
    /// Empties the set.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds a descriptor to be readable, or to have room as well; its index.
    pub fn add(&mut self, fd: RawFd, room: bool) -> usize {
        let events = if room { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        self.entries.push(libc::pollfd { fd, events, revents: 0 });
        self.entries.len() - 1
    }

    /// Waits until one is ready or has an error, `timeout_ns` have passed (`None`: for ever) or a signal came; how many
    /// are ready.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        let time = timeout_ns.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (entries, count) = (self.entries.as_mut_ptr(), self.entries.len() as libc::nfds_t);
        // SAFETY: the entries are exclusively borrowed, the time is read only and lives until the call returns.
        let result = unsafe { libc::ppoll(entries, count, time, std::ptr::null()) };
        match check(result) {
            Ok(ready) => Ok(ready as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether the last wait found the descriptor with that index ready.
    pub fn is_ready(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.revents != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_ready_is_named_and_nothing_else() {
        let (quiet, loud) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        loud.signal();
        let mut set = PollSet::default();
        let (a, b) = (set.add(quiet.as_raw_fd(), false), set.add(loud.as_raw_fd(), false));
        assert_eq!(set.wait(None).unwrap(), 1);
        assert_eq!((set.is_ready(a), set.is_ready(b)), (false, true));
        loud.clear();
        assert_eq!(set.wait(Some(1_000)).unwrap(), 0);
        set.clear();
        let a = set.add(quiet.as_raw_fd(), true);
        assert_eq!(set.wait(None).unwrap(), 1, "there is room");
        assert!(set.is_ready(a));
    }
}
