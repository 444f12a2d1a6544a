//! Buffers in the engine's hands: its own, as those that changed hands within the process are, or lent by a guest, whose process
//! may write to them whenever it likes. So nothing in them is believed, and they are reached by copies and system calls only.

use crate::engine::admission::users::Paid;
use polyrail_proto::id::PortId;
use polyrail_shm::{Buffer, Segment};
use std::io::IoSlice;
use std::sync::Arc;

pub(super) enum Held {
    Own(Buffer),
    Lent(Lent),
}

/// Memory of a guest, for one message.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Lent {
    pub memory: Arc<Segment>,
    /// What the guest calls it.
    pub number: u64,
    /// The port that it was lent to.
    pub port: PortId,
    /// Whose it is, and what it counts as.
    pub paid: Arc<Paid>,
}

impl Held {
    pub fn len(&self) -> usize {
        match self {
            Held::Own(buffer) => buffer.len(),
            Held::Lent(lent) => lent.memory.len(),
        }
    }

    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Held::Own(buffer) => {
                let offset = offset as usize;
                if let Some(target) = buffer.get_mut(offset..offset + bytes.len()) {
                    target.copy_from_slice(bytes);
                }
            }
            Held::Lent(lent) => drop(lent.memory.write_at(offset, bytes)),
        }
    }

    /// A stretch of what is our own.
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match self {
            Held::Own(buffer) => {
                let offset = usize::try_from(offset).ok()?;
                buffer.get(offset..offset.checked_add(len)?)
            }
            Held::Lent(_) => None,
        }
    }

    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        match self {
            Held::Own(_) => {
                into.copy_from_slice(self.bytes(offset, into.len())?);
                Some(())
            }
            Held::Lent(lent) => lent.memory.read_at(offset, into),
        }
    }

    pub fn io_slice(&self, offset: u64, len: usize) -> Option<IoSlice<'_>> {
        match self {
            Held::Own(_) => self.bytes(offset, len).map(IoSlice::new),
            Held::Lent(lent) => lent.memory.io_slice(offset, len),
        }
    }
}
