//! Counts what arrives against what was sent: lost, duplicated, out of order, damaged.
//!
//! A protocol that is fast because it drops or reorders must not look like a fast one, so every message of every
//! workload carries its number, twice: at its first and at its last eight bytes.

use serde::{Deserialize, Serialize};

/// The shortest message that carries a number.
pub const MESSAGE_BYTES_MIN: usize = 8;

/// How many numbers back a late message can still be told from a duplicate.
const WINDOW: u64 = 1 << 16;

/// Writes a message's number to its first and, where there is room, last eight bytes.
pub fn stamp(message: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    message[..8].copy_from_slice(&bytes);
    if message.len() >= 16 {
        let end = message.len() - 8;
        message[end..].copy_from_slice(&bytes);
    }
}

/// Bytes at the front of a message with contents: its number and two times.
pub(crate) const HEADER_BYTES: usize = 24;
/// The shortest message with contents: a header, and the number again.
pub(crate) const CONTENTS_BYTES_MIN: usize = HEADER_BYTES + 8;

/// Writes a message whose every byte can be checked: number, two times for the receiver to read, contents that
/// follow from the number, and the number again.
pub(crate) fn compose(message: &mut [u8], number: u64, times_ns: [u64; 2]) {
    stamp(message, number);
    stamp_times(message, times_ns);
    let end = message.len() - 8;
    let (whole, rest) = message[HEADER_BYTES..end].as_chunks_mut::<8>();
    let mut words = words(number);
    // Whole words alone are written as fast as memory takes them: a sender must not be busy with this.
    whole.iter_mut().zip(&mut words).for_each(|(place, word)| *place = word.to_le_bytes());
    let last = words.next().unwrap_or(0).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Writes the two times of a message, behind its number; it must have [`CONTENTS_BYTES_MIN`] bytes.
pub(crate) fn stamp_times(message: &mut [u8], times_ns: [u64; 2]) {
    message[8..16].copy_from_slice(&times_ns[0].to_le_bytes());
    message[16..HEADER_BYTES].copy_from_slice(&times_ns[1].to_le_bytes());
}

/// The two times of a message.
pub(crate) fn times_ns(message: &[u8]) -> Option<[u64; 2]> {
    let at = |from: usize| Some(u64::from_le_bytes(*message.get(from..)?.first_chunk::<8>()?));
    Some([at(8)?, at(16)?])
}

/// Whether the contents are those of [`compose`].
fn is_intact(message: &[u8], number: u64) -> bool {
    let contents = &message[HEADER_BYTES..message.len() - 8];
    let (whole, rest) = contents.as_chunks::<8>();
    let mut expected = words(number);
    // Without a branch in it, the comparison runs as fast as memory is read.
    let different = whole
        .iter()
        .zip(&mut expected)
        .fold(0, |sum, (bytes, word)| sum | (u64::from_le_bytes(*bytes) ^ word));
    let last = expected.next().unwrap_or(0).to_le_bytes();
    different == 0 && *rest == last[..rest.len()]
}

/// Contents: no two messages and no two places in one share a word, so that a piece in a wrong place is noticed.
fn words(number: u64) -> impl Iterator<Item = u64> {
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD6E8_FEB8_6659_FD93;
    std::iter::repeat_with(move || {
        word = word.wrapping_add(0xA24B_AED4_963E_E407);
        word
    })
}

/// What a check has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckCounts {
    /// Messages that arrived for the first time and undamaged.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
    /// Numbers skipped and not seen since.
    pub lost: u64,
    /// Messages that had arrived before, or so late that this cannot be told.
    pub duplicated: u64,
    /// Messages that arrived after a higher number.
    pub reordered: u64,
    /// Messages of wrong length, with contradicting numbers or, where they are compared, wrong contents.
    pub damaged: u64,
}

impl CheckCounts {
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            damaged: self.damaged + other.damaged,
        }
    }
}

/// Follows the numbers of arriving messages.
#[derive(Debug)]
pub struct Check {
    size: usize,
    contents: bool,
    next: u64,
    seen: Vec<u64>,
    counts: CheckCounts,
}

impl Check {
    /// A check of messages of `size` bytes, numbered from 0.
    pub fn new(size: usize) -> Self {
        let seen = vec![0; (WINDOW / 64) as usize];
        Self { size, contents: false, next: 0, seen, counts: CheckCounts::default() }
    }

    /// A check of messages that are numbered from `first`, a multiple of what fits the window.
    pub(crate) fn from(size: usize, first: u64) -> Self {
        debug_assert_eq!(first % WINDOW, 0);
        Self { next: first, ..Self::new(size) }
    }

    /// A check that compares every byte of messages that [`compose`] wrote.
    pub(crate) fn of_contents(size: usize) -> Self {
        Self { contents: true, ..Self::new(size) }
    }

    /// What was counted so far.
    pub fn counts(&self) -> CheckCounts {
        self.counts
    }

    /// What is lost if the number after the last message's is `sent` and nothing else will come.
    pub fn finish(mut self, sent: u64) -> CheckCounts {
        self.counts.lost += sent.saturating_sub(self.next);
        self.counts
    }

