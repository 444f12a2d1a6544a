//! Bindings that want to be the only ones of their range: refused where that can be seen, and settled where it cannot.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::id::{Incarnation, NodeId, PortId};
use polyrail_proto::service::BindError;
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{self, PacketType};
use polyrail_proto::{Config, Event};
use world::random::Random;
use world::{Host, IDS, World, pair};

const RANGE: ServiceRange = ServiceRange::new(100, 10, 19);

fn bind_exclusive(host: &mut Host, port: PortId, range: ServiceRange) -> Result<(), BindError> {
    host.core(|node, _| node.bind_exclusive(port, range, Scope::Cluster))
}

fn bind(host: &mut Host, port: PortId, range: ServiceRange) -> Result<(), BindError> {
    host.core(|node, _| node.bind(port, range, Scope::Cluster))
}

/// What the ports of a host were told to have lost, and to whom.
fn lost(host: &mut Host) -> Vec<(PortId, ServiceRange, NodeId)> {
    let news = host.news.drain(..).filter_map(|event| match event {
        Event::Unbound { port, range, by } => Some((port, range, by)),
        _ => None,
    });
    news.collect()
}

fn agree(world: &World) -> bool {
    let mut tables = world.hosts.iter().map(|host| host.node.table().list().collect::<Vec<_>>());
    let first = tables.next();
    tables.all(|table| Some(table) == first)
}

#[test]
fn what_another_node_has_bound_is_refused() {
    let (mut world, ports) = pair();
    assert_eq!(bind_exclusive(&mut world.hosts[0], ports[0], RANGE), Ok(()));
    assert!(world.run_while(100, |w| !agree(w)));
    let taken = Err(BindError::Taken { by: IDS[0] });
    assert_eq!(bind_exclusive(&mut world.hosts[1], ports[1], ServiceRange::new(100, 19, 25)), taken);
    assert_eq!(bind(&mut world.hosts[1], ports[1], ServiceRange::new(100, 0, 10)), taken);
    assert_eq!(bind(&mut world.hosts[1], ports[1], ServiceRange::new(100, 0, 9)), Ok(()));
    let node = &mut world.hosts[0].node;
    node.unbind(ports[0], RANGE, Scope::Cluster).expect("it was bound");
    assert!(world.run_while(100, |w| !agree(w)));
    assert_eq!(bind_exclusive(&mut world.hosts[1], ports[1], RANGE), Ok(()));
    assert!(world.hosts.iter_mut().all(|host| lost(host).is_empty()), "nobody lost anything");
}

#[test]
fn of_two_made_at_the_same_time_the_larger_node_gives_way() {
    let (mut world, ports) = pair();
    let other = ServiceRange::new(100, 15, 30);
    assert_eq!(bind_exclusive(&mut world.hosts[0], ports[0], RANGE), Ok(()));
    assert_eq!(bind_exclusive(&mut world.hosts[1], ports[1], other), Ok(()));
    assert!(world.run_while(100, |w| !agree(w)));
    let left: Vec<_> = world.hosts[1].node.table().list().map(|(node, _, range, _)| (node, range)).collect();
    assert_eq!(left, [(IDS[0], RANGE)]);
    assert_eq!(lost(&mut world.hosts[1]), [(ports[1], other, IDS[0])]);
    assert_eq!(lost(&mut world.hosts[0]), []);
}

#[test]
fn an_exclusive_binding_gives_way_to_one_that_was_made_at_the_same_time_and_is_not() {
    let (mut world, ports) = pair();
    assert_eq!(bind_exclusive(&mut world.hosts[0], ports[0], RANGE), Ok(()));
    assert_eq!(bind(&mut world.hosts[1], ports[1], RANGE), Ok(()));
    assert!(world.run_while(100, |w| !agree(w)));
    assert_eq!(world.hosts[0].node.table().list().map(|row| row.0).collect::<Vec<_>>(), [IDS[1]]);
    assert_eq!(lost(&mut world.hosts[0]), [(ports[0], RANGE, IDS[1])]);
}

