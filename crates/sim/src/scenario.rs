//! For scenarios: plans are written down by hand, run on the real engine, and judged by the same oracle as seeds.

use crate::engine_node::{self, Options};
use crate::fault::{Fault, FaultKind};
use crate::network::Loss;
use crate::plan::Plan;
use crate::queue::{MS, TimeNs};
use crate::runner;
use crate::world::Outcome;

/// Healthy nodes on clean gigabit rails; about 1,000 messages in the first 300 ms, some of them of many fragments.
pub fn plan(seed: u64, nodes: usize, rails: usize) -> Plan {
    let mut plan = Plan::new(seed, nodes, rails);
    plan.workload.messages = 1_000;
    plan.workload.gap_ns = MS;
    plan.workload.burst_max = 12;
    plan.workload.bytes_max = 32_768;
    plan.heal_ns = 300 * MS;
    plan.workload.until_ns = 2_000 * MS;
    plan
}

/// As [`plan`], but nothing is sent before the nodes have met, and faults may last until 600 ms.
pub fn met(seed: u64, nodes: usize, rails: usize) -> Plan {
    let mut plan = plan(seed, nodes, rails);
    plan.start_ns = 200 * MS;
    plan.heal_ns = 600 * MS;
    plan
}

/// Has every rail lose a tenth of what it carries and repeat a tenth, from the first message until the plan heals.
pub fn roughen(plan: &mut Plan) {
    let ppm = 100_000;
    for rail in 0..plan.rails.len() {
        for kind in [FaultKind::Loss(Loss::Bernoulli { ppm }), FaultKind::Duplicate { ppm }] {
            plan.faults.push(Fault::new(kind, rail, 0, plan.start_ns, plan.heal_ns));
        }
    }
}

/// A fault of a rail, or of `node`.
pub fn fault(kind: FaultKind, rail: usize, node: usize, from_ms: TimeNs, until_ms: TimeNs) -> Fault {
    Fault::new(kind, rail, node, from_ms * MS, until_ms * MS)
}

/// Runs the plan and demands that nothing was violated. The message of a failure repeats the run's seed.
pub fn good(plan: Plan) -> Outcome {
    let seed = plan.seed;
    let outcome = runner::run_plan(plan, engine_node::factory(Options::default()));
    assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
    outcome
}

/// Like [`good`], and demands that every message was delivered and none failed.
pub fn lossless(plan: Plan) -> Outcome {
    let outcome = good(plan);
    let (accepted, delivered, failed) = outcome.totals;
    assert_eq!((delivered, failed), (accepted, 0), "seed {}", outcome.seed);
    outcome
}
