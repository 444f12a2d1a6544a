//! A node dies and starts again: its peers notice, meet the new life, and no message crosses between the lives.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, good, plan};

#[test]
fn restart_makes_a_new_session() {
    for seed in 0..5 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.workload.messages = 3_000;
        plan.heal_ns = 500_000_000;
        plan.faults.push(fault(FaultKind::Restart, 0, 1, 250, 260));
        let outcome = good(plan);
        // Each of three nodes meets two others, and two of them meet the new life, which meets both.
        assert!(outcome.coverage.get("event", "node up") >= 6 + 4);
        assert!(outcome.totals.1 > 1_500, "messages go on after the restart: {:?}", outcome.totals);
    }
}
