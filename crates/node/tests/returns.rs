//! Messages that come back to their senders, and messages whose time is up.

use polyrail::engine::client::{Arrival, Exchange, Returned};
use polyrail::engine::command::FailureCode;
use polyrail::engine::{Budget, Client, Engine, Pool};
use polyrail::{
    Class, Config, Destination, Error, ErrorCode, Node, NodeId, PortAddress, PortId, Scope, SendError,
    SendOptions, ServiceAddress, ServiceRange,
};
use polyrail_bearer::{FaultBearer, FaultControl, Faults, MemoryHub};
use polyrail_proto::id::Incarnation;
use polyrail_proto::node::Manner;
use polyrail_proto::time::Instant;
use polyrail_shm::Sizes;
use std::time::Duration;

const STEP_NS: u64 = 20_000;
const MS: u64 = 1_000_000;
const ARENA_BYTES: u64 = 1 << 20;
/// No wait of these tests takes so long, unless something was lost.
const PATIENCE: Duration = Duration::from_secs(20);
const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);

/// Two nodes and the link between them.
struct World {
    now_ns: u64,
    engines: Vec<Engine>,
    controls: Vec<FaultControl>,
    exchange: Exchange,
}

impl World {
    fn new() -> World {
        let (hub, now_ns) = (MemoryHub::new(), MS);
        let mut controls = vec![];
        let mut engine = |n: u64| {
            let mut engine = Engine::new(now_ns, polyrail_proto::Config::new(NodeId(n + 1), Incarnation(7)));
            let bearer = FaultBearer::new(hub.bearer(n as u32), n, Faults::default());
            controls.push(bearer.control());
            engine.add_bearer(now_ns, Box::new(bearer));
            engine.add_loopback(now_ns, Box::new(MemoryHub::new().bearer(0)));
            engine
        };
        let engines = vec![engine(0), engine(1)];
        let mut world = World { now_ns, engines, controls, exchange: Exchange::default() };
        world.run(300);
        world
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms * 50 {
            self.now_ns += STEP_NS;
            for engine in &mut self.engines {
                engine.turn(self.now_ns, Budget::THOROUGH);
            }
        }
    }

    /// Nothing passes between the nodes.
    fn cut(&self, cut: bool) {
        self.controls.iter().for_each(|control| control.silence(cut));
    }

    fn client(&mut self, node: usize) -> Client {
        let sizes =
            Sizes { sq_entries: 1_024, cq_entries: 4_096, tx_bytes: ARENA_BYTES, rx_bytes: ARENA_BYTES };
        self.engines[node].open_client(sizes, self.exchange.clone()).unwrap()
    }

    fn in_ms(&self, ms: u64) -> Option<Instant> {
        Some(Instant(self.now_ns + ms * MS))
    }
}

fn returning(tag: u64) -> Manner {
    Manner { returns: true, ..(Class::Urgent, Some(tag)).into() }
}

fn to(client: &Client) -> Destination {
    Destination::Port(client.address())
}

fn nobody(node: u64) -> Destination {
    Destination::Port(PortAddress { node: NodeId(node), port: PortId(404) })
}

/// What has come back to a client, which was told nothing else.
fn came_back(client: &mut Client) -> Vec<Returned> {
    let mut back = vec![];
    while let Some(arrival) = client.poll() {
        let Arrival::Returned(returned) = arrival else { panic!("{arrival:?}") };
        back.push(*returned);
    }
    back
}

/// The first bytes of the messages that a client has got.
fn received(client: &mut Client) -> Vec<u8> {
    let mut got = vec![];
    while let Some(arrival) = client.poll() {
        let Arrival::Message(envelope, offset) = arrival else { panic!("{arrival:?}") };
        got.push(client.bytes(offset, envelope.len)[0]);
        client.release(offset, envelope.len);
    }
    got
}

