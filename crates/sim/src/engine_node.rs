//! The real engine as a node under test: the same turns, queues and arenas as in the product, driven by the world
//! instead of threads.

mod connector;

use crate::plan::Plan;
use crate::subject::{
    Connector, Counters, Directory, FailReason, Happening, Held, KnownBinding, KnownPeer, Memory, SendAnswer,
    Subject, To, Turned, Wish,
};
use crate::subscriber::Subscriber;
use crate::world::{Factory, NodeSpec};
use polyrail::engine::client::{Arrival, Client, Envelope, Exchange};
use polyrail::engine::command::FailureCode;
use polyrail::engine::{Budget, Engine};
use polyrail::engine::{LargeMemory, Pool, Quota, Sizes};
use polyrail::{Class, Destination, NodeEvent};
use polyrail_bearer::MemoryHub;
use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::id::{Incarnation, NodeId, SessionId};
use polyrail_proto::node::Manner;
use polyrail_proto::time::{Duration, Instant};
use polyrail_proto::{Config, Node, limits};
use std::collections::{BTreeMap, VecDeque};

/// Memory for large messages that find no room in the arena.
const POOL_BYTES: usize = 64 << 20;

/// What of the core may be altered for a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A fault to plant.
    #[cfg(feature = "planted")]
    pub planted: Option<polyrail_proto::planted::Planted>,
}

/// A port with its queue pair.
struct Seat {
    client: Client,
    /// The run's numbers of the messages sent, by the port's own count.
    ids: Vec<u64>,
    /// Verbs that found the queue full.
    later: VecDeque<(Verb, ServiceRange, Scope)>,
    pool: Pool,
}

/// What a port wants of the service table.
#[derive(Clone, Copy)]
enum Verb {
    Bind,
    BindExclusive,
    Unbind,
}

struct EngineNode {
    engine: Engine,
    sizes: Sizes,
    exchange: Exchange,
    pool: Pool,
    seats: BTreeMap<u32, Seat>,
    news: Vec<Happening>,
    subscriber: Subscriber,
}

/// The settings of a node of a run.
fn config(plan: &Plan, spec: &NodeSpec, options: Options) -> Config {
    let mut config = Config::new(NodeId(spec.id), Incarnation(spec.incarnation));
    config.host = spec.host;
    config.seed = spec.seed;
    config.tolerance = Duration::ns(plan.tolerance_ns);
    config.policy = plan.policy;
    config.full_check = plan.full_check;
    let _ = config.name.try_push_str(&format!("node{}", spec.index));
    #[cfg(feature = "planted")]
    {
        config.planted = options.planted;
    }
    let Options { .. } = options;
    config
}

/// So little that large messages get memory ahead at times, and at times their programs are asked for it.
fn large_memory(plan: &Plan, pool: &Pool) -> LargeMemory {
    let port_bytes_max = plan.rx_arena_bytes as usize;
    let (pool, quota) = (pool.clone(), Quota::new(2 * port_bytes_max));
    LargeMemory { pool, quota, port_bytes_max, message_bytes_max: 8 << 20 }
}

/// A factory of engines.
pub fn factory(options: Options) -> Factory {
    Box::new(move |plan: &Plan, spec: &NodeSpec, bearers| {
        let mut engine = Engine::new(spec.now_ns, config(plan, spec, options));
        let pool = Pool::new(POOL_BYTES);
        engine.set_large_memory(large_memory(plan, &pool));
        for bearer in bearers {
            engine.add_bearer(spec.now_ns, Box::new(bearer));
        }
        engine.add_loopback(spec.now_ns, Box::new(MemoryHub::new().bearer(0)));
        Box::new(EngineNode {
            engine,
            sizes: Sizes {
                sq_entries: 1_024,
                cq_entries: 8_192,
                tx_bytes: plan.tx_arena_bytes,
                rx_bytes: plan.rx_arena_bytes,
            },
            exchange: Exchange::default(),
            pool,
            seats: BTreeMap::new(),
            news: Vec::new(),
            subscriber: Subscriber::default(),
        })
    })
}

impl EngineNode {
    fn take_news(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.news.push(match event {
                NodeEvent::PeerUp { node, .. } => Happening::NodeUp(node),
                NodeEvent::PeerDown { node, left: false, .. } => Happening::NodeDown(node),
                NodeEvent::Link { node: peer, link, from, to, .. } => {
                    Happening::Link { peer, link, from: from.name(), to: to.name() }
                }
                NodeEvent::DuplicateIdentity { node, .. } => Happening::DuplicateIdentity(node),
                _ => continue,
            });
        }
    }

    /// Hands in what did not fit the queue before.
    fn catch_up(&mut self) {
        for seat in self.seats.values_mut() {
            while let Some((verb, range, scope)) = seat.later.front().copied() {
                let done = match verb {
                    Verb::Bind => seat.client.bind(range, scope),
                    Verb::BindExclusive => seat.client.bind_exclusive(range, scope),
                    Verb::Unbind => seat.client.unbind(range, scope),
                };
                if done.is_err() {
                    break;
                }
                seat.later.pop_front();
            }
        }
    }

    fn queue(&mut self, port: u32, verb: Verb, range: ServiceRange, cluster: bool) {
        let scope = if cluster { Scope::Cluster } else { Scope::Node };
        if let Some(seat) = self.seats.get_mut(&port) {
            seat.later.push_back((verb, range, scope));
        }
        self.catch_up();
    }
}

