//! The simulator's memory: every buffer apart, numbers never used twice, released bytes overwritten, so that a use
//! after release or beyond the end shows itself.

use polyrail_proto::Store;
use polyrail_proto::id::{BufferId, PortId};
use std::collections::BTreeMap;

/// Bytes that sent messages of one node may hold.
const TX_BYTES_MAX: u64 = 8 << 20;
/// Messages that may wait in a port.
const ENTRIES_MAX: u32 = 32_768;
/// The part of a port's memory that only urgent reservations get: an eighth.
const URGENT_SHARE: u64 = 8;
/// What released memory holds; long enough for the largest packet.
static POISON: [u8; 65_536] = [0xdd; 65_536];

#[derive(Debug)]
struct Buffer {
    port: PortId,
    bytes: Vec<u8>,
    sent: bool,
    /// The application's own memory, not the port's.
    own: bool,
}

/// Receive memory of one port.
#[derive(Debug, Default)]
struct Room {
    used_bytes: u64,
    used_entries: u32,
}

#[derive(Debug)]
pub(super) struct Memory {
    rx_bytes_max: u64,
    buffers: BTreeMap<BufferId, Buffer>,
    next: u64,
    rooms: BTreeMap<PortId, Room>,
    tx_bytes: u64,
    confirmed: Vec<BufferId>,
    wrong_uses: std::cell::Cell<u64>,
    rx_bytes_peak: u64,
}

impl Memory {
    pub(super) fn new(rx_bytes_max: u64) -> Memory {
        Memory {
            rx_bytes_max,
            buffers: BTreeMap::new(),
            next: 1,
            rooms: BTreeMap::new(),
            tx_bytes: 0,
            confirmed: Vec::new(),
            wrong_uses: std::cell::Cell::new(0),
            rx_bytes_peak: 0,
        }
    }

    pub(super) fn open(&mut self, port: PortId) {
        self.rooms.insert(port, Room::default());
    }

    pub(super) fn close(&mut self, port: PortId) {
        self.rooms.remove(&port);
    }

    fn insert(&mut self, buffer: Buffer) -> BufferId {
        let id = BufferId(self.next);
        self.next += 1;
        self.buffers.insert(id, buffer);
        id
    }

    /// Keeps a message until it is released; `None` if too much is kept already.
    pub(super) fn keep(&mut self, port: PortId, bytes: &[u8]) -> Option<BufferId> {
        if self.tx_bytes + bytes.len() as u64 > TX_BYTES_MAX {
            return None;
        }
        self.tx_bytes += bytes.len() as u64;
        Some(self.insert(Buffer { port, bytes: bytes.to_vec(), sent: true, own: false }))
    }

    /// Gives a message back that the node did not take.
    pub(super) fn forget(&mut self, id: BufferId) {
        if let Some(buffer) = self.buffers.remove(&id) {
            self.tx_bytes -= buffer.bytes.len() as u64;
        }
    }

    /// Memory of the application itself, for a large message.
    pub(super) fn allocate_own(&mut self, port: PortId, bytes: u64) -> BufferId {
        self.insert(Buffer { port, bytes: vec![0; bytes as usize], sent: false, own: true })
    }

    /// The bytes to send; poison if the buffer was released or is too short.
    pub(super) fn bytes(&self, id: BufferId, offset: u64, len: u32) -> &[u8] {
        let range = offset as usize..offset as usize + len as usize;
        match self.buffers.get(&id).filter(|buffer| buffer.sent).and_then(|buffer| buffer.bytes.get(range)) {
            Some(bytes) => bytes,
            None => {
                self.wrong_uses.set(self.wrong_uses.get() + 1);
                &POISON[..len as usize]
            }
        }
    }

    /// Takes a message out for its application; its room stays taken until `consume`.
    pub(super) fn deliver(&mut self, id: BufferId, len: u64) -> Vec<u8> {
        let Some(buffer) = self.buffers.remove(&id) else {
            self.wrong_uses.set(self.wrong_uses.get() + 1);
            return Vec::new();
        };
        if buffer.own {
            // Consuming it will give back room that was never taken.
            if let Some(room) = self.rooms.get_mut(&buffer.port) {
                room.used_bytes += len;
                room.used_entries += 1;
            }
        }
        let mut bytes = buffer.bytes;
        bytes.truncate(len as usize);
        bytes
    }

    /// The application has read a message.
    pub(super) fn consume(&mut self, port: PortId, len: u64) {
        if let Some(room) = self.rooms.get_mut(&port) {
            room.used_bytes -= len;
            room.used_entries -= 1;
        }
    }

    /// Buffers whose messages were delivered, since the last call.
    pub(super) fn take_confirmed(&mut self) -> Vec<BufferId> {
        std::mem::take(&mut self.confirmed)
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        vec![
            ("wrong uses of memory", self.wrong_uses.get(), Some(0)),
            ("bytes kept for sending", self.tx_bytes, Some(TX_BYTES_MAX)),
            ("most bytes received and not read, one port", self.rx_bytes_peak, None),
        ]
    }
}

impl Store for Memory {
    fn reserve(&mut self, port: PortId, bytes: u64, urgent: bool) -> Option<BufferId> {
        let room = self.rooms.get_mut(&port)?;
        let limit =
            if urgent { self.rx_bytes_max } else { self.rx_bytes_max - self.rx_bytes_max / URGENT_SHARE };
        if room.used_bytes + bytes > limit || room.used_entries >= ENTRIES_MAX {
            return None;
        }
        room.used_bytes += bytes;
        room.used_entries += 1;
        self.rx_bytes_peak = self.rx_bytes_peak.max(room.used_bytes);
        Some(self.insert(Buffer { port, bytes: vec![0; bytes as usize], sent: false, own: false }))
    }

    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        let range = offset as usize..offset as usize + bytes.len();
        let place = self.buffers.get_mut(&buffer).filter(|buffer| !buffer.sent);
        match place.and_then(|buffer| buffer.bytes.get_mut(range)) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.wrong_uses.set(self.wrong_uses.get() + 1),
        }
    }

    fn discard(&mut self, id: BufferId) {
        let Some(buffer) = self.buffers.remove(&id) else {
            return self.wrong_uses.set(self.wrong_uses.get() + 1);
        };
        if !buffer.own {
            self.consume(buffer.port, buffer.bytes.len() as u64);
        }
    }

    fn release(&mut self, _port: PortId, id: BufferId, delivered: bool) {
        match self.buffers.remove(&id) {
            Some(buffer) => self.tx_bytes -= buffer.bytes.len() as u64,
            None => self.wrong_uses.set(self.wrong_uses.get() + 1),
        }
        if delivered {
            self.confirmed.push(id);
        }
    }

    fn has_port(&self, port: PortId) -> bool {
        self.rooms.contains_key(&port)
    }

    fn room(&mut self, port: PortId) -> (u64, u32) {
        let Some(room) = self.rooms.get(&port) else { return (0, 0) };
        let limit = self.rx_bytes_max - self.rx_bytes_max / URGENT_SHARE;
        (limit.saturating_sub(room.used_bytes), ENTRIES_MAX - room.used_entries)
    }
}
