//! Sessions take turns at a bearer, also where it has room for one train at a time.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortAddress};
use polyrail_proto::session::Outcome;
use polyrail_proto::{Config, Destination, Train};
use world::{Host, World};

#[test]
fn a_train_that_finds_no_room_keeps_its_turn() {
    let mut world = World::new();
    for seat in 0..3 {
        let config = Config::new(NodeId(5 + seat as u64), Incarnation(1));
        world.hosts.push(Host::new(world.now, config, seat, &[0], || 0));
    }
    let ports: Vec<_> = world.hosts.iter_mut().map(Host::open_port).collect();
    let met = |world: &World| world.hosts[0].node.sessions().filter(|session| session.announced).count();
    let alone = met(&world);
    assert!(world.run_while(1_000, |world| met(world) < alone + 2), "the first meets the others");
    for to in [1, 2] {
        let to = Destination::Port(PortAddress { node: world.hosts[to].id(), port: ports[to] });
        for _ in 0..4 {
            assert!(world.hosts[0].send(world.now, ports[0], to, Class::Bulk, 0, &[7; 60_000]));
        }
    }
    let bearer = world.hosts[0].bearer_on(0).expect("it has one");
    let (host, mut train) = (&mut world.hosts[0], Train::new());
    let mut sent = Vec::new();
    for round in 0..8 {
        assert!(host.node.poll_transmit(world.now, bearer, &mut train, &mut host.memory), "much waits");
        // Every other one finds the bearer full.
        let outcome = if round % 2 == 0 { Outcome::Sent } else { Outcome::WouldBlock };
        host.node.handle_sent(world.now, &train, outcome, &mut host.memory);
        if outcome == Outcome::Sent {
            sent.push(train.to.clone());
        }
    }
    let (first, second) = (sent[0].clone(), sent[1].clone());
    assert_ne!(first, second, "both have something to send");
    assert_eq!(sent, [first.clone(), second.clone(), first, second]);
}
