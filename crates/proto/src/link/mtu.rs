//! Search for the largest datagram that a link carries (protocol.md §5.7; after RFC 8899).
//!
//! Nothing the network says is believed except the arrival of a padded probe: routers that drop large packets
//! silently are common, and so are bearers that report more than the path behind them takes.

use crate::time::{Duration, Instant};

/// The search ends when what is known to pass and what is known to fail are this close, bytes.
const CLOSE_ENOUGH: u16 = 16;
/// Probes of one size that must go unanswered before the size counts as too large.
const TRIES: u8 = 3;
const PROBE_TIMEOUT_MIN: Duration = Duration::ms(20);
/// How often a link below its bearer's size looks whether the path takes more by now.
const RAISE_EVERY: Duration = Duration::s(60);
/// Large packets lost in a row, while small ones pass, that make a black hole.
const BLACK_HOLE_LOSSES: u8 = 6;

/// Path MTU of one link: sizes are bytes of a datagram's payload.
#[derive(Clone, Debug)]
pub struct Mtu {
    base: u16,
    bearer_mtu: u16,
    current: u16,
    search: Option<Search>,
    raise_at: Instant,
    probe_timeout: Duration,
    large_lost: u8,
    small_acked: bool,
}

/// A search under way: every size up to `current` passes, those above `high` are believed to fail.
#[derive(Clone, Copy, Debug)]
struct Search {
    high: u16,
    size: u16,
    tries: u8,
    due: Instant,
}

impl Mtu {
    /// Starts at `base`, which every path must carry, and looks up to `bearer_mtu`, the bearer's largest payload.
    pub fn new(base: u16, bearer_mtu: u16) -> Self {
        let mut mtu = Mtu {
            base: base.min(bearer_mtu),
            bearer_mtu,
            current: base.min(bearer_mtu),
            search: None,
            raise_at: Instant::NEVER,
            probe_timeout: PROBE_TIMEOUT_MIN,
            large_lost: 0,
            small_acked: false,
        };
        mtu.start(Instant::ZERO, bearer_mtu);
        mtu
    }

    /// Largest payload known to pass.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// Whether a search is under way.
    pub fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Sets how long a probe may take: the link's PTO, but at least 20 ms.
    pub fn set_probe_timeout(&mut self, timeout: Duration) {
        self.probe_timeout = timeout.max(PROBE_TIMEOUT_MIN);
    }

    /// Sets the bearer's largest payload; a smaller one holds at once, a larger one is looked for.
    pub fn set_bearer_mtu(&mut self, now: Instant, bearer_mtu: u16) {
        if bearer_mtu == self.bearer_mtu {
            return;
        }
        self.bearer_mtu = bearer_mtu;
        self.base = self.base.min(bearer_mtu);
        self.current = self.current.min(bearer_mtu);
        self.start(now, bearer_mtu);
    }

    /// The size to probe now, if one is due. The caller sends a packet padded to it.
    pub fn poll_probe(&mut self, now: Instant) -> Option<u16> {
        if now >= self.raise_at {
            self.start(now, self.bearer_mtu);
        }
        if self.search?.due > now {
            return None;
        }
        if self.search?.tries >= TRIES {
            self.on_size_failed(now, self.search?.size);
        }
        let timeout = self.probe_timeout;
        let search = self.search.as_mut()?;
        search.tries += 1;
        search.due = now + timeout;
        Some(search.size)
    }

    /// When [`Mtu::poll_probe`] wants to be asked again; [`Instant::NEVER`] if nothing is left to find.
    pub fn deadline(&self) -> Instant {
        self.search.map_or(self.raise_at, |s| s.due)
    }

    /// A probe of `size` arrived at the peer.
    pub fn on_probe_acked(&mut self, now: Instant, size: u16) {
        if size <= self.current || size > self.bearer_mtu {
            return;
        }
        self.current = size;
        let high = self.search.map_or(self.bearer_mtu, |s| s.high).max(size);
        self.narrow(now, high);
    }

    /// The bearer refused a datagram of `size` as too large (EMSGSIZE).
    pub fn on_too_large(&mut self, now: Instant, size: u16) {
        if size <= self.base {
            return;
        }
        if size <= self.current {
            self.current = self.base;
        }
        self.on_size_failed(now, size);
    }

    /// The network says that it carries `mtu`. Only a hint: it is the next size to try, and the current one is
    /// given up if it is larger, but never below the base.
    pub fn on_hint(&mut self, now: Instant, mtu: u16) {
        let mtu = mtu.clamp(self.base, self.bearer_mtu);
        if mtu < self.current {
            self.current = self.base;
        } else if mtu == self.current || self.search.is_none() {
            return;
        }
        self.start(now, mtu);
    }

