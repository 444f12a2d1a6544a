//! The end of a page: the machine that it was measured on, its pulse, and how it was measured.

use super::Source;
use super::escape::{cut, escape, note};
use super::page::{card, details, list, table, table_row};
use super::palette::Look;
use super::palette::Mark;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::{Unit, count, digits};
use crate::calibrate::{Calibration, StallHistogram};
use crate::host::Host;
use crate::report::document::Document;
use crate::report::testbed;

/// More pulses are a bar.
const PULSES_MAX: usize = 2_000;
/// Devices, delayed links and clocks that are told of.
const LINES_MAX: usize = 24;

/// A machine in a line.
pub(super) fn summary(host: &Host) -> String {
    let kind = if host.hypervisor { "virtual machine" } else { "machine" };
    escape(&format!(
        "{}, {} of {}, {kind}, polyrail {}",
        cut(&host.kernel, 60),
        count(host.cores, "core", "cores"),
        cut(&host.cpu, 60),
        cut(&host.version, 20)
    ))
}

/// What is recorded of it.
pub(super) fn facts(host: &Host) -> String {
    let rows = [
        ("kernel", host.kernel.clone()),
        ("processor", host.cpu.clone()),
        ("cores that may be used", host.cores.to_string()),
        ("memory", format!("{} MiB", host.memory_mib)),
        ("virtual", if host.hypervisor { "yes" } else { "no" }.to_owned()),
        ("frequency governor", host.governor.clone().unwrap_or_else(|| "none".to_owned())),
        ("congestion control of the system", host.congestion_control.clone()),
        ("load when it began", digits(host.load_1min)),
        ("version of the program", host.version.clone()),
        ("built", if host.optimized { "with optimisation" } else { "without optimisation" }.to_owned()),
    ];
    let body: String =
        rows.iter().map(|(name, value)| table_row(&[(*name).to_owned(), note(value)])).collect();
    table(&["fact", "value"], &body)
}

/// What its documents were measured over, each thing once however many of them say it; nothing of none.
pub(super) fn testbed(documents: &[&Document]) -> String {
    let mut told: Vec<String> = Vec::new();
    for line in documents.iter().flat_map(|document| testbed::lines(document)) {
        let line = note(&line);
        if !told.contains(&line) {
            told.push(line);
        }
    }
    let more = told.len().saturating_sub(LINES_MAX);
    told.truncate(LINES_MAX);
    if more > 0 {
        told.push(format!("{more} more are in the documents."));
    }
    match told.is_empty() {
        true => String::new(),
        false => format!("<h3>What was measured over</h3>{}", list("testbed", &told)),
    }
}

/// The pulse of a document's rows: a cache line between two cores, in the order of the rows. None without any.
pub(super) fn pulse(source: &Source) -> Option<String> {
    let pulses = source.document.results.iter().flat_map(|row| &row.calibration);
    let all: Vec<Calibration> =
        pulses.flat_map(|pulses| [Some(pulses.before), pulses.after]).flatten().take(PULSES_MAX).collect();
    let times_ns: Vec<f64> = all.iter().filter_map(|pulse| pulse.cacheline_ns).collect();
    let (left, right, top, bottom) = (60.0, WIDTH - 14.0, 12.0, 130.0);
    let down = Scale::log(times_ns.iter().copied(), bottom, top)?;
    let across = Scale::linear(0.0, times_ns.len() as f64, left, right);
    let mut canvas = Canvas::new(
        WIDTH,
        152.0,
        "the machine's pulse: a cache line's way from core to core, sample by sample",
    );
    canvas.left_axis(&down, [left, right], Unit::Ns, 5);
    let look = Look { colour: 0, mark: Mark::Circle, is_limit: true };
    for (number, ns) in times_ns.iter().enumerate() {
        canvas.dot([across.place(number as f64 + 0.5), down.place(*ns)], look);
    }
    canvas.text([left, 147.0], Anchor::Start, "tick", "before and after each sample, row by row");
    let of =
        |value: fn(&Calibration) -> f64| crate::stats::median(&all.iter().map(value).collect::<Vec<f64>>());
    let copies = of(|pulse| pulse.memcpy_gb_per_s).map_or("–".to_owned(), digits);
    let late = of(|pulse| pulse.sleep_late_us).map_or("–".to_owned(), |us| Unit::Us.text(us));
    let stalls = source.document.stall_histogram.as_ref().map_or(String::new(), stalls);
    let below = format!("Copies {copies} GB/s; a sleep of 100 µs ends {late} late (medians). {stalls}");
    Some(card("The machine's pulse: one way of a cache line", &canvas.finish(), &below))
}

fn stalls(all: &StallHistogram) -> String {
    format!(
        "Core 0 was away {} times for over 50 µs and {} times for over 500 µs in {} pulses of 5 ms, {} at most.",
        all.stalls.over_50us,
        all.stalls.over_500us,
        all.pulses,
        Unit::Us.text(all.longest_us)
    )
}

/// Where a document comes from: its command, or what it was asked for, and what it says of itself.
pub(super) fn provenance(source: &Source) -> String {
    let document = &source.document;
    let command = match document.command.is_empty() {
        true => "<p>The document does not say by which command it was measured.</p>".to_owned(),
        false => format!("<pre>{}</pre>", escape(&cut(&document.command.join(" "), 2_000))),
    };
    let mut text = command;
    if let Some(plan) = &document.plan {
        let plan = serde_json::to_string_pretty(plan).unwrap_or_default();
        text += &details("What was asked for", &format!("<pre>{}</pre>", escape_lines(&cut(&plan, 40_000))));
    }
    text
}

/// The same, its lines kept.
fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

/// How figures are made, for whoever doubts them.
pub(super) const METHOD: &str = "\
<p>Protocols are measured in turns: one repetition measures each once, then the next begins with another one first. A machine's speed \
drifts, and only neighbours in time can be compared.</p>\
<p>A mark is the median over repetitions. A whisker is the 95&nbsp;% interval of that median (4,000 resamplings), or, of fewer than six \
samples, the range of what was seen. Pale dots are single samples. Repetitions that failed are left out.</p>\
<p>“Times” are ratios within repetitions: 2 means twice as much throughput, or half of the time. Where the interval contains 1, no \
difference is shown (≈). Fewer than six pairs are marked with a question mark: their range covers less than 95&nbsp;%.</p>\
<p>Only what reached the receiving application counts. Round trips are not halved. <em>cacheline</em> and <em>memcpy</em> are no \
protocols but what the machine allows at that moment.</p>\
<p>docs/measuring.md says what each workload measures, and what it does not.</p>";
