//! A command that grows until it is taken.
//!
//! A client that writes a stream of bytes faster than it pays to hand them in leaves a command open here: it adds bytes
//! and says how many there are, and either takes the command back to submit it in its turn, or the engine takes it
//! first, whichever needs it. So what was written never waits for the client to come back.
//!
//! ```text
//! client: write entry, bytes   open(len)   write more   extend(len)   close()
//! engine:                      look()      drain the submission ring  take()
//! ```
//!
//! All of it turns on one word: a count of openings above the number of bytes, 0 while nothing is open. Each change is a
//! compare-exchange, so exactly one side gets the command, with exactly the bytes that were said last. Commands that the
//! client submitted before it opened one are visible to an engine that has seen it open, and none for the same receiver
//! follow before it is closed; so the engine keeps the order by draining the ring between `look` and `take`.

use std::sync::Arc;

use crate::ring::Entry;
use crate::segment::Segment;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::words::{LINE_WORDS, Words};

const STATE: usize = LINE_WORDS;
/// Bytes that it takes in a segment: the entry's line, and the word's.
pub const OPEN_ENTRY_BYTES: u64 = 128;

/// The client's end.
#[derive(Debug)]
pub struct OpenEntry {
    words: Words,
    opened: u32,
    /// What the word holds if the engine has not taken it; 0: nothing is open.
    state: u64,
}

impl OpenEntry {
    /// The place at `offset`; `None` when it is not inside the segment. One client uses it.
    pub fn new(segment: &Arc<Segment>, offset: u64) -> Option<OpenEntry> {
        let words = Words::new(segment, offset, (OPEN_ENTRY_BYTES / 8) as usize)?;
        Some(OpenEntry { words, opened: 0, state: 0 })
    }

    fn word(&self) -> &AtomicU64 {
        self.words.at(STATE)
    }

    /// Opens `entry` with `len` bytes (not 0); nothing may be open.
    pub fn open(&mut self, entry: &Entry, len: u32) {
        debug_assert!(self.state == 0 && len > 0);
        for (at, value) in entry.iter().enumerate() {
            self.words.at(at).store(*value, Relaxed);
        }
        self.opened = self.opened.wrapping_add(1);
        self.state = (self.opened as u64) << 32 | len as u64;
        // Release of `open.state`: entry, bytes, and what was submitted before.
        self.word().store(self.state, Release);
    }

    /// Says that there are `len` bytes now, which were written before; false if the engine has taken it without them.
    pub fn extend(&mut self, len: u32) -> bool {
        self.change((self.opened as u64) << 32 | len as u64)
    }

    /// Takes it back; false if the engine has taken it.
    pub fn close(&mut self) -> bool {
        self.change(0)
    }

    /// Whether the engine has taken what was opened last.
    pub fn is_taken(&self) -> bool {
        self.state != 0 && self.word().load(Relaxed) != self.state
    }

    fn change(&mut self, to: u64) -> bool {
        // Release of `open.state`: the bytes that were added.
        let ours = self.state != 0 && self.word().compare_exchange(self.state, to, AcqRel, Relaxed).is_ok();
        self.state = if ours { to } else { 0 };
        ours
    }
}

/// What the engine saw open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u64);

/// The engine's end.
#[derive(Debug)]
pub struct OpenEntryView {
    words: Words,
}

impl OpenEntryView {
    /// The place at `offset`; `None` when it is not inside the segment. One engine uses it.
    pub fn new(segment: &Arc<Segment>, offset: u64) -> Option<OpenEntryView> {
        Some(OpenEntryView { words: Words::new(segment, offset, (OPEN_ENTRY_BYTES / 8) as usize)? })
    }

    /// Whether something is open: to be taken once what was submitted before it was.
    #[inline]
    pub fn look(&self) -> Option<Seen> {
        // Acquire of `open.state`.
        let state = self.words.at(STATE).load(Acquire);
        (state != 0).then_some(Seen(state))
    }

    /// Takes what was seen open, and how many bytes it has; `None` if the client has changed it since.
    pub fn take(&mut self, seen: Seen) -> Option<(Entry, u32)> {
        // Words that a client writes for its next opening are read here in vain: the exchange fails then.
        let entry = std::array::from_fn(|at| self.words.at(at).load(Relaxed));
        let word = self.words.at(STATE);
        word.compare_exchange(seen.0, 0, AcqRel, Relaxed).is_ok().then_some((entry, seen.0 as u32))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn both() -> (OpenEntry, OpenEntryView) {
        let segment = Segment::private(4_096).unwrap();
        (OpenEntry::new(&segment, 128).unwrap(), OpenEntryView::new(&segment, 128).unwrap())
    }

    #[test]
    fn whoever_comes_first_has_it_with_all_that_was_said() {
        let (mut client, mut engine) = both();
        assert_eq!(engine.look(), None);
        assert!(!client.extend(1) && !client.close(), "nothing is open");
        client.open(&[1; 8], 10);
        assert!(client.extend(30));
        let seen = engine.look().unwrap();
        assert!(!client.is_taken());
        assert_eq!(engine.take(seen), Some(([1; 8], 30)));
        assert!(client.is_taken());
        assert_eq!((engine.take(seen), engine.look()), (None, None));
        assert!(!client.extend(40) && !client.is_taken() && !client.close());
        client.open(&[2; 8], 5);
        let seen = engine.look().unwrap();
        assert!(client.close());
        assert_eq!((engine.take(seen), engine.look()), (None, None));
    }

    #[test]
    fn what_was_seen_before_a_change_is_not_taken() {
        let (mut client, mut engine) = both();
        client.open(&[1; 8], 10);
        let seen = engine.look().unwrap();
        assert!(client.extend(11));
        assert_eq!(engine.take(seen), None, "it has grown");
        let seen = engine.look().unwrap();
        assert!(client.close());
        client.open(&[2; 8], 11);
        assert_eq!(engine.take(seen), None, "it is another one of the same length");
        assert_eq!(engine.look().and_then(|seen| engine.take(seen)), Some(([2; 8], 11)));
    }
}
