//! How far the other machine's monotonic clock is from ours.
//!
//! Each question over the control connection gives four times: asked and heard by our clock, received and sent by the
//! other. If both ways took equally long, the other clock is ahead by the mean of the two differences; it cannot be off
//! by more than half of the round trip. So the exchange with the least round trip says most, and bounds its own error.

use serde::{Deserialize, Serialize};

/// How clocks were compared, for reports.
pub(crate) const METHOD: &str = "monotonic clocks over the control connection, the exchange of least round trip, before and after each sample";

/// Exchanges of one comparison: at least, at most, and the time after which there are enough, in ns.
pub(super) const ROUNDS_MIN: u32 = 4;
pub(super) const ROUNDS_MAX: u32 = 32;
pub(super) const ROUNDS_NS: u64 = 500_000_000;

/// One exchange, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// When the question left, by our clock.
    pub(super) asked_ns: u64,
    /// When it was there, by the other clock.
    pub(super) received_ns: u64,
    /// When the answer left, by the other clock.
    pub(super) sent_ns: u64,
    /// When it was here, by our clock.
    pub(super) heard_ns: u64,
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// How much the other machine's clock is ahead of ours, in ns.
    pub(crate) offset_ns: i64,
    /// Most that this can be wrong, in ns.
    pub(crate) error_ns: u64,
}

impl Reading {
    /// What the exchanges say; `None` if none of them makes sense.
    pub(super) fn of(rounds: &[Round]) -> Option<Self> {
        rounds.iter().filter_map(Self::of_one).min_by_key(|reading| reading.error_ns)
    }

    fn of_one(round: &Round) -> Option<Self> {
        let [asked, received, sent, heard] =
            [round.asked_ns, round.received_ns, round.sent_ns, round.heard_ns].map(i128::from);
        let round_trip_ns = (heard - asked) - (sent - received);
        if sent < received || round_trip_ns < 0 {
            return None;
        }
        let offset_ns = i64::try_from(((received - asked) + (sent - heard)) / 2).ok()?;
        // Up, so that the bound holds.
        Some(Self { offset_ns, error_ns: u64::try_from((round_trip_ns + 1) / 2).ok()? })
    }
}

/// The two clocks during one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockSample {
    /// How much the other machine's clock was ahead of ours in the sample's middle, in ns.
    pub(crate) offset_ns: i64,
    /// Most that this can be wrong at any time of the sample, in ns.
    pub(crate) error_ns: u64,
    /// How much further it was ahead after the sample than before, in ns.
    pub(crate) drift_ns: i64,
}

impl ClockSample {
    /// From the comparisons before and after the sample.
    pub(crate) fn between(before: Reading, after: Reading) -> Self {
        let drift_ns = after.offset_ns.saturating_sub(before.offset_ns);
        Self {
            offset_ns: before.offset_ns.saturating_add(drift_ns / 2),
            error_ns: before.error_ns.max(after.error_ns).saturating_add(drift_ns.unsigned_abs().div_ceil(2)),
            drift_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(asked_ns: u64, received_ns: u64, sent_ns: u64, heard_ns: u64) -> Round {
        Round { asked_ns, received_ns, sent_ns, heard_ns }
    }

    #[test]
    fn the_offset_is_right_within_half_of_the_least_round_trip() {
        // The other clock is ahead by 1,000,000; ways of 10 and 50, then of 20 and 20, then of 5 and 500.
        let rounds = [
            round(1_000, 1_001_010, 1_001_015, 1_065),
            round(2_000, 1_002_020, 1_002_025, 2_045),
            round(3_000, 1_003_005, 1_003_010, 3_510),
        ];
        let reading = Reading::of(&rounds).unwrap();
        assert_eq!(reading, Reading { offset_ns: 1_000_000, error_ns: 20 });
        for one in &rounds {
            let reading = Reading::of_one(one).unwrap();
            assert!(reading.offset_ns.abs_diff(1_000_000) <= reading.error_ns, "{reading:?}");
        }
    }

    #[test]
    fn a_clock_behind_ours_has_a_negative_offset() {
        assert_eq!(Reading::of(&[round(5_000, 1_010, 1_010, 5_020)]).unwrap().offset_ns, -4_000);
    }

    #[test]
    fn times_that_cannot_be_are_no_reading() {
        assert_eq!(Reading::of(&[]), None);
        assert_eq!(Reading::of(&[round(10, 5, 4, 20)]), None, "sent before it was received");
        assert_eq!(Reading::of(&[round(10, 0, 100, 20)]), None, "away for longer than we waited");
        assert_eq!(Reading::of(&[round(0, u64::MAX, u64::MAX, 0)]), None, "an offset of centuries");
    }

    #[test]
    fn a_sample_lies_between_its_two_comparisons() {
        let reading = |offset_ns, error_ns| Reading { offset_ns, error_ns };
        let sample = ClockSample::between(reading(100, 30), reading(140, 50));
        assert_eq!(sample, ClockSample { offset_ns: 120, error_ns: 70, drift_ns: 40 });
        // What a wrong clock may say overflows nothing.
        let wild = ClockSample::between(reading(i64::MAX, 1), reading(i64::MIN, u64::MAX));
        assert_eq!((wild.drift_ns, wild.error_ns), (i64::MIN, u64::MAX));
    }
}
