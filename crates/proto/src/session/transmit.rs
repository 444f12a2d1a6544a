//! Packets out: pick a link's work, cut it into packets, enter the train in the books.

use super::schedule::Work;
use super::serving::Serving;
use super::{Cx, Session};
use crate::flow::Class;
use crate::flow::send::{Outgoing, Take};
use crate::id::{BearerId, TransferId};
use crate::limits;
use crate::link::send::{Extent, Item, NewTrain};
use crate::link::state::LinkEvent;
use crate::time::Instant;
use crate::train::{Train, TrainId};
use crate::transfer::{self, SendTransfer};
use crate::wire::header::{FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_TRAIN_LAST};
use crate::wire::{
    self, Fragment, Header, Message, Multicast, PacketType, Probe, ProbeKind, TransferFragment,
};

/// What became of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The bearer took it.
    Sent,
    /// The bearer had no room; nothing was sent.
    WouldBlock,
    /// The local queue dropped it.
    Dropped,
    /// A datagram was larger than the path takes.
    TooLarge,
    /// The bearer is out of order.
    Failed,
}

/// A train being filled.
struct Fill<'a> {
    now: Instant,
    link: usize,
    /// Largest packet.
    limit: usize,
    /// Bytes of messages that may still be sent in this train.
    budget: u64,
    /// Small messages may go by this link.
    small: bool,
    train: &'a mut Train,
    items: Vec<(u8, Item)>,
    extent: Option<Extent>,
    /// What is left of the extent: (next byte, end).
    rest: Option<(u64, u64)>,
    packet: u8,
    eliciting: bool,
    ack_now: bool,
    any_eliciting: bool,
    /// Whether a question about the link, or the answer to one, is in it.
    probes: bool,
}

impl Fill<'_> {
    /// Bytes that the packet may still take.
    fn room(&self) -> usize {
        let used = self.train.packet_bytes();
        debug_assert!(used <= self.limit, "a packet of {used} bytes on a link that takes {}", self.limit);
        self.limit.saturating_sub(used)
    }
    fn item(&mut self, item: Item) {
        self.eliciting = true;
        if let (
            Item::Messages { flow, first, count },
            Some((packet, Item::Messages { flow: f, first: s, count: c })),
        ) = (item, self.items.last_mut())
            && *packet == self.packet
            && *f == flow
            && *s + *c as u64 == first
        {
            *c += count;
            return;
        }
        self.items.push((self.packet, item));
    }
}

/// A packet with less room than this is full.
const PACKET_FULL: usize = 32;

