//! A node knows when its peers know what it has bound, whatever is lost on the way.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::id::{Incarnation, PortAddress, PortId};
use polyrail_proto::node::Barrier;
use polyrail_proto::time::Duration;
use polyrail_proto::{Config, Node};
use world::random::Random;
use world::{Host, IDS, World, pair};

fn service(instance: u32) -> ServiceAddress {
    ServiceAddress::new(100, instance)
}

/// Whether the first node knows that its peer is past the barrier. If so, it must be right about each of `bound`.
fn is_past(world: &World, barrier: &mut Barrier, port: PortId, bound: &[u32], unbound: &[u32]) -> bool {
    if !world.hosts[0].node.is_past(barrier) {
        return false;
    }
    let known = |instance: &u32| {
        world.hosts[1].node.table().lookup(service(*instance)).contains(&PortAddress { node: IDS[0], port })
    };
    assert!(bound.iter().all(known), "something that was bound before is not known");
    assert!(!unbound.iter().any(known), "something that was unbound before is known");
    true
}

#[test]
fn a_peer_past_the_barrier_knows_all_that_was_bound_before_it() {
    for seed in 1..=20 {
        let (mut world, ports) = pair();
        let mut random = Random(seed);
        let (mut bound, mut unbound) = (Vec::new(), Vec::new());
        for round in 0..4u32 {
            for n in 0..[1, 40, 3_000, 2][round as usize] {
                let instance = round * 10_000 + n;
                world.hosts[0].bind(ports[0], service(instance).into());
                bound.push(instance);
            }
            let first = bound.remove(0);
            unbound.push(first);
            let range = ServiceRange::from(service(first));
            world.hosts[0].node.unbind(ports[0], range, Scope::Cluster).expect("it was bound");
            let mut barrier = world.hosts[0].node.begin_barrier();
            assert!(!is_past(&world, &mut barrier, ports[0], &bound, &unbound), "nothing has left yet");
            let mut steps = 0;
            while !is_past(&world, &mut barrier, ports[0], &bound, &unbound) {
                // What comes later is not waited for, but it may be known.
                if random.below(4) == 0 && steps < 200 {
                    world.hosts[0].bind(ports[0], service(1_000_000 + steps).into());
                }
                world.step(Duration::us(50), |_| random.below(5) != 0);
                steps += 1;
                assert!(steps < 400_000, "seed {seed}, round {round}: never past");
            }
        }
    }
}

#[test]
fn a_peer_that_has_only_just_come_is_waited_for() {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config::new(id, Incarnation(1));
        world.hosts.push(Host::new(world.now, config, seat as u16, &[0], || 0));
    }
    let port = world.hosts[0].open_port();
    world.hosts[0].bind(port, service(1).into());
    let mut begun = Vec::new();
    let mut unannounced = 0;
    for _ in 0..200_000 {
        world.step(Duration::us(10), |_| true);
        if let Some(session) = world.hosts[0].session_with(IDS[1]) {
            unannounced += u32::from(!session.announced);
            begun.push(world.hosts[0].node.begin_barrier());
        }
        begun.retain_mut(|barrier| !is_past(&world, barrier, port, &[1], &[]));
        if begun.is_empty() && world.hosts[0].session_with(IDS[1]).is_some() {
            assert!(unannounced > 0, "it never had only just come");
            return;
        }
    }
    panic!("{} barriers are never past", begun.len());
}

#[test]
fn nobody_is_waited_for_who_is_gone_or_came_later() {
    let (mut world, ports) = pair();
    let mut lonely = Node::new(world.now, Config::new(IDS[0], Incarnation(1)));
    lonely.open_port().expect("there are port numbers");
    assert!(lonely.is_past(&mut lonely.begin_barrier()), "there is nobody");

    world.hosts[0].bind(ports[0], service(1).into());
    let mut barrier = world.hosts[0].node.begin_barrier();
    let mut steps = 0;
    while world.hosts[0].session_with(IDS[1]).is_some() {
        assert!(!world.hosts[0].node.is_past(&mut barrier), "he cannot know");
        let behind: Vec<_> = world.hosts[0].node.behind(&barrier).map(|session| session.peer.node).collect();
        assert_eq!(behind, [IDS[1]]);
        world.step(Duration::ms(1), |_| false);
        steps += 1;
        assert!(steps < 60_000, "never lost");
    }
    assert!(world.hosts[0].node.is_past(&mut barrier));
    // They meet again.
    let met = world.run_while(10_000, |world| {
        !world.hosts[0].node.sessions().any(|session| session.peer.node == IDS[1] && session.announced)
    });
    assert!(met && world.hosts[0].node.is_past(&mut barrier), "another session is not this one");
}

#[test]
fn bindings_of_this_node_only_concern_nobody_else() {
    let (mut world, ports) = pair();
    world.step(Duration::ms(1), |_| true);
    let (node, range) = (&mut world.hosts[0].node, service(1).into());
    node.bind(ports[0], range, Scope::Node).expect("a service for programs");
    assert!(node.is_past(&mut node.begin_barrier()));
}
