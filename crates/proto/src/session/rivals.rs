//! Links that seem equal are tried against each other (protocol.md §5.11).
//!
//! While nothing but small messages passes nothing is known of a link but its round trip, and its least one says nothing of
//! what a message waits for there: a slow link that is just kept busy, another program's traffic. So, now and then, a few
//! messages go by another link that seems as good, and their round trips are held against those of as many before them.

use super::choice::Near;
use crate::limits;
use crate::time::{Duration, Instant};
use arrayvec::ArrayVec;

/// Round trips of each link that are compared, by their medians.
const ROUND_TRIPS: usize = 31;
/// Whether a rival's time has come is looked at so often; the first time is so long after there was one.
const PAUSE_MIN: Duration = Duration::ms(25);
/// Round trips between two trials, for where few messages pass in a second a trial takes seconds.
const BETWEEN: usize = 32 * ROUND_TRIPS;
/// Each trial that a link loses doubles its pause up to this. One that it wins by chance so costs little: the other is tried
/// soon, and it itself late.
const PAUSE_MAX: Duration = Duration::s(10);
/// A rival must be better by one part in so many: less is chance.
const GAIN: u64 = 8;
/// So many round trips that take so many times the choice's median end the trial: nobody is to pay for that thirty times.
/// The first one by a link that nothing passed by for long takes longer, and any may meet a stall.
const FAR_WORSE: (usize, u64) = (3, 8);

/// What is being found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing before this moment.
    Rest(Instant),
    /// How long round trips by the choice take, to be held against this rival's.
    Choice(usize),
    /// How long they take by this rival, beside the median of the choice, in ns.
    Rival(usize, u64),
}

/// When a link may be tried.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at: Instant,
    pause: Duration,
}

/// The comparison of links that seem equal.
#[derive(Debug)]
pub(super) struct Rivals {
    /// None before there was a rival.
    phase: Option<Phase>,
    turns: [Turn; limits::LINKS_MAX],
    /// Round trips of this phase, in ns.
    took_ns: ArrayVec<u64, ROUND_TRIPS>,
    /// Round trips since the last trial.
    between: usize,
    /// Whose turn it was last.
    last: usize,
}

