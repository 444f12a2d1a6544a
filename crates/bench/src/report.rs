//! From samples to what is told: medians with their range, paired ratios, verdicts; as JSON and as a table.

mod document;
mod figures;
mod list;
mod table;

use std::collections::BTreeMap;

use crate::args::{FlowClass, Placement, Plan, SendKind};
use crate::calibrate::Calibration;
use crate::check::CheckCounts;
use crate::failover::Cut;
use crate::process::core_count;
use crate::protocol::Protocol;
use crate::run::Sample;
use crate::stats::{Spread, paired_ratio};
use crate::wait::WaitMode;
use crate::workload::{Histogram, Workload};

use document::{CpuPerGb, Document, Latency, RatioRow, Row, Unavailable};
pub(crate) use list::List;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "polyrail-bench/1";

/// What is compared: one protocol under one set of conditions.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    workload: Workload,
    protocol: &'static str,
    reliable: bool,
    striped: bool,
    carrying_threads: bool,
    placement: Placement,
    rates: Vec<Option<u32>>,
    loss_percent: Vec<f64>,
    size: usize,
    wait: WaitMode,
    /// Of `failover`, where the protocol has classes.
    class: Option<FlowClass>,
    /// Where messages are composed in the protocol's memory.
    send: Option<SendKind>,
    socket_buffer_max: Option<usize>,
}

impl Case {
    pub(crate) fn new(
        plan: &Plan,
        protocol: &'static dyn Protocol,
        rates: &[Option<u32>],
        loss_percent: &[f64],
        size: usize,
    ) -> Self {
        Self {
            workload: plan.workload,
            protocol: protocol.name(),
            reliable: protocol.reliable(),
            striped: protocol.striped(),
            carrying_threads: protocol.has_carrying_threads(),
            placement: plan.placement,
            rates: rates.to_vec(),
            loss_percent: loss_percent.to_vec(),
            size,
            wait: plan.wait,
            class: (plan.workload == Workload::Failover && protocol.has_classes())
                .then_some(plan.failover.class),
            send: (plan.send == SendKind::Buffer && protocol.composes()).then_some(plan.send),
            socket_buffer_max: plan.socket_buffer_max,
        }
    }

    /// The conditions without the protocol: what two rows must share to be compared.
    fn conditions(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(|rate| rate.unwrap_or(0).to_string()).collect();
        let links = match self.placement {
            Placement::Intra => String::new(),
            Placement::Inter => format!(" {} links {} Mbit/s", self.rates.len(), rates.join(":")),
        };
        let losses: Vec<String> = self.loss_percent.iter().map(ToString::to_string).collect();
        let lossy = self.loss_percent.iter().any(|&percent| percent > 0.0);
        let loss = if lossy { format!(" loss {} %", losses.join(":")) } else { String::new() };
        let (workload, placement, wait) = (self.workload.name(), self.placement.name(), self.wait.name());
        format!("{workload} {placement}{links}{loss} {} B {wait}", self.size)
    }

    /// What the links it uses can carry, in Mbit/s, if they are throttled.
    fn capacity_mbps(&self) -> Option<f64> {
        let used = if self.striped { &self.rates[..] } else { &self.rates[..1] };
        used.iter().map(|rate| rate.map(f64::from)).sum()
    }
}

/// The samples of one case.
#[derive(Debug)]
pub(crate) struct Series {
    case: Case,
    samples: Vec<(u32, Sample, Calibration)>,
}

