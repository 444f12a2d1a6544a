//! One time for each size: the middle of the logarithms of its samples, for a machine slows things by a share and not by an
//! amount. What lies far from the rest counts less, and beyond a limit nothing.

use super::curve::CurvePoint;
use crate::stats::{hampel_weight, median};

/// The scatter that samples have at least, as a share: figures are kept to three digits, so that equal ones need not be.
pub(super) const SCATTER_MIN: f64 = 0.000_5;
/// Makes the median distance from the middle comparable to a standard deviation.
const DISTANCE_TO_DEVIATION: f64 = 1.4826;
/// The part of a size's own scatter that it is measured by at least.
const OWN_SHARE: f64 = 0.8;

/// A size and its time.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) bytes: f64,
    /// Logarithms of its samples' times in us.
    pub(super) samples: Vec<f64>,
    /// Middle of these.
    pub(super) middle: f64,
    /// Beyond some of these a sample counts less.
    pub(super) scatter: f64,
    /// Standard error of the middle, as a share.
    pub(super) error: f64,
    /// Samples that lie so far off that they do not count.
    pub(super) outliers: usize,
}

/// The levels of points that have samples.
pub(super) fn levels(points: &[CurvePoint]) -> Vec<Level> {
    let logarithms =
        |point: &CurvePoint| point.samples.iter().map(|sample| sample.time_us.ln()).collect::<Vec<f64>>();
    let samples: Vec<Vec<f64>> = points.iter().map(logarithms).collect();
    let distances = |values: &Vec<f64>| {
        let middle = median(values).unwrap_or(0.0);
        let freedom = (values.len() as f64 / (values.len() as f64 - 1.0).max(1.0)).sqrt();
        values.iter().map(move |value| (value - middle).abs() * freedom).collect::<Vec<f64>>()
    };
    let distances: Vec<Vec<f64>> = samples.iter().map(distances).collect();
    // All sizes together say best what an ordinary distance is: one alone has few samples.
    let of_several = |all: &&Vec<f64>| all.len() > 1;
    let common: Vec<f64> = distances.iter().filter(of_several).flatten().copied().collect();
    let common = median(&common).unwrap_or(0.0);
    let level = |((point, samples), distances): ((&CurvePoint, Vec<f64>), &Vec<f64>)| {
        let own = median(distances).unwrap_or(0.0);
        let scatter = (DISTANCE_TO_DEVIATION * common.max(OWN_SHARE * own)).max(SCATTER_MIN);
        let middle = robust_middle(&samples, scatter);
        let weigh =
            || samples.iter().map(|value| (hampel_weight((value - middle) / scatter), value - middle));
        let weights: f64 = weigh().map(|(weight, _)| weight).sum();
        let error = scatter / weights.max(1.0).sqrt();
        let outliers = weigh().filter(|(weight, _)| *weight == 0.0).count();
        Level { bytes: point.size_bytes as f64, samples, middle, scatter, error, outliers }
    };
    points.iter().zip(samples).zip(&distances).map(level).collect()
}

/// The weighted mean of values, from their median on, in two steps.
pub(super) fn robust_middle(values: &[f64], scatter: f64) -> f64 {
    let step = |at: f64| {
        let weigh = values.iter().map(|value| (hampel_weight((value - at) / scatter), value));
        let (all, sum) =
            weigh.fold((0.0, 0.0), |(all, sum), (weight, value)| (all + weight, sum + weight * value));
        if all > 0.0 { sum / all } else { at }
    };
    step(step(median(values).unwrap_or(0.0)))
}
