//! What the orchestrator and its two measured processes say to each other: JSON, one value a line, over the
//! processes' standard input and output.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::args::SendKind;
use crate::calibrate::Calibration;
use crate::check::CheckCounts;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Which side a measured process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Listens; receives a stream, or answers pings.
    Receiver,
    /// Connects; sends a stream, or times pings.
    Sender,
}

/// The first line to a measured process: what it is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Take the machine's pulse, with the priority that measurements have.
    Calibrate,
    /// Play one side of a measurement.
    Play(Job),
}

/// One side of a measurement: all it needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Which side to play.
    pub role: Role,
    /// Name of the protocol.
    pub protocol: String,
    /// What to do.
    pub workload: Workload,
    /// How to do it.
    pub setup: Setup,
    /// Time before the measured window, in ns.
    pub warmup_ns: u64,
    /// Length of the measured window, in ns.
    pub duration_ns: u64,
    /// Core to pin the measuring thread to.
    pub core: Option<usize>,
}

/// Conditions that every protocol must be measured under alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Message size in bytes.
    pub size: usize,
    /// How to wait.
    pub wait: WaitMode,
    /// Own addresses, one per link.
    pub local: Vec<IpAddr>,
    /// Devices of the links, in the same order; empty on loopback.
    pub devices: Vec<String>,
    /// Socket buffers, in bytes, for send and receive; none: the system's defaults.
    pub socket_buffer_max: Option<usize>,
    /// Whether messages are sent from the application's memory or composed in the protocol's.
    pub send: SendKind,
    /// Whether messages go both ways.
    pub both_ways: bool,
}

/// A line to a measured process after its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum Order {
    /// To the sender: begin.
    Go,
    /// To the receiver: no more than `expected` messages will come; report once they are here or silence lasts.
    Drain {
        /// Number of messages the sender sent in all.
        expected: u64,
    },
    /// End.
    Quit,
}

/// The second line to a sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    /// Where the receiver listens, in the protocol's own notation.
    pub address: String,
}

/// A line from a measured process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The receiver can be reached.
    Listening {
        /// Where, in the protocol's own notation.
        address: String,
    },
    /// The pair is connected.
    Ready,
    /// How far the side is; also what is kept if it hangs later.
    Progress(SideReport),
    /// The side has done its work.
    Done(SideReport),
    /// The machine's pulse.
    Pulse(Calibration),
    /// The side cannot go on.
    Failed {
        /// Why.
        error: String,
    },
}

/// What one side has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Length of the measured window so far, in ns.
    pub window_ns: u64,
    /// Messages within the window.
    pub messages: u64,
    /// Bytes within the window.
    pub bytes: u64,
    /// CPU time within the window, in ns.
    pub cpu_ns: u64,
    /// Messages sent in all.
    pub sent: u64,
    /// What the check of arriving messages says, over the whole run.
    pub counts: CheckCounts,
    /// Round trips within the window: (ns, how often), by histogram bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_ns: Vec<(u64, u64)>,
    /// What could not be had: pinning, priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
