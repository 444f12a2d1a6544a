//! Without faults nothing fails, nothing is sent in vain, and every rail carries its share.

#![forbid(unsafe_code)]

use polyrail_sim::scenario::{lossless, plan};

#[test]
fn clean_rails_deliver_everything() {
    for nodes in 2..=4 {
        let mut plan = plan(nodes as u64, nodes, 2);
        // Before nodes have met, sends are refused at the door; start later.
        plan.workload.local_ppm = 50_000;
        plan.start_ns = 200_000_000;
        let outcome = lossless(plan);
        assert_eq!(outcome.totals.0, 1_000);
        assert_eq!(outcome.coverage.get("event", "node down"), 0);
    }
}
