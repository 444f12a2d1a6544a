//! Waking a consumer that sleeps, at no cost while it is awake.
//!
//! The consumer says that it will sleep, looks once more whether there is work, and sleeps. The producer publishes work,
//! looks whether the consumer sleeps, and wakes it. Between the store and the look each side has a SeqCst fence, so at
//! least one of them sees the other: either the work or the sleeper. Without both fences a wake-up can be lost for good.
//!
//! ```text
//! consumer: prepare()  [sleeping = 1; fence]  re-check  wait() or cancel()
//! producer: publish    ring() [fence; sleeping == 1? exchange to 0 and wake]
//! ```
//!
//! The flag is the one word that both sides write. A hostile producer can make the consumer wake in vain or, by never
//! ringing, sleep until its own time limit; so an engine always waits with a limit.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::segment::Segment;
use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::fence;
use crate::words::Words;

const SLEEPING: usize = 0;

/// Bytes that a doorbell takes in a segment: a line of its own, because a running producer reads it all the time.
pub const DOORBELL_BYTES: u64 = 64;

thread_local! {
    static WOKEN: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has woken somebody by a doorbell.
pub fn woken_by_this_thread() -> u64 {
    WOKEN.get()
}

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The bell rang.
    Rung,
    /// It has lasted as long as it was to.
    TimedOut,
    /// Neither: a signal, or somebody who came late.
    Early,
}

/// One direction's doorbell; the consumer waits, any number of producers ring.
#[derive(Clone, Debug)]
pub struct Doorbell {
    words: Words,
}

impl Doorbell {
    /// The doorbell at `offset` (a multiple of 8); `None` when it is not inside the segment.
    pub fn new(segment: &Arc<Segment>, offset: u64) -> Option<Doorbell> {
        Some(Doorbell { words: Words::new(segment, offset, 1)? })
    }

    /// Producer, after publishing: wakes the consumer if it sleeps on this bell, and says whether that was so. No
    /// system call when it does not.
    #[inline]
    pub fn ring(&self) -> bool {
        let sleeping = self.claim();
        if sleeping {
            WOKEN.set(WOKEN.get().wrapping_add(1));
            self.words.futex_wake(SLEEPING);
        }
        sleeping
    }

    /// Producer, after publishing: says whether the consumer sleeps and takes on the duty to wake it, by whatever it
    /// sleeps on (an eventfd). Exactly one producer is given that duty per sleep.
    #[inline]
    pub fn claim(&self) -> bool {
        // Fence `doorbell.order`, producer's end: the work is visible before the flag is read.
        fence(SeqCst);
        let flag = self.words.at(SLEEPING);
        // An exchange that fails writes nothing: the consumer may have announced its next sleep meanwhile.
        flag.load(Relaxed) == 1 && flag.compare_exchange(1, 0, AcqRel, Relaxed).is_ok()
    }

    /// Consumer: announces that it will sleep. Look for work again after this call and before [`Doorbell::wait`].
    #[inline]
    pub fn prepare(&self) {
        self.words.at(SLEEPING).store(1, Relaxed);
        // Fence `doorbell.order`, consumer's end: the flag is visible before the work is looked for.
        fence(SeqCst);
    }

    /// Consumer, after [`Doorbell::prepare`]: sleeps until the bell rings or `timeout` has passed, and says whether it
    /// rang. May return early without ring. The announcement is over in any case.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.sleep(timeout) == Woken::Rung
    }

    /// The same, and says what ended it.
    pub fn sleep(&self, timeout: Option<Duration>) -> Woken {
        let is_over = self.words.futex_wait(SLEEPING, 1, timeout);
        match (self.cancel(), is_over) {
            (true, _) => Woken::Rung,
            (false, true) => Woken::TimedOut,
            (false, false) => Woken::Early,
        }
    }

    /// Consumer: takes the announcement back because there is work after all, and says whether the bell rang meanwhile.
    #[inline]
    pub fn cancel(&self) -> bool {
        self.words.at(SLEEPING).swap(0, AcqRel) == 0
    }
}
