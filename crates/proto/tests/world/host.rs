//! One machine: a node, its memory, and the loop that drives them.

use super::memory::Memory;
use super::{Packet, address};
use polyrail_proto::address::{MediaAddress, Scope, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{BearerId, BufferId, ConnectionId, NodeId, PortAddress, PortId};
use polyrail_proto::node::{Datagrams, Source};
use polyrail_proto::service::BindError;
use polyrail_proto::session::{Outcome, Session};
use polyrail_proto::time::Instant;
use polyrail_proto::{BearerInfo, Config, Destination, Event, Node, Piece, Receipt, Train};
use std::collections::VecDeque;

/// A message that waits for its application.
pub struct Arrival {
    pub port: PortId,
    pub from: PortAddress,
    pub tag: Option<u64>,
    pub buffer: BufferId,
    pub receipt: Option<Receipt>,
}

pub struct Host {
    pub node: Node,
    pub memory: Memory,
    pub seat: u16,
    pub arrivals: VecDeque<Arrival>,
    /// What else the core told, oldest first; at most some hundreds.
    pub news: VecDeque<Event>,
    /// Bytes that calls into the core took from the allocator and did not give back, by `meter`.
    pub held_bytes: i64,
    meter: fn() -> usize,
    train: Train,
    closing: Vec<PortId>,
}

/// Trains that leave by one bearer in one step.
const TRAINS: usize = 24;
const NEWS: usize = 256;
/// Offers above this are left to wait.
const OFFER_BYTES: u64 = 2 << 20;

impl Host {
    pub fn new(now: Instant, config: Config, seat: u16, media: &[u8], meter: fn() -> usize) -> Host {
        let before = meter();
        let node = Node::new(now, config);
        let mut host = Host {
            node,
            memory: Memory::default(),
            seat,
            arrivals: VecDeque::new(),
            news: VecDeque::new(),
            held_bytes: meter() as i64 - before as i64,
            meter,
            train: Train::new(),
            closing: Vec::new(),
        };
        for &medium in media {
            host.add_bearer(now, medium);
        }
        host
    }

    /// A bearer on `medium`, from now on.
    pub fn add_bearer(&mut self, now: Instant, medium: u8) {
        self.add_bearer_on(now, medium, false);
    }

    /// The same, which may be one whose links are on standby.
    pub fn add_bearer_on(&mut self, now: Instant, medium: u8, standby: bool) {
        let info = BearerInfo {
            address: address(medium, self.seat),
            prefix_at: 1,
            prefix_bits: 8,
            mtu: 1_472,
            window: 512 << 10,
            broadcast: true,
            ambiguous: false,
            near: false,
            standby,
        };
        self.core(|node, _| node.add_bearer(now, info));
    }

    /// No bearer on `medium` any more.
    pub fn remove_bearer(&mut self, now: Instant, medium: u8) {
        let bearer = self.bearer_on(medium).expect("there is one");
        self.core(|node, memory| node.remove_bearer(now, bearer, memory));
    }

    /// A call into the core, whose appetite is noted.
    pub fn core<R>(&mut self, call: impl FnOnce(&mut Node, &mut Memory) -> R) -> R {
        let before = (self.meter)();
        let result = call(&mut self.node, &mut self.memory);
        self.held_bytes += (self.meter)() as i64 - before as i64;
        result
    }

    fn is_metered(&self) -> bool {
        (self.meter)() > 0
    }

    pub fn id(&self) -> NodeId {
        self.node.config().node
    }

    pub fn open_port(&mut self) -> PortId {
        let port = self.core(|node, _| node.open_port()).expect("there are port numbers");
        self.memory.open(port);
        port
    }

    pub fn bind(&mut self, port: PortId, range: ServiceRange) {
        self.try_bind(port, range).expect("a service for programs");
    }

    /// The same where another node may want to be the only one.
    pub fn try_bind(&mut self, port: PortId, range: ServiceRange) -> Result<(), BindError> {
        self.core(|node, _| node.bind(port, range, Scope::Cluster))
    }

    pub fn listen(&mut self, port: PortId, backlog: u32) {
        self.core(|node, _| node.listen(port, backlog));
    }

    pub fn close_port(&mut self, now: Instant, port: PortId) {
        self.memory.close(port);
        self.core(|node, memory| node.close_port(now, port, memory));
        self.closing.push(port);
    }

    /// Hands a message in; false if the core does not take it.
    pub fn send(
        &mut self,
        now: Instant,
        port: PortId,
        to: Destination,
        class: Class,
        tag: u64,
        bytes: &[u8],
    ) -> bool {
        self.core(|node, memory| {
            let buffer = memory.keep(port, bytes);
            let sent = node.send(now, port, to, (class, Some(tag)), (buffer, bytes.len() as u64), memory);
            if sent.is_err() {
                memory.forget(buffer);
            }
            sent.is_ok()
        })
    }

    /// The next message, with its bytes; its memory is the port's again.
    pub fn receive(&mut self) -> Option<(Arrival, Vec<u8>)> {
        let arrival = self.arrivals.pop_front()?;
        let bytes = self.core(|node, memory| {
            let bytes = memory.take(arrival.buffer);
            node.handle_consumed(arrival.port, memory);
            bytes
        });
        // The bytes came from the core's store and leave it here.
        if self.is_metered() {
            self.held_bytes -= bytes.capacity() as i64;
        }
        Some((arrival, bytes))
    }

    pub fn session_with(&self, node: NodeId) -> Option<&Session> {
        self.node.sessions().find(|s| s.peer.node == node)
    }

    /// The bearer on `medium`.
    pub fn bearer_on(&self, medium: u8) -> Option<BearerId> {
        let at = self.node.bearers().position(|(info, _)| info.address.as_bytes().get(1) == Some(&medium))?;
        Some(BearerId(at as u8))
    }

    /// Packets of `stride` bytes each.
    pub fn handle_packets(
        &mut self,
        now: Instant,
        bearer: BearerId,
        from: &MediaAddress,
        bytes: &[u8],
        stride: usize,
    ) {
        self.core(|node, memory| {
            let data = Datagrams { bytes, stride, ce: false };
            node.handle_datagrams(now, &Source { bearer, from }, &data, memory);
        });
    }

    /// The driver's loop: ends the batch, fires timers, takes what leaves and what is told.
    pub fn turn(&mut self, now: Instant, wire: &mut Vec<Packet>) {
        let bearers = self.node.bearers().count() as u8;
        self.core(|node, memory| {
            for bearer in 0..bearers {
                node.handle_batch_end(now, BearerId(bearer), 1_472, 1);
            }
            if node.poll_timeout(now) <= now {
                node.handle_timeout(now, memory);
            }
        });
        for bearer in 0..bearers {
            for _ in 0..TRAINS {
                if !self.send_train(now, BearerId(bearer), wire) {
                    break;
                }
            }
        }
        while let Some(event) = self.core(|node, _| node.poll_event()) {
            self.on_event(now, event);
        }
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|port| !self.core(|node, _| node.finish_closing(now, *port)));
        self.closing = closing;
    }

    fn send_train(&mut self, now: Instant, bearer: BearerId, wire: &mut Vec<Packet>) -> bool {
        let mut train = std::mem::take(&mut self.train);
        let some = self.core(|node, memory| node.poll_transmit(now, bearer, &mut train, memory));
        if some {
            let own = self.node.bearers().nth(bearer.0 as usize).map(|(info, _)| info.address.clone());
            let from = own.expect("the core sends by bearers that it has");
            let to = (!train.to.as_bytes().is_empty()).then(|| train.to.clone());
            let bytes = self.gather(&train);
            for datagram in bytes.chunks(train.segment_bytes) {
                wire.push(Packet { from: from.clone(), to: to.clone(), bytes: datagram.to_vec() });
            }
            self.core(|node, memory| node.handle_sent(now, &train, Outcome::Sent, memory));
        }
        self.train = train;
        some
    }

    fn gather(&self, train: &Train) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(train.bytes);
        for piece in &train.pieces {
            match *piece {
                Piece::Head { start, len } => bytes.extend(&train.head[start as usize..][..len as usize]),
                Piece::Body { buffer, offset, len } => {
                    bytes.extend(self.memory.bytes(buffer, offset, len as usize));
                }
            }
        }
        assert_eq!(bytes.len(), train.bytes, "a train is as long as it says");
        bytes
    }

    /// Of the connections that are asked for, one in three is accepted, one refused, and one left to wait.
    fn on_connect(&mut self, now: Instant, port: PortId, id: ConnectionId) {
        self.core(|node, memory| match id.end.connection_number() % 3 {
            0 => drop(node.accept_connection(port, id)),
            1 => node.shut_down(now, port, id, (true, true), memory),
            _ => {}
        });
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connect { port, id, .. } => self.on_connect(now, port, id),
            Event::ConnectionEnd { port, id } | Event::ConnectionOver { port, id, .. } => {
                self.core(|node, memory| node.shut_down(now, port, id, (true, true), memory));
            }
            Event::Message { port, from, tag, buffer, receipt, .. } => {
                self.arrivals.push_back(Arrival { port, from, tag, buffer, receipt });
            }
            Event::Offer { port, len, session, transfer, .. } if len <= OFFER_BYTES => {
                self.core(|node, memory| {
                    let buffer = memory.grant(port, len);
                    if !node.accept(session, transfer, buffer) {
                        memory.take(buffer);
                    }
                });
            }
            other => {
                if self.news.len() >= NEWS {
                    self.news.pop_front();
                }
                self.news.push_back(other);
            }
        }
    }
}
