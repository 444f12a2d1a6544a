//! A small reliable protocol over the first rail, for testing the simulator itself: correct by default, with faults
//! that the oracle must find.

use crate::bearer::{SimBearer, address};
use crate::network::peek::HEADER_BYTES;
use crate::plan::Plan;
use crate::subject::{Counters, Happening, SendAnswer, Subject, To, Turned, Wish};
use crate::world::{Factory, NodeSpec, node_id};
use polyrail_bearer::{Bearer, RxBatch, Transmit};
use polyrail_proto::address::ServiceRange;
use polyrail_proto::id::{NodeId, PortAddress, PortId};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Copies are delivered again.
    NoDuplicateCheck,
    /// Messages are delivered as they come.
    NoOrder,
    /// Nothing is sent twice.
    NoRetransmission,
    /// The last byte of a retransmission is wrong.
    AlteredRetransmission,
    /// Peers are held for lost after a short silence.
    HastyVerdict,
    /// Every other packet has the number of the one before.
    ReusedNumber,
    /// Two rails are used by turns, under one link's number.
    ReusedLink,
    /// Whoever is first sends all it may before the others have a turn.
    NoTurns,
    /// What is urgent waits until nothing else is left.
    UrgentLast,
}

const RESEND_NS: u64 = 5_000_000;
const WINDOW: usize = 256;
/// Bytes before a message in its packet: kind, flow (class, ports), number, tag.
const HEAD_BYTES: usize = 1 + FLOW_BYTES + 8 + 8;
const FLOW_BYTES: usize = 9;
/// Classes up to this one do not wait for the others.
const URGENT: u8 = 1;

/// Class, sending and receiving port, as they stand in packets.
type Flow = [u8; FLOW_BYTES];

/// One flow, both halves.
#[derive(Default)]
struct Stream {
    next_sent: u64,
    unacked: BTreeMap<u64, (Vec<u8>, u64)>,
    expected: u64,
    early: BTreeMap<u64, Vec<u8>>,
}

#[derive(Default)]
struct Peer {
    streams: BTreeMap<Flow, Stream>,
    packets: u64,
    heard_ns: u64,
    down: bool,
}

struct Naive {
    id_of: Vec<u64>,
    index: usize,
    bearers: Vec<SimBearer>,
    flaw: Flaw,
    peers: Vec<Peer>,
    ports: BTreeMap<u32, VecDeque<Happening>>,
    next_port: u32,
    batch: RxBatch,
    turns: usize,
    node_events: Vec<Happening>,
}

/// A factory of nodes with `flaw`.
pub fn factory(flaw: Flaw) -> Factory {
    Box::new(move |plan: &Plan, spec: &NodeSpec, bearers: Vec<SimBearer>| {
        Box::new(Naive {
            id_of: (0..plan.nodes).map(|index| node_id(plan.seed, index)).collect(),
            index: spec.index,
            bearers,
            flaw,
            peers: (0..plan.nodes).map(|_| Peer { heard_ns: spec.now_ns, ..Peer::default() }).collect(),
            ports: BTreeMap::new(),
            next_port: 1,
            batch: RxBatch::new(64),
            turns: 0,
            node_events: Vec::new(),
        })
    })
}

impl Naive {
    /// Sends a packet with a header as the protocol's own has it: type DATA, link 0, session 1.
    fn put(&mut self, peer: usize, bytes: &[u8]) -> bool {
        let number = self.peers[peer].packets;
        let rail = if self.flaw == Flaw::ReusedLink { number as usize % self.bearers.len() } else { 0 };
        let mut header = [0; HEADER_BYTES];
        (header[0], header[4]) = (0x10, 1);
        header[8..16].copy_from_slice(&number.to_le_bytes());
        let slices = [IoSlice::new(&header), IoSlice::new(bytes)];
        let transmit = Transmit {
            to: address(peer, rail),
            segment_bytes: HEADER_BYTES + bytes.len(),
            bytes: HEADER_BYTES + bytes.len(),
            slices: &slices,
            express: false,
            lend: false,
            dscp: 0,
        };
        let sent = matches!(self.bearers[rail].send(&transmit), polyrail_bearer::SendOutcome::Sent);
        let counts = sent && (self.flaw != Flaw::ReusedNumber || self.turns.is_multiple_of(2));
        self.peers[peer].packets += u64::from(counts);
        sent
    }

