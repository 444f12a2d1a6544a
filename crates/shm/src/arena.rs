//! Memory for messages: one side allocates, the other releases, and no ring or lock goes between them.
//!
//! An arena is a row of blocks of 64 KiB. Small allocations are cut off the current block one after the other; one larger
//! than a block takes whole blocks in a row. Each block has a shared counter `released`, written only by the releaser,
//! and a private count `allocated` at the allocator; a block is free again when they are equal. A release is one store.
//!
//! Free blocks are searched from the bottom, so that light traffic stays in few blocks: they remain in the cache, and
//! memory above them is never touched.
//!
//! The pair `arena.released` holds it together: who releases has finished reading before the allocator writes there
//! again. A hostile releaser can free too early, which spoils what it has not read yet, or write an impossible counter,
//! upon which the block is lost to it; nothing else.

use std::sync::Arc;

use crate::region::Region;
use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::words::Words;

/// Bytes of one block.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// Allocations start at and take multiples of this: a reader's line is never shared with the next message's writer.
pub const GRAIN_BYTES: u64 = 64;

#[cfg(not(loom))]
/// The part of an arena in which huge pages are never asked for.
const SMALL_PART_BYTES: u64 = 1 << 20;

/// Blocks looked at by one [`ArenaAllocator::free_bytes`]: the counters of one cache line.
const REFRESH_BLOCKS: usize = 8;

