//! Two protocols held against each other: how many times as fast one is, by the ratios within each repetition.

use std::cmp::Ordering;

use super::figure::{Metric, SAMPLES_MAX, SAMPLES_MIN, values};
use crate::report::document::Row;
use crate::stats::{Ratio, paired_ratio};

/// How many times as good the first is, and with which certainty.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Versus {
    pub(in crate::report) ratio: Ratio,
    /// Pairs in which the machine changed phase.
    pub(in crate::report) mixed: usize,
}

/// What a ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Shown {
    Better,
    Worse,
    /// The interval contains 1.
    Nothing,
    /// Too few pairs for an interval.
    Few,
}

impl Versus {
    /// How many times as much `first` has of what is better; none where no repetition has both. Both rows are of one document: what
    /// was measured at different times makes no pairs.
    pub(in crate::report) fn of(first: &Row, second: &Row, metric: &Metric) -> Option<Self> {
        let [a, b] = [first, second].map(|row| (metric.of)(row).map(|spread| values(row, spread)));
        let paired: Vec<(usize, (f64, f64))> =
            a?.into_iter().zip(b?).enumerate().filter_map(|(at, (a, b))| Some((at, (a?, b?)))).collect();
        let positive = paired.iter().filter(|(_, (a, b))| *a > 0.0 && *b > 0.0);
        let pairs: Vec<(f64, f64)> =
            positive.map(|(_, (a, b))| if metric.is_better_high { (*a, *b) } else { (*b, *a) }).collect();
        let is_mixed = |at: usize| match (first.calibration.get(at), second.calibration.get(at)) {
            (Some(a), Some(b)) => !a.is_one_phase_with(b),
            _ => false,
        };
        let mixed = paired.iter().take(SAMPLES_MAX).filter(|(at, _)| is_mixed(*at)).count();
        // A fixed seed: the same samples give the same interval.
        Some(Self { ratio: paired_ratio(&pairs, 1)?, mixed })
    }

    pub(in crate::report) fn shown(&self) -> Shown {
        let Ratio { low, high, pairs, .. } = self.ratio;
        match (low.partial_cmp(&1.0), high.partial_cmp(&1.0)) {
            _ if pairs < SAMPLES_MIN => Shown::Few,
            (Some(Ordering::Greater), _) => Shown::Better,
            (_, Some(Ordering::Less)) => Shown::Worse,
            _ => Shown::Nothing,
        }
    }

    /// The interval and the pairs, in words.
    pub(super) fn certainty(&self) -> String {
        let Ratio { low, high, pairs, .. } = self.ratio;
        let (low, high) = (times(low), times(high));
        let mixed = match self.mixed {
            0 => String::new(),
            1 => ", the machine changed phase in one".to_owned(),
            mixed => format!(", the machine changed phase in {mixed}"),
        };
        match (self.shown(), pairs) {
            (Shown::Few, 1) => "one pair only".to_owned(),
            (Shown::Few, _) => format!("{pairs} pairs only: {low} to {high} seen{mixed}"),
            _ => format!("95 %: {low} to {high}, {pairs} pairs{mixed}"),
        }
    }
}

/// A ratio with as many digits as it deserves: three where it is near 1.
pub(in crate::report) fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 1e5 => format!("{r:.0e}"),
        r if r >= 99.95 => format!("{r:.0}"),
        r if r >= 9.995 => format!("{r:.1}"),
        r if (0.9..1.1).contains(&r) => format!("{r:.3}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r if r >= 0.01 => format!("{r:.3}"),
        r if r >= 0.000_1 => format!("{r:.4}"),
        r => format!("{r:.0e}"),
    }
}
