//! A part of a segment with bounds of its own, such as the bytes of one arena.

#[cfg(not(loom))]
use std::io::IoSlice;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::past_cache;
use crate::segment::Segment;

/// A range of a segment's bytes; offsets count from its start. Clones are cheap and keep the segment mapped.
///
/// The rules on bytes are those of [`crate::segment`].
#[derive(Clone, Debug)]
pub struct Region {
    segment: Arc<Segment>,
    #[cfg_attr(loom, allow(dead_code, reason = "models have no bytes"))]
    start: u64,
    len: u64,
}

impl Region {
    /// The `len` bytes from `start`; `None` when they are not wholly inside the segment.
    pub fn new(segment: &Arc<Segment>, start: u64, len: u64) -> Option<Region> {
        let end = start.checked_add(len)?;
        #[cfg(not(loom))]
        let inside = usize::try_from(end).is_ok_and(|end| end <= segment.len());
        #[cfg(loom)]
        let inside = end > 0;
        inside.then(|| Region { segment: Arc::clone(segment), start, len })
    }

    /// The segment this is a part of.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the region has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(not(loom))]
impl Region {
    /// Copies `data` to `offset`; `None` and nothing written when it does not fit wholly inside.
    #[inline]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Option<()> {
        self.segment.write_at(self.place(offset, data.len())?, data)
    }

    /// For writes of what this core does not read again and a cache would not hold.
    pub fn past_cache(&self) -> PastCache<'_> {
        PastCache { region: self }
    }

    /// Fills `data` from `offset`; `None` and nothing read when the range is not wholly inside.
    #[inline]
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        self.segment.read_at(self.place(offset, data.len())?, data)
    }

    /// A range to be gathered by a system call, see [`Segment::io_slice`].
    #[inline]
    pub fn io_slice(&self, offset: u64, len: usize) -> Option<IoSlice<'_>> {
        self.segment.io_slice(self.place(offset, len)?, len)
    }

    /// The bytes of a range that nobody writes any more, see [`Segment::bytes`].
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.segment.bytes(self.place(offset, len)?, len)
    }

    /// Puts fresh pages in the place of a range's, see [`Segment::renew`].
    pub fn renew(&self, offset: u64, len: usize) -> bool {
        self.place(offset, len).is_some_and(|at| self.segment.renew(at, len))
    }

    /// Asks for huge pages in a range, see [`Segment::prefer_huge_pages`].
    pub fn prefer_huge_pages(&self, offset: u64, len: usize) -> Option<u64> {
        self.segment.prefer_huge_pages(self.place(offset, len)?, len).map(|at| at - self.start)
    }

    /// Offset in the segment of a range that lies wholly inside this region.
    #[inline]
    fn place(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.checked_add(len as u64)?;
        // The sum is taken only where it is known to be inside: offsets come from peers.
        (end <= self.len).then(|| self.start + offset)
    }
}

/// Writes to a region past the cache. When this is dropped, they are there before anything that is written afterwards:
/// tell others only then.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct PastCache<'a> {
    region: &'a Region,
}

#[cfg(not(loom))]
impl PastCache<'_> {
    /// Copies `data` to `offset`; `None` and nothing written when it does not fit wholly inside.
    #[inline]
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        self.region.segment.write_past_cache(self.region.place(offset, data.len())?, data)
    }
}

#[cfg(not(loom))]
impl Drop for PastCache<'_> {
    fn drop(&mut self) {
        past_cache::settle();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn offsets_near_the_end_of_all_numbers_are_outside() {
        let segment = Segment::private(8_192).unwrap();
        let region = Region::new(&segment, 4_096, 4_096).unwrap();
        assert!(region.io_slice(4_090, 6).is_some() && region.io_slice(4_090, 7).is_none());
        for offset in [4_097, u64::MAX / 2, u64::MAX - 4_096, u64::MAX - 6, u64::MAX] {
            assert!(region.io_slice(offset, 6).is_none(), "{offset}");
            assert!(!region.renew(offset, 6));
        }
        assert!(Region::new(&segment, u64::MAX, 2).is_none());
    }
}
