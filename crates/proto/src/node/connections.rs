//! Connections: what ports ask of them (protocol.md §5.8).

use super::{Destination, Node};
use crate::error::{ConnectError, SendError};
use crate::flow::Class;
use crate::flow::send::Outgoing;
use crate::id::{ConnectionId, PortAddress, PortId};
use crate::limits;
use crate::port::Listening;
use crate::session::Cx;
use crate::session::connection::{Incoming, Wanted};
use crate::store::Store;
use crate::time::Instant;
use crate::wire;
use std::collections::BTreeSet;

impl Node {
    /// From now on `port` takes connections; so many may wait to be accepted. 0: it takes none any more.
    pub fn listen(&mut self, port: PortId, backlog: u32) {
        if let Some(entry) = self.ports.get_mut(&port) {
            let waiting = entry.listening.take().map_or_else(BTreeSet::new, |listening| listening.waiting);
            entry.listening = (backlog > 0).then_some(Listening { backlog, waiting });
        }
    }

    /// Ends of connections that belong to `port`.
    pub fn connections_of(&self, port: PortId) -> u32 {
        self.ports.get(&port).map_or(0, |entry| entry.connections)
    }

    /// How many connections may wait for `port`, and how many do; `None`: it takes none.
    pub fn listening(&self, port: PortId) -> Option<(u32, usize)> {
        let listening = self.ports.get(&port)?.listening.as_ref()?;
        Some((listening.backlog, listening.waiting.len()))
    }

    /// Asks for a connection of `port` with another; the answer is an event. What is sent on it at once leaves with the
    /// question.
    pub fn open_connection(
        &mut self,
        now: Instant,
        port: PortId,
        to: Destination,
        class: Class,
        stream: bool,
        store: &mut dyn Store,
    ) -> Result<(ConnectionId, PortAddress), ConnectError> {
        if !self.has_port(port) {
            return Err(ConnectError::Closed(port));
        }
        let (to, service) = match to {
            Destination::Port(to) => (to, None),
            Destination::Service(service) => {
                let to = self.pick((port, class, None), service);
                (to.map_err(|_| ConnectError::NoService(service))?, Some(service))
            }
            Destination::Connection(_) | Destination::Multicast(_) => return Err(ConnectError::Closed(port)),
        };
        let credit = self.connection_window(port);
        let slot = *self.by_node.get(&to.node).ok_or(ConnectError::NoNode(to.node))?;
        let session = self.slots[slot].session.as_mut().ok_or(ConnectError::NoNode(to.node))?;
        if session.peer.features & wire::FEATURE_CONNECTIONS == 0 {
            return Err(ConnectError::Unsupported(to.node));
        }
        let wanted = Wanted { from: port, to: to.port, class, stream, service };
        let end = session.connect(cx!(self, now, store), wanted, credit)?;
        Ok((ConnectionId { session: session.index, end }, to))
    }

    /// What may be sent on a connection in all, bytes and messages. More than that waits.
    pub fn connection_credit(&self, id: ConnectionId) -> (u64, u64) {
        let session = self.slot_of(id.session).and_then(|slot| self.slots[slot].session.as_ref());
        session.map_or((0, 0), |session| session.credit_on(id.end))
    }

    /// What comes next by a connection of `port`; `None` if there is none such, or nothing is received by it any more.
    pub fn incoming(&self, port: PortId, id: ConnectionId) -> Option<Incoming> {
        self.slots[self.slot_of(id.session)?].session.as_ref()?.incoming(port, id.end)
    }

    /// Accepts a connection that waits for `port`; false if it is over already.
    pub fn accept_connection(&mut self, port: PortId, id: ConnectionId) -> bool {
        self.note_answered(port, id);
        let credit = self.connection_window(port);
        let Some(slot) = self.slot_of(id.session) else { return false };
        let Some(session) = &mut self.slots[slot].session else { return false };
        session.accept_connection(port, id.end, credit)
    }

    /// Says that `port` sends no more on a connection, receives no more, or both; refuses one that waits.
    pub fn shut_down(
        &mut self,
        now: Instant,
        port: PortId,
        id: ConnectionId,
        (sent_all, deaf): (bool, bool),
        store: &mut dyn Store,
    ) {
        self.note_answered(port, id);
        let Some(slot) = self.slot_of(id.session) else { return };
        let Some(session) = &mut self.slots[slot].session else { return };
        session.shut_down(cx!(self, now, store), port, id.end, sent_all, deaf);
    }

    /// The application of `port` has answered a question for a connection, if it was one.
    fn note_answered(&mut self, port: PortId, id: ConnectionId) {
        if let Some(listening) = self.ports.get_mut(&port).and_then(|entry| entry.listening.as_mut()) {
            listening.waiting.remove(&id);
        }
    }

    /// The application of `port` has given back so many bytes and messages in all of what came by a connection.
    pub fn handle_connection_consumed(&mut self, port: PortId, id: ConnectionId, consumed: (u64, u64)) {
        let window = self.connection_window(port);
        let Some(slot) = self.slot_of(id.session) else { return };
        if let Some(session) = &mut self.slots[slot].session {
            session.connection_consumed(port, id.end, consumed, window);
        }
    }

    pub(super) fn send_on(
        &mut self,
        now: Instant,
        port: PortId,
        id: ConnectionId,
        message: Outgoing,
    ) -> Result<(), SendError> {
        let slot = self.slot_of(id.session).ok_or(SendError::NotConnected)?;
        let session = self.slots[slot].session.as_mut().ok_or(SendError::NotConnected)?;
        if session.send_on(now, port, id.end, message) { Ok(()) } else { Err(SendError::NotConnected) }
    }

    pub(super) fn close_connections_of(&mut self, now: Instant, port: PortId, store: &mut dyn Store) {
        if self.ports.get(&port).is_none_or(|entry| entry.connections == 0) {
            return;
        }
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.close_connections_of(cx!(self, now, store), port);
            }
        }
    }

    /// What a connection of `port` may be sent beyond what its application has read.
    fn connection_window(&self, port: PortId) -> (u64, u32) {
        let count = self.ports.get(&port).map_or(1, |entry| entry.connections.max(1));
        let (bytes, messages) = limits::CONNECTION_CREDIT;
        let (least_bytes, least_messages) = limits::INITIAL_CREDIT;
        ((bytes / count as u64).max(least_bytes as u64), (messages / count).max(least_messages))
    }
}
