//! The façade: routes what comes in to sessions and asks sessions for what goes out; it does nothing else.
//!
//! The driver's loop: after any `handle_*` or application verb, drain `poll_transmit` of each bearer that is
//! writable, then `poll_event` until it is empty; come back at `poll_timeout` or when something arrives. Timers fire
//! only after the driver has seen every source of datagrams empty.

macro_rules! cx {
    ($node:ident, $now:expr, $store:expr) => {
        &mut Cx {
            now: $now,
            config: &$node.config,
            store: $store,
            events: &mut $node.events,
            drops: &mut $node.drops,
            faults: &mut $node.faults,
            ports: &mut $node.ports,
            table: &$node.table,
        }
    };
}

mod barrier;
mod bearers;
mod connections;
mod digests;
mod discovery;
mod handshake;
mod multicast;
mod names;
mod ports;
mod sessions;
mod subscriptions;
mod turns;

use crate::address::MediaAddress;
use crate::config::Config;
use crate::event::Event;
use crate::id::{BearerId, BufferId, NodeId, PortId, SessionId};
use crate::link::LinkSpec;
use crate::mix::{STRIDE, mix};
use crate::port::Port;
use crate::service::{Log, Replica, Subscriptions, Table};
use crate::session::{Cx, Notice, Outcome, Rest, Session};
use crate::stats::Drops;
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::train::{Train, TrainId};
use crate::wire::{self, Fault, Header, PacketType};
use std::collections::{BTreeMap, VecDeque};

pub use barrier::Barrier;
pub use discovery::BearerInfo;
pub use ports::{Destination, Manner};

use discovery::Discovery;
use handshake::Attempt;
use ports::{Sole, Tally};
use turns::Turns;

/// A bearer as the core knows it.
#[derive(Debug)]
struct Bearer {
    info: BearerInfo,
    carrier: bool,
    /// When it was closed, if it was: its number is free.
    closed_at: Option<Instant>,
    /// How sessions share it.
    turns: Turns,
    /// Packets outside of any session, waiting to leave: destination (none: all neighbours) and bytes.
    outbox: VecDeque<(Option<MediaAddress>, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    reserved: bool,
    session: Option<Box<Session>>,
}

/// Where datagrams came from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The bearer that received them.
    pub bearer: BearerId,
    /// The sender's address on its medium.
    pub from: &'a MediaAddress,
}

/// What a bearer received in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'a> {
    /// The datagrams one behind the other.
    pub bytes: &'a [u8],
    /// Bytes of each but the last.
    pub stride: usize,
    /// They carry a congestion mark.
    pub ce: bool,
}

/// One node: everything that the protocol knows.
pub struct Node {
    config: Config,
    bearers: Vec<Bearer>,
    slots: Vec<Slot>,
    by_node: BTreeMap<NodeId, usize>,
    ports: BTreeMap<PortId, Port>,
    table: Table,
    log: Log,
    replicas: BTreeMap<NodeId, Replica>,
    subscriptions: Subscriptions,
    /// When a bearer last came, changed or went.
    bearers_at: Instant,
    /// So many of `events` subscribers were told.
    observed: usize,
    sole: Option<Sole>,
    sent: Tally,
    received: Tally,
    attempts: Vec<Attempt>,
    discovery: Discovery,
    events: VecDeque<Event>,
    drops: Drops,
    faults: BTreeMap<Fault, u64>,
    draws: u64,
    next_attempt: u32,
    loopback: Option<SessionId>,
    /// The node has left: it neither speaks of itself nor opens or accepts sessions.
    left: bool,
    reset_at: Instant,
    version_at: Instant,
    duplicate_at: Instant,
}

impl Node {
    /// A node without bearers and ports.
    pub fn new(now: Instant, config: Config) -> Self {
        let config_node = config.node;
        let mut node = Node {
            discovery: Discovery::new(now),
            draws: config.seed,
            config,
            bearers: Vec::new(),
            bearers_at: now,
            slots: Vec::new(),
            by_node: BTreeMap::new(),
            ports: BTreeMap::new(),
            table: Table::new(config_node),
            log: Log::new(),
            replicas: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            observed: 0,
            sole: None,
            sent: Tally::default(),
            received: Tally::default(),
            attempts: Vec::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            faults: BTreeMap::new(),
            next_attempt: 0,
            loopback: None,
            left: false,
            reset_at: now,
            version_at: Instant::ZERO,
            duplicate_at: Instant::ZERO,
        };
        node.next_attempt = node.draw() as u32 >> 2;
        node
    }

