//! A bearer inside one process: for tests, examples, and a node's messages to itself.
//!
//! A train stays one piece from end to end. The sender gathers it into a slot (the only copy), the slot changes
//! hands, and the receiver's batch gives an empty one back for it. Nobody waits: a full inbox refuses.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polyrail_sys::eventfd::EventFd;

use crate::bearer::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};
use crate::{
    Address, Bearer, Capabilities, Descriptors, Network, Notice, NoticeCode, RxBatch, SendOutcome, Slot,
    Transmit,
};

/// Empty slots kept per seat for the next senders.
const SPARE_SLOTS_MAX: usize = 64;

/// Notices kept until somebody asks.
const NOTICES_MAX: usize = 64;

/// Bounds of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Largest datagram.
    pub mtu_bytes: u16,
    /// Bytes that may wait at one seat.
    pub inbox_bytes_max: u32,
    /// Trains that may wait at one seat.
    pub inbox_trains_max: u32,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { mtu_bytes: 16_384, inbox_bytes_max: 4 << 20, inbox_trains_max: 512 }
    }
}

/// A medium in memory. Clones are the same hub.
#[derive(Clone, Default)]
pub struct MemoryHub {
    config: MemoryConfig,
    seats: Arc<Mutex<BTreeMap<u32, Arc<Seat>>>>,
}

/// One attachment to a hub.
pub struct MemoryBearer {
    name: String,
    id: u32,
    hub: MemoryHub,
    seat: Arc<Seat>,
    /// The last destination: most trains go where the one before went.
    recent: Option<(u32, Arc<Seat>)>,
    /// Where the next train is gathered.
    slot: Slot,
    capabilities: Capabilities,
    notices: Vec<Notice>,
}

struct Seat {
    data: Inbox,
    beacons: Inbox,
}

struct Inbox {
    event: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    trains: VecDeque<Train>,
    bytes: usize,
    spare: Vec<Slot>,
    /// Somebody asked for the descriptor; without that, no system call is ever made.
    watched: bool,
    signalled: bool,
    closed: bool,
    /// Senders that found no room, to be woken when there is some.
    refused: Vec<Arc<Seat>>,
}

struct Train {
    slot: Slot,
    label: Label,
}

/// What is known of a train beside its bytes.
#[derive(Clone, Copy)]
struct Label {
    from: u32,
    bytes: usize,
    stride: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds a lock, and a queue is consistent between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryHub {
    /// A hub with the default bounds.
    pub fn new() -> MemoryHub {
        MemoryHub::default()
    }

    /// A hub with bounds of one's own.
    pub fn with_config(config: MemoryConfig) -> MemoryHub {
        MemoryHub { config, ..MemoryHub::default() }
    }

    /// Takes seat `id`.
    ///
    /// # Panics
    /// If the seat is taken, or the process has no descriptors left.
    pub fn bearer(&self, id: u32) -> MemoryBearer {
        let seat = Arc::new(Seat { data: Inbox::new(), beacons: Inbox::new() });
        let before = lock(&self.seats).insert(id, Arc::clone(&seat));
        assert!(before.is_none(), "seat {id} of the memory hub is taken");
        MemoryBearer {
            name: format!("memory/{id}"),
            id,
            hub: self.clone(),
            seat,
            recent: None,
            slot: Slot::new(),
            capabilities: Capabilities {
                mtu_bytes: self.config.mtu_bytes,
                segments_max: TRAIN_SEGMENTS_MAX as u8,
                gro: true,
                lossless: true,
                ordered: true,
                checksummed: true,
                send_buffer_bytes: self.config.inbox_bytes_max,
                receive_buffer_bytes: self.config.inbox_bytes_max,
                lends_pages: false,
                broadcast: true,
                near: false,
            },
            notices: Vec::new(),
        }
    }
}

impl Inbox {
    fn new() -> Inbox {
        let event = EventFd::new().expect("a descriptor for an in-process bearer");
        Inbox { event, queue: Mutex::default() }
    }

    /// Takes a filled slot over and leaves an empty one. `waiter` is remembered if there is no room.
    fn push(&self, config: &MemoryConfig, slot: &mut Slot, label: Label, waiter: &Arc<Seat>) -> SendOutcome {
        let mut queue = lock(&self.queue);
        let full = queue.bytes + label.bytes > config.inbox_bytes_max as usize && !queue.trains.is_empty();
        if full || queue.trains.len() >= config.inbox_trains_max as usize {
            if !queue.refused.iter().any(|one| Arc::ptr_eq(one, waiter)) {
                queue.refused.push(Arc::clone(waiter));
            }
            return SendOutcome::WouldBlock;
        }
        let filled = std::mem::replace(slot, queue.spare.pop().unwrap_or_default());
        queue.bytes += label.bytes;
        queue.trains.push_back(Train { slot: filled, label });
        self.signal(&mut queue);
        SendOutcome::Sent
    }

