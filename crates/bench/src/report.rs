//! From samples to what is told: medians with their range, paired ratios, verdicts; as JSON and as a table.

pub(crate) mod brief;
mod case;
mod compare;
mod crowd;
mod csv;
mod document;
mod expected;
mod figures;
mod findings;
mod html;
mod list;
pub(crate) mod markdown;
mod read;
mod samples;
mod table;
mod testbed;

use std::collections::BTreeMap;

use crate::args::{Load, Placement, Plan};
use crate::calibrate::{PHASE_FACTOR, Pulses, StallHistogram};
use crate::check::CheckCounts;
use crate::control::SideReport;
use crate::failover::Cut;
use crate::host::{DeviceRow, Host};
use crate::process::core_count;
use crate::run::{RelayRow, Sample};
use crate::stats::{Ratio, Spread, paired_ratio};
use crate::wait::WaitMode;
use crate::workload::{Histogram, ToolCost, Workload};

pub(crate) use case::Case;
pub use compare::COMPARE_SCHEMA;
pub(crate) use compare::Comparison;
use document::{CpuPerGb, Document, Latency, LoadRow, RatioRow, Row, Unavailable};
pub(crate) use findings::planned_conditions;
pub(crate) use html::{Page, Source};
pub(crate) use list::List;
pub(crate) use samples::{Measured, MeasuredRow, said};
pub(crate) use table::{columns, short};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "polyrail-bench/1";
/// Name and version of what `bench report --json` tells of a page.
pub const REPORT_SCHEMA: &str = "polyrail-report/1";

/// The samples of one case.
#[derive(Debug)]
pub(crate) struct Series {
    case: Case,
    samples: Vec<(u32, Sample, Pulses)>,
}

