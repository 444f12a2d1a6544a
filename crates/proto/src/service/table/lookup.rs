//! Which of several bindings of one service gets a message (protocol.md §7.1).

use super::{Bound, Pick, Table, Turn};
use crate::address::ServiceAddress;
use crate::id::{NodeId, PortAddress};
use crate::mix::{STRIDE, mix};
use smallvec::SmallVec;

/// How a port chooses among those that serve what it sends to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[non_exhaustive]
pub enum Lookup {
    /// Those of this node in turn; only if it has none, or none is ready, those of others in turn.
    #[default]
    LocalFirst,
    /// All in turn, wherever they are.
    RoundRobin,
    /// In turn, those whose nodes are expected to get it first. Those of this node come before all others; of others,
    /// those count as equal whose delay exceeds the least by a quarter at most.
    LeastDelay,
    /// All messages of one key to one binding, for as long as it is there: the key is the message's tag, or the sending
    /// port if it has none. Every sender chooses the same one. If a binding comes or goes, only the keys that it gets or
    /// had move. Nobody is passed over for being busy.
    Sticky,
}

impl Lookup {
    /// All of them.
    pub const ALL: [Lookup; 4] = [Lookup::LocalFirst, Lookup::RoundRobin, Lookup::LeastDelay, Lookup::Sticky];
}

impl Table {
    /// Chooses one port of those bound to `address`: closest first (those of node `own`), in turn by weight,
    /// skipping those that are not `ready`. Bindings of several overlapping ranges take turns as one list.
    pub fn pick(
        &mut self,
        address: ServiceAddress,
        own: NodeId,
        mut ready: impl FnMut(PortAddress) -> bool,
    ) -> Pick {
        let places = self.places_of(address);
        let Some(first) = places.first() else { return Pick::None };
        let (mut own_turn, mut cluster_turn) =
            (self.services[first].own_turn, self.services[first].cluster_turn);
        let (mut near, mut far) = (SmallVec::<[&[Bound]; 4]>::new(), SmallVec::<[&[Bound]; 8]>::new());
        for place in &places {
            let bounds = &self.services[place].bounds;
            let from = bounds.partition_point(|b| b.node < own);
            let to = bounds.partition_point(|b| b.node <= own);
            near.push(&bounds[from..to]);
            far.extend([&bounds[..from], &bounds[to..]]);
        }
        let mut pick = own_turn.choose(&near, &mut ready);
        if !matches!(pick, Pick::To(_)) {
            let further = cluster_turn.choose(&far, &mut ready);
            pick = if further == Pick::None { pick } else { further };
        }
        drop((near, far));
        if let Some(service) = self.services.get_mut(first) {
            (service.own_turn, service.cluster_turn) = (own_turn, cluster_turn);
        }
        pick
    }

    /// Chooses one of all bindings of `address`, in turn by weight, skipping those that are not `ready`.
    pub fn pick_any(&mut self, address: ServiceAddress, mut ready: impl FnMut(PortAddress) -> bool) -> Pick {
        let places = self.places_of(address);
        let Some(first) = places.first() else { return Pick::None };
        let mut turn = self.services[first].any_turn;
        let all: SmallVec<[&[Bound]; 4]> = places.iter().map(|p| &self.services[p].bounds[..]).collect();
        let pick = turn.choose(&all, &mut ready);
        drop(all);
        if let Some(service) = self.services.get_mut(first) {
            service.any_turn = turn;
        }
        pick
    }

    /// Chooses the binding of `address` that belongs to `key`, among those that are `reachable`: the one with the highest
    /// draw (rendezvous hashing). Of many keys each binding gets a share by its weight.
    pub fn pick_sticky(
        &self,
        address: ServiceAddress,
        key: u64,
        mut reachable: impl FnMut(PortAddress) -> bool,
    ) -> Pick {
        let places = self.places_of(address);
        let bounds = || places.iter().flat_map(|place| &self.services[place].bounds);
        let best = bounds().filter(|b| reachable(b.address())).max_by_key(|b| (draw(key, b), b.node, b.key));
        match best {
            Some(bound) => Pick::To(bound.address()),
            None if bounds().next().is_some() => Pick::AllBusy,
            None => Pick::None,
        }
    }
}

impl Turn {
    /// The next ready binding of the concatenated `lists`. At most three passes: the rest of this round, the whole
    /// next one (which also tells whether anybody is ready at all), and one in which every weight counts.
    fn choose(&mut self, lists: &[&[Bound]], ready: &mut impl FnMut(PortAddress) -> bool) -> Pick {
        let count: usize = lists.iter().map(|l| l.len()).sum();
        if count == 0 {
            return Pick::None;
        }
        let mut any_ready = false;
        for pass in 0..3 {
            let start = self.next.min(count);
            for (at, bound) in lists.iter().flat_map(|l| l.iter()).enumerate().skip(start) {
                let weight = bound.weight.max(1);
                if weight <= self.round && (pass == 0 || any_ready) {
                    continue;
                }
                let is_ready = ready(bound.address());
                any_ready |= is_ready;
                if is_ready && weight > self.round {
                    self.next = at + 1;
                    return Pick::To(bound.address());
                }
            }
            if pass == 1 && !any_ready {
                break;
            }
            let heaviest = lists.iter().flat_map(|l| l.iter()).map(|b| b.weight).max().unwrap_or(1);
            let last = pass == 1 || self.round + 1 >= heaviest;
            *self = Turn { round: if last { 0 } else { self.round + 1 }, next: 0 };
        }
        Pick::AllBusy
    }
}

