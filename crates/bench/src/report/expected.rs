//! What the model of the links expects of a series, beside what was measured.

use serde::{Deserialize, Serialize};

use super::{Series, cpu_s_per_gb, throughput_mbps, times};
use crate::args::{Load, Placement};
use crate::model::{FRAME_BYTES, message_ns, throughput, two_link_size};
use crate::stats::{Spread, median};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// What the model expects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Expected {
    /// What the links carry of payload, in Mbit/s.
    pub(super) links_mbps: f64,
    /// What a core for each side would carry, by the CPU time that was measured; absent where a side spins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_mbps: Option<f64>,
    /// The lesser of the two; of throughput only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mbps: Option<f64>,
    /// Time of a message, of `lone` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) us: Option<f64>,
    /// What was measured by what is expected, each repetition's.
    pub(super) measured_by_expected: Spread,
    /// Of `lone` with several links: the sizes in bytes from which two of the first link take a message 1.5, 1.9 and 1.98 times as
    /// fast as it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gain_from_bytes: Vec<(f64, f64)>,
}

/// What a further link costs a message beside a packet of its own, in ns.
const SPLIT_NS: f64 = 1_000.0;
/// Gains of two links over one whose sizes are told.
const GAINS: [f64; 3] = [1.5, 1.9, 1.98];

impl Series {
    /// What is expected of it; none without throttled links, or of workloads that are not about them.
    pub(super) fn expected(&self) -> Option<Expected> {
        let environment = &self.case.environment;
        let uneven = environment.delays_ms.windows(2).any(|pair| pair[0] != pair[1]);
        if environment.placement != Placement::Inter || uneven {
            return None;
        }
        let links_mbps = self.case.capacity_mbps()? * self.case.payload as f64 / FRAME_BYTES;
        match self.case.workload {
            Workload::Stream | Workload::Links | Workload::Share => self.expected_throughput(links_mbps),
            Workload::Lone => self.expected_time(links_mbps),
            _ => None,
        }
    }

    fn expected_throughput(&self, links_mbps: f64) -> Option<Expected> {
        let samples = || self.samples.iter().map(|(_, sample, _)| sample);
        // Several pairs share the cores: what one of them could do says nothing.
        let alone =
            !matches!(self.case.point.load, Load::Pairs(2.., _)) && self.case.wait() != WaitMode::Spin;
        let busier = samples().filter_map(|sample| {
            let sender = cpu_s_per_gb(sample, std::iter::once(&sample.sender))?;
            Some(sender.max(cpu_s_per_gb(sample, std::iter::once(&sample.receiver))?))
        });
        let cpu_mbps = median(&busier.collect::<Vec<f64>>()).filter(|s_per_gb| alone && *s_per_gb > 0.0);
        let cpu_mbps = cpu_mbps.map(|s_per_gb| 8_000.0 / s_per_gb);
        let mbps = throughput(links_mbps, cpu_mbps);
        Some(Expected {
            links_mbps,
            cpu_mbps,
            mbps: Some(mbps),
            us: None,
            measured_by_expected: Spread::over(
                samples().map(|sample| Some(throughput_mbps(sample)? / mbps)),
            )?,
            gain_from_bytes: Vec::new(),
        })
    }

    fn expected_time(&self, links_mbps: f64) -> Option<Expected> {
        let samples = || self.samples.iter().map(|(_, sample, _)| sample);
        let bases: Vec<f64> =
            samples().filter_map(|sample| Some(sample.sender.lone.as_ref()?.base_ns)).collect();
        let base_ns = median(&bases)?;
        let rates = self.case.environment.rates.iter().flatten().map(|&mbit| f64::from(mbit));
        let slowest = rates.fold(f64::INFINITY, f64::min);
        let several = self.case.striped && self.case.environment.rates.len() > 1;
        let split_ns = FRAME_BYTES * 8e3 / slowest + SPLIT_NS;
        let bytes_per_ns = links_mbps / 8e3;
        let ns = message_ns(
            base_ns,
            self.case.point.size as f64,
            bytes_per_ns,
            if several { split_ns } else { 0.0 },
        );
        let first = f64::from(self.case.environment.rates.first().copied().flatten()?);
        let of_first = first * self.case.payload as f64 / FRAME_BYTES / 8e3;
        let gain = |gain: f64| (gain, two_link_size(gain, of_first, base_ns, split_ns));
        Some(Expected {
            links_mbps,
            cpu_mbps: None,
            mbps: None,
            us: Some(ns / 1e3),
            measured_by_expected: Spread::over(
                samples().map(|sample| Some(times(Workload::Lone, sample).quantile_us(0.5)? * 1e3 / ns)),
            )?,
            gain_from_bytes: if several { GAINS.map(gain).to_vec() } else { Vec::new() },
        })
    }
}
