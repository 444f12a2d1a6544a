//! Links that seem equal are tried against each other (protocol.md §5.11).
//!
//! While nothing but small messages passes nothing is known of a link but its round trip, and its least one says nothing of
//! what a message waits for there: a slow link that is just kept busy, another program's traffic. So, now and then, a few
//! messages go by another link that seems as good, and their round trips are held against those of as many before them.

use super::choice::Near;
use crate::time::{Duration, Instant};
use arrayvec::ArrayVec;

/// Round trips of each link that are compared, by their medians.
const ROUND_TRIPS: usize = 31;
/// The first comparison is so long after links first seemed equal, and each that changes nothing doubles the pause.
const PAUSE_MIN: Duration = Duration::ms(100);
const PAUSE_MAX: Duration = Duration::s(10);
/// A rival must be better by one part in so many: less is chance.
const GAIN: u64 = 8;
/// A round trip that takes so many times the choice's median ends the trial: nobody is to pay for that thirty times.
const FAR_WORSE: u64 = 8;

/// What is being found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing before this moment.
    Rest(Instant),
    /// How long round trips by the choice take.
    Choice,
    /// How long they take by another link, beside the median of the choice, in ns.
    Rival(usize, u64),
}

/// The comparison of links that seem equal.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// None before links first seemed equal.
    phase: Option<Phase>,
    pause: Duration,
    /// Round trips of this phase, in ns.
    took_ns: ArrayVec<u64, ROUND_TRIPS>,
    /// Whose turn it was last.
    last: usize,
}

impl Rivals {
    /// The link that is tried now.
    pub(super) fn tried(&self) -> Option<usize> {
        match self.phase {
            Some(Phase::Rival(link, _)) => Some(link),
            _ => None,
        }
    }

    /// A round trip by a link took so long; `choice`: the one that is held to be the best.
    #[inline]
    pub(super) fn note(&mut self, choice: Option<usize>, link: usize, took: Duration) {
        let is_asked = match self.phase {
            Some(Phase::Choice) => choice == Some(link),
            Some(Phase::Rival(rival, _)) => rival == link,
            _ => false,
        };
        if is_asked {
            // One more than is asked for would say nothing new.
            let _ = self.took_ns.try_push(took.0);
        }
    }

    /// Goes on, before a message leaves while several links seem equal: the link that is to be the choice, if it is another.
    #[inline]
    pub(super) fn step(&mut self, now: Instant, choice: usize, near: &Near) -> Option<usize> {
        match self.phase {
            Some(Phase::Rest(until)) if now < until => {}
            Some(Phase::Rest(_)) => self.begin(Phase::Choice),
            Some(Phase::Choice) if self.took_ns.is_full() => match near.after(self.last, choice) {
                Some(rival) => {
                    let median_ns = median(&mut self.took_ns);
                    self.last = rival;
                    self.begin(Phase::Rival(rival, median_ns));
                }
                None => self.rest(now, self.pause),
            },
            Some(Phase::Choice) => {}
            Some(Phase::Rival(rival, _)) if !near.holds(rival) => self.rest(now, self.pause),
            Some(Phase::Rival(rival, choice_ns)) => match self.verdict(choice_ns) {
                Some(true) => {
                    self.rest(now, PAUSE_MIN);
                    return Some(rival);
                }
                Some(false) => self.rest(now, self.pause.times(2).min(PAUSE_MAX)),
                None => {}
            },
            None => self.rest(now, PAUSE_MIN),
        }
        None
    }

    /// Whether the rival is better; `None`: that is not known yet.
    fn verdict(&mut self, choice_ns: u64) -> Option<bool> {
        let enough_ns = choice_ns - choice_ns / GAIN;
        let missed = self.took_ns.iter().filter(|&&took_ns| took_ns > enough_ns).count();
        let far_worse =
            self.took_ns.last().is_some_and(|&took_ns| took_ns > choice_ns.saturating_mul(FAR_WORSE));
        if far_worse || missed > ROUND_TRIPS / 2 {
            return Some(false);
        }
        self.took_ns.is_full().then_some(true)
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = Some(phase);
        self.took_ns.clear();
    }

    fn rest(&mut self, now: Instant, pause: Duration) {
        self.pause = pause;
        self.begin(Phase::Rest(now + pause));
    }
}