/// What a binding draws for a key: the highest of as many draws as it has weight.
fn draw(key: u64, bound: &Bound) -> u64 {
    let seed = mix(key ^ mix(bound.node.0 ^ mix(bound.key)));
    let draws = (0..bound.weight.max(1) as u64).map(|n| mix(seed.wrapping_add(n.wrapping_mul(STRIDE))));
    draws.max().unwrap_or(seed)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OWN, port, publish};
    use super::*;
    use crate::address::{Scope, ServiceRange};
    use crate::id::NodeId;
    use std::collections::BTreeMap;

    const SERVICE: ServiceAddress = ServiceAddress::new(100, 7);

    fn to(pick: Pick) -> (u64, u32) {
        match pick {
            Pick::To(to) => (to.node.0, to.port.0),
            other => panic!("{other:?}"),
        }
    }

    /// Two own ports and two of other nodes, of which one has bound a wider range.
    fn table() -> Table {
        let mut table = Table::new(OWN);
        publish(&mut table, 1, SERVICE.into(), 10, 1);
        publish(&mut table, 9, ServiceRange::new(100, 0, 9), 20, 1);
        for number in [1, 2] {
            table.bind(port(number), SERVICE.into(), Scope::Cluster, 1).unwrap();
        }
        table
    }

    #[test]
    fn all_have_their_turn_wherever_they_are() {
        let mut table = table();
        let mut counts: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        for _ in 0..40 {
            *counts.entry(to(table.pick_any(SERVICE, |_| true))).or_default() += 1;
        }
        let own = OWN.0;
        assert_eq!(counts, [((1, 10), 10), ((own, 1), 10), ((own, 2), 10), ((9, 20), 10)].into());
        let others = |to: PortAddress| to.node != OWN;
        let picks = [(); 4].map(|()| to(table.pick_any(SERVICE, others)));
        assert!(picks.iter().all(|(node, _)| *node != own) && picks[0] != picks[1], "{picks:?}");
        assert_eq!(table.pick_any(SERVICE, |_| false), Pick::AllBusy);
        assert_eq!(table.pick_any(ServiceAddress::new(101, 7), |_| true), Pick::None);
    }

    #[test]
    fn a_key_stays_where_it_is_when_others_come_and_go() {
        let mut table = table();
        let choices = |table: &Table| -> Vec<(u64, u32)> {
            (0..1_000).map(|key| to(table.pick_sticky(SERVICE, key, |_| true))).collect()
        };
        let before = choices(&table);
        assert_eq!(before, choices(&table));
        table.bind(port(3), SERVICE.into(), Scope::Cluster, 1).unwrap();
        let with_a_third = choices(&table);
        let moved = before.iter().zip(&with_a_third).filter(|(old, new)| old != new);
        assert!(moved.clone().all(|(_, new)| *new == (OWN.0, 3)), "whatever moves, moves to the newcomer");
        assert!((150..250).contains(&moved.count()), "a fifth does");
        table.unbind_port(port(3));
        assert_eq!(choices(&table), before);
        table.purge(NodeId(9));
        for (old, new) in before.iter().zip(choices(&table)) {
            assert!(*old == (9, 20) || *old == new);
            assert_ne!(new, (9, 20));
        }
        let unreachable = to(table.pick_sticky(SERVICE, 5, |to| to.node == OWN));
        assert_eq!(unreachable.0, OWN.0);
        assert_eq!(table.pick_sticky(SERVICE, 5, |_| false), Pick::AllBusy);
        assert_eq!(table.pick_sticky(ServiceAddress::new(101, 7), 5, |_| true), Pick::None);
    }

    #[test]
    fn keys_are_shared_by_weight_and_every_node_agrees() {
        let mut counts = [0; 3];
        let tables = [OWN, NodeId(77)].map(|own| {
            let mut table = Table::new(own);
            for (number, weight) in [(1, 0), (2, 3), (3, 6)] {
                publish(&mut table, 6, SERVICE.into(), number, weight);
            }
            table
        });
        for key in 0..10_000 {
            let [one, other] = tables.each_ref().map(|table| to(table.pick_sticky(SERVICE, key, |_| true)));
            assert_eq!(one, other);
            counts[one.1 as usize - 1] += 1;
        }
        for (count, share) in counts.into_iter().zip([1_000, 3_000, 6_000]) {
            assert!(i32::abs(count - share) < 200, "{counts:?}");
        }
    }
}
