//! What arrives: a batch of groups in buffers that are allocated once.
//!
//! A group is what came together: datagrams of one sender, all `stride` bytes long but the last. Each group lies
//! in its own slot of 64 KiB, the most that one read can give. Memory of a slot that was never filled is never
//! touched, so a generous batch costs address space only.

use crate::Address;

/// Bytes of one slot: no read gives more.
pub const SLOT_BYTES: usize = 65_536;

/// One receive buffer. Bearers in the same process hand groups over by exchanging slots.
#[derive(Debug)]
pub struct Slot(Box<[u8]>);

impl Slot {
    /// A new slot of [`SLOT_BYTES`] zeros (which the system provides only when they are touched).
    pub fn new() -> Slot {
        Slot(vec![0; SLOT_BYTES].into_boxed_slice())
    }

    /// All bytes of the slot.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// All bytes of the slot.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot::new()
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    from: Address,
    bytes: usize,
    stride: usize,
    ce: bool,
}

/// Groups received, in the order in which they came.
#[derive(Debug)]
pub struct RxBatch {
    slots: Vec<Slot>,
    entries: Vec<Entry>,
    /// So many groups are taken now, of those that there are slots for.
    groups_max: usize,
    bytes_total: usize,
}

/// Datagrams of one sender that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct RxGroup<'a> {
    /// Who sent them.
    pub from: Address,
    /// All of them, one after the other.
    pub bytes: &'a [u8],
    /// Length in bytes of every datagram but the last, which may be shorter. Never 0.
    pub stride: usize,
    /// Whether a router marked them "congestion experienced".
    pub ce: bool,
}

impl<'a> RxGroup<'a> {
    /// The single datagrams; an empty group is one empty datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(&self.bytes[..0]);
        empty.into_iter().chain(self.bytes.chunks(self.stride))
    }
}

impl RxBatch {
    /// A batch with room for `groups_max` groups.
    pub fn new(groups_max: usize) -> RxBatch {
        RxBatch {
            slots: (0..groups_max).map(|_| Slot::new()).collect(),
            entries: Vec::with_capacity(groups_max),
            groups_max,
            bytes_total: 0,
        }
    }

    /// Forgets all groups; their slots are used again.
    pub fn clear(&mut self) {
        self.begin(usize::MAX);
    }

    /// The same, and takes at most `groups_max` groups until the next time.
    pub fn begin(&mut self, groups_max: usize) {
        self.entries.clear();
        self.groups_max = groups_max.min(self.slots.len());
        self.bytes_total = 0;
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many more groups fit.
    pub fn spare(&self) -> usize {
        self.groups_max - self.entries.len()
    }

    /// Payload bytes of all groups.
    pub fn total_bytes(&self) -> usize {
        self.bytes_total
    }

    /// The groups, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RxGroup<'_>> {
        self.entries.iter().zip(&self.slots).map(|(entry, slot)| RxGroup {
            from: entry.from,
            bytes: &slot.0[..entry.bytes],
            stride: entry.stride,
            ce: entry.ce,
        })
    }

