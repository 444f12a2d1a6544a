use super::*;
use crate::contest::{Contest, Urgent};
use crate::fault::{Fault, FaultKind};
use crate::naive::{Flaw, factory};
use crate::network::{EgressKind, Loss};
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

/// Flows that compete for one rail, to one node or two, and urgent messages beside them.
fn contest(flows: &[(usize, usize)]) -> Plan {
    let mut plan = Plan::new(1, 3, 1);
    plan.rails[0].egress = EgressKind::Fifo { rate: 12_500_000, limit: 1 << 20 };
    plan.rails[0].sndbuf_bytes = 7_000;
    plan.contest = Some(Contest {
        flows: flows.to_vec(),
        class: 3,
        bytes: 1_000,
        ahead_bytes: 64_000,
        urgent: Some(Urgent { gap_ns: 2 * MS, p99_max_ns: MS, first_max_ns: MS }),
        from_ns: 100 * MS,
        until_ns: 1_300 * MS,
        lone_from_ns: 1_300 * MS,
        cut: false,
    });
    plan.workload.messages = 0;
    plan.workload.ports_per_node = 5;
    plan.heal_ns = 1_300 * MS;
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
fn numbers_that_are_used_again_are_found() {
    let two_rails = || Plan { rails: vec![rough(1).rails[0]; 2], ..rough(1) };
    assert_eq!(names(Flaw::None, two_rails()), Vec::<&str>::new());
    assert_eq!(names(Flaw::ReusedNumber, two_rails()), ["I9"]);
    assert_eq!(names(Flaw::ReusedLink, two_rails()), ["I10"]);
}

#[test]
fn unequal_shares_are_found_among_flows_and_among_peers() {
    for flows in [[(0, 1); 3], [(0, 1), (0, 2), (0, 1)]] {
        assert_eq!(names(Flaw::None, contest(&flows)), Vec::<&str>::new());
        assert!(names(Flaw::NoTurns, contest(&flows)).contains(&"I18"));
    }
}

#[test]
fn urgent_messages_that_wait_behind_bulk_are_found() {
    assert!(names(Flaw::UrgentLast, contest(&[(0, 1); 3])).contains(&"I19"));
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
