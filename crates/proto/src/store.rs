//! Where bytes live: outside the core.
//!
//! The core works on `BufferId + range` and never on payload bytes (ARCHITECTURE.md, decision 2). The driver
//! implements [`Store`] over its arenas; the simulator drives the same driver.

use crate::id::{BufferId, PortId};

/// Memory as the core sees it.
pub trait Store {
    /// Reserves `bytes` of receive memory of `port`. `None` when the port has no room now: the message is then
    /// refused or waits, never dropped in silence.
    fn reserve(&mut self, port: PortId, bytes: u64) -> Option<BufferId>;

    /// Copies `bytes` to `offset` of a buffer that `reserve` gave, before the packet is acknowledged.
    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]);

    /// Gives back receive memory that was never delivered.
    fn discard(&mut self, buffer: BufferId);

    /// The bytes of a message that `port` sent are needed no longer. `delivered`: its receiver has them;
    /// otherwise the message failed, and an event says why.
    fn release(&mut self, port: PortId, buffer: BufferId, delivered: bool);

    /// Receive memory of `port` that could be granted to senders now: free bytes, and free completion entries.
    fn room(&mut self, port: PortId) -> (u64, u32);
}
