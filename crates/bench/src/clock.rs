//! The only reader of the clock in this crate.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the first call in this process; only differences mean something.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// The machine's monotonic clock, in ns: the same in every process of the machine, whatever its namespaces.
pub(crate) fn machine_ns() -> u64 {
    polyrail_sys::clock::monotonic_ns()
}

/// A time of another machine's monotonic clock by this machine's, in ns, if the other is ahead by `offset_ns`.
pub(crate) fn to_local(remote_ns: u64, offset_ns: i64) -> u64 {
    let local_ns = i128::from(remote_ns) - i128::from(offset_ns);
    u64::try_from(local_ns.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machines_time_is_ours_less_its_lead() {
        assert_eq!((to_local(1_000, 300), to_local(1_000, -300), to_local(1_000, 0)), (700, 1_300, 1_000));
        assert_eq!((to_local(5, i64::MAX), to_local(u64::MAX, i64::MIN)), (0, u64::MAX));
    }
}
