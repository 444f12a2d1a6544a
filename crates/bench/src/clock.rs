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
