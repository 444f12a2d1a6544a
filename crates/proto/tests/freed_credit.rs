//! Memory that a lost peer's unfinished messages held is there for others, who may wait for credit and send nothing before.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortAddress, PortId};
use polyrail_proto::time::Duration;
use polyrail_proto::{Config, Destination, Store, limits};
use world::memory::PORT_BYTES;
use world::{Host, World, address};

const IDS: [NodeId; 3] = [NodeId(5), NodeId(6), NodeId(7)];
const BYTES: usize = 512;
/// More than a new session may send without a word from the port.
const MESSAGES: usize = 2 * limits::INITIAL_CREDIT.0 as usize / BYTES;

/// A receiver and two senders that have met by one medium, with a port each.
fn three() -> (World, [PortId; 3]) {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        world.hosts.push(Host::new(world.now, Config::new(id, Incarnation(1)), seat as u16, &[0], || 0));
    }
    let ports = [0, 1, 2].map(|index| world.hosts[index].open_port());
    let have_met = |h: &Host| h.node.sessions().filter(|s| s.announced).count() == 2;
    assert!(world.run_while(1_000, |w| !w.hosts.iter().all(have_met)));
    (world, ports)
}

fn send(world: &mut World, from: usize, ports: [PortId; 3], bytes: usize) {
    let (now, to) = (world.now, Destination::Port(PortAddress { node: IDS[0], port: ports[0] }));
    assert!(world.hosts[from].send(now, ports[from], to, Class::Normal, 0, &vec![1; bytes]));
}

/// Time passes for the first and the third node; how many messages the first one's application read.
fn run_without_the_second(world: &mut World, ms: u64) -> usize {
    let mut read = 0;
    for _ in 0..ms * 10 {
        world.step(Duration::us(100), |packet| packet.from != address(0, 1));
        while world.hosts[0].receive().is_some() {
            read += 1;
        }
    }
    read
}

#[test]
fn who_has_no_credit_gets_some_when_a_lost_peer_leaves_memory() {
    let (mut world, ports) = three();
    // A large message takes nearly all the memory, and its sender falls silent in the middle of it.
    send(&mut world, 1, ports, PORT_BYTES as usize / 16 * 15 - 2 * BYTES);
    assert!(world.run_while(1_000, |w| w.hosts[0].memory.room(ports[0]).0 > 2 * BYTES as u64));
    // What is left lets messages of another pass one by one, but gives less credit than the next one costs.
    for _ in 0..MESSAGES {
        send(&mut world, 2, ports, BYTES);
    }
    let first = run_without_the_second(&mut world, 200);
    assert!(first < MESSAGES, "all had passed before anybody was lost");
    assert_eq!(run_without_the_second(&mut world, 100), 0, "they wait for credit");
    assert!(world.hosts[0].session_with(IDS[1]).is_some());
    assert_eq!(run_without_the_second(&mut world, 3_000), MESSAGES - first);
    assert!(world.hosts[0].session_with(IDS[1]).is_none());
}
