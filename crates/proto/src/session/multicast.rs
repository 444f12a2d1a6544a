//! Messages to all who have bound something of a range, as their receiver sees them (protocol.md §5.9).
//!
//! The node gets one copy and hands it to every port that is bound: their memory is reserved together or not at all, what
//! comes is placed into all of it, and the message is delivered to all at once.

use super::{Cx, Session};
use crate::address::{Scope, ServiceRange};
use crate::event::Event;
use crate::flow::receive::{Arrived, ReceiveFlow};
use crate::id::{BufferId, PortAddress, PortId};
use crate::limits::INITIAL_CREDIT;
use crate::store::Store;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// The memory of one message at each of the ports that get it.
type Copies = SmallVec<[(PortId, BufferId); 4]>;

/// Messages to several ports that are not delivered yet, by a number that takes the place of a buffer in their flows.
#[derive(Debug, Default)]
pub(super) struct Fans {
    by_number: BTreeMap<BufferId, Copies>,
    last: u64,
}

impl Fans {
    /// Places bytes into every copy.
    pub(super) fn place(&self, store: &mut dyn Store, fan: BufferId, offset: u64, bytes: &[u8]) {
        for (_, buffer) in self.by_number.get(&fan).into_iter().flatten() {
            store.place(*buffer, offset, bytes);
        }
    }

    /// The same for what packets carry (see [`Store::place_run`]).
    pub(super) fn place_run(
        &self,
        store: &mut dyn Store,
        (fan, offset): (BufferId, u64),
        packets: &[u8],
        (stride, head): (usize, usize),
    ) {
        for (_, buffer) in self.by_number.get(&fan).into_iter().flatten() {
            store.place_run(*buffer, offset, packets, stride, head);
        }
    }

    /// Gives the memory of every copy back.
    pub(super) fn discard(&mut self, store: &mut dyn Store, fan: BufferId) {
        for (_, buffer) in self.by_number.remove(&fan).into_iter().flatten() {
            store.discard(buffer);
        }
    }

    /// A port closes: what is on its way to it goes to the others only.
    pub(super) fn close_port(&mut self, store: &mut dyn Store, port: PortId) {
        for copies in self.by_number.values_mut() {
            copies.retain(|(to, buffer)| {
                if *to == port {
                    store.discard(*buffer);
                }
                *to != port
            });
        }
    }

    /// Hands a message to all its ports.
    pub(super) fn deliver(
        &mut self,
        events: &mut VecDeque<Event>,
        from: PortAddress,
        flow: &ReceiveFlow,
        arrived: Arrived,
    ) {
        let Arrived { buffer: fan, len, tag, .. } = arrived;
        for (port, buffer) in self.by_number.remove(&fan).into_iter().flatten() {
            let (connection, service, class, receipt) = (None, None, flow.key.class, None);
            events.push_back(Event::Message {
                port,
                from,
                connection,
                service,
                tag,
                class,
                buffer,
                len,
                receipt,
            });
        }
    }
}

impl Session {
    /// Memory at every port that has bound something of `range`; none if one of them has no room. Nobody may be left:
    /// then the message is taken, and goes nowhere.
    pub(super) fn reserve_for_all(
        &mut self,
        cx: &mut Cx<'_>,
        range: ServiceRange,
        len: u64,
        urgent: bool,
    ) -> Option<BufferId> {
        let own = cx.config.node;
        let here = self.peer.node == own;
        let mut ports: SmallVec<[PortId; 8]> = cx
            .table
            .overlapping(range)
            .filter(|(_, bound)| bound.node == own && (here || bound.scope == Scope::Cluster))
            .map(|(_, bound)| bound.port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let mut copies = Copies::new();
        for port in ports {
            match cx.store.reserve(port, len, urgent) {
                Some(buffer) => copies.push((port, buffer)),
                None if !cx.store.has_port(port) => {}
                None => {
                    copies.iter().for_each(|(_, buffer)| cx.store.discard(*buffer));
                    return None;
                }
            }
        }
        #[cfg(feature = "planted")]
        self.spoil(cx, &mut copies, len, urgent);
        let fans = &mut self.receiving.fans;
        fans.last += 1;
        fans.by_number.insert(BufferId(fans.last), copies);
        Some(BufferId(fans.last))
    }

    /// One copy too many, or one too few (planted fault only).
    #[cfg(feature = "planted")]
    fn spoil(&self, cx: &mut Cx<'_>, copies: &mut Copies, len: u64, urgent: bool) {
        use crate::planted::Planted;
        let Some((port, buffer)) = copies.last().copied() else { return };
        if self.planted == Some(Planted::RepeatedMulticast)
            && let Some(again) = cx.store.reserve(port, len, urgent)
        {
            copies.push((port, again));
        }
        if self.planted == Some(Planted::PartialMulticast) && copies.len() > 1 {
            cx.store.discard(buffer);
            copies.pop();
        }
    }

    /// What comes for several ports has credit of its own, which does not depend on theirs: who has no room refuses. It is twice
    /// what it begins with: a sender that waits for each of many nodes in turn would wait more often than it sends.
    pub(super) fn refresh_multicast_credit(&mut self) {
        let Some(given) = self.given_credit(PortId::MULTICAST) else { return };
        let (bytes, messages) = INITIAL_CREDIT;
        let (bytes, messages) =
            (given.received_bytes + 2 * bytes as u64, given.received_messages + messages as u64);
        self.give_credit(PortId::MULTICAST, bytes, messages);
    }
}