impl Session {
    /// Whether `poll_transmit` is known to find nothing.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Instant, bearer: BearerId) -> bool {
        self.quiet.holds(now, bearer)
    }

    /// Whether packets of the session go by `bearer`.
    #[inline]
    pub(crate) fn is_linked(&self, bearer: BearerId) -> bool {
        self.quiet.has_link(bearer)
    }

    /// Whether `poll_transmit` is known to find nothing for any bearer.
    #[inline]
    pub(crate) fn is_all_quiet(&self, now: Instant) -> bool {
        self.quiet.holds_everywhere(now)
    }

    /// Fills `train` with what a link over `bearer` should send now. False: nothing.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, cx: &mut Cx<'_>, bearer: BearerId, train: &mut Train) -> bool {
        let mut until = Instant::NEVER;
        for index in 0..self.links.len() {
            if self.links[index].spec.bearer != bearer {
                continue;
            }
            if self.next_at(cx.now, index) <= cx.now && self.fill(cx, index, train) {
                // What has left by this link may be for others to go on with.
                self.quiet.stir();
                self.note_if_done(cx.now, bearer);
                return true;
            }
            until = until.min(self.speaks_at(index));
        }
        self.quiet.note(cx.now, bearer, until);
        false
    }

    /// Notes that nothing is left for `bearer`, if it is so: nearly always one train takes all there is.
    pub(super) fn note_if_done(&mut self, now: Instant, bearer: BearerId) {
        let mut until = Instant::NEVER;
        for index in 0..self.links.len() {
            if self.links[index].spec.bearer == bearer {
                until = until.min(self.next_at(now, index));
            }
        }
        if now < until {
            self.quiet.note(now, bearer, until);
        }
    }

    /// When link `index` may have something to send: now, if something waits that it may take.
    #[inline]
    fn next_at(&self, now: Instant, index: usize) -> Instant {
        if self.has_work(index) { now } else { self.speaks_at(index) }
    }

    /// Fills `train` with what link `index` should send now. Apart from the question whether there is anything, which
    /// is asked more often and would pay for all the registers that this takes.
    #[inline(never)]
    fn fill(&mut self, cx: &mut Cx<'_>, index: usize, train: &mut Train) -> bool {
        if self.has_expired(cx.now) {
            self.expire(cx);
        }
        let link = &mut self.links[index];
        train.clear();
        train.to.clone_from(&link.spec.to);
        if link.usable()
            && !link.spec.lossless
            && let Some(size) = link.mtu.poll_probe(cx.now)
        {
            self.fill_mtu_probe(cx, index, size, train);
            return true;
        }
        let open = Serving::of(&self.links).includes(&self.links[index]);
        let link = &self.links[index];
        let room = if open { link.room() } else { 0 };
        let small_room = if open { link.small_room() } else { 0 };
        let limit = link.mtu.current() as usize & !7;
        let small = open && !self.schedule.is_empty() && self.may_take_small(index);
        let budget = if room > 0 { room.min(self.links[index].train_bytes()).max(limit as u64) } else { 0 };
        let small = small && small_room > 0;
        let items = self.links[index].sent.items();
        let mut fill = Fill {
            now: cx.now,
            link: index,
            limit,
            budget,
            small,
            train,
            items,
            extent: None,
            rest: None,
            packet: 0,
            eliciting: false,
            ack_now: false,
            any_eliciting: false,
            probes: false,
        };
        self.fill_train(cx, &mut fill);
        self.enter_train(cx, fill)
    }

    /// Whether something waits that link `index` may take.
    fn has_work(&self, index: usize) -> bool {
        let link = &self.links[index];
        if !link.carrier {
            return false;
        }
        let own = link.probe.is_some() || !link.replies.is_empty();
        own || link.usable()
            && (!self.schedule.is_empty()
                || self.control.ready()
                || !self.receiving.untold.is_empty()
                || !self.receiving.cts.is_empty()
                || !self.receiving.refuse.is_empty())
    }

    /// When link `index` has something to send even if nothing happens until then: acknowledgements, those of links
    /// that are not usable among them, and the search for its MTU.
    #[inline]
    fn speaks_at(&self, index: usize) -> Instant {
        let link = &self.links[index];
        if !link.carrier {
            return Instant::NEVER;
        }
        let own = link.received.deadline().max(link.hushed_until());
        if !link.usable() {
            return own;
        }
        let mtu = if link.spec.lossless { Instant::NEVER } else { link.mtu.deadline() };
        let others = self.links.iter().filter(|l| !l.usable()).map(|l| l.received.deadline());
        others.fold(own.min(mtu), Instant::min)
    }

    fn may_take_small(&mut self, index: usize) -> bool {
        if self.links.len() == 1 {
            return true;
        }
        let choice = self.schedule.choose(&self.links);
        choice == Some(index) || choice.is_none() || choice.is_some_and(|c| self.links[c].blocked)
    }

    fn header(&self, fill: &Fill<'_>) -> Header {
        let link = &self.links[fill.link];
        Header {
            kind: PacketType::Data,
            flags: 0,
            link: link.spec.id,
            to: self.peer.session,
            number: link.sent.next() + fill.packet as u64,
            stamp: fill.now.stamp(),
            check: 0,
        }
    }

    fn fill_train(&mut self, cx: &mut Cx<'_>, fill: &mut Fill<'_>) {
        loop {
            let header = self.header(fill);
            fill.train.begin_packet(&header);
            (fill.eliciting, fill.ack_now) = (false, false);
            let empty = fill.train.packet_bytes();
            if fill.packet == 0 {
                self.put_acks(cx, fill);
                self.put_probes(cx, fill);
                self.put_flow_control(fill);
            }
            if fill.rest.is_none() {
                // The rest of an extent takes the room of a whole packet.
                self.put_control(fill);
            }
            self.put_messages(fill);
            if fill.train.packet_bytes() == empty {
                fill.train.abandon_packet();
                break;
            }
            let left = fill.room();
            let more = fill.rest.is_some() || (fill.budget > 0 && !self.schedule.is_empty());
            let goes_on = more
                && left <= fill.limit / 4
                && fill.packet as usize + 1 < limits::TRAIN_PACKETS_MAX
                && fill.train.bytes + left + fill.limit <= limits::TRAIN_BYTES_MAX;
            if goes_on {
                fill.train.pad(left);
            }
            if !goes_on && fill.eliciting {
                // The window must learn of arrivals several times per round trip, or the path runs empty.
                let link = &mut self.links[fill.link];
                link.unasked_bytes += fill.train.bytes as u64;
                if link.unasked_bytes >= link.window.ack_every_bytes() {
                    link.unasked_bytes = 0;
                    fill.ack_now = true;
                }
            }
            let mut flags = if fill.eliciting { FLAG_ACK_ELICITING } else { 0 };
            flags |= if fill.ack_now { FLAG_ACK_NOW } else { 0 };
            flags |= if goes_on { 0 } else { FLAG_TRAIN_LAST };
            fill.train.end_packet(flags);
            fill.any_eliciting |= fill.eliciting;
            fill.packet += 1;
            if !goes_on {
                break;
            }
            Self::put_run(fill);
        }
    }

    /// The packets in the middle of an extent, which differ in two numbers only: all but the last of the train.
    fn put_run(fill: &mut Fill<'_>) {
        let (Some((next, end)), Some(piece)) = (fill.rest, fill.train.lone_piece()) else { return };
        let by_count = limits::TRAIN_PACKETS_MAX - fill.packet as usize - 1;
        let by_bytes = ((limits::TRAIN_BYTES_MAX - fill.train.bytes) / fill.limit).saturating_sub(1);
        let by_rest = (end - next).saturating_sub(1) / piece as u64;
        let count = by_count.min(by_bytes).min(by_rest as usize);
        fill.train.repeat_piece(count);
        fill.packet += count as u8;
        fill.rest = Some((next + (count * piece) as u64, end));
    }

    /// Gives back the bytes of messages that leave for the first time (planted fault only).
    #[cfg(feature = "planted")]
    fn release_early(&mut self, cx: &mut Cx<'_>, items: &[(u8, Item)]) {
        for &(_, item) in items {
            let (flow, first, count) = match item {
                Item::Messages { flow, first, count } => (flow, first, count),
                Item::Fragment { flow, seq, .. } => (flow, seq, 1),
                _ => continue,
            };
            let Some(flow) = self.sending.flows.get(flow) else { continue };
            for seq in first..first + count as u64 {
                if let Some(buffer) = flow.sent_whole(seq)
                    && self.early.insert((flow.key.from, buffer))
                {
                    cx.store.release(flow.key.from, buffer, true);
                }
            }
        }
    }

    #[inline]
    fn enter_train(&mut self, cx: &mut Cx<'_>, fill: Fill<'_>) -> bool {
        let Fill { link: index, items, extent, packet: count, any_eliciting, train, limit, probes, .. } =
            fill;
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::EarlyRelease) {
            self.release_early(cx, &items);
        }
        let shared = self.schedule.is_shared(cx.now);
        let link = &mut self.links[index];
        if count == 0 {
            link.sent.recycle(items);
            return false;
        }
        let (short, long) = cx.config.queue_target;
        link.window.set_queue_target(if shared { short } else { long });
        train.list_head();
        train.express = link.sure() && !probes;
        let first = link.sent.next();
        if any_eliciting {
            let last_bytes = (train.bytes - (count as usize - 1) * limit.min(train.segment_bytes)) as u16;
            let packet_bytes = train.segment_bytes as u16;
            if link.sent.is_empty() {
                link.restart_pto(cx.now);
            }
            link.sent.push(cx.now, NewTrain { count, packet_bytes, last_bytes, items, extent });
        } else {
            link.sent.recycle(items);
            link.sent.skip(count as u64);
        }
        train.id =
            TrainId { session: self.index.0, link: link.spec.id.0, first, count, tracked: any_eliciting };
        true
    }

    fn fill_mtu_probe(&mut self, cx: &mut Cx<'_>, index: usize, size: u16, train: &mut Train) {
        let size = size & !7;
        let items = self.links[index].sent.items();
        let mut fill = Fill {
            now: cx.now,
            link: index,
            limit: size as usize,
            budget: 0,
            small: false,
            train,
            items,
            extent: None,
            rest: None,
            packet: 0,
            eliciting: true,
            ack_now: true,
            any_eliciting: true,
            probes: true,
        };
        let header = self.header(&fill);
        fill.train.begin_packet(&header);
        let probe = Probe {
            id: size as u64,
            about: self.links[index].spec.id,
            kind: ProbeKind::Mtu,
            target: 0,
            size,
        };
        fill.train.with_head(|head| probe.emit(head));
        let left = fill.room();
        fill.train.pad(left);
        fill.items.push((0, Item::MtuProbe { size }));
        fill.train.end_packet(FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST);
        fill.packet = 1;
        self.enter_train(cx, fill);
    }

    // ----- what goes into a packet ---------------------------------------------------------------------------

    fn put_acks(&mut self, cx: &Cx<'_>, fill: &mut Fill<'_>) {
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
            || !self.receiving.cts.is_empty()
            || (link.usable() && self.control.ready())
            || (fill.budget > 0 && !self.schedule.is_empty())
    }

    fn put_probes(&mut self, cx: &Cx<'_>, fill: &mut Fill<'_>) {
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
            fill.ack_now = true;
            fill.probes = true;
        }
    }

    /// Refusals, grants and credit: small, and what the peer waits for.
    fn put_flow_control(&mut self, fill: &mut Fill<'_>) {
        if !self.links[fill.link].usable() {
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
            let Some(key) = self.receiving.untold.pop_front() else { break };
            // It may be gone, or the answer to a question for a connection may have said it.
            let given = self.receiving.credits.get_mut(key).filter(|given| given.dirty);
            let Some(given) = given else { continue };
            given.dirty = false;
            (given.told_bytes, given.told_messages) = (given.limit_bytes, given.limit_messages);
            let credit = wire::Credit {
                port: given.port,
                messages: given.limit_messages as u32,
                bytes: given.limit_bytes,
            };
            fill.train.with_head(|head| credit.emit(head));
            fill.eliciting = true;
            fill.items.push((fill.packet, Item::Credit { port: given.port }));
        }
    }

    fn put_control(&mut self, fill: &mut Fill<'_>) {
        if !self.links[fill.link].usable() {
            return;
        }
        loop {
            let room = fill.room();
            let Some((number, notice)) = self.control.take(room) else { break };
            fill.train.with_head(|head| notice.emit(number, head));
            fill.item(Item::Control { number });
        }
    }

    fn put_messages(&mut self, fill: &mut Fill<'_>) {
        if let Some((next, end)) = fill.rest.take() {
            self.put_extent_rest(fill, next, end);
        }
        for class in self.schedule.classes() {
            let mut index = 0;
            while let Some(work) = self.schedule.get(class, index) {
                if fill.room() < PACKET_FULL {
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
        let is_small = flow.next_bytes().is_none_or(|b| b <= limits::SMALL_BYTES_MAX);
        let allowed = if is_small { fill.small } else { fill.budget > 0 };
        if !allowed || fill.room() < PACKET_FULL {
            return if fill.budget == 0 && !fill.small { Advance::Full } else { Advance::Skip };
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
        let flow_key = flow.key;
        flow.queued = flow.has_more();
        let goes_on = flow.queued;
        self.schedule.note_sent(class, fill.now);
        let bytes = self.put_take(fill, key, flow_key, take);
        fill.budget = fill.budget.saturating_sub(bytes);
        if fill.budget == 0 {
            fill.small = fill.small && fill.train.bytes < limits::SMALL_OVERDRAFT_BYTES as usize;
        }
        if goes_on {
            self.schedule.account(class, index, bytes);
        } else {
            self.schedule.finish(class, index, bytes);
        }
        Advance::Stay
    }

    fn put_take(&mut self, fill: &mut Fill<'_>, key: u32, flow: crate::flow::FlowKey, take: Take) -> u64 {
        let frame = |seq: u64, m: &Outgoing| Message {
            class: flow.class as u8,
            from: flow.from,
            to: flow.to,
            seq: seq as u32,
            service: m.service,
            tag: m.tag,
            notify: m.returns,
        };
        let several = |seq: u64, m: &Outgoing, range, offset| Multicast {
            message: frame(seq, m),
            range,
            total: m.len as u32,
            offset,
        };
        match take {
            Take::Whole { seq, message } => {
                let len = message.len as usize;
                fill.train.with_head(|head| match message.range {
                    None => frame(seq, &message).emit(head, len),
                    Some(range) => several(seq, &message, range, 0).emit(head, len),
                });
                fill.train.body(message.buffer, 0, message.len as usize);
                fill.item(Item::Messages { flow: key, first: seq, count: 1 });
                message.len + 24
            }
            Take::Part { seq, message, offset, len } => {
                let f = Fragment { message: frame(seq, &message), total: message.len as u32, offset };
                #[cfg(feature = "planted")]
                let cut = self.planted == Some(crate::planted::Planted::ShortRetransmission)
                    && len > 1
                    && self.sending.flows.get(key).is_some_and(|f| f.was_repeated(seq));
                #[cfg(not(feature = "planted"))]
                let cut = false;
                let carried = len as usize - cut as usize;
                fill.train.with_head(|head| match message.range {
                    None => f.emit(head, carried),
                    Some(range) => several(seq, &message, range, offset).emit(head, carried),
                });
                fill.train.body(message.buffer, offset as u64, carried);
                fill.item(Item::Fragment { flow: key, seq, offset, len });
                len as u64 + 24
            }
            Take::Announce { seq, message, token } => {
                let token = token.or_else(|| {
                    let token = self.sending.transfers.insert(SendTransfer::new(key, seq, message))?;
                    self.sending.flows.get_mut(key)?.announced(seq, token);
                    Some(token)
                });
                let Some(token) = token else { return 0 };
                let rts = wire::Rts { message: frame(seq, &message), token, total: message.len };
                fill.train.with_head(|head| rts.emit(head));
                fill.item(Item::Rts { flow: key, seq });
                56
            }
        }
    }

    fn put_transfers(&mut self, fill: &mut Fill<'_>, class: Class, index: usize, key: u32) -> Advance {
        let Some(flow) = self.sending.flows.get_mut(key) else {
            self.schedule.remove(class, index);
            return Advance::Stay;
        };
        let Some(&(_, token)) = flow.transfers.front() else {
            flow.transfers_queued = false;
            self.schedule.remove(class, index);
            return Advance::Stay;
        };
        let transfer = match self.sending.transfers.get_mut(token) {
            Some(transfer) if transfer.ready() => transfer,
            idle => {
                if let Some(transfer) = idle {
                    transfer.queued = false;
                }
                flow.transfers.pop_front();
                return Advance::Stay;
            }
        };
        let here = fill.room().saturating_sub(wire::TransferFragment::HEADER_BYTES) & !7;
        if fill.budget == 0 || here < PACKET_FULL {
            // Small messages behind it may exceed the window.
            return if fill.budget == 0 && fill.small { Advance::Skip } else { Advance::Full };
        }
        let whole = transfer::piece_bytes(fill.limit);
        let (next, left) = transfer.next();
        // Trains begin at multiples of what a packet takes, for that is how the memory of messages is laid out
        // (ARCHITECTURE.md, decision 2): what is there takes whole packets, and what is not ends there.
        if (next as usize).is_multiple_of(whole) && here < whole && left > here as u64 {
            return Advance::Skip;
        }
        let packets = if fill.extent.is_some() {
            0
        } else {
            let by_count = limits::TRAIN_PACKETS_MAX - fill.packet as usize - 1;
            let by_bytes = (limits::TRAIN_BYTES_MAX - fill.train.bytes - fill.room()) / fill.limit;
            let by_budget = fill.budget.saturating_sub(here as u64).div_ceil(whole as u64) as usize;
            by_count.min(by_bytes).min(by_budget)
        };
        // If what it had to repeat was confirmed meanwhile, the next one has its turn.
        let most = here + packets * whole;
        let over = (next as usize + most) % whole;
        let most = if over < most { most - over } else { most };
        let Some((start, end)) = transfer.take(most as u64) else { return Advance::Stay };
        let Some(to) = transfer.transfer() else { return Advance::Skip };
        let buffer = transfer.message.buffer;
        let first = (end - start).min(here as u64);
        let frame = TransferFragment { transfer: to, offset: start };
        fill.train.with_head(|head| frame.emit(head, first as usize));
        fill.train.body(buffer, start, first as usize);
        if start + first == end {
            fill.item(Item::Extent { token, offset: start, len: first as u32 });
        } else {
            fill.eliciting = true;
            let (packet, first_len, len) = (fill.packet, first as u32, whole as u32);
            fill.extent = Some(Extent { token, packet, offset: start, first_len, len, end });
            fill.rest = Some((start + first, end));
        }
        fill.budget = fill.budget.saturating_sub(end - start);
        self.schedule.note_sent(class, fill.now);
        self.schedule.account(class, index, end - start);
        if fill.rest.is_some() { Advance::Full } else { Advance::Stay }
    }

    fn put_extent_rest(&mut self, fill: &mut Fill<'_>, next: u64, end: u64) {
        let Some(extent) = fill.extent else { return };
        let Some(transfer) = self.sending.transfers.get(extent.token) else { return };
        let Some(to) = transfer.transfer() else { return };
        let len = (end - next).min(extent.len as u64);
        let frame = TransferFragment { transfer: to, offset: next };
        fill.train.with_head(|head| frame.emit(head, len as usize));
        fill.train.body(transfer.message.buffer, next, len as usize);
        fill.eliciting = true;
        if next + len < end {
            fill.rest = Some((next + len, end));
        }
    }

    // ----- what became of it ---------------------------------------------------------------------------------

    pub(crate) fn handle_sent(&mut self, cx: &mut Cx<'_>, train: &Train, outcome: Outcome) {
        let id = train.id;
        let Some(index) = self.link_index(crate::id::LinkId(id.link)) else { return };
        let link = &mut self.links[index];
        link.blocked = outcome == Outcome::WouldBlock;
        if outcome == Outcome::Sent {
            return link.on_sent(cx.now, id.count as u64, train.bytes as u64);
        }
        self.quiet.stir();
        let mut items = std::mem::take(&mut self.scratch);
        if id.tracked {
            match outcome {
                Outcome::WouldBlock => link.sent.take_back(id.first, |item| items.push(item)),
                _ => {
                    link.stats.trains_dropped_locally += 1;
                    link.sent.lose(id.first, |item| items.push(item));
                }
            }
        }
        if outcome == Outcome::TooLarge {
            link.mtu.on_too_large(cx.now, train.segment_bytes as u16);
        }
        self.repeat(&mut items, index);
        self.scratch = items;
        if outcome == Outcome::Failed {
            self.link_event(cx, index, LinkEvent::SendFailed);
        }
    }
}

/// What `put_messages` does next.
enum Advance {
    /// Look at the same place of the ring again.
    Stay,
    /// Look at the next entry.
    Skip,
    /// The packet is full, or nothing more may be sent.
    Full,
}
