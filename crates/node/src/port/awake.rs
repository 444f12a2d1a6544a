//! A port that looks by itself says so to those who send to it past the engine, and saves each of them a fence for each message
//! (`shm::PortBell`).

use super::Port;
use crate::config::Wait;
use polyrail_sys::membarrier;

/// Whoever has taken so many messages without a sleep saves more fences than that a sleep costs more.
const STREAM_MESSAGES: u64 = 4_096;

impl Port {
    /// Says that this port's thread looks by itself from now on, if it does.
    pub(super) fn note_awake(&self) {
        let client = self.client.borrow();
        let Some(bell) = &client.bell else { return };
        let is_awake = match self.wait.get() {
            Wait::Spin => true,
            Wait::Adaptive => client.taken_direct() - self.slept_at.get() >= STREAM_MESSAGES,
            Wait::Block => false,
        };
        if is_awake && !self.awake.get() && self.descriptor.get().is_none() && membarrier::takes_part() {
            bell.stay_awake();
            self.awake.set(true);
        }
    }

    /// Says that it may sleep, or wait on a descriptor. What comes then is either seen when it is looked for after this, or told.
    pub(super) fn note_sleepy(&self) {
        let client = self.client.borrow();
        self.slept_at.set(client.taken_direct());
        if self.awake.replace(false)
            && let Some(bell) = &client.bell
        {
            bell.may_sleep();
            // Where that has come to be forbidden, it sleeps no longer than a tick in vain.
            let _ = membarrier::everywhere();
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrail_shm::{PortBell, Segment};
    use polyrail_sys::membarrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const ROUNDS: u64 = 5_000;

    /// A receiver that is awake, and one that sleeps, by turns; each message is sent when the one before was taken, which is when the
    /// receiver changes its mind.
    #[test]
    fn whoever_falls_asleep_is_woken_by_what_comes_meanwhile() {
        if !membarrier::takes_part() {
            return println!("skipped: no membarrier here");
        }
        let own = PortBell::create().unwrap();
        let file = own.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let other = PortBell::attach(file).unwrap().take_part();
        let (sent, taken) = (Segment::private(64).unwrap(), AtomicU64::new(0));
        let slept = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=ROUNDS {
                    while taken.load(Ordering::Acquire) != number - 1 {
                        std::hint::spin_loop();
                    }
                    (0..number % 64).for_each(|_| std::hint::spin_loop());
                    sent.write_at(0, &number.to_ne_bytes());
                    other.ring();
                }
            });
            receive(&own, &sent, &taken)
        });
        assert!(slept > 0, "nobody slept");
    }

    /// How often it slept.
    fn receive(own: &PortBell, sent: &Segment, taken: &AtomicU64) -> u64 {
        let is_here = |number: u64| {
            let mut bytes = [0; 8];
            sent.read_at(0, &mut bytes);
            u64::from_ne_bytes(bytes) == number
        };
        let mut slept = 0;
        for number in 1..=ROUNDS {
            own.stay_awake();
            taken.store(number - 1, Ordering::Release);
            (0..number % 61).any(|_| is_here(number));
            own.may_sleep();
            membarrier::everywhere().unwrap();
            own.bell().prepare();
            if is_here(number) {
                own.bell().cancel();
                continue;
            }
            slept += 1;
            let rang = own.bell().wait(Some(Duration::from_secs(20)));
            assert!(rang || is_here(number));
            assert!(is_here(number), "woken for nothing");
        }
        slept
    }
}
