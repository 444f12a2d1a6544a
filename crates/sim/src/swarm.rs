//! What a seed draws: its own cluster, rails, faults and workload, so that seeds differ in kind and not only in
//! luck.

use crate::contest;
use crate::fault::{Fault, FaultKind};
use crate::host::{HostOptions, Stalls};
use crate::network::{Conditions, EgressKind, Loss, PacketKind, SwitchPort};
use crate::plan::Plan;
use crate::prng::Prng;
use crate::queue::{MS, S, TimeNs, US};
use crate::workload::{EAGER_BYTES, WorkloadOptions};
use polyrail_proto::config::Policy;

/// Fewest faults of a seed.
pub const FAULTS_MIN: u64 = 3;
/// Fewest accepted sends of a seed.
pub const MESSAGES_MIN: u64 = 2_000;

/// Share of seeds whose run is a contest, parts per million.
const CONTEST_PPM: u32 = 30_000;

/// The run of `seed`.
pub fn draw(seed: u64) -> Plan {
    if Prng::for_component(seed, "contest", 0).chance_ppm(CONTEST_PPM) {
        return contest::draw(seed);
    }
    let mut prng = Prng::for_component(seed, "swarm", 0);
    let nodes = *prng.pick(&[2, 2, 2, 3, 3, 4, 5]);
    let rails = *prng.pick(&[1, 2, 2, 2, 3, 4]);
    let mut plan = Plan::new(seed, nodes, rails);
    let heal_ns = prng.between(300 * MS, 900 * MS);
    plan.heal_ns = heal_ns;
    plan.cables = nodes == 2 && prng.chance_ppm(500_000);
    plan.rails = draw_rails(&mut Prng::for_component(seed, "rails", 0), rails);
    plan.hosts = draw_hosts(&mut Prng::for_component(seed, "hosts", 0), nodes);
    plan.workload = draw_workload(&mut Prng::for_component(seed, "workload", 0), nodes, heal_ns);
    plan.tolerance_ns = *prng.pick(&[200 * MS, 500 * MS, 500 * MS]);
    plan.full_check = prng.chance_ppm(250_000);
    plan.rx_arena_bytes = *prng.pick(&[1 << 20, 4 << 20, 4 << 20]);
    draw_faults(&mut plan, &mut Prng::for_component(seed, "faults", 0));
    connect(&mut plan, &mut Prng::for_component(seed, "connections", 0));
    multicast(&mut plan, &mut Prng::for_component(seed, "multicast", 0));
    provoke(&mut plan, &mut Prng::for_component(seed, "provocations", 0));
    prolong(&mut plan, &mut Prng::for_component(seed, "prolongation", 0));
    plan.policy = draw_policy(&mut Prng::for_component(seed, "policy", 0));
    take_leave(&mut plan, &mut Prng::for_component(seed, "leave", 0));
    plan
}

/// Another policy than users get in a fifth of the seeds.
fn draw_policy(prng: &mut Prng) -> Policy {
    if prng.chance_ppm(200_000) { *prng.pick(&Policy::ALL) } else { Policy::Adaptive }
}

/// Connections in half of the seeds: few or many, and in some of them ones that carry much.
fn connect(plan: &mut Plan, prng: &mut Prng) {
    if !prng.chance_ppm(500_000) {
        return;
    }
    let workload = &mut plan.workload;
    let actions = workload.messages / (workload.burst_max / 3).max(1) + 1;
    workload.connect_ppm = (prng.log_uniform(4, 80) * 1_000_000 / actions).min(400_000) as u32;
    if prng.chance_ppm(200_000) {
        workload.connect_heavy_ppm = 150_000;
    }
    // More at once than wait for an answer, or than control frames are let on their way.
    if prng.chance_ppm(100_000) {
        workload.connect_burst_max = prng.log_uniform(8, 400);
        workload.connect_ppm /= 8;
    }
}

/// Messages to several in half of the seeds with services.
fn multicast(plan: &mut Plan, prng: &mut Prng) {
    if plan.workload.service_ppm > 0 && prng.chance_ppm(500_000) {
        plan.workload.multicast_ppm = prng.log_uniform(20_000, 300_000) as u32;
    }
}

