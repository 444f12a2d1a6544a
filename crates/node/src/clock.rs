//! The one place where the product reads a clock.

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    polyrail_sys::clock::monotonic_ns()
}
