//! Who wants messages back keeps them until they were read, with peers that say so, and until they arrived with others.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{ServiceAddress, ServiceRange};
use polyrail_proto::error::Failure;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortAddress, PortId};
use polyrail_proto::node::Manner;
use polyrail_proto::wire::{self, Frame, Frames, HEADER_BYTES, PacketType};
use polyrail_proto::{Config, Destination, Event};
use world::{Host, IDS, World, pair};

/// Where INIT and RESP say what else their sender knows (protocol.md §3.2).
const FEATURES_AT: usize = 56;

/// Hands in a message that is to come back.
fn send(world: &mut World, from: PortId, to: PortId, bytes: &[u8]) {
    let (now, to) = (world.now, Destination::Port(PortAddress { node: IDS[1], port: to }));
    let how = Manner { returns: true, ..(Class::Normal, None).into() };
    world.hosts[0].core(|node, memory| {
        let buffer = memory.keep(from, bytes);
        node.send(now, from, to, how, (buffer, bytes.len() as u64), memory).expect("it is taken");
    });
}

fn run(world: &mut World, ms: u64) {
    world.run_while(ms, |_| true);
}

/// The application of the second node reads a message.
fn read(host: &mut Host) -> usize {
    let (arrival, bytes) = host.receive().expect("a message is here");
    if let Some(receipt) = arrival.receipt {
        host.core(|node, _| node.handle_read(receipt));
    }
    bytes.len()
}

/// Messages delivered as far as the first node knows, failed, and kept.
fn ended(world: &World) -> (u64, u64, usize) {
    let memory = &world.hosts[0].memory;
    (memory.confirmed, memory.failed, memory.in_use().1)
}

#[test]
fn a_message_is_kept_until_it_was_read() {
    let (mut world, ports) = pair();
    for len in [0, 100, 5_000, 200_000] {
        send(&mut world, ports[0], ports[1], &vec![1; len]);
    }
    run(&mut world, 50);
    assert_eq!(ended(&world), (0, 0, 4));
    for (n, len) in [0, 100, 5_000].into_iter().enumerate() {
        assert_eq!(read(&mut world.hosts[1]), len);
        run(&mut world, 10);
        assert_eq!(ended(&world), (n as u64 + 1, 0, 3 - n));
    }
    let now = world.now;
    world.hosts[1].close_port(now, ports[1]);
    run(&mut world, 10);
    assert_eq!(ended(&world), (3, 1, 0));
    let told = |event: &Event| matches!(event, Event::SendFailed { why: Failure::ShutDown, .. });
    assert!(world.hosts[0].news.iter().any(told));
}

#[test]
fn a_peer_that_says_nothing_of_reading_is_not_asked() {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config::new(id, Incarnation(1));
        world.hosts.push(Host::new(world.now, config, seat as u16, &[0], || 0));
    }
    let ports = [0, 1].map(|index| world.hosts[index].open_port());
    let met = world.run_while(1_000, |world| {
        for packet in &mut world.wire {
            let kind = wire::peek_type(&packet.bytes);
            if matches!(kind, Some(PacketType::Init | PacketType::Resp)) {
                packet.bytes[FEATURES_AT] &= !(wire::FEATURE_CONSUMED as u8);
                wire::finish(&mut packet.bytes).expect("a packet");
            }
        }
        !world.hosts.iter().all(|host| host.node.sessions().any(|session| session.announced))
    });
    assert!(met);
    send(&mut world, ports[0], ports[1], b"old");
    let mut asked = false;
    world.run_while(20, |world| {
        for packet in &world.wire {
            if wire::peek_type(&packet.bytes) == Some(PacketType::Data) {
                let frames = Frames::new(&packet.bytes[HEADER_BYTES..], HEADER_BYTES);
                asked |= frames.flatten().any(|frame| matches!(frame, Frame::Message(m, _) if m.notify));
            }
        }
        true
    });
    assert!(!asked);
    assert_eq!(ended(&world), (1, 0, 0), "it has arrived, which is all that can be known");
    assert!(world.hosts[1].arrivals[0].receipt.is_none());
}

#[test]
fn a_lost_peer_leaves_open_what_was_read() {
    let (mut world, ports) = pair();
    send(&mut world, ports[0], ports[1], b"unread");
    run(&mut world, 10);
    world.hosts.truncate(1);
    run(&mut world, 2_000);
    assert_eq!(ended(&world), (0, 1, 0));
    let told = |event: &Event| matches!(event, Event::SendFailed { why: Failure::Indeterminate, .. });
    assert!(world.hosts[0].news.iter().any(told));
}

#[test]
fn a_message_to_a_service_is_kept_too() {
    let (mut world, ports) = pair();
    let service = ServiceAddress::new(1_000, 3);
    world.hosts[1].bind(ports[1], ServiceRange::from(service));
    run(&mut world, 20);
    let how = Manner { returns: true, ..(Class::Normal, None).into() };
    let now = world.now;
    world.hosts[0].core(|node, memory| {
        let buffer = memory.keep(ports[0], b"named");
        node.send(now, ports[0], service.into(), how, (buffer, 5), memory).expect("it is taken");
    });
    run(&mut world, 20);
    assert_eq!(ended(&world), (0, 0, 1));
    read(&mut world.hosts[1]);
    run(&mut world, 20);
    assert_eq!(ended(&world), (1, 0, 0));
    assert_eq!(world.hosts[0].id(), NodeId(5));
}
