//! Ports: where messages enter and leave.

use super::Node;
use crate::address::{ServiceAddress, ServiceRange};
use crate::config::Policy;
use crate::error::{PortError, SendError};
use crate::event::Receipt;
use crate::flow::send::Outgoing;
use crate::flow::{Class, FlowKey};
use crate::id::{BufferId, ConnectionId, NodeId, PortAddress, PortId};
use crate::limits;
use crate::link::Link;
use crate::port::Port;
use crate::service::{Lookup, Pick};
use crate::session::Session;
use crate::stats::PortStats;
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::wire;

/// Where a message is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One port.
    Port(PortAddress),
    /// Any port that has bound the service.
    Service(ServiceAddress),
    /// The other end of a connection of the sending port.
    Connection(ConnectionId),
    /// Every port that has bound something of the range, each once.
    Multicast(ServiceRange),
}

/// How a message is sent, beside where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// Its class.
    pub class: Class,
    /// The sender's tag.
    pub tag: Option<u64>,
    /// Its sender wants it back if it is not delivered.
    pub returns: bool,
    /// It is given up if nothing of it has left by then.
    pub expires_at: Option<Instant>,
}

impl From<(Class, Option<u64>)> for Manner {
    fn from((class, tag): (Class, Option<u64>)) -> Self {
        Manner { class, tag, returns: false, expires_at: None }
    }
}

/// Credit that every session has left as long as there is memory at all: bytes and messages.
const CREDIT_FLOOR: u64 = 2 * limits::EAGER_BYTES_MAX;
const MESSAGE_FLOOR: u64 = 64;

/// The one port that has bound a service, or that there is not just one, remembered while the table does not change:
/// most services have one, and looking it up for each small message would cost as much as sending it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sole {
    service: ServiceAddress,
    generation: u64,
    to: Option<PortAddress>,
}

/// What a port did that its entry does not say yet. As a rule a message is of the port of the one before, and to look that up
/// for each small message would cost a hundredth of what it costs to send it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    port: PortId,
    messages: u64,
    bytes: u64,
}

impl Tally {
    /// Counts a message of a port; what is to be added to the entry of another one now.
    #[inline]
    fn count(&mut self, port: PortId, bytes: u64) -> Option<Tally> {
        let before =
            (self.port != port).then(|| std::mem::replace(self, Tally { port, messages: 0, bytes: 0 }));
        self.messages += 1;
        self.bytes += bytes;
        before
    }

    fn add_sent(&self, stats: &mut PortStats) {
        stats.messages_sent += self.messages;
        stats.bytes_sent += self.bytes;
    }

    fn add_received(&self, stats: &mut PortStats) {
        stats.messages_received += self.messages;
        stats.bytes_received += self.bytes;
    }
}

impl Node {
    /// Opens a port with a number that was never used before in this life.
    pub fn open_port(&mut self) -> Result<PortId, PortError> {
        for _ in 0..1_000 {
            // The upper half belongs to connections (protocol.md §5.8).
            let id = PortId(self.draw() as u32 & 0x7fff_ffff);
            if id.0 != 0 && !self.ports.contains_key(&id) {
                self.ports.insert(id, Port::default());
                return Ok(id);
            }
        }
        Err(PortError::Exhausted)
    }

