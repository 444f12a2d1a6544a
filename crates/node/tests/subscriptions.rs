//! Subscribers of real nodes: what they are told, and that they are woken whoever drives.

mod local;

use local::{PATIENCE, address};
use polyrail::{
    Config, LinkState, Node, Port, Progress, Scope, ServiceAddress, ServiceRange, SubscribeError,
    Subscription, Topic, Update, UpdateError,
};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use std::time::Duration;

const SERVICES: ServiceRange = ServiceRange::new(1000, 0, 99);

fn service(instance: u32) -> ServiceAddress {
    ServiceAddress::new(1000, instance)
}

fn node(progress: Progress, peers: &[String]) -> Node {
    // One link is enough to be told of.
    local::node(Config::new().progress(progress).shared_memory(false), peers)
}

/// The next update; that none comes is a failure.
fn next(subscription: &mut Subscription) -> Update {
    subscription.next_timeout(PATIENCE).unwrap().expect("an update in time")
}

/// Updates up to the first that `wanted` means.
fn until(subscription: &mut Subscription, wanted: impl Fn(&Update) -> bool) -> Vec<Update> {
    let mut seen = vec![next(subscription)];
    while !wanted(&seen[seen.len() - 1]) {
        seen.push(next(subscription));
    }
    seen
}

/// Service, node and port of a publication.
fn published(update: Update) -> (ServiceRange, polyrail::PortAddress) {
    let Update::Published(publication) = update else { panic!("{update:?}") };
    (publication.range, publication.port)
}

#[test]
fn a_subscriber_sees_a_node_come_bind_and_go() {
    let watcher = node(Progress::Auto, &[]);
    let mut subscription = watcher.subscribe(Topic::services(SERVICES).and_nodes().and_links()).unwrap();
    assert_eq!(next(&mut subscription), Update::SnapshotEnd);
    let other = node(Progress::Auto, &[address(&watcher)]);
    let seen = until(&mut subscription, |update| matches!(update, Update::NodeUp { .. }));
    assert!(
        seen.iter().any(
            |update| matches!(update, Update::Link { to: LinkState::Up, node, .. } if *node == other.id())
        ),
        "{seen:?}"
    );
    let Some(Update::NodeUp { node: up, name, .. }) = seen.last() else { panic!("{seen:?}") };
    assert_eq!((*up, name.as_str()), (other.id(), other.name()));

    let port = other.port().unwrap();
    port.bind(service(7), Scope::Cluster).unwrap();
    port.bind(ServiceRange::new(1000, 90, 200), Scope::Cluster).unwrap();
    port.bind(ServiceRange::new(1000, 100, 200), Scope::Cluster).unwrap();
    port.bind(service(8), Scope::Node).unwrap();
    let is_published = |update: &Update| matches!(update, Update::Published(_));
    let one = until(&mut subscription, is_published).pop().unwrap();
    assert_eq!(published(one), (service(7).into(), port.address()));
    let two = until(&mut subscription, is_published).pop().unwrap();
    assert_eq!(published(two), (ServiceRange::new(1000, 90, 200), port.address()));
    port.unbind(service(7), Scope::Cluster).unwrap();
    let Update::Published(binding) = one else { unreachable!("it was published") };
    assert_eq!(next(&mut subscription), Update::Withdrawn(binding));

    drop(port);
    let mut rest = until(&mut subscription, |update| matches!(update, Update::Withdrawn(_)));
    let keeper = other.port().unwrap();
    keeper.bind(service(9), Scope::Cluster).unwrap();
    rest.extend(until(&mut subscription, is_published));
    other.leave(PATIENCE).unwrap();
    let end = until(&mut subscription, |update| matches!(update, Update::NodeDown { .. }));
    let [Update::Withdrawn(last), Update::LinkGone { .. }, Update::NodeDown { left: true, node, .. }] =
        end[..]
    else {
        panic!("{end:?} after {rest:?}")
    };
    assert_eq!((last.port, node), (keeper.address(), up.to_owned()));
}

