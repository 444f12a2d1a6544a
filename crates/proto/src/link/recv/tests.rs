use super::*;

const LINK: LinkId = LinkId(3);

/// Enters eliciting packets of 1000 bytes without flags.
fn record(rx: &mut Received, now: Instant, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        rx.record(now, number, 1000, now.stamp(), true, AckWish::Later, false);
    }
}

/// A link past its first packets, with everything acknowledged.
fn settled(now: Instant) -> Received {
    let mut rx = Received::new();
    record(&mut rx, now, 0..20);
    rx.on_ack_sent(now);
    rx
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

#[test]
fn a_number_is_new_once_and_too_old_behind_the_window() {
    let mut rx = Received::new();
    assert_eq!(rx.seen(0), Seen::New);
    record(&mut rx, Instant(1), [0, 2, WINDOW_PACKETS + 1]);
    assert_eq!(rx.seen(0), Seen::TooOld);
    assert_eq!(rx.seen(1), Seen::TooOld);
    assert_eq!(rx.seen(2), Seen::Duplicate);
    assert_eq!(rx.seen(3), Seen::New);
    assert_eq!(rx.seen(WINDOW_PACKETS + 1), Seen::Duplicate);
    assert_eq!(rx.seen(WINDOW_PACKETS + 2), Seen::New);
    record(&mut rx, Instant(1), [1 << 40]);
    assert_eq!((rx.seen((1 << 40) - 1), rx.seen(WINDOW_PACKETS)), (Seen::New, Seen::TooOld));
    assert_eq!((rx.rx_packets(), rx.rx_bytes()), (4, 4000));
}

#[test]
fn the_window_and_the_runs_agree_with_a_set() {
    for seed in 1..=60u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut rx, mut oracle) = (Received::new(), std::collections::BTreeSet::new());
        let mut at = 0u64;
        for step in 0..400 {
            at += [1, 1, 1, 2, 70, 9000][random(&mut state, 6) as usize];
            let number = at.saturating_sub([0, 0, 1, 3, 130, 8191, 8192][random(&mut state, 7) as usize]);
            let largest = oracle.last().copied();
            let expected = match largest {
                Some(l) if number + WINDOW_PACKETS <= l => Seen::TooOld,
                _ if oracle.contains(&number) => Seen::Duplicate,
                _ => Seen::New,
            };
            assert_eq!(rx.seen(number), expected, "seed {seed} step {step}");
            record(&mut rx, Instant(step), [number]);
            if expected == Seen::New {
                oracle.insert(number);
            }
            assert_eq!(rx.largest(), oracle.last().copied());
            assert!(rx.runs.windows(2).all(|w| w[0].1 + 1 < w[1].0), "seed {seed} step {step}");
            assert!(
                rx.runs.iter().all(|r| (r.0..=r.1).all(|n| oracle.contains(&n))),
                "seed {seed} step {step}"
            );
        }
    }
}

#[test]
fn orderly_packets_are_acknowledged_by_bytes_or_by_time() {
    let t = Instant::ZERO + Duration::s(5);
    let mut rx = settled(t);
    assert_eq!((rx.ack_pending(), rx.deadline()), (false, Instant::NEVER));
    record(&mut rx, t, 20..52);
    assert!(rx.ack_pending() && !rx.ack_due(t));
    assert_eq!(rx.deadline(), t + Duration::ms(1));
    rx.set_max_ack_delay(Duration::ZERO);
    assert_eq!(rx.deadline(), t + Duration::us(100), "below the shortest delay allowed");
    record(&mut rx, t + Duration::us(10), [52]);
    assert!(rx.ack_due(t + Duration::us(10)), "33,000 bytes exceed 32 KiB");
    rx.on_ack_sent(t + Duration::us(10));
    assert!(!rx.ack_pending());
}

