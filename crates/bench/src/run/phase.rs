//! Samples between two pulses of the machine: one during which the machine changed phase is taken again.
//!
//! Such a sample is neither of one phase nor of the other, and how much of each is in it is not known.

use crate::calibrate::{Calibration, PHASE_FACTOR, Pulses};
use crate::run::Sample;
use crate::workload::Workload;

/// How often a sample is taken again at most. A machine that changes phase faster than a sample lasts would never give a
/// steady one; what it gives in the end is kept, and marked.
const RETAKES_MAX: u32 = 2;

/// Takes a sample between two pulses, again while the machine changes phase in it and `again` allows that. `last` is the
/// pulse that the sample before left, and then the one that this sample leaves.
///
/// # Errors
/// What prevents taking a pulse before the sample, or the sample itself. A pulse that cannot be taken after the sample
/// costs the run, not the sample: the next one meets the same fault.
pub(super) fn steady(
    last: &mut Option<Calibration>,
    mut pulse: impl FnMut() -> Result<Calibration, String>,
    mut take: impl FnMut() -> Result<Sample, String>,
    again: impl Fn(&Sample) -> bool,
) -> Result<(Sample, Pulses), String> {
    let mut retaken = 0;
    loop {
        let before = match last.take() {
            Some(pulse) => pulse,
            None => pulse()?,
        };
        let sample = take()?;
        let after = pulse().ok();
        *last = after;
        let pulses = Pulses { before, after, retaken };
        if pulses.is_steady() || retaken == RETAKES_MAX || !again(&sample) {
            return Ok((sample, pulses));
        }
        retaken += 1;
        let ns = |pulse: Option<Calibration>| pulse.and_then(|pulse| pulse.cacheline_ns).unwrap_or(0.0);
        eprintln!(
            "  taken again ({retaken} of {RETAKES_MAX}): the machine changed phase, a cache line took {:.0} ns before \
             and {:.0} ns after, over {PHASE_FACTOR} times",
            ns(Some(before)),
            ns(after)
        );
    }
}

/// Whether a sample may be thrown away for another one: it is short, and nothing went wrong in it that must be told.
pub(super) fn may_retake(workload: Workload, reliable: bool, sample: &Sample) -> bool {
    let is_long = matches!(workload, Workload::Failover | Workload::Idle | Workload::Stalled);
    let faulty = sample.pairs().flat_map(|(sender, receiver)| [sender, receiver]).any(|side| {
        let counts = side.counts;
        counts.damaged > 0 || reliable && counts.lost + counts.duplicated + counts.reordered > 0
    });
    !is_long && !faulty && sample.error.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::tests::pulse_for_tests;

    /// Takes one sample while the pulses are these; the sample's number from 0, its pulses, and the pulses not used.
    fn taken(pulses_ns: &[f64], last_ns: Option<f64>, again: bool) -> (u64, Pulses, usize) {
        let mut pulses = pulses_ns.iter();
        let mut last = last_ns.map(|ns| pulse_for_tests(Some(ns)));
        let mut number = 0;
        let take = || {
            number += 1;
            let mut sample = Sample::default();
            sample.sender.sent = number - 1;
            Ok(sample)
        };
        let pulse = || pulses.next().map(|&ns| pulse_for_tests(Some(ns))).ok_or("no pulse".to_owned());
        let (sample, around) = steady(&mut last, pulse, take, |_| again).unwrap();
        assert_eq!(last, around.after, "the pulse after one sample is the one before the next");
        (sample.sender.sent, around, pulses.len())
    }

    fn cachelines_ns(pulses: &Pulses) -> [Option<f64>; 2] {
        [pulses.before.cacheline_ns, pulses.after.and_then(|after| after.cacheline_ns)]
    }

    #[test]
    fn a_steady_sample_is_taken_once_with_one_pulse_per_gap() {
        let (number, pulses, unused) = taken(&[50.0, 55.0, 200.0], None, true);
        assert_eq!((number, pulses.retaken, unused), (0, 0, 1));
        assert_eq!(cachelines_ns(&pulses), [Some(50.0), Some(55.0)]);
        let (_, pulses, unused) = taken(&[55.0, 200.0], Some(52.0), true);
        assert_eq!((cachelines_ns(&pulses), unused), ([Some(52.0), Some(55.0)], 1));
    }

    #[test]
    fn a_sample_across_a_change_of_phase_is_taken_again_from_the_new_phase() {
        let (number, pulses, unused) = taken(&[50.0, 200.0, 210.0], None, true);
        assert_eq!((number, pulses.retaken, unused), (1, 1, 0));
        assert_eq!(cachelines_ns(&pulses), [Some(200.0), Some(210.0)]);
        assert!(pulses.is_steady());
    }

    #[test]
    fn a_machine_that_never_rests_ends_the_retaking_and_what_is_kept_shows_it() {
        let (number, pulses, unused) = taken(&[50.0, 200.0, 50.0, 200.0, 50.0], None, true);
        assert_eq!((number, pulses.retaken, unused), (u64::from(RETAKES_MAX), RETAKES_MAX, 1));
        assert!(!pulses.is_steady());
        let (number, pulses, _) = taken(&[50.0, 200.0, 50.0], None, false);
        assert_eq!((number, pulses.retaken, pulses.is_steady()), (0, 0, false));
    }

    #[test]
    fn a_pulse_that_fails_after_a_sample_does_not_cost_the_sample() {
        let (number, pulses, _) = taken(&[50.0], None, true);
        assert_eq!((number, cachelines_ns(&pulses)), (0, [Some(50.0), None]));
    }

    #[test]
    fn what_is_long_or_went_wrong_is_never_thrown_away() {
        let good = Sample::default();
        assert!(may_retake(Workload::Stream, true, &good) && may_retake(Workload::PingPong, false, &good));
        for long in [Workload::Failover, Workload::Idle, Workload::Stalled] {
            assert!(!may_retake(long, true, &good));
        }
        let failed = Sample { error: Some("receiver: killed".to_owned()), ..Sample::default() };
        assert!(!may_retake(Workload::Stream, true, &failed));
        let mut lossy = Sample::default();
        lossy.receiver.counts.lost = 1;
        assert!(!may_retake(Workload::Stream, true, &lossy), "a broken promise must be told");
        assert!(
            may_retake(Workload::Stream, false, &lossy),
            "an unreliable protocol loses something in each"
        );
    }
}
