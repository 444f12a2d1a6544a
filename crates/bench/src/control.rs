//! What the orchestrator and its two measured processes say to each other: JSON, one value a line, over the
//! processes' standard input and output.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::args::{FlowClass, ReadKind, SendKind};
use crate::calibrate::Calibration;
use crate::check::CheckCounts;
use crate::clock::to_local;
use crate::errand::{Ending, Errand};
use crate::failover::{Judgement, StallSummary, Timeline};
use crate::idle::IdleCost;
use crate::memory::MemoryUse;
use crate::pace::Pace;
use crate::wait::WaitMode;
use crate::workload::{LoneJob, LoneTimes, ToolCost, Workload};

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
    /// Take what the instrument itself costs in this job.
    Tool(Box<Job>),
    /// Play one side of a measurement.
    Play(Box<Job>),
    /// Run another system's program.
    Run(Box<Errand>),
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
    /// Messages per second to send; none: as many as are taken.
    #[serde(default)]
    pub pace: Option<Pace>,
    /// Flows of this process, side by side.
    pub flows: u32,
    /// Bytes to send in all, where that ends the work.
    #[serde(default)]
    pub bytes_total: u64,
    /// The flow that goes beside the one of `setup`, and how often that one has a message.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// What a lone message comes behind, and what it goes by.
    #[serde(default)]
    pub lone: Option<LoneJob>,
    /// How much this machine's monotonic clock is ahead of the sender's, in ns; 0 where both are one machine.
    #[serde(default)]
    pub clock_offset_ns: i64,
    /// Of one server and its clients: how many these are, and which one this is.
    #[serde(default)]
    pub crowd: Option<Crowd>,
}

/// Several clients of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// How many there are.
    pub clients: u32,
    /// This one's number, counted from 0; the server has none.
    pub number: u32,
}

impl Job {
    /// A time of this machine's monotonic clock by the sender's, in ns.
    pub fn to_sender_ns(&self, own_ns: u64) -> u64 {
        to_local(own_ns, self.clock_offset_ns)
    }
}

/// What makes a pair of flows of one: bulk beside messages that arrive at a fixed rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The bulk's conditions.
    pub bulk: Setup,
    /// Messages per second of the other flow.
    pub arrivals_per_s: u64,
    /// Cores that are watched for interruptions.
    pub cores: Vec<usize>,
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
    /// Whether receivers copy each message that lies in the protocol's memory to their own.
    #[serde(default)]
    pub read: ReadKind,
    /// Whether messages go both ways.
    pub both_ways: bool,
    /// How the flow stands to others.
    #[serde(default)]
    pub class: FlowClass,
    /// Whether each message is to leave at once, because its lateness counts: TCP_NODELAY.
    #[serde(default)]
    pub prompt: bool,
    /// Whether the flow is to fill links that are cut beneath it.
    #[serde(default)]
    pub cut: bool,
    /// The flow's number among those that go at the same time: what is found by name needs a name of its own.
    #[serde(default)]
    pub flow: u32,
    /// Of multicast: ports of each node.
    #[serde(default)]
    pub member_ports: u32,
    /// Where the two sides are on different machines: what each must know of the other.
    #[serde(default)]
    pub far: Option<Far>,
}

/// What the two sides must know of each other on a network that others use, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// A name that only these two have: Polyrail's nodes of other clusters are ignored.
    pub cluster: String,
    /// Where the sender calls from: the receiver answers nobody else.
    pub peers: Vec<IpAddr>,
}

impl Far {
    /// Whether `address` may be the sender's.
    pub fn expects(&self, address: IpAddr) -> bool {
        self.peers.contains(&address.to_canonical())
    }
}

impl Setup {
    /// Whether the sender may have this address.
    pub fn expects(&self, sender: IpAddr) -> bool {
        self.far.as_ref().is_none_or(|far| far.expects(sender))
    }
}

/// A line to a measured process after its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum Order {
    /// To the sender: begin.
    Go,
    /// To the receiver: no more than `expected` messages will come; report once they are here or silence lasts.
    Drain {
        /// Number of messages the sender sent in all, for each of its flows.
        expected: Vec<u64>,
    },
    /// To the receiver of two flows: the same, for each of them.
    DrainFlows {
        /// Number of messages sent in all.
        expected: [u64; 2],
    },
    /// To a receiver that has stopped reading: read on.
    Resume,
    /// To the sender of two flows: what has each link carried so far?
    Carried,
    /// To the receiver of two flows: a link was cut; how late did messages come?
    Judge(Span),
    /// To the sender of two flows: send no more, and report.
    Stop,
    /// End.
    Quit,
}

/// When a link was cut and given back, by the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// From here to the cut nothing was disturbed, in ns: what was due before says nothing of this cut.
    pub calm_ns: u64,
    /// Just before the cut, in ns.
    pub cut_ns: u64,
    /// From here on the goodput counts, in ns: for some time after the cut was made.
    pub counted_from_ns: u64,
    /// Until here the goodput counts, in ns: just before the link is given back.
    pub counted_until_ns: u64,
    /// Just after the link was given back, in ns.
    pub restored_ns: u64,
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
    /// Bytes that left over each link so far.
    Carried {
        /// When that was looked up, in ns of the machine's clock.
        at_ns: u64,
        /// One per link.
        bytes: Vec<u64>,
    },
    /// What a cut did.
    Judged(Judgement),
    /// What the instrument itself costs.
    Tool {
        /// None where it does not matter.
        cost: Option<ToolCost>,
    },
    /// The machine's pulse.
    Pulse(Calibration),
    /// A program that is run said something.
    Said {
        /// One line.
        line: String,
        /// Whether to its standard error.
        aside: bool,
    },
    /// A program that was run has ended.
    Ended(Ending),
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
    /// Of a sender of one-way messages that does not spin: how long cores of its machine were busy within the window, all
    /// together, whoever they worked for, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_busy_ns: Option<u64>,
    /// Messages sent in all.
    pub sent: u64,
    /// The same for each flow, where there are several side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_by_flow: Vec<u64>,
    /// Messages within the window by client, where there are several of one server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages_by_client: Vec<u64>,
    /// What the check of arriving messages says, over the whole run.
    pub counts: CheckCounts,
    /// Round trips within the window, or lateness: (ns, how often), by histogram bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_ns: Vec<(u64, u64)>,
    /// Of `openloop`, the time from sending instead of from when a message was due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw_ns: Vec<(u64, u64)>,
    /// Of two flows: messages sent in all, the one at a fixed rate first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_sent: Option<[u64; 2]>,
    /// Of two flows: the bulk's counts; `counts` are the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_counts: Option<CheckCounts>,
    /// Interruptions of the watched cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallSummary>,
    /// Of `failover`: what arrived when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// How long the sender has got nothing accepted, in ns.
    #[serde(default)]
    pub blocked_ns: u64,
    /// Resident memory over the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Of `lone`: how the times stand to the least that the links allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lone: Option<LoneTimes>,
    /// What a process that does nothing costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleCost>,
    /// What could not be had: pinning, priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl SideReport {
    /// Messages sent in all, for each flow.
    pub(crate) fn sent_each(&self) -> Vec<u64> {
        if self.sent_by_flow.is_empty() { vec![self.sent] } else { self.sent_by_flow.clone() }
    }
}