    /// Moves waiting trains to `batch`; how many, and who may send again.
    fn pop(&self, batch: &mut RxBatch) -> (usize, Vec<Arc<Seat>>) {
        let mut queue = lock(&self.queue);
        let mut count = 0;
        while batch.spare() > 0 {
            let Some(Train { mut slot, label }) = queue.trains.pop_front() else { break };
            queue.bytes -= label.bytes;
            batch.push_slot(&mut slot, Address::Memory(label.from), label.bytes, label.stride, false);
            if queue.spare.len() < SPARE_SLOTS_MAX {
                queue.spare.push(slot);
            }
            count += 1;
        }
        if queue.trains.is_empty() && queue.signalled {
            queue.signalled = false;
            self.event.clear();
        }
        let woken = if count > 0 { std::mem::take(&mut queue.refused) } else { Vec::new() };
        (count, woken)
    }

    fn signal(&self, queue: &mut Queue) {
        if queue.watched && !queue.signalled {
            queue.signalled = true;
            self.event.signal();
        }
    }

    fn watch(&self) -> RawFd {
        let mut queue = lock(&self.queue);
        queue.watched = true;
        if !queue.trains.is_empty() {
            self.signal(&mut queue);
        }
        self.event.as_raw_fd()
    }
}

impl MemoryBearer {
    fn seat_of(&mut self, id: u32) -> Option<Arc<Seat>> {
        if let Some((recent, seat)) = &self.recent
            && *recent == id
            && !lock(&seat.data.queue).closed
        {
            return Some(Arc::clone(seat));
        }
        let seat = lock(&self.hub.seats).get(&id).cloned()?;
        self.recent = Some((id, Arc::clone(&seat)));
        Some(seat)
    }

    fn recv_from(&self, inbox: &Inbox, batch: &mut RxBatch) -> usize {
        let (count, woken) = inbox.pop(batch);
        for seat in woken {
            let mut queue = lock(&seat.data.queue);
            seat.data.signal(&mut queue);
        }
        count
    }
}

impl Bearer for MemoryBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<&str> {
        None
    }

    fn local(&self) -> Network {
        Network { address: Address::Memory(self.id), prefix_bits: 0 }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        let largest = transmit.segment_bytes.min(transmit.bytes);
        let bounds = transmit.segments() > TRAIN_SEGMENTS_MAX || transmit.bytes > TRAIN_BYTES_MAX;
        if bounds || largest > usize::from(self.hub.config.mtu_bytes) {
            return SendOutcome::TooLarge;
        }
        let Address::Memory(to) = transmit.to else {
            return SendOutcome::Failed(io::ErrorKind::InvalidInput.into());
        };
        let Some(seat) = self.seat_of(to) else {
            if self.notices.len() < NOTICES_MAX {
                self.notices.push(Notice::Unreachable { to: transmit.to, code: NoticeCode::Port });
            }
            return SendOutcome::Sent;
        };
        let mut bytes = 0;
        for slice in transmit.slices {
            self.slot.bytes_mut()[bytes..bytes + slice.len()].copy_from_slice(slice);
            bytes += slice.len();
        }
        debug_assert_eq!(bytes, transmit.bytes);
        let label = Label { from: self.id, bytes, stride: transmit.segment_bytes };
        seat.data.push(&self.hub.config, &mut self.slot, label, &self.seat)
    }

    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        if bytes.len() > usize::from(self.hub.config.mtu_bytes) {
            return SendOutcome::TooLarge;
        }
        let seats: Vec<Arc<Seat>> = lock(&self.hub.seats).values().cloned().collect();
        for seat in seats {
            self.slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            let label = Label { from: self.id, bytes: bytes.len(), stride: bytes.len() };
            // A seat that does not read its beacons misses them, as on any medium.
            let _ = seat.beacons.push(&self.hub.config, &mut self.slot, label, &self.seat);
        }
        SendOutcome::Sent
    }

    fn recv(&mut self, batch: &mut RxBatch, _thorough: bool) -> io::Result<usize> {
        Ok(self.recv_from(&self.seat.data, batch))
    }

    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        Ok(self.recv_from(&self.seat.beacons, batch))
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        out.append(&mut self.notices);
    }

    /// Whether the last destination has room: which one the next train goes to is not known here.
    fn writable(&mut self) -> bool {
        self.recent.as_ref().is_none_or(|(_, seat)| {
            let queue = lock(&seat.data.queue);
            let room = queue.bytes < self.hub.config.inbox_bytes_max as usize;
            queue.closed || (room && queue.trains.len() < self.hub.config.inbox_trains_max as usize)
        })
    }

    fn backlog_bytes(&mut self) -> u32 {
        0
    }

    fn set_send_buffer(&mut self, _bytes: u32) {}

    /// The data descriptor is always writable in the kernel's eyes; a sender that was refused finds it readable
    /// as soon as there is room again.
    fn fds(&self) -> Descriptors {
        let (data, beacon) = (self.seat.data.watch(), self.seat.beacons.watch());
        Descriptors { data: vec![data], room: Some(data), beacon: Some(beacon) }
    }
}

impl Drop for MemoryBearer {
    fn drop(&mut self) {
        lock(&self.hub.seats).remove(&self.id);
        for inbox in [&self.seat.data, &self.seat.beacons] {
            let mut queue = lock(&inbox.queue);
            // Senders that still know this seat keep it alive, but not what was in it.
            let watched = queue.watched;
            let refused = std::mem::take(&mut queue.refused);
            *queue = Queue { closed: true, watched, ..Queue::default() };
            drop(queue);
            for seat in refused {
                let mut queue = lock(&seat.data.queue);
                seat.data.signal(&mut queue);
            }
        }
    }
}

#[cfg(test)]
mod tests;