/// What chance alone brings about too seldom.
fn provoke(plan: &mut Plan, prng: &mut Prng) {
    // Sending memory that is used again and again: bytes given back too early are overwritten.
    if plan.workload.large_ppm == 0 {
        plan.tx_arena_bytes = *prng.pick(&[128 << 10, 256 << 10, 4 << 20]);
        plan.workload.connect_bytes_max = plan.tx_arena_bytes / 4;
    }
    // Senders that use up their credit, so that each grant of more matters.
    if prng.chance_ppm(200_000) {
        (plan.workload.ports_per_node, plan.workload.burst_max) = (1, 64);
        plan.workload.bytes_max = 16_384;
        plan.rx_arena_bytes = *prng.pick(&[512 << 10, 1 << 20]);
    }
    // Much control traffic.
    if prng.chance_ppm(150_000) {
        (plan.workload.churn_ppm, plan.workload.rebind_ppm) = (30_000, 100_000);
        plan.workload.service_ppm = plan.workload.service_ppm.max(50_000);
    }
    // A life that ends while copies of its packets are still on their way.
    let lives_end = plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Crash | FaultKind::Restart));
    if !lives_end && prng.chance_ppm(150_000) {
        let node = prng.below(plan.nodes as u64) as usize;
        let from_ns = prng.between(plan.heal_ns / 4, plan.heal_ns / 2);
        let until_ns = from_ns + prng.log_uniform(MS, plan.heal_ns / 4);
        plan.faults.push(Fault::new(FaultKind::Restart, 0, node, from_ns, until_ns));
        for rail in 0..plan.rails.len() {
            let replay = FaultKind::Replay { ppm: prng.log_uniform(10_000, 100_000) as u32 };
            plan.faults.push(Fault::new(replay, rail, node, from_ns / 2, plan.heal_ns));
        }
    }
}

/// Traffic that outlasts the faults, so that links come back into use while it matters how: through a probation
/// (one second) or, with two nodes, even through damping (about ten).
fn prolong(plan: &mut Plan, prng: &mut Prng) {
    let damped = plan.nodes == 2 && prng.chance_ppm(100_000);
    if !damped && !prng.chance_ppm(120_000) {
        return;
    }
    let rail = prng.below(plan.rails.len() as u64) as usize;
    let mut cut = |from_ns: TimeNs, for_ns: TimeNs| {
        plan.heal_ns = plan.heal_ns.max(from_ns + for_ns);
        plan.faults.push(Fault::new(FaultKind::SilentCut, rail, 0, from_ns, from_ns + for_ns).towards(1));
    };
    let died_ns = prng.between(50 * MS, 100 * MS);
    let spread_ns = if damped {
        // It dies three times in a row, then perhaps falls silent while it is damped.
        for death in 0..3 {
            cut(died_ns + death * 250 * MS, prng.between(80 * MS, 120 * MS));
        }
        if prng.chance_ppm(500_000) {
            cut(prng.between(S, 2 * S), prng.between(50 * MS, 150 * MS));
        }
        prng.between(9 * S, 12 * S)
    } else {
        // It dies once, and falls silent again while it is on probation.
        cut(died_ns, prng.between(80 * MS, 120 * MS));
        cut(died_ns + prng.between(200 * MS, 700 * MS), prng.log_uniform(10 * MS, 100 * MS));
        prng.between(3 * S / 2, 5 * S / 2)
    };
    let before_ns = plan.heal_ns.min(900 * MS) * 4 / 5;
    plan.workload.gap_ns = plan.workload.gap_ns * spread_ns / before_ns;
    plan.workload.until_ns = plan.heal_ns + spread_ns + 2 * S;
}

/// A node that goes in good order and comes back.
fn take_leave(plan: &mut Plan, prng: &mut Prng) {
    let lives_end = plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Crash | FaultKind::Restart));
    if lives_end || plan.cloned().is_some() || !prng.chance_ppm(100_000) {
        return;
    }
    let node = prng.below(plan.nodes as u64) as usize;
    let from_ns = prng.between(plan.heal_ns / 4, plan.heal_ns / 2);
    let until_ns = from_ns + prng.log_uniform(MS, plan.heal_ns / 4);
    plan.faults.push(Fault::new(FaultKind::Leave, 0, node, from_ns, until_ns));
}

fn draw_rails(prng: &mut Prng, rails: usize) -> Vec<Conditions> {
    let first = draw_rail(prng);
    let equal = prng.chance_ppm(500_000);
    (0..rails).map(|rail| if rail == 0 || equal { first } else { draw_rail(prng) }).collect()
}

