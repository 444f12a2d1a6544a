//! The figures of the workloads that are not about speed: gaps around cuts, idle cost, memory.

use serde::{Deserialize, Serialize};

use crate::control::SideReport;
use crate::failover::{Cut, Goodput, Kind, Reuse, STEP_NS, Timeline, schedule};
use crate::idle::IdleCost;
use crate::memory::MemoryUse;
use crate::netns::Direction;
use crate::run::Sample;
use crate::stats::{Spread, nearest_rank};
use crate::workload::{Histogram, LoneTimes};

/// Gaps over all cuts of one kind, in ms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Gaps {
    pub(super) kind: Kind,
    pub(super) cuts: usize,
    /// Lateness of the latest message of each cut.
    pub(super) gap_ms: Quantiles,
    /// The same, less the machine's own stalls.
    pub(super) gap_net_ms: Quantiles,
    /// Lateness of the latest message due after each link's return, until the calm before the next cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) return_ms: Option<Quantiles>,
    /// Payload of both flows that arrived while the link was away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goodput_mbps: Option<Lowest>,
    /// The same as a share of what the other links carry, where they have rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goodput_share: Option<Shares>,
    /// From a link's return until it carried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reuse_ms: Option<Reuses>,
    /// Cuts whose link did not before the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_reused: Option<usize>,
}

/// Of what should be high.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Lowest {
    pub(super) low: f64,
    pub(super) p50: f64,
}

impl Lowest {
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self { low: nearest_rank(values, 0.0)?, p50: nearest_rank(values, 0.5)? })
    }
}

/// Shares of what the other links carry, and what they are held against.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Shares {
    pub(super) low: f64,
    pub(super) p50: f64,
    /// A cut whose share is below this fell short.
    pub(super) aim: f64,
    /// How many cuts did.
    pub(super) below_aim: usize,
}

impl Shares {
    fn of(values: &[f64], aim: f64) -> Option<Self> {
        let Lowest { low, p50 } = Lowest::of(values)?;
        let below_aim = values.iter().filter(|share| **share < aim).count();
        Some(Self { low, p50, aim, below_aim })
    }
}

/// What a cut should leave of what the other links carry. A link that flaps takes some of it along each time.
fn aim(kind: Kind) -> f64 {
    if kind == Kind::Flapping { 0.9 } else { 0.95 }
}

/// Times until links carried again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Reuses {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) max: f64,
}

impl Reuses {
    fn of(values: &[f64]) -> Option<Self> {
        let at = |share| nearest_rank(values, share);
        Some(Self { p50: at(0.5)?, p90: at(0.9)?, max: at(1.0)? })
    }
}

/// By nearest rank: values that occurred.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Quantiles {
    fn of(values: &[f64]) -> Option<Self> {
        let at = |share| nearest_rank(values, share);
        Some(Self { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

/// One cut.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CutRow {
    /// Counted from 1.
    #[serde(default)]
    pub(super) repetition: u32,
    pub(super) kind: Kind,
    pub(super) link: usize,
    /// Whose carrier was lost or whose packets vanished.
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<String>,
    /// Share of the bytes that left over the link shortly before.
    carried_share: f64,
    pub(super) gap_ms: f64,
    pub(super) gap_net_ms: f64,
    /// Of the latest message: when it was due, from the cut on; how late the sender got to it.
    worst_due_ms: f64,
    worst_begun_late_ms: f64,
    /// Longest time without any delivery.
    silence_ms: f64,
    /// How late the flow was when the cut was begun.
    before_ms: f64,
    /// Lateness of the latest message due after the link's return, until the calm before the next cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) return_ms: Option<f64>,
    /// Payload of both flows that arrived while the link was away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goodput_mbps: Option<f64>,
    /// The same as a share of what the other links carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goodput_share: Option<f64>,
    /// From the link's return until it carried again; absent if it did not before the next cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reuse_ms: Option<f64>,
    /// How often the link went down and came up, where it flapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flaps: Option<u32>,
    messages: u64,
    unfinished: bool,
    /// When the cut was begun and the link was back, from the beginning of the repetition's timeline on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until_s: Option<f64>,
}

/// What arrived from step to step over a run of `failover`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TimelineRow {
    /// Counted from 1.
    pub(super) repetition: u32,
    pub(super) step_ms: f64,
    /// Payload of both flows in each step.
    pub(super) goodput_mbps: Vec<f64>,
    /// Largest lateness of the watched flow's messages that arrived in each step; 0 where none did.
    pub(super) late_ms: Vec<f64>,
    /// What left the sender in each step, headers and all, a list for each link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) links_mbps: Vec<Vec<f64>>,
}

/// One timeline for each repetition that has one; the samples come with their repetition, counted from 0.
pub(super) fn timelines<'a>(samples: impl Iterator<Item = (u32, &'a Sample)>) -> Vec<TimelineRow> {
    let of = |(repetition, sample): (u32, &'a Sample)| {
        let Timeline { bytes, late_ns, from_ns } = sample.receiver.timeline.as_ref()?;
        // Tenths are as much as a step can tell; more would fill the document with digits.
        let mbps_of = |bytes: f64| (bytes * 8e4 / STEP_NS as f64).round() / 10.0;
        let mbps = |bytes: &u64| mbps_of(*bytes as f64);
        let late_ms = |ns: &u64| (ms(*ns) * 100.0).round() / 100.0;
        Some(TimelineRow {
            repetition: repetition + 1,
            step_ms: ms(STEP_NS),
            goodput_mbps: bytes.iter().map(mbps).collect(),
            late_ms: late_ns.iter().map(late_ms).collect(),
            links_mbps: schedule(&sample.looks, *from_ns, STEP_NS, bytes.len())
                .into_iter()
                .map(|link| link.into_iter().map(mbps_of).collect())
                .collect(),
        })
    };
    samples.filter_map(of).collect()
}

