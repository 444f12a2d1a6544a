//! What a node's subscribers are told while another node comes, binds, loses a link, and goes.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::id::{Incarnation, NodeId};
use polyrail_proto::link::state::LinkState;
use polyrail_proto::service::{Over, SubscriptionId, Topic, Update};
use polyrail_proto::time::Duration;
use polyrail_proto::{Config, Event};
use world::{Host, IDS, World, pair};

const SERVICE: ServiceAddress = ServiceAddress::new(100, 7);

/// A subscription of the first node, with what it was told so far.
struct Told {
    id: SubscriptionId,
    updates: Vec<Update>,
}

impl Told {
    fn new(world: &mut World, topic: Topic, timeout: Option<Duration>) -> Told {
        let now = world.now;
        let id = world.hosts[0].node.subscribe(now, topic, timeout).expect("one of few");
        Told { id, updates: Vec::new() }
    }

    /// Takes what waits; whether the subscription goes on.
    fn read(&mut self, world: &mut World) -> bool {
        loop {
            match world.hosts[0].node.poll_subscription(self.id) {
                Ok(Some(update)) => self.updates.push(update),
                Ok(None) => return true,
                Err(Over) => return false,
            }
        }
    }

    /// Steps until an update is told that `wanted` means; all up to and with it are forgotten.
    fn await_update(&mut self, world: &mut World, wanted: impl Fn(&Update) -> bool) -> Vec<Update> {
        let mut seen = Vec::new();
        let came = world.run_while(10_000, |world| {
            self.read(world);
            while seen.last().is_none_or(|last| !wanted(last)) && !self.updates.is_empty() {
                seen.push(self.updates.remove(0));
            }
            seen.last().is_none_or(|last| !wanted(last))
        });
        assert!(came, "never told: {seen:?}");
        seen
    }
}

fn is_published(update: &Update) -> bool {
    matches!(update, Update::Published(_))
}

fn everything() -> Topic {
    Topic::services(ServiceRange::new(100, 0, 99)).and_nodes().and_links()
}

#[test]
fn a_node_that_comes_is_told_with_its_links_and_what_it_binds() {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config::new(id, Incarnation(1));
        world.hosts.push(Host::new(world.now, config, seat as u16, &[0, 1], || 0));
    }
    let mut told = Told::new(&mut world, everything(), None);
    told.read(&mut world);
    assert_eq!(std::mem::take(&mut told.updates), [Update::SnapshotEnd]);
    let port = world.hosts[1].open_port();
    let seen = told
        .await_update(&mut world, |update| matches!(update, Update::NodeUp { node, .. } if *node == IDS[1]));
    let is_up = |update: &Update| matches!(update, Update::Link { to: LinkState::Up, .. });
    assert!(seen.iter().any(is_up), "a link came before the node: {seen:?}");
    world.hosts[1].bind(port, SERVICE.into());
    let Some(Update::Published(publication)) = told.await_update(&mut world, is_published).pop() else {
        panic!("it ends with the publication");
    };
    assert_eq!((publication.port.node, publication.port.port), (IDS[1], port));
    assert_eq!((publication.range, publication.scope), (SERVICE.into(), Scope::Cluster));
    world.hosts[1].node.unbind(port, SERVICE.into(), Scope::Cluster).expect("it was bound");
    let seen = told.await_update(&mut world, |update| matches!(update, Update::Withdrawn(_)));
    assert_eq!(seen.last(), Some(&Update::Withdrawn(publication)));
}

/// Two nodes, one of which has bound `count` services and subscribes to nothing, and all that the other is told first.
fn bound_pair(count: u32) -> (World, Told) {
    let (mut world, ports) = pair();
    for instance in 0..count {
        world.hosts[1].bind(ports[1], ServiceAddress::new(100, instance).into());
    }
    let mut told = Told::new(&mut world, everything(), None);
    for _ in 0..count {
        told.await_update(&mut world, is_published);
    }
    told.updates.clear();
    (world, told)
}

/// What is told of the end of a node: its bindings, its links, itself, in one go.
fn is_the_end_of(seen: &[Update], bindings: usize, left: bool) {
    let kinds: String = seen
        .iter()
        .map(|update| match update {
            Update::Withdrawn(_) => 'w',
            Update::LinkGone { .. } => 'l',
            Update::NodeDown { left: it_said_so, .. } if *it_said_so == left => 'd',
            _ => '?',
        })
        .collect();
    assert_eq!(kinds, "w".repeat(bindings) + "lld", "{seen:?}");
}

#[test]
fn a_node_that_leaves_takes_all_with_it_at_once() {
    let (mut world, mut told) = bound_pair(5);
    let now = world.now;
    world.hosts[1].core(|node, memory| node.leave(now, memory));
    let seen = told.await_update(&mut world, |update| matches!(update, Update::NodeDown { .. }));
    is_the_end_of(&seen, 5, true);
}

