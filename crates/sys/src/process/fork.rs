//! Noticing that this process is a fork's child.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the one that asked first. Costs one load; a change since an earlier
/// call means that the caller is now in a child, where the threads of its parent do not exist.
#[inline]
pub fn fork_count() -> u64 {
    if !WATCH.is_completed() {
        watch();
    }
    FORKS.load(Ordering::Relaxed)
}

#[cold]
fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sees_that_it_is_one() {
        let before = fork_count();
        // SAFETY: the child calls nothing but a load and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = if fork_count() == before + 1 { 0 } else { 1 };
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(fork_count(), before);
    }
}
