//! Many seeds on several threads; each seed stays single-threaded.

use crate::check::Violation;
use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::swarm;
use crate::world::{Factory, Outcome, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Every so many seeds, one is run twice and its traces are compared (I14).
const TWICE_EVERY: u64 = 16;

/// What many seeds showed.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Seeds run twice.
    pub twice: u64,
    /// The outcomes that had violations, by seed.
    pub failures: Vec<Outcome>,
    /// Everything reached.
    pub coverage: Coverage,
    /// Sends accepted, delivered, failed.
    pub totals: (u64, u64, u64),
}

/// Runs a plan; a panic in it is a violation of I15.
pub fn run_plan(plan: Plan, factory: Factory) -> Outcome {
    let seed = plan.seed;
    catch_unwind(AssertUnwindSafe(|| World::new(plan, factory).run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = format!("panic: {}", text.unwrap_or_default());
        Outcome {
            seed,
            hash: 0,
            violations: vec![Violation { name: "I15", at_ns: 0, what }],
            totals: (0, 0, 0),
            virtual_ns: 0,
            coverage: Coverage::default(),
        }
    })
}

/// Runs a seed; `twice` compares a second run of it with the first (I14).
pub fn run_seed(seed: u64, twice: bool, factory: &dyn Fn() -> Factory) -> Outcome {
    let mut outcome = run_plan(swarm::draw(seed), factory());
    if twice {
        compare(&mut outcome, factory);
    }
    outcome
}

/// Runs the seed of `outcome` again and compares (I14).
pub fn compare(outcome: &mut Outcome, factory: &dyn Fn() -> Factory) {
    let again = run_plan(swarm::draw(outcome.seed), factory());
    if again.hash != outcome.hash {
        let what = format!("two runs differ: {:016x} and {:016x}", outcome.hash, again.hash);
        outcome.violations.push(Violation { name: "I14", at_ns: outcome.virtual_ns, what });
    }
}

/// Runs seeds `from..from + count` on `jobs` threads. `report` is called for each failure as it is found.
pub fn run_seeds(
    from: u64,
    count: u64,
    jobs: usize,
    factory: &(dyn Fn() -> Factory + Sync),
    report: &(dyn Fn(&Outcome) + Sync),
) -> Summary {
    let next = Mutex::new(0..count);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut own = Summary::default();
                loop {
                    let index = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(index) = index else { break };
                    let seed = from + index;
                    let twice = seed.is_multiple_of(TWICE_EVERY);
                    let outcome = run_seed(seed, twice, factory);
                    own.take(outcome, twice, report);
                }
                summary.lock().unwrap_or_else(PoisonError::into_inner).merge(own);
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|outcome| outcome.seed);
    summary
}

impl Summary {
    fn take(&mut self, outcome: Outcome, twice: bool, report: &dyn Fn(&Outcome)) {
        self.seeds += 1;
        self.twice += u64::from(twice);
        self.coverage.merge(&outcome.coverage);
        self.totals.0 += outcome.totals.0;
        self.totals.1 += outcome.totals.1;
        self.totals.2 += outcome.totals.2;
        if !outcome.violations.is_empty() {
            report(&outcome);
            self.failures.push(outcome);
        }
    }

    fn merge(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.twice += other.twice;
        self.failures.extend(other.failures);
        self.coverage.merge(&other.coverage);
        self.totals.0 += other.totals.0;
        self.totals.1 += other.totals.1;
        self.totals.2 += other.totals.2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{self, Flaw};

    #[test]
    fn a_panic_is_a_failure_of_its_seed_only() {
        let factory = || -> Factory { Box::new(|_, _, _| panic!("on purpose")) };
        let outcome = run_seed(5, false, &factory);
        assert_eq!(outcome.violations[0].name, "I15");
        assert!(outcome.violations[0].what.contains("on purpose"));
    }

    #[test]
    fn seeds_are_divided_among_threads_and_all_run() {
        let summary = run_seeds(15, 5, 2, &|| naive::factory(Flaw::NoRetransmission), &|_| {});
        assert_eq!((summary.seeds, summary.twice), (5, 1));
        let seeds: Vec<u64> = summary.failures.iter().map(|outcome| outcome.seed).collect();
        assert!(!seeds.is_empty() && seeds.is_sorted(), "{seeds:?}");
        let i14 = summary.failures.iter().any(|outcome| outcome.violations.iter().any(|v| v.name == "I14"));
        assert!(!i14, "a run repeats itself");
    }
}
