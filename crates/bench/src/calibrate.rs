//! The machine's own pulse, taken before, between and after the samples: how dear a cache line is between the two
//! cores, how fast memory is copied, what the clock and a sleep cost, and how often a core is taken away.
//!
//! On a virtual machine the first can change fourfold within seconds, which no median over repetitions heals; a
//! figure without it cannot be compared with another day's.

mod measure;

use serde::{Deserialize, Serialize};

use crate::process::core_count;

/// State of the machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// One way of a cache line between core 0 and core 1, in ns, median of batches; absent on one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacheline_ns: Option<f64>,
    /// Copying 8 MiB on core 0, in 10^9 bytes per second (each counted once), the best of a few.
    pub memcpy_gb_per_s: f64,
    /// One reading of the clock that all figures come from, in ns, median of batches.
    pub clock_ns: f64,
    /// How late a sleep of 100 us ends on core 0, in us, median of a few.
    pub sleep_late_us: f64,
    /// Longest time that core 0 was away from a spinning thread within 5 ms, in us.
    pub stall_max_us: f64,
    /// Sum of the interruptions above 5 us in those 5 ms, in us.
    pub stall_sum_us: f64,
    /// How many interruptions there were in those 5 ms, by length.
    pub stalls: StallCounts,
}

/// Interruptions by length; the longer ones count to the shorter kinds, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallCounts {
    /// Longer than 5 us.
    pub over_5us: u32,
    /// Longer than 50 us.
    pub over_50us: u32,
    /// Longer than 500 us.
    pub over_500us: u32,
    /// Longer than 5 ms.
    pub over_5ms: u32,
}

/// Takes the pulse; some 20 ms where nothing else runs.
pub(crate) fn calibrate() -> Calibration {
    let cacheline_ns = if core_count() > 1 { measure::cache_line_ns() } else { None };
    let stalls = measure::stalls();
    Calibration {
        cacheline_ns,
        memcpy_gb_per_s: measure::memcpy_gb_per_s(),
        clock_ns: measure::clock_ns(),
        sleep_late_us: measure::sleep_late_us(),
        stall_max_us: stalls.max_ns as f64 / 1e3,
        stall_sum_us: stalls.sum_ns as f64 / 1e3,
        stalls: stalls.counts,
    }
}

/// Two pulses whose cache-line times differ by more than this factor belong to different phases of the machine. Within a
/// phase the median of batches moves by some 20 % either way; from one to the next (about 15, 35 and 200 ns were seen on
/// one machine) it is a factor of more than 2. The bound lies between.
pub(crate) const PHASE_FACTOR: f64 = 1.6;

/// The pulses just before and just after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pulses {
    /// Just before.
    pub(crate) before: Calibration,
    /// Just after; absent if the run was interrupted there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Calibration>,
    /// How many samples were taken here before this one and thrown away, because the machine changed phase.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) retaken: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How often core 0 was away from a spinning thread, by length, over all pulses of a report: what delays single samples and no
/// protocol is to blame for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StallHistogram {
    /// Pulses of 5 ms each.
    pub(crate) pulses: u32,
    /// Of all of them.
    #[serde(flatten)]
    pub(crate) stalls: StallCounts,
    /// In us.
    pub(crate) longest_us: f64,
    /// Share of the time that the core was away, in percent.
    pub(crate) away_percent: f64,
}

/// Length of what a pulse watches, in us.
const WATCHED_US: f64 = 5_000.0;

impl StallHistogram {
    /// Over the pulses after the samples: each stands behind one sample only. None without any.
    pub(crate) fn of<'a>(samples: impl Iterator<Item = &'a Pulses>) -> Option<Self> {
        let mut all = Self::default();
        let mut sum_us = 0.0;
        for pulse in samples.filter_map(|pulses| pulses.after) {
            all.pulses += 1;
            let (sum, one) = (&mut all.stalls, pulse.stalls);
            sum.over_5us += one.over_5us;
            sum.over_50us += one.over_50us;
            sum.over_500us += one.over_500us;
            sum.over_5ms += one.over_5ms;
            all.longest_us = all.longest_us.max(pulse.stall_max_us);
            sum_us += pulse.stall_sum_us;
        }
        all.away_percent = sum_us / (f64::from(all.pulses) * WATCHED_US + sum_us) * 100.0;
        (all.pulses > 0).then_some(all)
    }
}

