//! A contest: equal flows that always have something to send compete for healthy links, and small urgent messages go beside
//! them. What ordinary runs can't show is measured here: fair shares, and short waits.

use crate::fault::{Fault, FaultKind};
use crate::host::HostOptions;
use crate::network::{Conditions, EgressKind, SwitchPort};
use crate::plan::Plan;
use crate::prng::Prng;
use crate::queue::{MS, S, TimeNs, US};
use crate::workload::WorkloadOptions;
use polyrail_proto::config::Policy;

/// What links aim at while bulk shares them with other classes (protocol.md §5.11): so long a queue, and so long a train.
const SHARED_AIMS_NS: (TimeNs, TimeNs) = (100 * US, 100 * US);
/// The same while bulk is alone and much of it waits: the longest that there is.
const BULK_AIMS_NS: (TimeNs, TimeNs) = (MS, MS);
/// A window holds two trains on top of queue and round trip, and four packets at least: two for each.
const TRAINS: u64 = 2;
const TRAIN_PACKETS_MIN: u64 = 2;
/// A train has no more bytes than this, however slow the link.
const TRAIN_BYTES_MAX: u64 = 65_507;
/// Class of the flows, and of the messages beside them.
const BULK: u8 = 3;
/// The usual class.
pub const NORMAL: u8 = 2;
/// Smaller messages each go by one link as a whole, and sessions that choose different ones get what these deliver.
const LARGE_BYTES_MIN: u64 = 16_385;
/// So many messages of each flow at least pass in a second, or their number would decide what is fair.
const MESSAGES_PER_SECOND_MIN: u64 = 12;

/// Who competes, and from when on it is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contest {
    /// The flows: sending node, receiving node. Each has ports of its own.
    pub flows: Vec<(usize, usize)>,
    /// Their class.
    pub class: u8,
    /// Bytes of each of their messages.
    pub bytes: usize,
    /// Each flow keeps so many bytes accepted and not received.
    pub ahead_bytes: u64,
    /// Urgent messages beside the first flow, if there are any.
    pub urgent: Option<Urgent>,
    /// Shares are measured from here.
    pub from_ns: TimeNs,
    /// Nothing is sent from here on, but for lone messages.
    pub until_ns: TimeNs,
    /// When these begin.
    pub lone_from_ns: TimeNs,
    /// The last rail is cut when the flows end, and these find it so.
    pub cut: bool,
}

/// Small urgent messages from the first flow's sender to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// Mean gap between two of them.
    pub gap_ns: TimeNs,
    /// 99 of 100 take no longer than this by links that are known to be shared.
    pub p99_max_ns: TimeNs,
    /// None takes longer than this by links that have carried nothing but bulk.
    pub first_max_ns: TimeNs,
}

impl Urgent {
    /// When the first one has arrived, what is behind it may still be as much as was before it.
    pub fn settles_ns(&self) -> TimeNs {
        2 * self.first_max_ns
    }
}

/// After the contest so many messages go one at a time,
pub const LONE_MESSAGES: usize = 12;
/// ... of up to so many bytes.
pub const LONE_BYTES_MAX: u64 = 1 << 20;
/// A rail that is cut has long been noticed after this,
const NOTICED_NS: TimeNs = 400 * MS;
/// and lone messages go on for less than this.
const CUT_NS: TimeNs = 4 * S;
/// Between looks at whether the next one may go.
pub const LONE_GAP_NS: TimeNs = 5 * MS;
/// A lone message takes twice what the fastest link would take for it, and this.
const LONE_SLACK_NS: TimeNs = 20 * MS;

/// What a lone message of `bytes` may take. Policies that decide before anything leaves may choose the slowest link.
pub fn lone_max_ns(plan: &Plan, bytes: usize) -> TimeNs {
    let cut = plan.contest.as_ref().is_some_and(|contest| contest.cut);
    let whole = plan.rails.len() - usize::from(cut);
    let rates = || plan.rails.iter().take(whole).filter_map(|rail| rail.egress.rate());
    let rate = if plan.policy == Policy::Adaptive { rates().max() } else { rates().min() };
    2 * (bytes as u64 * S / rate.unwrap_or(u64::MAX)) + LONE_SLACK_NS
}

/// Bytes of an urgent message.
pub const URGENT_BYTES: usize = 64;
/// Its class.
pub const URGENT: u8 = 1;

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One node to one other.
    Pair,
    /// One node to several.
    FromOne,
    /// Several nodes to one, which has a switch before it.
    ToOne,
}