    /// A packet of `size` was declared lost.
    pub fn on_packet_lost(&mut self, now: Instant, size: u16) {
        if size <= self.base || self.current == self.base {
            return;
        }
        self.large_lost = self.large_lost.saturating_add(1);
        if self.large_lost >= BLACK_HOLE_LOSSES && self.small_acked {
            self.current = self.base;
            self.start(now, self.bearer_mtu);
        }
    }

    /// A packet of `size` was acknowledged.
    pub fn on_packet_acked(&mut self, size: u16) {
        if size > self.base {
            self.large_lost = 0;
            self.small_acked = false;
        } else {
            self.small_acked |= self.large_lost > 0;
        }
    }

    /// Looks for sizes above the current one, `first` before any other.
    fn start(&mut self, now: Instant, first: u16) {
        (self.large_lost, self.small_acked) = (0, false);
        let due = Search { high: self.bearer_mtu, size: first, tries: 0, due: now };
        self.search = (first > self.current).then_some(due);
        self.raise_at = if due.size > self.current { Instant::NEVER } else { self.next_raise(now) };
    }

    fn next_raise(&self, now: Instant) -> Instant {
        let complete = self.bearer_mtu - self.current <= CLOSE_ENOUGH;
        if complete { Instant::NEVER } else { now + RAISE_EVERY }
    }

    fn on_size_failed(&mut self, now: Instant, size: u16) {
        let high = self.search.map_or(self.bearer_mtu, |s| s.high).min(size - 1);
        self.narrow(now, high.max(self.current));
    }

