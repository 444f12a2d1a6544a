//! Two nodes over media that lose, repeat and reorder: what was sent arrives once, in order and whole, and in the end
//! nobody holds anything.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{ServiceAddress, ServiceRange};
use polyrail_proto::error::Failure;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{NodeId, PortAddress, PortId};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{Frame, Frames, HEADER_BYTES};
use polyrail_proto::{Destination, Event};
use std::collections::BTreeMap;
use world::memory::{PORT_BYTES, PORT_MESSAGES};
use world::random::Random;
use world::{Host, IDS, Packet, World, pair};

const SIZES: [usize; 12] = [0, 1, 64, 100, 1_100, 1_400, 2_000, 5_000, 65_535, 65_536, 65_537, 400_000];

/// A step of 50 us over media that lose one in `loss` packets and hold back or repeat as many.
fn rough_step(world: &mut World, random: &mut Random, loss: usize) {
    let mut late = Vec::new();
    world.step(Duration::us(50), |packet| match random.below(loss) {
        0 => false,
        1 => {
            late.push(packet.clone());
            false
        }
        2 => {
            late.push(packet.clone());
            true
        }
        _ => true,
    });
    world.wire.extend(late);
}

/// The bytes of message `number`: any piece in a wrong place shows.
fn body(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at * 31 + at / 251 + number * 7) as u8).collect()
}

/// What arrived of each flow, checked for order, once-ness and content.
#[derive(Default)]
struct Arrived {
    next: BTreeMap<(NodeId, PortId), u64>,
    count: u64,
}

impl Arrived {
    fn read(&mut self, host: &mut Host) {
        while let Some((arrival, bytes)) = host.receive() {
            let tag = arrival.tag.expect("every message has one");
            let next = self.next.entry((arrival.from.node, arrival.from.port)).or_insert(tag >> 56 << 56);
            assert_eq!(tag, *next, "once and in order");
            *next += 1;
            assert!(bytes == body(tag, bytes.len()), "message {tag} of {} bytes differs", bytes.len());
            self.count += 1;
        }
    }
}

/// Sends `count` messages from the first node to the second over media of that quality; the reader sleeps at first.
fn exchange(seed: u64, loss: usize, count: u64, sizes: &[usize], sleep_steps: u64) -> World {
    let (mut world, ports) = pair();
    let mut random = Random(seed);
    let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
    let (mut sent, mut arrived, mut steps) = (0, Arrived::default(), 0);
    while arrived.count < count || world.hosts[0].node.unconfirmed(ports[0]) > 0 {
        while sent < count && world.hosts[0].node.unconfirmed(ports[0]) < 200 {
            let (now, len) = (world.now, random.pick(sizes));
            let taken = world.hosts[0].send(now, ports[0], to, Class::Normal, sent, &body(sent, len));
            assert!(taken);
            sent += 1;
        }
        rough_step(&mut world, &mut random, loss);
        steps += 1;
        if steps > sleep_steps {
            arrived.read(&mut world.hosts[1]);
        }
        assert!(steps < 400_000, "seed {seed}: {} of {count} arrived", arrived.count);
    }
    assert_eq!(world.hosts[0].memory.confirmed, count);
    let counted = |host: usize| world.hosts[host].node.sessions().next().unwrap().stats;
    assert_eq!((counted(0).messages_sent, counted(0).messages_confirmed), (count, count));
    assert_eq!((counted(0).messages_failed, counted(1).messages_received), (0, count));
    let did = |host: usize| world.hosts[host].node.port_stats(ports[host]).unwrap();
    assert_eq!((did(0).messages_sent, did(1).messages_received), (count, count));
    assert_eq!((did(0).messages_received, did(1).bytes_received), (0, did(0).bytes_sent));
    assert_eq!(world.hosts.iter().map(|h| h.memory.in_use()).collect::<Vec<_>>(), [(0, 0); 2]);
    world
}

