//! What one link has received: packet numbers, and when to acknowledge them (protocol.md §5.4).
//!
//! An acknowledgement costs a send call of the receiver and wakes the sender, so they are coalesced by bytes; but
//! news that changes what the sender does (a hole, a mark, its own wish) leaves in the same batch, or soon, if nobody
//! waits for it, so that what is answered brings it along. A packet is entered here only after everything in it was placed or stored: acknowledged means kept.

use crate::id::LinkId;
use crate::time::{Duration, Instant};
use crate::wire::frame::ACK_RANGES_MAX;
use crate::wire::header::{FLAG_ACK_NOW, FLAG_ACK_SOON};
use crate::wire::{Ack, Header};
use arrayvec::ArrayVec;
use smallvec::smallvec;

/// Packet numbers behind the largest that are still told apart from duplicates.
pub const WINDOW_PACKETS: u64 = 8_192;

/// Runs of received numbers kept for acknowledgements. More holes than this between two acknowledgements make the
/// lowest runs look lost to the sender, which costs a retransmission and nothing else.
const RUNS_MAX: usize = 128;
const RANGES_MAX: usize = ACK_RANGES_MAX + 1;
const WORDS: usize = (WINDOW_PACKETS / 64) as usize;
/// Packets at the start of a link that are acknowledged batch by batch, so that the sender learns the path quickly.
const EAGER_PACKETS: u64 = 16;
const ACK_BYTES_MIN: u64 = 32 * 1024;
/// Senders whose windows want them sooner say so.
const ACK_BYTES_MAX: u64 = 1024 * 1024;
/// Span of bytes that one acknowledgement should cover, and over which the rate is measured.
const ACK_SPAN: Duration = Duration::ms(1);
/// How long an answer may take that brings along the acknowledgement of what it answers.
pub const ACK_SOON: Duration = Duration::us(50);
const ACK_DELAY_MIN: Duration = Duration::us(100);
const ACK_DELAY_MAX: Duration = Duration::ms(1);
/// Half of the span in which the smallest one-way delay is remembered. Clocks drift by some 100 ppm, so a longer
/// memory would report 100 us of drift per second as queueing.
const BASE_DELAY_SPAN: Duration = Duration::s(1);

/// What a packet number is to this link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Not received yet.
    New,
    /// Received before: handle nothing of it again.
    Duplicate,
    /// Further behind than the window tells; to be dropped without acknowledgement.
    TooOld,
}

/// How soon the sender of a packet wants it to be acknowledged (protocol.md §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AckWish {
    /// Some time.
    Later,
    /// With what leaves next, within [`ACK_SOON`].
    Soon,
    /// In the batch in which it comes.
    Now,
}

impl AckWish {
    /// What a header's flags say.
    pub fn of(header: &Header) -> AckWish {
        if header.has(FLAG_ACK_NOW) {
            AckWish::Now
        } else if header.has(FLAG_ACK_SOON) {
            AckWish::Soon
        } else {
            AckWish::Later
        }
    }

    /// The flag that says so.
    pub fn flag(self) -> u8 {
        match self {
            AckWish::Later => 0,
            AckWish::Soon => FLAG_ACK_SOON,
            AckWish::Now => FLAG_ACK_NOW,
        }
    }
}

/// What is told of a packet that arrived, or of several alike.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its size.
    pub packet_bytes: u32,
    /// Its header's.
    pub stamp: u32,
    /// Its header's flag.
    pub eliciting: bool,
    /// How soon the acknowledgement is wanted, by its header's flags.
    pub wish: AckWish,
    /// The network's congestion mark.
    pub ce: bool,
}

/// Receive side of a link.
#[derive(Clone, Debug)]
pub struct Received {
    window: Box<[u64; WORDS]>,
    /// Received numbers `first..=last`, lowest first, disjoint, not touching.
    runs: ArrayVec<(u64, u64), RUNS_MAX>,
    packets: u64,
    rx_bytes: u64,
    last_rx_at: Instant,
    largest_at: Instant,
    largest_stamp: u32,
    ce_count: u32,
    ce_last: bool,
    base_delay: BaseDelay,
    queueing: Duration,
    due: Due,
    rate: Rate,
    /// Follows from the rate; asked at every turn.
    ack_bytes: u64,
    mean_call_bytes: u64,
    max_ack_delay: Duration,
}

