//! The oracle: it knows every accepted send and every delivery, and says what must not have happened.
//!
//! | name | what holds |
//! |---|---|
//! | I1 | no message is delivered twice |
//! | I2 | messages of one flow (source port, destination port, class) are delivered in the order sent |
//! | I3 | after heal and drain every accepted send was delivered or its sender was told that it failed |
//! | I4 | contents and sender are those that were sent |
//! | I5 | containers stay within their bounds |
//! | I6 | nothing is refused for want of room unless the run provokes it |
//! | I7 | a node with nothing to do is not woken again and again |
//! | I8 | no node is declared lost while a way to it works |
//! | I9 | no packet number is used twice |
//! | I10 | no link of a session has a number that another one had |
//! | I11 | nodes agree about who is there and what is bound, and know nothing of lives that are over |
//! | I12 | a message to several is with each of them once, in the order of its sender |
//! | I17 | what was to come back comes back whole, to its sender, and nothing expires before its time |
//! | I18 | flows that compete as equals get equal shares |
//! | I19 | small urgent messages do not wait behind bulk |
//! | I21 | a message that is alone on healthy links is not kept waiting |
//! | I20 | links go through the changes of the table, and carry messages only while they are in use |
//! | I13 | connections carry what was sent, in order, once, and end in halves, each behind its last message |

pub mod casts;
pub mod connections;
pub mod links;
pub mod returns;
pub mod shares;

use crate::content;
use crate::subject::FailReason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// A port of one life of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortKey {
    /// Index of the node in the run.
    pub node: usize,
    /// Which of its lives.
    pub life: u32,
    /// Its port.
    pub port: u32,
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} life {} port {}", self.node, self.life, self.port)
    }
}

/// Where a send was addressed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A port.
    Port(PortKey),
    /// A service; every port that ever bound it may get the message.
    Service(u32, u32),
}

/// What must not have happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which invariant: `I1`...
    pub name: &'static str,
    /// When, virtual time.
    pub at_ns: u64,
    /// What exactly.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at_ms, at_us) = (self.at_ns / 1_000_000, self.at_ns / 1_000 % 1_000);
        write!(f, "{} at {at_ms}.{at_us:03} ms: {}", self.name, self.what)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pending,
    Delivered,
    Failed(FailReason),
}

#[derive(Clone, Debug)]
struct SendRecord {
    from: PortKey,
    to: Target,
    class: u8,
    bytes: u32,
    at_ns: u64,
    fate: Fate,
    /// It carries neither tag nor number.
    anonymous: bool,
    /// Delivered and reported as indeterminate: allowed, but only once each.
    both: bool,
}

/// The class of messages that carry no number: all of them have the same, so that their flow is known.
pub const TINY_CLASS: u8 = 2;

/// Most violations kept; the first ones tell the story.
const VIOLATIONS_MAX: usize = 20;

/// Everything that was sent and what became of it.
#[derive(Debug, Default)]
pub struct Oracle {
    sends: Vec<SendRecord>,
    /// Position in the flow of the message delivered last.
    flows: BTreeMap<(PortKey, PortKey, u8), u64>,
    /// Untagged messages too short to carry their number, per sending port.
    anonymous: BTreeMap<PortKey, VecDeque<u64>>,
    /// Ports that were closed, by their owner or by a crash.
    gone: BTreeSet<PortKey>,
    /// Ports that ever bound a service, and whether other nodes may reach them by it.
    binders: BTreeMap<(u32, u32), BTreeMap<PortKey, bool>>,
    /// Services that lost a binding at some time.
    unbound: BTreeSet<(u32, u32)>,
    violations: Vec<Violation>,
    /// Connections and what went by them.
    pub connections: connections::Ledger,
    /// Messages to several.
    pub casts: casts::Ledger,
    /// What was asked to come back, or might expire.
    pub returns: returns::Returns,
    /// What links went through.
    pub links: links::Lives,
    /// Who got how much in a contest.
    pub shares: shares::Ledger,
    pending: u64,
    delivered: u64,
    failed: u64,
}

