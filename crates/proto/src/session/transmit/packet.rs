//! What goes into a packet: acknowledgements and answers first, then what the peer waits for, then messages.

use super::{Extent, Fill};
use crate::flow::send::{FRAME_COST, Outgoing, SendCredit, SendFlow, Take, piece_bytes};
use crate::flow::{Class, FlowKey};
use crate::id::TransferId;
use crate::link::recv::AckWish;
use crate::link::send::{Item, Whole};
use crate::session::schedule::Work;
use crate::session::{Cx, Session};
use crate::time::Instant;
use crate::train::Train;
use crate::transfer::{self, SendTransfer, Stretch};
use crate::wire::{self, BearerState, Fragment, Message, Multicast, TransferFragment};

/// A packet with less room than this is full.
const PACKET_FULL: usize = 32;
/// A train has one extent: a message with fewer packets to come leaves that to others.
const EXTENT_PACKETS_MIN: u64 = 4;

/// What `put_messages` does next.
enum Advance {
    /// Look at the same place of the ring again.
    Stay,
    /// Look at the next entry.
    Skip,
    /// The packet is full, or nothing more may be sent.
    Full,
}

impl Fill<'_> {
    /// Whole packets behind the one that `take` fills go on with its message, if several may.
    fn go_on(&self, key: u32, flow: &mut SendFlow, take: &Take) -> Option<Extent> {
        let Take::Part { seq, message, offset, len } = *take else { return None };
        let piece = piece_bytes(&message, self.limit - wire::HEADER_BYTES) as u64;
        let start = offset as u64 + len as u64;
        let budget = self.allowance(false).saturating_sub(len as u64 + FRAME_COST);
        let packets = self.packets_left(budget, piece + FRAME_COST) as u64;
        let packets = packets.min((message.len - start).div_ceil(piece));
        if packets < EXTENT_PACKETS_MIN {
            return None;
        }
        let end = flow.go_on(take, packets * piece)?;
        let (of, packet, len) = (Whole::Message(key, seq), self.packet + 1, piece as u32);
        Some(Extent { of, packet, offset: start, first_len: len, len, end })
    }

    /// Whether what a flow has next may leave in this train.
    fn admits(&self, flow: &SendFlow, credit: &SendCredit) -> bool {
        let is_assigned = flow.policy.is_some();
        if flow.is_small(credit) { self.takes_small(is_assigned) } else { self.allowance(is_assigned) > 0 }
    }

    /// An extent of an eager message follows; what it costs.
    fn begin_extent(&mut self, extent: Extent) -> u64 {
        let Extent { offset, end, len, .. } = extent;
        self.extent = Some(extent);
        self.rest = Some((offset, end));
        let bytes = end - offset + FRAME_COST * (end - offset).div_ceil(len as u64);
        self.charge(bytes, false);
        bytes
    }
}

impl Session {
    pub(super) fn put_acks(&mut self, cx: &Cx<'_>, fill: &mut Fill<'_>) {
        // What arrived at a port that has closed is confirmed before its sender hears of that (protocol.md §4.13), also if
        // the confirmation left by another link and is late there.
        let all = self.links[fill.link].usable() && self.control.tells_of_closing();
        for index in 0..self.links.len() {
            let own = index == fill.link;
            let link = &mut self.links[index];
            let due = link.received.ack_due(cx.now);
            // Another link's acknowledgement travels here only when its own way is in doubt.
            let wanted = if own { due || self.has_more_than_ack(fill) } else { due && !link.usable() };
            let link = &mut self.links[index];
            let news = wanted && link.received.ack_pending();
            if !(news || all) || link.received.largest().is_none() {
                continue;
            }
            let ack = link.received.build(cx.now, link.spec.id);
            if ack.emitted_bytes() > fill.room() {
                continue;
            }
            fill.train.with_head(|head| ack.emit(head));
            link.received.on_ack_sent(cx.now);
        }
    }

    /// Whether a packet would leave anyway, so that an acknowledgement may ride along.
    fn has_more_than_ack(&self, fill: &Fill<'_>) -> bool {
        let link = &self.links[fill.link];
        link.probe.is_some()
            || !link.replies.is_empty()
            || (fill.control && (self.control.ready() || !self.receiving.cts.is_empty()))
            || (!fill.is_done() && self.schedule.has_flows())
    }

