//! From figures to places in a plot, and where its ticks stand.

/// The most that a plot shows, as a factor: what lies beyond is at its edge. A document may hold any number.
const DECADES_MAX: f64 = 24.0;
/// The least that an axis spans, as a factor: of less, chance looks like a difference.
const FACTOR_MIN: f64 = 1.6;

/// An axis: which figures lie where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// A logarithmic axis over what is above zero, some air around it; none where nothing is. `from` and `to` are the places of
    /// its ends.
    pub(super) fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (low, high) = bounds(logs)?;
        let high = high.min(low + DECADES_MAX);
        let air = ((FACTOR_MIN.log10() - (high - low)) / 2.0).max((high - low) * 0.05);
        Some(Self { low: low - air, high: high + air, is_log: true, from, to })
    }

    /// A linear axis from zero to a little above the largest value.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (_, high) = bounds(values.filter(|value| value.is_finite()))?;
        let high = if high > 0.0 { high * 1.06 } else { 1.0 };
        Some(Self { low: 0.0, high, is_log: false, from, to })
    }

    /// A linear axis with these ends.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        Self { low, high, is_log: false, from, to }
    }

    /// Where a figure lies; at the edge what lies beyond.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.is_log {
            true if value > 0.0 => value.log10(),
            true => self.low,
            false => value,
        };
        let share = (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE);
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }

    /// Round figures within the axis, not more than `most` of them and two at least if there are such.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        if !self.is_log {
            return linear_ticks(self.low, self.high, most);
        }
        let decades = |mantissas: &[f64], step: i32| -> Vec<f64> {
            #[expect(clippy::cast_possible_truncation, reason = "logarithms of finite numbers")]
            let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
            let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(step) == 0);
            let all = exponents.flat_map(|exponent| mantissas.iter().map(move |m| m * 10f64.powi(exponent)));
            all.filter(|tick| (self.low..=self.high).contains(&tick.log10())).collect()
        };
        let finest_first =
            [decades(&[1.0, 2.0, 5.0], 1), decades(&[1.0, 3.0], 1), decades(&[1.0], 1), decades(&[1.0], 3)];
        let fits = finest_first.into_iter().find(|ticks| ticks.len() <= most);
        match fits.unwrap_or_else(|| decades(&[1.0], 6)) {
            ticks if ticks.len() >= 2 => ticks,
            _ => linear_ticks(10f64.powf(self.low), 10f64.powf(self.high), most),
        }
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((f64::min(low, value), f64::max(high, value)))
    })
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let all = (0..=most).map(|number| (first + number as f64) * step);
    all.filter(|tick| *tick <= high * (1.0 + 1e-9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_as_long_as_the_next_one() {
        let scale = Scale::log([1.0, 100.0].into_iter(), 0.0, 110.0).unwrap();
        let [one, ten, hundred] = [1.0, 10.0, 100.0].map(|value| scale.place(value));
        assert!((ten - one - 50.0).abs() < 1e-9 && (hundred - ten - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks(3), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn what_hardly_differs_lies_near_each_other() {
        let scale = Scale::log([946.0, 956.0].into_iter(), 0.0, 100.0).unwrap();
        assert!((scale.place(956.0) - scale.place(946.0)).abs() < 3.0);
        assert!(scale.ticks(5).len() >= 2, "{:?}", scale.ticks(5));
    }

    #[test]
    fn numbers_that_make_no_sense_stay_within_the_plot_and_make_no_ticks_without_end() {
        let scale = Scale::log([1e-300, 1e300, -1.0, f64::NAN].into_iter(), 0.0, 100.0).unwrap();
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!((0.0..=100.0).contains(&scale.place(value)), "{value}");
        }
        assert!(scale.ticks(6).len() <= 6);
        assert!(Scale::log([0.0, -1.0].into_iter(), 0.0, 1.0).is_none());
        let zero = Scale::from_zero([0.0].into_iter(), 0.0, 1.0).unwrap();
        assert!(zero.ticks(4).len() >= 2);
    }

    #[test]
    fn linear_ticks_are_round_and_include_zero() {
        assert_eq!(Scale::linear(0.0, 106.0, 0.0, 1.0).ticks(4), [0.0, 50.0, 100.0]);
    }
}
