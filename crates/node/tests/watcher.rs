//! The example `watcher`: its directory is right whatever happens to the servers, and however late it looks.

#[path = "../examples/watcher.rs"]
mod watcher;

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Config, Scope, ServiceAddress, Topic};
use std::sync::mpsc;
use watcher::{Directory, SERVICES, watch};

#[test]
fn it_follows_servers_that_come_and_go() {
    let watching = node(Config::new(), &[]);
    let updates = watching.subscribe(Topic::services(SERVICES)).unwrap();
    let (shown, shows) = mpsc::channel();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut seen_all = false;
            watch(updates, |directory| {
                let servers: Vec<usize> =
                    [7, 8].map(|instance| directory.servers_of(instance).count()).to_vec();
                seen_all |= servers == [2, 1];
                shown.send(servers).unwrap();
                seen_all && directory.bindings() == 0
            })
        });
        let until = |wanted: [usize; 2]| while shows.recv_timeout(PATIENCE).unwrap() != wanted {};
        until([0, 0]);
        let server = node(Config::new(), &[address(&watching)]);
        let ports = [server.port().unwrap(), watching.port().unwrap()];
        ports[0].bind(ServiceAddress::new(1000, 7), Scope::Cluster).unwrap();
        ports[0].bind(ServiceAddress::new(1000, 8), Scope::Cluster).unwrap();
        ports[1].bind(ServiceAddress::new(1000, 7), Scope::Node).unwrap();
        until([2, 1]);
        ports[1].unbind(ServiceAddress::new(1000, 7), Scope::Node).unwrap();
        until([1, 1]);
        drop(server);
        until([0, 0]);
        assert!(watcher.join().unwrap().unwrap().complete);
    });
}

#[test]
fn it_forgets_what_may_be_wrong() {
    let watching = node(Config::new(), &[]);
    let port = watching.port().unwrap();
    let bind = |instance| port.bind(ServiceAddress::new(1000, instance), Scope::Node).unwrap();
    bind(1);
    let mut updates = watching.subscribe(Topic::services(SERVICES)).unwrap();
    let mut directory = Directory::default();
    while !directory.complete {
        directory.take(&updates.next().unwrap());
    }
    assert_eq!(directory.servers_of(1).count(), 1);
    port.unbind(ServiceAddress::new(1000, 1), Scope::Node).unwrap();
    // More than waits for anybody; the withdrawal is among what is dropped.
    for instance in 2..5_000 {
        bind(instance);
    }
    while !directory.complete || directory.servers_of(4_999).count() == 0 {
        directory.take(&updates.next_timeout(PATIENCE).unwrap().expect("an update in time"));
    }
    let found = [1, 4_999].map(|instance| directory.servers_of(instance).count());
    assert_eq!((directory.complete, directory.bindings(), found), (true, 4_998, [0, 1]));
}