/// What waits for an acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Lowest number that no acknowledgement has told yet.
    lowest_untold: u64,
    eliciting_bytes: u64,
    /// Arrival of the first eliciting packet since the last acknowledgement.
    eliciting_since: Instant,
    /// How soon it is to leave, by what those packets wish and tell.
    wish: AckWish,
}

const NOTHING_DUE: Due = Due {
    lowest_untold: u64::MAX,
    eliciting_bytes: 0,
    eliciting_since: Instant::NEVER,
    wish: AckWish::Later,
};

impl Default for Received {
    fn default() -> Self {
        Self::new()
    }
}

impl Received {
    /// A link that has received nothing.
    pub fn new() -> Self {
        Received {
            window: Box::new([0; WORDS]),
            runs: ArrayVec::new(),
            packets: 0,
            rx_bytes: 0,
            last_rx_at: Instant::ZERO,
            largest_at: Instant::ZERO,
            largest_stamp: 0,
            ce_count: 0,
            ce_last: false,
            base_delay: BaseDelay::default(),
            queueing: Duration::ZERO,
            due: NOTHING_DUE,
            rate: Rate::default(),
            ack_bytes: ACK_BYTES_MIN,
            mean_call_bytes: 0,
            max_ack_delay: ACK_DELAY_MAX,
        }
    }

    /// Whether packet `number` was received before. Asked before its frames are handled; changes nothing.
    pub fn seen(&self, number: u64) -> Seen {
        match self.largest() {
            Some(largest) if number <= largest => {
                if largest - number >= WINDOW_PACKETS {
                    Seen::TooOld
                } else if self.window[word(number)] & bit(number) != 0 {
                    Seen::Duplicate
                } else {
                    Seen::New
                }
            }
            _ => Seen::New,
        }
    }

    /// Enters a new packet of `packet_bytes` after every frame of it was processed. `stamp` is its header's,
    /// `eliciting` and `wish` are by its header's flags, `ce` the network's congestion mark. Numbers that
    /// [`Received::seen`] does not call new are ignored.
    #[allow(clippy::too_many_arguments)]
    pub fn record(
        &mut self,
        now: Instant,
        number: u64,
        packet_bytes: u32,
        stamp: u32,
        eliciting: bool,
        wish: AckWish,
        ce: bool,
    ) {
        if self.seen(number) != Seen::New {
            return;
        }
        let in_order = self.largest().map_or(number == 0, |l| number == l + 1);
        self.enter(now, number, stamp);
        let wish = if in_order { wish } else { AckWish::Now };
        self.count(now, (number, 1), &Arrival { packet_bytes, stamp, eliciting, wish, ce });
    }

    /// Enters `packets` alike ones with the numbers that follow the highest received: at least one, at most a window of them.
    pub fn record_next(&mut self, now: Instant, packets: u64, each: &Arrival) {
        let first = self.largest().map_or(0, |l| l + 1);
        let last = first + packets - 1;
        for (word, bits) in words(first, last) {
            self.window[word] |= bits;
        }
        match self.runs.last_mut() {
            Some(run) => run.1 = last,
            None => self.runs.push((first, last)),
        }
        (self.largest_at, self.largest_stamp) = (now, each.stamp);
        self.count(now, (first, packets), each);
    }

    /// Keeps the books of `packets` packets from number `first` on.
    fn count(&mut self, now: Instant, (first, packets): (u64, u64), each: &Arrival) {
        let bytes = packets * u64::from(each.packet_bytes);
        let eager = self.packets < EAGER_PACKETS;
        self.packets += packets;
        self.rx_bytes += bytes;
        self.last_rx_at = now;
        self.queueing = self.base_delay.excess(now, now.stamp().wrapping_sub(each.stamp));
        let ce_changed = each.ce != self.ce_last;
        self.ce_last = each.ce;
        self.ce_count = self.ce_count.wrapping_add(u32::from(each.ce) * packets as u32);
        self.due.lowest_untold = self.due.lowest_untold.min(first);
        if each.eliciting {
            self.due.eliciting_bytes += bytes;
            self.due.eliciting_since = self.due.eliciting_since.min(now);
            let wish = if ce_changed || eager { AckWish::Now } else { each.wish };
            self.due.wish = self.due.wish.max(wish);
        }
    }

    /// A packet of the link that carried nothing new arrived: it proves that the link lives.
    pub fn on_duplicate(&mut self, now: Instant) {
        self.last_rx_at = now;
    }

