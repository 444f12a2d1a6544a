//! When a peer is told what its replica of our log should look like, and when all of the log again (protocol.md §7.2).

use crate::time::{Duration, Instant};

/// A peer is told how our log stands at most so often, and all of it again at most so often.
pub const DIGEST_SPAN: Duration = Duration::s(10);

/// What one peer was told of the state of our log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digests {
    /// The last operation that it was told the hash of. A log without operations needs none.
    told: u64,
    tell_from: Instant,
    /// It asked for the log from its beginning.
    wanted: bool,
    anew_from: Instant,
}

impl Digests {
    /// Whether the peer is to be told now how the log stands after operation `last`. It is taken to be told then.
    pub fn take_state(&mut self, now: Instant, last: u64) -> bool {
        let due = self.told != last && now >= self.tell_from;
        if due {
            (self.told, self.tell_from) = (last, now + DIGEST_SPAN);
        }
        due
    }

    /// The peer asks for the log from its beginning.
    pub fn want_anew(&mut self) {
        self.wanted = true;
    }

    /// Whether the peer is to be told the log from its beginning now. What it makes of it is compared when the time for
    /// that has come.
    pub fn take_anew(&mut self, now: Instant) -> bool {
        let due = self.wanted && now >= self.anew_from;
        if due {
            *self = Digests { told: 0, wanted: false, anew_from: now + DIGEST_SPAN, ..*self };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_once_and_not_too_often() {
        let mut digests = Digests::default();
        let start = Instant(5);
        assert!(!digests.take_state(start, 0), "there is nothing");
        assert!(digests.take_state(start, 3), "the first at once");
        assert!(!digests.take_state(start + DIGEST_SPAN, 3), "it was told");
        assert!(digests.take_state(start + DIGEST_SPAN, 4));
        assert!(!digests.take_state(start + DIGEST_SPAN, 5), "too soon");
        assert!(digests.take_state(start + DIGEST_SPAN + DIGEST_SPAN, 5));
    }

    #[test]
    fn the_log_is_told_again_when_asked_for_and_its_state_after_that() {
        let mut digests = Digests::default();
        let start = Instant(5);
        assert!(digests.take_state(start, 3) && !digests.take_anew(start));
        digests.want_anew();
        assert!(digests.take_anew(start) && !digests.take_anew(start + DIGEST_SPAN), "it was asked for once");
        digests.want_anew();
        assert!(!digests.take_anew(start), "too soon");
        assert!(digests.take_state(start + DIGEST_SPAN, 3), "told before, and again");
        assert!(digests.take_anew(start + DIGEST_SPAN));
    }
}
