//! What is measured decides: a finding's figure with its interval, and the verdict that follows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::file::PlanFile;
use super::finding::{Claim, Figure, Finding, Question, Term};
use crate::stats::{Ratio, paired_ratio};

/// A finding, decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FindingRow {
    pub(crate) name: String,
    pub(crate) says: String,
    /// Where it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The conditions that this verdict is for, where there is one for each of several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) at: BTreeMap<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) figure: Option<Figure>,
    /// What was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) published: Option<f64>,
    /// The same, as measured here: the median over the rounds, and its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<Ratio>,
    /// Where the figure has to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    pub(crate) verdict: Verdict,
    /// Why it is not seen here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// What becomes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The whole interval is where it has to be.
    #[serde(rename = "holds")]
    Holds,
    /// The whole interval is elsewhere.
    #[serde(rename = "does not hold")]
    DoesNotHold,
    /// Neither can be told, for the reason that is given.
    #[serde(rename = "not seen here")]
    NotSeen,
}

impl Verdict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::NotSeen => "not seen here",
        }
    }
}

/// What was measured, as a finding asks for it.
pub(crate) trait Measured {
    /// Conditions of the rows, in their order.
    fn rows(&self) -> Vec<Vec<(&'static str, Json)>>;

    /// The figure of a row, by round.
    fn figure(&self, row: usize, figure: Figure) -> BTreeMap<u32, f64>;

    /// Why a protocol was not measured, if that is known.
    fn unavailable(&self, protocol: &str) -> Option<String>;
}

/// Fewest rounds that decide anything: the range of fewer covers the middle in less than 95 of 100 cases.
const ROUNDS_MIN: usize = 6;

/// Decides every finding of a plan.
pub(crate) fn judge(plan: &PlanFile, measured: &dyn Measured) -> Vec<FindingRow> {
    let rows = measured.rows();
    let known = names_of(&rows);
    let of_finding = |finding: &Finding| {
        let row = bare(plan, finding);
        if let Some(needs) = &finding.needs {
            return vec![FindingRow { why: Some(format!("needs {needs}")), ..row }];
        }
        // A plan that was loaded has passed these checks; where nothing was measured no condition is known.
        let (Ok((figure, claim)), Ok(questions)) = (finding.decides(), finding.questions(&known)) else {
            return vec![FindingRow { why: Some("nothing was measured".to_owned()), ..row }];
        };
        let one = |question: &Question| {
            let (verdict, ratio, why) = match products(question, figure, &rows, measured) {
                Ok(products) => decide(claim, &products),
                Err(why) => (Verdict::NotSeen, None, Some(why)),
            };
            FindingRow {
                at: question.at.clone(),
                figure: Some(figure),
                published: question.published,
                measured: ratio,
                claim: Some(claim.words()),
                verdict,
                why,
                ..row.clone()
            }
        };
        questions.iter().map(one).collect()
    };
    plan.findings.iter().flat_map(|finding| of_finding(finding.get_ref())).collect()
}

fn bare(plan: &PlanFile, finding: &Finding) -> FindingRow {
    FindingRow {
        name: finding.name.clone(),
        says: finding.says.clone(),
        source: finding.source.clone().or_else(|| plan.published_in.clone()),
        at: BTreeMap::new(),
        figure: None,
        published: None,
        measured: None,
        claim: None,
        verdict: Verdict::NotSeen,
        why: None,
    }
}

fn names_of(rows: &[Vec<(&'static str, Json)>]) -> Vec<&'static str> {
    rows.first().map_or(Vec::new(), |row| row.iter().map(|(name, _)| *name).collect())
}

/// The figure of each round in which all rows have one.
fn products(
    question: &Question,
    figure: Figure,
    rows: &[Vec<(&'static str, Json)>],
    measured: &dyn Measured,
) -> Result<Vec<f64>, String> {
    let mut products: Option<BTreeMap<u32, f64>> = None;
    for term in &question.terms {
        let row = rows.iter().position(|row| term.is_about(row)).ok_or_else(|| absent(term, measured))?;
        let powers = measured.figure(row, figure).into_iter().filter(|(_, value)| *value > 0.0);
        let powers: BTreeMap<u32, f64> =
            powers.map(|(round, value)| (round, value.powf(term.power))).collect();
        products = Some(match products {
            None => powers,
            Some(before) => before
                .into_iter()
                .filter_map(|(round, value)| Some((round, value * powers.get(&round)?)))
                .collect(),
        });
    }
    Ok(products.unwrap_or_default().into_values().collect())
}

fn absent(term: &Term, measured: &dyn Measured) -> String {
    let protocol = term.conditions.get("protocol").and_then(Json::as_str);
    match protocol.and_then(|name| Some((name, measured.unavailable(name)?))) {
        Some((name, reason)) => format!("{name}: {reason}"),
        None => format!("not measured: {}", term.words()),
    }
}

/// By the interval alone: its middle decides nothing.
fn decide(claim: Claim, products: &[f64]) -> (Verdict, Option<Ratio>, Option<String>) {
    let pairs: Vec<(f64, f64)> = products.iter().map(|product| (*product, 1.0)).collect();
    let Some(ratio) = paired_ratio(&pairs, 1) else {
        return (Verdict::NotSeen, None, Some("no round gave a figure for all of it".to_owned()));
    };
    if products.len() < ROUNDS_MIN {
        let why = format!("{} rounds decide nothing: --repeat {ROUNDS_MIN} at least", products.len());
        return (Verdict::NotSeen, Some(ratio), Some(why));
    }
    let (low, high) = (ratio.low, ratio.high);
    let (holds, fails) = match claim {
        Claim::Above(bound) => (low > bound, high <= bound),
        Claim::Below(bound) => (high < bound, low >= bound),
        Claim::Between(least, most) => (low >= least && high <= most, high < least || low > most),
    };
    match (holds, fails) {
        (true, _) => (Verdict::Holds, Some(ratio), None),
        (_, true) => (Verdict::DoesNotHold, Some(ratio), None),
        _ => {
            let more = 2 * products.len();
            let why = format!("the interval reaches over what decides ({}): --repeat {more}", claim.words());
            (Verdict::NotSeen, Some(ratio), Some(why))
        }
    }
}

/// Looks whether each finding is about rows that the plan measures, one for each of its terms.
///
/// # Errors
/// The finding, with its line.
pub(super) fn check(plan: &PlanFile) -> Result<(), String> {
    let rows = crate::report::planned_conditions(plan)?;
    let known = names_of(&rows);
    for finding in &plan.findings {
        let told = |error: String| {
            plan.error(&finding.span(), &format!("finding `{}`: {error}", finding.get_ref().name))
        };
        if finding.get_ref().needs.is_some() {
            continue;
        }
        finding.get_ref().decides().map_err(told)?;
        for question in finding.get_ref().questions(&known).map_err(told)? {
            for term in &question.terms {
                match rows.iter().filter(|row| term.is_about(row)).count() {
                    1 => {}
                    0 => return Err(told(format!("the plan measures nothing with {}", term.words()))),
                    n => {
                        return Err(told(format!(
                            "{n} of the plan's rows have {}: name more conditions",
                            term.words()
                        )));
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
