use super::*;

fn bundle(sent: &mut Sent, now: Instant, packets: u8) -> u64 {
    let items = (0..packets)
        .map(|p| (p, Item::Messages { flow: 0, first: sent.next() + p as u64, count: 1 }))
        .collect();
    sent.push(
        now,
        NewTrain {
            count: packets,
            packet_bytes: 1000,
            last_bytes: 500,
            items,
            extent: None,
            expected: Duration::ZERO,
        },
    )
}

fn numbers(log: &[Item]) -> Vec<u64> {
    let mut all: Vec<u64> = log
        .iter()
        .map(|i| match i {
            Item::Messages { first, .. } => *first,
            other => panic!("{other:?}"),
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn an_acknowledgement_frees_exactly_its_packets() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(1), 10);
    bundle(&mut sent, Instant(2), 64);
    assert_eq!(sent.inflight_bytes(), 9 * 1000 + 500 + 63 * 1000 + 500);
    let mut log = vec![];
    let told = sent.acknowledge(&[(5, 20), (2, 3)], |i| log.push(i)).unwrap();
    assert_eq!(told.packets, 18);
    assert_eq!(told.bytes, 18 * 1000 - 500);
    assert!(told.largest_is_new);
    assert_eq!(numbers(&log), [2, 3].into_iter().chain(5..=20).collect::<Vec<_>>());
    let again = sent.acknowledge(&[(5, 20), (2, 3)], |_| panic!("acknowledged twice")).unwrap();
    assert_eq!(again.packets, 0);
}

#[test]
fn packets_three_behind_are_lost_and_nearer_ones_wait_for_time() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(0), 10);
    sent.acknowledge(&[(6, 6)], |_| {}).unwrap();
    let mut log = vec![];
    let (packets, again) = sent.detect(Instant(10), Duration(100), |i| log.push(i));
    assert_eq!((packets, again), (4, Instant(100)));
    assert_eq!(numbers(&log), [0, 1, 2, 3]);
    log.clear();
    let (packets, again) = sent.detect(Instant(100), Duration(100), |i| log.push(i));
    assert_eq!((packets, again), (2, Instant::NEVER));
    assert_eq!(numbers(&log), [4, 5]);
}

#[test]
fn a_late_acknowledgement_is_told_as_spurious_loss() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(1000), 8);
    sent.acknowledge(&[(7, 7)], |_| {}).unwrap();
    assert_eq!(sent.detect(Instant(1001), Duration(100), |_| {}).0, 5);
    let told = sent.acknowledge(&[(0, 7)], |_| {}).unwrap();
    assert_eq!((told.spurious, told.packets), (5, 2));
    assert!(sent.is_empty());
    assert_eq!(sent.inflight_bytes(), 0);
}

#[test]
fn an_extent_comes_back_as_the_ranges_that_were_lost() {
    let mut sent = Sent::default();
    let extent = Extent { of: Whole::Transfer(7), packet: 1, offset: 100, first_len: 50, len: 100, end: 430 };
    sent.push(
        Instant(0),
        NewTrain {
            count: 5,
            packet_bytes: 120,
            last_bytes: 100,
            items: vec![],
            extent: Some(extent),
            expected: Duration::ZERO,
        },
    );
    let mut log = vec![];
    sent.acknowledge(&[(4, 4), (2, 2)], |i| log.push(i)).unwrap();
    assert_eq!(
        log,
        [Item::Extent { token: 7, offset: 350, len: 80 }, Item::Extent { token: 7, offset: 150, len: 100 }]
    );
    log.clear();
    sent.abandon(|i| log.push(i));
    assert_eq!(
        log,
        [Item::Extent { token: 7, offset: 100, len: 50 }, Item::Extent { token: 7, offset: 250, len: 100 }]
    );
}