    pub(super) fn put_probes(&mut self, cx: &Cx<'_>, fill: &mut Fill<'_>) {
        let link = &mut self.links[fill.link];
        while !link.replies.is_empty() && fill.room() >= wire::ProbeReply::BYTES {
            let reply = link.replies.remove(0);
            fill.train.with_head(|head| reply.emit(head));
            fill.probes = true;
        }
        if fill.room() >= wire::Probe::BYTES
            && let Some(probe) = link.take_probe(cx.now)
        {
            fill.train.with_head(|head| probe.emit(head));
            fill.eliciting = true;
            fill.wish = AckWish::Now;
            fill.probes = true;
        }
    }

    /// Refusals, grants and credit: small, and what the peer waits for.
    pub(super) fn put_flow_control(&mut self, fill: &mut Fill<'_>) {
        if !fill.control {
            return;
        }
        while fill.room() >= wire::Refuse::BYTES {
            let Some(refuse) = self.receiving.refuse.pop_front() else { break };
            fill.train.with_head(|head| refuse.emit(head));
        }
        while fill.room() >= wire::Cts::BYTES {
            let Some(number) = self.receiving.cts.pop_front() else { break };
            let Some(transfer) = self.receiving.transfers.get_mut(number) else { continue };
            if transfer.buffer().is_none() {
                continue;
            }
            transfer.dirty = false;
            let cts = transfer.cts(number);
            fill.train.with_head(|head| cts.emit(head));
            fill.item(Item::Cts { transfer: TransferId(number) });
        }
        while fill.room() >= wire::Credit::BYTES {
            let Some(credit) = self.take_untold() else { break };
            fill.train.with_head(|head| credit.emit(head));
            fill.eliciting = true;
            fill.items.push((fill.packet, Item::Credit { port: credit.port }));
        }
    }

    pub(super) fn put_control(&mut self, fill: &mut Fill<'_>) {
        if !fill.control {
            return;
        }
        loop {
            let room = fill.room();
            let Some((number, notice)) = self.control.take(room) else { break };
            fill.train.with_head(|head| notice.emit(number, head));
            fill.item(Item::Control { number });
        }
    }

    /// Which of our bearers are busy, if peers are told and it is news.
    pub(super) fn put_states(&mut self, fill: &mut Fill<'_>) {
        if self.assigners.is_empty() {
            return;
        }
        while fill.room() >= BearerState::BYTES
            && let Some(report) = self.assigners.report(&self.links)
        {
            fill.train.with_head(|head| report.emit(head));
        }
    }

    /// What other links have sent and this one is to send too.
    pub(super) fn put_copies(&mut self, fill: &mut Fill<'_>) {
        let packet_room = fill.limit - wire::HEADER_BYTES;
        while fill.small_assigned
            && fill.rest.is_none()
            && !self.links[fill.link].copies.is_empty()
            && let Some((key, flow, take)) = self.take_copy(fill.link, fill.room(), packet_room)
        {
            fill.train.carry(flow.class);
            let bytes = self.put_take(fill, key, flow, take);
            self.stats.messages_copied += 1;
            fill.charge(bytes, true);
            fill.limit_small();
        }
    }

    pub(super) fn put_messages(&mut self, fill: &mut Fill<'_>) {
        if let Some((next, end)) = fill.rest.take() {
            self.put_extent_rest(fill, next, end);
        }
        let classes = self.schedule.classes();
        #[cfg(feature = "planted")]
        let classes = if self.planted == Some(crate::planted::Planted::UrgentLast) {
            let [control, urgent, normal, bulk] = classes;
            [bulk, normal, urgent, control]
        } else {
            classes
        };
        for class in classes {
            if class < fill.urgent {
                continue;
            }
            let mut index = 0;
            while let Some(work) = self.schedule.get(class, index) {
                if fill.room() < PACKET_FULL || !fill.takes(class) {
                    break;
                }
                let advance = match work {
                    Work::Flow(key) => self.put_flow(fill, class, index, key),
                    Work::Transfers(key) => self.put_transfers(fill, class, index, key),
                };
                match advance {
                    Advance::Stay => {}
                    Advance::Skip => index += 1,
                    Advance::Full => return,
                }
            }
        }
    }

