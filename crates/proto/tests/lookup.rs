//! Whom a message to a service reaches, by the way in which its sender's port looks.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortId};
use polyrail_proto::service::Lookup;
use polyrail_proto::time::Duration;
use polyrail_proto::{Config, Destination};
use std::collections::VecDeque;
use world::{Host, Packet, World, address};

const SERVICE: ServiceAddress = ServiceAddress::new(100, 7);

/// Three nodes, of which the last is far away: what goes to it and comes from it takes so many steps more.
struct Far {
    world: World,
    late: VecDeque<(u64, Packet)>,
    steps: u64,
    extra: u64,
    ports: Vec<PortId>,
}

impl Far {
    fn new(extra: u64) -> Far {
        let mut world = World::new();
        for seat in 0..3u16 {
            let config = Config::new(NodeId(5 + seat as u64), Incarnation(1));
            world.hosts.push(Host::new(world.now, config, seat, &[0], || 0));
        }
        let ports: Vec<PortId> = world.hosts.iter_mut().map(Host::open_port).collect();
        for seat in [1, 2] {
            world.hosts[seat].bind(ports[seat], SERVICE.into());
        }
        let mut far = Far { world, late: VecDeque::new(), steps: 0, extra, ports };
        far.until(|world| world.hosts[0].node.table().lookup(SERVICE).len() == 2);
        far
    }

    fn step(&mut self) {
        self.steps += 1;
        let (due, late) = (self.steps + self.extra, &mut self.late);
        let distant = address(0, 2);
        self.world.step(Duration::us(50), |packet| {
            let is_far = packet.from == distant || packet.to.as_ref() == Some(&distant);
            if is_far {
                late.push_back((due, packet.clone()));
            }
            !is_far
        });
        while self.late.front().is_some_and(|(due, _)| *due <= self.steps) {
            if let Some((_, packet)) = self.late.pop_front() {
                self.world.deliver(&packet);
            }
        }
    }

    fn until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..200_000 {
            if done(&self.world) {
                return;
            }
            self.step();
        }
        panic!("it never comes about");
    }

    /// Sends `count` messages, each when the one before has arrived; how many came to each of the other two.
    fn send(&mut self, count: u64, tag: impl Fn(u64) -> u64) -> [u64; 2] {
        let mut got = [0; 2];
        for n in 0..count {
            let (now, to) = (self.world.now, Destination::Service(SERVICE));
            assert!(self.world.hosts[0].send(now, self.ports[0], to, Class::Normal, tag(n), b"x"));
            self.until(|world| world.hosts[1..].iter().any(|host| !host.arrivals.is_empty()));
            for (count, host) in got.iter_mut().zip(&mut self.world.hosts[1..]) {
                *count += u64::from(host.receive().is_some());
            }
            let port = self.ports[0];
            self.until(|world| world.hosts[0].node.unconfirmed(port) == 0);
        }
        got
    }

    fn look(&mut self, lookup: Lookup) {
        self.world.hosts[0].node.set_lookup(self.ports[0], lookup);
    }
}

#[test]
fn all_take_turns_or_the_nearest_gets_all_or_each_key_has_its_own() {
    let mut far = Far::new(40);
    // Round trips are known once messages have gone there.
    assert_eq!(far.send(20, |n| n), [10, 10], "no own port serves it, so all others take turns");
    far.look(Lookup::LeastDelay);
    assert_eq!(far.send(30, |n| n), [30, 0], "the nearer one gets all");
    far.look(Lookup::RoundRobin);
    assert_eq!(far.send(20, |n| n), [10, 10]);
    far.look(Lookup::Sticky);
    for key in 0..10 {
        let got = far.send(5, |_| key);
        assert!(got == [5, 0] || got == [0, 5], "one key, two receivers: {got:?}");
    }
    let shares = far.send(40, |n| n);
    assert!(shares[0] > 5 && shares[1] > 5, "many keys: {shares:?}");
}

#[test]
fn equally_near_ones_take_turns() {
    let mut far = Far::new(0);
    far.send(40, |n| n);
    far.look(Lookup::LeastDelay);
    let got = far.send(40, |n| n);
    assert!(got.iter().all(|count| *count >= 10), "{got:?}");
}
