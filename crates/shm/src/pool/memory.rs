//! The memory of one buffer: mapped on its own, or from the heap where a mapping would be too small a thing; or a file in
//! memory, for another process to map too.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::quota::Charge;
use crate::segment::{Segment, map};

/// From this size on a buffer is a mapping of its own. Below, thousands of mappings would meet the kernel's limit of
/// about 65,000 per process.
const MAPPED_FROM: usize = 64 << 10;

/// From this size on huge pages are asked for: one fault in place of 512.
const HUGE_FROM: usize = 2 << 20;

/// Buffers start on a cache line.
const ALIGN: usize = 64;

/// Initialised memory that is ours alone, or that another process has been given to read or write for a while.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// Whose mapping it is, if it is a file's.
    file: Option<Arc<Segment>>,
    /// What it counts to, as long as it is there.
    charge: Option<Charge>,
}

// SAFETY: the memory has one owner and belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of `len` bytes, a size class.
    pub(super) fn new(len: usize) -> io::Result<Memory> {
        let base = if len >= MAPPED_FROM { map_buffer(len)? } else { heap_buffer(len)? };
        Ok(Memory { base, len, file: None, charge: None })
    }

    /// The same in a sealed file, in whole pages.
    pub(super) fn in_file(len: usize) -> io::Result<Memory> {
        let file = Segment::shared(len)?;
        Ok(Memory { base: file.base(), len, file: Some(file), charge: None })
    }

    /// The same, counted.
    pub(super) fn charged(mut self, charge: Option<Charge>) -> Memory {
        self.charge = charge;
        self
    }

    pub(super) fn file(&self) -> Option<&Arc<Segment>> {
        self.file.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes start at `base`, and live and stay unwritten as long as this borrow.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes start at `base`, and this borrow is the only way to them.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.file.is_some() {
            // It is unmapped with its segment.
        } else if self.len >= MAPPED_FROM {
            // SAFETY: the range was mapped by `map_buffer` and no borrow of it is left.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        } else if let Ok(layout) = Layout::from_size_align(self.len, ALIGN) {
            // SAFETY: `heap_buffer` allocated it with this same layout.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

fn map_buffer(len: usize) -> io::Result<NonNull<u8>> {
    let base = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
    if len >= HUGE_FROM {
        // SAFETY: the range is the new mapping, and the advice leaves its content as it is.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }
    Ok(base)
}

fn heap_buffer(len: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(len, ALIGN).map_err(io::Error::other)?;
    // SAFETY: a size class is never zero.
    let base = unsafe { alloc_zeroed(layout) };
    NonNull::new(base).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
