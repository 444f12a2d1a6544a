//! How a port waits: it spins, sleeps, or spins a little and then sleeps, until something is so.

use super::Port;
use super::spin::{PATIENCE_NS, Spin};
use crate::clock::now_ns;
use crate::config::{Progress, Wait};
use crate::engine::Budget;
use crate::error::ErrorCode;
use crate::wait::{Sleeper, Slept};
use polyrail_shm::woken_by_this_thread;
use std::time::Duration;

/// Who waits for a poller's bell looks around this often; where nobody else polls when the poller leaves, sooner.
const TICK: Duration = Duration::from_millis(20);
const MANUAL_TICK: Duration = Duration::from_millis(2);
/// A guest looks only whether its node is there still: the longer nothing comes, the more rarely, so many ticks apart at most.
const TICKS_MAX: u32 = 32;
/// Looks of who spins for what comes by shared memory alone, between two at the clock.
const LOOKS: u32 = 16;

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
    pub(crate) fn wait_until(&self, until_ns: Option<u64>, done: impl FnMut(&Port) -> bool) -> bool {
        self.wait_by(None, (until_ns, Port::has_no_engine), done)
    }

    /// The same for what may come past the engine: an engine that is gone does not end it while anybody is there to talk to.
    pub(crate) fn wait_past(&self, until_ns: Option<u64>, done: impl FnMut(&Port) -> bool) -> bool {
        self.wait_by(None, (until_ns, Port::is_cut_off), done)
    }

    /// The same for who has read the clock already, if that says `now_ns`: on some machines it takes microseconds.
    pub(crate) fn wait_past_from(
        &self,
        now_ns: Option<u64>,
        until_ns: Option<u64>,
        done: impl FnMut(&Port) -> bool,
    ) -> bool {
        self.wait_by(now_ns, (until_ns, Port::is_cut_off), done)
    }

    /// `began_ns`: what the clock says, if that is known.
    fn wait_by(&self, began_ns: Option<u64>, until: Until, done: impl FnMut(&Port) -> bool) -> bool {
        let needs_clock = self.tie.is_none() || self.wait.get() != Wait::Block || until.0.is_some();
        let began_ns = if needs_clock { began_ns.unwrap_or_else(now_ns) } else { 0 };
        match self.wait.get() {
            Wait::Spin => self.wait_spinning(u64::MAX, (began_ns, until), done).0,
            Wait::Block => self.wait_spinning(0, (began_ns, until), done).0,
            Wait::Adaptive => {
                let most_ns = self.shared.config.adaptive_spin.as_nanos() as u64;
                if self.tie.is_none() {
                    return self.wait_spinning(began_ns + most_ns, (began_ns, until), done).0;
                }
                self.note_awake();
                let spin_ns = self.patience.borrow_mut().begin(woken_by_this_thread(), most_ns);
                let (is_done, slept) = self.wait_spinning(began_ns + spin_ns, (began_ns, until), done);
                if slept || is_done && !self.patience.borrow().is_whole() {
                    self.patience.borrow_mut().note(now_ns() - began_ns, most_ns);
                }
                is_done
            }
        }
    }

    /// The same, spinning until `spin_until`, if the clock says `now`; whether `done` said yes, and whether it slept. A guest that only
    /// sleeps, for as long as it takes, needs no clock (0).
    fn wait_spinning(
        &self,
        spin_until: u64,
        (mut now, (until_ns, is_vain)): (u64, Until),
        mut done: impl FnMut(&Port) -> bool,
    ) -> (bool, bool) {
        let (mut first, mut slept, mut ticks) = (true, false, 1);
        let mut spin = Spin::default();
        loop {
            if done(self) {
                return (true, slept);
            }
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
        self.note_sleepy();
        self.client.borrow().pair.client_bell.prepare();
        if done(self) {
            self.client.borrow().pair.client_bell.cancel();
            return true;
        }
        let awake = || {
            self.client.borrow().pair.client_bell.cancel();
        };
        if let Some(drive) = self.shared.host.own() {
            let slept = drive.poll(Sleeper::Port, until_ns, &mut || done(self), &awake);
            if slept != Slept::NoSeat {
                awake();
                drive.left_seat();
                return slept == Slept::Done;
            }
        } else {
            // What was asked may have handed something in.
            self.turn(0, Budget::BRIEF);
        }
        // The poller may leave its seat without ringing, and not every node has a helper that takes it.
        let tick = match (&self.tie, self.shared.config.progress) {
            (Some(tie), _) if !tie.has_ended() => TICK * *ticks,
            (Some(_), _) => TICK,
            (None, Progress::Manual) => MANUAL_TICK,
            (None, _) => TICK,
        };
        let left = until_ns.map_or(tick, |until| Duration::from_nanos(until.saturating_sub(now)).min(tick));
        let rang = self.client.borrow().pair.client_bell.wait(Some(left));
        if !rang {
            self.look_around();
            *ticks = (*ticks * 2).min(TICKS_MAX);
        }
        false
    }
}
