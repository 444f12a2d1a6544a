//! Who waits for credit sends nothing that could bring any: what frees memory, and what ends a port, has to think of those.

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
    send_to(world, (from, 0), ports, Class::Normal, bytes);
}

fn send_to(world: &mut World, (from, to): (usize, usize), ports: [PortId; 3], class: Class, bytes: usize) {
    let (now, to) = (world.now, Destination::Port(PortAddress { node: IDS[to], port: ports[to] }));
    assert!(world.hosts[from].send(now, ports[from], to, class, 0, &vec![1; bytes]));
}

/// Time passes, and nothing of node `silent` arrives; how many messages the first one's application read.
fn run_without(world: &mut World, silent: u16, ms: u64) -> usize {
    let mut read = 0;
    for _ in 0..ms * 10 {
        world.step(Duration::us(100), |packet| packet.from != address(0, silent));
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
    let first = run_without(&mut world, 1, 200);
    assert!(first < MESSAGES, "all had passed before anybody was lost");
    assert_eq!(run_without(&mut world, 1, 100), 0, "they wait for credit");
    assert!(world.hosts[0].session_with(IDS[1]).is_some());
    assert_eq!(run_without(&mut world, 1, 3_000), MESSAGES - first);
    assert!(world.hosts[0].session_with(IDS[1]).is_none());
}

#[test]
fn two_ports_that_close_with_messages_for_each_other_do_not_wait_for_each_other() {
    let (mut world, ports) = three();
    // Nobody reads, so that each has given what it can, and more waits at both.
    for _ in 0..4 * MESSAGES {
        send_to(&mut world, (0, 2), ports, Class::Normal, BYTES);
        send_to(&mut world, (2, 0), ports, Class::Normal, BYTES);
    }
    world.run_while(300, |_| true);
    let waiting = |world: &World| [0, 2].map(|host| world.hosts[host].memory.in_use().1);
    assert!(waiting(&world).iter().all(|messages| *messages > MESSAGES), "{:?}", waiting(&world));
    for host in [0, 2] {
        let now = world.now;
        world.hosts[host].close_port(now, ports[host]);
    }
    assert!(world.run_while(2_000, |w| waiting(w) != [0, 0]), "{:?}", waiting(&world));
}

#[test]
fn who_waits_for_credit_of_a_port_that_is_gone_is_told_so() {
    let (mut world, ports) = three();
    // What a port gives before it has said anything is used up by messages that never arrive there.
    let messages = limits::INITIAL_CREDIT.1 + 1;
    for class in [Class::Urgent, Class::Bulk] {
        (0..messages).for_each(|_| send_to(&mut world, (2, 0), ports, class, 0));
    }
    run_without(&mut world, 2, 50);
    let now = world.now;
    world.hosts[0].close_port(now, ports[0]);
    let left = |world: &World| world.hosts[2].memory.in_use().1;
    assert!(world.run_while(2_000, |w| left(w) > 0), "{}", left(&world));
    send_to(&mut world, (2, 0), ports, Class::Normal, 0);
    assert!(world.run_while(200, |w| left(w) > 0), "nor does who comes later");
    assert!(world.hosts[0].session_with(IDS[2]).is_some());
}
