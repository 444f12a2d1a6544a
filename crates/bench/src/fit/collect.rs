//! From rows of documents to curves: one for each protocol, workload and set of conditions, the size apart.

use serde_json::{Map, Value};

use super::curve::{Curve, TimedSample};
use crate::host::Host;
use crate::report::{Measured, MeasuredRow};
use crate::workload::Workload;

/// What makes several messages of a row share something, so that its times are not those of one message.
const LOADS: [&str; 7] = ["offer", "arrivals_per_s", "streams", "pairs", "senders", "beside", "clients"];

/// A curve and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) workload: Workload,
    /// All conditions but the size.
    pub(crate) conditions: Map<String, Value>,
    pub(crate) curve: Curve,
    /// CPU time of sender and receiver for a message of the smallest size that has it, in us: that size, and samples.
    pub(crate) cpu_us: Option<(usize, [Vec<f64>; 2])>,
}

/// The curves of all documents, in the order of their first rows. The same conditions in two documents are one curve: what one
/// has beside the other are more samples.
pub(crate) fn series(all: &[Measured]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in all.iter().flat_map(|measured| &measured.rows) {
        let Some(samples) = samples(row) else { continue };
        let conditions = row.conditions_without(&["size"]);
        let place = match series.iter().position(|one| one.conditions == conditions) {
            Some(place) => place,
            None => {
                series.push(Series {
                    workload: row.workload,
                    conditions,
                    curve: Curve::default(),
                    cpu_us: None,
                });
                series.len() - 1
            }
        };
        series[place].curve.add(row.size, samples);
        series[place].add_cpu(row);
    }
    series
}

impl Series {
    fn add_cpu(&mut self, row: &MeasuredRow) {
        let of_message = |side: &Vec<Option<f64>>| -> Vec<f64> {
            side.iter().flatten().map(|s_per_gb| s_per_gb * row.size as f64 / 1e3).collect()
        };
        let sides = [of_message(&row.cpu_s_per_gb[0]), of_message(&row.cpu_s_per_gb[1])];
        let is_smaller = self.cpu_us.as_ref().is_none_or(|(size, _)| row.size < *size);
        if is_smaller && sides.iter().all(|side| !side.is_empty()) {
            self.cpu_us = Some((row.size, sides));
        }
    }
}

/// The time of a message in each repetition; none where the row tells no time of a single one.
fn samples(row: &MeasuredRow) -> Option<Vec<TimedSample>> {
    if LOADS.iter().any(|load| row.conditions.contains_key(*load)) {
        return None;
    }
    let bits = row.size as f64 * 8.0;
    type Time = fn(f64, f64) -> f64;
    let (values, time): (&[Option<f64>], Time) = match row.workload {
        // Both ways carry the same.
        Workload::PingPong => (&row.latency_p50_us, |us, _| us / 2.0),
        Workload::Lone | Workload::Transact => (&row.latency_p50_us, |us, _| us),
        // What is lost took no time: a protocol that promises no delivery has no time of a message here.
        Workload::Stream | Workload::Links | Workload::Buffer if row.reliable => {
            (&row.throughput_mbps, |mbps, bits| bits / mbps)
        }
        Workload::Rate if row.reliable => (&row.rate_per_s, |per_s, _| 1e6 / per_s),
        _ => return None,
    };
    let line = |place: usize| row.cacheline_ns.get(place).copied().flatten();
    let one = |(place, value): (usize, &Option<f64>)| {
        Some(TimedSample { time_us: time((*value)?, bits), cacheline_ns: line(place) })
    };
    Some(values.iter().enumerate().filter_map(one).collect())
}

/// What tells two machines apart; the rest is told only.
const OF_A_MACHINE: [&str; 3] = ["kernel", "cpu", "cores"];

/// Notes on what differs between the documents.
///
/// # Errors
/// They were not measured on the same machine.
pub(crate) fn same_machine(all: &[Measured]) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    let Some((first, others)) = all.split_first() else { return Ok(notes) };
    for other in others {
        compared(("", &first.host, &first.source), (&other.host, &other.source), &mut notes)?;
        if let (Some(here), Some(there)) = (&first.peer_host, &other.peer_host) {
            compared(("the receiver's ", here, &first.source), (there, &other.source), &mut notes)?;
        }
    }
    notes.extend(all.iter().filter_map(|measured| {
        let error = measured.error.as_ref()?;
        Some(format!("{}: its run ended with an error: {error}", measured.source))
    }));
    notes.extend(missing(all));
    Ok(notes)
}

fn compared(
    (whose, host, source): (&str, &Host, &str),
    (other, other_source): (&Host, &str),
    notes: &mut Vec<String>,
) -> Result<(), String> {
    for (name, here, there) in host.differences(other) {
        let differs = format!("{whose}{name} is {here} in {source}, {there} in {other_source}");
        if OF_A_MACHINE.contains(&name) {
            return Err(format!("{differs}: times of two machines are no curve; give the documents of one"));
        }
        notes.push(differs);
    }
    Ok(())
}

/// Protocols that one document has and another has not.
fn missing(all: &[Measured]) -> Vec<String> {
    let mut protocols: Vec<&str> =
        all.iter().flat_map(|measured| &measured.rows).map(|row| row.protocol.as_str()).collect();
    protocols.sort_unstable();
    protocols.dedup();
    let mut notes = Vec::new();
    for measured in all {
        let lacks = protocols.iter().filter(|name| !measured.rows.iter().any(|row| row.protocol == **name));
        notes.extend(lacks.map(|name| {
            let reason = measured.unavailable.iter().find(|(protocol, _)| protocol == name);
            let reason = reason.map_or(String::new(), |(_, reason)| format!(" ({reason})"));
            format!("{name} is not in {}{reason}: what that measures is not known of it", measured.source)
        }));
    }
    notes
}