fn draw_rail(prng: &mut Prng) -> Conditions {
    let rate = prng.log_uniform(12_500_000, 1_250_000_000);
    let egress = match prng.below(10) {
        0..3 => EgressKind::NoQueue,
        3..6 => EgressKind::Fifo { rate, limit: prng.log_uniform(100_000, 2_000_000) },
        6..9 => EgressKind::Tbf { rate, burst: 131_072, limit: (rate / 200 + 131_072).max(200_000) },
        // A burst below the train size cuts trains.
        _ => EgressKind::Tbf { rate, burst: prng.log_uniform(10_000, 65_000), limit: 400_000 },
    };
    let mtu_bytes = *prng.pick(&[1_472, 1_472, 1_472, 8_972]);
    let mut rail = Conditions {
        egress,
        sndbuf_bytes: prng.log_uniform(60_000, 800_000),
        rcvbuf_bytes: prng.log_uniform(400_000, 8_000_000),
        propagation_ns: prng.log_uniform(2 * US, 500 * US),
        jitter_ns: prng.log_uniform(1, 20 * US),
        mtu_bytes,
        loss_by_train: prng.chance_ppm(300_000),
        ..Conditions::default()
    };
    if prng.chance_ppm(200_000) {
        rail.port = Some(SwitchPort { rate, limit: prng.log_uniform(150_000, 1_000_000) });
    }
    if prng.chance_ppm(250_000) {
        rail.loss = Loss::Bernoulli { ppm: prng.log_uniform(10, 20_000) as u32 };
    }
    if prng.chance_ppm(100_000) {
        (rail.reorder, rail.jitter_ns) = (true, prng.log_uniform(US, 200 * US));
    }
    rail
}

fn draw_hosts(prng: &mut Prng, nodes: usize) -> Vec<HostOptions> {
    let wake_ns = *prng.pick(&[US, 2 * US, 20 * US, 40 * US]);
    (0..nodes)
        .map(|_| HostOptions {
            clock_offset_ns: prng.log_uniform(MS, 1_000_000 * S),
            clock_drift_ppm: prng.between(0, 400) as i32 - 200,
            wake_ns,
            turn_ns: prng.log_uniform(500, 5 * US),
            send_ns: prng.log_uniform(US, 8 * US),
            stalls: None,
        })
        .collect()
}

fn draw_workload(prng: &mut Prng, nodes: usize, heal_ns: TimeNs) -> WorkloadOptions {
    let messages = prng.between(MESSAGES_MIN, MESSAGES_MIN + 500);
    let burst_max = *prng.pick(&[1, 4, 16, 64]);
    // Actions are spread over four fifths of the time with faults; a burst's mean is about a third of its maximum.
    let actions = messages / (burst_max / 3).max(1) + 1;
    let gap_ns = heal_ns * 4 / 5 * nodes as u64 / actions;
    let some = |prng: &mut Prng, ppm: u32| if prng.chance_ppm(500_000) { ppm } else { 0 };
    WorkloadOptions {
        messages,
        ports_per_node: prng.between(1, 4) as usize,
        gap_ns,
        burst_max,
        bytes_max: prng.log_uniform(64, 16_384),
        large_ppm: some(prng, 4_000),
        large_bytes_max: prng.log_uniform(128 << 10, 1 << 20),
        tagged_ppm: *prng.pick(&[0, 300_000, 1_000_000]),
        return_ppm: 200_000,
        expire_ppm: 100_000,
        service_ppm: some(prng, 200_000),
        local_ppm: some(prng, 50_000),
        churn_ppm: some(prng, 5_000),
        rebind_ppm: some(prng, 10_000),
        sleep_ppm: some(prng, 10_000),
        multicast_ppm: 0,
        connect_ppm: 0,
        connect_burst_max: 1,
        connect_heavy_ppm: 0,
        connect_bytes_max: EAGER_BYTES,
        until_ns: heal_ns + 2 * S,
    }
}

fn draw_faults(plan: &mut Plan, prng: &mut Prng) {
    let count = prng.between(FAULTS_MIN, FAULTS_MIN + 5);
    // Each seed leans to few kinds, so that they meet each other often.
    let kinds: Vec<u64> = (0..prng.between(2, 6)).map(|_| prng.below(KINDS)).collect();
    while (plan.faults.len() as u64) < count {
        let which = *prng.pick(&kinds);
        let from_ns = prng.between(plan.heal_ns / 10, plan.heal_ns * 9 / 10);
        let until_ns = (from_ns + prng.log_uniform(MS, plan.heal_ns)).min(plan.heal_ns);
        let rail = prng.below(plan.rails.len() as u64) as usize;
        let node = prng.below(plan.nodes as u64) as usize;
        let peer = (node + prng.between(1, plan.nodes as u64 - 1) as usize) % plan.nodes;
        let place = Fault::new(FaultKind::Isolation, rail, node, from_ns, until_ns).towards(peer);
        add_fault(plan, prng, which, place);
    }
}

const KINDS: u64 = 25;

