//! Buffers that the sender of a direct ring passes to the receiver instead of copying them: they are read where they lie, and
//! given back. What that costs does not depend on how long they are.
//!
//! Each file that holds such a buffer has a number at its ring. The receiver is given the file once, by whatever passes descriptors,
//! and keeps it mapped until another takes the number. For each number there is a word which says how often the receiver has given
//! a buffer back; the sender, which has counted how often it passed one, has it again when both are equal.
//!
//! Only for two sides that trust each other with memory: while the receiver reads, nothing but the sender's word keeps the sender
//! from writing. A receiver that says too early that it is done spoils what it reads; one that never says it keeps those buffers.
//!
//! A buffer may be passed by several rings at a time, to be read by several ([`crate::SharedBuffer`]): each gives it back to its own ring.
//!
//! A sender that ends leaves its buffers to the receiver: their memory goes back to the machine, not to the sender's pool.

use std::sync::{Arc, Weak};

use crate::pool::Buffer;
use crate::segment::Segment;
use crate::shared_buffer::ToPass;
use crate::sync::Ordering::{Acquire, Release};
use crate::words::Words;

/// Files that a ring has numbers for, which is as many buffers as can be in the receiver's hands.
pub const PASSED_MAX: u32 = 64;

/// Bytes of the words that such buffers need.
pub(crate) const PASSED_BYTES: u64 = PASSED_MAX as u64 * 8;

/// The words at `offset`.
fn words_at(segment: &Arc<Segment>, offset: u64) -> Option<Words> {
    Words::new(segment, offset, PASSED_MAX as usize)
}

/// The number of a buffer's file at a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// Below [`PASSED_MAX`].
    pub number: u32,
    /// The receiver does not have the file under it yet: it is to be given it before the message.
    pub is_new: bool,
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct PassedOut {
    returned: Words,
    /// By number.
    files: Vec<Passed>,
    /// Buffers in the receiver's hands.
    out: u32,
}

#[derive(Debug)]
struct Passed {
    file: Weak<Segment>,
    /// How often a buffer was passed under this number.
    times: u64,
    /// It is in the receiver's hands.
    buffer: Option<ToPass>,
}

impl PassedOut {
    pub(crate) fn new(segment: &Arc<Segment>, offset: u64) -> Option<PassedOut> {
        Some(PassedOut { returned: words_at(segment, offset)?, files: Vec::new(), out: 0 })
    }

    /// The number under which a buffer can be passed; `None` if it lies in no file, all numbers are in use, or the receiver has that very
    /// one, as it may if others have it too.
    pub(crate) fn number_of(&mut self, buffer: &Buffer) -> Option<Number> {
        let file = Arc::as_ptr(buffer.file()?);
        self.reclaim();
        // While anybody has a weak reference no other segment gets its address.
        if let Some(known) = self.files.iter().position(|passed| passed.file.as_ptr() == file) {
            let is_free = self.files[known].buffer.is_none();
            return is_free.then_some(Number { number: known as u32, is_new: false });
        }
        let free = |passed: &Passed| passed.buffer.is_none();
        let gone = |passed: &Passed| free(passed) && passed.file.strong_count() == 0;
        let number = match self.files.iter().position(gone) {
            Some(number) => number,
            None if self.files.len() < PASSED_MAX as usize => {
                let number = self.files.len();
                // Now, for a receiver may give the buffer back before its sender has noted that it was passed.
                let times = self.returned.at(number).load(Acquire);
                self.files.push(Passed { file: Weak::new(), times, buffer: None });
                number
            }
            None => self.files.iter().position(free)?,
        };
        Some(Number { number: number as u32, is_new: true })
    }

    /// Whether the buffer of a number is in the receiver's hands, as far as was [reclaimed](PassedOut::reclaim).
    pub(crate) fn is_out(&self, number: u32) -> bool {
        self.files.get(number as usize).is_some_and(|passed| passed.buffer.is_some())
    }

    /// A buffer was passed under a number that [`PassedOut::number_of`] gave for it.
    pub(crate) fn note(&mut self, number: u32, buffer: ToPass) {
        let file = buffer.buffer().and_then(Buffer::file).map_or_else(Weak::new, Arc::downgrade);
        let passed = &mut self.files[number as usize];
        passed.file = file;
        passed.times = passed.times.wrapping_add(1);
        passed.buffer = Some(buffer);
        self.out += 1;
    }

    /// Takes back what the receiver has given back; whether it has all.
    pub(crate) fn reclaim(&mut self) -> bool {
        if self.out > 0 {
            for (number, passed) in self.files.iter_mut().enumerate() {
                // Acquire of `passed.returned`: what the receiver read, it has read.
                if passed.buffer.is_some() && self.returned.at(number).load(Acquire) == passed.times {
                    passed.buffer = None;
                    self.out -= 1;
                }
            }
        }
        self.out == 0
    }
}

impl Drop for PassedOut {
    fn drop(&mut self) {
        self.reclaim();
        self.files.drain(..).filter_map(|passed| passed.buffer).for_each(ToPass::discard);
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(crate) struct PassedIn {
    returned: Words,
    /// By number.
    files: Vec<Option<Arc<Segment>>>,
}

impl PassedIn {
    pub(crate) fn new(segment: &Arc<Segment>, offset: u64) -> Option<PassedIn> {
        Some(PassedIn { returned: words_at(segment, offset)?, files: Vec::new() })
    }

    /// The file of that number, if there is one.
    pub(crate) fn file(&self, number: u32) -> Option<&Arc<Segment>> {
        self.files.get(number as usize)?.as_ref()
    }

    /// A file was given under a number; false if there is no such number.
    pub(crate) fn set_file(&mut self, number: u32, file: Arc<Segment>) -> bool {
        if number >= PASSED_MAX {
            return false;
        }
        let number = number as usize;
        if self.files.len() <= number {
            self.files.resize(number + 1, None);
        }
        self.files[number] = Some(file);
        true
    }

    /// The buffer of that number was read.
    pub(crate) fn give_back(&mut self, number: u32) {
        if number < PASSED_MAX {
            // Release of `passed.returned`. Nobody else writes it, and a sender that does spoils its own buffers.
            self.returned.at(number as usize).fetch_add(1, Release);
        }
    }
}
