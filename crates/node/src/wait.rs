//! Who drives the engine of an embedded node, and how its threads wait (ARCHITECTURE.md, "One engine path").
//!
//! A thread with something to do drives the engine itself, if nobody else does at the moment; else it leaves a note, and
//! whoever gives the engine back does what the note is about. A thread that has to sleep becomes the *poller*: it
//! sleeps on the engine's descriptors and drives what wakes it; there is at most one. Further sleepers wait for the doorbells of their queues. A helper thread polls when no thread of the application
//! does, so that acknowledgements and keepalives go on while the application computes; it stands back as soon as
//! it sees that somebody else drives, because waking it costs more than the work it would do.

mod driving;
mod sockets;

use crate::clock::now_ns;
use crate::engine::passing::Passing;
use crate::engine::{Budget, Engine, Work};
use polyrail_shm::sync::{AtomicU64, Ordering, fence};
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::poll::PollSet;
use polyrail_sys::timerfd::TimerFd;
use sockets::DataSockets;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

const TIMER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
const CALL: u64 = u64::MAX - 2;

/// How often the helper looks whether the application still drives.
const HELPER_TICK: Duration = Duration::from_millis(1);
/// The same after so many looks in a row that found that it does: each wakes a core. What comes waits longer for who stops then,
/// once.
const STEADY_TICK: Duration = Duration::from_millis(4);
const STEADY_TICKS: u32 = 64;
/// Ticks after which a helper that saw the application sleep in the poller's seat sleeps for long.
const PATIENT_TICKS: u32 = 3;

/// How often a program that waits on the node's descriptor is woken while a bearer has no room.
const ROOM_TICK_NS: u64 = 500_000;

/// Who sleeps on the descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Sleeper {
    /// A thread that waits for something to come to its port.
    Port = 1,
    /// The helper, or a thread that waits for the node as a whole.
    Other = 2,
}

/// In place of a [`Sleeper`].
const NOBODY: u64 = 0;

/// How a sleep went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slept {
    /// Another thread has the seat: wait at the doorbell.
    NoSeat,
    /// Something happened, or the time is over.
    Over,
    /// There was no need: the caller's question was answered with yes.
    Done,
}

/// Rare events that one wake-up takes notice of; of more, the next does.
const RARE_EVENTS: usize = 16;

/// What the helper does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Rest { patient: bool },
    Poll,
}

/// What the helper saw when it last looked around.
#[derive(Default)]
struct Watch {
    /// Turns and sleeps of others, and seats settled.
    seen: Option<(u64, u64)>,
    /// Looks since, with somebody in the seat and nothing new.
    quiet_ticks: u32,
    /// Looks in a row that found that the application drives, or rests to drive on in a moment, while no other thread of it
    /// waited for that.
    steady_ticks: u32,
}

impl Watch {
    /// Until the next look.
    fn tick(&self) -> Duration {
        if self.steady_ticks >= STEADY_TICKS { STEADY_TICK } else { HELPER_TICK }
    }
}

/// What a sleep ends by.
struct Sleep {
    /// The rare events, then the data sockets.
    set: PollSet,
    /// Those sockets, with the numbers of their bearers.
    data: Vec<(usize, RawFd)>,
    /// Those of them that ended the last sleep.
    ready: Vec<(usize, RawFd)>,
    /// All sockets that did, the far ones among them.
    ended_by: Vec<RawFd>,
    /// The rare events themselves.
    rare: Events,
}

impl Default for Sleep {
    fn default() -> Sleep {
        Sleep {
            set: PollSet::default(),
            data: Vec::new(),
            ready: Vec::new(),
            ended_by: Vec::new(),
            rare: Events::new(RARE_EVENTS),
        }
    }
}

