//! What anybody can send without having a session: it may cause a question, never an end.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::id::{BearerId, Incarnation, NodeId, SessionId};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{self, Beacon, HEADER_BYTES, Hello, PacketType, Reset};
use polyrail_proto::{Config, Event};
use world::{Host, Packet, World, address};

const IDS: [NodeId; 2] = [NodeId(5), NodeId(6)];

/// Two nodes that have met, and the INIT by which they did.
fn pair() -> (World, Packet) {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config { host: id.0, ..Config::new(id, Incarnation(1)) };
        let host = Host::new(world.now, config, seat as u16, &[0, 1], || 0);
        world.hosts.push(host);
    }
    let mut init = None;
    for _ in 0..2_000 {
        world.step(Duration::us(100), |packet| {
            if wire::peek_type(&packet.bytes) == Some(PacketType::Init) {
                init = Some(packet.clone());
            }
            true
        });
        if world.hosts.iter().all(|h| h.node.sessions().any(|s| s.announced)) {
            break;
        }
    }
    // Long enough to be idle, and for nothing to pass for a crossing of openings.
    for _ in 0..2_500 {
        world.step(Duration::ms(1), |_| true);
    }
    world.hosts.iter_mut().for_each(|h| h.news.clear());
    (world, init.expect("one of the two opens the session"))
}

fn lost(world: &World) -> bool {
    world.hosts.iter().flat_map(|h| &h.news).any(|event| matches!(event, Event::PeerDown { .. }))
}

/// The INIT again, for another attempt.
fn altered(init: &Packet, attempt: impl Fn(u32) -> u32) -> Packet {
    let mut hello = Hello::parse(&init.bytes[HEADER_BYTES..]).expect("it was valid");
    hello.attempt = attempt(hello.attempt);
    let mut bytes = Vec::new();
    hello.emit_packet(PacketType::Init, SessionId(0), 7, &mut bytes);
    Packet { bytes, ..init.clone() }
}

#[test]
fn an_opening_by_the_same_life_does_not_end_a_session_that_lives() {
    let (mut world, init) = pair();
    for n in 0..400u32 {
        let forged = altered(&init, |attempt| attempt.wrapping_add(n % 5));
        world.deliver(&forged);
        // The answer may speak to a stranger's idea of the session; the live one is what counts.
        world.step(Duration::ms(5), |_| true);
    }
    assert!(!lost(&world), "a repeated INIT ended a session whose peer lives");
    let drops =
        world.hosts.iter().map(|host| *host.node.drops()).fold((0, 0), |(repeated, refused), drops| {
            (repeated + drops.repeated_opening, refused + drops.opening)
        });
    assert!(drops.0 > 0 && drops.1 == 0, "no identity is in doubt: {drops:?}");
}

#[test]
fn a_peer_that_lost_the_session_is_let_in_again() {
    let (mut world, init) = pair();
    let opener = if init.from.as_bytes()[3] == 0 { 0 } else { 1 };
    // The opener forgets everything but who it is.
    let config = world.hosts[opener].node.config().clone();
    let config = Config { seed: 99, ..config };
    world.hosts[opener] = Host::new(world.now, config, opener as u16, &[0, 1], || 0);
    let met = world.run_while(1_000, |w| w.hosts[opener].node.sessions().all(|s| !s.announced));
    assert!(met, "{:?}", world.hosts[1 - opener].node.drops());
}

#[test]
fn a_forged_reset_does_not_end_an_idle_session() {
    let (mut world, _) = pair();
    for (own, other) in [(0, 1), (1, 0)] {
        let session = world.hosts[own].session_with(IDS[other]).expect("they have met").peer.session;
        let mut bytes = Vec::new();
        let reset = Reset { session, node: IDS[other], incarnation: Incarnation(1) };
        reset.emit_packet(7, &mut bytes);
        let from = address(0, other as u16);
        world.deliver(&Packet { from, to: Some(address(0, own as u16)), bytes });
        world.run_while(200, |_| true);
    }
    assert!(!lost(&world), "a session ended although its peer answered");
}

#[test]
fn a_reset_that_is_true_ends_the_session_before_its_tolerance() {
    let (mut world, _) = pair();
    // The second node is silent from now on; somebody says in its place that it knows no such session.
    let session = world.hosts[0].session_with(IDS[1]).expect("they have met").peer.session;
    world.hosts.truncate(1);
    let mut bytes = Vec::new();
    Reset { session, node: IDS[1], incarnation: Incarnation(1) }.emit_packet(7, &mut bytes);
    world.deliver(&Packet { from: address(0, 1), to: Some(address(0, 0)), bytes });
    assert!(world.run_while(100, |w| !lost(w)), "the session outlived the doubt");
}

