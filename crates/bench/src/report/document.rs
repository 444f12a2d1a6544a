//! The JSON form of a report, `polyrail-bench/1`. A field without meaning for a row is absent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::SCHEMA;
use super::crowd::{Clients, CrowdMib};
use super::expected::Expected;
use super::figures::{CutRow, Gaps, Ideal, Idle, Memory, Quantiles, Sharing, Sides, Stalls, TimelineRow};
use crate::args::{BesideKind, FlowClass, FlowDirection, Load, Placement, ReadKind, SendKind};
use crate::calibrate::{Calibration, Pulses, StallHistogram};
use crate::host::{DeviceRow, Host};
use crate::plans::FindingRow;
use crate::remote::{ClockSample, METHOD};
use crate::run::{RelayRow, Sample};
use crate::stats::{Ratio, Spread};
use crate::wait::WaitMode;
use crate::workload::{ToolCost, Workload};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) schema: String,
    pub(super) host: Host,
    /// Devices that were measured over, for each environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) devices: Vec<DeviceRow>,
    /// Delayed links, in the order of the environments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) relays: Vec<RelayRow>,
    /// The receiver's machine, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_host: Option<Host>,
    /// The command line that measured it, the program's name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) command: Vec<String>,
    /// What was asked for, with what the command line left open filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<Value>,
    /// Of a plan file: what it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// Of a plan file: what was published, held against this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<FindingRow>,
    /// Whether the table tells what is expected.
    #[serde(skip)]
    pub(super) shows_model: bool,
    pub(super) results: Vec<Row>,
    pub(super) ratios: Vec<RatioRow>,
    /// The machine's own interruptions over all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stall_histogram: Option<StallHistogram>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unavailable: Vec<Unavailable>,
    /// What concerns all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Document {
    pub(super) fn here() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            host: Host::here(),
            devices: Vec::new(),
            relays: Vec::new(),
            peer_host: None,
            command: Vec::new(),
            plan: None,
            title: None,
            findings: Vec::new(),
            shows_model: false,
            results: Vec::new(),
            ratios: Vec::new(),
            stall_histogram: None,
            unavailable: Vec::new(),
            notes: Vec::new(),
            error: None,
        }
    }

    /// What is to be noted where the two machines run different builds of this program.
    pub(super) fn versions_differ(&self) -> Option<String> {
        let (here, there) = (&self.host, self.peer_host.as_ref()?);
        if here.version != there.version {
            return Some(format!("the program is of version {} here, {} there", here.version, there.version));
        }
        let how = |host: &Host| if host.optimized { "with" } else { "without" };
        let differs = here.optimized != there.optimized;
        differs
            .then(|| format!("the program was built {} optimisation here, {} there", how(here), how(there)))
    }
}

/// One protocol under one set of conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) workload: Workload,
    pub(super) protocol: String,
    /// The congestion control that it names to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) congestion: Option<String>,
    pub(super) placement: Placement,
    pub(super) links: usize,
    /// Per link; null where unthrottled.
    pub(super) rate_mbit: Vec<Option<u32>>,
    /// Per link.
    pub(super) loss_percent: Vec<f64>,
    /// Per link, each way; empty where nothing is delayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) delay_ms: Vec<f64>,
    pub(super) size: usize,
    pub(super) wait: WaitMode,
    #[serde(flatten)]
    pub(super) load: LoadRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<FlowClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) send: Option<SendKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) read: Option<ReadKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) socket_buffer_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throughput_mbps: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offered_mbps: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sharing: Option<Sharing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate_per_s: Option<Spread>,
    /// How several clients share their server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by_client: Option<Clients>,
    /// What memory they, it and a node in a process of its own take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crowd_memory_mib: Option<CrowdMib>,
    /// Of `multicast`: CPU time of the sending process for each message, whatever the number of nodes that get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sender_cpu_us: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_us: Option<Latency>,
    /// The times of all repetitions: (ns, how often).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) histogram_ns: Vec<(u64, u64)>,
    /// Of `openloop`, from sending instead of from when a message was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_latency_us: Option<Latency>,
    /// Of `lone`: the least that the links allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ideal: Option<Ideal>,
    /// What the model of throttled links expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<Expected>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gaps: Vec<Gaps>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) cuts: Vec<CutRow>,
    /// Of `failover`, one for each repetition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) timelines: Vec<TimelineRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calm_lateness_us: Option<Quantiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stalls: Option<Stalls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<Idle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transactions: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blocked_s: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sent_before_block_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_mib: Option<Sides<Memory>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_s_per_gb: Option<CpuPerGb>,
    /// Time that cores of the machine were busy, per gigabyte that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) machine_cpu_s_per_gb: Option<Spread>,
    /// Of arrivals between one pair: cores that both sides together kept busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cores_used: Option<Spread>,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    pub(super) damaged: u64,
    /// What the instrument itself costs for each message or round trip, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_ns: Option<ToolCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limited_by: Option<String>,
    /// The machine's pulse before and after each sample.
    pub(super) calibration: Vec<Pulses>,
    /// The other machine's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) peer_calibration: Vec<Calibration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<Clock>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<String>,
    /// The repetitions that ended with these errors, counted from 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

