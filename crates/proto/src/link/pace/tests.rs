//! Acknowledgements as links of several kinds bring them, and what is expected of the links then.

use super::*;

const PACKET: u64 = 1_000;
const TARGET: Duration = Duration::us(500);
const TRIP: Duration = Duration::us(100);

/// A link whose shortest round trip is 100 us.
struct Feed {
    pace: Pace,
    now: Instant,
    rx_bytes: u64,
}

impl Feed {
    fn new() -> Feed {
        Feed { pace: Pace::default(), now: Instant::ZERO + Duration::s(1), rx_bytes: 0 }
    }

    /// So many bytes are acknowledged after a while; the oldest took so long, and so many are still on the way.
    fn ack(&mut self, after: Duration, bytes: u64, took: Duration, left: u64) -> u64 {
        self.ack_with(after, bytes, took, left, None)
    }

    fn ack_with(&mut self, after: Duration, bytes: u64, took: Duration, left: u64, full: Option<u64>) -> u64 {
        self.now += after;
        self.rx_bytes += bytes;
        let sample = AckSample {
            acked_bytes: bytes,
            rx_bytes: self.rx_bytes,
            rx_clock: self.now.stamp(),
            rtt: took,
            rtt_min: TRIP,
            inflight_before: bytes + left,
            app_limited: true,
            bearer_full: false,
            queueing: Duration::ZERO,
            heard_at: self.now,
            took,
        };
        self.pace.on_ack(self.now, &sample, full, PACKET, TARGET);
        self.pace.bytes_per_s()
    }

    /// A lone message of 10,000 bytes.
    fn burst(&mut self, took: Duration) -> u64 {
        self.ack(Duration::ms(1), 10_000, took, 0)
    }
}

#[test]
fn a_link_is_as_fast_as_bursts_pass() {
    let mut feed = Feed::new();
    let two = feed.ack(Duration::ms(1), 2 * PACKET, Duration::us(50), 0);
    assert_eq!(two, 0, "two packets tell of the round trip");
    assert_eq!(feed.burst(Duration::us(200)), 50_000_000);
    assert_eq!(feed.burst(Duration::us(100)), 66_666_666);
    assert!(!feed.pace.is_of_load());
    let after = (0..200).map(|_| feed.ack(Duration::ms(10), 10_000, Duration::ms(5), 0)).last();
    assert!(after < Some(3_000_000), "if all are late, it has become slow: {after:?}");
    let after = (0..200).map(|_| feed.burst(Duration::us(100))).last();
    assert!(after > Some(90_000_000), "and fast again: {after:?}");
}

/// A shaper lets the first packets of a message pass at once, and the others one after the other.
#[test]
fn packets_that_pass_before_the_others_do_not_make_it_fast() {
    let mut feed = Feed::new();
    for _ in 0..20 {
        feed.ack(Duration::ms(5), 3 * PACKET, Duration::us(20), 9 * PACKET);
        (1..=9).for_each(|n| {
            _ = feed.ack(Duration::us(100), PACKET, Duration::us(20 + 100 * n), (9 - n) * PACKET)
        });
    }
    // 12 packets in 920 us, of which the last two tell nothing.
    let rate = feed.pace.bytes_per_s();
    assert!((13_000_000..15_000_000).contains(&rate), "{rate}");
}

#[test]
fn a_machine_that_stood_still_is_no_slow_link() {
    let mut feed = Feed::new();
    (0..100).for_each(|_| _ = feed.burst(Duration::us(100)));
    assert!(feed.ack(Duration::ms(30), 10_000, Duration::ms(30), 0) > 80_000_000);
    // Nor if others were behind what was under way before it or after it.
    let mut feed = Feed::new();
    feed.ack(Duration::ms(1), 10_000, Duration::ms(4), 100_000);
    feed.ack(Duration::ms(20), 10_000, Duration::ms(24), 90_000);
    feed.ack(Duration::us(50), 40_000, Duration::ms(24), 50_000);
    feed.ack(Duration::us(50), 50_000, Duration::ms(24), 0);
    assert!(!feed.pace.is_of_load(), "{:?}", feed.pace);
}

#[test]
fn what_the_full_window_measured_counts_more_than_bursts_for_a_second() {
    let mut feed = Feed::new();
    feed.burst(Duration::us(100));
    let full = Some(25_000_000);
    assert_eq!(feed.ack_with(Duration::ms(1), 10_000, Duration::us(50), 0, full), 25_000_000);
    assert!(feed.pace.is_of_load());
    (0..999).for_each(|_| assert_eq!(feed.burst(Duration::us(100)), 25_000_000));
    assert_eq!(feed.burst(Duration::us(100)), 100_000_000);
    assert!(!feed.pace.is_of_load());
}

