//! The instrument: every protocol measured beside the others, by the same means, under the same conditions.
//!
//! A measurement is one *workload* ([`Workload`]) over one *protocol* ([`protocol::Protocol`]) between two pinned
//! processes, on one machine's loopback or between two nodes of a testbed ([`netns`]). The orchestrator ([`run`])
//! interleaves the protocols, repetition by repetition, because the machine's speed drifts by more than most
//! differences worth knowing, and reports medians, spreads and paired ratios (`report`).
//!
//! What each workload measures, and what it does not, is written in `docs/measuring.md`.

#![forbid(unsafe_code)]

mod advise;
mod agent;
mod args;
mod buckets;
mod calibrate;
mod check;
mod clock;
mod control;
mod drain;
mod errand;
mod failover;
mod fit;
mod host;
mod idle;
mod measured;
mod memory;
mod model;
pub mod netns;
mod pace;
mod peers;
mod plans;
mod process;
pub mod protocol;
mod pss;
mod remote;
mod report;
mod run;
mod schema;
pub mod stats;
mod wait;
mod workload;

pub use advise::{ADVICE_SCHEMA, advise};
pub use agent::{AGENT_COMMAND, agent_main};
pub use args::{
    AdviseArgs, BenchArgs, BenchCommand, CompareArgs, FailoverArgs, FlowClass, HostArgs, KeepArgs, ModelArgs,
    NamedArgs, PeersArgs, Placement, QuickArgs, ReadKind, ReportArgs, SendKind, ServeArgs,
};
pub use check::{Check, CheckCounts, MESSAGE_BYTES_MIN, stamp};
pub use failover::Kind;
pub use fit::MODEL_SCHEMA;
pub use remote::CONTROL_PORT;
pub use report::{COMPARE_SCHEMA, REPORT_SCHEMA, Report, SCHEMA};
pub use run::JOURNAL_SCHEMA;
pub use run::{measure, refuse, run};
pub use wait::{WaitMode, Waiter};
pub use workload::Workload;
