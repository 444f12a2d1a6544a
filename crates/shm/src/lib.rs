//! The memory that an application and the engine share.
//!
//! One client and the engine meet in one [`segment`]: a control page, a submission ring, a completion ring and two
//! arenas, laid out by [`queue_pair`]. Today the segment is private memory between the threads of one process; in a
//! sealed memfd the very same layout joins two processes. There are offsets in it and never pointers.
//!
//! What is read from a segment is hostile, because the other side may be another process: an index or entry is copied
//! once, bounded, and only then used. Whatever the other side writes, no call here panics or touches memory outside
//! the segment; the worst that a wrong index does is that its own writer loses messages.
//!
//! All unsafe code of the project's shared memory is in this crate, behind a safe interface, so that the engine needs
//! none. Every ring, doorbell and counter is written on atomics that loom can replace (`--cfg loom`).

#![deny(unsafe_op_in_unsafe_fn)]

pub mod arena;
pub mod counter;
#[cfg(not(loom))]
pub mod direct;
pub mod doorbell;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
mod landing;
#[cfg(all(test, loom))]
mod loom_models;
pub mod open_entry;
#[cfg(not(loom))]
pub mod passed;
#[cfg(not(loom))]
mod past_cache;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod port_bell;
#[cfg(not(loom))]
pub mod queue_pair;
pub mod region;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(loom)]
#[path = "segment_model.rs"]
pub mod segment;
#[cfg(not(loom))]
pub mod shared_buffer;
pub mod slot_ring;
pub mod sync;
mod words;

pub use arena::{ArenaAllocator, ArenaReleaser};
pub use counter::{Word, WordView};
#[cfg(not(loom))]
pub use direct::{DIRECT_ARENA_BYTES, DIRECT_BYTES_MAX, Direct, DirectReceiver, DirectSender};
pub use doorbell::{Doorbell, Woken, woken_by_this_thread};
#[cfg(not(loom))]
pub use landing::Landing;
pub use open_entry::{OpenEntry, OpenEntryView};
#[cfg(not(loom))]
pub use passed::Number as PassedNumber;
#[cfg(not(loom))]
pub use pool::{Buffer, Charge, Exhausted, Pool, Quota};
#[cfg(not(loom))]
pub use port_bell::PortBell;
#[cfg(not(loom))]
pub use queue_pair::{Backing, Client, Engine, QueuePair, Sizes};
#[cfg(not(loom))]
pub use region::PastCache;
pub use region::Region;
pub use ring::{Consumer, Corrupt, Entry, Full, Producer};
pub use segment::Segment;
#[cfg(not(loom))]
pub use shared_buffer::{SharedBuffer, ToPass};
pub use slot_ring::{Label, SlotConsumer, SlotProducer};
