use super::*;
use crate::id::PortId;
use crate::wire::Binding;

const OWN: NodeId = NodeId(5);
const NOW: Instant = Instant(1_000_000);

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// A node as subscribers see it, with the calls that change it.
struct World {
    table: Table,
    nodes: BTreeMap<NodeId, Incarnation>,
    links: BTreeMap<(NodeId, LinkId), LinkState>,
    subscriptions: Subscriptions,
}

struct View<'a>(&'a Table, &'a BTreeMap<NodeId, Incarnation>, &'a BTreeMap<(NodeId, LinkId), LinkState>);

impl Picture for View<'_> {
    fn table(&self) -> &Table {
        self.0
    }
    fn node_after(&self, after: NodeId) -> Option<(NodeId, Incarnation, ArrayString<63>)> {
        let (node, incarnation) = self.1.iter().find(|(node, _)| **node > after)?;
        Some((*node, *incarnation, ArrayString::default()))
    }
    fn link_after(&self, after: (NodeId, LinkId)) -> Option<(NodeId, LinkId, BearerId, LinkState)> {
        let (&(node, link), state) = self.2.iter().find(|(id, _)| **id > after)?;
        Some((node, link, BearerId(0), *state))
    }
}

impl World {
    fn new() -> World {
        let mut table = Table::new(OWN);
        table.keep_changes(true);
        let (nodes, links) = (BTreeMap::new(), BTreeMap::new());
        World { table, nodes, links, subscriptions: Subscriptions::default() }
    }

    fn subscribe(&mut self, topic: Topic) -> SubscriptionId {
        self.subscriptions.add(NOW, topic, None).unwrap()
    }

    fn apply(&mut self, op: BindingOp, node: u64, range: ServiceRange, key: u64) {
        let port = PortId(key as u32);
        let record = Binding { op, range, port, key, scope: Scope::Cluster, weight: 1, exclusive: false };
        self.table.apply(NodeId(node), &record);
        self.tell();
    }

    fn publish(&mut self, node: u64, range: ServiceRange, key: u64) {
        self.apply(BindingOp::Publish, node, range, key);
    }

    fn withdraw(&mut self, node: u64, range: ServiceRange, key: u64) {
        self.apply(BindingOp::Withdraw, node, range, key);
    }

    fn tell(&mut self) {
        let changes = self.table.take_changes();
        self.subscriptions.on_changes(&changes);
    }

    fn poll(&mut self, id: SubscriptionId) -> Result<Option<Update>, Over> {
        self.subscriptions.poll(id, &View(&self.table, &self.nodes, &self.links))
    }

    /// All that waits, in short.
    fn read(&mut self, id: SubscriptionId) -> Vec<String> {
        std::iter::from_fn(|| self.poll(id).unwrap()).map(|update| short(&update)).collect()
    }

    fn told(&mut self) -> Vec<SubscriptionId> {
        std::iter::from_fn(|| self.subscriptions.poll_told()).collect()
    }
}

/// An update in a word.
fn short(update: &Update) -> String {
    match update {
        Update::Published(p) => format!("+{} of {} by {}", p.range, p.port.node.0, p.key),
        Update::Withdrawn(p) => format!("-{} of {} by {}", p.range, p.port.node.0, p.key),
        Update::NodeUp { node, .. } => format!("node {} up", node.0),
        Update::NodeDown { node, left, .. } => {
            format!("node {} {}", node.0, if *left { "left" } else { "lost" })
        }
        Update::Link { node, link, from: None, to, .. } => format!("link {}.{link} {to:?}", node.0),
        Update::Link { node, link, from: Some(from), to, .. } => {
            format!("link {}.{link} {from:?}>{to:?}", node.0)
        }
        Update::LinkGone { node, link, .. } => format!("link {}.{link} gone", node.0),
        Update::SnapshotEnd => "end".to_owned(),
        Update::Overflow => "overflow".to_owned(),
        Update::TimedOut => "over".to_owned(),
    }
}

fn range(lower: u32, upper: u32) -> ServiceRange {
    ServiceRange::new(100, lower, upper)
}

