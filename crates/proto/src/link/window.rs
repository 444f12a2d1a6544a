//! How much one link may have in flight (protocol.md §5.11).
//!
//! The window follows a model of the path, delivery rate times shortest round trip plus the queue that we want,
//! and not single losses: a cable that loses 5 % at random must still be filled. Only when more than 12 % of a
//! round is lost does loss bound the window, and only while that helps.
//!
//! Measured host stalls make short samples far too large (a receiver that wakes up drains its socket at memory
//! speed), so the rate is the largest of the last rounds, but at most 5/4 of its mean.

use crate::time::{Duration, Instant};

/// Bytes of a full train.
const TRAIN_BYTES: u64 = 64 * 1024;
/// Trains on top of the model: one leaves while the acknowledgement of another is under way.
const TRAINS: u64 = 2;
/// Span of the path that a train takes, when nothing is known of what it is to serve.
pub const TRAIN_SPAN: Duration = Duration::us(250);
const PACKETS_MIN: u64 = 4;
const INITIAL_PACKET_BYTES: u64 = 1_200;
const QUEUE_TARGET: Duration = Duration::us(500);
/// Shortest round, and shortest span of a rate sample: below it, batching is all one would measure.
const ROUND_MIN: Duration = Duration::ms(1);
/// Rates are remembered for this long, or for ten round trips.
const RATE_SPAN: Duration = Duration::ms(100);
/// Rounds without growth of the rate that end the start-up.
const PLATEAU_ROUNDS: u8 = 3;
/// Losses are judged over at least this many packets.
const LOSS_PACKETS_MIN: u64 = 64;
const START_LOSS_PERCENT: u64 = 10;
const LOSS_PERCENT: u64 = 12;
/// Every so many rounds the window is 5/4 for one round, to find out whether there is more.
const PROBE_ROUNDS: u64 = 16;
/// As often the window is 3/4 of the bare path for two rounds: without it the queue never empties, and the shortest
/// round trip would grow by it each time its memory ends.
const DRAIN_EVERY: Duration = Duration::s(1);
/// A bound learnt from loss is forgotten after this long.
const BOUND_SPAN: Duration = Duration::s(10);
/// Cuts after which we look whether they helped.
const CUTS_MAX: u8 = 4;
/// How long loss is called random after cuts did not help.
const RANDOM_SPAN: Duration = Duration::s(2);

/// What one acknowledgement tells the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckSample {
    /// Bytes that it newly acknowledges.
    pub acked_bytes: u64,
    /// Its `rx_bytes`.
    pub rx_bytes: u64,
    /// Its `rx_clock`, units of 256 ns.
    pub rx_clock: u32,
    /// The round trip that it measured, or the smoothed one.
    pub rtt: Duration,
    /// The shortest round trip of late ([`super::rtt::Rtt::min`]).
    pub rtt_min: Duration,
    /// Bytes in flight before it was handled.
    pub inflight_before: u64,
    /// The link had room and nothing to send.
    pub app_limited: bool,
    /// The bearer took no more: what is in flight fills its buffer, however large the window is.
    pub bearer_full: bool,
    /// Its `queueing`, as a span.
    pub queueing: Duration,
    /// When it would have been heard if nobody had held it back.
    pub heard_at: Instant,
    /// From when the first of what it acknowledges was sent until then.
    pub took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Doubles each round until the rate stops growing.
    StartUp { best_rate: u64, plateau: u8 },
    /// Follows the model.
    Steady,
    /// Follows the model, with 5/4 of the window for this round.
    Probe,
    /// 3/4 of the bare path, for this many more rounds.
    Drain(u8),
}

/// The window of one link. All arithmetic is of whole numbers, so that a seed replays exactly.
#[derive(Clone, Debug)]
pub struct Window {
    phase: Phase,
    cwnd: u64,
    initial_bytes: u64,
    window_max: u64,
    packet_bytes: u64,
    queue_target: Duration,
    train_span: Duration,
    rtt_min: Duration,
    rate: MaxFilter,
    rate_mean: u64,
    reference: Option<Reference>,
    round: Round,
    rounds: u64,
    drained_at: Instant,
    loss: Loss,
    bound: Option<Bound>,
    random_until: Instant,
}

