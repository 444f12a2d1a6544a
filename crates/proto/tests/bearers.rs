//! Bearers that come, change and go while messages flow: the peer learns of it, links are made and closed, and every
//! message arrives once and in order.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::Destination;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{LinkId, PortAddress, PortId};
use polyrail_proto::limits;
use polyrail_proto::link::state::LinkState;
use polyrail_proto::service::{Topic, Update};
use polyrail_proto::time::Duration;
use std::collections::BTreeSet;
use world::{IDS, Packet, World, pair};

const MESSAGE_BYTES: usize = 20_000;

/// Two nodes and a flow of messages each way that goes on while things happen.
struct Flows {
    world: World,
    ports: [PortId; 2],
    sent: [u64; 2],
    received: [u64; 2],
    /// Packets of a session that left by each medium.
    packets: [u64; 8],
}

impl Flows {
    fn start() -> Flows {
        let (world, ports) = pair();
        Flows { world, ports, sent: [0; 2], received: [0; 2], packets: [0; 8] }
    }

    /// Steps of 100 us in which messages are sent and read; `pass` says what arrives.
    fn run(&mut self, ms: u64, mut pass: impl FnMut(&Packet) -> bool) {
        (0..ms * 10).for_each(|_| self.step(true, &mut pass));
    }

    fn step(&mut self, send: bool, pass: &mut dyn FnMut(&Packet) -> bool) {
        for from in 0..2 {
            while send && self.world.hosts[from].node.unconfirmed(self.ports[from]) < 4 {
                let to = PortAddress { node: IDS[1 - from], port: self.ports[1 - from] };
                let (now, tag) = (self.world.now, self.sent[from]);
                let body = vec![tag as u8; MESSAGE_BYTES];
                let host = &mut self.world.hosts[from];
                assert!(host.send(now, self.ports[from], Destination::Port(to), Class::Normal, tag, &body));
                self.sent[from] += 1;
            }
        }
        let packets = &mut self.packets;
        self.world.step(Duration::us(100), |packet| {
            packets[packet.medium() as usize] += u64::from(packet.bytes.len() > 600);
            pass(packet)
        });
        for to in 0..2 {
            while let Some((arrival, bytes)) = self.world.hosts[to].receive() {
                assert_eq!(arrival.tag, Some(self.received[1 - to]), "once and in order");
                assert!(bytes == vec![self.received[1 - to] as u8; MESSAGE_BYTES]);
                self.received[1 - to] += 1;
            }
        }
    }

    /// Goes on until something is so of the links of both ends; the limit is for what hangs.
    fn until(&mut self, is_so: impl Fn(&World) -> bool) {
        for _ in 0..100_000 {
            if is_so(&self.world) {
                return;
            }
            self.step(true, &mut |_| true);
        }
        panic!("{:?} {:?}", links(&self.world, 0), links(&self.world, 1));
    }

    /// Everything that was sent arrives.
    fn finish(mut self) -> World {
        for _ in 0..100_000 {
            if self.received == self.sent {
                return self.world;
            }
            self.step(false, &mut |_| true);
        }
        panic!("{:?} sent, {:?} received", self.sent, self.received);
    }

    fn add(&mut self, host: usize, medium: u8) {
        let now = self.world.now;
        self.world.hosts[host].add_bearer(now, medium);
    }

    fn remove(&mut self, host: usize, medium: u8) {
        let now = self.world.now;
        self.world.hosts[host].remove_bearer(now, medium);
    }
}

/// The links of a node: number, medium of its peer's end, state.
fn links(world: &World, host: usize) -> Vec<(LinkId, u8, LinkState)> {
    let Some(session) = world.hosts[host].session_with(IDS[1 - host]) else { return Vec::new() };
    session.links.iter().map(|l| (l.spec.id, l.spec.to.as_bytes()[1], l.state.state())).collect()
}

/// Whether both nodes have links by these media and no others, all in use.
fn joined_by(world: &World, media: &[u8]) -> bool {
    (0..2).all(|host| {
        let links = links(world, host);
        let by: BTreeSet<u8> = links.iter().map(|(_, medium, _)| *medium).collect();
        let used = links.iter().all(|(.., state)| *state == LinkState::Up);
        used && links.len() == media.len() && by == media.iter().copied().collect()
    })
}

