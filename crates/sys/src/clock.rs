//! The monotonic clock.

/// Nanoseconds since an arbitrary moment before the machine started the program; never goes back, does not count
/// time in suspension. The unit of all deadlines here.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `ns` as the kernel wants it.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let start = monotonic_ns();
        let mut last = start;
        while last == start {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