    /// Whether a port exists and takes messages.
    pub fn has_port(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|p| !p.closing)
    }

    /// Sets how a port chooses among those that serve what it sends to.
    pub fn set_lookup(&mut self, port: PortId, lookup: Lookup) {
        if let Some(entry) = self.ports.get_mut(&port) {
            entry.lookup = lookup;
        }
    }

    /// Sets how the links to a peer share what a port sends, in flows that begin from now on: to a port, or in a class, to or in
    /// which it has sent nothing yet. `None`: as the settings say for the class.
    pub fn set_policy(&mut self, port: PortId, policy: Option<Policy>) {
        let Some(entry) = self.ports.get_mut(&port) else { return };
        entry.policy = policy;
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.set_policy(port, policy);
            }
        }
    }

    /// Closes a port: its bindings go, what comes for it is refused, what it sent is still delivered.
    pub fn close_port(&mut self, now: Instant, port: PortId, store: &mut dyn Store) {
        let Some(entry) = self.ports.get_mut(&port) else { return };
        entry.closing = true;
        self.unbind_all(port);
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.close_receiver(store, port);
                session.forget_returns(store, port);
            }
        }
        self.close_connections_of(now, port, store);
        self.finish_closing(now, port);
    }

    /// Forgets a closing port once everything it sent was confirmed. True when it is gone, now or since before.
    pub fn finish_closing(&mut self, _now: Instant, port: PortId) -> bool {
        let Some(entry) = self.ports.get(&port) else { return true };
        if !entry.closing || self.unconfirmed(port) > 0 {
            return false;
        }
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.forget_sender(port);
            }
        }
        self.ports.remove(&port);
        true
    }

    /// Messages of a port that are neither confirmed nor failed.
    pub fn unconfirmed(&self, port: PortId) -> usize {
        self.sessions().map(|s| s.unconfirmed_of(port)).sum()
    }

    /// What a port did.
    pub fn port_stats(&self, port: PortId) -> Option<PortStats> {
        let mut stats = self.ports.get(&port)?.stats;
        if self.sent.port == port {
            self.sent.add_sent(&mut stats);
        }
        if self.received.port == port {
            self.received.add_received(&mut stats);
        }
        Some(stats)
    }

    /// A message of `bytes` was taken from a port.
    #[inline]
    fn count_sent(&mut self, port: PortId, bytes: u64) {
        if let Some(before) = self.sent.count(port, bytes)
            && let Some(entry) = self.ports.get_mut(&before.port)
        {
            before.add_sent(&mut entry.stats);
        }
    }

    /// A message of `bytes` becomes a port's.
    #[inline]
    pub(super) fn count_received(&mut self, port: PortId, bytes: u64) {
        if let Some(before) = self.received.count(port, bytes)
            && let Some(entry) = self.ports.get_mut(&before.port)
        {
            before.add_received(&mut entry.stats);
        }
    }

    /// Sends a message of `body.1` bytes: they must stay until the store is told to release them. Only what goes to one port
    /// may expire: on a connection nothing may be left out, and to several it would do so for some.
    pub fn send(
        &mut self,
        now: Instant,
        port: PortId,
        to: Destination,
        how: impl Into<Manner>,
        body: (BufferId, u64),
        store: &mut dyn Store,
    ) -> Result<(), SendError> {
        let how = how.into();
        let ((buffer, len), Manner { class, tag, .. }) = (body, how);
        if !self.has_port(port) {
            return Err(SendError::Closed(port));
        }
        if len > limits::MESSAGE_BYTES_MAX {
            return Err(SendError::TooLarge(len));
        }
        let (to, service) = match to {
            Destination::Port(to) => (to, None),
            Destination::Multicast(range) => {
                self.send_to_all(now, port, range, (class, tag), body, store)?;
                self.count_sent(port, len);
                return Ok(());
            }
            Destination::Service(service) => (self.pick((port, class, tag), service)?, Some(service)),
            Destination::Connection(id) => {
                let message = Outgoing { buffer, len, service: None, range: None, tag, returns: false };
                self.send_on(now, port, id, message)?;
                self.count_sent(port, len);
                return Ok(());
            }
        };
        if how.expires_at.is_some_and(|at| at <= now) {
            return Err(SendError::Expired);
        }
        let session = self.session_with_mut(to.node).ok_or(SendError::NoNode(to.node))?;
        let key = FlowKey { from: port, to: to.port, class };
        // A peer that does not say what was read leaves it at what has arrived.
        let returns = how.returns && session.peer.features & wire::FEATURE_CONSUMED != 0;
        let message = Outgoing { buffer, len, service, range: None, tag, returns };
        let taken = match how.expires_at {
            None => session.send(now, key, message),
            Some(at) => session.send_until(now, key, message, at),
        };
        if !taken {
            return Err(SendError::Overload(to.node));
        }
        self.count_sent(port, len);
        Ok(())
    }

    /// One of the ports that have bound `service`, as the sender's port chooses: those that can take a message now first,
    /// else any.
    pub(super) fn pick(
        &mut self,
        (port, class, tag): (PortId, Class, Option<u64>),
        service: ServiceAddress,
    ) -> Result<PortAddress, SendError> {
        if let Some(to) = self.sole_of(service)
            && self.by_node.contains_key(&to.node)
        {
            return Ok(to);
        }
        let lookup = self.ports.get(&port).map(|entry| entry.lookup).unwrap_or_default();
        let key = tag.unwrap_or(port.0 as u64);
        let (slots, by_node) = (&self.slots, &self.by_node);
        let ready = |to: PortAddress| {
            let session = by_node.get(&to.node).and_then(|s| slots[*s].session.as_deref());
            session.is_some_and(|s| s.is_ready_for(port, to.port, class))
        };
        let reachable = |to: PortAddress| by_node.contains_key(&to.node);
        let own = self.config.node;
        let mut pick = |ready: &dyn Fn(PortAddress) -> bool| match lookup {
            Lookup::LocalFirst => self.table.pick(service, own, ready),
            Lookup::RoundRobin => self.table.pick_any(service, ready),
            Lookup::Sticky => self.table.pick_sticky(service, key, reachable),
            Lookup::LeastDelay => {
                let delay = |to: PortAddress| match by_node.get(&to.node) {
                    Some(_) if to.node == own => Some(Duration::ZERO),
                    Some(slot) => slots[*slot].session.as_deref().and_then(least_delay),
                    None => None,
                };
                let candidates = self.table.lookup(service).into_iter().filter(|to| ready(*to));
                let least = candidates.filter_map(delay).min();
                let most = least.map(|least| Duration(least.0.saturating_add(least.0 / 4)));
                let near = |to| most.is_none_or(|most| delay(to).is_some_and(|delay| delay <= most));
                self.table.pick_any(service, |to| ready(to) && near(to))
            }
        };
        match pick(&ready) {
            Pick::To(to) => Ok(to),
            Pick::None => Err(SendError::NoService(service)),
            Pick::AllBusy => match pick(&reachable) {
                Pick::To(to) => Ok(to),
                _ => Err(SendError::NoService(service)),
            },
        }
    }

    /// The only port that has bound `service`, if there is just one.
    fn sole_of(&mut self, service: ServiceAddress) -> Option<PortAddress> {
        let generation = self.table.generation();
        match self.sole {
            Some(sole) if (sole.service, sole.generation) == (service, generation) => sole.to,
            _ => {
                let to = match self.table.lookup(service)[..] {
                    [to] => Some(to),
                    _ => None,
                };
                self.sole = Some(Sole { service, generation, to });
                to
            }
        }
    }

    /// The application has read a message, and all that came to its port before it.
    pub fn handle_read(&mut self, receipt: Receipt) {
        let Receipt { session, flow, seq } = receipt;
        let Some(slot) = self.slot_of(session) else { return };
        if let Some(session) = &mut self.slots[slot].session {
            session.handle_read(flow, seq);
        }
    }

    /// The application gave memory of `port` back: large messages that waited may come, and credit may move.
    pub fn handle_consumed(&mut self, port: PortId, store: &mut dyn Store) {
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.retry_waiting(store, port, &self.config);
            }
        }
        self.refresh_credit(port, store);
    }

    /// Flows to these ports ended, and what had come of their messages was given back: nobody else would have the credit of others
    /// raised, who may have none and so send nothing after which it were.
    pub(super) fn handle_freed(&mut self, mut ports: Vec<PortId>, store: &mut dyn Store) {
        if ports.contains(&PortId::MULTICAST) {
            ports.extend(self.ports.keys());
        }
        ports.sort_unstable();
        ports.dedup();
        for port in ports {
            self.handle_consumed(port, store);
        }
    }

    /// Shares what room a port has among the sessions that send to it (protocol.md §6.2).
    pub(super) fn refresh_credit(&mut self, port: PortId, store: &mut dyn Store) {
        let (bytes, messages) = store.room(port);
        let (bytes, messages) = (bytes, messages as u64);
        let given = || self.slots.iter().filter_map(|s| s.session.as_ref()?.given_credit(port));
        let count = given().count() as u64;
        if count == 0 {
            return;
        }
        let promised: u64 = given().map(|g| g.limit_bytes.saturating_sub(g.received_bytes)).sum();
        let promised_messages: u64 =
            given().map(|g| g.limit_messages.saturating_sub(g.received_messages)).sum();
        let mut free = bytes.saturating_sub(promised);
        // A share is left for whoever comes next, and nobody is left with less than a large eager message: promises
        // are not taken back, so the floor may promise more than there is, and REFUSE mends what that breaks.
        let floor = if bytes >= CREDIT_FLOOR { CREDIT_FLOOR } else { 0 };
        let mut free_messages = messages.saturating_sub(promised_messages);
        for slot in &mut self.slots {
            let Some(session) = &mut slot.session else { continue };
            let Some(given) = session.given_credit(port) else { continue };
            let wish =
                (given.received_bytes + bytes / (count + 1)).saturating_sub(given.limit_bytes).min(free);
            let wish_messages = (given.received_messages + messages / (count + 1))
                .saturating_sub(given.limit_messages)
                .min(free_messages);
            free -= wish;
            free_messages -= wish_messages;
            let wish = wish.max((given.received_bytes + floor).saturating_sub(given.limit_bytes));
            let least = if messages >= MESSAGE_FLOOR { MESSAGE_FLOOR } else { 0 };
            let wish_messages =
                wish_messages.max((given.received_messages + least).saturating_sub(given.limit_messages));
            let (limit, limit_messages) = (given.limit_bytes + wish, given.limit_messages + wish_messages);
            session.give_credit(port, limit, limit_messages);
        }
    }

    /// The nodes that have a session with us, ourselves left out.
    pub fn peers(&self) -> Vec<NodeId> {
        self.by_node.keys().copied().filter(|n| *n != self.config.node).collect()
    }
}

/// What a small message to a peer is expected to take by the best link that is in use.
fn least_delay(session: &Session) -> Option<Duration> {
    let links = || session.links.iter().filter(|link| link.usable());
    let hope = Link::hope(links());
    links().map(|link| link.delay(limits::CREDIT_GRAIN_BYTES, hope)).min()
}

impl From<PortAddress> for Destination {
    fn from(to: PortAddress) -> Self {
        Destination::Port(to)
    }
}

impl From<ConnectionId> for Destination {
    fn from(to: ConnectionId) -> Self {
        Destination::Connection(to)
    }
}

impl From<ServiceAddress> for Destination {
    fn from(to: ServiceAddress) -> Self {
        Destination::Service(to)
    }
}
