//! Packets in: what each frame does. The `match` in `frame` is the table of contents.

use super::connection::Admission;
use super::multicast::Fans;
use super::{Cx, GivenCredit, Notice, Session, initial_given};
use crate::address::ServiceRange;
use crate::error::{Failure, Violation};
use crate::event::{Event, Receipt};
use crate::flow::receive::{Arrived, Partial, Place, ReceiveFlow, Slot};
use crate::flow::{Class, FlowKey};
use crate::id::{BufferId, ConnectionId, NodeId, PortAddress, PortId, SessionId};
use crate::limits::{self, credit_cost};
use crate::link::recv::Seen;
use crate::link::state::LinkEvent;
use crate::ranges::RangeSet;
use crate::time::Duration;
use crate::transfer::{Placed, ReceiveTransfer};
use crate::wire::header::{FLAG_ACK_ELICITING, FLAG_ACK_NOW};
use crate::wire::{self, Frame, Frames, Header, Message, ProbeKind, ProbeReply, RefuseReason};
use std::collections::VecDeque;

/// Whether a frame was taken. A packet is acknowledged only if all of its frames were (protocol.md §5.4).
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Yes,
    /// Not now: the sender keeps it and sends it again.
    No,
    /// The peer breaks the protocol; the packet is dropped.
    Breach,
}

