//! Which link takes how much of what is left, so that all finish together (protocol.md §5.11).
//!
//! While much waits every link takes whatever it has room for. Towards the end that would let a slow link take a piece
//! that keeps the whole message waiting: there, a link takes its share of what is left, by when it could deliver it.

use super::Session;
use super::serving::Serving;
use crate::limits;
use crate::link::Link;
use crate::time::Duration;
use arrayvec::ArrayVec;

/// Works that are looked at to find out how much waits: with more there is no end in sight.
const WORKS_MAX: usize = 32;
/// Links whose rates differ by no more than this factor are alike.
const ALIKE: u64 = 2;
/// A link that is later than the others by more than this is not waited for while much else is to be sent: if it is
/// thought to be slower than it is, nobody would ever find out.
const SPREAD_MAX: Duration = Duration::ms(4);

/// A link as the division sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    /// In how long a byte arrives that it takes now.
    delay_ns: u64,
    bytes_per_s: u64,
    packet_bytes: u64,
}

impl Candidate {
    /// What it moves in that time.
    fn moves(&self, span_ns: u64) -> u64 {
        (self.bytes_per_s as u128 * span_ns as u128 / 1_000_000_000) as u64
    }

    /// In how long a packet arrives that it takes now.
    fn packet_ns(&self) -> u64 {
        self.delay_ns + (self.packet_bytes as u128 * 1_000_000_000 / self.bytes_per_s as u128) as u64
    }
}

/// In how long `bytes` have arrived if the links share them so that all finish together: the level to which water
/// rises in vessels whose floors are the delays and whose widths are the rates.
fn level_ns(candidates: &[Candidate], bytes: u64) -> u64 {
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
/// its wait; but the link that delivers a packet first takes one always, or nobody would take the last.
fn share(candidates: &[Candidate], which: usize, bytes: u64) -> u64 {
    let own = candidates[which];
    let share = own.moves(level_ns(candidates, bytes).saturating_sub(own.delay_ns));
    let first = candidates.iter().map(Candidate::packet_ns).min();
    if share >= own.packet_bytes / 2 || first == Some(own.packet_ns()) {
        share.max(own.packet_bytes)
    } else {
        0
    }
}

/// Whether the links are so much alike that their windows, which are as long as each other, divide the rest better than
/// rates that are known to within a factor of two.
fn are_alike(candidates: &[Candidate]) -> bool {
    let rates = || candidates.iter().map(|c| c.bytes_per_s);
    rates().min().unwrap_or(0).saturating_mul(ALIKE) >= rates().max().unwrap_or(0)
}

/// So much must wait that no link could take a piece too many.
fn plenty_bytes(candidates: &[Candidate], trains_bytes: u64, queue: Duration) -> u64 {
    let delays = || candidates.iter().map(|c| c.delay_ns);
    let spread_ns = delays().max().unwrap_or(0) - delays().min().unwrap_or(0);
    let moved = candidates.iter().map(|c| c.moves(spread_ns.min(SPREAD_MAX.0) + queue.0)).sum::<u64>();
    trains_bytes + moved
}

impl Session {
    /// Bytes of large messages that link `index` may take now, however much room it has.
    pub(super) fn share_of(&self, index: usize) -> u64 {
        let serving = Serving::of(&self.links);
        let served = || self.links.iter().filter(|l| serving.includes(l));
        if served().nth(1).is_none() || !serving.includes(&self.links[index]) {
            return u64::MAX;
        }
        let hope = serving.hope(&self.links);
        let candidates: ArrayVec<Candidate, { limits::LINKS_MAX }> = served()
            .map(|link| Candidate {
                delay_ns: link.delay(0, hope).0,
                bytes_per_s: link.rate(hope),
                packet_bytes: link.mtu.current() as u64,
            })
            .collect();
        if are_alike(&candidates) {
            return u64::MAX;
        }
        let trains_bytes = served().map(Link::train_bytes).sum();
        let queue = self.links[index].window.queue_target();
        let plenty = plenty_bytes(&candidates, trains_bytes, queue);
        let waiting = self.waiting_bytes(plenty);
        if waiting >= plenty {
            return u64::MAX;
        }
        let link = &self.links[index];
        let which = served().position(|l| l.spec.id == link.spec.id).unwrap_or(0);
        // What is bound late goes by what the links have done meanwhile, and not by what was expected of them.
        let reach =
            candidates[which].moves((link.rtt.min() + queue.times(2)).0).max(candidates[which].packet_bytes);
        share(&candidates, which, waiting).min(reach.saturating_sub(link.sent.inflight_bytes()))
    }

    /// Bytes that wait to be sent, as far as `enough`.
    fn waiting_bytes(&self, enough: u64) -> u64 {
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
            assert_eq!(shares(&[link(1_000, 100), link(25, 50)], bytes), [1_472, 0], "{bytes}");
            assert_eq!(shares(&[link(1_000, 500), link(25, 0)], bytes), [0, 1_472], "{bytes}");
            let equal = shares(&[link(1_000, 50), link(1_000, 50)], bytes);
            assert!(equal.iter().all(|share| *share == 1_472), "either may: {equal:?}");
        }
    }

    #[test]
    fn links_are_alike_up_to_twice_the_rate() {
        assert!(are_alike(&[link(500, 0), link(1_000, 900)]));
        assert!(!are_alike(&[link(499, 0), link(700, 0), link(1_000, 0)]));
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
