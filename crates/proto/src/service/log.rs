//! A node's publications as a log with one writer, and its replicas (protocol.md §7.2).
//!
//! Every publish and withdraw has a number. A peer that starts gets the live set, numbered so that it ends where the
//! log stands, and from there on each operation. Operations that every peer has got are forgotten; what a peer
//! holds depends on the numbers alone, so there are no clocks and no conflicts.

use crate::address::{Scope, ServiceRange};
use crate::id::{Incarnation, PortId};
use crate::wire::{Binding, BindingOp};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included};

/// Most operations kept for peers that lag. One further behind has to start again.
pub const OPERATIONS_MAX: usize = 65_536;

/// The operations asked for are forgotten: the peer has to start again from a snapshot, in a new session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log no longer reaches back so far")]
pub struct Behind;

/// A node's own publications.
#[derive(Clone, Debug)]
pub struct Log {
    /// Number of the first operation kept.
    first: u64,
    operations: VecDeque<Binding>,
    live: BTreeMap<u64, Binding>,
    /// Sum of the hashes of what lives.
    hash: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

impl Log {
    /// An empty log. The first operation will be number 1.
    pub fn new() -> Self {
        Log { first: 1, operations: VecDeque::new(), live: BTreeMap::new(), hash: 0 }
    }

    /// Publishes the binding `key`; returns the operation's number. Bindings of node scope do not belong here.
    pub fn publish(&mut self, key: u64, port: PortId, range: ServiceRange, weight: u8) -> u64 {
        let (op, scope, exclusive) = (BindingOp::Publish, Scope::Cluster, false);
        self.publish_record(Binding { op, range, port, key, scope, weight, exclusive })
    }

    /// Publishes a binding that wants to be the only one of its range.
    pub fn publish_exclusive(&mut self, key: u64, port: PortId, range: ServiceRange) -> u64 {
        let (op, scope, weight, exclusive) = (BindingOp::Publish, Scope::Cluster, 1, true);
        self.publish_record(Binding { op, range, port, key, scope, weight, exclusive })
    }

    fn publish_record(&mut self, record: Binding) -> u64 {
        let old = self.live.insert(record.key, record);
        assert!(old.is_none(), "the keys of bindings are unique for the life of a node");
        self.hash = self.hash.wrapping_add(record.hash());
        self.push(record)
    }

    /// Withdraws the binding `key`; returns the operation's number, or `None` if it is not published.
    pub fn withdraw(&mut self, key: u64) -> Option<u64> {
        let record = self.live.remove(&key)?;
        self.hash = self.hash.wrapping_sub(record.hash());
        Some(self.push(Binding { op: BindingOp::Withdraw, ..record }))
    }

    /// Number of the last operation; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.first + self.operations.len() as u64 - 1
    }

    /// The sum of the hashes of all bindings that live: what every replica's should be.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The operations from number `seq` on, with their numbers.
    ///
    /// # Errors
    /// Some of them are forgotten.
    pub fn entries_from(&self, seq: u64) -> Result<impl Iterator<Item = (u64, &Binding)>, Behind> {
        let skip = seq.checked_sub(self.first).ok_or(Behind)?;
        let skip = skip.min(self.operations.len() as u64) as usize;
        Ok(self.operations.range(skip..).enumerate().map(move |(n, record)| (seq + n as u64, record)))
    }

    /// Forgets the operations below number `seq`: every peer has them, or will start with a snapshot.
    pub fn trim(&mut self, seq: u64) {
        while self.first < seq && self.operations.pop_front().is_some() {
            self.first += 1;
        }
    }

    fn push(&mut self, record: Binding) -> u64 {
        self.operations.push_back(record);
        if self.operations.len() > OPERATIONS_MAX {
            self.operations.pop_front();
            self.first += 1;
        }
        self.last()
    }
}

/// What one peer still has to be told: first the live set as it was when the session came up, then each operation
/// since.
#[derive(Clone, Debug)]
pub struct Feed {
    snapshot: Snapshot,
    next: u64,
}

/// The part of the live set that is still to be told. It is read from the log as it is told, so that a large log is not
/// copied for each peer.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    /// Keys up to this one were told.
    after: u64,
    /// Bindings with larger keys are operations that follow.
    last: u64,
    /// Records to come. The number of the first was fixed with the first, so none may be missing.
    left: u64,
}

