//! A cable is pulled while messages of many fragments are on their way: the other rail takes over, nothing is lost.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, met};

#[test]
fn fragments_survive_link_failover() {
    for seed in 0..5 {
        let mut plan = met(seed, 2, 2);
        plan.workload.large_ppm = 50_000;
        let pulled = FaultKind::CarrierLoss { notice_ns: 500_000 };
        plan.faults.push(fault(pulled, 0, 0, 230, 500));
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("link", "up -> down") >= 1);
        assert!(outcome.coverage.get("drop", "no carrier") >= 1, "the cut met something on its way");
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
