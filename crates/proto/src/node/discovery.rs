//! Beacons out, neighbours in (protocol.md §3.1).

use super::Node;
use crate::address::MediaAddress;
use crate::event::Event;
use crate::id::{BearerId, NodeId};
use crate::time::{Duration, Instant};
use crate::wire::Beacon;

/// A bearer as its driver describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerInfo {
    /// The address that peers send to.
    pub address: MediaAddress,
    /// Two addresses are on the same network if they have the same length, the same first byte, and agree in
    /// `prefix_bits` bits from byte `prefix_at` on.
    pub prefix_at: usize,
    /// See `prefix_at`.
    pub prefix_bits: usize,
    /// Largest datagram, bytes.
    pub mtu: u16,
    /// Bytes that one peer may have in flight towards it.
    pub window: u32,
    /// It can reach all neighbours at once.
    pub broadcast: bool,
    /// Addresses of its network are the same on every network (link-local): being on the same network proves
    /// nothing, only a beacon heard does.
    pub ambiguous: bool,
    /// Those that it reaches are on this machine, by memory that they share: its links come before all others (§5.11).
    pub near: bool,
    /// Its links are on standby from the first, as if its operator had set each of them so (§6.4).
    pub standby: bool,
}

impl BearerInfo {
    /// Whether `other` is on the same network.
    pub fn reaches(&self, other: &MediaAddress) -> bool {
        let (a, b) = (self.address.as_bytes(), other.as_bytes());
        if a.len() != b.len() || a.first() != b.first() {
            return false;
        }
        let bits = self.prefix_bits.min((a.len().saturating_sub(self.prefix_at)) * 8);
        (0..bits).all(|i| {
            let (byte, bit) = (self.prefix_at + i / 8, 7 - i % 8);
            (a[byte] ^ b[byte]) >> bit & 1 == 0
        })
    }
}

/// When beacons leave.
#[derive(Debug)]
pub(super) struct Discovery {
    next_at: Instant,
    interval: Duration,
    sent: u32,
}

const FIRST_INTERVAL: Duration = Duration::ms(100);
const SOLICITING_BEACONS: u32 = 4;
const LAST_INTERVAL: Duration = Duration::s(10);

impl Discovery {
    pub(super) fn new(now: Instant) -> Self {
        Discovery { next_at: now, interval: FIRST_INTERVAL, sent: 0 }
    }

    /// Something changed: speak soon, and often at first.
    pub(super) fn restart(&mut self, now: Instant) {
        if self.sent >= SOLICITING_BEACONS {
            self.sent = 0;
            self.interval = FIRST_INTERVAL;
            self.next_at = self.next_at.min(now);
        }
    }

    pub(super) fn deadline(&self, on: bool) -> Instant {
        if on { self.next_at } else { Instant::NEVER }
    }

    fn soon(&mut self, at: Instant) {
        self.next_at = self.next_at.min(at);
    }

    /// Moves the schedule on; whether this beacon asks for answers.
    fn advance(&mut self, now: Instant, jitter: u64) -> bool {
        self.sent += 1;
        if self.sent > SOLICITING_BEACONS {
            self.interval = Duration((self.interval.0 * 2).min(LAST_INTERVAL.0));
        }
        let quarter = self.interval.0 / 4;
        self.next_at = now + Duration(self.interval.0 - quarter + jitter % (2 * quarter + 1));
        self.sent <= SOLICITING_BEACONS
    }
}

impl Node {
    pub(super) fn send_beacons(&mut self, now: Instant) {
        if self.discovery.deadline(self.speaks()) > now {
            return;
        }
        let jitter = self.draw();
        let solicit = self.discovery.advance(now, jitter);
        for bearer in 0..self.bearers.len() {
            if !self.bearers[bearer].info.broadcast || !self.bearers[bearer].carrier {
                continue;
            }
            let beacon = Beacon {
                cluster: self.config.cluster,
                node: self.config.node,
                incarnation: self.config.incarnation,
                bearer: BearerId(bearer as u8),
                solicit,
            };
            let mut out = Vec::new();
            beacon.emit_packet(now.stamp(), &mut out);
            self.post(BearerId(bearer as u8), None, out);
        }
    }

    pub(super) fn on_beacon(&mut self, now: Instant, bearer: BearerId, from: &MediaAddress, body: &[u8]) {
        let beacon = match Beacon::parse(body) {
            Ok(beacon) => beacon,
            Err(malformed) => return self.note_malformed(malformed.what),
        };
        if beacon.cluster != self.config.cluster {
            self.drops.foreign_cluster += 1;
            return;
        }
        if beacon.node == self.config.node {
            if beacon.incarnation != self.config.incarnation {
                self.report_duplicate(now, beacon.node, from);
            }
            return;
        }
        if !self.config.discovery {
            return;
        }
        if let Some(session) = self.session_with_mut(beacon.node)
            && session.peer.incarnation == beacon.incarnation
        {
            if session.initiator && session.announced && !session.has_link(bearer, from) {
                self.add_candidate(now, beacon.node, bearer, from, beacon.bearer);
            }
            return;
        }
        if beacon.solicit {
            let at = now + Duration(self.draw() % Duration::ms(50).0);
            self.discovery.soon(at);
        }
        // The lower identity opens; the higher one only if that does not happen.
        let wait = if self.config.node < beacon.node { Duration::ZERO } else { Duration::ms(300) };
        self.attempt(now, bearer, from, Some(beacon.node), false, wait);
    }

    pub(super) fn report_duplicate(&mut self, now: Instant, node: NodeId, at: &MediaAddress) {
        if self.duplicate_at == Instant::ZERO || now.since(self.duplicate_at) >= Duration::s(1) {
            self.duplicate_at = now;
            self.events.push_back(Event::DuplicateIdentity { node, at: at.clone() });
        }
    }
}