#[test]
fn news_is_acknowledged_in_the_same_batch() {
    let t = Instant::ZERO + Duration::s(5);
    let due_after = |numbers: &[u64]| {
        let mut rx = settled(t);
        record(&mut rx, t, numbers.iter().copied());
        rx.ack_due(t)
    };
    assert!(!due_after(&[20, 21]), "in order");
    assert!(due_after(&[20, 22]), "a hole appears");
    let mut rx = settled(t);
    record(&mut rx, t, [21]);
    rx.on_ack_sent(t);
    record(&mut rx, t, [20]);
    assert!(rx.ack_due(t), "a hole is filled");
    let mut rx = settled(t);
    rx.record(t, 20, 100, 0, true, AckWish::Now, false);
    assert!(rx.ack_due(t), "the sender wants it");
    let mut rx = settled(t);
    rx.record(t, 20, 100, 0, true, AckWish::Later, true);
    assert!(rx.ack_due(t), "a congestion mark appears");
    assert_eq!(rx.build(t, LINK).ce_count, 1);
    let mut rx = Received::new();
    record(&mut rx, t, [0]);
    assert!(rx.ack_due(t), "a link's first packets");
}

#[test]
fn an_acknowledgement_that_is_wanted_soon_waits_for_what_leaves_next() {
    let t = Instant::ZERO + Duration::s(5);
    let mut rx = settled(t);
    rx.record(t, 20, 100, 0, true, AckWish::Later, false);
    rx.record(t + Duration::us(30), 21, 100, 0, true, AckWish::Soon, false);
    assert_eq!((rx.deadline(), rx.ack_pending()), (t + ACK_SOON, true));
    assert!(rx.hasten() && rx.ack_due(t + Duration::us(31)) && !rx.hasten(), "nothing leaves next");
    rx.on_ack_sent(t + Duration::us(31));
    rx.record(t + Duration::us(40), 22, 100, 0, true, AckWish::Later, false);
    assert!(!rx.hasten() && !rx.ack_due(t + Duration::us(40) + ACK_SOON), "and nobody waits for this one");
}

#[test]
fn packets_that_elicit_nothing_never_cause_an_acknowledgement() {
    let t = Instant::ZERO + Duration::s(5);
    let mut rx = Received::new();
    for number in [0, 3, 7, 5] {
        rx.record(t, number, 1_000_000, 0, false, AckWish::Now, true);
    }
    assert_eq!(
        (rx.ack_due(t + Duration::s(9)), rx.ack_pending(), rx.deadline()),
        (false, false, Instant::NEVER)
    );
    record(&mut rx, t, [8]);
    let ranges: Vec<_> = rx.build(t, LINK).ranges.to_vec();
    assert_eq!(ranges, [(7, 8), (5, 5), (3, 3), (0, 0)], "but they are told of when another does");
}

#[test]
fn an_acknowledgement_tells_ranges_bytes_and_times() {
    let t = Instant(0x1_0000_0000);
    let mut rx = Received::new();
    record(&mut rx, t, [0, 1, 2, 4, 5, 9]);
    rx.on_batch_end(t, 6000, 2);
    let ack = rx.build(t + Duration::ns(512), LINK);
    assert_eq!(ack.ranges.to_vec(), [(9, 9), (4, 5), (0, 2)]);
    assert_eq!((ack.link, ack.largest, ack.rx_bytes, ack.delay), (LINK, 9, 6000, 2));
    assert_eq!((ack.stamp_echo, ack.rx_clock), (t.stamp(), t.stamp()));
    assert_eq!(ack.rx_batch_log2, 11, "3000 bytes per call");
}

#[test]
fn more_holes_than_a_frame_holds_are_told_oldest_first() {
    let t = Instant::ZERO + Duration::s(1);
    let mut rx = Received::new();
    record(&mut rx, t, (0..80).map(|n| 2 * n));
    let mut told = Vec::new();
    while rx.ack_due(t) {
        let ack = rx.build(t, LINK);
        assert!(ack.ranges.len() <= RANGES_MAX && ack.ranges[0].1 == ack.largest);
        told.push((ack.ranges[ack.ranges.len() - 1].0, ack.largest));
        rx.on_ack_sent(t);
    }
    assert_eq!(told, [(0, 64), (66, 130), (94, 158)], "the last also repeats what room is left for");
}

#[test]
fn without_news_an_acknowledgement_tells_the_newest_ranges() {
    let t = Instant::ZERO + Duration::s(1);
    let mut rx = Received::new();
    record(&mut rx, t, (0..40).map(|n| 2 * n));
    while rx.ack_due(t) {
        rx.on_ack_sent(t);
    }
    let ack = rx.build(t, LINK);
    assert_eq!((ack.largest, ack.ranges.len(), ack.ranges[RANGES_MAX - 1]), (78, RANGES_MAX, (14, 14)));
}