/// The engine with what its drivers share.
pub(crate) struct Drive {
    engine: Mutex<Engine>,
    passing: Arc<Passing>,
    /// So many sleep, or are about to, until they have the engine; the first of them holds `queue` until then.
    askers: AtomicU64,
    queue: Mutex<()>,
    /// 1 when somebody had something to do and found the engine taken.
    missed: AtomicU64,
    /// What is rarely ready: beacons, the timer, calls to wake up, data sockets that have been silent for long. All data
    /// sockets join when a program asks for a descriptor of its own to wait for.
    epoll: Epoll,
    timer: TimerFd,
    wake: EventFd,
    data: Mutex<DataSockets>,
    /// They all have; set by whoever has `data`.
    data_joined: OnceLock<()>,
    sleeper: Mutex<Sleep>,
    /// Who sleeps on the descriptors: see [`Sleeper`].
    polling: AtomicU64,
    /// 1 while the sleeper rests: it drives on in a moment, whatever happens.
    resting: AtomicU64,
    /// When the sleeper wakes by itself at the latest.
    armed_ns: AtomicU64,
    /// What the timer is set to; it may have fired then. Changed by whoever has the engine, or to 0 after it has fired.
    timer_ns: AtomicU64,
    /// 1 when `wake` was signalled.
    woken: AtomicU64,
    /// Bearers whose descriptors are watched for room, one bit each.
    watched: AtomicU64,
    /// Turns and sleeps of application threads.
    turns: AtomicU64,
    /// How often a thread found the seat taken, and sleeps at its doorbell.
    missed_seats: AtomicU64,
    /// How many of those are settled, a doorbell having been rung since: if the helper stood back before that, nobody would
    /// watch. Changed by whoever has the engine.
    settled_seats: AtomicU64,
    /// Processes that may call whoever sleeps on the descriptors.
    callers: AtomicU64,
    stopping: AtomicU64,
    /// Start of the process's fork count, to notice that we are in a child.
    forks: u64,
    patient: Mutex<bool>,
    patience_over: Condvar,
}

impl Drive {
    pub(crate) fn new(engine: Engine) -> io::Result<Drive> {
        let (epoll, timer, wake) = (Epoll::new()?, TimerFd::new()?, EventFd::new()?);
        let data = Mutex::new(DataSockets::of(&engine, &epoll)?);
        epoll.add(timer.as_raw_fd(), TIMER, Interest::READ)?;
        epoll.add(wake.as_raw_fd(), WAKE, Interest::READ)?;
        Ok(Drive {
            passing: engine.passing(),
            engine: Mutex::new(engine),
            askers: AtomicU64::new(0),
            queue: Mutex::new(()),
            missed: AtomicU64::new(0),
            epoll,
            timer,
            wake,
            data,
            data_joined: OnceLock::new(),
            sleeper: Mutex::default(),
            polling: AtomicU64::new(NOBODY),
            resting: AtomicU64::new(0),
            armed_ns: AtomicU64::new(u64::MAX),
            timer_ns: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            missed_seats: AtomicU64::new(0),
            settled_seats: AtomicU64::new(0),
            callers: AtomicU64::new(0),
            stopping: AtomicU64::new(0),
            forks: polyrail_sys::process::fork_count(),
            patient: Mutex::new(false),
            patience_over: Condvar::new(),
        })
    }

    /// Whether this is a child of the process that started the node.
    pub(crate) fn is_forked(&self) -> bool {
        polyrail_sys::process::fork_count() != self.forks
    }

    /// What passes.
    pub(crate) fn passing(&self) -> &Passing {
        &self.passing
    }

