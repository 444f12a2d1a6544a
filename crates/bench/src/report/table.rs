//! A report for a person at a terminal.

use std::fmt::Write;

use super::document::{Document, Row};
use super::figures::{Gaps, Memory, Sides};
use super::testbed;
use crate::args::{FlowClass, Placement, ReadKind, SendKind};
use crate::calibrate::StallHistogram;
use crate::host::Host;
use crate::stats::{Ratio, Spread};
use crate::workload::Workload;

pub(super) fn render(document: &Document) -> String {
    let host = &document.host;
    let mut text = document.title.as_ref().map_or(String::new(), |title| format!("{title}\n"));
    text += &machine(host);
    if let Some(peer) = &document.peer_host {
        let _ = write!(text, "receiver: {}", machine(peer));
    }
    if host.emulated {
        text += "emulated cores: times and rates are none of a real machine, only ratios of this run say something\n";
    }
    if !host.optimized {
        text += "built without optimisation: what runs inside this program (polyrail) is slower than it is\n";
    }
    testbed::lines(document).iter().for_each(|line| text.extend([line, "\n"]));
    if !document.results.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<String>> = document.results.iter().map(cells).collect();
        let heading: Vec<String> = HEADING.iter().map(|&name| name.to_owned()).collect();
        columns(&mut text, &heading, &rows);
    }
    document.results.iter().for_each(|row| details(&mut text, row));
    if document.shows_model {
        document.results.iter().for_each(|row| expected(&mut text, row));
    }
    for row in &document.results {
        for (index, error) in row.errors.iter().enumerate() {
            let _ = writeln!(text, "{} {} B, failure {}: {error}", row.protocol, row.size, index + 1);
        }
        for note in &row.notes {
            let _ = writeln!(text, "{}: {note}", row.protocol);
        }
    }
    if let Some(histogram) = &document.stall_histogram {
        text += &stalls(histogram);
    }
    document.notes.iter().for_each(|note| text.extend([note, "\n"]));
    if !document.ratios.is_empty() {
        text.push('\n');
    }
    for row in &document.ratios {
        let ratio = &row.ratio;
        let mixed = row.mixed_phase.map_or(String::new(), |count| format!(", {count} in mixed phases"));
        let within = row.within_phase.as_ref().map_or(String::new(), |within| {
            let Ratio { median, low, high, pairs } = within;
            format!("; within one phase {median:.3}  ({low:.3} to {high:.3}, {pairs} pairs)")
        });
        let _ = writeln!(
            text,
            "{}  {:.3}  (95 %: {:.3} to {:.3}, {} pairs{mixed}){within}",
            row.name, ratio.median, ratio.low, ratio.high, ratio.pairs
        );
    }
    super::findings::render(&mut text, &document.findings);
    for entry in &document.unavailable {
        let _ = writeln!(text, "{} cannot run here: {}", entry.protocol, entry.reason);
    }
    text
}

/// The machine's own interruptions over all of it.
fn stalls(histogram: &StallHistogram) -> String {
    let StallHistogram { pulses, stalls, longest_us, away_percent } = histogram;
    format!(
        "core 0 was away {} times for over 5 us, {} over 50 us, {} over 500 us, {} over 5 ms in {pulses} pulses of 5 ms; \
         {} % of that time, {} us at most\n",
        stalls.over_5us,
        stalls.over_50us,
        stalls.over_500us,
        stalls.over_5ms,
        short(*away_percent),
        short(*longest_us)
    )
}

fn machine(host: &Host) -> String {
    format!("{}, {} cores of {}, load {}\n", host.kernel, host.cores, host.cpu, host.load_1min)
}

/// The figures of a row that are not about speed.
fn details(text: &mut String, row: &Row) {
    cut_details(text, row);
    load_details(text, row);
    crowd_details(text, row);
    cost_details(text, row);
}

