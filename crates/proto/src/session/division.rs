//! Which link takes how much of what is left, so that all finish together (protocol.md §5.11).
//!
//! While much waits every link takes whatever it has room for. Towards the end that would let a slow link take a piece
//! that keeps the whole message waiting: there, a link takes its share of what is left, by when it could deliver it.

use super::Session;
use super::serving::Serving;
use crate::limits;
use crate::link::Link;
use crate::time::{Duration, Instant};
use arrayvec::ArrayVec;

/// Works that are looked at to find out how much waits, and bytes: with more there is no end in sight.
pub(super) const WORKS_MAX: usize = 32;
pub(super) const BYTES_MAX: u64 = 8 << 20;
/// Links are alike whose rates differ by no more than this factor, 3 to 2: no closer is what bursts tell of a link.
const ALIKE: (u64, u64) = (3, 2);
/// A link that is so many times slower than the best one has no share: it could shorten a message by that part, but
/// keeps it waiting many times as long where it is slower than thought.
const SLOW: u64 = 16;
/// Such a link takes what it would deliver before all is done though it were so many times slower still: it may be faster
/// than thought, and from nothing nobody would learn that.
const DOUBT: u64 = 2;
/// A link that is later than the others by more than this is not waited for while much else is to be sent: if it is
/// thought to be slower than it is, nobody would ever find out.
const SPREAD_MAX: Duration = Duration::ms(4);

/// What a link moves in this time is not divided: a full train takes each end 8 us of processor time already.
const TRAIN_COST_NS: u64 = 20_000;

/// Room that a small message leaves for what else is in its packet: headers, a confirmation, credit.
const OTHERS_BYTES: u64 = 256;

/// In place of the time, for whoever only asks: nothing has arrived since it was confirmed.
const AS_CONFIRMED: Instant = Instant::ZERO;

/// A link as the division sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// In how long a byte arrives that it takes now.
    pub delay_ns: u64,
    pub bytes_per_s: u64,
    packet_bytes: u64,
}

impl Candidate {
    /// `hope`: see [`Link::hope`].
    pub(super) fn of(link: &Link, hope: u64) -> Candidate {
        Candidate::at_rate(link, AS_CONFIRMED, link.rate(hope))
    }

    /// The same of a link that delivers so much, by what has probably arrived until now.
    fn at_rate(link: &Link, now: Instant, bytes_per_s: u64) -> Candidate {
        let backlog_bytes = link.backlog_bytes(now, bytes_per_s);
        Candidate {
            delay_ns: link.expect_behind(backlog_bytes, 0, bytes_per_s).delay().0,
            bytes_per_s,
            packet_bytes: link.mtu.current() as u64,
        }
    }

    /// The same later by what `link`, which it is, loses of its part of `bytes`; the rates of all add up to `sum`.
    pub(super) fn losing(self, link: &Link, bytes: u64, sum: u64) -> Candidate {
        let loss = part_loss(link, bytes, self.bytes_per_s, sum);
        Candidate { delay_ns: self.delay_ns + loss.0, ..self }
    }

    /// What it moves in that time.
    pub(super) fn moves(&self, span_ns: u64) -> u64 {
        (self.bytes_per_s as u128 * span_ns as u128 / 1_000_000_000) as u64
    }

    /// In how long a packet arrives that it takes now.
    fn packet_ns(&self) -> u64 {
        self.delay_ns + (self.packet_bytes as u128 * 1_000_000_000 / self.bytes_per_s as u128) as u64
    }
}

/// How much later a part of `bytes` arrives for what `link` loses of it, if it delivers `rate` of the `sum` that all deliver. However
/// little is left, as much as a train counts: the rest of the message has been as much at risk.
pub(super) fn part_loss(link: &Link, bytes: u64, rate: u64, sum: u64) -> Duration {
    let part = bytes.saturating_mul(rate) / sum.max(1);
    link.loss_delay(part.max(link.train_bytes()))
}

/// In how long `bytes` have arrived if the links share them so that all finish together: the level to which water
/// rises in vessels whose floors are the delays and whose widths are the rates.
pub(super) fn level_ns(candidates: &[Candidate], bytes: u64) -> u64 {
    let mut sorted: ArrayVec<Candidate, { limits::LINKS_MAX }> = candidates.iter().copied().collect();
    sorted.sort_unstable_by_key(|c| c.delay_ns);
    let (mut rates, mut floors, mut level) = (0u128, 0u128, u128::MAX);
    for c in sorted {
        if level <= c.delay_ns as u128 {
            break;
        }
        rates += c.bytes_per_s as u128;
        floors += c.bytes_per_s as u128 * c.delay_ns as u128;
        level = (bytes as u128 * 1_000_000_000 + floors) / rates;
    }
    level.min(u64::MAX as u128) as u64
}

