//! The service table: bindings by service range (protocol.md §7.1, §7.3).
//!
//! Ranges overlap freely, and a look-up asks for all that contain one instance. The ranges of a kind form an
//! implicit interval tree over the 32-bit instances: a range belongs to the lowest aligned block that holds it
//! whole, hence contains that block's middle. An instance lies in one block per level, and in each the ranges that
//! contain it are a prefix of the order by first (or by last) instance. So a look-up costs O(log n) for each level
//! in use by the kind (one if all its ranges are single instances, at most 33) plus one step per range found;
//! a change costs O(log n) plus moving the other bindings of the very same range.

mod exclusive;
mod lookup;

pub use lookup::Lookup;

use crate::address::{Scope, ServiceAddress, ServiceRange, USER_KIND_MIN};
use crate::id::{NodeId, PortAddress, PortId};
use crate::limits;
use crate::wire::{Binding, BindingOp};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

const LEVELS: usize = 33;

/// Why a range could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Kinds below 64 belong to the system.
    #[error("service kinds below 64 are reserved")]
    Reserved,
    /// The first instance is larger than the last.
    #[error("the range is inverted")]
    Inverted,
    /// The port has [`limits::BINDINGS_PORT_MAX`] bindings, or the node [`limits::BINDINGS_NODE_MAX`].
    #[error("too many bindings")]
    TooMany,
    /// It wants to be the only one and is not, or somebody else does.
    #[error("taken by node {by}")]
    Taken {
        /// Whose binding is in the way.
        by: NodeId,
    },
}

/// There is no such binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not bound")]
pub struct NotBound;

/// What a peer's record did to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// A new binding.
    Published,
    /// One less.
    Withdrawn,
    /// Nothing: known already, or never known.
    Unchanged,
    /// Nothing: an inverted range, a binding that is not for the cluster, or one that claims to be ours.
    Refused,
    /// Nothing: there are [`limits::BINDINGS_NODE_MAX`] bindings of that node, or [`limits::BINDINGS_MAX`] in all.
    Full,
}

/// Where a message to a service address goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// To this port.
    To(PortAddress),
    /// There are ports, but none is ready.
    AllBusy,
    /// Nobody is bound.
    None,
}

/// One binding of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The node.
    pub node: NodeId,
    /// Unique on that node.
    pub key: u64,
    /// The port.
    pub port: PortId,
    /// How far it is known.
    pub scope: Scope,
    /// Share among the bindings of one service; 0 counts as 1.
    pub weight: u8,
    /// It wants to be the only one of its range.
    pub exclusive: bool,
}

impl Bound {
    /// The port with its node.
    pub fn address(&self) -> PortAddress {
        PortAddress { node: self.node, port: self.port }
    }

    /// What it adds to the hash of its node's bindings.
    fn hash(&self, range: ServiceRange) -> u64 {
        let &Bound { port, key, scope, weight, exclusive, .. } = self;
        Binding { op: BindingOp::Publish, range, port, key, scope, weight, exclusive }.hash()
    }
}

/// A binding that came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which of the two.
    pub op: BindingOp,
    /// What was bound.
    pub range: ServiceRange,
    /// Who bound it.
    pub bound: Bound,
    /// No other binding has exactly this range: it is the first one, or was the last one.
    pub alone: bool,
}

/// Where a binding stands in the order in which [`Table::overlapping_after`] goes through them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    place: Place,
    node: NodeId,
    key: u64,
}

impl Spot {
    /// That of a binding.
    pub fn of(range: ServiceRange, bound: &Bound) -> Spot {
        Spot { place: place_of(range), node: bound.node, key: bound.key }
    }

    /// Behind all bindings of the very same range.
    pub fn behind(range: ServiceRange) -> Spot {
        Spot { place: place_of(range), node: NodeId(u64::MAX), key: u64::MAX }
    }
}

