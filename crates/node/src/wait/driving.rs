//! One thread at a time drives the engine; whoever comes meanwhile leaves a note and goes on with its own work.
//!
//! The note is 1 in `missed`. Whoever gives the engine back looks for it afterwards, and whoever has left it tries once
//! more to get the engine: of two who meet, at least one sees the other.

use super::Drive;
use crate::clock::now_ns;
use crate::engine::{Budget, Engine, Work};
use polyrail_shm::sync::{Ordering, fence};
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, TryLockError};

/// Turns that a thread makes for others that came while it drove.
pub(super) const CATCH_UPS_MAX: u32 = 16;

impl Drive {
    /// The engine, waiting for whoever drives it now (microseconds). Whoever would drive it next waits for us.
    pub(crate) fn engine(&self) -> EngineGuard<'_> {
        self.askers.fetch_add(1, Ordering::Relaxed);
        let queue = self.queue.lock().unwrap_or_else(|e| e.into_inner());
        let engine = self.lock();
        self.askers.fetch_sub(1, Ordering::Relaxed);
        drop(queue);
        EngineGuard { drive: self, engine: Some(engine) }
    }

    /// A thread that drives without end gives the engine back and takes it again before anybody who sleeps for it has woken,
    /// who would get it seconds later on a busy machine.
    fn give_way(&self) {
        if self.askers.load(Ordering::Relaxed) > 0 {
            // Who asks holds this until the engine is its own.
            drop(self.queue.lock().unwrap_or_else(|e| e.into_inner()));
        }
    }

    /// The engine, for who is about to make turns.
    pub(super) fn lock_to_drive(&self) -> MutexGuard<'_, Engine> {
        self.give_way();
        self.lock()
    }

    /// The engine if nobody drives it now.
    pub(crate) fn idle_engine(&self) -> Option<EngineGuard<'_>> {
        self.try_lock().map(|engine| EngineGuard { drive: self, engine: Some(engine) })
    }

    /// One turn by the calling thread, if nobody else is at it: then that one does our work too.
    pub(crate) fn inline(&self) -> Option<Work> {
        self.turn_at(now_ns(), Budget::USUAL)
    }

    /// Has bearers come or go. What `change` gives back may be closed: nobody sleeps by its descriptors any more, but for one
    /// who is about to wake.
    pub(crate) fn change_bearers<R>(&self, change: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = self.engine();
        let result = change(&mut engine);
        self.refresh(&engine);
        drop(engine);
        // What a closed bearer carried goes by others now.
        self.inline();
        self.wake();
        result
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Like `inline`, for a caller that has just read the clock and knows what he wants.
    pub(crate) fn turn_at(&self, now_ns: u64, budget: Budget) -> Option<Work> {
        self.give_way();
        let work = self.turn(self.lock_or_note()?, now_ns, budget);
        self.catch_up();
        Some(work)
    }

    /// The engine, or a note to whoever has it that there is more to do.
    fn lock_or_note(&self) -> Option<MutexGuard<'_, Engine>> {
        self.try_lock().or_else(|| {
            self.missed.store(1, Ordering::Relaxed);
            // Fence `engine.note`, finder's end: either that one sees the note after it has given the engine back, or
            // we find the engine free now.
            fence(Ordering::SeqCst);
            self.try_lock()
        })
    }

    /// Does what others found no engine for while we had it. Whoever gives the engine back calls this.
    pub(super) fn catch_up(&self) {
        for _ in 0..CATCH_UPS_MAX {
            if !self.has_missed() {
                return;
            }
            // Whoever has it now looks after us.
            let Some(engine) = self.try_lock() else { return };
            self.missed.store(0, Ordering::Relaxed);
            self.turn(engine, now_ns(), Budget::USUAL);
        }
        // Others come faster than we can serve them: one of them, or whoever sleeps, has to go on.
        self.wake();
    }

    pub(super) fn has_missed(&self) -> bool {
        // Fence `engine.note`, the other end: the engine is given back before the note is looked for.
        fence(Ordering::SeqCst);
        self.missed.load(Ordering::Relaxed) == 1
    }
}

/// The engine in the hands of somebody who does not drive it. What others miss meanwhile is done when it is given back.
pub(crate) struct EngineGuard<'a> {
    drive: &'a Drive,
    engine: Option<MutexGuard<'a, Engine>>,
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        self.engine.as_ref().expect("kept until it is dropped")
    }
}

impl DerefMut for EngineGuard<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("kept until it is dropped")
    }
}

impl Drop for EngineGuard<'_> {
    fn drop(&mut self) {
        self.engine = None;
        self.drive.catch_up();
    }
}