/// One thread waits for each of many changes, another makes each as soon as the one before was seen.
fn changes_wake(progress: Progress, driven_beside: bool) {
    let node = node(progress, &[]);
    let port = node.port().unwrap();
    let beside = node.port().unwrap();
    let mut subscription = node.subscribe(Topic::services(SERVICES)).unwrap();
    let (seen, sees) = std::sync::mpsc::channel::<()>();
    let count = 500;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(next(&mut subscription), Update::SnapshotEnd);
            seen.send(()).unwrap();
            for n in 0..count {
                let update = next(&mut subscription);
                assert_eq!(matches!(update, Update::Published(_)), n % 2 == 0, "{n}: {update:?}");
                seen.send(()).unwrap();
            }
        });
        let ended = std::sync::mpsc::channel::<()>();
        if driven_beside {
            // Somebody who sleeps in the poller's seat most of the time, and is given up when all is over.
            let stop = ended.1;
            scope.spawn(move || {
                while stop.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    assert!(beside.recv_timeout(Duration::from_millis(20)).unwrap().is_none());
                }
            });
        }
        for n in 0..count {
            sees.recv_timeout(PATIENCE).unwrap();
            match n % 2 {
                0 => port.bind(service(1), Scope::Node).unwrap(),
                _ => port.unbind(service(1), Scope::Node).unwrap(),
            }
        }
        sees.recv_timeout(PATIENCE).unwrap();
        drop(ended.0);
    });
}

#[test]
fn a_waiting_subscriber_is_woken_by_another_thread_whoever_drives() {
    changes_wake(Progress::Auto, false);
    changes_wake(Progress::Auto, true);
    changes_wake(Progress::Manual, false);
    changes_wake(Progress::Manual, true);
}

/// What a node of the other process would do, on a thread of its own that only this one drives.
fn manual_peer(peer: &str, stop: &std::sync::mpsc::Receiver<()>) {
    let node = node(Progress::Manual, &[peer.to_owned()]);
    let port: Port = node.port().unwrap();
    port.bind(service(3), Scope::Cluster).unwrap();
    while stop.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        assert!(port.recv_timeout(Duration::from_millis(5)).unwrap().is_none());
    }
}

#[test]
fn a_thread_that_is_the_only_driver_waits_and_drives() {
    let watcher = node(Progress::Manual, &[]);
    let mut subscription = watcher.subscribe(Topic::services(SERVICES).and_nodes()).unwrap();
    let at = address(&watcher);
    let (stop, stopped) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || manual_peer(&at, &stopped));
        // In any order: what a node has bound may be told before it. One that leaves before it was told is not told.
        let (mut up, mut bound) = (false, false);
        while !(up && bound) {
            match next(&mut subscription) {
                Update::NodeUp { .. } => up = true,
                Update::Published(_) => bound = true,
                _ => {}
            }
        }
        stop.send(()).unwrap();
        let end = until(&mut subscription, |update| matches!(update, Update::NodeDown { .. }));
        assert!(end.iter().any(|update| matches!(update, Update::Withdrawn(_))), "{end:?}");
    });
}

#[test]
fn a_program_with_an_event_loop_sleeps_on_the_descriptor() {
    for progress in [Progress::Auto, Progress::Manual] {
        let watcher = node(progress, &[]);
        let mut subscription = watcher.subscribe(Topic::services(SERVICES)).unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(subscription.fd().unwrap(), 0, Interest::READ).unwrap();
        let mut next = || {
            let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
            loop {
                if let Some(update) = subscription.try_next().unwrap() {
                    return update;
                }
                epoll.wait(&mut Events::new(4), Some(PATIENCE.as_nanos() as u64)).unwrap();
                assert!(monotonic_ns() < until, "slept although there was something");
            }
        };
        assert_eq!(next(), Update::SnapshotEnd);
        let other = node(Progress::Auto, &[address(&watcher)]);
        let port = other.port().unwrap();
        for instance in 0..20 {
            port.bind(service(instance), Scope::Cluster).unwrap();
            assert_eq!(published(next()), (service(instance).into(), port.address()));
        }
        // What a thread of the same node does while the other sleeps.
        let own = watcher.port().unwrap();
        std::thread::scope(|scope| {
            let binder = scope.spawn(move || {
                own.bind(service(50), Scope::Node).unwrap();
                own
            });
            assert_eq!(published(next()).0, service(50).into());
            drop(binder.join());
        });
    }
}