    /// The next number of the node's own sequence (SplitMix64): the same seed draws the same.
    fn draw(&mut self) -> u64 {
        let drawn = mix(self.draws);
        self.draws = self.draws.wrapping_add(STRIDE);
        drawn
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- bearers -------------------------------------------------------------------------------------------

    /// Adds the bearer by which the node talks to itself, and the session with itself.
    pub fn add_loopback(&mut self, now: Instant, info: BearerInfo) -> BearerId {
        let (to, sizes) = (info.address.clone(), (info.mtu, info.window));
        let id = self.add_bearer(now, info);
        let slot = self.free_slot();
        let index = self.session_id(slot);
        let hello = self.hello(index, 0, id);
        let mut session = Session::new(now, index, (&hello).into(), true, 0, &self.config);
        let link = LinkSpec::lossless(crate::id::LinkId(0), id, to, sizes);
        session.add_link(now, link, &self.config);
        session.announced = true;
        self.slots[slot].session = Some(Box::new(session));
        self.by_node.insert(self.config.node, slot);
        self.loopback = Some(index);
        id
    }

    // ----- what arrives --------------------------------------------------------------------------------------

    /// Datagrams from one sender.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        from: &Source<'_>,
        data: &Datagrams<'_>,
        store: &mut dyn Store,
    ) {
        let (mut rest, stride) = (data.bytes, data.stride.max(1));
        while !rest.is_empty() {
            loop {
                let taken = self.handle_pieces(now, from, rest, stride, data.ce, store);
                rest = &rest[taken..];
                if taken == 0 {
                    break;
                }
            }
            let (packet, behind) = rest.split_at(stride.min(rest.len()));
            if !packet.is_empty() {
                self.handle_packet(now, from, packet, data.ce, store);
            }
            rest = behind;
        }
    }

    /// Takes the pieces of a message that `packets` of `stride` bytes begin with and that go on where each other ended; how many bytes
    /// those packets have.
    fn handle_pieces(
        &mut self,
        now: Instant,
        source: &Source<'_>,
        packets: &[u8],
        stride: usize,
        ce: bool,
        store: &mut dyn Store,
    ) -> usize {
        if let Some(pieces) = wire::pieces(packets, stride) {
            let Some((slot, index)) = self.place_of(source, &pieces.first.header) else { return 0 };
            let Some(session) = &mut self.slots[slot].session else { return 0 };
            session.handle_pieces(cx!(self, now, store), index, &pieces, packets, ce)
        } else if let Some(parts) = wire::parts(packets, stride) {
            let Some((slot, index)) = self.place_of(source, &parts.header) else { return 0 };
            let Some(session) = &mut self.slots[slot].session else { return 0 };
            session.handle_parts(cx!(self, now, store), index, &parts, packets, ce)
        } else {
            0
        }
    }

    /// The slot of the session that a packet from `source` is for, and the index of the link that it came by.
    fn place_of(&self, source: &Source<'_>, header: &Header) -> Option<(usize, usize)> {
        let slot = self.slot_of(header.to)?;
        let session = self.slots[slot].session.as_ref()?;
        let index = session.link_index(header.link)?;
        let spec = &session.links[index].spec;
        (spec.bearer == source.bearer && spec.to == *source.from).then_some((slot, index))
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        source: &Source<'_>,
        packet: &[u8],
        ce: bool,
        store: &mut dyn Store,
    ) {
        let &Source { bearer, from } = source;
        let header = match wire::verify(packet) {
            Ok(header) => header,
            Err(malformed) => return self.on_malformed(now, bearer, from, packet, malformed.what),
        };
        let body = &packet[wire::HEADER_BYTES..];
        if header.has(wire::header::FLAG_SEALED) {
            // Without a key nothing vouches for what is inside (protocol.md §2.4).
            self.drops.malformed += 1;
            return;
        }
        match header.kind {
            PacketType::Init | PacketType::Resp | PacketType::Beacon if self.left => {}
            PacketType::Data => self.on_data(now, source, &header, packet, ce, store),
            PacketType::Init => self.on_init(now, bearer, from, body, store),
            PacketType::Resp => self.on_resp(now, bearer, from, &header, body, store),
            PacketType::Beacon => self.on_beacon(now, bearer, from, body),
            PacketType::Reset => self.on_reset(now, bearer, from, body),
            PacketType::Versions | PacketType::Cookie => {}
        }
    }