impl Contest {
    /// Ports that each node needs: one for each of its flows, and one for urgent messages.
    pub fn ports_per_node(&self) -> usize {
        let ends = || self.flows.iter().flat_map(|(from, to)| [*from, *to]);
        let most = ends().map(|node| ends().filter(|end| *end == node).count()).max();
        most.unwrap_or(0) + 1
    }

    /// The place among its node's ports of the sending and the receiving port of flow `index`.
    pub fn places(&self, index: usize) -> (usize, usize) {
        let (from, to) = self.flows[index];
        let before =
            |node| self.flows[..index].iter().filter(|flow| flow.0 == node || flow.1 == node).count();
        (before(from), before(to))
    }
}

/// The contest of `seed`: its plan is that of healthy machines and clean rails.
pub fn draw(seed: u64) -> Plan {
    let mut prng = Prng::for_component(seed, "contest", 1);
    let shape = *prng.pick(&[Shape::Pair, Shape::Pair, Shape::FromOne, Shape::ToOne]);
    let nodes = if shape == Shape::Pair { 2 } else { prng.between(3, 5) as usize };
    let rails = *prng.pick(&[1, 1, 2, 2, 3]);
    let urgent = shape == Shape::Pair && prng.chance_ppm(600_000);
    let mut plan = Plan::new(seed, nodes, rails);
    plan.rails = draw_rails(&mut prng, rails, shape, urgent);
    plan.hosts = vec![draw_host(&mut prng); nodes];
    let contest = draw_contest(&mut prng, &plan, shape, urgent);
    plan.start_ns = 200 * MS;
    plan.heal_ns = contest.until_ns;
    if contest.cut {
        plan.heal_ns = contest.lone_from_ns + CUT_NS;
        plan.policy = *prng.pick(&Policy::ALL);
        let rail = rails - 1;
        for peer in 1..nodes {
            for node in 0..peer {
                let cut = Fault::new(FaultKind::SilentCut, rail, node, contest.until_ns, plan.heal_ns);
                plan.faults.push(cut.towards(peer));
            }
        }
    }
    plan.workload = WorkloadOptions {
        messages: 0,
        ports_per_node: contest.ports_per_node(),
        until_ns: contest.until_ns,
        ..WorkloadOptions::default()
    };
    plan.contest = Some(contest);
    plan
}

fn draw_contest(prng: &mut Prng, plan: &Plan, shape: Shape, urgent: bool) -> Contest {
    let others = 1..plan.nodes;
    let once: Vec<(usize, usize)> = match shape {
        Shape::Pair => vec![(0, 1)],
        Shape::FromOne => others.map(|other| (0, other)).collect(),
        Shape::ToOne => others.map(|other| (other, 0)).collect(),
    };
    let each = if shape == Shape::Pair { prng.between(2, 8) } else { prng.between(1, 2) } as usize;
    let flows = once.repeat(each);
    let rate: u64 = plan.rails.iter().filter_map(|rail| rail.egress.rate()).sum();
    let bytes_min = if plan.rails.len() == 1 { 2_048 } else { LARGE_BYTES_MIN };
    let bytes_max = rate / flows.len() as u64 / MESSAGES_PER_SECOND_MIN;
    let from_ns = 700 * MS;
    let class = if urgent || prng.chance_ppm(750_000) { BULK } else { NORMAL };
    // While all windows are full, what is small goes by the link that is asked first.
    let max_ns = |aims_ns| plan.rails.iter().map(|rail| urgent_max_ns(rail, &plan.hosts[0], aims_ns)).max();
    let urgent = urgent.then(|| Urgent {
        gap_ns: prng.log_uniform(MS, 16 * MS),
        p99_max_ns: max_ns(SHARED_AIMS_NS).unwrap_or(0),
        first_max_ns: max_ns(BULK_AIMS_NS).unwrap_or(0),
    });
    let until_ns = from_ns + 3 * S / 2;
    let cut = plan.rails.len() > 1 && prng.chance_ppm(400_000);
    Contest {
        flows,
        class,
        bytes: prng.log_uniform(bytes_min, bytes_max.min(256 << 10)) as usize,
        ahead_bytes: 1 << 20,
        urgent,
        from_ns,
        until_ns,
        lone_from_ns: until_ns + if cut { NOTICED_NS } else { 0 },
        cut,
    }
}

