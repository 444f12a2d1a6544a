//! What two node incarnations share: links, flows, transfers, control frames.

pub(crate) mod connection;
mod consumed;
mod control;
mod expiry;
mod multicast;
mod outcome;
mod picture;
mod quiet;
mod receive;
mod schedule;
mod serving;
mod transmit;

pub use connection::{ConnectionPicture, ConnectionState};
pub use control::Notice;
pub use picture::{FlowPicture, GivenPicture, TakenPicture};
pub use transmit::Outcome;

use crate::address::MediaAddress;
use crate::config::Config;
use crate::error::Failure;
use crate::event::Event;
use crate::flow::receive::ReceiveFlow;
use crate::flow::send::{Fate, Outgoing, SendCredit, SendFlow};
use crate::flow::{Class, FlowKey};
use crate::id::{BearerId, Incarnation, LinkId, NodeId, PortAddress, PortId, SessionId};
use crate::limits;
use crate::link::send::Item;
use crate::link::state::{LinkEvent, Transition};
use crate::link::{Link, LinkSpec};
use crate::port::Port;
use crate::service::{Digests, Feed, Table};
use crate::slab::Slab;
use crate::stats::{Drops, SessionStats};
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::transfer::{ReceiveTransfer, SendTransfer};
use crate::wire::{self, Binding, Hello, LinkStatus, Refuse, Rejected};
use arrayvec::{ArrayString, ArrayVec};
use connection::Connections;
use control::Control;
use expiry::Deadlines;
use multicast::Fans;
use quiet::Quiet;
use schedule::Schedule;
use serving::Serving;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a call into a session may use.
pub(crate) struct Cx<'a> {
    pub now: Instant,
    pub config: &'a Config,
    pub store: &'a mut dyn Store,
    pub events: &'a mut VecDeque<Event>,
    pub drops: &'a mut Drops,
    pub faults: &'a mut BTreeMap<wire::Fault, u64>,
    pub ports: &'a mut BTreeMap<PortId, Port>,
    pub table: &'a Table,
}

/// Credit that a port of ours gave to this session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenCredit {
    pub port: PortId,
    pub received_bytes: u64,
    pub received_messages: u64,
    pub limit_bytes: u64,
    pub limit_messages: u64,
    pub told_bytes: u64,
    pub told_messages: u64,
    /// Messages that were not received although later ones of their flows were: their sender has been charged.
    pub gaps: u64,
    pub dirty: bool,
    pub wanted: bool,
}

/// Credit that a port of the peer gave us, with the flows that wait for it.
#[derive(Debug)]
struct TakenCredit {
    credit: SendCredit,
    /// Each once (see [`SendFlow::starved`]).
    waiting: Vec<u32>,
}

/// Sending half.
#[derive(Debug, Default)]
struct Sending {
    flows: Slab<SendFlow>,
    by_key: BTreeMap<FlowKey, u32>,
    /// The flow that was sent by last.
    last: Option<(FlowKey, u32)>,
    credits: Slab<TakenCredit>,
    credit_of: BTreeMap<PortId, u32>,
    transfers: Slab<SendTransfer>,
    refused: Vec<u32>,
    deadlines: Deadlines,
}

/// Receiving half.
#[derive(Debug, Default)]
struct Receiving {
    flows: Slab<ReceiveFlow>,
    by_key: BTreeMap<FlowKey, u32>,
    last: Option<(FlowKey, u32)>,
    credits: Slab<GivenCredit>,
    credit_of: BTreeMap<PortId, u32>,
    /// Credit that is to be told, each once.
    untold: VecDeque<u32>,
    /// Flows of which it is to be told how far they were read.
    consumed: Vec<u32>,
    transfers: Slab<ReceiveTransfer>,
    waiting: VecDeque<u32>,
    cts: VecDeque<u32>,
    refuse: VecDeque<Refuse>,
    fans: Fans,
    /// Ports of ours that close and that the peer has sent to: it is to be told once they are gone.
    owed: BTreeSet<PortId>,
    /// Ports of the peer that closed lately: late copies of what they sent must not open their flows anew.
    closed: VecDeque<PortId>,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Identity.
    pub node: NodeId,
    /// Life.
    pub incarnation: Incarnation,
    /// Name.
    pub name: ArrayString<63>,
    /// Its machine or namespace.
    pub host: u64,
    /// Its index of this session.
    pub session: SessionId,
    /// Credit of its ports before they said more.
    pub initial_credit: (u32, u32),
    /// How long it may be silent.
    pub tolerance: Duration,
    /// What it knows beside wire version 1, of what we know.
    pub features: u64,
    /// Its bearers.
    pub bearers: ArrayVec<wire::BearerAddress, { wire::handshake::BEARERS_MAX }>,
}

