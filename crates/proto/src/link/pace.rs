//! How fast a link is expected to be, for those who choose among several (protocol.md §5.11).
//!
//! The window asks what a path bears while it is full, and is not misled by one that carries little: what it knows may be
//! small, old, or of a burst. Who chooses a link needs the best guess for each, also for one that is hardly used; and may
//! be wrong, for nothing but a choice rests on it. So nothing here bounds what is in flight.

use super::window::AckSample;
use crate::time::{Duration, Instant};

/// What was measured under load counts more than bursts for so long.
const LOADED_SPAN: Duration = Duration::s(1);
/// What was learnt is forgotten after so long without anything new: who is thought to be slow is given nothing from which
/// the contrary could be learnt. It is twice as long each time what is known in the end is no better than what was
/// forgotten the last time; a shaper's first burst, which passes at once, is not the end.
const FORGET_SPAN_MIN: Duration = Duration::ms(100);
const FORGET_SPAN_MAX: Duration = Duration::s(30);
/// So much faster is better.
const BETTER: u64 = 2;
/// With no more packets in flight one learns the round trip and not the rate.
pub const SILENT_PACKETS: u64 = 2;
/// A window of so many packets or less tells nothing of a path without a queue.
const FEW_PACKETS: u64 = 8;
/// Of bursts, what was on its way in the last so much time counts.
const BURST_SPAN: Duration = Duration::ms(4);
/// One that took longer than so many times what was expected of it counts as that long: machines stand still at times.
const STALL: u64 = 8;
/// A path is busy while so many packets are behind the one that was acknowledged.
const BEHIND_PACKETS: u64 = 2;
/// Shortest span of a sample under load, and over how much of the past samples are smoothed.
const SAMPLE_MIN: Duration = Duration::ms(2);
const MEMORY: Duration = Duration::ms(10);

/// How much is known of a link's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// How fast bursts passed: too small where there was little to do, too large where the path lets the first bytes pass
    /// faster than those that follow.
    Seen,
    /// What it delivered under load of late.
    Measured,
}

/// What is expected of one link.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    bursts: Bursts,
    load: Option<Load>,
    /// When the path was last measured while it was busy.
    loaded_at: Option<Instant>,
    learnt_at: Instant,
    forget_span: Duration,
    /// What was known when it was forgotten the last time.
    forgotten_bytes_per_s: u64,
}

/// What bursts carried, and for how long more than a packet or two were on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Bursts {
    bytes: u64,
    span_ns: u64,
    heard_at: Instant,
}

/// A span in which the path was busy, by the peer's clock.
#[derive(Clone, Copy, Debug)]
struct Load {
    rx_bytes: u64,
    began: u32,
    latest: u32,
    longest_gap: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            bytes_per_s: 0,
            bursts: Bursts::default(),
            load: None,
            loaded_at: None,
            learnt_at: Instant::ZERO,
            forget_span: FORGET_SPAN_MIN,
            forgotten_bytes_per_s: 0,
        }
    }
}

impl Pace {
    /// Bytes per second; 0 while nothing is known.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Whether what is known was measured under load, and no burst has told anything since.
    pub fn is_of_load(&self) -> bool {
        self.loaded_at == Some(self.learnt_at)
    }

    /// Takes in an acknowledgement; packets have `packet_bytes`, and may wait for `queue_target`. `full`: what the window
    /// measured while it was full.
    pub fn on_ack(
        &mut self,
        now: Instant,
        sample: &AckSample,
        full: Option<u64>,
        packet_bytes: u64,
        queue_target: Duration,
    ) {
        self.forget(now);
        self.sample_load(now, sample, packet_bytes, queue_target);
        self.sample_burst(now, sample, packet_bytes);
        if let Some(rate) = full.filter(|_| bounds(sample, packet_bytes, queue_target)) {
            self.learn_loaded(now, rate);
        }
    }

    fn forget(&mut self, now: Instant) {
        let span = if self.is_of_load() { self.forget_span.max(LOADED_SPAN) } else { self.forget_span };
        if self.bytes_per_s == 0 || now.since(self.learnt_at) < span {
            return;
        }
        let is_better = self.bytes_per_s / BETTER > self.forgotten_bytes_per_s;
        self.forget_span =
            if is_better { FORGET_SPAN_MIN } else { self.forget_span.times(2).min(FORGET_SPAN_MAX) };
        self.forgotten_bytes_per_s = self.bytes_per_s;
        (self.bytes_per_s, self.bursts, self.loaded_at) = (0, Bursts::default(), None);
    }

    fn learn(&mut self, now: Instant, rate: u64) {
        (self.bytes_per_s, self.learnt_at) = (rate, now);
    }

