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
    /// Writes of streams in a row that followed each other closely.
    writes: u32,
}

/// Sends this far apart (nanoseconds) are a flood.
const FLOOD_GAP_NS: u64 = 1_500;
/// Close sends in a row that make a flood.
const FLOOD_RUN: u32 = 16;
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

    /// Notes that a write of a stream begins; whether its writer has hardly done anything else for a while.
    #[inline]
    pub(super) fn note_write(&mut self) -> bool {
        let close = now_ns().saturating_sub(self.written_ns) < FLOOD_GAP_NS;
        self.writes = if close { self.writes.saturating_add(1) } else { 0 };
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
