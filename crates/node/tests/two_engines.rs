//! Two engines over in-process bearers, driven by hand with a clock of the test's own.

use polyrail::engine::client::{Arrival, Exchange};
use polyrail::engine::{Budget, Client, Engine};
use polyrail::{Class, Destination, NodeId, Scope, ServiceAddress, ServiceRange};
use polyrail_bearer::{FaultBearer, Faults, MemoryHub};
use polyrail_proto::Config;
use polyrail_proto::id::Incarnation;
use polyrail_shm::Sizes;

struct World {
    now_ns: u64,
    engines: Vec<Engine>,
}

const SIZES: Sizes = Sizes { sq_entries: 1024, cq_entries: 32_768, tx_bytes: 16 << 20, rx_bytes: 16 << 20 };

impl World {
    fn new(nodes: usize, links: usize) -> World {
        let mut world = World { now_ns: 1_000_000, engines: vec![] };
        let hubs: Vec<MemoryHub> = (0..links).map(|_| MemoryHub::new()).collect();
        for n in 0..nodes {
            let config = Config::new(NodeId(n as u64 + 1), Incarnation(7));
            let mut engine = Engine::new(world.now_ns, config);
            for hub in &hubs {
                engine.add_bearer(world.now_ns, Box::new(hub.bearer(n as u32)));
            }
            engine.add_loopback(world.now_ns, Box::new(MemoryHub::new().bearer(0)));
            world.engines.push(engine);
        }
        world
    }

    fn step(&mut self) {
        self.now_ns += 20_000;
        for engine in &mut self.engines {
            engine.turn(self.now_ns, Budget::THOROUGH);
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms * 50 {
            self.step();
        }
    }

    fn client(&mut self, node: usize) -> Client {
        self.engines[node].open_client(SIZES, Exchange::default()).unwrap()
    }
}

fn bind(world: &mut World, client: &mut Client, service: ServiceAddress) {
    client.bind(ServiceRange::from(service), Scope::Cluster).unwrap();
    world.run(20);
    assert!(matches!(client.poll(), Some(Arrival::Answer(0))));
}

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);

fn send(client: &mut Client, bytes: &[u8]) {
    client.send(Destination::Service(SERVICE), Class::Normal, None, bytes).unwrap();
}

#[test]
fn two_nodes_meet_by_beacon_and_a_message_finds_its_service() {
    let mut world = World::new(2, 2);
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    assert_eq!(world.engines[0].core().peers(), [NodeId(2)]);
    send(&mut client, b"hello");
    world.run(5);
    let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!("no message") };
    assert_eq!(server.bytes(offset, envelope.len), b"hello");
    assert_eq!(envelope.from, client.address());
    assert_eq!(envelope.service, Some(SERVICE));
    server.release(offset, envelope.len);
    server.send(Destination::Port(envelope.from), Class::Normal, Some(9), b"yes").unwrap();
    world.run(5);
    let Some(Arrival::Message(envelope, offset)) = client.poll() else { panic!("no answer") };
    assert_eq!((client.bytes(offset, envelope.len), envelope.tag), (&b"yes"[..], Some(9)));
    assert_eq!(client.unconfirmed(), 0);
}

#[test]
fn links_that_died_together_come_back_as_soon_as_they_can() {
    let mut world = World::new(2, 0);
    let mut controls = vec![];
    for (seed, hub) in [MemoryHub::new(), MemoryHub::new()].iter().enumerate() {
        for (n, engine) in world.engines.iter_mut().enumerate() {
            let bearer = FaultBearer::new(hub.bearer(n as u32), seed as u64, Faults::default());
            controls.push(bearer.control());
            engine.add_bearer(world.now_ns, Box::new(bearer));
        }
    }
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(300);
    send(&mut client, &[1; 200_000]);
    for silent in [true, false] {
        controls.iter().for_each(|c| c.silence(silent));
        for _ in 0..20 {
            send(&mut client, &[2; 3_000]);
            world.run(10);
        }
    }
    let status = world.engines[0].status(world.now_ns);
    assert!(status.links.iter().all(|l| l.state != "down"), "{:#?}", status.links);
    assert_eq!(client.unconfirmed(), 0);
}

