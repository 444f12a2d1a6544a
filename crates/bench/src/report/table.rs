//! A report for a person at a terminal.

use std::fmt::Write;

use super::document::{Document, Row};
use crate::args::Placement;
use crate::stats::Spread;

pub(super) fn render(document: &Document) -> String {
    let host = &document.host;
    let mut text =
        format!("{}, {} cores of {}, load {}\n", host.kernel, host.cores, host.cpu, host.load_1min);
    if !host.optimized {
        text += "built without optimisation: what runs inside this program (polyrail) is slower than it is\n";
    }
    if !document.results.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<String>> = document.results.iter().map(cells).collect();
        let heading: Vec<String> = HEADING.iter().map(|&name| name.to_owned()).collect();
        columns(&mut text, &heading, &rows);
    }
    for row in &document.results {
        for (index, error) in row.errors.iter().enumerate() {
            let _ = writeln!(text, "{} {} B, failure {}: {error}", row.protocol, row.size, index + 1);
        }
        for note in &row.notes {
            let _ = writeln!(text, "{}: {note}", row.protocol);
        }
    }
    if !document.ratios.is_empty() {
        text.push('\n');
    }
    for row in &document.ratios {
        let ratio = &row.ratio;
        let _ = writeln!(
            text,
            "{}  {:.3}  (95 %: {:.3} to {:.3}, {} pairs)",
            row.name, ratio.median, ratio.low, ratio.high, ratio.pairs
        );
    }
    for entry in &document.unavailable {
        let _ = writeln!(text, "{} cannot run here: {}", entry.protocol, entry.reason);
    }
    text
}

const HEADING: [&str; 9] = [
    "protocol",
    "conditions",
    "size",
    "figure",
    "low",
    "high",
    "CPU s/GB snd rcv",
    "lost dup ord dmg",
    "limit",
];

fn cells(row: &Row) -> Vec<String> {
    let (figure, unit) = match (&row.latency_us, &row.throughput_mbps, row.workload) {
        (Some(latency), _, _) => (Some(&latency.p50), format!("us p50, p99 {}", short(latency.p99.median))),
        (None, _, crate::Workload::Rate) => (row.rate_per_s.as_ref(), "/s".to_owned()),
        (None, throughput, _) => (throughput.as_ref(), "Mbit/s".to_owned()),
    };
    let number = |value: fn(&Spread) -> f64| figure.map_or("-".to_owned(), |spread| short(value(spread)));
    let cpu = row.cpu_s_per_gb.as_ref();
    vec![
        row.protocol.to_owned(),
        conditions(row),
        row.size.to_string(),
        format!("{} {unit}", number(|spread| spread.median)),
        number(|spread| spread.low),
        number(|spread| spread.high),
        cpu.map_or("-".to_owned(), |cpu| format!("{:.2} {:.2}", cpu.sender.median, cpu.receiver.median)),
        format!("{} {} {} {}", row.lost, row.duplicated, row.reordered, row.damaged),
        row.limited_by.unwrap_or("-").to_owned(),
    ]
}

fn conditions(row: &Row) -> String {
    let (placement, wait) = (row.placement.name(), row.wait.name());
    if row.placement == Placement::Intra {
        return format!("{placement} {wait}");
    }
    let rates: Vec<String> =
        row.rate_mbit.iter().map(|rate| rate.map_or("-".to_owned(), |r| r.to_string())).collect();
    let loss = if row.loss_percent > 0.0 { format!(" loss {}%", row.loss_percent) } else { String::new() };
    format!("{placement} {}{loss} {wait}", rates.join("+"))
}

/// Four significant digits are as many as any figure here deserves.
fn short(value: f64) -> String {
    match value {
        v if v >= 1_000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn columns(text: &mut String, heading: &[String], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([heading[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    for line in std::iter::once(heading).chain(rows.iter().map(Vec::as_slice)) {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
}
