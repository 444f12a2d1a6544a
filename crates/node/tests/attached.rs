//! What holds for ports of an embedded node holds for those of a node of another process too: the same tests, each node being
//! attached to (`local::node`). The "other process" is this one as far as these go; `guests.rs` has real ones.

#![allow(clippy::duplicate_mod, clippy::module_inception, reason = "each of these is a test of its own too")]

#[path = "await_known.rs"]
mod await_known;
#[path = "connections.rs"]
mod connections;
#[path = "exclusive.rs"]
mod exclusive;
#[path = "lookup.rs"]
mod lookup;
#[path = "readiness.rs"]
mod readiness;
#[path = "set_link.rs"]
mod set_link;
#[path = "subscriptions.rs"]
mod subscriptions;
#[path = "watcher.rs"]
mod watcher;