/// Adds the fault number `which` at `place`; one that does not fit the run falls back to loss.
fn add_fault(plan: &mut Plan, prng: &mut Prng, which: u64, place: Fault) {
    let lives_end = plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Crash | FaultKind::Restart));
    let at_node = |kind| Fault { kind, peer: usize::MAX, ..place };
    let fault = match which {
        0 | 1 => Fault { kind: FaultKind::SilentCut, ..place },
        2 => Fault { kind: FaultKind::OneWayCut, ..place },
        3 | 4 => carrier_loss(plan, prng, place),
        5 => return add_flap(plan, prng, place),
        6 => at_node(FaultKind::RateChange { permille: prng.log_uniform(20, 4_000) as u32 }),
        7 => at_node(FaultKind::MtuShrink { path_mtu_bytes: prng.between(1_200, 1_471) as usize }),
        8 => at_node(FaultKind::Reorder { jitter_ns: prng.log_uniform(10 * US, 2 * MS) }),
        9 | 10 => at_node(FaultKind::Loss(Loss::Bernoulli { ppm: prng.log_uniform(1_000, 200_000) as u32 })),
        11 => at_node(FaultKind::Loss(Loss::GilbertElliott {
            to_bad_ppm: prng.log_uniform(100, 20_000) as u32,
            to_good_ppm: prng.log_uniform(50_000, 500_000) as u32,
            bad_loss_ppm: prng.between(300_000, 1_000_000) as u32,
        })),
        12 => at_node(FaultKind::Loss(Loss::EveryNth { n: prng.log_uniform(5, 200) as u32 })),
        13 => {
            let kind = *prng.pick(&[PacketKind::Acks, PacketKind::FullSize, PacketKind::Handshake]);
            at_node(FaultKind::Loss(Loss::Selected { kind, ppm: prng.between(100_000, 1_000_000) as u32 }))
        }
        14 => at_node(FaultKind::Duplicate { ppm: prng.log_uniform(1_000, 500_000) as u32 }),
        15 => at_node(FaultKind::Replay { ppm: prng.log_uniform(1_000, 50_000) as u32 }),
        16 => at_node(FaultKind::Corrupt {
            ppm: prng.log_uniform(1_000, 100_000) as u32,
            checksum_miss_ppm: *prng.pick(&[0, 10_000, 1_000_000]),
        }),
        17 => at_node(FaultKind::SmallReceiveBuffer { rcvbuf_bytes: prng.log_uniform(20_000, 200_000) }),
        18 => at_node(FaultKind::Isolation),
        19 => at_node(FaultKind::Pause),
        20 => at_node(FaultKind::Stalls(Stalls::MEASURED)),
        21 if !lives_end => at_node(FaultKind::Restart),
        22 if !lives_end && plan.nodes > 2 => Fault { until_ns: TimeNs::MAX, ..at_node(FaultKind::Crash) },
        23 => at_node(FaultKind::SlowConsumer),
        24 => Fault { kind: FaultKind::Garbage, ..place },
        _ => at_node(FaultKind::Loss(Loss::Bernoulli { ppm: 10_000 })),
    };
    plan.faults.push(fault);
}

fn carrier_loss(plan: &Plan, prng: &mut Prng, place: Fault) -> Fault {
    let notice_ns = prng.log_uniform(200 * US, 5 * MS);
    let peer = if plan.cables { place.peer } else { usize::MAX };
    Fault { kind: FaultKind::CarrierLoss { notice_ns }, peer, ..place }
}

fn add_flap(plan: &mut Plan, prng: &mut Prng, place: Fault) {
    let told = prng.chance_ppm(500_000);
    let period_ns = prng.log_uniform(5 * MS, 60 * MS);
    let mut from_ns = place.from_ns;
    for _ in 0..prng.between(2, 6) {
        let until_ns = (from_ns + period_ns / 2).min(plan.heal_ns);
        let spot = Fault { from_ns, until_ns, ..place };
        let fault =
            if told { carrier_loss(plan, prng, spot) } else { Fault { kind: FaultKind::SilentCut, ..spot } };
        plan.faults.push(fault);
        from_ns += period_ns;
        if from_ns >= plan.heal_ns {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_fault_is_drawn_and_every_seed_has_enough() {
        let mut kinds = BTreeSet::new();
        let mut contests = 0;
        for seed in 0..2_000 {
            let plan = draw(seed);
            if plan.contest.is_some() {
                contests += 1;
                continue;
            }
            assert!(plan.faults.len() as u64 >= FAULTS_MIN && plan.workload.messages >= MESSAGES_MIN);
            assert!((2..=5).contains(&plan.nodes) && (1..=4).contains(&plan.rails.len()));
            for fault in &plan.faults {
                assert!(fault.from_ns < fault.until_ns, "{fault:?}");
                assert!(fault.until_ns <= plan.heal_ns || fault.kind == FaultKind::Crash, "{fault:?}");
                kinds.insert(fault.kind.name());
            }
        }
        assert!(kinds.len() >= 20, "{kinds:?}");
        assert!((30..120).contains(&contests), "{contests}");
    }

    #[test]
    fn a_seed_draws_the_same_plan_twice() {
        assert_eq!(format!("{:?}", draw(42)), format!("{:?}", draw(42)));
        assert_ne!(format!("{:?}", draw(42)), format!("{:?}", draw(43)));
    }
}