#[test]
fn what_is_there_comes_first_then_a_mark_then_changes_in_order() {
    let mut world = World::new();
    world.publish(7, range(4, 4), 1);
    world.publish(6, range(3, 3), 2);
    let id = world.subscribe(Topic::services(range(0, 9)));
    assert_eq!(world.read(id), ["+100:3 of 6 by 2", "+100:4 of 7 by 1", "end"]);
    world.publish(6, range(8, 8), 3);
    world.withdraw(7, range(4, 4), 1);
    world.publish(6, range(1, 1), 4);
    assert_eq!(world.read(id), ["+100:8 of 6 by 3", "-100:4 of 7 by 1", "+100:1 of 6 by 4"]);
    assert_eq!(world.read(id), [""; 0]);
}

#[test]
fn a_range_that_shares_an_instance_is_told_whole_and_no_other_is() {
    let mut world = World::new();
    let id = world.subscribe(Topic::services(range(10, 20)));
    assert_eq!(world.read(id), ["end"]);
    for (key, (lower, upper)) in
        [(0, 9), (0, 10), (10, 10), (15, 16), (20, 99), (21, 99), (0, u32::MAX)].into_iter().enumerate()
    {
        world.publish(6, range(lower, upper), key as u64);
    }
    world.publish(6, ServiceRange::new(101, 15, 15), 20);
    let expected =
        ["+100:0-10 of 6 by 1", "+100:10 of 6 by 2", "+100:15-16 of 6 by 3", "+100:20-99 of 6 by 4"];
    let wide = format!("+100:0-{} of 6 by 6", u32::MAX);
    assert_eq!(world.read(id), [&expected[..], &[wide.as_str()]].concat());
    // Somebody who asks now is told the same.
    let later = world.subscribe(Topic::services(range(10, 20)));
    let mut snapshot = world.read(later);
    assert_eq!(snapshot.pop().as_deref(), Some("end"));
    snapshot.sort_unstable();
    let mut expected = [&expected[..], &[wide.as_str()]].concat();
    expected.sort_unstable();
    assert_eq!(snapshot, expected);
}

#[test]
fn a_range_bound_twice_is_two_bindings_or_one_service() {
    let mut world = World::new();
    world.publish(6, range(1, 2), 1);
    world.publish(7, range(1, 2), 2);
    let every = world.subscribe(Topic::services(range(0, 9)));
    let ends = world.subscribe(Topic::services(range(0, 9)).first_and_last());
    assert_eq!(world.read(every), ["+100:1-2 of 6 by 1", "+100:1-2 of 7 by 2", "end"]);
    assert_eq!(world.read(ends), ["+100:1-2 of 6 by 1", "end"]);
    world.withdraw(6, range(1, 2), 1);
    world.publish(6, range(1, 3), 3);
    world.withdraw(7, range(1, 2), 2);
    world.publish(6, range(1, 2), 4);
    let changes = ["+100:1-3 of 6 by 3", "-100:1-2 of 7 by 2", "+100:1-2 of 6 by 4"];
    assert_eq!(world.read(every), [&["-100:1-2 of 6 by 1"][..], &changes].concat());
    assert_eq!(world.read(ends), changes);
}

#[test]
fn what_never_was_is_not_withdrawn() {
    let mut world = World::new();
    world.publish(6, range(1, 1), 1);
    let id = world.subscribe(Topic::services(range(0, 9)));
    world.read(id);
    world.withdraw(6, range(1, 1), 2);
    world.withdraw(7, range(1, 1), 1);
    world.publish(6, range(1, 1), 1);
    assert_eq!(world.read(id), [""; 0]);
    assert_eq!(world.told(), []);
}

#[test]
fn a_node_that_is_gone_takes_each_binding_with_it_and_the_service_with_the_last() {
    let mut world = World::new();
    for key in 1..=3 {
        world.publish(6, range(1, 1), key);
    }
    let every = world.subscribe(Topic::services(range(0, 9)));
    let ends = world.subscribe(Topic::services(range(0, 9)).first_and_last());
    world.read(every);
    world.read(ends);
    world.table.purge(NodeId(6));
    world.tell();
    assert_eq!(world.read(every), ["-100:1 of 6 by 1", "-100:1 of 6 by 2", "-100:1 of 6 by 3"]);
    assert_eq!(world.read(ends), ["-100:1 of 6 by 3"]);
}