impl Default for Rivals {
    fn default() -> Self {
        let turn = Turn { at: Instant::ZERO, pause: PAUSE_MIN };
        Rivals {
            phase: None,
            turns: [turn; limits::LINKS_MAX],
            took_ns: ArrayVec::new(),
            between: 0,
            last: 0,
        }
    }
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
            Some(Phase::Choice(_)) => choice == Some(link),
            Some(Phase::Rival(rival, _)) => rival == link,
            Some(Phase::Rest(_)) | None => {
                self.between += 1;
                false
            }
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
            None => self.rest(now),
            Some(Phase::Rest(until)) if now < until || self.between < BETWEEN => {}
            Some(Phase::Rest(_)) => match self.due(now, choice, near) {
                Some(rival) => self.begin(Phase::Choice(rival)),
                None => self.rest(now),
            },
            Some(Phase::Choice(rival) | Phase::Rival(rival, _))
                if !near.is_rival(rival) || rival == choice =>
            {
                self.rest(now);
            }
            Some(Phase::Choice(rival)) if self.took_ns.is_full() => {
                let median_ns = median(&mut self.took_ns);
                self.begin(Phase::Rival(rival, median_ns));
            }
            Some(Phase::Choice(_)) => {}
            Some(Phase::Rival(rival, choice_ns)) => return self.judge(now, choice, rival, choice_ns),
        }
        None
    }

    /// The next in a round whose turn has come.
    fn due(&mut self, now: Instant, choice: usize, near: &Near) -> Option<usize> {
        let mut round = (self.last + 1..limits::LINKS_MAX).chain(0..=self.last);
        let is_due = |&link: &usize| link != choice && near.is_rival(link) && self.turns[link].at <= now;
        let rival = round.find(is_due)?;
        self.last = rival;
        Some(rival)
    }

    /// The rival, once it is known to be better.
    fn judge(&mut self, now: Instant, choice: usize, rival: usize, choice_ns: u64) -> Option<usize> {
        let is_better = self.verdict(choice_ns)?;
        let loser = if is_better { choice } else { rival };
        let Turn { at, pause } = &mut self.turns[loser];
        if !is_better {
            *pause = pause.times(2).min(PAUSE_MAX);
        }
        *at = now + *pause;
        self.between = 0;
        self.rest(now);
        is_better.then_some(rival)
    }

    /// Whether the rival is better; `None`: that is not known yet.
    fn verdict(&mut self, choice_ns: u64) -> Option<bool> {
        let enough_ns = choice_ns - choice_ns / GAIN;
        let slower = |than_ns: u64| self.took_ns.iter().filter(|&&took_ns| took_ns > than_ns).count();
        let (count, times) = FAR_WORSE;
        if slower(choice_ns.saturating_mul(times)) >= count || slower(enough_ns) > ROUND_TRIPS / 2 {
            return Some(false);
        }
        self.took_ns.is_full().then_some(true)
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = Some(phase);
        self.took_ns.clear();
    }

    fn rest(&mut self, now: Instant) {
        self.begin(Phase::Rest(now + PAUSE_MIN));
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

    /// Two links that are about to be compared: so many round trips by the choice, the first, took `us`.
    fn compared(us: u64) -> Rivals {
        let mut rivals = Rivals::default();
        assert_eq!(rivals.step(NOW, 0, &BOTH), None);
        compare(&mut rivals, NOW + PAUSE_MIN, 0, us);
        assert_eq!(rivals.tried(), Some(1));
        rivals
    }

    /// Enough round trips for a trial have passed, and then some by the choice have taken `us`.
    fn compare(rivals: &mut Rivals, now: Instant, choice: usize, us: u64) {
        (0..BETWEEN).for_each(|_| rivals.note(Some(choice), choice, Duration::us(us)));
        rivals.step(now, choice, &BOTH);
        (0..ROUND_TRIPS).for_each(|_| rivals.note(Some(choice), choice, Duration::us(us)));
        assert_eq!(rivals.step(now, choice, &BOTH), None);
    }

    fn round_trips(rivals: &mut Rivals, link: usize, us: u64, count: usize) {
        (0..count).for_each(|_| rivals.note(Some(0), link, Duration::us(us)));
    }

    #[test]
    fn nothing_is_tried_before_its_time_or_without_round_trips_by_the_choice() {
        let mut rivals = Rivals::default();
        rivals.step(NOW, 0, &BOTH);
        round_trips(&mut rivals, 0, 50, BETWEEN - 1);
        rivals.step(NOW + PAUSE_MAX, 0, &BOTH);
        assert!(matches!(rivals.phase, Some(Phase::Rest(_))), "few have passed");
        round_trips(&mut rivals, 0, 50, 1);
        rivals.step(NOW + PAUSE_MIN - Duration(1), 0, &BOTH);
        assert!(matches!(rivals.phase, Some(Phase::Rest(_))), "not yet");
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        round_trips(&mut rivals, 1, 50, ROUND_TRIPS);
        round_trips(&mut rivals, 0, 50, ROUND_TRIPS - 1);
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        assert_eq!(rivals.tried(), None, "one more by the choice");
        round_trips(&mut rivals, 0, 50, 1);
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        assert_eq!(rivals.tried(), Some(1));
        round_trips(&mut rivals, 1, 50, ROUND_TRIPS);
        rivals.step(NOW + PAUSE_MIN, 0, &BOTH);
        rivals.step(NOW + PAUSE_MAX, 0, &BOTH);
        assert!(matches!(rivals.phase, Some(Phase::Rest(_))), "as many pass before the next");
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
            let next = [0, 1].map(|link| rivals.turns[link].at);
            let pause = if wins {
                [NOW + PAUSE_MIN, Instant::ZERO]
            } else {
                [Instant::ZERO, NOW + PAUSE_MIN.times(2)]
            };
            assert_eq!(next, pause, "whoever lost waits");
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
            round_trips(&mut rivals, 1, 5_000, 2);
            round_trips(&mut rivals, 1, us, 1);
            rivals.step(NOW, 0, &BOTH);
            assert_eq!(rivals.tried().is_some(), goes_on, "{us}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_a_bound() {
        let mut rivals = Rivals::default();
        rivals.step(NOW, 0, &BOTH);
        let (mut before_ms, mut pauses_ms) = (0, Vec::new());
        for ms in (25..50_000).step_by(25) {
            let now = NOW + Duration::ms(ms);
            compare(&mut rivals, now, 0, 50);
            if rivals.tried().is_some() {
                round_trips(&mut rivals, 1, 50, ROUND_TRIPS);
                rivals.step(now, 0, &BOTH);
                pauses_ms.push(ms - before_ms);
                before_ms = ms;
            }
        }
        assert_eq!(pauses_ms, [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
    }

    /// A slow link that lets a burst pass now and then must not be the choice half of the time.
    #[test]
    fn a_link_that_wins_by_chance_is_the_choice_for_a_small_part_of_the_time() {
        let mut rivals = Rivals::default();
        rivals.step(NOW, 0, &BOTH);
        let (mut choice, mut trials, mut slow) = (0, 0, 0);
        for ms in 0..60_000 {
            let now = NOW + Duration::ms(ms);
            slow += (choice == 1) as u64;
            compare(&mut rivals, now, choice, if choice == 1 { 100 } else { 50 });
            if let Some(rival) = rivals.tried() {
                trials += rival;
                // Each third trial of the slow one finds room for a burst.
                let us = [50, if trials % 3 == 0 { 20 } else { 100 }][rival];
                (0..ROUND_TRIPS).for_each(|_| rivals.note(Some(choice), rival, Duration::us(us)));
                choice = rivals.step(now, choice, &BOTH).unwrap_or(choice);
            }
        }
        assert!((50..500).contains(&slow) && choice == 0, "{slow} of 60,000");
    }

    #[test]
    fn rivals_have_their_turns_and_none_that_is_no_rival_any_more() {
        let mut rivals = Rivals::default();
        let near = Near::among(0, 0b1101);
        let mut tried = Vec::new();
        rivals.step(NOW, 0, &near);
        for second in 1..5 {
            let now = NOW + Duration::s(20).times(second);
            round_trips(&mut rivals, 0, 50, BETWEEN);
            rivals.step(now, 0, &near);
            round_trips(&mut rivals, 0, 50, ROUND_TRIPS);
            rivals.step(now, 0, &near);
            tried.extend(rivals.tried());
            rivals.step(now, 0, &Near::among(0, 1));
            assert_eq!(rivals.tried(), None, "it does not seem as good any more");
        }
        assert_eq!(tried, [2, 3, 2, 3]);
    }
}