impl Series {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, samples: Vec::new() }
    }

    pub(crate) fn case(&self) -> &Case {
        &self.case
    }

    /// Whether another series is of the same protocol under the same conditions.
    fn is_of_case(&self, other: &Self) -> bool {
        let written = |series: &Self| serde_json::to_value(&series.case).ok();
        written(self) == written(other)
    }

    pub(crate) fn add(&mut self, repetition: u32, sample: Sample, pulses: Pulses) {
        self.samples.push((repetition, sample, pulses));
    }

    /// Whether the receiver was on another machine.
    fn is_far(&self) -> bool {
        matches!(self.case.environment.placement, Placement::Host(_))
    }

    /// The figure that is compared, by repetition: throughput, rate, or median round trip.
    fn figures(&self) -> BTreeMap<u32, f64> {
        self.by_repetition(|sample| self.figure(sample))
    }

    /// A value of each good sample.
    fn by_repetition(&self, value: impl Fn(&Sample) -> Option<f64>) -> BTreeMap<u32, f64> {
        let good = self.samples.iter().filter(|(_, sample, _)| sample.error.is_none());
        good.filter_map(|(repetition, sample, _)| Some((*repetition, value(sample)?))).collect()
    }

    /// CPU seconds of each side per gigabyte.
    fn cpu_of_sides(&self) -> Option<CpuPerGb> {
        let spread = |value: fn(&Sample) -> Option<f64>| {
            Spread::over(self.samples.iter().map(|(_, sample, _)| value(sample)))
        };
        CpuPerGb::of(
            spread(|sample| cpu_s_per_gb(sample, sample.pairs().map(|(sender, _)| sender))),
            spread(|sample| cpu_s_per_gb(sample, sample.pairs().map(|(_, receiver)| receiver))),
        )
    }

    /// Seconds that cores of the machine were busy, per gigabyte that arrived, where both sides are on it.
    fn machine_s_per_gb(&self, sample: &Sample) -> Option<f64> {
        let SideReport { machine_busy_ns, window_ns, .. } = sample.sender;
        let busy_ns = machine_busy_ns.filter(|_| !self.is_far() && window_ns > 0)?;
        per_gb(sample, busy_ns as f64 / window_ns as f64)
    }

    fn figure(&self, sample: &Sample) -> Option<f64> {
        match self.case.workload {
            Workload::Rate => rate_per_s(sample),
            Workload::Multicast => sender_cpu_us(sample),
            // Each has one question under way, so that the rate of all says the same as the mean of their times.
            _ if self.case.is_of_clients() => all_clients_per_s(self.case.workload, sample),
            workload if workload.is_one_way() => throughput_mbps(sample),
            workload if workload.has_latency() => times(workload, sample).quantile_us(0.5),
            Workload::Failover => median_gap_ms(sample),
            Workload::Idle => sample.sender.idle.map(|cost| cost.cpu_percent),
            _ => None,
        }
    }

    /// Whether bytes for a time are a figure of it.
    fn moves_bytes(&self) -> bool {
        let workload = self.case.workload;
        workload.is_one_way()
            || workload.checks_contents()
            || workload == Workload::Incast
            || self.case.point.load == Load::BesideBulk
    }

    fn figure_name(&self) -> &'static str {
        match self.case.workload {
            Workload::Rate => "rate",
            Workload::Multicast => "sender CPU",
            _ if self.case.is_of_clients() => "rate",
            workload if workload.is_one_way() => "throughput",
            workload if workload.has_latency() => "latency p50",
            Workload::Failover => "gap p50",
            Workload::Idle => "CPU",
            _ => "",
        }
    }

    fn row(&self) -> Row {
        let case = &self.case;
        let spread = |value: fn(&Sample) -> Option<f64>| {
            // A sample cut short still says how fast it was until then; its error stands beside it.
            Spread::over(self.samples.iter().map(|(_, sample, _)| value(sample)))
        };
        let one_way = case.workload.is_one_way();
        let moves_bytes = self.moves_bytes();
        let environment = &case.environment;
        let shows_offer = one_way && (!case.reliable || case.workload == Workload::Datagram);
        let samples = || self.samples.iter().map(|(_, sample, _)| sample);
        let sum = |count: &dyn Fn(&Sample) -> u64| samples().map(count).sum::<u64>();
        Row {
            workload: case.workload,
            protocol: case.protocol.to_owned(),
            congestion: case.congestion.map(str::to_owned),
            placement: environment.placement.clone(),
            links: environment.rates.len(),
            rate_mbit: environment.rates.clone(),
            loss_percent: environment.losses.clone(),
            delay_ms: environment.delays_ms.clone(),
            size: case.point.size,
            wait: case.wait(),
            load: LoadRow::of(case.point.load),
            class: case.class,
            send: case.send,
            read: case.read,
            socket_buffer_max: case.point.socket_buffer_max,
            throughput_mbps: spread(throughput_mbps).filter(|_| moves_bytes),
            offered_mbps: spread(offered_mbps).filter(|_| shows_offer),
            sharing: figures::sharing(samples()).filter(|_| case.workload == Workload::Share),
            rate_per_s: spread(messages_per_s(case.workload)),
            by_client: crowd::Clients::of(case.workload, samples()),
            crowd_memory_mib: crowd::CrowdMib::of(samples()),
            sender_cpu_us: spread(sender_cpu_us).filter(|_| case.workload == Workload::Multicast),
            latency_us: self.latency(|sample| times(case.workload, sample)),
            histogram_ns: self.histogram_ns(),
            raw_latency_us: self.latency(|sample| Histogram::from_buckets(&sample.receiver.raw_ns)),
            ideal: figures::ideal(samples()),
            expected: self.expected(),
            gaps: figures::gaps(samples(), &|link| case.left_mbps(link)),
            cuts: self.cuts(),
            timelines: figures::timelines(self.repetitions()),
            calm_lateness_us: figures::calm_lateness(samples()),
            stalls: figures::stalls(samples()),
            idle: figures::idle(samples()),
            transactions: spread(|sample| Some(sample.sender.sent as f64))
                .filter(|_| case.workload == Workload::Transact),
            blocked_s: spread(figures::blocked_s),
            sent_before_block_bytes: figures::sent_before_block(samples(), case.point.size)
                .filter(|_| case.workload == Workload::Stalled),
            memory_mib: figures::memory(samples()),
            cpu_s_per_gb: self.cpu_of_sides().filter(|_| one_way),
            machine_cpu_s_per_gb: Spread::over(samples().map(|sample| self.machine_s_per_gb(sample))),
            cores_used: spread(cores_used).filter(|_| case.workload == Workload::OpenLoop),
            lost: sum(&|sample| self.checked(sample).lost),
            duplicated: sum(&|sample| self.checked(sample).duplicated),
            reordered: sum(&|sample| self.checked(sample).reordered),
            damaged: sum(&damaged),
            tool_ns: case.tool,
            limited_by: self.limited_by().map(str::to_owned),
            calibration: self.samples.iter().map(|(_, _, pulses)| *pulses).collect(),
            peer_calibration: samples().filter_map(|sample| Some(sample.far?.calibration)).collect(),
            clock: document::Clock::of(samples()),
            errors: self.samples.iter().filter_map(|(_, sample, _)| sample.error.clone()).collect(),
            failed: self.failed(),
            notes: self.all_notes(),
        }
    }

    /// Every cut.
    fn cuts(&self) -> Vec<figures::CutRow> {
        figures::cuts(self.repetitions(), &|link| self.case.left_mbps(link))
    }

    /// Every sample with its repetition, counted from 0.
    fn repetitions(&self) -> impl Iterator<Item = (u32, &Sample)> {
        self.samples.iter().map(|(repetition, sample, _)| (*repetition, sample))
    }

    /// The notes of all samples, each once.
    fn all_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.samples.iter().flat_map(|(_, sample, _)| self.notes(sample)).collect();
        if self.case.carrying_threads && self.case.wait() == WaitMode::Spin && core_count() < CARRYING_CORES {
            notes
                .push("its own threads share the cores with two that spin: see also --wait block".to_owned());
        }
        notes.extend(self.phase_notes());
        notes.sort();
        notes.dedup();
        notes
    }

    /// What makes a sample less than it seems: what was refused to a side, a core shared with other work, a figure
    /// above what the links carry.
    fn notes(&self, sample: &Sample) -> Vec<String> {
        let mut notes = sample.remarks.clone();
        let wait = sample.waits.unwrap_or(self.case.wait());
        if wait != self.case.wait() {
            notes.push(format!("waits by {}: it has no {} here", wait.name(), self.case.wait().name()));
        }
        for (side, report) in [("sender", &sample.sender), ("receiver", &sample.receiver)] {
            notes.extend(report.notes.iter().map(|note| format!("{side}: {note}")));
            let share = report.cpu_ns as f64 / report.window_ns.max(1) as f64;
            if wait == WaitMode::Spin && report.cpu_ns > 0 && share < CORE_SHARE_MIN {
                notes
                    .push(format!("{side}: had {:.0} % of a core: other work was in the way", share * 100.0));
            }
        }
        let unfinished = sample.cuts.iter().filter(|cut| cut.judgement.unfinished).count();
        if unfinished > 0 {
            notes.push(format!("cuts after which messages were still missing 8 s later: {unfinished}"));
        }
        let tainted = |cut: &&Cut| 2 * cut.judgement.before_ns > cut.judgement.gap_ns;
        let tainted = sample.cuts.iter().filter(tainted).count();
        if tainted > 0 {
            notes.push(format!(
                "cuts that were begun while the flow was late by half of their gap already: {tainted}"
            ));
        }
        let unused = sample.cuts.iter().filter(|cut| cut.carried_share < UNUSED_SHARE).count();
        if unused > 0 {
            notes.push(format!("cuts that met a link that carried next to nothing at that time: {unused}"));
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

    /// How far the machine's phases are in the samples.
    fn phase_notes(&self) -> Vec<String> {
        let pulses = || self.samples.iter().map(|(_, _, pulses)| pulses);
        let (all, unsteady) = (self.samples.len(), pulses().filter(|pulses| !pulses.is_steady()).count());
        let retaken: u32 = pulses().map(|pulses| pulses.retaken).sum();
        let kept = (unsteady > 0).then(|| {
            format!(
                "{unsteady} of {all} samples were taken while the machine changed phase: a cache line took over \
                 {PHASE_FACTOR} times longer on one side of them"
            )
        });
        let discarded = (retaken > 0).then(|| {
            format!("{retaken} samples were thrown away and taken again: the machine changed phase")
        });
        kept.into_iter().chain(discarded).collect()
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
        if !self.case.workload.times_answers() {
            return received(sample);
        }
        let of_server = Some(sample.receiver.counts).filter(|_| self.case.is_of_clients());
        let others = of_server.or(sample.receiver.bulk_counts).unwrap_or_default();
        sample.sender.counts.plus(others)
    }

    fn latency(&self, times: impl Fn(&Sample) -> Histogram) -> Option<Latency> {
        if !self.case.workload.has_latency() {
            return None;
        }
        let histograms: Vec<Histogram> = self.samples.iter().map(|(_, sample, _)| times(sample)).collect();
        let spread = |value: &dyn Fn(&Histogram) -> Option<f64>| Spread::over(histograms.iter().map(value));
        Some(Latency {
            p50: spread(&|h| h.quantile_us(0.5))?,
            p90: spread(&|h| h.quantile_us(0.9))?,
            p99: spread(&|h| h.quantile_us(0.99))?,
            p999: spread(&|h| h.quantile_us(0.999))?,
            max: spread(&Histogram::max_us)?,
        })
    }

    fn failed(&self) -> Vec<u32> {
        let failed = self.samples.iter().filter(|(_, sample, _)| sample.error.is_some());
        failed.map(|(repetition, ..)| repetition + 1).collect()
    }

    /// The latencies of every repetition, by bucket; empty where there are none.
    fn histogram_ns(&self) -> Vec<(u64, u64)> {
        if !self.case.workload.has_latency() {
            return Vec::new();
        }
        let samples = self.samples.iter().map(|(_, sample, _)| times(self.case.workload, sample).buckets());
        Histogram::from_buckets(&samples.flatten().collect::<Vec<_>>()).buckets()
    }

    /// What held the figure down, where that can be told: throttled links that are nearly full, this instrument, or a core
    /// that is nearly full.
    fn limited_by(&self) -> Option<&'static str> {
        let median = |value: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Vec<f64> = self.samples.iter().filter_map(|(_, sample, _)| value(sample)).collect();
            crate::stats::median(&values)
        };
        let per_message_ns = match self.case.workload {
            Workload::PingPong => median(&round_trips_per_s),
            _ => median(&rate_per_s),
        }
        .map(|rate_per_s| 1e9 / rate_per_s);
        let tool_ns = self.case.tool.map(ToolCost::most_ns);
        if tool_ns.zip(per_message_ns).is_some_and(|(tool, message)| tool >= TOOL_SHARE * message) {
            return Some("tool");
        }
        let goodput = median(&throughput_mbps)?;
        if (self.case.workload.is_one_way() || self.case.workload == Workload::Incast)
            && self.case.environment.placement == Placement::Inter
            && self.case.capacity_mbps().is_some_and(|capacity| goodput >= 0.9 * capacity)
        {
            return Some("link");
        }
        // A spinning thread always looks busy; only sleeping ones show what work costs.
        let busy = |sample: &Sample| {
            let share = |report: &SideReport| report.cpu_ns as f64 / report.window_ns.max(1) as f64;
            sample.pairs().map(|(sender, receiver)| share(sender).max(share(receiver))).fold(0.0, f64::max)
        };
        let full = self.case.wait() == WaitMode::Block && median(&|sample| Some(busy(sample)))? >= 0.9;
        full.then_some("cpu")
    }
}

