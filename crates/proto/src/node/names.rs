//! Bindings of own ports, and what peers say of theirs (protocol.md §7).

use super::{Node, digests};
use crate::address::{Scope, ServiceRange};
use crate::event::Event;
use crate::id::{NodeId, PortId};
use crate::service::{Applied, Behind, BindError, Feed, NotBound, Replica, Step};
use crate::session::Notice;

impl Node {
    /// Binds `port` to a range of services; known to peers at once if the scope is the cluster.
    pub fn bind(&mut self, port: PortId, range: ServiceRange, scope: Scope) -> Result<(), BindError> {
        self.bind_weighted(port, range, scope, 1)
    }

    /// The same with a share among the bindings of one service; 0 counts as 1.
    pub fn bind_weighted(
        &mut self,
        port: PortId,
        range: ServiceRange,
        scope: Scope,
        weight: u8,
    ) -> Result<(), BindError> {
        let bound = self.table.bind(port, range, scope, weight);
        let key = self.count_refusal(bound)?;
        if scope == Scope::Cluster {
            self.log.publish(key, port, range, weight);
        }
        self.on_names_changed();
        self.tell_all_names();
        Ok(())
    }

    /// Binds `port` to `range` if nobody else is known to have bound any of it: of all nodes, or, if the scope is the node,
    /// of this one. From then on others are refused, and if another node did the same at the same time, one of the two is
    /// taken back ([`Event::Unbound`]).
    pub fn bind_exclusive(
        &mut self,
        port: PortId,
        range: ServiceRange,
        scope: Scope,
    ) -> Result<(), BindError> {
        let bound = self.table.bind_exclusive(port, range, scope);
        let key = self.count_refusal(bound)?;
        if scope == Scope::Cluster {
            self.log.publish_exclusive(key, port, range);
        }
        self.on_names_changed();
        self.tell_all_names();
        Ok(())
    }

    fn count_refusal(&mut self, bound: Result<u64, BindError>) -> Result<u64, BindError> {
        self.drops.bindings_refused += u64::from(bound == Err(BindError::TooMany));
        bound
    }

    /// Takes one matching binding back.
    pub fn unbind(&mut self, port: PortId, range: ServiceRange, scope: Scope) -> Result<(), NotBound> {
        let key = self.table.unbind(port, range, scope)?;
        if scope == Scope::Cluster {
            self.log.withdraw(key);
        }
        self.on_names_changed();
        self.tell_all_names();
        Ok(())
    }

    pub(super) fn unbind_all(&mut self, port: PortId) {
        let keys = self.table.unbind_port(port);
        if keys.is_empty() {
            return;
        }
        for key in keys {
            self.log.withdraw(key);
        }
        self.on_names_changed();
        self.tell_all_names();
    }

    fn tell_all_names(&mut self) {
        for slot in 0..self.slots.len() {
            self.tell_names(slot);
        }
        let feeds = self.slots.iter().filter_map(|s| s.session.as_ref()?.feed.as_ref());
        let needed = feeds.map(Feed::needs_from).min().unwrap_or(self.log.last() + 1);
        self.log.trim(needed);
    }

    /// Hands a session what it has not been told of our log, as far as its control log has room.
    pub(super) fn tell_names(&mut self, slot: usize) {
        let Some(session) = &mut self.slots[slot].session else { return };
        if session.peer.node == self.config.node || !session.announced {
            return;
        }
        let mut feed = session.feed.take().unwrap_or_else(|| Feed::new(&self.log));
        loop {
            let room = session.bindings_room(feed.next());
            let mut records = Vec::new();
            match feed.take(&self.log, room, &mut records) {
                Ok(Some(log_seq)) => session.tell_bindings(&self.config, log_seq, records),
                Ok(None) => break,
                Err(Behind) if digests::compares(session) => {
                    self.tell_anew(slot);
                    return self.tell_names(slot);
                }
                Err(Behind) => {
                    session.behind = true;
                    break;
                }
            }
        }
        session.lags = !feed.is_done(&self.log);
        session.feed = Some(feed);
    }

    pub(super) fn on_bindings(&mut self, slot: usize, notice: Notice) {
        let Notice::Bindings { origin, incarnation, log_seq, records } = notice else { return };
        let Some(session) = &self.slots[slot].session else { return };
        // Each node speaks only for itself while the cluster is a full mesh.
        if session.peer.node != origin || session.peer.incarnation != incarnation {
            self.drops.violation += 1;
            return;
        }
        let replica = self.replicas.entry(origin).or_insert_with(|| Replica::new(incarnation));
        if replica.asked {
            return;
        }
        let skip = match replica.apply(log_seq, records.len()) {
            Step::Apply(skip) => skip,
            Step::Duplicate => return,
            Step::Gap => {
                self.drops.violation += 1;
                return self.ask_again(slot);
            }
        };
        let mut beaten = Vec::new();
        for record in records.iter().skip(skip) {
            #[cfg(feature = "planted")]
            if self.config.planted(crate::planted::Planted::LostWithdrawal)
                && record.op == crate::wire::BindingOp::Withdraw
                && record.key.is_multiple_of(4)
            {
                continue;
            }
            let applied = self.table.apply(origin, record);
            if applied == Applied::Full {
                replica.cut = true;
                self.drops.names_full += 1;
            }
            if applied == Applied::Published {
                beaten.extend(self.table.beaten_by(origin, record));
            }
        }
        self.give_way(origin, beaten);
        self.on_names_changed();
    }

    /// Takes own bindings back that wanted to be the only ones and met others of `by`.
    fn give_way(&mut self, by: NodeId, keys: Vec<u64>) {
        #[cfg(feature = "planted")]
        if self.config.planted(crate::planted::Planted::KeptExclusive) {
            return;
        }
        if keys.is_empty() {
            return;
        }
        for key in keys {
            // Several of theirs may have met the same one of ours.
            let Some((port, range)) = self.table.withdraw(key) else { continue };
            self.log.withdraw(key);
            self.events.push_back(Event::Unbound { port, range, by });
        }
        self.tell_all_names();
    }

    pub(super) fn forget_names_of(&mut self, node: NodeId) {
        self.replicas.remove(&node);
        #[cfg(feature = "planted")]
        if self.config.planted(crate::planted::Planted::StalePublication) {
            return self.table.purge_all_but_first(node);
        }
        if !self.table.purge(node).is_empty() {
            self.on_names_changed();
        }
    }

    fn on_names_changed(&mut self) {
        self.events.push_back(Event::Names);
        self.tell_names_changed();
    }
}