#[test]
fn both_links_come_up() {
    let mut world = World::new(2, 2);
    world.run(300);
    let status = world.engines[0].status(world.now_ns);
    let states: Vec<&str> = status.links.iter().map(|l| l.state.as_str()).collect();
    assert_eq!(states, ["up", "up"], "{status:#?}");
}

#[test]
fn messages_of_all_sizes_arrive_in_order_and_whole() {
    let mut world = World::new(2, 2);
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    let sizes =
        [0, 1, 63, 64, 500, 1431, 1432, 1433, 4096, 65_535, 65_536, 65_537, 1 << 20, 3, 200_000, 0, 77];
    let body = |n: usize, len: usize| (0..len).map(|i| (i * 31 + n * 7) as u8).collect::<Vec<u8>>();
    for (n, len) in sizes.iter().enumerate() {
        let bytes = body(n, *len);
        while client.send(Destination::Service(SERVICE), Class::Normal, None, &bytes).is_err() {
            world.step();
        }
    }
    let mut got = 0;
    for _ in 0..20_000 {
        world.step();
        while let Some(arrival) = server.poll() {
            let Arrival::Message(envelope, offset) = arrival else { panic!("{arrival:?}") };
            let expected = body(got, sizes[got]);
            assert_eq!(envelope.len as usize, expected.len(), "message {got}");
            assert!(server.bytes(offset, envelope.len) == expected, "message {got} differs");
            server.release(offset, envelope.len);
            got += 1;
        }
        if got == sizes.len() && client.unconfirmed() == 0 {
            return;
        }
    }
    panic!("{got} of {} arrived; {} unconfirmed", sizes.len(), client.unconfirmed());
}

#[test]
fn checks_over_the_payload_are_made_and_believed() {
    let mut world = World::new(2, 0);
    let hub = MemoryHub::new();
    for n in 0..2 {
        let mut config = Config::new(NodeId(n + 1), Incarnation(7));
        config.full_check = true;
        world.engines[n as usize] = Engine::new(world.now_ns, config);
        let faults = Faults { corrupt: 0.02, ..Faults::default() };
        let bearer = FaultBearer::new(hub.bearer(n as u32), n, faults);
        world.engines[n as usize].add_bearer(world.now_ns, Box::new(bearer));
    }
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(300);
    for n in 0..200u8 {
        send(&mut client, &[n; 5_000]);
    }
    let mut got = 0u8;
    for _ in 0..20_000 {
        world.step();
        while let Some(Arrival::Message(envelope, offset)) = server.poll() {
            assert_eq!(server.bytes(offset, envelope.len), [got; 5_000], "message {got}");
            server.release(offset, envelope.len);
            got += 1;
        }
    }
    assert_eq!(got, 200);
    assert!(world.engines[1].core().drops().malformed > 0, "nothing was corrupted");
}

#[test]
fn a_node_reaches_its_own_services() {
    let mut world = World::new(1, 1);
    let mut server = world.client(0);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    send(&mut client, &[5; 100_000]);
    world.run(5);
    let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!("no message") };
    assert_eq!(server.bytes(offset, envelope.len), [5; 100_000]);
}

#[test]
fn an_unknown_service_is_told_to_the_sender() {
    let mut world = World::new(1, 1);
    let mut client = world.client(0);
    send(&mut client, b"anyone?");
    world.run(1);
    assert!(matches!(
        client.poll(),
        Some(Arrival::Failed(0, polyrail::engine::command::FailureCode::NoService))
    ));
    assert_eq!(client.unconfirmed(), 0);
}

