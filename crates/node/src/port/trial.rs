//! How long a thread spins that does so before it sleeps, where the engine is in its own process: as long as is allowed, and now and
//! then longer.
//!
//! What it waits for comes from other nodes, where somebody may have to be woken first. Where that takes longer than anybody spins,
//! two that talk to each other may both sleep only because the other does, and neither can see that. So whoever has slept several
//! times for about as long as two wake-ups take stays awake for that long, once: the other's answer to its quick one comes in time.

/// Longer waits than so many times what is allowed are not because of wake-ups.
const WAKING: u64 = 20;
/// Sleeps between trials: of the first ones, and of those that have been in vain so often.
const RESTS: (u32, u32) = (16, 1_024);
/// Short waits after a trial that show that it was of use: that one is may be chance.
const PROOF: u32 = 8;
const RESTS_AT_FIRST: (u32, u32) = (RESTS.0, RESTS.0);

/// What the waits of one port have been like.
pub(super) struct Trial {
    /// How long the last wait took that was noted.
    waited_ns: u64,
    state: State,
    /// Sleeps before the next trial, and after it.
    rest: u32,
    next_rest: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Usual,
    /// The present wait is one.
    Tries,
    /// The present wait and so many more tell whether the last trial was of use.
    Judges(u32),
}

impl Default for Trial {
    fn default() -> Self {
        Self { waited_ns: 0, state: State::Usual, rest: RESTS.0, next_rest: RESTS.0 }
    }
}

impl Trial {
    /// A wait begins: how long to spin where `most_ns` are allowed.
    #[inline]
    pub(super) fn begin(&mut self, most_ns: u64) -> u64 {
        if self.rest > 0 || self.state != State::Usual {
            return most_ns;
        }
        self.state = State::Tries;
        self.waited_ns.max(most_ns)
    }

    /// Whether the present wait is to be noted though the thread did not sleep.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Usual
    }

    /// A wait is over, in which the thread slept, or that is open.
    pub(super) fn note(&mut self, waited_ns: u64, most_ns: u64) {
        let is_long = waited_ns > most_ns;
        match self.state {
            State::Tries => {
                self.rest = self.next_rest;
                self.next_rest = (2 * self.next_rest).min(RESTS.1);
                self.state = State::Judges(PROOF);
                return;
            }
            State::Judges(0) if !is_long => {
                (self.rest, self.next_rest) = RESTS_AT_FIRST;
                self.state = State::Usual;
            }
            State::Judges(left) if !is_long => self.state = State::Judges(left - 1),
            State::Judges(_) | State::Usual => self.state = State::Usual,
        }
        if is_long && waited_ns <= most_ns * WAKING {
            self.waited_ns = waited_ns;
            self.rest = self.rest.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_NS: u64 = 50_000;
    /// From a message to the answer of somebody who is awake.
    const WAY_NS: u64 = 10_000;

    /// One end of two that talk to each other.
    #[derive(Default)]
    struct End {
        trial: Trial,
        awake_until_ns: u64,
        began_ns: u64,
    }

    impl End {
        fn wait(&mut self, now_ns: u64) {
            self.began_ns = now_ns;
            self.awake_until_ns = now_ns + self.trial.begin(MOST_NS);
        }

        /// When it has what came at `now_ns`; whoever sleeps takes `waking_ns` to wake.
        fn take(&mut self, now_ns: u64, waking_ns: u64) -> u64 {
            let slept = now_ns > self.awake_until_ns;
            let now_ns = now_ns + if slept { waking_ns } else { 0 };
            if slept || self.trial.is_open() {
                self.trial.note(now_ns - self.began_ns, MOST_NS);
            }
            now_ns
        }
    }

    /// Two that talk by turns.
    struct Talk {
        ends: [End; 2],
        now_ns: u64,
        waking_ns: u64,
    }

    impl Talk {
        /// How many of so many messages somebody slept for.
        fn slept_for(&mut self, messages: usize) -> usize {
            let mut slept = 0;
            for number in 0..messages {
                let (sender, receiver) = (number % 2, 1 - number % 2);
                self.ends[sender].wait(self.now_ns);
                let came_ns = self.now_ns + WAY_NS;
                slept += usize::from(came_ns > self.ends[receiver].awake_until_ns);
                self.now_ns = self.ends[receiver].take(came_ns, self.waking_ns);
            }
            slept
        }
    }

    #[test]
    fn two_that_sleep_only_because_the_other_does_stay_awake_soon() {
        for waking_ns in [65_000, 150_000, 400_000] {
            let mut talk = Talk { ends: Default::default(), now_ns: 1, waking_ns };
            assert_eq!(talk.slept_for(20), 20, "{waking_ns}");
            talk.slept_for(200);
            assert_eq!(talk.slept_for(200), 0, "{waking_ns}");
        }
    }

    #[test]
    fn whom_nobody_answers_in_time_seldom_spins_for_longer_than_is_allowed() {
        let mut trial = Trial::default();
        let longer = (0..20_000).filter(|_| {
            let spin_ns = trial.begin(MOST_NS);
            trial.note(4 * MOST_NS, MOST_NS);
            assert!(spin_ns <= 4 * MOST_NS);
            spin_ns > MOST_NS
        });
        assert!((20..40).contains(&longer.count()));
    }

    #[test]
    fn waits_that_are_too_long_for_wake_ups_are_no_reason_to_spin() {
        let mut trial = Trial::default();
        for _ in 0..1_000 {
            assert_eq!(trial.begin(MOST_NS), MOST_NS);
            trial.note(21 * MOST_NS, MOST_NS);
        }
    }

    #[test]
    fn a_trial_that_was_of_use_is_soon_made_again() {
        let mut trial = Trial { rest: 0, next_rest: 1_024, waited_ns: 4 * MOST_NS, ..Trial::default() };
        assert_eq!(trial.begin(MOST_NS), 4 * MOST_NS);
        trial.note(2 * MOST_NS, MOST_NS);
        for _ in 0..=PROOF {
            assert!(trial.is_open() && trial.begin(MOST_NS) == MOST_NS);
            trial.note(MOST_NS / 4, MOST_NS);
        }
        assert!(!trial.is_open() && (trial.rest, trial.next_rest) == RESTS_AT_FIRST);
        // One short wait among long ones is chance.
        let mut trial = Trial { rest: 0, next_rest: 1_024, waited_ns: 4 * MOST_NS, ..Trial::default() };
        trial.begin(MOST_NS);
        [2 * MOST_NS, MOST_NS / 4, 2 * MOST_NS].iter().for_each(|&waited_ns| trial.note(waited_ns, MOST_NS));
        assert!(!trial.is_open() && trial.rest > 1_000);
    }
}
