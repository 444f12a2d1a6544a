//! How long a thread spins that does so before it sleeps, where what it waits for is put into memory by other programs.
//!
//! To spin pays if what is waited for comes before the thread would sleep. If it has come later than that, it most likely will
//! again, and the core is better left to those who are to bring it: of many clients of one server on few cores each would keep the
//! server from its core for as long as it spins, and two that never sleep are served again and again while others wait for a core.
//! (Hypervisors let a processor that has nothing to do poll by the same rule.)
//!
//! Two that talk to each other may both sleep only because the other does: where it takes longer to be woken than anybody spins, each
//! waits too long for the other to wake. So whoever had to wake somebody tries now and then to stay awake for as long as that may
//! take; and whoever finds the other one awake that slept before stays awake, too.

/// What the waits of one port have been like.
pub(super) struct Patience {
    /// How long it spins next, as a share of what is allowed: from nothing to [`WHOLE`].
    share: u32,
    /// How many had been woken by this thread when the last wait began, and whether one was for that wait.
    woken: u64,
    woke: bool,
    /// How long the last wait took.
    waited_ns: u64,
    /// The present wait is a trial.
    tries: bool,
    /// Waits before the next trial, and after it.
    rest: u32,
    next_rest: u32,
}

const WHOLE: u32 = 8;
/// Two that wake each other take no longer than so many times what they spin.
const WAKING: u64 = 20;
/// Waits between trials: of the first ones, and of those that have been in vain so often.
const RESTS: (u32, u32) = (16, 4_096);

impl Default for Patience {
    fn default() -> Self {
        Self {
            share: WHOLE,
            woken: 0,
            woke: false,
            waited_ns: 0,
            tries: false,
            rest: RESTS.0,
            next_rest: RESTS.0,
        }
    }
}

impl Patience {
    /// A wait begins, `woken` having been woken by this thread in all: how long to spin where `most_ns` are allowed.
    #[inline]
    pub(super) fn begin(&mut self, woken: u64, most_ns: u64) -> u64 {
        let woke = std::mem::replace(&mut self.woken, woken) != woken;
        let has_woken_up = std::mem::replace(&mut self.woke, woke) && !woke;
        let may_try = self.share == 0 && self.waited_ns <= most_ns * WAKING;
        self.tries = may_try && (has_woken_up || woke && self.rest == 0);
        match (self.tries, woke) {
            (false, _) => most_ns * u64::from(self.share) / u64::from(WHOLE),
            (true, false) => most_ns,
            (true, true) => self.waited_ns,
        }
    }

    /// Whether a wait that ended while it span says nothing new.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.share == WHOLE
    }

    /// What is waited for comes another way from now on: what waits were like before says nothing of it.
    pub(super) fn forget(&mut self) {
        *self = Self { woken: self.woken, ..Self::default() };
    }

    /// A wait is over. Some that have been longer than what is allowed end the spinning, for one may be an accident; shorter ones bring it
    /// back.
    pub(super) fn note(&mut self, waited_ns: u64, most_ns: u64) {
        self.waited_ns = waited_ns;
        if waited_ns <= most_ns {
            self.share = if self.tries { WHOLE } else { (2 * self.share).clamp(1, WHOLE) };
            self.next_rest = RESTS.0;
            return;
        }
        self.share /= 2;
        if self.woke && self.tries {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(RESTS.1);
        } else if self.woke && waited_ns <= most_ns * WAKING {
            self.rest = self.rest.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_NS: u64 = 50_000;

    #[test]
    fn who_waited_too_long_spins_no_more_until_waits_are_short_again() {
        let mut patience = Patience::default();
        assert!(patience.is_whole() && patience.begin(0, MOST_NS) == MOST_NS);
        patience.note(MOST_NS, MOST_NS);
        assert!(patience.is_whole(), "spinning would have done");
        let spans = [0; 5].map(|_| {
            patience.note(MOST_NS + 1, MOST_NS);
            patience.begin(0, MOST_NS)
        });
        assert_eq!(spans, [MOST_NS / 2, MOST_NS / 4, MOST_NS / 8, 0, 0]);
        let spans = [0; 5].map(|_| {
            patience.note(1_000, MOST_NS);
            patience.begin(0, MOST_NS)
        });
        assert_eq!(spans, [MOST_NS / 8, MOST_NS / 4, MOST_NS / 2, MOST_NS, MOST_NS]);
        assert!(patience.is_whole());
    }

    /// One end of two that talk to each other.
    struct End {
        patience: Patience,
        woken: u64,
        /// Until when it is awake, if nothing comes.
        awake_until_ns: u64,
        began_ns: u64,
    }

    impl End {
        fn new(spins: bool) -> End {
            let share = if spins { WHOLE } else { 0 };
            let patience = Patience { share, ..Patience::default() };
            End { patience, woken: 0, awake_until_ns: 0, began_ns: 0 }
        }

        fn wait(&mut self, now_ns: u64) {
            self.began_ns = now_ns;
            self.awake_until_ns = now_ns + self.patience.begin(self.woken, MOST_NS);
        }

        /// When it has what was put there at `now_ns` and has answered; whoever sleeps takes `waking_ns` to wake.
        fn take(&mut self, now_ns: u64, waking_ns: u64) -> u64 {
            let slept = now_ns > self.awake_until_ns;
            let now_ns = now_ns + 10_000 + if slept { waking_ns } else { 0 };
            if slept || !self.patience.is_whole() {
                self.patience.note(now_ns - self.began_ns, MOST_NS);
            }
            now_ns
        }
    }

    /// Nanoseconds of `rounds` messages, by turns.
    fn talk(ends: &mut [End; 2], waking_ns: u64, rounds: usize) -> u64 {
        let mut now_ns = 0;
        ends.iter_mut().for_each(|end| end.wait(0));
        for round in 0..rounds {
            let (sender, receiver) = (round % 2, 1 - round % 2);
            ends[sender].woken += u64::from(now_ns > ends[receiver].awake_until_ns);
            ends[sender].wait(now_ns);
            now_ns = ends[receiver].take(now_ns, waking_ns);
        }
        now_ns
    }

    #[test]
    fn two_that_sleep_only_because_the_other_does_stay_awake_soon() {
        for waking_ns in [10_000, 65_000, 400_000] {
            for first in [[false, false], [true, false], [false, true]] {
                let mut ends = first.map(End::new);
                talk(&mut ends, waking_ns, 200);
                assert!(ends.iter().all(|end| end.patience.is_whole()), "{waking_ns} {first:?}");
            }
        }
    }

    #[test]
    fn whom_nobody_answers_in_time_seldom_tries() {
        let mut patience = Patience { share: 0, ..Patience::default() };
        let trials = (1..20_000).filter(|&woken| {
            let spin_ns = patience.begin(woken, MOST_NS);
            patience.note(2 * MOST_NS, MOST_NS);
            spin_ns > 0
        });
        assert!((5..20).contains(&trials.count()));
        // However long ago the last trial was, a pause is no reason to spin for as long.
        let mut patience = Patience { share: 0, rest: 0, ..Patience::default() };
        patience.note(10_000_000_000, MOST_NS);
        assert_eq!(patience.begin(1, MOST_NS), 0);
        // Whom it comes to by another way tries at once.
        patience.forget();
        assert_eq!(patience.begin(1, MOST_NS), MOST_NS);
        // Nor does who waits for far longer than it takes to wake somebody.
        let mut patience = Patience { share: 0, ..Patience::default() };
        for woken in 1..1_000 {
            assert_eq!(patience.begin(woken, MOST_NS), 0);
            patience.note(21 * MOST_NS, MOST_NS);
        }
    }
}
