//! Signals as something to read, so that a loop can end in order.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};

use crate::call::own;

/// A queue of blocked signals. Make it before other threads start: they inherit the block.
#[derive(Debug)]
pub struct SignalFd(File);

impl SignalFd {
    /// Blocks `signals` in the calling thread and those it starts, and opens a descriptor that becomes readable
    /// when one of them comes.
    pub fn block(signals: &[i32]) -> io::Result<SignalFd> {
        // SAFETY: the set is plain integers; zeros are a valid place for the next call to fill.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a valid place.
        unsafe { libc::sigemptyset(&raw mut set) };
        for &signal in signals {
            // SAFETY: `set` has been initialised; a wrong number is an error, not a fault.
            crate::call::check(unsafe { libc::sigaddset(&raw mut set, signal) })?;
        }
        // SAFETY: `set` is initialised; the old mask is not asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        own(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })
            .map(|fd| SignalFd(fd.into()))
    }

    /// Blocks SIGTERM and SIGINT: the two polite wishes to end.
    pub fn block_termination() -> io::Result<SignalFd> {
        SignalFd::block(&[libc::SIGTERM, libc::SIGINT])
    }

    /// The next signal that came, if any.
    pub fn take(&self) -> Option<i32> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let read = (&self.0).read(&mut record).ok()?;
        let number = record.first_chunk::<4>().filter(|_| read == record.len())?;
        Some(u32::from_ne_bytes(*number) as i32)
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_read_instead_of_killing() {
        std::thread::spawn(|| {
            let signals = SignalFd::block_termination().unwrap();
            assert_eq!(signals.take(), None);
            // SAFETY: sends a signal that this thread has just blocked to this thread.
            unsafe { libc::raise(libc::SIGTERM) };
            assert_eq!(signals.take(), Some(libc::SIGTERM));
            assert_eq!(signals.take(), None);
        })
        .join()
        .unwrap();
    }
}
