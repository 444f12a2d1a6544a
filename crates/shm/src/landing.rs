//! Memory of a thread that waits for bytes, in which the engine may put them while it waits.
//!
//! Bytes of a stream whose reader is already there need not lie in an arena first. The memory is borrowed, so it is open only while
//! [`Landing::open`] waits, and each time under another token: who comes too late with an old one finds it closed.

use std::ptr::{self, NonNull};
use std::sync::Mutex;

use crate::sync::{AtomicU64, Ordering};

/// A reader's place for bytes, closed unless the reader waits.
#[derive(Debug, Default)]
pub struct Landing {
    open: Mutex<Open>,
    /// So many bytes have landed since it was opened last. Written by whoever has `open`.
    landed: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    /// What is left of the reader's memory; `None`: it is closed.
    room: Option<(NonNull<u8>, usize)>,
    token: u64,
}

// SAFETY: the memory behind `room` is borrowed by `Landing::open` as nobody else's for as long as `room` leads to it, and is
// touched only by whoever has the lock; it belongs to no thread.
unsafe impl Send for Open {}

/// Closes a landing also if its reader's wait ends by a panic.
struct Closer<'a>(&'a Landing);

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        self.0.lock().room = None;
    }
}

impl Landing {
    /// Opens `into` for what comes while `wait` lasts, which gets the token for [`Landing::fill`]; what `wait` gave, and how many
    /// bytes have landed, from the front.
    pub fn open<R>(&self, into: &mut [u8], wait: impl FnOnce(u64) -> R) -> (R, usize) {
        let token = {
            let mut open = self.lock();
            open.token += 1;
            open.room = Some((NonNull::from(&mut *into).cast(), into.len()));
            self.landed.store(0, Ordering::Relaxed);
            open.token
        };
        let closer = Closer(self);
        let result = wait(token);
        drop(closer);
        (result, self.landed())
    }

    /// Bytes that have landed since it was opened last.
    #[inline]
    pub fn landed(&self) -> usize {
        self.landed.load(Ordering::Acquire) as usize
    }

    /// Bytes that have room; `None`: it is not open under that token.
    pub fn room(&self, token: u64) -> Option<usize> {
        let open = self.lock();
        open.room.filter(|_| open.token == token).map(|(_, bytes)| bytes)
    }

    /// Puts `pieces` behind what has landed, as far as there is room; how many bytes that were: 0 if it is not open under that
    /// token.
    pub fn fill<'a>(&self, token: u64, pieces: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut open = self.lock();
        let Some((first, bytes)) = open.room.filter(|_| open.token == token) else { return 0 };
        let mut filled = 0;
        for piece in pieces {
            let take = piece.len().min(bytes - filled);
            // SAFETY: `first` leads to `bytes` bytes, of which `filled` are in use.
            let target = unsafe { first.add(filled) };
            // SAFETY: what is left behind `target` is at least `take` bytes, and ours alone while `room` says so; `piece` is a
            // shared reference and so lies elsewhere.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), target.as_ptr(), take) };
            filled += take;
            if take < piece.len() {
                break;
            }
        }
        // SAFETY: not beyond the end of the same memory.
        open.room = Some((unsafe { first.add(filled) }, bytes - filled));
        self.landed.store(self.landed.load(Ordering::Relaxed) + filled as u64, Ordering::Release);
        filled
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn bytes_land_from_the_front_as_far_as_there_is_room() {
        let (landing, mut into) = (Landing::default(), [9; 10]);
        let (tokens, landed) = landing.open(&mut into, |token| {
            assert_eq!((landing.room(token), landing.landed()), (Some(10), 0));
            assert_eq!(landing.fill(token, [&b"abc"[..], b"", b"de"].into_iter()), 5);
            assert_eq!(landing.fill(token + 1, [&b"no"[..]].into_iter()), 0);
            assert_eq!((landing.room(token), landing.landed()), (Some(5), 5));
            assert_eq!(landing.fill(token, [&b"fgh"[..], b"ijkl", b"m"].into_iter()), 5);
            assert_eq!(landing.fill(token, [&b"n"[..]].into_iter()), 0);
            token
        });
        assert_eq!((landed, &into), (10, b"abcdefghij"));
        assert_eq!((landing.fill(tokens, [&b"x"[..]].into_iter()), landing.room(tokens)), (0, None));
    }

    #[test]
    fn an_old_token_does_not_reach_the_next_readers_memory() {
        let (landing, mut first, mut second) = (Landing::default(), [0; 4], [0; 4]);
        let (old, _) = landing.open(&mut first, |token| token);
        let (_, landed) = landing.open(&mut second, |token| {
            assert_eq!(landing.fill(old, [&b"late"[..]].into_iter()), 0);
            landing.fill(token, [&b"ok"[..]].into_iter())
        });
        assert_eq!((landed, first, second), (2, [0; 4], *b"ok\0\0"));
    }

    #[test]
    fn a_wait_that_panics_closes_it() {
        let (landing, mut into) = (Landing::default(), [0; 4]);
        let mut used = 0;
        let wait = || {
            landing.open(&mut into, |token| {
                used = token;
                panic!("a reader's own trouble")
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
        assert_eq!(
            (landing.room(used), landing.fill(used, [&b"x"[..]].into_iter()), into),
            (None, 0, [0; 4])
        );
    }

    #[test]
    fn another_thread_fills_it() {
        let (landing, mut into) = (Landing::default(), vec![0; 4_096]);
        let (_, landed) = landing.open(&mut into, |token| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..64u8 {
                        landing.fill(token, [&[n; 64][..]].into_iter());
                    }
                });
                while landing.landed() < 64 {
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(landed, 4_096);
        assert!(into.chunks(64).enumerate().all(|(n, piece)| piece == [n as u8; 64]));
    }
}
