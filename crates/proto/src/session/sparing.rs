//! Links that add nothing are left out of large messages (protocol.md §5.12).
//!
//! Where no link holds anything up the machines do, and each link more costs them: a socket to look at, a window more that is
//! under way in their caches. So, while very much passes, it is tried whether one link delivers as much as all do.

use super::Session;
use super::bottleneck::{Delivered, PLENTY_BYTES};
use super::serving::Serving;
use crate::id::LinkId;
use crate::link::Link;
use crate::time::{Duration, Instant};

/// Deliveries are counted for so long,
const SPAN: Duration = Duration::ms(20);
/// once what is under way by the other links has had so long to arrive.
const SETTLE: Duration = Duration::ms(5);
/// Slower than this (4 Gbit/s) links hold up what passes, and not the machines.
const FAST_BYTES_PER_MS: u64 = 500_000;
/// So many spans one after the other were as fast, and no link had to wait for room, before anything is tried.
const SPANS: u8 = 3;
/// One link does for all if it delivers so many percent of what all did: a tenth link beside a fast one must not look like nothing.
const ENOUGH_PERCENT: u64 = 97;
/// While it does it is looked so often whether it still delivers so many percent of what it then did.
const CHECK: Duration = Duration::ms(100);
const STILL_PERCENT: u64 = 75;
/// How long others are left out before all are tried again, and for how long nothing is tried after a trial that found them to
/// add something: twice as long each time.
const SPARED: (Duration, Duration) = (Duration::s(1), Duration::s(60));
const PAUSE: (Duration, Duration) = (Duration::ms(100), Duration::s(60));

/// What is being found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Whether very much passes: so many spans in which it did.
    Watching(u8),
    /// The others have nothing more to send, but something under way; what all delivered in a millisecond.
    Settling(u64),
    /// What one delivers alone, beside that.
    Alone(u64),
    /// One is enough, until then, while it delivers as much.
    Sparing(u64, Instant),
}

/// The links of a session that are left out.
#[derive(Debug)]
pub(super) struct Sparing {
    phase: Phase,
    /// The link that takes all, except while nothing but watched.
    keeps: LinkId,
    /// When the phase began, and what had been delivered.
    began: Instant,
    delivered: Delivered,
    next_at: Instant,
    /// That was not all: see [`Sparing::note_held_up`].
    held_up: bool,
    spared: Duration,
    pause: Duration,
}

impl Default for Sparing {
    fn default() -> Self {
        Sparing {
            phase: Phase::Watching(0),
            keeps: LinkId(0),
            began: Instant::ZERO,
            delivered: Delivered::new(),
            next_at: Instant::ZERO,
            held_up: false,
            spared: SPARED.0,
            pause: PAUSE.0,
        }
    }
}

/// What is seen at the end of a span.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes_per_ms: u64,
    /// The link that delivered most.
    best: LinkId,
    /// More waits than the links carry.
    plenty: bool,
    /// Something else than the machines may have held up what passed.
    held_up: bool,
}

impl Seen {
    fn reaches(&self, bytes_per_ms: u64, percent: u64) -> bool {
        !self.held_up && self.bytes_per_ms >= bytes_per_ms / 100 * percent
    }
}

impl Sparing {
    /// A bearer had no room, or links came, went or changed: none is left out.
    #[inline]
    pub(super) fn note_held_up(&mut self) {
        self.held_up = true;
    }

    /// Whether links are left out, be it to see what follows.
    pub(super) fn is_trying(&self) -> bool {
        !matches!(self.phase, Phase::Watching(_))
    }

    /// The link that is to take all large messages, if that is one.
    #[inline]
    fn keeps(&self, now: Instant) -> Option<LinkId> {
        let is_kept = self.is_trying() && !self.held_up && now.since(self.next_at) <= SPAN;
        is_kept.then_some(self.keeps)
    }

