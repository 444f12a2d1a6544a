//! Bindings that want to be the only ones of their range (protocol.md §7.4).
//!
//! A node refuses what it can see. What two nodes bind at the same time they cannot see, so one of the two goes when they
//! hear of each other: each side knows by the same rule which.

use super::{BindError, Bound, Table};
use crate::address::{Scope, ServiceRange};
use crate::id::{NodeId, PortId};
use crate::wire::Binding;

impl Table {
    /// Refuses `range` if a binding that overlaps it and `is_in_the_way` is known.
    pub(super) fn check_taken(
        &self,
        range: ServiceRange,
        is_in_the_way: impl Fn(&Bound) -> bool,
    ) -> Result<(), BindError> {
        let other = self.overlapping(range).find(|(_, bound)| is_in_the_way(bound));
        other.map_or(Ok(()), |(_, bound)| Err(BindError::Taken { by: bound.node }))
    }

    /// Whether some binding of `kind` is exclusive.
    pub(super) fn has_exclusive(&self, kind: u32) -> bool {
        self.exclusives.contains_key(&kind)
    }

    pub(super) fn forget_exclusive(&mut self, kind: u32) {
        let Some(count) = self.exclusives.get_mut(&kind) else { return };
        *count -= 1;
        if *count == 0 {
            self.exclusives.remove(&kind);
        }
    }

    /// Own exclusive bindings, by key, that have to give way to what `node` has bound: to any binding that is not exclusive
    /// itself, for it asks nobody, and to an exclusive one with the smaller node and key.
    pub fn beaten_by(&self, node: NodeId, record: &Binding) -> Vec<u64> {
        if !self.has_exclusive(record.range.kind) {
            return Vec::new();
        }
        let own = self.own;
        let gives_way = |bound: &Bound| !record.exclusive || (bound.node, bound.key) > (node, record.key);
        let competing = self
            .overlapping(record.range)
            .filter(|(_, bound)| bound.node == own && bound.exclusive && bound.scope == Scope::Cluster);
        competing.filter(|(_, bound)| gives_way(bound)).map(|(_, bound)| bound.key).collect()
    }

    /// Takes back the own binding `key`; the port and the range that it was for.
    pub fn withdraw(&mut self, key: u64) -> Option<(PortId, ServiceRange)> {
        let record = *self.records.get(&(self.own, key))?;
        self.remove(self.own, key);
        Some((record.port, record.range))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OWN, port, publish};
    use super::*;
    use crate::wire::BindingOp;

    const RANGE: ServiceRange = ServiceRange::new(100, 10, 19);

    fn record(key: u64, range: ServiceRange, exclusive: bool) -> Binding {
        let (op, scope) = (BindingOp::Publish, Scope::Cluster);
        Binding { op, range, port: PortId(9), key, scope, weight: 1, exclusive }
    }

    #[test]
    fn what_is_in_the_way_and_can_be_seen_is_refused() {
        let mut table = Table::new(OWN);
        publish(&mut table, 1, ServiceRange::new(100, 0, 10), 1, 1);
        let taken = |by: u64| Err(BindError::Taken { by: NodeId(by) });
        assert_eq!(table.bind_exclusive(port(1), RANGE, Scope::Cluster), taken(1));
        assert!(table.bind_exclusive(port(1), RANGE, Scope::Node).is_ok(), "others do not know of this one");
        assert_eq!(table.bind_exclusive(port(1), RANGE, Scope::Node), taken(OWN.0));
        assert_eq!(table.bind(port(2), ServiceRange::new(100, 0, 10), Scope::Cluster, 1), taken(OWN.0));
        table.unbind_port(port(1));
        table.purge(NodeId(1));
        assert!(table.bind_exclusive(port(1), RANGE, Scope::Cluster).is_ok());
        for (lower, upper) in [(0, 10), (19, 30), (12, 12), (0, u32::MAX)] {
            assert_eq!(
                table.bind(port(2), ServiceRange::new(100, lower, upper), Scope::Node, 1),
                taken(OWN.0)
            );
        }
        for range in
            [ServiceRange::new(100, 0, 9), ServiceRange::new(100, 20, 30), ServiceRange::new(101, 9, 20)]
        {
            assert!(table.bind(port(2), range, Scope::Cluster, 1).is_ok(), "{range} is beside it");
        }
        table.unbind(port(1), RANGE, Scope::Cluster).unwrap();
        assert!(table.bind(port(2), RANGE, Scope::Cluster, 1).is_ok());
        assert!(table.exclusives.is_empty());
    }

    #[test]
    fn of_two_made_at_the_same_time_both_sides_name_the_same_one() {
        for (left, right) in [(3u64, 5u64), (5, 3)] {
            let mut tables = [left, right].map(|node| Table::new(NodeId(node)));
            let keys =
                tables.each_mut().map(|table| table.bind_exclusive(port(1), RANGE, Scope::Cluster).unwrap());
            let beaten = [(0, right), (1, left)].map(|(at, other)| {
                let theirs = record(keys[1 - at], ServiceRange::new(100, 15, 30), true);
                !tables[at].beaten_by(NodeId(other), &theirs).is_empty()
            });
            assert_eq!(beaten, [left > right, right > left]);
        }
    }

    #[test]
    fn an_exclusive_binding_gives_way_to_one_that_is_not() {
        let mut table = Table::new(NodeId(3));
        let key = table.bind_exclusive(port(1), RANGE, Scope::Cluster).unwrap();
        assert!(table.beaten_by(NodeId(5), &record(1, ServiceRange::new(100, 20, 30), false)).is_empty());
        assert_eq!(table.beaten_by(NodeId(5), &record(1, ServiceRange::new(100, 19, 30), false)), [key]);
        assert!(table.beaten_by(NodeId(5), &record(1, RANGE, true)).is_empty());
        assert_eq!(table.withdraw(key), Some((port(1), RANGE)));
        assert_eq!((table.withdraw(key), table.len()), (None, 0));
        table.bind(port(1), RANGE, Scope::Cluster, 1).unwrap();
        assert!(table.beaten_by(NodeId(1), &record(1, RANGE, true)).is_empty(), "the other gives way");
    }

    #[test]
    fn one_that_only_its_node_knows_gives_way_to_nobody() {
        let mut table = Table::new(NodeId(3));
        table.bind_exclusive(port(1), RANGE, Scope::Node).unwrap();
        assert!(table.beaten_by(NodeId(1), &record(1, RANGE, true)).is_empty());
    }
}
