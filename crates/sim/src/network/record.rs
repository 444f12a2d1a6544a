//! What the network saw: counters for the coverage table, a hash of the whole trace, and the checks of the numbers in
//! headers.

mod streams;

pub use streams::{Reused, Streams};

use super::peek;
use super::unit::{Station, Unit};
use crate::prng::mix;
use crate::queue::TimeNs;
use std::collections::BTreeMap;

/// Why datagrams did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DropReason {
    /// The sender's queue was full.
    Queue,
    /// No carrier at one end.
    Carrier,
    /// The way was cut in silence.
    Cut,
    /// Larger than the path lets pass.
    PathMtu,
    /// Lost at random.
    Loss,
    /// Altered, and the UDP checksum noticed.
    Checksum,
    /// The switch's output port was full.
    SwitchPort,
    /// The receiver's socket buffer was full.
    ReceiveBuffer,
    /// No process had the socket open.
    NotListening,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [DropReason; 9] = [
        DropReason::Queue,
        DropReason::Carrier,
        DropReason::Cut,
        DropReason::PathMtu,
        DropReason::Loss,
        DropReason::Checksum,
        DropReason::SwitchPort,
        DropReason::ReceiveBuffer,
        DropReason::NotListening,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Queue => "queue full",
            DropReason::Carrier => "no carrier",
            DropReason::Cut => "silent cut",
            DropReason::PathMtu => "path mtu",
            DropReason::Loss => "random loss",
            DropReason::Checksum => "udp checksum",
            DropReason::SwitchPort => "switch port full",
            DropReason::ReceiveBuffer => "receive buffer full",
            DropReason::NotListening => "nobody listens",
        }
    }
}

/// Counters and checks of everything that passed.
#[derive(Debug, Default)]
pub struct Record {
    /// Datagrams that stations handed over.
    pub sent_datagrams: u64,
    /// Trains that stations handed over.
    pub sent_trains: u64,
    /// Payload bytes that stations handed over.
    pub sent_bytes: u64,
    /// Datagrams that reached a socket buffer or were dropped there.
    pub arrived_datagrams: u64,
    /// Sends that found the send buffer full.
    pub blocked: u64,
    /// Units that arrived twice.
    pub duplicated: u64,
    /// Units of which a late copy was scheduled.
    pub replayed: u64,
    /// Datagrams altered behind the back of the UDP checksum.
    pub corrupted: u64,
    /// Datagrams of an adversary.
    pub injected: u64,
    /// Frames by type, packets by type.
    pub frames: BTreeMap<u8, u64>,
    /// Packets by type.
    pub packets: BTreeMap<u8, u64>,
    /// The numbers that sessions used.
    pub streams: Streams,
    /// Prints each train when set.
    pub verbose: bool,
    /// When a station without carrier was last asked to send messages.
    pub tried_without_carrier_ns: BTreeMap<Station, TimeNs>,
    /// From where, to where and by which link messages left since this was taken.
    pub carried: Vec<(Station, Station, u16)>,
    /// A datagram that a station sent not long ago, for the adversary.
    samples: BTreeMap<Station, Vec<u8>>,
    dropped: [u64; 9],
    hash: u64,
}

impl Record {
    /// Datagrams dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// A hash of everything that was sent and that arrived, with its times.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes something else into the hash of the trace.
    pub fn note(&mut self, value: u64) {
        self.hash = mix(self.hash ^ value);
    }

    /// A node started a new life: its sessions and those towards it begin anew.
    pub fn on_restart(&mut self, node: usize) {
        self.streams.on_restart(node);
    }

    pub(super) fn drops(&mut self, reason: DropReason, datagrams: u64) {
        self.dropped[reason as usize] += datagrams;
        self.note(reason as u64 ^ datagrams << 8);
    }

    pub(super) fn on_sent(&mut self, now_ns: TimeNs, unit: &Unit, nodes: usize) {
        self.sent_trains += 1;
        self.sent_bytes += unit.bytes.len() as u64;
        self.note(now_ns ^ (unit.from as u64) << 48);
        if self.sent_trains.is_multiple_of(16) {
            let sample = self.samples.entry(unit.from).or_default();
            sample.clear();
            sample.extend_from_slice(unit.datagrams().next().unwrap_or(&[]));
        }
        for datagram in unit.datagrams() {
            self.sent_datagrams += 1;
            self.note(datagram.len() as u64);
            if let Some(peek) = peek::header(datagram) {
                self.note(peek.number ^ u64::from(peek.session) << 32 ^ u64::from(peek.link) << 16);
                self.on_packet(now_ns, (unit.from, unit.to), nodes, peek, datagram);
            }
        }
    }

    /// A station without carrier was asked to send.
    pub(super) fn on_refused(&mut self, now_ns: TimeNs, from: Station, bytes: &[u8]) {
        self.drops(DropReason::Carrier, 1);
        if peek::frame_types(bytes).any(peek::is_of_message) {
            self.tried_without_carrier_ns.insert(from, now_ns);
        }
    }

    /// A datagram that a station sent not long ago.
    pub fn sample(&self, from: Station) -> Option<&[u8]> {
        self.samples.get(&from).map(Vec::as_slice)
    }

    pub(super) fn on_arrived(&mut self, now_ns: TimeNs, station: Station, unit: &Unit) {
        self.arrived_datagrams += unit.count() as u64;
        self.note(now_ns ^ (station as u64) << 40 ^ (unit.bytes.len() as u64) << 8);
        if self.verbose {
            println!("{:>12} ns  arrives {} -> {station}: {}", now_ns, unit.from, describe(unit));
        }
    }

    fn on_packet(
        &mut self,
        now_ns: TimeNs,
        (from, to): (Station, Option<Station>),
        nodes: usize,
        peek: peek::Peek,
        datagram: &[u8],
    ) {
        *self.packets.entry(peek.kind).or_default() += 1;
        let Some(to) = to else { return };
        let pair = (from % nodes, to % nodes);
        if let Some(answer) = peek::answer(datagram) {
            self.streams.on_answer(now_ns, pair, peek.session, answer);
        }
        if peek.kind != peek::TYPE_DATA {
            return;
        }
        for kind in peek::frame_types(datagram) {
            *self.frames.entry(kind).or_default() += 1;
            let way = (from, to, peek.link);
            if peek::is_of_message(kind) && self.carried.last() != Some(&way) {
                self.carried.push(way);
            }
        }
        self.streams.on_packet(now_ns, pair, (from, to), peek);
    }
}

/// One line about a train, for traces.
pub fn describe(unit: &Unit) -> String {
    let mut text = format!("{} datagrams, {} bytes", unit.count(), unit.bytes.len());
    for datagram in unit.datagrams().take(2) {
        let Some(peek) = peek::header(datagram) else {
            text.push_str("; not a packet");
            continue;
        };
        let frames: Vec<&str> = peek::frame_types(datagram).map(peek::frame_name).collect();
        let kind = peek::packet_name(peek.kind);
        let (session, link, number) = (peek.session, peek.link, peek.number);
        text.push_str(&format!(
            "; {kind} session {session} link {link} number {number} [{}]",
            frames.join(", ")
        ));
    }
    text
}
