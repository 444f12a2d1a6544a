//! Measuring between machines: `bench serve` plays the receiver on one, `--placement HOST` measures from another.
//!
//! The two speak over one TCP connection, the *control connection*: a handshake by which each proves that it has the
//! shared key ([`handshake`]), then lines that carry a number and a seal ([`channel`]). The server starts the
//! receiver's measured process for each job and relays what it says; the orchestrator talks to it as to a process of
//! its own (`run/side.rs`). Nothing is encrypted, and what is measured goes beside this connection, unprotected.
//!
//! A server can be reached by strangers, so everything that they or a client can ask for has a limit with a name
//! ([`limits`]), and nothing is started for whoever has not proven the key.

mod addresses;
mod channel;
mod client;
mod clocks;
mod handshake;
mod hex;
mod key;
mod limits;
mod lines;
mod message;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use addresses::{HostName, devices_of};
pub(crate) use client::{Client, FarSide};
pub(crate) use clocks::{ClockSample, METHOD, Reading};
pub(crate) use key::Key;
pub(crate) use limits::{check_window, plays};
pub(crate) use server::serve;

/// TCP port of the control connection, unless another is given: the next after those of Polyrail's nodes.
pub const CONTROL_PORT: u16 = 7432;
/// Version of what is said over the control connection. Both sides must speak the same.
pub(crate) const CONTROL_VERSION: u32 = 1;