/// Cores for two sides that spin, and for a thread beside each.
const CARRYING_CORES: usize = 4;

/// A spinning side that got less of its core than this was disturbed.
const CORE_SHARE_MIN: f64 = 0.9;

/// With this share of the time for a message the instrument measures itself.
const TOOL_SHARE: f64 = 0.5;

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
        let document = Document { command: command_line(std::env::args()), ..Document::here() };
        Self { document, series: Vec::new(), refused: false }
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

    /// What went wrong; the first of it stands, what follows on it is added.
    pub(crate) fn set_error(&mut self, error: String) {
        self.document.error = Some(match self.document.error.take() {
            Some(first) => format!("{first}; {error}"),
            None => error,
        });
    }

    /// What was asked for.
    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        self.document.plan = serde_json::to_value(plan).ok();
    }

    /// The same for several plans.
    pub(crate) fn set_plans(&mut self, plans: &[Plan]) {
        self.document.plan = serde_json::to_value(plans).ok();
    }

    /// Tells in the table what is expected of each row.
    pub(crate) fn show_model(&mut self) {
        self.document.shows_model = true;
    }

    /// Notes that concern all of it.
    pub(crate) fn add_notes(&mut self, notes: impl Iterator<Item = String>) {
        self.document.notes.extend(notes);
    }

    /// The machine.
    pub(crate) fn host(&self) -> &crate::host::Host {
        &self.document.host
    }

    /// Records the receiver's machine, which is another one.
    pub(crate) fn set_peer(&mut self, host: Host) {
        self.document.peer_host = Some(host);
    }

    pub(crate) fn add_unavailable(&mut self, protocol: &'static str, reason: String) {
        let entry = Unavailable { protocol: protocol.to_owned(), reason };
        if !self.document.unavailable.contains(&entry) {
            self.document.unavailable.push(entry);
        }
    }

    pub(crate) fn add_devices(&mut self, devices: impl IntoIterator<Item = DeviceRow>) {
        self.document.devices.extend(devices);
    }

    /// Records what the relay of a delayed link does.
    pub(crate) fn add_relay(&mut self, row: RelayRow) {
        self.document.relays.push(row);
    }

    /// Adds a series. One of a later round goes to what was measured before in the same case.
    pub(crate) fn add(&mut self, series: Series) {
        let Some((first, ..)) = series.samples.first() else { return };
        let known = self.series.iter().position(|known| *first > 0 && known.is_of_case(&series));
        if let Some(place) = known {
            self.series[place].samples.extend(series.samples);
            self.document.results[place] = self.series[place].row();
        } else {
            let mut row = series.row();
            if series.is_far() {
                row.notes.extend(self.document.versions_differ());
            }
            self.document.results.push(row);
            self.series.push(series);
        }
    }

    /// Draws the ratios: those to what links allow, and those asked for, or Polyrail's to every other protocol.
    pub(crate) fn conclude(&mut self, versus: &[(String, String)]) {
        self.document.ratios.extend(self.series.iter().filter_map(to_ideal));
        for first in &self.series {
            for second in &self.series {
                if is_asked(&first.case, &second.case, versus) {
                    self.document.ratios.extend(ratio(first, second));
                    self.document.ratios.extend(cpu_ratios(first, second));
                }
            }
        }
        let pulses = self.series.iter().flat_map(|series| &series.samples).map(|(_, _, pulses)| pulses);
        self.document.stall_histogram = StallHistogram::of(pulses);
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

    /// Every sample as CSV, a line each.
    pub fn csv(&self) -> String {
        csv::render(&self.document.results)
    }

    /// The report as a table for a terminal.
    pub fn table(&self) -> String {
        table::render(&self.document)
    }
}