impl Series {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, samples: Vec::new() }
    }

    pub(crate) fn add(&mut self, repetition: u32, sample: Sample, calibration: Calibration) {
        self.samples.push((repetition, sample, calibration));
    }

    /// The figure that is compared, by repetition: throughput, rate, or median round trip.
    fn figures(&self) -> BTreeMap<u32, f64> {
        let good = self.samples.iter().filter(|(_, sample, _)| sample.error.is_none());
        good.filter_map(|(repetition, sample, _)| Some((*repetition, self.figure(sample)?))).collect()
    }

    fn figure(&self, sample: &Sample) -> Option<f64> {
        match self.case.workload {
            Workload::Stream => throughput_mbps(sample),
            Workload::Rate => rate_per_s(sample),
            Workload::PingPong | Workload::Transact => {
                Histogram::from_buckets(&sample.sender.rtt_ns).quantile_us(0.5)
            }
            Workload::Failover => median_gap_ms(sample),
            Workload::Idle => sample.sender.idle.map(|cost| cost.cpu_percent),
            Workload::Stalled => None,
        }
    }

    fn figure_name(&self) -> &'static str {
        match self.case.workload {
            Workload::Stream => "throughput",
            Workload::Rate => "rate",
            Workload::PingPong | Workload::Transact => "latency p50",
            Workload::Failover => "gap p50",
            Workload::Idle => "CPU",
            Workload::Stalled => "",
        }
    }

    fn row(&self) -> Row {
        let case = &self.case;
        let spread = |value: fn(&Sample) -> Option<f64>| {
            // A sample cut short still says how fast it was until then; its error stands beside it.
            let values: Vec<f64> = self.samples.iter().filter_map(|(_, sample, _)| value(sample)).collect();
            Spread::of(&values)
        };
        let one_way = matches!(case.workload, Workload::Stream | Workload::Rate);
        let moves_bytes = one_way || case.workload.checks_contents();
        let samples = || self.samples.iter().map(|(_, sample, _)| sample);
        let sum = |count: &dyn Fn(&Sample) -> u64| samples().map(count).sum::<u64>();
        let mut notes: Vec<String> =
            self.samples.iter().flat_map(|(_, sample, _)| self.notes(sample)).collect();
        if self.case.carrying_threads && self.case.wait == WaitMode::Spin && core_count() < CARRYING_CORES {
            notes
                .push("its own threads share the cores with two that spin: see also --wait block".to_owned());
        }
        notes.sort();
        notes.dedup();
        Row {
            workload: case.workload,
            protocol: case.protocol,
            placement: case.placement,
            links: case.rates.len(),
            rate_mbit: case.rates.clone(),
            loss_percent: case.loss_percent.clone(),
            size: case.size,
            wait: case.wait,
            class: case.class,
            send: case.send,
            socket_buffer_max: case.socket_buffer_max,
            throughput_mbps: spread(throughput_mbps).filter(|_| moves_bytes),
            offered_mbps: spread(offered_mbps).filter(|_| one_way && !case.reliable),
            rate_per_s: match case.workload {
                workload if workload.times_answers() => spread(round_trips_per_s),
                _ => spread(rate_per_s).filter(|_| one_way),
            },
            latency_us: self.latency().filter(|_| case.workload.times_answers()),
            gaps: figures::gaps(samples()),
            cuts: figures::cuts(samples()),
            calm_lateness_us: figures::calm_lateness(samples()),
            stalls: figures::stalls(samples()),
            idle: figures::idle(samples()),
            blocked_s: spread(figures::blocked_s),
            sent_before_block_bytes: figures::sent_before_block(samples(), case.size)
                .filter(|_| case.workload == Workload::Stalled),
            memory_mib: figures::memory(samples()),
            cpu_s_per_gb: CpuPerGb::of(
                spread(|sample| cpu_s_per_gb(sample, sample.sender.cpu_ns, sample.sender.window_ns)),
                spread(|sample| cpu_s_per_gb(sample, sample.receiver.cpu_ns, sample.receiver.window_ns)),
            )
            .filter(|_| one_way),
            lost: sum(&|sample| self.checked(sample).lost),
            duplicated: sum(&|sample| self.checked(sample).duplicated),
            reordered: sum(&|sample| self.checked(sample).reordered),
            damaged: sum(&damaged),
            limited_by: self.limited_by(),
            calibration: self.samples.iter().map(|(_, _, calibration)| *calibration).collect(),
            errors: self.samples.iter().filter_map(|(_, sample, _)| sample.error.clone()).collect(),
            notes,
        }
    }

    /// What makes a sample less than it seems: what was refused to a side, a core shared with other work, a figure
    /// above what the links carry.
    fn notes(&self, sample: &Sample) -> Vec<String> {
        let mut notes = Vec::new();
        for (side, report) in [("sender", &sample.sender), ("receiver", &sample.receiver)] {
            notes.extend(report.notes.iter().map(|note| format!("{side}: {note}")));
            let share = report.cpu_ns as f64 / report.window_ns.max(1) as f64;
            if self.case.wait == WaitMode::Spin && report.window_ns > 0 && share < CORE_SHARE_MIN {
                notes
                    .push(format!("{side}: had {:.0} % of a core: other work was in the way", share * 100.0));
            }
        }
        let unfinished = sample.cuts.iter().filter(|cut| cut.judgement.unfinished).count();
        if unfinished > 0 {
            notes.push(format!("after {unfinished} cuts, messages were still missing 8 s later"));
        }
        let tainted = |cut: &&Cut| 2 * cut.judgement.before_ns > cut.judgement.gap_ns;
        let tainted = sample.cuts.iter().filter(tainted).count();
        if tainted > 0 {
            notes.push(format!(
                "{tainted} cuts were begun while the flow was late by half of their gap already"
            ));
        }
        let unused = sample.cuts.iter().filter(|cut| cut.carried_share < UNUSED_SHARE).count();
        if unused > 0 {
            notes.push(format!("{unused} cuts met a link that carried next to nothing at that time"));
        }
        notes.extend(self.broken_promise(sample));
        if let (Some(goodput), Some(capacity)) = (throughput_mbps(sample), self.case.capacity_mbps())
            && goodput > 1.02 * capacity
        {
            notes.push(format!(
                "{goodput:.0} Mbit/s is above what the links carry: the receiver was away and caught up"
            ));
        }
        notes
    }

    /// What a protocol did that it had promised not to do.
    fn broken_promise(&self, sample: &Sample) -> Option<String> {
        let counts = self.checked(sample);
        let faults = [
            (counts.lost, "not here after 6 s of silence"),
            (counts.duplicated, "twice"),
            (counts.reordered, "out of order"),
            (damaged(sample), "damaged"),
        ];
        let told: Vec<String> = faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, how)| format!("{count} {how}"))
            .collect();
        let broken = self.case.reliable && sample.error.is_none() && !told.is_empty();
        broken.then(|| {
            format!("messages that it had promised to deliver once and in order: {}", told.join(", "))
        })
    }

    /// The counts of the side that knows: the receiver of a stream, the asker of a ping-pong.
    fn checked(&self, sample: &Sample) -> CheckCounts {
        if self.case.workload.times_answers() { sample.sender.counts } else { received(sample) }
    }

    fn latency(&self) -> Option<Latency> {
        let histograms: Vec<Histogram> = self
            .samples
            .iter()
            .map(|(_, sample, _)| Histogram::from_buckets(&sample.sender.rtt_ns))
            .collect();
        let spread = |value: &dyn Fn(&Histogram) -> Option<f64>| {
            Spread::of(&histograms.iter().filter_map(value).collect::<Vec<f64>>())
        };
        Some(Latency {
            p50: spread(&|h| h.quantile_us(0.5))?,
            p90: spread(&|h| h.quantile_us(0.9))?,
            p99: spread(&|h| h.quantile_us(0.99))?,
            p999: spread(&|h| h.quantile_us(0.999))?,
            max: spread(&Histogram::max_us)?,
        })
    }

    /// What held the figure down, where that can be told: throttled links that are nearly full, or a core that is.
    fn limited_by(&self) -> Option<&'static str> {
        let values: Vec<f64> =
            self.samples.iter().filter_map(|(_, sample, _)| throughput_mbps(sample)).collect();
        let goodput = crate::stats::median(&values)?;
        if matches!(self.case.workload, Workload::Stream | Workload::Rate)
            && self.case.placement == Placement::Inter
            && self.case.capacity_mbps().is_some_and(|capacity| goodput >= 0.9 * capacity)
        {
            return Some("link");
        }
        // A spinning thread always looks busy; only sleeping ones show what work costs.
        let busy = |sample: &Sample| {
            let share =
                |report: &crate::control::SideReport| report.cpu_ns as f64 / report.window_ns.max(1) as f64;
            share(&sample.sender).max(share(&sample.receiver))
        };
        let busy: Vec<f64> = self.samples.iter().map(|(_, sample, _)| busy(sample)).collect();
        let full = self.case.wait == WaitMode::Block && crate::stats::median(&busy)? >= 0.9;
        full.then_some("cpu")
    }
}

