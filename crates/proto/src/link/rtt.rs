//! Round-trip time of one link, and the waits that follow from it (protocol.md §5.4).

use crate::time::{Duration, Instant};

/// Guess before the first sample: long for a cluster, so that nothing is declared lost for want of knowledge.
const INITIAL: Duration = Duration::ms(10);
/// One of the two buckets that the windowed minimum is taken from.
const MIN_SPAN: Duration = Duration::s(5);
/// Stamps count units of 256 ns; no round trip is shorter than one.
const SHORTEST: Duration = Duration::ns(256);
/// Shortest wait before a probe, by default.
const PTO_MIN: Duration = Duration::ms(4);
/// What the driver's own lateness can add to any measured time, by default.
const GRANULARITY: Duration = Duration::ms(1);

/// Smoothed round-trip time, its variation, and its minimum over the last 5 to 10 s.
#[derive(Clone, Debug)]
pub struct Rtt {
    latest: Option<Duration>,
    smoothed: Duration,
    variation: Duration,
    min_current: Duration,
    min_previous: Duration,
    min_started: Instant,
    granularity: Duration,
    pto_min: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self::new()
    }
}

impl Rtt {
    /// Nothing measured yet: the guess is 10 ms, give or take 5.
    pub fn new() -> Self {
        Rtt {
            latest: None,
            smoothed: INITIAL,
            variation: Duration(INITIAL.0 / 2),
            min_current: Duration(u64::MAX),
            min_previous: Duration(u64::MAX),
            min_started: Instant::ZERO,
            granularity: GRANULARITY,
            pto_min: PTO_MIN,
        }
    }

    /// Takes in a round trip of `rtt`, of which the peer says that it held the acknowledgement for `ack_delay`.
    /// Smoothing as in RFC 9002 §5.3.
    pub fn sample(&mut self, now: Instant, rtt: Duration, ack_delay: Duration) {
        let rtt = (rtt - ack_delay).max(SHORTEST);
        if self.latest.is_none() {
            self.smoothed = rtt;
            self.variation = Duration(rtt.0 / 2);
            self.min_started = now;
        } else {
            let off = Duration(self.smoothed.0.abs_diff(rtt.0));
            self.variation = Duration((3 * self.variation.0).saturating_add(off.0) / 4);
            self.smoothed = Duration((7 * self.smoothed.0).saturating_add(rtt.0) / 8);
        }
        self.latest = Some(rtt);
        self.sample_min(now, rtt);
    }

    /// Whether anything was measured.
    pub fn has_sample(&self) -> bool {
        self.latest.is_some()
    }

    /// The smoothed round-trip time.
    pub fn srtt(&self) -> Duration {
        self.smoothed
    }

    /// Its mean deviation.
    pub fn rttvar(&self) -> Duration {
        self.variation
    }

    /// The shortest of the last 5 to 10 s; the guess before the first sample.
    pub fn min(&self) -> Duration {
        if self.has_sample() { self.min_current.min(self.min_previous) } else { INITIAL }
    }

    /// The last one measured; the guess before the first sample.
    pub fn latest(&self) -> Duration {
        self.latest.unwrap_or(INITIAL)
    }

    /// How long to wait for an acknowledgement that the peer may hold for `max_ack_delay`, before probing.
    pub fn pto(&self, max_ack_delay: Duration) -> Duration {
        let spread = self.variation.times(4).max(self.granularity);
        (self.smoothed + spread + max_ack_delay).max(self.pto_min)
    }

    /// How old a packet must be to count as lost once a later one was acknowledged.
    pub fn time_threshold(&self) -> Duration {
        let base = self.smoothed.max(self.latest());
        Duration(base.0 + base.0 / 8) + self.granularity
    }

    /// Sets what host stalls may add to any measured time (100 us on dedicated cores, 1 ms by default).
    pub fn set_granularity(&mut self, granularity: Duration) {
        self.granularity = granularity;
    }

    /// Sets the shortest wait before a probe (1 ms on dedicated cores, 4 ms by default).
    pub fn set_pto_min(&mut self, pto_min: Duration) {
        self.pto_min = pto_min;
    }

    fn sample_min(&mut self, now: Instant, rtt: Duration) {
        let age = now.since(self.min_started);
        if age >= MIN_SPAN {
            self.min_previous = if age >= MIN_SPAN.times(2) { rtt } else { self.min_current };
            self.min_current = rtt;
            self.min_started = now;
        }
        self.min_current = self.min_current.min(rtt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::ms(ms)
    }

    #[test]
    fn the_first_sample_replaces_the_guess() {
        let mut rtt = Rtt::new();
        assert_eq!((rtt.has_sample(), rtt.srtt(), rtt.min()), (false, INITIAL, INITIAL));
        rtt.sample(at(1), Duration::us(300), Duration::us(100));
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.min(), rtt.latest()), {
            let d = Duration::us(200);
            (d, Duration::us(100), d, d)
        });
    }

    #[test]
    fn smoothing_follows_rfc_9002() {
        let mut rtt = Rtt::new();
        rtt.sample(at(1), Duration(8000), Duration::ZERO);
        rtt.sample(at(2), Duration(16000), Duration::ZERO);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Duration(9000), Duration(5000)));
    }

    #[test]
    fn waits_have_floors() {
        let mut rtt = Rtt::new();
        for ms in 0..50 {
            rtt.sample(at(ms), Duration::us(50), Duration::ZERO);
        }
        assert_eq!(rtt.pto(Duration::ms(1)), Duration::ms(4));
        rtt.set_pto_min(Duration::ZERO);
        assert_eq!(rtt.pto(Duration::ms(1)), Duration::us(50) + Duration::ms(2));
        rtt.set_granularity(Duration::us(100));
        assert_eq!(rtt.pto(Duration::ms(1)), Duration::us(1150));
        assert_eq!(rtt.time_threshold(), Duration::ns(56_250 + 100_000));
    }

    #[test]
    fn the_threshold_grows_with_the_latest_sample() {
        let mut rtt = Rtt::new();
        rtt.sample(at(0), Duration::ms(1), Duration::ZERO);
        rtt.sample(at(1), Duration::ms(8), Duration::ZERO);
        assert_eq!(rtt.time_threshold(), Duration::ms(10));
    }

    #[test]
    fn the_minimum_is_forgotten_after_ten_seconds() {
        let mut rtt = Rtt::new();
        rtt.sample(at(0), Duration::us(50), Duration::ZERO);
        for s in 1..=4 {
            rtt.sample(at(s * 1000), Duration::us(900), Duration::ZERO);
        }
        rtt.sample(at(9_000), Duration::us(700), Duration::ZERO);
        assert_eq!(rtt.min(), Duration::us(50));
        rtt.sample(at(14_000), Duration::us(800), Duration::ZERO);
        assert_eq!(rtt.min(), Duration::us(700));
        rtt.sample(at(60_000), Duration::us(950), Duration::ZERO);
        assert_eq!(rtt.min(), Duration::us(950), "after a silence only the new sample is known");
    }

    #[test]
    fn a_delay_longer_than_the_round_trip_does_no_harm() {
        let mut rtt = Rtt::new();
        rtt.sample(at(0), Duration::us(10), Duration::ms(5));
        assert_eq!(rtt.min(), SHORTEST);
    }
}
