//! What was measured over, in lines for people: devices, delayed links, two machines' clocks.

use super::document::Document;
use super::table::short;
use crate::host::DeviceRow;
use crate::run::RelayRow;

/// A line for each thing; none of what a document has not.
pub(super) fn lines(document: &Document) -> Vec<String> {
    let mut lines = devices(&document.devices);
    lines.extend(document.relays.iter().map(relay));
    lines.extend(clocks(document));
    lines
}

/// A line for devices that are alike.
fn devices(rows: &[DeviceRow]) -> Vec<String> {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        let (name, summary) = (row.device.name.as_str(), row.device.summary());
        match told.iter_mut().find(|(known, _)| *known == summary) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => told.push((summary, vec![name])),
        }
    }
    told.into_iter().map(|(summary, names)| format!("{}: {summary}", names.join(", "))).collect()
}

/// What the relay of a delayed link really does.
fn relay(row: &RelayRow) -> String {
    let limit = if row.is_limit() { ": less than the link's rate, so it is the limit" } else { "" };
    format!(
        "{}: delayed by {} ms each way by a relay: 64 bytes take {} ms there and back, and it carries {} Mbit/s{limit}",
        row.link,
        row.delay_ms,
        short(row.round_trip_ms),
        short(row.carries_mbps)
    )
}

/// How the other machine's clock stood to ours over all rows; none where there is one machine.
fn clocks(document: &Document) -> Option<String> {
    let samples =
        || document.results.iter().filter_map(|row| row.clock.as_ref()).flat_map(|clock| &clock.samples);
    let error_ns = samples().map(|sample| sample.error_ns).max()?;
    let drift_ns = samples().map(|sample| sample.drift_ns.unsigned_abs()).max()?;
    Some(format!(
        "the two machines' clocks were compared around each of {} samples: their difference is known within {} us, and changed by \
         {} us during a sample at most",
        samples().count(),
        short(error_ns as f64 / 1e3),
        short(drift_ns as f64 / 1e3)
    ))
}
