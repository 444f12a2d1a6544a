//! Messages in: each is placed where it will be read, put in the order of its flow, and delivered.

use super::connection::Admission;
use super::multicast::Fans;
use super::receive::{Taken, breach};
use super::{Cx, Session};
use crate::address::ServiceRange;
use crate::error::Violation;
use crate::event::{Event, Receipt};
use crate::flow::receive::{Arrived, Partial, Place, ReceiveFlow, Slot};
use crate::flow::{Class, FlowKey};
use crate::id::{BufferId, ConnectionId, NodeId, PortAddress, PortId, SessionId};
use crate::limits::{self, credit_cost};
use crate::ranges::RangeSet;
use crate::wire::{self, Message, RefuseReason};
use std::collections::VecDeque;

/// The longest message that may come in pieces without being announced (protocol.md §5.1).
fn pieces_bytes_max(m: &wire::Message, to_range: bool) -> u64 {
    if to_range || m.to.is_connection() { limits::EAGER_BYTES_MAX } else { limits::UNASKED_BYTES_MAX }
}

impl Session {
    pub(super) fn on_message(
        &mut self,
        cx: &mut Cx<'_>,
        m: &Message,
        range: Option<ServiceRange>,
        payload: &[u8],
    ) -> Taken {
        let key = match self.receive_flow(cx, m) {
            Ok(key) => key,
            Err(taken) => return taken,
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        match flow.place(m.seq) {
            Place::Old => self.duplicate(cx, key, m, payload),
            Place::Beyond => breach(Violation::BeyondWindow),
            Place::At(at) => match flow.peek(at) {
                None | Some(Slot::Empty) => self.store_whole(cx, key, at, m, range, payload),
                Some(Slot::Partial(_)) => self.on_part(cx, m, range, payload.len() as u64, 0, payload),
                Some(_) => self.duplicate(cx, key, m, payload),
            },
        }
    }

    fn duplicate(&mut self, cx: &mut Cx<'_>, _flow: u32, _m: &Message, _payload: &[u8]) -> Taken {
        cx.drops.duplicate_message += 1;
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::DuplicateDelivery)
            && let Some(owner) = self.receiving.flows.get(_flow).map(|flow| flow.owner)
            && let Some(buffer) = cx.store.reserve(owner, _payload.len() as u64, true)
        {
            cx.store.place(buffer, 0, _payload);
            let (len, service, tag) = (_payload.len() as u64, _m.service, _m.tag);
            let arrived = Arrived { buffer, len, service, tag, notify: false };
            if let Some(flow) = self.receiving.flows.get_mut(_flow) {
                deliver(cx.events, &mut self.receiving.fans, (self.peer.node, self.index), flow, arrived);
            }
        }
        Taken::Yes
    }

    fn store_whole(
        &mut self,
        cx: &mut Cx<'_>,
        key: u32,
        at: usize,
        m: &Message,
        range: Option<ServiceRange>,
        payload: &[u8],
    ) -> Taken {
        let len = payload.len() as u64;
        let Some(gaps) = self.admit(key, at, credit_cost(len)) else {
            return breach(Violation::BeyondCredit);
        };
        let Some(buffer) = self.reserve(cx, key, range, len, at == 0) else {
            return self.refuse(m, RefuseReason::NoRoom);
        };
        match range {
            Some(_) => self.receiving.fans.place(cx.store, buffer, 0, payload),
            None => cx.store.place(buffer, 0, payload),
        }
        let arrived = Arrived { buffer, len, service: m.service, tag: m.tag, notify: m.notify };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        let credit = flow.credit;
        if at == 0 {
            flow.pass();
            self.stats.messages_received += 1;
            deliver(cx.events, &mut self.receiving.fans, (self.peer.node, self.index), flow, arrived);
            let more = !flow.is_empty();
            self.charge(cx, credit, credit_cost(len), gaps);
            if more {
                self.drain(cx, key);
            } else if m.to.is_connection() {
                self.note_end(cx, m.to);
            }
        } else {
            *flow.slot(at) = Slot::Arrived(arrived);
            self.charge(cx, credit, credit_cost(len), gaps);
            #[cfg(feature = "planted")]
            self.drain(cx, key);
        }
        Taken::Yes
    }