    /// Goes on between the current size and `high`, or ends the search.
    fn narrow(&mut self, now: Instant, high: u16) {
        if high - self.current <= CLOSE_ENOUGH {
            self.search = None;
            self.raise_at = self.next_raise(now);
            return;
        }
        let size = self.current + (high - self.current).div_ceil(2);
        self.search = Some(Search { high, size, tries: 0, due: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the search run over a path that carries `path` bytes; returns the sizes probed and the end.
    fn run(mtu: &mut Mtu, mut now: Instant, path: u16) -> (Vec<u16>, Instant) {
        let mut sizes = Vec::new();
        for turn in 0.. {
            if !mtu.is_searching() {
                break;
            }
            assert!(turn < 100, "the search does not end");
            now = now.max(mtu.deadline());
            let Some(size) = mtu.poll_probe(now) else { continue };
            sizes.push(size);
            if size <= path {
                mtu.on_probe_acked(now + Duration::us(50), size);
            }
        }
        (sizes, now)
    }

    #[test]
    fn a_path_as_wide_as_its_bearer_takes_one_probe() {
        let mut mtu = Mtu::new(1200, 8972);
        assert_eq!(mtu.current(), 1200);
        assert_eq!(run(&mut mtu, Instant(5), 8972).0, [8972]);
        assert_eq!((mtu.current(), mtu.deadline()), (8972, Instant::NEVER));
        assert_eq!(mtu.poll_probe(Instant::ZERO + Duration::s(900)), None);
    }

    #[test]
    fn any_narrower_path_is_found_to_within_sixteen_bytes() {
        for path in (1200..=8972).step_by(37) {
            let mut mtu = Mtu::new(1200, 8972);
            let (sizes, end) = run(&mut mtu, Instant::ZERO, path);
            let current = mtu.current();
            assert!(current <= path && path - current <= CLOSE_ENOUGH, "path {path} found {current}");
            assert_eq!(sizes[..3], [8972; 3], "three tries each");
            assert!(end < Instant::ZERO + Duration::ms(700), "path {path} took until {end:?}");
        }
    }

    #[test]
    fn a_bearer_of_the_base_size_needs_no_search() {
        assert_eq!(Mtu::new(1200, 1200).deadline(), Instant::NEVER);
        assert_eq!(Mtu::new(1200, 576).current(), 576);
    }

    #[test]
    fn a_probe_is_tried_again_after_the_timeout_only() {
        let mut mtu = Mtu::new(1200, 1472);
        mtu.set_probe_timeout(Duration::ms(50));
        assert_eq!(mtu.poll_probe(Instant(1)), Some(1472));
        assert_eq!(mtu.poll_probe(Instant(2)), None);
        assert_eq!(mtu.deadline(), Instant(1) + Duration::ms(50));
        assert_eq!(mtu.poll_probe(mtu.deadline()), Some(1472));
    }

    #[test]
    fn a_search_that_takes_long_goes_on_where_it_was() {
        let mut mtu = Mtu::new(1200, 8972);
        let polled = [0, 61, 122, 183].map(|s| mtu.poll_probe(Instant::ZERO + Duration::s(s)).unwrap());
        assert_eq!(polled, [8972, 8972, 8972, 5086]);
    }

    #[test]
    fn a_wider_path_is_noticed_within_a_minute() {
        let mut mtu = Mtu::new(1200, 8972);
        let (_, end) = run(&mut mtu, Instant::ZERO, 1472);
        assert_eq!(mtu.deadline(), end + RAISE_EVERY);
        assert_eq!(mtu.poll_probe(mtu.deadline()), Some(8972));
        mtu.on_probe_acked(end + Duration::s(61), 8972);
        assert_eq!(mtu.current(), 8972);
    }

    #[test]
    fn a_size_that_the_bearer_refuses_is_not_tried_again() {
        let mut mtu = Mtu::new(1200, 8972);
        assert_eq!(mtu.poll_probe(Instant(0)), Some(8972));
        mtu.on_too_large(Instant(1), 8972);
        let next = mtu.poll_probe(Instant(1)).unwrap();
        assert!(next < 8972);
        mtu.on_probe_acked(Instant(2), next);
        mtu.on_too_large(Instant(3), next);
        assert_eq!(mtu.current(), 1200, "what passed a moment ago does so no more");
        assert!(run(&mut mtu, Instant(4), 4000).0.iter().all(|s| *s < next));
        mtu.on_too_large(Instant::ZERO, 1200);
        assert_eq!(Mtu::new(1200, 1200).current(), 1200);
    }

    #[test]
    fn a_hint_is_the_next_size_to_try_and_never_trusted_upwards() {
        let mut mtu = Mtu::new(1200, 8972);
        mtu.on_hint(Instant(0), 1450);
        assert_eq!((mtu.current(), mtu.poll_probe(Instant(0))), (1200, Some(1450)));
        run(&mut mtu, Instant(1), 8972);
        mtu.on_hint(Instant(9), 600);
        assert_eq!((mtu.current(), mtu.is_searching()), (1200, false));
        assert_eq!(mtu.deadline(), Instant(9) + RAISE_EVERY, "and nothing it says lasts");
    }

    #[test]
    fn a_black_hole_is_left_when_only_small_packets_pass() {
        let mut mtu = Mtu::new(1200, 8972);
        run(&mut mtu, Instant::ZERO, 8972);
        mtu.on_packet_acked(100);
        for _ in 0..20 {
            mtu.on_packet_lost(Instant(9), 8972);
        }
        assert_eq!(mtu.current(), 8972, "a dead link is not a black hole");
        mtu.on_packet_acked(1200);
        mtu.on_packet_lost(Instant(9), 8972);
        assert_eq!((mtu.current(), mtu.poll_probe(Instant(9))), (1200, Some(8972)));
    }

    #[test]
    fn random_loss_is_no_black_hole() {
        let mut mtu = Mtu::new(1200, 8972);
        run(&mut mtu, Instant::ZERO, 8972);
        for _ in 0..50 {
            for _ in 0..5 {
                mtu.on_packet_lost(Instant(9), 8972);
                mtu.on_packet_acked(100);
            }
            mtu.on_packet_acked(8972);
        }
        assert_eq!(mtu.current(), 8972);
    }

    #[test]
    fn a_bearer_that_shrinks_is_obeyed_at_once() {
        let mut mtu = Mtu::new(1200, 8972);
        run(&mut mtu, Instant::ZERO, 8972);
        mtu.set_bearer_mtu(Instant(9), 1472);
        assert_eq!((mtu.current(), mtu.is_searching()), (1472, false));
        mtu.set_bearer_mtu(Instant(9), 4000);
        assert_eq!((mtu.current(), mtu.poll_probe(Instant(9))), (1472, Some(4000)));
    }

    #[test]
    fn only_a_probe_between_what_is_known_and_what_the_bearer_takes_is_news() {
        let mut mtu = Mtu::new(1200, 8972);
        run(&mut mtu, Instant(0), 4_000);
        let found = mtu.current();
        let known = |mtu: &Mtu| (mtu.current(), mtu.is_searching(), mtu.deadline());
        let before = known(&mtu);
        for size in [1_200, found - 8, found, 8_973] {
            mtu.on_probe_acked(Instant(9), size);
            assert_eq!(known(&mtu), before, "{size}");
        }
        mtu.on_probe_acked(Instant(9), 8_972);
        assert_eq!(mtu.current(), 8_972, "late, but it passed");
    }

    #[test]
    fn a_hint_of_what_is_known_or_of_more_where_nothing_is_looked_for_changes_nothing() {
        let mut mtu = Mtu::new(1200, 8972);
        let searching = mtu.deadline();
        mtu.on_hint(Instant(9), 1_200);
        assert_eq!((mtu.deadline(), mtu.poll_probe(Instant(9))), (searching, Some(8_972)));
        run(&mut mtu, Instant(9), 4_000);
        let (found, deadline) = (mtu.current(), mtu.deadline());
        for hint in [found, found + 100] {
            mtu.on_hint(Instant(99), hint);
            assert_eq!((mtu.current(), mtu.is_searching(), mtu.deadline()), (found, false, deadline));
        }
    }
}
