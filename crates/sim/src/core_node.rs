//! The core alone, driven as simply as its contract allows. A seed that fails on the engine and not here points at
//! the engine; one that fails on both, at the core.

mod memory;

use crate::bearer::SimBearer;
use crate::plan::Plan;
use crate::subject::{Counters, FailReason, Happening, SendAnswer, Subject, To, Turned};
use crate::world::{Factory, NodeSpec};
use memory::Memory;
use polyrail_bearer::{Address, Bearer, RxBatch, SendOutcome, TRAIN_BYTES_MAX, Transmit};
use polyrail_proto::address::{MediaAddress, Scope, ServiceRange};
use polyrail_proto::error::Failure;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{BearerId, BufferId, Incarnation, NodeId, PortId};
use polyrail_proto::limits;
use polyrail_proto::link::state::LinkState;
use polyrail_proto::node::{Datagrams, Source};
use polyrail_proto::session::Outcome;
use polyrail_proto::time::{Duration, Instant};
use polyrail_proto::{BearerInfo, Config, Destination, Event, Node, Piece, Store, Train};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

/// Trains that one turn sends at most, per bearer, and groups that it receives.
const TRAINS_PER_TURN: usize = 16;
const GROUPS_PER_TURN: usize = 32;
/// The name of the bearer by which the node talks to itself.
const LOOPBACK_MTU: u16 = 65_504;

/// What of the core may be altered for a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A fault to plant.
    #[cfg(feature = "planted")]
    pub planted: Option<polyrail_proto::planted::Planted>,
}

struct CoreNode {
    node: Node,
    memory: Memory,
    bearers: Vec<SimBearer>,
    /// Bearers that took nothing at the last try.
    blocked: Vec<bool>,
    loopback: Option<BearerId>,
    loopback_queue: VecDeque<(Vec<u8>, usize)>,
    batch: RxBatch,
    train: Train,
    ports: BTreeMap<PortId, VecDeque<Happening>>,
    offers: BTreeMap<PortId, Vec<Event>>,
    closing: Vec<PortId>,
    news: Vec<Happening>,
    sent_ids: BTreeMap<BufferId, u64>,
}

/// A factory of nodes that are the core and little else.
pub fn factory(options: Options) -> Factory {
    Box::new(move |plan, spec, bearers| Box::new(CoreNode::new(plan, spec, bearers, options)))
}

fn media(address: &Address) -> MediaAddress {
    let (bytes, length) = address.to_bytes();
    MediaAddress::from_bytes(&bytes[..length]).unwrap_or_default()
}

/// Later lives have larger numbers; a clone's differ from the original's, as their random parts would.
fn incarnation(spec: &NodeSpec) -> Incarnation {
    Incarnation(1_000 + u64::from(spec.life) + ((spec.host & 0xff) << 32))
}

/// The settings of a node of a run.
pub fn config(plan: &Plan, spec: &NodeSpec, options: Options) -> Config {
    let mut config = Config::new(NodeId(spec.id), incarnation(spec));
    config.host = spec.host;
    config.seed = spec.seed;
    config.tolerance = Duration::ns(plan.tolerance_ns);
    config.full_check = plan.full_check;
    let _ = config.name.try_push_str(&format!("node{}", spec.index));
    #[cfg(feature = "planted")]
    {
        config.planted = options.planted;
    }
    let Options { .. } = options;
    config
}

impl CoreNode {
    fn new(plan: &Plan, spec: &NodeSpec, bearers: Vec<SimBearer>, options: Options) -> CoreNode {
        let config = config(plan, spec, options);
        let now = Instant(spec.now_ns);
        let mut node = Node::new(now, config);
        for bearer in &bearers {
            let (local, capabilities) = (bearer.local(), *bearer.capabilities());
            node.add_bearer(
                now,
                BearerInfo {
                    address: media(&local.address),
                    prefix_at: 3,
                    prefix_bits: usize::from(local.prefix_bits),
                    mtu: capabilities.mtu_bytes,
                    window: capabilities.receive_buffer_bytes / 2,
                    broadcast: true,
                    ambiguous: false,
                },
            );
        }
        let address = MediaAddress::from_bytes(&[2, 0]).unwrap_or_default();
        let loopback = node.add_loopback(
            now,
            BearerInfo {
                address,
                prefix_at: 0,
                prefix_bits: 16,
                mtu: LOOPBACK_MTU,
                window: 1 << 20,
                broadcast: false,
                ambiguous: true,
            },
        );
        CoreNode {
            node,
            memory: Memory::new(plan.rx_arena_bytes),
            blocked: vec![false; bearers.len()],
            bearers,
            loopback: Some(loopback),
            loopback_queue: VecDeque::new(),
            batch: RxBatch::new(GROUPS_PER_TURN),
            train: Train::new(),
            ports: BTreeMap::new(),
            offers: BTreeMap::new(),
            closing: Vec::new(),
            news: Vec::new(),
            sent_ids: BTreeMap::new(),
        }
    }