#[test]
fn a_subscription_ends_when_its_time_is_up_and_without_time_is_a_picture() {
    for progress in [Progress::Auto, Progress::Manual] {
        let node = node(progress, &[]);
        let port = node.port().unwrap();
        port.bind(service(1), Scope::Node).unwrap();
        let mut picture = node.subscribe_for(Topic::services(SERVICES), Duration::ZERO).unwrap();
        assert_eq!(published(picture.next().unwrap()).0, service(1).into());
        assert_eq!(picture.next(), Ok(Update::SnapshotEnd));
        assert_eq!(picture.next(), Ok(Update::TimedOut));
        assert_eq!(picture.next(), Err(UpdateError::Over));
        let mut short = node.subscribe_for(Topic::nodes(), Duration::from_millis(30)).unwrap();
        assert_eq!(short.next(), Ok(Update::SnapshotEnd));
        assert_eq!(short.next(), Ok(Update::TimedOut), "and it waits for it");
        assert_eq!(short.next_timeout(PATIENCE), Err(UpdateError::Over));
        let mut silent = node.subscribe(Topic::nodes()).unwrap();
        assert_eq!(silent.next(), Ok(Update::SnapshotEnd));
        assert_eq!(silent.next_timeout(Duration::from_millis(5)), Ok(None));
        assert_eq!(silent.try_next(), Ok(None));
    }
}

#[test]
fn who_does_not_read_begins_anew_with_what_there_is() {
    let node = node(Progress::Auto, &[]);
    let port = node.port().unwrap();
    let mut subscription = node.subscribe(Topic::services(SERVICES)).unwrap();
    assert_eq!(subscription.next(), Ok(Update::SnapshotEnd));
    let most = polyrail_proto::limits::SUBSCRIPTION_UPDATES_MAX as u32;
    // Between processes, some are on their way when those that wait are too many.
    let times = if local::are_attached() { 2 * most } else { most / 2 + 1 };
    for _ in 0..times {
        port.bind(service(1), Scope::Node).unwrap();
        port.unbind(service(1), Scope::Node).unwrap();
    }
    port.bind(service(2), Scope::Node).unwrap();
    let told = until(&mut subscription, |update| *update == Update::Overflow);
    assert!(told.len() == 1 || local::are_attached(), "{}", told.len());
    assert_eq!(published(subscription.next().unwrap()).0, service(2).into());
    assert_eq!(subscription.next(), Ok(Update::SnapshotEnd));
    assert_eq!(subscription.try_next(), Ok(None));
    let drops = node.status().drops;
    assert!(drops.contains(&("slow-subscriber".to_owned(), 1)), "{drops:?}");
}

#[test]
fn a_node_that_closes_wakes_who_waits() {
    for progress in [Progress::Auto, Progress::Manual] {
        let node = node(progress, &[]);
        let mut subscription = node.subscribe(Topic::nodes()).unwrap();
        assert_eq!(subscription.next(), Ok(Update::SnapshotEnd));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(move || subscription.next_timeout(PATIENCE));
            drop(node);
            assert_eq!(waiter.join().unwrap(), Err(UpdateError::Closed));
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_dropped_subscriptions_make_room() {
    let node = node(Progress::Auto, &[]);
    let inverted = Topic::services(ServiceRange::new(1000, 2, 1));
    assert_eq!(node.subscribe(inverted).err(), Some(SubscribeError::Inverted));
    for _ in 0..polyrail_proto::limits::SUBSCRIPTIONS_MAX + 10 {
        drop(node.subscribe(Topic::nodes()).unwrap());
    }
}
