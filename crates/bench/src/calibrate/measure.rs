//! The single measurements of a pulse. Each has a thread of its own, pinned where the measured processes will be; where
//! pinning is refused the figure is that of the scheduler's choice, which is still worth recording.

use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::StallCounts;
use crate::clock::now_ns;
use crate::process::pin_thread;
use crate::stats::median;

const BATCHES: usize = 20;
const ROUNDS: u64 = 500;
/// After this time no further batch is begun: where two virtual cores share a real one, each throw takes a time slice.
const BATCHES_END_NS: u64 = 1_000_000_000;
/// Tells the catching thread that nothing more is thrown.
const NO_MORE: u64 = u64::MAX;

/// One way of a cache line between core 0 and core 1, in ns.
pub(super) fn cache_line_ns() -> Option<f64> {
    /// A line of its own, so that nothing else moves with the ball.
    #[repr(align(128))]
    struct Ball(AtomicU64);

    let ball = Ball(AtomicU64::new(0));
    let start = Barrier::new(2);
    let total = BATCHES as u64 * ROUNDS;
    let mut batches = Vec::with_capacity(BATCHES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin_thread(1);
            start.wait();
            for round in 0..total {
                if !await_value(&ball.0, 2 * round + 1) {
                    return;
                }
                ball.0.store(2 * round + 2, Ordering::Release);
            }
        });
        let thrower = scope.spawn(|| {
            let _ = pin_thread(0);
            start.wait();
            let mut times = Vec::with_capacity(BATCHES);
            let first_ns = now_ns();
            for batch in 0..BATCHES as u64 {
                let start_ns = now_ns();
                for round in batch * ROUNDS..(batch + 1) * ROUNDS {
                    ball.0.store(2 * round + 1, Ordering::Release);
                    await_value(&ball.0, 2 * round + 2);
                }
                times.push((now_ns() - start_ns) as f64 / (2 * ROUNDS) as f64);
                if now_ns() - first_ns > BATCHES_END_NS {
                    break;
                }
            }
            ball.0.store(NO_MORE, Ordering::Release);
            times
        });
        batches = thrower.join().unwrap_or_default();
    });
    median(&batches)
}

/// Waits for the ball; false: it will not come.
fn await_value(ball: &AtomicU64, value: u64) -> bool {
    let mut polls = 0_u32;
    loop {
        match ball.load(Ordering::Acquire) {
            NO_MORE => return false,
            seen if seen == value => return true,
            _ => {}
        }
        std::hint::spin_loop();
        polls += 1;
        // With both threads on one core, spinning would last a whole time slice.
        if polls > 20_000 {
            std::thread::yield_now();
        }
    }
}

/// More than a core has of second-level cache, so that it is the memory behind that is asked; little enough for a pulse.
const COPY_BYTES: usize = 8 << 20;
const COPIES: usize = 5;

/// Copying on core 0, in 10^9 bytes per second: the best, for each interruption makes one look slower than memory is.
pub(super) fn memcpy_gb_per_s() -> f64 {
    on_core_0(|| {
        // Written once, so that no copy pays for getting its pages.
        let (source, mut target) = (vec![0x5A_u8; COPY_BYTES], vec![0xA5_u8; COPY_BYTES]);
        let copy_ns = |_| {
            let start_ns = now_ns();
            target.copy_from_slice(black_box(&source));
            black_box(&target);
            now_ns() - start_ns
        };
        let best_ns = (0..COPIES).map(copy_ns).min().unwrap_or(u64::MAX);
        COPY_BYTES as f64 / best_ns.max(1) as f64
    })
}

const READINGS: u64 = 1_000;

/// One reading of the clock, in ns.
pub(super) fn clock_ns() -> f64 {
    let batch_ns = |_| {
        let start_ns = now_ns();
        for _ in 1..READINGS {
            black_box(now_ns());
        }
        (now_ns() - start_ns) as f64 / READINGS as f64
    };
    on_core_0(|| middle(BATCHES, batch_ns))
}

const SLEEP_NS: u64 = 100_000;
const SLEEPS: usize = 15;

/// How late a short sleep ends, in us: the kernel's slack for timers, the wake-up of an idle core, and its way back here.
pub(super) fn sleep_late_us() -> f64 {
    let late_us = |_| {
        let start_ns = now_ns();
        std::thread::sleep(Duration::from_nanos(SLEEP_NS));
        (now_ns() - start_ns).saturating_sub(SLEEP_NS) as f64 / 1e3
    };
    on_core_0(|| middle(SLEEPS, late_us))
}

const STALL_WATCH_NS: u64 = 5_000_000;
const STALL_NS_MIN: u64 = 5_000;

/// Interruptions of a spinning thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Stalls {
    pub(super) max_ns: u64,
    pub(super) sum_ns: u64,
    pub(super) counts: StallCounts,
}

/// Spins on core 0 for a while and notes when it was away.
pub(super) fn stalls() -> Stalls {
    on_core_0(|| {
        let mut stalls = Stalls::default();
        let start_ns = now_ns();
        let mut last_ns = start_ns;
        while last_ns - start_ns < STALL_WATCH_NS {
            let now = now_ns();
            stalls.observe(now - last_ns);
            last_ns = now;
        }
        stalls
    })
}

impl Stalls {
    /// Takes the time between two looks at the clock.
    fn observe(&mut self, gap_ns: u64) {
        self.max_ns = self.max_ns.max(gap_ns);
        if gap_ns <= STALL_NS_MIN {
            return;
        }
        self.sum_ns += gap_ns;
        self.counts.over_5us += 1;
        self.counts.over_50us += u32::from(gap_ns > 50_000);
        self.counts.over_500us += u32::from(gap_ns > 500_000);
        self.counts.over_5ms += u32::from(gap_ns > 5_000_000);
    }
}

fn middle(count: usize, measured: impl FnMut(usize) -> f64) -> f64 {
    median(&(0..count).map(measured).collect::<Vec<f64>>()).expect("there is at least one")
}

/// Runs `work` in a thread of its own on core 0.
fn on_core_0<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let pinned = || {
            let _ = pin_thread(0);
            work()
        };
        scope.spawn(pinned).join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_counts_to_every_kind_that_it_is_longer_than() {
        let mut stalls = Stalls::default();
        for gap_ns in [25, 5_000, 5_001, 60_000, 700_000, 9_000_000] {
            stalls.observe(gap_ns);
        }
        let counts = StallCounts { over_5us: 4, over_50us: 3, over_500us: 2, over_5ms: 1 };
        assert_eq!((stalls.counts, stalls.max_ns), (counts, 9_000_000));
        assert_eq!(stalls.sum_ns, 5_001 + 60_000 + 700_000 + 9_000_000);
    }
}
