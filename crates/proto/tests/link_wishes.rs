//! What the operator of one of two nodes wants of a link holds for what both send.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::Destination;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{LinkId, PortAddress, PortId};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{Frame, Frames, HEADER_BYTES, LinkStatus};
use world::{IDS, Packet, World, pair};

/// Whether anything of a message is in it.
fn carries(packet: &Packet) -> bool {
    let mut frames = Frames::new(&packet.bytes[HEADER_BYTES..], HEADER_BYTES);
    let of_message = |frame: &Frame<'_>| {
        matches!(frame, Frame::Message(..) | Frame::Fragment(..) | Frame::TransferFragment(..))
    };
    frames.any(|frame| frame.is_ok_and(|frame| of_message(&frame)))
}

/// Sends one message of each size from both nodes, until all are confirmed; packets with some of them by medium.
fn exchange(world: &mut World, ports: [PortId; 2], mut at_step: impl FnMut(&mut World, usize)) -> [usize; 3] {
    for from in 0..2 {
        for len in [8, 9_000, 60_000, 400_000] {
            let to = Destination::Port(PortAddress { node: IDS[1 - from], port: ports[1 - from] });
            assert!(world.hosts[from].send(world.now, ports[from], to, Class::Normal, 0, &vec![7; len]));
        }
    }
    let mut packets = [0; 3];
    for step in 0..100_000 {
        at_step(world, step);
        world.step(Duration::us(50), |packet| {
            packets[packet.medium() as usize] += carries(packet) as usize;
            true
        });
        world.hosts.iter_mut().for_each(|host| while host.receive().is_some() {});
        if (0..2).all(|from| world.hosts[from].node.unconfirmed(ports[from]) == 0) {
            return packets;
        }
    }
    panic!("messages are left");
}

/// The first node's link by the first medium.
fn first_link(world: &World) -> LinkId {
    let bearer = world.hosts[0].bearer_on(0).unwrap();
    let session = world.hosts[0].session_with(IDS[1]).unwrap();
    session.links.iter().find(|link| link.spec.bearer == bearer).unwrap().spec.id
}

fn set(world: &mut World, link: LinkId, status: LinkStatus) {
    world.hosts[0].node.set_link(IDS[1], link, status).unwrap();
    // The peer hears of it.
    world.run_while(20, |_| true);
}

#[test]
fn neither_end_sends_messages_by_a_link_that_one_has_put_aside_and_both_do_again() {
    let (mut world, ports) = pair();
    let link = first_link(&world);
    let [first, second, _] = exchange(&mut world, ports, |_, _| ());
    assert!(first > 0 && second > 0, "both carry: {first} {second}");
    for status in [LinkStatus::Standby, LinkStatus::Drain] {
        set(&mut world, link, status);
        let [first, second, _] = exchange(&mut world, ports, |_, _| ());
        assert!(first == 0 && second > 0, "{status:?}: {first} {second}");
        set(&mut world, link, LinkStatus::Active);
        let [first, second, _] = exchange(&mut world, ports, |_, _| ());
        assert!(first > 0 && second > 0, "active again: {first} {second}");
    }
}

#[test]
fn links_of_a_bearer_on_standby_carry_nothing_until_the_others_are_gone() {
    for end in 0..2 {
        let (mut world, ports) = pair();
        let now = world.now;
        world.hosts[end].add_bearer_on(now, 2, true);
        world.hosts[1 - end].add_bearer_on(now, 2, false);
        world.run_while(3_000, |_| true);
        let link_of = |world: &World, host: usize| {
            let bearer = world.hosts[host].bearer_on(2).unwrap();
            let session = world.hosts[host].session_with(IDS[1 - host]).unwrap();
            let link = session.links.iter().find(|link| link.spec.bearer == bearer).expect("it is there");
            (link.usable(), link.status, link.status_of_peer)
        };
        assert_eq!(link_of(&world, end), (true, LinkStatus::Standby, LinkStatus::Active));
        assert_eq!(link_of(&world, 1 - end), (true, LinkStatus::Active, LinkStatus::Standby));
        let [first, second, spare] = exchange(&mut world, ports, |_, _| ());
        assert!(first > 0 && second > 0 && spare == 0, "{first} {second} {spare}");
        let now = world.now;
        for host in &mut world.hosts {
            (0..2).for_each(|medium| host.remove_bearer(now, medium));
        }
        let [first, second, spare] = exchange(&mut world, ports, |_, _| ());
        assert!(first == 0 && second == 0 && spare > 0, "{first} {second} {spare}");
    }
}

#[test]
fn a_link_that_is_drained_under_load_finishes_and_nothing_is_lost() {
    let (mut world, ports) = pair();
    let link = first_link(&world);
    let inflight = |world: &World| {
        let session = world.hosts[0].session_with(IDS[1]).unwrap();
        session.links.iter().find(|l| l.spec.id == link).unwrap().sent.inflight_bytes()
    };
    let mut when_drained = 0;
    exchange(&mut world, ports, |world, step| {
        if step == 3 {
            when_drained = inflight(world);
            world.hosts[0].node.set_link(IDS[1], link, LinkStatus::Drain).unwrap();
        }
    });
    assert!(when_drained > 0, "it carried something then");
    assert!(world.run_while(100, |world| inflight(world) > 0), "it is empty in the end");
    assert!(world.hosts.iter().all(|host| host.memory.failed == 0));
}