    fn put_flow(&mut self, fill: &mut Fill<'_>, class: Class, index: usize, key: u32) -> Advance {
        let Some(flow) = self.sending.flows.get_mut(key) else {
            self.schedule.remove(class, index);
            return Advance::Stay;
        };
        let Some(taken) = self.sending.credits.get_mut(flow.credit) else {
            flow.queued = false;
            self.schedule.remove(class, index);
            return Advance::Stay;
        };
        if !flow.ready(fill.now, &taken.credit) {
            flow.queued = false;
            self.schedule.remove(class, index);
            if flow.wakes_at(fill.now) != Instant::NEVER {
                if !self.sending.refused.contains(&key) {
                    self.sending.refused.push(key);
                }
            } else if flow.next_bytes().is_some() && !std::mem::replace(&mut flow.starved, true) {
                taken.waiting.push(key);
            }
            return Advance::Stay;
        }
        let mut copies = false;
        if let Some(assigner) = self.assigners.of(flow) {
            if !assigner.lets(fill.now, &self.links, flow, fill.link) {
                return Advance::Skip;
            }
            copies = assigner.copies();
        }
        let is_assigned = flow.policy.is_some();
        if !fill.admits(flow, &taken.credit) || fill.room() < PACKET_FULL {
            return if fill.is_done() { Advance::Full } else { Advance::Skip };
        }
        let packet_room = fill.limit - wire::HEADER_BYTES;
        let Some(take) = flow.take(fill.now, &mut taken.credit, fill.room(), packet_room) else {
            // What it had to repeat was confirmed meanwhile: those behind it must not wait for the next turn.
            return match flow.ready(fill.now, &taken.credit) {
                false => Advance::Stay,
                true if flow.fills_window() => Advance::Skip,
                true => Advance::Full,
            };
        };
        if let Some(begun) = flow.take_begun() {
            self.sending.deadlines.remove(key, begun);
        }
        let extent = if is_assigned { None } else { fill.go_on(key, flow, &take) };
        let flow_key = flow.key;
        self.schedule.note_sent(class, fill.now);
        fill.train.carry(class);
        let mut bytes = self.put_take(fill, key, flow_key, take);
        if copies {
            self.copy_to_others(fill.link, key, &take);
        }
        fill.charge(bytes, is_assigned);
        if let Some(extent) = extent {
            bytes += fill.begin_extent(extent);
        }
        fill.limit_small();
        if !is_assigned && matches!(take, Take::Whole { .. }) {
            bytes += self.put_more(fill, class, key);
        }
        self.end_turn(class, index, key, bytes);
        if fill.rest.is_some() { Advance::Full } else { Advance::Stay }
    }

    /// A flow has put so many bytes into a packet.
    #[inline]
    fn end_turn(&mut self, class: Class, index: usize, key: u32, bytes: u64) {
        let goes_on = self.sending.flows.get_mut(key).is_some_and(|flow| {
            flow.queued = flow.has_more();
            flow.queued
        });
        let bytes = self.cost(key, bytes);
        if goes_on {
            self.schedule.account(class, index, bytes);
        } else {
            self.schedule.finish(class, index, bytes);
        }
    }

    /// Puts those small messages of a flow behind the one that was put in that need no further thought and that the packet has room
    /// for; what they cost.
    fn put_more(&mut self, fill: &mut Fill<'_>, class: Class, key: u32) -> u64 {
        let Some(flow) = self.sending.flows.get_mut(key).filter(|flow| flow.is_plain()) else { return 0 };
        let Some(taken) = self.sending.credits.get_mut(flow.credit) else { return 0 };
        let (mut bytes, mut room, mut run) = (0, fill.room(), None);
        while room >= PACKET_FULL
            && fill.takes(class)
            && fill.takes_small(false)
            && let Some((seq, message)) = flow.take_plain(&mut taken.credit, room)
        {
            put_whole(fill.train, flow.key, seq, &message);
            run = Some(run.map_or((seq, 1), |(first, count)| (first, count + 1)));
            let cost = message.len + FRAME_COST;
            bytes += cost;
            fill.charge(cost, false);
            fill.limit_small();
            room = fill.room();
        }
        if let Some((first, count)) = run {
            fill.item(Item::Messages { flow: key, first, count });
        }
        bytes
    }

