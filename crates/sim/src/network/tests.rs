use super::*;
use crate::queue::{MS, S, US};

/// A packet header with frames' bytes behind it.
fn packet(session: u32, link: u16, number: u64, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0u8; bytes.max(peek::HEADER_BYTES)];
    packet[0] = 0x10;
    packet[2..4].copy_from_slice(&link.to_le_bytes());
    packet[4..8].copy_from_slice(&session.to_le_bytes());
    packet[8..16].copy_from_slice(&number.to_le_bytes());
    packet
}

fn clean() -> Conditions {
    Conditions { egress: EgressKind::NoQueue, ..Conditions::default() }
}

/// Runs until nothing happens; returns (time, station, bytes) of everything that could be read.
fn run(network: &mut Network) -> Vec<(u64, Station, usize)> {
    let mut got = Vec::new();
    while network.next_at_ns().is_some() {
        network.step();
        for station in 0..network.nodes() * network.rails() {
            while let Some(unit) = network.recv(station) {
                got.push((network.now_ns, station, unit.bytes.len()));
            }
        }
    }
    got
}

#[test]
fn one_seed_is_one_trace() {
    let noisy = Conditions {
        loss: Loss::Bernoulli { ppm: 100_000 },
        duplicate_ppm: 50_000,
        jitter_ns: 50 * US,
        reorder: true,
        corrupt_ppm: 10_000,
        checksum_miss_ppm: 500_000,
        replay_ppm: 10_000,
        ..Conditions::default()
    };
    let trace = |seed| {
        let mut network = Network::new(2, vec![noisy], seed);
        for number in 0..500 {
            network.send(0, Some(1), &packet(1, 1, number, 1_000), 1_000);
        }
        let got = run(&mut network);
        (network.record.hash(), got)
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1).0, trace(2).0);
}

#[test]
fn each_reason_to_drop_is_told_apart() {
    let mut network = Network::new(2, vec![clean(); 4], 1);
    network.set_cut(0, 0, 1, true);
    network.set_conditions(1, Conditions { loss: Loss::EveryNth { n: 2 }, ..clean() });
    network.set_conditions(2, Conditions { path_mtu_bytes: 1_000, ..clean() });
    network.set_conditions(3, Conditions { rcvbuf_bytes: 3 * 2_304, ..clean() });
    for rail in 0..4 {
        for _ in 0..10 {
            network.send(rail * 2, Some(rail * 2 + 1), &[0; 2_500], 1_250);
            network.send(rail * 2, Some(rail * 2 + 1), &[0; 500], 500);
        }
    }
    while network.next_at_ns().is_some() {
        network.step();
    }
    (0..8).for_each(|station| while network.recv(station).is_some() {});
    let record = &network.record;
    assert_eq!(record.dropped(DropReason::Cut), 30);
    assert_eq!(record.dropped(DropReason::Loss), 15);
    assert_eq!(record.dropped(DropReason::PathMtu), 20);
    assert!(record.dropped(DropReason::ReceiveBuffer) > 20);
    // The other direction of the cut rail works.
    network.send(1, Some(0), b"back", 4);
    assert_eq!(run(&mut network).last().map(|got| got.1), Some(0));
}

#[test]
fn carrier_loss_empties_the_queue_and_refuses_more() {
    let slow = EgressKind::Fifo { rate: 1_000_000, limit: 1 << 20 };
    let mut network = Network::new(2, vec![Conditions { egress: slow, ..Conditions::default() }], 1);
    for _ in 0..5 {
        assert_eq!(network.send(0, Some(1), &[0; 1_000], 1_000), Sent::Taken);
    }
    network.set_carrier(0, false);
    assert_eq!(network.record.dropped(DropReason::Carrier), 5);
    assert_eq!(network.send(0, Some(1), &[0; 1_000], 1_000), Sent::Dropped);
    assert!(run(&mut network).is_empty());
    network.set_carrier(0, true);
    assert_eq!(network.send(0, Some(1), &[0; 1_000], 1_000), Sent::Taken);
    assert_eq!(run(&mut network).len(), 1);
}