/// The command line as a person types it, whatever the program's file is called and wherever it lies.
fn command_line(words: impl Iterator<Item = String>) -> Vec<String> {
    let quoted = |word: String| {
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=@%+".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    std::iter::once("polyrail".to_owned()).chain(words.skip(1).map(quoted)).collect()
}

fn ratio(first: &Series, second: &Series) -> Option<RatioRow> {
    let name = first.figure_name();
    ratio_of(name, [first, second], [first.figures(), second.figures()])
}

/// Of one-way messages, CPU time per gigabyte: of both sides, and of the machine. Not where a side spins: that costs its whole core
/// whatever it does.
fn cpu_ratios(first: &Series, second: &Series) -> Vec<RatioRow> {
    if !first.case.workload.is_one_way() || first.case.wait() == WaitMode::Spin {
        return Vec::new();
    }
    let both = [first, second];
    let of_sides = both.map(|series| {
        series.by_repetition(|sample| cpu_s_per_gb(sample, sample.pairs().flat_map(|(a, b)| [a, b])))
    });
    let of_machine = both.map(|series| series.by_repetition(|sample| series.machine_s_per_gb(sample)));
    let named = [("CPU s/GB", of_sides), ("machine CPU s/GB", of_machine)];
    named.into_iter().filter_map(|(name, values)| ratio_of(name, both, values)).collect()
}

fn ratio_of(
    figure: &str,
    [first, second]: [&Series; 2],
    [firsts, seconds]: [BTreeMap<u32, f64>; 2],
) -> Option<RatioRow> {
    let paired: Vec<(u32, (f64, f64))> = firsts
        .iter()
        .filter_map(|(repetition, a)| Some((*repetition, (*a, *seconds.get(repetition)?))))
        .collect();
    let pairs: Vec<(f64, f64)> = paired.iter().map(|(_, pair)| *pair).collect();
    let steady = paired.iter().filter(|(repetition, _)| !is_mixed(first, second, *repetition));
    let steady: Vec<(f64, f64)> = steady.map(|(_, pair)| *pair).collect();
    let mixed_phase = pairs.len() - steady.len();
    // A fixed seed: the same samples give the same interval.
    let ratio = paired_ratio(&pairs, 1)?;
    let within_phase = paired_ratio(&steady, 1).filter(|_| mixed_phase > 0 && steady.len() >= REPEAT_MIN);
    let name =
        format!("{}/{} {} ({})", first.case.protocol, second.case.protocol, figure, first.case.conditions());
    Some(RatioRow { name, ratio, mixed_phase: (mixed_phase > 0).then_some(mixed_phase), within_phase })
}

/// Of `lone`, the time by the least time that the links allow, each repetition's median message.
fn to_ideal(series: &Series) -> Option<RatioRow> {
    let good = series.samples.iter().filter(|(_, sample, _)| sample.error.is_none());
    let pairs: Vec<(f64, f64)> =
        good.filter_map(|(_, sample, _)| Some((sample.sender.lone.as_ref()?.to_ideal, 1.0))).collect();
    let name = format!("{}/ideal latency ({})", series.case.protocol, series.case.conditions());
    Some(RatioRow { name, ratio: paired_ratio(&pairs, 1)?, mixed_phase: None, within_phase: None })
}

/// Whether the two samples of a repetition saw more than one phase of the machine.
fn is_mixed(first: &Series, second: &Series, repetition: u32) -> bool {
    let pulses = |series: &Series| {
        series.samples.iter().find(|(number, _, _)| *number == repetition).map(|(_, _, pulses)| *pulses)
    };
    match (pulses(first), pulses(second)) {
        (Some(a), Some(b)) => !a.is_one_phase_with(&b),
        _ => false,
    }
}

/// Whether the intervals of all ratios, or of all figures where there are no ratios, reach no further than `percent` from
/// their middles. Never before six repetitions: what fewer say of an interval is not worth stopping for.
pub(crate) fn is_tight<'a>(
    series: impl Iterator<Item = &'a Series>,
    versus: &[(String, String)],
    percent: f64,
) -> bool {
    let series: Vec<&Series> = series.collect();
    let good = |series: &&Series| series.figures().len() >= REPEAT_MIN;
    if series.is_empty() || !series.iter().all(|series| good(series) || series.samples.len() >= GIVEN_UP) {
        return false;
    }
    let series: Vec<&Series> = series.into_iter().filter(good).collect();
    let pairs = series.iter().flat_map(|first| series.iter().map(move |second| (*first, *second)));
    let mut ratios: Vec<Ratio> = pairs
        .filter(|(first, second)| is_asked(&first.case, &second.case, versus))
        .filter_map(|(first, second)| ratio(first, second))
        .map(|row| row.within_phase.unwrap_or(row.ratio))
        .collect();
    if ratios.is_empty() {
        let alone = |series: &&Series| {
            let figures: Vec<(f64, f64)> = series.figures().values().map(|&figure| (figure, 1.0)).collect();
            paired_ratio(&figures, 1)
        };
        ratios = series.iter().filter_map(alone).collect();
    }
    let reach = |ratio: &Ratio| (ratio.high - ratio.median).max(ratio.median - ratio.low) / ratio.median;
    !ratios.is_empty() && ratios.iter().all(|ratio| reach(ratio) <= percent / 100.0)
}

