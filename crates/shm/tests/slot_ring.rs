//! A ring of slots is a bounded queue of labelled bytes, whatever the other side does to the memory.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use polyrail_shm::slot_ring::{BODY_BYTES, SLOT_BYTES, slot_ring_bytes};
use polyrail_shm::sync::cpu_relax;
use polyrail_shm::{Full, Label, Segment, SlotConsumer, SlotProducer};
use proptest::prelude::*;

fn ring(slots: u32) -> (Arc<Segment>, SlotProducer, SlotConsumer) {
    let segment = Segment::private(slot_ring_bytes(slots) as usize).unwrap();
    let producer = SlotProducer::new(&segment, 0, slots).unwrap();
    let consumer = SlotConsumer::new(&segment, 0, slots).unwrap();
    (segment, producer, consumer)
}

/// The message with this number: its label, and a body whose length is like no neighbour's.
fn message(number: u64) -> (Label, Vec<u8>) {
    let len = (number * 37 % (BODY_BYTES as u64 + 1)) as usize;
    let body = (0..len).map(|at| (number as usize * 31 + at) as u8).collect();
    (Label { note: len as u32 | (number as u32) << 8, meta: !number }, body)
}

fn take(consumer: &mut SlotConsumer) -> Option<(Label, Vec<u8>)> {
    let label = consumer.peek()?;
    let mut body = vec![0; (label.note & 0xff) as usize];
    consumer.read_body(&mut body);
    consumer.advance();
    Some((label, body))
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Push,
    Take,
    Peek,
    Tell,
    Count,
    Rest,
}

proptest! {
    #[test]
    fn it_is_a_bounded_queue(operations in prop::collection::vec(
        prop_oneof![
            5 => Just(Operation::Push),
            4 => Just(Operation::Take),
            1 => Just(Operation::Peek),
            1 => Just(Operation::Tell),
            1 => Just(Operation::Count),
            1 => Just(Operation::Rest),
        ],
        0..500,
    ), slots in prop_oneof![Just(2u32), Just(4), Just(16)], lap in prop_oneof![Just(1u32), Just(2), Just(8), Just(64)]) {
        let (_, mut producer, mut consumer) = ring(slots);
        producer.set_lap_min(lap);
        let (mut queue, mut number, mut taken, mut untold) = (VecDeque::new(), 0, 0, 0);
        for operation in operations {
            match operation {
                Operation::Push => {
                    let (label, body) = message(number);
                    let full = queue.len() as u64 + untold >= u64::from(slots.min(lap));
                    match producer.push(label, &body) {
                        Ok(()) => {
                            prop_assert!(queue.len() < slots as usize);
                            queue.push_back((label, body));
                            number += 1;
                        }
                        Err(Full) => prop_assert!(full),
                    }
                }
                Operation::Take => {
                    let expected = queue.pop_front();
                    untold += u64::from(expected.is_some());
                    taken += u64::from(expected.is_some());
                    if expected.is_none() || untold > u64::from(slots - 1) / 4 {
                        untold = 0;
                    }
                    prop_assert_eq!(take(&mut consumer), expected);
                }
                Operation::Peek => {
                    untold = if queue.is_empty() { 0 } else { untold };
                    prop_assert_eq!(consumer.peek(), queue.front().map(|(label, _)| *label));
                }
                Operation::Tell => {
                    consumer.tell();
                    untold = 0;
                }
                Operation::Count => {
                    prop_assert_eq!((producer.pushed(), consumer.taken()), (number, taken));
                    prop_assert_eq!(producer.taken(), taken - untold);
                    prop_assert!(producer.has_room() || queue.len() as u64 + untold >= u64::from(slots.min(lap)));
                }
                Operation::Rest => producer.rest(),
            }
        }
        prop_assert_eq!(producer.health(), Ok(()));
    }
}

#[test]
fn two_threads_pass_every_message_on_whole_and_in_order() {
    const MESSAGES: u64 = 200_000;
    let (_, mut producer, mut consumer) = ring(16);
    let filling = thread::spawn(move || {
        for number in 0..MESSAGES {
            let (label, body) = message(number);
            while producer.push(label, &body).is_err() {
                cpu_relax();
            }
        }
        producer
    });
    for number in 0..MESSAGES {
        let got = loop {
            match take(&mut consumer) {
                Some(got) => break got,
                None => cpu_relax(),
            }
        };
        assert_eq!(got, message(number));
    }
    consumer.tell();
    let mut producer = filling.join().unwrap();
    assert_eq!((producer.taken(), producer.has_room()), (MESSAGES, true));
}

