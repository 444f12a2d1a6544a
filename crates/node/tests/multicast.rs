//! One message to all who have bound something of a range: each once, in order, over links that lose packets.

use polyrail::engine::client::{Arrival, Exchange};
use polyrail::engine::{Budget, Client, Engine};
use polyrail::{Class, Destination, NodeId, Scope, ServiceRange};
use polyrail_bearer::{FaultBearer, Faults, MemoryHub};
use polyrail_proto::Config;
use polyrail_proto::id::Incarnation;
use polyrail_shm::Sizes;

const STEP_NS: u64 = 20_000;
const KIND: u32 = 1_000;

/// So many nodes with so many ports each, over two links that lose one packet of a hundred.
struct World {
    now_ns: u64,
    engines: Vec<Engine>,
}

impl World {
    fn new(nodes: usize) -> World {
        let mut world = World { now_ns: 1_000_000, engines: vec![] };
        let hubs = [MemoryHub::new(), MemoryHub::new()];
        for n in 0..nodes {
            let mut engine = Engine::new(world.now_ns, Config::new(NodeId(n as u64 + 1), Incarnation(7)));
            for (seed, hub) in hubs.iter().enumerate() {
                let faults = Faults {
                    lose: 0.01,
                    duplicate: 0.01,
                    delay: 0.01,
                    delay_batches_max: 8,
                    ..Faults::default()
                };
                let bearer = FaultBearer::new(hub.bearer(n as u32), (n * 2 + seed) as u64, faults);
                engine.add_bearer(world.now_ns, Box::new(bearer));
            }
            engine.add_loopback(world.now_ns, Box::new(MemoryHub::new().bearer(0)));
            world.engines.push(engine);
        }
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

    fn client(&mut self, node: usize, rx_bytes: u64) -> Client {
        let sizes = Sizes { sq_entries: 1_024, cq_entries: 32_768, tx_bytes: 16 << 20, rx_bytes };
        self.engines[node].open_client(sizes, Exchange::default()).unwrap()
    }

    fn bound(&mut self, node: usize, range: ServiceRange, scope: Scope) -> Client {
        let mut client = self.client(node, 16 << 20);
        client.bind(range, scope).unwrap();
        self.run(5);
        assert!(matches!(client.poll(), Some(Arrival::Answer(0))));
        client
    }
}

/// What has arrived at a client: the first byte and the length of each.
fn take(client: &mut Client) -> Vec<(u8, usize)> {
    let mut got = vec![];
    while let Some(arrival) = client.poll() {
        let Arrival::Message(envelope, offset) = arrival else { panic!("{arrival:?}") };
        let bytes = client.bytes(offset, envelope.len).to_vec();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "damaged");
        got.push((bytes[0], bytes.len()));
        client.release(offset, envelope.len);
    }
    got
}

fn cast(client: &mut Client, range: ServiceRange, byte: u8, len: usize) {
    let to = Destination::Multicast(range);
    client.send(to, Class::Normal, None, &vec![byte; len]).unwrap();
}

#[test]
fn every_port_of_the_range_gets_each_message_once_and_in_order() {
    let mut world = World::new(4);
    let all = ServiceRange::new(KIND, 0, 99);
    // Three ports a node: one bound twice over, one to a part, one to nothing of it.
    let mut members = vec![];
    let mut strangers = vec![];
    for node in 0..4 {
        let mut twice = world.bound(node, all, Scope::Cluster);
        twice.bind(ServiceRange::new(KIND, 50, 60), Scope::Cluster).unwrap();
        world.run(5);
        assert!(matches!(twice.poll(), Some(Arrival::Answer(0))));
        members.push(twice);
        members.push(world.bound(node, ServiceRange::new(KIND, 55, 55), Scope::Cluster));
        strangers.push(world.bound(node, ServiceRange::new(KIND + 1, 0, 99), Scope::Cluster));
        strangers.push(world.bound(node, ServiceRange::new(KIND, 100, 100), Scope::Cluster));
    }
    // What only its own node knows of gets what comes from there.
    let mut hidden = world.bound(1, all, Scope::Node);
    world.run(300);
    let mut sender = world.client(0, 1 << 20);
    let sizes = [1, 64, 1_400, 1_433, 1_465, 9_000, 65_536];
    let mut sent = vec![];
    let mut got = vec![vec![]; members.len()];
    for round in 0..40_u8 {
        let len = sizes[round as usize % sizes.len()];
        cast(&mut sender, all, round, len);
        sent.push((round, len));
        world.run(2);
        members.iter_mut().zip(&mut got).for_each(|(member, got)| got.extend(take(member)));
    }
    world.run(200);
    members.iter_mut().zip(&mut got).for_each(|(member, got)| got.extend(take(member)));
    assert!(got.iter().all(|got| *got == sent), "{got:?}");
    assert!(strangers.iter_mut().all(|stranger| take(stranger).is_empty()));
    assert!(take(&mut hidden).is_empty(), "no node but its own sends there");
    assert_eq!(sender.unconfirmed(), 0);
    // To a part of the range: those that have bound none of it get nothing.
    cast(&mut sender, ServiceRange::new(KIND, 56, 99), 200, 10);
    world.run(50);
    let part: Vec<usize> = members.iter_mut().map(|member| take(member).len()).collect();
    assert_eq!(part, [1, 0, 1, 0, 1, 0, 1, 0]);
}