    fn put_take(&mut self, fill: &mut Fill<'_>, key: u32, flow: FlowKey, take: Take) -> u64 {
        match take {
            Take::Whole { seq, message } => {
                put_whole(fill.train, flow, seq, &message);
                fill.item(Item::Messages { flow: key, first: seq, count: 1 });
                message.len + FRAME_COST
            }
            Take::Part { seq, message, offset, len } => {
                #[cfg(feature = "planted")]
                let cut = self.planted == Some(crate::planted::Planted::ShortRetransmission)
                    && len > 1
                    && self.sending.flows.get(key).is_some_and(|f| f.was_repeated(seq));
                #[cfg(not(feature = "planted"))]
                let cut = false;
                let carried = len as usize - cut as usize;
                put_part(fill.train, flow, seq, &message, offset, carried);
                fill.item(Item::Fragment { flow: key, seq, offset, len });
                len as u64 + FRAME_COST
            }
            Take::Announce { seq, message, token } => {
                let token = token.or_else(|| {
                    let token = self.sending.transfers.insert(SendTransfer::new(key, seq, message))?;
                    self.sending.flows.get_mut(key)?.announced(seq, token);
                    Some(token)
                });
                let Some(token) = token else { return 0 };
                let rts = wire::Rts { message: frame(flow, seq, &message), token, total: message.len };
                fill.train.with_head(|head| rts.emit(head));
                fill.item(Item::Rts { flow: key, seq });
                56
            }
        }
    }

    /// The oldest of a flow's transfers, if something of it may leave. `None`: there is none, and the entry of the ring is gone.
    fn oldest_transfer(&mut self, class: Class, index: usize, key: u32) -> Option<u32> {
        let flow = self.sending.flows.get_mut(key);
        if let Some(flow) = flow {
            while let Some(&(_, token)) = flow.transfers.front() {
                match self.sending.transfers.get_mut(token) {
                    Some(transfer) if transfer.ready() => return Some(token),
                    Some(idle) => idle.queued = false,
                    None => {}
                }
                flow.transfers.pop_front();
            }
            flow.transfers_queued = false;
        }
        self.schedule.remove(class, index);
        None
    }

