//! Connections between programs of one machine go past its node, and are what they are between nodes: the same tests.

#![allow(clippy::duplicate_mod, clippy::module_inception, reason = "this is a test of its own too")]

#[path = "connections.rs"]
mod connections;