#[test]
fn an_extent_of_a_message_comes_back_as_its_pieces() {
    let mut sent = Sent::default();
    let extent =
        Extent { of: Whole::Message(3, 1 << 40), packet: 1, offset: 100, first_len: 50, len: 50, end: 180 };
    let (items, expected) = (vec![], Duration::ZERO);
    sent.push(
        Instant(0),
        NewTrain { count: 3, packet_bytes: 120, last_bytes: 100, items, extent: Some(extent), expected },
    );
    let mut log = vec![];
    sent.acknowledge(&[(2, 2)], |i| log.push(i)).unwrap();
    sent.abandon(|i| log.push(i));
    let piece = |offset, len| Item::Fragment { flow: 3, seq: 1 << 40, offset, len };
    assert_eq!(log, [piece(150, 30), piece(100, 50)]);
}

#[test]
fn a_train_taken_back_gives_its_numbers_back() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(0), 4);
    let first = bundle(&mut sent, Instant(0), 4);
    let mut log = vec![];
    sent.take_back(first, |i| log.push(i));
    assert_eq!(numbers(&log), [4, 5, 6, 7]);
    assert_eq!(sent.next(), 4);
    assert_eq!(sent.inflight_bytes(), 3500);
}

#[test]
fn questions_without_an_answer_are_forgotten_and_messages_are_not() {
    let mut sent = Sent::default();
    let question = || NewTrain {
        count: 1,
        packet_bytes: 48,
        last_bytes: 48,
        items: vec![],
        extent: None,
        expected: Duration::ZERO,
    };
    (0..10).for_each(|n| _ = sent.push(Instant(n), question()));
    sent.forget_unanswered(Instant(6));
    assert_eq!((sent.inflight_bytes(), sent.trains.len()), (3 * 48, 3));
    sent.forget_unanswered(Instant(9));
    assert_eq!((sent.inflight_bytes(), sent.is_empty()), (0, true));
    bundle(&mut sent, Instant(10), 2);
    sent.forget_unanswered(Instant(20));
    assert_eq!((sent.inflight_bytes(), sent.trains.len()), (1500, 1));
    assert_eq!(sent.acknowledge(&[(0, 11)], |_| {}).unwrap().packets, 2);
}

#[test]
fn an_acknowledgement_of_the_future_is_a_violation() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(0), 4);
    assert!(sent.acknowledge(&[(0, 4)], |_| {}).is_err());
}

/// `packets` packets of 100 bytes of one transfer, nothing else.
fn extent(sent: &mut Sent, packets: u8) {
    let extent =
        Extent { of: Whole::Transfer(7), packet: 0, offset: 0, first_len: 100, len: 100, end: 6_400 };
    let train = NewTrain {
        count: packets,
        packet_bytes: 100,
        last_bytes: 100,
        items: vec![],
        extent: Some(extent),
        expected: Duration::ZERO,
    };
    sent.push(Instant(0), train);
}

#[test]
fn any_run_of_packets_of_a_full_train_is_told_as_its_bytes() {
    for (low, high) in [(0, 63), (1, 63), (0, 62), (5, 5), (32, 63), (63, 63)] {
        let mut sent = Sent::default();
        extent(&mut sent, 64);
        let mut log = vec![];
        sent.acknowledge(&[(low, high)], |item| log.push(item)).unwrap();
        let (offset, len) = (low * 100, (high - low + 1) as u32 * 100);
        assert_eq!(log, [Item::Extent { token: 7, offset, len }]);
    }
    // A packet in front of the even part carries none of it.
    let mut sent = Sent::default();
    let extent = Extent { of: Whole::Transfer(7), packet: 1, offset: 0, first_len: 10, len: 10, end: 20 };
    let train = NewTrain {
        count: 3,
        packet_bytes: 10,
        last_bytes: 10,
        items: vec![],
        extent: Some(extent),
        expected: Duration::ZERO,
    };
    sent.push(Instant(0), train);
    sent.acknowledge(&[(0, 0)], |item| panic!("{item:?}")).unwrap();
}