impl Session {
    /// One verified packet of this session, received on its link `index`.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        header: &Header,
        packet: &[u8],
        ce: bool,
    ) {
        self.quiet.stir();
        let link = &mut self.links[index];
        match link.received.seen(header.number) {
            Seen::New => {}
            Seen::Duplicate => {
                cx.drops.duplicate_packet += 1;
                return link.received.on_duplicate(cx.now);
            }
            Seen::TooOld => {
                cx.drops.stale_packet += 1;
                return;
            }
        }
        let mut all = true;
        for frame in Frames::new(&packet[wire::HEADER_BYTES..], wire::HEADER_BYTES) {
            let frame = match &frame {
                Ok(frame) => frame,
                Err(malformed) => {
                    *cx.faults.entry(malformed.what).or_insert(0) += 1;
                    cx.drops.malformed += 1;
                    return;
                }
            };
            match self.frame(cx, index, frame) {
                Taken::Yes => {}
                Taken::No => all = false,
                Taken::Breach => {
                    cx.drops.violation += 1;
                    return;
                }
            }
        }
        let link = &mut self.links[index];
        link.on_heard();
        link.stats.packets_received += 1;
        link.stats.bytes_received += packet.len() as u64;
        if all {
            let (eliciting, at_once) = (header.has(FLAG_ACK_ELICITING), header.has(FLAG_ACK_NOW));
            link.received.record(
                cx.now,
                header.number,
                packet.len() as u32,
                header.stamp,
                eliciting,
                at_once,
                ce,
            );
        }
        if self.control.holds_any() {
            self.take_notices(cx);
        }
    }

    /// The packets of a bulk stream: takes pieces of transfers as long as each is the link's next packet and goes on where
    /// something ends that has arrived. How many bytes of packets it took; the others go the way of all packets.
    pub(crate) fn handle_pieces<'a>(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        packets: impl Iterator<Item = &'a [u8]>,
        ce: bool,
    ) -> usize {
        let link = &mut self.links[index];
        let (mut taken, mut to) = (0, None);
        for packet in packets {
            let Some(wire::Piece { header, fragment, payload }) = wire::piece(packet) else { break };
            let next = link.received.largest().is_some_and(|largest| header.number == largest + 1);
            if !next || header.link != link.spec.id || *to.get_or_insert(header.to) != header.to {
                break;
            }
            let Some(transfer) = self.receiving.transfers.get_mut(fragment.transfer.0) else { break };
            let Some(buffer) = transfer.go_on(fragment.offset, payload.len()) else { break };
            cx.store.place(buffer, fragment.offset, payload);
            let (bytes, eliciting) = (packet.len(), header.has(FLAG_ACK_ELICITING));
            link.stats.packets_received += 1;
            link.stats.bytes_received += bytes as u64;
            let at_once = header.has(FLAG_ACK_NOW);
            link.received.record(cx.now, header.number, bytes as u32, header.stamp, eliciting, at_once, ce);
            taken += bytes;
        }
        if taken > 0 {
            self.quiet.stir();
            self.note_traffic(cx);
        }
        taken
    }

    pub(super) fn frame(&mut self, cx: &mut Cx<'_>, index: usize, frame: &Frame<'_>) -> Taken {
        match frame {
            Frame::Message(message, payload) => self.on_message(cx, message, None, payload),
            Frame::Fragment(f, payload) => {
                self.on_part(cx, &f.message, None, f.total as u64, f.offset as u64, payload)
            }
            Frame::Multicast(m, payload) if m.total as usize == payload.len() => {
                self.on_message(cx, &m.message, Some(m.range), payload)
            }
            Frame::Multicast(m, payload) => {
                self.on_part(cx, &m.message, Some(m.range), m.total as u64, m.offset as u64, payload)
            }
            Frame::TransferFragment(f, payload) => self.on_transfer_part(cx, f.transfer.0, f.offset, payload),
            Frame::Ack(ack) => match self.on_ack(cx, ack) {
                Ok(()) => Taken::Yes,
                Err(violation) => breach(violation),
            },
            Frame::Rts(rts) => self.on_rts(cx, rts),
            Frame::Cts(cts) => self.on_cts(cts),
            Frame::Credit(credit) => self.on_credit(cx, credit),
            Frame::Refuse(refuse) => self.on_refuse(cx, refuse),
            Frame::Probe(probe) => self.on_probe(cx, index, probe),
            Frame::ProbeReply(reply) => self.on_probe_reply(cx, index, reply),
            Frame::Bindings(b) => self.on_control(b.control, || Notice::Bindings {
                origin: b.origin,
                incarnation: b.incarnation,
                log_seq: b.log_seq,
                records: b.iter().collect(),
            }),
            Frame::NameDigest(digest) => self.on_control(digest.control, || Notice::Digest(*digest)),
            Frame::PortClosed(number, port) => self.on_control(*number, || Notice::PortClosed(*port)),
            Frame::LinkSet(l) => self.on_control(l.control, || Notice::LinkSet(l.link, l.status, l.number)),
            // It obliges us to an answer: who confirms none of those gets no more of them.
            Frame::Connect(c) if !self.control.may_answer() && !self.control.is_old(c.control) => Taken::No,
            Frame::Connect(c) => {
                #[cfg(feature = "planted")]
                if self.planted == Some(crate::planted::Planted::RepeatedConnect)
                    && self.control.is_old(c.control)
                {
                    self.connect_again(cx, c);
                }
                self.on_pressing_control(cx, c.control, || Notice::Connect(*c))
            }
            Frame::Accept(a) => self.on_pressing_control(cx, a.control, || Notice::Accept(*a)),
            Frame::Shutdown(s) => self.on_control(s.control, || Notice::Shutdown(*s)),
            Frame::Consumed(c) => self.on_control(c.control, || Notice::Consumed(*c)),
            Frame::Close(close) => {
                self.closed_by_peer = Some(close.reason);
                Taken::Yes
            }
            Frame::BearerState(_) => Taken::Yes,
            Frame::TransferAbort(..) | Frame::Skipped(_) => {
                cx.drops.skipped_frame += 1;
                Taken::Yes
            }
        }
    }

    // ----- messages ------------------------------------------------------------------------------------------

    fn on_message(
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

    fn on_part(
        &mut self,
        cx: &mut Cx<'_>,
        m: &Message,
        range: Option<ServiceRange>,
        total: u64,
        offset: u64,
        payload: &[u8],
    ) -> Taken {
        if total == 0 || total > limits::EAGER_BYTES_MAX || offset + payload.len() as u64 > total {
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

    fn on_rts(&mut self, cx: &mut Cx<'_>, rts: &wire::Rts) -> Taken {
        if rts.total > limits::MESSAGE_BYTES_MAX || rts.total == 0 {
            return breach(Violation::Inconsistent);
        }
        let key = match self.receive_flow(cx, &rts.message) {
            Ok(key) => key,
            Err(taken) => return taken,
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        let at = match flow.place(rts.message.seq) {
            Place::Old => return Taken::Yes,
            Place::Beyond => return breach(Violation::BeyondWindow),
            Place::At(at) => at,
        };
        if let Some(Slot::Transfer(existing)) = flow.peek(at) {
            // The grant was lost, unless it is still on its way out.
            if let Some(transfer) = self.receiving.transfers.get_mut(*existing)
                && transfer.buffer().is_some()
                && !std::mem::replace(&mut transfer.dirty, true)
            {
                self.receiving.cts.push_back(*existing);
            }
            return Taken::Yes;
        }
        if !matches!(flow.peek(at), None | Some(Slot::Empty)) {
            return Taken::Yes;
        }
        if self.receiving.transfers.len() >= limits::TRANSFERS_MAX {
            return self.refuse(&rts.message, RefuseReason::NoRoom);
        }
        let seq = flow.next() + at as u64;
        let Some(gaps) = self.admit(key, at, 0) else {
            return breach(Violation::BeyondCredit);
        };
        let Some(owner) = self.receiving.flows.get(key).map(|flow| flow.owner) else { return Taken::No };
        let mut transfer = ReceiveTransfer::new(key, owner, seq, rts);
        let memory = if rts.total <= cx.config.auto_accept_bytes_max {
            // If it is next and there is no room, its receiver is asked for memory (see `offer_head`).
            cx.store.reserve(owner, rts.total, false)
        } else {
            None
        };
        let accepted = memory.is_some();
        if let Some(buffer) = memory {
            transfer.accept(buffer);
        }
        let Some(number) = self.receiving.transfers.insert(transfer) else {
            return self.refuse(&rts.message, RefuseReason::NoRoom);
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        *flow.slot(at) = Slot::Transfer(number);
        let credit = flow.credit;
        self.charge(cx, credit, 0, gaps);
        if accepted {
            self.receiving.cts.push_back(number);
        } else {
            self.receiving.waiting.push_back(number);
            self.offer_head(cx, key);
        }
        Taken::Yes
    }

    fn on_transfer_part(&mut self, cx: &mut Cx<'_>, number: u32, offset: u64, payload: &[u8]) -> Taken {
        let Some(transfer) = self.receiving.transfers.get_mut(number) else {
            // Finished, and repeated because an acknowledgement was lost.
            cx.drops.duplicate_message += 1;
            return Taken::Yes;
        };
        let store = &mut *cx.store;
        let placed = transfer.place(offset, payload.len(), |buffer, at, from, to| {
            store.place(buffer, at, &payload[from..to]);
        });
        match placed {
            Placed::Some => {}
            Placed::No => {
                cx.drops.holes += 1;
                return Taken::No;
            }
            Placed::Complete(buffer) => {
                let (flow, seq, m) = (transfer.flow, transfer.seq, transfer.message);
                let (len, notify) = (transfer.total, m.notify);
                let arrived = Arrived { buffer, len, service: m.service, tag: m.tag, notify };
                self.receiving.transfers.remove(number);
                if let Some(entry) = self.receiving.flows.get_mut(flow) {
                    entry.complete_transfer(seq, arrived);
                }
                self.drain(cx, flow);
            }
        }
        self.note_traffic(cx);
        Taken::Yes
    }

    /// Delivers what is complete and in order; asks for memory if the next message needs it.
    fn drain(&mut self, cx: &mut Cx<'_>, key: u32) {
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

    fn offer_head(&mut self, cx: &mut Cx<'_>, key: u32) {
        let Some(flow) = self.receiving.flows.get(key) else { return };
        let Some(number) = flow.head_transfer() else { return };
        let Some(transfer) = self.receiving.transfers.get_mut(number) else { return };
        if transfer.buffer().is_none() && !transfer.offered {
            transfer.offered = true;
            let from = PortAddress { node: self.peer.node, port: flow.key.from };
            let (port, len) = (flow.owner, transfer.total);
            let (session, to) = (self.index, flow.key.to);
            let connection = to.is_connection().then_some(ConnectionId { session, end: to });
            cx.events.push_back(Event::Offer { port, from, len, session, transfer: number, connection });
        }
    }

    /// The flow of a message, made at its first one.
    #[inline]
    fn receive_flow(&mut self, cx: &mut Cx<'_>, m: &Message) -> Result<u32, Taken> {
        let key = FlowKey { from: m.from, to: m.to, class: Class::from_bits(m.class) };
        if let Some((last, k)) = self.receiving.last
            && last == key
        {
            return Ok(k);
        }
        if let Some(&k) = self.receiving.by_key.get(&key) {
            self.receiving.last = Some((key, k));
            return Ok(k);
        }
        if self.receiving.closed.contains(&m.from) {
            cx.drops.duplicate_message += 1;
            return Err(Taken::Yes);
        }
        let owner = self.owner_of(cx, m)?;
        let full = || breach(Violation::TooMany);
        let credit = match self.receiving.credit_of.get(&m.to) {
            Some(&c) => c,
            None => {
                let c = self.receiving.credits.insert(initial_given(m.to)).ok_or_else(full)?;
                self.receiving.credit_of.insert(m.to, c);
                c
            }
        };
        let k = self.receiving.flows.insert(ReceiveFlow::new(key, owner, credit)).ok_or_else(full)?;
        if let Some(flow) = self.receiving.flows.get_mut(k) {
            flow.index = k;
        }
        self.receiving.by_key.insert(key, k);
        self.receiving.last = Some((key, k));
        Ok(k)
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

    /// Whether credit covers a new message at distance `at` of its flow that costs `cost`, and those before it that
    /// are still under way (protocol.md §6.2): by how much they become more. `None`: it was not granted.
    #[inline]
    fn admit(&self, key: u32, at: usize, cost: u64) -> Option<i64> {
        let flow = self.receiving.flows.get(key)?;
        let given = self.receiving.credits.get(flow.credit)?;
        let made = flow.gaps_made(at);
        let messages = given.received_messages + 1 + given.gaps.saturating_add_signed(made);
        let covered = given.received_bytes + cost <= given.limit_bytes && messages <= given.limit_messages;
        covered.then_some(made)
    }

    fn charge(&mut self, cx: &mut Cx<'_>, credit: u32, cost: u64, gaps: i64) {
        self.note_traffic(cx);
        let Some(given) = self.receiving.credits.get_mut(credit) else { return };
        given.received_bytes += cost;
        given.received_messages += 1;
        given.gaps = given.gaps.saturating_add_signed(gaps);
        match given.port {
            PortId::MULTICAST => self.refresh_multicast_credit(),
            // What a connection may send depends on what its application has read, not on what is free.
            port if port.is_connection() => {}
            port if !given.wanted && runs_low(given) => {
                given.wanted = true;
                self.credit_wanted.push(port);
            }
            _ => {}
        }
    }

    fn note_traffic(&mut self, cx: &Cx<'_>) {
        self.last_app_at = cx.now;
    }

    fn refuse(&mut self, m: &Message, reason: RefuseReason) -> Taken {
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

    // ----- flow control --------------------------------------------------------------------------------------

    pub(super) fn on_cts(&mut self, cts: &wire::Cts) -> Taken {
        let Some(transfer) = self.sending.transfers.get_mut(cts.token) else { return Taken::Yes };
        transfer.grant(cts);
        if let Some(flow) = self.sending.flows.get_mut(transfer.flow) {
            self.schedule.enqueue_transfer(cts.token, transfer, flow);
        }
        Taken::Yes
    }

    fn on_credit(&mut self, cx: &mut Cx<'_>, credit: &wire::Credit) -> Taken {
        if self.raise_credit(credit) && credit.port.is_connection() {
            self.tell_credit(cx, credit.port.far_end());
        }
        Taken::Yes
    }

    /// Takes in credit; whether it was more than before.
    pub(super) fn raise_credit(&mut self, credit: &wire::Credit) -> bool {
        let Some(&key) = self.sending.credit_of.get(&credit.port) else { return false };
        let Some(taken) = self.sending.credits.get_mut(key) else { return false };
        if !taken.credit.raise(credit.bytes, credit.messages) {
            return false;
        }
        let waiting = std::mem::take(&mut taken.waiting);
        for flow_key in waiting {
            if let Some(flow) = self.sending.flows.get_mut(flow_key) {
                flow.starved = false;
                self.schedule.enqueue_flow(flow_key, flow);
            }
        }
        for flow_key in &self.sending.refused {
            if let Some(flow) = self.sending.flows.get_mut(*flow_key)
                && flow.credit == key
            {
                flow.unblock();
            }
        }
        true
    }

    fn on_refuse(&mut self, cx: &mut Cx<'_>, refuse: &wire::Refuse) -> Taken {
        self.stats.refused_by_peer += 1;
        let key = FlowKey { from: refuse.from, to: refuse.to, class: Class::from_bits(refuse.class) };
        let flow = self.sending.by_key.get(&key).and_then(|k| self.sending.flows.get(*k));
        // Where messages wait to be read, it is being said what has become of them: the flow ends when that is here.
        if refuse.reason != RefuseReason::NoRoom && !flow.is_some_and(|flow| flow.holds()) {
            let why = if refuse.reason == RefuseReason::NoPort { Failure::NoPort } else { Failure::TooLarge };
            self.fail_flows(cx, |k| *k == key, why, Some(refuse.seq));
            return Taken::Yes;
        }
        let Some(&k) = self.sending.by_key.get(&key) else { return Taken::Yes };
        let Some(flow) = self.sending.flows.get_mut(k) else { return Taken::Yes };
        flow.refused(cx.now, Duration::us(refuse.retry_after_us.clamp(100, 100_000) as u64));
        if !self.sending.refused.contains(&k) {
            self.sending.refused.push(k);
        }
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::CreditLeak)
            && let Some(taken) = self.sending.credits.get_mut(flow.credit)
        {
            taken.credit.used_bytes += 65_536;
        }
        Taken::Yes
    }

    // ----- supervision ---------------------------------------------------------------------------------------

    fn on_probe(&mut self, cx: &mut Cx<'_>, index: usize, probe: &wire::Probe) -> Taken {
        let Some(about) = self.link_index(probe.about) else { return Taken::Yes };
        let link = &self.links[about];
        let reply = ProbeReply {
            id: probe.id,
            about: probe.about,
            kind: probe.kind,
            last_rx: link.received.largest().unwrap_or(0),
            last_rx_age: (link.received.silent_since(cx.now).0 >> 8).min(u32::MAX as u64) as u32,
            next_tx: link.sent.next(),
            carrier: link.carrier,
            stall_us: 0,
            size: probe.size,
        };
        let carrying = &mut self.links[index];
        if probe.kind == ProbeKind::Join || probe.kind == ProbeKind::State {
            if carrying.replies.is_full() {
                carrying.replies.remove(0);
            }
            carrying.replies.push(reply);
            if probe.kind == ProbeKind::Join {
                carrying.join_back(cx.now);
            }
        }
        Taken::Yes
    }

    fn on_probe_reply(&mut self, cx: &mut Cx<'_>, index: usize, reply: &ProbeReply) -> Taken {
        if reply.kind == ProbeKind::Join && self.links[index].spec.id == reply.about {
            self.link_event(cx, index, LinkEvent::Joined);
            self.last_proof_at = cx.now;
        }
        Taken::Yes
    }

    fn on_control(&mut self, number: u32, notice: impl FnOnce() -> Notice) -> Taken {
        match self.control.receive(number, notice) {
            super::control::Received::Taken => Taken::Yes,
            super::control::Received::TooFar => breach(Violation::BeyondControlWindow),
        }
    }

    /// A control frame that what follows it in its packet may depend on.
    fn on_pressing_control(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        notice: impl FnOnce() -> Notice,
    ) -> Taken {
        let taken = self.on_control(number, notice);
        self.take_notices(cx);
        taken
    }

    /// The news travels by other links and may be late: what the peer has sent on this link since speaks against it.
    fn peer_says_down(&mut self, cx: &mut Cx<'_>, id: crate::id::LinkId, next: u32) {
        let Some(index) = self.link_index(id) else { return };
        let heard = self.links[index].received.largest();
        let outdated = heard.is_some_and(|largest| (largest as u32).wrapping_sub(next) < u32::MAX / 2);
        if !outdated {
            self.link_event(cx, index, LinkEvent::PeerSaysDown);
        }
    }

    fn next_notice(&mut self, _cx: &Cx<'_>) -> Option<Notice> {
        #[cfg(feature = "planted")]
        if _cx.config.planted(crate::planted::Planted::ControlOutOfOrder) {
            return self.control.next_of_any();
        }
        self.control.next()
    }

    fn take_notices(&mut self, cx: &mut Cx<'_>) {
        while let Some(notice) = self.next_notice(cx) {
            match notice {
                Notice::PortClosed(port) => self.peer_port_closed(cx, port),
                Notice::LinkSet(id, wire::LinkStatus::Down, next) => self.peer_says_down(cx, id, next),
                Notice::LinkSet(..) => {}
                Notice::Connect(connect) => self.on_connect(cx, &connect),
                Notice::Accept(accept) => self.on_accept(cx, &accept),
                Notice::Shutdown(shutdown) => self.on_shutdown(cx, &shutdown),
                Notice::Consumed(consumed) => self.on_consumed(cx, &consumed),
                names @ (Notice::Bindings { .. } | Notice::Digest(_)) => self.notices.push_back(names),
            }
        }
    }
}

/// The packet is dropped; which rule was broken matters to whoever debugs the peer, not to us.
fn breach(_violation: Violation) -> Taken {
    Taken::Breach
}

fn runs_low(given: &GivenCredit) -> bool {
    let window = given.told_bytes.saturating_sub(given.received_bytes);
    let messages = given.told_messages.saturating_sub(given.received_messages);
    window < 1 << 20 || messages < 8_192
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