/// Names of a row's conditions, as the document has them.
pub(super) const CONDITIONS: [&str; 23] = [
    "workload",
    "protocol",
    "placement",
    "links",
    "rate_mbit",
    "loss_percent",
    "delay_ms",
    "size",
    "wait",
    "offer",
    "arrivals_per_s",
    "streams",
    "pairs",
    "direction",
    "senders",
    "members",
    "member_ports",
    "beside",
    "clients",
    "class",
    "send",
    "read",
    "socket_buffer_max",
];

impl Row {
    /// What two rows must share to be compared, by [`CONDITIONS`]; null where a condition
    /// does not apply. Every field is named, so that whoever adds one says here whether it is a condition.
    /// The congestion control is none: the protocol's name says which.
    pub(super) fn conditions(&self) -> Vec<(&'static str, Value)> {
        let Self {
            workload,
            protocol,
            congestion: _,
            placement,
            links,
            rate_mbit,
            loss_percent,
            delay_ms,
            size,
            wait,
            load,
            class,
            send,
            read,
            socket_buffer_max,
            throughput_mbps: _,
            offered_mbps: _,
            sharing: _,
            rate_per_s: _,
            by_client: _,
            crowd_memory_mib: _,
            sender_cpu_us: _,
            latency_us: _,
            histogram_ns: _,
            raw_latency_us: _,
            ideal: _,
            expected: _,
            gaps: _,
            cuts: _,
            timelines: _,
            calm_lateness_us: _,
            stalls: _,
            idle: _,
            transactions: _,
            blocked_s: _,
            sent_before_block_bytes: _,
            memory_mib: _,
            cpu_s_per_gb: _,
            machine_cpu_s_per_gb: _,
            cores_used: _,
            lost: _,
            duplicated: _,
            reordered: _,
            damaged: _,
            tool_ns: _,
            limited_by: _,
            calibration: _,
            peer_calibration: _,
            clock: _,
            errors: _,
            failed: _,
            notes: _,
        } = self;
        let before = [
            json!(workload),
            json!(protocol),
            json!(placement),
            json!(links),
            json!(rate_mbit),
            json!(loss_percent),
            if delay_ms.is_empty() { Value::Null } else { json!(delay_ms) },
            json!(size),
            json!(wait),
        ];
        let behind = [json!(class), json!(send), json!(read), json!(socket_buffer_max)];
        let values = before.into_iter().chain(load.conditions()).chain(behind);
        CONDITIONS.into_iter().zip(values).collect()
    }

    /// The row's name for people: what was measured, over what, under which conditions.
    pub(super) fn name(&self) -> String {
        let (workload, conditions) = (self.workload.name(), super::table::conditions(self));
        format!("{workload} {} {conditions} {} B", self.protocol, self.size)
    }
}

