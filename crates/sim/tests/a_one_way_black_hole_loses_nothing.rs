//! One direction of one rail swallows everything, the other works.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn a_one_way_black_hole_loses_nothing() {
    for seed in 0..5 {
        let mut plan = plan(seed, 2, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 700_000_000;
        plan.faults.push(fault(FaultKind::OneWayCut, 0, 0, 230, 650).towards(1));
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("drop", "silent cut") > 0);
    }
}
