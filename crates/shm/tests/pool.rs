//! The pool uses memory again, keeps its limit, and takes buffers back from any thread.
#![cfg(not(loom))]

use std::thread;

use polyrail_shm::{Buffer, Exhausted, Pool, Quota};
use proptest::prelude::*;

#[test]
fn a_dropped_buffer_is_the_next_one_of_its_class() {
    let pool = Pool::new(64 << 20);
    for len in [1, 5000, 100 << 10, 3 << 20] {
        let mut first = pool.alloc(len).unwrap();
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let held = pool.held_bytes();
        let second = pool.alloc(len - len / 20).unwrap();
        assert_eq!(second.as_ptr(), place, "{len}");
        assert_eq!(pool.held_bytes(), held);
    }
}

#[test]
fn the_limit_counts_what_is_in_use_and_idle_memory_makes_way() {
    let pool = Pool::new(4 << 20);
    let large = pool.alloc(3 << 20).unwrap();
    assert_eq!(pool.alloc(2 << 20).unwrap_err(), Exhausted { len: 2 << 20 });
    drop(large);
    assert_eq!(pool.idle_bytes(), 3 << 20);
    let other = pool.alloc(4 << 20).unwrap();
    assert_eq!((pool.idle_bytes(), pool.held_bytes()), (0, 4 << 20));
    drop(other);
    assert!(pool.alloc(usize::MAX).is_err() && pool.alloc((4 << 20) + 1).is_err());
}

#[test]
fn buffers_count_to_a_budget_that_others_use_and_idle_ones_make_way() {
    let budget = Quota::new(4 << 20);
    let pool = Pool::within(64 << 20, 64 << 20, &budget);
    drop(pool.alloc(3 << 20).unwrap());
    assert_eq!((pool.idle_bytes(), budget.used_bytes()), (3 << 20, 3 << 20));
    let small = pool.alloc(2 << 20).unwrap();
    assert_eq!((pool.idle_bytes(), budget.used_bytes()), (0, 2 << 20), "there was no room for both");
    let others = Quota::charge(&budget, 1 << 20).unwrap();
    assert_eq!(pool.alloc(2 << 20).unwrap_err(), Exhausted { len: 2 << 20 });
    assert_eq!(pool.held_bytes(), 2 << 20, "what was refused is not held");
    drop(others);
    drop((pool.alloc(2 << 20).unwrap(), small));
    pool.give_up_idle(1);
    assert_eq!((pool.idle_bytes(), budget.used_bytes()), (2 << 20, 2 << 20));
    pool.give_up_idle(usize::MAX);
    assert_eq!((pool.idle_bytes(), pool.held_bytes(), budget.used_bytes()), (0, 0, 0));
}

#[test]
fn idle_memory_above_its_bound_goes_back_to_the_machine() {
    let pool = Pool::with_idle_max(8 << 20, 1 << 20);
    let buffers: Vec<Buffer> = (0..4).map(|_| pool.alloc(1 << 20).unwrap()).collect();
    drop(buffers);
    assert_eq!((pool.idle_bytes(), pool.held_bytes()), (1 << 20, 1 << 20));
}

#[test]
fn buffers_out_of_a_quota_count_to_it_and_to_its_whole_until_they_are_dropped() {
    let pool = Pool::new(64 << 20);
    let whole = Quota::new(3 << 20);
    let (a, b) = (Quota::of(&whole, 2 << 20), Quota::of(&whole, 2 << 20));
    let first = pool.alloc_within((1 << 20) - 1, &a).unwrap();
    let second = pool.alloc_within(1 << 20, &a).unwrap();
    assert_eq!(pool.alloc_within(1, &a).unwrap_err(), Exhausted { len: 1 });
    let third = pool.alloc_within(1 << 20, &b).unwrap();
    assert!(pool.alloc_within(1 << 20, &b).is_err(), "the whole is used up");
    assert_eq!((a.used_bytes(), b.used_bytes(), whole.used_bytes()), (2 << 20, 1 << 20, 3 << 20));
    drop(thread::spawn(move || drop(first)).join());
    assert_eq!((a.used_bytes(), whole.used_bytes()), (1 << 20, 2 << 20));
    assert!(pool.alloc_within(1 << 20, &b).is_ok());
    drop((second, third));
    assert_eq!((a.used_bytes(), b.used_bytes(), whole.used_bytes()), (0, 0, 0));
    let small = Pool::new(1 << 20);
    let _taken = small.alloc(1 << 20).unwrap();
    assert!(small.alloc_within(1 << 20, &a).is_err());
    assert_eq!(whole.used_bytes(), 0, "what the pool had not is not charged");
}

#[test]
fn length_moves_within_the_capacity_only() {
    let pool = Pool::new(1 << 20);
    let mut buffer = pool.alloc(5000).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
    buffer.truncate(6000);
    assert_eq!(buffer.len(), 5000);
    buffer.truncate(10);
    assert_eq!(buffer[..].len(), 10);
    assert!(buffer.resize(8192) && !buffer.resize(8193));
    assert_eq!(buffer.len(), 8192);
    let empty = pool.alloc(0).unwrap();
    assert!(empty.is_empty() && empty[..].is_empty());
}

#[test]
fn a_buffer_may_die_in_another_thread_and_after_its_pool() {
    let pool = Pool::new(1 << 20);
    let mut buffer = pool.alloc(100_000).unwrap();
    buffer.fill(3);
    thread::spawn(move || assert!(buffer.iter().all(|&byte| byte == 3))).join().unwrap();
    assert_eq!(pool.idle_bytes(), 128 << 10);
    let last = pool.alloc(10).unwrap();
    drop(pool);
    assert_eq!(last.len(), 10);
}

proptest! {
    #[test]
    fn buffers_in_use_are_apart_and_the_limit_holds(
        list in prop::collection::vec((0usize..3 << 20, any::<bool>(), any::<usize>()), 0..60),
    ) {
        const LIMIT: usize = 12 << 20;
        let pool = Pool::with_idle_max(LIMIT, LIMIT / 2);
        let mut live: Vec<(Buffer, u8)> = Vec::new();
        for (number, (len, keep, rank)) in list.into_iter().enumerate() {
            if keep && let Ok(mut buffer) = pool.alloc(len) {
                prop_assert_eq!(buffer.len(), len);
                buffer.fill(number as u8);
                live.push((buffer, number as u8));
            } else if !live.is_empty() {
                let (buffer, canary) = live.swap_remove(rank % live.len());
                prop_assert!(buffer[..] == vec![canary; buffer.len()]);
            }
            let in_use: usize = live.iter().map(|(buffer, _)| buffer.capacity()).sum();
            prop_assert_eq!(pool.held_bytes(), in_use + pool.idle_bytes());
            prop_assert!(pool.held_bytes() <= LIMIT && pool.idle_bytes() <= LIMIT / 2);
        }
    }
}
