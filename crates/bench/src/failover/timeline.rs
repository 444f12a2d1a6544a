//! What arrived from step to step over a whole run: how much of both flows, and how late the watched one was. Single cuts tell
//! what each of them did; only this shows whether a protocol was back at once, crawled, or stood still.

use serde::{Deserialize, Serialize};

/// Length of a step, in ns.
pub(crate) const STEP_NS: u64 = 100_000_000;
/// An hour: what comes later is not told.
const STEPS_MAX: u64 = 36_000;

/// Arrivals by step; times are of the sender's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// When the first step began, in ns.
    pub(crate) from_ns: u64,
    /// Payload of both flows that arrived in each step, in bytes.
    pub(crate) bytes: Vec<u64>,
    /// Largest lateness of the watched flow's messages that arrived in each step, in ns; 0 where none did.
    pub(crate) late_ns: Vec<u64>,
}

impl Timeline {
    pub(super) fn new(from_ns: u64) -> Self {
        Self { from_ns, ..Self::default() }
    }

    /// A message of `bytes` arrived at `at_ns`, late by `late_ns`; 0 for a flow that has no schedule.
    pub(super) fn add(&mut self, at_ns: u64, bytes: usize, late_ns: u64) {
        let step = at_ns.saturating_sub(self.from_ns) / STEP_NS;
        if step >= STEPS_MAX {
            return;
        }
        let step = usize::try_from(step).unwrap_or_default();
        if self.bytes.len() <= step {
            self.bytes.resize(step + 1, 0);
            self.late_ns.resize(step + 1, 0);
        }
        self.bytes[step] += bytes as u64;
        self.late_ns[step] = self.late_ns[step].max(late_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_without_arrivals_are_there_and_the_latest_message_of_a_step_counts() {
        let mut timeline = Timeline::new(1_000);
        timeline.add(1_000, 10, 5);
        timeline.add(1_000 + STEP_NS - 1, 20, 3);
        timeline.add(1_000 + 2 * STEP_NS, 30, 0);
        assert_eq!((timeline.bytes, timeline.late_ns), (vec![30, 0, 30], vec![5, 0, 0]));
    }

    #[test]
    fn what_comes_before_the_beginning_or_after_an_hour_does_no_harm() {
        let mut timeline = Timeline::new(1_000);
        timeline.add(0, 1, 0);
        timeline.add(u64::MAX, 1, 0);
        assert_eq!(timeline.bytes, [1]);
    }
}
