//! A plan: several measurements in rounds, one report of all, and what becomes of its findings.
//!
//! Each round measures everything once. So what a finding divides by each other was measured near in time, however many other
//! rows there are, and a run that is cut short has a little of everything.

use std::time::Duration;

use super::{Run, emit, enter, finish, keep, select, stop_on_signals};
use crate::args::{NamedArgs, Plan};
use crate::clock::now_ns;
use crate::plans::PlanFile;
use crate::protocol::Protocol;
use crate::report::Report;

/// A measurement's plan and the protocols that take part.
type Part = (Plan, Vec<&'static dyn Protocol>);

/// Shows a plan or measures what it says, and gives the exit code.
pub(super) fn run(args: &NamedArgs, json: bool) -> i32 {
    match args.shown() {
        Some(Ok(text)) => return emit(text, 0),
        Some(Err(error)) => return finish(json, false, &Report::refused(error)),
        None => {}
    }
    let document = match args.document.as_deref().map(|path| keep::prepared("--document", path)).transpose() {
        Ok(document) => document,
        Err(error) => return finish(json, false, &Report::refused(error)),
    };
    let plans = args.plan().and_then(|file| file.plans());
    if plans.is_ok_and(|plans| plans.iter().any(Plan::needs_testbed))
        && let Some(report) = enter()
    {
        return finish(json, false, &report);
    }
    let mut report = measure(args);
    if let Some(path) = document.filter(|_| !report.is_refused())
        && let Err(error) = keep::replace(&path, &report.json())
    {
        report.set_error(format!("--document {}: {error}", path.display()));
    }
    finish(json, false, &report)
}

/// Measures all of it. What goes wrong is part of the report.
pub(super) fn measure(args: &NamedArgs) -> Report {
    let (file, parts) = match args.plan().and_then(|file| Ok((parts(&file)?, file))) {
        Ok((parts, file)) => (file, parts),
        Err(error) => return Report::refused(error),
    };
    let plans: Vec<Plan> = parts.iter().map(|(plan, _)| plan.clone()).collect();
    let mut report = Report::new();
    report.set_plans(&plans);
    report = rounds(&file, &parts, report);
    if file.measurements.iter().any(|one| one.args.model) {
        report.show_model();
    }
    report.conclude(plans.first().map_or(&[], |plan| &plan.versus));
    report.decide(&file);
    report
}

fn parts(file: &PlanFile) -> Result<Vec<Part>, String> {
    let of = |(plan, measurement)| match select(&plan) {
        Ok(protocols) => Ok((plan, protocols)),
        Err(error) => Err(file.error_of(measurement, &error)),
    };
    file.plans()?.into_iter().zip(&file.measurements).map(of).collect()
}

fn rounds(file: &PlanFile, parts: &[Part], mut report: Report) -> Report {
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let (begun_ns, count) = (now_ns(), parts.len());
    for round in 0..file.repeat {
        for (number, (plan, protocols)) in parts.iter().enumerate() {
            let done = round as usize * count + number;
            eprintln!(
                "round {} of {}, {} of {count}: {}{}",
                round + 1,
                file.repeat,
                number + 1,
                plan.workload.name(),
                left(now_ns() - begun_ns, done, file.repeat as usize * count)
            );
            let (protocols, stop, repetitions) = (protocols.clone(), stop.clone(), round..round + 1);
            let peers = Vec::new();
            let mut run = Run { report, plan, protocols, peers, stop, far: None, journal: None, repetitions };
            let ended = run.environments();
            report = run.report;
            if let Err(error) = ended {
                report.set_error(error);
                return report;
            }
        }
    }
    report
}

/// How long the rest will take, by how long what is done took; nothing before a whole measurement is done.
fn left(took_ns: u64, done: usize, all: usize) -> String {
    if done == 0 {
        return String::new();
    }
    let rest_ns = u128::from(took_ns) * (all - done) as u128 / done as u128;
    let rest = Duration::from_nanos(u64::try_from(rest_ns).unwrap_or(u64::MAX));
    match rest.as_secs() {
        0..=90 => format!(", about {} s left", rest.as_secs()),
        seconds => format!(", about {} min left", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_cannot_be_written_is_told_before_anything_is_measured() {
        let args = crate::args::tests::parse("plan mnc --document /no/such/folder/x.json").unwrap();
        let Some(crate::args::BenchCommand::Plan(args)) = args.command else { panic!("{args:?}") };
        assert_eq!(run(&args, false), 2);
    }

    #[test]
    fn what_is_left_is_told_once_something_is_done() {
        let second = 1_000_000_000;
        assert_eq!(left(5 * second, 0, 10), "");
        assert_eq!(left(5 * second, 5, 10), ", about 5 s left");
        assert_eq!(left(600 * second, 5, 20), ", about 30 min left");
    }
}