    fn on_malformed(
        &mut self,
        now: Instant,
        bearer: BearerId,
        from: &MediaAddress,
        packet: &[u8],
        fault: Fault,
    ) {
        let Fault::Version(theirs) = fault else { return self.note_malformed(fault) };
        *self.faults.entry(fault).or_insert(0) += 1;
        self.drops.version += 1;
        if now.since(self.version_at) < Duration::s(1) && self.version_at != Instant::ZERO {
            return;
        }
        self.version_at = now;
        self.events.push_back(Event::VersionMismatch { theirs, ours: wire::VERSION, at: from.clone() });
        if wire::header::peek_type(packet) == Some(PacketType::Init) {
            let mut out = Vec::new();
            let (min, max) = (wire::VERSION, wire::VERSION);
            wire::Versions { min, max, node: self.config.node }.emit_packet(now.stamp(), &mut out);
            self.post(bearer, Some(from.clone()), out);
        }
    }

    /// Counts a packet that is dropped because of what stands in it.
    fn note_malformed(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_insert(0) += 1;
        self.drops.malformed += 1;
    }

    fn on_data(
        &mut self,
        now: Instant,
        source: &Source<'_>,
        header: &Header,
        packet: &[u8],
        ce: bool,
        store: &mut dyn Store,
    ) {
        let &Source { bearer, from } = source;
        let Some(slot) = self.slot_of(header.to) else {
            self.drops.unknown_session += 1;
            return self.send_reset(now, bearer, from, header.to);
        };
        let Some(session) = &mut self.slots[slot].session else { return };
        let index = match session.link_index(header.link) {
            Some(index) => index,
            None => {
                let Some(index) = self.join_unknown(now, slot, source, packet, store) else {
                    self.drops.unknown_link += 1;
                    return;
                };
                index
            }
        };
        let Some(session) = &mut self.slots[slot].session else { return };
        let spec = &session.links[index].spec;
        if spec.bearer != bearer || spec.to != *from {
            self.drops.unknown_link += 1;
            return;
        }
        session.handle_packet(cx!(self, now, store), index, header, packet, ce);
        if !session.notices.is_empty()
            || session.closed_by_peer.is_some()
            || !session.credit_wanted.is_empty()
            || !session.freed.is_empty()
            || session.lags
        {
            self.after_packet(now, slot, store);
        }
    }

    /// What a packet asks of the node as a whole.
    fn after_packet(&mut self, now: Instant, slot: usize, store: &mut dyn Store) {
        while let Some(notice) = self.slots[slot].session.as_mut().and_then(|s| s.notices.pop_front()) {
            match notice {
                Notice::Digest(digest) => self.on_digest(slot, &digest),
                Notice::BearerSet(set) => self.on_bearer_set(now, slot, &set, store),
                bindings => self.on_bindings(slot, bindings),
            }
        }
        let Some(session) = &mut self.slots[slot].session else { return };
        if session.closed_by_peer.is_some() {
            return self.end_session(now, slot, store, true);
        }
        if session.lags && session.control_has_room() {
            self.tell_names(slot);
        }
        let Some(session) = &mut self.slots[slot].session else { return };
        let freed = std::mem::take(&mut session.freed);
        for port in std::mem::take(&mut session.credit_wanted) {
            self.refresh_credit(port, store);
        }
        self.handle_freed(freed, store);
    }