    /// A batch was handled: `batch_bytes` of this link came in `calls` receive calls.
    pub fn on_batch_end(&mut self, now: Instant, batch_bytes: u64, calls: u32) {
        self.rate.add(now, batch_bytes);
        self.ack_bytes =
            (self.rate.bytes_per_s / (Duration::s(1).0 / ACK_SPAN.0)).clamp(ACK_BYTES_MIN, ACK_BYTES_MAX);
        if calls > 0 {
            let mean = batch_bytes / calls as u64;
            self.mean_call_bytes =
                if self.mean_call_bytes == 0 { mean } else { (7 * self.mean_call_bytes + mean) / 8 };
        }
    }

    /// Nothing leaves soon: an acknowledgement that waited for that is due now; whether there was one.
    pub fn hasten(&mut self) -> bool {
        let waits = self.due.wish == AckWish::Soon;
        if waits {
            self.due.wish = AckWish::Now;
        }
        waits
    }

    /// Longest wait of an acknowledgement: 100 us if the driver polls, 1 ms if it had to be woken only for that.
    pub fn set_max_ack_delay(&mut self, delay: Duration) {
        self.max_ack_delay = delay.clamp(ACK_DELAY_MIN, ACK_DELAY_MAX);
    }

    /// Whether an acknowledgement should leave now; to be asked when a batch was handled and when
    /// [`Received::deadline`] has passed, and again after each [`Received::on_ack_sent`].
    pub fn ack_due(&self, now: Instant) -> bool {
        self.deadline() <= now
    }

    /// Whether an acknowledgement may ride on a packet that leaves anyway.
    pub fn ack_pending(&self) -> bool {
        self.due.eliciting_since != Instant::NEVER
    }

    /// When an acknowledgement is due; [`Instant::NEVER`] if none is.
    pub fn deadline(&self) -> Instant {
        let is_much = self.due.eliciting_bytes >= self.ack_bytes();
        let delay = match self.due.wish {
            AckWish::Now => Duration::ZERO,
            _ if is_much => Duration::ZERO,
            AckWish::Soon => ACK_SOON,
            AckWish::Later => self.max_ack_delay,
        };
        self.due.eliciting_since + delay
    }

