//! Documents as a table for a README: Polyrail beside each peer, the ratio with its interval, the machine, and the commands that
//! measured it. The same documents give the same text, so that a test can tell whether a README is what was measured.

use std::fmt::Write;

use super::document::{Document, Row};
use super::figures::CutRow;
use super::html::figure::{Metric, SAMPLES_MIN};
use super::html::group::{Axis, Chart, Found, Series, about, charts};
use super::html::units::{Unit, size};
use super::html::versus::{Shown, Versus, times};
use super::html::{Source, is_limit};
use crate::failover::Kind;
use crate::stats::{Ratio, median, paired_ratio};
use crate::workload::Workload;

/// Machine, table and commands.
pub(crate) fn render(sources: &[Source]) -> String {
    let mut text = String::new();
    let mut machines: Vec<String> = sources.iter().map(|source| machine(&source.document)).collect();
    machines.dedup();
    let _ = writeln!(
        text,
        "Median of each, and the median of the ratios within pairs with its 95 % interval; {}{}.\n",
        machines.join("; and "),
        loads(sources)
    );
    text += "| what | Polyrail | peer | ratio |\n|---|---|---|---|\n";
    sources.iter().for_each(|source| text.push_str(&lines(source)));
    let commands: Vec<String> = sources
        .iter()
        .map(|source| &source.document.command)
        .filter(|words| !words.is_empty())
        .map(|words| {
            words.iter().filter(|word| *word != "--json").map(String::as_str).collect::<Vec<_>>().join(" ")
        })
        .collect();
    if !commands.is_empty() {
        let _ = write!(text, "\n```sh\n{}\n```\n", commands.join("\n"));
    }
    text
}

/// How busy the machine was with other work: figures of a busy one deserve less trust.
fn loads(sources: &[Source]) -> String {
    let all = || sources.iter().map(|source| source.document.host.load_1min);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    if low.is_finite() { format!("; load {low:.1} to {high:.1} when they began") } else { String::new() }
}

fn machine(document: &Document) -> String {
    let host = &document.host;
    let kind = if host.hypervisor { "a virtual machine with " } else { "" };
    cell(&format!("{}, {kind}{} cores of {}", host.kernel, host.cores, host.cpu))
}

/// A table's lines of a document.
fn lines(source: &Source) -> String {
    let rows = || source.document.results.iter().map(|row| Found { source: 0, row });
    let mut text = String::new();
    for workload in Workload::all() {
        let found: Vec<Found> = rows().filter(|found| found.row.workload == *workload).collect();
        if *workload == Workload::Failover {
            text += &lines_of_cuts(&found);
            continue;
        }
        for chart in charts(*workload, &found, &[]) {
            text += &lines_of_chart(&chart);
        }
    }
    text
}

fn lines_of_chart(chart: &Chart) -> String {
    let mut text = String::new();
    let Some(metric) = chart.metrics.first() else { return text };
    let is_ours = |series: &&Series| series.protocol.starts_with("polyrail");
    let is_peer = |series: &&Series| !is_ours(series) && !is_limit(series.protocol);
    for place in chart.places() {
        let there = || chart.series.iter().filter_map(|series| Some((series, series.at(place)?)));
        for (_, row) in there().filter(|(series, _)| is_ours(series)) {
            for (peer, other) in there().filter(|(series, _)| is_peer(series)) {
                text += &line(&what(row, chart), row, (peer, other), metric).unwrap_or_default();
            }
        }
    }
    text
}

fn line(what: &str, ours: &Row, (series, other): (&Series, &Row), metric: &Metric) -> Option<String> {
    let versus = Versus::of(ours, other, metric)?;
    let [a, b] = [ours, other].map(|row| (metric.of)(row).map(|spread| metric.unit.text(spread.median)));
    // What is told is the first by the second, whatever is better.
    let Ratio { median, low, high, pairs } = match metric.is_better_high {
        true => versus.ratio.clone(),
        false => inverse(&versus.ratio),
    };
    let ratio = Ratio { median, low, high, pairs };
    let slower = if versus.shown() == Shown::Worse { ", **slower**" } else { "" };
    Some(format!(
        "| {} | {} | `{}` {} | {}{slower} |\n",
        cell(what),
        a?,
        cell(&series.label),
        b?,
        interval(&ratio)
    ))
}

fn inverse(ratio: &Ratio) -> Ratio {
    Ratio { median: 1.0 / ratio.median, low: 1.0 / ratio.high, high: 1.0 / ratio.low, pairs: ratio.pairs }
}

fn interval(Ratio { median, low, high, pairs }: &Ratio) -> String {
    let few = if *pairs < SAMPLES_MIN { ", too few for an interval" } else { "" };
    format!("{} ({} to {}), {pairs} pairs{few}", times(*median), times(*low), times(*high))
}

/// What was done under which conditions, with what sets Polyrail's protocol apart from an embedded node.
fn what(row: &Row, chart: &Chart) -> String {
    let size = size(row.size);
    let done = match row.workload {
        Workload::PingPong => format!("{size} there and back"),
        Workload::Transact => format!("connect, {size} each way, close"),
        Workload::Lone => format!("{size} message alone"),
        workload if workload.is_one_way() => format!("{size} messages one way"),
        workload => format!("{}, {size}", workload.name()),
    };
    let kind = match row.protocol.strip_prefix("polyrail-") {
        Some("attached") => ", programs that share a node",
        Some("stream") => ", as a stream of bytes",
        Some("connection") => ", by a connection",
        _ => "",
    };
    let handed = if row.send.is_some() { ", buffers handed over" } else { "" };
    let place = match chart.axis {
        Axis::Size => String::new(),
        axis => chart
            .series
            .iter()
            .flat_map(|s| &s.points)
            .find(|(_, known)| std::ptr::eq(*known, row))
            .map_or(String::new(), |(place, _)| format!(", {}", axis.text(*place))),
    };
    format!("{done}, {}{kind}{handed}{place}", about(row, Axis::Size))
}

/// Cuts of one kind at the same places make pairs: the first of one protocol and the first of the other, and so on.
fn lines_of_cuts(found: &[Found]) -> String {
    let ours = found.iter().find(|found| found.row.protocol.starts_with("polyrail"));
    let Some(ours) = ours else { return String::new() };
    let mut text = String::new();
    for other in found.iter().filter(|other| !std::ptr::eq(other.row, ours.row)) {
        for kind in Kind::ALL {
            let of = |row: &Row| -> Vec<f64> {
                row.cuts.iter().filter(|cut: &&CutRow| cut.kind == kind).map(|cut| cut.gap_ms).collect()
            };
            let [a, b] = [of(ours.row), of(other.row)];
            let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
            let (Some(ratio), Some(a), Some(b)) = (paired_ratio(&pairs, 1), median(&a), median(&b)) else {
                continue;
            };
            let _ = writeln!(
                text,
                "| latest message when a link is cut ({}), {} | {} | `{}` {} | {} |",
                kind.name(),
                cell(&about(ours.row, Axis::Size)),
                Unit::Ms.text(a),
                cell(&other.row.protocol),
                Unit::Ms.text(b),
                interval(&ratio)
            );
        }
    }
    text
}

/// Text that stays within a cell and is no markup.
fn cell(text: &str) -> String {
    let plain = |c: char| match c {
        '|' | '`' | '<' | '>' | '\n' | '\r' | '[' | ']' | '*' | '\\' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(plain).collect()
}