/// What an urgent message may take by a rail whose links aim at so long a queue and so long trains: until what is in flight
/// before it has left, and its own way.
///
/// In flight is what the window allows: five quarters of a round trip, the queue, and two trains. The window may take the path
/// to be faster by a quarter than it is, and probes with a quarter more: 25/16 of all that. And it takes a packet more than it
/// has room for, two if the second was begun. A round trip is the way there and back, the machines at both ends, and a packet.
fn urgent_max_ns(rail: &Conditions, host: &HostOptions, aims_ns: (TimeNs, TimeNs)) -> TimeNs {
    let (queue_ns, train_ns) = aims_ns;
    let rate = rail.egress.rate().unwrap_or(u64::MAX).max(1);
    let span_ns = |bytes: u64| bytes * S / rate;
    let packet_ns = span_ns(rail.mtu_bytes as u64);
    let way_ns = rail.propagation_ns + rail.jitter_ns;
    let machine_ns = host.wake_ns + host.turn_ns + host.send_ns;
    let trip_ns = 2 * (way_ns + machine_ns) + packet_ns;
    let trains_ns = TRAINS * train_ns.min(span_ns(TRAIN_BYTES_MAX)).max(TRAIN_PACKETS_MIN * packet_ns);
    let window_ns = (trip_ns * 5 / 4 + queue_ns + trains_ns) * 25 / 16;
    window_ns + 2 * packet_ns + way_ns + 2 * machine_ns
}

fn draw_rails(prng: &mut Prng, rails: usize, shape: Shape, urgent: bool) -> Vec<Conditions> {
    let first = draw_rail(prng, shape, urgent);
    let equal = prng.chance_ppm(500_000);
    (0..rails).map(|rail| if rail == 0 || equal { first } else { draw_rail(prng, shape, urgent) }).collect()
}

/// Where waits are measured, the links are those of a machine room: on others a few packets take longer than the budget.
fn draw_rail(prng: &mut Prng, shape: Shape, urgent: bool) -> Conditions {
    let rate = if urgent {
        prng.log_uniform(64_000_000, 250_000_000)
    } else {
        prng.log_uniform(4_000_000, 32_000_000)
    };
    let limit = prng.log_uniform(250_000, 2_000_000);
    let egress = match prng.below(2) {
        0 => EgressKind::Fifo { rate, limit },
        _ => EgressKind::Tbf { rate, burst: 131_072, limit },
    };
    Conditions {
        egress,
        sndbuf_bytes: prng.log_uniform(60_000, 800_000),
        propagation_ns: prng.log_uniform(2 * US, if urgent { 64 * US } else { 500 * US }),
        jitter_ns: prng.log_uniform(1, if urgent { 2 * US } else { 20 * US }),
        mtu_bytes: *prng.pick(&[1_472, 1_472, 8_972]),
        port: (shape == Shape::ToOne)
            .then_some(SwitchPort { rate, limit: prng.log_uniform(150_000, 1_000_000) }),
        ..Conditions::default()
    }
}

fn draw_host(prng: &mut Prng) -> HostOptions {
    HostOptions {
        clock_offset_ns: prng.log_uniform(MS, 1_000_000 * S),
        clock_drift_ppm: prng.between(0, 400) as i32 - 200,
        wake_ns: *prng.pick(&[US, 2 * US, 20 * US, 40 * US]),
        turn_ns: prng.log_uniform(500, 5 * US),
        send_ns: prng.log_uniform(US, 8 * US),
        stalls: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_ports_of_its_own() {
        let contest = Contest {
            flows: vec![(0, 1), (0, 2), (0, 1), (1, 0)],
            class: BULK,
            bytes: 1,
            ahead_bytes: 1,
            urgent: None,
            from_ns: 0,
            until_ns: 1,
            lone_from_ns: 1,
            cut: false,
        };
        let places: Vec<_> = (0..4).map(|index| contest.places(index)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (2, 1), (2, 3)]);
        assert_eq!(contest.ports_per_node(), 5);
    }

    #[test]
    fn every_shape_is_drawn_and_nothing_is_wrong_with_the_links() {
        let plans: Vec<Plan> = (0..300).map(draw).collect();
        let contests = || plans.iter().filter_map(|plan| plan.contest.as_ref());
        assert_eq!(contests().count(), 300);
        let heals_ns = |plan: &Plan| plan.contest.as_ref().map(|contest| contest.until_ns);
        let harmless = |plan: &Plan| plan.faults.iter().all(|fault| Some(fault.from_ns) >= heals_ns(plan));
        assert!(plans.iter().all(harmless) && plans.iter().any(|plan| !plan.faults.is_empty()));
        assert!(contests().any(|contest| contest.flows.iter().all(|flow| *flow == (0, 1))));
        assert!(contests().any(|contest| contest.flows.contains(&(0, 2))));
        assert!(contests().any(|contest| contest.flows.contains(&(2, 0))));
        assert!(contests().any(|contest| contest.urgent.is_some() && contest.flows.len() > 4));
    }
}