/// Bytes of the `bytes` left that candidate `which` should take. Less than half a packet is not worth its header and
/// its wait, nor, on a fast link, half of what it moves in no time; but the link that delivers a packet first takes as much
/// always, or nobody would take the last.
fn share(candidates: &[Candidate], which: usize, bytes: u64) -> u64 {
    let own = candidates[which];
    let share = own.moves(level_ns(candidates, bytes).saturating_sub(own.delay_ns));
    let least = own.packet_bytes.max(own.moves(TRAIN_COST_NS));
    let first = candidates.iter().map(Candidate::packet_ns).min();
    if share >= least / 2 || first == Some(own.packet_ns()) { share.max(least) } else { 0 }
}

/// Whether rates are so much alike that they are the same as far as anybody knows.
fn are_alike(rates: impl Iterator<Item = u64> + Clone) -> bool {
    let (least, most) = (rates.clone().min().unwrap_or(0), rates.max().unwrap_or(0));
    least.saturating_mul(ALIKE.0) >= most.saturating_mul(ALIKE.1)
}

/// With so much waiting a piece too many for a link would not matter yet.
fn plenty_bytes(candidates: &[Candidate], trains_bytes: u64, queue: Duration) -> u64 {
    let delays = || candidates.iter().map(|c| c.delay_ns);
    let spread_ns = delays().max().unwrap_or(0) - delays().min().unwrap_or(0);
    let moved = candidates.iter().map(|c| c.moves(spread_ns.min(SPREAD_MAX.0) + queue.0)).sum::<u64>();
    trains_bytes + moved
}

/// Bytes of the `bytes` left that `slow` takes, which has no share beside the candidates: whole packets, as it holds nobody
/// up.
fn crumb(candidates: &[Candidate], slow: Candidate, bytes: u64) -> u64 {
    let delivers = slow.moves((level_ns(candidates, bytes) / DOUBT).saturating_sub(slow.delay_ns));
    if delivers >= slow.packet_bytes { delivers } else { 0 }
}

/// Links that divide the end of what waits, as one of the links that serve sees it.
struct Division {
    candidates: ArrayVec<Candidate, { limits::LINKS_MAX }>,
    /// What is divided.
    bytes: u64,
    /// The link itself.
    own: Candidate,
    /// Which of the candidates it is; `None`: it is too slow to be one.
    which: Option<usize>,
    /// It is one of them, and they are taken to be equally fast.
    same: bool,
    plenty_bytes: u64,
}

impl Division {
    /// Bytes that the link should take.
    fn part(&self) -> u64 {
        match self.which {
            Some(which) => share(&self.candidates, which, self.bytes),
            None => crumb(&self.candidates, self.own, self.bytes),
        }
    }
}