#[test]
fn an_answer_to_an_opening_that_was_lost_is_sent_again_when_the_opener_asks_what_session_that_is() {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let host = Host::new(world.now, Config::new(id, Incarnation(1)), seat as u16, &[0], || 0);
        world.hosts.push(host);
    }
    let (mut lost_at, mut resets) = (None, 0);
    for _ in 0..20_000 {
        let now = world.now;
        world.step(Duration::us(100), |packet| match wire::peek_type(&packet.bytes) {
            Some(PacketType::Resp) if lost_at.is_none() => {
                lost_at = Some(now);
                false
            }
            Some(PacketType::Reset) => {
                resets += 1;
                true
            }
            _ => true,
        });
        if world.hosts.iter().all(|h| h.node.sessions().any(|s| s.announced)) {
            break;
        }
    }
    let took = world.now.since(lost_at.expect("one of the two was called"));
    assert!(
        took < Duration::ms(10) && resets == 1,
        "{took:?}, {resets} resets: the opener asks again after 100 ms"
    );
    assert!(!lost(&world));
}

#[test]
fn a_node_that_comes_as_one_of_two_others_joins_neither_and_is_reported_by_both() {
    let (mut world, _) = pair();
    // A younger life on another machine: for the one it is itself, for the other the peer that is there.
    let clone = Config { host: 7, ..Config::new(IDS[0], Incarnation(2)) };
    world.hosts.push(Host::new(world.now, clone, 2, &[0, 1], || 0));
    // A beacon with its own name makes nobody call, so the clone calls both by hand.
    for seat in [0, 1] {
        let now = world.now;
        world.hosts[2].core(|node, _| node.connect(now, BearerId(0), address(0, seat)));
    }
    for _ in 0..5_000 {
        world.step(Duration::ms(1), |_| true);
        let joined = world.hosts[2].node.sessions().any(|s| s.announced);
        assert!(!joined, "a clone was let in");
    }
    assert!(!lost(&world), "a clone ended the session of those who were there before");
    for host in &world.hosts[..2] {
        let reported =
            |event: &Event| matches!(event, Event::DuplicateIdentity { node, .. } if *node == IDS[0]);
        assert!(host.news.iter().any(reported), "{} says nothing of the clone", host.id());
    }
}

#[test]
fn beacons_from_nowhere_do_not_keep_out_whom_they_name() {
    for (own, other) in [(0, 1), (1, 0)] {
        let mut world = World::new();
        let config = |id: NodeId| Config { host: id.0, ..Config::new(id, Incarnation(1)) };
        world.hosts.push(Host::new(world.now, config(IDS[own]), 0, &[0, 1], || 0));
        let cluster = world.hosts[0].node.config().cluster;
        let mut beacons = 0;
        let mut forge = |world: &mut World| {
            beacons += 1;
            let (medium, seat) = ((beacons % 2) as u8, 100 + beacons % 1_000);
            let mut bytes = Vec::new();
            let (node, bearer) = (IDS[other], BearerId(medium));
            Beacon { cluster, node, incarnation: Incarnation(1), bearer, solicit: true }
                .emit_packet(7, &mut bytes);
            world.deliver(&Packet { from: address(medium, seat), to: Some(address(medium, 0)), bytes });
        };
        for _ in 0..500 {
            forge(&mut world);
            world.step(Duration::ms(1), |_| true);
        }
        world.hosts.push(Host::new(world.now, config(IDS[other]), 1, &[0, 1], || 0));
        let met = world.run_while(5_000, |w| {
            forge(w);
            !w.hosts.iter().all(|h| h.node.sessions().any(|s| s.announced))
        });
        assert!(met, "{:?}", world.hosts[0].node.drops());
    }
}

#[test]
fn a_second_answer_to_one_opening_takes_nothing_from_the_session_of_the_first() {
    let mut world = World::new();
    world.hosts.push(Host::new(world.now, Config::new(NodeId(5), Incarnation(1)), 0, &[0, 1], || 0));
    let to = address(0, 1);
    let now = world.now;
    world.hosts[0].core(|node, _| node.connect(now, BearerId(0), to.clone()));
    let mut init = None;
    while init.is_none() {
        world.step(Duration::ms(1), |packet| {
            let opens = wire::peek_type(&packet.bytes) == Some(PacketType::Init);
            init = opens.then(|| packet.clone()).or(init.take());
            true
        });
    }
    let hello = Hello::parse(&init.expect("it was seen").bytes[HEADER_BYTES..]).expect("it is valid");
    // Whoever saw the opening may answer it, from elsewhere and as anybody.
    let answer = |world: &mut World, id: u64, seat: u16| {
        let own = (NodeId(id), hello.incarnation, SessionId(9 << 16));
        let mut bytes = Vec::new();
        Hello { node: own.0, echo: own.1, session: own.2, ..hello.clone() }.emit_packet(
            PacketType::Resp,
            hello.session,
            7,
            &mut bytes,
        );
        world.deliver(&Packet { from: address(0, seat), to: Some(address(0, 0)), bytes });
    };
    answer(&mut world, 7, 50);
    assert!(world.hosts[0].session_with(NodeId(7)).is_some(), "the first answer makes a session");
    answer(&mut world, 8, 51);
    assert!(world.hosts[0].session_with(NodeId(7)).is_some(), "a second answer took the session away");
}