impl From<&Hello> for Peer {
    fn from(hello: &Hello) -> Self {
        Peer {
            node: hello.node,
            incarnation: hello.incarnation,
            name: hello.name,
            host: hello.host,
            session: hello.session,
            initial_credit: hello.initial_credit,
            tolerance: Duration::ms(hello.tolerance_ms as u64),
            features: hello.features & wire::FEATURES,
            bearers: hello.bearers.clone(),
        }
    }
}

/// A session with one incarnation of one peer.
#[derive(Debug)]
pub struct Session {
    /// Our index of it.
    pub index: SessionId,
    /// Who is at the other end.
    pub peer: Peer,
    /// We opened it, so we number its links.
    pub initiator: bool,
    /// The attempt that made it.
    pub attempt: u32,
    /// Its links.
    pub links: Vec<Link>,
    /// Counters.
    pub stats: SessionStats,
    /// The application was told that the peer is up.
    pub announced: bool,
    /// What the peer has still to be told of our bindings.
    pub(crate) feed: Option<Feed>,
    pub(crate) digests: Digests,
    /// It has not been told all of them, for the window of control frames was full.
    pub(crate) lags: bool,
    /// It lags so far that the log no longer has what it has not been told.
    pub(crate) behind: bool,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) closed_by_peer: Option<u16>,
    pub(crate) credit_wanted: Vec<PortId>,
    /// A newcomer claims this peer's identity: since when, and the proof of life seen last.
    pub(crate) contested: Option<Instant>,
    sending: Sending,
    receiving: Receiving,
    schedule: Schedule,
    control: Control,
    connections: Connections,
    quiet: Quiet,
    next_link: u16,
    last_app_at: Instant,
    isolated_since: Option<Instant>,
    /// Somebody said that the peer does not know this session: when it was asked.
    doubted_at: Option<Instant>,
    last_proof_at: Instant,
    tolerance: Duration,
    scratch: Vec<Item>,
    /// The planted fault, and the buffers that it gave back early.
    #[cfg(feature = "planted")]
    planted: Option<crate::planted::Planted>,
    #[cfg(feature = "planted")]
    early: std::collections::BTreeSet<(PortId, crate::id::BufferId)>,
}

/// Closed ports of a peer that are remembered; late copies are milliseconds late, not this many ports.
const CLOSED_PORTS_MAX: usize = 1_024;
/// Records of the binding log per frame, so that a frame fits a packet of the smallest size.
const RECORDS_PER_FRAME: usize = 24;
/// How long after its last message a session keeps the keepalives of a busy one.
const BUSY_FOR: Duration = Duration::s(1);
/// How long a link that is not usable waits for the answer to a question.
const UNANSWERED: Duration = Duration::s(1);
/// A session that confirms nothing for this long after a reset said that the peer does not know it is given up.
const DOUBT: Duration = Duration::ms(50);

impl Session {
    pub(crate) fn new(
        now: Instant,
        index: SessionId,
        peer: Peer,
        initiator: bool,
        attempt: u32,
        config: &Config,
    ) -> Self {
        let tolerance = config.tolerance.max(peer.tolerance.min(limits::TOLERANCE_UNPROVED_MAX));
        Session {
            index,
            peer,
            initiator,
            attempt,
            links: Vec::new(),
            stats: SessionStats::default(),
            announced: false,
            feed: None,
            digests: Digests::default(),
            lags: false,
            behind: false,
            notices: VecDeque::new(),
            closed_by_peer: None,
            credit_wanted: Vec::new(),
            contested: None,
            sending: Sending::default(),
            receiving: Receiving::default(),
            schedule: Schedule::default(),
            control: Control::default(),
            connections: Connections::default(),
            quiet: Quiet::default(),
            next_link: 0,
            last_app_at: now,
            isolated_since: Some(now),
            doubted_at: None,
            last_proof_at: now,
            tolerance,
            scratch: Vec::new(),
            #[cfg(feature = "planted")]
            planted: config.planted,
            #[cfg(feature = "planted")]
            early: Default::default(),
        }
    }