/// All bindings known to a node.
#[derive(Clone, Debug)]
pub struct Table {
    own: NodeId,
    services: BTreeMap<Place, Service>,
    /// The same ranges by last instance, largest first: (slot, complement of the last instance, first instance).
    by_upper: BTreeSet<(Slot, u32, u32)>,
    /// Ranges per level, for each kind in use.
    levels: BTreeMap<u32, [u32; LEVELS]>,
    records: BTreeMap<(NodeId, u64), Record>,
    own_records: BTreeSet<(PortId, ServiceRange, Scope, u64)>,
    /// How much each own port has bound.
    own_ports: BTreeMap<PortId, usize>,
    /// What each other node has bound.
    shares: BTreeMap<NodeId, Share>,
    /// Exclusive bindings of each kind that has any.
    exclusives: BTreeMap<u32, u32>,
    next_key: u64,
    generation: u64,
    /// What changed since it was asked for; nothing is kept while nobody wants to know.
    changes: Option<Vec<Change>>,
}

/// A block of 2^level instances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot {
    kind: u32,
    level: u8,
    prefix: u32,
}

/// A range in the tree: slot, first, last instance.
type Place = (Slot, u32, u32);

#[derive(Clone, Copy, Debug)]
struct Record {
    range: ServiceRange,
    port: PortId,
    scope: Scope,
}

/// All that one node has bound: how much, and the sum of the hashes.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bindings: usize,
    hash: u64,
}

/// The bindings of one range, by node and key, and whose turn it is.
#[derive(Clone, Debug, Default)]
struct Service {
    bounds: SmallVec<[Bound; 1]>,
    own_turn: Turn,
    cluster_turn: Turn,
    any_turn: Turn,
}

/// Interleaved weighted round robin: a binding of weight w is served in w of the 255 rounds that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    round: u8,
    next: usize,
}

impl Table {
    /// An empty table of node `own`.
    pub fn new(own: NodeId) -> Self {
        Table {
            own,
            services: BTreeMap::new(),
            by_upper: BTreeSet::new(),
            levels: BTreeMap::new(),
            records: BTreeMap::new(),
            own_records: BTreeSet::new(),
            own_ports: BTreeMap::new(),
            shares: BTreeMap::new(),
            exclusives: BTreeMap::new(),
            next_key: 1,
            generation: 0,
            changes: None,
        }
    }

    /// Binds an own port to `range` and returns the binding's key, unique for the life of the node. The same port may
    /// bind the same range again: each binding counts.
    ///
    /// # Errors
    /// A reserved kind, an inverted range, too many bindings, or an exclusive one that overlaps it.
    pub fn bind(
        &mut self,
        port: PortId,
        range: ServiceRange,
        scope: Scope,
        weight: u8,
    ) -> Result<u64, BindError> {
        self.admit(port, range)?;
        if self.has_exclusive(range.kind) {
            self.check_taken(range, |bound| bound.exclusive)?;
        }
        let bound = Bound { node: self.own, key: self.next_key, port, scope, weight, exclusive: false };
        Ok(self.insert_own(range, bound))
    }

    /// The same with a binding that wants to be the only one of its range: of all that this node knows, or, if its scope
    /// is the node, of the node's own ones.
    ///
    /// # Errors
    /// As above, or any other binding that overlaps it.
    pub fn bind_exclusive(
        &mut self,
        port: PortId,
        range: ServiceRange,
        scope: Scope,
    ) -> Result<u64, BindError> {
        self.admit(port, range)?;
        let own = self.own;
        self.check_taken(range, |bound| scope == Scope::Cluster || bound.node == own || bound.exclusive)?;
        let bound = Bound { node: own, key: self.next_key, port, scope, weight: 1, exclusive: true };
        Ok(self.insert_own(range, bound))
    }

    fn admit(&self, port: PortId, range: ServiceRange) -> Result<(), BindError> {
        if range.kind < USER_KIND_MIN {
            return Err(BindError::Reserved);
        }
        if range.lower > range.upper {
            return Err(BindError::Inverted);
        }
        let of_port = self.bindings_of(port);
        if self.own_records.len() >= limits::BINDINGS_NODE_MAX || of_port >= limits::BINDINGS_PORT_MAX {
            return Err(BindError::TooMany);
        }
        Ok(())
    }

