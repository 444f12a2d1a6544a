//! How a port waits: it spins, sleeps, or spins a little and then sleeps, until something is so.

use super::spin::{PATIENCE_NS, Spin};
use super::{Port, later};
use crate::clock::now_ns;
use crate::config::{Progress, Wait};
use crate::engine::Budget;
use crate::error::ErrorCode;
use crate::wait::{Sleeper, Slept};
use polyrail_shm::{Woken, woken_by_this_thread};
use std::time::Duration;

/// Who waits for a poller's bell looks around this often; where nobody else polls when the poller leaves, sooner.
const TICK: Duration = Duration::from_millis(20);
const MANUAL_TICK: Duration = Duration::from_millis(2);
/// A guest looks only whether its node is there still: the longer nothing comes, the more rarely, so many ticks apart at most.
const TICKS_MAX: u32 = 32;
/// Looks of who spins for what comes by shared memory alone, between two at the clock.
const LOOKS: u32 = 16;

/// How long somebody waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Never,
    Within(Duration),
    /// Until then, nanoseconds.
    At(u64),
}

impl Limit {
    /// Until when (nanoseconds): from now on, if nobody has asked before.
    pub(crate) fn until_ns(&mut self) -> Option<u64> {
        if let Limit::Within(_) = self {
            self.begin_at(now_ns());
        }
        if let Limit::At(until_ns) = *self { Some(until_ns) } else { None }
    }

    fn begin_at(&mut self, now_ns: u64) {
        if let Limit::Within(span) = *self {
            *self = Limit::At(later(now_ns, span));
        }
    }
}

impl From<Option<u64>> for Limit {
    fn from(until_ns: Option<u64>) -> Limit {
        until_ns.map_or(Limit::Never, Limit::At)
    }
}

impl From<Option<Duration>> for Limit {
    fn from(span: Option<Duration>) -> Limit {
        span.map_or(Limit::Never, Limit::Within)
    }
}

/// Until when somebody waits (nanoseconds), and what makes it vain.
type Until = (Option<u64>, fn(&Port) -> bool);

impl Port {
    /// Notices if the engine is gone, by a system call; and whoever is gone then, for nobody would say so.
    pub(crate) fn look_around(&self) {
        let Some(tie) = &self.tie else { return };
        tie.look();
        if tie.has_ended() {
            let lost = self.client.borrow_mut().look_for_ends();
            self.failures.borrow_mut().extend(lost.into_iter().map(|first| (first, ErrorCode::NotSent)));
            self.tell_cut_off();
        }
    }

    /// Drives the engine until `done`, by the port's way of waiting; false if time ran out first, or the engine, in another
    /// process, is gone.
    pub(crate) fn wait_until(&self, limit: impl Into<Limit>, done: impl FnMut(&Port) -> bool) -> bool {
        self.wait_by(&mut limit.into(), Port::has_no_engine, done)
    }

    /// The same for what may come past the engine: an engine that is gone does not end it while anybody is there to talk to.
    pub(crate) fn wait_past(&self, limit: impl Into<Limit>, done: impl FnMut(&Port) -> bool) -> bool {
        self.wait_by(&mut limit.into(), Port::is_cut_off, done)
    }

    /// The same, in vain as soon as `is_vain`. The limit is a moment afterwards, if the clock was read.
    pub(crate) fn wait_by(
        &self,
        limit: &mut Limit,
        is_vain: fn(&Port) -> bool,
        mut done: impl FnMut(&Port) -> bool,
    ) -> bool {
        let spin_until = match self.wait.get() {
            Wait::Spin => u64::MAX,
            Wait::Block => 0,
            Wait::Adaptive => return self.wait_patiently(limit, is_vain, done),
        };
        // What is here costs no look at the clock.
        if done(self) || self.tie.is_some() && spin_until == 0 && self.sleep_first(limit, is_vain, &mut done)
        {
            return true;
        }
        let (began_ns, until_ns) = self.begin(limit);
        self.wait_on(spin_until, (began_ns, (until_ns, is_vain)), done).0
    }

    /// A guest that only sleeps is woken by what it waits for, most often: until then it looks at no clock, for which some machines
    /// take microseconds. Whether `done` said yes; what is left of the limit.
    fn sleep_first(
        &self,
        limit: &mut Limit,
        is_vain: fn(&Port) -> bool,
        done: &mut impl FnMut(&Port) -> bool,
    ) -> bool {
        let Limit::Within(span) = *limit else { return false };
        if span.is_zero() || is_vain(self) {
            return false;
        }
        self.turn(0, Budget::BRIEF);
        if done(self) {
            return true;
        }
        let first = span.min(TICK);
        let Some(woken) = self.sleep_at_bell(first, done) else { return true };
        // Who was woken in between does not know after how long.
        *limit = Limit::Within(if woken == Woken::TimedOut { span - first } else { span });
        done(self)
    }

    /// The same, spinning for a while before it sleeps.
    fn wait_patiently(
        &self,
        limit: &mut Limit,
        is_vain: fn(&Port) -> bool,
        mut done: impl FnMut(&Port) -> bool,
    ) -> bool {
        let most_ns = self.shared.config.adaptive_spin.as_nanos() as u64;
        let (began_ns, until_ns) = self.begin(limit);
        let until = (until_ns, is_vain);
        if self.tie.is_none() {
            return done(self) || self.wait_on(began_ns + most_ns, (began_ns, until), done).0;
        }
        self.note_awake();
        let spin_ns = self.patience.borrow_mut().begin(woken_by_this_thread(), most_ns);
        let (is_done, slept) = match done(self) {
            true => (true, false),
            false => self.wait_on(began_ns + spin_ns, (began_ns, until), done),
        };
        if slept || is_done && !self.patience.borrow().is_whole() {
            self.patience.borrow_mut().note(now_ns() - began_ns, most_ns);
        }
        is_done
    }