#[test]
fn what_finds_nobody_comes_back_whole_with_the_reason() {
    let mut world = World::new();
    let mut client = world.client(0);
    let places = [
        (nobody(2), FailureCode::NoPort),
        (nobody(1), FailureCode::NoPort),
        (nobody(99), FailureCode::NoNode),
        (Destination::Service(SERVICE), FailureCode::NoService),
    ];
    for (n, (to, why)) in places.into_iter().enumerate() {
        for len in [0, 9, 1_500, 65_536, 200_000] {
            let (bytes, tag) = (vec![n as u8 + 1; len], (n + len) as u64);
            let number = client.send_as(to, returning(tag), &bytes).unwrap();
            world.run(20);
            let back = came_back(&mut client);
            let [returned] = &back[..] else { panic!("{back:?} of {len} bytes to {to:?}") };
            assert_eq!((returned.number, returned.why, returned.to), (number, why, to), "{len} bytes");
            assert_eq!((returned.class, returned.tag), (Class::Urgent, Some(tag)));
            assert!(client.returned_bytes(returned) == bytes, "{len} bytes to {to:?} differ");
            back.into_iter().for_each(|returned| client.drop_returned(returned));
            assert_eq!((client.unconfirmed(), client.sending_bytes()), (0, 0));
        }
    }
}

#[test]
fn a_buffer_that_was_handed_over_comes_back_as_it_was() {
    let mut world = World::new();
    let mut client = world.client(0);
    let mut buffer = Pool::new(8 << 20).alloc(3 << 20).unwrap();
    buffer.fill(7);
    let at = buffer.as_ptr();
    client.send_buffer_as(nobody(2), returning(1), buffer).unwrap();
    world.run(50);
    let back = came_back(&mut client);
    let [returned] = &back[..] else { panic!("{back:?}") };
    let bytes = client.returned_bytes(returned);
    assert!(bytes.len() == 3 << 20 && bytes.iter().all(|byte| *byte == 7));
    assert_eq!(bytes.as_ptr(), at, "nothing was copied");
    assert_eq!(world.engines[0].unconfirmed(), 0);
}

#[test]
fn what_is_not_taken_back_holds_the_arena_and_no_more() {
    let mut world = World::new();
    let mut client = world.client(0);
    let mut sent = 0;
    for _ in 0..100 {
        while client.send_as(nobody(2), returning(1), &[1; 10_000]).is_ok() {
            sent += 1;
        }
        world.run(2);
    }
    assert!((50..=ARENA_BYTES / 10_000).contains(&sent), "{sent} messages of 10,000 bytes in 1 MiB");
    assert_eq!(client.unconfirmed(), 0, "all have ended");
    let back = came_back(&mut client);
    assert_eq!(back.len() as u64, sent);
    back.into_iter().for_each(|returned| client.drop_returned(returned));
    assert!(client.send_as(nobody(2), returning(1), &[1; 10_000]).is_ok(), "there is room again");
}

#[test]
fn who_did_not_ask_gets_nothing_back_and_what_is_delivered_never_returns() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    client.send(nobody(2), Class::Normal, None, b"lost").unwrap();
    world.run(20);
    assert!(matches!(client.poll(), Some(Arrival::Failed(0, FailureCode::NoPort))));
    client.send_as(to(&server), returning(5), b"kept").unwrap();
    world.run(20);
    assert_eq!(received(&mut server), b"k");
    world.run(20);
    assert!(came_back(&mut client).is_empty());
    assert_eq!((client.unconfirmed(), client.sending_bytes()), (0, 0));
}

#[test]
fn a_port_that_closes_gives_up_what_would_have_come_back() {
    let mut world = World::new();
    let mut client = world.client(0);
    world.cut(true);
    client.send_as(nobody(2), returning(1), &[1; 5_000]).unwrap();
    let buffer = Pool::new(1 << 20).alloc(70_000).unwrap();
    client.send_buffer_as(nobody(2), returning(1), buffer).unwrap();
    world.run(1);
    client.close();
    world.cut(false);
    world.run(100);
    assert_eq!(world.engines[0].unconfirmed(), 0);
    assert!(client.poll().is_none());
    assert!((0..4).all(|number| world.exchange.take(number).is_none()), "a buffer was left behind");
}