#[test]
fn queueing_is_the_excess_over_the_shortest_delay_of_late() {
    let offset = 0xffff_fff0u32; // the peer's clock; differences wrap
    let mut rx = Received::new();
    let at = |rx: &mut Received, number: u64, ms: u64, delay_us: u64| {
        let now = Instant::ZERO + Duration::ms(ms);
        let stamp = (now - Duration::us(delay_us)).stamp().wrapping_add(offset);
        rx.record(now, number, 100, stamp, true, AckWish::Later, false);
        rx.queueing().as_us()
    };
    assert_eq!(at(&mut rx, 0, 10, 50), 0);
    assert!(at(&mut rx, 1, 20, 250).abs_diff(200) <= 1);
    assert_eq!(at(&mut rx, 2, 900, 50), 0);
    assert!(at(&mut rx, 3, 1100, 250).abs_diff(200) <= 1, "the window before still counts");
    assert_eq!(at(&mut rx, 4, 2200, 250), 0, "then the longer path is the base");
    assert_eq!(at(&mut rx, 5, 9000, 450), 0, "after a silence nothing is known");
}

#[test]
fn faster_links_are_acknowledged_less_often() {
    let mut rx = settled(Instant::ZERO);
    for ms in 1..100 {
        rx.on_batch_end(Instant::ZERO + Duration::ms(ms), 125_000, 3);
    }
    assert!(rx.ack_bytes().abs_diff(125_000) < 2_000, "1 Gbit/s: {}", rx.ack_bytes());
    for ms in 100..200 {
        rx.on_batch_end(Instant::ZERO + Duration::ms(ms), 2_500_000, 40);
    }
    assert_eq!(rx.ack_bytes(), ACK_BYTES_MAX);
    rx.on_batch_end(Instant::ZERO + Duration::s(60), 1000, 1);
    for s in 61..80 {
        rx.on_batch_end(Instant::ZERO + Duration::s(s), 1000, 1);
    }
    assert_eq!(rx.ack_bytes(), ACK_BYTES_MIN);
}

#[test]
fn the_sender_is_told_how_much_comes_with_one_call() {
    let t = Instant::ZERO + Duration::s(5);
    let mut rx = settled(t);
    assert_eq!(rx.build(t, LINK).rx_batch_log2, 0);
    rx.on_batch_end(t, 4 * 65_536, 4);
    assert_eq!(rx.build(t, LINK).rx_batch_log2, 16);
    // A single small batch moves the mean by an eighth; none does without a call.
    rx.on_batch_end(t, 64, 1);
    rx.on_batch_end(t, 64, 0);
    assert_eq!((rx.mean_call_bytes, rx.build(t, LINK).rx_batch_log2), ((7 * 65_536 + 64) / 8, 15));
}

#[test]
fn any_packet_of_a_link_ends_its_silence() {
    let t = Instant::ZERO + Duration::s(5);
    let mut rx = settled(t);
    assert_eq!(rx.silent_since(t + Duration::ms(5)), Duration::ms(5));
    rx.on_duplicate(t + Duration::ms(4));
    assert_eq!(rx.silent_since(t + Duration::ms(5)), Duration::ms(1));
}

/// Packets that follow each other leave the books as if each had been entered by itself.
#[test]
fn a_run_is_entered_as_its_packets_one_by_one() {
    for (before, packets) in [(0, 1), (0, 20), (10, 44), (60, 5), (63, 130), (8_190, 700), (20_000, 64)] {
        let mut one_by_one = Received::new();
        (0..before).for_each(|number| {
            one_by_one.record(Instant(1_000), number, 100, 7, true, AckWish::Later, false)
        });
        let mut at_once = one_by_one.clone();
        let each = Arrival {
            packet_bytes: 1_472,
            stamp: 9,
            eliciting: true,
            wish: if before == 60 { AckWish::Now } else { AckWish::Later },
            ce: before == 10,
        };
        for number in before..before + packets {
            one_by_one.record(Instant(5_000), number, 1_472, 9, true, each.wish, each.ce);
        }
        at_once.record_next(Instant(5_000), packets, &each);
        assert_eq!(format!("{at_once:?}"), format!("{one_by_one:?}"), "{packets} after {before}");
    }
}
