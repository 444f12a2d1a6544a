//! The memory of one node, strict where a driver is lenient: a write outside of a buffer, a buffer given back twice
//! or released for the wrong port ends the test.

use polyrail_proto::Store;
use polyrail_proto::id::{BufferId, PortId};
use std::collections::BTreeMap;

/// Bytes and messages that a port may have waiting.
pub const PORT_BYTES: u64 = 1 << 20;
pub const PORT_MESSAGES: u64 = 4_096;

#[derive(Default)]
pub struct Memory {
    /// Copies under way beside the one that ends a message.
    more_copies: BTreeMap<BufferId, u32>,
    ports: BTreeMap<PortId, Room>,
    received: BTreeMap<BufferId, (PortId, Vec<u8>)>,
    sent: BTreeMap<BufferId, (PortId, Vec<u8>)>,
    next: u64,
    /// Messages that their receivers have, and messages that failed.
    pub confirmed: u64,
    pub failed: u64,
}

#[derive(Clone, Copy, Default)]
struct Room {
    bytes: u64,
    messages: u64,
}

/// Part of a port's memory that is kept for messages that are next in their flow.
const KEPT_BYTES: u64 = PORT_BYTES / 16;

impl Memory {
    pub fn open(&mut self, port: PortId) {
        self.ports.insert(port, Room::default());
    }

    /// The port takes nothing any more.
    pub fn close(&mut self, port: PortId) {
        self.ports.remove(&port);
    }

    /// Keeps the bytes of a message until the core releases them.
    pub fn keep(&mut self, port: PortId, bytes: &[u8]) -> BufferId {
        let id = self.number();
        self.sent.insert(id, (port, bytes.to_vec()));
        id
    }

    /// The message was not taken.
    pub fn forget(&mut self, buffer: BufferId) {
        self.sent.remove(&buffer).expect("it was just kept");
    }

    /// Memory for a message that was offered.
    pub fn grant(&mut self, port: PortId, bytes: u64) -> BufferId {
        let id = self.number();
        self.charge(port, bytes);
        self.received.insert(id, (port, vec![0; bytes as usize]));
        id
    }

    /// The bytes of a delivered message, which the application is done with.
    pub fn take(&mut self, buffer: BufferId) -> Vec<u8> {
        let (port, bytes) =
            self.received.remove(&buffer).expect("a message is delivered once, with its bytes");
        self.uncharge(port, bytes.len() as u64);
        bytes
    }

    /// Bytes to send.
    pub fn bytes(&self, buffer: BufferId, offset: u64, len: usize) -> &[u8] {
        let (_, bytes) = &self.sent[&buffer];
        &bytes[offset as usize..offset as usize + len]
    }

    /// Buffers that are in use: received and sent.
    pub fn in_use(&self) -> (usize, usize) {
        (self.received.len(), self.sent.len())
    }

    fn number(&mut self) -> BufferId {
        self.next += 1;
        BufferId(self.next)
    }

    fn charge(&mut self, port: PortId, bytes: u64) {
        if let Some(room) = self.ports.get_mut(&port) {
            room.bytes += bytes.max(64);
            room.messages += 1;
        }
    }

    fn uncharge(&mut self, port: PortId, bytes: u64) {
        if let Some(room) = self.ports.get_mut(&port) {
            room.bytes -= bytes.max(64);
            room.messages -= 1;
        }
    }
}

impl Store for Memory {
    fn reserve(&mut self, port: PortId, bytes: u64, urgent: bool) -> Option<BufferId> {
        let room = self.ports.get(&port)?;
        let limit = if urgent { PORT_BYTES } else { PORT_BYTES - KEPT_BYTES };
        if room.bytes + bytes.max(64) > limit || room.messages >= PORT_MESSAGES {
            return None;
        }
        Some(self.grant(port, bytes))
    }

    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        let (_, target) = self.received.get_mut(&buffer).expect("bytes go only into buffers in use");
        target[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn discard(&mut self, buffer: BufferId) {
        let (port, bytes) = self.received.remove(&buffer).expect("a buffer is given back once");
        self.uncharge(port, bytes.len() as u64);
    }

    fn share(&mut self, _: PortId, buffer: BufferId, copies: u32) {
        self.more_copies.insert(buffer, copies - 1);
    }

    fn release(&mut self, port: PortId, buffer: BufferId, delivered: bool) {
        if let Some(more) = self.more_copies.get_mut(&buffer).filter(|more| **more > 0) {
            *more -= 1;
            return;
        }
        self.more_copies.remove(&buffer);
        let (owner, _) = self.sent.remove(&buffer).expect("a message is released once");
        assert_eq!(owner, port, "a message is released for the port that sent it");
        if delivered { self.confirmed += 1 } else { self.failed += 1 }
    }

    fn has_port(&self, port: PortId) -> bool {
        self.ports.contains_key(&port)
    }

    fn room(&mut self, port: PortId) -> (u64, u32) {
        let Some(room) = self.ports.get(&port) else { return (0, 0) };
        let bytes = (PORT_BYTES - KEPT_BYTES).saturating_sub(room.bytes);
        (bytes, PORT_MESSAGES.saturating_sub(room.messages) as u32)
    }
}
