//! The ring that a packet socket shares with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::set_option;

/// Places for frames.
const PLACES: usize = 256;
/// Bytes of one: the kernel's header, room for alignment, and the frame.
const PLACE_BYTES: usize = 2_048;
const BLOCK_BYTES: usize = 64 * 1_024;
const RING_BYTES: usize = PLACES * PLACE_BYTES;

/// Frames as the kernel puts them there, in the order of arrival.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it depends on the thread.
unsafe impl Send for Ring {}

impl Ring {
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Ring> {
        // `tpacket_req`: bytes of a block, blocks, bytes of a place, places.
        let request =
            [BLOCK_BYTES as u32, (RING_BYTES / BLOCK_BYTES) as u32, PLACE_BYTES as u32, PLACES as u32];
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        Ring::map(libc::MAP_SHARED, fd.as_raw_fd())
    }

    fn map(flags: i32, fd: RawFd) -> io::Result<Ring> {
        let (protection, nothing) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base = unsafe { libc::mmap(nothing, RING_BYTES, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Ring { base, next: 0 })
    }

    /// The oldest frame. One that was cut is given back unread and ends the look, which is bounded thereby; there is none
    /// as long as the filter keeps them out.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let Some((at, len)) = self.extent() else {
            self.pass();
            return None;
        };
        // SAFETY: `extent` lies within the place, which the kernel leaves alone until it is given back, and that takes
        // `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(self.place(at), len) })
    }

    /// Gives the place back and goes on to the next.
    #[inline]
    pub fn pass(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % PLACES;
    }

    /// A pointer to byte `at` of the current place.
    #[inline]
    fn place(&self, at: usize) -> *mut u8 {
        debug_assert!(at < PLACE_BYTES);
        // SAFETY: `next` is below PLACES and `at` below PLACE_BYTES, so the result is inside the mapping.
        unsafe { self.base.as_ptr().add(self.next * PLACE_BYTES + at) }
    }

    /// The word that says whose the current place is.
    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status is the first word of a place, which is aligned to 2,048 bytes; both sides only ever
        // access it atomically.
        unsafe { AtomicU32::from_ptr(self.place(0).cast()) }
    }

    /// Where the current place's frame begins, and its length; `None` unless it is whole.
    fn extent(&self) -> Option<(usize, usize)> {
        // SAFETY: the place begins with this header, and is ours until it is given back.
        let header: libc::tpacket2_hdr = unsafe { self.place(0).cast::<libc::tpacket2_hdr>().read() };
        let (at, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let whole = header.tp_snaplen == header.tp_len && at < PLACE_BYTES && len <= PLACE_BYTES - at;
        whole.then_some((at, len))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is our own mapping, and no reference into it outlives this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), RING_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where frames begin in the tests' places.
    const AT: usize = 64;

    /// A ring that no socket fills.
    fn ring() -> Ring {
        Ring::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1).unwrap()
    }

    /// Puts a frame of `len` bytes, of which the first `kept` are there, in the current place, as the kernel would.
    fn fill(ring: &Ring, len: usize, kept: usize) {
        // SAFETY: zeros are a valid value of this plain data.
        let mut header: libc::tpacket2_hdr = unsafe { std::mem::zeroed() };
        (header.tp_len, header.tp_snaplen, header.tp_mac) = (len as u32, kept as u32, AT as u16);
        header.tp_status = libc::TP_STATUS_USER;
        // SAFETY: the place is aligned and larger than the header, and nobody refers to it.
        unsafe { ring.place(0).cast::<libc::tpacket2_hdr>().write(header) };
        // SAFETY: byte AT lies in the place, and nobody refers to it.
        unsafe { ring.place(AT).write(ring.next as u8) };
    }

    #[test]
    fn a_place_is_read_until_it_is_given_back_and_then_the_next() {
        let mut ring = ring();
        for round in 0..2 * PLACES {
            assert_eq!(ring.peek(), None, "{round}");
            fill(&ring, 100, 100);
            for _ in 0..2 {
                let frame = ring.peek().unwrap();
                assert_eq!((frame.len(), frame[0]), (100, round as u8));
            }
            ring.pass();
        }
    }

    #[test]
    fn what_is_cut_or_does_not_fit_is_given_back_one_at_a_look() {
        let mut ring = ring();
        let room = PLACE_BYTES - AT;
        let rubbish = [(101, 100), (room + 1, room + 1), (usize::MAX >> 32, usize::MAX >> 32)];
        for (len, kept) in rubbish {
            fill(&ring, len, kept);
            ring.next += 1;
        }
        fill(&ring, room, room);
        ring.next = 0;
        for place in 1..=rubbish.len() {
            assert_eq!(ring.peek(), None);
            assert_eq!(ring.next, place, "one frame is passed over by each look");
        }
        assert_eq!(ring.peek().map(<[u8]>::len), Some(room));
    }
}
