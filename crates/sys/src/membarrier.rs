//! A memory fence on every core at once, paid for by who asks: threads that run meanwhile need none of their own.
//!
//! Of two sides, of which one acts seldom and one all the time, the seldom one calls [`everywhere`] where both would need a
//! fence between a store and a load; the other needs the order of its own instructions only.

use std::io;
use std::sync::OnceLock;

use crate::call::check_long;

/// Takes part: fences asked for by other processes reach the cores that run threads of this one. Whether they do: the kernel (before
/// 4.16) or a filter of system calls may not allow it, and each side needs its own fences then. Asks once per process.
pub fn takes_part() -> bool {
    static TAKES_PART: OnceLock<bool> = OnceLock::new();
    *TAKES_PART.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED).is_ok())
}

/// All that threads of processes that take part did before is done, and what they do afterwards sees what we did.
///
/// # Errors
/// The kernel or a filter of system calls does not allow it.
pub fn everywhere() -> io::Result<()> {
    call(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

fn call(command: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    check_long(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_part_may_ask() {
        if takes_part() {
            everywhere().unwrap();
        } else {
            println!("skipped: no membarrier here");
        }
    }
}