    /// Number for a new link; only the initiator allocates.
    pub(crate) fn allocate_link(&mut self) -> LinkId {
        self.next_link += 1;
        LinkId(self.next_link)
    }

    /// Adds a link that then has to be joined.
    pub(crate) fn add_link(&mut self, now: Instant, spec: LinkSpec, config: &Config) {
        self.next_link = self.next_link.max(spec.id.0);
        self.quiet.add_link(spec.bearer);
        self.links.push(Link::new(now, spec, config));
    }

    pub(crate) fn link_index(&self, id: LinkId) -> Option<usize> {
        self.links.iter().position(|l| l.spec.id == id)
    }

    /// Whether a link over this pair of attachments exists.
    pub(crate) fn has_link(&self, bearer: BearerId, to: &MediaAddress) -> bool {
        self.links.iter().any(|l| l.spec.bearer == bearer && l.spec.to == *to)
    }

    /// Whether at least one link carries messages.
    pub fn is_up(&self) -> bool {
        self.links.iter().any(Link::usable)
    }

    /// The peer has proved to be there: from now on it may be silent for as long as it said.
    pub(crate) fn announce(&mut self) {
        self.announced = true;
        self.tolerance = self.tolerance.max(self.peer.tolerance.min(limits::TOLERANCE_MAX));
    }

    /// Whether messages went either way lately.
    pub fn is_busy(&self, now: Instant) -> bool {
        now.since(self.last_app_at) < BUSY_FOR || !self.sending.flows.iter().all(|(_, f)| f.is_idle())
    }

    /// When the peer last confirmed anything.
    pub fn last_proof_at(&self) -> Instant {
        self.last_proof_at
    }

    /// Control frames can be queued without growing the log beyond its bound.
    pub(crate) fn control_has_room(&self) -> bool {
        self.control.has_room()
    }

    /// The number that the next control frame gets.
    pub(crate) fn control_end(&self) -> u32 {
        self.control.end()
    }

    /// Whether the peer has processed all control frames below number `end`.
    pub(crate) fn control_is_confirmed(&self, end: u32) -> bool {
        self.control.has_confirmed(end)
    }

    /// How many records of our log, from number `log_seq` on, may be queued as one frame: as many as the frame that
    /// waits last can take if they follow those in it, or a whole frame if there is room for one more.
    pub(crate) fn bindings_room(&mut self, log_seq: u64) -> usize {
        if let Some(Notice::Bindings { log_seq: first, records, .. }) = self.control.last_unsent()
            && *first + records.len() as u64 == log_seq
            && records.len() < RECORDS_PER_FRAME
        {
            return RECORDS_PER_FRAME - records.len();
        }
        if self.control.has_room() { RECORDS_PER_FRAME } else { 0 }
    }

    /// Queues records of our log from number `log_seq` on, no more than there is room for.
    pub(crate) fn tell_bindings(&mut self, config: &Config, log_seq: u64, mut records: Vec<Binding>) {
        if self.peer.features & wire::FEATURE_NAMES == 0 {
            // It would not understand the flag. Its own bindings are not exclusive, and win.
            records.iter_mut().for_each(|record| record.exclusive = false);
        }
        match self.control.last_unsent() {
            Some(Notice::Bindings { log_seq: first, records: waiting, .. })
                if *first + waiting.len() as u64 == log_seq
                    && waiting.len() + records.len() <= RECORDS_PER_FRAME =>
            {
                waiting.append(&mut records);
            }
            _ => {
                let (origin, incarnation) = (config.node, config.incarnation);
                self.notify(Notice::Bindings { origin, incarnation, log_seq, records });
            }
        }
    }

    pub(crate) fn notify(&mut self, notice: Notice) {
        self.control.push(notice);
        self.quiet.stir();
    }

