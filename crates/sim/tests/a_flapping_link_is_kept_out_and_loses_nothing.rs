//! A rail that comes and goes every 20 ms does not take the session with it.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn a_flapping_link_is_kept_out_and_loses_nothing() {
    for seed in 0..5 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 700_000_000;
        for flap in 0..8 {
            let pulled = FaultKind::CarrierLoss { notice_ns: 500_000 };
            plan.faults.push(fault(pulled, 0, 1, 220 + flap * 40, 240 + flap * 40));
        }
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("link", "up -> down") >= 2);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