    /// Hands everything that arrived to the core; whether something was there.
    fn receive(&mut self, now: Instant) -> bool {
        let mut any = self.receive_own(now);
        for index in 0..self.bearers.len() {
            let bearer = BearerId(index as u8);
            self.batch.clear();
            let _ = self.bearers[index].recv(&mut self.batch);
            let _ = self.bearers[index].recv_beacons(&mut self.batch);
            any |= !self.batch.is_empty();
            for group in self.batch.iter() {
                let (from, store) = (media(&group.from), &mut self.memory);
                let data = Datagrams { bytes: group.bytes, stride: group.stride, ce: group.ce };
                self.node.handle_datagrams(now, &Source { bearer, from: &from }, &data, store);
            }
            if !self.batch.is_empty() {
                let (bytes, calls) = (self.batch.total_bytes() as u64, self.batch.len() as u32);
                self.node.handle_batch_end(now, bearer, bytes, calls);
            }
        }
        any
    }

    fn receive_own(&mut self, now: Instant) -> bool {
        let Some(bearer) = self.loopback else { return false };
        let any = !self.loopback_queue.is_empty();
        let from = MediaAddress::from_bytes(&[2, 0]).unwrap_or_default();
        for _ in 0..self.loopback_queue.len().min(GROUPS_PER_TURN) {
            let Some((bytes, stride)) = self.loopback_queue.pop_front() else { break };
            let data = Datagrams { bytes: &bytes, stride, ce: false };
            self.node.handle_datagrams(now, &Source { bearer, from: &from }, &data, &mut self.memory);
            self.node.handle_batch_end(now, bearer, bytes.len() as u64, 1);
        }
        any
    }

    /// Sends what should leave; whether more could leave at once.
    fn transmit(&mut self, now: Instant) -> bool {
        let mut more = false;
        for index in 0..self.bearers.len() {
            let bearer = BearerId(index as u8);
            if self.blocked[index] && !self.bearers[index].writable() {
                continue;
            }
            self.blocked[index] = false;
            let mut trains = 0;
            while !self.blocked[index]
                && self.node.poll_transmit(now, bearer, &mut self.train, &mut self.memory)
            {
                let outcome = self.send(index);
                self.node.handle_sent(now, &self.train, outcome, &mut self.memory);
                self.blocked[index] = outcome == Outcome::WouldBlock;
                trains += 1;
                if trains == TRAINS_PER_TURN {
                    more = true;
                    break;
                }
            }
        }
        if let Some(bearer) = self.loopback {
            while self.loopback_queue.len() < GROUPS_PER_TURN
                && self.node.poll_transmit(now, bearer, &mut self.train, &mut self.memory)
            {
                let bytes = self.flatten();
                self.loopback_queue.push_back((bytes, self.train.segment_bytes));
                self.node.handle_sent(now, &self.train, Outcome::Sent, &mut self.memory);
            }
            more |= !self.loopback_queue.is_empty();
        }
        more
    }

    fn send(&mut self, index: usize) -> Outcome {
        let (train, memory) = (&self.train, &self.memory);
        assert!(train.bytes <= TRAIN_BYTES_MAX, "a train of {} bytes", train.bytes);
        if train.to.as_bytes().is_empty() {
            return outcome(&self.bearers[index].broadcast(&train.head));
        }
        let slices: Vec<IoSlice<'_>> =
            train.pieces.iter().map(|piece| IoSlice::new(piece_bytes(train, memory, piece))).collect();
        let Some(to) = Address::from_bytes(train.to.as_bytes()) else { return Outcome::Failed };
        let transmit =
            Transmit { to, segment_bytes: train.segment_bytes, bytes: train.bytes, slices: &slices };
        outcome(&self.bearers[index].send(&transmit))
    }

