//! Sleeping on a word of memory and waking who sleeps there.

use std::io;
use std::ptr;
use std::time::Duration;

use crate::sync::AtomicU64;

/// Whether the futex is seen by one process only. Across processes the kernel must look up the page's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Process,
    Machine,
}

/// Sleeps while the low half of `word` equals `expected`, until woken or until `timeout` has passed.
/// May return early (a signal, a late waker): the caller looks at the word again. Whether the time is over.
pub(crate) fn wait(word: &AtomicU64, expected: u32, timeout: Option<Duration>, scope: Scope) -> bool {
    let limit = timeout.map(timespec);
    let limit_pointer = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the address is a live, aligned 32-bit half of an atomic, and the time limit is null or a live local.
    // FUTEX_WAIT ignores the last two arguments.
    let code = unsafe {
        libc::syscall(
            libc::SYS_futex,
            low_half(word),
            operation(libc::FUTEX_WAIT, scope),
            expected,
            limit_pointer,
        )
    };
    code < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes all that sleep on `word`.
pub(crate) fn wake(word: &AtomicU64, scope: Scope) {
    // SAFETY: the address is a live, aligned 32-bit half of an atomic; FUTEX_WAKE reads no other memory.
    unsafe { libc::syscall(libc::SYS_futex, low_half(word), operation(libc::FUTEX_WAKE, scope), i32::MAX) };
}

/// A futex is 32 bits wide: the half of the word that holds its small values.
fn low_half(word: &AtomicU64) -> *const u32 {
    let half = word.as_ptr().cast::<u32>();
    if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
}

fn operation(operation: libc::c_int, scope: Scope) -> libc::c_int {
    match scope {
        Scope::Process => operation | libc::FUTEX_PRIVATE_FLAG,
        Scope::Machine => operation,
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    }
}