#[test]
fn a_change_during_the_snapshot_is_told_once() {
    let mut world = World::new();
    for n in [10, 20, 30, 40] {
        world.publish(6, range(n, n), n.into());
    }
    let id = world.subscribe(Topic::services(range(0, 99)));
    assert_eq!(short(&world.poll(id).unwrap().unwrap()), "+100:10 of 6 by 10");
    assert_eq!(short(&world.poll(id).unwrap().unwrap()), "+100:20 of 6 by 20");
    // Behind what was read, and before it.
    world.withdraw(6, range(10, 10), 10);
    world.publish(6, range(15, 15), 15);
    world.withdraw(6, range(30, 30), 30);
    world.publish(6, range(35, 35), 35);
    // What he was told is put right first.
    assert_eq!(
        world.read(id),
        ["-100:10 of 6 by 10", "+100:15 of 6 by 15", "+100:35 of 6 by 35", "+100:40 of 6 by 40", "end"]
    );
}

#[test]
fn who_does_not_read_is_told_so_and_starts_again() {
    let mut world = World::new();
    world.publish(6, range(1, 1), 1);
    let (slow, quick) =
        (world.subscribe(Topic::services(range(0, 9))), world.subscribe(Topic::services(range(0, 9))));
    world.read(slow);
    for key in 2..=1 + SUBSCRIPTION_UPDATES_MAX as u64 {
        world.publish(6, range(2, 2), key);
        world.read(quick);
    }
    assert_eq!(world.subscriptions.overflows(), 0, "as many as there is room for");
    world.withdraw(6, range(1, 1), 1);
    assert_eq!(world.subscriptions.overflows(), 1);
    // What happens until he reads costs nothing: the snapshot will have it.
    for key in 2..=SUBSCRIPTION_UPDATES_MAX as u64 {
        world.withdraw(6, range(2, 2), key);
    }
    assert!(world.subscriptions.all[&slow].changes.capacity() == 0, "nothing is kept");
    let left = format!("+100:2 of 6 by {}", SUBSCRIPTION_UPDATES_MAX + 1);
    assert_eq!(world.read(slow), ["overflow", &left, "end"]);
    assert_eq!(world.subscriptions.overflows(), 1);
    assert!(!world.read(quick).contains(&"overflow".to_owned()), "others are not concerned");
    world.publish(6, range(1, 1), 9_999);
    assert_eq!(world.read(slow), ["+100:1 of 6 by 9999"]);
}

#[test]
fn when_its_time_is_up_a_subscription_says_so_once_and_is_gone() {
    let mut world = World::new();
    let topic = Topic::services(range(0, 9));
    let id = world.subscriptions.add(NOW, topic, Some(Duration::ms(5))).unwrap();
    let longer = world.subscriptions.add(NOW, topic, Some(Duration::ms(6))).unwrap();
    assert_eq!(world.read(id), ["end"]);
    assert_eq!(world.subscriptions.deadline(), NOW + Duration::ms(5));
    world.subscriptions.handle_timeout(NOW + Duration::ns(4_999_999));
    world.publish(6, range(1, 1), 1);
    assert_eq!(world.told(), [id]);
    world.subscriptions.handle_timeout(NOW + Duration::ms(5));
    assert_eq!(world.told(), [], "he has not read yet what he was told of");
    world.publish(6, range(2, 2), 2);
    assert_eq!(world.poll(id).map(|u| u.map(|u| short(&u))), Ok(Some("+100:1 of 6 by 1".to_owned())));
    assert_eq!(world.poll(id), Ok(Some(Update::TimedOut)));
    assert_eq!(world.poll(id), Err(Over));
    assert_eq!(world.subscriptions.deadline(), NOW + Duration::ms(6));
    assert_eq!(world.read(longer).len(), 3, "the other one goes on");
    world.subscriptions.handle_timeout(NOW + Duration::ms(6));
    assert_eq!(world.told(), [longer], "he had read all");
    assert_eq!(world.poll(longer), Ok(Some(Update::TimedOut)));
    assert!(world.subscriptions.is_empty() && world.subscriptions.deadline() == Instant::NEVER);
}

#[test]
fn no_time_is_a_snapshot_and_nothing_else() {
    let mut world = World::new();
    world.publish(6, range(1, 1), 1);
    let id = world.subscriptions.add(NOW, Topic::services(range(0, 9)), Some(Duration::ZERO)).unwrap();
    assert_eq!(short(&world.poll(id).unwrap().unwrap()), "+100:1 of 6 by 1");
    world.withdraw(6, range(1, 1), 1);
    world.publish(6, range(2, 2), 2);
    let rest = [(); 3].map(|()| world.poll(id).unwrap().map(|update| short(&update)));
    let expected = ["-100:1 of 6 by 1", "+100:2 of 6 by 2", "end"];
    assert_eq!(rest.each_ref().map(Option::as_deref), expected.map(Some), "it ends with what is true then");
    world.withdraw(6, range(2, 2), 2);
    assert_eq!(world.poll(id), Ok(Some(Update::TimedOut)));
    assert_eq!(world.poll(id), Err(Over));
}

