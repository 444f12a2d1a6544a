//! Who drives the engine of an embedded node, and how its threads wait (ARCHITECTURE.md, "One engine path").
//!
//! A thread with something to do drives the engine itself, if nobody else does at the moment. A thread that has to
//! sleep becomes the *poller*: it sleeps on the engine's descriptors and drives what wakes it; there is at most one.
//! Further sleepers wait for the doorbells of their queues. A helper thread polls when no thread of the application
//! does, so that acknowledgements and keepalives go on while the application computes; it stands back as soon as
//! it sees that somebody else drives, because waking it costs more than the work it would do.

use crate::clock::now_ns;
use crate::engine::{Budget, Engine, Work};
use polyrail_shm::sync::{AtomicU64, Ordering};
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::poll::PollSet;
use polyrail_sys::timerfd::TimerFd;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::Duration;

const TIMER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// How often the helper looks whether the application still drives.
const HELPER_TICK: Duration = Duration::from_millis(1);
/// Ticks after which a helper that saw the application sleep in the poller's seat sleeps for long.
const PATIENT_TICKS: u32 = 3;

/// The engine with what its drivers share.
pub(crate) struct Drive {
    engine: Mutex<Engine>,
    /// What is rarely ready: beacons, the timer, calls to wake up. The data sockets join when a program asks for a
    /// descriptor of its own to wait for; until then they are registered only while somebody sleeps.
    epoll: Epoll,
    timer: TimerFd,
    wake: EventFd,
    data: Vec<(usize, RawFd)>,
    data_joined: OnceLock<()>,
    sleeper: Mutex<PollSet>,
    /// 1 while somebody sleeps on the descriptors.
    polling: AtomicU64,
    /// Deadline that the timer is set to.
    armed_ns: AtomicU64,
    /// Bearers whose descriptors are watched for room, one bit each.
    watched: AtomicU64,
    /// Turns driven by application threads.
    turns: AtomicU64,
    stopping: AtomicU64,
    /// Start of the process's fork count, to notice that we are in a child.
    forks: u64,
    patient: Mutex<bool>,
    patience_over: Condvar,
}

impl Drive {
    pub(crate) fn new(engine: Engine) -> io::Result<Drive> {
        let (epoll, timer, wake) = (Epoll::new()?, TimerFd::new()?, EventFd::new()?);
        let mut data = Vec::new();
        for (index, fds) in engine.fds() {
            let Some((first, rest)) = fds.split_first() else { continue };
            data.push((index, *first));
            for fd in rest {
                epoll.add(*fd, index as u64, Interest::READ)?;
            }
        }
        epoll.add(timer.as_raw_fd(), TIMER, Interest::READ)?;
        epoll.add(wake.as_raw_fd(), WAKE, Interest::READ)?;
        Ok(Drive {
            engine: Mutex::new(engine),
            epoll,
            timer,
            wake,
            data,
            data_joined: OnceLock::new(),
            sleeper: Mutex::default(),
            polling: AtomicU64::new(0),
            armed_ns: AtomicU64::new(u64::MAX),
            watched: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            stopping: AtomicU64::new(0),
            forks: polyrail_sys::process::fork_count(),
            patient: Mutex::new(false),
            patience_over: Condvar::new(),
        })
    }