    /// When a wait begins, and when it is over. A guest that only sleeps needs no clock (0), if it sleeps for as long as it takes.
    fn begin(&self, limit: &mut Limit) -> (u64, Option<u64>) {
        if matches!(limit, Limit::Never) && self.tie.is_some() && self.wait.get() == Wait::Block {
            return (0, None);
        }
        let now_ns = now_ns();
        limit.begin_at(now_ns);
        (now_ns, limit.until_ns())
    }

    /// Goes on waiting when `done` has said no, spinning until `spin_until`, if the clock says `now`; whether `done` said yes, and
    /// whether it slept.
    fn wait_on(
        &self,
        spin_until: u64,
        (mut now, (until_ns, is_vain)): (u64, Until),
        mut done: impl FnMut(&Port) -> bool,
    ) -> (bool, bool) {
        let (mut first, mut slept, mut ticks) = (true, false, 1);
        let mut spin = Spin::default();
        loop {
            let is_over = until_ns.is_some_and(|until| now >= until);
            if (is_over && !first) || is_vain(self) {
                return (false, slept);
            }
            // What `done` has done once must not be done again.
            if is_over || now < spin_until {
                let work = self.turn(now, Budget::USUAL);
                let gives_way = self.awaits_other_engine();
                let patience_ns = if gives_way { 0 } else { PATIENCE_NS };
                let was_long = spin.after(work, (now, patience_ns), &self.shared.host);
                if was_long {
                    self.look_around();
                }
                if self.tie.is_some() && !is_over && !gives_way && self.looks_on(&mut done) {
                    return (true, slept);
                }
            } else if first {
                self.turn(now, Budget::BRIEF);
            } else {
                slept = true;
                if self.sleep((now, until_ns), &mut ticks, &mut done) {
                    return (true, slept);
                }
            }
            if done(self) {
                return (true, slept);
            }
            // A guest's first turn takes no time.
            if now > 0 && !(first && self.tie.is_some()) {
                now = now_ns();
            }
            first = false;
        }
    }

    /// Whether what this port waits for is done by the engine of another process, which may want this very core: the port gives way
    /// at each look then. It would else take that much longer at both ends of a message, on its way there and back.
    #[inline]
    fn awaits_other_engine(&self) -> bool {
        self.tie.is_some() && {
            let client = self.client.borrow();
            client.unconfirmed() > 0 || !client.has_ways()
        }
    }

    /// Looks some times whether something comes past the engine, if this port looks by itself anyway: what it does else while it waits
    /// takes as long as the way of a message does. Whether something came.
    #[inline]
    pub(super) fn look_on(&self) -> bool {
        self.awake.get() && self.client.borrow().hears_directly() && {
            self.looks_on(&mut |port: &Port| port.client.borrow_mut().has_direct())
        }
    }

    /// What is waited for comes by shared memory alone: asks `done` some times more before anything else is looked at, the clock
    /// among it, for each of those takes as long as many looks.
    fn looks_on(&self, done: &mut impl FnMut(&Port) -> bool) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            done(self)
        })
    }

    /// Sleeps until something happens, or for so many ticks, which become more if nothing does; whether `done` was asked and said
    /// yes.
    fn sleep(
        &self,
        (now, until_ns): (u64, Option<u64>),
        ticks: &mut u32,
        done: &mut impl FnMut(&Port) -> bool,
    ) -> bool {
        let left = |tick: Duration| {
            until_ns.map_or(tick, |until| Duration::from_nanos(until.saturating_sub(now)).min(tick))
        };
        let Some(drive) = self.shared.host.own() else {
            let woken =
                self.sleep_at_bell(left(if self.has_no_engine() { TICK } else { TICK * *ticks }), done);
            if woken.is_some_and(|woken| woken != Woken::Rung) {
                *ticks = (*ticks * 2).min(TICKS_MAX);
            }
            return woken.is_none();
        };
        self.note_sleepy();
        self.client.borrow().pair.client_bell.prepare();
        let awake = || {
            self.client.borrow().pair.client_bell.cancel();
        };
        if done(self) {
            awake();
            return true;
        }
        let slept = drive.poll(Sleeper::Port, until_ns, &mut || done(self), &awake);
        if slept != Slept::NoSeat {
            awake();
            drive.left_seat();
            return slept == Slept::Done;
        }
        // The poller may leave its seat without ringing, and not every node has a helper that takes it.
        let is_manual = self.shared.config.progress == Progress::Manual;
        self.client.borrow().pair.client_bell.wait(Some(left(if is_manual { MANUAL_TICK } else { TICK })));
        false
    }

    /// A guest sleeps, but no longer than `most`, and looks then whether its node is there; what woke it. `None`: `done` was asked
    /// and said yes.
    fn sleep_at_bell(&self, most: Duration, done: &mut impl FnMut(&Port) -> bool) -> Option<Woken> {
        self.note_sleepy();
        self.client.borrow().pair.client_bell.prepare();
        if done(self) {
            self.client.borrow().pair.client_bell.cancel();
            return None;
        }
        // What was asked may have handed something in.
        self.turn(0, Budget::BRIEF);
        let woken = self.client.borrow().pair.client_bell.sleep(Some(most));
        if woken != Woken::Rung {
            self.look_around();
        }
        Some(woken)
    }
}
