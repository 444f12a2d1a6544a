//! What clients wait for that is no message: names that somebody binds, peers that know what was bound here.

use super::Engine;
use super::command::{Awaited, Completion};
use polyrail_proto::Node;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::id::PortId;
use polyrail_proto::node::Barrier;
use std::collections::BTreeMap;

/// The waits of all ports: each has one at most.
#[derive(Default)]
pub(super) struct Waits {
    by_port: BTreeMap<PortId, Wait>,
    /// Names as they were when those who wait for some were looked through.
    names_generation: u64,
}

struct Wait {
    number: u64,
    what: What,
}

impl Waits {
    /// Forgets what `port` waits for.
    pub(super) fn forget(&mut self, port: PortId) {
        self.by_port.remove(&port);
    }
}

enum What {
    Bound(ServiceAddress),
    Known(Barrier),
}

impl What {
    /// Whether it is so now; names are looked up only if they have changed.
    fn is_so(&mut self, node: &mut Node, renamed: bool) -> bool {
        match self {
            What::Bound(service) => renamed && !node.table().lookup(*service).is_empty(),
            What::Known(barrier) => node.is_past(barrier),
        }
    }
}

impl Engine {
    /// Tells `port` when `what` is so, now if it is.
    pub(super) fn begin_wait(&mut self, port: PortId, what: Awaited, number: u64) {
        let mut what = match what {
            Awaited::Bound(service) => What::Bound(service),
            Awaited::Known => What::Known(self.node.begin_barrier()),
        };
        self.waits.forget(port);
        if what.is_so(&mut self.node, true) {
            self.store.complete(port, Completion::Came(number));
        } else {
            self.waits.by_port.insert(port, Wait { number, what });
        }
    }

    /// The names of the peers that do not know yet what was bound when `port` began to wait for that.
    pub fn behind(&mut self, port: PortId) -> Vec<String> {
        let Some(Wait { what: What::Known(barrier), .. }) = self.waits.by_port.get_mut(&port) else {
            return Vec::new();
        };
        self.node.is_past(barrier);
        self.node.behind(barrier).map(|session| session.peer.name.to_string()).collect()
    }

    /// Tells those whose wait is over.
    #[inline]
    pub(super) fn pass_waits(&mut self) {
        if !self.waits.by_port.is_empty() {
            let generation = self.node.table().generation();
            let renamed = generation != self.waits.names_generation;
            self.waits.names_generation = generation;
            let (node, store) = (&mut self.node, &mut self.store);
            self.waits.by_port.retain(|port, wait| {
                let came = wait.what.is_so(node, renamed);
                if came {
                    store.complete(*port, Completion::Came(wait.number));
                }
                !came
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Arrival;
    use super::super::joined::Joined;
    use super::super::{Budget, Sizes};
    use super::*;
    use polyrail_proto::address::{Scope, ServiceRange};

    const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);
    const NONE: [u64; 0] = [];

    /// The numbers of the waits of the first client that are over.
    fn came(world: &mut Joined) -> Vec<u64> {
        world.turn(Budget::USUAL);
        let arrivals = std::iter::from_fn(|| world.clients[0].poll());
        arrivals
            .filter_map(|arrival| if let Arrival::Came(number) = arrival { Some(number) } else { None })
            .collect()
    }

    #[test]
    fn who_waits_is_told_once_when_it_is_so() {
        let mut world = Joined::with(Sizes::default());
        let number = world.clients[0].begin_wait(Awaited::Bound(SERVICE)).unwrap();
        assert_eq!(came(&mut world), NONE);
        world.clients[1].bind(ServiceRange::new(1000, 8, 9), Scope::Node).unwrap();
        assert_eq!(came(&mut world), NONE, "that is another");
        world.clients[1].bind(ServiceRange::new(1000, 0, 7), Scope::Node).unwrap();
        assert_eq!(came(&mut world), [number]);
        world.clients[1].bind(SERVICE.into(), Scope::Node).unwrap();
        assert_eq!(came(&mut world), NONE);
        let again = world.clients[0].begin_wait(Awaited::Bound(SERVICE)).unwrap();
        assert_eq!(came(&mut world), [again], "it is so already");
        let known = world.clients[0].begin_wait(Awaited::Known).unwrap();
        assert_eq!(came(&mut world), [known], "there is no peer");
        assert!(world.engine.waits.by_port.is_empty());
    }

    #[test]
    fn a_port_waits_for_one_thing_and_a_closed_one_for_none() {
        let mut world = Joined::with(Sizes::default());
        let other = ServiceAddress::new(1000, 8);
        world.clients[0].begin_wait(Awaited::Bound(SERVICE)).unwrap();
        let second = world.clients[0].begin_wait(Awaited::Bound(other)).unwrap();
        world.clients[1].bind(ServiceRange::new(1000, 7, 8), Scope::Node).unwrap();
        assert_eq!(came(&mut world), [second]);
        world.clients[1].unbind(ServiceRange::new(1000, 7, 8), Scope::Node).unwrap();
        world.turn(Budget::USUAL);
        world.clients[0].begin_wait(Awaited::Bound(other)).unwrap();
        world.clients[0].forget_wait().unwrap();
        world.clients[1].bind(other.into(), Scope::Node).unwrap();
        assert_eq!(came(&mut world), NONE);
        world.clients[0].begin_wait(Awaited::Bound(SERVICE)).unwrap();
        world.turn(Budget::USUAL);
        assert_eq!(world.engine.waits.by_port.len(), 1);
        world.clients[0].close();
        world.turn(Budget::USUAL);
        assert!(world.engine.waits.by_port.is_empty());
    }
}
