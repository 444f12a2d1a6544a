//! Buffers of any size that are used again instead of being mapped and unmapped.
//!
//! A fresh page costs a fault of about a microsecond per 4 KiB, more than copying it. So a buffer that is dropped goes
//! to a list of its size class and the next of that class comes from there, with its pages in place and its old content:
//! the pool belongs to one process.
//!
//! Classes are powers of two from 4 KiB to 1 MiB and quarter steps above, so at most a fifth of a large buffer is spare.

mod class;
mod memory;
mod quota;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::segment::Segment;
use class::class_bytes;
use memory::Memory;
pub use quota::{Charge, Quota};

/// The pool's limit is reached by buffers in use, or the machine has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Bytes that were asked for.
    pub len: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pool has no {} bytes left", self.len)
    }
}

impl std::error::Error for Exhausted {}

/// A source of buffers; clones share one stock.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit_bytes: usize,
    idle_bytes_max: usize,
    in_files: bool,
    /// What its memory counts to, in use and idle together.
    budget: Option<Arc<Quota>>,
    stock: Mutex<Stock>,
}

#[derive(Debug, Default)]
struct Stock {
    /// By class size. A class once used keeps its list, so that steady use allocates nothing.
    idle: BTreeMap<usize, Vec<Memory>>,
    idle_bytes: usize,
    /// In use and idle together.
    held_bytes: usize,
}

impl Pool {
    /// A pool that never holds more than `limit_bytes`, in use and idle together. Nothing is mapped yet.
    pub fn new(limit_bytes: usize) -> Pool {
        Pool::with_idle_max(limit_bytes, limit_bytes)
    }

    /// A pool that keeps at most `idle_bytes_max` of dropped buffers; what is above goes back to the machine.
    pub fn with_idle_max(limit_bytes: usize, idle_bytes_max: usize) -> Pool {
        Pool::of(limit_bytes, idle_bytes_max, false, None)
    }

    /// The same of memory that counts to `budget`, in use and idle together.
    pub fn within(limit_bytes: usize, idle_bytes_max: usize, budget: &Arc<Quota>) -> Pool {
        Pool::of(limit_bytes, idle_bytes_max, false, Some(Arc::clone(budget)))
    }

    /// The same of buffers that another process can be given to map: see [`Buffer::file`].
    pub fn in_files(limit_bytes: usize, idle_bytes_max: usize) -> Pool {
        Pool::of(limit_bytes, idle_bytes_max, true, None)
    }

    fn of(limit_bytes: usize, idle_bytes_max: usize, in_files: bool, budget: Option<Arc<Quota>>) -> Pool {
        let stock = Mutex::default();
        Pool { shared: Arc::new(Shared { limit_bytes, idle_bytes_max, in_files, budget, stock }) }
    }

    /// A buffer of `len` bytes with any content.
    pub fn alloc(&self, len: usize) -> Result<Buffer, Exhausted> {
        let exhausted = Exhausted { len };
        let bytes = class_bytes(len).ok_or(exhausted)?;
        let reused = self.shared.take(bytes).ok_or(exhausted)?;
        let memory = match reused {
            Some(memory) => memory,
            None => self.shared.make(bytes).map_err(|_| {
                self.shared.stock().held_bytes -= bytes;
                exhausted
            })?,
        };
        Ok(Buffer { memory: Some(memory), len, pool: Arc::clone(&self.shared), charge: None })
    }

    /// The same out of a quota, to which the buffer counts until it is dropped.
    pub fn alloc_within(&self, len: usize, quota: &Arc<Quota>) -> Result<Buffer, Exhausted> {
        let exhausted = Exhausted { len };
        let charge = Quota::charge(quota, class_bytes(len).ok_or(exhausted)?).ok_or(exhausted)?;
        let mut buffer = self.alloc(len)?;
        buffer.charge = Some(charge);
        Ok(buffer)
    }

    /// Gives dropped buffers back to the machine, the largest first, until that are `bytes` or there are none left.
    pub fn give_up_idle(&self, bytes: usize) {
        let evicted = self.shared.stock().evict(bytes);
        drop(evicted);
    }