#[test]
fn a_cancelled_subscription_is_gone_with_what_waited() {
    let mut world = World::new();
    let topic = Topic::services(range(0, 9));
    let (id, stays) =
        (world.subscriptions.add(NOW, topic, Some(Duration::ms(5))).unwrap(), world.subscribe(topic));
    world.read(id);
    world.publish(6, range(1, 1), 1);
    world.subscriptions.remove(id);
    assert_eq!(world.poll(id), Err(Over));
    assert_eq!((world.subscriptions.len(), world.subscriptions.deadline()), (1, Instant::NEVER));
    assert_eq!(world.read(stays), ["+100:1 of 6 by 1", "end"]);
    world.subscriptions.remove(stays);
    world.subscriptions.remove(stays);
    assert!(world.subscriptions.is_empty() && !world.subscriptions.ask_about_services());
}

#[test]
fn who_has_seen_all_is_told_once_that_there_is_more() {
    let mut world = World::new();
    let id = world.subscribe(Topic::services(range(0, 9)));
    world.publish(6, range(1, 1), 1);
    assert_eq!(world.told(), [], "he has the snapshot to read");
    assert!(!world.subscriptions.waits(id));
    world.read(id);
    assert!(world.subscriptions.waits(id));
    world.publish(6, range(2, 2), 2);
    world.publish(6, range(3, 3), 3);
    assert_eq!(world.told(), [id]);
    assert!(!world.subscriptions.waits(id));
    assert_eq!(world.poll(id).unwrap().map(|u| short(&u)), Some("+100:2 of 6 by 2".to_owned()));
    world.publish(6, range(4, 4), 4);
    assert_eq!(world.told(), [], "he knows that there is more");
}

#[test]
fn inverted_ranges_and_too_many_subscriptions_are_refused() {
    let mut world = World::new();
    let add = |world: &mut World, topic| world.subscriptions.add(NOW, topic, None);
    assert_eq!(add(&mut world, Topic::services(range(2, 1))), Err(SubscribeError::Inverted));
    for _ in 0..SUBSCRIPTIONS_MAX {
        add(&mut world, Topic::nodes()).unwrap();
    }
    assert_eq!(add(&mut world, Topic::nodes()), Err(SubscribeError::TooMany));
    let first = *world.subscriptions.all.keys().next().unwrap();
    world.subscriptions.remove(first);
    assert!(add(&mut world, Topic::links()).is_ok());
}

#[test]
fn nodes_links_and_services_come_in_this_order_and_changes_as_they_happen() {
    let mut world = World::new();
    world.publish(6, range(1, 1), 1);
    for node in [NodeId(6), NodeId(9)] {
        world.nodes.insert(node, Incarnation(1));
        for link in [LinkId(0), LinkId(3)] {
            world.links.insert((node, link), LinkState::Up);
        }
    }
    let all = world.subscribe(Topic::services(range(0, 9)).and_links().and_nodes());
    let (links, nodes) = (world.subscribe(Topic::links()), world.subscribe(Topic::nodes()));
    let seen_links = ["link 6.0 Up", "link 6.3 Up", "link 9.0 Up", "link 9.3 Up"];
    let expected = [&["node 6 up", "node 9 up"][..], &seen_links, &["+100:1 of 6 by 1", "end"]].concat();
    assert_eq!(world.read(all), expected);
    assert_eq!(world.read(links), [&seen_links[..], &["end"]].concat());
    assert_eq!(world.read(nodes), ["node 6 up", "node 9 up", "end"]);

    let (node, link, bearer) = (NodeId(6), LinkId(3), BearerId(0));
    let (from, to) = (Some(LinkState::Up), LinkState::Down);
    world.subscriptions.on_link(node, link, Update::Link { node, link, bearer, from, to });
    world.table.purge(node);
    world.tell();
    world.subscriptions.on_link(node, link, Update::LinkGone { node, link, bearer });
    let down = Update::NodeDown { node, incarnation: Incarnation(1), left: false };
    world.subscriptions.on_node(node, down);
    assert_eq!(world.read(all), ["link 6.3 Up>Down", "-100:1 of 6 by 1", "link 6.3 gone", "node 6 lost"]);
    assert_eq!(world.read(links), ["link 6.3 Up>Down", "link 6.3 gone"]);
    assert_eq!(world.read(nodes), ["node 6 lost"]);
}

