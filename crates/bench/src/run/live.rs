//! What a person sees on standard error while a measurement runs.

use std::io::IsTerminal;

use super::Sample;
use crate::control::SideReport;
use crate::failover::Cut;
use crate::workload::Workload;

/// One measurement's line.
pub(super) struct Live {
    title: String,
    terminal: bool,
}

impl Live {
    pub(super) fn new(title: String) -> Self {
        Self { title, terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn show(&mut self, report: &SideReport) {
        if self.terminal && report.window_ns > 0 {
            eprint!("\r\x1b[K{}  {:.0} Mbit/s ...", self.title, mbps(report));
        }
    }

    /// One cut has been judged.
    pub(super) fn cut(&mut self, number: usize, cut: &Cut) {
        let (place, judgement) = (cut.place, cut.judgement);
        let goodput = judgement
            .goodput
            .map_or(String::new(), |goodput| format!(", {:.0} Mbit/s meanwhile", goodput.mbps()));
        eprintln!(
            "{}  cut {}, {} of link {} at node {}: gap {:.1} ms, net {:.1}{goodput}",
            self.title,
            number + 1,
            place.kind.name(),
            place.link,
            place.node,
            judgement.gap_ns as f64 / 1e6,
            judgement.gap_net_ns as f64 / 1e6,
        );
    }

    pub(super) fn end(&mut self, sample: &Sample, workload: Workload) {
        let figure = match (&sample.error, workload) {
            (Some(error), _) => error.clone(),
            (None, workload) if workload.has_latency() => {
                let report = if workload.is_timed_by_sender() { &sample.sender } else { &sample.receiver };
                let p50 = crate::workload::Histogram::from_buckets(&report.rtt_ns).quantile_us(0.5);
                format!("p50 {:.1} us", p50.unwrap_or(0.0))
            }
            (None, Workload::Idle) => {
                let cost = sample.sender.idle.unwrap_or_default();
                format!("{:.2} % of a core, {:.1} wake-ups/s", cost.cpu_percent, cost.wakeups_per_s)
            }
            (None, Workload::Rate) => {
                format!(
                    "{:.0} messages/s",
                    sample.receiver.messages as f64 * 1e9 / sample.receiver.window_ns as f64
                )
            }
            (None, _) => {
                format!("{:.0} Mbit/s", sample.pairs().map(|(_, receiver)| mbps(receiver)).sum::<f64>())
            }
        };
        eprintln!("{}{}  {figure}", if self.terminal { "\r\x1b[K" } else { "" }, self.title);
    }
}

fn mbps(report: &SideReport) -> f64 {
    if report.window_ns == 0 { 0.0 } else { report.bytes as f64 * 8e3 / report.window_ns as f64 }
}
