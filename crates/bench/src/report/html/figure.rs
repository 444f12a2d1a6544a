//! Figures of rows: which a workload has, in which unit, and the middle of each with the interval in which it lies.

use super::units::Unit;
use crate::report::document::Row;
use crate::stats::{Spread, median, paired_ratio};
use crate::workload::Workload;

/// A figure that rows have.
pub(in crate::report) struct Metric {
    /// In words, for a heading.
    pub(in crate::report) name: &'static str,
    pub(in crate::report) unit: Unit,
    pub(in crate::report) is_better_high: bool,
    pub(in crate::report) of: fn(&Row) -> Option<&Spread>,
}

const THROUGHPUT: Metric = Metric {
    name: "throughput",
    unit: Unit::Mbps,
    is_better_high: true,
    of: |row| row.throughput_mbps.as_ref(),
};
const RATE: Metric =
    Metric { name: "rate", unit: Unit::PerSecond, is_better_high: true, of: |row| row.rate_per_s.as_ref() };
const HALF: Metric = Metric {
    name: "median time",
    unit: Unit::Us,
    is_better_high: false,
    of: |row| row.latency_us.as_ref().map(|latency| &latency.p50),
};
const NEARLY_ALL: Metric = Metric {
    name: "time that 99 of 100 keep",
    unit: Unit::Us,
    is_better_high: false,
    of: |row| row.latency_us.as_ref().map(|latency| &latency.p99),
};
const MACHINE_CPU: Metric = Metric {
    name: "CPU time of the machine for each GB",
    unit: Unit::SecondsPerGb,
    is_better_high: false,
    of: |row| row.machine_cpu_s_per_gb.as_ref(),
};
const SENDER_CPU: Metric = Metric {
    name: "CPU time of the sender for each message",
    unit: Unit::Us,
    is_better_high: false,
    of: |row| row.sender_cpu_us.as_ref(),
};
const FAIRNESS: Metric = Metric {
    name: "fairness (1: equal shares)",
    unit: Unit::Plain,
    is_better_high: true,
    of: |row| row.sharing.as_ref().map(|sharing| &sharing.fairness),
};
const CROWD_MEMORY: Metric = Metric {
    name: "memory of all processes",
    unit: Unit::Mib,
    is_better_high: false,
    of: |row| row.crowd_memory_mib.as_ref().map(|memory| &memory.sum),
};
const IDLE_CPU: Metric = Metric {
    name: "share of a core",
    unit: Unit::Percent,
    is_better_high: false,
    of: |row| row.idle.as_ref().map(|idle| &idle.cpu_percent.sender),
};
const IDLE_WAKEUPS: Metric = Metric {
    name: "wake-ups",
    unit: Unit::PerSecond,
    is_better_high: false,
    of: |row| row.idle.as_ref().map(|idle| &idle.wakeups_per_s.sender),
};
const IDLE_MEMORY: Metric = Metric {
    name: "private memory",
    unit: Unit::Mib,
    is_better_high: false,
    of: |row| row.idle.as_ref().map(|idle| &idle.private_mib.sender),
};
const BLOCKED_MEMORY: Metric = Metric {
    name: "most memory of the sender",
    unit: Unit::Mib,
    is_better_high: false,
    of: |row| row.memory_mib.as_ref().map(|memory| &memory.sender.max),
};

/// What is shown of a workload; the first one says who is faster.
pub(in crate::report) fn metrics(workload: Workload, has_clients: bool) -> &'static [Metric] {
    match workload {
        Workload::PingPong if has_clients => &[RATE, HALF, NEARLY_ALL, CROWD_MEMORY],
        Workload::Stream if has_clients => &[THROUGHPUT, RATE, CROWD_MEMORY],
        Workload::Rate if has_clients => &[RATE, CROWD_MEMORY],
        Workload::Rate => &[RATE, MACHINE_CPU],
        Workload::PingPong => &[HALF, NEARLY_ALL, THROUGHPUT],
        Workload::Lone | Workload::Transact | Workload::OpenLoop | Workload::Incast => &[HALF, NEARLY_ALL],
        Workload::Share => &[THROUGHPUT, FAIRNESS, MACHINE_CPU],
        Workload::Multicast => &[SENDER_CPU, RATE],
        Workload::Idle => &[IDLE_CPU, IDLE_WAKEUPS, IDLE_MEMORY],
        Workload::Stalled => &[BLOCKED_MEMORY],
        Workload::Failover => &[THROUGHPUT],
        _ => &[THROUGHPUT, MACHINE_CPU],
    }
}

/// `--repeat` allows no more; of a document that has more, the rest is not looked at.
pub(in crate::report) const SAMPLES_MAX: usize = 1_000;
/// Fewest samples whose interval says something; of fewer the range is told.
pub(in crate::report) const SAMPLES_MIN: usize = 6;

/// The middle of a figure and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The good ones.
    pub(super) samples: Vec<f64>,
    /// Whether `low` to `high` is the 95 % interval of the middle; else it is the range of what was seen.
    pub(super) is_interval: bool,
}

impl Figure {
    /// None where no sample is good.
    pub(super) fn of(row: &Row, metric: &Metric) -> Option<Self> {
        let spread = (metric.of)(row)?;
        let samples: Vec<f64> = values(row, spread).into_iter().flatten().collect();
        if spread.values.is_empty() {
            // Documents of early versions have no samples.
            let Spread { median, low, high, .. } = *spread;
            return Some(Self { middle: median, low, high, samples, is_interval: false });
        }
        let middle = median(&samples)?;
        let ones: Vec<(f64, f64)> = samples.iter().map(|sample| (*sample, 1.0)).collect();
        let interval = if ones.len() >= SAMPLES_MIN { paired_ratio(&ones, 1) } else { None };
        let range = (
            samples.iter().copied().fold(f64::INFINITY, f64::min),
            samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        );
        let is_interval = interval.is_some();
        let (low, high) = interval.map_or(range, |interval| (interval.low, interval.high));
        Some(Self { middle, low, high, samples, is_interval })
    }

    /// In words: the middle, and how sure it is.
    pub(super) fn text(&self, unit: Unit) -> String {
        let [middle, low, high] = [self.middle, self.low, self.high].map(|value| unit.text(value));
        let how = match (self.is_interval, self.samples.len()) {
            (true, count) => format!("95 %: {low} to {high}, {count} samples"),
            (false, 1) => "one sample".to_owned(),
            (false, count) => format!("seen: {low} to {high}, {count} samples"),
        };
        format!("{middle} ({how})")
    }
}

/// The samples by repetition, without those that failed.
pub(in crate::report) fn values(row: &Row, spread: &Spread) -> Vec<Option<f64>> {
    let good = |(repetition, value): (u32, &Option<f64>)| {
        value.filter(|value| value.is_finite() && !row.failed.contains(&repetition))
    };
    (1..).zip(&spread.values).take(SAMPLES_MAX).map(good).collect()
}