/// What the model expects, and how what was measured stands to it.
fn expected(text: &mut String, row: &Row) {
    let Some(expected) = &row.expected else { return };
    let cpu = expected.cpu_mbps.map_or(String::new(), |cpu| format!(", a core for each side {}", short(cpu)));
    let figure = match (expected.mbps, expected.us) {
        (Some(mbps), _) => format!("{} Mbit/s (links {}{cpu})", short(mbps), short(expected.links_mbps)),
        (None, Some(us)) => format!("{} us", short(us)),
        (None, None) => return,
    };
    let by = &expected.measured_by_expected;
    let [median, low, high] = [by.median, by.low, by.high].map(short);
    let (protocol, conditions, size) = (&row.protocol, conditions(row), row.size);
    let _ = write!(
        text,
        "{protocol} {conditions} {size} B: the model expects {figure}; measured {median} of that ({low} to {high})"
    );
    let gains = expected.gain_from_bytes.iter();
    let gains: Vec<String> =
        gains.map(|(gain, bytes)| format!("{gain} from {} KB", short(bytes / 1e3))).collect();
    if !gains.is_empty() {
        let _ = write!(text, "; two such links gain {}", gains.join(", "));
    }
    text.push('\n');
}

fn cut_details(text: &mut String, row: &Row) {
    for gaps in &row.gaps {
        let (raw, net) = (gaps.gap_ms, gaps.gap_net_ms);
        let _ = writeln!(
            text,
            "{} {}, {} cuts: gap p50 {} p99 {} max {} ms; less stalls p50 {} p99 {} max {} ms",
            row.protocol,
            gaps.kind.name(),
            gaps.cuts,
            short(raw.p50),
            short(raw.p99),
            short(raw.max),
            short(net.p50),
            short(net.p99),
            short(net.max)
        );
    }
    row.gaps.iter().for_each(|gaps| away_details(text, row, gaps));
    row.gaps.iter().for_each(|gaps| return_details(text, row, gaps));
    if let Some(calm) = row.calm_lateness_us {
        let (p50, p99, max) = (short(calm.p50), short(calm.p99), short(calm.max));
        let _ = writeln!(text, "{} undisturbed: late by p50 {p50} p99 {p99} max {max} us", row.protocol);
    }
}

/// What got through while links were away.
fn away_details(text: &mut String, row: &Row, gaps: &Gaps) {
    let Some(goodput) = gaps.goodput_mbps else { return };
    let (protocol, kind) = (&row.protocol, gaps.kind.name());
    let (p50, low) = (short(goodput.p50), short(goodput.low));
    let _ = write!(text, "{protocol} {kind}, meanwhile: goodput p50 {p50} lowest {low} Mbit/s");
    if let Some(share) = gaps.goodput_share {
        let (p50, low, aim) = (short(share.p50), short(share.low), share.aim);
        let below = share.below_aim;
        let _ = write!(text, ", p50 {p50} lowest {low} of what is left; below {aim} in {below}");
    }
    text.push('\n');
}

/// How links' returns went.
fn return_details(text: &mut String, row: &Row, gaps: &Gaps) {
    let (protocol, kind) = (&row.protocol, gaps.kind.name());
    if let Some(after) = gaps.return_ms {
        let (p50, p99, max) = (short(after.p50), short(after.p99), short(after.max));
        let _ = writeln!(text, "{protocol} {kind}, after a link's return: p50 {p50} p99 {p99} max {max} ms");
    }
    let Some(not_reused) = gaps.not_reused else { return };
    let times = gaps.reuse_ms.map_or("-".to_owned(), |reuse| {
        format!("p50 {} p90 {} max {} ms", short(reuse.p50), short(reuse.p90), short(reuse.max))
    });
    let _ = writeln!(text, "{protocol} {kind}, a returned link is used after: {times}; not in {not_reused}");
}