    /// What follows from what was seen, and for how long.
    fn next(&mut self, now: Instant, seen: &Seen) -> (Phase, Duration) {
        match self.phase {
            Phase::Watching(spans) if seen.plenty && seen.reaches(FAST_BYTES_PER_MS, 100) => {
                if spans + 1 < SPANS {
                    return (Phase::Watching(spans + 1), SPAN);
                }
                self.keeps = seen.best;
                (Phase::Settling(seen.bytes_per_ms), SETTLE)
            }
            Phase::Settling(all) if !seen.held_up => (Phase::Alone(all), SPAN),
            Phase::Alone(all) if seen.reaches(all, ENOUGH_PERCENT) => {
                let until = now + self.spared;
                (self.pause, self.spared) = (PAUSE.0, self.spared.times(2).min(SPARED.1));
                (Phase::Sparing(seen.bytes_per_ms, until), CHECK)
            }
            Phase::Settling(_) | Phase::Alone(_) => {
                let pause = self.pause;
                (self.spared, self.pause) = (SPARED.0, pause.times(2).min(PAUSE.1));
                (Phase::Watching(0), pause)
            }
            Phase::Sparing(alone, until) if now < until && seen.reaches(alone, STILL_PERCENT) => {
                (self.phase, CHECK)
            }
            Phase::Watching(_) | Phase::Sparing(..) => (Phase::Watching(0), SPAN),
        }
    }
}

impl Session {
    /// The link that takes all large messages, if one that serves is to.
    #[inline]
    pub(super) fn kept(&self, now: Instant) -> Option<usize> {
        // Who decides for each message by which link it goes has reasons of its own.
        let keeps = self.sparing.keeps(now).filter(|_| self.assigners.is_empty())?;
        let (serving, urgency) = (Serving::of(&self.links), self.schedule.urgency());
        let serves = |link: &Link| serving.includes(link) && serving.trusts(link, urgency);
        self.links.iter().position(|link| link.spec.id == keeps && serves(link))
    }

    /// The same, as far as is known to who only looks.
    pub(super) fn kept_of_late(&self) -> Option<usize> {
        self.kept(self.sparing.next_at)
    }

    /// Goes on with what is tried.
    #[inline]
    pub(super) fn try_sparing(&mut self, now: Instant) {
        if now >= self.sparing.next_at && self.links.len() > 1 {
            self.go_on_sparing(now);
        }
    }

    #[inline(never)]
    fn go_on_sparing(&mut self, now: Instant) {
        let seen = self.see(now);
        let (phase, after) = self.sparing.next(now, &seen);
        let (delivered, sparing) = (self.delivered(), &mut self.sparing);
        (sparing.phase, sparing.began, sparing.next_at, sparing.held_up) = (phase, now, now + after, false);
        sparing.delivered = delivered;
        self.quiet.stir();
    }

