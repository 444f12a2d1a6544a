//! Where everything of a queue pair lies.

use std::io;
use std::sync::Arc;

use crate::arena::{ArenaPlace, BLOCK_BYTES};
use crate::ring::{ENTRIES_MAX, ring_bytes};
use crate::segment::{PAGE_BYTES, Segment, invalid};

/// "polyrail" in memory.
const MAGIC: u64 = u64::from_le_bytes(*b"polyrail");

/// Changes with every change of this file.
const VERSION: u64 = 2;

/// Most bytes of one arena: 64 GiB.
const ARENA_BYTES_MAX: u64 = 1 << 36;

/// Offsets of the control page's words. What one side writes shares no pair of lines with what the other writes.
pub(super) mod control {
    /// Magic, version, then the four sizes.
    pub const HEADER: u64 = 0;
    pub const HEADER_WORDS: usize = 6;
    pub const ENGINE_BELL: u64 = 128;
    pub const CLIENT_BELL: u64 = 256;
    pub const ACCEPTED: u64 = 384;
    pub const CONSUMED_BYTES: u64 = 392;
    pub const CONSUMED_ENTRIES: u64 = 400;
    pub const CLIENT_STATE: u64 = 408;
    pub const COMPLETED: u64 = 512;
    pub const NAMES_GENERATION: u64 = 520;
    pub const STATE: u64 = 528;
    /// Written every turn: alone, so that it disturbs no one who waits for the others.
    pub const ENGINE_TURNS: u64 = 640;
    /// Two lines.
    pub const OPEN_ENTRY: u64 = 768;
}

/// How large the parts of a queue pair are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Entries of the submission ring: a power of two, 2 to 2^24.
    pub sq_entries: u32,
    /// Entries of the completion ring: a power of two, 2 to 2^24.
    pub cq_entries: u32,
    /// Bytes of the arena the client sends from: a multiple of 64 KiB, up to 64 GiB.
    pub tx_bytes: u64,
    /// Bytes of the arena the client receives in: a multiple of 64 KiB, up to 64 GiB.
    pub rx_bytes: u64,
}

impl Sizes {
    /// Bytes of a queue pair of these sizes, in whole pages; `None` when a size is out of range.
    pub fn segment_bytes(self) -> Option<usize> {
        Layout::new(self).map(|layout| layout.segment_bytes)
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { sq_entries: 1024, cq_entries: 32 * 1024, tx_bytes: 16 << 20, rx_bytes: 16 << 20 }
    }
}

/// The offsets that follow from the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub sizes: Sizes,
    pub sq: u64,
    pub cq: u64,
    pub tx: ArenaPlace,
    pub rx: ArenaPlace,
    pub segment_bytes: usize,
}

impl Layout {
    /// `None` when a size is out of range.
    pub(super) fn new(sizes: Sizes) -> Option<Layout> {
        let entries_fit = |entries: u32| entries.is_power_of_two() && (2..=ENTRIES_MAX).contains(&entries);
        let bytes_fit =
            |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES) && (1..=ARENA_BYTES_MAX).contains(&bytes);
        if !entries_fit(sizes.sq_entries) || !entries_fit(sizes.cq_entries) {
            return None;
        }
        if !bytes_fit(sizes.tx_bytes) || !bytes_fit(sizes.rx_bytes) {
            return None;
        }
        let tx_blocks = u32::try_from(sizes.tx_bytes / BLOCK_BYTES).ok()?;
        let rx_blocks = u32::try_from(sizes.rx_bytes / BLOCK_BYTES).ok()?;
        let mut end = PAGE_BYTES as u64;
        let mut part = |bytes: u64| {
            let start = end;
            end = (start + bytes).next_multiple_of(PAGE_BYTES as u64);
            start
        };
        let sq = part(ring_bytes(sizes.sq_entries));
        let cq = part(ring_bytes(sizes.cq_entries));
        let tx_counters = part(u64::from(tx_blocks) * 8);
        let rx_counters = part(u64::from(rx_blocks) * 8);
        let tx_data = part(sizes.tx_bytes);
        let rx_data = part(sizes.rx_bytes);
        let tx = ArenaPlace { counters: tx_counters, data: tx_data, blocks: tx_blocks };
        let rx = ArenaPlace { counters: rx_counters, data: rx_data, blocks: rx_blocks };
        Some(Layout { sizes, sq, cq, tx, rx, segment_bytes: usize::try_from(end).ok()? })
    }

    pub(super) fn write_header(&self, segment: &Segment) {
        let sizes = self.sizes;
        let words = [
            MAGIC,
            VERSION,
            u64::from(sizes.sq_entries),
            u64::from(sizes.cq_entries),
            sizes.tx_bytes,
            sizes.rx_bytes,
        ];
        for (index, word) in words.iter().enumerate() {
            let written = segment.write_at(control::HEADER + index as u64 * 8, &word.to_ne_bytes());
            assert!(written.is_some(), "a segment has a control page");
        }
    }

    /// Reads the header once and checks that what it says is this version and fills the segment exactly.
    pub(super) fn read_header(segment: &Arc<Segment>) -> io::Result<Layout> {
        let mut words = [0u64; control::HEADER_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            segment
                .read_at(control::HEADER + index as u64 * 8, &mut bytes)
                .ok_or_else(|| invalid("segment has no control page"))?;
            *word = u64::from_ne_bytes(bytes);
        }
        let [magic, version, sq_entries, cq_entries, tx_bytes, rx_bytes] = words;
        if magic != MAGIC {
            return Err(invalid("segment is not a queue pair"));
        }
        if version != VERSION {
            return Err(invalid("queue pair has another version"));
        }
        let entries =
            |word: u64| u32::try_from(word).map_err(|_| invalid("queue pair sizes are out of range"));
        let sizes =
            Sizes { sq_entries: entries(sq_entries)?, cq_entries: entries(cq_entries)?, tx_bytes, rx_bytes };
        let layout = Layout::new(sizes).ok_or_else(|| invalid("queue pair sizes are out of range"))?;
        if layout.segment_bytes != segment.len() {
            return Err(invalid("queue pair does not fill its segment"));
        }
        Ok(layout)
    }
}
