//! Which figures of a row are compared, and which way each is better.

use serde::Serialize;

use crate::failover::Kind;
use crate::report::document::Row;
use crate::report::figures::{CutRow, Sides};
use crate::stats::Spread;

/// Which values are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Better {
    Higher,
    Lower,
}

impl Better {
    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// The samples of one figure.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Its place in the document.
    pub(super) name: String,
    pub(super) better: Better,
    /// Those of repetitions that came to their end.
    pub(super) values: Vec<f64>,
}

/// The figures of a row that are compared.
pub(super) fn of(row: &Row) -> Vec<Figure> {
    use Better::{Higher, Lower};
    let latency = row.latency_us.as_ref();
    let cpu = row.cpu_s_per_gb.as_ref();
    let mut spreads = vec![
        ("throughput_mbps", Higher, row.throughput_mbps.as_ref()),
        ("rate_per_s", Higher, row.rate_per_s.as_ref()),
        ("sender_cpu_us", Lower, row.sender_cpu_us.as_ref()),
        ("latency_us.p50", Lower, latency.map(|latency| &latency.p50)),
        ("latency_us.p99", Lower, latency.map(|latency| &latency.p99)),
        ("cpu_s_per_gb.sender", Lower, cpu.map(|cpu| &cpu.sender)),
        ("cpu_s_per_gb.receiver", Lower, cpu.map(|cpu| &cpu.receiver)),
        ("machine_cpu_s_per_gb", Lower, row.machine_cpu_s_per_gb.as_ref()),
    ];
    if let Some(idle) = &row.idle {
        let Sides { sender, receiver } = &idle.cpu_percent;
        spreads.push(("idle.cpu_percent.sender", Lower, Some(sender)));
        spreads.push(("idle.cpu_percent.receiver", Lower, Some(receiver)));
        let Sides { sender, receiver } = &idle.private_mib;
        spreads.push(("idle.private_mib.sender", Lower, Some(sender)));
        spreads.push(("idle.private_mib.receiver", Lower, Some(receiver)));
    }
    let present = spreads.into_iter().filter_map(|(name, better, spread)| {
        Some(Figure { name: name.to_owned(), better, values: complete(row, spread?) })
    });
    present.chain(Kind::ALL.into_iter().flat_map(|kind| of_cuts(row, kind))).collect()
}

/// The samples of a spread without those of failed repetitions: what was cut short says little.
fn complete(row: &Row, spread: &Spread) -> Vec<f64> {
    let values = (1..).zip(&spread.values).filter(|(repetition, _)| !row.failed.contains(repetition));
    values.filter_map(|(_, value)| *value).collect()
}

/// The figures of one kind of cut: here each cut is a sample.
fn of_cuts(row: &Row, kind: Kind) -> impl Iterator<Item = Figure> {
    let cuts = row.cuts.iter().filter(|cut| cut.kind == kind && !row.failed.contains(&cut.repetition));
    let cuts: Vec<&CutRow> = cuts.collect();
    type Value = fn(&CutRow) -> Option<f64>;
    let figures: [(&str, Better, Value); 3] = [
        ("gap_ms", Better::Lower, |cut| Some(cut.gap_ms)),
        ("goodput_mbps", Better::Higher, |cut| cut.goodput_mbps),
        ("reuse_ms", Better::Lower, |cut| cut.reuse_ms),
    ];
    figures.into_iter().filter_map(move |(name, better, value)| {
        let values: Vec<f64> = cuts.iter().filter_map(|cut| value(cut)).collect();
        (!values.is_empty()).then(|| Figure { name: format!("{name}.{}", kind.name()), better, values })
    })
}