    /// The descriptor that becomes readable when the engine has something to do: from now on each turn that nobody
    /// sleeps after leaves it so that a program may sleep on it.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        if !self.has_joined() {
            let data = self.data();
            data.join(&self.epoll)?;
            let _ = self.data_joined.set(());
            drop(data);
            // The program may sleep before it has driven once: let it drive.
            self.wake();
        }
        Ok(self.epoll.as_raw_fd())
    }

    fn data(&self) -> MutexGuard<'_, DataSockets> {
        self.data.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether a program waits on the descriptor.
    fn has_joined(&self) -> bool {
        self.data_joined.get().is_some()
    }

    /// Takes notice of sockets that came and went; whether there were any.
    fn refresh(&self, engine: &Engine) -> bool {
        let mut data = self.data();
        data.refresh(engine, &self.epoll, self.has_joined())
    }

    fn turn(&self, mut engine: MutexGuard<'_, Engine>, now_ns: u64, budget: Budget) -> Work {
        let work = self.settling(|| engine.turn(now_ns, budget));
        self.note_use();
        // A sleeping poller must learn of a deadline that is earlier than the one it sleeps for.
        let polling = self.polling.load(Ordering::Relaxed);
        if polling != NOBODY {
            self.arm(&engine, work, now_ns);
            // A doorbell does not wake who sleeps on descriptors.
            if work.rang && polling == Sleeper::Port as u64 {
                self.wake();
            }
        } else if self.has_joined() {
            self.hand_over(&mut engine, work, now_ns);
        }
        work
    }

    /// Leaves the descriptor as a program needs it that sleeps on it: with the timer at the next deadline, and readable
    /// no longer for what has been heard.
    fn hand_over(&self, engine: &mut Engine, work: Work, now_ns: u64) {
        self.refresh(engine);
        let room_at = if work.blocked { now_ns + ROOM_TICK_NS } else { u64::MAX };
        let at = work.next_deadline_ns.unwrap_or(u64::MAX).min(room_at).max(1);
        if self.timer_ns.swap(at, Ordering::Relaxed) != at {
            let _ = if at == u64::MAX { self.timer.disarm() } else { self.timer.set(at) };
        }
        if self.woken.swap(0, Ordering::AcqRel) == 1 {
            self.wake.clear();
        }
        if engine.await_nodes() {
            self.wake();
        }
    }

    /// Sleeps until something happens, and handles it; at most until `until_ns`. Asks `done` once more before: what the
    /// caller waits for may have been done by others. A port's thread has to announce itself at its doorbell first, and
    /// withdraws that by `awake`, or it would be rung for what it is told by its own turn.
    pub(crate) fn poll(
        &self,
        who: Sleeper,
        until_ns: Option<u64>,
        done: &mut dyn FnMut() -> bool,
        awake: &dyn Fn(),
    ) -> Slept {
        if !self.take_seat(who) {
            return Slept::NoSeat;
        }
        if who == Sleeper::Port {
            // Else the helper would take the seat in the moments between two sleeps.
            self.note_use();
        }
        let mut sleep = self.sleeper.lock().unwrap_or_else(|e| e.into_inner());
        let (work, rest_ns, called) = {
            let mut engine = self.lock_to_drive();
            let now_ns = now_ns();
            let work = self.settling(|| engine.turn(now_ns, Budget::SLEEPY));
            self.refresh(&engine);
            if self.has_joined() {
                self.hand_over(&mut engine, work, now_ns);
            }
            let until_ns = until_ns.unwrap_or(u64::MAX);
            // Nobody in another process could end a rest.
            let rest_ns = if self.has_callers() { 0 } else { engine.rest_ns(now_ns) };
            let rest_ns = rest_ns.min(until_ns.saturating_sub(now_ns));
            self.prepare(&engine, &mut sleep, rest_ns > 0, work);
            if rest_ns == 0 {
                self.set_timer_by(now_ns, until_ns.min(work.next_deadline_ns.unwrap_or(u64::MAX)));
            }
            (work, rest_ns, engine.await_calls())
        };
        // Fence `seat.bell`, sleeper's end: either whoever tells us something sees us in the seat, or we see it now. (The
        // other end is the doorbell's own fence.)
        fence(Ordering::SeqCst);
        let is_done = done();
        // Handing over may have taken the call to end for one that was answered by the turn.
        let ends = who == Sleeper::Other && self.is_stopping();
        if !is_done && !ends && !called && work.drained && work.done == 0 && !self.has_missed() {
            let rare = if rest_ns > 0 {
                self.rest_and_look(&mut sleep, rest_ns)
            } else {
                self.sleep(&mut sleep, None)
            };
            awake();
            let mut engine = self.lock_to_drive();
            engine.attend_calls();
            let now_ns = now_ns();
            let work = self.settling(|| match rare {
                true => engine.turn(now_ns, Budget::THOROUGH),
                false if rest_ns > 0 => engine.rested(now_ns, &sleep.ready),
                false => engine.woken(now_ns, &sleep.ready),
            });
            if self.has_joined() {
                self.hand_over(&mut engine, work, now_ns);
            }
        }
        self.polling.store(NOBODY, Ordering::Release);
        self.catch_up();
        if is_done { Slept::Done } else { Slept::Over }
    }

    fn take_seat(&self, who: Sleeper) -> bool {
        let take =
            || self.polling.compare_exchange(NOBODY, who as u64, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        take() || {
            self.missed_seats.fetch_add(1, Ordering::Relaxed);
            // Fence `seat.wanted`, sleeper's end: either the helper sees that the seat is wanted after it has left it, or we
            // find it free now.
            fence(Ordering::SeqCst);
            take()
        }
    }

    /// Whether a thread sleeps at its doorbell because the seat was taken.
    fn is_wanted(&self) -> bool {
        // Fence `seat.wanted`, the helper's end.
        fence(Ordering::SeqCst);
        self.missed_seats.load(Ordering::Relaxed) != self.settled_seats.load(Ordering::Relaxed)
    }

    /// Makes a turn of the engine, which the caller has. Whoever it rings will be back, and take the seat if it is free; not
    /// counted are those who find the seat taken while it lasts: they may have been rung before.
    fn settling(&self, turn: impl FnOnce() -> Work) -> Work {
        let missed = self.missed_seats.load(Ordering::Relaxed);
        let work = turn();
        if work.rang {
            self.settled_seats.store(missed, Ordering::Relaxed);
        }
        work
    }

    /// An application's thread is at work.
    fn note_use(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Leaves word for others of what the sleep does not end by, and lists what it ends by. A rest ends in a moment: nobody need
    /// call because of deadlines or room.
    fn prepare(&self, engine: &Engine, sleep: &mut Sleep, is_rest: bool, work: Work) {
        self.resting.store(is_rest as u64, Ordering::Relaxed);
        // Whoever drives while we sleep, and finds an earlier deadline, sets the timer.
        let armed_ns = if is_rest { 0 } else { work.next_deadline_ns.unwrap_or(u64::MAX) };
        self.armed_ns.store(armed_ns, Ordering::Relaxed);
        self.watched.store(if is_rest { u64::MAX } else { blocked_bits(engine) }, Ordering::Relaxed);
        let full: Vec<RawFd> = if is_rest { Vec::new() } else { engine.full_fds().collect() };
        self.watch(&full, sleep);
    }

    /// Lists what ends a sleep: the rare events first.
    fn watch(&self, full: &[RawFd], sleep: &mut Sleep) {
        let mut data = self.data();
        data.note_sleep(&self.epoll, &sleep.ended_by, self.has_joined());
        sleep.ended_by.clear();
        sleep.data.clear();
        sleep.set.clear();
        sleep.set.add(self.epoll.as_raw_fd(), false);
        for (bearer, fd, room) in data.near(full) {
            sleep.data.push((bearer, fd));
            sleep.set.add(fd, room);
        }
    }

    /// Sleeps for `rest_ns`, or until somebody calls, and looks who is ready; whether that is, among others, a rare event.
    fn rest_and_look(&self, sleep: &mut Sleep, rest_ns: u64) -> bool {
        let mut call = PollSet::default();
        call.add(self.wake.as_raw_fd(), false);
        let _ = call.wait(Some(rest_ns));
        self.sleep(sleep, Some(0))
    }

    /// Sleeps; whether it ended, among others, by one of the rare events.
    fn sleep(&self, sleep: &mut Sleep, timeout_ns: Option<u64>) -> bool {
        let Sleep { set, data, ready, ended_by, rare } = sleep;
        // An interrupted sleep is as good as an ended one.
        let _ = set.wait(timeout_ns);
        let is_rare = set.is_ready(0);
        let sockets = data.iter().enumerate();
        ready.clear();
        ready.extend(sockets.filter(|(at, _)| set.is_ready(at + 1)).map(|(_, socket)| *socket));
        ended_by.extend(ready.iter().map(|(_, fd)| *fd));
        is_rare && self.clear_rare(rare, ended_by)
    }

    /// Takes notice of the timer and of calls to wake up; `far` gets the sockets that have something. Whether there was more than
    /// calls of other processes, for which an ordinary turn will do.
    fn clear_rare(&self, events: &mut Events, far: &mut Vec<RawFd>) -> bool {
        let _ = self.epoll.wait(events, Some(0));
        for event in events.iter() {
            match event.token {
                CALL => {}
                TIMER => {
                    self.timer_ns.store(0, Ordering::Relaxed);
                    self.timer.clear();
                }
                WAKE => {
                    self.woken.store(0, Ordering::Relaxed);
                    self.wake.clear();
                }
                token => far.extend(sockets::socket_of(token)),
            }
        }
        events.iter().any(|event| event.token != CALL)
    }

    /// Lets another process call whoever sleeps on the descriptors, by the event counter `fd`. It is never read, for that one
    /// could make us wait there.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn add_caller(&self, fd: RawFd) -> io::Result<()> {
        self.epoll.add(fd, CALL, Interest::NEWS)?;
        self.callers.fetch_add(1, Ordering::Relaxed);
        // The helper is to be there for it.
        self.left_seat();
        Ok(())
    }

    /// The process is gone. (The kernel keeps what it has a descriptor of.)
    pub(crate) fn remove_caller(&self, fd: RawFd) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
        let _ = self.epoll.remove(fd);
    }

    fn has_callers(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 0
    }

    /// Has the timer end a sleep at `at_ns` or before. One that is set to an earlier moment is left so: a sleep that it ends
    /// for nothing costs less than to set it anew for each, as deadlines move on with each message.
    fn set_timer_by(&self, now_ns: u64, at_ns: u64) {
        let set_ns = self.timer_ns.load(Ordering::Relaxed);
        if at_ns != u64::MAX && !(now_ns..=at_ns).contains(&set_ns) {
            self.timer_ns.store(at_ns, Ordering::Relaxed);
            let _ = self.timer.set(at_ns.max(1));
        }
    }

    /// Tells a sleeping poller what has changed: a deadline that is earlier, a bearer whose room it should watch for.
    fn arm(&self, engine: &Engine, work: Work, now_ns: u64) {
        let at = work.next_deadline_ns.unwrap_or(u64::MAX);
        if at < self.armed_ns.load(Ordering::Relaxed) {
            self.armed_ns.store(at, Ordering::Relaxed);
            if (1..now_ns).contains(&self.timer_ns.load(Ordering::Relaxed)) {
                // It has fired, and whoever is about to wake for it would not, were it set anew.
                self.wake();
            } else {
                self.set_timer_by(now_ns, at);
            }
        }
        let wanted = blocked_bits(engine);
        let unwatched = wanted & !self.watched.load(Ordering::Relaxed) != 0;
        self.watched.store(wanted, Ordering::Relaxed);
        if self.refresh(engine) || unwatched {
            self.wake();
        }
    }

    /// Wakes whoever sleeps on the descriptors.
    pub(crate) fn wake(&self) {
        self.wake.signal();
        // In this order: a signal without the note would never be cleared by a program that waits on its own.
        self.woken.store(1, Ordering::Release);
    }

    /// An application thread leaves the poller's seat: a helper that sleeps for long must watch again.
    pub(crate) fn left_seat(&self) {
        let mut patient = self.patient.lock().unwrap_or_else(|e| e.into_inner());
        if *patient {
            *patient = false;
            self.patience_over.notify_one();
        }
    }

    /// The helper thread's life. While other processes may call, it spins for `spin_ns` behind the last that it did before it sleeps:
    /// not while nothing but large messages passes, for those wait for links and not for it.
    pub(crate) fn help(&self, spin_ns: u64) {
        let mut watch = Watch::default();
        while !self.is_stopping() {
            match self.next_of_helper(&mut watch) {
                Next::Rest { patient } => self.rest(patient, watch.tick()),
                Next::Poll if self.poll(Sleeper::Other, None, &mut || false, &|| ()) == Slept::NoSeat => {
                    self.rest(false, HELPER_TICK);
                }
                Next::Poll if self.is_to_spin(spin_ns) => self.drive_on(spin_ns),
                Next::Poll => {}
            }
        }
    }

    fn is_to_spin(&self, spin_ns: u64) -> bool {
        let is_worth_it = spin_ns == u64::MAX || spin_ns > 0 && !self.passing.is_calm();
        is_worth_it && self.has_callers()
    }

    /// Drives while other processes may call, until it did nothing for `spin_ns` or somebody else sleeps on the descriptors. Nobody
    /// need call meanwhile. Whoever else wants the core gets it at each look.
    fn drive_on(&self, spin_ns: u64) {
        {
            let mut engine = self.engine();
            // Who takes the seat from here on has them ring again before it sleeps.
            if self.polling.load(Ordering::Relaxed) != NOBODY {
                return;
            }
            engine.attend_calls();
        }
        let mut useful_ns = now_ns();
        while self.polling.load(Ordering::Relaxed) == NOBODY && self.has_callers() && !self.is_stopping() {
            let now_ns = now_ns();
            if self.turn_at(now_ns, Budget::USUAL).is_some_and(|work| work.done > 0) {
                useful_ns = now_ns;
            } else if now_ns - useful_ns >= spin_ns {
                return;
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// The helper stands back for whoever drives or sleeps in the seat, and for whoever it has rung: that one would else find
    /// the seat taken, and have to be rung again for each message.
    fn next_of_helper(&self, watch: &mut Watch) -> Next {
        let now = (self.turns.load(Ordering::Relaxed), self.settled_seats.load(Ordering::Relaxed));
        let moved = watch.seen.replace(now) != Some(now);
        let wanted = self.is_wanted();
        let seated = self.polling.load(Ordering::Relaxed) != NOBODY;
        let rests = seated && self.resting.load(Ordering::Relaxed) == 1;
        let steady = (moved || rests) && !wanted;
        watch.steady_ticks = if steady { watch.steady_ticks.saturating_add(1) } else { 0 };
        if seated {
            watch.quiet_ticks = if moved { 0 } else { watch.quiet_ticks + 1 };
            Next::Rest { patient: watch.quiet_ticks >= PATIENT_TICKS }
        } else if moved && !wanted && !self.has_callers() {
            watch.quiet_ticks = 0;
            Next::Rest { patient: false }
        } else {
            Next::Poll
        }
    }

    /// The helper's rest: a tick, or, if it has the patience, until an application thread gives the poller's seat up.
    fn rest(&self, patient: bool, tick: Duration) {
        let mut flag = self.patient.lock().unwrap_or_else(|e| e.into_inner());
        *flag = patient;
        let long = if patient { Duration::from_secs(2) } else { tick };
        let wait = self.patience_over.wait_timeout(flag, long);
        *wait.unwrap_or_else(|e| e.into_inner()).0 = false;
    }

    /// Whether the node is going down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) != 0
    }

    /// Ends the helper's life.
    pub(crate) fn stop(&self) {
        self.stopping.store(1, Ordering::Relaxed);
        self.left_seat();
        self.wake();
    }
}

/// The bearers without room, one bit each.
fn blocked_bits(engine: &Engine) -> u64 {
    engine.blocked().fold(0, |bits, (index, blocked)| bits | (blocked as u64) << index)
}

#[cfg(test)]
mod tests;
