//! Where bytes live: each client's arenas, and buffers that changed hands.

use super::client::{Client, Exchange};
use super::command::Completion;
use polyrail_proto::Store;
use polyrail_proto::id::{BufferId, NodeId, PortId};
use polyrail_shm::arena::BLOCK_BYTES;
use polyrail_shm::{Backing, Buffer, Engine as Pair, QueuePair, Sizes};
use polyrail_sys::eventfd::EventFd;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::io::IoSlice;
use std::sync::Arc;

/// What a buffer number stands for: two bits of kind, 14 of client, 24 of place, 24 of the sender's cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Offset in the client's sending arena, and the low bits of the message's cookie.
    Tx(usize, u64, u32),
    /// Offset in the client's receiving arena.
    Rx(usize, u64),
    /// Index of a buffer that the engine holds, and the low bits of the message's cookie.
    Held(usize, u32),
}

/// Allocations are cut in grains of this many bytes, so that an arena of 1 GiB has 24 bits of places.
const GRAIN_BYTES: u64 = 64;
/// Bits of a cookie that a buffer number carries.
pub(super) const COOKIE_MASK: u64 = 0xff_ffff;

impl Place {
    pub(super) fn id(self) -> BufferId {
        BufferId(match self {
            Place::Tx(client, offset, cookie) => {
                (client as u64) << 48 | (offset / GRAIN_BYTES) << 24 | cookie as u64 & COOKIE_MASK
            }
            Place::Rx(client, offset) => 1 << 62 | (client as u64) << 48 | (offset / GRAIN_BYTES) << 24,
            Place::Held(index, cookie) => 2 << 62 | (index as u64) << 24 | cookie as u64 & COOKIE_MASK,
        })
    }

    pub(super) fn of(id: BufferId) -> Place {
        let client = (id.0 >> 48 & 0x3fff) as usize;
        let (place, cookie) = (id.0 >> 24 & 0xff_ffff, (id.0 & COOKIE_MASK) as u32);
        match id.0 >> 62 {
            0 => Place::Tx(client, place * GRAIN_BYTES, cookie),
            1 => Place::Rx(client, place * GRAIN_BYTES),
            _ => Place::Held(place as usize, cookie),
        }
    }
}

/// The engine's side of one client.
pub(super) struct Slot {
    pub pair: Pair,
    pub port: PortId,
    pub exchange: Exchange,
    /// The client is gone; what it sent is still under way.
    pub closing: bool,
    /// Completions that found the queue full.
    overflow: VecDeque<Completion>,
    completed: u64,
    consumed_seen: (u64, u64),
    knows_names: bool,
    dirty: bool,
    /// Signalled when something is put into the queue, for a client that waits on descriptors.
    arrived: Option<Arc<EventFd>>,
}

/// Memory of all clients.
#[derive(Default)]
pub(super) struct EngineStore {
    slots: Vec<Option<Slot>>,
    by_port: BTreeMap<PortId, usize>,
    last: Option<(PortId, usize)>,
    held: Vec<Option<Buffer>>,
    names_generation: u64,
}

/// Part of a receiving arena kept for messages that are next in their flow.
const URGENT_SHARE: u64 = 16;
/// Share of the completion entries kept for failures, offers, and messages that have arrived but are not delivered.
const ENTRIES_KEPT_SHARE: usize = 4;

/// Whether `bytes` can be had without touching the blocks that are kept for messages next in their flow.
///
/// Whole blocks are kept, for a block is free again only when all that was cut from it is: what waits for its turn
/// pins the rest of its block, and the message that it waits for might find no room anywhere.
fn spares_urgent_share(free_bytes: u64, capacity_bytes: u64, bytes: u64) -> bool {
    let kept_bytes = (capacity_bytes / URGENT_SHARE).next_multiple_of(BLOCK_BYTES);
    let rest_bytes = free_bytes % BLOCK_BYTES;
    // Also zero bytes take memory.
    let bytes = bytes.max(1);
    let taken_bytes =
        if bytes.next_multiple_of(64) <= rest_bytes { 0 } else { bytes.next_multiple_of(BLOCK_BYTES) };
    free_bytes - rest_bytes >= taken_bytes + kept_bytes
}

