//! How two sets of samples compare that were taken at different times, so that nothing pairs them.
//!
//! The samples' logarithms are taken, for a machine slows things by a share and not by an amount. Each side's middle is
//! a mean in which what lies far from the rest counts less, and beyond a limit nothing (Hampel's weights): a stall of
//! the machine is no property of what was measured. The difference of the middles is held against its own standard
//! error, and how large that quotient becomes by chance is found from the samples themselves, dealt anew to the two
//! sides again and again (a studentized permutation): no distribution is assumed, and few samples get the wide interval
//! that they deserve. A rank test, which assumes as little, overlooks twice as many differences of one and a half times
//! the scatter, with 15 samples a side and one in twenty disturbed.

use serde::{Deserialize, Serialize};

use super::{Prng, median_in_place};

/// Fewer samples on a side show nothing.
pub const SAMPLES_MIN: usize = 5;

/// The ratio of two sets of samples, second to first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// Middle of the second by the middle of the first.
    pub ratio: f64,
    /// Lower end of its 97 % interval: of what did not change, one figure in thirty is told to differ.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// How many samples of each side lay so far from the others that they did not count.
    pub outliers: [usize; 2],
}

impl Shift {
    /// Whether the interval leaves out that both are equal.
    pub fn is_shown(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Compares `second` to `first`; samples are dealt anew by a generator started from `seed`. None with fewer than
/// [`SAMPLES_MIN`] on a side, or with a value that is not above zero.
pub fn shift(first: &[f64], second: &[f64], seed: u64) -> Option<Shift> {
    let usable = |values: &[f64]| {
        values.len() >= SAMPLES_MIN && values.iter().all(|value| *value > 0.0 && value.is_finite())
    };
    if !usable(first) || !usable(second) {
        return None;
    }
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (first, second) = (logarithms(first), logarithms(second));
    let mut scratch = Vec::with_capacity(first.len() + second.len());
    let contrast = contrast(&first, &second, &mut scratch);
    let reach = chance(&first, &second, &contrast, seed) * contrast.error;
    Some(Shift {
        ratio: contrast.difference().exp(),
        low: (contrast.difference() - reach).exp(),
        high: (contrast.difference() + reach).exp(),
        outliers: contrast.middles.map(|middle| middle.outliers),
    })
}

/// From here to there a sample's weight falls to nothing, in units of the scatter.
const FULL_UNTIL: f64 = 2.0;
const LESS_FROM: f64 = 3.0;
const NOTHING_FROM: f64 = 4.5;
/// The part of a side's own scatter that it is measured by at least. With less, a side that scatters far more than the
/// other loses its edges and seems surer than it is; with more, chance in either side's scatter lets outliers count.
const OWN_SHARE: f64 = 0.8;
/// The scatter that samples have at least, as a share: figures are kept to three digits, so that equal ones need not be.
const SCATTER_MIN: f64 = 0.000_5;
/// Makes the median distance from the middle comparable to a standard deviation.
const DISTANCE_TO_DEVIATION: f64 = 1.4826;
/// Times that the samples are dealt anew.
const DEALS: usize = 1_000;
/// How many of them the quotient that counts is not below. A little above 97 %, for so few deals know that place only
/// to within half a percent, and what is called an interval of 97 % is to miss no more often.
const DEALS_BELOW: usize = 974;
/// The quotient of a normal distribution that 97 % do not exceed; of many samples it is that.
const NORMAL: f64 = 2.17;
/// Above this many samples in all dealing tells nothing that [`NORMAL`] does not.
const DEALT_SAMPLES_MAX: usize = 400;

/// The two middles and what their difference is worth.
struct Contrast {
    middles: [Middle; 2],
    /// Standard error of the difference.
    error: f64,
}

impl Contrast {
    fn difference(&self) -> f64 {
        self.middles[1].at - self.middles[0].at
    }

    fn quotient(&self) -> f64 {
        self.difference() / self.error
    }
}

/// The middle of one side.
#[derive(Clone, Copy)]
struct Middle {
    at: f64,
    /// Standard error, squared.
    error_squared: f64,
    outliers: usize,
}

fn contrast(first: &[f64], second: &[f64], scratch: &mut Vec<f64>) -> Contrast {
    let medians = [middle_of(first.iter().copied(), scratch), middle_of(second.iter().copied(), scratch)];
    let distances =
        |side: &[f64], at: f64| side.iter().map(move |value| (value - at).abs()).collect::<Vec<f64>>();
    let (near, far) = (distances(first, medians[0]), distances(second, medians[1]));
    let samples = (first.len() + second.len()) as f64;
    // Both sides together say best what an ordinary distance is; two middles have used up two of them.
    let common = middle_of(near.iter().chain(&far).copied(), scratch) * samples / (samples - 2.0);
    let mut middle = |side: &[f64], distances: &[f64], median: f64| {
        let samples = side.len() as f64;
        // A side that scatters more than the other is measured by itself: half of it always counts in full.
        let own = middle_of(distances.iter().copied(), scratch) * samples / (samples - 1.0);
        middle(side, median, (DISTANCE_TO_DEVIATION * common.max(OWN_SHARE * own)).max(SCATTER_MIN))
    };
    let middles = [middle(first, &near, medians[0]), middle(second, &far, medians[1])];
    Contrast { middles, error: (middles[0].error_squared + middles[1].error_squared).sqrt() }
}

/// The weighted mean of one side, from its median on, and its error.
fn middle(side: &[f64], median: f64, scatter: f64) -> Middle {
    let weigh = |at: f64| side.iter().map(move |value| (hampel_weight((value - at) / scatter), *value));
    let sum = |at: f64| {
        weigh(at).fold((0.0, 0.0), |(all, sum), (weight, value)| (all + weight, sum + weight * value))
    };
    let step = |at: f64| match sum(at) {
        (all, sum) if all > 0.0 => sum / all,
        _ => at,
    };
    let last = step(median);
    let at = step(last);
    let (weights, squares) = weigh(last).fold((0.0, 0.0), |(all, squares), (weight, value)| {
        (all + weight, squares + weight * (value - at) * (value - at))
    });
    let variance = (squares / (weights - 1.0_f64).max(1.0)).max(SCATTER_MIN * SCATTER_MIN);
    let outliers = weigh(last).filter(|(weight, _)| *weight == 0.0).count();
    Middle { at, error_squared: variance / weights.max(1.0), outliers }
}

/// Hampel's weights of a distance in units of the scatter: one, then as much as keeps the influence constant, then falling to none.
pub(crate) fn hampel_weight(distance: f64) -> f64 {
    match distance.abs() {
        near if near <= FULL_UNTIL => 1.0,
        far if far <= LESS_FROM => FULL_UNTIL / far,
        far if far < NOTHING_FROM => FULL_UNTIL / far * (NOTHING_FROM - far) / (NOTHING_FROM - LESS_FROM),
        _ => 0.0,
    }
}

/// The quotient that chance alone does not exceed in 97 % of the cases: of the samples without their sides' difference.
fn chance(first: &[f64], second: &[f64], contrast: &Contrast, seed: u64) -> f64 {
    if first.len() + second.len() > DEALT_SAMPLES_MAX {
        return NORMAL;
    }
    let mut random = Prng::new(seed);
    let rest = |side: &[f64], at: f64| side.iter().map(move |value| value - at).collect::<Vec<f64>>();
    let mut dealt = rest(first, contrast.middles[0].at);
    dealt.extend(rest(second, contrast.middles[1].at));
    let mut scratch = Vec::with_capacity(dealt.len());
    let mut quotients: Vec<f64> = (0..DEALS)
        .map(|_| {
            // The first side's places are drawn; what is left is the other's.
            for place in 0..first.len() {
                let drawn = place + random.below(dealt.len() - place);
                dealt.swap(place, drawn);
            }
            let (first, second) = dealt.split_at(first.len());
            self::contrast(first, second, &mut scratch).quotient().abs()
        })
        .collect();
    quotients.sort_by(f64::total_cmp);
    // Two middles were taken from the samples and dealing takes back one: what is dealt scatters too little, which
    // matters to few.
    let samples = dealt.len() as f64;
    (quotients[DEALS_BELOW] * ((samples - 1.0) / (samples - 2.0)).sqrt()).max(NORMAL)
}

fn middle_of(values: impl Iterator<Item = f64>, scratch: &mut Vec<f64>) -> f64 {
    scratch.clear();
    scratch.extend(values);
    median_in_place(scratch).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` samples around `middle` that scatter evenly by `share` up and down.
    fn even(middle: f64, share: f64, count: u32) -> Vec<f64> {
        let place = |i: u32| 2.0 * f64::from(i) / f64::from(count - 1) - 1.0;
        (0..count).map(|i| middle * (1.0 + share * place(i))).collect()
    }

    #[test]
    fn a_clear_difference_is_shown_with_its_size() {
        let shift = shift(&even(100.0, 0.02, 15), &even(90.0, 0.02, 15), 1).unwrap();
        assert!((shift.ratio - 0.9).abs() < 0.001 && shift.is_shown(), "{shift:?}");
        assert!(shift.low < 0.9 && 0.9 < shift.high && shift.high < 0.95, "{shift:?}");
        assert_eq!(shift.outliers, [0, 0]);
    }

    #[test]
    fn what_lies_far_off_moves_nothing_and_is_counted() {
        let (first, mut second) = (even(100.0, 0.02, 15), even(100.0, 0.02, 15));
        second[3] = 1.0;
        second[9] = 3_000.0;
        let shift = shift(&first, &second, 1).unwrap();
        assert!((shift.ratio - 1.0).abs() < 0.005 && !shift.is_shown(), "{shift:?}");
        assert_eq!(shift.outliers, [0, 2]);
    }

    #[test]
    fn most_of_a_side_being_slower_is_no_outlier() {
        let first = even(100.0, 0.02, 15);
        for slow in [9, 12, 15] {
            let mut second = even(100.0, 0.02, 15);
            second.iter_mut().take(slow).for_each(|value| *value /= 2.0);
            let shift = shift(&first, &second, 1).unwrap();
            assert!(shift.is_shown() && shift.ratio < 0.7, "{slow} of 15: {shift:?}");
        }
    }

    #[test]
    fn a_side_of_two_halves_has_a_middle_nevertheless() {
        let second = [50.0, 50.1, 50.2, 150.0, 150.1, 150.2];
        let shift = shift(&even(100.0, 0.000_1, 15), &second, 1).unwrap();
        assert!(shift.ratio.is_finite() && !shift.is_shown(), "{shift:?}");
    }

    #[test]
    fn samples_without_scatter_differ_by_no_less_than_their_digits() {
        assert!(!shift(&[9.5; 5], &[9.5; 5], 1).unwrap().is_shown());
        assert!(!shift(&[9.500; 5], &[9.504; 5], 1).unwrap().is_shown());
        let shift = shift(&[9.5; 5], &[9.6; 5], 1).unwrap();
        assert!(shift.is_shown() && shift.high - shift.low < 0.002, "{shift:?}");
    }

    #[test]
    fn the_other_way_round_is_the_reciprocal() {
        let (first, second) = (even(100.0, 0.03, 9), even(96.0, 0.02, 12));
        let (there, back) = (shift(&first, &second, 3).unwrap(), shift(&second, &first, 3).unwrap());
        assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
        assert!((there.low * back.high - 1.0).abs() < 0.01, "{there:?} {back:?}");
    }

    #[test]
    fn few_samples_and_values_without_a_logarithm_show_nothing() {
        assert_eq!(shift(&[1.0; 4], &[2.0; 15], 1), None);
        assert_eq!(shift(&[1.0; 15], &[2.0; 4], 1), None);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(shift(&[1.0, 1.0, 1.0, 1.0, wrong], &[1.0; 5], 1), None, "{wrong}");
        }
    }

    #[test]
    fn many_samples_are_compared_without_dealing_them() {
        let shift = shift(&even(100.0, 0.02, 3_000), &even(99.0, 0.02, 3_000), 1).unwrap();
        assert!(shift.is_shown() && (shift.ratio - 0.99).abs() < 0.001, "{shift:?}");
    }
}
