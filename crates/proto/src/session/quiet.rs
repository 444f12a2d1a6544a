//! When a session has nothing to send and nothing to look at, so that asking it again costs next to nothing.
//!
//! A driver asks each session by each bearer at every turn, mostly in vain. What was found out holds until something
//! happens to the session, or until a moment comes at which it would have something to say. Whatever may give a session
//! work has to call [`Quiet::stir`], or that work would wait for something else to happen.

use crate::id::BearerId;
use crate::time::Instant;

/// Bearers, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bearers(u32);

// One bit for each bearer.
const _: () = assert!(crate::limits::BEARERS_MAX <= u32::BITS as usize);

impl Bearers {
    pub(super) const fn of(bearer: BearerId) -> Bearers {
        Bearers(1 << bearer.0)
    }

    pub(super) fn insert(&mut self, bearer: BearerId) {
        self.0 |= Bearers::of(bearer).0;
    }

    pub(super) const fn without(self, others: Bearers) -> Bearers {
        Bearers(self.0 & !others.0)
    }

    const fn has(self, bearer: BearerId) -> bool {
        self.0 & Bearers::of(bearer).0 != 0
    }
}

/// What is known of a session since something last happened to it.
#[derive(Debug)]
pub(super) struct Quiet {
    /// The bearers that it has links over; nothing ever leaves by another.
    linked: Bearers,
    /// Those by which it had nothing to send when it was asked.
    silent: Bearers,
    /// What was found holds before this moment.
    until: Instant,
    /// When it wants to be looked at, if that was asked.
    deadline: Option<Instant>,
}

impl Default for Quiet {
    fn default() -> Self {
        Quiet {
            linked: Bearers::default(),
            silent: Bearers::default(),
            until: Instant::NEVER,
            deadline: None,
        }
    }
}

impl Quiet {
    /// Something happened: there may be something to send by every bearer, and deadlines may have moved.
    #[inline]
    pub(super) fn stir(&mut self) {
        *self = Quiet { linked: self.linked, ..Quiet::default() };
    }

    /// The session has a new link over `bearer`.
    pub(super) fn add_link(&mut self, bearer: BearerId) {
        self.linked.insert(bearer);
        self.stir();
    }

    /// These are the bearers that are left to it.
    pub(super) fn set_links(&mut self, bearers: impl Iterator<Item = BearerId>) {
        self.linked = Bearers::default();
        bearers.for_each(|bearer| self.linked.insert(bearer));
        self.stir();
    }

    /// Whether the session has a link over `bearer`.
    #[inline]
    pub(super) fn has_link(&self, bearer: BearerId) -> bool {
        self.linked.has(bearer)
    }

    /// Whether it is known that nothing is to be sent by `bearer`.
    #[inline]
    pub(super) fn holds(&self, now: Instant, bearer: BearerId) -> bool {
        !self.linked.has(bearer) || (self.silent.has(bearer) && now < self.until)
    }

    /// Whether it is known that nothing is to be sent by any bearer.
    #[inline]
    pub(super) fn holds_everywhere(&self, now: Instant) -> bool {
        self.linked.without(self.silent) == Bearers::default() && now < self.until
    }

    /// Nothing is to be sent by `silent` before `until`.
    pub(super) fn note(&mut self, now: Instant, silent: Bearers, until: Instant) {
        if now >= self.until {
            (self.silent, self.until) = (Bearers::default(), Instant::NEVER);
        }
        self.silent.0 |= silent.0;
        self.until = self.until.min(until);
    }

    /// The deadline, computed at most once for each thing that happens.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn note_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_until_something_happens_or_its_time_comes() {
        let mut quiet = Quiet::default();
        assert!(quiet.holds(Instant(1), BearerId(0)), "there is no link over it");
        [0, 1, 3].into_iter().for_each(|bearer| quiet.add_link(BearerId(bearer)));
        let held = |quiet: &Quiet, now| [0, 1, 3].map(|bearer| quiet.holds(Instant(now), BearerId(bearer)));
        assert_eq!(held(&quiet, 1), [false; 3]);
        quiet.note(Instant(1), Bearers::of(BearerId(0)), Instant(10));
        quiet.note(Instant(2), Bearers::of(BearerId(3)), Instant::NEVER);
        assert_eq!(held(&quiet, 9), [true, false, true]);
        assert!(!quiet.holds_everywhere(Instant(9)));
        quiet.note(Instant(3), Bearers::of(BearerId(1)), Instant(20));
        assert!(quiet.holds_everywhere(Instant(9)) && !quiet.holds_everywhere(Instant(10)));
        assert_eq!(held(&quiet, 10), [false; 3]);
        quiet.note(Instant(10), Bearers::of(BearerId(3)), Instant::NEVER);
        assert_eq!(held(&quiet, 11), [false, false, true], "what was found of the first one is out of date");
        quiet.note_deadline(Instant(50));
        assert_eq!((held(&quiet, 11), quiet.deadline()), ([false, false, true], Some(Instant(50))));
        quiet.stir();
        assert_eq!((held(&quiet, 12), quiet.deadline()), ([false; 3], None));
    }
}
