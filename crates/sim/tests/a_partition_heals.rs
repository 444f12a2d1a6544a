//! One node is cut off on all rails for longer than the tolerance, and comes back.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, good, plan};

#[test]
fn a_partition_heals() {
    for seed in 0..3 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.tolerance_ns = 200_000_000;
        plan.heal_ns = 2_500_000_000;
        plan.workload.until_ns = 3_000_000_000;
        plan.workload.messages = 4_000;
        plan.faults.push(fault(FaultKind::Isolation, 0, 2, 250, 900));
        let outcome = good(plan);
        assert!(outcome.coverage.get("event", "node down") >= 2, "both sides notice");
        assert!(outcome.coverage.get("event", "node up") >= 6 + 2, "and meet again");
    }
}

#[test]
fn a_short_partition_is_no_reason_to_part() {
    let mut plan = plan(1, 3, 2);
    plan.start_ns = 200_000_000;
    plan.heal_ns = 400_000_000;
    plan.faults.push(fault(FaultKind::Isolation, 0, 2, 250, 350));
    let outcome = polyrail_sim::scenario::lossless(plan);
    assert_eq!(outcome.coverage.get("event", "node down"), 0);
}
