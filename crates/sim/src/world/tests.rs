use super::*;
use crate::fault::{Fault, FaultKind};
use crate::naive::{Flaw, factory};
use crate::network::Loss;
use crate::queue::US;

/// Two nodes on one rail that loses, duplicates and reorders.
fn rough(seed: u64) -> Plan {
    let mut plan = Plan::new(seed, 2, 1);
    plan.workload.bytes_max = 1_000;
    plan.workload.large_ppm = 0;
    plan.workload.messages = 500;
    plan.drain_ns = 500 * MS;
    let times = (20 * MS, plan.heal_ns);
    for kind in [
        FaultKind::Loss(Loss::Bernoulli { ppm: 100_000 }),
        FaultKind::Duplicate { ppm: 100_000 },
        FaultKind::Reorder { jitter_ns: 200 * US },
    ] {
        plan.faults.push(Fault::new(kind, 0, 0, times.0, times.1));
    }
    plan
}

fn names(flaw: Flaw, plan: Plan) -> Vec<&'static str> {
    let outcome = World::new(plan, factory(flaw)).run();
    let mut names: Vec<&str> = outcome.violations.iter().map(|violation| violation.name).collect();
    names.dedup();
    names
}

#[test]
fn a_correct_protocol_passes_on_a_rough_rail() {
    let outcome = World::new(rough(1), factory(Flaw::None)).run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert_eq!(outcome.totals, (500, 500, 0));
    assert!(outcome.coverage.get("drop", "random loss") > 20);
    assert!(outcome.coverage.get("network", "units duplicated") > 20);
}

#[test]
fn a_seed_repeats_bit_for_bit() {
    let hash = |seed| World::new(rough(seed), factory(Flaw::None)).run().hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn each_flaw_is_found_by_its_check() {
    assert!(names(Flaw::NoDuplicateCheck, rough(1)).contains(&"I1"));
    assert!(names(Flaw::NoOrder, rough(1)).contains(&"I2"));
    assert!(names(Flaw::NoRetransmission, rough(1)).contains(&"I3"));
    assert!(names(Flaw::AlteredRetransmission, rough(1)).contains(&"I4"));
}

#[test]
fn a_hasty_verdict_is_found_unless_it_is_excused() {
    let mut plan = rough(1);
    plan.faults = vec![Fault::new(FaultKind::SilentCut, 0, 0, 50 * MS, 150 * MS).towards(1)];
    assert_eq!(plan.excused_from_ns(0, 1), Some(50 * MS));
    plan.tolerance_ns = 2_000 * MS;
    assert!(names(Flaw::HastyVerdict, plan.clone()).contains(&"I8"));
    plan.tolerance_ns = 500 * MS;
    assert_eq!(names(Flaw::HastyVerdict, plan), Vec::<&str>::new());
}

#[test]
fn a_slow_consumer_and_a_pause_delay_but_lose_nothing() {
    let mut plan = rough(3);
    plan.faults = vec![
        Fault::new(FaultKind::SlowConsumer, 0, 0, 20 * MS, 300 * MS),
        Fault::new(FaultKind::Pause, 0, 1, 100 * MS, 250 * MS),
    ];
    let outcome = World::new(plan, factory(Flaw::None)).run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert_eq!(outcome.totals, (500, 500, 0));
}