/// What was asked of the protocol at once, where that was more or less than one pair going as fast as it goes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LoadRow {
    /// In Mbit/s; 0: as much as is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arrivals_per_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pairs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) direction: Option<FlowDirection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) senders: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) members: Option<u32>,
    /// Ports of each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) member_ports: Option<u32>,
    /// What went beside the questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) beside: Option<BesideKind>,
    /// Clients of one server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<u32>,
}

impl LoadRow {
    pub(super) fn of(load: Load) -> Self {
        let none = Self::default();
        match load {
            Load::Full => none,
            Load::Offered(mbit) => Self { offer: Some(mbit), ..none },
            Load::Arrivals(per_s) => Self { arrivals_per_s: Some(per_s), ..none },
            Load::Streams(count) => Self { streams: Some(count), ..none },
            Load::Pairs(1, _) => Self { pairs: Some(1), ..none },
            Load::Pairs(count, direction) => Self { pairs: Some(count), direction: Some(direction), ..none },
            Load::Senders(count) => Self { senders: Some(count), ..none },
            Load::Clients(count) => Self { clients: Some(count), ..none },
            Load::BesideBulk => Self { beside: Some(BesideKind::Bulk), ..none },
            Load::Members(count, ports) => Self { members: Some(count), member_ports: Some(ports), ..none },
        }
    }

    /// Its part of [`CONDITIONS`].
    fn conditions(&self) -> [Value; 10] {
        let Self {
            offer,
            arrivals_per_s,
            streams,
            pairs,
            direction,
            senders,
            members,
            member_ports,
            beside,
            clients,
        } = self;
        [
            json!(offer),
            json!(arrivals_per_s),
            json!(streams),
            json!(pairs),
            json!(direction),
            json!(senders),
            json!(members),
            json!(member_ports),
            json!(beside),
            json!(clients),
        ]
    }

    /// The same for a person; empty for what goes without saying.
    pub(super) fn name(&self) -> String {
        let count = |value: Option<u64>, what: &str| value.map(|value| format!("{value} {what}"));
        let offer = self.offer.map(|mbit| match mbit {
            0 => "offered all".to_owned(),
            mbit => format!("offered {mbit}"),
        });
        let parts = [
            offer,
            count(self.arrivals_per_s, "/s"),
            count(self.streams.map(u64::from), "streams"),
            count(self.pairs.map(u64::from), if self.pairs == Some(1) { "pair" } else { "pairs" }),
            self.direction.map(|direction| direction.name().to_owned()),
            count(self.senders.map(u64::from), "senders"),
            count(self.clients.map(u64::from), if self.clients == Some(1) { "client" } else { "clients" }),
            count(self.members.map(u64::from), "members"),
            count(
                self.member_ports.map(u64::from),
                if self.member_ports == Some(1) { "port" } else { "ports" },
            ),
        ];
        let beside = self.beside.map(|BesideKind::Bulk| "beside bulk".to_owned());
        parts.into_iter().chain([beside]).flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Times in us, each over the repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) p50: Spread,
    pub(super) p90: Spread,
    pub(super) p99: Spread,
    pub(super) p999: Spread,
    pub(super) max: Spread,
}

/// How the two machines' clocks stood to each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Clock {
    /// How they were compared.
    method: String,
    /// One for each repetition.
    pub(super) samples: Vec<ClockSample>,
}

impl Clock {
    pub(super) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        let samples: Vec<ClockSample> = samples.filter_map(|sample| sample.far?.clock).collect();
        (!samples.is_empty()).then(|| Self { method: METHOD.to_owned(), samples })
    }
}

/// CPU time of each side per gigabyte that arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CpuPerGb {
    pub(super) sender: Spread,
    pub(super) receiver: Spread,
}

impl CpuPerGb {
    pub(super) fn of(sender: Option<Spread>, receiver: Option<Spread>) -> Option<Self> {
        Some(Self { sender: sender?, receiver: receiver? })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RatioRow {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) ratio: Ratio,
    /// Pairs whose two samples saw more than one phase of the machine; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mixed_phase: Option<usize>,
    /// The ratio of the others, where they are enough for an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) within_phase: Option<Ratio>,
}

/// A protocol that was asked for and cannot run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unavailable {
    pub(super) protocol: String,
    pub(super) reason: String,
}
