//! The clocks: monotonic for everything that waits, the calendar for what people and other machines compare.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since an arbitrary moment before the machine started the program; never goes back, does not count
/// time in suspension. The unit of all deadlines here.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since 1970 by the machine's calendar, which may be wrong and may jump: for records, never for deadlines.
/// 0 before 1970.
pub fn unix_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970, with the reservations of [`unix_ns`].
pub fn unix_ms() -> u64 {
    unix_ns() / 1_000_000
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

    #[test]
    fn the_calendar_is_past_the_writing_of_this_line() {
        assert!(unix_ms() > 1_750_000_000_000);
    }
}
