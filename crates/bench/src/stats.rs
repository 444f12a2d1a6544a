//! Medians, spreads, and ratios with their intervals: paired, and of samples taken at different times.

mod shift;

use serde::{Deserialize, Serialize};

pub(crate) use shift::hampel_weight;
pub use shift::{SAMPLES_MIN, Shift, shift};

/// The middle of several samples, with their range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// The lowest sample.
    pub low: f64,
    /// The highest sample.
    pub high: f64,
    /// Number of samples.
    pub samples: usize,
    /// The samples by repetition; null for one that gave none. Documents of early versions have none of them.
    #[serde(default)]
    pub values: Vec<Option<f64>>,
}

impl Spread {
    /// The spread of `samples`; none where there is none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        Self::over(samples.iter().copied().map(Some))
    }

    /// The spread of what the repetitions gave, in their order; none where none gave anything.
    pub fn over(repetitions: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        // JSON has no infinity: such a value would come back as null.
        let values: Vec<Option<f64>> = repetitions.map(|value| value.filter(|v| v.is_finite())).collect();
        let samples: Vec<f64> = values.iter().flatten().copied().collect();
        let median = median(&samples)?;
        let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, low, high, samples: samples.len(), values })
    }

    /// The samples that there are.
    pub fn present(&self) -> Vec<f64> {
        self.values.iter().flatten().copied().collect()
    }
}

/// How two things measured in turn compare: the median of the paired ratios and its 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of first / second over the pairs.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

/// Rounds of resampling: enough that the ends of the interval move by under a percent of its width.
const BOOTSTRAP_ROUNDS: usize = 4_000;

/// The middle of `values`; none where there are none. NaN sorts last.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_in_place(&mut sorted)
}

/// The value that `share` of the values do not exceed, one that occurs among them; none where there are none.
pub fn nearest_rank(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The ratio of pairs measured next to each other, resampled by a generator started from `seed`. Pairing cancels
/// what slows both alike; a pair whose second value is not above zero is left out.
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Ratio> {
    let ratios: Vec<f64> =
        pairs.iter().filter(|pair| pair.1 > 0.0 && pair.0.is_finite()).map(|pair| pair.0 / pair.1).collect();
    let middle = median(&ratios)?;
    let mut random = Prng::new(seed);
    let mut resampled = vec![0.0; ratios.len()];
    let mut medians: Vec<f64> = (0..BOOTSTRAP_ROUNDS)
        .map(|_| {
            resampled.fill_with(|| ratios[random.below(ratios.len())]);
            median_in_place(&mut resampled).unwrap_or(middle)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let low = medians[BOOTSTRAP_ROUNDS * 25 / 1000];
    let high = medians[BOOTSTRAP_ROUNDS * 975 / 1000];
    Some(Ratio { median: middle, low, high, pairs: ratios.len() })
}

fn median_in_place(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// A small generator of repeatable random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of a wide product: no bias worth the name for bounds of a few thousand.
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_nothing() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn spread_keeps_the_range() {
        let spread = Spread::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!((spread.median, spread.low, spread.high, spread.samples), (3.0, 1.0, 5.0, 3));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_spread_keeps_each_sample_in_its_repetitions_place() {
        let spread = Spread::over([Some(5.0), None, Some(f64::INFINITY), Some(1.0)].into_iter()).unwrap();
        assert_eq!((spread.samples, spread.present()), (2, vec![5.0, 1.0]));
        let text = serde_json::to_string(&spread).unwrap();
        assert!(text.contains("[5.0,null,null,1.0]"), "{text}");
        assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), spread);
        assert_eq!(Spread::over([None].into_iter()), None);
    }

    #[test]
    fn the_nearest_rank_is_a_value_that_occurred() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let at = |share| nearest_rank(&values, share);
        assert_eq!(
            [at(0.0), at(0.5), at(0.95), at(0.99), at(1.0)].map(Option::unwrap),
            [1.0, 10.0, 19.0, 20.0, 20.0]
        );
        assert_eq!(nearest_rank(&[], 0.5), None);
    }

    #[test]
    fn pairing_cancels_a_common_drift() {
        // Both slow down tenfold over the run; each pair still differs by exactly 3 %.
        let pairs: Vec<(f64, f64)> =
            (0..20).map(|i| 100.0 / f64::from(i + 1)).map(|x| (x * 1.03, x)).collect();
        let ratio = paired_ratio(&pairs, 1).unwrap();
        assert!((ratio.median - 1.03).abs() < 1e-9 && (ratio.low - 1.03).abs() < 1e-9);
        assert!((ratio.high - 1.03).abs() < 1e-9);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let pairs: Vec<(f64, f64)> = (0..9).map(|i| (f64::from(i % 4) + 1.0, 2.0)).collect();
        assert_eq!(paired_ratio(&pairs, 7), paired_ratio(&pairs, 7));
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = Prng::new(42);
        let mut uniform = move || random.below(1_000_000) as f64 / 1e6;
        let trials = 200;
        let covered = (0..trials)
            .filter(|trial| {
                let pairs: Vec<(f64, f64)> = (0..15).map(|_| (1.0 + 0.1 * (uniform() - 0.5), 1.0)).collect();
                let ratio = paired_ratio(&pairs, *trial).unwrap();
                ratio.low <= 1.0 && 1.0 <= ratio.high
            })
            .count();
        assert!(covered >= 180, "the true median lay within {covered} of {trials} intervals");
    }

    #[test]
    fn pairs_without_a_second_value_are_left_out() {
        let ratio = paired_ratio(&[(2.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0)], 1).unwrap();
        assert_eq!((ratio.median, ratio.pairs), (2.0, 1));
        assert_eq!(paired_ratio(&[(1.0, 0.0)], 1), None);
    }

    #[test]
    fn below_reaches_every_value_and_no_more() {
        let mut random = Prng::new(3);
        let mut seen = [0; 7];
        (0..7_000).for_each(|_| seen[random.below(7)] += 1);
        assert!(seen.iter().all(|&count| count > 700), "{seen:?}");
    }
}
