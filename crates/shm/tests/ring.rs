//! A ring is a bounded queue: in any order of operations, and between two threads.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::thread;

use polyrail_shm::ring::{ENTRY_BYTES, ring_bytes};
use polyrail_shm::sync::cpu_relax;
use polyrail_shm::{Consumer, Entry, Full, Producer, Segment};
use proptest::prelude::*;

fn ring(entries: u32) -> (Producer, Consumer) {
    let segment = Segment::private(ring_bytes(entries) as usize).unwrap();
    (Producer::new(&segment, 0, entries).unwrap(), Consumer::new(&segment, 0, entries).unwrap())
}

fn entry(number: u64) -> Entry {
    std::array::from_fn(|word| number.wrapping_mul(8) + word as u64)
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Push,
    Stage,
    Publish,
    Pop,
    Take,
    Commit,
    Peek,
    Advance,
    Batch(usize),
    Count,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::*;
    let one = prop_oneof![
        4 => Just(Push),
        4 => Just(Stage),
        2 => Just(Publish),
        3 => Just(Pop),
        3 => Just(Take),
        2 => Just(Commit),
        1 => Just(Peek),
        1 => Just(Advance),
        2 => (0usize..6).prop_map(Batch),
        2 => Just(Count),
    ];
    prop::collection::vec(one, 0..400)
}

/// What the ring must be: published entries, staged ones, and slots taken but not given back.
#[derive(Default)]
struct Oracle {
    published: VecDeque<Entry>,
    staged: VecDeque<Entry>,
    uncommitted: usize,
}

impl Oracle {
    fn used(&self) -> usize {
        self.published.len() + self.staged.len() + self.uncommitted
    }

    fn publish(&mut self) {
        self.published.append(&mut self.staged);
    }
}

proptest! {
    #[test]
    fn any_order_of_operations_is_that_of_a_queue(power in 1u32..4, list in operations()) {
        let entries = 1u32 << power;
        let (mut producer, mut consumer) = ring(entries);
        let mut oracle = Oracle::default();
        let mut number = 0;
        for operation in list {
            match operation {
                Operation::Push | Operation::Stage => {
                    number += 1;
                    let room = oracle.used() < entries as usize;
                    let pushes = matches!(operation, Operation::Push);
                    let result =
                        if pushes { producer.push(&entry(number)) } else { producer.stage(&entry(number)) };
                    prop_assert_eq!(result, if room { Ok(()) } else { Err(Full) });
                    if room {
                        oracle.staged.push_back(entry(number));
                        if pushes {
                            oracle.publish();
                        }
                    }
                }
                Operation::Publish => {
                    producer.publish();
                    oracle.publish();
                }
                Operation::Pop => {
                    let expected = oracle.published.pop_front();
                    prop_assert_eq!(consumer.pop(), expected);
                    if expected.is_some() {
                        oracle.uncommitted = 0;
                    }
                }
                Operation::Take => {
                    let expected = oracle.published.pop_front();
                    prop_assert_eq!(consumer.take(), expected);
                    oracle.uncommitted += usize::from(expected.is_some());
                }
                Operation::Commit => {
                    consumer.commit();
                    oracle.uncommitted = 0;
                }
                Operation::Peek => prop_assert_eq!(consumer.peek(), oracle.published.front().copied()),
                Operation::Advance => {
                    consumer.advance();
                    if oracle.published.pop_front().is_some() {
                        oracle.uncommitted = 0;
                    }
                }
                Operation::Batch(entries_max) => {
                    let mut got = Vec::new();
                    let taken = consumer.pop_batch(entries_max, |entry| got.push(entry));
                    let expected: Vec<Entry> =
                        oracle.published.drain(..entries_max.min(oracle.published.len())).collect();
                    prop_assert_eq!(taken, got.len());
                    prop_assert_eq!(got, expected);
                    oracle.uncommitted = 0;
                }
                Operation::Count => {
                    prop_assert_eq!(producer.free(), entries as usize - oracle.used());
                    prop_assert_eq!(consumer.len(), oracle.published.len());
                    prop_assert_eq!(consumer.is_empty(), oracle.published.is_empty());
                }
            }
        }
        prop_assert_eq!(producer.health(), Ok(()));
        prop_assert_eq!(consumer.health(), Ok(()));
    }
}