    fn receive(&mut self, now_ns: u64) {
        let mut batch = std::mem::replace(&mut self.batch, RxBatch::new(0));
        for rail in 0..self.bearers.len() {
            while self.bearers[rail].recv(&mut batch, true).is_ok_and(|groups| groups > 0) {
                for group in batch.iter() {
                    let Some(peer) = (0..self.peers.len()).find(|peer| address(*peer, rail) == group.from)
                    else {
                        continue;
                    };
                    for datagram in group.datagrams() {
                        self.on_datagram(now_ns, peer, &datagram[HEADER_BYTES.min(datagram.len())..]);
                    }
                }
                batch.clear();
            }
        }
        self.batch = batch;
    }

    fn on_datagram(&mut self, now_ns: u64, from: usize, packet: &[u8]) {
        let Some(head) = packet.first_chunk::<{ 1 + FLOW_BYTES + 8 }>() else { return };
        let flow: Flow = head[1..=FLOW_BYTES].try_into().unwrap();
        let number = u64::from_le_bytes(head[1 + FLOW_BYTES..].try_into().unwrap());
        let peer = &mut self.peers[from];
        peer.heard_ns = now_ns;
        let stream = peer.streams.entry(flow).or_default();
        if head[0] == 1 {
            stream.unacked.remove(&number);
            return;
        }
        let mut ack = *head;
        ack[0] = 1;
        self.put(from, &ack);
        let stream = self.peers[from].streams.entry(flow).or_default();
        if self.flaw == Flaw::NoOrder || self.flaw == Flaw::NoDuplicateCheck {
            let fresh = number >= stream.expected && stream.early.insert(number, Vec::new()).is_none();
            if fresh || self.flaw == Flaw::NoDuplicateCheck {
                self.deliver(from, packet);
            }
            return;
        }
        if number >= stream.expected {
            stream.early.entry(number).or_insert_with(|| packet.to_vec());
        }
        loop {
            let stream = self.peers[from].streams.entry(flow).or_default();
            let Some(packet) = stream.early.remove(&stream.expected) else { break };
            stream.expected += 1;
            self.deliver(from, &packet);
        }
    }

    fn deliver(&mut self, from: usize, packet: &[u8]) {
        let (head, body) = packet.split_at(HEAD_BYTES);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let (source, port) = (word(2), word(6));
        let tag = u64::from_le_bytes(head[HEAD_BYTES - 8..].try_into().unwrap());
        let from = PortAddress { node: NodeId(self.id_of[from]), port: PortId(source) };
        let tag = (tag != 0).then_some(tag);
        if let Some(queue) = self.ports.get_mut(&port) {
            queue.push_back(Happening::Received { port, from, tag, bytes: body.to_vec() });
        }
    }

    /// What has to leave, by flows, those first whose turn it is.
    fn due(&self, now_ns: u64) -> Vec<(usize, Flow, Vec<u64>)> {
        let is_due = |sent_ns: u64| {
            sent_ns == 0 || self.flaw != Flaw::NoRetransmission && sent_ns + RESEND_NS <= now_ns
        };
        let mut due = Vec::new();
        for (peer, state) in self.peers.iter().enumerate() {
            for (flow, stream) in &state.streams {
                let numbers: Vec<u64> =
                    stream.unacked.iter().filter(|(_, sent)| is_due(sent.1)).map(|(n, _)| *n).collect();
                if !numbers.is_empty() {
                    due.push((peer, *flow, numbers));
                }
            }
        }
        if self.flaw != Flaw::NoTurns && !due.is_empty() {
            let first = self.turns % due.len();
            due.rotate_left(first);
        }
        let waits = |flow: &Flow| (flow[0] <= URGENT) == (self.flaw == Flaw::UrgentLast);
        due.sort_by_key(|(_, flow, _)| waits(flow));
        due
    }

