//! The deterministic simulator: whole clusters of real engines over a simulated network, under one virtual clock
//! and one seed, in one thread. A seed repeats bit for bit; see `docs/testing.md`.
//!
//! Simulated figures are never evidence of speed.

#![forbid(unsafe_code)]

pub mod bearer;
pub mod network;
pub mod prng;
pub mod queue;