/// Fewest repetitions whose interval says something.
const REPEAT_MIN: usize = 6;
/// Repetitions after which a protocol that still fails is not waited for.
const GIVEN_UP: usize = 12;

/// Whether a ratio of these two is to be reported: one that was asked for, or Polyrail's to another one.
fn is_asked(first: &Case, second: &Case, versus: &[(String, String)]) -> bool {
    let (a, b) = (first.protocol, second.protocol);
    let asked = if versus.is_empty() {
        a == "polyrail" && b != a
    } else {
        versus.iter().any(|(x, y)| x == a && y == b)
    };
    asked && first.conditions() == second.conditions()
}

/// The times that a workload is about.
fn times(workload: Workload, sample: &Sample) -> Histogram {
    let report = if workload.is_timed_by_sender() { &sample.sender } else { &sample.receiver };
    Histogram::from_buckets(&report.rtt_ns)
}

/// The receivers' counts, of both flows where there are two.
fn received(sample: &Sample) -> CheckCounts {
    let counts = sample.pairs().map(|(_, receiver)| receiver.counts);
    counts.fold(sample.receiver.bulk_counts.unwrap_or_default(), CheckCounts::plus)
}

/// Damage that any side saw.
fn damaged(sample: &Sample) -> u64 {
    sample.pairs().map(|(sender, _)| sender.counts.damaged).sum::<u64>() + received(sample).damaged
}