#[test]
fn changes_of_nodes_and_links_during_the_snapshot_are_told_once() {
    let mut world = World::new();
    for node in [NodeId(6), NodeId(9)] {
        world.nodes.insert(node, Incarnation(1));
        world.links.insert((node, LinkId(0)), LinkState::Up);
    }
    let id = world.subscribe(Topic::nodes().and_links());
    assert_eq!(short(&world.poll(id).unwrap().unwrap()), "node 6 up");
    for node in [NodeId(6), NodeId(9)] {
        world.nodes.remove(&node);
        world.links.remove(&(node, LinkId(0)));
        let (link, bearer) = (LinkId(0), BearerId(0));
        world.subscriptions.on_link(node, link, Update::LinkGone { node, link, bearer });
        let down = Update::NodeDown { node, incarnation: Incarnation(1), left: true };
        world.subscriptions.on_node(node, down);
    }
    assert_eq!(world.read(id), ["node 6 left", "end"]);
}

/// What a subscriber makes of what he is told; every contradiction in it is a failure.
#[derive(Default)]
struct Reader {
    known: BTreeMap<(NodeId, u64), Publication>,
    complete: bool,
    overflows: u64,
}

impl Reader {
    fn take(&mut self, update: Update) {
        match update {
            Update::Published(p) => {
                assert_eq!(self.known.insert((p.port.node, p.key), p), None, "told twice: {p:?}");
            }
            Update::Withdrawn(p) => {
                assert_eq!(self.known.remove(&(p.port.node, p.key)), Some(p), "never told");
            }
            Update::SnapshotEnd => assert!(!std::mem::replace(&mut self.complete, true)),
            Update::Overflow => {
                *self = Reader { overflows: self.overflows + 1, ..Reader::default() };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What he should know.
fn truth(table: &Table, range: ServiceRange) -> BTreeMap<(NodeId, u64), Publication> {
    table.overlapping(range).map(|(r, b)| ((b.node, b.key), Publication::new(r, b))).collect()
}

#[test]
fn whatever_happens_and_however_slowly_it_is_read_the_picture_is_true_in_the_end() {
    let mut overflows = 0;
    for seed in 1..=12u64 {
        let mut state = seed * 0x9e37_79b9;
        let (mut world, mut live) = (World::new(), Vec::new());
        let asked = range(200, 700);
        let mut readers: Vec<(SubscriptionId, Reader, u64)> = Vec::new();
        for step in 0..24_000u64 {
            if readers.len() < 4 && step % 1_000 == 500 {
                // One that reads all the time, one that reads all and then sleeps for long, others in between.
                let id = world.subscribe(Topic::services(asked));
                readers.push((id, Reader::default(), [1, 7, 60, 12_000][readers.len()]));
            }
            match random(&mut state, 100) {
                0..=54 => {
                    let lower = random(&mut state, 1_000) as u32;
                    let width = 1 << random(&mut state, 9);
                    let upper = lower + random(&mut state, width) as u32;
                    let node = 6 + random(&mut state, 3);
                    live.push((node, range(lower, upper), step));
                    world.publish(node, range(lower, upper), step);
                }
                55..=98 if !live.is_empty() => {
                    let at = random(&mut state, live.len() as u64) as usize;
                    let (node, range, key) = live.swap_remove(at);
                    world.withdraw(node, range, key);
                }
                99 if step % 7 == 0 => {
                    let gone = 6 + random(&mut state, 3);
                    live.retain(|(node, ..)| *node != gone);
                    world.table.purge(NodeId(gone));
                    world.tell();
                }
                _ => {}
            }
            for (id, reader, patience) in &mut readers {
                let most = if *patience == 12_000 { 10_000 } else { 5 };
                for _ in 0..if step % *patience == 0 { most } else { 0 } {
                    if let Some(update) = world.poll(*id).unwrap() {
                        reader.take(update);
                    }
                }
            }
        }
        let truth = truth(&world.table, asked);
        for (id, mut reader, patience) in readers {
            while let Some(update) = world.poll(id).unwrap() {
                reader.take(update);
            }
            assert!(reader.complete && reader.known == truth, "seed {seed}, patience {patience}");
            overflows += reader.overflows;
        }
        assert!(truth.len() > 10, "seed {seed} leaves too little to compare");
    }
    assert!(overflows > 0, "the slowest must have lost something");
}
