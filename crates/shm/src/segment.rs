//! One piece of memory that two sides share: anonymous between threads, a sealed memfd between processes.
//!
//! A segment is zero when made and costs no memory until touched. Its size never changes: a memfd is sealed against
//! shrinking before it is mapped, because a peer that cut it short would kill us with SIGBUS at the next access.
//!
//! **Bytes are not synchronised.** [`Segment::write_at`] and [`Segment::read_at`] copy as `memcpy` does. Who may touch
//! which bytes at which time is said by the rings and arenas above; a peer that breaks those rules spoils the bytes
//! that are copied and nothing else.
//!
//! **Fork.** The mapping is left in place in a child (no `MADV_DONTFORK`). A child of a process with a private segment
//! gets a frozen copy that nobody answers; with a shared segment it gets the same memory, and then two processes would
//! drive ends that are made for one. A child that wants to communicate makes a queue pair of its own.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::futex::{self, Scope};
use crate::past_cache;
use crate::sync::AtomicU64;

/// Unit in which segments are sized and laid out.
pub const PAGE_BYTES: usize = 4096;

/// Size of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// No one may resize the file behind a segment, nor take these seals off again.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapped piece of memory of fixed size, shared with another thread or process.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    /// Other processes may have it mapped, too.
    shared: bool,
    file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to no thread, lives until drop, and all access is bounded by `len`. Concurrent use is