fn median_gap_ms(sample: &Sample) -> Option<f64> {
    let gaps: Vec<f64> = sample.cuts.iter().map(|cut| cut.judgement.gap_ns as f64 / 1e6).collect();
    crate::stats::median(&gaps)
}

fn throughput_mbps(sample: &Sample) -> Option<f64> {
    sum(sample.pairs().map(|(_, receiver)| mbps(receiver)))
}

fn offered_mbps(sample: &Sample) -> Option<f64> {
    sum(sample.pairs().map(|(sender, _)| mbps(sender)))
}

/// What one side counted in its window, in Mbit/s.
fn mbps(report: &SideReport) -> Option<f64> {
    per_second(report.bytes as f64 * 8e-6, report.window_ns)
}

/// All of them, if each is there.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.sum()
}

fn rate_per_s(sample: &Sample) -> Option<f64> {
    sum(sample.pairs().map(|(_, receiver)| per_second(receiver.messages as f64, receiver.window_ns)))
}

/// What the port gets that gets least: a message counts when it is with all.
fn slowest_port_per_s(sample: &Sample) -> Option<f64> {
    let of = |member: &SideReport| {
        let ports = member.sent_each().len() as f64;
        per_second(member.messages as f64 / ports, member.window_ns)
    };
    let rates: Option<Vec<f64>> = sample.pairs().map(|(_, member)| of(member)).collect();
    rates?.into_iter().reduce(f64::min)
}