#[test]
fn a_port_without_room_holds_the_others_up_and_nobody_misses_anything() {
    let mut world = World::new(2);
    let all = ServiceRange::new(KIND, 0, 9);
    let mut quick = world.bound(1, all, Scope::Cluster);
    let mut slow = world.client(1, 1 << 20);
    slow.bind(all, Scope::Cluster).unwrap();
    world.run(200);
    assert!(matches!(slow.poll(), Some(Arrival::Answer(0))));
    let mut sender = world.client(0, 1 << 20);
    for round in 0..100 {
        cast(&mut sender, all, round, 60_000);
    }
    let mut got = [vec![], vec![]];
    world.run(300);
    got[0].extend(take(&mut quick));
    assert!(got[0].len() < 100, "six megabytes do not fit into one");
    for _ in 0..200 {
        world.run(20);
        got[0].extend(take(&mut quick));
        got[1].extend(take(&mut slow));
    }
    let sent: Vec<(u8, usize)> = (0..100).map(|round| (round, 60_000)).collect();
    assert!(got.iter().all(|got| *got == sent), "{:?}", got.map(|got| got.len()));
    assert_eq!(sender.unconfirmed(), 0);
}

#[test]
fn nobody_there_and_too_much_are_told() {
    let mut world = World::new(2);
    let mut sender = world.client(0, 1 << 20);
    world.run(200);
    cast(&mut sender, ServiceRange::new(KIND, 0, 9), 1, 10);
    world.run(5);
    assert!(matches!(
        sender.poll(),
        Some(Arrival::Failed(0, polyrail::engine::command::FailureCode::NoService))
    ));
    let member = world.bound(1, ServiceRange::new(KIND, 3, 3), Scope::Cluster);
    world.run(50);
    cast(&mut sender, ServiceRange::new(KIND, 0, 9), 1, 65_537);
    world.run(5);
    assert!(matches!(
        sender.poll(),
        Some(Arrival::Failed(1, polyrail::engine::command::FailureCode::TooLarge))
    ));
    assert_eq!(sender.unconfirmed(), 0);
    drop(member);
}

#[test]
fn a_member_that_closes_meanwhile_takes_nothing_from_the_others() {
    let mut world = World::new(2);
    let all = ServiceRange::new(KIND, 0, 9);
    let mut stays = world.bound(1, all, Scope::Cluster);
    let mut goes = world.bound(1, all, Scope::Cluster);
    world.run(200);
    let mut sender = world.client(0, 1 << 20);
    let mut got = vec![];
    for round in 0..30 {
        cast(&mut sender, all, round, 30_000);
        if round == 15 {
            goes.close();
        }
        world.run(1);
        got.extend(take(&mut stays));
    }
    // A newcomer may get the place of the one that closed, and nothing that was meant for that.
    let mut newcomer = world.bound(1, ServiceRange::new(KIND, 50, 50), Scope::Cluster);
    world.run(200);
    got.extend(take(&mut stays));
    assert_eq!(got, (0..30).map(|round| (round, 30_000)).collect::<Vec<_>>());
    assert!(take(&mut newcomer).is_empty());
    assert_eq!(sender.unconfirmed(), 0);
}
