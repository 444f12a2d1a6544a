//! Replicas of the binding log that differ from it are found and mended, and nothing is said where nothing differs.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::id::PortId;
use polyrail_proto::service::{SubscriptionId, Topic, Update};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{self, BINDING_BYTES, DigestSays, Frame, Frames, NameDigest, PacketType};
use std::collections::BTreeSet;
use world::random::Random;
use world::{IDS, Packet, World, pair};

const KIND: u32 = 100;
const BINDINGS_AT: usize = 32;

fn range(n: u32) -> ServiceRange {
    ServiceRange::new(KIND, n, n)
}

/// Changes the records of a packet on its way, as a faulty program would.
fn tamper(packet: &mut Packet, mut change: impl FnMut(&mut [u8])) {
    let bytes = &mut packet.bytes;
    if wire::peek_type(bytes) != Some(PacketType::Data) {
        return;
    }
    let mut at = wire::HEADER_BYTES;
    while at + 4 <= bytes.len() && bytes[at] != 0 {
        let len = usize::from(u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]));
        if bytes[at] == 0x10 {
            bytes[at + BINDINGS_AT..at + len].chunks_exact_mut(BINDING_BYTES).for_each(&mut change);
        }
        at += len.next_multiple_of(8);
    }
    wire::finish(bytes).expect("the header is right");
}

fn digests_in(packet: &Packet) -> Vec<NameDigest> {
    if wire::peek_type(&packet.bytes) != Some(PacketType::Data) {
        return Vec::new();
    }
    let frames = Frames::new(&packet.bytes[wire::HEADER_BYTES..], wire::HEADER_BYTES).flatten();
    let digests = frames.filter_map(|frame| match frame {
        Frame::NameDigest(digest) => Some(digest),
        _ => None,
    });
    digests.collect()
}

fn agree(world: &World) -> bool {
    world.hosts[0].node.table().list().eq(world.hosts[1].node.table().list())
}

/// Keys that the subscriber has been told of and that are not withdrawn.
fn read(world: &mut World, id: SubscriptionId, told: &mut BTreeSet<u64>) {
    while let Ok(Some(update)) = world.hosts[1].node.poll_subscription(id) {
        let fits = match update {
            Update::Published(p) => told.insert(p.key),
            Update::Withdrawn(p) => told.remove(&p.key),
            _ => true,
        };
        assert!(fits, "{update:?} does not follow");
    }
}

/// Binds and unbinds while `change` is done to each record, then waits for the tables to be one again.
fn is_mended(change: impl Fn(&mut Random, &mut [u8])) {
    for seed in 1..=8 {
        let (mut world, ports) = pair();
        let mut random = Random(seed);
        let now = world.now;
        let all = Topic::services(ServiceRange::new(KIND, 0, u32::MAX));
        let id = world.hosts[1].node.subscribe(now, all, None).expect("there is room");
        let mut told = BTreeSet::new();
        for n in 0..60 {
            world.hosts[0].bind(ports[0], range(n));
            if n >= 20 {
                let node = &mut world.hosts[0].node;
                node.unbind(ports[0], range(n - 20), Scope::Cluster).expect("it was bound");
            }
            for packet in &mut world.wire {
                tamper(packet, |record| change(&mut random, record));
            }
            world.step(Duration::ms(1), |_| true);
            read(&mut world, id, &mut told);
        }
        world.run_while(20, |_| true);
        assert!(!agree(&world), "seed {seed}: nothing is wrong");
        // Two spans: in one the digest may have been told just before.
        let mended = world.run_while(21_000, |world| !agree(world));
        read(&mut world, id, &mut told);
        assert!(mended, "seed {seed}: {:?}", world.hosts[1].node.drops());
        assert_eq!(told.len(), 20, "seed {seed}: what subscribers were told is what is known");
        // One digest may have been told in the middle.
        let diverged = world.hosts[1].node.drops().names_diverged;
        assert!((1..=2).contains(&diverged), "seed {seed}: {diverged}");
        assert_eq!(world.hosts[0].node.drops().names_diverged, 0, "seed {seed}");
        assert!(world.hosts.iter().all(|host| host.node.drops().violation == 0));
    }
}

#[test]
fn lost_withdrawals_are_mended() {
    is_mended(|random, record| {
        if record[25] == 2 && random.one_in(4) {
            // The key of another binding.
            record[16..24].fill(0xEE);
        }
    });
}