    /// What arrives of late, bytes per second.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate.bytes_per_s
    }

    /// Unacknowledged bytes that make an acknowledgement due: what arrives in 1 ms, within 32 KiB and 1 MiB.
    pub fn ack_bytes(&self) -> u64 {
        self.ack_bytes
    }

    /// The acknowledgement to send for `link`. Costs one step per run told, not per packet.
    ///
    /// If more runs are untold than a frame holds, the oldest are told first and the acknowledgement stays due:
    /// a sender that heard of the newest first would take the others for lost.
    ///
    /// # Panics
    /// If nothing was ever received.
    #[inline]
    pub fn build(&self, now: Instant, link: LinkId) -> Ack {
        assert!(!self.runs.is_empty(), "an acknowledgement of nothing");
        let end = self.told_end();
        let told = &self.runs[end.saturating_sub(RANGES_MAX)..end];
        Ack {
            link,
            rx_batch_log2: self.mean_call_bytes.checked_ilog2().unwrap_or(0) as u8,
            largest: told[told.len() - 1].1,
            stamp_echo: self.largest_stamp,
            delay: units(now.since(self.largest_at)),
            rx_bytes: self.rx_bytes,
            rx_clock: self.largest_at.stamp(),
            ce_count: self.ce_count,
            queueing: units(self.queueing),
            ranges: match told {
                &[run] => smallvec![run],
                runs => runs.iter().rev().copied().collect(),
            },
        }
    }

    /// The acknowledgement that [`Received::build`] made has left.
    pub fn on_ack_sent(&mut self, now: Instant) {
        let end = self.told_end();
        self.due = NOTHING_DUE;
        if let Some(untold) = self.runs.get(end) {
            self.due.lowest_untold = untold.0;
            self.due.eliciting_since = now;
            self.due.wish = AckWish::Now;
        }
    }

    /// Highest packet number received.
    pub fn largest(&self) -> Option<u64> {
        self.runs.last().map(|r| r.1)
    }

    /// When the last packet came.
    pub fn heard_at(&self) -> Instant {
        self.last_rx_at
    }

    /// How long the link has been silent.
    pub fn silent_since(&self, now: Instant) -> Duration {
        now.since(self.last_rx_at)
    }

    /// Bytes of all packets entered.
    pub fn rx_bytes(&self) -> u64 {
        self.rx_bytes
    }

    /// Packets entered.
    pub fn rx_packets(&self) -> u64 {
        self.packets
    }

    /// How much longer than the shortest recent one the latest packet was under way.
    pub fn queueing(&self) -> Duration {
        self.queueing
    }

    /// End (exclusive) of the runs that the next acknowledgement tells: the newest ones, unless more than a frame
    /// holds are untold.
    fn told_end(&self) -> usize {
        let first = self.runs.partition_point(|r| r.1 < self.due.lowest_untold);
        if self.due.lowest_untold == u64::MAX {
            self.runs.len()
        } else {
            self.runs.len().min(first + RANGES_MAX)
        }
    }

    fn enter(&mut self, now: Instant, number: u64, stamp: u32) {
        if self.largest().is_none_or(|l| number > l) {
            let from = self.largest().map_or(0, |l| l + 1);
            self.clear_window(from, number);
            self.largest_at = now;
            self.largest_stamp = stamp;
        }
        self.window[word(number)] |= bit(number);
        self.enter_run(number);
    }

    /// Forgets the numbers a window ago whose places `from..=number` take over.
    fn clear_window(&mut self, from: u64, number: u64) {
        if number - from >= WINDOW_PACKETS - 1 {
            self.window.fill(0);
            return;
        }
        for (word, bits) in words(from, number) {
            self.window[word] &= !bits;
        }
    }

    /// Extends, joins or starts a run. Nearly every packet extends the last one.
    fn enter_run(&mut self, number: u64) {
        let mut at = self.runs.len();
        while at > 0 && self.runs[at - 1].0 > number {
            at -= 1;
        }
        let after_lower = at > 0 && self.runs[at - 1].1 + 1 == number;
        let before_upper = at < self.runs.len() && self.runs[at].0 == number + 1;
        match (after_lower, before_upper) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].1 = number,
            (false, true) => self.runs[at].0 = number,
            (false, false) if self.runs.is_full() => {
                if at > 0 {
                    self.runs.remove(0);
                    self.runs.insert(at - 1, (number, number));
                }
            }
            (false, false) => self.runs.insert(at, (number, number)),
        }
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW_PACKETS / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// The words of the window that the numbers `first..=last` lie in, fewer than it has, and their bits in each.
fn words(first: u64, last: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut at = first;
    std::iter::from_fn(move || {
        let stop = last.min(at | 63);
        let found = (at <= last).then(|| (word(at), (u64::MAX >> (63 - (stop - at))) << (at % 64)));
        at = stop + 1;
        found
    })
}

/// The wire's units of 256 ns.
fn units(span: Duration) -> u32 {
    u32::try_from(span.0 >> 8).unwrap_or(u32::MAX)
}

/// The smallest one-way delay of late, in two overlapping windows. The two clocks have different origins, so only
/// differences mean something, and they wrap.
#[derive(Clone, Copy, Debug, Default)]
struct BaseDelay {
    started: Option<Instant>,
    current: u32,
    previous: u32,
}

impl BaseDelay {
    /// Enters a delay (units of 256 ns, wrapping) and returns by how much it exceeds the smallest.
    fn excess(&mut self, now: Instant, delay: u32) -> Duration {
        let shorter = |a: u32, b: u32| if a.wrapping_sub(b) as i32 <= 0 { a } else { b };
        let age = self.started.map_or(Duration(u64::MAX), |at| now.since(at));
        if age >= BASE_DELAY_SPAN {
            self.previous = if age >= BASE_DELAY_SPAN.times(2) { delay } else { self.current };
            self.current = delay;
            self.started = Some(now);
        }
        self.current = shorter(delay, self.current);
        let base = shorter(self.current, self.previous);
        Duration((delay.wrapping_sub(base) as i32).max(0) as u64 * 256)
    }
}

/// Receive rate over spans of about 1 ms, smoothed over a few of them.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    started: Instant,
    bytes: u64,
    bytes_per_s: u64,
}

impl Rate {
    fn add(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        let age = now.since(self.started);
        if age >= ACK_SPAN {
            let latest = self.bytes.saturating_mul(1_000_000) / age.as_us();
            self.bytes_per_s = (3 * self.bytes_per_s).saturating_add(latest) / 4;
            *self = Rate { started: now, bytes: 0, bytes_per_s: self.bytes_per_s };
        }
    }
}

#[cfg(test)]
mod tests;
