//! The machine's own pulse, taken before each repetition: how dear a cache line is between the two cores, and how
//! often a core is taken away.
//!
//! On a virtual machine the first can change fourfold within seconds, which no median over repetitions heals; a
//! figure without it cannot be compared with another day's.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::process::{core_count, pin_thread};

/// State of the machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// One way of a cache line between core 0 and core 1, in ns, median of batches; absent on one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacheline_ns: Option<f64>,
    /// Longest time that core 0 was away from a spinning thread within 5 ms, in us.
    pub stall_max_us: f64,
    /// Sum of the interruptions above 5 us in those 5 ms, in us.
    pub stall_sum_us: f64,
}

const BATCHES: usize = 20;
const ROUNDS: u64 = 500;
const STALL_WATCH_NS: u64 = 5_000_000;
const STALL_NS_MIN: u64 = 5_000;

/// Takes the pulse; about 10 ms.
pub(crate) fn calibrate() -> Calibration {
    let cacheline_ns = if core_count() > 1 { cache_line() } else { None };
    let (stall_max_us, stall_sum_us) = std::thread::spawn(stalls).join().unwrap_or((0.0, 0.0));
    Calibration { cacheline_ns, stall_max_us, stall_sum_us }
}

fn cache_line() -> Option<f64> {
    /// A line of its own, so that nothing else moves with the ball.
    #[repr(align(128))]
    struct Ball(AtomicU64);

    let ball = Ball(AtomicU64::new(0));
    let start = Barrier::new(2);
    let total = BATCHES as u64 * ROUNDS;
    let mut batches = Vec::with_capacity(BATCHES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Where pinning is refused the figure is that of the scheduler's choice: still worth recording.
            let _ = pin_thread(1);
            start.wait();
            for round in 0..total {
                await_value(&ball.0, 2 * round + 1);
                ball.0.store(2 * round + 2, Ordering::Release);
            }
        });
        let thrower = scope.spawn(|| {
            let _ = pin_thread(0);
            start.wait();
            let mut times = Vec::with_capacity(BATCHES);
            for batch in 0..BATCHES as u64 {
                let start_ns = now_ns();
                for round in batch * ROUNDS..(batch + 1) * ROUNDS {
                    ball.0.store(2 * round + 1, Ordering::Release);
                    await_value(&ball.0, 2 * round + 2);
                }
                times.push((now_ns() - start_ns) as f64 / (2 * ROUNDS) as f64);
            }
            times
        });
        batches = thrower.join().unwrap_or_default();
    });
    crate::stats::median(&batches)
}

fn await_value(ball: &AtomicU64, value: u64) {
    let mut polls = 0_u32;
    while ball.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
        polls += 1;
        // With both threads on one core, spinning would last a whole time slice.
        if polls > 20_000 {
            std::thread::yield_now();
        }
    }
}

fn stalls() -> (f64, f64) {
    let _ = pin_thread(0);
    let start_ns = now_ns();
    let (mut last_ns, mut max_ns, mut sum_ns) = (start_ns, 0, 0);
    while last_ns - start_ns < STALL_WATCH_NS {
        let now = now_ns();
        let gap_ns = now - last_ns;
        if gap_ns > STALL_NS_MIN {
            sum_ns += gap_ns;
        }
        max_ns = max_ns.max(gap_ns);
        last_ns = now;
    }
    (max_ns as f64 / 1e3, sum_ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ball_comes_back_and_takes_time() {
        let calibration = calibrate();
        assert!(calibration.cacheline_ns.is_none_or(|ns| ns > 1.0), "{calibration:?}");
        assert!(calibration.stall_max_us > 0.0);
        assert!(calibration.stall_sum_us == 0.0 || calibration.stall_sum_us >= calibration.stall_max_us);
    }
}