impl Oracle {
    /// The number of the next accepted send.
    pub fn next_id(&self) -> u64 {
        self.sends.len() as u64
    }

    /// A send was accepted. `anonymous`: the message carries neither tag nor number.
    pub fn on_sent(
        &mut self,
        at_ns: u64,
        from: PortKey,
        to: Target,
        class: u8,
        bytes: usize,
        anonymous: bool,
    ) {
        if anonymous {
            let id = self.next_id();
            self.anonymous.entry(from).or_default().push_back(id);
        }
        let bytes = bytes as u32;
        let (fate, both) = (Fate::Pending, false);
        self.sends.push(SendRecord { from, to, class, bytes, at_ns, fate, anonymous, both });
        self.pending += 1;
    }

    /// A message reached an application. `from_node` and `from_port` are what the node says of the sender.
    pub fn on_received(
        &mut self,
        at_ns: u64,
        to: PortKey,
        from_node: usize,
        from_port: u32,
        tag: Option<u64>,
        bytes: &[u8],
    ) {
        let id = match self.identify(to, (from_node, from_port), tag, bytes) {
            Some(id) => id,
            None => {
                let what = format!("{to} got {} bytes that nobody sent, from port {from_port}", bytes.len());
                return self.violation("I4", at_ns, what);
            }
        };
        self.check_delivery(at_ns, id, to, (from_node, from_port), bytes);
        let record = &mut self.sends[id as usize];
        match record.fate {
            Fate::Pending => {
                record.fate = Fate::Delivered;
                self.pending -= 1;
                self.delivered += 1;
            }
            Fate::Failed(FailReason::Indeterminate) if !record.both => record.both = true,
            Fate::Failed(FailReason::Indeterminate) | Fate::Delivered => {
                let what = format!("{to} got message {id} twice{}", self.about(id));
                self.violation("I1", at_ns, what);
            }
            Fate::Failed(reason) => {
                let what = format!("{to} got message {id}, of which the sender was told {reason:?}");
                self.violation("I3", at_ns, what);
            }
        }
    }

    /// A node told an application that a message failed. `excused`: something happened to the two nodes that
    /// justifies to call the message's fate unknown.
    pub fn on_failed(&mut self, at_ns: u64, id: u64, reason: FailReason, excused: bool) {
        let sure = reason != FailReason::Indeterminate;
        if sure && self.sends.get(id as usize).is_some_and(|r| r.fate == Fate::Delivered && !r.both) {
            self.hand_delivery_on(id);
        }
        let Some(record) = self.sends.get_mut(id as usize) else {
            return self.violation("I3", at_ns, format!("failure of message {id}, which was never sent"));
        };
        let (fate, target) = (record.fate, record.to);
        match fate {
            Fate::Pending => {
                record.fate = Fate::Failed(reason);
                self.pending -= 1;
                self.failed += 1;
                let justified = match reason {
                    FailReason::Indeterminate | FailReason::NotSent => excused || self.target_gone(target),
                    FailReason::NoPort => excused || self.target_gone(target),
                    FailReason::ShutDown => self.target_gone(target),
                    // Said at the door: names and nodes are known a little later than they come about.
                    FailReason::NoService | FailReason::NoNode => true,
                    // Whether it was time is another question (I17).
                    FailReason::Expired => true,
                    FailReason::TooLarge | FailReason::Overload | FailReason::Invalid => false,
                };
                if !justified {
                    let what = format!("message {id} failed ({reason:?}) without cause{}", self.about(id));
                    self.violation("I3", at_ns, what);
                }
            }
            Fate::Delivered if reason == FailReason::Indeterminate && !record.both => record.both = true,
            Fate::Delivered => {
                let what = format!("message {id} was delivered and failed ({reason:?}){}", self.about(id));
                self.violation("I3", at_ns, what);
            }
            Fate::Failed(before) => {
                let what = format!("message {id} failed twice: {before:?}, {reason:?}");
                self.violation("I3", at_ns, what);
            }
        }
    }