#[test]
fn a_bearer_that_either_end_gets_is_announced_and_carries_messages() {
    for first in 0..2 {
        for beacons in [true, false] {
            let mut flows = Flows::start();
            let pass = |packet: &Packet| beacons || packet.to.is_some();
            flows.add(first, 2);
            flows.run(50, pass);
            assert_eq!(flows.packets[2], 0, "the other end is not there");
            flows.add(1 - first, 2);
            let before = flows.packets[2];
            flows.run(200, pass);
            assert!(joined_by(&flows.world, &[0, 1, 2]), "{:?}", links(&flows.world, 0));
            assert!(flows.packets[2] > before, "it carries messages");
            flows.finish();
        }
    }
}

#[test]
fn links_of_a_bearer_that_is_gone_are_forgotten_at_both_ends_and_nothing_is_lost() {
    for host in 0..2 {
        let mut flows = Flows::start();
        flows.run(20, |_| true);
        flows.remove(host, 1);
        assert_eq!(links(&flows.world, host).len(), 1);
        flows.until(|world| joined_by(world, &[0]));
        let numbers: BTreeSet<LinkId> = links(&flows.world, 0).iter().map(|link| link.0).collect();
        flows.add(host, 1);
        flows.until(|world| joined_by(world, &[0, 1]));
        let later: Vec<LinkId> = links(&flows.world, 0).iter().map(|link| link.0).collect();
        assert!(later.iter().any(|id| *id > LinkId(1)), "a number is not used again: {numbers:?} {later:?}");
        flows.finish();
    }
}

#[test]
fn a_session_goes_on_when_all_bearers_of_a_node_are_replaced() {
    for host in 0..2 {
        let mut flows = Flows::start();
        let session = flows.world.hosts[0].session_with(IDS[1]).unwrap().index;
        flows.run(20, |_| true);
        flows.remove(host, 0);
        flows.remove(host, 1);
        assert!(links(&flows.world, host).is_empty());
        flows.run(100, |_| true);
        // The peer has the other bearer already, or gets it now.
        flows.add(1 - host, 3);
        flows.add(host, 3);
        flows.until(|world| joined_by(world, &[3]));
        assert_eq!(flows.world.hosts[0].session_with(IDS[1]).unwrap().index, session);
        flows.finish();
    }
}

#[test]
fn a_session_goes_on_when_a_bearer_comes_back_with_its_address_and_another_number() {
    for host in 0..2 {
        let mut flows = Flows::start();
        let session = flows.world.hosts[0].session_with(IDS[1]).unwrap().index;
        flows.remove(0, 0);
        flows.until(|world| joined_by(world, &[1]));
        for _ in 0..5 {
            // Each end believes that the other has the bearer of before.
            flows.remove(host, 1);
            flows.remove(1 - host, 1);
            flows.run(20, |_| true);
            flows.add(host, 1);
            flows.run(20, |_| true);
            flows.add(1 - host, 1);
            flows.until(|world| joined_by(world, &[1]));
        }
        assert_eq!(flows.world.hosts[0].session_with(IDS[1]).unwrap().index, session);
        flows.finish();
    }
}

#[test]
fn a_number_that_is_used_again_with_another_address_closes_the_links_of_before() {
    let mut flows = Flows::start();
    // What says that it is gone is lost with everything else for a while.
    flows.remove(1, 1);
    flows.run(10, |_| true);
    let mut numbers = BTreeSet::new();
    for medium in (0..40).map(|at| 2 + at % 2) {
        flows.add(1, medium);
        numbers.insert(flows.world.hosts[1].bearer_on(medium).unwrap());
        flows.run(3, |_| true);
        flows.remove(1, medium);
    }
    assert_eq!(numbers.len(), limits::BEARERS_MAX - 1, "a number rests as long as there are others");
    flows.add(1, 1);
    flows.until(|world| joined_by(world, &[0, 1]));
    let lengths: Vec<usize> = (0..2)
        .map(|host| flows.world.hosts[host].session_with(IDS[1 - host]).unwrap().peer.bearers.len())
        .collect();
    assert_eq!(lengths, [2, 2]);
    flows.finish();
}