#[test]
fn two_threads_lose_and_repeat_nothing() {
    const COUNT: u64 = 300_000;
    let (mut producer, mut consumer) = ring(64);
    let filling = thread::spawn(move || {
        for number in 0..COUNT {
            while producer.stage(&entry(number)).is_err() {
                producer.publish();
                thread::yield_now();
            }
            if number % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut next = 0;
    while next < COUNT {
        if next % 3 == 0 {
            if let Some(got) = consumer.pop() {
                assert_eq!(got, entry(next));
                next += 1;
            }
        } else {
            let taken = consumer.pop_batch(20, |got| {
                assert_eq!(got, entry(next));
                next += 1;
            });
            if taken == 0 {
                cpu_relax();
                thread::yield_now();
            }
        }
    }
    filling.join().unwrap();
    assert!(consumer.is_empty());
}

#[test]
fn a_ring_outside_its_segment_or_of_odd_size_is_refused() {
    let segment = Segment::private(4096).unwrap();
    for (offset, entries) in [(0, 0), (0, 1), (0, 3), (0, 64), (8, 2), (u64::MAX - 63, 2), (4096, 2)] {
        assert!(Producer::new(&segment, offset, entries).is_none(), "{offset} {entries}");
        assert!(Consumer::new(&segment, offset, entries).is_none(), "{offset} {entries}");
    }
    assert!(Producer::new(&segment, 4096 - ring_bytes(2), 2).is_some());
}

/// Offsets of the two indices, as the layout fixes them.
const HEAD: u64 = 0;
const TAIL: u64 = 128;

#[test]
fn a_tail_too_far_ahead_or_behind_is_reported_and_not_followed() {
    for wrong in [9, 10, u64::MAX, 1 << 63, 0] {
        let segment = Segment::private(ring_bytes(8) as usize).unwrap();
        let mut producer = Producer::new(&segment, 0, 8).unwrap();
        let mut consumer = Consumer::new(&segment, 0, 8).unwrap();
        producer.push(&entry(1)).unwrap();
        assert_eq!(consumer.pop(), Some(entry(1)));
        segment.write_at(TAIL, &wrong_tail(wrong).to_ne_bytes()).unwrap();
        assert_eq!(consumer.pop(), None);
        let corrupt = consumer.health().unwrap_err();
        assert_eq!((corrupt.expected, corrupt.found), (1, wrong_tail(wrong)));
        // A later good index is not believed either.
        segment.write_at(TAIL, &2u64.to_ne_bytes()).unwrap();
        assert_eq!((consumer.pop(), consumer.len(), consumer.is_empty()), (None, 0, true));
    }
}

/// One entry has gone through, so 9 is the last possible tail of a ring of 8.
fn wrong_tail(wrong: u64) -> u64 {
    if wrong == 9 { 10 } else { wrong }
}

#[test]
fn the_furthest_possible_tail_is_followed() {
    let segment = Segment::private(ring_bytes(8) as usize).unwrap();
    let mut consumer = Consumer::new(&segment, 0, 8).unwrap();
    segment.write_at(TAIL, &8u64.to_ne_bytes()).unwrap();
    assert_eq!(consumer.pop_batch(100, |_| ()), 8);
    assert_eq!(consumer.health(), Ok(()));
}

#[test]
fn slots_taken_and_not_given_back_bound_the_tail_too() {
    let segment = Segment::private(ring_bytes(8) as usize).unwrap();
    let mut consumer = Consumer::new(&segment, 0, 8).unwrap();
    segment.write_at(TAIL, &4u64.to_ne_bytes()).unwrap();
    for _ in 0..4 {
        assert!(consumer.take().is_some());
    }
    segment.write_at(TAIL, &9u64.to_ne_bytes()).unwrap();
    assert_eq!(consumer.take(), None);
    assert!(consumer.health().is_err());
}

#[test]
fn a_head_never_reached_leaves_the_ring_full() {
    for wrong in [9u64, u64::MAX, 1 << 40] {
        let segment = Segment::private(ring_bytes(8) as usize).unwrap();
        let mut producer = Producer::new(&segment, 0, 8).unwrap();
        for number in 0..8 {
            producer.push(&entry(number)).unwrap();
        }
        segment.write_at(HEAD, &wrong.to_ne_bytes()).unwrap();
        assert_eq!(producer.push(&entry(8)), Err(Full));
        assert_eq!(producer.free(), 0);
        assert_eq!(producer.health().unwrap_err().found, wrong);
    }
}

#[test]
fn entries_lie_where_the_layout_says() {
    let (segment, number) = (Segment::private(4096).unwrap(), 7);
    let mut producer = Producer::new(&segment, 64, 4).unwrap();
    producer.push(&entry(number)).unwrap();
    let mut bytes = [0; ENTRY_BYTES];
    segment.read_at(64 + ring_bytes(4) - 4 * ENTRY_BYTES as u64, &mut bytes).unwrap();
    assert_eq!(bytes[..8], (number * 8).to_ne_bytes());
    assert_eq!(bytes[56..], (number * 8 + 7).to_ne_bytes());
}