    /// Another message that can't be told from `id`, with a fate that `fits`.
    fn twin(&self, id: u64, fits: impl Fn(&SendRecord) -> bool) -> Option<u64> {
        let record = self.sends.get(id as usize).filter(|record| record.anonymous)?;
        let mut bytes = Vec::new();
        content::fill(id, record.bytes as usize, &mut bytes);
        let place = |r: &SendRecord| (r.from, r.to, r.bytes);
        let equal = |twin: u64, other: &SendRecord| {
            twin != id
                && other.anonymous
                && place(other) == place(record)
                && content::first_difference(twin, &bytes).is_none()
        };
        let mut all = self.sends.iter().enumerate().map(|(twin, other)| (twin as u64, other));
        all.find(|(twin, other)| equal(*twin, other) && fits(other)).map(|(twin, _)| twin)
    }

    /// Message `id` failed for sure, yet was taken for delivered: a twin whose fate is open was, then.
    fn hand_delivery_on(&mut self, id: u64) {
        let unknown = Fate::Failed(FailReason::Indeterminate);
        let fits = |r: &SendRecord| r.fate == Fate::Pending || r.fate == unknown && !r.both;
        let Some(twin) = self.twin(id, fits) else { return };
        self.sends[id as usize].fate = Fate::Pending;
        let twin_record = &mut self.sends[twin as usize];
        if twin_record.fate == Fate::Pending {
            twin_record.fate = Fate::Delivered;
        } else {
            twin_record.both = true;
            self.pending += 1;
            self.delivered -= 1;
        }
    }

    /// Message `id` is still open: if a twin was delivered and called indeterminate, `id` may be what was delivered.
    fn take_delivery_over(&mut self, id: u64) {
        if let Some(twin) = self.twin(id, |r| r.both) {
            self.sends[twin as usize].both = false;
            self.sends[id as usize].fate = Fate::Delivered;
            self.pending -= 1;
            self.delivered += 1;
        }
    }

    /// A port is gone: what was under way to or from it may end in any way, but not twice.
    pub fn on_port_gone(&mut self, port: PortKey) {
        self.casts.on_port_gone(port);
        self.gone.insert(port);
    }

    /// A port bound a service, for the cluster or for its own node only.
    pub fn on_bound(&mut self, service: (u32, u32), port: PortKey, cluster: bool) {
        *self.binders.entry(service).or_default().entry(port).or_default() |= cluster;
    }

    /// A port gave a service up.
    pub fn on_unbound(&mut self, service: (u32, u32)) {
        self.unbound.insert(service);
    }