/// The acknowledgement that a rate sample starts at.
#[derive(Clone, Copy, Debug)]
struct Reference {
    rx_bytes: u64,
    rx_clock: u32,
    app_limited: bool,
}

/// The round under way.
#[derive(Clone, Copy, Debug)]
struct Round {
    started: Instant,
    cwnd_at_start: u64,
    /// Largest rate sample that ended in it, and whether the application held it back.
    rate: u64,
    app_limited: bool,
    /// At each acknowledgement either the window or the bearer was full.
    full: bool,
    queueing_min: Duration,
}

/// Losses since they were last judged.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    acked_bytes: u64,
    lost_packets: u64,
    inflight: u64,
}

/// Bound on the bytes in flight, learnt from loss.
#[derive(Clone, Copy, Debug)]
struct Bound {
    bytes: u64,
    since: Instant,
    quiet_rounds: u8,
    cuts: u8,
    /// Rate and loss (per 1024) before the first of these cuts.
    rate: u64,
    loss: u64,
}

impl Window {
    /// A window of `initial_bytes` that never exceeds `window_max`, the peer's receive window of this link.
    pub fn new(initial_bytes: u64, window_max: u32) -> Self {
        let cwnd = initial_bytes.min(window_max as u64);
        Window {
            phase: START_UP,
            cwnd,
            initial_bytes,
            window_max: window_max as u64,
            packet_bytes: INITIAL_PACKET_BYTES,
            queue_target: QUEUE_TARGET,
            train_span: TRAIN_SPAN,
            rtt_min: Duration::ZERO,
            rate: MaxFilter::default(),
            rate_mean: 0,
            reference: None,
            round: Round::new(Instant::ZERO, cwnd),
            rounds: 0,
            drained_at: Instant::ZERO,
            loss: Loss::default(),
            bound: None,
            random_until: Instant::ZERO,
        }
    }

    /// Bytes that the link may have in flight.
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// What the path delivers, bytes per second; 0 before the first sample.
    pub fn rate_bytes_per_s(&self) -> u64 {
        match self.phase {
            Phase::StartUp { .. } => self.rate.max(),
            _ => self.rate.max().min(self.rate_mean.saturating_add(self.rate_mean / 4)),
        }
    }

