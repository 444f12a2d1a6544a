//! Samples of one phase of the machine: on a virtual machine everything takes up to four times as long once its cores were moved
//! apart, and a line through two phases describes neither.

use super::curve::{Curve, CurvePoint, TimedSample};
use crate::calibrate::PHASE_FACTOR;

/// A size with fewer samples than this in the chosen phase would be told by chance.
const SAMPLES_MIN: usize = 3;

/// What is left of a curve in one phase.
pub(super) struct OnePhase {
    pub(super) points: Vec<CurvePoint>,
    /// What was left out, or why nothing was.
    pub(super) note: Option<String>,
}

/// The samples of the phase that serves every size best; all of them where no phase has enough of each size.
pub(super) fn one_phase(curve: &Curve) -> OnePhase {
    let all: Vec<CurvePoint> = curve.points().into_iter().cloned().collect();
    let mut lines_ns: Vec<f64> =
        all.iter().flat_map(|point| &point.samples).filter_map(|sample| sample.cacheline_ns).collect();
    lines_ns.sort_by(f64::total_cmp);
    let (Some(nearest), Some(farthest)) = (lines_ns.first().copied(), lines_ns.last().copied()) else {
        return OnePhase { points: all, note: None };
    };
    if farthest <= PHASE_FACTOR * nearest {
        return OnePhase { points: all, note: None };
    }
    let count = |point: &CurvePoint, low: f64| point.samples.iter().filter(|s| is_within(s, low)).count();
    let score = |low: f64| {
        let counts = all.iter().map(|point| count(point, low));
        (counts.clone().min().unwrap_or(0).min(SAMPLES_MIN), counts.sum::<usize>())
    };
    // The first of equals is the nearest.
    let best = lines_ns.iter().copied().rev().max_by_key(|low| score(*low)).unwrap_or(nearest);
    let total: usize = all.iter().map(|point| point.samples.len()).sum();
    let (least, kept) = score(best);
    let wanted = all.iter().map(|point| point.samples.len()).min().unwrap_or(0).min(SAMPLES_MIN);
    if least < wanted {
        let note = format!(
            "the machine changed phase (a cache line took {nearest:.0} to {farthest:.0} ns) and no phase has {wanted} samples of \
             each size: all of them are in the fit; measure again, or with more --repeat"
        );
        return OnePhase { points: all, note: Some(note) };
    }
    let within = |point: &CurvePoint| CurvePoint {
        size_bytes: point.size_bytes,
        samples: point.samples.iter().copied().filter(|sample| is_within(sample, best)).collect(),
    };
    let note = format!(
        "{} of {total} samples were taken in another phase of the machine and are left out: a cache line took {best:.0} to \
         {:.0} ns in those that count, {nearest:.0} to {farthest:.0} ns in all",
        total - kept,
        best * PHASE_FACTOR
    );
    OnePhase { points: all.iter().map(within).collect(), note: (kept < total).then_some(note) }
}

fn is_within(sample: &TimedSample, low: f64) -> bool {
    sample.cacheline_ns.is_some_and(|ns| ns >= low && ns <= low * PHASE_FACTOR)
}