/// Interruptions of the watched cores, over all repetitions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stalls {
    count: u64,
    longest_ms: f64,
    sum_ms: f64,
}

/// A figure of both sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sides<T> {
    pub(super) sender: T,
    pub(super) receiver: T,
}

/// How several pairs share what there is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sharing {
    /// Jain's index of the pairs' throughputs: 1 if all are equal, 1/n if one has everything.
    pub(super) fairness: Spread,
    /// Throughput of the pair that got least and of the one that got most, in Mbit/s.
    pub(super) least_mbps: Spread,
    pub(super) most_mbps: Spread,
}

/// The least time that the links allow a lone message, and how its time stands to that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ideal {
    /// Of one small message, which is part of it.
    pub(super) base_us: Spread,
    pub(super) ideal_us: Spread,
    /// The time by the least time.
    pub(super) to_ideal: Spread,
    /// Messages timed in all repetitions, and those of them that found a bucket that was not empty.
    pub(super) messages: u64,
    pub(super) not_emptied: u64,
}

/// What waiting costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    pub(super) resident_mib: Sides<Spread>,
    pub(super) private_mib: Sides<Spread>,
    pub(super) cpu_percent: Sides<Spread>,
    pub(super) wakeups_per_s: Sides<Spread>,
}

/// Resident memory of one side in MiB.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) start: Spread,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocked: Option<Spread>,
    pub(super) max: Spread,
}

/// What the links carry of payload without one of them, in Mbit/s; none where one of those has no rate.
pub(super) type Left<'a> = &'a dyn Fn(usize) -> Option<f64>;

pub(super) fn gaps<'a>(samples: impl Iterator<Item = &'a Sample>, left: Left) -> Vec<Gaps> {
    let cuts: Vec<&Cut> = samples.flat_map(|sample| &sample.cuts).collect();
    let of_kind = |kind: Kind| {
        let cuts: Vec<&Cut> = cuts.iter().copied().filter(|cut| cut.place.kind == kind).collect();
        gaps_of_kind(kind, &cuts, left)
    };
    Kind::ALL.into_iter().filter_map(of_kind).collect()
}

fn gaps_of_kind(kind: Kind, cuts: &[&Cut], left: Left) -> Option<Gaps> {
    let values = |value: &dyn Fn(&Cut) -> Option<f64>| -> Vec<f64> {
        cuts.iter().filter_map(|cut| value(cut)).collect()
    };
    let not_reused = cuts.iter().filter(|cut| cut.reuse == Reuse::Not).count();
    let watched = cuts.iter().any(|cut| cut.reuse != Reuse::Unknown);
    Some(Gaps {
        kind,
        cuts: cuts.len(),
        gap_ms: Quantiles::of(&values(&|cut| Some(ms(cut.judgement.gap_ns))))?,
        gap_net_ms: Quantiles::of(&values(&|cut| Some(ms(cut.judgement.gap_net_ns))))?,
        return_ms: Quantiles::of(&values(&|cut| cut.aftermath_ns.map(ms))),
        goodput_mbps: Lowest::of(&values(&goodput_mbps)),
        goodput_share: Shares::of(&values(&|cut| goodput_share(cut, left)), aim(kind)),
        reuse_ms: Reuses::of(&values(&reuse_ms)),
        not_reused: watched.then_some(not_reused),
    })
}

