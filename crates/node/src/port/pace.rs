//! When a thread that sends drives the engine, and when it only hands in.

use crate::clock::now_ns;

/// Decides when a sending thread drives the engine: at once, or, while it sends as fast as it can, once per batch.
#[derive(Default)]
pub(super) struct Pace {
    /// Messages since the engine was driven last, and their bytes.
    messages: u32,
    bytes: usize,
    driven_at_ns: u64,
    /// Batches in a row that followed each other closely.
    close: u32,
    /// When the last write of a stream returned.
    written_ns: u64,
    /// Writes of streams that followed each other closely, less those that did not.
    writes: u32,
}

/// Sends this far apart (nanoseconds) are a flood.
const FLOOD_GAP_NS: u64 = 1_500;
/// Close sends in a row that make a flood.
const FLOOD_RUN: u32 = 16;
/// A write may come later by a nanosecond for so many of its bytes: who writes much at once prepares it longer.
const FLOOD_BYTES_PER_NS: u64 = 8;
/// A writer that was set aside this long at most goes on as before.
const SET_ASIDE_NS: u64 = 100_000;
/// In a flood the engine is driven after so many messages, so many bytes, or so long.
const BATCH_MESSAGES: u32 = 192;
const BATCH_BYTES: usize = 48 * 1024;
const BATCH_SPAN_NS: u64 = 25_000;

impl Pace {
    /// The time if the engine should be driven now that a message of `bytes` was handed in.
    #[inline]
    pub(super) fn wants_drive(&mut self, bytes: usize) -> Option<u64> {
        self.messages += 1;
        self.bytes += bytes;
        if self.close < FLOOD_RUN {
            let now = now_ns();
            self.close =
                if now.saturating_sub(self.driven_at_ns) < FLOOD_GAP_NS { self.close + 1 } else { 0 };
            return Some(now);
        }
        if self.messages >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES {
            return Some(now_ns());
        }
        if self.messages.is_multiple_of(16) {
            let now = now_ns();
            let span = now.saturating_sub(self.driven_at_ns);
            if span > FLOOD_GAP_NS * self.messages as u64 {
                self.close = 0;
                return Some(now);
            }
            return (span > BATCH_SPAN_NS).then_some(now);
        }
        None
    }

    /// Notes that a write of `bytes` of a stream begins; whether its writer has hardly done anything else for a while.
    #[inline]
    pub(super) fn note_write(&mut self, bytes: usize) -> bool {
        self.note_write_at(now_ns(), bytes)
    }

    fn note_write_at(&mut self, now_ns: u64, bytes: usize) -> bool {
        let gap_ns = now_ns.saturating_sub(self.written_ns);
        self.writes = if gap_ns < FLOOD_GAP_NS + bytes as u64 / FLOOD_BYTES_PER_NS {
            (self.writes + 1).min(2 * FLOOD_RUN)
        } else if gap_ns < SET_ASIDE_NS {
            self.writes / 2
        } else {
            0
        };
        self.writes >= FLOOD_RUN
    }

    /// Notes that a write of a stream has returned.
    #[inline]
    pub(super) fn note_written(&mut self) {
        self.written_ns = now_ns();
    }

    /// The thread does something else than sending.
    #[inline]
    pub(super) fn pause(&mut self) {
        self.close = 0;
    }

    /// The engine was driven.
    #[inline]
    pub(super) fn driven(&mut self) {
        (self.messages, self.bytes) = (0, 0);
        self.driven_at_ns = now_ns();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last of `writes` is gathered: each comes after a gap, in nanoseconds, and has so many bytes.
    fn gathers(writes: impl IntoIterator<Item = (u64, usize)>) -> bool {
        let (mut pace, mut now_ns, mut gathers) = (Pace::default(), 1_000_000, false);
        for (gap_ns, bytes) in writes {
            now_ns += gap_ns;
            gathers = pace.note_write_at(now_ns, bytes);
            pace.written_ns = now_ns;
        }
        gathers
    }

    #[test]
    fn writes_that_follow_each_other_closely_are_gathered() {
        assert!(!gathers(vec![(100, 8_192); 16]) && gathers(vec![(100, 8_192); 17]));
        assert!(!gathers(vec![(3_000, 8_192); 100]), "its writer does something else");
        assert!(gathers(vec![(3_000, 65_536); 100]), "which is little for so many bytes");
    }

    #[test]
    fn who_is_set_aside_goes_on_and_who_pauses_does_not() {
        let close = [(100, 65_536); 40];
        assert!(gathers(close.into_iter().chain([(50_000, 65_536)])));
        assert!(!gathers(close.into_iter().chain([(50_000, 65_536); 2])), "it has become slow");
        assert!(!gathers(close.into_iter().chain([(200_000, 65_536)])));
    }
}
