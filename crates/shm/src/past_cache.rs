//! Writes that go past the cache, for long messages that this core does not read again.
//!
//! An ordinary store fetches the line first, from the core that read it last where memory is used in turns. Where two cores
//! are far from each other that was most of a sender's time: 8 to 12 GB/s for a copy into memory that another core reads,
//! against 33 to 38 GB/s past the cache; where they are near, 45 to 60 against 40 (two cores of a virtual machine on an AMD
//! EPYC, that the host moves every few seconds; a ring of 2 to 16 MiB, copied into by 1,440 bytes). So these are for what would not stay in the cache anyway.

use std::ptr;

/// Bytes of a line of the cache.
const LINE_BYTES: usize = 64;

/// Copies `len` bytes; lines that are written wholly go past the cache. Nobody else sees them for sure before [`settle`].
///
/// # Safety
/// `from` can be read and `to` written for `len` bytes.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let head = to.align_offset(LINE_BYTES).min(len);
    let lines = (len - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    if (from as usize).abs_diff(to as usize) < len {
        // SAFETY: as the caller says; this copy allows overlap.
        return unsafe { ptr::copy(from, to, len) };
    }
    // SAFETY: the first part of the range; nothing overlaps.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    // SAFETY: the lines behind it, of which the first begins where one does.
    unsafe { copy_lines(from.wrapping_add(head), to.wrapping_add(head), lines) };
    // SAFETY: what is left of the range.
    unsafe { ptr::copy_nonoverlapping(from.wrapping_add(tail), to.wrapping_add(tail), len - tail) };
}

/// # Safety
/// As for [`copy`], for whole lines that begin at `to`, without overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_lines(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const WORDS: usize = LINE_BYTES / size_of::<__m128i>();
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for line in 0..lines {
        let at = |word| line * WORDS + word;
        let load = |word| {
            // SAFETY: within the lines, and every x86-64 processor has this instruction.
            unsafe { _mm_loadu_si128(from.wrapping_add(at(word))) }
        };
        let words: [__m128i; WORDS] = std::array::from_fn(load);
        for (word, value) in words.into_iter().enumerate() {
            // SAFETY: as above; `to` is aligned as a line is.
            unsafe { _mm_stream_si128(to.wrapping_add(at(word)), value) };
        }
    }
}

/// # Safety
/// As for [`copy`], for whole lines, without overlap.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: as the caller says.
    unsafe { ptr::copy_nonoverlapping(from, to, lines * LINE_BYTES) }
}

/// What was copied is there before anything that is written afterwards: no other fence and no atomic store says that.
#[inline]
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_begins_where_is_copied_as_it_is_and_nothing_beside_it() {
        let from: Vec<u8> = (0..400).map(|at| at as u8 ^ 0x5a).collect();
        for (start, len) in
            (0..70).flat_map(|start| [0, 1, 15, 63, 64, 65, 128, 200, 300].map(|len| (start, len)))
        {
            let mut to = vec![0xee; 400];
            // SAFETY: both are longer.
            unsafe { copy(from[start / 3..].as_ptr(), to[start..].as_mut_ptr(), len) };
            settle();
            assert_eq!(to[start..start + len], from[start / 3..start / 3 + len], "{start} {len}");
            assert!(to[..start].iter().chain(&to[start + len..]).all(|byte| *byte == 0xee), "{start} {len}");
        }
    }

    #[test]
    fn what_overlaps_is_copied_as_it_was() {
        for distance in [1, 63, 64, 100] {
            let mut bytes: Vec<u8> = (0..500).map(|at| (at * 7) as u8).collect();
            let before = bytes.clone();
            let to = bytes.as_mut_ptr();
            // SAFETY: 100 + 300 bytes are there.
            unsafe { copy(to, to.wrapping_add(distance), 300) };
            settle();
            assert_eq!(bytes[distance..distance + 300], before[..300], "{distance}");
        }
    }
}
