//! One link: a numbered, acknowledged, supervised packet stream to one peer over one pair of bearers.

pub mod losses;
pub mod mtu;
pub mod pace;
pub mod recv;
pub mod rtt;
pub mod send;
pub mod state;
pub mod window;

use crate::address::MediaAddress;
use crate::config::Config;
use crate::id::{BearerId, LinkId};
use crate::limits;
use crate::session::Shared;
use crate::stats::LinkStats;
use crate::time::{Duration, Instant};
use crate::wire::{LinkStatus, Probe, ProbeKind, ProbeReply};
use arrayvec::ArrayVec;
use losses::Losses;
use mtu::Mtu;
use pace::{Known, Pace};
use recv::Received;
use rtt::Rtt;
use send::{Item, Sent};
use state::State;
use std::collections::VecDeque;
use window::{AckSample, Window};

/// What a link is made of when it is created.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Its number.
    pub id: LinkId,
    /// Our bearer.
    pub bearer: BearerId,
    /// The peer's.
    pub peer_bearer: BearerId,
    /// Where packets go.
    pub to: MediaAddress,
    /// Largest datagram of our bearer and of the peer's.
    pub mtu: u16,
    /// Bytes that we may have in flight towards the peer's bearer.
    pub window: u32,
    /// The medium neither loses nor delays (a node's way to itself): no keepalive, full MTU at once.
    pub lossless: bool,
    /// Both ends share memory: while it serves, no other link does (protocol.md §5.11).
    pub near: bool,
    /// Its operator wants it on standby as soon as it is there (protocol.md §6.4).
    pub standby: bool,
}

impl LinkSpec {
    /// Between bearers that lose nothing, such as a node's own to itself.
    pub(crate) fn lossless(
        id: LinkId,
        bearer: BearerId,
        to: MediaAddress,
        (mtu, window): (u16, u32),
    ) -> LinkSpec {
        let (near, standby) = (false, false);
        LinkSpec { id, bearer, peer_bearer: bearer, to, mtu, window, lossless: true, near, standby }
    }

    /// Link `id` from bearer `own` to the peer's of the same number, at the address of the byte `to`.
    #[cfg(test)]
    pub(crate) fn to(id: u16, own: u8, to: u8, mtu: u16) -> LinkSpec {
        let to = MediaAddress::from_bytes(&[to]).expect("one byte is an address");
        LinkSpec::lossless(LinkId(id), BearerId(own), to, (mtu, 1 << 20))
    }
}

/// What the expected delay of a link is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// For all that is in flight to be delivered.
    pub queue: Duration,
    /// Half the shortest round trip of late.
    pub trip: Duration,
    /// For what is sent now.
    pub own: Duration,
    /// For each probe time-out since the last proof of life.
    pub doubt: Duration,
}

impl Expected {
    /// The delay: bytes on the way are waited for on the way.
    #[inline]
    pub fn delay(self) -> Duration {
        self.queue.max(self.trip) + self.own + self.doubt
    }
}

/// One link of a session.
#[derive(Debug)]
pub struct Link {
    /// What it is made of.
    pub spec: LinkSpec,
    /// Its state.
    pub state: State,
    /// Round trips.
    pub rtt: Rtt,
    /// How much may be in flight.
    pub window: Window,
    /// How fast it is expected to be.
    pub pace: Pace,
    /// How often it loses packets.
    pub losses: Losses,
    /// When the newest of what was confirmed had arrived.
    arrived_at: Instant,
    /// How large packets may be.
    pub mtu: Mtu,
    /// What arrived.
    pub received: Received,
    /// What is in flight.
    pub sent: Sent,
    /// The operator's word, ours.
    pub status: LinkStatus,
    /// The word of the peer's operator.
    pub status_of_peer: LinkStatus,
    /// Counters.
    pub stats: LinkStats,
    /// The bearer's carrier.
    pub carrier: bool,
    /// The bearer took nothing at the last try.
    pub blocked: bool,
    /// Damped, but no other link is left: better a link that fails often than none.
    pub pressed: bool,
    /// Probe time-outs since the last proof of life.
    pub pto_count: u32,
    pub(crate) replies: ArrayVec<ProbeReply, 8>,
    pub(crate) probe: Option<ProbeKind>,
    /// What other links have sent and this one is to send too.
    pub(crate) copies: VecDeque<Item>,
    loss_at: Instant,
    pto_base: Instant,
    last_tx_at: Instant,
    probe_at: Instant,
    probes: u64,
    /// When the bearer got its carrier back, if it ever did.
    carrier_at: Option<Instant>,
    /// Nothing leaves before this moment.
    hushed_until: Instant,
    /// Bytes sent since the peer was last asked to acknowledge at once, of those that it has not acknowledged.
    pub(crate) unasked_bytes: u64,
    created_at: Instant,
    /// Bytes of packets that the peer has acknowledged, headers included.
    pub(crate) delivered_bytes: u64,
    /// Whether it passes the same narrow place as another.
    pub shared: Shared,
    /// It takes messages while it is suspect (planted fault only).
    #[cfg(feature = "planted")]
    suspect_serves: bool,
}