    // ----- what ports do -------------------------------------------------------------------------------------

    /// Queues a message of a local port.
    pub(crate) fn send(&mut self, now: Instant, key: FlowKey, message: Outgoing) -> bool {
        self.queue(now, key, message).is_some()
    }

    /// The same; the key of its flow, unless there are too many.
    #[inline]
    fn queue(&mut self, now: Instant, key: FlowKey, message: Outgoing) -> Option<u32> {
        let flow_key = self.send_flow(key)?;
        let flow = self.sending.flows.get_mut(flow_key)?;
        flow.push(message);
        self.last_app_at = now;
        self.stats.messages_sent += 1;
        self.schedule.enqueue_flow(flow_key, flow);
        self.quiet.stir();
        Some(flow_key)
    }

    fn send_flow(&mut self, key: FlowKey) -> Option<u32> {
        if let Some((last, k)) = self.sending.last
            && last == key
            && self.sending.flows.get(k).is_some()
        {
            return Some(k);
        }
        if let Some(&k) = self.sending.by_key.get(&key) {
            self.sending.last = Some((key, k));
            return Some(k);
        }
        let credit = match self.sending.credit_of.get(&key.to) {
            Some(&c) => c,
            None => {
                let (bytes, messages) = self.peer.initial_credit;
                let entry = TakenCredit { credit: SendCredit::initial(bytes, messages), waiting: Vec::new() };
                let c = self.sending.credits.insert(entry)?;
                self.sending.credit_of.insert(key.to, c);
                c
            }
        };
        let k = self.sending.flows.insert(SendFlow::new(key, credit))?;
        self.sending.by_key.insert(key, k);
        Some(k)
    }

    /// Whether a message to `to` would be held back for want of credit or behind many others.
    pub(crate) fn is_ready_for(&self, from: PortId, to: PortId, class: Class) -> bool {
        let key = FlowKey { from, to, class };
        let Some(flow) = self.sending.by_key.get(&key).and_then(|k| self.sending.flows.get(*k)) else {
            return true;
        };
        flow.unconfirmed() < 256
    }

    /// Messages of `port` that are not confirmed.
    pub(crate) fn unconfirmed_of(&self, port: PortId) -> usize {
        self.sending.flows.iter().filter(|(_, f)| f.key.from == port).map(|(_, f)| f.unconfirmed()).sum()
    }

    /// A local port is gone and everything it sent was confirmed: forget its flows, tell the peer.
    pub(crate) fn forget_sender(&mut self, port: PortId) {
        let keys: Vec<FlowKey> = self.sending.by_key.keys().filter(|k| k.from == port).copied().collect();
        for key in &keys {
            if let Some(k) = self.sending.by_key.remove(key) {
                self.sending.flows.remove(k);
            }
        }
        // Who waits for its credit waits in vain, and sends nothing that could be refused.
        if self.receiving.owed.remove(&port) || !keys.is_empty() {
            self.notify(Notice::PortClosed(port));
        }
    }

    /// A local port closes: what waits for it is dropped, what comes for it is refused.
    pub(crate) fn close_receiver(&mut self, store: &mut dyn Store, port: PortId) {
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().filter(|k| k.to == port).copied().collect();
        for key in keys {
            self.reject_unread(key, Rejected::PortClosed);
            self.end_receive_flow(store, key);
        }
        self.receiving.fans.close_port(store, port);
        if let Some(credit) = self.receiving.credit_of.remove(&port) {
            self.receiving.credits.remove(credit);
            self.receiving.owed.insert(port);
        }
    }

    fn end_receive_flow(&mut self, store: &mut dyn Store, key: FlowKey) {
        self.receiving.last = None;
        let Some(mut flow) = self.receiving.by_key.remove(&key).and_then(|k| self.receiving.flows.remove(k))
        else {
            return;
        };
        if let Some(given) = self.receiving.credits.get_mut(flow.credit) {
            given.gaps = given.gaps.saturating_sub(flow.gaps());
        }
        let mut transfers = Vec::new();
        let fans = &mut self.receiving.fans;
        let discard = |buffer| match key.to {
            PortId::MULTICAST => fans.discard(store, buffer),
            _ => store.discard(buffer),
        };
        flow.end(discard, |transfer| transfers.push(transfer));
        self.receiving.waiting.retain(|waiting| !transfers.contains(waiting));
        for transfer in transfers {
            if let Some(buffer) = self.receiving.transfers.remove(transfer).and_then(|t| t.buffer()) {
                store.discard(buffer);
            }
        }
    }