#[test]
fn only_the_first_word_of_the_largest_number_is_a_round_trip() {
    let mut sent = Sent::default();
    (1..=3).for_each(|n| _ = bundle(&mut sent, Instant(n), 4));
    let mut ack = |ranges: &[(u64, u64)]| {
        let told = sent.acknowledge(ranges, |_| {}).unwrap();
        (told.largest_is_new, told.packets, told.oldest_sent_at.unwrap())
    };
    assert_eq!(ack(&[(5, 5)]), (true, 1, Instant(2)));
    assert_eq!(ack(&[(5, 5), (2, 3)]), (false, 2, Instant(1)), "an earlier number is news, not the largest");
    assert_eq!(ack(&[(4, 5)]), (false, 1, Instant(2)));
    assert_eq!(ack(&[(0, 9)]), (true, 6, Instant(1)), "the oldest was sent first");
}

#[test]
fn numbers_can_be_skipped_and_what_was_skipped_acknowledged() {
    let mut sent = Sent::default();
    sent.skip(3);
    assert_eq!((sent.next(), bundle(&mut sent, Instant(1), 2)), (3, 3));
    assert_eq!(sent.acknowledge(&[(0, 4)], |_| {}).unwrap().packets, 2);
}

#[test]
fn the_books_hold_so_many_trains_and_so_many_packets() {
    for (packets, trains) in
        [(1, limits::INFLIGHT_TRAINS_MAX), (64, limits::INFLIGHT_PACKETS_MAX.div_ceil(64) as usize)]
    {
        let mut sent = Sent::default();
        for _ in 0..trains {
            assert!(!sent.is_full());
            bundle(&mut sent, Instant(1), packets);
        }
        assert!(sent.is_full());
        sent.acknowledge(&[(0, 63)], |_| {}).unwrap();
        sent.detect(Instant(1), Duration(100), |_| {});
        assert!(!sent.is_full(), "what was acknowledged leaves room");
    }
}

#[test]
fn a_train_that_the_local_queue_refused_is_lost_at_once_and_once() {
    let mut sent = Sent::default();
    let first = bundle(&mut sent, Instant(1), 4);
    let second = bundle(&mut sent, Instant(1), 3);
    sent.acknowledge(&[(5, 5)], |_| {}).unwrap();
    let mut log = vec![];
    assert_eq!(sent.lose(second, |item| log.push(item)), 2);
    assert_eq!((numbers(&log), sent.inflight_bytes(), sent.is_empty()), (vec![4, 6], 3_500, false));
    assert_eq!(sent.lose(second, |_| panic!("lost twice")), 0);
    assert_eq!(sent.acknowledge(&[(4, 6)], |_| {}).unwrap().spurious, 2);
    assert_eq!(sent.lose(first, |_| {}), 4);
    assert_eq!((sent.inflight_bytes(), sent.is_empty()), (0, true));
    assert_eq!(sent.lose(99, |_| {}), 0);
}

#[test]
fn the_only_train_taken_back_leaves_nothing() {
    let mut sent = Sent::default();
    let first = bundle(&mut sent, Instant(1), 4);
    sent.take_back(first + 1, |_| panic!("no train begins there"));
    sent.take_back(first, |_| {});
    assert_eq!((sent.next(), sent.inflight_bytes(), sent.is_empty()), (0, 0, true));
    bundle(&mut sent, Instant(1), 4);
    bundle(&mut sent, Instant(1), 4);
    sent.take_back(0, |_| {});
    assert_eq!(sent.next(), 8, "only the newest numbers are used again");
}

