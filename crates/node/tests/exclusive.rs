//! A service that is to have one port only.

mod local;

use local::{PATIENCE, address, node};
use polyrail::{BindError, Config, Node, Port, RecvError, Scope, ServiceAddress, ServiceRange};

const RANGE: ServiceRange = ServiceRange::new(1000, 5, 9);

#[test]
fn whoever_comes_second_is_told_who_was_first() {
    let a = node(Config::new(), &[]);
    let b = node(Config::new(), &[address(&a)]);
    let (first, second) = (a.port().unwrap(), b.port().unwrap());
    first.bind_exclusive(RANGE, Scope::Cluster).unwrap();
    let other = a.port().unwrap();
    let taken = Err(BindError::Taken { by: first.address().node });
    assert_eq!(other.bind(ServiceAddress::new(1000, 9), Scope::Cluster), taken);
    second.wait_for(ServiceAddress::new(1000, 7), Some(PATIENCE)).unwrap();
    assert_eq!(second.bind_exclusive(ServiceRange::new(1000, 9, 20), Scope::Cluster), taken);
    assert_eq!(second.bind(ServiceRange::new(1000, 0, 5), Scope::Node), taken);
    first.unbind(RANGE, Scope::Cluster).unwrap();
    first.await_known(Some(PATIENCE)).unwrap();
    second.bind_exclusive(RANGE, Scope::Cluster).unwrap();
    second.send(second.address(), b"still a port").unwrap();
    assert_eq!(second.recv().unwrap().bytes(), b"still a port");
}

/// Two ports of nodes that bind the same before they know each other.
fn at_the_same_time() -> Option<[(Node, Port); 2]> {
    let a = node(Config::new(), &[]);
    let first = a.port().unwrap();
    first.bind_exclusive(RANGE, Scope::Cluster).unwrap();
    let b = node(Config::new(), &[address(&a)]);
    let second = b.port().unwrap();
    second.bind_exclusive(RANGE, Scope::Cluster).ok()?;
    Some([(a, first), (b, second)])
}

#[test]
fn of_two_at_the_same_time_the_larger_node_loses_and_its_port_is_told() {
    let pair = (0..100).find_map(|_| at_the_same_time()).expect("they do not always meet at once");
    let [winner, loser] = {
        let [a, b] = pair;
        if a.1.address().node < b.1.address().node { [a, b] } else { [b, a] }
    };
    let by = winner.1.address().node;
    let told = loser.1.recv_timeout(PATIENCE).map(|message| message.is_some());
    assert_eq!(told, Err(RecvError::Unbound { range: RANGE, by }));
    assert_eq!(loser.1.bind(RANGE, Scope::Cluster), Err(BindError::Taken { by }));
    // The port goes on, and the service has one port for all.
    loser.1.send(ServiceAddress::new(1000, 6), b"to the one").unwrap();
    assert_eq!(winner.1.recv().unwrap().bytes(), b"to the one");
}
