//! What a command line asks for, checked: environments, and the points to be measured in each.

use serde::Serialize;

use super::{FailoverPlan, FlowDirection, HostPlan, Placement, ReadKind, SendKind};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// What a command line asks for, checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    /// Of a placement on another machine.
    pub(crate) host: Option<HostPlan>,
    pub(crate) environments: Vec<Environment>,
    /// Measured in each environment, one after the other.
    pub(crate) points: Vec<Point>,
    pub(crate) warmup_ns: u64,
    pub(crate) duration_ns: u64,
    /// Repetitions; with `tight_percent`, the most.
    pub(crate) repeat: u32,
    /// Half the width of an interval, in percent of its middle, that is narrow enough to stop.
    pub(crate) tight_percent: Option<f64>,
    pub(crate) send: SendKind,
    pub(crate) read: ReadKind,
    pub(crate) protocols: Vec<String>,
    pub(crate) versus: Vec<(String, String)>,
    /// What `stalled` pushes.
    pub(crate) bytes: u64,
    pub(crate) failover: FailoverPlan,
    /// Both measuring threads share a core.
    pub(crate) one_core: bool,
}

/// Where is measured: a testbed, or this node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) placement: Placement,
    /// Rate of each link in Mbit/s, none for unthrottled.
    pub(crate) rates: Vec<Option<u32>>,
    /// Random loss of each link in percent.
    pub(crate) losses: Vec<f64>,
    /// How long each link takes each way, in ms; empty where nothing is delayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) delays_ms: Vec<f64>,
    /// Nodes of the testbed.
    pub(crate) nodes: usize,
}

impl Environment {
    /// Two processes of this node.
    pub(super) fn within_a_node() -> Self {
        Self { nodes: 1, ..Self::between_machines(Placement::Intra, 1) }
    }

    /// This machine and another one, with so many links between.
    pub(crate) fn between_machines(placement: Placement, links: usize) -> Self {
        Self {
            placement,
            rates: vec![None; links],
            losses: vec![0.0; links],
            delays_ms: Vec::new(),
            nodes: 2,
        }
    }
}

/// One set of conditions within an environment, the protocol apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Message size in bytes.
    pub(crate) size: usize,
    pub(crate) wait: WaitMode,
    /// Of sockets, in bytes; none: the system's.
    pub(crate) socket_buffer_max: Option<usize>,
    pub(crate) load: Load,
}

/// What is asked of a protocol at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// One pair, as much as it takes.
    Full,
    /// One pair, so many Mbit/s of payload.
    Offered(u32),
    /// One pair, so many messages per second.
    Arrivals(u64),
    /// So many streams between two processes, as much as they take.
    Streams(u32),
    /// So many pairs of processes, as much as they take.
    Pairs(u32, FlowDirection),
    /// So many clients of one server, a process each.
    Clients(u32),
    /// So many senders, each on a node of its own, towards one receiver.
    Senders(u32),
    /// One pair, and bulk between the same processes.
    BesideBulk,
    /// One sender towards so many nodes, with so many ports each.
    Members(u32, u32),
}

impl Load {
    /// Measuring threads of both sides: more than two cannot have a core each.
    pub(crate) fn threads(self) -> u32 {
        match self {
            Self::Full | Self::Offered(_) | Self::Arrivals(_) => 2,
            Self::BesideBulk => 4,
            Self::Streams(count) | Self::Pairs(count, _) => 2 * count,
            Self::Senders(count) | Self::Clients(count) => 1 + count,
            Self::Members(count, ports) => 1 + count * ports,
        }
    }

    /// Nodes that it takes.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::Senders(count) | Self::Members(count, _) => 1 + count as usize,
            _ => 2,
        }
    }

    /// How the conditions name it; empty for what goes without saying.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Full => String::new(),
            Self::Offered(0) => "offered all".to_owned(),
            Self::Offered(mbit) => format!("offered {mbit} Mbit/s"),
            Self::Arrivals(rate) => format!("{rate} /s"),
            Self::Streams(count) => format!("{count} streams"),
            Self::BesideBulk => "beside bulk".to_owned(),
            Self::Pairs(1, _) => "1 pair".to_owned(),
            Self::Pairs(count, direction) => format!("{count} pairs {}", direction.name()),
            Self::Senders(count) => format!("{count} senders"),
            Self::Clients(1) => "1 client".to_owned(),
            Self::Clients(count) => format!("{count} clients"),
            Self::Members(count, 1) => format!("{count} members of 1 port"),
            Self::Members(count, ports) => format!("{count} members of {ports} ports"),
        }
    }
}

impl Plan {
    /// Whether any environment needs network namespaces.
    pub(crate) fn needs_testbed(&self) -> bool {
        self.environments.iter().any(|environment| environment.placement == Placement::Inter)
    }
}
