//! The ring that a packet socket shares with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::set_option;

/// Places for frames.
const PLACES: usize = 256;
/// Bytes of one: the kernel's header, room for alignment, and the frame.
const PLACE_BYTES: usize = 2_048;
const BLOCK_BYTES: usize = 64 * 1_024;
const RING_BYTES: usize = PLACES * PLACE_BYTES;
/// The sender's address lies behind the header, aligned.
const ADDRESS_AT: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

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
        let (protection, nothing) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base =
            unsafe { libc::mmap(nothing, RING_BYTES, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Ring { base, next: 0 })
    }

    /// The oldest whole frame for this machine. Others are given back unread.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        while self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0 {
            if let Some((at, len)) = self.extent() {
                // SAFETY: `extent` lies within the place, which the kernel leaves alone until it is given back, and
                // that takes `&mut self`.
                return Some(unsafe { std::slice::from_raw_parts(self.place(at), len) });
            }
            self.pass();
        }
        None
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

    /// Where the current place's frame begins, and its length; `None` unless it is whole and for this machine.
    fn extent(&self) -> Option<(usize, usize)> {
        // SAFETY: the place begins with this header, and is ours until it is given back.
        let header: libc::tpacket2_hdr = unsafe { self.place(0).cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: the address follows the header at this distance (packet(7)), and is ours as well.
        let from: libc::sockaddr_ll = unsafe { self.place(ADDRESS_AT).cast::<libc::sockaddr_ll>().read() };
        let (at, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let ours = from.sll_pkttype == libc::PACKET_HOST || from.sll_pkttype == libc::PACKET_BROADCAST;
        let whole = header.tp_snaplen == header.tp_len && at < PLACE_BYTES && len <= PLACE_BYTES - at;
        (ours && whole).then_some((at, len))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is our own mapping, and no reference into it outlives this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), RING_BYTES) };
    }
}
