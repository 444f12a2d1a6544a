//! What curves of several workloads say together, in the terms of LogGP: a message of `n` bytes occupies the sending core for
//! `o`, is under way for `L`, each further byte adds `G`, and the next message may follow after `g`.
//!
//! No workload measures all four. What there is no measurement for is named with what would tell it, and never guessed.

use serde::Serialize;
use serde_json::{Map, Value};

use super::bootstrap::{Fitted, Interval};
use super::collect::Series;
use super::level::robust_middle;
use crate::report::said;
use crate::stats::{Prng, median};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// The parameters of one protocol under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LogGp {
    /// Those that its curves share.
    #[serde(flatten)]
    pub(super) conditions: Map<String, Value>,
    /// CPU time of the sender for a small message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) o_sender_us: Option<Interval>,
    /// The same of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) o_receiver_us: Option<Interval>,
    /// From one small message to the next, as fast as they go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) g_us: Option<Interval>,
    /// What each further byte of a long message adds.
    #[serde(rename = "G_ns_per_byte", skip_serializing_if = "Option::is_none")]
    pub(super) gap_ns_per_byte: Option<Interval>,
    /// The way, without what the cores do.
    #[serde(rename = "L_us", skip_serializing_if = "Option::is_none")]
    pub(super) latency_us: Option<Interval>,
    /// What is not known, and what would tell it.
    pub(super) unknown: Vec<String>,
}

/// A curve with its model.
pub(super) type Modelled<'a> = (&'a Series, &'a Fitted);

/// The parameters of each protocol and set of conditions that times answers, or one-way messages, or both.
pub(super) fn parameters(all: &[Modelled]) -> Vec<LogGp> {
    let shared = |series: &Series| {
        let mut conditions = series.conditions.clone();
        conditions.remove("workload");
        conditions
    };
    let mut groups: Vec<(Map<String, Value>, Vec<Modelled>)> = Vec::new();
    for modelled in all.iter().filter(|(series, _)| is_of_loggp(series.workload)) {
        let conditions = shared(modelled.0);
        match groups.iter_mut().find(|(known, _)| *known == conditions) {
            Some((_, group)) => group.push(*modelled),
            None => groups.push((conditions, vec![*modelled])),
        }
    }
    groups.into_iter().map(|(conditions, group)| of_group(conditions, &group)).collect()
}

fn is_of_loggp(workload: Workload) -> bool {
    matches!(workload, Workload::PingPong | Workload::Stream | Workload::Rate | Workload::Links)
}

fn of_group(conditions: Map<String, Value>, group: &[Modelled]) -> LogGp {
    let of = |workloads: &[Workload]| {
        group.iter().find(|(series, _)| workloads.contains(&series.workload)).copied()
    };
    let answers = of(&[Workload::PingPong]);
    let one_way = of(&[Workload::Stream, Workload::Links, Workload::Rate]);
    let small = of(&[Workload::Rate, Workload::Stream, Workload::Links]);
    let mut unknown = Vec::new();
    let g_us = small.and_then(|(_, fitted)| fitted.time_us(fitted.residuals.first()?.size_bytes).ok());
    if g_us.is_none() {
        unknown.push("g: takes messages one way, `bench stream --size 64..1M`".to_owned());
    }
    let gap = one_way.or(answers).and_then(|(_, fitted)| fitted.pieces.last());
    let gap = gap.filter(|piece| piece.shows_bandwidth()).map(|piece| piece.bandwidth_mbps);
    // An interval of a reciprocal has its ends the other way round.
    let gap =
        gap.map(|mbps| Interval { value: 8e3 / mbps.value, low: 8e3 / mbps.high, high: 8e3 / mbps.low });
    if gap.is_none() {
        unknown.push("G: takes longer messages, `bench stream --size 64..4M`".to_owned());
    }
    let overheads = small.or(one_way).and_then(|(series, _)| overheads(series));
    let spins = conditions.get("wait").and_then(Value::as_str) == Some(WaitMode::Spin.name());
    let (o_sender_us, o_receiver_us) = match overheads.filter(|_| !spins) {
        Some([sender, receiver]) => (Some(sender), Some(receiver)),
        None => {
            unknown.push(if spins {
                "o: a side that spins is busy whatever a message costs: measure with `--wait block`"
                    .to_owned()
            } else {
                "o: takes the CPU time of messages one way, `bench stream --size 64..1M --wait block`"
                    .to_owned()
            });
            (None, None)
        }
    };
    let start = answers.and_then(|(_, fitted)| fitted.pieces.first()).map(|piece| piece.t_start_us);
    let latency_us = latency(start, o_sender_us, o_receiver_us, &mut unknown);
    LogGp { conditions, o_sender_us, o_receiver_us, g_us, gap_ns_per_byte: gap, latency_us, unknown }
}

/// What is left of the time of a small message without what both cores do for it.
fn latency(
    start: Option<Interval>,
    sender: Option<Interval>,
    receiver: Option<Interval>,
    unknown: &mut Vec<String>,
) -> Option<Interval> {
    let Some(start) = start else {
        unknown.push("L: takes round trips, `bench pingpong --size 64..1M`".to_owned());
        return None;
    };
    let (Some(sender), Some(receiver)) = (sender, receiver) else {
        unknown
            .push(format!("L: is what o leaves of T_start; L and both o together are {:.2} us", start.value));
        return None;
    };
    let value = start.value - sender.value - receiver.value;
    // Errors of three separate measurements.
    let below = [start.value - start.low, sender.high - sender.value, receiver.high - receiver.value];
    let above = [start.high - start.value, sender.value - sender.low, receiver.value - receiver.low];
    let joint = |parts: [f64; 3]| parts.iter().map(|part| part * part).sum::<f64>().sqrt();
    if value <= 0.0 {
        unknown.push(
            "L: both o together are more than T_start: what the cores are charged with is not all on a message's way".to_owned(),
        );
        return None;
    }
    Some(Interval { value, low: value - joint(below), high: value + joint(above) })
}

/// CPU time of each side for a small message.
fn overheads(series: &Series) -> Option<[Interval; 2]> {
    let (_, [sender, receiver]) = series.cpu_us.as_ref()?;
    Some([middle(sender)?, middle(receiver)?])
}

/// Rounds of drawing.
const ROUNDS: usize = 400;

/// The middle of few values above zero, and its interval.
fn middle(values: &[f64]) -> Option<Interval> {
    let logarithms: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    let at = median(&logarithms)?;
    let distances: Vec<f64> = logarithms.iter().map(|value| (value - at).abs()).collect();
    let scatter = (1.4826 * median(&distances)?).max(super::level::SCATTER_MIN);
    let value = robust_middle(&logarithms, scatter).exp();
    let mut random = Prng::new(1);
    let drawn = (0..ROUNDS).map(|_| {
        let drawn: Vec<f64> = logarithms.iter().map(|_| logarithms[random.below(logarithms.len())]).collect();
        robust_middle(&drawn, scatter).exp()
    });
    Some(Interval::of(value, drawn.collect()))
}

impl LogGp {
    /// What it is of, for people.
    pub(super) fn name(&self) -> String {
        said(&self.conditions)
    }
}
