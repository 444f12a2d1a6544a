//! Spinning that leaves the core to others now and then.
//!
//! A thread that spins never sleeps, so that where more threads spin than there are cores, the one that has the engine may
//! be set aside for whole time slices, and with it every link of the node: a peer was given up that way. To give way costs a
//! fraction of a microsecond where nobody else wants the core.

use crate::engine::Work;
use crate::host::Host;

/// Spinning for nothing this long (nanoseconds), a thread gives way. A turn of the engine seldom lasts longer.
pub(super) const PATIENCE_NS: u64 = 50_000;
/// How a thread's spinning has gone.
#[derive(Default)]
pub(super) struct Spin {
    /// When the engine was found free last; 0 before the first look.
    free_ns: u64,
    /// When something was done last, or the core was left to others; 0 before the first look.
    useful_ns: u64,
    /// When the caller was told last that it was long; 0 before the first look.
    told_ns: u64,
}

/// What a spinning thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Spin,
    /// Others may have the core.
    GiveWay,
    /// Whoever has the engine is likely to have been set aside, and gets the core only if this thread sleeps.
    WaitForEngine,
}

impl Spin {
    /// Gives way if `patience_ns` are over, after a turn that was tried at `now_ns`; whether it was long since that was last said.
    #[inline]
    pub(super) fn after(
        &mut self,
        work: Option<Work>,
        (now_ns, patience_ns): (u64, u64),
        host: &Host,
    ) -> bool {
        let next = self.next(work, now_ns, patience_ns);
        match next {
            Next::Spin if work.is_none() => std::hint::spin_loop(),
            Next::Spin => {}
            Next::GiveWay => std::thread::yield_now(),
            Next::WaitForEngine => host.wait_for_engine(),
        }
        next != Next::Spin && self.is_long(now_ns)
    }

    fn is_long(&mut self, now_ns: u64) -> bool {
        let is_long = now_ns.saturating_sub(self.told_ns) >= PATIENCE_NS;
        if is_long {
            self.told_ns = now_ns;
        }
        is_long
    }

    #[inline]
    fn next(&mut self, work: Option<Work>, now_ns: u64, patience_ns: u64) -> Next {
        if self.told_ns == 0 {
            self.told_ns = now_ns;
        }
        if work.is_some() || self.free_ns == 0 {
            self.free_ns = now_ns;
        }
        if work.is_some_and(|work| work.done > 0) || self.useful_ns == 0 {
            self.useful_ns = now_ns;
        }
        let next = if now_ns.saturating_sub(self.free_ns) >= patience_ns {
            Next::WaitForEngine
        } else if now_ns.saturating_sub(self.useful_ns) >= patience_ns {
            Next::GiveWay
        } else {
            return Next::Spin;
        };
        *self = Spin { told_ns: self.told_ns, ..Spin::default() };
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Option<Work> =
        Some(Work { done: 0, rang: false, drained: true, blocked: false, next_deadline_ns: None });
    const BUSY: Option<Work> =
        Some(Work { done: 1, rang: false, drained: true, blocked: false, next_deadline_ns: None });

    #[test]
    fn who_finds_the_engine_taken_for_long_sleeps_until_it_is_free() {
        let mut spin = Spin::default();
        assert_eq!(spin.next(IDLE, 1_000, PATIENCE_NS), Next::Spin);
        assert_eq!(spin.next(None, 1_000 + PATIENCE_NS - 1, PATIENCE_NS), Next::Spin);
        assert_eq!(spin.next(None, 1_000 + PATIENCE_NS, PATIENCE_NS), Next::WaitForEngine);
        assert_eq!(spin.next(None, 1_000 + PATIENCE_NS + 1, PATIENCE_NS), Next::Spin);
    }

    #[test]
    fn who_spins_for_nothing_gives_way_now_and_then_and_who_works_does_not() {
        let mut spin = Spin::default();
        assert_eq!(spin.next(IDLE, 1_000, PATIENCE_NS), Next::Spin);
        assert_eq!(spin.next(BUSY, 1_000 + PATIENCE_NS, PATIENCE_NS), Next::Spin);
        assert_eq!(spin.next(IDLE, 1_000 + 2 * PATIENCE_NS - 1, PATIENCE_NS), Next::Spin);
        assert_eq!(spin.next(IDLE, 1_000 + 2 * PATIENCE_NS, PATIENCE_NS), Next::GiveWay);
        assert_eq!(spin.next(IDLE, 1_000 + 2 * PATIENCE_NS + 1, PATIENCE_NS), Next::Spin);
    }

    #[test]
    fn who_has_no_patience_gives_way_at_each_look_and_is_told_now_and_then_that_it_is_long() {
        let (mut spin, mut told) = (Spin::default(), 0);
        for now_ns in (1_000..1_001_000).step_by(500) {
            assert_eq!(spin.next(None, now_ns, 0), Next::WaitForEngine);
            told += u64::from(spin.is_long(now_ns));
        }
        assert_eq!(told, 1_000_000 / PATIENCE_NS - 1);
    }
}
