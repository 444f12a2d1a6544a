//! I12: messages to several. Every port that was bound before the send, as the sender's node knew, and stayed bound, gets
//! it once, in the order of its sender; nobody gets it who never bound any of the range.

use super::PortKey;
use crate::content;
use crate::queue::TimeNs;
use crate::subject::FailReason;
use polyrail_proto::address::ServiceRange;
use std::collections::{BTreeMap, BTreeSet};

/// What an objection says.
pub type Verdict = Result<(), String>;

/// Marks the numbers of messages to several among those of all messages.
const CAST: u64 = 1 << 61;

#[derive(Debug)]
struct Record {
    from: PortKey,
    range: ServiceRange,
    class: u8,
    bytes: usize,
    at_ns: TimeNs,
    /// Ports that must get it.
    owed: BTreeSet<PortKey>,
    /// Ports that have got it.
    got: BTreeSet<PortKey>,
}

/// All messages to several of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    records: Vec<Record>,
    /// The number behind that of the last one that a port got from another, by class.
    flows: BTreeMap<(PortKey, PortKey, u8), usize>,
    /// What each port ever bound, and whether for the cluster.
    bound: BTreeMap<PortKey, Vec<(ServiceRange, bool)>>,
    /// Those of which some port has not got its copy yet.
    open: BTreeSet<usize>,
}

fn overlap(a: ServiceRange, b: ServiceRange) -> bool {
    a.kind == b.kind && a.lower <= b.upper && b.lower <= a.upper
}

/// The place of a message to several, if `id` is the number of one.
pub const fn index_of(id: u64) -> Option<usize> {
    if id & CAST != 0 && id >> 62 == 0 { Some((id & !CAST) as usize) } else { None }
}

impl Ledger {
    /// The number of the next one.
    pub fn next_id(&self) -> u64 {
        CAST | self.records.len() as u64
    }

    /// How many were sent, and how many copies have arrived.
    pub fn totals(&self) -> (u64, u64) {
        (self.records.len() as u64, self.records.iter().map(|record| record.got.len() as u64).sum())
    }

    /// One was accepted; `owed` are the ports that have bound something of the range, as the sender's node knows.
    pub fn on_sent(
        &mut self,
        at_ns: TimeNs,
        from: PortKey,
        range: ServiceRange,
        (class, bytes): (u8, usize),
        owed: BTreeSet<PortKey>,
    ) {
        if !owed.is_empty() {
            self.open.insert(self.records.len());
        }
        self.records.push(Record { from, range, class, bytes, at_ns, owed, got: BTreeSet::new() });
    }

    /// A copy reached an application; `from` is who sent it, as its node says.
    pub fn on_received(&mut self, index: usize, to: PortKey, from: (usize, u32), bytes: &[u8]) -> Verdict {
        let Some(record) = self.records.get_mut(index) else {
            return Err(format!("{to} got multicast {index}, which nobody sent"));
        };
        let twice = !record.got.insert(to);
        record.owed.remove(&to);
        if record.owed.is_empty() {
            self.open.remove(&index);
        }
        let flow = self.flows.entry((record.from, to, record.class)).or_default();
        let late = index < *flow;
        *flow = (*flow).max(index + 1);
        let reaches = |(range, cluster): &(ServiceRange, bool)| {
            overlap(*range, record.range) && (*cluster || record.from.node == to.node)
        };
        let meant = self.bound.get(&to).is_some_and(|bound| bound.iter().any(reaches));
        let objection = if twice {
            "a second time"
        } else if late {
            "after a later one"
        } else if !meant {
            "although it never bound any of the range"
        } else if (record.from.node, record.from.port) != from {
            "as if from another port"
        } else if bytes.len() != record.bytes {
            "with another length"
        } else if content::first_difference(CAST | index as u64, bytes).is_some() {
            "with other bytes"
        } else {
            return Ok(());
        };
        Err(format!("{to} got {} {objection}", self.about(index)))
    }

    /// The sender was told that a copy failed. `excused`: its node may hold another for lost.
    pub fn on_failed(&self, index: usize, reason: FailReason, excused: bool) -> Verdict {
        let justified = match reason {
            FailReason::Indeterminate | FailReason::NotSent => excused,
            // Said at the door: names and nodes are known a little later than they come about.
            FailReason::NoService | FailReason::NoNode => true,
            FailReason::NoPort | FailReason::TooLarge | FailReason::Invalid => false,
            // It asks for none of that.
            FailReason::Expired | FailReason::Overload | FailReason::ShutDown => false,
        };
        if justified {
            Ok(())
        } else {
            Err(format!("{} failed ({reason:?}) without cause", self.about(index)))
        }
    }

    /// A port binds.
    pub fn on_bound(&mut self, port: PortKey, range: ServiceRange, cluster: bool) {
        self.bound.entry(port).or_default().push((range, cluster));
    }

    /// A port gave a binding up: what is on its way may reach it or not.
    pub fn on_unbound(&mut self, port: PortKey, range: ServiceRange) {
        self.release(|record, owed| *owed == port && overlap(record.range, range));
    }

