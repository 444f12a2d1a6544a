//! Two engines over in-process bearers, driven by hand with a clock of the test's own.

use polyrail::engine::client::{Arrival, Exchange};
use polyrail::engine::{Budget, Client, Engine, LargeMemory, Pool, Quota};
use polyrail::{Class, Destination, NodeId, Scope, ServiceAddress, ServiceRange};
use polyrail_bearer::{FaultBearer, Faults, MemoryHub};
use polyrail_proto::Config;
use polyrail_proto::id::{BearerId, Incarnation};
use polyrail_proto::link::Link;
use polyrail_shm::Sizes;

struct World {
    now_ns: u64,
    engines: Vec<Engine>,
}

/// Time between turns.
const STEP_NS: u64 = 20_000;

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
        self.now_ns += STEP_NS;
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

/// The first node's link by a bearer.
fn link(world: &World, bearer: u8) -> &Link {
    let links =
        world.engines[0].core().sessions().filter(|s| s.peer.node == NodeId(2)).flat_map(|s| &s.links);
    links.into_iter().find(|l| l.spec.bearer == BearerId(bearer)).expect("a link by each bearer")
}

/// A message larger than those that choose their link: every link that may takes of it.
const LARGE: usize = 40_000;

/// Messages that begin with the time at which they were sent.
struct Clocked {
    client: Client,
    server: Client,
    sent: u64,
    got: u64,
}

impl Clocked {
    fn send(&mut self, world: &World, bytes: usize) {
        let mut body = vec![0; bytes];
        body[..8].copy_from_slice(&world.now_ns.to_le_bytes());
        send(&mut self.client, &body);
        self.sent += 1;
    }

    /// Lets 20 us pass and reads: the longest that a message which arrived was under way.
    fn read(&mut self, world: &mut World) -> u64 {
        world.step();
        let mut longest_ns = 0;
        while let Some(arrival) = self.server.poll() {
            let Arrival::Message(envelope, offset) = arrival else { panic!("{arrival:?}") };
            let sent_at = u64::from_le_bytes(self.server.bytes(offset, 8).try_into().unwrap());
            self.server.release(offset, envelope.len);
            longest_ns = longest_ns.max(world.now_ns - sent_at);
            self.got += 1;
        }
        longest_ns
    }

    /// Waits until nothing is under way by any link.
    fn settle(&mut self, world: &mut World) {
        for _ in 0..1_000 {
            self.read(world);
            if self.got == self.sent && [1, 2].iter().all(|n| link(world, *n).sent.is_empty()) {
                return;
            }
        }
        panic!("something stays under way");
    }
}

