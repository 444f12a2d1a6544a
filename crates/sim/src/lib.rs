//! The deterministic simulator: whole clusters of real engines over a simulated network, under one virtual clock
//! and one seed, in one thread. A seed repeats bit for bit; see `docs/testing.md`.
//!
//! Simulated figures are never evidence of speed.

#![forbid(unsafe_code)]

pub mod bearer;
pub mod check;
pub mod content;
pub mod contest;
pub mod coverage;
pub mod engine_node;
pub mod fault;
pub mod host;
pub mod network;
pub mod plan;
#[cfg(feature = "planted")]
pub mod planted;
pub mod prng;
pub mod queue;
pub mod runner;
pub mod scenario;
pub mod subject;
pub mod subscriber;
pub mod swarm;
pub mod workload;
pub mod world;

#[cfg(test)]
mod naive;
