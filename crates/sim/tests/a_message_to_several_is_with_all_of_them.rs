//! Messages to ranges of services among nodes whose rails lose and repeat, whose ports come and go, and one of which begins
//! a new life.

#![forbid(unsafe_code)]

use polyrail_sim::fault::FaultKind;
use polyrail_sim::plan::Plan;
use polyrail_sim::scenario::{fault, good, lossless, met, roughen};
use polyrail_sim::world::Outcome;

/// Several hundred messages to ranges beside others.
fn casting(seed: u64) -> Plan {
    let mut plan = met(seed, 4, 2);
    plan.workload.service_ppm = 20_000;
    plan.workload.multicast_ppm = 400_000;
    plan
}

fn copies(outcome: &Outcome) -> (u64, u64) {
    let count = |name| outcome.coverage.get("multicast", name);
    (count("sent"), count("copies received"))
}

#[test]
fn every_port_gets_it_over_rails_that_lose_and_repeat() {
    for seed in 0..4 {
        let mut plan = casting(seed);
        roughen(&mut plan);
        let outcome = lossless(plan);
        let (sent, received) = copies(&outcome);
        assert!(sent > 200 && received > 2 * sent, "{sent} {received}");
    }
}

#[test]
fn ports_that_come_and_go_and_do_not_read_take_nothing_from_the_others() {
    for seed in 0..4 {
        let mut plan = casting(seed);
        (plan.workload.churn_ppm, plan.workload.rebind_ppm) = (30_000, 100_000);
        plan.workload.sleep_ppm = 30_000;
        let (sent, received) = copies(&good(plan));
        assert!(sent > 200 && received > sent, "{sent} {received}");
    }
}

#[test]
fn a_life_that_is_over_gets_nothing_of_what_was_sent_to_it() {
    for seed in 0..4 {
        let mut plan = casting(seed);
        plan.faults.push(fault(FaultKind::Restart, 0, 1, 260, 280));
        let (sent, received) = copies(&good(plan));
        assert!(sent > 200 && received > sent, "{sent} {received}");
    }
}
