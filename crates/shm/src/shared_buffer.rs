//! A buffer that several receivers read where it lies, each by a ring of its own ([`crate::passed`]): it is its pool's again when all of
//! them have given it back.

use std::ops::Deref;
use std::sync::Arc;

use crate::pool::Buffer;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// A buffer with several holders. Nobody writes to it any more.
#[derive(Clone, Debug)]
pub struct SharedBuffer(Arc<Held>);

#[derive(Debug)]
struct Held {
    /// Taken out only by drop.
    buffer: Option<Buffer>,
    /// A receiver that nobody hears of any more may still read it.
    lost: AtomicU64,
}

/// What a ring passes.
#[derive(Debug)]
pub enum ToPass {
    /// A buffer that its receiver gives back.
    Own(Buffer),
    /// One of which this receiver is not the only one.
    Shared(SharedBuffer),
}

impl SharedBuffer {
    fn buffer(&self) -> Option<&Buffer> {
        self.0.buffer.as_ref()
    }
}

impl From<Buffer> for SharedBuffer {
    fn from(buffer: Buffer) -> SharedBuffer {
        SharedBuffer(Arc::new(Held { buffer: Some(buffer), lost: AtomicU64::new(0) }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        // Whoever has let go before is seen by who drops the last one: the count of holders is ordered.
        if self.lost.load(Relaxed) == 0 {
            drop(buffer);
        } else {
            buffer.discard();
        }
    }
}

impl ToPass {
    /// The buffer, which is there as long as it is held.
    pub fn buffer(&self) -> Option<&Buffer> {
        match self {
            ToPass::Own(buffer) => Some(buffer),
            ToPass::Shared(shared) => shared.buffer(),
        }
    }

    /// Lets go of it, though its receiver may still read: its memory goes back to the machine, when the last one lets go.
    pub fn discard(self) {
        match self {
            ToPass::Own(buffer) => buffer.discard(),
            ToPass::Shared(shared) => shared.0.lost.store(1, Relaxed),
        }
    }
}

impl Deref for ToPass {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.buffer().map_or(&[], |buffer| buffer)
    }
}

impl From<Buffer> for ToPass {
    fn from(buffer: Buffer) -> ToPass {
        ToPass::Own(buffer)
    }
}

impl From<SharedBuffer> for ToPass {
    fn from(shared: SharedBuffer) -> ToPass {
        ToPass::Shared(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn memory_is_free_when_the_last_holder_lets_go_and_the_machines_if_any_is_lost() {
        for lost in [None, Some(0), Some(2)] {
            let pool = Pool::in_files(1 << 20, 1 << 20);
            let shared = SharedBuffer::from(pool.alloc(5_000).unwrap());
            let held: Vec<ToPass> = (0..3).map(|_| shared.clone().into()).collect();
            drop(shared);
            for (at, holder) in held.into_iter().enumerate() {
                assert_eq!((pool.idle_bytes(), holder.len()), (0, 5_000), "somebody has it");
                if lost == Some(at) { holder.discard() } else { drop(holder) }
            }
            let left = if lost.is_some() { 0 } else { 8_192 };
            assert_eq!((pool.held_bytes(), pool.idle_bytes()), (left, left));
        }
    }
}
