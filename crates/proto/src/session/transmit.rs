//! Packets out: pick a link's work, cut it into packets, enter the train in the books.

mod packet;

use super::quiet::Bearers;
use super::serving::Serving;
use super::{Cx, Session, choice};
use crate::flow::Class;
use crate::id::{BearerId, LinkId};
use crate::limits;
use crate::link::recv::AckWish;
use crate::link::send::{Extent, Item, NewTrain};
use crate::link::state::LinkEvent;
use crate::time::{Duration, Instant};
use crate::train::{Train, TrainId};
use crate::wire::header::{FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_TRAIN_LAST};
use crate::wire::{Header, PacketType, Probe, ProbeKind};

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

/// The classes whose small messages may exceed a window.
const PROMPT: [Class; 3] = [Class::Control, Class::Urgent, Class::Normal];

/// A train being filled.
struct Fill<'a> {
    now: Instant,
    link: usize,
    /// Largest packet.
    limit: usize,
    /// Bytes of messages that may still be sent in this train.
    budget: u64,
    /// Of these, bytes of large messages whose pieces the links pull.
    share: u64,
    /// Bytes of bulk that the window has room for, or a packet if it has any: at least the budget.
    bulk_room: u64,
    /// Small messages may go by this link: those that choose theirs now, and those whose link was decided before.
    small: bool,
    small_assigned: bool,
    /// The most urgent class that may.
    urgent: Class,
    /// Grants, credit and notices may go by this link.
    control: bool,
    train: &'a mut Train,
    items: Vec<(u8, Item)>,
    extent: Option<Extent>,
    /// What is left of the extent: (next byte, end).
    rest: Option<(u64, u64)>,
    packet: u8,
    eliciting: bool,
    wish: AckWish,
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

    /// Bytes of large messages that may still be sent: of what the links pull, or of what was given to this one.
    fn allowance(&self, is_assigned: bool) -> u64 {
        if is_assigned { self.budget } else { self.budget.min(self.share) }
    }

    /// Whether small messages may go by this link.
    fn takes_small(&self, is_assigned: bool) -> bool {
        if is_assigned { self.small_assigned } else { self.small }
    }

    /// Whether small messages may still be sent.
    fn takes_any_small(&self) -> bool {
        self.small || self.small_assigned
    }

    /// Whether messages of `class` may still go: what exceeds the window is not for bulk, for others would wait behind it.
    fn takes(&self, class: Class) -> bool {
        class != Class::Bulk || self.bulk_room > 0
    }

    /// Whether nothing of messages goes any more.
    fn is_done(&self) -> bool {
        !self.takes_large() && !self.takes_any_small()
    }

    /// Whether pieces of large messages may still be sent.
    fn takes_large(&self) -> bool {
        self.budget > 0 && (self.share > 0 || self.small_assigned)
    }

    /// Bytes of messages went in.
    fn charge(&mut self, bytes: u64, is_assigned: bool) {
        self.budget = self.budget.saturating_sub(bytes);
        self.bulk_room = self.bulk_room.saturating_sub(bytes);
        if !is_assigned {
            self.share = self.share.saturating_sub(bytes);
        }
    }

    /// Small messages may exceed the window only a little.
    fn limit_small(&mut self) {
        let goes_on = self.train.bytes < limits::SMALL_OVERDRAFT_BYTES as usize;
        self.small &= goes_on || self.allowance(false) > 0;
        self.small_assigned &= goes_on || self.budget > 0;
    }

    /// So many whole packets may follow this one as a part of the train's only extent, if each costs so much of so many bytes.
    fn packets_left(&self, bytes: u64, cost: u64) -> usize {
        if self.extent.is_some() {
            return 0;
        }
        let by_count = limits::TRAIN_PACKETS_MAX - self.packet as usize - 1;
        let by_bytes = (limits::TRAIN_BYTES_MAX - self.train.bytes - self.room()) / self.limit;
        by_count.min(by_bytes).min(bytes.div_ceil(cost) as usize)
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
                self.note_if_done(cx.now);
                return true;
            }
            until = until.min(self.speaks_at(index));
        }
        if self.ask_for_states(cx.now) {
            return self.poll_transmit(cx, bearer, train);
        }
        self.quiet.note(cx.now, Bearers::of(bearer), until);
        false
    }

    /// Has the peer asked what its links do, if a large message waits for that.
    fn ask_for_states(&mut self, now: Instant) -> bool {
        if !self.assigners.take_question(now) {
            return false;
        }
        let serving = Serving::of(&self.links);
        if let Some(link) = self.links.iter_mut().find(|link| serving.includes(link)) {
            link.probe = Some(ProbeKind::State);
            self.quiet.stir();
        }
        true
    }

    /// Notes the bearers that nothing is left for: nearly always one train takes all there is, and whoever comes by another need
    /// not look at each link again.
    pub(super) fn note_if_done(&mut self, now: Instant) {
        let (mut all, mut busy, mut until) = (Bearers::default(), Bearers::default(), Instant::NEVER);
        for index in 0..self.links.len() {
            let (bearer, at) = (self.links[index].spec.bearer, self.next_at(now, index));
            all.insert(bearer);
            if at <= now {
                busy.insert(bearer);
            } else {
                until = until.min(at);
            }
        }
        self.quiet.note(now, all.without(busy), until);
    }

    /// When link `index` may have something to send: now, if something waits that it may take.
    #[inline]
    fn next_at(&self, now: Instant, index: usize) -> Instant {
        if self.has_work(now, index) { now } else { self.speaks_at(index) }
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
        let (serving, link) = (Serving::of(&self.links), &self.links[index]);
        let open = serving.includes(link);
        let urgent = if serving.trusts(link, Class::Control) { Class::Control } else { Class::Normal };
        let room = if open { link.room() } else { 0 };
        let small_room = if open { link.small_room() } else { 0 };
        let limit = link.mtu.current() as usize & !7;
        let waits = !self.schedule.is_empty();
        let one_packet = self.one_packet_bytes();
        let small = open && waits && self.may_take_small(cx.now, index, one_packet);
        let pulls = room > 0 && waits && one_packet.is_none();
        let share = if pulls { self.share_of(cx.now, index) } else { 0 };
        let assigned = open && !self.assigners.is_empty();
        let budget = if share > 0 || (assigned && room > 0) {
            room.min(self.links[index].train_bytes()).max(limit as u64)
        } else {
            0
        };
        let share = if share > 0 { share.max(limit as u64).min(budget) } else { 0 };
        let bulk_room = if room > 0 { room.max(limit as u64) } else { 0 };
        let small = small && small_room > 0;
        let small_assigned = assigned && small_room > 0;
        let control = self.links[index].usable() && self.takes_control(index);
        let items = self.links[index].sent.items();
        let mut fill = Fill {
            now: cx.now,
            link: index,
            limit,
            budget,
            share,
            bulk_room,
            small,
            small_assigned,
            urgent,
            control,
            train,
            items,
            extent: None,
            rest: None,
            packet: 0,
            eliciting: false,
            wish: AckWish::Later,
            any_eliciting: false,
            probes: false,
        };
        self.fill_train(cx, &mut fill);
        self.enter_train(cx, fill)
    }

    /// Whether something waits that link `index` may take.
    fn has_work(&self, now: Instant, index: usize) -> bool {
        let link = &self.links[index];
        if !link.carrier {
            return false;
        }
        let own = link.probe.is_some() || !link.replies.is_empty();
        own || link.usable()
            && (self.has_message_for(now, index) || !link.copies.is_empty() || self.takes_control(index))
    }

    /// Whether messages wait that link `index` may take: nothing but large ones is for the one only that is kept.
    #[inline]
    pub(super) fn has_message_for(&self, now: Instant, index: usize) -> bool {
        let is_kept = || self.kept(now).is_none_or(|kept| kept == index);
        !self.schedule.is_empty() && (self.schedule.flows().next().is_some() || is_kept())
    }

    /// Whether there are grants, credit or notices, and link `index`, which is usable, is to carry them: others wait for them, so
    /// they go as small messages do.
    fn takes_control(&self, index: usize) -> bool {
        let waits = self.control.ready()
            || !self.receiving.untold.is_empty()
            || !self.receiving.cts.is_empty()
            || !self.receiving.refuse.is_empty();
        waits
            && (self.links.len() == 1
                || choice::admits(
                    self.choice.pick_control(&self.links, self.schedule.urgency()),
                    &self.links,
                    index,
                ))
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

    /// `one_packet`: see [`Session::one_packet_bytes`].
    fn may_take_small(&mut self, now: Instant, index: usize, one_packet: Option<u64>) -> bool {
        if self.links.len() == 1 {
            return true;
        }
        if let Some(bytes) = one_packet {
            let choice = self.choice.make(now, &self.links, self.schedule.urgency(), bytes);
            return choice::admits(choice, &self.links, index);
        }
        // Those of other policies have their links already.
        let flows = self.schedule.flows().filter_map(|key| self.sending.flows.get(key));
        let mut waiting =
            flows.filter(|flow| flow.policy.is_none()).map(|flow| flow.next_bytes().unwrap_or(0));
        // An announcement goes along with the pieces, if these go by one link.
        let kept = self.kept(now);
        let is_large = |bytes: u64| bytes > limits::SMALL_BYTES_MAX;
        let bytes = waiting.find(|&bytes| !is_large(bytes) || kept.is_none_or(|kept| kept == index));
        let Some(bytes) = bytes else { return false };
        if is_large(bytes) && kept.is_some() {
            return true;
        }
        let choice = self.choice.make(now, &self.links, self.schedule.urgency(), bytes);
        choice::admits(choice, &self.links, index)
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
            (fill.eliciting, fill.wish) = (false, AckWish::Later);
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
            self.put_copies(fill);
            self.put_messages(fill);
            if fill.train.packet_bytes() == empty {
                fill.train.abandon_packet();
                break;
            }
            self.put_states(fill);
            let left = fill.room();
            let waits = !self.schedule.is_empty() || !self.links[fill.link].copies.is_empty();
            let more = fill.rest.is_some() || (fill.takes_large() && waits) || self.exceeds_window(fill);
            let goes_on = more
                && left <= fill.limit / 4
                && fill.packet as usize + 1 < limits::TRAIN_PACKETS_MAX
                && fill.train.bytes + left + fill.limit <= limits::TRAIN_BYTES_MAX;
            if goes_on {
                fill.train.pad(left);
            }
            if !goes_on && fill.eliciting {
                fill.wish = fill.wish.max(self.wish(fill.link, fill.train.bytes as u64));
            }
            let mut flags = if fill.eliciting { FLAG_ACK_ELICITING } else { 0 };
            flags |= fill.wish.flag();
            flags |= if goes_on { 0 } else { FLAG_TRAIN_LAST };
            fill.train.end_packet(flags);
            fill.any_eliciting |= fill.eliciting;
            fill.packet += 1;
            if !goes_on {
                break;
            }
            Self::put_run(fill);
        }
        debug_assert!(fill.rest.is_none(), "bytes that nobody has, and that no packet carries");
    }

    /// Enters `bytes` that leave by link `index`: how soon the peer should acknowledge them. The window must learn of arrivals several
    /// times per round trip, or the path runs empty; but while it has room for what waits, an acknowledgement by itself is only in the
    /// way of what the peer answers, which brings it along.
    fn wish(&mut self, index: usize, bytes: u64) -> AckWish {
        let link = &mut self.links[index];
        link.unasked_bytes += bytes;
        if link.unasked_bytes < link.window.ack_every_bytes() {
            return AckWish::Later;
        }
        let room = link.room().saturating_sub(bytes);
        if self.waiting_bytes(room + 1) <= room {
            return AckWish::Soon;
        }
        self.links[index].unasked_bytes = 0;
        AckWish::Now
    }

    /// Whether small messages wait that may go where the window has no room. Those of bulk may not: trains of theirs that are
    /// longer than what their link moves in its span would take more of a path that sessions share than is their part.
    fn exceeds_window(&self, fill: &Fill<'_>) -> bool {
        let is_small = |bytes: u64| bytes <= limits::SMALL_BYTES_MAX;
        let mut prompt = self.schedule.flows_of(&PROMPT).filter_map(|key| self.sending.flows.get(key));
        fill.takes_any_small() && prompt.any(|flow| flow.next_bytes().is_some_and(is_small))
    }

    /// The packets in the middle of an extent, which differ in two numbers only: all but the last of the train.
    fn put_run(fill: &mut Fill<'_>) {
        let Some((next, end)) = fill.rest else { return };
        let Some((head, piece)) = fill.train.lone_piece() else { return };
        let by_count = limits::TRAIN_PACKETS_MAX - fill.packet as usize - 1;
        let by_bytes = ((limits::TRAIN_BYTES_MAX - fill.train.bytes) / fill.limit).saturating_sub(1);
        let by_rest = (end - next).saturating_sub(1) / piece as u64;
        let count = by_count.min(by_bytes).min(by_rest as usize);
        fill.train.repeat_piece(head, count);
        fill.packet += count as u8;
        fill.rest = Some((next + (count * piece) as u64, end));
    }

    /// Gives back the bytes of messages that leave for the first time (planted fault only).
    #[cfg(feature = "planted")]
    fn release_early(&mut self, cx: &mut Cx<'_>, items: &[(u8, Item)], extent: Option<Extent>) {
        use crate::link::send::Whole;
        let of_items = items.iter().filter_map(|(_, item)| match *item {
            Item::Messages { flow, first, count } => Some((flow, first, count)),
            Item::Fragment { flow, seq, .. } => Some((flow, seq, 1)),
            _ => None,
        });
        let of_extent = extent.and_then(|extent| match extent.of {
            Whole::Message(flow, seq) => Some((flow, seq, 1)),
            Whole::Transfer(_) => None,
        });
        for (flow, first, count) in of_items.chain(of_extent) {
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
            self.release_early(cx, &items, extent);
        }
        let alone = self.links.len() == 1;
        if count == 0 {
            self.links[index].sent.recycle(items);
            return false;
        }
        self.note_items(cx.now, &items);
        let aims = self.aims(cx.now, cx.config.queue_target);
        let link = &mut self.links[index];
        link.window.set_queue_target(aims.queue_target);
        link.window.set_train_span(aims.train_span);
        train.list_head();
        train.express = link.sure() && !probes;
        let first = link.sent.next();
        if any_eliciting {
            let last_bytes = (train.bytes - (count as usize - 1) * limit.min(train.segment_bytes)) as u16;
            let packet_bytes = train.segment_bytes as u16;
            if link.sent.is_empty() {
                link.restart_pto(cx.now);
            }
            let expected =
                if alone { Duration::ZERO } else { link.delay(train.bytes as u64, limits::RATE_GUESS) };
            link.sent.push(cx.now, NewTrain { count, packet_bytes, last_bytes, items, extent, expected });
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
            share: 0,
            bulk_room: 0,
            small: false,
            small_assigned: false,
            control: false,
            urgent: Class::Control,
            train,
            items,
            extent: None,
            rest: None,
            packet: 0,
            eliciting: true,
            wish: AckWish::Now,
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

    // ----- what became of it ---------------------------------------------------------------------------------

    pub(crate) fn handle_sent(&mut self, cx: &mut Cx<'_>, train: &Train, outcome: Outcome) {
        let id = train.id;
        let Some(index) = self.link_index(LinkId(id.link)) else { return };
        let link = &mut self.links[index];
        link.blocked = outcome == Outcome::WouldBlock;
        if outcome == Outcome::Sent {
            return link.on_sent(cx.now, id.count as u64, train.bytes as u64);
        }
        self.quiet.stir();
        let mut items = std::mem::take(&mut self.scratch);
        if id.tracked {
            match outcome {
                Outcome::WouldBlock => {
                    self.sparing.note_held_up();
                    link.sent.take_back(id.first, |item| items.push(item));
                    self.give_turns_back(&items);
                }
                _ => {
                    link.stats.trains_dropped_locally += 1;
                    link.sent.lose(id.first, |item| items.push(item));
                }
            }
        }
        if outcome == Outcome::TooLarge {
            let link = &mut self.links[index];
            link.mtu.on_too_large(cx.now, train.segment_bytes as u16);
        }
        self.repeat(&mut items, index);
        self.scratch = items;
        if outcome == Outcome::Failed {
            self.link_event(cx, index, LinkEvent::SendFailed);
        }
    }
}