/// Where an arena lies in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaPlace {
    /// Offset of the counters, one word per block (a multiple of 8).
    pub counters: u64,
    /// Offset of the first block.
    pub data: u64,
    /// Number of blocks.
    pub blocks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// Holds allocations of its own, and is the first of `span` blocks.
    Head {
        span: u32,
    },
    /// Belongs to the allocation that starts in an earlier block.
    Tail,
    /// The releaser wrote an impossible counter: never used again, with all its `span` blocks.
    Lost {
        span: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Block {
    allocated: u64,
    state: Use,
}

/// An allocation of whole blocks that was handed to the other side.
#[derive(Clone, Copy, Debug)]
pub struct HandedOver {
    block: usize,
    allocated: u64,
}

/// The block that small allocations are cut from.
#[derive(Clone, Copy, Debug)]
struct Current {
    block: usize,
    used_bytes: u64,
}

/// The allocating end of an arena.
#[derive(Debug)]
pub struct ArenaAllocator {
    released: Words,
    memory: Region,
    blocks: Box<[Block]>,
    current: Option<Current>,
    blocks_free: u64,
    blocks_lost: u64,
    refresh_next: usize,
    /// Where allocations of several blocks are looked for first.
    large_from: usize,
    /// Allocations of up to a quarter of these blocks stay below their end.
    low_blocks: usize,
}

impl ArenaAllocator {
    /// The allocating end of the arena at `place`; `None` when it is not inside the segment or has no blocks. One arena
    /// has one allocator, and everything counts as free when it is made.
    pub fn new(segment: &Arc<Segment>, place: ArenaPlace) -> Option<ArenaAllocator> {
        let (released, memory) = parts(segment, place)?;
        let blocks = released
            .all()
            .iter()
            .map(|released| Block { allocated: released.load(Relaxed), state: Use::Free })
            .collect();
        let blocks_free = u64::from(place.blocks);
        Some(ArenaAllocator {
            released,
            memory,
            blocks,
            current: None,
            blocks_free,
            blocks_lost: 0,
            refresh_next: 0,
            large_from: 0,
            low_blocks: place.blocks as usize,
        })
    }

    /// Has allocations of several blocks lie in huge pages, where they can be had: the kernel takes a stretch of one by reference
    /// at once, not page by page (a stream of 1 MiB messages gained 13 to 19 % in three series of alternated runs, nothing in a
    /// fourth). The first MiB is left to small allocations, so that an arena which has no others stays small.
    #[cfg(not(loom))]
    pub fn prefer_huge_pages(&mut self) {
        let bytes = self.capacity().saturating_sub(SMALL_PART_BYTES) as usize;
        let from = self.memory.prefer_huge_pages(SMALL_PART_BYTES, bytes);
        self.large_from = from.map_or(0, |from| from.div_ceil(BLOCK_BYTES) as usize);
    }

    /// Keeps allocations of up to a quarter of `bytes` within the first `bytes`, so that who makes no longer ones has no more
    /// under way than a cache holds, however large the arena is for the sake of long ones.
    pub fn keep_low(&mut self, bytes: u64) {
        self.low_blocks = self.blocks.len().min((bytes / BLOCK_BYTES) as usize);
    }

    /// Memory for `len` bytes, as an offset into [`ArenaAllocator::memory`] (a multiple of 64); `None` when there is
    /// none now. Also zero bytes get an offset of their own, which is released like any other.
    pub fn alloc(&mut self, len: u64) -> Option<u64> {
        let bytes = len.max(1).checked_next_multiple_of(GRAIN_BYTES)?;
        if bytes > BLOCK_BYTES { self.alloc_blocks(bytes) } else { self.alloc_small(bytes) }
    }

    /// Gives back an allocation that was never handed to the other side. Says whether it could be one.
    pub fn release_own(&mut self, offset: u64) -> bool {
        let Some(index) = block_of(offset, self.blocks.len()) else { return false };
        let released = self.released.at(index).load(Relaxed);
        let block = &mut self.blocks[index];
        if !matches!(block.state, Use::Head { .. }) || block.allocated == released {
            return false;
        }
        block.allocated = block.allocated.wrapping_sub(1);
        true
    }

    /// Memory for up to `len` bytes for who can't know yet how many it will need: it stays allocated, even if the other side
    /// is told of it and has released it, until [`ArenaAllocator::close`].
    pub fn alloc_open(&mut self, len: u64) -> Option<u64> {
        let offset = self.alloc(len)?;
        let block = &mut self.blocks[(offset / BLOCK_BYTES) as usize];
        block.allocated = block.allocated.wrapping_add(1);
        Some(offset)
    }

    /// Ends an open allocation: of `len` bytes has the other side been told, and what is beyond them is free again, in whole
    /// blocks.
    pub fn close(&mut self, offset: u64, len: u64) {
        let Some(index) = block_of(offset, self.blocks.len()) else { return };
        let Use::Head { span } = self.blocks[index].state else { return };
        // Several smaller ones share a block.
        let kept = len.max(1).div_ceil(BLOCK_BYTES).min(u64::from(span));
        for block in &mut self.blocks[index + kept as usize..index + span as usize] {
            block.state = Use::Free;
        }
        self.blocks[index].state = Use::Head { span: kept as u32 };
        self.blocks_free += u64::from(span) - kept;
        self.release_own(offset);
    }

    /// What was allocated last at `offset`, whole blocks, to ask later whether the other side has released it; `None` outside.
    pub fn handed_over(&self, offset: u64) -> Option<HandedOver> {
        let block = block_of(offset, self.blocks.len())?;
        Some(HandedOver { block, allocated: self.blocks[block].allocated })
    }

    /// Whether the other side has released it.
    pub fn is_released(&self, handed: HandedOver) -> bool {
        self.released.at(handed.block).load(Relaxed) >= handed.allocated
    }

    /// Bytes in blocks known to be wholly free and in the rest of the current one. Each call looks at a few more blocks
    /// (one cache line), so repeated calls come to know all that was released; [`ArenaAllocator::reclaim`] does it at
    /// once.
    pub fn free_bytes(&mut self) -> u64 {
        for _ in 0..REFRESH_BLOCKS.min(self.blocks.len()) {
            self.reclaim_block(self.refresh_next);
            self.refresh_next = (self.refresh_next + 1) % self.blocks.len();
        }
        self.free_bytes_known()
    }

    /// Looks at all blocks and gives the exact number of free bytes as of now.
    pub fn reclaim(&mut self) -> u64 {
        self.retire_drained();
        for index in 0..self.blocks.len() {
            self.reclaim_block(index);
        }
        self.free_bytes_known()
    }

    /// The largest allocation that would succeed now, in bytes. Looks at all blocks.
    pub fn largest_alloc(&mut self) -> u64 {
        self.reclaim();
        let mut longest = 0;
        let mut run = 0;
        for block in &self.blocks {
            run = if block.state == Use::Free { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        (longest * BLOCK_BYTES).max(self.current_rest())
    }

    /// Size in bytes.
    pub fn capacity(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Blocks given up because the releaser wrote an impossible counter for them.
    pub fn blocks_lost(&self) -> u64 {
        self.blocks_lost
    }

    /// The arena's bytes, which offsets count in.
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// The segment that the arena lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        self.memory.segment()
    }

    fn alloc_small(&mut self, bytes: u64) -> Option<u64> {
        if let Some(offset) = self.cut(bytes) {
            return Some(offset);
        }
        let block = match self.take_drained_current() {
            Some(block) => block,
            None => self.take_blocks(0, 1)?,
        };
        // The block with more room left serves the following allocations.
        let rest = BLOCK_BYTES - bytes;
        if rest > 0 && rest >= self.current_rest() {
            self.current = Some(Current { block, used_bytes: bytes });
        }
        self.blocks[block].allocated = self.blocks[block].allocated.wrapping_add(1);
        Some(block as u64 * BLOCK_BYTES)
    }

    fn alloc_blocks(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.capacity() {
            return None;
        }
        self.retire_drained();
        let count = bytes.div_ceil(BLOCK_BYTES) as usize;
        let block = self.take_blocks(self.large_from, count).or_else(|| self.take_blocks(0, count))?;
        self.blocks[block].allocated = self.blocks[block].allocated.wrapping_add(1);
        Some(block as u64 * BLOCK_BYTES)
    }

    /// Cuts `bytes` off the current block.
    #[inline]
    fn cut(&mut self, bytes: u64) -> Option<u64> {
        let Current { block, used_bytes } = self.current?;
        if bytes > BLOCK_BYTES - used_bytes {
            return None;
        }
        let used_after = used_bytes + bytes;
        // A full block is current no more: it is free as soon as all of it has been released.
        self.current = (used_after < BLOCK_BYTES).then_some(Current { block, used_bytes: used_after });
        self.blocks[block].allocated = self.blocks[block].allocated.wrapping_add(1);
        Some(block as u64 * BLOCK_BYTES + used_bytes)
    }

    /// The current block from its start again, when all that was cut from it has been released: request and answer then
    /// live in one block that stays in the cache.
    fn take_drained_current(&mut self) -> Option<usize> {
        let block = self.current?.block;
        // Acquire of `arena.released`: the releaser has finished reading this block.
        let drained = self.released.at(block).load(Acquire) == self.blocks[block].allocated;
        drained.then(|| {
            self.current = None;
            block
        })
    }

    /// Makes the current block free if all that was cut from it has been released.
    fn retire_drained(&mut self) {
        if let Some(block) = self.take_drained_current() {
            self.reclaim_block(block);
        }
    }

    /// Takes the lowest `count` free blocks in a row from block `start` on.
    fn take_blocks(&mut self, mut start: usize, count: usize) -> Option<usize> {
        let mut index = start;
        let end = if count <= self.low_blocks / 4 { self.low_blocks } else { self.blocks.len() };
        while index < end {
            self.reclaim_block(index);
            match self.blocks[index].state {
                Use::Free => index += 1,
                Use::Head { span } | Use::Lost { span } => {
                    index += span as usize;
                    start = index;
                }
                Use::Tail => {
                    index += 1;
                    start = index;
                }
            }
            if index - start == count {
                self.occupy(start, count);
                return Some(start);
            }
        }
        None
    }

    fn occupy(&mut self, start: usize, count: usize) {
        for block in &mut self.blocks[start..start + count] {
            block.state = Use::Tail;
        }
        self.blocks[start].state = Use::Head { span: count as u32 };
        self.blocks_free -= count as u64;
    }

    /// Frees the allocation that starts in block `index` if all of it has been released.
    fn reclaim_block(&mut self, index: usize) {
        let Use::Head { span } = self.blocks[index].state else { return };
        if self.current.is_some_and(|current| current.block == index) {
            return;
        }
        // Acquire of `arena.released`: the releaser has finished reading before these bytes are written again.
        let released = self.released.at(index).load(Acquire);
        let allocated = self.blocks[index].allocated;
        if released == allocated {
            for block in &mut self.blocks[index..index + span as usize] {
                block.state = Use::Free;
            }
            self.blocks_free += u64::from(span);
        } else if released > allocated {
            self.blocks[index].state = Use::Lost { span };
            self.blocks_lost += u64::from(span);
        }
    }

    fn current_rest(&self) -> u64 {
        self.current.map_or(0, |current| BLOCK_BYTES - current.used_bytes)
    }

    fn free_bytes_known(&self) -> u64 {
        self.blocks_free * BLOCK_BYTES + self.current_rest()
    }
}

/// The releasing end of an arena.
#[derive(Debug)]
pub struct ArenaReleaser {
    released: Words,
    memory: Region,
    counts: Box<[u64]>,
}

impl ArenaReleaser {
    /// The releasing end of the arena at `place`; `None` when it is not inside the segment or has no blocks. One arena
    /// has one releaser.
    pub fn new(segment: &Arc<Segment>, place: ArenaPlace) -> Option<ArenaReleaser> {
        let (released, memory) = parts(segment, place)?;
        let counts = released.all().iter().map(|count| count.load(Relaxed)).collect();
        Some(ArenaReleaser { released, memory, counts })
    }

    /// Gives the allocation at `offset` back, once. Says whether the offset lies in the arena at all.
    #[inline]
    pub fn release(&mut self, offset: u64) -> bool {
        let Some(index) = block_of(offset, self.counts.len()) else { return false };
        // The private count is the true one: what the allocator may have scribbled over the shared one is not read.
        self.counts[index] = self.counts[index].wrapping_add(1);
        // Release of `arena.released`: all our reading of the allocation comes before.
        self.released.at(index).store(self.counts[index], Release);
        true
    }

    /// Size in bytes.
    pub fn capacity(&self) -> u64 {
        self.counts.len() as u64 * BLOCK_BYTES
    }

    /// The arena's bytes, which offsets count in.
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// The segment that the arena lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        self.memory.segment()
    }
}

fn parts(segment: &Arc<Segment>, place: ArenaPlace) -> Option<(Words, Region)> {
    if place.blocks == 0 {
        return None;
    }
    let released = Words::new(segment, place.counters, place.blocks as usize)?;
    let memory = Region::new(segment, place.data, u64::from(place.blocks) * BLOCK_BYTES)?;
    Some((released, memory))
}

fn block_of(offset: u64, blocks: usize) -> Option<usize> {
    usize::try_from(offset / BLOCK_BYTES).ok().filter(|&block| block < blocks)
}
