use super::*;

pub(super) const OWN: NodeId = NodeId(5);

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

pub(super) fn port(n: u32) -> PortId {
    PortId(n)
}

fn record(op: BindingOp, range: ServiceRange, port: u32, key: u64, weight: u8) -> Binding {
    Binding { op, range, port: PortId(port), key, scope: Scope::Cluster, weight, exclusive: false }
}

pub(super) fn publish(table: &mut Table, node: u64, range: ServiceRange, port: u32, weight: u8) {
    let key = port as u64;
    assert_eq!(
        table.apply(NodeId(node), &record(BindingOp::Publish, range, port, key, weight)),
        Applied::Published
    );
}

/// Picks `count` times with everybody ready.
fn picks(table: &mut Table, address: ServiceAddress, count: usize) -> Vec<(u64, u32)> {
    (0..count)
        .map(|_| match table.pick(address, OWN, |_| true) {
            Pick::To(to) => (to.node.0, to.port.0),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn bad_ranges_are_refused() {
    let mut table = Table::new(OWN);
    let bind = |t: &mut Table, range| t.bind(port(1), range, Scope::Cluster, 1);
    assert_eq!(bind(&mut table, ServiceRange::new(63, 0, 0)), Err(BindError::Reserved));
    assert_eq!(bind(&mut table, ServiceRange::new(64, 2, 1)), Err(BindError::Inverted));
    let inverted = record(BindingOp::Publish, ServiceRange::new(64, 2, 1), 1, 1, 1);
    assert_eq!(table.apply(NodeId(1), &inverted), Applied::Refused);
    let ours = record(BindingOp::Publish, ServiceRange::new(64, 1, 1), 1, 1, 1);
    assert_eq!(table.apply(OWN, &ours), Applied::Refused);
    assert_eq!((table.len(), table.generation()), (0, 0));
}

#[test]
fn a_port_and_a_node_may_bind_so_much_and_no_more() {
    let mut table = Table::new(OWN);
    let bind = |table: &mut Table, number: u32, n: u32| {
        table.bind(port(number), ServiceRange::new(64, n, n), Scope::Cluster, 1)
    };
    for number in 1..=2 {
        for n in 0..limits::BINDINGS_PORT_MAX as u32 {
            bind(&mut table, number, n).unwrap();
        }
        assert_eq!(bind(&mut table, number, u32::MAX), Err(BindError::TooMany));
    }
    assert_eq!(table.len(), limits::BINDINGS_NODE_MAX);
    assert_eq!(bind(&mut table, 3, 0), Err(BindError::TooMany), "the others have it all");
    table.unbind(port(1), ServiceRange::new(64, 7, 7), Scope::Cluster).unwrap();
    assert_eq!(bind(&mut table, 2, 7), Err(BindError::TooMany));
    assert!(bind(&mut table, 3, 7).is_ok());
    let counts = [1, 2, 3].map(|number| table.unbind_port(port(number)).len());
    assert_eq!(counts, [limits::BINDINGS_PORT_MAX - 1, limits::BINDINGS_PORT_MAX, 1]);
    assert!(
        table.is_empty() && table.services.is_empty() && table.by_upper.is_empty() && table.levels.is_empty()
    );
    assert!(table.own_ports.is_empty() && table.own_records.is_empty());
}

#[test]
fn a_flood_of_one_node_leaves_room_for_others() {
    let mut table = Table::new(OWN);
    let publish = |table: &mut Table, node: u64, key: u64| {
        let range = ServiceRange::new(100, key as u32, key as u32);
        table.apply(NodeId(node), &record(BindingOp::Publish, range, 1, key, 1))
    };
    let most = limits::BINDINGS_NODE_MAX as u64;
    for node in 101..=116 {
        assert!((1..=most).all(|key| publish(&mut table, node, key) == Applied::Published));
        assert_eq!(publish(&mut table, node, most + 1), Applied::Full);
    }
    // The limit of all is a little above 16 nodes that have bound all that they may.
    let mut last = 0;
    while publish(&mut table, 117, last + 1) == Applied::Published {
        last += 1;
    }
    assert_eq!((table.len(), last < most), (limits::BINDINGS_MAX, true));
    let withdrawn = record(BindingOp::Withdraw, ServiceRange::new(100, 5, 5), 1, 5, 1);
    assert_eq!(table.apply(NodeId(103), &withdrawn), Applied::Withdrawn);
    assert_eq!(publish(&mut table, 117, last + 1), Applied::Published);
    assert_eq!(table.purge(NodeId(101)).len() as u64, most);
    assert_eq!((table.hash_of(NodeId(101)), publish(&mut table, 103, 5)), (0, Applied::Published));
}

#[test]
fn unbinding_takes_back_one_matching_binding() {
    let mut table = Table::new(OWN);
    let range = ServiceRange::new(100, 1, 9);
    let first = table.bind(port(1), range, Scope::Cluster, 1).unwrap();
    let second = table.bind(port(1), range, Scope::Cluster, 1).unwrap();
    assert_eq!(table.unbind(port(1), range, Scope::Node), Err(NotBound));
    assert_eq!(table.unbind(port(1), ServiceRange::new(100, 1, 8), Scope::Cluster), Err(NotBound));
    assert_eq!(table.unbind(port(2), range, Scope::Cluster), Err(NotBound));
    assert_eq!(table.unbind(port(1), range, Scope::Cluster), Ok(first));
    assert_eq!(table.lookup(ServiceAddress::new(100, 5)).len(), 1);
    assert_eq!(table.unbind(port(1), range, Scope::Cluster), Ok(second));
    assert_eq!(table.unbind(port(1), range, Scope::Cluster), Err(NotBound));
}

#[test]
fn a_port_bound_twice_is_looked_up_once() {
    let mut table = Table::new(OWN);
    for _ in 0..2 {
        table.bind(port(1), ServiceRange::new(100, 1, 9), Scope::Cluster, 1).unwrap();
    }
    table.bind(port(1), ServiceRange::new(100, 5, 5), Scope::Node, 1).unwrap();
    assert_eq!(table.lookup(ServiceAddress::new(100, 5)).len(), 1);
    assert_eq!(table.lookup_range(ServiceRange::new(100, 0, u32::MAX)).len(), 1);
    assert_eq!(table.list().count(), 3);
}

#[test]
fn own_bindings_are_closest_and_take_turns() {
    let mut table = Table::new(OWN);
    let (range, address) = (ServiceRange::new(100, 7, 7), ServiceAddress::new(100, 7));
    assert_eq!(table.pick(address, OWN, |_| true), Pick::None);
    publish(&mut table, 1, range, 10, 1);
    publish(&mut table, 9, range, 90, 1);
    publish(&mut table, 9, range, 91, 1);
    assert_eq!(picks(&mut table, address, 4), [(1, 10), (9, 90), (9, 91), (1, 10)]);
    table.bind(port(51), range, Scope::Cluster, 1).unwrap();
    table.bind(port(52), range, Scope::Node, 1).unwrap();
    assert_eq!(picks(&mut table, address, 3), [(5, 51), (5, 52), (5, 51)]);
    assert_eq!(picks(&mut table, ServiceAddress::new(100, 7), 1), [(5, 52)]);
}

#[test]
fn busy_bindings_are_skipped_near_and_far() {
    let mut table = Table::new(OWN);
    let (range, address) = (ServiceRange::new(100, 7, 7), ServiceAddress::new(100, 7));
    publish(&mut table, 1, range, 10, 1);
    publish(&mut table, 9, range, 90, 1);
    table.bind(port(51), range, Scope::Cluster, 1).unwrap();
    table.bind(port(52), range, Scope::Cluster, 1).unwrap();
    let only =
        |table: &mut Table, ports: &[u32]| match table.pick(address, OWN, |p| ports.contains(&p.port.0)) {
            Pick::To(to) => to.port.0,
            Pick::AllBusy => 0,
            Pick::None => 1,
        };
    assert_eq!([only(&mut table, &[52]), only(&mut table, &[52])], [52, 52]);
    assert_eq!([only(&mut table, &[90]), only(&mut table, &[90]), only(&mut table, &[10, 90])], [90, 90, 10]);
    assert_eq!(only(&mut table, &[]), 0);
}

#[test]
fn weights_share_in_proportion_without_bursts() {
    let mut table = Table::new(OWN);
    let (range, address) = (ServiceRange::new(100, 7, 7), ServiceAddress::new(100, 7));
    for (port, weight) in [(1, 0), (2, 3), (3, 6)] {
        publish(&mut table, 1, range, port, weight);
    }
    let order: Vec<_> = picks(&mut table, address, 20).iter().map(|p| p.1).collect();
    assert_eq!(order, [1, 2, 3, 2, 3, 2, 3, 3, 3, 3, 1, 2, 3, 2, 3, 2, 3, 3, 3, 3]);
    let rest = table.pick(address, OWN, |p| p.port == port(1));
    assert_eq!(rest, Pick::To(PortAddress { node: NodeId(1), port: port(1) }), "a light one alone is found");
}

#[test]
fn overlapping_ranges_take_turns_as_one_list() {
    let mut table = Table::new(OWN);
    publish(&mut table, 1, ServiceRange::new(100, 0, u32::MAX), 1, 1);
    publish(&mut table, 1, ServiceRange::new(100, 7, 7), 2, 1);
    publish(&mut table, 1, ServiceRange::new(100, 0, 7), 3, 1);
    let mut seen = picks(&mut table, ServiceAddress::new(100, 7), 6);
    seen.sort_unstable();
    assert_eq!(seen, [(1, 1), (1, 1), (1, 2), (1, 2), (1, 3), (1, 3)]);
}

#[test]
fn a_node_that_is_gone_is_forgotten_whole() {
    let mut table = Table::new(OWN);
    for n in 0..50 {
        publish(&mut table, 1, ServiceRange::new(100, n, 3 * n), n + 1, 1);
        publish(&mut table, 2, ServiceRange::new(100, n, 2 * n), n + 1, 1);
    }
    let before = table.generation();
    assert_eq!(table.purge(NodeId(1)).len(), 50);
    assert!(table.generation() > before);
    assert!(table.list().all(|b| b.0 == NodeId(2)) && table.len() == 50);
    assert_eq!(table.purge(NodeId(1)).len(), 0);
}

#[test]
fn records_that_say_nothing_new_change_nothing() {
    let mut table = Table::new(OWN);
    let range = ServiceRange::new(100, 7, 7);
    publish(&mut table, 1, range, 10, 1);
    let again = record(BindingOp::Publish, range, 10, 10, 1);
    assert_eq!(table.apply(NodeId(1), &again), Applied::Unchanged);
    let other = record(BindingOp::Withdraw, range, 10, 11, 1);
    assert_eq!(table.apply(NodeId(1), &other), Applied::Unchanged);
    assert_eq!(table.generation(), 1);
    let gone = record(BindingOp::Withdraw, range, 10, 10, 1);
    assert_eq!((table.apply(NodeId(1), &gone), table.generation()), (Applied::Withdrawn, 2));
}

/// A range with ends near interesting places: blocks' borders, the ends of the number line, small numbers.
fn random_range(state: &mut u64) -> ServiceRange {
    let mut end = || match random(state, 4) {
        0 => random(state, 40) as u32,
        1 => (1u32 << random(state, 32)).wrapping_add(random(state, 3) as u32).wrapping_sub(1),
        2 => u32::MAX - random(state, 5) as u32,
        _ => random(state, 1 << 32) as u32,
    };
    let (a, b) = (end(), end());
    let kind = 64 + random(state, 2) as u32;
    let single = random(state, 3) == 0;
    ServiceRange::new(kind, a.min(b), if single { a.min(b) } else { a.max(b) })
}

#[test]
fn any_sequence_of_operations_agrees_with_a_plain_list() {
    for seed in 1..=80u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut table, mut list) = (Table::new(OWN), Vec::<(u64, u64, u32, ServiceRange)>::new());
        let mut probes = vec![ServiceRange::new(64, 0, u32::MAX)];
        for step in 0..150u64 {
            let range = random_range(&mut state);
            probes.push(range);
            match random(&mut state, 8) {
                0..=2 => {
                    let p = 1 + random(&mut state, 3) as u32;
                    let key = table.bind(port(p), range, Scope::Cluster, 1).unwrap();
                    list.push((OWN.0, key, p, range));
                }
                3..=5 => {
                    let node = 1 + random(&mut state, 3);
                    let p = 1 + random(&mut state, 3) as u32;
                    table.apply(NodeId(node), &record(BindingOp::Publish, range, p, 1000 + step, 1));
                    list.push((node, 1000 + step, p, range));
                }
                6 if !list.is_empty() => {
                    let gone = list.swap_remove(random(&mut state, list.len() as u64) as usize);
                    if gone.0 == OWN.0 {
                        let key = table.unbind(port(gone.2), gone.3, Scope::Cluster).unwrap();
                        assert!(key <= gone.1, "the oldest of equal bindings");
                        list.iter_mut().filter(|b| b.0 == OWN.0 && b.1 == key).for_each(|b| b.1 = gone.1);
                    } else {
                        table.apply(NodeId(gone.0), &record(BindingOp::Withdraw, gone.3, gone.2, gone.1, 1));
                    }
                }
                7 if random(&mut state, 8) == 0 => {
                    let node = 1 + random(&mut state, 3);
                    table.purge(NodeId(node));
                    list.retain(|b| b.0 != node);
                }
                _ => {
                    let p = 1 + random(&mut state, 3) as u32;
                    let expected = list.iter().filter(|b| b.0 == OWN.0 && b.2 == p).count();
                    assert_eq!(table.unbind_port(port(p)).len(), expected, "seed {seed} step {step}");
                    list.retain(|b| b.0 != OWN.0 || b.2 != p);
                }
            }
            agree(&mut table, &list, probes[random(&mut state, probes.len() as u64) as usize], seed);
        }
    }
}

fn agree(table: &mut Table, list: &[(u64, u64, u32, ServiceRange)], probe: ServiceRange, seed: u64) {
    let ports = |covers: &dyn Fn(&ServiceRange) -> bool| {
        let matching = list.iter().filter(|b| covers(&b.3));
        let ports: BTreeSet<_> =
            matching.map(|b| PortAddress { node: NodeId(b.0), port: port(b.2) }).collect();
        ports.into_iter().collect::<Vec<_>>()
    };
    for instance in [probe.lower, probe.upper, probe.lower.wrapping_sub(1), probe.upper.wrapping_add(1)] {
        let address = ServiceAddress::new(probe.kind, instance);
        let expected = ports(&|r| r.contains(address));
        assert_eq!(table.lookup(address).to_vec(), expected, "seed {seed} address {address}");
        let near = expected.iter().any(|p| p.node == OWN);
        match table.pick(address, OWN, |_| true) {
            Pick::To(to) => assert!(expected.contains(&to) && near == (to.node == OWN), "seed {seed} {to}"),
            other => assert!(other == Pick::None && expected.is_empty(), "seed {seed} {address} {other:?}"),
        }
    }
    let overlap = |r: &ServiceRange| r.kind == probe.kind && r.lower <= probe.upper && probe.lower <= r.upper;
    assert_eq!(table.lookup_range(probe).to_vec(), ports(&overlap), "seed {seed} range {probe}");
    assert_eq!(table.len(), list.len(), "seed {seed}");
}

#[test]
fn a_hundred_thousand_overlapping_bindings_are_found_exactly() {
    let mut table = Table::new(OWN);
    for n in 0..100_000u32 {
        let range = ServiceRange::new(100, n * 100, n * 100 + 250);
        let node = NodeId(1 + n as u64 % 2);
        table.apply(node, &record(BindingOp::Publish, range, n + 1, n as u64, 1));
    }
    for instance in (0..10_000_000).step_by(7_919) {
        let mut ports: Vec<u32> =
            table.lookup(ServiceAddress::new(100, instance)).iter().map(|p| p.port.0 - 1).collect();
        ports.sort_unstable();
        let expected: Vec<u32> = (0..100_000)
            .skip((instance / 100).saturating_sub(3) as usize)
            .take(5)
            .filter(|n| n * 100 <= instance && instance <= n * 100 + 250)
            .collect();
        assert_eq!(ports, expected, "instance {instance}");
    }
    table.purge(NodeId(1));
    table.purge(NodeId(2));
    assert!(table.is_empty() && table.services.is_empty() && table.by_upper.is_empty());
}

#[test]
fn going_on_from_the_spot_seen_last_finds_every_binding_once() {
    let mut state = 0x5eed_u64;
    for _ in 0..20 {
        let mut table = Table::new(OWN);
        for key in 0..200u32 {
            let lower = random(&mut state, 300) as u32;
            let width = 1 << random(&mut state, 8);
            let upper = lower + random(&mut state, width) as u32;
            let range = match random(&mut state, 20) {
                0 => ServiceRange::new(100, 0, u32::MAX),
                1 => ServiceRange::new(100, u32::MAX, u32::MAX),
                2 => ServiceRange::new(101, lower, upper),
                _ => ServiceRange::new(100, lower, upper),
            };
            publish(&mut table, 1 + random(&mut state, 3), range, key, 1);
        }
        for asked in [(0, u32::MAX), (100, 100), (50, 250), (299, 301), (u32::MAX, u32::MAX)] {
            let asked = ServiceRange::new(100, asked.0, asked.1);
            let (mut found, mut after) = (Vec::new(), None);
            while let Some((range, bound)) = table.overlapping_after(asked, after).next() {
                assert!(after < Some(Spot::of(range, bound)), "in order");
                after = Some(Spot::of(range, bound));
                found.push((range, bound.node, bound.key));
            }
            let mut all: Vec<_> = table.overlapping(asked).map(|(r, b)| (r, b.node, b.key)).collect();
            all.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, all, "{asked}");
            let ranges = std::iter::successors(table.overlapping_after(asked, None).next(), |(range, _)| {
                table.overlapping_after(asked, Some(Spot::behind(*range))).next()
            });
            let mut ranges: Vec<_> = ranges.map(|(range, _)| range).collect();
            ranges.sort_unstable();
            let mut distinct: Vec<_> = all.iter().map(|(range, ..)| *range).collect();
            distinct.dedup();
            assert_eq!(ranges, distinct, "{asked}: each range once");
        }
    }
}

