//! Who is bound to which service address (protocol.md §7).
//!
//! Every node keeps the whole table: its own bindings and what its peers tell of theirs. A node's publications are a
//! log with one writer, so replicas need no clocks and never conflict: they apply records in order, and the table
//! of a node that is gone vanishes as a whole.

pub mod digest;
pub mod log;
pub mod subscribe;
pub mod table;

pub use digest::Digests;
pub use log::{Behind, Feed, Log, Replica, Step};
pub use subscribe::{
    Over, Picture, Publication, SubscribeError, SubscriptionId, Subscriptions, Topic, Update,
};
pub use table::{Applied, BindError, Bound, Lookup, NotBound, Pick, Table};
