//! When messages are due that come at a fixed rate, whatever became of those before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::machine_ns;
use crate::wait::WaitMode;

/// So many messages in so many nanoseconds, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    messages: u64,
    ns: u64,
}

impl Pace {
    /// So many messages per second, which must not be zero.
    pub(crate) fn per_second(messages: u64) -> Self {
        Self { messages, ns: 1_000_000_000 }
    }

    /// As many messages of `size` bytes as make so many Mbit/s, which must not be zero.
    pub(crate) fn of_mbit(mbit: u32, size: usize) -> Self {
        Self { messages: u64::from(mbit), ns: 8_000 * size as u64 }
    }

    /// When message `number` is due. Counted from the start each time: rounded steps would add up.
    pub(crate) fn due_ns(self, start_ns: u64, number: u64) -> u64 {
        start_ns + (u128::from(number) * u128::from(self.ns) / u128::from(self.messages)) as u64
    }
}

/// Waits until a moment of the machine's clock, for `ns_max` at most; whether it has come.
pub(crate) fn wait_until(due_ns: u64, wait: WaitMode, ns_max: u64) -> bool {
    let start_ns = machine_ns();
    loop {
        let now = machine_ns();
        if now >= due_ns {
            return true;
        }
        if now - start_ns >= ns_max {
            return false;
        }
        match wait {
            WaitMode::Spin => std::hint::spin_loop(),
            WaitMode::Adaptive | WaitMode::Block => {
                std::thread::sleep(Duration::from_nanos((due_ns - now).min(ns_max)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_neither_drifts_nor_overflows() {
        let three = Pace::per_second(3);
        assert_eq!(three.due_ns(7, 0), 7);
        assert_eq!(three.due_ns(0, 1), 333_333_333);
        assert_eq!(three.due_ns(0, 3_000_000), 1_000_000_000_000_000);
        let many = Pace::per_second(1_000_000);
        assert_eq!(many.due_ns(0, 86_400 * 365 * 1_000_000), 86_400 * 365 * 1_000_000_000);
    }

    #[test]
    fn a_rate_in_bits_counts_the_messages_bytes() {
        // 1000 Mbit/s are 125 bytes in a microsecond.
        assert_eq!(Pace::of_mbit(1_000, 1_250).due_ns(0, 5), 50_000);
    }

    #[test]
    fn a_moment_that_has_passed_is_not_waited_for_and_a_far_one_not_in_one_go() {
        assert!(wait_until(machine_ns(), WaitMode::Block, 0));
        assert!(!wait_until(machine_ns() + 3_600_000_000_000, WaitMode::Block, 1_000));
        assert!(!wait_until(machine_ns() + 3_600_000_000_000, WaitMode::Spin, 1_000));
    }
}
