//! What makes a comparison less than it seems.

use serde_json::Value;

use super::{Compared, Middle};
use crate::calibrate::{Calibration, PHASE_FACTOR};
use crate::protocol;
use crate::report::document::{Document, Row};
use crate::stats::median;

/// More outliers than this share are no accident: the figure has two modes.
const OUTLIER_SHARE: f64 = 0.2;
/// What a plan may differ in: each row names its own.
const PLAN_PER_ROW: [&str; 6] = ["protocols", "environments", "points", "repeat", "tight_percent", "versus"];

/// What concerns the documents as a whole; each comes with its file.
pub(super) fn of_documents(a: (&str, &Document), b: (&str, &Document)) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, here, there) in a.1.host.differences(&b.1.host) {
        notes.push(format!("{name} differs: A {here}, B {there}"));
    }
    if let (Some(peer), Some(other)) = (&a.1.peer_host, &b.1.peer_host) {
        for (name, here, there) in peer.differences(other) {
            notes.push(format!("the receiver's machine: {name} differs: A {here}, B {there}"));
        }
    }
    if let (Some(plan), Some(other)) = (&a.1.plan, &b.1.plan) {
        notes.extend(plans(plan, other));
    }
    for (side, (file, document)) in [("A", a), ("B", b)] {
        if let Some(error) = &document.error {
            notes.push(format!("{side}, {file}: its run ended with an error: {error}"));
        }
        if document.results.iter().any(without_samples) {
            notes.push(format!("{side}, {file}: keeps no single samples: a version before them wrote it"));
        }
    }
    notes
}

/// What concerns two rows; each comes with its side.
pub(super) fn of_rows(a: (&str, &Row), b: (&str, &Row)) -> Vec<String> {
    let mut notes: Vec<String> = phases(a.1, b.1).into_iter().collect();
    for (side, row) in [a, b] {
        if !row.errors.is_empty() {
            let count = row.errors.len();
            notes.push(format!(
                "{side}: {count} repetitions failed and are left out, first: {}",
                row.errors[0]
            ));
        }
        let reliable = protocol::find(&row.protocol).is_some_and(protocol::Protocol::reliable);
        let faults = [
            (row.lost, "lost"),
            (row.duplicated, "duplicated"),
            (row.reordered, "reordered"),
            (row.damaged, "damaged"),
        ];
        for (count, how) in faults.into_iter().filter(|(count, _)| reliable && *count > 0) {
            notes.push(format!("{side}: {count} messages {how}, which {} promises not to do", row.protocol));
        }
    }
    notes
}

/// What concerns one figure.
pub(super) fn of_figure(figure: &Compared) -> Vec<String> {
    let far = |(side, middle): (&str, Middle)| {
        let share = middle.outliers as f64 / middle.samples.max(1) as f64;
        (share > OUTLIER_SHARE).then(|| {
            let (far, all, name) = (middle.outliers, middle.samples, &figure.figure);
            format!("{side}: {far} of {all} samples of {name} lie far from the others and do not count: see its values")
        })
    };
    [("A", figure.a), ("B", figure.b)].into_iter().filter_map(far).collect()
}

fn plans(a: &Value, b: &Value) -> Vec<String> {
    let members = a.as_object().into_iter().flatten();
    let differs = members.filter(|(name, value)| {
        !PLAN_PER_ROW.contains(&name.as_str()) && b.get(name).is_some_and(|other| other != *value)
    });
    differs.map(|(name, value)| format!("{name} differs: A {value}, B {}", b[name])).collect()
}

fn phases(a: &Row, b: &Row) -> Option<String> {
    let cacheline_ns = |row: &Row| {
        let all: Vec<f64> = pulses(row).filter_map(|pulse| pulse.cacheline_ns).collect();
        median(&all)
    };
    let (a, b) = (cacheline_ns(a)?, cacheline_ns(b)?);
    (a.max(b) > PHASE_FACTOR * a.min(b)).then(|| {
        format!(
            "the machine was in another phase: a cache line took {a:.0} ns in A, {b:.0} ns in B; measure both anew, in turn"
        )
    })
}

fn pulses(row: &Row) -> impl Iterator<Item = Calibration> {
    row.calibration.iter().flat_map(|pulses| [Some(pulses.before), pulses.after]).flatten()
}

/// Whether a row has figures and none of the samples behind them.
fn without_samples(row: &Row) -> bool {
    let rate = [&row.throughput_mbps, &row.rate_per_s];
    rate.into_iter().flatten().any(|spread| spread.samples > 0 && spread.values.is_empty())
}
