//! What a peer, or the lack of one, may make a node hold.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, LinkId, NodeId, PortAddress, PortId, SessionId};
use polyrail_proto::service::BindError;
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{
    self, Binding, BindingOp, DigestSays, FLAG_ACK_ELICITING, Frame, Header, Message, NameDigest, PacketType,
    Rts,
};
use polyrail_proto::{Config, Destination, limits};
use world::{Host, IDS, Packet, World, address, pair};

/// A packet of the second node for the first one, made by hand.
fn forge(world: &World, number: u64, frames: &[Frame<'_>]) -> Packet {
    let session = world.hosts[0].session_with(IDS[1]).expect("they have met");
    let mut bytes = Vec::new();
    let (flags, to) = (FLAG_ACK_ELICITING, session.index);
    let header = Header { kind: PacketType::Data, flags, link: LinkId(0), to, number, stamp: 0, check: 0 };
    header.emit(&mut bytes);
    frames.iter().for_each(|frame| frame.emit(&mut bytes));
    wire::finish(&mut bytes).expect("the header is right");
    Packet { from: address(0, 1), to: Some(address(0, 0)), bytes }
}

fn next_number(world: &World) -> u64 {
    let session = world.hosts[0].session_with(IDS[1]).expect("they have met");
    let link = session.links.iter().find(|l| l.spec.id == LinkId(0)).expect("the first link");
    link.received.largest().map_or(0, |n| n + 1)
}

fn message(from: u32, to: PortId, seq: u32) -> Message {
    Message { class: 2, from: PortId(from), to, seq, service: None, tag: None, notify: false }
}

#[test]
fn a_link_that_never_answers_costs_no_memory() {
    let (mut world, ports) = pair();
    let held =
        |w: &World| w.hosts[0].node.sessions().flat_map(|s| &s.links).map(|l| l.sent.inflight_bytes()).max();
    let mut most = 0;
    for n in 0..6_000u64 {
        let to = Destination::Port(PortAddress { node: IDS[1], port: ports[1] });
        let now = world.now;
        world.hosts[0].send(now, ports[0], to, Class::Normal, n, b"busy");
        // The second medium is dead, and stays so for a minute of traffic.
        world.step(Duration::ms(5), |packet| packet.medium() == 0);
        world.step(Duration::ms(5), |packet| packet.medium() == 0);
        while world.hosts[1].receive().is_some() {}
        most = most.max(held(&world).unwrap_or(0));
    }
    assert!(most < 20_000, "{most} bytes are thought to be in flight");
}

#[test]
fn nobody_may_send_beyond_the_credit_he_was_given() {
    let (mut world, ports) = pair();
    let frames: Vec<_> = (0..1_200).map(|n| Frame::Message(message(7, ports[0], n), b"x")).collect();
    let packet = forge(&world, next_number(&world), &frames);
    world.deliver(&packet);
    // Credit is for 1,024 messages before a port says more, and it says nothing in the middle of a packet.
    let (received, _) = world.hosts[0].memory.in_use();
    assert_eq!(received as u32, limits::INITIAL_CREDIT.1);
    assert_eq!(world.hosts[0].node.drops().violation, 1);
}

#[test]
fn messages_that_are_not_there_yet_count_against_credit() {
    let (mut world, ports) = pair();
    let first = next_number(&world);
    // Each of these claims that 1,000 others are under way; credit covers those of few flows.
    for n in 0..50u32 {
        let packet =
            forge(&world, first + n as u64, &[Frame::Message(message(100 + n, ports[0], 1_000), b"x")]);
        world.deliver(&packet);
    }
    let taken = world.hosts[0].memory.in_use().0;
    assert!((1..5).contains(&taken), "{taken}");
    assert_eq!(world.hosts[0].node.drops().violation, 50 - taken as u64);
    // The gaps are filled: everything arrives, in order.
    let first = next_number(&world);
    for n in 0..1_000u32 {
        let packet = forge(&world, first + n as u64, &[Frame::Message(message(100, ports[0], n), b"x")]);
        world.deliver(&packet);
    }
    world.step(Duration::us(10), |_| true);
    assert_eq!(world.hosts[0].arrivals.len(), 1_001, "{:?}", world.hosts[0].node.drops());
}

#[test]
fn an_announcement_repeated_without_end_is_answered_once() {
    let (mut world, ports) = pair();
    let first = next_number(&world);
    for n in 0..5_000 {
        let rts = Rts { message: message(9, ports[0], 0), token: 1, total: 100_000 };
        let packet = forge(&world, first + n, &[Frame::Rts(rts)]);
        world.deliver(&packet);
    }
    let session = world.hosts[0].session_with(IDS[1]).expect("they have met");
    assert_eq!(session.backlog().0, 1, "grants that wait to leave");
}

#[test]
fn refusals_that_wait_are_bounded() {
    let (mut world, _) = pair();
    let first = next_number(&world);
    for n in 0..5_000u32 {
        let nowhere = message(n, PortId(0xDEAD), 0);
        let packet = forge(&world, first + n as u64, &[Frame::Message(nowhere, b"x")]);
        world.deliver(&packet);
    }
    let session = world.hosts[0].session_with(IDS[1]).expect("they have met");
    assert_eq!(session.backlog().0, limits::REFUSALS_MAX);
}

#[test]
fn half_open_sessions_with_endless_patience_make_room_again() {
    let (mut world, _) = pair();
    let mut hello = None;
    let config = Config::new(NodeId(0x77), Incarnation(1));
    let stranger = Host::new(world.now, config, 9, &[0], || 0);
    world.hosts.push(stranger);
    world.run_while(2_000, |w| {
        let init = w.wire.iter().find(|p| wire::peek_type(&p.bytes) == Some(PacketType::Init));
        hello = init.and_then(|p| wire::Hello::parse(&p.bytes[wire::HEADER_BYTES..]).ok());
        hello.is_none()
    });
    world.hosts.truncate(2);
    let hello = hello.expect("somebody opens a session");
    for n in 0..limits::SESSIONS_MAX as u64 {
        let forged = wire::Hello { node: NodeId(1_000 + n), tolerance_ms: u32::MAX, ..hello.clone() };
        let mut bytes = Vec::new();
        forged.emit_packet(PacketType::Init, SessionId(0), 0, &mut bytes);
        world.deliver(&Packet { from: address(0, 100), to: Some(address(0, 0)), bytes });
    }
    assert!(world.hosts[0].node.drops().opening > 0, "the table was full");
    for _ in 0..60 {
        world.step(Duration::ms(100), |_| true);
    }
    assert!(world.hosts[0].node.sessions().count() <= 2, "whoever never came is forgotten");
}

#[test]
fn a_flood_of_names_is_bounded_and_counted() {
    const RECORDS: u64 = 28;
    let (mut world, ports) = pair();
    let frames = limits::BINDINGS_NODE_MAX as u64 / RECORDS + 10;
    let first = next_number(&world);
    for n in 0..frames {
        let record = |key: u64| Binding {
            op: BindingOp::Publish,
            range: ServiceRange::new(100, key as u32, key as u32),
            port: PortId(7),
            key,
            scope: Scope::Cluster,
            weight: 1,
            exclusive: false,
        };
        let records: Vec<_> = (1 + n * RECORDS..=(n + 1) * RECORDS).map(record).collect();
        let mut bytes = Vec::new();
        wire::Bindings::emit(n as u32, IDS[1], Incarnation(1), 1 + n * RECORDS, &records, &mut bytes);
        let frame = wire::Frames::new(&bytes, 0).next().expect("a frame").expect("a good one");
        let packet = forge(&world, first + n, &[frame]);
        world.deliver(&packet);
    }
    let excess = frames * RECORDS - limits::BINDINGS_NODE_MAX as u64;
    let known = |world: &World| world.hosts[0].node.table().len();
    assert_eq!((known(&world), world.hosts[0].node.drops().names_full), (limits::BINDINGS_NODE_MAX, excess));
    // It is no wonder that this is not all, so it is not asked for again.
    let (control, says, log_seq, hash) = (frames as u32, DigestSays::State, frames * RECORDS, 1);
    let digest = NameDigest { control, says, origin: IDS[1], incarnation: Incarnation(1), log_seq, hash };
    let packet = forge(&world, first + frames, &[Frame::NameDigest(digest)]);
    world.deliver(&packet);
    assert_eq!((known(&world), world.hosts[0].node.drops().names_diverged), (limits::BINDINGS_NODE_MAX, 0));
    world.hosts[0].bind(ports[0], ServiceRange::new(101, 1, 1));
    for _ in 0..2_000 {
        world.step(Duration::ms(1), |_| false);
    }
    assert_eq!(known(&world), 1, "all of it goes with its node");
}

#[test]
fn a_port_that_binds_without_end_is_refused_and_that_is_counted() {
    let (mut world, ports) = pair();
    let host = &mut world.hosts[0];
    let mut bind = |port, n| host.node.bind(port, ServiceRange::new(100, n, n), Scope::Cluster);
    assert!((0..limits::BINDINGS_PORT_MAX as u32).all(|n| bind(ports[0], n).is_ok()));
    assert!((0..5).all(|n| bind(ports[0], n) == Err(BindError::TooMany)));
    let other = host.open_port();
    host.bind(other, ServiceRange::new(101, 1, 1));
    assert_eq!(host.node.drops().bindings_refused, 5);
}