fn load_details(text: &mut String, row: &Row) {
    if let Some(raw) = &row.raw_latency_us {
        let [p50, p99, max] = [&raw.p50, &raw.p99, &raw.max].map(|spread| short(spread.median));
        let _ = writeln!(
            text,
            "{} {}: from sending instead of from when it was due p50 {p50} p99 {p99} max {max} us",
            row.protocol,
            conditions(row)
        );
    }
    if let Some(ideal) = &row.ideal {
        let [base, least, ratio] =
            [&ideal.base_us, &ideal.ideal_us, &ideal.to_ideal].map(|spread| short(spread.median));
        let _ = writeln!(
            text,
            "{} {} {} B: the links allow {least} us, of which {base} us for any message: {ratio} times that; \
             {} of {} messages found a bucket that was not empty",
            row.protocol,
            conditions(row),
            row.size,
            ideal.not_emptied,
            ideal.messages
        );
    }
    if let Some(sharing) = &row.sharing {
        let [fair, least, most] =
            [&sharing.fairness, &sharing.least_mbps, &sharing.most_mbps].map(|spread| short(spread.median));
        let _ = writeln!(
            text,
            "{} {}: each pair between {least} and {most} Mbit/s, fairness {fair}",
            row.protocol,
            conditions(row)
        );
    }
}

/// How several clients share their server, and what memory they take.
fn crowd_details(text: &mut String, row: &Row) {
    if let Some(clients) = &row.by_client {
        let [fair, least, most] =
            [&clients.fairness, &clients.least_per_s, &clients.most_per_s].map(|spread| short(spread.median));
        let lowest = short(clients.fairness.low);
        let _ = writeln!(
            text,
            "{} {}: each client between {least} and {most} /s, fairness {fair} (lowest {lowest})",
            row.protocol,
            conditions(row)
        );
    }
    if let Some(memory) = &row.crowd_memory_mib {
        let [sum, client, most, server, node, shared] =
            [&memory.sum, &memory.client, &memory.client_max, &memory.server, &memory.node, &memory.shared]
                .map(|spread| short(spread.median));
        let _ = writeln!(
            text,
            "{} {}: {sum} MiB in all, {client} a client (at most {most}), {server} the server, {node} the node; {shared} of it shared",
            row.protocol,
            conditions(row)
        );
    }
}

/// From so many on the table tells what memory stays of them.
const MANY_TRANSACTIONS: f64 = 100_000.0;

fn cost_details(text: &mut String, row: &Row) {
    if let Some(idle) = &row.idle {
        let pair = |sides: &Sides<Spread>| {
            format!("{} and {}", short(sides.sender.median), short(sides.receiver.median))
        };
        let _ = writeln!(
            text,
            "{} idle, both sides: resident {} MiB, private {} MiB, CPU {} %, wake-ups {} /s",
            row.protocol,
            pair(&idle.resident_mib),
            pair(&idle.private_mib),
            pair(&idle.cpu_percent),
            pair(&idle.wakeups_per_s)
        );
    }
    if let (Some(memory), Some(transactions)) = (&row.memory_mib, &row.transactions)
        && transactions.median >= MANY_TRANSACTIONS
    {
        let side = |memory: &Memory| format!("{} and {}", short(memory.start.median), short(memory.max.high));
        let _ = writeln!(
            text,
            "{} {}: {} transactions; resident after the first 1000 and at the end: caller {} MiB, answerer {} MiB",
            row.protocol,
            conditions(row),
            transactions.median,
            side(&memory.sender),
            side(&memory.receiver)
        );
    }
    if let (Some(memory), Some(blocked)) = (&row.memory_mib, &row.blocked_s) {
        let side = |name: &str, memory: &Memory| {
            let (start, max) = (short(memory.start.median), short(memory.max.high));
            let blocked = memory.blocked.as_ref().map_or("-".to_owned(), |blocked| short(blocked.high));
            format!("{name} {start} MiB, blocked {blocked}, most {max}")
        };
        let _ = writeln!(
            text,
            "{} stood still for {} s after {} bytes; {}; {}",
            row.protocol,
            short(blocked.median),
            row.sent_before_block_bytes.unwrap_or(0),
            side("sender", &memory.sender),
            side("receiver", &memory.receiver)
        );
    }
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
    let (figure, unit) = match (&row.latency_us, &row.idle, row.workload) {
        (Some(latency), _, _) => {
            let bulk = row.throughput_mbps.as_ref().filter(|_| row.load.beside.is_some());
            let bulk = bulk.map_or(String::new(), |bulk| format!(", bulk {} Mbit/s", short(bulk.median)));
            let rate = row.rate_per_s.as_ref().filter(|_| row.load.clients.is_some());
            let rate = rate.map_or(String::new(), |rate| format!(", {} /s", short(rate.median)));
            (Some(&latency.p50), format!("us p50, p99 {}{bulk}{rate}", short(latency.p99.median)))
        }
        (_, Some(idle), _) => (Some(&idle.cpu_percent.sender), "% CPU".to_owned()),
        (_, _, Workload::Rate) => (row.rate_per_s.as_ref(), "/s".to_owned()),
        (_, _, Workload::Multicast) => {
            let rate = row.rate_per_s.as_ref().map_or("-".to_owned(), |rate| short(rate.median));
            (row.sender_cpu_us.as_ref(), format!("us CPU, {rate} /s"))
        }
        _ => (row.throughput_mbps.as_ref(), "Mbit/s".to_owned()),
    };
    let number = |value: fn(&Spread) -> f64| figure.map_or("-".to_owned(), |spread| short(value(spread)));
    let cpu = row.cpu_s_per_gb.as_ref();
    vec![
        protocol(row),
        conditions(row),
        row.size.to_string(),
        format!("{} {unit}", number(|spread| spread.median)),
        number(|spread| spread.low),
        number(|spread| spread.high),
        cpu.map_or("-".to_owned(), |cpu| format!("{:.2} {:.2}", cpu.sender.median, cpu.receiver.median)),
        format!("{} {} {} {}", row.lost, row.duplicated, row.reordered, row.damaged),
        row.limited_by.as_deref().unwrap_or("-").to_owned(),
    ]
}