    /// Whether the window still doubles per round.
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::StartUp { .. })
    }

    /// The sender asks for an acknowledgement whenever it has sent this many bytes since it last asked: four times
    /// per window, so that the path is never empty while an acknowledgement is being saved up; twice, while trains are long.
    pub fn ack_every_bytes(&self) -> u64 {
        let per_window = if self.train_span > TRAIN_SPAN { 2 } else { 4 };
        (self.cwnd / per_window).max(self.packet_bytes)
    }

    /// How long packets may wait in the queue of the bottleneck.
    pub fn queue_target(&self) -> Duration {
        self.queue_target
    }

    /// Sets how long packets may wait in the queue of the bottleneck (500 us by default).
    pub fn set_queue_target(&mut self, target: Duration) {
        self.queue_target = target;
    }

    /// How long a train may occupy the path.
    pub fn train_span(&self) -> Duration {
        self.train_span
    }

    /// Sets how long a train may occupy the path ([`TRAIN_SPAN`] at first).
    pub fn set_train_span(&mut self, span: Duration) {
        self.train_span = span;
    }

    /// Sets the peer's receive window of this link, bytes.
    pub fn set_window_max(&mut self, window_max: u32) {
        self.window_max = window_max as u64;
        self.cwnd = self.cwnd.min(self.window_max);
    }

    /// Sets the size of a full packet (the link's MTU): no window is smaller than four of them, and the share of lost
    /// packets is counted in them.
    pub fn set_packet_bytes(&mut self, packet_bytes: u16) {
        self.packet_bytes = packet_bytes as u64;
    }

    /// Takes in an acknowledgement of new packets. Returns what the path delivers, if this completed a measurement during
    /// which the window was full.
    pub fn on_ack(&mut self, now: Instant, sample: &AckSample) -> Option<u64> {
        self.rtt_min = sample.rtt_min;
        let app_limited = sample.app_limited || sample.inflight_before < self.cwnd / 2;
        self.loss.acked_bytes += sample.acked_bytes;
        // A buffer that had no room for a train, long ago perhaps, is not full of a few packets, unless these wait: it is small then.
        let waits = sample.queueing > self.queue_target;
        let bearer_full = sample.bearer_full && (waits || sample.inflight_before >= TRAIN_BYTES / 2);
        self.round.full &= !app_limited || bearer_full;
        self.round.queueing_min = self.round.queueing_min.min(sample.queueing);
        let full = self.sample_rate(now, sample, app_limited);
        if self.is_starting() && !app_limited && sample.queueing <= self.queue_target + sample.rtt_min {
            self.cwnd =
                (self.cwnd + sample.acked_bytes).min(2 * self.round.cwnd_at_start).min(self.window_max);
        }
        if now.since(self.round.started) >= sample.rtt.max(ROUND_MIN) {
            self.end_round(now);
        }
        self.apply_model();
        // A window that still doubles and finds no queue bounds itself.
        let bounds_itself = self.is_starting() && sample.queueing <= self.queue_target;
        (full && !bounds_itself).then(|| self.rate_bytes_per_s())
    }

    /// Takes in that `packets` were declared lost, with `inflight` bytes in flight just before. Losses that the local
    /// queue reported are not told here: they say nothing of the path.
    pub fn on_loss(&mut self, now: Instant, packets: u64, inflight: u64) {
        self.loss.lost_packets += packets;
        self.loss.inflight = self.loss.inflight.max(inflight);
        // Rounds end with acknowledgements; where none come, they still have to end.
        if now.since(self.round.started) >= self.rtt_min.max(ROUND_MIN).times(4) {
            self.end_round(now);
            self.apply_model();
        }
    }

    /// The link was idle for more than a second: the rate is kept, but what a queue then held is not assumed.
    pub fn on_idle(&mut self, now: Instant) {
        let bare = span_bytes(self.rate_bytes_per_s(), self.rtt_min);
        self.cwnd = self.cwnd.min(bare + TRAIN_BYTES).max(self.floor());
        self.reference = None;
        self.round = Round::new(now, self.cwnd);
    }

    /// The link returns from the dead: nothing learnt holds any more.
    pub fn probation(&mut self, now: Instant) {
        let mut fresh = Window::new(self.initial_bytes, self.window_max as u32);
        fresh.packet_bytes = self.packet_bytes;
        fresh.queue_target = self.queue_target;
        fresh.train_span = self.train_span;
        fresh.round.started = now;
        *self = fresh;
    }

    fn floor(&self) -> u64 {
        (PACKETS_MIN * self.packet_bytes).min(self.window_max)
    }

    /// A rate sample ends once it spans a round trip and the shortest round. Returns whether one ended that the application
    /// did not hold back.
    fn sample_rate(&mut self, now: Instant, sample: &AckSample, app_limited: bool) -> bool {
        let Some(reference) = &mut self.reference else {
            self.reference =
                Some(Reference { rx_bytes: sample.rx_bytes, rx_clock: sample.rx_clock, app_limited: false });
            return false;
        };
        reference.app_limited |= app_limited;
        let span = Duration::between_stamps(sample.rx_clock, reference.rx_clock);
        // An acknowledgement that was overtaken tells an earlier clock: not a span, as a wrapped one is not.
        if span < sample.rtt.max(ROUND_MIN) || span > Duration::s(60) {
            return false;
        }
        let bytes = sample.rx_bytes.saturating_sub(reference.rx_bytes);
        let rate = bytes.saturating_mul(1_000_000) / span.as_us();
        let limited = reference.app_limited;
        self.reference =
            Some(Reference { rx_bytes: sample.rx_bytes, rx_clock: sample.rx_clock, app_limited });
        self.round.rate = self.round.rate.max(rate);
        self.round.app_limited |= limited;
        if !limited || rate > self.rate.max() {
            self.rate.add(now, rate, RATE_SPAN.max(sample.rtt_min.times(10)));
        }
        if !limited || rate > self.rate_mean {
            let memory = Duration::ms(10).max(sample.rtt_min.times(4)).as_us();
            let (old, span_us) = (self.rate_mean.saturating_mul(memory), span.as_us().min(memory));
            self.rate_mean = old.saturating_add(rate.saturating_mul(span_us)) / (memory + span_us);
        }
        !limited
    }

    fn end_round(&mut self, now: Instant) {
        let round = core::mem::replace(&mut self.round, Round::new(now, self.cwnd));
        self.rounds += 1;
        self.judge_loss(now, &round);
        self.phase = match self.phase {
            Phase::StartUp { best_rate, plateau } => self.next_of_start(now, &round, best_rate, plateau),
            Phase::Drain(more) if more > 0 => Phase::Drain(more - 1),
            _ if now.since(self.drained_at) >= DRAIN_EVERY => {
                self.drained_at = now;
                Phase::Drain(1)
            }
            _ if self.rounds.is_multiple_of(PROBE_ROUNDS) => Phase::Probe,
            _ => Phase::Steady,
        };
    }

    fn next_of_start(&mut self, now: Instant, round: &Round, best_rate: u64, plateau: u8) -> Phase {
        let grew = round.rate >= best_rate + best_rate / 4;
        let standing = round.queueing_min > self.queue_target && round.queueing_min != Duration(u64::MAX);
        let plateau = match (round.rate > 0, grew) {
            (true, true) => 0,
            // A queue that stood for the whole round says the same as two rounds without growth. And where the bearer's buffer
            // bounds what is in flight, no window is ever full: start-up would not end, and its window holds nothing back.
            (true, false) if !round.app_limited || round.full => plateau + 1 + standing as u8,
            _ => plateau,
        };
        if plateau >= PLATEAU_ROUNDS {
            self.leave_start(now, round);
            return Phase::Steady;
        }
        Phase::StartUp { best_rate: if grew { round.rate.max(1) } else { best_rate }, plateau }
    }

    fn leave_start(&mut self, now: Instant, round: &Round) {
        self.rate_mean = self.rate_mean.max(round.rate).min(self.rate.max());
        self.drained_at = now;
        self.phase = Phase::Steady;
    }

    /// Judges the losses of a round, or of several if they had few packets.
    fn judge_loss(&mut self, now: Instant, round: &Round) {
        self.age_bound(now);
        let loss = self.loss;
        let (lost, all) = (loss.lost_packets, loss.lost_packets + loss.acked_bytes / self.packet_bytes);
        if all < LOSS_PACKETS_MIN {
            return;
        }
        self.loss = Loss::default();
        let starting = self.is_starting();
        let percent = if starting { START_LOSS_PERCENT } else { LOSS_PERCENT };
        // The square root is three standard deviations: 5 % at random must not look like 12 %.
        if lost > all * percent / 100 + all.isqrt() {
            if starting {
                self.leave_start(now, round);
            }
            self.cut(now, loss.inflight, lost * 1024 / all, round.rate);
        } else if lost * 50 <= all {
            self.raise_bound();
        }
    }

    /// Bounds what is in flight. If several cuts lowered the rate as much as the window, and the loss not at all,
    /// then the path loses at random, and cutting further would only give it away.
    fn cut(&mut self, now: Instant, inflight: u64, loss: u64, rate: u64) {
        if now < self.random_until {
            return;
        }
        let old = self.bound.unwrap_or(Bound { bytes: 0, since: now, quiet_rounds: 0, cuts: 0, rate, loss });
        let slower = rate < old.rate - old.rate / 5;
        if old.cuts >= CUTS_MAX && slower && loss >= old.loss - old.loss / 4 {
            self.random_until = now + RANDOM_SPAN;
            self.bound = None;
            return;
        }
        let bytes = (inflight - inflight / 100 * 15).max(self.floor());
        self.bound =
            Some(Bound { bytes, since: now, quiet_rounds: 0, cuts: old.cuts.saturating_add(1), ..old });
    }

    fn age_bound(&mut self, now: Instant) {
        if self.bound.is_some_and(|b| now.since(b.since) >= BOUND_SPAN) {
            self.bound = None;
        }
    }

    /// A round without loss: after eight of them one more train may be in flight.
    fn raise_bound(&mut self) {
        if let Some(bound) = &mut self.bound {
            bound.quiet_rounds += 1;
            if bound.quiet_rounds == 8 {
                *bound = Bound { bytes: bound.bytes + TRAIN_BYTES, quiet_rounds: 0, cuts: 0, ..*bound };
            }
        }
    }

    fn apply_model(&mut self) {
        let rate = self.rate_bytes_per_s();
        if !self.is_starting() && rate > 0 {
            let trains = TRAINS * TRAIN_BYTES.min(span_bytes(rate, self.train_span));
            let reach = Duration(self.rtt_min.0 + self.rtt_min.0 / 4) + self.queue_target;
            let model = span_bytes(rate, reach) + trains.max(PACKETS_MIN * self.packet_bytes);
            self.cwnd = match self.phase {
                Phase::Probe => model + model / 4,
                Phase::Drain(_) => span_bytes(rate, Duration(self.rtt_min.0 / 4 * 3)),
                _ => model,
            };
        }
        let bound = self.bound.map_or(u64::MAX, |b| b.bytes);
        self.cwnd = self.cwnd.min(bound).min(self.window_max).max(self.floor());
    }
}