impl Snapshot {
    /// Appends the next records, at most `max`. A binding that was withdrawn before its turn came leaves a gap, which
    /// is filled at the end by withdrawals of a binding that never was.
    fn take(&mut self, log: &Log, max: usize, out: &mut Vec<Binding>) {
        let (before, count) = (out.len(), self.left.min(max as u64) as usize);
        if self.after < self.last && count > 0 {
            let rest = log.live.range((Excluded(self.after), Included(self.last)));
            out.extend(rest.take(count).map(|(_, record)| *record));
            self.after = out[before..].last().map_or(self.last, |record| record.key);
        }
        if out.len() < before + count {
            self.after = self.last;
            out.resize(before + count, NOTHING);
        }
        self.left -= count as u64;
    }
}

/// Keys begin at 1, so this takes nothing back.
const NOTHING: Binding = Binding {
    op: BindingOp::Withdraw,
    range: ServiceRange::new(0, 0, 0),
    port: PortId(0),
    key: 0,
    scope: Scope::Cluster,
    weight: 0,
    exclusive: false,
};

impl Feed {
    /// Starts to feed a peer that knows nothing. The live set is numbered so that its last record gets the number of the
    /// log's last operation. (Each live binding was an operation, so there are enough numbers.)
    pub fn new(log: &Log) -> Self {
        let left = log.live.len() as u64;
        let last = log.live.last_key_value().map_or(0, |(key, _)| *key);
        Feed { snapshot: Snapshot { after: 0, last, left }, next: log.last() + 1 - left }
    }

    /// Number of the next record that the peer gets.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends at most `max` records to `out`; returns the number of the first, or `None` if the peer has got all.
    ///
    /// # Errors
    /// The peer is too far behind.
    pub fn take(&mut self, log: &Log, max: usize, out: &mut Vec<Binding>) -> Result<Option<u64>, Behind> {
        let (seq, before) = (self.next, out.len());
        if self.snapshot.left == 0 {
            out.extend(log.entries_from(seq)?.take(max).map(|(_, record)| *record));
        } else {
            self.snapshot.take(log, max, out);
        }
        self.next += (out.len() - before) as u64;
        Ok((out.len() > before).then_some(seq))
    }

    /// Whether the peer has been told everything.
    pub fn is_done(&self, log: &Log) -> bool {
        self.next > log.last()
    }

    /// Whether the peer has been told operation `seq` and all before it.
    pub fn has_told(&self, seq: u64) -> bool {
        self.snapshot.left == 0 && self.next > seq
    }

    /// Number of the first operation of the log that this peer will need: what [`Log::trim`] may go up to. While the
    /// snapshot is under way that is the first operation after it.
    pub fn needs_from(&self) -> u64 {
        self.next + self.snapshot.left
    }
}

/// What to do with records that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Records are missing before them: keep nothing of them.
    Gap,
    /// All of them were applied before.
    Duplicate,
    /// Apply them, without so many at the front.
    Apply(usize),
}

/// How far a peer's log was applied here.
///
/// A new replica starts wherever the first records say, for they are the snapshot: they must come in the order in
/// which the session's control frames were sent (protocol.md §5.5). From there on nothing is ever skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Which life of the peer.
    pub incarnation: Incarnation,
    /// Number of the last operation applied; `None` before the first.
    pub applied: Option<u64>,
    /// It was found to be wrong, and the log was asked for again: what comes before that begins is of no use.
    pub asked: bool,
    /// Records found no room, so it is no wonder if it is not what it should be.
    pub cut: bool,
}

impl Replica {
    /// A replica of a log of which nothing is known yet.
    pub fn new(incarnation: Incarnation) -> Self {
        Replica { incarnation, applied: None, asked: false, cut: false }
    }

    /// Takes in that `count` records from number `log_seq` on are here, and says what to do with them.
    pub fn apply(&mut self, log_seq: u64, count: usize) -> Step {
        let Some(last) = log_seq.checked_add(count as u64).and_then(|end| end.checked_sub(1)) else {
            return Step::Gap;
        };
        let applied = match self.applied {
            _ if log_seq == 0 => return Step::Gap,
            None => log_seq - 1,
            Some(applied) => applied,
        };
        if log_seq > applied + 1 {
            return Step::Gap;
        }
        if last <= applied {
            return Step::Duplicate;
        }
        self.applied = Some(last);
        Step::Apply((applied + 1 - log_seq) as usize)
    }
}

#[cfg(test)]
mod tests;