#[test]
fn what_was_learnt_is_forgotten_later_each_time_that_it_is_learnt_again() {
    /// For how many milliseconds a burst that took so long is remembered by a link that carries nothing else.
    fn remembered(feed: &mut Feed, took_us: u64) -> u64 {
        assert!(feed.burst(Duration::us(took_us)) > 0);
        let gone = (1..).find(|_| feed.ack(Duration::ms(1), 64, TRIP, 0) == 0);
        assert!(!feed.pace.is_of_load());
        gone.unwrap()
    }
    let mut feed = Feed::new();
    let spans: Vec<u64> = [100, 100, 51, 200, 300].map(|took_us| remembered(&mut feed, took_us)).to_vec();
    assert_eq!(spans, [100, 100, 200, 400, 800]);
    assert_eq!(
        [100, 100].map(|took_us| remembered(&mut feed, took_us)),
        [1_600, 100],
        "it was better than thought"
    );
    let last = (0..12).map(|_| remembered(&mut feed, 100)).last();
    assert_eq!(last, Some(30_000));
}

/// A shaper lets a burst pass at once each time that it was left alone for a while.
#[test]
fn a_fast_beginning_does_not_make_a_slow_link_forgotten_sooner() {
    let mut feed = Feed::new();
    let mut remembered = || {
        feed.burst(Duration::us(100));
        feed.ack_with(Duration::ms(1), 10_000, Duration::us(50), 0, Some(1_000_000));
        (1..).find(|_| feed.ack(Duration::ms(1), 64, TRIP, 0) == 0).unwrap_or(0)
    };
    let spans: Vec<u64> = (0..7).map(|_| remembered()).collect();
    assert_eq!(spans, [1_000, 1_000, 1_000, 1_000, 1_000, 1_600, 3_200]);
}

/// What is sent in one burst on a link that lets 60 KB pass at once and goes on with 1 KB per millisecond.
#[test]
fn a_link_with_a_queue_is_measured_also_while_nothing_new_is_sent() {
    let mut feed = Feed::new();
    assert_eq!(feed.ack(Duration::ms(1), 60_000, TRIP, 140_000), 600_000_000);
    for ms in 1..=100 {
        feed.ack(Duration::ms(1), PACKET, Duration::ms(ms), 140_000 - ms * PACKET);
    }
    let rate = feed.pace.bytes_per_s();
    assert!((900_000..1_100_000).contains(&rate), "{rate}");
    assert!(feed.pace.is_of_load());
}

/// Such a link that becomes ten times slower: what comes after 30 ms tells more than what came before.
#[test]
fn under_load_the_last_ten_milliseconds_count() {
    let mut feed = Feed::new();
    (0..50).for_each(|_| _ = feed.ack(Duration::ms(1), 100_000, Duration::ms(4), 400_000));
    assert!(feed.pace.bytes_per_s().abs_diff(100_000_000) < 5_000_000, "{:?}", feed.pace);
    (0..30).for_each(|_| _ = feed.ack(Duration::ms(1), 10_000, Duration::ms(4), 400_000));
    assert!((10_000_000..20_000_000).contains(&feed.pace.bytes_per_s()), "{:?}", feed.pace);
}

#[test]
fn an_acknowledgement_that_was_overtaken_is_no_sample() {
    let mut feed = Feed::new();
    feed.ack(Duration::ms(1), PACKET, Duration::ms(4), 100_000);
    let now = feed.now;
    feed.now = Instant(now.0 - 3_000_000);
    feed.ack(Duration::ZERO, PACKET, Duration::ms(4), 100_000);
    assert!(!feed.pace.is_of_load());
    feed.now = now;
    (0..3).for_each(|_| _ = feed.ack(Duration::ms(1), 10_000, Duration::ms(4), 100_000));
    assert!(feed.pace.is_of_load());
    let rate = feed.pace.bytes_per_s();
    assert!((9_900_000..10_600_000).contains(&rate), "{rate}");
}

#[test]
fn a_window_of_a_few_packets_tells_of_the_path_only_if_they_find_a_queue() {
    let mut feed = Feed::new();
    // As after a path has become narrower: four packets each 100 ms.
    let slow = Some(40_000);
    for _ in 0..5 {
        feed.ack_with(Duration::ms(100), 4_000, Duration::us(100), 0, slow);
        assert!(!feed.pace.is_of_load());
    }
    assert_eq!(feed.pace.bytes_per_s(), 40_000_000, "as fast as they passed");
    feed.ack_with(Duration::ms(1), 4_000, TRIP + TARGET + Duration::us(1), 0, Some(4_000_000));
    assert!(feed.pace.is_of_load());
    assert_eq!(feed.pace.bytes_per_s(), 4_000_000);
}