    fn see(&self, now: Instant) -> Seen {
        let Sparing { began, next_at, delivered, held_up, .. } = &self.sparing;
        let gains = self.delivered_since(delivered);
        let serving = Serving::of(&self.links);
        let serve = self.links.iter().filter(|link| serving.includes(link)).count();
        let others = self.trials.is_trying() || !self.assigners.is_empty();
        // What was counted for longer than was meant is no measure: the machine stood still.
        let is_late = now.since(*next_at) > SPAN;
        Seen {
            bytes_per_ms: gains.iter().map(|(_, bytes)| bytes).sum::<u64>() * 1_000
                / now.since(*began).as_us().max(1),
            best: gains.iter().max_by_key(|(_, bytes)| *bytes).map(|(link, _)| *link).unwrap_or_default(),
            plenty: self.waiting_bytes(PLENTY_BYTES) >= PLENTY_BYTES,
            held_up: *held_up || is_late || others || serve < 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);
    const SLOW: Seen =
        Seen { bytes_per_ms: FAST_BYTES_PER_MS - 1, best: LinkId(7), plenty: true, held_up: false };
    const FAST: Seen = Seen { bytes_per_ms: 2_000_000, ..SLOW };

    /// What is done after each of these is seen, one after the other.
    fn phases(sparing: &mut Sparing, seen: &[Seen]) -> Vec<(Phase, Duration)> {
        let next = |seen: &Seen| {
            let next = sparing.next(NOW, seen);
            sparing.phase = next.0;
            next
        };
        seen.iter().map(next).collect()
    }

    #[test]
    fn nothing_is_tried_before_much_has_passed_for_three_spans_with_more_waiting_and_nothing_in_the_way() {
        for seen in [SLOW, Seen { plenty: false, ..FAST }, Seen { held_up: true, ..FAST }] {
            let phases = phases(&mut Sparing::default(), &[FAST, FAST, seen, FAST, FAST, FAST]);
            let spans: Vec<_> = phases.iter().map(|(phase, _)| *phase).collect();
            use Phase::{Settling, Watching};
            assert_eq!(spans[..5], [1, 2, 0, 1, 2].map(Watching));
            assert_eq!(spans[5], Settling(2_000_000));
        }
    }

    /// All links deliver 2,000,000 bytes in a millisecond, then one alone so many.
    fn tried(sparing: &mut Sparing, alone: u64) -> (Phase, Duration) {
        let alone = Seen { bytes_per_ms: alone, ..FAST };
        *phases(sparing, &[FAST, FAST, FAST, FAST, alone]).last().unwrap()
    }

    #[test]
    fn one_link_is_enough_that_delivers_97_percent_for_twice_as_long_each_time() {
        let mut sparing = Sparing::default();
        let mut spared_s = Vec::new();
        for _ in 0..8 {
            let (phase, after) = tried(&mut sparing, 1_940_000);
            let Phase::Sparing(1_940_000, until) = phase else { panic!("{phase:?}") };
            assert_eq!((after, sparing.keeps), (CHECK, LinkId(7)));
            spared_s.push(until.since(NOW).0 / 1_000_000_000);
            sparing.phase = Phase::Watching(0);
        }
        assert_eq!(spared_s, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(tried(&mut sparing, 1_939_999), (Phase::Watching(0), PAUSE.0));
        assert!(
            matches!(tried(&mut sparing, 1_940_000), (Phase::Sparing(_, until), _) if until == NOW + SPARED.0)
        );
    }

    #[test]
    fn links_that_add_something_are_left_alone_for_twice_as_long_each_time() {
        let mut sparing = Sparing::default();
        let pauses_ms: Vec<_> = (0..12).map(|_| tried(&mut sparing, 1_000_000).1.0 / 1_000_000).collect();
        assert_eq!(pauses_ms[..4], [100, 200, 400, 800]);
        assert_eq!(pauses_ms[9..], [51_200, 60_000, 60_000]);
        // A link that holds something up is the end of a trial, however much passes.
        let mut sparing = Sparing::default();
        let held_up = Seen { held_up: true, ..FAST };
        let phases = phases(&mut sparing, &[FAST, FAST, FAST, held_up]);
        assert_eq!(phases[3], (Phase::Watching(0), PAUSE.0));
        assert_eq!(tried(&mut sparing, 1_000_000).1, PAUSE.0.times(2));
    }

    #[test]
    fn others_are_left_out_until_their_time_is_over_or_less_than_three_quarters_pass() {
        let until = NOW + Duration::s(1);
        let after = |now: Instant, bytes_per_ms: u64, held_up: bool| {
            let mut sparing = Sparing { phase: Phase::Sparing(2_000_000, until), ..Sparing::default() };
            sparing.next(now, &Seen { bytes_per_ms, held_up, plenty: false, ..FAST })
        };
        let stays = (Phase::Sparing(2_000_000, until), CHECK);
        assert_eq!(after(until - Duration(1), 1_500_000, false), stays);
        for (now, bytes_per_ms, held_up) in
            [(until, 1_500_000, false), (NOW, 1_499_999, false), (NOW, 2_000_000, true)]
        {
            assert_eq!(after(now, bytes_per_ms, held_up), (Phase::Watching(0), SPAN));
        }
    }
}
