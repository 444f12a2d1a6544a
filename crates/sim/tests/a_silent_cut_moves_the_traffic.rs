//! Nobody is told of the cut: silence alone must move the traffic to the other rail, and without a false verdict.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn a_silent_cut_moves_the_traffic() {
    for seed in 0..5 {
        let mut plan = plan(seed, 2, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 700_000_000;
        plan.faults.push(fault(FaultKind::SilentCut, 1, 0, 230, 650).towards(1));
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("link", "up -> suspect") >= 1);
        assert!(outcome.coverage.get("link", "suspect -> down") >= 1);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