#[test]
fn messages_of_all_sizes_survive_loss_and_disorder() {
    for seed in 0..4 {
        let world = exchange(seed, 30, 400, &SIZES, 0);
        let lost: u64 =
            world.hosts[0].node.sessions().flat_map(|s| &s.links).map(|l| l.stats.packets_lost).sum();
        assert!(lost > 0, "nothing was lost");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    let world = exchange(1, usize::MAX, 2_000, &[100, 3_000], 0);
    for session in world.hosts.iter().flat_map(|h| h.node.sessions()) {
        assert_eq!(session.links.iter().map(|l| l.stats.packets_lost).sum::<u64>(), 0);
        assert_eq!(session.stats.messages_refused, 0);
    }
    assert_eq!(world.hosts[1].node.drops().duplicate_message, 0);
    assert_eq!(world.hosts[1].node.drops().violation, 0);
}

// There is more to read than a port has room for.
const _: () = assert!(6_000 > PORT_MESSAGES && 30 * 200_000 > PORT_BYTES);

#[test]
fn a_reader_that_sleeps_is_not_overrun_and_misses_nothing() {
    for (seed, count, sizes) in
        [(1, 6_000, &[64][..]), (2, 60, &[60_000]), (3, 30, &[200_000]), (4, 200, &SIZES)]
    {
        let world = exchange(seed, 1_000, count, sizes, 3_000);
        assert_eq!(world.hosts[1].node.drops().violation, 0, "an honest sender keeps to its credit");
    }
}

/// Whether the first piece of the first message is in it.
fn begins_the_first(packet: &Packet) -> bool {
    let begins = |frame: Frame<'_>| match frame {
        Frame::Fragment(piece, _) => piece.message.seq == 0 && piece.offset == 0,
        _ => false,
    };
    Frames::new(&packet.bytes[HEADER_BYTES..], HEADER_BYTES).flatten().any(begins)
}

#[test]
fn a_missing_piece_is_not_kept_back_by_what_finds_no_room_before_it_is_there() {
    let (mut world, ports) = pair();
    // There is room for one message, and for what is next in its flow, but credit for six.
    let taken = world.hosts[1].memory.grant(ports[1], PORT_BYTES - PORT_BYTES / 16 - 60_000);
    let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
    for tag in 0..6 {
        let now = world.now;
        assert!(world.hosts[0].send(now, ports[0], to, Class::Normal, tag, &body(tag, 40_000)));
    }
    // It is lost until the windows are small: what is refused counts as lost, too.
    for _ in 0..10_000 {
        world.step(Duration::us(50), |packet| !begins_the_first(packet));
    }
    assert!(world.hosts[1].node.sessions().any(|session| session.stats.messages_refused > 0));
    let mut arrived = Arrived::default();
    for _ in 0..10_000 {
        world.step(Duration::us(50), |_| true);
        arrived.read(&mut world.hosts[1]);
    }
    assert_eq!((arrived.count, world.hosts[0].memory.confirmed), (6, 6));
    world.hosts[1].memory.take(taken);
}

#[test]
fn every_port_has_all_of_a_multicast_in_pieces() {
    let (mut world, ports) = pair();
    let (kind, service) = (1_000, ServiceRange::new(1_000, 1, 9));
    let members = [ports[1], world.hosts[1].open_port()];
    members
        .into_iter()
        .zip(1..)
        .for_each(|(port, n)| world.hosts[1].bind(port, ServiceRange::new(kind, n, n)));
    assert!(world.run_while(1_000, |w| w.hosts[0].node.table().overlapping(service).count() < 2));
    let (mut random, mut sent, mut steps) = (Random(7), 0, 0);
    let mut told = BTreeMap::from(members.map(|port| (port, 0)));
    while told.values().any(|count| *count < 40) {
        let len = random.pick(&[65_536, 40_000, 9_001]);
        let bytes = body(sent, len);
        let (now, to) = (world.now, Destination::Multicast(service));
        if sent < 40 && world.hosts[0].send(now, ports[0], to, Class::Normal, sent, &bytes) {
            sent += 1;
        }
        rough_step(&mut world, &mut random, 100);
        steps += 1;
        assert!(steps < 100_000, "{told:?} of {sent} arrived");
        while let Some((arrival, bytes)) = world.hosts[1].receive() {
            let count = told.get_mut(&arrival.port).expect("it is a member");
            assert_eq!(arrival.tag, Some(*count), "once and in order");
            assert!(bytes == body(*count, bytes.len()), "message {count} of {} bytes differs", bytes.len());
            *count += 1;
        }
    }
}

