//! Which of several candidates is chosen, and what their samples show.

use serde::Serialize;

use crate::stats::{Spread, median, paired_ratio, shift};

/// A difference smaller than this is none that anybody should change something for.
const MATTERS: f64 = 0.02;
/// Fewer samples are a first look: what has no more is not chosen beside what has.
const SAMPLES_MIN: usize = 5;
/// A fixed seed: the same samples give the same interval.
const SEED: u64 = 1;

/// Which values are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Lower,
    Higher,
}

/// Something that can be chosen, or is told beside what can.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// By repetition.
    pub(super) values: Vec<Option<f64>>,
    /// Of which document it is. Samples of one document were taken in turns, repetition by repetition, if `in_turns`.
    pub(super) document: usize,
    pub(super) in_turns: bool,
    /// The simpler one has the lower rank.
    pub(super) rank: usize,
    /// Why it is told and not chosen.
    pub(super) not_for_choice: Option<&'static str>,
    /// Cores that both sides kept busy, where that was measured.
    pub(super) cores_used: Option<f64>,
}

/// A ratio with its interval. An end that is infinite is not known, and null in JSON.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What was measured of a candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Evidence {
    pub(super) name: String,
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) samples: usize,
    /// How much worse than the chosen one: 2 is half as good.
    pub(super) worse_by: Ratio,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cores_used: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_for_choice: Option<&'static str>,
}

/// What is chosen, and why.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Choice {
    pub(super) choice: String,
    /// What has the best median.
    pub(super) best: String,
    /// Whether what is chosen is shown to be better than what is simpler, or than all others if nothing is.
    pub(super) stands_out: bool,
    /// The best first.
    pub(super) evidence: Vec<Evidence>,
}

/// Chooses: the simplest of those that are not shown to be worse than the best. None of fewer than two candidates for choice.
pub(super) fn choose(mut candidates: Vec<Candidate>, better: Better) -> Option<Choice> {
    candidates.retain(|one| median(&present(one)).is_some_and(|middle| middle > 0.0));
    let most = candidates.iter().map(|one| present(one).len()).max().unwrap_or(0);
    for one in &mut candidates {
        if one.not_for_choice.is_none() && present(one).len() < SAMPLES_MIN.min(most) {
            one.not_for_choice = Some("looked at less often");
        }
    }
    // By what is better, whatever that is.
    let loss = |one: &Candidate| match (better, median(&present(one)).unwrap_or(f64::NAN)) {
        (Better::Lower, middle) => middle,
        (Better::Higher, middle) => 1.0 / middle,
    };
    candidates.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    let open: Vec<&Candidate> = candidates.iter().filter(|one| one.not_for_choice.is_none()).collect();
    let (best, _) = open.split_first().filter(|(_, others)| !others.is_empty())?;
    let is_worse = |one: &Candidate, than: &Candidate| shows_worse(worse_by(one, than, better));
    let chosen = open.iter().filter(|one| !is_worse(one, best)).min_by_key(|one| one.rank)?;
    let others = open.iter().filter(|one| one.name != chosen.name);
    let simpler = others.clone().filter(|one| one.rank < chosen.rank);
    let stands_out = if simpler.clone().next().is_some() {
        simpler.clone().all(|one| is_worse(one, chosen))
    } else {
        others.clone().all(|one| is_worse(one, chosen))
    };
    let evidence = candidates.iter().filter_map(|one| evidence(one, chosen, better)).collect();
    Some(Choice { choice: chosen.name.clone(), best: best.name.clone(), stands_out, evidence })
}

fn present(one: &Candidate) -> Vec<f64> {
    one.values.iter().flatten().copied().collect()
}

/// Whether a ratio shows that something is worse, and by as much as matters.
pub(super) fn shows_worse(worse_by: Ratio) -> bool {
    worse_by.low > 1.0 && worse_by.ratio > 1.0 + MATTERS
}

/// By how much `one` is worse than `than`.
pub(super) fn worse_by(one: &Candidate, than: &Candidate, better: Better) -> Ratio {
    let (first, second) = match better {
        Better::Lower => (one, than),
        Better::Higher => (than, one),
    };
    if one.document == than.document && one.in_turns && than.in_turns {
        let pairs = first.values.iter().zip(&second.values);
        let pairs: Vec<(f64, f64)> = pairs.filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
        if let Some(ratio) = paired_ratio(&pairs, SEED) {
            return Ratio { ratio: ratio.median, low: ratio.low, high: ratio.high };
        }
    }
    let (first, second) = (present(first), present(second));
    if let Some(shift) = shift(&second, &first, SEED) {
        return Ratio { ratio: shift.ratio, low: shift.low, high: shift.high };
    }
    by_ranges(&first, &second)
}

/// Too few samples for an interval: the least and the most that any two of them say.
fn by_ranges(first: &[f64], second: &[f64]) -> Ratio {
    let ends = |values: &[f64]| Spread::of(values).map(|all| (all.low, all.median, all.high));
    match (ends(first), ends(second)) {
        (Some(a), Some(b)) => Ratio { ratio: a.1 / b.1, low: a.0 / b.2, high: a.2 / b.0 },
        _ => Ratio { ratio: 1.0, low: 0.0, high: f64::INFINITY },
    }
}

fn evidence(one: &Candidate, chosen: &Candidate, better: Better) -> Option<Evidence> {
    let all = Spread::of(&present(one))?;
    Some(Evidence {
        name: one.name.clone(),
        median: all.median,
        low: all.low,
        high: all.high,
        samples: all.samples,
        worse_by: worse_by(one, chosen, better),
        cores_used: one.cores_used,
        not_for_choice: one.not_for_choice,
    })
}
