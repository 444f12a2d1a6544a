//! The simulated network: rails (segments), each with one station per node, and everything that can go wrong on
//! the way from a socket to another.
//!
//! A train passes the sender's send buffer and queue (`egress`), then the medium (cuts, loss, corruption, copies,
//! delay), perhaps a switch port, and ends in the receiver's socket buffer (`ingress`). Nothing here knows the
//! protocol; [`peek`] reads headers for the checks and for loss that aims at a kind of packet.

pub mod conditions;
mod egress;
mod ingress;
mod loss;
mod medium;
pub mod peek;
pub mod record;
mod unit;

pub use conditions::{Conditions, EgressKind, Loss, PacketKind, SwitchPort};
pub use medium::flip_bits;
pub use record::{DropReason, Record};
pub use unit::{Station, Unit};

use crate::prng::Prng;
use crate::queue::{EventQueue, TimeNs};
use egress::Egress;
use ingress::Ingress;
use loss::LossState;

/// Fate of a train at the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Taken; it leaves in its turn.
    Taken,
    /// The send buffer is full: try again when writable.
    WouldBlock,
    /// The queue refused it, and said so.
    Dropped,
}

/// Something to tell a node's driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Data or beacons wait at a station.
    Readable(Station),
    /// A station's send buffer has room again.
    Writable(Station),
    /// Nobody listens at the second station, says its machine to the first.
    Unreachable(Station, Station),
}

#[derive(Debug)]
enum Event {
    Departure(Station),
    Arrival(Station, Unit),
    Notice { to: Station, about: Station },
}

#[derive(Debug)]
struct Port {
    egress: Egress,
    ingress: Ingress,
    blocked: bool,
    carrier: bool,
    listening: bool,
    departure_pending: bool,
    /// When the switch port towards this station is idle again.
    port_busy_until_ns: TimeNs,
    notice_after_ns: TimeNs,
}

/// State of one direction between two stations of a rail.
#[derive(Clone, Copy, Default, Debug)]
struct Direction {
    cut: bool,
    loss: LossState,
    last_arrival_ns: TimeNs,
}

/// All rails of a run.
#[derive(Debug)]
pub struct Network {
    nodes: usize,
    rails: Vec<Conditions>,
    ports: Vec<Port>,
    directions: Vec<Direction>,
    events: EventQueue<Event>,
    wakes: Vec<Wake>,
    notices: Vec<Vec<Station>>,
    now_ns: TimeNs,
    prng: Prng,
    replay: Prng,
    /// What was seen on the wire.
    pub record: Record,
}

impl Network {
    /// Rails with the given conditions, each with a station of each of `nodes` nodes.
    pub fn new(nodes: usize, rails: Vec<Conditions>, seed: u64) -> Network {
        let ports = rails.iter().flat_map(|rail| (0..nodes).map(|_| Port::new(rail))).collect();
        Network {
            nodes,
            ports,
            directions: vec![Direction::default(); rails.len() * nodes * nodes],
            notices: vec![Vec::new(); rails.len() * nodes],
            rails,
            events: EventQueue::new(),
            wakes: Vec::new(),
            now_ns: 0,
            prng: Prng::for_component(seed, "network", 0),
            replay: Prng::for_component(seed, "replay", 0),
            record: Record::default(),
        }
    }

    /// The station of `node` on `rail`.
    pub fn station(&self, node: usize, rail: usize) -> Station {
        rail * self.nodes + node
    }

    /// The node and rail of a station.
    pub fn place(&self, station: Station) -> (usize, usize) {
        (station % self.nodes, station / self.nodes)
    }

    /// How many rails.
    pub fn rails(&self) -> usize {
        self.rails.len()
    }

    /// How many nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The conditions of a rail.
    pub fn conditions(&self, rail: usize) -> &Conditions {
        &self.rails[rail]
    }

    /// Changes the conditions of a rail from now on (but the send buffers, which belong to the sockets).
    pub fn set_conditions(&mut self, rail: usize, conditions: Conditions) {
        self.rails[rail] = conditions;
        for node in 0..self.nodes {
            let station = self.station(node, rail);
            self.ports[station].egress.set_kind(conditions.egress);
        }
    }