#[test]
fn a_partition_that_heals_leaves_one() {
    let (mut world, ports) = pair();
    for _ in 0..2_000 {
        world.step(Duration::ms(1), |_| false);
    }
    assert!(world.hosts.iter().all(|host| host.node.peers().is_empty()), "they have lost each other");
    for (host, port) in ports.into_iter().enumerate() {
        assert_eq!(bind_exclusive(&mut world.hosts[host], port, RANGE), Ok(()));
    }
    let met = world.run_while(20_000, |w| !w.hosts.iter().all(|host| host.node.peers().len() == 1));
    assert!(met && world.run_while(2_000, |w| !agree(w)));
    assert_eq!(world.hosts[1].node.table().list().map(|row| row.0).collect::<Vec<_>>(), [IDS[0]]);
    assert_eq!(lost(&mut world.hosts[1]).len(), 1);
}

#[test]
fn an_older_peer_is_told_of_an_ordinary_binding_and_keeps_its_own() {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config::new(id, Incarnation(1));
        world.hosts.push(Host::new(world.now, config, seat as u16, &[0], || 0));
    }
    let ports = [0, 1].map(|index| world.hosts[index].open_port());
    assert_eq!(bind_exclusive(&mut world.hosts[0], ports[0], RANGE), Ok(()));
    let step = |world: &mut World| {
        for packet in &mut world.wire {
            if matches!(wire::peek_type(&packet.bytes), Some(PacketType::Init | PacketType::Resp)) {
                packet.bytes[56] &= !(1 << 3);
                wire::finish(&mut packet.bytes).expect("the header is right");
            }
        }
        world.step(Duration::ms(1), |_| true);
    };
    (0..3_000).for_each(|_| step(&mut world));
    assert!(agree(&world) && world.hosts[1].node.table().len() == 1);
    assert_eq!(bind(&mut world.hosts[1], ports[1], RANGE), Ok(()), "it does not know the flag");
    (0..3_000).for_each(|_| step(&mut world));
    assert!(agree(&world) && world.hosts[1].node.table().len() == 1);
    assert_eq!(lost(&mut world.hosts[0]), [(ports[0], RANGE, IDS[1])]);
}

/// Whether an exclusive binding overlaps another in the table of a host.
fn overlap(host: &Host) -> bool {
    let table = host.node.table();
    let all: Vec<_> = table.overlapping(ServiceRange::new(100, 0, u32::MAX)).collect();
    all.iter().enumerate().any(|(at, (range, bound))| {
        let others = all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
        let mut meeting =
            others.filter(|(other, _)| other.lower <= range.upper && range.lower <= other.upper);
        bound.exclusive && meeting.next().is_some()
    })
}

#[test]
fn whatever_is_bound_and_lost_meanwhile_nothing_overlaps_in_the_end() {
    let (mut losses, mut refusals) = (0, 0);
    for seed in 1..=10 {
        let mut random = Random(seed);
        let mut world = World::new();
        for seat in 0..5u16 {
            let config = Config::new(NodeId(5 + u64::from(seat)), Incarnation(1));
            world.hosts.push(Host::new(world.now, config, seat, &[0], || 0));
        }
        let ports = [0, 1, 2, 3, 4].map(|index| world.hosts[index].open_port());
        for step in 0..4_000 {
            let near = random.below(200) as u32;
            for (at, port) in ports.into_iter().enumerate() {
                // Now and then, some of them at the same time.
                if step < 1_000 || step % 40 > 0 || random.one_in(2) {
                    continue;
                }
                let lower = near + random.below(10) as u32;
                let range = ServiceRange::new(100, lower, lower + random.below(10) as u32);
                let host = &mut world.hosts[at];
                let done = if random.one_in(4) {
                    bind(host, port, range)
                } else {
                    bind_exclusive(host, port, range)
                };
                refusals += u32::from(done.is_err());
                if random.one_in(3) {
                    host.core(|node, _| node.unbind(port, range, Scope::Cluster).ok());
                }
            }
            world.step(Duration::us(500), |_| !random.one_in(20));
        }
        assert!(world.run_while(20_000, |w| !agree(w)), "seed {seed}: the tables never agree");
        world.run_while(100, |_| true);
        assert!(agree(&world), "seed {seed}");
        assert!(!world.hosts.iter().any(overlap), "seed {seed}");
        losses += world.hosts.iter_mut().map(|host| lost(host).len()).sum::<usize>();
    }
    assert!(losses > 10 && refusals > 100, "{losses} were taken back, {refusals} refused");
}