    /// Takes one arriving message.
    #[inline]
    pub fn observe(&mut self, message: &[u8]) {
        let Some(number) = number_of(message, self.size) else {
            self.counts.damaged += 1;
            return;
        };
        if self.contents && !is_intact(message, number) {
            self.counts.damaged += 1;
            return;
        }
        if number == self.next {
            self.set(number, true);
            self.next += 1;
            self.accept(message);
        } else {
            self.observe_unexpected(message, number);
        }
    }

    #[cold]
    fn observe_unexpected(&mut self, message: &[u8], number: u64) {
        if number > self.next {
            let skipped = number - self.next;
            // What fell out of the window must not look seen when the numbers come round.
            for missing in self.next.max(number.saturating_sub(WINDOW))..number {
                self.set(missing, false);
            }
            self.counts.lost += skipped;
            self.next = number + 1;
            self.set(number, true);
            self.accept(message);
        } else if self.next - number > WINDOW || self.is_set(number) {
            self.counts.duplicated += 1;
        } else {
            self.set(number, true);
            self.counts.reordered += 1;
            self.counts.lost -= 1;
            self.accept(message);
        }
    }

    #[inline]
    fn accept(&mut self, message: &[u8]) {
        self.counts.messages += 1;
        self.counts.bytes += message.len() as u64;
    }

    #[inline]
    fn set(&mut self, number: u64, value: bool) {
        let index = (number % WINDOW) as usize;
        let mask = 1 << (index % 64);
        if value {
            self.seen[index / 64] |= mask;
        } else {
            self.seen[index / 64] &= !mask;
        }
    }

    fn is_set(&self, number: u64) -> bool {
        let index = (number % WINDOW) as usize;
        self.seen[index / 64] & (1 << (index % 64)) != 0
    }
}

/// The number of a message, if its length is right and both of its ends agree.
#[inline]
pub(crate) fn number_of(message: &[u8], size: usize) -> Option<u64> {
    if message.len() != size {
        return None;
    }
    let first = u64::from_le_bytes(*message.first_chunk::<8>()?);
    if size >= 16 && u64::from_le_bytes(*message.last_chunk::<8>()?) != first {
        return None;
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(numbers: &[u64], sent: u64) -> CheckCounts {
        let mut check = Check::new(64);
        for &number in numbers {
            let mut message = [0; 64];
            stamp(&mut message, number);
            check.observe(&message);
        }
        check.finish(sent)
    }

    #[test]
    fn a_perfect_stream_is_clean() {
        let counts = observe(&[0, 1, 2, 3], 4);
        assert_eq!(counts, CheckCounts { messages: 4, bytes: 256, ..CheckCounts::default() });
    }

    #[test]
    fn loss_in_the_middle_and_at_the_end_is_counted() {
        let counts = observe(&[0, 3, 4], 7);
        assert_eq!((counts.messages, counts.lost), (3, 4));
    }

    #[test]
    fn a_late_message_is_reordered_and_not_lost() {
        let counts = observe(&[0, 2, 1, 3], 4);
        assert_eq!((counts.messages, counts.lost, counts.reordered, counts.duplicated), (4, 0, 1, 0));
    }

    #[test]
    fn a_second_copy_is_a_duplicate_whether_early_or_late() {
        let counts = observe(&[0, 0, 1, 2, 1], 3);
        assert_eq!((counts.messages, counts.duplicated, counts.lost, counts.reordered), (3, 2, 0, 0));
    }

    #[test]
    fn old_bits_do_not_speak_for_new_numbers_after_a_wide_gap() {
        // Number 1 was seen; its bit must not make 1 + WINDOW look seen.
        let counts = observe(&[0, 1, WINDOW + 5, WINDOW + 1], WINDOW + 6);
        assert_eq!((counts.duplicated, counts.reordered), (0, 1));
    }

    #[test]
    fn one_wrong_byte_anywhere_in_the_contents_is_damage() {
        for size in [CONTENTS_BYTES_MIN, CONTENTS_BYTES_MIN + 5, 200] {
            let mut message = vec![0; size];
            compose(&mut message, 0, [7, 9]);
            assert_eq!(times_ns(&message), Some([7, 9]));
            for place in HEADER_BYTES..size - 8 {
                let mut check = Check::of_contents(size);
                message[place] ^= 0x40;
                check.observe(&message);
                message[place] ^= 0x40;
                check.observe(&message);
                assert_eq!(
                    (check.counts().damaged, check.counts().messages),
                    (1, 1),
                    "byte {place} of {size}"
                );
            }
        }
    }

    #[test]
    fn the_contents_of_another_message_are_damage() {
        let (mut first, mut second) = (vec![0; 100], vec![0; 100]);
        compose(&mut first, 0, [0; 2]);
        compose(&mut second, 1, [0; 2]);
        second[..8].copy_from_slice(&0_u64.to_le_bytes());
        second[92..].copy_from_slice(&0_u64.to_le_bytes());
        let mut check = Check::of_contents(100);
        check.observe(&second);
        assert_eq!(check.counts().damaged, 1);
        check.observe(&first);
        assert_eq!(check.counts().messages, 1);
    }

    #[test]
    fn damage_is_told_by_length_and_by_contradicting_ends() {
        let mut check = Check::new(64);
        check.observe(&[0; 63]);
        let mut torn = [0; 64];
        stamp(&mut torn, 0);
        torn[63] = 1;
        check.observe(&torn);
        assert_eq!(check.counts().damaged, 2);
        assert_eq!(check.counts().messages, 0);
    }
}