#[test]
fn a_node_that_is_lost_takes_all_with_it_at_once() {
    let (mut world, mut told) = bound_pair(3);
    let mut steps = 0;
    let mut seen = Vec::new();
    while !seen.iter().any(|update| matches!(update, Update::NodeDown { .. })) {
        // Nothing passes any more.
        world.step(Duration::ms(1), |_| false);
        told.read(&mut world);
        let news = std::mem::take(&mut told.updates);
        let withdrawn = news.iter().any(|update| matches!(update, Update::Withdrawn(_)));
        let down = news.iter().any(|update| matches!(update, Update::NodeDown { .. }));
        assert_eq!(withdrawn, down, "nobody sees a part of it: {news:?}");
        seen.extend(news);
        steps += 1;
        assert!(steps < 60_000, "never lost: {seen:?}");
    }
    let links_died = seen.iter().filter(|update| matches!(update, Update::Link { to: LinkState::Down, .. }));
    assert_eq!(links_died.count(), 2, "both links were given up first: {seen:?}");
    seen.retain(|update| !matches!(update, Update::Link { .. }));
    is_the_end_of(&seen, 3, false);
}

#[test]
fn a_link_that_dies_and_comes_back_is_told_and_nothing_else_is() {
    let (mut world, mut told) = bound_pair(1);
    let now_silent = |world: &mut World, told: &mut Told, silent: bool, wanted: LinkState| {
        let mut seen = Vec::new();
        for _ in 0..20_000 {
            world.step(Duration::ms(1), |packet| !(silent && packet.medium() == 1));
            told.read(world);
            seen.append(&mut told.updates);
            if seen.iter().any(|update| matches!(update, Update::Link { to, .. } if *to == wanted)) {
                return seen;
            }
        }
        panic!("it never became {wanted:?}: {seen:?}");
    };
    let mut seen = now_silent(&mut world, &mut told, true, LinkState::Down);
    seen.extend(now_silent(&mut world, &mut told, false, LinkState::Up));
    let mut last = LinkState::Up;
    for update in &seen {
        let Update::Link { node, from: Some(from), to, .. } = update else { panic!("{seen:?}") };
        assert_eq!((*node, *from), (IDS[1], last), "each begins where the one before ended: {seen:?}");
        last = *to;
    }
}

#[test]
fn who_asks_late_is_told_what_there_is_and_not_how_it_came_about() {
    let (mut world, _) = bound_pair(2);
    // News that nobody has taken yet.
    assert!(world.hosts[0].node.subscriptions().len() == 1);
    let mut told = Told::new(&mut world, everything(), Some(Duration::ZERO));
    assert!(!told.read(&mut world), "it is over at once");
    let [up, link, other, one, two, end, over] = &told.updates[..] else { panic!("{:?}", told.updates) };
    assert!(matches!(up, Update::NodeUp { node, incarnation: Incarnation(1), .. } if *node == IDS[1]));
    for link in [link, other] {
        assert!(matches!(link, Update::Link { from: None, to: LinkState::Up, .. }), "{link:?}");
    }
    assert!(is_published(one) && is_published(two));
    assert_eq!((end, over), (&Update::SnapshotEnd, &Update::TimedOut));
}

#[test]
fn time_ends_a_subscription_by_the_nodes_own_timers() {
    let (mut world, _) = pair();
    let mut told = Told::new(&mut world, Topic::nodes(), Some(Duration::ms(50)));
    let end = world.now + Duration::ms(50);
    assert!(world.hosts[0].node.poll_timeout(world.now) <= end);
    while world.now < end {
        assert!(told.read(&mut world));
        assert!(!told.updates.contains(&Update::TimedOut));
        world.step(Duration::ms(1), |_| true);
    }
    assert_eq!(world.hosts[0].node.poll_told(), Some(told.id));
    assert!(!told.read(&mut world));
    assert_eq!(told.updates.last(), Some(&Update::TimedOut));
    assert_eq!(world.hosts[0].node.subscriptions().len(), 0);
}

#[test]
fn own_bindings_are_told_and_the_node_itself_is_not() {
    let (mut world, ports) = pair();
    let topic = Topic::services(ServiceRange::new(100, 0, 99)).and_nodes();
    let mut told = Told::new(&mut world, topic, None);
    world.hosts[0].node.bind(ports[0], SERVICE.into(), Scope::Node).expect("a service for programs");
    told.read(&mut world);
    let [Update::NodeUp { node, .. }, Update::Published(own), Update::SnapshotEnd] = told.updates[..] else {
        panic!("{:?}", told.updates)
    };
    assert_eq!((node, own.port.node, own.scope), (IDS[1], IDS[0], Scope::Node));
    told.updates.clear();
    let now = world.now;
    world.hosts[0].close_port(now, ports[0]);
    told.read(&mut world);
    assert_eq!(told.updates, [Update::Withdrawn(own)]);
}

#[test]
fn news_is_told_to_subscribers_and_to_the_driver_alike() {
    let (mut world, _) = pair();
    let mut told = Told::new(&mut world, Topic::nodes(), None);
    told.read(&mut world);
    world.hosts[0].news.clear();
    let now = world.now;
    world.hosts[1].core(|node, memory| node.leave(now, memory));
    told.await_update(&mut world, |update| matches!(update, Update::NodeDown { .. }));
    let down = |event: &&Event| matches!(event, Event::PeerDown { node: NodeId(6), left: true, .. });
    assert_eq!(world.hosts[0].news.iter().filter(down).count(), 1);
}