    pub(super) fn on_part(
        &mut self,
        cx: &mut Cx<'_>,
        m: &Message,
        range: Option<ServiceRange>,
        total: u64,
        offset: u64,
        payload: &[u8],
    ) -> Taken {
        if total == 0 || total > pieces_bytes_max(m, range.is_some()) || offset + payload.len() as u64 > total
        {
            return breach(Violation::Inconsistent);
        }
        let key = match self.receive_flow(cx, m) {
            Ok(key) => key,
            Err(taken) => return taken,
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        let at = match flow.place(m.seq) {
            Place::Old => return self.duplicate(cx, key, m, &[]),
            Place::Beyond => return breach(Violation::BeyondWindow),
            Place::At(at) => at,
        };
        let credit = flow.credit;
        if matches!(flow.peek(at), None | Some(Slot::Empty)) {
            let Some(gaps) = self.admit(key, at, credit_cost(total)) else {
                return breach(Violation::BeyondCredit);
            };
            let Some(buffer) = self.reserve(cx, key, range, total, at == 0) else {
                return self.refuse(m, RefuseReason::NoRoom);
            };
            let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
            let (whole, got) = (total as u32, RangeSet::new());
            let partial = Partial { buffer, total: whole, got, service: None, tag: None, notify: false };
            *flow.slot(at) = Slot::Partial(Box::new(partial));
            self.charge(cx, credit, credit_cost(total), gaps);
        }
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        let Slot::Partial(partial) = flow.slot(at) else { return self.duplicate(cx, key, m, &[]) };
        if partial.total as u64 != total {
            return breach(Violation::Inconsistent);
        }
        let end = offset + payload.len() as u64;
        if partial.got.len() >= limits::HOLES_MAX
            && !partial.got.intersects(offset.saturating_sub(1), end + 1)
        {
            cx.drops.holes += 1;
            return Taken::No;
        }
        for (from, to) in partial.got.missing(offset, end) {
            let piece = &payload[(from - offset) as usize..(to - offset) as usize];
            match range {
                Some(_) => self.receiving.fans.place(cx.store, partial.buffer, from, piece),
                None => cx.store.place(partial.buffer, from, piece),
            }
        }
        partial.got.insert(offset, end);
        if offset == 0 {
            (partial.service, partial.tag, partial.notify) = (m.service, m.tag, m.notify);
        }
        if partial.got.covers(0, total) {
            let &mut Partial { buffer, service, tag, notify, .. } = &mut **partial;
            let arrived = Arrived { buffer, len: total, service, tag, notify };
            *flow.slot(at) = Slot::Arrived(arrived);
            self.drain(cx, key);
        }
        Taken::Yes
    }

    /// Places those of several pieces that go on where something of their message ends that has arrived, but none that completes
    /// it: how many. `None` leaves the first to [`Session::on_part`].
    pub(super) fn on_parts(&mut self, cx: &mut Cx<'_>, parts: &wire::Parts, packets: &[u8]) -> Option<usize> {
        let &wire::Parts { message: m, range, total, offset, head_bytes, piece_bytes, count, .. } = parts;
        let key = FlowKey { from: m.from, to: m.to, class: Class::from_bits(m.class) };
        let key = self.known_flow(key)?;
        let flow = self.receiving.flows.get_mut(key)?;
        let Place::At(at) = flow.place(m.seq) else { return None };
        let partial = flow.partial(at).filter(|partial| partial.total == total)?;
        let pieces = (piece_bytes as u64, count as u64);
        let taken = partial.got.extend_by(total as u64, offset as u64, pieces)? as usize;
        let (to, layout) = ((partial.buffer, offset as u64), (head_bytes + piece_bytes, head_bytes));
        let run = &packets[..taken * layout.0];
        match range {
            Some(_) => self.receiving.fans.place_run(cx.store, to, run, layout),
            None => cx.store.place_run(to.0, to.1, run, layout.0, layout.1),
        }
        Some(taken)
    }

    /// Delivers what is complete and in order; asks for memory if the next message needs it.
    pub(super) fn drain(&mut self, cx: &mut Cx<'_>, key: u32) {
        let Some(flow) = self.receiving.flows.get_mut(key) else { return };
        while let Some(arrived) = flow.pop() {
            self.stats.messages_received += 1;
            deliver(cx.events, &mut self.receiving.fans, (self.peer.node, self.index), flow, arrived);
        }
        let to = flow.key.to;
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::ReorderedDelivery) {
            while let Some(arrived) = flow.pop_any() {
                deliver(cx.events, &mut self.receiving.fans, (self.peer.node, self.index), flow, arrived);
            }
        }
        self.offer_head(cx, key);
        if to.is_connection() {
            self.note_end(cx, to);
        }
    }

