//! Round-trip times by bucket: three significant digits from a nanosecond to a minute, and mergeable.

use hdrhistogram::Histogram as Hdr;

/// A histogram of times in ns.
pub(crate) struct Histogram {
    inner: Hdr<u64>,
}

const NS_MAX: u64 = 60_000_000_000;

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { inner: Hdr::new_with_bounds(1, NS_MAX, 3).expect("constant bounds are valid") }
    }

    /// A histogram from what [`Histogram::buckets`] gave.
    pub(crate) fn from_buckets<'a>(buckets: impl IntoIterator<Item = &'a (u64, u64)>) -> Self {
        let mut histogram = Self::new();
        for &(ns, count) in buckets {
            histogram.inner.saturating_record_n(ns, count);
        }
        histogram
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.inner.saturating_record(ns);
    }

    /// Value and count of every bucket that is not empty.
    pub(crate) fn buckets(&self) -> Vec<(u64, u64)> {
        self.inner.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// The value below which `share` of the times lie, in us; none if nothing was recorded.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<f64> {
        (!self.inner.is_empty()).then(|| self.inner.value_at_quantile(share) as f64 / 1e3)
    }

    /// The longest time, in us.
    pub(crate) fn max_us(&self) -> Option<f64> {
        (!self.inner.is_empty()).then(|| self.inner.max() as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_carry_a_histogram_over_without_change() {
        let mut histogram = Histogram::new();
        (1..=10_000).for_each(|i| histogram.record(i * 100));
        let copy = Histogram::from_buckets(&histogram.buckets());
        for share in [0.5, 0.9, 0.99, 0.999] {
            assert_eq!(copy.quantile_us(share), histogram.quantile_us(share));
        }
        let p50 = copy.quantile_us(0.5).unwrap();
        assert!((p50 - 500.0).abs() < 1.0, "{p50}");
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        assert_eq!(Histogram::new().quantile_us(0.5), None);
        assert_eq!(Histogram::new().max_us(), None);
    }
}
