//! How deep the links' queues and how long the trains are to be, by what is to be sent (protocol.md §5.11).
//!
//! Each train costs a wake-up at both ends, and what is small waits behind the one that is on its way: so trains are short
//! while something else than bulk is sent, and long while so much waits that nobody notices.

use super::division::BYTES_MAX;
use super::{Session, calm};
use crate::link::window::{TRAIN_SPAN, span_bytes};
use crate::time::{Duration, Instant};

/// Span of a train beside other classes.
const SHARED_SPAN: Duration = Duration::us(100);
/// Span of a train while much waits.
const LONG_SPAN: Duration = Duration::ms(1);
/// Much is what the links move in so much time.
const MUCH: Duration = Duration::ms(8);
/// Least queue while whoever drives looks after it seldom (`calm`).
const CALM_QUEUE: Duration = Duration::ms(2);

/// What the links are to aim at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aims {
    pub queue_target: Duration,
    pub train_span: Duration,
}

impl Session {
    /// What the links are to aim at now; `queue_target`: beside other classes, and else.
    pub(super) fn aims(&self, now: Instant, queue_target: (Duration, Duration)) -> Aims {
        let (short, long) = queue_target;
        let shared = self.schedule.is_shared(now);
        #[cfg(feature = "planted")]
        let shared = shared && self.planted != Some(crate::planted::Planted::DeepQueue);
        if shared {
            return Aims { queue_target: short, train_span: SHARED_SPAN };
        }
        let rate = self.links.iter().map(|link| link.window.rate_bytes_per_s()).sum::<u64>();
        let much = rate / 1_000_000 * MUCH.as_us();
        // Trains of faster links are as long as they can be.
        let waiting = if (1..=BYTES_MAX).contains(&much) { self.waiting_bytes(much) } else { 0 };
        let train_span = if waiting > 0 && waiting >= much { LONG_SPAN } else { TRAIN_SPAN };
        let is_left_alone = waiting > 0 && waiting >= span_bytes(rate, calm::WORK) && self.is_calm(now);
        Aims { queue_target: if is_left_alone { long.max(CALM_QUEUE) } else { long }, train_span }
    }
}