    fn learn_loaded(&mut self, now: Instant, rate: u64) {
        self.learn(now, rate);
        (self.loaded_at, self.bursts) = (Some(now), Bursts::default());
    }

    /// What arrived while packets waited in the path for longer than we want, with more behind them: it was busy then,
    /// whatever else there was to send.
    fn sample_load(&mut self, now: Instant, sample: &AckSample, packet_bytes: u64, queue_target: Duration) {
        let left = sample.inflight_before.saturating_sub(sample.acked_bytes);
        let waits = sample.rtt > sample.rtt_min + queue_target.times(2);
        let is_behind = waits && left >= BEHIND_PACKETS * packet_bytes;
        let begin = is_behind.then_some(Load {
            rx_bytes: sample.rx_bytes,
            began: sample.rx_clock,
            latest: sample.rx_clock,
            longest_gap: Duration::ZERO,
        });
        let Some(load) = &mut self.load else {
            self.load = begin;
            return;
        };
        let Some(span) = load.on_ack(sample.rx_clock) else { return };
        // After a pause of this machine or of the peer's packets have waited too, but nothing was heard meanwhile.
        if span >= SAMPLE_MIN.max(load.longest_gap.times(2)) {
            let rate = sample.rx_bytes.saturating_sub(load.rx_bytes).saturating_mul(1_000_000) / span.as_us();
            self.load = begin;
            self.learn_loaded(now, self.smoothed(now, rate, span));
        } else if !is_behind {
            self.load = None;
        }
    }

    /// The rate, and what was measured before it if that is not long ago.
    fn smoothed(&self, now: Instant, rate: u64, span: Duration) -> u64 {
        if self.loaded_at.is_none_or(|at| now.since(at) >= LOADED_SPAN) {
            return rate;
        }
        let (memory, weight) = (MEMORY.as_us(), span.min(MEMORY).as_us());
        self.bytes_per_s.saturating_mul(memory).saturating_add(rate.saturating_mul(weight))
            / (memory + weight)
    }

    /// What was acknowledged, in the time in which it was on its way: all that is known of a link that carries lone
    /// messages. A shaper lets the first packets pass faster than it goes on, so what was measured under load holds
    /// against it for a while.
    fn sample_burst(&mut self, now: Instant, sample: &AckSample, packet_bytes: u64) {
        let span = sample.took.min(sample.heard_at.since(self.bursts.heard_at));
        self.bursts.heard_at = self.bursts.heard_at.max(sample.heard_at);
        let loaded = self.loaded_at.is_some_and(|at| now.since(at) < LOADED_SPAN);
        if sample.inflight_before <= SILENT_PACKETS * packet_bytes || loaded {
            return;
        }
        self.bursts.add(sample.acked_bytes, span);
        if self.bursts.bytes > SILENT_PACKETS * packet_bytes && self.bursts.span_ns > 0 {
            self.learn(now, self.bursts.bytes_per_s());
        }
    }
}

/// Whether a full window tells of the path: one of a few packets that find no queue, as after losses, bounds itself.
fn bounds(sample: &AckSample, packet_bytes: u64, queue_target: Duration) -> bool {
    let finds_queue = sample.rtt > sample.rtt_min + queue_target;
    finds_queue || sample.inflight_before > FEW_PACKETS * packet_bytes
}

impl Load {
    /// Takes in the peer's clock of an acknowledgement; returns how long the path has been busy. `None`: it was overtaken, and
    /// tells an earlier clock.
    fn on_ack(&mut self, clock: u32) -> Option<Duration> {
        let gap = Duration::between_stamps(clock, self.latest);
        if gap > Duration::s(60) {
            return None;
        }
        self.latest = clock;
        self.longest_gap = self.longest_gap.max(gap);
        Some(Duration::between_stamps(clock, self.began))
    }
}

impl Bursts {
    fn add(&mut self, bytes: u64, span: Duration) {
        let expected_ns = self.span_ns.saturating_mul(bytes) / self.bytes.max(1);
        let span_ns = if expected_ns > 0 { span.0.min(expected_ns.saturating_mul(STALL)) } else { span.0 };
        self.bytes += bytes;
        self.span_ns += span_ns;
        if self.span_ns > BURST_SPAN.0 {
            self.bytes = self.bytes.saturating_mul(BURST_SPAN.0) / self.span_ns;
            self.span_ns = BURST_SPAN.0;
        }
    }

    fn bytes_per_s(&self) -> u64 {
        self.bytes.saturating_mul(1_000_000_000) / self.span_ns.max(1)
    }
}

#[cfg(test)]
mod tests;