    /// How many bindings an own port has.
    pub fn bindings_of(&self, port: PortId) -> usize {
        self.own_ports.get(&port).copied().unwrap_or(0)
    }

    fn insert_own(&mut self, range: ServiceRange, bound: Bound) -> u64 {
        self.next_key += 1;
        self.own_records.insert((bound.port, range, bound.scope, bound.key));
        *self.own_ports.entry(bound.port).or_default() += 1;
        self.insert(range, bound);
        bound.key
    }

    /// Takes back the oldest binding of an own port to exactly this range and scope; returns its key.
    ///
    /// # Errors
    /// There is none.
    pub fn unbind(&mut self, port: PortId, range: ServiceRange, scope: Scope) -> Result<u64, NotBound> {
        let all = (port, range, scope, 0)..=(port, range, scope, u64::MAX);
        let key = self.own_records.range(all).next().ok_or(NotBound)?.3;
        self.remove(self.own, key);
        Ok(key)
    }

    /// Takes back everything that an own port has bound; returns the keys.
    pub fn unbind_port(&mut self, port: PortId) -> Vec<u64> {
        let first = (port, ServiceRange::default(), Scope::Cluster, 0);
        let keys: Vec<u64> =
            self.own_records.range(first..).take_while(|r| r.0 == port).map(|r| r.3).collect();
        for key in &keys {
            self.remove(self.own, *key);
        }
        keys
    }

    /// Applies a record of `node`'s log.
    pub fn apply(&mut self, node: NodeId, record: &Binding) -> Applied {
        let Binding { range, port, key, scope, weight, exclusive, .. } = *record;
        if node == self.own || range.lower > range.upper || scope != Scope::Cluster {
            return Applied::Refused;
        }
        let known = self.records.contains_key(&(node, key));
        match record.op {
            BindingOp::Publish if known => Applied::Unchanged,
            BindingOp::Publish if self.is_full_for(node) => Applied::Full,
            BindingOp::Publish => {
                self.insert(range, Bound { node, key, port, scope, weight, exclusive });
                Applied::Published
            }
            BindingOp::Withdraw if known => {
                self.remove(node, key);
                Applied::Withdrawn
            }
            BindingOp::Withdraw => Applied::Unchanged,
        }
    }

    fn is_full_for(&self, node: NodeId) -> bool {
        let share = self.shares.get(&node).map_or(0, |share| share.bindings);
        share >= limits::BINDINGS_NODE_MAX || self.records.len() >= limits::BINDINGS_MAX
    }

    /// Forgets everything that `node` has bound; returns what it was.
    pub fn purge(&mut self, node: NodeId) -> Vec<(PortId, ServiceRange)> {
        let records = self.records.range((node, 0)..=(node, u64::MAX));
        let gone: Vec<_> = records.map(|(id, r)| (id.1, r.port, r.range)).collect();
        for (key, ..) in &gone {
            self.remove(node, *key);
        }
        gone.into_iter().map(|(_, port, range)| (port, range)).collect()
    }