    /// Notes a violation found elsewhere.
    pub fn violation(&mut self, name: &'static str, at_ns: u64, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { name, at_ns, what });
        }
    }

    /// Accepted sends whose fate is open and matters: the sender lives, and the receiver does or the message is to come
    /// back if not.
    pub fn open(&self) -> impl Iterator<Item = u64> + '_ {
        let open = self.sends.iter().enumerate().filter(|(id, record)| {
            // What is to come back has an end even if nobody is there any more.
            record.fate == Fate::Pending
                && !self.gone.contains(&record.from)
                && (self.returns.wants(*id as u64) || !self.target_gone(record.to))
        });
        open.map(|(id, _)| id as u64)
    }

    /// Whether no such send is left. Cheap while many are pending.
    pub fn settled(&self) -> bool {
        self.pending == 0 || self.open().next().is_none()
    }

    /// The run is over: everything that is still open was lost.
    pub fn finish(&mut self, at_ns: u64) {
        for id in self.open().collect::<Vec<u64>>() {
            self.take_delivery_over(id);
        }
        let open: Vec<u64> = self.open().collect();
        if let Some(first) = open.first() {
            let what = format!("{} messages vanished, first {first}{}", open.len(), self.about(*first));
            self.violation("I3", at_ns, what);
        }
    }

    /// What was found, in order.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Sends accepted, delivered, failed.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.next_id(), self.delivered, self.failed)
    }

    /// Sender and target of a send.
    pub fn ends(&self, id: u64) -> Option<(PortKey, Target)> {
        self.sends.get(id as usize).map(|record| (record.from, record.to))
    }

    /// A sentence about a message.
    pub fn about(&self, id: u64) -> String {
        let Some(record) = self.sends.get(id as usize) else { return String::new() };
        let SendRecord { from, to, class, bytes, at_ns, .. } = record;
        let to = match to {
            Target::Port(port) => format!("{port}"),
            Target::Service(kind, instance) => format!("service {kind}:{instance}"),
        };
        format!(" ({bytes} bytes of class {class} from {from} to {to}, sent at {} us)", at_ns / 1_000)
    }

    fn identify(&mut self, to: PortKey, from: (usize, u32), tag: Option<u64>, bytes: &[u8]) -> Option<u64> {
        let claimed = tag.map(content::id_of_tag).or_else(|| content::claimed_id(bytes));
        if let Some(id) = claimed {
            return (id < self.next_id()).then_some(id);
        }
        // A message without number (always of one class, always to a port): the first of its flow that fits.
        let sends = &self.sends;
        for (sender, waiting) in &mut self.anonymous {
            if (sender.node, sender.port) != from {
                continue;
            }
            let next = self.flows.get(&(*sender, to, TINY_CLASS)).copied().unwrap_or(0);
            let unknown = Fate::Failed(FailReason::Indeterminate);
            let find = |from_id: u64| {
                waiting.iter().position(|id| {
                    let record = &sends[*id as usize];
                    let fits = record.bytes as usize == bytes.len() && record.to == Target::Port(to);
                    fits && *id >= from_id
                        && (record.fate == Fate::Pending || record.fate == unknown)
                        && content::first_difference(*id, bytes).is_none()
                })
            };
            // Equal bytes (no bytes at all, often) can't be told apart: the next in order is meant. A later one may
            // turn out never to have been sent.
            if let Some(position) = find(next).or_else(|| find(0)) {
                return waiting.remove(position);
            }
        }
        None
    }

    fn check_delivery(&mut self, at_ns: u64, id: u64, to: PortKey, from: (usize, u32), bytes: &[u8]) {
        let record = self.sends[id as usize].clone();
        if bytes.len() != record.bytes as usize {
            self.wrong("I4", at_ns, id, format!("arrived with {} bytes", bytes.len()));
        } else if let Some(offset) = content::first_difference(id, bytes) {
            self.wrong("I4", at_ns, id, format!("differs at offset {offset}"));
        }
        if (record.from.node, record.from.port) != from {
            self.wrong("I4", at_ns, id, format!("came as if from {from:?}"));
        }
        let meant = match record.to {
            Target::Port(port) => port == to,
            Target::Service(kind, instance) => {
                let reach = self.binders.get(&(kind, instance)).and_then(|ports| ports.get(&to));
                reach.is_some_and(|cluster| *cluster || record.from.node == to.node)
            }
        };
        if !meant {
            self.wrong("I4", at_ns, id, format!("arrived at {to}"));
        }
        let next = self.flows.entry((record.from, to, record.class)).or_default();
        if id < *next {
            let last = *next - 1;
            self.wrong("I2", at_ns, id, format!("came after message {last}"));
        } else {
            *next = id + 1;
        }
    }

    fn wrong(&mut self, name: &'static str, at_ns: u64, id: u64, what: String) {
        let what = format!("message {id} {what}{}", self.about(id));
        self.violation(name, at_ns, what);
    }

    fn target_gone(&self, target: Target) -> bool {
        match target {
            Target::Port(port) => self.gone.contains(&port),
            Target::Service(kind, instance) => {
                let service = (kind, instance);
                let closed =
                    |ports: &BTreeMap<PortKey, bool>| ports.keys().any(|port| self.gone.contains(port));
                self.unbound.contains(&service) || self.binders.get(&service).is_none_or(closed)
            }
        }
    }
}

#[cfg(test)]
mod tests;