impl Session {
    /// Bytes of large messages that link `index` may take now, however much room it has.
    pub(super) fn share_of(&self, now: Instant, index: usize) -> u64 {
        if self.trials.pauses(self.links[index].spec.id) {
            return 0;
        }
        if self.links.len() < 2 {
            return u64::MAX;
        }
        if let Some(kept) = self.kept(now) {
            return if kept == index { u64::MAX } else { 0 };
        }
        let waiting = self.waiting_bytes(BYTES_MAX);
        if waiting >= BYTES_MAX {
            return u64::MAX;
        }
        let Some(division) = self.division(now, index, waiting) else { return u64::MAX };
        let (part, own) = (division.part(), division.own);
        let is_small = waiting <= limits::SMALL_BYTES_MAX && self.sending.transfers.is_empty();
        // Not divided is not: taken by whoever is asked first, however late it delivers.
        if is_small && division.same && part > 0 {
            return u64::MAX;
        }
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::LostRemainder) && waiting <= own.packet_bytes {
            return 0;
        }
        if waiting >= division.plenty_bytes || division.which.is_none() {
            return part;
        }
        // What is bound late goes by what the links have done meanwhile, and not by what was expected of them.
        let link = &self.links[index];
        let reach_ns = (link.rtt.min() + link.window.queue_target().times(2)).0;
        let reach = own.moves(reach_ns).max(own.packet_bytes);
        part.min(reach.saturating_sub(link.backlog_bytes(now, own.bytes_per_s)))
    }

    /// The length of a message that is all that waits, and one packet on any of several links: nobody pulls anything of that.
    pub(super) fn one_packet_bytes(&self) -> Option<u64> {
        if self.links.len() < 2 || self.schedule.len() != 1 || !self.sending.transfers.is_empty() {
            return None;
        }
        let flow = self.sending.flows.get(self.schedule.flows().next()?)?;
        // Those of other policies have their links already.
        let bytes = flow.lone_bytes().filter(|_| flow.policy.is_none())?;
        // A longer one is pulled, however long packets are: as a small one it would not leave.
        if bytes > limits::SMALL_BYTES_MAX {
            return None;
        }
        let mut mtus = self.links.iter().map(|link| u64::from(link.mtu.current()));
        mtus.all(|mtu_bytes| bytes + OTHERS_BYTES <= mtu_bytes).then_some(bytes)
    }

    /// Whether link `index` takes nothing of a message of `bytes` that is alone, for the others are done before.
    pub(super) fn is_late_for(&self, index: usize, bytes: u64) -> bool {
        bytes < BYTES_MAX
            && self.division(AS_CONFIRMED, index, bytes).is_some_and(|division| division.part() == 0)
    }

    /// How the links divide `bytes`; `None` if link `index` takes whatever it has room for: it does not serve or is alone; or
    /// who takes what was decided before.
    fn division(&self, now: Instant, index: usize, bytes: u64) -> Option<Division> {
        let serving = Serving::of(&self.links);
        // What is urgent must not be left to a link that does not take it.
        let urgency = self.schedule.urgency();
        let takes = |link: &Link| serving.includes(link) && serving.trusts(link, urgency);
        let served = || self.links.iter().filter(|link| takes(link));
        if served().nth(1).is_none() || !takes(&self.links[index]) {
            return None;
        }
        let hope = serving.hope(&self.links);
        let best = served().map(|link| link.rate(hope)).max().unwrap_or(0);
        let is_part = |link: &&Link| link.rate(hope).saturating_mul(SLOW) >= best;
        let parts: ArrayVec<&Link, { limits::LINKS_MAX }> = served().filter(is_part).collect();
        let rates = parts.iter().map(|link| link.rate(hope));
        let sum = rates.clone().sum::<u64>().max(1);
        let same = are_alike(rates).then_some((sum / parts.len().max(1) as u64).max(1));
        let candidate = |link: &Link, rate| Candidate::at_rate(link, now, rate).losing(link, bytes, sum);
        let rate_of = |link: &Link| same.unwrap_or_else(|| link.rate(hope));
        let candidates = parts.iter().map(|link| candidate(link, rate_of(link))).collect::<ArrayVec<_, _>>();
        let link = &self.links[index];
        let which = parts.iter().position(|part| part.spec.id == link.spec.id);
        let trains_bytes = served().map(Link::train_bytes).sum();
        let plenty_bytes = plenty_bytes(&candidates, trains_bytes, link.window.queue_target());
        let own = which.map_or_else(|| candidate(link, link.rate(hope)), |which| candidates[which]);
        let same = which.is_some() && same.is_some();
        Some(Division { candidates, bytes, own, which, same, plenty_bytes })
    }

    /// Bytes that wait to be sent; `enough` or more: nobody has counted further.
    pub(super) fn waiting_bytes(&self, enough: u64) -> u64 {
        let mut bytes = 0;
        for (looked, (_, transfer)) in self.sending.transfers.iter().enumerate() {
            bytes += transfer.waiting_bytes();
            if bytes >= enough || looked >= WORKS_MAX {
                return bytes.max(enough);
            }
        }
        for (looked, key) in self.schedule.flows().enumerate() {
            let flow = self.sending.flows.get(key);
            bytes += flow.map_or(0, |flow| flow.waiting_bytes(enough - bytes, WORKS_MAX));
            if bytes >= enough || looked >= WORKS_MAX {
                return bytes.max(enough);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of so many Mbit/s on which a byte arrives after so many microseconds.
    fn link(mbit: u64, delay_us: u64) -> Candidate {
        Candidate { delay_ns: delay_us * 1_000, bytes_per_s: mbit * 125_000, packet_bytes: 1_472 }
    }

    fn shares(candidates: &[Candidate], bytes: u64) -> Vec<u64> {
        (0..candidates.len()).map(|which| share(candidates, which, bytes)).collect()
    }

    #[test]
    fn links_that_begin_before_the_end_are_done_together() {
        let done_us = |links: &[Candidate], bytes| level_ns(links, bytes) / 1_000;
        // 100 Mbit/s move 12.5 bytes in a microsecond.
        assert_eq!(done_us(&[link(100, 0)], 125_000), 10_000);
        assert_eq!(done_us(&[link(100, 2_000)], 125_000), 12_000);
        assert_eq!(done_us(&[link(100, 0), link(300, 0)], 500_000), 10_000);
        assert_eq!(done_us(&[link(100, 10_000), link(100, 0)], 250_000), 15_000);
        assert_eq!(done_us(&[link(100, 10_000), link(100, 0)], 125_000), 10_000, "the other begins too late");
    }

    #[test]
    fn equal_links_take_equal_shares_and_unequal_ones_by_their_rates() {
        assert_eq!(shares(&[link(1_000, 50), link(1_000, 50)], 100_000), [50_000, 50_000]);
        assert_eq!(shares(&[link(1_000, 50), link(250, 50)], 100_000), [80_000, 20_000]);
        assert_eq!(shares(&[link(400, 0), link(400, 0), link(200, 0)], 100_000), [40_000, 40_000, 20_000]);
    }

    #[test]
    fn a_link_that_is_late_takes_what_it_delivers_in_time() {
        // 1 Gbit/s moves 125 bytes in a microsecond: the second link begins 100 us later.
        assert_eq!(shares(&[link(1_000, 0), link(1_000, 100)], 100_000), [56_250, 43_750]);
        assert_eq!(shares(&[link(1_000, 0), link(1_000, 900)], 100_000), [100_000, 0]);
    }

    #[test]
    fn a_link_that_is_too_slow_for_half_a_packet_takes_none() {
        // 10,000 bytes take 80 us, in which 25 Mbit/s move 244.
        assert_eq!(shares(&[link(1_000, 0), link(25, 0)], 10_000), [9_756, 0]);
        assert_eq!(shares(&[link(25, 0), link(1_000, 0)], 10_000), [0, 9_756]);
    }

    #[test]
    fn the_last_packet_is_taken_by_the_link_that_delivers_it_first() {
        for bytes in [1, 700, 1_472] {
            assert_eq!(shares(&[link(500, 100), link(25, 50)], bytes), [1_472, 0], "{bytes}");
            assert_eq!(shares(&[link(500, 500), link(25, 0)], bytes), [0, 1_472], "{bytes}");
            let equal = shares(&[link(500, 50), link(500, 50)], bytes);
            assert!(equal.iter().all(|share| *share == 1_472), "either may: {equal:?}");
        }
    }

    #[test]
    fn what_a_fast_link_moves_in_no_time_is_not_divided() {
        // 20 Gbit/s move 50,000 bytes in 20 us.
        let fast = [link(20_000, 50), link(20_000, 50)];
        assert_eq!(shares(&fast, 65_536), [50_000, 50_000], "who is asked first takes nearly all");
        assert_eq!(shares(&fast, 200_000), [100_000, 100_000]);
        assert_eq!(shares(&fast, 1), [50_000, 50_000], "either may");
        // The second begins when the first has half of what it moves in that time left to take.
        assert_eq!(shares(&[link(20_000, 50), link(20_000, 60)], 75_000), [50_000, 50_000]);
        assert_eq!(shares(&[link(20_000, 50), link(20_000, 61)], 75_000), [51_250, 0]);
    }

    #[test]
    fn links_are_alike_up_to_half_the_rate_more() {
        let alike = |rates: &[u64]| are_alike(rates.iter().copied());
        assert!(alike(&[1_000, 1_500]) && alike(&[1_000, 1_200, 1_500]));
        assert!(!alike(&[1_000, 1_501]) && !alike(&[1_500, 1_200, 999]));
    }

    #[test]
    fn a_link_without_a_share_takes_what_would_be_there_in_time_from_one_half_as_fast() {
        // 1 Gbit/s is done with 1,000,000 bytes after 8 ms; 25 Mbit/s move 3.125 bytes in a microsecond.
        let crumb = |delay_us, bytes| crumb(&[link(1_000, 0)], link(25, delay_us), bytes);
        assert_eq!((crumb(0, 1_000_000), crumb(1_000, 1_000_000)), (12_500, 9_375));
        assert_eq!((crumb(4_000, 1_000_000), crumb(10_000, 1_000_000)), (0, 0), "it would be late");
        // A packet takes 471.04 us.
        assert_eq!((crumb(0, 117_760), crumb(0, 117_759)), (1_472, 0));
    }

    #[test]
    fn somebody_takes_something_whatever_the_links_are_like() {
        let (rates, delays) = ([1, 10, 25, 250, 1_000, 100_000], [0, 1, 50, 3_000, 1_000_000]);
        for (a, b) in rates.iter().flat_map(|a| rates.map(|b| (*a, b))) {
            for (x, y) in delays.iter().flat_map(|x| delays.map(|y| (*x, y))) {
                for bytes in [0, 1, 1_000, 65_536, 1 << 30] {
                    let shares = shares(&[link(a, x), link(b, y)], bytes);
                    assert!(shares.iter().any(|share| *share > 0), "{a} {b} {x} {y} {bytes}");
                }
            }
        }
    }
}