    /// One message of each flow in turn, as long as there is room; urgent flows send all they have first.
    fn resend(&mut self, now_ns: u64) {
        self.turns += 1;
        let mut due = self.due(now_ns);
        while let Some(first) = due.first_mut() {
            let (peer, flow, number) = (first.0, first.1, first.2.remove(0));
            if !self.resend_one(now_ns, peer, flow, number) {
                break;
            }
            if due[0].2.is_empty() {
                due.remove(0);
            } else if self.flaw != Flaw::NoTurns && due[0].1[0] > URGENT {
                due.rotate_left(1);
            }
        }
        for (index, state) in self.peers.iter_mut().enumerate() {
            let waits = state.streams.values().any(|stream| !stream.unacked.is_empty());
            let silent = now_ns > state.heard_ns + 30_000_000 && waits;
            if self.flaw == Flaw::HastyVerdict && silent && !state.down {
                state.down = true;
                self.node_events.push(Happening::NodeDown(self.id_of[index]));
            }
        }
    }

    fn resend_one(&mut self, now_ns: u64, peer: usize, flow: Flow, number: u64) -> bool {
        let (mut bytes, sent_ns) = self.peers[peer].streams[&flow].unacked[&number].clone();
        if sent_ns > 0 && self.flaw == Flaw::AlteredRetransmission {
            *bytes.last_mut().unwrap() ^= 1;
        }
        let sent = self.put(peer, &bytes);
        if sent {
            let stream = self.peers[peer].streams.entry(flow).or_default();
            stream.unacked.insert(number, (bytes, now_ns));
        }
        sent
    }
}

impl Subject for Naive {
    fn turn(&mut self, now_ns: u64) -> Turned {
        self.receive(now_ns);
        self.resend(now_ns);
        let waits = |peer: &Peer| peer.streams.values().any(|stream| !stream.unacked.is_empty());
        let waits = self.peers.iter().any(waits);
        Turned { deadline_ns: waits.then_some(now_ns + RESEND_NS), drained: true, worked: true }
    }

    fn carrier(&mut self, _now_ns: u64, _bearer: usize, _up: bool) {}

    fn stall(&mut self, _now_ns: u64, _stalled_ns: u64) {}

    fn open_port(&mut self, _now_ns: u64) -> Option<u32> {
        self.next_port += 1;
        self.ports.insert(self.next_port, VecDeque::new());
        Some(self.next_port)
    }

    fn close_port(&mut self, _now_ns: u64, port: u32) {
        self.ports.remove(&port);
    }

    fn bind(&mut self, _now_ns: u64, _port: u32, _range: ServiceRange, _cluster: bool) {}

    fn bind_exclusive(&mut self, _now_ns: u64, _port: u32, _range: ServiceRange) {}

    fn unbind(&mut self, _now_ns: u64, _port: u32, _range: ServiceRange, _cluster: bool) {}

    fn send(&mut self, _now_ns: u64, port: u32, to: To, wish: Wish, _id: u64, bytes: &[u8]) -> SendAnswer {
        let tag = wish.tag;
        let To::Port(to) = to else { return SendAnswer::Refused };
        let Some(peer) = self.id_of.iter().position(|id| *id == to.node.0) else {
            return SendAnswer::Refused;
        };
        let mut flow = [wish.class; FLOW_BYTES];
        flow[1..5].copy_from_slice(&port.to_le_bytes());
        flow[5..].copy_from_slice(&to.port.0.to_le_bytes());
        let stream = self.peers[peer].streams.entry(flow).or_default();
        if peer == self.index || stream.unacked.len() >= WINDOW || bytes.len() > 1_400 {
            return SendAnswer::Blocked;
        }
        let number = stream.next_sent;
        let mut packet = vec![0];
        packet.extend_from_slice(&flow);
        packet.extend_from_slice(&number.to_le_bytes());
        packet.extend_from_slice(&tag.unwrap_or(0).to_le_bytes());
        packet.extend_from_slice(bytes);
        stream.next_sent += 1;
        stream.unacked.insert(number, (packet, 0));
        SendAnswer::Accepted
    }

    fn poll(&mut self, _now_ns: u64, port: u32, most: usize, out: &mut Vec<Happening>) {
        if let Some(queue) = self.ports.get_mut(&port) {
            out.extend(queue.drain(..most.min(queue.len())));
        }
    }

    fn poll_node(&mut self, out: &mut Vec<Happening>) {
        out.append(&mut self.node_events);
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