    /// For bearers: the bytes of group `index`, to alter in place.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.slots[index].0[..self.entries[index].bytes]
    }

    /// For bearers: the free slots in order. Fill the first ones, then [`commit`](Self::commit) each.
    pub fn spare_slots(&mut self) -> &mut [Slot] {
        &mut self.slots[self.entries.len()..self.groups_max]
    }

    /// For bearers: declares the first free slot filled. `bytes` is at most [`SLOT_BYTES`]; a `stride` of 0 or
    /// beyond `bytes` means a single datagram.
    ///
    /// # Panics
    /// If the batch is full or `bytes` is larger than a slot.
    pub fn commit(&mut self, from: Address, bytes: usize, stride: usize, ce: bool) {
        assert!(self.spare() > 0, "receive batch is full");
        assert!(bytes <= SLOT_BYTES, "group of {bytes} bytes does not fit a slot");
        let stride = if stride == 0 || stride > bytes { bytes.max(1) } else { stride };
        self.entries.push(Entry { from, bytes, stride, ce });
        self.bytes_total += bytes;
    }

    /// For bearers: takes over a filled slot without a copy and leaves a free one in `slot`; false and no
    /// effect when the batch is full.
    pub fn push_slot(
        &mut self,
        slot: &mut Slot,
        from: Address,
        bytes: usize,
        stride: usize,
        ce: bool,
    ) -> bool {
        let Some(free) = self.spare_slots().first_mut() else { return false };
        std::mem::swap(free, slot);
        self.commit(from, bytes, stride, ce);
        true
    }

    /// For bearers and tests: appends a group by copying it; false and no effect when the batch is full.
    pub fn push(&mut self, from: Address, bytes: &[u8], stride: usize, ce: bool) -> bool {
        let Some(free) = self.spare_slots().first_mut() else { return false };
        free.0[..bytes.len()].copy_from_slice(bytes);
        self.commit(from, bytes.len(), stride, ce);
        true
    }

    /// For bearers: forgets group `index`; the later ones move up without being copied.
    pub fn remove(&mut self, index: usize) {
        let entry = self.entries.remove(index);
        self.bytes_total -= entry.bytes;
        self.slots[index..=self.entries.len()].rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Address = Address::Memory(1);

    #[test]
    fn a_group_is_cut_at_its_stride() {
        let mut batch = RxBatch::new(2);
        assert!(batch.push(FROM, b"aabbc", 2, false));
        assert!(batch.push(FROM, b"", 0, true));
        assert!(!batch.push(FROM, b"x", 1, false));
        let groups: Vec<Vec<&[u8]>> = batch.iter().map(|g| g.datagrams().collect()).collect();
        assert_eq!(groups, vec![vec![&b"aa"[..], b"bb", b"c"], vec![&b""[..]]]);
        assert_eq!((batch.len(), batch.spare(), batch.total_bytes()), (2, 0, 5));
        batch.clear();
        assert_eq!((batch.len(), batch.spare(), batch.total_bytes()), (0, 2, 0));
    }

    #[test]
    fn slots_change_hands_without_a_copy() {
        let mut batch = RxBatch::new(1);
        let mut slot = Slot::new();
        slot.bytes_mut()[..3].copy_from_slice(b"abc");
        let place = slot.bytes().as_ptr();
        assert!(batch.push_slot(&mut slot, FROM, 3, 3, false));
        assert_eq!(batch.iter().next().unwrap().bytes.as_ptr(), place);
        assert!(!batch.push_slot(&mut slot, FROM, 1, 1, false));
    }

    #[test]
    fn a_batch_takes_no_more_than_was_said_until_it_begins_anew() {
        let mut batch = RxBatch::new(3);
        batch.begin(1);
        assert_eq!((batch.spare(), batch.spare_slots().len()), (1, 1));
        assert!(batch.push(FROM, b"one", 0, false) && !batch.push(FROM, b"two", 0, false));
        assert!(!batch.push_slot(&mut Slot::new(), FROM, 1, 1, false));
        assert_eq!((batch.len(), batch.spare()), (1, 0));
        batch.begin(7);
        assert_eq!((batch.len(), batch.spare()), (0, 3));
        batch.begin(1);
        batch.clear();
        assert_eq!(batch.spare(), 3);
    }

    #[test]
    fn removing_a_group_keeps_the_others_in_order() {
        let mut batch = RxBatch::new(4);
        for text in ["one", "two", "three"] {
            batch.push(FROM, text.as_bytes(), 0, false);
        }
        batch.remove(0);
        assert_eq!(batch.iter().map(|g| g.bytes).collect::<Vec<_>>(), [&b"two"[..], b"three"]);
        batch.push(FROM, b"four", 0, false);
        batch.remove(1);
        assert_eq!(batch.iter().map(|g| g.bytes).collect::<Vec<_>>(), [&b"two"[..], b"four"]);
        assert_eq!(batch.total_bytes(), 7);
    }
}