    /// A batch of datagrams is over: acknowledgements that became due are ready to leave.
    pub fn handle_batch_end(&mut self, now: Instant, bearer: BearerId, batch_bytes: u64, calls: u32) {
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session
                && session.is_linked(bearer)
            {
                session.handle_batch_end(now, bearer, batch_bytes, calls);
            }
        }
    }

    /// What became of the train that `poll_transmit` gave.
    pub fn handle_sent(&mut self, now: Instant, train: &Train, outcome: Outcome, store: &mut dyn Store) {
        if train.id == TrainId::default() {
            return;
        }
        let Some(slot) = self.slot_of(SessionId(train.id.session)) else { return };
        if let Some(session) = &mut self.slots[slot].session {
            session.handle_sent(cx!(self, now, store), train, outcome);
            let link = session.link_index(crate::id::LinkId(train.id.link));
            // What found no room keeps its turn; what was dropped had it, or nobody else would have one.
            #[cfg(feature = "planted")]
            let link = link.filter(|_| !self.config.planted(crate::planted::Planted::GreedySession));
            if outcome != Outcome::WouldBlock
                && let Some(link) = link
                && let Some(entry) = self.bearers.get_mut(session.links[link].spec.bearer.0 as usize)
            {
                entry.turns.charge(slot, train.bytes as u64);
            }
        }
    }

    /// Somebody on the way said how large packets to `to` may be. Anyone can say so, so it is only tried out.
    pub fn handle_mtu_hint(&mut self, now: Instant, bearer: BearerId, to: &MediaAddress, mtu: u16) {
        for session in self.slots.iter_mut().filter_map(|s| s.session.as_mut()) {
            session.handle_mtu_hint(now, bearer, to, mtu);
        }
    }

    /// The driver was away for `stall`.
    pub fn handle_stall(&mut self, stall: Duration) {
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                session.handle_stall(stall);
            }
        }
    }

    /// The driver is about to sleep: acknowledgements that wait for what leaves soon would wake it
    /// ([`ACK_SOON`](crate::link::recv::ACK_SOON)), so they leave by themselves.
    pub fn handle_idle(&mut self) {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.session.as_mut())
            .for_each(|session| session.handle_idle());
    }

    /// Deadlines that have come. Only after every source of datagrams was seen empty.
    pub fn handle_timeout(&mut self, now: Instant, store: &mut dyn Store) {
        for slot in 0..self.slots.len() {
            let Some(session) = &mut self.slots[slot].session else { continue };
            if session.deadline(now, &self.config) > now {
                continue;
            }
            session.handle_timeout(cx!(self, now, store));
            // A node stopped for long before its first turn has not lost itself.
            if session.is_lost(now) && self.loopback != Some(session.index) {
                self.end_session(now, slot, store, false);
            } else if session.behind {
                // What the peer has not been told is forgotten. A new session begins with what there is.
                self.post_close(now, slot, 1);
                self.end_session(now, slot, store, false);
            }
        }
        self.retry_attempts(now);
        self.send_beacons(now);
        self.announce_peers(now);
        self.end_subscriptions(now);
    }

    // ----- what leaves ---------------------------------------------------------------------------------------

    /// Whether `poll_transmit` is known to find nothing, whichever bearer it is asked about.
    #[inline]
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.slots.iter().all(|slot| slot.session.as_ref().is_none_or(|s| s.is_all_quiet(now)))
            && self.bearers.iter().all(|bearer| bearer.outbox.is_empty())
    }

    /// Fills `train` with what should leave by `bearer` next. An empty `to` means all neighbours.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        bearer: BearerId,
        train: &mut Train,
        store: &mut dyn Store,
    ) -> bool {
        // This is asked many times for each train that leaves.
        let Some(entry) = self.bearers.get(bearer.0 as usize) else { return false };
        if !entry.outbox.is_empty() {
            return self.take_posted(bearer, train);
        }
        let wakeful = |slot: &Slot| slot.session.as_ref().is_some_and(|s| !s.is_quiet(now, bearer));
        self.slots.iter().any(wakeful) && self.take_train(now, bearer, train, store)
    }

    /// As [`Node::poll_transmit`], among the sessions in turn.
    #[inline(never)]
    fn take_train(
        &mut self,
        now: Instant,
        bearer: BearerId,
        train: &mut Train,
        store: &mut dyn Store,
    ) -> bool {
        let mut after = None;
        loop {
            let Some(entry) = self.bearers.get(bearer.0 as usize) else { return false };
            let wakeful = |slot: &Slot| slot.session.as_ref().is_some_and(|s| !s.is_quiet(now, bearer));
            let slots = self.slots.iter().enumerate().filter(|(_, slot)| wakeful(slot));
            let Some(turn) = entry.turns.first(slots.map(|(index, _)| index), after) else { return false };
            if let Some(session) = &mut self.slots[turn.slot].session
                && session.poll_transmit(cx!(self, now, store), bearer, train)
            {
                return true;
            }
            after = Some(turn);
        }
    }

    /// Fills `train` with the next packet outside of any session that waits for `bearer`.
    #[inline(never)]
    fn take_posted(&mut self, bearer: BearerId, train: &mut Train) -> bool {
        let Some((to, bytes)) = self.bearers[bearer.0 as usize].outbox.pop_front() else { return false };
        train.clear();
        train.to = to.unwrap_or_default();
        train.with_head(|head| head.extend_from_slice(&bytes));
        train.list_head();
        train.segment_bytes = bytes.len();
        train.packets = 1;
        train.id = TrainId::default();
        true
    }

    /// The next news.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.observe();
        let event = self.events.pop_front();
        self.observed = self.observed.saturating_sub(1);
        if let Some(Event::Message { port, len, .. }) = event {
            self.count_received(port, len);
        }
        event
    }

    /// When `handle_timeout` wants to be called; `NEVER` if nothing is planned.
    pub fn poll_timeout(&mut self, now: Instant) -> Instant {
        let mut at = self.discovery.deadline(self.speaks()).min(self.subscriptions.deadline());
        for attempt in &self.attempts {
            at = at.min(attempt.next_at);
        }
        for slot in &mut self.slots {
            if let Some(session) = &mut slot.session {
                at = at.min(session.deadline(now, &self.config));
            }
        }
        at
    }

    /// Whether beacons are sent.
    fn speaks(&self) -> bool {
        self.config.discovery && !self.bearers.is_empty() && !self.left
    }

    /// Queues a packet outside of any session; a full queue drops it, for all of these are repeated.
    fn post(&mut self, bearer: BearerId, to: Option<MediaAddress>, bytes: Vec<u8>) {
        if let Some(entry) = self.bearers.get_mut(bearer.0 as usize)
            && entry.outbox.len() < 64
        {
            entry.outbox.push_back((to, bytes));
        }
    }

    // ----- looking at it -------------------------------------------------------------------------------------

    /// All sessions, with peers first to last.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().filter_map(|s| s.session.as_deref())
    }

    /// The service table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Drops by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Malformed packets by kind of fault.
    pub fn faults(&self) -> &BTreeMap<Fault, u64> {
        &self.faults
    }

    /// The bearers by number, with their carrier; one that was removed has no address.
    pub fn bearers(&self) -> impl Iterator<Item = (&BearerInfo, bool)> {
        self.bearers.iter().map(|b| (&b.info, b.carrier))
    }

    /// Bytes that all links together move on a bearer per second, as measured, and how long they may wait in its queue.
    pub fn bearer_rate(&self, bearer: BearerId) -> (u64, Duration) {
        let windows = self.sessions().flat_map(|session| &session.links);
        let windows = windows.filter(|link| link.spec.bearer == bearer).map(|link| &link.window);
        let sums = windows.map(|window| (window.rate_bytes_per_s(), window.queue_target()));
        let sum = sums.reduce(|(rate, target), (more, other)| (rate + more, target.min(other)));
        sum.unwrap_or((0, self.config.queue_target.1))
    }

    /// How long nobody has to look at what has come or may leave: not at all, unless nothing passes but large messages, of
    /// which much is still to come (protocol.md §5.13).
    pub fn rest(&self, now: Instant) -> Rest {
        let rests = self.sessions().filter_map(|session| session.rest(now));
        rests.reduce(Rest::and).unwrap_or(Rest::NONE)
    }

    /// Leaves the cluster: every peer is told. Messages not confirmed yet fail; drain before.
    pub fn leave(&mut self, now: Instant, store: &mut dyn Store) {
        for slot in 0..self.slots.len() {
            let Some(session) = &self.slots[slot].session else { continue };
            if Some(session.index) == self.loopback {
                continue;
            }
            self.post_close(now, slot, 0);
            self.end_session(now, slot, store, true);
        }
        self.attempts.clear();
        self.left = true;
    }

    /// Memory of a message that was offered and accepted by its port.
    pub fn accept(&mut self, session: SessionId, transfer: u32, buffer: BufferId) -> bool {
        let Some(slot) = self.slot_of(session) else { return false };
        self.slots[slot].session.as_mut().is_some_and(|s| s.accept(transfer, buffer))
    }
}
