//! Every interleaving of ring, doorbell and arena at size two.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p polyrail-shm loom`.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::arena::{ArenaAllocator, ArenaPlace, ArenaReleaser, BLOCK_BYTES};
use crate::counter::{Word, WordView};
use crate::doorbell::Doorbell;
use crate::open_entry::{OPEN_ENTRY_BYTES, OpenEntry, OpenEntryView};
use crate::ring::{Consumer, Entry, Producer, ring_bytes};
use crate::segment::Segment;
use crate::slot_ring::{Label, SlotConsumer, SlotProducer, slot_ring_bytes};
use crate::sync::cpu_relax;

fn entry(number: u64) -> Entry {
    [number; 8]
}

fn ring() -> (Producer, Consumer) {
    let segment = Segment::private(ring_bytes(2) as usize).unwrap();
    (Producer::new(&segment, 0, 2).unwrap(), Consumer::new(&segment, 0, 2).unwrap())
}

#[test]
fn ring_gives_each_entry_once_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring();
        let filling = thread::spawn(move || {
            for number in 1..=3 {
                while producer.push(&entry(number)).is_err() {
                    cpu_relax();
                }
            }
        });
        for number in 1..=3 {
            let got = loop {
                match consumer.pop() {
                    Some(got) => break got,
                    None => cpu_relax(),
                }
            };
            assert_eq!(got, entry(number));
        }
        assert!(consumer.is_empty());
        assert_eq!(consumer.health(), Ok(()));
        filling.join().unwrap();
    });
}

#[test]
fn staged_and_batched_entries_keep_their_slots_until_committed() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring();
        let filling = thread::spawn(move || {
            for number in 1..=3 {
                while producer.stage(&entry(number)).is_err() {
                    producer.publish();
                    cpu_relax();
                }
            }
            producer.publish();
        });
        let mut next = 1;
        while next <= 3 {
            let taken = consumer.pop_batch(2, |got| {
                assert_eq!(got, entry(next));
                next += 1;
            });
            if taken == 0 {
                cpu_relax();
            }
        }
        assert_eq!(consumer.health(), Ok(()));
        filling.join().unwrap();
    });
}

#[test]
fn slots_give_each_message_once_whole_and_in_order() {
    slots_give_each_message_once(2);
}

#[test]
fn slots_of_laps_that_end_early_do_too() {
    slots_give_each_message_once(1);
}

fn slots_give_each_message_once(lap_min: u32) {
    loom::model(move || {
        let segment = Segment::private(slot_ring_bytes(2) as usize).unwrap();
        let mut producer = SlotProducer::new(&segment, 0, 2).unwrap();
        producer.set_lap_min(lap_min);
        let mut consumer = SlotConsumer::new(&segment, 0, 2).unwrap();
        let filling = thread::spawn(move || {
            for number in 1..=3u64 {
                let label = Label { note: number as u32, meta: number };
                while producer.push(label, &number.to_ne_bytes()).is_err() {
                    cpu_relax();
                }
            }
            assert_eq!(producer.health(), Ok(()));
        });
        for number in 1..=3u64 {
            let label = loop {
                match consumer.peek() {
                    Some(label) => break label,
                    None => cpu_relax(),
                }
            };
            let mut body = [0; 8];
            consumer.read_body(&mut body);
            consumer.advance();
            assert_eq!(label, Label { note: number as u32, meta: number });
            assert_eq!(u64::from_ne_bytes(body), number);
        }
        filling.join().unwrap();
    });
}

#[test]
fn a_sleeping_consumer_is_always_woken() {
    loom::model(|| {
        let segment = Segment::private(64 + ring_bytes(2) as usize).unwrap();
        let mut producer = Producer::new(&segment, 64, 2).unwrap();
        let mut consumer = Consumer::new(&segment, 64, 2).unwrap();
        let bell = Doorbell::new(&segment, 0).unwrap();
        let ringer = bell.clone();
        let filling = thread::spawn(move || {
            for number in 1..=2 {
                producer.push(&entry(number)).unwrap();
                ringer.ring();
            }
        });
        for number in 1..=2 {
            let got = loop {
                if let Some(got) = consumer.pop() {
                    break got;
                }
                bell.prepare();
                if consumer.is_empty() {
                    bell.wait(None);
                } else {
                    bell.cancel();
                }
            };
            assert_eq!(got, entry(number));
        }
        filling.join().unwrap();
    });
}

#[test]
fn one_sleep_gives_the_duty_to_wake_to_one_producer() {
    loom::model(|| {
        let segment = Segment::private(64).unwrap();
        let bell = Doorbell::new(&segment, 0).unwrap();
        bell.prepare();
        let (first, second) = (bell.clone(), bell);
        let other = thread::spawn(move || u32::from(first.claim()));
        let claims = u32::from(second.claim()) + other.join().unwrap();
        assert_eq!(claims, 1);
    });
}

#[test]
fn a_block_is_written_again_only_after_its_reader_has_finished() {
    loom::model(|| {
        let segment = Segment::private(64).unwrap();
        let place = ArenaPlace { counters: 0, data: 0, blocks: 1 };
        let mut allocator = ArenaAllocator::new(&segment, place).unwrap();
        let mut releaser = ArenaReleaser::new(&segment, place).unwrap();
        let mut handed_over = Word::new(&segment, 32).unwrap();
        let view = WordView::new(&segment, 32).unwrap();
        let bytes = Arc::new(UnsafeCell::new(0u64));
        let bytes_read = Arc::clone(&bytes);

        let reading = thread::spawn(move || {
            for message in 1..=2 {
                while view.load() < message {
                    cpu_relax();
                }
                // SAFETY: loom reports it when the writer could meet this.
                assert_eq!(bytes_read.with(|bytes| unsafe { *bytes }), message);
                assert!(releaser.release(0));
            }
        });
        for message in 1..=2 {
            while allocator.alloc(BLOCK_BYTES).is_none() {
                cpu_relax();
            }
            // SAFETY: loom reports it when the reader could meet this.
            bytes.with_mut(|bytes| unsafe { *bytes = message });
            handed_over.store(message);
        }
        reading.join().unwrap();
        assert_eq!(allocator.reclaim(), BLOCK_BYTES);
        assert_eq!(allocator.blocks_lost(), 0);
    });
}

#[test]
fn an_open_entry_goes_to_one_side_with_all_that_was_said() {
    loom::model(|| {
        let segment = Segment::private(OPEN_ENTRY_BYTES as usize).unwrap();
        let mut client = OpenEntry::new(&segment, 0).unwrap();
        let mut engine = OpenEntryView::new(&segment, 0).unwrap();
        let writing = thread::spawn(move || {
            client.open(&entry(1), 1);
            let mut own = 2;
            if !client.extend(2) {
                client.open(&entry(2), 1);
                own = 1;
            }
            if client.close() { own } else { 0 }
        });
        let mut taken = 0;
        for _ in 0..2 {
            if let Some((entry, len)) = engine.look().and_then(|seen| engine.take(seen)) {
                assert_eq!(entry, [entry[0]; 8], "whole");
                assert!(entry[0] == 1 || len == 1);
                taken += len;
            }
        }
        assert_eq!(taken + writing.join().unwrap(), 2, "each byte once");
        assert_eq!(engine.look(), None);
    });
}
