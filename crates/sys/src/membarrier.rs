//! A memory fence on every core at once, paid for by who asks: threads that run meanwhile need none of their own.
//!
//! Of two sides, of which one acts seldom and one all the time, the seldom one calls [`everywhere`] where both would need a
//! fence between a store and a load; the other needs the order of its own instructions only.

use std::io;
use std::sync::OnceLock;

use crate::call::check_long;

/// `MEMBARRIER_CMD_GET_REGISTRATIONS` (membarrier(2)).
const GET_REGISTRATIONS: libc::c_int = 1 << 9;

/// Takes part: fences asked for by other processes reach the cores that run threads of this one. Whether they do: the kernel (before
/// 4.16) or a filter of system calls may not allow it, and each side needs its own fences then. Asks once per process.
///
/// The first time takes some ten milliseconds where the process has more than one thread, for the kernel lets all cores come by first.
pub fn takes_part() -> bool {
    static TAKES_PART: OnceLock<bool> = OnceLock::new();
    *TAKES_PART.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED).is_ok())
}

/// Whether the process takes part already; `None`: the kernel (before 6.3) or a filter of system calls does not say.
pub fn has_part() -> Option<bool> {
    let parts = call(GET_REGISTRATIONS).ok()?;
    Some(parts & libc::c_long::from(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0)
}

/// All that threads of processes that take part did before is done, and what they do afterwards sees what we did.
///
/// # Errors
/// The kernel or a filter of system calls does not allow it.
pub fn everywhere() -> io::Result<()> {
    call(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED).map(|_| ())
}

fn call(command: libc::c_int) -> io::Result<libc::c_long> {
    // SAFETY: the call takes numbers only.
    check_long(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_part_may_ask() {
        if takes_part() {
            everywhere().unwrap();
            assert_ne!(has_part(), Some(false));
        } else {
            println!("skipped: no membarrier here");
        }
    }
}