// governed by the module's rule on bytes; words are only reached as atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Anonymous memory of `len` bytes (rounded up to whole pages) for the threads of this process.
    pub fn private(len: usize) -> io::Result<Arc<Segment>> {
        let len = whole_pages(len)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = map_aligned(len, flags)?;
        let segment = Segment { base, len, shared: false, file: None };
        segment.refuse_huge_pages();
        Ok(Arc::new(segment))
    }

    /// A sealed memfd of `len` bytes (rounded up to whole pages), mapped; hand [`Segment::fd`] to the other process.
    pub fn shared(len: usize) -> io::Result<Arc<Segment>> {
        let len = whole_pages(len)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a NUL-terminated literal and the flags are constants.
        let raw = unsafe { libc::memfd_create(c"polyrail".as_ptr(), flags) };
        check(raw)?;
        // SAFETY: the call above returned a new descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(raw) };
        file.set_len(len as u64)?;
        // SAFETY: F_ADD_SEALS takes an integer and touches no memory of ours.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Segment::map_shared(file.into(), len)
    }

    /// Maps the segment that another process made.
    ///
    /// Fails with `InvalidData` when the file is not sealed against resizing, or is empty or not in whole pages.
    pub fn from_fd(file: OwnedFd) -> io::Result<Arc<Segment>> {
        // SAFETY: F_GET_SEALS takes no argument and touches no memory of ours.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(invalid("segment is not a memfd sealed against resizing"));
        }
        // The size is asked for after the seals: from here on it cannot change.
        let file = File::from(file);
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| invalid("segment is too large"))?;
        if len == 0 || !len.is_multiple_of(PAGE_BYTES) {
            return Err(invalid("segment is not in whole pages"));
        }
        Segment::map_shared(file.into(), len)
    }

    /// The same, without a descriptor left: it is not passed on.
    pub fn mapped(file: OwnedFd) -> io::Result<Arc<Segment>> {
        let segment = Segment::from_fd(file)?;
        let segment = Arc::into_inner(segment).map(|mut segment| {
            segment.file = None;
            segment
        });
        segment.map(Arc::new).ok_or_else(|| invalid("nobody else has it yet"))
    }

    /// The memfd, to be sent to the other process; `None` for a private segment.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Where it is mapped, for as long as this lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Size in bytes, a multiple of [`PAGE_BYTES`].
    #[allow(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of this segment that are in memory now, whoever touched them, those in swap included where others may have it too. For
    /// reports and tests: it costs a system call, and of a private segment a look at each page.
    pub fn resident_bytes(&self) -> io::Result<usize> {
        if let Some(file) = &self.file {
            return blocks_bytes(file);
        }
        let mut pages = vec![0u8; self.len / PAGE_BYTES];
        // SAFETY: the range is our own mapping, and the vector has one byte for each of its pages.
        check(unsafe { libc::mincore(self.base.as_ptr().cast(), self.len, pages.as_mut_ptr()) })?;
        Ok(pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE_BYTES)
    }

    /// Copies `data` to `offset`; `None` and nothing written when it does not fit wholly inside.
    #[inline]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Option<()> {
        let target = self.pointer(offset, data.len())?;
        // SAFETY: `target` has room for the whole slice inside the mapping. The slice may itself lie in this mapping,
        // therefore the copy that allows overlap.
        unsafe { ptr::copy(data.as_ptr(), target.as_ptr(), data.len()) };
        Some(())
    }

    /// Copies `data` to `offset` past the cache; `None` and nothing written when it does not fit wholly inside. Nobody else
    /// sees it for sure before [`past_cache::settle`].
    #[inline]
    pub(crate) fn write_past_cache(&self, offset: u64, data: &[u8]) -> Option<()> {
        let target = self.pointer(offset, data.len())?;
        // SAFETY: `target` has room for the whole slice inside the mapping; this copy allows overlap.
        unsafe { past_cache::copy(data.as_ptr(), target.as_ptr(), data.len()) };
        Some(())
    }

    /// Fills `data` from `offset`; `None` and nothing read when the range is not wholly inside.
    #[inline]
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        let source = self.pointer(offset, data.len())?;
        // SAFETY: `source` has that many bytes inside the mapping; overlap is allowed by this copy.
        unsafe { ptr::copy(source.as_ptr(), data.as_mut_ptr(), data.len()) };
        Some(())
    }

    /// A range to be gathered by a system call; `None` when it is not wholly inside.
    ///
    /// The kernel reads each byte once, so a peer that writes meanwhile garbles its own message only. The caller must
    /// not look at the bytes itself; see [`Segment::bytes`] for that.
    #[inline]
    pub fn io_slice(&self, offset: u64, len: usize) -> Option<IoSlice<'_>> {
        self.bytes(offset, len).map(IoSlice::new)
    }

    /// The bytes of a range in place; `None` when it is not wholly inside.
    ///
    /// Only for memory that no one writes any more, such as a message that was handed over and not yet released. If
    /// the other side breaks that rule, what is read here may change between two looks: decide nothing twice by it, and
    /// copy first where the sender is not trusted.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = self.pointer(offset, len)?;
        // SAFETY: the range is inside the mapping, which lives as long as `self`; any byte is a valid u8. That nobody
        // writes meanwhile is the rule of the module.
        Some(unsafe { slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Puts fresh pages of zeros in the place of those wholly inside the range of a private segment: whoever else holds
    /// the old ones (the kernel, of what was sent by reference) keeps them as they are. False and nothing done where
    /// that cannot be had.
    pub fn renew(&self, offset: u64, len: usize) -> bool {
        if self.shared || self.pointer(offset, len).is_none() {
            return false;
        }
        let page = PAGE_BYTES as u64;
        let (start, end) = (offset.next_multiple_of(page), (offset + len as u64) / page * page);
        let bytes = end.saturating_sub(start) as usize;
        let Some(first) = self.pointer(start, bytes).filter(|_| bytes > 0) else { return true };
        // SAFETY: the range is whole pages of our own private mapping. Its content is given up by the module's rule on
        // bytes: nobody uses memory that is being released.
        unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    /// Asks for huge pages in a range of a private segment: where the first of them would begin, or `None` if there is
    /// no room for one. Whether the system gives any makes no difference to that, so that the same allocations lie at the
    /// same places each time. What is touched there costs memory in steps of [`HUGE_PAGE_BYTES`].
    pub fn prefer_huge_pages(&self, offset: u64, len: usize) -> Option<u64> {
        if self.shared {
            return None;
        }
        let start = offset.checked_next_multiple_of(HUGE_PAGE_BYTES as u64)?;
        let bytes = len.checked_sub((start - offset) as usize)? / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let first = self.pointer(start, bytes).filter(|_| bytes > 0)?;
        // SAFETY: the range is inside our own mapping, and this advice leaves its content as it is.
        unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Some(start)
    }

    /// The first of `count` words at `offset`; `None` when they are not inside or not aligned.
    pub(crate) fn word_pointer(&self, offset: u64, count: usize) -> Option<NonNull<AtomicU64>> {
        let start = self.pointer(offset, count.checked_mul(8)?)?;
        offset.is_multiple_of(8).then_some(start.cast())
    }

    /// Sleeps on one of this segment's words, see [`futex::wait`].
    pub(crate) fn futex_wait(&self, word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> bool {
        futex::wait(word, expected, timeout, self.scope())
    }

    /// Wakes who sleeps on one of this segment's words.
    pub(crate) fn futex_wake(&self, word: &AtomicU64) {
        futex::wake(word, self.scope());
    }

    fn scope(&self) -> Scope {
        if self.shared { Scope::Machine } else { Scope::Process }
    }

    /// The one place where an offset becomes an address.
    #[inline]
    fn pointer(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: `offset` is at most `len`, so the result is inside the mapping or one past its end.
        Some(unsafe { self.base.add(offset) })
    }

    fn map_shared(file: OwnedFd, len: usize) -> io::Result<Arc<Segment>> {
        let base = map(len, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd())?;
        let segment = Segment { base, len, shared: true, file: Some(file) };
        segment.refuse_huge_pages();
        Ok(Arc::new(segment))
    }

    /// One touched byte must not make 2 MiB resident: thousands of idle clients share a machine. A kernel that knows
    /// no huge pages refuses the advice, which is as good.
    fn refuse_huge_pages(&self) {
        // SAFETY: the range is our own mapping, and this advice leaves its content as it is.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_NOHUGEPAGE) };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the range is our own mapping, and every pointer into it keeps this segment alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Maps `len` fresh bytes, readable and writable.
pub(crate) fn map(len: usize, flags: libc::c_int, file: libc::c_int) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))
}

/// The same, from a multiple of [`HUGE_PAGE_BYTES`] on if they hold a huge page.
fn map_aligned(len: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    if len < HUGE_PAGE_BYTES {
        return map(len, flags, -1);
    }
    let spare = HUGE_PAGE_BYTES - PAGE_BYTES;
    let whole = map(len.checked_add(spare).ok_or_else(|| invalid("size out of range"))?, flags, -1)?;
    let before = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
    for (from, bytes) in [(0, before), (before + len, spare - before)] {
        if bytes > 0 {
            // SAFETY: whole pages at the end of a mapping that nobody knows of yet.
            unsafe { libc::munmap(whole.as_ptr().wrapping_add(from).cast(), bytes) };
        }
    }
    // SAFETY: there are `spare` bytes more than the `len` that lie behind this.
    Ok(unsafe { whole.add(before) })
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn whole_pages(len: usize) -> io::Result<usize> {
    len.checked_next_multiple_of(PAGE_BYTES)
        .filter(|&len| len > 0 && isize::try_from(len).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "segment size is zero or too large"))
}

/// What a file in memory holds.
fn blocks_bytes(file: &OwnedFd) -> io::Result<usize> {
    // SAFETY: an all-zero `stat` is a valid value, for it consists of integers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `stat` is ours to be written to.
    check(unsafe { libc::fstat(file.as_raw_fd(), &mut stat) })?;
    // The system counts in units of 512 bytes, whatever the file's own are.
    Ok(usize::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