#[test]
fn a_flood_of_small_messages_is_held_back_by_credit_and_all_arrive() {
    let mut world = World::new(2, 1);
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    let total = 200_000u64;
    let (mut sent, mut got, mut idle) = (0u64, 0u64, 0);
    while got < total {
        while sent < total {
            if client.send(Destination::Service(SERVICE), Class::Normal, None, &[sent as u8; 64]).is_err() {
                break;
            }
            sent += 1;
        }
        world.step();
        let before = got;
        // The receiver sleeps at first: nothing may be lost for it.
        if world.now_ns > 1_000_000_000 {
            while let Some(Arrival::Message(envelope, offset)) = server.poll() {
                assert_eq!(server.bytes(offset, envelope.len), [got as u8; 64], "message {got}");
                server.release(offset, envelope.len);
                got += 1;
            }
        }
        idle = if got == before { idle + 1 } else { 0 };
        assert!(idle < 100_000, "stuck: sent {sent}, got {got}");
    }
    let refused = world.engines[1].core().sessions().map(|s| s.stats.messages_refused).sum::<u64>();
    assert_eq!(refused, 0, "credit must prevent refusals");
}

#[test]
fn more_completions_than_the_queue_holds_are_told_as_soon_as_there_is_room() {
    let mut world = World::new(2, 1);
    let small = Sizes { cq_entries: 64, ..SIZES };
    let mut server = world.engines[1].open_client(small, Exchange::default()).unwrap();
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    // Many more than 64 entries, within the credit that a port has from the start.
    for n in 0..500u32 {
        send(&mut client, &n.to_le_bytes());
    }
    world.run(20);
    let mut got = 0u32;
    for _ in 0..1_000 {
        while let Some(Arrival::Message(envelope, offset)) = server.poll() {
            assert_eq!(server.bytes(offset, envelope.len), got.to_le_bytes());
            server.release(offset, envelope.len);
            got += 1;
        }
        world.step();
    }
    assert_eq!(got, 500);
}

#[test]
fn a_closed_port_refuses_and_its_sender_learns_it() {
    let mut world = World::new(2, 1);
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    send(&mut client, b"one");
    world.run(5);
    let to = server.address();
    server.close();
    world.run(5);
    client.send(Destination::Port(to), Class::Normal, None, b"two").unwrap();
    world.run(50);
    let told = client.poll();
    assert!(matches!(told, Some(Arrival::Failed(1, _))), "{told:?}");
    assert_eq!(client.unconfirmed(), 0);
}

#[test]
fn a_node_that_leaves_is_missed_at_once() {
    let mut world = World::new(2, 1);
    world.run(300);
    assert_eq!(world.engines[0].core().peers().len(), 1);
    let now = world.now_ns;
    world.engines[1].leave(now);
    world.run(2);
    assert_eq!(world.engines[0].core().peers().len(), 0);
}

#[test]
fn buffers_under_way_are_bounded_and_room_comes_back() {
    const BYTES: usize = 4 << 20;
    let mut world = World::new(2, 1);
    let (mut server, mut client) = (world.client(1), world.client(0));
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    let pool = polyrail::engine::Pool::new(1 << 30);
    let hand_in = |client: &mut Client| {
        let buffer = pool.alloc(BYTES).unwrap();
        client.send_buffer(Destination::Service(SERVICE), Class::Normal, None, buffer).is_ok()
    };
    let taken = std::iter::repeat_with(|| hand_in(&mut client)).take(20).filter(|taken| *taken).count();
    assert_eq!(taken as u64 * BYTES as u64, SIZES.tx_bytes, "as many bytes as the arena has");
    let receiving = polyrail::engine::Pool::new(1 << 30);
    let mut arrived = 0;
    while arrived < taken {
        world.run(1);
        match server.poll() {
            Some(Arrival::Offer { len, offer, .. }) => {
                server.accept(offer, receiving.alloc(len as usize).unwrap()).unwrap();
            }
            Some(Arrival::Owned(..)) => arrived += 1,
            Some(Arrival::Message(envelope, offset)) => {
                server.release(offset, envelope.len);
                arrived += 1;
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    world.run(5);
    assert!(hand_in(&mut client));
}