const START_UP: Phase = Phase::StartUp { best_rate: 0, plateau: 0 };

impl Round {
    fn new(started: Instant, cwnd_at_start: u64) -> Self {
        Round {
            started,
            cwnd_at_start,
            rate: 0,
            app_limited: false,
            full: true,
            queueing_min: Duration(u64::MAX),
        }
    }
}

/// Bytes that `rate` moves in `span`. Eighths of nanoseconds-per-second keep a second at 100 GB/s inside 64 bits.
pub(crate) fn span_bytes(rate: u64, span: Duration) -> u64 {
    rate.saturating_mul(span.0 / 8) / (Duration::s(1).0 / 8)
}

/// Largest value of a sliding span, kept as the three best successive candidates (Kathleen Nichols' filter).
#[derive(Clone, Copy, Debug, Default)]
struct MaxFilter {
    best: [(Instant, u64); 3],
}

impl MaxFilter {
    fn max(&self) -> u64 {
        self.best[0].1
    }

    fn add(&mut self, now: Instant, value: u64, span: Duration) {
        let new = (now, value);
        if value >= self.best[0].1 || now.since(self.best[2].0) > span {
            self.best = [new; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = new;
            self.best[2] = new;
        } else if value >= self.best[2].1 {
            self.best[2] = new;
        }
        if now.since(self.best[0].0) > span {
            self.best = [self.best[1], self.best[2], new];
            if now.since(self.best[0].0) > span {
                self.best = [self.best[1], self.best[2], new];
            }
        } else if self.best[1].0 == self.best[0].0 && now.since(self.best[1].0) > Duration(span.0 / 4) {
            self.best[1] = new;
            self.best[2] = new;
        } else if self.best[2].0 == self.best[1].0 && now.since(self.best[2].0) > Duration(span.0 / 2) {
            self.best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests;
