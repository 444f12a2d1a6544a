//! The three ways to wait for a socket, the same emulation for every protocol that has no waiting mode of its own.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;

/// How the measuring thread waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// Asks again and again without ever sleeping.
    Spin,
    /// Spins for 50 us, then sleeps in the kernel.
    Adaptive,
    /// Sleeps in the kernel at once.
    Block,
}

impl WaitMode {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Block => "block",
        }
    }
}

/// How long [`WaitMode::Adaptive`] spins before it sleeps.
const ADAPTIVE_SPIN_NS: u64 = 50_000;
/// Polls of one spinning turn; a turn must end so that the caller can look at the time.
const SPIN_POLLS: u32 = 1_000;

/// Waits in one mode, in turns of bounded length.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    mode: WaitMode,
}

impl Waiter {
    /// Longest sleep of one turn; sockets get it as their receive and send timeout.
    pub const BLOCK_MAX: Duration = Duration::from_millis(50);

    /// A waiter in the given mode.
    pub fn new(mode: WaitMode) -> Self {
        Self { mode }
    }

    /// Tries until `attempt` succeeds, for one turn. `attempt(true)` may sleep for up to [`Self::BLOCK_MAX`],
    /// `attempt(false)` must not; both say "not yet" by `WouldBlock`. `None`: not yet, and the turn is over.
    ///
    /// # Errors
    /// Every other error of `attempt`.
    pub fn turn<T>(&self, mut attempt: impl FnMut(bool) -> io::Result<T>) -> io::Result<Option<T>> {
        match self.mode {
            WaitMode::Block => later(attempt(true)),
            WaitMode::Spin => {
                for _ in 0..SPIN_POLLS {
                    if let Some(value) = later(attempt(false))? {
                        return Ok(Some(value));
                    }
                    std::hint::spin_loop();
                }
                Ok(None)
            }
            WaitMode::Adaptive => {
                // The common case needs no clock at all.
                if let Some(value) = later(attempt(false))? {
                    return Ok(Some(value));
                }
                let start_ns = now_ns();
                while now_ns() - start_ns < ADAPTIVE_SPIN_NS {
                    if let Some(value) = later(attempt(false))? {
                        return Ok(Some(value));
                    }
                    std::hint::spin_loop();
                }
                later(attempt(true))
            }
        }
    }
}

/// Sleeps until a file is ready for `what`, for [`Waiter::BLOCK_MAX`] at most; whether it is.
pub(crate) fn sleep_until_ready(file: impl AsFd, what: PollFlags) -> io::Result<bool> {
    ready_within(file, what, Waiter::BLOCK_MAX)
}

/// Whether a file is ready for `what`, has failed or has ended, without sleeping.
pub(crate) fn is_ready(file: impl AsFd, what: PollFlags) -> io::Result<bool> {
    ready_within(file, what, Duration::ZERO)
}

fn ready_within(file: impl AsFd, what: PollFlags, limit: Duration) -> io::Result<bool> {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(&mut [PollFd::new(&file, what)], Some(&limit)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

fn later<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> io::Error {
        io::ErrorKind::WouldBlock.into()
    }

    #[test]
    fn spinning_never_sleeps_and_blocking_never_spins() {
        let sleeps = |mode| {
            let mut seen = Vec::new();
            let result = Waiter::new(mode).turn(|may_sleep| {
                seen.push(may_sleep);
                Err::<(), _>(blocked())
            });
            assert!(matches!(result, Ok(None)));
            seen
        };
        assert!(sleeps(WaitMode::Spin).iter().all(|sleep| !sleep));
        assert_eq!(sleeps(WaitMode::Block), [true]);
        let adaptive = sleeps(WaitMode::Adaptive);
        assert!(adaptive.len() > 1 && adaptive.last() == Some(&true));
        assert!(adaptive[..adaptive.len() - 1].iter().all(|sleep| !sleep));
    }

    #[test]
    fn a_real_error_ends_the_turn() {
        let result =
            Waiter::new(WaitMode::Spin).turn(|_| Err::<(), _>(io::ErrorKind::ConnectionReset.into()));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
