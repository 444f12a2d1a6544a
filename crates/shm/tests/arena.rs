//! An arena never gives the same byte twice, and gets back all that was released.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::thread;

use polyrail_shm::arena::{ArenaPlace, BLOCK_BYTES, GRAIN_BYTES};
use polyrail_shm::ring::ring_bytes;
use polyrail_shm::segment::HUGE_PAGE_BYTES;
use polyrail_shm::{ArenaAllocator, ArenaReleaser, Consumer, Producer, Segment};
use proptest::prelude::*;

const DATA: u64 = 4096;

fn arena(blocks: u32) -> (ArenaAllocator, ArenaReleaser) {
    let segment = Segment::private((DATA + u64::from(blocks) * BLOCK_BYTES) as usize).unwrap();
    let place = ArenaPlace { counters: 0, data: DATA, blocks };
    (ArenaAllocator::new(&segment, place).unwrap(), ArenaReleaser::new(&segment, place).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Alloc(u64),
    /// Releases the live allocation of this rank, modulo their number.
    Release(usize),
    ReleaseOwn(usize),
    Open(u64),
    /// Closes the open allocation of this rank, modulo their number, with so many bytes, modulo one more than it has.
    Close(usize, u64),
    FreeBytes,
    LargestFits,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        4 => (0u64..300).prop_map(Operation::Alloc),
        3 => (0..BLOCK_BYTES + 1).prop_map(Operation::Alloc),
        2 => (BLOCK_BYTES..5 * BLOCK_BYTES).prop_map(Operation::Alloc),
        6 => any::<usize>().prop_map(Operation::Release),
        1 => any::<usize>().prop_map(Operation::ReleaseOwn),
        2 => (0..5 * BLOCK_BYTES).prop_map(Operation::Open),
        2 => any::<(usize, u64)>().prop_map(|(rank, len)| Operation::Close(rank, len)),
        1 => Just(Operation::FreeBytes),
        1 => Just(Operation::LargestFits),
    ];
    prop::collection::vec(one, 0..300)
}

/// Live allocations by offset: length and the byte they are filled with.
#[derive(Default)]
struct Oracle {
    live: BTreeMap<u64, (u64, u8)>,
    /// Those that are open, with all the bytes that they were made for. They may have been released.
    open: BTreeMap<u64, u64>,
    made: u64,
}

impl Oracle {
    /// Notes a new allocation, checks that it overlaps no other, and fills it.
    fn add(&mut self, allocator: &ArenaAllocator, offset: u64, len: u64) {
        let bytes = len.max(1);
        assert!(offset.is_multiple_of(GRAIN_BYTES) && offset + bytes <= allocator.capacity());
        if let Some((&below, &(below_len, _))) = self.live.range(..=offset).next_back() {
            assert!(below + below_len.max(1) <= offset, "{offset} overlaps {below}");
        }
        if let Some((&above, _)) = self.live.range(offset..).next() {
            assert!(offset + bytes <= above, "{offset} overlaps {above}");
        }
        let apart =
            |(&open, &open_len): (&u64, &u64)| open + open_len.max(1) <= offset || offset + bytes <= open;
        assert!(self.open.iter().all(apart), "{offset} is in one that is open");
        self.made += 1;
        let canary = self.made as u8;
        allocator.memory().write_at(offset, &vec![canary; len as usize]).unwrap();
        self.live.insert(offset, (len, canary));
    }

    /// Closes the open allocation of a rank.
    fn close(&mut self, allocator: &mut ArenaAllocator, rank: usize, len: u64) {
        let Some(at) = rank.checked_rem(self.open.len()) else { return };
        let (offset, most) = self.open.iter().nth(at).map(|(offset, most)| (*offset, *most)).unwrap();
        let len = len % (most + 1);
        self.open.remove(&offset);
        self.live.entry(offset).and_modify(|live| live.0 = len);
        allocator.close(offset, len);
    }