fn median(took_ns: &mut [u64]) -> u64 {
    let middle = took_ns.len() / 2;
    *took_ns.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Near = Near::among(0, 0b11);
    const NOW: Instant = Instant(1_000_000_000);

    /// Two equal links that are about to be compared: so many round trips by the choice, the first, took `us`.
    fn compared(us: u64) -> Rivals {
        let mut rivals = Rivals::default();
        assert_eq!(rivals.step(NOW, 0, &BOTH), None);
        assert_eq!(rivals.step(NOW + PAUSE_MIN, 0, &BOTH), None);
        round_trips(&mut rivals, 0, us, ROUND_TRIPS);
        assert_eq!((rivals.step(NOW + PAUSE_MIN, 0, &BOTH), rivals.tried()), (None, Some(1)));
        rivals
    }

    fn round_trips(rivals: &mut Rivals, link: usize, us: u64, count: usize) {
        (0..count).for_each(|_| rivals.note(Some(0), link, Duration::us(us)));
    }

    /// When the next comparison begins.
    fn next_at(rivals: &Rivals) -> Option<Instant> {
        match rivals.phase {
            Some(Phase::Rest(until)) => Some(until),
            _ => None,
        }
    }

    #[test]
    fn nothing_is_tried_before_its_time_or_without_round_trips_by_the_choice() {
        let mut rivals = Rivals::default();
        for at in [NOW, NOW + PAUSE_MIN - Duration(1)] {
            rivals.step(at, 0, &BOTH);
            round_trips(&mut rivals, 0, 50, ROUND_TRIPS);
        }
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        round_trips(&mut rivals, 1, 50, ROUND_TRIPS);
        round_trips(&mut rivals, 0, 50, ROUND_TRIPS - 1);
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        assert_eq!(rivals.tried(), None, "one more by the choice");
        round_trips(&mut rivals, 0, 50, 1);
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        assert_eq!(rivals.tried(), Some(1));
    }

    #[test]
    fn a_rival_takes_over_that_is_better_by_more_than_an_eighth() {
        for (us, wins) in [(70, true), (71, false), (80, false)] {
            let mut rivals = compared(80);
            round_trips(&mut rivals, 1, 200, ROUND_TRIPS / 2);
            round_trips(&mut rivals, 0, 10, ROUND_TRIPS);
            assert_eq!((rivals.step(NOW, 0, &BOTH), rivals.tried()), (None, Some(1)), "either may win");
            round_trips(&mut rivals, 1, us, ROUND_TRIPS / 2 + 1);
            assert_eq!(rivals.step(NOW, 0, &BOTH), wins.then_some(1), "{us}");
            assert_eq!(rivals.tried(), None);
            let pause = if wins { PAUSE_MIN } else { PAUSE_MIN.times(2) };
            assert_eq!(next_at(&rivals), Some(NOW + pause));
        }
    }

    #[test]
    fn one_that_cannot_win_any_more_or_is_far_worse_is_given_up_at_once() {
        let mut rivals = compared(80);
        round_trips(&mut rivals, 1, 81, ROUND_TRIPS / 2);
        rivals.step(NOW, 0, &BOTH);
        assert_eq!(rivals.tried(), Some(1));
        round_trips(&mut rivals, 1, 81, 1);
        rivals.step(NOW, 0, &BOTH);
        assert_eq!(rivals.tried(), None);
        for (us, goes_on) in [(640, true), (641, false)] {
            let mut rivals = compared(80);
            round_trips(&mut rivals, 1, us, 1);
            rivals.step(NOW, 0, &BOTH);
            assert_eq!(rivals.tried().is_some(), goes_on, "{us}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_a_bound() {
        let mut rivals = Rivals::default();
        let mut now = NOW;
        rivals.step(now, 0, &BOTH);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let until = next_at(&rivals).unwrap();
            pauses.push(until.since(now).as_us() / 1_000);
            now = until;
            rivals.step(now, 0, &BOTH);
            round_trips(&mut rivals, 0, 50, ROUND_TRIPS);
            rivals.step(now, 0, &BOTH);
            round_trips(&mut rivals, 1, 50, ROUND_TRIPS);
            rivals.step(now, 0, &BOTH);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    }

    #[test]
    fn rivals_have_their_turns_and_none_that_is_not_near() {
        let mut rivals = Rivals::default();
        let near = Near::among(0, 0b1101);
        let mut tried = Vec::new();
        for second in 0..4 {
            let now = NOW + Duration::s(20).times(second);
            rivals.step(now, 0, &near);
            round_trips(&mut rivals, 0, 50, ROUND_TRIPS);
            rivals.step(now + Duration::s(10), 0, &near);
            round_trips(&mut rivals, 0, 50, ROUND_TRIPS);
            rivals.step(now + Duration::s(10), 0, &near);
            tried.extend(rivals.tried());
            rivals.step(now + Duration::s(10), 0, &Near::among(0, 1));
            assert_eq!(rivals.tried(), None, "it does not seem equal any more");
        }
        assert_eq!(tried, [2, 3, 2, 3]);
    }
}