fn destination(to: To) -> Destination {
    match to {
        To::Port(address) => Destination::Port(address),
        To::Service(address) => Destination::Service(address),
        To::All(range) => Destination::Multicast(range),
    }
}

/// Where a message that came back was to go; `None` if it could not have come back from there.
fn sent_to(to: Destination) -> Option<To> {
    match to {
        Destination::Port(address) => Some(To::Port(address)),
        Destination::Service(address) => Some(To::Service(address)),
        _ => None,
    }
}

/// A message as the world sees it.
fn received(port: u32, envelope: &Envelope, bytes: Vec<u8>) -> Happening {
    Happening::Received { port, from: envelope.from, tag: envelope.tag, bytes }
}

fn reason(code: FailureCode) -> FailReason {
    match code {
        FailureCode::NoPort => FailReason::NoPort,
        FailureCode::NoService => FailReason::NoService,
        FailureCode::NoNode => FailReason::NoNode,
        FailureCode::TooLarge => FailReason::TooLarge,
        FailureCode::Indeterminate => FailReason::Indeterminate,
        FailureCode::NotSent => FailReason::NotSent,
        FailureCode::Invalid => FailReason::Invalid,
        FailureCode::Expired => FailReason::Expired,
        FailureCode::Overload => FailReason::Overload,
        FailureCode::ShutDown => FailReason::ShutDown,
    }
}

impl Subject for EngineNode {
    fn turn(&mut self, now_ns: u64) -> Turned {
        self.catch_up();
        let work = self.engine.turn(now_ns, Budget::THOROUGH);
        self.take_news();
        self.subscriber.read(now_ns, &mut self.engine);
        // A turn that did something may have left something for its own loopback.
        let worked = work.done > 0;
        Turned { deadline_ns: work.next_deadline_ns, drained: work.drained && !worked, worked }
    }

    fn carrier(&mut self, now_ns: u64, bearer: usize, up: bool) {
        self.engine.carrier(now_ns, bearer, up);
        self.subscriber.read(now_ns, &mut self.engine);
    }

    fn stall(&mut self, now_ns: u64, stalled_ns: u64) {
        // The engine sees for itself that it comes late.
        let _ = (now_ns, stalled_ns);
    }

    fn open_port(&mut self, _now_ns: u64) -> Option<u32> {
        let client = self.engine.open_client(self.sizes, self.exchange.clone()).ok()?;
        let port = client.address().port.0;
        let pool = self.pool.clone();
        self.seats.insert(port, Seat { client, ids: Vec::new(), later: VecDeque::new(), pool });
        Some(port)
    }

    fn close_port(&mut self, _now_ns: u64, port: u32) {
        if let Some(mut seat) = self.seats.remove(&port) {
            seat.client.close();
        }
    }

    fn bind(&mut self, _now_ns: u64, port: u32, range: ServiceRange, cluster: bool) {
        self.queue(port, Verb::Bind, range, cluster);
    }

    fn bind_exclusive(&mut self, _now_ns: u64, port: u32, range: ServiceRange) {
        self.queue(port, Verb::BindExclusive, range, true);
    }

    fn unbind(&mut self, _now_ns: u64, port: u32, range: ServiceRange, cluster: bool) {
        self.queue(port, Verb::Unbind, range, cluster);
    }

    fn leave(&mut self, now_ns: u64) {
        self.engine.leave(now_ns);
        self.subscriber.read(now_ns, &mut self.engine);
    }

    fn send(&mut self, _now_ns: u64, port: u32, to: To, wish: Wish, id: u64, bytes: &[u8]) -> SendAnswer {
        let to = destination(to);
        let Wish { class, tag, returns, expires_at_ns } = wish;
        let expires_at = expires_at_ns.map(Instant);
        let how = Manner { class: Class::from_bits(class), tag, returns, expires_at };
        let Some(seat) = self.seats.get_mut(&port) else { return SendAnswer::Refused };
        match seat.client.send_as(to, how, bytes) {
            Ok(number) => {
                debug_assert_eq!(number, seat.ids.len() as u64);
                seat.ids.push(id);
                SendAnswer::Accepted
            }
            Err(_) => SendAnswer::Blocked,
        }
    }