    /// Cuts (or mends) one direction of a rail silently.
    pub fn set_cut(&mut self, rail: usize, from: usize, to: usize, cut: bool) {
        let index = self.direction_index(self.station(from, rail), self.station(to, rail));
        self.directions[index].cut = cut;
    }

    /// Pulls or plugs a station's cable. Whoever drives the node learns of it separately.
    pub fn set_carrier(&mut self, station: Station, up: bool) {
        let port = &mut self.ports[station];
        if port.carrier && !up {
            let flushed = port.egress.flush();
            self.record.drops(DropReason::Carrier, flushed as u64);
        }
        port.carrier = up;
        self.unblock(station);
    }

    /// Whether a station's cable is plugged.
    pub fn carrier(&self, station: Station) -> bool {
        self.ports[station].carrier
    }

    /// Opens or closes the sockets of a node. While closed, what arrives is answered by "nobody listens".
    pub fn set_listening(&mut self, node: usize, listening: bool) {
        for rail in 0..self.rails.len() {
            let station = self.station(node, rail);
            let port = &mut self.ports[station];
            port.listening = listening;
            port.ingress.clear();
            port.blocked = false;
            self.notices[station].clear();
        }
    }

    /// Sets the time at which the following calls happen.
    pub fn set_now(&mut self, now_ns: TimeNs) {
        debug_assert!(now_ns >= self.now_ns);
        self.now_ns = now_ns;
    }

    /// When something happens next.
    pub fn next_at_ns(&self) -> Option<TimeNs> {
        self.events.next_at_ns()
    }

    /// Lets the next event happen and moves the time to it.
    pub fn step(&mut self) {
        let Some((at_ns, event)) = self.events.pop() else { return };
        self.now_ns = self.now_ns.max(at_ns);
        match event {
            Event::Departure(station) => self.on_departure(station),
            Event::Arrival(station, unit) => self.on_arrival(station, unit),
            Event::Notice { to, about } => {
                self.notices[to].push(about);
                self.wakes.push(Wake::Unreachable(to, about));
            }
        }
    }

    /// What happened that drivers want to know; emptied by the call.
    pub fn take_wakes(&mut self, out: &mut Vec<Wake>) {
        out.append(&mut self.wakes);
    }

    /// Sends a train from a station; `to: None` is a broadcast.
    pub fn send(&mut self, from: Station, to: Option<Station>, bytes: &[u8], segment: usize) -> Sent {
        if !self.ports[from].carrier {
            self.record.on_refused(self.now_ns, from, bytes);
            return Sent::Dropped;
        }
        if self.ports[from].egress.full() {
            self.ports[from].blocked = true;
            self.record.blocked += 1;
            return Sent::WouldBlock;
        }
        let unit = Unit::new(from, to, bytes.to_vec(), segment.max(1));
        if self.ports[from].egress.refuses(&unit) {
            self.record.drops(DropReason::Queue, unit.count() as u64);
            return Sent::Dropped;
        }
        self.record.on_sent(self.now_ns, &unit, self.nodes);
        if self.ports[from].egress.kind() == EgressKind::NoQueue {
            self.on_medium(unit);
            return Sent::Taken;
        }
        let lost = self.ports[from].egress.offer(unit);
        self.record.drops(DropReason::Queue, lost);
        self.start_departure(from);
        Sent::Taken
    }

    /// Sets the send buffer of one station.
    pub fn set_send_buffer(&mut self, station: Station, bytes: u64) {
        self.ports[station].egress.set_send_buffer(bytes);
    }

    /// Whether a station's send buffer has room. Asking while it has none arms the next `Wake::Writable`.
    pub fn writable(&mut self, station: Station) -> bool {
        let port = &mut self.ports[station];
        let writable = port.egress.writable();
        port.blocked |= !writable;
        writable
    }

