//! How often whoever spins looks at which bearers: each empty look is a system call, and one bearer has several sockets.

use super::{Attached, Engine};
use polyrail_proto::time::{Duration, Instant};

/// Quiet sockets are looked at so often,
const QUIET_SPAN: Duration = Duration::us(20);
/// and so often those of a silent bearer beside a busy one: who waits for an answer waits by the other; and all of them by who
/// sends, for the next turn most likely waits.
const SILENT_SPAN: Duration = Duration::us(80);
/// What has found something so lately is looked at in each turn, for pieces of one message come by several.
const BUSY: Duration = Duration::us(500);
/// Nothing has come by a bearer that is silent for so long.
const SILENCE: Duration = Duration::ms(1);

impl Engine {
    /// Whether a bearer is looked at in each turn, where something came last.
    pub(super) fn is_busy_bearer(&self, index: usize, now: Instant) -> bool {
        index == self.hot || now.since(self.bearers[index].found_at) < BUSY
    }

    /// Whether all sockets of a bearer are to be looked at again.
    pub(super) fn is_look_due(&self, index: usize, now: Instant, sending: bool) -> bool {
        let Attached { looked_at, found_at, .. } = self.bearers[index];
        let busy_found_at = self.bearers[self.hot].found_at;
        let span = look_span(now.since(found_at), now.since(busy_found_at));
        now.since(looked_at) >= if sending { SILENT_SPAN } else { span }
    }
}

/// How long a bearer is left alone by which nothing has come for `silent`; by the one that was busy last, nothing has for
/// `busy_silent`.
fn look_span(silent: Duration, busy_silent: Duration) -> Duration {
    if silent >= SILENCE && busy_silent < QUIET_SPAN { SILENT_SPAN } else { QUIET_SPAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_silent_beside_something_busy_is_looked_at_seldom() {
        for (silent_us, busy_silent_us, span_us) in [
            (1_000, 19, 80),
            (999, 19, 20),      // It is in use, too.
            (1_000, 20, 20),    // The other has fallen silent: what is waited for may come by any.
            (5_000, 5_000, 20), // Nothing is busy.
            (0, 0, 20),         // The busy one itself.
        ] {
            let span = look_span(Duration::us(silent_us), Duration::us(busy_silent_us));
            assert_eq!(span, Duration::us(span_us), "{silent_us} {busy_silent_us}");
        }
    }
}