/// Links of which nothing is known are hoped to be so many times faster than the best of the others.
const HOPE: u64 = 2;
/// What a way is taken for before the first round trip was measured.
/// So long after it has arrived, something is confirmed; what is not by then, has not.
const UNHEARD_MAX: Duration = Duration::ms(2);
const TRIP_ASSUMED: Duration = Duration::us(50);
/// Interval at which a link that is not usable is tried again while its session carries messages, and otherwise.
const RETRY_BUSY: Duration = Duration::ms(20);
const RETRY_IDLE: Duration = Duration::ms(250);
/// While a link is suspect, probes follow each other this closely.
const RETRY_SUSPECT: Duration = Duration::ms(3);
/// Between requests to join that answer the peer's.
const JOIN_BACK: Duration = Duration::ms(3);
/// How long a link whose carrier is back says nothing, unless it hears the peer. The ends of a cable come into service
/// one after the other: a system that is asked for its address before its end is, answers into the void, and is not
/// asked again for a second.
const CARRIER_HUSH: Duration = Duration::ms(50);
/// After that it is tried this often, for so long after the carrier's return.
const RETRY_RETURN: Duration = Duration::ms(10);
const RETURN_SPAN: Duration = Duration::ms(300);

impl Link {
    /// A link that has to be joined first.
    pub fn new(now: Instant, spec: LinkSpec, config: &Config) -> Self {
        let mut rtt = Rtt::new();
        rtt.set_pto_min(config.pto_min);
        let mut window = Window::new(65_536, spec.window);
        window.set_queue_target(config.queue_target.1);
        let state = State::new(now);
        #[cfg(feature = "planted")]
        let state = state.with(config.planted);
        let base = if spec.lossless { spec.mtu } else { limits::DATAGRAM_BYTES_BASE.min(spec.mtu) };
        Link {
            state,
            rtt,
            window,
            pace: Pace::default(),
            losses: Losses::new(now),
            arrived_at: Instant::ZERO,
            mtu: Mtu::new(base & !7, spec.mtu & !7),
            received: Received::new(),
            sent: Sent::default(),
            status: if spec.standby { LinkStatus::Standby } else { LinkStatus::Active },
            status_of_peer: LinkStatus::Active,
            stats: LinkStats::default(),
            carrier: true,
            blocked: false,
            pressed: false,
            pto_count: 0,
            replies: ArrayVec::new(),
            probe: Some(ProbeKind::Join),
            copies: VecDeque::new(),
            loss_at: Instant::NEVER,
            pto_base: now,
            last_tx_at: now,
            probe_at: now,
            probes: 0,
            carrier_at: None,
            hushed_until: Instant::ZERO,
            unasked_bytes: 0,
            created_at: now,
            delivered_bytes: 0,
            shared: Shared::default(),
            #[cfg(feature = "planted")]
            suspect_serves: config.planted(crate::planted::Planted::SuspectServes),
            spec,
        }
    }

    /// When the link was made.
    pub fn created_at(&self) -> Instant {
        self.created_at
    }