#[test]
fn a_sender_that_met_a_full_buffer_is_woken() {
    let slow = EgressKind::Fifo { rate: 1_000_000, limit: 1 << 20 };
    let conditions = Conditions { egress: slow, sndbuf_bytes: 10_000, ..Conditions::default() };
    let mut network = Network::new(2, vec![conditions], 1);
    while network.send(0, Some(1), &[0; 1_000], 1_000) == Sent::Taken {}
    assert!(!network.writable(0));
    let mut wakes = Vec::new();
    while !wakes.contains(&Wake::Writable(0)) {
        network.step();
        network.take_wakes(&mut wakes);
    }
    assert!(network.writable(0));
}

#[test]
fn a_shaped_rail_keeps_its_rate() {
    let mut network = Network::new(2, vec![Conditions::default()], 1);
    let train = vec![0; 44 * 1_472];
    let mut sent = 0u64;
    while network.now_ns < S / 4 {
        while network.send(0, Some(1), &train, 1_472) == Sent::Taken {
            sent += train.len() as u64;
        }
        network.step();
        while network.recv(1).is_some() {}
    }
    let expected = 125_000_000 / 4 * 1_472 / 1_514;
    assert!(sent.abs_diff(expected) < expected / 30, "{sent} of {expected}");
    assert_eq!(network.record.dropped(DropReason::Queue), 0, "the send buffer is smaller than the queue");
}

#[test]
fn a_switch_port_delays_and_drops() {
    let port = SwitchPort { rate: 10_000_000, limit: 100_000 };
    let mut network = Network::new(3, vec![Conditions { port: Some(port), ..clean() }], 1);
    for _ in 0..100 {
        network.send(0, Some(2), &[0; 1_458], 1_458);
        network.send(1, Some(2), &[0; 1_458], 1_458);
    }
    let got = run(&mut network);
    assert!(network.record.dropped(DropReason::SwitchPort) > 100);
    // 1500 bytes at 10 MB/s are 150 us each.
    let last_ns = got.last().unwrap().0;
    assert_eq!(last_ns, 10 * US + got.len() as u64 * 150 * US);
}

#[test]
fn jitter_overtakes_only_where_it_may() {
    let order = |reorder| {
        let conditions = Conditions { jitter_ns: MS, reorder, ..clean() };
        let mut network = Network::new(2, vec![conditions], 1);
        for bytes in 1..100 {
            network.send(0, Some(1), &vec![0; bytes], bytes);
            network.set_now(network.now_ns + 10 * US);
        }
        run(&mut network).iter().map(|got| got.2).collect::<Vec<_>>()
    };
    assert!(order(false).is_sorted());
    assert!(!order(true).is_sorted());
}

#[test]
fn a_packet_number_used_twice_is_found() {
    let mut network = Network::new(2, vec![clean()], 1);
    for number in [0, 1, 5, 6] {
        network.send(0, Some(1), &packet(3, 1, number, 100), 100);
        network.send(0, Some(1), &packet(3, 2, number, 100), 100);
        network.send(1, Some(0), &packet(3, 1, number, 100), 100);
    }
    assert_eq!(network.record.streams.number, None);
    network.send(0, Some(1), &packet(3, 2, 6, 100), 100);
    assert_eq!(network.record.streams.number.map(|reused| reused.peek.number), Some(6));
}

#[test]
fn corruption_beyond_the_checksum_alters_headers_only() {
    let conditions = Conditions { corrupt_ppm: 1_000_000, checksum_miss_ppm: 1_000_000, ..clean() };
    let mut network = Network::new(2, vec![conditions], 1);
    for number in 0..200 {
        network.send(0, Some(1), &packet(1, 1, number, 200), 200);
    }
    let mut seen = 0;
    while network.next_at_ns().is_some() {
        network.step();
        while let Some(unit) = network.recv(1) {
            for datagram in unit.datagrams() {
                seen += 1;
                assert!(datagram[peek::HEADER_BYTES..].iter().all(|byte| *byte == 0));
            }
        }
    }
    assert_eq!((seen, network.record.corrupted), (200, 200));
}
