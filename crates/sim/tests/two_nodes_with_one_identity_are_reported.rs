//! A cloned machine appears with the identity of a node that lives: it is reported, and the original is not harmed.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, good, plan};

#[test]
fn two_nodes_with_one_identity_are_reported() {
    for seed in 0..3 {
        let mut plan = plan(seed, 2, 2);
        plan.start_ns = 200_000_000;
        plan.heal_ns = 1_500_000_000;
        plan.faults.push(fault(FaultKind::Clone, 0, 1, 250, 1_500));
        let outcome = good(plan);
        for witness in 0..2 {
            let name = format!("duplicate identity, seen by node {witness}");
            assert!(outcome.coverage.get("event", &name) >= 1, "seed {seed}: {name}");
        }
        let (accepted, delivered, _) = outcome.totals;
        assert_eq!(accepted, delivered, "seed {seed}: the original goes on");
    }
}
