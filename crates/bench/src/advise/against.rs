//! Advice held against a sweep: what was chosen, by what the best of everything measured there reaches.

use serde::Serialize;
use serde_json::{Map, Value};

use super::choice::{Better, Candidate, Ratio, worse_by};
use super::question::{Finding, Question, figure, groups};
use crate::report::Measured;
use crate::stats::median;

/// A choice and what the sweep says of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Held {
    pub(super) question: Question,
    pub(super) conditions: Map<String, Value>,
    pub(super) choice: String,
    /// The best of what the sweep measured and could have been chosen.
    pub(super) best: String,
    /// By how much the choice is worse: 1 is the best itself.
    pub(super) worse_by: Ratio,
}

/// Each finding that the sweep has the conditions of, and the choice of.
pub(super) fn held(findings: &[Finding], sweep: &[Measured]) -> Vec<Held> {
    let one = |finding: &Finding| {
        let groups = groups(finding.question, sweep);
        let group = groups.iter().find(|group| group.key == finding.conditions)?;
        let (_, better, _) = figure(group.rows.first()?.1)?;
        let candidates = group.candidates();
        let chosen = candidates.iter().find(|one| one.name == finding.choice.choice)?;
        let best = candidates
            .iter()
            .filter(|one| one.not_for_choice.is_none())
            .min_by(|a, b| loss(a, better).total_cmp(&loss(b, better)))?;
        Some(Held {
            question: finding.question,
            conditions: finding.conditions.clone(),
            choice: chosen.name.clone(),
            best: best.name.clone(),
            worse_by: worse_by(chosen, best, better),
        })
    };
    findings.iter().filter_map(one).collect()
}

/// Smaller is better; what has no values is worst.
fn loss(one: &Candidate, better: Better) -> f64 {
    let values: Vec<f64> = one.values.iter().flatten().copied().collect();
    match (better, median(&values)) {
        (_, None) => f64::INFINITY,
        (Better::Lower, Some(middle)) => middle,
        (Better::Higher, Some(middle)) => 1.0 / middle,
    }
}