    /// Forgets what `node` has bound, but for one binding (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn purge_all_but_first(&mut self, node: NodeId) {
        let records = self.records.range((node, 0)..=(node, u64::MAX));
        let keys: Vec<u64> = records.map(|(id, _)| id.1).skip(1).collect();
        keys.into_iter().for_each(|key| self.remove(node, key));
    }

    /// All ports bound to `address`, each once, sorted.
    pub fn lookup(&self, address: ServiceAddress) -> SmallVec<[PortAddress; 8]> {
        let bounds = self.places_of(address).into_iter().flat_map(|p| &self.services[&p].bounds);
        distinct(bounds)
    }

    /// All ports bound to any instance of `range`, each once, sorted: the receivers of a multicast.
    pub fn lookup_range(&self, range: ServiceRange) -> SmallVec<[PortAddress; 8]> {
        distinct(self.overlapping(range).map(|(_, bound)| bound))
    }

    /// All bindings that share an instance with `range`.
    pub fn overlapping(&self, range: ServiceRange) -> impl Iterator<Item = (ServiceRange, &Bound)> {
        let ServiceRange { kind, lower, upper } = range;
        self.levels_of(kind).flat_map(move |level| {
            let from = (Slot::around(kind, level, lower), 0, 0);
            let to = (Slot::around(kind, level, upper), u32::MAX, u32::MAX);
            let inside = self.services.range(from..=to.max(from));
            let inside = inside.filter(move |(place, _)| place.1 <= upper && lower <= place.2);
            inside.flat_map(move |(place, service)| {
                let range = ServiceRange::new(kind, place.1, place.2);
                service.bounds.iter().map(move |bound| (range, bound))
            })
        })
    }

    /// The same in a fixed order, from behind `after` on. However the table changes meanwhile, who goes on from the spot
    /// that he saw last misses nothing that stayed, and sees nothing twice.
    pub fn overlapping_after(
        &self,
        range: ServiceRange,
        after: Option<Spot>,
    ) -> impl Iterator<Item = (ServiceRange, &Bound)> {
        let ServiceRange { kind, lower, upper } = range;
        let from_level = after.map_or(0, |spot| spot.place.0.level);
        self.levels_of(kind).skip_while(move |level| *level < from_level).flat_map(move |level| {
            let to: Place = (Slot::around(kind, level, upper), u32::MAX, u32::MAX);
            let from: Place = (Slot::around(kind, level, lower), 0, 0);
            let from = after.map_or(from, |spot| from.max(spot.place)).min(to);
            let inside = self.services.range(from..=to);
            let inside = inside.filter(move |(place, _)| place.1 <= upper && lower <= place.2);
            inside.flat_map(move |(place, service)| {
                let start = match after {
                    Some(spot) if *place < spot.place => service.bounds.len(),
                    Some(spot) if *place == spot.place => {
                        service.bounds.partition_point(|b| (b.node, b.key) <= (spot.node, spot.key))
                    }
                    _ => 0,
                };
                let range = ServiceRange::new(kind, place.1, place.2);
                service.bounds[start..].iter().map(move |bound| (range, bound))
            })
        })
    }

    /// From now on, keeps what changes for [`Table::take_changes`], or no longer.
    pub fn keep_changes(&mut self, keep: bool) {
        if keep != self.changes.is_some() {
            self.changes = keep.then(Vec::new);
        }
    }

    /// What changed since the last call, in order. Whoever keeps changes asks after each call that may change something.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// All bindings, sorted by node, port and range.
    pub fn list(&self) -> impl Iterator<Item = (NodeId, PortId, ServiceRange, Scope)> + use<> {
        let mut all: Vec<_> = self.records.iter().map(|(id, r)| (id.0, r.port, r.range, r.scope)).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Number of bindings.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nobody is bound to anything.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The sum of the hashes of all that another node has bound, as this table has it (protocol.md §7.2).
    pub fn hash_of(&self, node: NodeId) -> u64 {
        self.shares.get(&node).map_or(0, |share| share.hash)
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn insert(&mut self, range: ServiceRange, bound: Bound) {
        let place = place_of(range);
        let service = self.services.entry(place).or_insert_with(|| {
            self.by_upper.insert((place.0, !place.2, place.1));
            self.levels.entry(range.kind).or_insert([0; LEVELS])[place.0.level as usize] += 1;
            Service::default()
        });
        let at = service.bounds.partition_point(|b| (b.node, b.key) < (bound.node, bound.key));
        service.bounds.insert(at, bound);
        if let Some(changes) = &mut self.changes {
            changes.push(Change { op: BindingOp::Publish, range, bound, alone: service.bounds.len() == 1 });
        }
        if bound.exclusive {
            *self.exclusives.entry(range.kind).or_default() += 1;
        }
        let record = Record { range, port: bound.port, scope: bound.scope };
        self.records.insert((bound.node, bound.key), record);
        if bound.node != self.own {
            let share = self.shares.entry(bound.node).or_default();
            share.bindings += 1;
            share.hash = share.hash.wrapping_add(bound.hash(range));
        }
        self.generation += 1;
    }

    fn remove(&mut self, node: NodeId, key: u64) {
        let Some(record) = self.records.remove(&(node, key)) else { return };
        if node == self.own {
            self.own_records.remove(&(record.port, record.range, record.scope, key));
            self.forget_own(record.port);
        }
        let mut exclusive = false;
        let place = place_of(record.range);
        let Some(service) = self.services.get_mut(&place) else { return };
        if let Ok(at) = service.bounds.binary_search_by_key(&(node, key), |b| (b.node, b.key)) {
            let bound = service.bounds.remove(at);
            exclusive = bound.exclusive;
            if let Some(share) = self.shares.get_mut(&node) {
                share.bindings -= 1;
                share.hash = share.hash.wrapping_sub(bound.hash(record.range));
                if share.bindings == 0 {
                    self.shares.remove(&node);
                }
            }
            if let Some(changes) = &mut self.changes {
                let (range, alone) = (record.range, service.bounds.is_empty());
                changes.push(Change { op: BindingOp::Withdraw, range, bound, alone });
            }
        }
        if service.bounds.is_empty() {
            self.services.remove(&place);
            self.forget_place(place);
        }
        if exclusive {
            self.forget_exclusive(record.range.kind);
        }
        self.generation += 1;
    }

    fn forget_own(&mut self, port: PortId) {
        let Some(count) = self.own_ports.get_mut(&port) else { return };
        *count -= 1;
        if *count == 0 {
            self.own_ports.remove(&port);
        }
    }

    fn forget_place(&mut self, place: Place) {
        let kind = place.0.kind;
        self.by_upper.remove(&(place.0, !place.2, place.1));
        let Some(levels) = self.levels.get_mut(&kind) else { return };
        levels[place.0.level as usize] -= 1;
        if *levels == [0; LEVELS] {
            self.levels.remove(&kind);
        }
    }

    /// Levels that ranges of `kind` are on.
    fn levels_of(&self, kind: u32) -> impl Iterator<Item = u8> + use<> {
        let counts = self.levels.get(&kind).copied().unwrap_or([0; LEVELS]);
        (0..LEVELS as u8).filter(move |level| counts[*level as usize] > 0)
    }

    /// The ranges that contain `address`, narrow blocks first.
    fn places_of(&self, address: ServiceAddress) -> SmallVec<[Place; 4]> {
        let ServiceAddress { kind, instance } = address;
        let mut places = SmallVec::new();
        for level in self.levels_of(kind) {
            let slot = Slot::around(kind, level, instance);
            if instance < slot.middle() {
                let left = self.services.range((slot, 0, 0)..=(slot, instance, u32::MAX));
                places.extend(left.map(|(place, _)| *place));
            } else {
                let right = self.by_upper.range((slot, 0, 0)..=(slot, !instance, u32::MAX));
                places.extend(right.map(|r| (slot, r.2, !r.1)));
            }
        }
        places
    }
}

impl Slot {
    /// The block of 2^`level` instances around `instance`.
    fn around(kind: u32, level: u8, instance: u32) -> Slot {
        Slot { kind, level, prefix: ((instance as u64) >> level) as u32 }
    }

    /// First instance of the block's upper half: every range of this slot contains it and the one before it (a
    /// block of one instance is its own middle).
    fn middle(&self) -> u32 {
        (((self.prefix as u64) << self.level) | ((1u64 << self.level) >> 1)) as u32
    }
}

/// The lowest aligned block that holds the whole range.
fn place_of(range: ServiceRange) -> Place {
    let level = 32 - (range.lower ^ range.upper).leading_zeros() as u8;
    (Slot::around(range.kind, level, range.lower), range.lower, range.upper)
}

fn distinct<'a>(bounds: impl Iterator<Item = &'a Bound>) -> SmallVec<[PortAddress; 8]> {
    let mut ports: SmallVec<[PortAddress; 8]> = bounds.map(Bound::address).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests;