#[test]
fn pieces_from_a_stranger_are_not_taken() {
    let (mut world, ports) = pair();
    let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
    let now = world.now;
    assert!(world.hosts[0].send(now, ports[0], to, Class::Normal, 0, &body(0, 65_536)));
    world.step(Duration::us(50), |_| true);
    let stranger = world::address(world.wire[0].medium(), 9);
    let taken = |world: &World| {
        let sessions = world.hosts[1].node.sessions();
        sessions.flat_map(|s| &s.links).map(|l| l.stats.packets_received).sum::<u64>()
    };
    let before = taken(&world);
    let (first, all) = (world.wire[0].clone(), std::mem::take(&mut world.wire));
    world.wire.push(first);
    world.wire.extend(all[1..].iter().map(|packet| Packet { from: stranger.clone(), ..packet.clone() }));
    assert!(all.len() > 10, "{} packets", all.len());
    world.step(Duration::us(1), |_| true);
    assert_eq!(taken(&world), before + 1);
}

#[test]
fn classes_and_directions_share_the_links() {
    let (mut world, ports) = pair();
    let mut random = Random(9);
    let mut sent = [0; 2];
    let mut arrived = [Arrived::default(), Arrived::default()];
    // One class for each direction: order holds within a flow.
    for _ in 0..20_000 {
        for (own, class) in [(0, Class::Urgent), (1, Class::Bulk)] {
            let to = PortAddress { node: IDS[1 - own], port: ports[1 - own] };
            if sent[own] < 300 && world.hosts[own].node.unconfirmed(ports[own]) < 50 {
                let (now, len) = (world.now, random.pick(&SIZES));
                let tag = sent[own];
                assert!(world.hosts[own].send(now, ports[own], to.into(), class, tag, &body(tag, len)));
                sent[own] += 1;
            }
        }
        rough_step(&mut world, &mut random, 50);
        arrived.iter_mut().zip(&mut world.hosts).for_each(|(a, h)| a.read(h));
    }
    assert_eq!(arrived.map(|a| a.count), [300, 300]);
}

#[test]
fn names_agree_after_loss_however_many_there_are() {
    let (mut world, ports) = pair();
    let mut random = Random(4);
    // More records than control frames may be under way, and all of them twice.
    for round in 0..2 {
        for kind in 0..9_000 {
            let range = ServiceRange::new(1_000 + kind, round, round + 5);
            world.hosts[0].bind(ports[0], range);
        }
        for _ in 0..100 {
            rough_step(&mut world, &mut random, 10);
        }
    }
    let known = |w: &World| w.hosts[1].node.table().len();
    for _ in 0..200_000 {
        if known(&world) == 18_000 {
            break;
        }
        rough_step(&mut world, &mut random, 10);
    }
    assert_eq!(known(&world), 18_000);
    let last = world.hosts[1].node.table().lookup(ServiceAddress::new(9_999, 3));
    assert_eq!(last[..], [PortAddress { node: IDS[0], port: ports[0] }]);
    let now = world.now;
    world.hosts[0].close_port(now, ports[0]);
    for _ in 0..200_000 {
        if known(&world) == 0 {
            break;
        }
        rough_step(&mut world, &mut random, 10);
    }
    assert_eq!((known(&world), world.hosts[1].node.drops().violation), (0, 0));
}