#[test]
fn reordering_taken_for_loss_doubles_what_is_borne_up_to_a_train() {
    let mut sent = Sent::default();
    for bound in [3, 6, 12, 24, 48, 64, 64] {
        let first = sent.next();
        // The last train is acknowledged, the one before is one packet beyond the bound.
        bundle(&mut sent, Instant(1), 1);
        for _ in 1..bound {
            bundle(&mut sent, Instant(1), 1);
        }
        let last = bundle(&mut sent, Instant(1), 1);
        assert_eq!(last - first, bound);
        sent.acknowledge(&[(last - 1, last - 1)], |_| {}).unwrap();
        assert_eq!(sent.detect(Instant(1), Duration(100), |_| {}).0, 0, "{bound}");
        sent.acknowledge(&[(last, last)], |_| {}).unwrap();
        assert_eq!(sent.detect(Instant(1), Duration(100), |_| {}).0, 1, "{bound}");
        assert_eq!(sent.acknowledge(&[(first, last)], |_| {}).unwrap().spurious, 1);
        sent.on_spurious_loss();
        assert!(sent.is_empty());
    }
}

#[test]
fn a_lost_train_is_remembered_for_four_thresholds() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(1_000), 4);
    bundle(&mut sent, Instant(1_000), 8);
    sent.acknowledge(&[(4, 11)], |_| {}).unwrap();
    assert_eq!(sent.detect(Instant(1_100), Duration(100), |_| {}), (4, Instant::NEVER));
    for (at, trains) in [(1_399, 2), (1_400, 0)] {
        assert_eq!(sent.detect(Instant(at), Duration(100), |_| panic!("lost twice")), (0, Instant::NEVER));
        assert_eq!(sent.trains.len(), trains);
    }
}

#[test]
fn copies_are_made_once_of_what_was_sent_so_early_and_is_still_open() {
    let mut sent = Sent::default();
    (1..=3).for_each(|n| _ = bundle(&mut sent, Instant(n), 4));
    sent.acknowledge(&[(1, 2)], |_| {}).unwrap();
    let mut log = vec![];
    assert_eq!(sent.copy_older(Instant(2), |item| log.push(item)), 6);
    assert_eq!((numbers(&log), sent.inflight_bytes()), (vec![0, 3, 4, 5, 6, 7], 1_500 + 2 * 3_500));
    assert_eq!(sent.copy_older(Instant(2), |_| panic!("copied twice")), 0);
    log.clear();
    assert_eq!(sent.abandon(|item| log.push(item)), 10);
    assert_eq!((numbers(&log).len(), sent.inflight_bytes(), sent.is_empty()), (10, 0, true));
    assert_eq!(sent.abandon(|_| panic!("lost twice")), 0);
    let late = sent.acknowledge(&[(0, 11)], |_| {}).unwrap();
    assert_eq!((late.packets, late.spurious), (0, 10));
}

#[test]
fn lists_are_used_again_and_few_are_kept() {
    let mut sent = Sent::default();
    (0..100).for_each(|_| sent.recycle(vec![(0, Item::Control { number: 1 })]));
    assert_eq!(sent.spare.len(), 64);
    let items = sent.items();
    assert!(items.is_empty() && items.capacity() > 0);
    assert_eq!(sent.spare.len(), 63);
}

#[test]
fn what_was_sent_after_the_largest_acknowledged_is_not_lost_however_old() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(0), 10);
    bundle(&mut sent, Instant(0), 10);
    sent.acknowledge(&[(14, 14), (0, 9)], |_| {}).unwrap();
    let mut log = vec![];
    assert_eq!(sent.detect(Instant(1_000), Duration(100), |item| log.push(item)), (4, Instant::NEVER));
    assert_eq!(numbers(&log), [10, 11, 12, 13]);
}

#[test]
fn time_that_the_driver_was_away_makes_nothing_older() {
    let mut sent = Sent::default();
    bundle(&mut sent, Instant(1_000), 4);
    sent.acknowledge(&[(2, 2)], |_| {}).unwrap();
    sent.shift(Duration(500));
    assert_eq!(sent.last_sent_at(), Instant(1_500));
    assert_eq!(sent.detect(Instant(1_599), Duration(100), |_| {}), (0, Instant(1_600)));
    assert_eq!(sent.detect(Instant(1_600), Duration(100), |_| {}), (2, Instant::NEVER));
}
