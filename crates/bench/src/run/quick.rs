//! What this machine can do, in under three minutes: a few measurements that say most, one page.
//!
//! Where something is refused (namespaces, links that are shaped) or time runs short, the rest is measured all the same, and the page
//! says what is missing and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Run, report, select, stop_on_signals};
use crate::args::{BenchArgs, FailoverArgs, Placement, Plan, QuickArgs};
use crate::failover::Kind;
use crate::netns::reexecute_unprivileged;
use crate::report::{Report, Source};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// One of the measurements.
struct Part {
    /// What it is about, for a person.
    about: &'static str,
    /// About how long it takes on a machine that does nothing else, in s.
    expected_s: f64,
    args: BenchArgs,
}

/// Measures, writes the page and says where it is.
pub(super) fn measure(args: &QuickArgs) -> Report {
    // Found out before anything is measured, as nobody wants to know it after three minutes.
    if let Err(error) = super::keep::is_writable(&args.output) {
        let path = args.output.display();
        return Report::refused(format!(
            "--output {path}: {error}: name a file in a folder that you may write to"
        ));
    }
    let refused =
        if rustix::process::geteuid().is_root() { None } else { Some(reexecute_unprivileged().to_string()) };
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let (report, left_out) = all(args, refused.as_deref(), &stop);
    let mut report = report;
    left_out.iter().for_each(|text| eprintln!("{text}"));
    report.add_notes(left_out.iter().cloned());
    report.conclude(&[]);
    let source = Source::measured("bench quick", &report);
    let page = report::page(vec![source], left_out);
    match report::write(&args.output, &page.render()) {
        Ok(()) => eprintln!("\n{} is written: open it in a browser", args.output.display()),
        Err(error) => report.set_error(error),
    }
    report
}

/// Every part that can be had in the time there is, and what was left out.
fn all(args: &QuickArgs, refused: Option<&str>, stop: &Arc<AtomicBool>) -> (Report, Vec<String>) {
    let (mut report, mut left_out) = (Report::new(), Vec::new());
    let (begun, limit) = (Instant::now(), Duration::from_secs(args.limit.into()));
    let (mut plans, mut expected_so_far) = (Vec::new(), 0.0);
    let parts = parts();
    let count = parts.len();
    for (number, part) in (1..).zip(parts) {
        let is_between = part.args.placement != [Placement::Intra];
        if let Some(reason) = refused.filter(|_| is_between) {
            left_out.push(format!("{} was left out, for it needs network namespaces: {reason}", part.about));
            continue;
        }
        // A machine that was slow so far is slow.
        let pace = if expected_so_far > 0.0 {
            (begun.elapsed().as_secs_f64() / expected_so_far).max(1.0)
        } else {
            1.0
        };
        let ends = begun.elapsed() + Duration::from_secs_f64(part.expected_s * pace);
        if ends > limit {
            left_out.push(format!(
                "{} was left out: {} s are too short for it here; --limit gives more",
                part.about, args.limit
            ));
            continue;
        }
        eprintln!("{number} of {count}: {} (about {:.0} s)", part.about, part.expected_s * pace);
        expected_so_far += part.expected_s;
        let plan = match part.args.plan() {
            Ok(plan) => plan,
            Err(error) => return (Report::refused(error), left_out),
        };
        let ended = one(report, &plan, stop);
        report = ended.0;
        plans.push(plan);
        if stop.load(Ordering::Relaxed) {
            report.set_error("interrupted".to_owned());
            break;
        }
        left_out.extend(ended.1.err().map(|error| format!("{} could not be measured: {error}", part.about)));
    }
    report.set_plans(&plans);
    (report, left_out)
}

/// One part; what it measured until an error stays.
fn one(report: Report, plan: &Plan, stop: &Arc<AtomicBool>) -> (Report, Result<(), String>) {
    let protocols = match select(plan) {
        Ok(protocols) => protocols,
        Err(error) => return (report, Err(error)),
    };
    let stop = stop.clone();
    let (peers, repetitions) = (Vec::new(), 0..plan.repeat);
    let mut run = Run { report, plan, protocols, peers, stop, far: None, journal: None, repetitions };
    let ended = run.environments();
    (run.report, ended)
}

/// The measurements, those that say most first.
fn parts() -> Vec<Part> {
    let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
    let within = |workload, protocols: &str, sizes: &str, wait| BenchArgs {
        workload: Some(workload),
        placement: vec![Placement::Intra],
        protocol: words(protocols),
        size: words(sizes),
        wait: vec![wait],
        warmup: Some(0.05),
        duration: Some(0.12),
        repeat: Some(REPEAT),
        ..BenchArgs::default()
    };
    let between = |workload, links, protocols: &str, sizes: &str| BenchArgs {
        placement: Vec::new(),
        links: Some(links),
        rate: words("1000"),
        ..within(workload, protocols, sizes, WaitMode::Spin)
    };
    let cuts = BenchArgs {
        workload: Some(Workload::Failover),
        protocol: words("polyrail,mptcp"),
        failover: FailoverArgs {
            cuts: Some(4),
            kind: vec![Kind::Carrier],
            outage: Some(0.3),
            pause: Some(1.0),
            ..FailoverArgs::default()
        },
        ..BenchArgs::default()
    };
    let part = |about, expected_s, args| Part { about, expected_s, args };
    let (spin, block) = (WaitMode::Spin, WaitMode::Block);
    let near = "polyrail,polyrail-attached,tcp-nodelay,unix-stream,cacheline";
    let far = "polyrail,polyrail-attached,tcp-cubic,unix-stream";
    vec![
        part("round trips on this machine", 20.0, within(Workload::PingPong, near, "64", spin)),
        part(
            "bulk over two links of 1 Gbit/s",
            20.0,
            between(Workload::Stream, 2, "polyrail,mptcp,tcp-cubic", "64K,1M"),
        ),
        part("links that are cut beneath traffic", 26.0, cuts),
        part("bulk on this machine", 32.0, within(Workload::Stream, far, "4K,64K,1M", spin)),
        part(
            "round trips over a link of 1 Gbit/s",
            10.0,
            between(Workload::PingPong, 1, "polyrail,udp,tcp-nodelay", "64"),
        ),
        part(
            "connecting on this machine",
            7.0,
            within(Workload::Transact, "polyrail,tcp-nodelay", "128", block),
        ),
    ]
}

/// As few as have an interval.
const REPEAT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_a_plan_and_all_of_them_fit_into_the_time() {
        let parts = parts();
        for part in &parts {
            let plan = part.args.plan().unwrap();
            assert!(select(&plan).is_ok(), "{}", part.about);
        }
        let sum: f64 = parts.iter().map(|part| part.expected_s).sum();
        assert!(sum < 150.0, "{sum} s leave nothing for a slower machine");
        let within = parts.iter().filter(|part| part.args.placement == [Placement::Intra]);
        assert!(within.count() >= 3, "there is something to measure without namespaces");
    }
}