fn goodput_mbps(cut: &Cut) -> Option<f64> {
    cut.judgement.goodput.map(Goodput::mbps)
}

fn goodput_share(cut: &Cut, left: Left) -> Option<f64> {
    let left_mbps = left(cut.place.link).filter(|mbps| *mbps > 0.0)?;
    Some(goodput_mbps(cut)? / left_mbps)
}

fn reuse_ms(cut: &Cut) -> Option<f64> {
    match cut.reuse {
        Reuse::After(ns) => Some(ms(ns)),
        Reuse::Not | Reuse::Unknown => None,
    }
}

/// Every cut; the samples come with their repetition, counted from 0.
pub(super) fn cuts<'a>(samples: impl Iterator<Item = (u32, &'a Sample)>, left: Left) -> Vec<CutRow> {
    samples
        .flat_map(|(repetition, sample)| {
            let origin_ns = sample.receiver.timeline.as_ref().map(|timeline| timeline.from_ns);
            sample.cuts.iter().map(move |cut| cut_row(repetition, cut, left, origin_ns))
        })
        .collect()
}

fn cut_row(repetition: u32, cut: &Cut, left: Left, origin_ns: Option<u64>) -> CutRow {
    let since_s = |at_ns: u64| origin_ns.map(|origin_ns| at_ns.saturating_sub(origin_ns) as f64 / 1e9);
    let (place, judgement, worst) = (cut.place, cut.judgement, cut.judgement.worst);
    let direction = match place.direction {
        Direction::Into => "into",
        Direction::OutOf => "out of",
        Direction::Both => "both",
    };
    CutRow {
        repetition: repetition + 1,
        kind: place.kind,
        link: place.link,
        node: if place.node == 0 { "sender" } else { "receiver" }.to_owned(),
        direction: (place.kind == Kind::Blackhole).then(|| direction.to_owned()),
        carried_share: cut.carried_share,
        gap_ms: ms(judgement.gap_ns),
        gap_net_ms: ms(judgement.gap_net_ns),
        worst_due_ms: (worst.scheduled_ns as f64 - cut.cut_ns as f64) / 1e6,
        worst_begun_late_ms: ms(worst.begun_ns.saturating_sub(worst.scheduled_ns)),
        silence_ms: ms(judgement.silence_ns),
        before_ms: ms(judgement.before_ns),
        return_ms: cut.aftermath_ns.map(ms),
        goodput_mbps: goodput_mbps(cut),
        goodput_share: goodput_share(cut, left),
        reuse_ms: reuse_ms(cut),
        flaps: (place.kind == Kind::Flapping).then_some(cut.flaps),
        messages: judgement.messages,
        unfinished: judgement.unfinished,
        from_s: since_s(cut.cut_ns),
        until_s: since_s(cut.restored_ns).filter(|_| cut.restored_ns > 0),
    }
}

pub(super) fn calm_lateness<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Quantiles> {
    let calm = samples.filter(|sample| !sample.cuts.is_empty());
    let lateness = Histogram::from_buckets(calm.flat_map(|sample| &sample.receiver.rtt_ns));
    let at = |share| lateness.quantile_us(share);
    Some(Quantiles { p50: at(0.5)?, p99: at(0.99)?, max: lateness.max_us()? })
}

pub(super) fn stalls<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Stalls> {
    let all: Vec<_> = samples.filter_map(|sample| sample.receiver.stalls).collect();
    (!all.is_empty()).then(|| Stalls {
        count: all.iter().map(|stalls| stalls.count).sum(),
        longest_ms: ms(all.iter().map(|stalls| stalls.longest_ns).max().unwrap_or(0)),
        sum_ms: ms(all.iter().map(|stalls| stalls.sum_ns).sum()),
    })
}

pub(super) fn ideal<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Ideal> {
    let all: Vec<Option<&LoneTimes>> = samples.map(|sample| sample.sender.lone.as_ref()).collect();
    let spread = |value: fn(&LoneTimes) -> f64| Spread::over(all.iter().map(|times| times.map(value)));
    let sum = |value: fn(&LoneTimes) -> u64| all.iter().flatten().map(|times| value(times)).sum();
    Some(Ideal {
        base_us: spread(|times| times.base_ns / 1e3)?,
        ideal_us: spread(|times| times.ideal_ns / 1e3)?,
        to_ideal: spread(|times| times.to_ideal)?,
        messages: sum(|times| times.messages),
        not_emptied: sum(|times| times.not_emptied),
    })
}