    /// The peer's port is gone: its flows end, and what was on its way to it failed.
    fn peer_port_closed(&mut self, cx: &mut Cx<'_>, port: PortId) {
        if self.receiving.closed.len() >= CLOSED_PORTS_MAX {
            self.receiving.closed.pop_front();
        }
        self.receiving.closed.push_back(port);
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().filter(|k| k.from == port).copied().collect();
        for key in keys {
            self.end_receive_flow(cx.store, key);
        }
        // What was under way may have been delivered before the port closed; the rest was not.
        self.fail_flows(cx, |key| key.to == port, Failure::NoPort, None);
        if let Some(credit) = self.sending.credit_of.remove(&port) {
            self.sending.credits.remove(credit);
        }
    }

    /// Ends the send flows that `which` names and reports every message that they held: as indeterminate if it may
    /// have arrived, else with `why`.
    fn fail_flows(
        &mut self,
        cx: &mut Cx<'_>,
        which: impl Fn(&FlowKey) -> bool,
        why: Failure,
        refused: Option<u32>,
    ) {
        let keys: Vec<FlowKey> = self.sending.by_key.keys().filter(|k| which(k)).copied().collect();
        for key in keys {
            self.fail_flow(cx, key, why, refused);
        }
    }

    /// The same for one flow.
    fn fail_flow(&mut self, cx: &mut Cx<'_>, key: FlowKey, why: Failure, refused: Option<u32>) {
        let Some(flow_key) = self.sending.by_key.remove(&key) else { return };
        if let Some(mut flow) = self.sending.flows.remove(flow_key) {
            self.sending.deadlines.forget(flow_key, &flow);
            let to = PortAddress { node: self.peer.node, port: key.to };
            let stats = &mut self.stats;
            let port = key.from;
            #[cfg(feature = "planted")]
            let port = match self.planted {
                Some(crate::planted::Planted::MisdirectedReturn) => {
                    cx.ports.keys().copied().find(|other| *other != port).unwrap_or(port)
                }
                _ => port,
            };
            let tokens = flow.end(refused, |message, fate| {
                #[cfg(feature = "planted")]
                let early = self.early.remove(&(key.from, message.buffer));
                #[cfg(not(feature = "planted"))]
                let early = false;
                if !early {
                    cx.store.release(key.from, message.buffer, fate == Fate::Read);
                }
                let why = match fate {
                    Fate::Read => return stats.messages_confirmed += 1,
                    // What its receiver has not read it never will.
                    _ if why == Failure::ShutDown && message.returns => why,
                    Fate::Unknown => Failure::Indeterminate,
                    _ if why == Failure::ShutDown => Failure::NoPort,
                    _ => why,
                };
                stats.messages_failed += 1;
                cx.events.push_back(Event::SendFailed { port, buffer: message.buffer, to, why });
            });
            for token in tokens {
                self.sending.transfers.remove(token);
            }
        }
    }

