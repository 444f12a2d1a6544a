//! `sim`: replays one seed, runs many, or proves that the checks find planted faults.

#![forbid(unsafe_code)]

use clap::Parser;
use polyrail_sim::engine_node::{self, Options};
use polyrail_sim::runner::{self, Summary};
use polyrail_sim::swarm;
use polyrail_sim::world::Outcome;
use std::process::ExitCode;

const EXAMPLES: &str = "Examples:
  sim 1234                       run seed 1234 again and say what was wrong
  sim 1234 --trace               the same, with everything that happened
  sim --seeds 20000              seeds 0..20000 on two threads; failures and coverage
  sim --seeds 500 --from 20000   the next 500
  sim --seeds 100 --json         the result as JSON
  sim --planted                  plant each known fault until a seed finds it (feature `planted`)
  sim --planted --fault Credit   only the faults with `Credit` in their names

Exit code: 0 all good, 1 something was found (or a planted fault was not), 2 wrong usage.";

/// Whole clusters of real engines in one deterministic process: every seed draws its own cluster, faults and load.
#[derive(Parser, Debug)]
#[command(name = "sim", version, after_help = EXAMPLES)]
struct Args {
    /// Run this seed, twice, and compare the two runs.
    #[arg(conflicts_with_all = ["seeds", "planted"], required_unless_present_any = ["seeds", "planted"])]
    seed: Option<u64>,
    /// Print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run so many seeds.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// First seed.
    #[arg(long, value_name = "M", default_value_t = 0)]
    from: u64,
    /// Threads; each seed stays on one.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Plant each known fault and count the seeds until it is found.
    #[arg(long, conflicts_with = "seeds")]
    planted: bool,
    /// With `--planted`: only the faults whose names contain this.
    #[arg(long, value_name = "NAME", default_value = "")]
    fault: String,
    /// With `--planted`: give a fault up after so many seeds.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    limit: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let good = match (args.seed, args.seeds) {
        (Some(seed), _) => one(&args, seed),
        (None, Some(seeds)) => many(&args, seeds),
        (None, None) => planted(&args),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed; true if nothing was found.
fn one(args: &Args, seed: u64) -> bool {
    let trace = args.trace;
    let mut plan = swarm::draw(seed);
    println!("{plan:#?}");
    plan.trace = trace;
    let mut outcome = runner::run_plan(plan, engine_node::factory(Options::default()));
    if !trace {
        runner::compare(&mut outcome, &|| engine_node::factory(Options::default()));
    }
    print!("{}", outcome.coverage.table());
    let (accepted, delivered, failed) = outcome.totals;
    println!(
        "seed {seed}: {accepted} accepted, {delivered} delivered, {failed} failed, trace {:016x}",
        outcome.hash
    );
    print_violations(&outcome);
    outcome.violations.is_empty()
}

/// Runs many seeds; true if nothing was found.
fn many(args: &Args, seeds: u64) -> bool {
    let report = |outcome: &Outcome| {
        if !args.json {
            print_violations(outcome);
            println!("  repeat: sim {}", outcome.seed);
        }
    };
    quiet_panics();
    let factory = || engine_node::factory(Options::default());
    let summary = runner::run_seeds(args.from, seeds, args.jobs, &factory, &report);
    if args.json {
        println!("{}", json(&summary));
    } else {
        print!("{}", summary.coverage.table());
        let (accepted, delivered, failed) = summary.totals;
        println!(
            "{} seeds ({} of them twice): {} failed",
            summary.seeds,
            summary.twice,
            summary.failures.len()
        );
        println!("{accepted} messages accepted, {delivered} delivered, {failed} reported as failed");
    }
    summary.failures.is_empty()
}

/// A panic is reported with its seed; the usual message of each thread would only hide it.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn print_violations(outcome: &Outcome) {
    for violation in &outcome.violations {
        println!("seed {}: {violation}", outcome.seed);
    }
}

fn json(summary: &Summary) -> String {
    let failures: Vec<String> = summary
        .failures
        .iter()
        .map(|outcome| {
            let texts =
                outcome.violations.iter().map(|v| format!("\"{}\"", v.to_string().replace(['"', '\\'], "'")));
            format!("{{\"seed\":{},\"violations\":[{}]}}", outcome.seed, texts.collect::<Vec<_>>().join(","))
        })
        .collect();
    let (accepted, delivered, failed) = summary.totals;
    format!(
        "{{\"seeds\":{},\"twice\":{},\"accepted\":{accepted},\"delivered\":{delivered},\"failed\":{failed},\
         \"failures\":[{}],\"coverage\":{}}}",
        summary.seeds,
        summary.twice,
        failures.join(","),
        summary.coverage.json()
    )
}

/// Plants each fault until the check that is meant for it finds it; true if all were found.
#[cfg(feature = "planted")]
fn planted(args: &Args) -> bool {
    use polyrail_proto::planted::Planted;
    use std::sync::{Mutex, PoisonError};
    quiet_panics();
    println!("{:<26} {:>8}  found by", "fault", "seeds");
    let wanted = |fault: &Planted| format!("{fault:?}").contains(&args.fault);
    let faults = Mutex::new(Planted::ALL.into_iter().filter(wanted));
    let next = || faults.lock().unwrap_or_else(PoisonError::into_inner).next();
    // Whether all were found that one thread has planted.
    let search = || {
        let mut all = true;
        while let Some(fault) = next() {
            let found = find_planted(args, fault);
            all &= found.is_ok();
            let (seeds, by) = found.unwrap_or_else(|others| (args.limit, format!("NOT FOUND{others}")));
            println!("{:<26} {seeds:>8}  {by}", format!("{fault:?}"));
        }
        all
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.jobs.max(1)).map(|_| scope.spawn(search)).collect();
        threads.into_iter().fold(true, |all, thread| thread.join().is_ok_and(|found| found) && all)
    })
}

/// How many seeds it took, and what was found; or what else was.
#[cfg(feature = "planted")]
fn find_planted(args: &Args, fault: polyrail_proto::planted::Planted) -> Result<(u64, String), String> {
    // A seed that fails anyway proves nothing.
    let sound = || engine_node::factory(Options::default());
    let passes_without = |seed| runner::run_seed(seed, false, &sound).violations.is_empty();
    let factory = || engine_node::factory(Options { planted: Some(fault) });
    let meant = polyrail_sim::planted::meant_for(fault);
    let mut others = String::new();
    for seed in args.from..args.from + args.limit {
        let outcome = runner::run_seed(seed, false, &factory);
        let Some(first) = outcome.violations.first().filter(|_| passes_without(seed)) else { continue };
        match outcome.violations.iter().find(|violation| meant.contains(&violation.name)) {
            Some(violation) => return Ok((seed - args.from + 1, violation.to_string())),
            None if others.is_empty() => others = format!(" by {meant:?}, but seed {seed} by {first}"),
            None => {}
        }
    }
    Err(others)
}

#[cfg(not(feature = "planted"))]
fn planted(args: &Args) -> bool {
    println!(
        "this build can't plant {:?} (limit {}): build it with --features planted",
        args.fault, args.limit
    );
    false
}