    /// Whether it can carry messages; whether it is to take new ones is decided among the links of its session.
    pub fn usable(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.suspect_serves && self.state.state() == state::LinkState::Suspect {
            return self.carrier;
        }
        self.carrier && (self.state.usable() || self.pressed) && self.status != LinkStatus::Down
    }

    /// What the operators of both ends want of it: the stricter word holds for either direction.
    pub fn wanted(&self) -> LinkStatus {
        self.status.max(self.status_of_peer)
    }

    /// Whether a probe time-out has passed without any confirmation: new messages go by another link if there is one.
    pub fn in_doubt(&self) -> bool {
        self.pto_count > 0
    }

    /// Whether it is in use and all it carried was confirmed in time.
    pub fn sure(&self) -> bool {
        self.carrier && self.state.state() == state::LinkState::Up && !self.in_doubt()
    }

    /// Bytes that may still be sent now.
    pub fn room(&self) -> u64 {
        if self.sent.is_full() { 0 } else { self.window.cwnd().saturating_sub(self.sent.inflight_bytes()) }
    }

    /// Bytes of small messages that may still be sent now: they may exceed the window a little.
    pub fn small_room(&self) -> u64 {
        let limit = self.window.cwnd() + limits::SMALL_OVERDRAFT_BYTES;
        if self.sent.is_full() { 0 } else { limit.saturating_sub(self.sent.inflight_bytes()) }
    }

    /// Bytes that one train should have: what the link moves in [`Window::train_span`] (protocol.md §5.11).
    pub fn train_bytes(&self) -> u64 {
        let packet = self.mtu.current() as u64;
        let rate = self.window.rate_bytes_per_s();
        let slice = if rate == 0 { 16_384 } else { window::span_bytes(rate, self.window.train_span()) };
        slice.clamp(packet, limits::TRAIN_BYTES_MAX as u64)
    }

    /// Estimated time until the last of `more_bytes` that are sent now arrives. `hope`: see [`Link::hope`].
    pub fn delay(&self, more_bytes: u64, hope: u64) -> Duration {
        self.expect(more_bytes, hope).delay()
    }

    /// The same, and what it is made of.
    #[inline]
    pub fn expect(&self, more_bytes: u64, hope: u64) -> Expected {
        self.expect_behind(self.sent.inflight_bytes(), more_bytes, self.rate(hope))
    }

    /// The same behind `queue_bytes`, if it delivers `rate` bytes per second.
    #[inline]
    pub fn expect_behind(&self, queue_bytes: u64, more_bytes: u64, rate: u64) -> Expected {
        let span = |bytes: u64| Duration(bytes.saturating_mul(1_000_000_000) / rate);
        let trip = if self.rtt.has_sample() { Duration(self.rtt.min().0 / 2) } else { TRIP_ASSUMED };
        let doubt = Duration::ms(1).times(self.pto_count as u64);
        Expected { queue: span(queue_bytes), trip, own: span(more_bytes), doubt }
    }

    /// How much later `bytes` that are waited for together arrive for what it loses of them, on the average. One of many is missed
    /// when others have arrived, behind a queue as long as it is meant to be, and waits for another to be sent again; of a few, the last
    /// may be lost.
    #[inline]
    pub fn loss_delay(&self, bytes: u64) -> Duration {
        if self.losses.is_none() {
            return Duration::ZERO;
        }
        let packets = bytes.div_ceil(self.mtu.current() as u64).max(1);
        let queues = self.window.queue_target().times(2);
        let repair = if packets <= pace::SILENT_PACKETS {
            self.rtt.pto(limits::ACK_DELAY_MAX)
        } else {
            self.rtt.min() + queues + limits::ACK_DELAY_MAX
        };
        self.losses.delay(packets, repair)
    }

    /// Bytes that are probably on their way still, if it delivers `rate` bytes per second: less than what is in flight, for
    /// confirmations are heard late, and later of one link than of another.
    pub fn backlog_bytes(&self, now: Instant, rate: u64) -> u64 {
        let Some(oldest_at) = self.sent.oldest_sent_at() else { return 0 };
        let span = now.since(self.arrived_at.max(oldest_at)).min(UNHEARD_MAX);
        self.sent.inflight_bytes().saturating_sub(window::span_bytes(rate, span))
    }

