//! Findings of a plan, held against the rows of a report.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::table::short;
use super::{Case, Report, Series, cpu_s_per_gb, figures, mbps, messages_per_s, throughput_mbps, times};
use crate::args::Plan;
use crate::plans::{Figure, FindingRow, Measured, PlanFile, Verdict, judge};
use crate::run::{Sample, select};

/// Conditions of a row, by name.
type Conditions = Vec<(&'static str, Value)>;

impl Report {
    /// Decides what a plan asks by what was measured, and names the plan.
    pub(crate) fn decide(&mut self, plan: &PlanFile) {
        self.document.title = Some(plan.title.clone());
        self.document.findings = judge(plan, self);
    }
}

impl Measured for Report {
    fn rows(&self) -> Vec<Conditions> {
        self.document.results.iter().map(super::document::Row::conditions).collect()
    }

    fn figure(&self, row: usize, figure: Figure) -> BTreeMap<u32, f64> {
        let series = &self.series[row];
        series.by_repetition(|sample| of_sample(series, figure, sample))
    }

    fn unavailable(&self, protocol: &str) -> Option<String> {
        let entries = self.document.unavailable.iter().filter(|entry| entry.protocol == protocol);
        let reasons: Vec<&str> = entries.map(|entry| entry.reason.as_str()).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

fn of_sample(series: &Series, figure: Figure, sample: &Sample) -> Option<f64> {
    let workload = series.case.workload;
    match figure {
        Figure::Throughput => throughput_mbps(sample),
        Figure::Rate => messages_per_s(workload)(sample),
        Figure::Latency => times(workload, sample).quantile_us(0.5),
        Figure::LeastOfPairs => {
            figures::of_pairs(sample).into_iter().reduce(f64::min).or_else(|| mbps(&sample.receiver))
        }
        Figure::SenderCpu => cpu_s_per_gb(sample, sample.pairs().map(|(sender, _)| sender)),
        Figure::ReceiverCpu => cpu_s_per_gb(sample, sample.pairs().map(|(_, receiver)| receiver)),
        Figure::MachineCpu => series.machine_s_per_gb(sample),
    }
}

/// Conditions of all rows that a plan measures where every protocol can run.
///
/// # Errors
/// Options or protocols that make no sense, or two rows that would be the same, with their line.
pub(crate) fn planned_conditions(file: &PlanFile) -> Result<Vec<Conditions>, String> {
    let mut all: Vec<Conditions> = Vec::new();
    for (plan, measurement) in file.plans()?.iter().zip(&file.measurements) {
        for row in of_plan(plan).map_err(|error| file.error_of(measurement, &error))? {
            if all.contains(&row) {
                let error = "another measurement of the plan has the same rows: leave out one of them";
                return Err(file.error_of(measurement, error));
            }
            all.push(row);
        }
    }
    Ok(all)
}

fn of_plan(plan: &Plan) -> Result<Vec<Conditions>, String> {
    let mut rows = Vec::new();
    for protocol in select(plan)? {
        for environment in &plan.environments {
            let of = |point| Series::new(Case::new(plan, protocol, environment, point)).row().conditions();
            rows.extend(plan.points.iter().map(of));
        }
    }
    Ok(rows)
}

/// The findings for a terminal: what was found, what was published, what is measured, and the verdict.
pub(super) fn render(text: &mut String, findings: &[FindingRow]) {
    let mut told = "";
    for row in findings {
        if told != row.name {
            let source = row.source.as_deref().map_or(String::new(), |source| format!(" ({source})"));
            let _ = writeln!(text, "\n{}: {}{source}", row.name, row.says);
            told = &row.name;
        }
        let _ = writeln!(text, "  {}", line(row));
    }
    if !findings.is_empty() {
        let _ = writeln!(text, "\nfindings: {}", counts(findings));
    }
}

/// How many have which verdict.
pub(super) fn counts(findings: &[FindingRow]) -> String {
    let count = |verdict| findings.iter().filter(|row| row.verdict == verdict).count();
    let [holds, does_not, not_seen] = [Verdict::Holds, Verdict::DoesNotHold, Verdict::NotSeen].map(count);
    format!("{holds} hold, {does_not} do not hold, {not_seen} are not seen here")
}

/// The conditions that a verdict is for, in words; nothing where a finding has one verdict.
pub(super) fn place(row: &FindingRow) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::String(text) => text.clone(),
        value => format!("{name} {value}"),
    };
    row.at.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn line(row: &FindingRow) -> String {
    let place = place(row);
    let at = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let measured = row.measured.as_ref().map_or(String::new(), |ratio| {
        let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(short);
        let claim = row.claim.as_deref().map_or(String::new(), |claim| format!(", has to be {claim}"));
        let published =
            row.published.map_or(String::new(), |number| format!(", published {}", short(number)));
        format!(", {median} (95 %: {low} to {high}, {} rounds){published}{claim}", ratio.pairs)
    });
    let published = match (&row.measured, row.published) {
        (None, Some(number)) => format!(", published {}", short(number)),
        _ => String::new(),
    };
    let why = row.why.as_deref().map_or(String::new(), |why| format!(": {why}"));
    format!("{at}{}{measured}{published}{why}", row.verdict.words())
}

#[cfg(test)]
mod tests;