#[test]
fn changes_are_kept_only_for_whoever_wants_them() {
    let mut table = Table::new(OWN);
    let range = ServiceRange::new(100, 1, 9);
    table.bind(port(1), range, Scope::Cluster, 1).unwrap();
    assert_eq!(table.take_changes(), []);
    table.keep_changes(true);
    table.keep_changes(true);
    let key = table.bind(port(2), range, Scope::Node, 3).unwrap();
    table.unbind_port(port(1));
    table.unbind(port(2), range, Scope::Node).unwrap();
    let changes = table.take_changes();
    let seen: Vec<_> = changes.iter().map(|c| (c.op, c.range, c.bound.port, c.alone)).collect();
    assert_eq!(
        seen,
        [
            (BindingOp::Publish, range, port(2), false),
            (BindingOp::Withdraw, range, port(1), false),
            (BindingOp::Withdraw, range, port(2), true)
        ]
    );
    let last = Bound { node: OWN, key, port: port(2), scope: Scope::Node, weight: 3, exclusive: false };
    assert_eq!(changes[2].bound, last);
    assert_eq!(table.take_changes(), []);
    table.keep_changes(false);
    table.bind(port(1), range, Scope::Cluster, 1).unwrap();
    assert_eq!(table.take_changes(), []);
}