    /// The session is over: every message that it holds comes to an end.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>) {
        self.fail_flows(cx, |_| true, Failure::NotSent, None);
        self.end_connections(cx);
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().copied().collect();
        for key in keys {
            self.end_receive_flow(cx.store, key);
        }
    }

    /// Memory for an offered message.
    pub(crate) fn accept(&mut self, transfer: u32, buffer: crate::id::BufferId) -> bool {
        let Some(entry) = self.receiving.transfers.get_mut(transfer) else { return false };
        if entry.buffer().is_some() {
            return false;
        }
        entry.accept(buffer);
        self.receiving.waiting.retain(|w| *w != transfer);
        self.receiving.cts.push_back(transfer);
        self.quiet.stir();
        true
    }

    /// Somebody says that the peer does not know this session: ask, and be patient only for a while.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.ask();
        if self.doubt_ends_at() == Instant::NEVER {
            self.doubted_at = Some(now);
        }
    }

    /// Asks the peer by every link whether it is there.
    pub(crate) fn ask(&mut self) {
        for link in &mut self.links {
            link.probe = Some(wire::ProbeKind::Liveness);
        }
        self.quiet.stir();
    }

    /// When the session is given up unless its peer answers before.
    fn doubt_ends_at(&self) -> Instant {
        let open = self.doubted_at.filter(|at| self.last_proof_at <= *at);
        open.map_or(Instant::NEVER, |at| at + DOUBT)
    }

    // ----- credit --------------------------------------------------------------------------------------------

    pub(crate) fn given_credit(&self, port: PortId) -> Option<&GivenCredit> {
        self.receiving.credits.get(*self.receiving.credit_of.get(&port)?)
    }

    /// Raises what `port` gives to this session, and has it told if that is worth a frame.
    pub(crate) fn give_credit(&mut self, port: PortId, bytes: u64, messages: u64) {
        let Some(key) = self.receiving.credit_of.get(&port) else { return };
        let Some(given) = self.receiving.credits.get_mut(*key) else { return };
        given.limit_bytes = given.limit_bytes.max(bytes);
        given.limit_messages = given.limit_messages.max(messages);
        given.wanted = false;
        let left = given.told_bytes.saturating_sub(given.received_bytes);
        let left_messages = given.told_messages.saturating_sub(given.received_messages);
        let more = given.limit_bytes - given.told_bytes;
        let more_messages = given.limit_messages - given.told_messages;
        // Whoever has less left than the largest eager message may be waiting for just this.
        let starved =
            left < 2 * limits::EAGER_BYTES_MAX && more > 0 || left_messages < 2 && more_messages > 0;
        if starved || more >= (left / 2).max(4_096) || more_messages >= (left_messages / 2).max(16) {
            if !std::mem::replace(&mut given.dirty, true) {
                self.receiving.untold.push_back(*key);
            }
            self.quiet.stir();
        }
    }

    /// Tries again to find memory for large messages that wait.
    pub(crate) fn retry_waiting(&mut self, store: &mut dyn Store, port: PortId, config: &Config) {
        let waiting = std::mem::take(&mut self.receiving.waiting);
        for key in waiting {
            let Some(transfer) = self.receiving.transfers.get_mut(key) else { continue };
            let mine = transfer.owner == port && transfer.total <= config.auto_accept_bytes_max;
            match if mine { store.reserve(port, transfer.total, false) } else { None } {
                Some(buffer) => {
                    transfer.accept(buffer);
                    self.receiving.cts.push_back(key);
                    self.quiet.stir();
                }
                None => self.receiving.waiting.push_back(key),
            }
        }
    }

    // ----- time ----------------------------------------------------------------------------------------------

    /// Has the peer been silent for longer than is tolerated?
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        let isolated = self.isolated_since.is_some_and(|since| now.since(since) >= self.tolerance);
        isolated || self.doubt_ends_at() <= now
    }

    /// The earliest moment at which the session wants to be looked at; at times too early, for it is computed only when
    /// something happened.
    #[inline]
    pub(crate) fn deadline(&mut self, now: Instant, config: &Config) -> Instant {
        self.quiet.deadline().unwrap_or_else(|| {
            let at = self.compute_deadline(now, config);
            self.quiet.note_deadline(at);
            at
        })
    }

    fn compute_deadline(&self, now: Instant, config: &Config) -> Instant {
        let (busy, carried) = (self.is_busy(now), self.is_up());
        let mut at = self.isolated_since.map_or(Instant::NEVER, |since| since + self.tolerance);
        at = at.min(self.doubt_ends_at()).min(self.sending.deadlines.next_at());
        for link in &self.links {
            at = at.min(link.deadline(config, busy, carried));
        }
        for flow in &self.sending.refused {
            if let Some(flow) = self.sending.flows.get(*flow) {
                at = at.min(flow.retry_at());
            }
        }
        at
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.quiet.stir();
        let busy = self.is_busy(cx.now);
        for index in 0..self.links.len() {
            self.link_timeout(cx, index);
            self.links[index].check_probe(cx.now, cx.config, busy);
        }
        self.retry_refused(cx.now);
        self.expire(cx);
    }

    fn retry_refused(&mut self, now: Instant) {
        let refused = std::mem::take(&mut self.sending.refused);
        for key in refused {
            let Some(flow) = self.sending.flows.get_mut(key) else { continue };
            if flow.wakes_at(now) == Instant::NEVER {
                self.schedule.enqueue_flow(key, flow);
            } else {
                self.sending.refused.push(key);
            }
        }
    }

    fn link_timeout(&mut self, cx: &mut Cx<'_>, index: usize) {
        let now = cx.now;
        if !self.links[index].usable() {
            self.links[index].sent.forget_unanswered(now - UNANSWERED);
        }
        if self.links[index].loss_at() <= now {
            self.detect_losses(cx, index);
        }
        if self.links[index].usable() && self.links[index].pto_at() <= now {
            self.probe_timeout(cx, index);
        }
        if self.links[index].state.deadline() <= now
            && let Some(change) = self.links[index].state.handle_timeout(now)
        {
            self.on_transition(cx, index, change);
        }
    }

    /// Nothing was confirmed for a probe time-out (protocol.md §5.4): ask, and let other links carry copies; the
    /// second time in a row the link is suspect.
    fn probe_timeout(&mut self, cx: &mut Cx<'_>, index: usize) {
        let link = &mut self.links[index];
        link.pto_count += 1;
        link.restart_pto(cx.now);
        link.stats.probe_timeouts += 1;
        link.probe = Some(wire::ProbeKind::Liveness);
        let silent = link.pto_count >= 2;
        // With another link to go by, nothing waits to see whether the youngest packets are confirmed after all.
        let sure = Serving::of(&self.links).has_sure_link();
        let before = if sure { cx.now } else { cx.now - self.links[index].rtt.srtt() };
        let mut items = std::mem::take(&mut self.scratch);
        self.links[index].sent.copy_older(before, |item| items.push(item));
        self.repeat(&mut items, index);
        self.scratch = items;
        if silent {
            self.link_event(cx, index, LinkEvent::Silence);
        }
    }

    /// Feeds an event to a link's state machine and draws the consequences.
    pub(crate) fn link_event(&mut self, cx: &mut Cx<'_>, index: usize, event: LinkEvent) {
        if let Some(change) = self.links[index].state.handle(cx.now, event) {
            self.on_transition(cx, index, change);
        }
    }

    fn on_transition(&mut self, cx: &mut Cx<'_>, index: usize, change: Transition) {
        use crate::link::state::LinkState::{Down, Probation, Suspect, Up};
        let link = &mut self.links[index];
        let (id, bearer) = (link.spec.id, link.spec.bearer);
        let mut items = std::mem::take(&mut self.scratch);
        match change.to {
            Suspect => {
                link.stats.failures += 1;
                link.probe = Some(wire::ProbeKind::Liveness);
                link.sent.copy_older(cx.now, |item| items.push(item));
                self.repeat(&mut items, index);
            }
            Down | crate::link::state::LinkState::Damped if change.from != Down => {
                if matches!(change.from, Up | Probation) {
                    link.stats.failures += 1;
                }
                link.stats.packets_lost += link.sent.abandon(|item| items.push(item));
                link.pto_count = 0;
                #[cfg(feature = "planted")]
                if cx.config.planted(crate::planted::Planted::ForgottenRetransmission) {
                    items.clear();
                }
                self.repeat(&mut items, index);
                let next = self.links[index].sent.next() as u32;
                // The peer finds out by itself too; what it does not confirm must not pile up.
                if self.control.has_room() {
                    self.control.push(Notice::LinkSet(id, LinkStatus::Down, next));
                }
            }
            Probation => {
                link.pto_count = 0;
                link.window.probation(cx.now);
            }
            Up => link.pto_count = 0,
            _ => {}
        }
        items.clear();
        self.scratch = items;
        self.schedule.forget_choice();
        self.note_isolation(cx.now);
        let node = self.peer.node;
        let Transition { from, to, why } = change;
        cx.events.push_back(Event::Link { node, link: id, bearer, from, to, why });
    }

    pub(crate) fn note_isolation(&mut self, now: Instant) {
        let sound = self.links.iter().any(|l| l.carrier && l.state.usable());
        for link in &mut self.links {
            link.pressed = !sound && link.state.state() == crate::link::state::LinkState::Damped;
        }
        if self.is_up() {
            self.isolated_since = None;
        } else if self.isolated_since.is_none() {
            self.isolated_since = Some(now);
        }
    }

    /// The driver was away for `stall`: deadlines by time are that much later, for we may accuse nobody.
    pub(crate) fn handle_stall(&mut self, stall: Duration) {
        // Nothing comes any earlier by it, so that what is known of this session holds.
        for link in &mut self.links {
            link.shift(stall);
        }
        for at in [&mut self.isolated_since, &mut self.doubted_at].into_iter().flatten() {
            *at += stall;
        }
    }

    /// A batch of datagrams is over (see [`crate::Node::handle_batch_end`]).
    pub(crate) fn handle_batch_end(&mut self, now: Instant, bearer: BearerId, batch_bytes: u64, calls: u32) {
        for link in &mut self.links {
            if link.spec.bearer == bearer {
                link.received.on_batch_end(now, batch_bytes, calls);
                if link.received.ack_pending() {
                    // At another rate an acknowledgement is due after another number of bytes.
                    self.quiet.stir();
                }
            }
        }
        // Most of what comes asks for nothing but an acknowledgement later.
        if !self.is_quiet(now, bearer) {
            self.note_if_done(now, bearer);
        }
    }

    /// Somebody said how large packets to `to` may be.
    pub(crate) fn handle_mtu_hint(&mut self, now: Instant, bearer: BearerId, to: &MediaAddress, mtu: u16) {
        for link in &mut self.links {
            if link.spec.bearer == bearer && link.spec.to == *to {
                link.mtu.on_hint(now, mtu & !7);
                self.quiet.stir();
            }
        }
    }

    /// A bearer's carrier came or went.
    pub(crate) fn handle_carrier(&mut self, cx: &mut Cx<'_>, bearer: BearerId, carrier: bool) {
        self.quiet.stir();
        for index in 0..self.links.len() {
            if self.links[index].spec.bearer == bearer && self.links[index].carrier != carrier {
                self.links[index].carrier = carrier;
                let event = if carrier { LinkEvent::CarrierBack } else { LinkEvent::CarrierLost };
                self.link_event(cx, index, event);
                if carrier {
                    self.links[index].on_carrier_back(cx.now);
                }
            }
        }
        self.note_isolation(cx.now);
    }

    /// Credit frames, grants and refusals that wait, for reports and tests.
    pub fn backlog(&self) -> (usize, usize) {
        (self.receiving.cts.len() + self.receiving.refuse.len(), self.schedule.len())
    }

    /// Ends of connections that are here.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Credits that belong to ends of connections, given and taken.
    pub fn connection_credits(&self) -> usize {
        let given = self.receiving.credit_of.keys().filter(|port| port.is_connection());
        given.count() + self.sending.credit_of.keys().filter(|port| port.is_connection()).count()
    }

    /// Flows of connections that exist, sending and receiving.
    pub fn connection_flows(&self) -> usize {
        let sending = self.sending.by_key.keys().filter(|key| key.to.is_connection());
        sending.count() + self.receiving.by_key.keys().filter(|key| key.to.is_connection()).count()
    }

    /// Flows that exist, sending and receiving, and transfers, sending and receiving.
    pub fn sizes(&self) -> [usize; 4] {
        [
            self.sending.flows.len(),
            self.receiving.flows.len(),
            self.sending.transfers.len(),
            self.receiving.transfers.len(),
        ]
    }
}

/// Credit of a port before it said anything (protocol.md §6.2).
pub(crate) fn initial_given(port: PortId) -> GivenCredit {
    let (bytes, messages) = limits::INITIAL_CREDIT;
    GivenCredit {
        port,
        received_bytes: 0,
        received_messages: 0,
        limit_bytes: bytes as u64,
        limit_messages: messages as u64,
        told_bytes: bytes as u64,
        told_messages: messages as u64,
        gaps: 0,
        dirty: false,
        wanted: false,
    }
}

#[cfg(test)]
mod tests;
