//! Whatever the other side writes over the segment, the engine's end neither panics nor leaves the segment.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use polyrail_shm::arena::BLOCK_BYTES;
use polyrail_shm::{Backing, Engine, QueuePair, Segment, Sizes};

/// xorshift64*: a seed replays the same scribbles.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const SIZES: Sizes =
    Sizes { sq_entries: 8, cq_entries: 16, tx_bytes: 4 * BLOCK_BYTES, rx_bytes: 4 * BLOCK_BYTES };

/// Everything before the arenas' bytes: indices, flags, words and counters.
fn control_bytes(segment: &Segment) -> u64 {
    segment.len() as u64 - SIZES.tx_bytes - SIZES.rx_bytes
}

/// Writes one word, near what could be right or far off it.
fn scribble(segment: &Segment, random: &mut Random) {
    let offset = random.below(control_bytes(segment) / 8) * 8;
    let value = match random.below(4) {
        0 => random.next(),
        1 => random.below(32),
        2 => u64::MAX - random.below(32),
        _ => {
            let mut now = [0; 8];
            segment.read_at(offset, &mut now).unwrap();
            u64::from_ne_bytes(now).wrapping_add(random.below(40)).wrapping_sub(20)
        }
    };
    segment.write_at(offset, &value.to_ne_bytes()).unwrap();
}

/// One call to each thing the engine does, with what it read used as an engine would.
fn engine_step(engine: &mut Engine, random: &mut Random, allocations: &mut Vec<u64>) {
    let mut commands = Vec::new();
    let taken = engine.sq.pop_batch(random.below(20) as usize, |entry| commands.push(entry));
    assert!(taken <= engine.sq.capacity());
    for [_, offset, len, ..] in commands {
        let len_wanted = (len % (6 * BLOCK_BYTES)) as usize;
        if let Some(slice) = engine.tx.memory().io_slice(offset, len_wanted) {
            assert!(slice.len() == len_wanted && offset + len_wanted as u64 <= SIZES.tx_bytes);
        }
        engine.tx.release(offset);
        assert!(engine.tx.memory().bytes(offset, usize::MAX).is_none());
    }
    assert!(engine.cq.free() <= engine.cq.capacity());
    if engine.cq.stage(&[random.next(); 8]).is_ok() {
        engine.cq.publish();
    }
    let len = random.below(2 * BLOCK_BYTES);
    if let Some(offset) = engine.rx.alloc(len) {
        assert!(engine.rx.memory().write_at(offset, &vec![1; len as usize]).is_some());
        allocations.push(offset);
    }
    if random.below(8) == 0
        && let Some(own) = allocations.pop()
    {
        engine.rx.release_own(own);
    }
    assert!(engine.rx.free_bytes() <= engine.rx.capacity());
    assert!(engine.rx.largest_alloc() <= engine.rx.capacity());
    assert!(engine.sq.len() <= engine.sq.capacity());
    engine.client_bell.claim();
    engine.engine_bell.prepare();
    engine.engine_bell.cancel();
    engine.words.completed.add(1);
    let claimed = engine.words.accepted.load().wrapping_add(engine.words.consumed_bytes.load());
    engine.words.state.store(claimed);
}

#[test]
fn scribbling_between_the_engines_steps_does_no_harm() {
    for seed in 1..=300 {
        let (client, mut engine) = QueuePair::create(SIZES, Backing::Private).unwrap();
        let segment = Arc::clone(client.segment());
        let mut random = Random(seed);
        let mut allocations = Vec::new();
        for step in 0..200 {
            for _ in 0..random.below(4) {
                scribble(&segment, &mut random);
            }
            engine_step(&mut engine, &mut random, &mut allocations);
            assert_eq!(
                engine.words.completed.load(),
                step + 1,
                "seed {seed}: own words are not believed back"
            );
        }
    }
}

#[test]
fn scribbling_at_the_same_time_does_no_harm() {
    for seed in 1..=20 {
        let (client, mut engine) = QueuePair::create(SIZES, Backing::Shared).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let file = client.segment().fd().unwrap().try_clone_to_owned().unwrap();
        // The hostile side writes through a mapping of its own, as another process would.
        let hostile = thread::spawn(move || {
            let segment = Segment::from_fd(file).unwrap();
            let mut random = Random(seed);
            while !stop.load(Ordering::Relaxed) {
                scribble(&segment, &mut random);
            }
        });
        let mut random = Random(!seed);
        let mut allocations = Vec::new();
        for _ in 0..1500 {
            engine_step(&mut engine, &mut random, &mut allocations);
        }
        done.store(true, Ordering::Relaxed);
        hostile.join().unwrap();
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    // Large enough that each half or double of a size takes other pages.
    let sizes = Sizes { sq_entries: 64, cq_entries: 128, ..SIZES };
    let (client, _engine) = QueuePair::create(sizes, Backing::Shared).unwrap();
    let attach =
        || polyrail_shm::Client::attach(client.segment().fd().unwrap().try_clone_to_owned().unwrap());
    assert!(attach().is_ok());
    let mut random = Random(7);
    for word in 0..6u64 {
        let mut good = [0; 8];
        client.segment().read_at(word * 8, &mut good).unwrap();
        let near = u64::from_ne_bytes(good);
        for wrong in [0, near + 1, near * 2, near / 2, u64::MAX, random.next()] {
            client.segment().write_at(word * 8, &wrong.to_ne_bytes()).unwrap();
            assert!(attach().is_err(), "word {word} = {wrong}");
        }
        client.segment().write_at(word * 8, &good).unwrap();
    }
    assert!(attach().is_ok());
}