#[test]
fn only_what_goes_to_one_port_may_come_back_or_expire() {
    let mut world = World::new();
    let mut client = world.client(0);
    let several = Destination::Multicast(ServiceRange::new(1000, 0, 9));
    let dated = Manner { expires_at: world.in_ms(5), ..(Class::Normal, None).into() };
    for how in [returning(1), dated] {
        let number = client.send_as(several, how, b"to all").unwrap();
        world.run(1);
        let Some(Arrival::Failed(failed, FailureCode::Invalid)) = client.poll() else { panic!() };
        assert_eq!((failed, client.sending_bytes()), (number, 0));
    }
}

#[test]
fn what_has_not_left_in_time_never_does_and_what_waits_behind_it_loses_nothing() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    // Nobody reads, so that credit ends.
    let mut held = 0;
    while client.unconfirmed() < 200 {
        if client.send(to(&server), Class::Urgent, None, &[0; 4_000]).is_ok() {
            held += 1;
        }
        world.run(1);
        assert!(held < 2_000, "credit does not end");
    }
    for n in 1..=30u8 {
        let expires_at = world.in_ms(if n.is_multiple_of(3) { 10 } else { 1_000_000 });
        let how = Manner { expires_at, ..returning(n as u64) };
        client.send_as(to(&server), how, &[n; 100]).unwrap();
    }
    world.run(9);
    assert!(came_back(&mut client).is_empty(), "before its time");
    world.run(2);
    let back = came_back(&mut client);
    let tags: Vec<u64> = back.iter().filter_map(|returned| returned.tag).collect();
    assert_eq!(tags, (1..=10).map(|n| 3 * n).collect::<Vec<_>>());
    assert!(back.iter().all(|returned| returned.why == FailureCode::Expired));
    back.into_iter().for_each(|returned| client.drop_returned(returned));
    let mut got = vec![];
    while got.len() < held + 20 {
        got.extend(received(&mut server));
        world.run(1);
        assert!(world.now_ns < 60_000 * MS, "{} of {} arrived", got.len(), held + 20);
    }
    assert_eq!(got[held..], (1..=30).filter(|n| n % 3 > 0).collect::<Vec<u8>>());
    world.run(50);
    assert_eq!((client.unconfirmed(), client.sending_bytes()), (0, 0));
}

#[test]
fn a_deadline_says_nothing_of_what_has_begun_to_leave() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    let how = |world: &World| Manner { expires_at: world.in_ms(2), ..returning(1) };
    world.cut(true);
    client.send_as(to(&server), how(&world), &[1; 60_000]).unwrap();
    world.run(20);
    // It comes late, for the link that lost it is found to be silent first.
    world.cut(false);
    world.run(200);
    assert_eq!(received(&mut server), [1]);
    world.run(5);
    // A large message that was announced waits for its receiver's memory.
    client.send_as(to(&server), how(&world), &[2; 900_000]).unwrap();
    client.send_as(to(&server), how(&world), &[3; 100_000]).unwrap();
    world.run(50);
    let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!("the first one") };
    assert_eq!((server.bytes(offset, envelope.len)[0], envelope.len), (2, 900_000));
    assert!(matches!(server.poll(), Some(Arrival::Offer { len: 100_000, .. })), "it waits for memory");
    server.release(offset, envelope.len);
    world.run(50);
    assert_eq!(received(&mut server), [3]);
    assert!(came_back(&mut client).is_empty());
}