    fn flatten(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.train.bytes);
        for piece in &self.train.pieces {
            bytes.extend_from_slice(piece_bytes(&self.train, &self.memory, piece));
        }
        bytes
    }

    fn take_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            self.on_event(event);
        }
        let now_closed: Vec<PortId> = self.closing.clone();
        for port in now_closed {
            if self.node.finish_closing(Instant::ZERO, port) {
                self.closing.retain(|closing| *closing != port);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Message { port, from, tag, buffer, len, .. } => {
                let bytes = self.memory.deliver(buffer, len);
                match self.ports.get_mut(&port) {
                    Some(queue) => queue.push_back(Happening::Received { port: port.0, from, tag, bytes }),
                    None => self.memory.consume(port, len),
                }
            }
            Event::Offer { port, .. } => self.offers.entry(port).or_default().push(event),
            Event::SendFailed { port, buffer, why, .. } => {
                let Some(id) = self.sent_ids.remove(&buffer) else { return };
                let reason = match why {
                    Failure::NoPort => FailReason::NoPort,
                    Failure::TooLarge => FailReason::TooLarge,
                    Failure::NotSent => FailReason::NotSent,
                    _ => FailReason::Indeterminate,
                };
                if let Some(queue) = self.ports.get_mut(&port) {
                    queue.push_back(Happening::Failed { id, reason });
                }
            }
            Event::PeerUp { node, .. } => self.news.push(Happening::NodeUp(node.0)),
            Event::PeerDown { node, left, .. } if !left => self.news.push(Happening::NodeDown(node.0)),
            Event::Link { from, to, .. } => self.news.push(Happening::Link(state_name(from), state_name(to))),
            Event::DuplicateIdentity { node, .. } => self.news.push(Happening::DuplicateIdentity(node.0)),
            _ => {}
        }
    }

    /// The application receives: offers of large messages are accepted into memory of its own.
    fn accept_offers(&mut self, port: PortId) {
        for offer in self.offers.remove(&port).unwrap_or_default() {
            if let Event::Offer { len, session, transfer, .. } = offer {
                let buffer = self.memory.allocate_own(port, len);
                if !self.node.accept(session, transfer, buffer) {
                    self.memory.discard(buffer);
                }
            }
        }
    }
}

fn piece_bytes<'a>(train: &'a Train, memory: &'a Memory, piece: &Piece) -> &'a [u8] {
    match *piece {
        Piece::Head { start, len } => &train.head[start as usize..(start + len) as usize],
        Piece::Body { buffer, offset, len } => memory.bytes(buffer, offset, len),
    }
}

fn state_name(state: LinkState) -> &'static str {
    match state {
        LinkState::New => "new",
        LinkState::Probation => "probation",
        LinkState::Up => "up",
        LinkState::Suspect => "suspect",
        LinkState::Down => "down",
        LinkState::Damped => "damped",
    }
}

fn outcome(outcome: &SendOutcome) -> Outcome {
    match outcome {
        SendOutcome::Sent => Outcome::Sent,
        SendOutcome::WouldBlock => Outcome::WouldBlock,
        SendOutcome::Dropped => Outcome::Dropped,
        SendOutcome::TooLarge => Outcome::TooLarge,
        SendOutcome::Failed(_) => Outcome::Failed,
    }
}

impl Subject for CoreNode {
    fn turn(&mut self, now_ns: u64) -> Turned {
        let now = Instant(now_ns);
        let received = self.receive(now);
        if !received && self.node.poll_timeout(now) <= now {
            self.node.handle_timeout(now, &mut self.memory);
        }
        let more = self.transmit(now);
        self.take_events();
        for buffer in self.memory.take_confirmed() {
            self.sent_ids.remove(&buffer);
        }
        let at = self.node.poll_timeout(now);
        let deadline_ns = (at != Instant::NEVER).then_some(at.0);
        Turned { deadline_ns, drained: !received && !more }
    }

    fn carrier(&mut self, now_ns: u64, bearer: usize, up: bool) {
        self.node.handle_carrier(Instant(now_ns), BearerId(bearer as u8), up, &mut self.memory);
    }

    fn stall(&mut self, _now_ns: u64, stalled_ns: u64) {
        self.node.handle_stall(Duration::ns(stalled_ns));
    }