#[test]
fn a_link_in_doubt_gets_nothing_new_and_what_it_had_is_copied_at_once() {
    let mut world = World::new(2, 0);
    let mut controls = vec![];
    for seed in 0..2 {
        let hub = MemoryHub::new();
        let bearer = FaultBearer::new(hub.bearer(0), seed, Faults::default());
        controls.push(bearer.control());
        world.engines[0].add_bearer(world.now_ns, Box::new(bearer));
        world.engines[1].add_bearer(world.now_ns, Box::new(hub.bearer(1)));
    }
    let mut server = world.client(1);
    bind(&mut world, &mut server, SERVICE);
    world.run(300);
    let mut messages = Clocked { client: world.client(0), server, sent: 0, got: 0 };
    for _ in 0..200 {
        messages.send(&world, LARGE);
        messages.settle(&mut world);
    }
    messages.send(&world, 8);
    messages.read(&mut world);
    let busy = if link(&world, 1).sent.is_empty() { 2 } else { 1 };
    messages.settle(&mut world);

    // The first packet is lost; nobody notices before a probe time-out, just before which more leaves.
    controls[busy as usize - 1].silence(true);
    messages.send(&world, 8);
    messages.read(&mut world);
    let silent_at = world.now_ns;
    while link(&world, busy).pto_at().0 > world.now_ns + STEP_NS {
        assert!(world.now_ns < silent_at + 50_000_000, "the silence is never noticed");
        messages.read(&mut world);
    }
    messages.send(&world, LARGE);
    messages.read(&mut world);
    let doubted_at = world.now_ns;
    assert!(link(&world, busy).in_doubt());
    assert_eq!(link(&world, busy).sent.last_sent_at().0, doubted_at, "some of it left by the silent link");
    messages.read(&mut world);
    assert_eq!(messages.got, messages.sent, "all of it is copied, the youngest too");

    let packets_sent = link(&world, busy).stats.packets_sent;
    let mut longest_ns = 0;
    while link(&world, busy).state.usable() {
        assert!(world.now_ns < doubted_at + 50_000_000, "it is in doubt for ever");
        messages.send(&world, if messages.sent.is_multiple_of(10) { LARGE } else { 8 });
        longest_ns = messages.read(&mut world).max(longest_ns);
    }
    assert!(longest_ns <= 5 * STEP_NS, "{longest_ns} ns under way, with a sure link beside");
    let asked = link(&world, busy).stats.packets_sent - packets_sent;
    assert!(asked <= 2, "{asked} packets went by a link in doubt; two may ask whether it is there");
    let (first, second) = (doubted_at - silent_at, world.now_ns - doubted_at);
    assert!(first.abs_diff(second) <= 2 * STEP_NS, "probe time-outs of {first} ns, then {second} ns");
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
    // Also those that leave as transfers.
    let bytes = |n: u8| if n.is_multiple_of(10) { 100_000 } else { 5_000 };
    for n in 0..200u8 {
        send(&mut client, &vec![n; bytes(n)]);
    }
    let mut got = 0u8;
    for _ in 0..20_000 {
        world.step();
        while let Some(Arrival::Message(envelope, offset)) = server.poll() {
            assert!(server.bytes(offset, envelope.len) == vec![got; bytes(got)], "message {got}");
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
fn a_port_that_sent_nothing_gives_its_memory_back_when_it_closes() {
    let mut world = World::new(2, 1);
    let mut server = world.client(1);
    let mut client = world.client(0);
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    send(&mut client, b"nobody reads this");
    world.run(5);
    assert!(world.engines[1].receiving_bytes() > 0);
    server.close();
    world.run(5);
    assert_eq!(world.engines[1].receiving_bytes(), 0);
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
    let pool = Pool::new(1 << 30);
    let hand_in = |client: &mut Client, bytes: usize| {
        let buffer = pool.alloc(bytes).unwrap();
        client.send_buffer(Destination::Service(SERVICE), Class::Normal, None, buffer).is_ok()
    };
    // The first are laid out in the arena, with room for headers; the others stay where they are.
    for (bytes, most) in [(1 << 20, 6), (3 << 20, 3), (4 << 20, 2), (9 << 20, 2)] {
        bounded_and_back(|client| hand_in(client, bytes), most);
    }
}

#[test]
fn several_of_the_longest_slices_are_under_way_and_shorter_ones_keep_to_what_a_cache_holds() {
    for (mib, most) in [(1, 6), (4, 7), (8, 3)] {
        let bytes = vec![7; mib << 20];
        let to = Destination::Service(SERVICE);
        bounded_and_back(|client| client.send(to, Class::Normal, None, &bytes).is_ok(), most);
    }
}

fn bounded_and_back(hand_in: impl Fn(&mut Client) -> bool, most: usize) {
    let mut world = World::new(2, 1);
    let tx_bytes = polyrail::Config::new().memory.tx_arena_bytes as u64;
    let sizes = Sizes { tx_bytes, ..SIZES };
    let mut server = world.client(1);
    let mut client = world.engines[0].open_client(sizes, Exchange::default()).unwrap();
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    let taken = std::iter::repeat_with(|| hand_in(&mut client)).take(20).filter(|taken| *taken).count();
    assert_eq!(taken, most, "so many at once");
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

#[test]
fn links_that_are_cut_in_turn_again_and_again_leave_one_to_go_by() {
    for carrier in [true, false] {
        let mut world = World::new(2, 0);
        let mut controls = vec![];
        for seed in 0..2 {
            let hub = MemoryHub::new();
            for end in 0..2 {
                let bearer = FaultBearer::new(hub.bearer(end), seed, Faults::default());
                controls.push((seed, bearer.control()));
                world.engines[end as usize].add_bearer(world.now_ns, Box::new(bearer));
            }
        }
        let mut server = world.client(1);
        bind(&mut world, &mut server, SERVICE);
        world.run(300);
        let mut messages = Clocked { client: world.client(0), server, sent: 0, got: 0 };
        for cut in 0..24 {
            let link = cut % 2;
            let mut longest_ns = 0;
            for (up, ms) in [(false, 300), (true, 700)] {
                controls.iter().filter(|c| c.0 == link).for_each(|c| c.1.silence(!up));
                if carrier {
                    let now_ns = world.now_ns;
                    // The loopback is bearer 0.
                    world.engines.iter_mut().for_each(|e| e.carrier(now_ns, link as usize + 1, up));
                }
                for _ in 0..ms * 10 {
                    messages.send(&world, 4_096);
                    for _ in 0..5 {
                        longest_ns = messages.read(&mut world).max(longest_ns);
                    }
                }
            }
            // Damped links are pressed into service: nothing waits for the return of a link.
            assert!(longest_ns < 50_000_000, "{longest_ns} ns in cut {cut}, carrier {carrier}");
        }
    }
}

#[test]
fn large_messages_arrive_before_their_program_looks_as_far_as_memory_is_given_for_that() {
    let mut world = World::new(2, 1);
    let pool = Pool::new(64 << 20);
    let quota = Quota::new(64 << 20);
    let (port_bytes_max, message_bytes_max) = (12 << 20, 6 << 20);
    let large = LargeMemory { pool: pool.clone(), quota: quota.clone(), port_bytes_max, message_bytes_max };
    world.engines[1].set_large_memory(large);
    let (mut server, mut client) = (world.client(1), world.client(0));
    bind(&mut world, &mut server, SERVICE);
    world.run(200);
    let mut send = |world: &mut World, len: usize| {
        let buffer = pool.alloc(len).unwrap();
        client.send_buffer(Destination::Service(SERVICE), Class::Normal, None, buffer).unwrap();
        world.run(300);
        client.unconfirmed()
    };
    assert_eq!([send(&mut world, 5 << 20), send(&mut world, 5 << 20)], [0, 0], "nobody was asked");
    assert_eq!(quota.used_bytes(), 10 << 20);
    assert_eq!(send(&mut world, 5 << 20), 1, "one port may have no more");
    for _ in 0..2 {
        assert!(matches!(server.poll(), Some(Arrival::Owned(envelope, _)) if envelope.len == 5 << 20));
    }
    let Some(Arrival::Offer { len, offer, .. }) = server.poll() else { panic!("its program is asked") };
    assert_eq!((len, quota.used_bytes(), server.poll().is_none()), (5 << 20, 0, true));
    server.accept(offer, pool.alloc(len as usize).unwrap()).unwrap();
    world.run(300);
    // What has been given back serves the next one, but for what a program may not want.
    assert!(matches!(server.poll(), Some(Arrival::Owned(..))));
    assert_eq!(send(&mut world, 5 << 20), 0);
    assert_eq!(send(&mut world, (6 << 20) + 1), 1);
    assert!(matches!(server.poll(), Some(Arrival::Owned(..))));
    assert!(matches!(server.poll(), Some(Arrival::Offer { .. })));
}