#[test]
fn what_is_late_before_it_is_handed_in_is_not_sent() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    let how = Manner { expires_at: world.in_ms(0), ..returning(1) };
    client.send_as(to(&server), how, b"late").unwrap();
    let how = Manner { returns: false, ..how };
    client.send_as(to(&server), how, b"late").unwrap();
    world.run(10);
    let Some(Arrival::Returned(returned)) = client.poll() else { panic!("it comes back") };
    assert_eq!(returned.why, FailureCode::Expired);
    assert!(matches!(client.poll(), Some(Arrival::Failed(1, FailureCode::Expired))));
    assert!(received(&mut server).is_empty());
}

#[test]
fn a_lost_node_is_an_open_question_for_what_had_left_and_none_for_the_rest() {
    let mut world = World::new();
    let (mut client, server) = (world.client(0), world.client(1));
    for n in 0..400 {
        if n == 300 {
            world.run(10);
            world.cut(true);
        }
        client.send_as(to(&server), returning(n), &[n as u8; 2_000]).unwrap();
    }
    world.run(2_000);
    let back = came_back(&mut client);
    let of = |why: FailureCode| back.iter().filter(|returned| returned.why == why).count();
    assert!(of(FailureCode::Indeterminate) > 0 && of(FailureCode::NotSent) > 0, "{back:?}");
    assert_eq!(of(FailureCode::Indeterminate) + of(FailureCode::NotSent), back.len());
    assert!(back.is_sorted_by_key(|returned| returned.number), "in the order sent");
    assert!(back.iter().all(|r| client.returned_bytes(r) == vec![r.number as u8; 2_000]));
}

#[test]
fn a_port_bound_for_the_service_is_where_the_message_goes() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    server.bind(ServiceRange::from(SERVICE), Scope::Cluster).unwrap();
    world.run(20);
    assert!(matches!(server.poll(), Some(Arrival::Answer(0))));
    client.send_as(Destination::Service(SERVICE), returning(1), b"named").unwrap();
    world.run(20);
    assert_eq!(received(&mut server), b"n");
}

#[test]
fn a_program_takes_back_what_nobody_served_and_goes_on() {
    let node = Node::embed(Config::new().insecure().interfaces(["lo"]).discovery(false)).unwrap();
    let port = node.port().unwrap();
    let how = SendOptions { returns: true, tag: Some(3), ..SendOptions::default() };
    let number = port.send_as(SERVICE, b"anyone?", &how).unwrap();
    {
        let returned = port.wait_returned(Some(PATIENCE)).expect("it comes back");
        assert_eq!((returned.bytes(), returned.number(), returned.tag()), (&b"anyone?"[..], number, Some(3)));
        assert_eq!((returned.why(), returned.to()), (ErrorCode::NoService, SERVICE.into()));
        port.flush(Some(PATIENCE)).expect("nothing else says that it failed");
        assert!(port.take_returned().is_none());
    }
    let mut buffer = port.alloc(200_000).unwrap();
    buffer.fill(9);
    port.send_buffer_as(SERVICE, buffer, &how).unwrap();
    let returned = port.wait_returned(Some(PATIENCE)).expect("it comes back");
    assert!(returned.bytes().len() == 200_000 && returned.bytes().iter().all(|byte| *byte == 9));
    drop(returned);
    assert!(matches!(port.send(SERVICE, b"x"), Err(SendError::NoService { .. })), "as always");
    let several = ServiceRange::new(1000, 0, 9);
    let refused = port.send_as(Destination::Multicast(several), b"to all", &how);
    assert!(matches!(refused, Err(SendError::Unsupported(_))));
    port.bind(SERVICE, Scope::Node).unwrap();
    port.send_as(SERVICE, b"to myself", &how).unwrap();
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"to myself");
    port.flush(Some(PATIENCE)).expect("it was read");

    let other = node.port().unwrap();
    port.send_as(other.address(), b"read", &how).unwrap();
    port.send_as(other.address(), b"unread", &how).unwrap();
    assert_eq!(other.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"read");
    assert!(matches!(port.flush(Some(Duration::ZERO)), Err(Error::TimedOut(_))), "one was not");
    drop(other);
    let returned = port.wait_returned(Some(PATIENCE)).expect("it comes back");
    assert_eq!((returned.bytes(), returned.why()), (&b"unread"[..], ErrorCode::ShutDown));
    port.flush(Some(PATIENCE)).expect("all have ended");
}