impl Pulses {
    /// Whether the machine was in one phase before and after.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_one_phase_with(self)
    }

    /// Whether two samples, from the beginning to the end of each, saw one phase. Where there is one core only there are
    /// no phases.
    pub(crate) fn is_one_phase_with(&self, other: &Self) -> bool {
        let pulses = [Some(self.before), self.after, Some(other.before), other.after];
        let times_ns = pulses.into_iter().flatten().filter_map(|pulse| pulse.cacheline_ns);
        let (shortest, longest) = times_ns
            .fold((f64::INFINITY, 0.0_f64), |(shortest, longest), ns| (shortest.min(ns), longest.max(ns)));
        longest <= PHASE_FACTOR * shortest
    }
}

/// A pulse and pulses for tests that are about something else.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pulse_for_tests(cacheline_ns: Option<f64>) -> Calibration {
        Calibration {
            cacheline_ns,
            memcpy_gb_per_s: 20.0,
            clock_ns: 25.0,
            sleep_late_us: 60.0,
            stall_max_us: 1.0,
            stall_sum_us: 0.0,
            stalls: StallCounts::default(),
        }
    }

    pub(crate) fn pulses_for_tests(before_ns: f64, after_ns: f64) -> Pulses {
        let [before, after] = [before_ns, after_ns].map(|ns| pulse_for_tests(Some(ns)));
        Pulses { before, after: Some(after), retaken: 0 }
    }

    #[test]
    fn every_part_of_the_pulse_takes_time_and_the_longest_stall_is_among_those_counted() {
        let pulse = calibrate();
        assert!(pulse.cacheline_ns.is_none_or(|ns| ns > 1.0), "{pulse:?}");
        assert!(pulse.memcpy_gb_per_s > 0.0 && pulse.memcpy_gb_per_s.is_finite(), "{pulse:?}");
        assert!(pulse.clock_ns > 1.0, "{pulse:?}");
        assert!(pulse.sleep_late_us > 0.0, "{pulse:?}");
        assert!(pulse.stall_max_us > 0.0);
        assert!(pulse.stall_sum_us == 0.0 || pulse.stall_sum_us >= pulse.stall_max_us);
        assert_eq!(pulse.stalls.over_5us > 0, pulse.stall_max_us > 5.0, "{pulse:?}");
        assert_eq!(pulse.stalls.over_500us > 0, pulse.stall_max_us > 500.0, "{pulse:?}");
    }

    #[test]
    fn stalls_of_all_pulses_are_added_each_pulse_once() {
        let stalled = Calibration {
            stall_max_us: 700.0,
            stall_sum_us: 5_000.0,
            stalls: StallCounts { over_5us: 4, over_50us: 2, over_500us: 1, over_5ms: 0 },
            ..pulse_for_tests(Some(50.0))
        };
        let calm = pulse_for_tests(Some(50.0));
        let samples = [
            Pulses { before: calm, after: Some(stalled), retaken: 0 },
            Pulses { before: stalled, after: Some(calm), retaken: 0 },
            Pulses { before: calm, after: None, retaken: 0 },
        ];
        let all = StallHistogram::of(samples.iter()).unwrap();
        assert_eq!((all.pulses, all.stalls, all.longest_us), (2, stalled.stalls, 700.0));
        assert!((all.away_percent - 100.0 / 3.0).abs() < 1e-9, "{all:?}");
        assert_eq!(StallHistogram::of(samples[2..].iter()), None);
    }

    #[test]
    fn a_phase_ends_where_the_cache_line_time_changes_by_more_than_the_factor_either_way() {
        assert!(pulses_for_tests(50.0, 50.0).is_steady());
        assert!(pulses_for_tests(50.0, 80.0).is_steady() && pulses_for_tests(80.0, 50.0).is_steady());
        assert!(!pulses_for_tests(50.0, 81.0).is_steady() && !pulses_for_tests(81.0, 50.0).is_steady());
    }

    #[test]
    fn two_samples_are_of_one_phase_only_if_all_their_pulses_are() {
        let (near, far) = (pulses_for_tests(50.0, 60.0), pulses_for_tests(200.0, 190.0));
        assert!(near.is_one_phase_with(&pulses_for_tests(70.0, 45.0)));
        assert!(!near.is_one_phase_with(&far) && !far.is_one_phase_with(&near));
        assert!(!near.is_one_phase_with(&pulses_for_tests(55.0, 200.0)));
    }

    #[test]
    fn a_machine_of_one_core_has_no_phases_and_a_missing_pulse_proves_no_change() {
        let alone = Pulses { before: pulse_for_tests(None), after: Some(pulse_for_tests(None)), retaken: 0 };
        assert!(alone.is_steady());
        assert!(Pulses { before: pulse_for_tests(Some(50.0)), after: None, retaken: 0 }.is_steady());
    }
}