/// Cores for two sides that spin, and for a thread beside each.
const CARRYING_CORES: usize = 4;

/// A spinning side that got less of its core than this was disturbed.
const CORE_SHARE_MIN: f64 = 0.9;

/// A link that carried less than this share of the bytes was not in use when it was cut.
const UNUSED_SHARE: f64 = 0.02;

/// Everything that was measured, and what could not be.
#[derive(Debug)]
pub struct Report {
    document: Document,
    series: Vec<Series>,
    refused: bool,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { document: Document::here(), series: Vec::new(), refused: false }
    }

    /// A report that says only what went wrong.
    pub(crate) fn failed(error: String) -> Self {
        let mut report = Self::new();
        report.set_error(error);
        report
    }

    /// A report about arguments that make no sense.
    pub(crate) fn refused(error: String) -> Self {
        Self { refused: true, ..Self::failed(error) }
    }

    pub(crate) fn set_error(&mut self, error: String) {
        self.document.error = Some(error);
    }

    pub(crate) fn add_unavailable(&mut self, protocol: &'static str, reason: String) {
        let entry = Unavailable { protocol, reason };
        if !self.document.unavailable.contains(&entry) {
            self.document.unavailable.push(entry);
        }
    }

    pub(crate) fn add(&mut self, series: Series) {
        if !series.samples.is_empty() {
            self.document.results.push(series.row());
            self.series.push(series);
        }
    }

    /// Draws the ratios: those asked for, or Polyrail's to every other protocol.
    pub(crate) fn conclude(&mut self, versus: &[(String, String)]) {
        for first in &self.series {
            for second in &self.series {
                let (a, b) = (first.case.protocol, second.case.protocol);
                let asked = if versus.is_empty() {
                    a == "polyrail" && b != a
                } else {
                    versus.iter().any(|(x, y)| x == a && y == b)
                };
                if asked && first.case.conditions() == second.case.conditions() {
                    self.document.ratios.extend(ratio(first, second));
                }
            }
        }
    }

    /// What went wrong with the run as a whole.
    pub fn error(&self) -> Option<&str> {
        self.document.error.as_deref()
    }

    /// Whether the arguments made no sense, so that nothing was measured.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// The exit code: 0 good, 1 something could not be measured, 2 wrong arguments.
    pub fn exit_code(&self) -> i32 {
        let document = &self.document;
        let faulty = document.results.iter().any(|row| !row.errors.is_empty());
        match (self.refused, document.error.is_some() || faulty || document.results.is_empty()) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// The report as one JSON document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.document)
            .unwrap_or_else(|error| format!("{{\"schema\":\"{SCHEMA}\",\"error\":\"report: {error}\"}}"))
    }

    /// The report as a table for a terminal.
    pub fn table(&self) -> String {
        table::render(&self.document)
    }
}

