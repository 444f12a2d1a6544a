//! The applications of one node receive nothing for a while; the others go on, and nothing is lost.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, plan};

#[test]
fn a_slow_receiver_blocks_only_its_senders() {
    for seed in 0..5 {
        let mut plan = plan(seed, 3, 2);
        plan.start_ns = 200_000_000;
        plan.rx_arena_bytes = 1 << 20;
        plan.heal_ns = 900_000_000;
        plan.workload.messages = 3_000;
        plan.faults.push(fault(FaultKind::SlowConsumer, 0, 0, 210, 900));
        let outcome = lossless(plan);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
