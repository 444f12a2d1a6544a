//! Who has waited until its bindings are known may tell others of them at once.

mod local;

use local::{PATIENCE, address};
use polyrail::{Config, Error, Node, Progress, Scope, ServiceAddress};
use std::sync::mpsc;
use std::time::Duration;

fn service(instance: u32) -> ServiceAddress {
    ServiceAddress::new(1000, instance)
}

fn node(progress: Progress, name: &str, peers: &[String]) -> Node {
    local::node(Config::new().progress(progress).name(name), peers)
}

fn knows(node: &Node, instance: u32) -> bool {
    node.status().services.iter().any(|row| row.kind == 1000 && row.lower == instance)
}

#[test]
fn what_is_bound_is_known_to_all_and_what_is_taken_back_to_none() {
    let a = node(Progress::Auto, "a", &[]);
    let others = ["b", "c"].map(|name| node(Progress::Auto, name, &[address(&a)]));
    let port = a.port().unwrap();
    for other in &others {
        let theirs = other.port().unwrap();
        theirs.bind(service(1), Scope::Cluster).unwrap();
        port.wait_for(service(1), Some(PATIENCE)).unwrap();
        theirs.unbind(service(1), Scope::Cluster).unwrap();
        theirs.await_known(Some(PATIENCE)).unwrap();
        assert!(!knows(&a, 1));
    }
    for instance in 2..300 {
        port.bind(service(instance), Scope::Cluster).unwrap();
        port.await_known(Some(PATIENCE)).unwrap();
        assert!(others.iter().all(|other| knows(other, instance)), "{instance} is bound");
        port.unbind(service(instance), Scope::Cluster).unwrap();
        port.await_known(Some(PATIENCE)).unwrap();
        assert!(!others.iter().any(|other| knows(other, instance)), "{instance} is not bound any more");
    }
}

#[test]
fn a_thread_that_waits_is_woken_when_another_one_drives() {
    for progress in [Progress::Auto, Progress::Manual] {
        let a = node(progress, "a", &[]);
        let b = node(Progress::Auto, "b", &[address(&a)]);
        let (port, busy, there) = (a.port().unwrap(), a.port().unwrap(), b.port().unwrap());
        there.bind(service(1), Scope::Cluster).unwrap();
        port.wait_for(service(1), Some(PATIENCE)).unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    assert!(busy.try_recv().unwrap().is_none());
                }
            });
            for instance in 10..200 {
                port.bind(service(instance), Scope::Cluster).unwrap();
                port.await_known(Some(PATIENCE)).unwrap();
                assert!(knows(&b, instance));
            }
            drop(stop);
        });
    }
}

#[test]
fn who_does_not_know_yet_is_named() {
    // The slow node is one that nobody drives.
    if local::are_attached() {
        return;
    }
    let a = node(Progress::Auto, "a", &[]);
    let slow = node(Progress::Manual, "slow", &[address(&a)]);
    let (port, there) = (a.port().unwrap(), slow.port().unwrap());
    port.await_known(None).unwrap();
    port.bind(service(1), Scope::Cluster).unwrap();
    // It is driven until it knows that, and then no more.
    there.wait_for(service(1), Some(PATIENCE)).unwrap();
    port.bind(service(2), Scope::Cluster).unwrap();
    let error = port.await_known(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error, Error::TimedOut("; not all bindings are known to slow".to_owned()));
    std::thread::scope(|scope| {
        let driver = scope.spawn(move || there.wait_for(service(2), Some(PATIENCE)).map(|()| there));
        port.await_known(Some(PATIENCE)).unwrap();
        assert!(knows(&slow, 2));
        drop(driver.join().unwrap().unwrap());
    });
}
