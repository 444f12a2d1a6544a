//! Twenty per cent of loss on every rail, or machines that stall a third of the time: no node is declared lost.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::host::Stalls;
use polyrail_sim::network::Loss;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn a_fifth_of_loss_is_no_verdict() {
    for seed in 0..4 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 1_500_000_000;
        for rail in 0..2 {
            plan.faults.push(fault(FaultKind::Loss(Loss::Bernoulli { ppm: 200_000 }), rail, 0, 200, 1_500));
        }
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("drop", "random loss") > 100);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}

#[test]
fn stalls_are_no_verdict() {
    for seed in 0..4 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 1_500_000_000;
        for node in 0..3 {
            plan.faults.push(fault(FaultKind::Stalls(Stalls::MEASURED), 0, node, 200, 1_500));
        }
        let outcome = lossless(plan);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