    /// A port is gone: nobody owes it anything, and what it sent may not get out.
    pub fn on_port_gone(&mut self, port: PortKey) {
        self.release(|record, owed| *owed == port || record.from == port);
    }

    fn release(&mut self, which: impl Fn(&Record, &PortKey) -> bool) {
        let records = &mut self.records;
        self.open.retain(|index| {
            let record = &mut records[*index];
            let owed = std::mem::take(&mut record.owed);
            record.owed = owed.into_iter().filter(|owed| !which(record, owed)).collect();
            !record.owed.is_empty()
        });
    }

    /// The first that a port must still get; `excused` says of which nodes' sessions nothing may be expected.
    pub fn missing(&self, excused: impl Fn(usize, usize) -> bool) -> Option<String> {
        self.open.iter().find_map(|index| {
            let record = &self.records[*index];
            let mut owed = record.owed.iter();
            let to = owed.find(|to| to.node == record.from.node || !excused(record.from.node, to.node))?;
            Some(format!("{to} never got {}", self.about(*index)))
        })
    }

    fn about(&self, index: usize) -> String {
        let Some(Record { from, range, class, bytes, at_ns, .. }) = self.records.get(index) else {
            return String::new();
        };
        let at_us = at_ns / 1_000;
        format!(
            "multicast {index} ({bytes} bytes of class {class} from {from} to {range}, sent at {at_us} us)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::fill;

    const A: PortKey = PortKey { node: 0, life: 0, port: 11 };
    const B: PortKey = PortKey { node: 1, life: 0, port: 22 };
    const C: PortKey = PortKey { node: 2, life: 0, port: 33 };
    const ALL: ServiceRange = ServiceRange::new(1_000, 0, 7);

    /// B and C have bound all, and A has sent two messages to both.
    fn sent() -> Ledger {
        let mut ledger = Ledger::default();
        for port in [B, C] {
            ledger.on_bound(port, ALL, true);
        }
        for at_ns in 0..2 {
            ledger.on_sent(at_ns, A, ServiceRange::new(1_000, 3, 4), (2, 100), [B, C].into());
        }
        ledger
    }

    fn receive(ledger: &mut Ledger, index: usize, to: PortKey) -> Verdict {
        let mut bytes = Vec::new();
        fill(CAST | index as u64, 100, &mut bytes);
        ledger.on_received(index, to, (A.node, A.port), &bytes)
    }

    fn finds(verdict: Verdict, what: &str) {
        let objection = verdict.unwrap_err();
        assert!(objection.contains(what), "{objection}");
    }

    #[test]
    fn a_good_run_is_good() {
        let mut ledger = sent();
        for index in 0..2 {
            for to in [B, C] {
                assert!(ledger.missing(|_, _| false).is_some());
                receive(&mut ledger, index, to).unwrap();
            }
        }
        assert_eq!((ledger.missing(|_, _| false), ledger.totals()), (None, (2, 4)));
        assert_eq!((index_of(CAST | 7), index_of(7), index_of(1 << 60)), (Some(7), None, None));
    }

    #[test]
    fn a_second_copy_a_changed_order_and_a_stranger_are_found() {
        let mut ledger = sent();
        receive(&mut ledger, 0, B).unwrap();
        finds(receive(&mut ledger, 0, B), "a second time");
        receive(&mut ledger, 1, C).unwrap();
        finds(receive(&mut ledger, 0, C), "after a later one");
        let stranger = PortKey { port: 44, ..B };
        finds(receive(&mut ledger, 0, stranger), "never bound");
        ledger.on_bound(stranger, ALL, false);
        finds(receive(&mut ledger, 1, stranger), "never bound");
        finds(receive(&mut ledger, 2, B), "which nobody sent");
        finds(ledger.on_received(1, B, (A.node, A.port), &[0; 100]), "with other bytes");
    }

    #[test]
    fn a_port_that_is_left_out_is_found_unless_it_is_gone_or_its_node_may_be() {
        let mut ledger = sent();
        for index in 0..2 {
            receive(&mut ledger, index, B).unwrap();
        }
        assert!(
            ledger.missing(|_, _| false).unwrap().contains("node 2 life 0 port 33 never got multicast 0")
        );
        assert_eq!(ledger.missing(|a, b| (a, b) == (0, 2)), None);
        ledger.on_unbound(C, ServiceRange::new(1_000, 5, 6));
        assert!(ledger.missing(|_, _| false).is_some(), "that was another part of the range");
        ledger.on_unbound(C, ServiceRange::new(1_000, 4, 6));
        assert_eq!(ledger.missing(|_, _| false), None);
        let mut ledger = sent();
        ledger.on_port_gone(A);
        assert_eq!(ledger.missing(|_, _| false), None);
    }

    #[test]
    fn a_failure_without_cause_is_found() {
        let ledger = sent();
        finds(ledger.on_failed(0, FailReason::Indeterminate, false), "without cause");
        ledger.on_failed(0, FailReason::Indeterminate, true).unwrap();
        finds(ledger.on_failed(0, FailReason::NoPort, true), "without cause");
    }
}