#[test]
fn stale_publications_are_mended() {
    is_mended(|random, record| {
        if record[25] == 2 && random.one_in(4) {
            record[25] = 1;
            record[16..24].copy_from_slice(&random.next().to_le_bytes());
        }
    });
}

#[test]
fn bindings_of_another_port_are_mended() {
    is_mended(|random, record| {
        if random.one_in(4) {
            record[12] ^= 1;
        }
    });
}

#[test]
fn a_digest_is_told_when_something_has_changed_and_at_no_other_time() {
    let (mut world, ports) = pair();
    let mut seen = Vec::new();
    let second = |world: &mut World, seen: &mut Vec<(u16, NameDigest)>| {
        for _ in 0..1_000 {
            world.step(Duration::ms(1), |_| true);
            for packet in &world.wire {
                let seat = packet.from.as_bytes()[3];
                seen.extend(digests_in(packet).into_iter().map(|digest| (u16::from(seat), digest)));
            }
        }
    };
    (0..15).for_each(|_| second(&mut world, &mut seen));
    assert_eq!(seen, [], "there is nothing to tell");
    for n in 0..40 {
        world.hosts[0].bind(ports[0], range(n));
        second(&mut world, &mut seen);
    }
    (0..60).for_each(|_| second(&mut world, &mut seen));
    assert!((4..=6).contains(&seen.len()), "every ten seconds while something changes: {}", seen.len());
    assert!(seen.iter().all(|(seat, digest)| *seat == 0 && digest.says == DigestSays::State));
    assert_eq!(seen.last().map(|(_, digest)| digest.log_seq), Some(40));
    assert_eq!(world.hosts[1].node.drops().names_diverged, 0);
}

/// Two nodes of which the second seems not to know of digests.
fn with_an_older_peer() -> (World, [PortId; 2]) {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = polyrail_proto::Config::new(id, polyrail_proto::id::Incarnation(1));
        world.hosts.push(world::Host::new(world.now, config, seat as u16, &[0], || 0));
    }
    let ports = [0, 1].map(|index| world.hosts[index].open_port());
    (world, ports)
}

/// A step in which openings lose their bit 3.
fn step_among_older(world: &mut World) {
    for packet in &mut world.wire {
        if matches!(wire::peek_type(&packet.bytes), Some(PacketType::Init | PacketType::Resp)) {
            packet.bytes[56] &= !(1 << 3);
            wire::finish(&mut packet.bytes).expect("the header is right");
        }
    }
    world.step(Duration::ms(1), |_| true);
}

#[test]
fn an_older_peer_is_told_no_digest_and_begins_again_in_a_new_session() {
    let (mut world, ports) = with_an_older_peer();
    world.hosts[0].bind(ports[0], range(1));
    for _ in 0..30_000 {
        step_among_older(&mut world);
        assert!(world.wire.iter().all(|packet| digests_in(packet).is_empty()));
    }
    assert!(agree(&world) && world.hosts[1].node.table().len() == 1);
    let session = |world: &World| world.hosts[0].session_with(IDS[1]).map(|session| session.index);
    let first = session(&world);
    // More operations than are remembered.
    for _ in 0..2 {
        let port = world.hosts[0].open_port();
        (0..30_000).for_each(|n| world.hosts[0].bind(port, range(n)));
        let now = world.now;
        world.hosts[0].close_port(now, port);
    }
    let mut steps = 0;
    while session(&world) == first || !agree(&world) {
        step_among_older(&mut world);
        steps += 1;
        assert!(steps < 10_000, "it never begins again");
    }
    assert_eq!(world.hosts[1].node.table().len(), 1);
}

#[test]
fn who_asks_again_and_again_is_told_every_ten_seconds() {
    let (mut world, ports) = pair();
    world.hosts[0].bind(ports[0], range(1));
    assert!(world.run_while(100, |world| !agree(world)));
    let mut anew = 0;
    for n in 0..25_000u64 {
        // Whatever is known is made wrong by whatever comes.
        for packet in &mut world.wire {
            tamper(packet, |record| record[12] ^= 1);
        }
        if n % 1_000 == 0 {
            world.hosts[0].bind(ports[0], range(2 + n as u32));
        }
        world.step(Duration::ms(1), |_| true);
        let digests = world.wire.iter().flat_map(digests_in);
        anew += digests.filter(|digest| digest.says == DigestSays::Anew).count();
    }
    assert!((1..=3).contains(&anew), "{anew}");
}