#[test]
fn what_its_receiver_did_not_read_before_it_closed_comes_back_and_what_it_read_does_not() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    for n in 0..20u8 {
        let len = if n == 13 { 300_000 } else { 1_000 };
        let how = Manner { returns: n % 3 > 0, ..returning(n as u64) };
        client.send_as(to(&server), how, &vec![n; len]).unwrap();
    }
    world.run(20);
    assert!(client.unconfirmed() > 0, "what is to come back is kept");
    for n in 0..8u8 {
        let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!("message {n}") };
        assert_eq!(server.bytes(offset, envelope.len)[0], n);
        server.release(offset, envelope.len);
    }
    // Closed in the same moment: what was read counts all the same.
    server.close();
    world.run(20);
    let back = came_back(&mut client);
    let tags: Vec<u64> = back.iter().filter_map(|returned| returned.tag).collect();
    assert_eq!(tags, (8..20).filter(|n| n % 3 > 0).collect::<Vec<_>>());
    assert!(back.iter().all(|returned| returned.why == FailureCode::ShutDown));
    assert!(back.iter().all(|r| client.returned_bytes(r).iter().all(|byte| Some(*byte as u64) == r.tag)));
    back.into_iter().for_each(|returned| client.drop_returned(returned));
    assert_eq!((client.unconfirmed(), client.sending_bytes()), (0, 0));
}

#[test]
fn what_is_under_way_to_a_port_that_closes_comes_back_and_nothing_is_left_open() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    for n in 0..40 {
        client.send_as(to(&server), returning(n), &[1; 3_000]).unwrap();
        if n == 20 {
            world.run(10);
            world.cut(true);
        }
    }
    world.run(2);
    server.close();
    world.run(2);
    world.cut(false);
    world.run(200);
    let back = came_back(&mut client);
    assert_eq!(back.iter().filter_map(|r| r.tag).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    assert!(back[..21].iter().all(|returned| returned.why == FailureCode::ShutDown), "{back:?}");
    assert!(back.iter().all(|returned| returned.why != FailureCode::Indeterminate), "{back:?}");
    assert_eq!(client.unconfirmed(), 0);
}

#[test]
fn a_sender_that_closes_waits_for_nobody_to_read() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    client.send_as(to(&server), returning(1), b"kept").unwrap();
    world.run(10);
    let status = |world: &World| world.engines[0].core().sessions().map(|s| s.sizes()[0]).sum::<usize>();
    assert_eq!((world.engines[0].unconfirmed(), status(&world)), (1, 1));
    client.close();
    world.run(10);
    assert_eq!((world.engines[0].unconfirmed(), status(&world)), (0, 0));
    assert_eq!(received(&mut server), b"k");
    world.run(10);
    assert_eq!(world.engines[0].core().drops().violation, 0);
}

#[test]
fn reading_is_told_in_order_whatever_is_put_aside_meanwhile() {
    let mut world = World::new();
    let (mut client, mut server) = (world.client(0), world.client(1));
    for n in 0..300 {
        client.send_as(to(&server), returning(n), &[n as u8; 64]).unwrap();
        if n % 50 == 49 {
            world.run(5);
            server.sort_fresh();
        }
        if n % 7 == 0 && server.has_arrivals() {
            let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!() };
            server.release(offset, envelope.len);
        }
    }
    world.run(20);
    let unread = received(&mut server).len() as u64;
    assert!(unread > 0 && client.unconfirmed() == unread, "{unread} of {}", client.unconfirmed());
    world.run(20);
    assert_eq!(client.unconfirmed(), 0);
    assert!(came_back(&mut client).is_empty());
}
