//! Where bytes live: outside the core.
//!
//! The core works on `BufferId + range` and never on payload bytes (ARCHITECTURE.md, decision 2). The driver
//! implements [`Store`] over its arenas; the simulator drives the same driver.

use crate::id::{BufferId, PortId};

/// Memory as the core sees it.
pub trait Store {
    /// Reserves `bytes` of receive memory of `port`. `None` when the port has no room now: the message is then
    /// refused or waits, never dropped in silence.
    ///
    /// `urgent`: the message is the next one of its flow, so taking it lets the application go on; a small part of
    /// the memory is kept for such, lest messages that wait for it hold everything.
    fn reserve(&mut self, port: PortId, bytes: u64, urgent: bool) -> Option<BufferId>;

    /// Memory for an announced message of `port` for which `reserve` had none, so that it need not wait until its receiver is
    /// asked. `None`: then that happens when its turn comes.
    fn reserve_ahead(&mut self, _port: PortId, _bytes: u64) -> Option<BufferId> {
        None
    }

    /// Copies `bytes` to `offset` of a buffer that was reserved, before the packet is acknowledged.
    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]);

    /// The same for what packets of `stride` bytes each carry behind their first `head` bytes, one behind the other.
    fn place_run(&mut self, buffer: BufferId, offset: u64, packets: &[u8], stride: usize, head: usize) {
        let mut at = offset;
        for packet in packets.chunks(stride) {
            let payload = packet.get(head..).unwrap_or(&[]);
            self.place(buffer, at, payload);
            at += payload.len() as u64;
        }
    }

    /// Gives back receive memory that was never delivered.
    fn discard(&mut self, buffer: BufferId);

    /// The bytes of a message that `port` sent are needed no longer. `delivered`: its receiver has them;
    /// otherwise the message failed, and an event says why.
    fn release(&mut self, port: PortId, buffer: BufferId, delivered: bool);

    /// The bytes of a message that `port` sent will be released so many times: one copy of it goes to each of several nodes.
    /// They are needed until the last time, and were delivered if all say so.
    fn share(&mut self, port: PortId, buffer: BufferId, copies: u32);

    /// Whether `port` exists.
    fn has_port(&self, port: PortId) -> bool;

    /// Receive memory of `port` that could be granted to senders now: free bytes, and free completion entries.
    fn room(&mut self, port: PortId) -> (u64, u32);
}