#[test]
fn a_bearer_that_comes_and_goes_leaves_nothing_behind() {
    let mut flows = Flows::start();
    flows.add(1, 2);
    for round in 0..300 {
        flows.add(0, 2);
        flows.run(2, |_| true);
        // In some rounds the peer hears nothing of it before it is over.
        flows.remove(0, 2);
        if round % 3 > 0 {
            flows.run(2, |_| true);
        }
    }
    flows.until(|world| joined_by(world, &[0, 1]));
    let world = flows.finish();
    for host in 0..2 {
        let node = &world.hosts[host].node;
        let session = world.hosts[host].session_with(IDS[1 - host]).unwrap();
        assert_eq!(session.peer.bearers.len(), if host == 0 { 3 } else { 2 });
        assert_eq!(session.control_frames().1, 0);
        assert!(session.control_frames().0 < 8, "{:?}", session.control_frames());
        assert!(node.bearers().count() <= limits::BEARERS_MAX && node.drops().bearers_refused == 0);
    }
}

#[test]
fn one_more_bearer_than_there_may_be_is_refused_and_counted() {
    let mut flows = Flows::start();
    let (now, host) = (flows.world.now, &mut flows.world.hosts[0]);
    for medium in 2..limits::BEARERS_MAX as u8 {
        host.add_bearer(now, medium);
    }
    let info = host.node.bearers().next().unwrap().0.clone();
    assert_eq!(host.node.try_add_bearer(now, info.clone()), None);
    assert_eq!(host.node.drops().bearers_refused, 1);
    host.remove_bearer(now, 5);
    assert!(host.node.try_add_bearer(now, info).is_some());
}

#[test]
fn a_session_that_has_used_all_numbers_for_links_makes_no_more_and_counts_that() {
    let (mut world, _) = pair();
    let now = world.now;
    // The end that numbers the links, which hears of no other end: what it says of its bearers waits.
    let initiator =
        (0..2).find(|host| world.hosts[*host].session_with(IDS[1 - host]).unwrap().initiator).unwrap();
    world.hosts[1 - initiator].add_bearer(now, 2);
    world.run_while(20, |_| true);
    let host = &mut world.hosts[initiator];
    for _ in 0..u16::MAX {
        host.add_bearer(now, 2);
        host.remove_bearer(now, 2);
    }
    assert!((1..10).contains(&host.node.drops().links_refused), "{:?}", host.node.drops());
    host.add_bearer(now, 2);
    assert!(joined_by(&world, &[0, 1]));
}

#[test]
fn packets_grow_at_both_ends_once_both_bearers_take_larger_ones_and_shrink_as_soon_as_one_does() {
    let mut flows = Flows::start();
    let sizes = |world: &World| {
        let of = |host: usize| {
            let links = &world.hosts[host].session_with(IDS[1 - host]).unwrap().links;
            links.iter().find(|l| l.spec.to.as_bytes()[1] == 1).map_or(0, |l| l.mtu.current())
        };
        [of(0), of(1)]
    };
    flows.until(|world| sizes(world) == [1_472; 2]);
    let resize = |flows: &mut Flows, host: usize, mtu: u16| {
        let now = flows.world.now;
        let host = &mut flows.world.hosts[host];
        let bearer = host.bearer_on(1).unwrap();
        host.core(|node, _| node.set_bearer_mtu(now, bearer, mtu));
    };
    resize(&mut flows, 1, 8_972);
    flows.run(200, |_| true);
    assert_eq!(sizes(&flows.world), [1_472; 2], "the other end takes no more");
    resize(&mut flows, 0, 8_972);
    flows.until(|world| sizes(world) == [8_968; 2]);
    resize(&mut flows, 0, 1_472);
    assert_eq!(sizes(&flows.world)[0], 1_472, "at once");
    flows.until(|world| sizes(world) == [1_472; 2]);
    flows.finish();
}

#[test]
fn subscribers_hear_that_a_link_is_no_more() {
    let (mut world, _) = pair();
    let now = world.now;
    let id = world.hosts[0].core(|node, _| node.subscribe(now, Topic::links(), None)).unwrap();
    let mut heard = Vec::new();
    world.hosts[1].remove_bearer(now, 1);
    world.run_while(100, |world| {
        while let Ok(Some(update)) = world.hosts[0].core(|node, _| node.poll_subscription(id)) {
            heard.push(update);
        }
        true
    });
    let gone: Vec<&Update> = heard.iter().filter(|u| matches!(u, Update::LinkGone { .. })).collect();
    assert_eq!(gone.len(), 1, "{heard:?}");
    assert_eq!(heard.last(), Some(gone[0]), "its end comes last: {heard:?}");
}