pub(super) fn idle<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Idle> {
    let all: Vec<&Sample> = samples.collect();
    let spread = |value: fn(&IdleCost) -> f64| sides(&all, |side| side.idle.as_ref().map(value));
    Some(Idle {
        resident_mib: spread(|cost| mib(cost.resident_bytes))?,
        private_mib: spread(|cost| mib(cost.private_bytes))?,
        cpu_percent: spread(|cost| cost.cpu_percent)?,
        wakeups_per_s: spread(|cost| cost.wakeups_per_s)?,
    })
}

pub(super) fn sharing<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Sharing> {
    let shares: Vec<Vec<f64>> = samples.map(of_pairs).collect();
    let spread =
        |value: &dyn Fn(&[f64]) -> Option<f64>| Spread::over(shares.iter().map(|shares| value(shares)));
    let least = |shares: &[f64]| shares.iter().copied().reduce(f64::min);
    let most = |shares: &[f64]| shares.iter().copied().reduce(f64::max);
    Some(Sharing { fairness: spread(&fairness)?, least_mbps: spread(&least)?, most_mbps: spread(&most)? })
}

/// Throughput of each pair in Mbit/s; of one pair alone nothing.
pub(super) fn of_pairs(sample: &Sample) -> Vec<f64> {
    match sample.further.as_slice() {
        [] => Vec::new(),
        _ => sample.pairs().filter_map(|(_, receiver)| super::mbps(receiver)).collect(),
    }
}

/// Jain's index (R. Jain, D. Chiu, W. Hawe, 1984).
pub(super) fn fairness(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

pub(super) fn memory<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Sides<Memory>> {
    let all: Vec<&Sample> = samples.collect();
    let spread = |value: fn(&MemoryUse) -> Option<u64>| {
        sides(&all, |side| side.memory.as_ref().and_then(value).map(mib))
    };
    let (start, max) = (spread(|m| Some(m.start_bytes))?, spread(|m| Some(m.bytes_max))?);
    let (sender, receiver) = spread(|m| m.blocked_bytes_max).map(|b| (b.sender, b.receiver)).unzip();
    Some(Sides {
        sender: Memory { start: start.sender, blocked: sender, max: max.sender },
        receiver: Memory { start: start.receiver, blocked: receiver, max: max.receiver },
    })
}

/// How long the sender stood still, in seconds.
pub(super) fn blocked_s(sample: &Sample) -> Option<f64> {
    (sample.sender.blocked_ns > 0).then(|| sample.sender.blocked_ns as f64 / 1e9)
}

/// The most bytes that were taken from a sender before it stood still.
pub(super) fn sent_before_block<'a>(samples: impl Iterator<Item = &'a Sample>, size: usize) -> Option<u64> {
    samples.map(|sample| sample.sender.messages * size as u64).max()
}

fn sides(samples: &[&Sample], value: impl Fn(&SideReport) -> Option<f64>) -> Option<Sides<Spread>> {
    let spread =
        |side: fn(&Sample) -> &SideReport| Spread::over(samples.iter().map(|sample| value(side(sample))));
    Some(Sides { sender: spread(|sample| &sample.sender)?, receiver: spread(|sample| &sample.receiver)? })
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares_and_a_part_of_it_where_one_has_all() {
        assert_eq!(fairness(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(fairness(&[4.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_lowest_and_the_middle_of_shares_occurred_and_the_aim_itself_is_reached() {
        let shares = Shares::of(&[0.97, 0.95, 0.2, 0.9499], 0.95).unwrap();
        assert_eq!((shares.low, shares.p50, shares.below_aim), (0.2, 0.9499, 2));
        assert!(Shares::of(&[], 0.95).is_none() && Reuses::of(&[]).is_none());
        let reuses = Reuses::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!((reuses.p50, reuses.p90, reuses.max), (3.0, 5.0, 5.0));
    }

    #[test]
    fn gaps_of_an_older_document_are_read() {
        let old = r#"{"kind":"carrier","cuts":1,"gap_ms":{"p50":1,"p99":1,"max":1},"gap_net_ms":{"p50":1,"p99":1,"max":1}}"#;
        let gaps: Gaps = serde_json::from_str(old).unwrap();
        assert!(gaps.goodput_mbps.is_none() && gaps.reuse_ms.is_none() && gaps.not_reused.is_none());
    }
}