    fn poll(&mut self, _now_ns: u64, port: u32, most: usize, out: &mut Vec<Happening>) {
        let Some(seat) = self.seats.get_mut(&port) else { return };
        for _ in 0..most {
            match seat.client.poll() {
                None => break,
                Some(Arrival::Message(envelope, offset)) => {
                    let bytes = seat.client.bytes(offset, envelope.len).to_vec();
                    seat.client.release(offset, envelope.len);
                    out.push(received(port, &envelope, bytes));
                }
                Some(Arrival::Owned(envelope, buffer)) => {
                    out.push(received(port, &envelope, buffer.to_vec()))
                }
                Some(Arrival::Offer { len, offer, from }) => {
                    let Ok(buffer) = self.pool.alloc(len as usize) else {
                        seat.client.keep_offer(len, offer, from);
                        break;
                    };
                    if seat.client.accept(offer, buffer).is_err() {
                        seat.client.keep_offer(len, offer, from);
                        break;
                    }
                }
                Some(Arrival::Failed(number, code)) => match seat.ids.get(number as usize) {
                    Some(id) => out.push(Happening::Failed { id: *id, reason: reason(code) }),
                    None => out.push(Happening::Failed { id: u64::MAX, reason: reason(code) }),
                },
                Some(Arrival::Taken(_)) => out.push(Happening::Taken),
                Some(Arrival::Unbound(range, _)) => out.push(Happening::Unbound(range)),
                Some(Arrival::Returned(returned)) => {
                    let id = seat.ids.get(returned.number as usize).copied().unwrap_or(u64::MAX);
                    let (to, tag) = (sent_to(returned.to), returned.tag);
                    let (class, why) = (returned.class as u8, reason(returned.why));
                    let bytes = seat.client.returned_bytes(&returned).to_vec();
                    seat.client.drop_returned(*returned);
                    out.push(Happening::Returned { id, reason: why, to, class, tag, bytes });
                }
                Some(
                    Arrival::Answer(_)
                    | Arrival::Came(_)
                    | Arrival::Direct(_)
                    | Arrival::Sorted
                    | Arrival::Past(_),
                ) => {}
            }
        }
    }

    fn connector(&mut self, port: u32) -> Option<&mut dyn Connector> {
        self.seats.get_mut(&port).map(|seat| seat as &mut dyn Connector)
    }

    fn far_session(&self, session: SessionId) -> Option<(u64, SessionId)> {
        let found = self.engine.core().sessions().find(|found| found.index == session)?;
        Some((found.peer.incarnation.0, found.peer.session))
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for session in self.engine.core().sessions() {
            held.ends += session.connections();
            held.credits += session.connection_credits();
            held.flows += session.connection_flows();
        }
        held
    }

    fn memory(&mut self) -> Memory {
        let mut memory = Memory { receiving_bytes: self.engine.receiving_bytes(), ..Memory::default() };
        for seat in self.seats.values_mut() {
            memory.unconfirmed += seat.client.unconfirmed();
            memory.sending_bytes += seat.client.sending_bytes();
        }
        memory
    }

    fn poll_node(&mut self, out: &mut Vec<Happening>) {
        out.append(&mut self.news);
    }

    fn directory(&self) -> Option<Directory> {
        let core = self.engine.core();
        let others = core.sessions().filter(|session| session.peer.node != core.config().node);
        let peers = others.map(|session| KnownPeer {
            node: session.peer.node.0,
            incarnation: session.peer.incarnation.0,
            met: session.announced,
        });
        let bindings = core.table().list().map(|(node, port, range, scope)| KnownBinding {
            node: node.0,
            port: port.0,
            range,
            cluster: scope == Scope::Cluster,
        });
        let misled = self.subscriber.objection(core);
        Some(Directory { peers: peers.collect(), bindings: bindings.collect(), misled })
    }

    fn describe(&self) -> String {
        self.engine.core().sessions().map(|session| format!("{session:#?}\n")).collect()
    }

    fn counters(&self) -> Counters {
        core_counters(self.engine.core())
    }
}

/// What the core counts, for the checks and the coverage table.
fn core_counters(node: &Node) -> Counters {
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
            // Packets of unknown links cannot occur: a link that a peer adds is joined at its first packet, every packet
            // comes from the address of its link, and no damage to a header passes its check.
            ("duplicate packets", drops.duplicate_packet, None),
            ("duplicate messages", drops.duplicate_message, None),
            ("messages before their connection", drops.early_message, None),
            ("messages after their connection", drops.late_message, None),
            ("packets lost", links().map(|link| link.stats.packets_lost).sum(), None),
            ("packets lost spuriously", links().map(|link| link.stats.packets_lost_spuriously).sum(), None),
            ("probe timeouts", links().map(|link| link.stats.probe_timeouts).sum(), None),
        ],
        refused: stats().map(|stats| stats.messages_refused).sum(),
        violations: drops.violation,
    }
}
