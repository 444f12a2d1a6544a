//! Moments and spans as plain nanosecond numbers.
//!
//! The core owns no clock: every moment is handed in. A type of our own (instead of `std::time`) lets a test
//! write any moment down and lets a seed replay a run bit for bit.

use core::ops::{Add, AddAssign, Sub};

/// A moment, in nanoseconds since an origin that only the driver knows (the boot of the machine in the product,
/// the start of the run in the simulator).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Duration(pub u64);

impl Instant {
    /// The origin of the driver's clock.
    pub const ZERO: Instant = Instant(0);
    /// Later than every moment that occurs: "no deadline".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// The wire's time stamp: units of 256 ns, wrapping after 18 minutes (protocol.md §2.1).
    pub const fn stamp(self) -> u32 {
        (self.0 >> 8) as u32
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);

    /// From nanoseconds.
    pub const fn ns(n: u64) -> Duration {
        Duration(n)
    }
    /// From microseconds.
    pub const fn us(n: u64) -> Duration {
        Duration(n * 1_000)
    }
    /// From milliseconds.
    pub const fn ms(n: u64) -> Duration {
        Duration(n * 1_000_000)
    }
    /// From seconds.
    pub const fn s(n: u64) -> Duration {
        Duration(n * 1_000_000_000)
    }
    /// This span `n` times.
    pub const fn times(self, n: u64) -> Duration {
        Duration(self.0.saturating_mul(n))
    }
    /// Whole microseconds.
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000
    }
    /// Span between two wire time stamps, tolerant of the wrap (protocol.md §2.1).
    pub const fn between_stamps(later: u32, earlier: u32) -> Duration {
        Duration((later.wrapping_sub(earlier) as u64) << 8)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(rhs.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}
impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(rhs.0))
    }
}
impl Add for Duration {
    type Output = Duration;
    fn add(self, rhs: Duration) -> Duration {
        Duration(self.0.saturating_add(rhs.0))
    }
}
impl Sub for Duration {
    type Output = Duration;
    fn sub(self, rhs: Duration) -> Duration {
        Duration(self.0.saturating_sub(rhs.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_the_wrap() {
        let early = Instant(0xffff_fff0 << 8);
        let late = early + Duration::us(100);
        let span = Duration::between_stamps(late.stamp(), early.stamp());
        assert!(span.0.abs_diff(100_000) <= 256);
    }
}