    /// The engine, waiting for whoever drives it now (microseconds).
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The engine if nobody drives it now.
    pub(crate) fn idle_engine(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether this is a child of the process that started the node.
    pub(crate) fn is_forked(&self) -> bool {
        polyrail_sys::process::fork_count() != self.forks
    }

    /// The descriptor that becomes readable when the engine has something to do.
    pub(crate) fn fd(&self) -> RawFd {
        self.data_joined.get_or_init(|| {
            for &(index, fd) in &self.data {
                // It cannot fail but for want of kernel memory; then the timer wakes the program often enough.
                let _ = self.epoll.add(fd, index as u64, Interest::READ);
            }
        });
        self.epoll.as_raw_fd()
    }

    /// One turn by the calling thread, if nobody else is at it: then that one does our work too, or leaves it to
    /// our next call.
    pub(crate) fn inline(&self) -> Option<Work> {
        self.inline_at(now_ns())
    }

    /// Like `inline`, for a caller that has just read the clock.
    pub(crate) fn inline_at(&self, now_ns: u64) -> Option<Work> {
        self.drive(now_ns, Budget::USUAL)
    }

    /// Like `inline_at`, for a thread that has handed a message in and will be back.
    pub(crate) fn send(&self, now_ns: u64) -> Option<Work> {
        self.drive(now_ns, Budget::SENDING)
    }

    fn drive(&self, now_ns: u64, budget: Budget) -> Option<Work> {
        let mut engine = self.idle_engine()?;
        let work = engine.turn(now_ns, budget);
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // A sleeping poller must learn of a deadline that is earlier than the one it sleeps for.
        if self.polling.load(Ordering::Relaxed) == 1 {
            self.arm(&engine, work);
        }
        Some(work)
    }

    /// Sleeps until something happens, and handles it; at most until `until_ns`. False: another thread polls, and
    /// the caller has to wait for its own doorbell.
    pub(crate) fn poll(&self, until_ns: Option<u64>) -> bool {
        if self.polling.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let (work, until_ns) = {
            let mut engine = self.engine();
            let work = engine.turn(now_ns(), Budget::THOROUGH);
            let deadline_ns = work.next_deadline_ns.unwrap_or(u64::MAX);
            // Whoever drives while we sleep, and finds an earlier deadline, sets the timer.
            self.armed_ns.store(deadline_ns, Ordering::Relaxed);
            self.watched.store(blocked_bits(&engine), Ordering::Relaxed);
            (work, until_ns.unwrap_or(u64::MAX).min(deadline_ns))
        };
        if work.drained && work.done == 0 {
            self.sleep(until_ns);
            let mut engine = self.engine();
            engine.turn(now_ns(), Budget::THOROUGH);
        }
        self.polling.store(0, Ordering::Release);
        true
    }

    fn sleep(&self, until_ns: u64) {
        let timeout_ns = (until_ns != u64::MAX).then(|| until_ns.saturating_sub(now_ns()));
        if timeout_ns == Some(0) {
            return;
        }
        let mut set = self.sleeper.lock().unwrap_or_else(|e| e.into_inner());
        set.clear();
        let rare = set.add(self.epoll.as_raw_fd(), false);
        let watched = self.watched.load(Ordering::Relaxed);
        for &(index, fd) in &self.data {
            set.add(fd, watched >> index & 1 == 1);
        }
        // An interrupted sleep is as good as an ended one.
        let _ = set.wait(timeout_ns);
        if set.is_ready(rare) {
            self.clear_rare();
        }
    }

    /// Takes notice of the timer and of calls to wake up.
    fn clear_rare(&self) {
        let mut events = Events::new(16);
        let _ = self.epoll.wait(&mut events, Some(0));
        for event in events.iter() {
            match event.token {
                TIMER => drop(self.timer.clear()),
                WAKE => drop(self.wake.clear()),
                _ => {}
            }
        }
    }

    /// Tells a sleeping poller what has changed: a deadline that is earlier, a bearer whose room it should watch for.
    fn arm(&self, engine: &Engine, work: Work) {
        let at = work.next_deadline_ns.unwrap_or(u64::MAX);
        if at < self.armed_ns.load(Ordering::Relaxed) {
            self.armed_ns.store(at, Ordering::Relaxed);
            let _ = self.timer.set(at.max(1));
        }
        let wanted = blocked_bits(engine);
        if wanted & !self.watched.load(Ordering::Relaxed) != 0 {
            self.watched.store(wanted, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Wakes whoever sleeps on the descriptors.
    pub(crate) fn wake(&self) {
        self.wake.signal();
    }

    /// An application thread leaves the poller's seat: a helper that sleeps for long must watch again.
    pub(crate) fn left_seat(&self) {
        let mut patient = self.patient.lock().unwrap_or_else(|e| e.into_inner());
        if *patient {
            *patient = false;
            self.patience_over.notify_one();
        }
    }

    /// The helper thread's life.
    pub(crate) fn help(&self) {
        let (mut seen, mut quiet_ticks) = (u64::MAX, 0);
        while self.stopping.load(Ordering::Relaxed) == 0 {
            let turns = self.turns.load(Ordering::Relaxed);
            if self.polling.load(Ordering::Relaxed) == 1 {
                quiet_ticks = if turns == seen { quiet_ticks + 1 } else { 0 };
                seen = turns;
                self.rest(quiet_ticks >= PATIENT_TICKS);
            } else if turns != seen {
                (seen, quiet_ticks) = (turns, 0);
                self.rest(false);
            } else if !self.poll(None) {
                self.rest(false);
            }
        }
    }

    /// The helper's rest: a tick, or until an application thread gives the poller's seat up.
    fn rest(&self, patient: bool) {
        let mut flag = self.patient.lock().unwrap_or_else(|e| e.into_inner());
        *flag = patient;
        let long = if patient { Duration::from_secs(2) } else { HELPER_TICK };
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
