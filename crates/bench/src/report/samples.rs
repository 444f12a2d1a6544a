//! Documents as plain samples, for those who reckon with them: what was measured of each protocol under which conditions, one
//! value for each repetition.

use std::path::Path;

use serde_json::{Map, Value};

use super::document::{CONDITIONS, Document, Row};
use super::read;
use crate::args::Placement;
use crate::host::Host;
use crate::protocol::{self, Protocol};
use crate::stats::Spread;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// One document.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Where it comes from, for people.
    pub(crate) source: String,
    pub(crate) host: Host,
    pub(crate) peer_host: Option<Host>,
    pub(crate) rows: Vec<MeasuredRow>,
    /// Protocols that could not be measured, and why.
    pub(crate) unavailable: Vec<(String, String)>,
    pub(crate) error: Option<String>,
}

/// One protocol under one set of conditions. Lists have a value for each repetition, none where it gave nothing or failed.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredRow {
    pub(crate) workload: Workload,
    pub(crate) protocol: String,
    /// Whether the protocol promises delivery.
    pub(crate) reliable: bool,
    pub(crate) placement: Placement,
    pub(crate) links: usize,
    /// Per link; none where unthrottled.
    pub(crate) rate_mbit: Vec<Option<u32>>,
    pub(crate) size: usize,
    pub(crate) wait: WaitMode,
    pub(crate) socket_buffer_max: Option<usize>,
    /// All conditions by their names in the document, those that apply.
    pub(crate) conditions: Map<String, Value>,
    pub(crate) throughput_mbps: Vec<Option<f64>>,
    pub(crate) rate_per_s: Vec<Option<f64>>,
    pub(crate) latency_p50_us: Vec<Option<f64>>,
    /// CPU seconds per 10^9 bytes of the sender and of the receiver.
    pub(crate) cpu_s_per_gb: [Vec<Option<f64>>; 2],
    /// Cores that both sides together kept busy.
    pub(crate) cores_used: Vec<Option<f64>>,
    /// A cache line's way around each sample, in ns; none where the machine changed phase meanwhile.
    pub(crate) cacheline_ns: Vec<Option<f64>>,
}

impl Measured {
    /// What the file of a document has.
    ///
    /// # Errors
    /// One line that names the file and says what is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        Ok(Self::of(path.display().to_string(), read::read(path)?))
    }

    /// What a document has that was not written to a file.
    ///
    /// # Errors
    /// It is no document.
    pub(crate) fn parse(source: &str, json: &str) -> Result<Self, String> {
        let document = read::parse(json.as_bytes()).map_err(|error| format!("{source}: {error}"))?;
        Ok(Self::of(source.to_owned(), document))
    }

    pub(super) fn of(source: String, document: Document) -> Self {
        let unavailable = document.unavailable.into_iter().map(|one| (one.protocol, one.reason));
        Self {
            source,
            host: document.host,
            peer_host: document.peer_host,
            rows: document.results.iter().map(MeasuredRow::of).collect(),
            unavailable: unavailable.collect(),
            error: document.error,
        }
    }
}

impl MeasuredRow {
    fn of(row: &Row) -> Self {
        let values = |spread: Option<&Spread>| -> Vec<Option<f64>> {
            let all = (1..).zip(spread.into_iter().flat_map(|spread| &spread.values));
            all.map(|(repetition, value)| value.filter(|_| !row.failed.contains(&repetition))).collect()
        };
        let cpu = row.cpu_s_per_gb.as_ref();
        let pulses = row.calibration.iter().map(|pulses| {
            let (before, after) = (pulses.before.cacheline_ns?, pulses.after?.cacheline_ns?);
            pulses.is_steady().then_some(f64::midpoint(before, after))
        });
        Self {
            workload: row.workload,
            protocol: row.protocol.clone(),
            reliable: protocol::find(&row.protocol).is_none_or(Protocol::reliable),
            placement: row.placement.clone(),
            links: row.links,
            rate_mbit: row.rate_mbit.clone(),
            size: row.size,
            wait: row.wait,
            socket_buffer_max: row.socket_buffer_max,
            conditions: conditions(row),
            throughput_mbps: values(row.throughput_mbps.as_ref()),
            rate_per_s: values(row.rate_per_s.as_ref()),
            latency_p50_us: values(row.latency_us.as_ref().map(|latency| &latency.p50)),
            cpu_s_per_gb: [values(cpu.map(|cpu| &cpu.sender)), values(cpu.map(|cpu| &cpu.receiver))],
            cores_used: values(row.cores_used.as_ref()),
            cacheline_ns: pulses.collect(),
        }
    }

    /// Conditions that two rows share to be of one series: all but these.
    pub(crate) fn conditions_without(&self, names: &[&str]) -> Map<String, Value> {
        let kept = self.conditions.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn conditions(row: &Row) -> Map<String, Value> {
    let all = row.conditions().into_iter().filter(|(_, value)| !value.is_null());
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Conditions for a person: what goes without saying is left out.
pub(crate) fn said(conditions: &Map<String, Value>) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let list = |value: &Value| {
        let all = value.as_array().cloned().unwrap_or_default();
        all.iter().map(|one| if one.is_null() { "0".to_owned() } else { text(one) }).collect::<Vec<_>>()
    };
    let is_inter = conditions.get("placement").is_none_or(|placement| placement != "intra");
    let ordered = CONDITIONS.into_iter().filter_map(|name| Some((name, conditions.get(name)?)));
    let parts = ordered.filter_map(|(name, value)| match name {
        "workload" | "protocol" | "placement" | "wait" => Some(text(value)),
        "links" if is_inter => Some(format!("{} {}", text(value), if value == 1 { "link" } else { "links" })),
        "rate_mbit" if is_inter && list(value).iter().any(|rate| rate != "0") => {
            Some(format!("{} Mbit/s", list(value).join(":")))
        }
        "loss_percent" if list(value).iter().any(|loss| loss.parse() != Ok(0.0)) => {
            Some(format!("loss {} %", list(value).join(":")))
        }
        "delay_ms" => Some(format!("delay {} ms", list(value).join(":"))),
        "size" => Some(format!("{} B", text(value))),
        "links" | "rate_mbit" | "loss_percent" => None,
        other => Some(format!("{other} {}", text(value))),
    });
    parts.collect::<Vec<_>>().join(" ")
}