    /// A flow of which something has come.
    #[inline]
    fn known_flow(&mut self, key: FlowKey) -> Option<u32> {
        if let Some((last, k)) = self.receiving.last
            && last == key
        {
            return Some(k);
        }
        let k = *self.receiving.by_key.get(&key)?;
        self.receiving.last = Some((key, k));
        Some(k)
    }

    /// The flow of a message, made at its first one.
    #[inline]
    pub(super) fn receive_flow(&mut self, cx: &mut Cx<'_>, m: &Message) -> Result<u32, Taken> {
        let key = FlowKey { from: m.from, to: m.to, class: Class::from_bits(m.class) };
        if let Some(k) = self.known_flow(key) {
            return Ok(k);
        }
        if self.receiving.closed.contains(&m.from) {
            cx.drops.duplicate_message += 1;
            return Err(Taken::Yes);
        }
        let owner = self.owner_of(cx, m)?;
        let full = || breach(Violation::TooMany);
        let credit = self.given_to(m.to).ok_or_else(full)?;
        let k = self.receiving.flows.insert(ReceiveFlow::new(key, owner, credit)).ok_or_else(full)?;
        if let Some(flow) = self.receiving.flows.get_mut(k) {
            flow.index = k;
        }
        self.receiving.by_key.insert(key, k);
        self.receiving.last = Some((key, k));
        Ok(k)
    }

    /// The port that a message is for, which is that of an end if it comes by a connection.
    fn owner_of(&mut self, cx: &mut Cx<'_>, m: &Message) -> Result<PortId, Taken> {
        if m.to == PortId::MULTICAST {
            return Ok(m.to);
        }
        if !m.to.is_connection() {
            return if cx.store.has_port(m.to) {
                Ok(m.to)
            } else {
                Err(self.refuse(m, RefuseReason::NoPort))
            };
        }
        match self.connections.admit(m.from, m.to, Class::from_bits(m.class)) {
            Admission::For(owner) => Ok(owner),
            // What is said of the connection is on its way by another link.
            Admission::Early => {
                cx.drops.early_message += 1;
                Err(self.refuse(m, RefuseReason::NoRoom))
            }
            Admission::Late => {
                #[cfg(feature = "planted")]
                if self.planted == Some(crate::planted::Planted::LateDelivery)
                    && let Some(owner) = self.connections.owner(m.to)
                {
                    return Ok(owner);
                }
                cx.drops.late_message += 1;
                Err(Taken::Yes)
            }
            Admission::Breach => Err(breach(Violation::Inconsistent)),
        }
    }

    /// Memory for a message that has come.
    fn reserve(
        &mut self,
        cx: &mut Cx<'_>,
        key: u32,
        range: Option<ServiceRange>,
        len: u64,
        urgent: bool,
    ) -> Option<BufferId> {
        match range {
            Some(range) => self.reserve_for_all(cx, range, len, urgent),
            None => cx.store.reserve(self.receiving.flows.get(key)?.owner, len, urgent),
        }
    }

    pub(super) fn refuse(&mut self, m: &Message, reason: RefuseReason) -> Taken {
        self.stats.messages_refused += 1;
        self.stats.refused_no_port += u64::from(reason == RefuseReason::NoPort);
        let known =
            self.receiving.refuse.iter().any(|r| r.from == m.from && r.to == m.to && r.class == m.class);
        if !known && self.receiving.refuse.len() < limits::REFUSALS_MAX {
            let (from, to, seq, class) = (m.from, m.to, m.seq, m.class);
            let retry_after_us = 500;
            let refuse = wire::Refuse { control: 0, from, to, seq, class, reason, retry_after_us };
            self.receiving.refuse.push_back(refuse);
        }
        Taken::No
    }
}

fn deliver(
    events: &mut VecDeque<Event>,
    fans: &mut Fans,
    (node, session): (NodeId, SessionId),
    flow: &mut ReceiveFlow,
    arrived: Arrived,
) {
    let Arrived { buffer, len, service, tag, notify } = arrived;
    let (port, class) = (flow.owner, flow.key.class);
    let from = PortAddress { node, port: flow.key.from };
    if port == PortId::MULTICAST {
        return fans.deliver(events, from, flow, arrived);
    }
    let connection = flow.key.to.is_connection().then_some(ConnectionId { session, end: flow.key.to });
    // On a connection it is known otherwise how far its application has read.
    let receipt = (notify && connection.is_none()).then(|| {
        let seq = flow.next() - 1;
        flow.consumed.get_or_insert(seq);
        Receipt { session, flow: flow.index, seq: seq as u32 }
    });
    events.push_back(Event::Message { port, from, connection, service, tag, class, buffer, len, receipt });
}
