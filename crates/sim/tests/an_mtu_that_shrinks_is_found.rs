//! The middle of the way begins to swallow large datagrams; nobody says so. Smaller ones must be tried.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn an_mtu_that_shrinks_is_found() {
    for seed in 0..4 {
        let mut plan = plan(seed, 2, 1);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 5_000_000_000;
        plan.workload.until_ns = 4_000_000_000;
        plan.drain_ns = 1_000_000;
        plan.faults.push(fault(FaultKind::MtuShrink { path_mtu_bytes: 1_300 }, 0, 0, 230, 5_000));
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("drop", "path mtu") > 0);
        assert!(outcome.coverage.get("drop", "path mtu") < 2_000, "it does not go on trying");
    }
}