    /// Bytes per second that it delivers; `hope` while nothing is known.
    #[inline]
    pub fn rate(&self, hope: u64) -> u64 {
        if self.has_measured_rate() { self.pace.bytes_per_s() } else { hope }
    }

    /// Whether anything is known of its rate.
    pub fn has_measured_rate(&self) -> bool {
        self.pace.bytes_per_s() > 0
    }

    /// What is hoped of it as long as its rate is unknown, where it could have a message of `bytes`: one of so few packets
    /// that nothing would be known after it either is not there to try the link.
    pub fn hope_for(&self, bytes: u64, hope: u64) -> u64 {
        if bytes <= pace::SILENT_PACKETS * self.mtu.current() as u64 { hope / HOPE } else { hope }
    }

    /// How much is known of it: a window that still grows has not been full for long.
    pub fn rate_known(&self) -> Known {
        match (self.has_measured_rate(), self.pace.is_of_load() && !self.window.is_starting()) {
            (false, _) => Known::Nothing,
            (true, false) => Known::Seen,
            (true, true) => Known::Measured,
        }
    }

    /// What to expect of a link of which nothing is known, or not any more: twice what the best of the others delivers, or
    /// nobody would ever find out.
    pub fn hope<'a>(links: impl Iterator<Item = &'a Link>) -> u64 {
        match links.map(|link| link.pace.bytes_per_s()).max() {
            None | Some(0) => limits::RATE_GUESS,
            Some(best) => best.saturating_mul(HOPE),
        }
    }

    /// Takes in an acknowledgement of new packets.
    pub(crate) fn on_ack(&mut self, now: Instant, sample: &AckSample) {
        self.unasked_bytes = self.unasked_bytes.min(self.sent.inflight_bytes());
        self.delivered_bytes += sample.acked_bytes;
        self.arrived_at = self.arrived_at.max(sample.heard_at - Duration(sample.rtt_min.0 / 2));
        let full = self.window.on_ack(now, sample);
        self.pace.on_ack(now, sample, full, self.mtu.current() as u64, self.window.queue_target());
    }

    /// The probe time-out in force. Memory loses nothing: if nothing is confirmed, the peer doesn't get to run, and no other link would be
    /// quicker.
    pub fn pto(&self) -> Duration {
        if self.spec.near {
            return limits::NEAR_PTO;
        }
        let pto = self.rtt.pto(limits::ACK_DELAY_MAX);
        // The second one is as long as the first: together they are the silence that makes a link suspect.
        Duration(pto.0 << self.pto_count.saturating_sub(1).min(4)).min(Duration::ms(64))
    }

    /// Remembers when to look for losses again.
    pub fn set_loss_at(&mut self, at: Instant) {
        self.loss_at = at;
    }

    /// A packet left.
    pub fn on_sent(&mut self, now: Instant, packets: u64, bytes: u64) {
        if now.since(self.last_tx_at) > Duration::s(1) {
            self.window.on_idle(now);
        }
        self.last_tx_at = now;
        self.stats.packets_sent += packets;
        self.stats.bytes_sent += bytes;
        self.stats.trains_sent += 1;
    }

    /// When the probe time-out expires; `NEVER` with nothing in flight.
    #[inline]
    pub fn pto_at(&self) -> Instant {
        if self.sent.is_empty() { Instant::NEVER } else { self.pto_base + self.pto() }
    }

    /// The probe time-out counts from here: something was confirmed, or went out while nothing was in flight, or the
    /// time-out before expired. New packets do not put it off, or a dead link would live as long as it is fed.
    pub(crate) fn restart_pto(&mut self, now: Instant) {
        self.pto_base = now;
    }

    /// The driver was away.
    pub(crate) fn shift(&mut self, stall: Duration) {
        self.sent.shift(stall);
        self.state.on_stall(stall);
        self.pto_base += stall;
    }

    /// The bearer has its carrier again. What waited to be said is of before: the peer's questions are repeated.
    pub(crate) fn on_carrier_back(&mut self, now: Instant) {
        self.replies.clear();
        // A medium that neither loses nor delays is asked once.
        self.probe = self.spec.lossless.then_some(ProbeKind::Join);
        if !self.spec.lossless {
            self.carrier_at = Some(now);
            self.hushed_until = now + CARRIER_HUSH;
        }
    }

    /// A packet of the peer's came by this link: its end is in service.
    pub(crate) fn on_heard(&mut self) {
        self.hushed_until = Instant::ZERO;
    }

    /// Nothing is to leave before this moment, whatever waits.
    pub(crate) fn hushed_until(&self) -> Instant {
        self.hushed_until
    }

    /// When losses are to be looked for by time.
    pub fn loss_at(&self) -> Instant {
        self.loss_at
    }

    /// When the next keepalive or trial is due. `busy`: the session carries messages.
    #[inline]
    pub fn probe_due_at(&self, config: &Config, busy: bool) -> Instant {
        if self.probe.is_some() || !self.carrier || self.spec.lossless {
            return Instant::NEVER;
        }
        match self.state.state() {
            state::LinkState::Up => {
                let every = if busy { config.keepalive_busy } else { config.keepalive_idle };
                self.last_tx_at.max(self.probe_at) + every
            }
            state::LinkState::Probation => self.probe_at + Duration::ms(10),
            state::LinkState::Suspect => self.probe_at + RETRY_SUSPECT,
            _ => (self.probe_at + self.retry(busy)).max(self.hushed_until),
        }
    }

    /// Between requests to join. `busy`: the session carries messages.
    fn retry(&self, busy: bool) -> Duration {
        match self.carrier_at {
            Some(at) if self.probe_at < at + RETURN_SPAN => RETRY_RETURN,
            _ if busy => RETRY_BUSY,
            _ => RETRY_IDLE,
        }
    }

    /// Asks for a probe if one is due.
    pub fn check_probe(&mut self, now: Instant, config: &Config, busy: bool) {
        if self.probe_due_at(config, busy) <= now {
            self.probe = Some(match self.state.state() {
                state::LinkState::Up | state::LinkState::Suspect | state::LinkState::Probation => {
                    ProbeKind::Liveness
                }
                _ => ProbeKind::Join,
            });
        }
    }

    /// The peer asks this link to join: so does this end. Not if it did so just now, or two ends that may not use the
    /// link yet (damped, or their carrier is young) would answer each other without end.
    pub(crate) fn join_back(&mut self, now: Instant) {
        let new = self.state.state() == state::LinkState::New;
        if !self.usable() && self.probe.is_none() && (new || now.since(self.probe_at) >= JOIN_BACK) {
            self.probe = Some(ProbeKind::Join);
        }
    }

    /// The probe to put into a packet now, if one was asked for.
    pub fn take_probe(&mut self, now: Instant) -> Option<Probe> {
        let kind = self.probe.take()?;
        self.probe_at = now;
        self.probes += 1;
        let target = match kind {
            ProbeKind::Join => self.spec.bearer.0 as u64 | (self.spec.peer_bearer.0 as u64) << 8,
            _ => 0,
        };
        Some(Probe { id: self.probes, about: self.spec.id, kind, target, size: 0 })
    }

    /// The earliest moment at which the link wants to be looked at. `busy`: the session carries messages. `carried`:
    /// some link of the session is usable, and can take this one's acknowledgements along.
    #[inline]
    pub fn deadline(&self, config: &Config, busy: bool, carried: bool) -> Instant {
        let mut at = self.loss_at.min(self.state.deadline()).min(self.probe_due_at(config, busy));
        if carried {
            at = at.min(self.received.deadline());
        } else if self.carrier {
            at = at.min(self.received.deadline().max(self.hushed_until));
        }
        if self.usable() {
            // The others have their own retries; a probe time-out that nobody handles would never be over.
            at = at.min(self.pto_at()).min(self.mtu.deadline());
        }
        at
    }
}

#[cfg(test)]
mod tests;