/// One message of each size from the first node to the second.
fn send_all_sizes(world: &mut World, ports: [PortId; 2]) {
    let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
    let now = world.now;
    for (tag, len) in SIZES.into_iter().enumerate() {
        let tag = tag as u64;
        assert!(world.hosts[0].send(now, ports[0], to, Class::Normal, tag, &body(tag, len)));
    }
}

#[test]
fn a_port_that_closes_is_told_to_its_senders() {
    let (mut world, ports) = pair();
    send_all_sizes(&mut world, ports);
    let now = world.now;
    world.hosts[1].close_port(now, ports[1]);
    for _ in 0..20_000 {
        world.step(Duration::us(50), |_| true);
    }
    let failed = |event: &Event| matches!(event, Event::SendFailed { why: Failure::NoPort, .. });
    assert_eq!(world.hosts[0].news.iter().filter(|e| failed(e)).count(), SIZES.len());
    assert_eq!((world.hosts[0].memory.failed, world.hosts[0].memory.in_use()), (SIZES.len() as u64, (0, 0)));
}

#[test]
fn who_waits_for_the_credit_of_a_port_that_closes_is_told() {
    let (mut world, ports) = pair();
    let to = PortAddress { node: world.hosts[1].id(), port: ports[1] };
    let settle = |world: &mut World| {
        for _ in 0..4_000 {
            world.step(Duration::us(50), |_| true);
        }
    };
    // More than the port has room for, and nobody reads.
    for _ in 0..60 {
        let now = world.now;
        assert!(world.hosts[0].send(now, ports[0], Destination::Port(to), Class::Normal, 1, &[7; 60_000]));
    }
    settle(&mut world);
    assert!(world.hosts[0].node.unconfirmed(ports[0]) > 0, "three megabytes do not fit into one");
    let now = world.now;
    world.hosts[1].close_port(now, ports[1]);
    settle(&mut world);
    assert_eq!(world.hosts[0].node.unconfirmed(ports[0]), 0);
    let told = |event: &Event| matches!(event, Event::SendFailed { why: Failure::NoPort, .. });
    assert!(world.hosts[0].news.iter().any(told));
}

#[test]
fn a_peer_that_falls_silent_is_missed_and_what_it_had_is_given_back() {
    let (mut world, ports) = pair();
    send_all_sizes(&mut world, ports);
    // Some of it is under way, some of it has arrived in part.
    for _ in 0..12 {
        world.step(Duration::us(50), |_| true);
    }
    for _ in 0..20_000 {
        world.step(Duration::us(100), |_| false);
    }
    for host in &mut world.hosts {
        assert!(host.news.iter().any(|e| matches!(e, Event::PeerDown { left: false, .. })));
        while host.receive().is_some() {}
        assert_eq!(host.memory.in_use(), (0, 0));
    }
}

#[test]
fn a_farewell_that_overtakes_all_acknowledgements_confirms_what_has_arrived() {
    for (count, len) in [(20, 3_000), (5, 60_000), (1, 300_000)] {
        expect_confirmed_by_farewell(count, len);
    }
}

fn expect_confirmed_by_farewell(count: u64, len: usize) {
    let (mut world, ports) = pair();
    let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
    let now = world.now;
    for tag in 0..count {
        assert!(world.hosts[0].send(now, ports[0], to, Class::Normal, tag, &body(tag, len)));
    }
    // All of it arrives; what the receiver says about the last of it does not.
    let of_sender = |packet: &world::Packet| (0..2).any(|medium| packet.from == world::address(medium, 0));
    assert!(world.run_while(1_000, |w| (w.hosts[1].arrivals.len() as u64) < count));
    world.wire.retain(of_sender);
    let now = world.now;
    world.hosts[1].core(|node, memory| node.leave(now, memory));
    for _ in 0..4 {
        world.step(Duration::us(50), |_| true);
    }
    let host = &world.hosts[0];
    assert!(host.news.iter().any(|e| matches!(e, Event::PeerDown { left: true, .. })));
    assert_eq!((host.memory.failed, host.memory.in_use()), (0, (0, 0)));
}