/// CPU time of the sending process, all of its threads, for each message that it sent.
fn sender_cpu_us(sample: &Sample) -> Option<f64> {
    let SideReport { messages, cpu_ns, .. } = sample.sender;
    (messages > 0).then(|| cpu_ns as f64 / messages as f64 / 1e3)
}

/// Round trips of all clients, or messages of them that the server got.
fn all_clients_per_s(workload: Workload, sample: &Sample) -> Option<f64> {
    if workload.times_answers() { round_trips_per_s(sample) } else { rate_per_s(sample) }
}

/// What is told of a workload as a rate: what is answered, what the slowest port gets, or what arrives.
fn messages_per_s(workload: Workload) -> fn(&Sample) -> Option<f64> {
    match workload {
        workload if workload.times_answers() => round_trips_per_s,
        Workload::Multicast => slowest_port_per_s,
        workload if workload.is_one_way() => rate_per_s,
        _ => |_| None,
    }
}

fn round_trips_per_s(sample: &Sample) -> Option<f64> {
    per_second(sample.sender.messages as f64, sample.sender.window_ns)
}

fn per_second(value: f64, window_ns: u64) -> Option<f64> {
    (window_ns > 0).then(|| value * 1e9 / window_ns as f64)
}

/// CPU time of one side per gigabyte that arrived; the windows are of equal length but not the same, so the CPU time is
/// taken as a share of its own window.
fn cpu_s_per_gb<'a>(sample: &Sample, sides: impl Iterator<Item = &'a SideReport>) -> Option<f64> {
    let cores =
        sum(sides.map(|side| (side.window_ns > 0).then(|| side.cpu_ns as f64 / side.window_ns as f64)))?;
    per_gb(sample, cores)
}

/// Cores that both sides kept busy within their windows; none where a side did not tell.
fn cores_used(sample: &Sample) -> Option<f64> {
    let cores = |side: &SideReport| {
        (side.window_ns > 0 && side.cpu_ns > 0).then(|| side.cpu_ns as f64 / side.window_ns as f64)
    };
    Some(cores(&sample.sender)? + cores(&sample.receiver)?)
}

/// What so many cores that are busy all the time come to, in seconds per gigabyte that arrived.
fn per_gb(sample: &Sample, cores: f64) -> Option<f64> {
    let gb_per_s = throughput_mbps(sample)? / 8e3;
    (gb_per_s > 0.0).then(|| cores / gb_per_s)
}

#[cfg(test)]
mod tests;
