//! Connections among nodes whose rails lose and repeat, whose ports come and go, and one of which begins a new life.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::plan::Plan;
use polyrail_sim::scenario::{fault, good, lossless, met, roughen};

/// About a hundred connections beside few other messages.
fn connecting(seed: u64) -> Plan {
    let mut plan = met(seed, 3, 2);
    plan.workload.connect_ppm = 400_000;
    plan.workload.connect_heavy_ppm = 100_000;
    plan.workload.local_ppm = 100_000;
    plan
}

#[test]
fn connections_carry_all_over_rails_that_lose_and_repeat() {
    for seed in 0..4 {
        let mut plan = connecting(seed);
        roughen(&mut plan);
        let outcome = lossless(plan);
        let count = |name| outcome.coverage.get("connection", name);
        assert!(count("accepted") > 40 && count("complete") > 40, "{}", outcome.coverage.table());
        assert!(count("half closed") > 10 && count("given up") > 0, "{}", outcome.coverage.table());
        assert_eq!(count("over by a node that was lost"), 0);
        assert!(outcome.coverage.get("engine", "messages before their connection") > 0);
        assert_eq!(outcome.coverage.get("engine", "breaches of the protocol"), 0);
    }
}

#[test]
fn connections_of_a_life_that_is_over_are_over() {
    let mut over = 0;
    for seed in 0..4 {
        let mut plan = connecting(seed);
        plan.faults.push(fault(FaultKind::Restart, 0, 1, 260, 280));
        over += good(plan).coverage.get("connection", "over by a node that was lost");
    }
    assert!(over > 0);
}

#[test]
fn a_port_that_closes_ends_its_connections() {
    let mut told = 0;
    for seed in 0..4 {
        let mut plan = connecting(seed);
        plan.workload.churn_ppm = 100_000;
        told += good(plan).coverage.get("connection", "the other side gave it up");
    }
    assert!(told > 10);
}