    fn put_transfers(&mut self, fill: &mut Fill<'_>, class: Class, index: usize, key: u32) -> Advance {
        let Some(mut token) = self.oldest_transfer(class, index, key) else { return Advance::Stay };
        let Some(flow) = self.sending.flows.get_mut(key) else { return Advance::Stay };
        let here = fill.room().saturating_sub(wire::TransferFragment::HEADER_BYTES) & !7;
        let is_assigned = flow.policy.is_some();
        if fill.allowance(is_assigned) == 0 {
            // Small messages behind it may exceed the window.
            return if fill.is_done() { Advance::Full } else { Advance::Skip };
        }
        if here < PACKET_FULL {
            return Advance::Full;
        }
        let whole = transfer::piece_bytes(fill.limit);
        let mut stretch = Stretch::Free;
        if let Some(assigner) = self.assigners.of(flow) {
            let (transfers, place) = (&mut self.sending.transfers, (fill.link, whole as u64));
            match assigner.next(fill.now, &self.links, flow, transfers, place) {
                Some(next) => (token, stretch) = next,
                None => return Advance::Skip,
            }
        }
        let Some(transfer) = self.sending.transfers.get_mut(token) else { return Advance::Stay };
        let (next, left) = transfer.next(stretch);
        // Trains begin at multiples of what a packet takes, for that is how the memory of messages is laid out
        // (ARCHITECTURE.md, decision 2): what is there takes whole packets, and what is not ends there.
        if (next as usize).is_multiple_of(whole) && here < whole && left > here as u64 {
            return Advance::Skip;
        }
        let packets =
            fill.packets_left(fill.allowance(is_assigned).saturating_sub(here as u64), whole as u64);
        // If what it had to repeat was confirmed meanwhile, the next one has its turn.
        let most = here + packets * whole;
        let over = (next as usize + most) % whole;
        let most = if over < most { most - over } else { most };
        let Some((start, end)) = transfer.take(stretch, most as u64) else { return Advance::Stay };
        let Some(to) = transfer.transfer() else { return Advance::Skip };
        let buffer = transfer.message.buffer;
        let first = (end - start).min(here as u64);
        let frame = TransferFragment { transfer: to, offset: start };
        fill.train.carry(class);
        fill.train.with_head(|head| frame.emit(head, first as usize));
        fill.train.body(buffer, start, first as usize);
        if start + first == end {
            fill.item(Item::Extent { token, offset: start, len: first as u32 });
        } else {
            fill.eliciting = true;
            let (packet, first_len, len) = (fill.packet, first as u32, whole as u32);
            let of = Whole::Transfer(token);
            fill.extent = Some(Extent { of, packet, offset: start, first_len, len, end });
            fill.rest = Some((start + first, end));
        }
        fill.charge(end - start, is_assigned);
        self.schedule.note_sent(class, fill.now);
        let cost = self.cost(key, end - start);
        self.schedule.account(class, index, cost);
        if fill.rest.is_some() { Advance::Full } else { Advance::Stay }
    }

    pub(super) fn put_extent_rest(&mut self, fill: &mut Fill<'_>, next: u64, end: u64) {
        let Some(extent) = fill.extent else { return };
        let len = (end - next).min(extent.len as u64);
        let put = match extent.of {
            Whole::Transfer(token) => self.put_transfer_piece(fill.train, token, next, len as usize),
            Whole::Message(flow, seq) => {
                self.put_message_piece(fill.train, flow, seq, next as u32, len as usize)
            }
        };
        if put.is_none() {
            return;
        }
        fill.eliciting = true;
        if next + len < end {
            fill.rest = Some((next + len, end));
        }
    }

    fn put_transfer_piece(&self, train: &mut Train, token: u32, offset: u64, len: usize) -> Option<()> {
        let transfer = self.sending.transfers.get(token)?;
        let frame = TransferFragment { transfer: transfer.transfer()?, offset };
        train.with_head(|head| frame.emit(head, len));
        train.body(transfer.message.buffer, offset, len);
        Some(())
    }

    fn put_message_piece(
        &self,
        train: &mut Train,
        flow: u32,
        seq: u64,
        offset: u32,
        len: usize,
    ) -> Option<()> {
        let flow = self.sending.flows.get(flow)?;
        put_part(train, flow.key, seq, &flow.outgoing(seq)?, offset, len);
        Some(())
    }
}

/// The fields that all frames of a message have.
fn frame(flow: FlowKey, seq: u64, message: &Outgoing) -> Message {
    Message {
        class: flow.class as u8,
        from: flow.from,
        to: flow.to,
        seq: seq as u32,
        service: message.service,
        tag: message.tag,
        notify: message.returns,
    }
}

/// Appends a whole message.
#[inline]
fn put_whole(train: &mut Train, flow: FlowKey, seq: u64, message: &Outgoing) {
    let len = message.len as usize;
    if message.range.is_some() {
        return put_part(train, flow, seq, message, 0, len);
    }
    train.with_head(|head| frame(flow, seq, message).emit(head, len));
    train.body(message.buffer, 0, len);
}

/// Appends so many bytes of a message from `offset` on.
fn put_part(train: &mut Train, flow: FlowKey, seq: u64, message: &Outgoing, offset: u32, len: usize) {
    let (fields, total) = (frame(flow, seq, message), message.len as u32);
    train.with_head(|head| match message.range {
        None => Fragment { message: fields, total, offset }.emit(head, len),
        Some(range) => Multicast { message: fields, range, total, offset }.emit(head, len),
    });
    train.body(message.buffer, offset as u64, len);
}