    /// Bytes held, in use and idle together.
    pub fn held_bytes(&self) -> usize {
        self.shared.stock().held_bytes
    }

    /// Bytes of dropped buffers that wait for use.
    pub fn idle_bytes(&self) -> usize {
        self.shared.stock().idle_bytes
    }
}

impl Shared {
    fn make(&self, bytes: usize) -> io::Result<Memory> {
        let charge = self.budget.as_ref().map(|budget| self.charge(budget, bytes)).transpose()?;
        let memory = if self.in_files { Memory::in_file(bytes)? } else { Memory::new(bytes)? };
        Ok(memory.charged(charge))
    }

    /// Counts memory that is to be made, in the place of buffers that nobody uses where there is no room for both.
    fn charge(&self, budget: &Arc<Quota>, bytes: usize) -> io::Result<Charge> {
        let charge = Quota::charge(budget, bytes).or_else(|| {
            let evicted = self.stock().evict(bytes);
            drop(evicted);
            Quota::charge(budget, bytes)
        });
        charge.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A thread that panicked with the lock held left the stock consistent enough: at worst a buffer is not reused.
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: over the limit. `Some(None)`: room was reserved, and the caller maps it.
    fn take(&self, bytes: usize) -> Option<Option<Memory>> {
        if bytes > self.limit_bytes {
            return None;
        }
        let mut stock = self.stock();
        if let Some(memory) = stock.idle.get_mut(&bytes).and_then(Vec::pop) {
            stock.idle_bytes -= bytes;
            return Some(Some(memory));
        }
        let spare = self.limit_bytes - stock.held_bytes;
        if spare + stock.idle_bytes < bytes {
            return None;
        }
        let evicted = stock.evict(bytes.saturating_sub(spare));
        stock.held_bytes += bytes;
        // Unmapping is slow: it happens after the lock is open.
        drop(stock);
        drop(evicted);
        Some(None)
    }

    fn give_back(&self, memory: Memory) {
        let bytes = memory.len();
        let mut stock = self.stock();
        if stock.idle_bytes + bytes <= self.idle_bytes_max {
            stock.idle_bytes += bytes;
            stock.idle.entry(bytes).or_default().push(memory);
        } else {
            stock.held_bytes -= bytes;
            drop(stock);
            drop(memory);
        }
    }
}

impl Stock {
    /// Gives up idle buffers, largest first, until `bytes` are freed.
    fn evict(&mut self, bytes: usize) -> Vec<Memory> {
        let mut evicted = Vec::new();
        let mut freed = 0;
        for list in self.idle.values_mut().rev() {
            while freed < bytes {
                let Some(memory) = list.pop() else { break };
                freed += memory.len();
                evicted.push(memory);
            }
        }
        self.idle_bytes -= freed;
        self.held_bytes -= freed;
        evicted
    }
}

/// A buffer of a pool, returned to it when dropped.
#[derive(Debug)]
pub struct Buffer {
    /// Taken out only by drop.
    memory: Option<Memory>,
    len: usize,
    pool: Arc<Shared>,
    /// Given back when the memory was.
    charge: Option<Charge>,
}

impl Buffer {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The length that [`Buffer::resize`] can reach, in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::len)
    }

    /// The file that holds it, from its first byte on, for another process to map; `None` if it is of this process alone. Until that
    /// one is done with it, this buffer is not to be touched.
    pub fn file(&self) -> Option<&Arc<Segment>> {
        self.memory.as_ref()?.file()
    }

    /// Gives its memory back to the machine, for another process may still read it: the pool makes another one.
    pub fn discard(mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.stock().held_bytes -= memory.len();
        }
    }

    /// Shortens to `len` bytes; does nothing when it is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Sets the length anywhere up to the capacity and says whether that was possible. Bytes that come in hold any
    /// content.
    pub fn resize(&mut self, len: usize) -> bool {
        let fits = len <= self.capacity();
        if fits {
            self.len = len;
        }
        fits
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[..self.len])
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes_mut()[..self.len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}
