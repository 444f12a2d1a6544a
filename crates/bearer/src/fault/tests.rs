//! Each fault over the in-process bearer, which has none of its own.

use super::*;
use crate::{MemoryBearer, MemoryHub};

const SIZE: usize = 10;

/// Sends `trains` trains of 4 numbered datagrams and returns what arrives.
fn run(seed: u64, faults: Faults, trains: u32) -> Vec<Vec<u8>> {
    let hub = MemoryHub::new();
    let (mut a, mut b) = (FaultBearer::new(hub.bearer(1), seed, faults), hub.bearer(2));
    let mut got = Vec::new();
    for train in 0..trains {
        let bytes: Vec<u8> =
            (0..4).flat_map(|n| format!("{:0width$}", train * 4 + n, width = SIZE).into_bytes()).collect();
        assert!(matches!(send_plain(&mut a, (Address::Memory(2), 0), &bytes, SIZE), SendOutcome::Sent));
        collect(&mut b, &mut got);
    }
    let mut own = RxBatch::new(1);
    while !a.delayed.is_empty() {
        a.recv(&mut own, true).unwrap();
    }
    collect(&mut b, &mut got);
    got
}

fn collect(bearer: &mut MemoryBearer, got: &mut Vec<Vec<u8>>) {
    let mut batch = RxBatch::new(8);
    while bearer.recv(&mut batch, true).unwrap() > 0 {
        got.extend(batch.iter().flat_map(|group| group.datagrams()).map(<[u8]>::to_vec));
        batch.clear();
    }
}

fn numbers(got: &[Vec<u8>]) -> Vec<u32> {
    got.iter().map(|bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap()).collect()
}

#[test]
fn without_faults_nothing_changes() {
    assert_eq!(numbers(&run(1, Faults::default(), 50)), (0..200).collect::<Vec<_>>());
}

#[test]
fn losses_come_as_often_as_asked_and_repeat_with_the_seed() {
    let faults = Faults { lose: 0.25, ..Faults::default() };
    let first = numbers(&run(7, faults, 500));
    assert!((1_300..1_700).contains(&first.len()), "{} of 2000", first.len());
    assert!(first.is_sorted());
    assert_eq!(first, numbers(&run(7, faults, 500)));
    assert_ne!(first, numbers(&run(8, faults, 500)));
}

#[test]
fn duplicates_are_extra_and_delays_only_change_the_order() {
    let mut twice = numbers(&run(3, Faults { duplicate: 0.3, ..Faults::default() }, 200));
    assert!(twice.len() > 900);
    twice.sort_unstable();
    twice.dedup();
    assert_eq!(twice, (0..800).collect::<Vec<_>>());

    let delay = Faults { delay: 0.3, delay_batches_max: 5, ..Faults::default() };
    let mut late = numbers(&run(3, delay, 200));
    assert!(!late.is_sorted());
    late.sort_unstable();
    assert_eq!(late, (0..800).collect::<Vec<_>>());
}

#[test]
fn damage_is_one_bit_of_one_datagram() {
    let (good, bad) =
        (run(5, Faults::default(), 50), run(5, Faults { corrupt: 1.0, ..Faults::default() }, 50));
    assert_eq!(good.len(), bad.len());
    for (a, b) in good.iter().zip(&bad) {
        let bits: u32 = a.iter().zip(b).map(|(x, y)| (x ^ y).count_ones()).sum();
        assert_eq!((a.len(), bits), (b.len(), 1));
    }
}

#[test]
fn silence_strikes_both_ways_and_ends() {
    let hub = MemoryHub::new();
    let (mut a, mut b) = (FaultBearer::new(hub.bearer(1), 1, Faults::default()), hub.bearer(2));
    let (control, mut batch) = (a.control(), RxBatch::new(4));
    control.silence(true);
    send_plain(&mut a, (Address::Memory(2), 0), b"out", 3);
    send_plain(&mut b, (Address::Memory(1), 0), b"in", 2);
    a.broadcast(b"beacon");
    b.broadcast(b"beacon");
    assert_eq!(a.recv(&mut batch, true).unwrap() + a.recv_beacons(&mut batch).unwrap(), 0);
    assert_eq!(b.recv(&mut batch, true).unwrap(), 0);
    control.silence(false);
    assert_eq!(a.recv(&mut batch, true).unwrap(), 0, "what came in silence is gone");
    send_plain(&mut a, (Address::Memory(2), 0), b"out", 3);
    assert_eq!(b.recv(&mut batch, true).unwrap(), 1);
}