    /// Payload bytes in a station's send buffer.
    pub fn backlog_bytes(&self, station: Station) -> u64 {
        self.ports[station].egress.backlog_bytes()
    }

    /// The next group of datagrams that arrived at a station.
    pub fn recv(&mut self, station: Station) -> Option<Unit> {
        self.ports[station].ingress.take_group()
    }

    /// The next beacon that arrived at a station.
    pub fn recv_beacon(&mut self, station: Station) -> Option<Unit> {
        self.ports[station].ingress.take_beacon()
    }

    /// Whether something waits to be read at a station.
    pub fn readable(&self, station: Station) -> bool {
        self.ports[station].ingress.waits()
    }

    /// The stations that were reported to this one as not listening; emptied by the call.
    pub fn take_notices(&mut self, station: Station) -> Vec<Station> {
        std::mem::take(&mut self.notices[station])
    }

    /// An adversary's datagram, put on the wire as if `from` had sent it.
    pub fn inject(&mut self, from: Station, to: Station, bytes: Vec<u8>) {
        let segment = bytes.len().max(1);
        self.record.injected += 1;
        let at_ns = self.now_ns + self.rails[self.place(from).1].propagation_ns;
        self.events.schedule(at_ns, Event::Arrival(to, Unit::new(from, Some(to), bytes, segment)));
    }

    fn direction_index(&self, from: Station, to: Station) -> usize {
        let ((from, rail), (to, _)) = (self.place(from), self.place(to));
        (rail * self.nodes + from) * self.nodes + to
    }

    fn start_departure(&mut self, station: Station) {
        let port = &mut self.ports[station];
        if port.departure_pending {
            return;
        }
        if let Some(at_ns) = port.egress.start(self.now_ns) {
            port.departure_pending = true;
            self.events.schedule(at_ns, Event::Departure(station));
        }
    }

    fn on_departure(&mut self, station: Station) {
        let port = &mut self.ports[station];
        port.departure_pending = false;
        if let Some(unit) = port.egress.depart() {
            self.on_medium(unit);
        }
        self.start_departure(station);
        self.unblock(station);
    }

    fn unblock(&mut self, station: Station) {
        let port = &mut self.ports[station];
        if port.blocked && port.egress.writable() {
            port.blocked = false;
            self.wakes.push(Wake::Writable(station));
        }
    }

    fn on_arrival(&mut self, station: Station, unit: Unit) {
        let rail = self.place(station).1;
        let port = &mut self.ports[station];
        let datagrams = unit.count() as u64;
        if !port.carrier {
            return self.record.drops(DropReason::Carrier, datagrams);
        }
        if !port.listening {
            self.record.drops(DropReason::NotListening, datagrams);
            return self.refuse(station, unit);
        }
        self.record.on_arrived(self.now_ns, station, &unit);
        let rcvbuf_bytes = self.rails[rail].rcvbuf_bytes;
        if port.ingress.offer(self.now_ns, unit, rcvbuf_bytes) {
            self.wakes.push(Wake::Readable(station));
        } else {
            self.record.drops(DropReason::ReceiveBuffer, datagrams);
        }
    }

    /// The machine of a dead process answers for it, at most once per millisecond.
    fn refuse(&mut self, station: Station, unit: Unit) {
        if unit.to.is_none() || self.now_ns < self.ports[station].notice_after_ns {
            return;
        }
        self.ports[station].notice_after_ns = self.now_ns + 1_000_000;
        let rail = self.place(station).1;
        let back = self.direction_index(station, unit.from);
        if !self.directions[back].cut && self.ports[unit.from].listening {
            let at_ns = self.now_ns + self.rails[rail].propagation_ns;
            self.events.schedule(at_ns, Event::Notice { to: unit.from, about: station });
        }
    }
}

impl Port {
    fn new(rail: &Conditions) -> Port {
        Port {
            egress: Egress::new(rail.egress, rail.sndbuf_bytes),
            ingress: Ingress::default(),
            blocked: false,
            carrier: true,
            listening: true,
            departure_pending: false,
            port_busy_until_ns: 0,
            notice_after_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests;