/// The protocol, with its congestion control where the name does not say it.
fn protocol(row: &Row) -> String {
    match &row.congestion {
        Some(congestion) if !row.protocol.ends_with(congestion.as_str()) => {
            format!("{} ({congestion})", row.protocol)
        }
        _ => row.protocol.clone(),
    }
}

pub(super) fn conditions(row: &Row) -> String {
    let (placement, mut wait) = (row.placement.name(), row.wait.name().to_owned());
    if row.send == Some(SendKind::Buffer) {
        wait += " buffer";
    }
    if row.send == Some(SendKind::Batch) {
        wait += " batch";
    }
    if row.read == Some(ReadKind::Copy) {
        wait += " copied";
    }
    if row.read == Some(ReadKind::Whole) {
        wait += " whole";
    }
    if let Some(bytes) = row.socket_buffer_max {
        let _ = write!(wait, " sockets {bytes} B");
    }
    let load = row.load.name();
    if !load.is_empty() {
        let _ = write!(wait, " {load}");
    }
    if row.placement != Placement::Inter {
        return format!("{placement} {wait}");
    }
    let rates: Vec<String> =
        row.rate_mbit.iter().map(|rate| rate.map_or("-".to_owned(), |r| r.to_string())).collect();
    let lossy = row.loss_percent.iter().any(|&percent| percent > 0.0);
    let losses: Vec<String> = row.loss_percent.iter().map(ToString::to_string).collect();
    let loss = if lossy { format!(" loss {}%", losses.join("+")) } else { String::new() };
    let delays: Vec<String> = row.delay_ms.iter().map(ToString::to_string).collect();
    let delay = if delays.is_empty() { String::new() } else { format!(" delay {} ms", delays.join("+")) };
    let class = match row.class {
        Some(FlowClass::Urgent) => " urgent",
        Some(FlowClass::Bulk) => " bulk",
        Some(FlowClass::Normal) | None => "",
    };
    format!("{placement} {}{loss}{delay}{class} {wait}", rates.join("+"))
}

/// Four significant digits are as many as any figure here deserves.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v >= 1_000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

pub(crate) fn columns(text: &mut String, heading: &[String], rows: &[Vec<String>]) {
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
