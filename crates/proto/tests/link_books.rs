//! The books of what a link has in flight: their bounds, and what each way of losing a packet does to them.

use polyrail_proto::limits::{INFLIGHT_PACKETS_MAX, INFLIGHT_TRAINS_MAX};
use polyrail_proto::link::send::{Item, NewTrain, Sent};
use polyrail_proto::time::{Duration, Instant};

/// A train of packets of 100 bytes, each with one message that bears the packet's number.
fn push(sent: &mut Sent, at: u64, count: u8) -> u64 {
    let first = sent.next();
    let item = |p: u8| (p, Item::Messages { flow: 0, first: first + p as u64, count: 1 });
    let items = (0..count).map(item).collect();
    sent.push(
        Instant(at),
        NewTrain { count, packet_bytes: 100, last_bytes: 100, items, extent: None, expected: Duration::ZERO },
    )
}

fn numbers(items: &[Item]) -> Vec<u64> {
    let number = |item: &Item| match item {
        Item::Messages { first, count: 1, .. } => *first,
        other => panic!("{other:?}"),
    };
    let mut numbers: Vec<u64> = items.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn lost(sent: &mut Sent, now: u64, threshold: u64) -> Vec<u64> {
    let mut items = Vec::new();
    let (packets, _) = sent.detect(Instant(now), Duration(threshold), |item| items.push(item));
    assert_eq!(packets, items.len() as u64);
    numbers(&items)
}

#[test]
fn the_books_are_full_at_their_limits_of_trains_and_of_packets() {
    let mut sent = Sent::default();
    for n in 0..INFLIGHT_TRAINS_MAX {
        assert!(!sent.is_full(), "after {n} trains");
        push(&mut sent, 0, 1);
    }
    assert!(sent.is_full());
    let mut sent = Sent::default();
    for n in 0..INFLIGHT_PACKETS_MAX / 64 {
        assert!(!sent.is_full(), "after {n} trains of 64 packets");
        push(&mut sent, 0, 64);
    }
    assert!(sent.is_full());
    sent.acknowledge(&[(0, 0)], |_| {}).unwrap();
    assert!(!sent.is_full(), "room for one");
}

#[test]
fn copies_are_handed_out_once_and_only_of_what_is_old_and_open() {
    let mut sent = Sent::default();
    push(&mut sent, 10, 4);
    push(&mut sent, 20, 2);
    push(&mut sent, 30, 2);
    sent.acknowledge(&[(1, 2)], |_| {}).unwrap();
    let mut copies = Vec::new();
    assert_eq!(sent.copy_older(Instant(20), |item| copies.push(item)), 4);
    assert_eq!(numbers(&copies), [0, 3, 4, 5]);
    assert_eq!(sent.copy_older(Instant(20), |_| panic!("copied twice")), 0);
    assert_eq!(sent.inflight_bytes(), 600, "the originals stay in flight");
}

#[test]
fn copies_of_the_oldest_train_go_on_with_the_next_one() {
    let mut sent = Sent::default();
    push(&mut sent, 10, 2);
    push(&mut sent, 20, 3);
    push(&mut sent, 30, 1);
    sent.acknowledge(&[(1, 1)], |_| {}).unwrap();
    let mut copies = Vec::new();
    assert_eq!(sent.copy_oldest(Instant(9), |_| panic!("too young")), 0);
    for (packets, all) in [(1, vec![0]), (3, vec![0, 2, 3, 4]), (0, vec![0, 2, 3, 4])] {
        assert_eq!(sent.copy_oldest(Instant(20), |item| copies.push(item)), packets);
        assert_eq!(numbers(&copies), all);
    }
}

#[test]
fn a_train_that_the_local_queue_dropped_is_lost_once() {
    let mut sent = Sent::default();
    push(&mut sent, 0, 2);
    let first = push(&mut sent, 0, 3);
    let mut items = Vec::new();
    assert_eq!(sent.lose(first, |item| items.push(item)), 3);
    assert_eq!(numbers(&items), [2, 3, 4]);
    assert_eq!(sent.inflight_bytes(), 200);
    assert_eq!(sent.lose(first, |_| panic!("lost twice")), 0);
    let told = sent.acknowledge(&[(0, 1)], |_| {}).unwrap();
    assert_eq!((told.packets, sent.is_empty()), (2, true));
}

#[test]
fn what_was_abandoned_counts_its_packets_and_is_recognised_when_it_arrives_after_all() {
    let mut sent = Sent::default();
    push(&mut sent, 0, 3);
    push(&mut sent, 0, 4);
    sent.acknowledge(&[(1, 1)], |_| {}).unwrap();
    let mut items = Vec::new();
    assert_eq!(sent.abandon(|item| items.push(item)), 6);
    assert_eq!(numbers(&items), [0, 2, 3, 4, 5, 6]);
    assert!(sent.is_empty() && sent.inflight_bytes() == 0);
    let told = sent.acknowledge(&[(3, 4)], |_| {}).unwrap();
    assert_eq!((told.packets, told.bytes, told.spurious), (0, 0, 2));
}

#[test]
fn each_loss_that_was_none_doubles_the_distance_that_makes_a_loss() {
    let mut sent = Sent::default();
    push(&mut sent, 0, 20);
    sent.on_spurious_loss();
    sent.acknowledge(&[(10, 10)], |_| {}).unwrap();
    assert_eq!(lost(&mut sent, 1, 1_000), [0, 1, 2, 3, 4], "six behind, not three");
    sent.on_spurious_loss();
    sent.acknowledge(&[(17, 17)], |_| {}).unwrap();
    assert_eq!(lost(&mut sent, 1, 1_000), [5]);
}

#[test]
fn only_what_is_older_than_something_confirmed_is_lost_by_time() {
    let mut sent = Sent::default();
    push(&mut sent, 0, 3);
    assert_eq!(lost(&mut sent, 5_000, 10), [0; 0], "nothing was confirmed yet");
    sent.acknowledge(&[(1, 1)], |_| {}).unwrap();
    assert_eq!(lost(&mut sent, 9, 10), [0; 0]);
    assert_eq!(lost(&mut sent, 10, 10), [0]);
    assert_eq!(sent.inflight_bytes(), 100);
}

#[test]
fn only_a_new_largest_packet_is_a_sample_of_the_round_trip() {
    let mut sent = Sent::default();
    push(&mut sent, 0, 8);
    assert!(sent.acknowledge(&[(5, 5)], |_| {}).unwrap().largest_is_new);
    assert!(!sent.acknowledge(&[(5, 5), (2, 2)], |_| {}).unwrap().largest_is_new);
    assert!(sent.acknowledge(&[(6, 7)], |_| {}).unwrap().largest_is_new);
}

#[test]
fn numbers_that_nobody_confirms_are_used_up_all_the_same() {
    let mut sent = Sent::default();
    sent.skip(3);
    assert_eq!(push(&mut sent, 0, 2), 3);
    assert_eq!(sent.next(), 5);
    let told = sent.acknowledge(&[(0, 4)], |_| {}).unwrap();
    assert_eq!((told.packets, told.bytes, told.largest_is_new), (2, 200, true));
    assert!(sent.acknowledge(&[(0, 5)], |_| {}).is_err(), "number 5 was never sent");
}