impl EngineStore {
    pub(super) fn open(
        &mut self,
        port: PortId,
        node: NodeId,
        sizes: Sizes,
        exchange: Exchange,
    ) -> io::Result<Client> {
        let (client, pair) = QueuePair::create(sizes, Backing::Private)?;
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index >= 1 << 14 {
            return Err(io::Error::other("16,384 clients are attached already"));
        }
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(Slot {
            pair,
            port,
            exchange: exchange.clone(),
            closing: false,
            overflow: VecDeque::new(),
            completed: 0,
            consumed_seen: (0, 0),
            knows_names: false,
            dirty: false,
            arrived: None,
        });
        self.by_port.insert(port, index);
        Ok(Client::new(client, polyrail_proto::id::PortAddress { node, port }, exchange))
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.by_port.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)?.as_mut()
    }

    fn index_of(&self, port: PortId) -> Option<usize> {
        match self.last {
            Some((last, index)) if last == port => Some(index),
            _ => self.by_port.get(&port).copied(),
        }
    }

    fn slot_of(&mut self, port: PortId) -> Option<(usize, &mut Slot)> {
        let index = self.index_of(port)?;
        self.last = Some((port, index));
        Some((index, self.slots.get_mut(index)?.as_mut()?))
    }

    /// Forgets a client whose port is gone.
    pub(super) fn close(&mut self, port: PortId) {
        if let Some(index) = self.by_port.remove(&port) {
            self.slots[index] = None;
        }
        self.last = None;
    }

    /// Takes a buffer of the client into the engine's hands.
    pub(super) fn hold(&mut self, index: usize, number: u64, cookie: u32) -> Option<BufferId> {
        let slot = self.slots.get_mut(index)?.as_mut()?;
        let buffer = slot.exchange.take(number)?;
        let at = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        if at == self.held.len() {
            self.held.push(None);
        }
        self.held[at] = Some(buffer);
        Some(Place::Held(at, cookie).id())
    }

    /// Length of a held buffer.
    pub(super) fn held_len(&self, id: BufferId) -> Option<u64> {
        match Place::of(id) {
            Place::Held(at, _) => Some(self.held.get(at)?.as_ref()?.len() as u64),
            _ => None,
        }
    }

    /// Hands a held buffer to a client: its number in the exchange.
    pub(super) fn hand_over(&mut self, port: PortId, id: BufferId) -> Option<u64> {
        let Place::Held(at, _) = Place::of(id) else { return None };
        let buffer = self.held.get_mut(at)?.take()?;
        let (_, slot) = self.slot_of(port)?;
        Some(slot.exchange.put(buffer))
    }

    /// Queues a completion for a port's client.
    pub(super) fn complete(&mut self, port: PortId, completion: Completion) {
        let Some((_, slot)) = self.slot_of(port) else { return };
        slot.dirty = true;
        if !slot.overflow.is_empty() || slot.pair.cq.stage(&completion.encode()).is_err() {
            slot.overflow.push_back(completion);
        }
    }

    /// Makes what was staged visible, and wakes clients that sleep; `rang` says whether there were any. Returns how many
    /// were told something.
    pub(super) fn publish(&mut self, names_generation: u64, rang: &mut bool) -> u32 {
        let mut told = 0;
        let renamed = self.names_generation != names_generation;
        self.names_generation = names_generation;
        for slot in self.slots.iter_mut().flatten() {
            if renamed || !slot.knows_names {
                slot.knows_names = true;
                slot.pair.words.names_generation.store(names_generation);
            }
            while let Some(next) = slot.overflow.front() {
                if slot.pair.cq.stage(&next.encode()).is_err() {
                    break;
                }
                slot.overflow.pop_front();
                slot.dirty = true;
            }
            if slot.dirty {
                slot.dirty = false;
                told += 1;
                slot.pair.cq.publish();
                slot.pair.words.completed.store(slot.completed);
                *rang |= slot.pair.client_bell.ring();
                if let Some(arrived) = &slot.arrived {
                    arrived.signal();
                }
            }
        }
        told
    }

    /// Signals `arrived` whenever something is put into the queue of `port`, and now for what may be there.
    pub(super) fn watch(&mut self, port: PortId, arrived: Arc<EventFd>) {
        if let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.port == port) {
            arrived.signal();
            slot.arrived = Some(arrived);
        }
    }

    /// Ports whose clients gave memory back since the last call.
    pub(super) fn consumers(&mut self, ports: &mut Vec<PortId>) {
        for slot in self.slots.iter_mut().flatten() {
            let now = (slot.pair.words.consumed_bytes.load(), slot.pair.words.consumed_entries.load());
            if now != slot.consumed_seen {
                slot.consumed_seen = now;
                ports.push(slot.port);
            }
        }
    }

    /// Bytes of a message as a slice to send from.
    pub(super) fn io_slice(&self, id: BufferId, offset: u64, len: usize) -> Option<IoSlice<'_>> {
        match Place::of(id) {
            Place::Tx(client, start, _) => {
                self.slots.get(client)?.as_ref()?.pair.tx.memory().io_slice(start + offset, len)
            }
            Place::Held(at, _) => {
                let buffer = self.held.get(at)?.as_ref()?;
                let offset = usize::try_from(offset).ok()?;
                Some(IoSlice::new(buffer.get(offset..offset.checked_add(len)?)?))
            }
            Place::Rx(..) => None,
        }
    }

    /// Copies bytes of a message to the end of `out`; false if there are none such.
    pub(super) fn copy_out(&self, id: BufferId, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + len, 0);
        let copied = match Place::of(id) {
            Place::Tx(client, at, _) => {
                let slot = self.slots.get(client).and_then(Option::as_ref);
                slot.and_then(|s| s.pair.tx.memory().read_at(at + offset, &mut out[start..]))
            }
            _ => self.io_slice(id, offset, len).map(|slice| out[start..].copy_from_slice(&slice)),
        };
        if copied.is_none() {
            out.truncate(start);
        }
        copied.is_some()
    }
}

