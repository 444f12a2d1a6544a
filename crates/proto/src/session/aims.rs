//! How deep the links' queues and how long the trains are to be, by what is to be sent (protocol.md §5.11).
//!
//! Each train costs a wake-up at both ends, and what is small waits behind the one that is on its way: so trains are short
//! while something else than bulk is sent, and long while so much waits that nobody notices.

use super::division::BYTES_MAX;
use super::{Session, calm};
use crate::link::window::TRAIN_SPAN;
use crate::time::{Duration, Instant};

/// Span of a train beside other classes, and at the end of what waits.
const SHORT_SPAN: Duration = Duration::us(75);
/// Span of a train while much waits.
const LONG_SPAN: Duration = Duration::ms(1);
/// Much is what the links move in so much time,
const MUCH: Duration = Duration::ms(8);
/// and the end of it one part in so many: what has come is copied while the next is on its way, so that little is left to do
/// when the last train arrives.
const END: u64 = 16;

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
            return Aims { queue_target: short, train_span: SHORT_SPAN };
        }
        let rate = self.links.iter().map(|link| link.window.rate_bytes_per_s()).sum::<u64>();
        let much = rate / 1_000_000 * MUCH.as_us();
        // Trains of faster links are as long as they can be.
        let waiting = if (1..=BYTES_MAX).contains(&much) { self.waiting_bytes(much) } else { 0 };
        let train_span = match waiting {
            0 => TRAIN_SPAN,
            _ if waiting >= much => LONG_SPAN,
            _ if waiting < much / END => SHORT_SPAN,
            _ => TRAIN_SPAN,
        };
        // Whoever drives looks after the queues seldom: the half of them is to last for so long.
        let rest = if self.is_calm(now) { calm::rest_beside(waiting, rate) } else { Duration::ZERO };
        Aims { queue_target: long.max(rest.times(2)), train_span }
    }
}