    /// Takes the live allocation of a rank out and checks that its bytes are as they were written.
    fn remove(&mut self, releaser: &ArenaReleaser, rank: usize) -> Option<u64> {
        let offset = *self.live.keys().nth(rank.checked_rem(self.live.len())?)?;
        let (len, canary) = self.live.remove(&offset)?;
        let bytes = releaser.memory().bytes(offset, len as usize).unwrap();
        assert!(bytes == vec![canary; len as usize], "{offset} was overwritten");
        Some(offset)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn live_allocations_never_overlap_and_all_memory_comes_back(blocks in 1u32..9, list in operations()) {
        let (mut allocator, mut releaser) = arena(blocks);
        let mut oracle = Oracle::default();
        for operation in list {
            match operation {
                Operation::Alloc(len) => {
                    if let Some(offset) = allocator.alloc(len) {
                        oracle.add(&allocator, offset, len);
                    } else {
                        let used = !oracle.live.is_empty() || !oracle.open.is_empty();
                        prop_assert!(used || len > allocator.capacity());
                    }
                }
                Operation::Release(rank) => {
                    if let Some(offset) = oracle.remove(&releaser, rank) {
                        prop_assert!(releaser.release(offset));
                    }
                }
                Operation::ReleaseOwn(rank) => {
                    if let Some(offset) = oracle.remove(&releaser, rank) {
                        prop_assert!(allocator.release_own(offset));
                    }
                }
                Operation::Open(len) => {
                    if let Some(offset) = allocator.alloc_open(len) {
                        oracle.add(&allocator, offset, len);
                        oracle.open.insert(offset, len);
                    }
                }
                Operation::Close(rank, len) => oracle.close(&mut allocator, rank, len),
                Operation::FreeBytes => {
                    let known = allocator.free_bytes();
                    let live: u64 = oracle.live.values().map(|&(len, _)| len).sum();
                    prop_assert!(known <= allocator.reclaim());
                    prop_assert!(known + live <= allocator.capacity());
                }
                Operation::LargestFits => {
                    let largest = allocator.largest_alloc();
                    prop_assert_eq!(allocator.alloc(largest + 1), None);
                    if largest > 0 {
                        let offset = allocator.alloc(largest).unwrap();
                        oracle.add(&allocator, offset, largest);
                    }
                }
            }
        }
        while !oracle.open.is_empty() {
            oracle.close(&mut allocator, 0, 0);
        }
        while let Some(offset) = oracle.remove(&releaser, 0) {
            prop_assert!(releaser.release(offset));
        }
        prop_assert_eq!(allocator.reclaim(), allocator.capacity());
        prop_assert_eq!(allocator.largest_alloc(), allocator.capacity());
        prop_assert_eq!(allocator.blocks_lost(), 0);
        prop_assert_eq!(allocator.alloc(allocator.capacity()), Some(0));
    }
}

#[test]
fn request_and_answer_stay_in_one_block() {
    let (mut allocator, mut releaser) = arena(16);
    for _ in 0..10_000 {
        let offset = allocator.alloc(1000).unwrap();
        assert!(offset < BLOCK_BYTES);
        releaser.release(offset);
    }
}

#[test]
fn what_is_open_stays_though_it_was_released_and_gives_back_what_it_did_not_need() {
    let (mut allocator, mut releaser) = arena(4);
    let offset = allocator.alloc_open(4 * BLOCK_BYTES).unwrap();
    assert!(releaser.release(offset));
    assert_eq!((allocator.reclaim(), allocator.alloc(1)), (0, None));
    allocator.close(offset, BLOCK_BYTES + 1);
    assert_eq!(allocator.reclaim(), 4 * BLOCK_BYTES, "it was released");
    let offset = allocator.alloc_open(4 * BLOCK_BYTES).unwrap();
    allocator.close(offset, BLOCK_BYTES + 1);
    assert_eq!(allocator.reclaim(), 2 * BLOCK_BYTES);
    assert_eq!(allocator.alloc(2 * BLOCK_BYTES), Some(2 * BLOCK_BYTES));
    assert!(releaser.release(offset));
    assert_eq!(allocator.reclaim(), 2 * BLOCK_BYTES);
}

#[test]
fn free_bytes_comes_to_know_all_that_was_released() {
    let (mut allocator, mut releaser) = arena(64);
    let offsets: Vec<u64> = (0..64).map(|_| allocator.alloc(BLOCK_BYTES).unwrap()).collect();
    assert_eq!(allocator.alloc(0), None);
    assert_eq!(allocator.free_bytes(), 0);
    offsets.into_iter().for_each(|offset| assert!(releaser.release(offset)));
    let looks = (0..).take_while(|_| allocator.free_bytes() < allocator.capacity()).count();
    assert!(looks < 64 / 8 + 1, "{looks}");
}

#[test]
fn nothing_is_larger_than_the_arena() {
    let (mut allocator, mut releaser) = arena(2);
    assert_eq!(allocator.alloc(2 * BLOCK_BYTES + 1), None);
    assert_eq!(allocator.alloc(u64::MAX), None);
    assert_eq!(allocator.alloc(u64::MAX - 64), None);
    assert!(!releaser.release(2 * BLOCK_BYTES) && !releaser.release(u64::MAX));
    assert!(!allocator.release_own(u64::MAX) && !allocator.release_own(0));
}

#[test]
fn a_block_with_an_impossible_counter_is_lost_to_its_writer_alone() {
    let (mut allocator, mut releaser) = arena(4);
    let first = allocator.alloc(BLOCK_BYTES + 1).unwrap();
    releaser.release(first);
    releaser.release(first);
    assert_eq!(allocator.reclaim(), 2 * BLOCK_BYTES);
    assert_eq!(allocator.blocks_lost(), 2);
    // What remains works on, and the counter is not looked at again even if it becomes possible.
    allocator.segment().write_at(0, &1u64.to_ne_bytes()).unwrap();
    for _ in 0..10 {
        let offset = allocator.alloc(2 * BLOCK_BYTES).unwrap();
        assert_eq!(offset, 2 * BLOCK_BYTES);
        releaser.release(offset);
    }
    assert_eq!(allocator.blocks_lost(), 2);
}

#[test]
fn two_threads_never_see_each_others_bytes() {
    const MESSAGES: u64 = 60_000;
    let blocks = 4;
    let rings = DATA + blocks * BLOCK_BYTES;
    let segment = Segment::private((rings + ring_bytes(64)) as usize).unwrap();
    let place = ArenaPlace { counters: 0, data: DATA, blocks: blocks as u32 };
    let mut allocator = ArenaAllocator::new(&segment, place).unwrap();
    let mut releaser = ArenaReleaser::new(&segment, place).unwrap();
    let mut sq = Producer::new(&segment, rings, 64).unwrap();
    let mut cq = Consumer::new(&segment, rings, 64).unwrap();

    let sending = thread::spawn(move || {
        for number in 0..MESSAGES {
            // Mostly small, now and then more than a block.
            let len = if number % 97 == 0 { 70_000 } else { number * 31 % 3000 };
            let offset = loop {
                match allocator.alloc(len) {
                    Some(offset) => break offset,
                    None => thread::yield_now(),
                }
            };
            allocator.memory().write_at(offset, &vec![number as u8; len as usize]).unwrap();
            while sq.push(&[number, offset, len, 0, 0, 0, 0, 0]).is_err() {
                thread::yield_now();
            }
        }
        allocator
    });
    let mut next = 0;
    while next < MESSAGES {
        let Some([number, offset, len, ..]) = cq.pop() else {
            thread::yield_now();
            continue;
        };
        assert_eq!(number, next);
        let bytes = releaser.memory().bytes(offset, len as usize).unwrap();
        assert!(bytes == vec![number as u8; len as usize], "message {number}");
        assert!(releaser.release(offset));
        next += 1;
    }
    let mut allocator = sending.join().unwrap();
    assert_eq!(allocator.reclaim(), allocator.capacity());
    assert_eq!(allocator.blocks_lost(), 0);
}

#[test]
fn large_allocations_lie_in_huge_pages_first_and_small_ones_below() {
    const MIB: u64 = 1 << 20;
    let segment = Segment::private((DATA + 10 * MIB) as usize).unwrap();
    let place = ArenaPlace { counters: 0, data: DATA, blocks: (10 * MIB / BLOCK_BYTES) as u32 };
    let mut allocator = ArenaAllocator::new(&segment, place).unwrap();
    let mut releaser = ArenaReleaser::new(&segment, place).unwrap();
    allocator.prefer_huge_pages();
    assert_eq!(allocator.alloc(100), Some(0));
    let first = allocator.alloc(MIB).unwrap();
    let address = |offset: u64| allocator.memory().io_slice(offset, 1).unwrap().as_ptr() as usize;
    let skipped = address(first) % HUGE_PAGE_BYTES;
    assert_eq!((first, skipped), (2 * MIB, DATA as usize), "wherever the segment was mapped");
    assert_eq!(allocator.alloc(100), Some(128), "small ones keep together");
    let mut all = vec![first];
    all.extend(std::iter::from_fn(|| allocator.alloc(MIB)));
    assert!(all.len() >= 8, "the part below serves too when the other is full: {}", all.len());
    assert!(all.iter().any(|&offset| offset < first));
    let mut order = all.clone();
    order.sort_unstable();
    assert!(order.windows(2).all(|pair| pair[1] - pair[0] >= MIB));
    assert!(releaser.release(first));
    assert_eq!(allocator.alloc(MIB), Some(first));
}

#[test]
fn what_is_not_long_stays_low() {
    let (mut allocator, mut releaser) = arena(64);
    allocator.keep_low(16 * BLOCK_BYTES);
    let low: Vec<u64> = std::iter::from_fn(|| allocator.alloc(4 * BLOCK_BYTES)).collect();
    assert_eq!(low, [0, 4, 8, 12].map(|block| block * BLOCK_BYTES));
    assert_eq!(allocator.alloc(1), None, "small ones stay there too");
    let long: Vec<u64> = std::iter::from_fn(|| allocator.alloc(5 * BLOCK_BYTES)).collect();
    assert_eq!(long.len(), 48 / 5, "longer ones have the rest");
    releaser.release(low[1]);
    assert_eq!(allocator.alloc(1), Some(low[1]));
}

#[test]
fn what_was_handed_over_stays_released_whatever_lies_there_next() {
    let (mut allocator, mut releaser) = arena(4);
    let offset = allocator.alloc(3 * BLOCK_BYTES).unwrap();
    let first = allocator.handed_over(offset).unwrap();
    assert!(!allocator.is_released(first));
    releaser.release(offset);
    assert!(allocator.is_released(first));
    assert_eq!(allocator.alloc_open(3 * BLOCK_BYTES), Some(offset));
    allocator.close(offset, 2 * BLOCK_BYTES);
    let second = allocator.handed_over(offset).unwrap();
    assert!(allocator.is_released(first) && !allocator.is_released(second));
    releaser.release(offset);
    assert!(allocator.is_released(second));
    assert!(allocator.handed_over(4 * BLOCK_BYTES).is_none(), "outside");
}
