//! Where all who send to a port past the engine wake whoever waits for it: a page of its own, for who may ring is to see
//! nothing else of the port.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::doorbell::{DOORBELL_BYTES, Doorbell};
use crate::segment::{PAGE_BYTES, Segment, invalid};
use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::{fence, keep_order};
use crate::words::Words;

const BELL: u64 = 0;
/// On the line of the bell, for who rings looks at both.
const AWAKE: u64 = DOORBELL_BYTES - 8;
const WATCH: u64 = 128;

/// The port's program waits on a descriptor, too, and what comes is to be told there.
const ARMED: u64 = 1;
/// That was taken on by somebody.
const TOLD: u64 = 2;

/// The bell of one port.
///
/// A fence for each message costs whoever sends as much as all the rest. A port that looks by itself, and neither sleeps nor waits on
/// a descriptor, says so here ([`PortBell::stay_awake`]); who rings then has nothing to do, if this process takes part in fences that
/// others ask the system for ([`PortBell::take_part`]). Before the port sleeps after all it says that it may
/// ([`PortBell::may_sleep`]), and has the system put a fence on every core: what was sent before is seen when it looks once more, and
/// who sends afterwards sees that it has to ring.
///
/// Whoever scribbles in its page wakes the program for nothing, or lets it sleep until it looks by
/// itself.
#[derive(Clone, Debug)]
pub struct PortBell {
    bell: Doorbell,
    watch: Words,
    awake: Words,
    /// Fences that the port asks for reach the threads of this process.
    takes_part: bool,
    segment: Arc<Segment>,
}

impl PortBell {
    /// A new one.
    ///
    /// # Errors
    /// The system has no memory or descriptor for it.
    pub fn create() -> io::Result<PortBell> {
        PortBell::new(Segment::shared(PAGE_BYTES)?)
    }

    /// One that was made elsewhere.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(file: OwnedFd) -> io::Result<PortBell> {
        PortBell::new(Segment::mapped(file)?)
    }

    fn new(segment: Arc<Segment>) -> io::Result<PortBell> {
        let words = Words::new(&segment, WATCH, 1).zip(Words::new(&segment, AWAKE, 1));
        let (bell, (watch, awake)) =
            Doorbell::new(&segment, BELL).zip(words).ok_or_else(|| invalid("memory is no bell"))?;
        Ok(PortBell { bell, watch, awake, takes_part: false, segment })
    }

    /// Its memory: the descriptor goes to all who may ring.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// What the port's thread sleeps at.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// After publishing: wakes the port's thread if it sleeps; whether the engine has to tell the program by its descriptor.
    #[inline(always)]
    pub fn ring(&self) -> bool {
        !(self.takes_part && self.is_awake()) && self.wake()
    }

    #[inline]
    fn wake(&self) -> bool {
        // It has a fence between what was published and both words.
        self.bell.ring();
        let watch = self.watch.at(0);
        watch.load(Relaxed) == ARMED && watch.compare_exchange(ARMED, TOLD, AcqRel, Relaxed).is_ok()
    }

    /// Whether the port looks by itself: seen after all that this thread has done before, or the port asks for a fence later.
    #[inline]
    fn is_awake(&self) -> bool {
        keep_order();
        self.awake.at(0).load(Relaxed) == 1
    }

    /// From now on fences that the port's process asks the system for reach this one, too: it has said so to the system.
    #[must_use]
    pub fn take_part(self) -> PortBell {
        PortBell { takes_part: true, ..self }
    }

    /// The port's own: its thread neither sleeps nor waits on a descriptor before it says otherwise.
    pub fn stay_awake(&self) {
        self.awake.at(0).store(1, Relaxed);
    }

    /// The port's own: its thread may sleep. Before it does, or looks for the last time, it has the system put a fence on every core.
    pub fn may_sleep(&self) {
        self.awake.at(0).store(0, Relaxed);
    }

    /// The port's own: what comes from now on is to be told by the descriptor. Look for it afterwards.
    pub fn arm(&self) {
        self.watch.at(0).store(ARMED, Relaxed);
        fence(SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_told_once_each_time_that_this_is_asked_for() {
        let own = PortBell::create().unwrap();
        let other = PortBell::attach(own.segment().fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert!(!other.ring(), "nobody waits on a descriptor");
        own.arm();
        assert!(other.ring() && !other.ring());
        own.arm();
        own.bell().prepare();
        assert!(other.ring());
        assert!(own.bell().cancel(), "who sleeps at the bell is woken as well");
    }

    #[test]
    fn only_who_takes_part_in_fences_leaves_a_port_that_is_awake_alone() {
        let own = PortBell::create().unwrap();
        let file = || own.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let (other, fenced) =
            (PortBell::attach(file()).unwrap(), PortBell::attach(file()).unwrap().take_part());
        own.stay_awake();
        own.arm();
        own.bell().prepare();
        assert!(!fenced.ring() && other.ring(), "it would hear of nothing: it must not do that");
        own.arm();
        own.may_sleep();
        assert!(fenced.ring() && !fenced.ring());
    }

    #[test]
    fn who_has_no_descriptor_of_the_page_any_more_sleeps_and_is_woken() {
        let made = PortBell::create().unwrap();
        let file = || made.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let (sleeper, ringer) = (PortBell::attach(file()).unwrap(), PortBell::attach(file()).unwrap());
        for ringer in [made.clone(), ringer] {
            sleeper.bell().prepare();
            let began = std::time::Instant::now();
            std::thread::scope(|scope| {
                let sleeping = scope.spawn(|| sleeper.bell().wait(Some(std::time::Duration::from_secs(60))));
                // Most likely it sleeps by then.
                std::thread::sleep(std::time::Duration::from_millis(20));
                ringer.ring();
                assert!(sleeping.join().unwrap());
            });
            assert!(began.elapsed().as_secs() < 50, "it slept until its time was over");
        }
    }
}