    fn open_port(&mut self, _now_ns: u64) -> Option<u32> {
        let port = self.node.open_port().ok()?;
        self.ports.insert(port, VecDeque::new());
        self.memory.open(port);
        Some(port.0)
    }

    fn close_port(&mut self, now_ns: u64, port: u32) {
        let port = PortId(port);
        self.ports.remove(&port);
        self.offers.remove(&port);
        self.memory.close(port);
        self.node.close_port(Instant(now_ns), port, &mut self.memory);
        self.closing.push(port);
    }

    fn bind(&mut self, _now_ns: u64, port: u32, range: ServiceRange) {
        let _ = self.node.bind(PortId(port), range, Scope::Cluster);
    }

    fn unbind(&mut self, _now_ns: u64, port: u32, range: ServiceRange) {
        let _ = self.node.unbind(PortId(port), range, Scope::Cluster);
    }

    fn send(
        &mut self,
        now_ns: u64,
        port: u32,
        to: To,
        class: u8,
        tag: Option<u64>,
        id: u64,
        bytes: &[u8],
    ) -> SendAnswer {
        let to = match to {
            To::Port(address) => Destination::Port(address),
            To::Service(address) => Destination::Service(address),
        };
        let port = PortId(port);
        let Some(buffer) = self.memory.keep(port, bytes) else { return SendAnswer::Blocked };
        let len = bytes.len() as u64;
        match self.node.send(Instant(now_ns), port, to, Class::from_bits(class), tag, (buffer, len)) {
            Ok(_) => {
                self.sent_ids.insert(buffer, id);
                SendAnswer::Accepted
            }
            Err(_) => {
                self.memory.forget(buffer);
                SendAnswer::Refused
            }
        }
    }

    fn poll(&mut self, _now_ns: u64, port: u32, most: usize, out: &mut Vec<Happening>) {
        let port = PortId(port);
        let Some(queue) = self.ports.get_mut(&port) else { return };
        let count = queue.len().min(most);
        for happening in queue.drain(..count) {
            if let Happening::Received { bytes, .. } = &happening {
                self.memory.consume(port, bytes.len() as u64);
            }
            out.push(happening);
        }
        if count > 0 {
            self.node.handle_consumed(port, &mut self.memory);
        }
        self.accept_offers(port);
    }

    fn poll_node(&mut self, out: &mut Vec<Happening>) {
        out.append(&mut self.news);
    }

    fn describe(&self) -> String {
        self.node.sessions().map(|session| format!("{session:#?}\n")).collect()
    }

    fn counters(&self) -> Counters {
        let mut counters = core_counters(&self.node);
        counters.values.extend(self.memory.counters());
        counters
    }
}

/// What the core counts, for the checks and the coverage table.
pub fn core_counters(node: &Node) -> Counters {
    let drops = node.drops();
    let stats = || node.sessions().map(|session| &session.stats);
    let links = || node.sessions().flat_map(|session| &session.links);
    let sizes = node.sessions().map(|session| session.sizes());
    let largest =
        sizes.fold([0; 4], |most: [usize; 4], sizes| std::array::from_fn(|i| most[i].max(sizes[i])));
    let bound = |value: usize, bound: usize| (value as u64, Some(bound as u64));
    let flows = bound(largest[0].max(largest[1]), limits::FLOWS_MAX);
    let transfers = bound(largest[2].max(largest[3]), limits::TRANSFERS_MAX);
    let count = links().count();
    Counters {
        values: vec![
            ("flows of one session", flows.0, flows.1),
            ("transfers of one session", transfers.0, transfers.1),
            ("links of all sessions", count as u64, Some((limits::LINKS_MAX * limits::SESSIONS_MAX) as u64)),
            ("malformed packets", drops.malformed, None),
            ("packets of unknown sessions", drops.unknown_session, None),
            ("packets of unknown links", drops.unknown_link, None),
            ("duplicate packets", drops.duplicate_packet, None),
            ("duplicate messages", drops.duplicate_message, None),
            ("packets lost", links().map(|link| link.stats.packets_lost).sum(), None),
            ("packets lost spuriously", links().map(|link| link.stats.packets_lost_spuriously).sum(), None),
            ("probe timeouts", links().map(|link| link.stats.probe_timeouts).sum(), None),
        ],
        refused: stats().map(|stats| stats.messages_refused).sum(),
        violations: drops.violation,
    }
}
