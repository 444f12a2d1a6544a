//! Polyrail's protocol as a pure state machine: no clock, no socket, no thread, no randomness of its own.
//!
//! Bytes and moments go in, bytes and events come out. `docs/protocol.md` is normative; the code cites its sections.

#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod error;
pub mod event;
pub mod flow;
pub mod id;
pub mod limits;
pub mod link;
mod mix;
pub mod node;
#[cfg(feature = "planted")]
pub mod planted;
mod port;
pub mod ranges;
pub mod service;
pub mod session;
pub mod slab;
pub mod stats;
pub mod store;
pub mod time;
pub mod train;
pub mod transfer;
pub mod wire;

pub use config::Config;
pub use event::{Event, Receipt};
pub use node::{BearerInfo, Destination, Node};
pub use store::Store;
pub use train::{Piece, Train};