impl Store for EngineStore {
    fn reserve(&mut self, port: PortId, bytes: u64, urgent: bool) -> Option<BufferId> {
        let (index, slot) = self.slot_of(port)?;
        let rx = &mut slot.pair.rx;
        if !urgent && !spares_urgent_share(rx.free_bytes(), rx.capacity(), bytes) {
            return None;
        }
        rx.alloc(bytes).map(|offset| Place::Rx(index, offset).id())
    }

    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        match Place::of(buffer) {
            Place::Rx(client, start) => {
                if let Some(slot) = self.slots.get_mut(client).and_then(Option::as_mut) {
                    slot.pair.rx.memory().write_at(start + offset, bytes);
                }
            }
            Place::Held(at, _) => {
                if let Some(buffer) = self.held.get_mut(at).and_then(Option::as_mut) {
                    let offset = offset as usize;
                    if let Some(target) = buffer.get_mut(offset..offset + bytes.len()) {
                        target.copy_from_slice(bytes);
                    }
                }
            }
            Place::Tx(..) => {}
        }
    }

    fn discard(&mut self, buffer: BufferId) {
        match Place::of(buffer) {
            Place::Rx(client, offset) => {
                if let Some(slot) = self.slots.get_mut(client).and_then(Option::as_mut) {
                    slot.pair.rx.release_own(offset);
                }
            }
            Place::Held(at, _) => {
                if let Some(entry) = self.held.get_mut(at) {
                    *entry = None;
                }
            }
            Place::Tx(..) => {}
        }
    }

    fn release(&mut self, port: PortId, buffer: BufferId, _delivered: bool) {
        if let Place::Held(at, _) = Place::of(buffer)
            && let Some(entry) = self.held.get_mut(at)
        {
            *entry = None;
        }
        let Some((_, slot)) = self.slot_of(port) else { return };
        if let Place::Tx(_, offset, _) = Place::of(buffer) {
            slot.pair.tx.release(offset);
        }
        slot.completed += 1;
        slot.dirty = true;
    }

    fn has_port(&self, port: PortId) -> bool {
        self.index_of(port).and_then(|i| self.slots.get(i)?.as_ref()).is_some_and(|s| !s.closing)
    }

    fn room(&mut self, port: PortId) -> (u64, u32) {
        let Some((_, slot)) = self.slot_of(port) else { return (0, 0) };
        let kept = slot.pair.rx.capacity() / URGENT_SHARE;
        // Exact: what is not seen free now may not be looked at again, for the sender may be waiting for just this.
        let bytes = slot.pair.rx.reclaim().saturating_sub(kept);
        let entries = if slot.overflow.is_empty() {
            slot.pair.cq.free().saturating_sub(slot.pair.cq.capacity() / ENTRIES_KEPT_SHARE)
        } else {
            0
        };
        (bytes, entries as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_kept_for_what_is_next() {
        let capacity = 16 * BLOCK_BYTES;
        let spares = |free, bytes| spares_urgent_share(free, capacity, bytes);
        assert!(spares(16 * BLOCK_BYTES, 15 * BLOCK_BYTES));
        assert!(!spares(16 * BLOCK_BYTES - 64, 15 * BLOCK_BYTES - 64), "a block's rest is no block");
        assert!(spares(BLOCK_BYTES + 4_096, 4_096) && !spares(BLOCK_BYTES + 4_096, 4_097));
        assert!(!spares(BLOCK_BYTES, 1) && !spares(BLOCK_BYTES - 64, 1), "the last block is kept");
        assert!(!spares(BLOCK_BYTES, 0) && spares(2 * BLOCK_BYTES, 0), "nothing is something");
    }

    #[test]
    fn buffer_numbers_name_their_place() {
        for place in [Place::Tx(3, 70_016, 5), Place::Rx(16_383, 0), Place::Held(12, 0xff_ffff)] {
            assert_eq!(Place::of(place.id()), place);
        }
    }
}
