//! Bits flip behind the back of the UDP checksum, in headers and (with `integrity = full`) anywhere.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::scenario::{fault, lossless, met};

#[test]
fn corruption_never_reaches_an_application() {
    for seed in 0..4 {
        let mut plan = met(seed, 2, 2);
        plan.full_check = seed % 2 == 1;
        plan.workload.messages = 3_000;
        for rail in 0..2 {
            let corrupt = FaultKind::Corrupt { ppm: 20_000, checksum_miss_ppm: 900_000 };
            plan.faults.push(fault(corrupt, rail, 0, 200, 600));
        }
        let outcome = lossless(plan);
        assert!(outcome.coverage.get("network", "datagrams corrupted past the checksum") > 5);
        assert!(outcome.coverage.get("engine", "malformed packets") > 5);
    }
}
