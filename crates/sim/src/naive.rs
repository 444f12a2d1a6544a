//! A small reliable protocol over the first rail, for testing the simulator itself: correct by default, with faults
//! that the oracle must find.

use crate::bearer::{SimBearer, address};
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
}

const RESEND_NS: u64 = 5_000_000;
const WINDOW: usize = 256;

#[derive(Default)]
struct Peer {
    next_sent: u64,
    unacked: BTreeMap<u64, (Vec<u8>, u64)>,
    expected: u64,
    early: BTreeMap<u64, Vec<u8>>,
    heard_ns: u64,
    down: bool,
}

struct Naive {
    id_of: Vec<u64>,
    index: usize,
    bearer: SimBearer,
    flaw: Flaw,
    peers: Vec<Peer>,
    ports: BTreeMap<u32, VecDeque<Happening>>,
    next_port: u32,
    batch: RxBatch,
    node_events: Vec<Happening>,
}

/// A factory of nodes with `flaw`.
pub fn factory(flaw: Flaw) -> Factory {
    Box::new(move |plan: &Plan, spec: &NodeSpec, mut bearers: Vec<SimBearer>| {
        Box::new(Naive {
            id_of: (0..plan.nodes).map(|index| node_id(plan.seed, index)).collect(),
            index: spec.index,
            bearer: bearers.swap_remove(0),
            flaw,
            peers: (0..plan.nodes).map(|_| Peer { heard_ns: spec.now_ns, ..Peer::default() }).collect(),
            ports: BTreeMap::new(),
            next_port: 1,
            batch: RxBatch::new(64),
            node_events: Vec::new(),
        })
    })
}

impl Naive {
    fn put(&mut self, peer: usize, bytes: &[u8]) -> bool {
        let slices = [IoSlice::new(bytes)];
        let to = address(peer, 0);
        let transmit = Transmit {
            to,
            segment_bytes: bytes.len(),
            bytes: bytes.len(),
            slices: &slices,
            express: false,
            lend: false,
            dscp: 0,
        };
        matches!(self.bearer.send(&transmit), polyrail_bearer::SendOutcome::Sent)
    }

    fn receive(&mut self, now_ns: u64) {
        let mut batch = std::mem::replace(&mut self.batch, RxBatch::new(0));
        while self.bearer.recv(&mut batch, true).is_ok_and(|groups| groups > 0) {
            for group in batch.iter() {
                let Some(peer) = (0..self.peers.len()).find(|peer| address(*peer, 0) == group.from) else {
                    continue;
                };
                for datagram in group.datagrams() {
                    self.on_datagram(now_ns, peer, datagram);
                }
            }
            batch.clear();
        }
        self.batch = batch;
    }

    fn on_datagram(&mut self, now_ns: u64, from: usize, datagram: &[u8]) {
        let Some((head, body)) = datagram.split_first_chunk::<9>() else { return };
        let number = u64::from_le_bytes(head[1..9].try_into().unwrap());
        self.peers[from].heard_ns = now_ns;
        if head[0] == 1 {
            self.peers[from].unacked.remove(&number);
            return;
        }
        let mut ack = *head;
        ack[0] = 1;
        self.put(from, &ack);
        let peer = &mut self.peers[from];
        if self.flaw == Flaw::NoOrder || self.flaw == Flaw::NoDuplicateCheck {
            let fresh = number >= peer.expected && peer.early.insert(number, Vec::new()).is_none();
            if fresh || self.flaw == Flaw::NoDuplicateCheck {
                self.deliver(from, body);
            }
            return;
        }
        if number >= peer.expected {
            peer.early.entry(number).or_insert_with(|| body.to_vec());
        }
        loop {
            let peer = &mut self.peers[from];
            let Some(body) = peer.early.remove(&peer.expected) else { break };
            peer.expected += 1;
            self.deliver(from, &body);
        }
    }

    fn deliver(&mut self, from: usize, body: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let tag = u64::from_le_bytes(body[8..16].try_into().unwrap());
        let (source, port) = (word(0), word(4));
        let from = PortAddress { node: NodeId(self.id_of[from]), port: PortId(source) };
        let tag = (tag != 0).then_some(tag);
        if let Some(queue) = self.ports.get_mut(&port) {
            queue.push_back(Happening::Received { port, from, tag, bytes: body[16..].to_vec() });
        }
    }

    fn resend(&mut self, now_ns: u64) {
        for peer in 0..self.peers.len() {
            let due: Vec<u64> = self.peers[peer]
                .unacked
                .iter()
                .filter(|(_, sent)| {
                    sent.1 == 0 || self.flaw != Flaw::NoRetransmission && sent.1 + RESEND_NS <= now_ns
                })
                .map(|(number, _)| *number)
                .collect();
            for number in due {
                let (mut bytes, sent_ns) = self.peers[peer].unacked[&number].clone();
                if sent_ns > 0 && self.flaw == Flaw::AlteredRetransmission {
                    *bytes.last_mut().unwrap() ^= 1;
                }
                if !self.put(peer, &bytes) {
                    break;
                }
                self.peers[peer].unacked.insert(number, (bytes, now_ns));
            }
            let state = &mut self.peers[peer];
            let silent = now_ns > state.heard_ns + 30_000_000 && !state.unacked.is_empty();
            if self.flaw == Flaw::HastyVerdict && silent && !state.down {
                state.down = true;
                self.node_events.push(Happening::NodeDown(self.id_of[peer]));
            }
        }
    }
}

impl Subject for Naive {
    fn turn(&mut self, now_ns: u64) -> Turned {
        self.receive(now_ns);
        self.resend(now_ns);
        let waits = self.peers.iter().any(|peer| !peer.unacked.is_empty());
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
        if peer == self.index || self.peers[peer].unacked.len() >= WINDOW || bytes.len() > 1_400 {
            return SendAnswer::Blocked;
        }
        let number = self.peers[peer].next_sent;
        let mut packet = vec![0];
        packet.extend_from_slice(&number.to_le_bytes());
        packet.extend_from_slice(&port.to_le_bytes());
        packet.extend_from_slice(&to.port.0.to_le_bytes());
        packet.extend_from_slice(&tag.unwrap_or(0).to_le_bytes());
        packet.extend_from_slice(bytes);
        self.peers[peer].next_sent += 1;
        self.peers[peer].unacked.insert(number, (packet, 0));
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