fn ratio(first: &Series, second: &Series) -> Option<RatioRow> {
    let seconds = second.figures();
    let pairs: Vec<(f64, f64)> =
        first.figures().iter().filter_map(|(repetition, a)| Some((*a, *seconds.get(repetition)?))).collect();
    // A fixed seed: the same samples give the same interval.
    let ratio = paired_ratio(&pairs, 1)?;
    let name = format!(
        "{}/{} {} ({})",
        first.case.protocol,
        second.case.protocol,
        first.figure_name(),
        first.case.conditions()
    );
    Some(RatioRow { name, ratio })
}

/// The receiver's counts, of both flows where there are two.
fn received(sample: &Sample) -> CheckCounts {
    sample.receiver.counts.plus(sample.receiver.bulk_counts.unwrap_or_default())
}

/// Damage that either side saw.
fn damaged(sample: &Sample) -> u64 {
    sample.sender.counts.damaged + received(sample).damaged
}

fn median_gap_ms(sample: &Sample) -> Option<f64> {
    let gaps: Vec<f64> = sample.cuts.iter().map(|cut| cut.judgement.gap_ns as f64 / 1e6).collect();
    crate::stats::median(&gaps)
}

fn throughput_mbps(sample: &Sample) -> Option<f64> {
    per_second(sample.receiver.bytes as f64 * 8e-6, sample.receiver.window_ns)
}

fn offered_mbps(sample: &Sample) -> Option<f64> {
    per_second(sample.sender.bytes as f64 * 8e-6, sample.sender.window_ns)
}

fn rate_per_s(sample: &Sample) -> Option<f64> {
    per_second(sample.receiver.messages as f64, sample.receiver.window_ns)
}

fn round_trips_per_s(sample: &Sample) -> Option<f64> {
    per_second(sample.sender.messages as f64, sample.sender.window_ns)
}

fn per_second(value: f64, window_ns: u64) -> Option<f64> {
    (window_ns > 0).then(|| value * 1e9 / window_ns as f64)
}

/// CPU time of one side per gigabyte that arrived; the two windows are of equal length but not the same, so the CPU
/// time is taken as a share of its own window.
fn cpu_s_per_gb(sample: &Sample, cpu_ns: u64, window_ns: u64) -> Option<f64> {
    let gb_per_s = throughput_mbps(sample)? / 8e3;
    (window_ns > 0 && gb_per_s > 0.0).then(|| cpu_ns as f64 / window_ns as f64 / gb_per_s)
}

#[cfg(test)]
mod tests;