#[test]
fn what_is_answered_stays_in_the_front_and_a_stream_takes_all() {
    let (segment, mut producer, mut consumer) = ring(4_096);
    let is_used = |slot: u64| {
        let mut word = [0; 8];
        segment.read_at(128 + slot * SLOT_BYTES, &mut word);
        word != [0; 8]
    };
    for number in 0..10_000 {
        let (label, body) = message(number);
        producer.rest();
        producer.push(label, &body).unwrap();
        assert_eq!(take(&mut consumer), Some((label, body)));
        assert_eq!(consumer.peek(), None);
    }
    assert!(is_used(1_023) && !is_used(1_024));
    for number in 0..5_000 {
        let (label, body) = message(number);
        producer.push(label, &body).unwrap();
        assert_eq!(take(&mut consumer), Some((label, body)));
        assert_eq!(consumer.peek(), None);
    }
    assert!(is_used(4_095));
}

#[test]
fn what_is_as_old_as_numbers_go_round_is_not_taken_for_the_next() {
    let (segment, mut producer, mut consumer) = ring(16);
    // As if an entry had been there 2^31 of them ago.
    for slot in 1..16u64 {
        segment.write_at(128 + slot * SLOT_BYTES, &((slot + 1) << 33).to_ne_bytes()).unwrap();
    }
    for number in 0..16 {
        let (label, body) = message(number);
        producer.push(label, &body).unwrap();
        assert_eq!(take(&mut consumer), Some((label, body)));
        assert_eq!(consumer.peek(), None, "{number}");
    }
}

#[test]
fn the_stamps_of_former_laps_are_nothing() {
    let (segment, mut producer, mut consumer) = ring(4);
    for number in 0..10 {
        let (label, body) = message(number);
        producer.push(label, &body).unwrap();
        assert_eq!(take(&mut consumer), Some((label, body)));
        assert_eq!(consumer.peek(), None);
    }
    // A stamp that is none of ours: neither the next one nor the last.
    for slot in 0..4 {
        segment.write_at(128 + slot * SLOT_BYTES, &(77u64 << 32).to_ne_bytes()).unwrap();
    }
    assert_eq!(consumer.peek(), None);
    assert_eq!(producer.push(Label { note: 0, meta: 1 }, b""), Ok(()));
    assert_eq!(consumer.peek(), Some(Label { note: 0, meta: 1 }));
}

#[test]
fn a_body_that_is_too_long_is_cut_and_one_that_is_too_short_ends_in_zeros() {
    let (_, mut producer, mut consumer) = ring(2);
    producer.push(Label { note: 0, meta: 0 }, &[7; BODY_BYTES + 9]).unwrap();
    producer.push(Label { note: 0, meta: 0 }, &[7; 3]).unwrap();
    let mut body = [1; BODY_BYTES + 9];
    consumer.peek().unwrap();
    consumer.read_body(&mut body);
    assert_eq!(body[..BODY_BYTES], [7; BODY_BYTES]);
    assert_eq!(body[BODY_BYTES..], [1; 9], "nothing beyond is touched");
    consumer.advance();
    consumer.peek().unwrap();
    consumer.read_body(&mut body[..8]);
    assert_eq!(body[..8], [7, 7, 7, 0, 0, 0, 0, 0]);
}

#[test]
fn a_head_that_cannot_be_is_noted_and_not_believed() {
    for head in [1, 3, u64::MAX, u64::MAX / 2] {
        let (segment, mut producer, _) = ring(2);
        segment.write_at(0, &head.to_ne_bytes()).unwrap();
        assert_eq!(producer.taken(), 0);
        assert_eq!(producer.health().unwrap_err().found, head);
        producer.push(Label { note: 0, meta: 0 }, b"a").unwrap();
        producer.push(Label { note: 0, meta: 0 }, b"b").unwrap();
        let believed = head == 1;
        assert_eq!(producer.push(Label { note: 0, meta: 0 }, b"c").is_ok(), believed, "{head}");
    }
}

#[test]
fn places_that_do_not_fit_are_refused() {
    let segment = Segment::private(slot_ring_bytes(8) as usize + 4_096).unwrap();
    for (offset, slots) in [(0, 0), (0, 1), (0, 3), (64, 2), (0, 1 << 25), (1 << 40, 2), (8_192, 2)] {
        assert!(SlotProducer::new(&segment, offset, slots).is_none(), "{offset} {slots}");
        assert!(SlotConsumer::new(&segment, offset, slots).is_none(), "{offset} {slots}");
    }
    assert_eq!(SlotProducer::new(&segment, 128, 8).unwrap().capacity(), 8);
}

#[test]
fn scribbles_over_a_ring_lead_nowhere() {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut draw = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (segment, mut producer, mut consumer) = ring(8);
    for _ in 0..200_000 {
        let at = draw() % (segment.len() as u64 / 8) * 8;
        let value = if draw() % 2 == 0 { draw() } else { (draw() % 64) << 32 };
        segment.write_at(at, &value.to_ne_bytes()).unwrap();
        let _ = producer.push(Label { note: draw() as u32, meta: draw() }, &[1; 100]);
        assert!(producer.taken() <= producer.pushed());
        if let Some(label) = consumer.peek() {
            consumer.read_body(&mut vec![0; label.note as usize % 300]);
            consumer.advance();
        }
    }
}
