//! Who of several servers gets a message, as its sender chose to look, on this node and on another one.

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Class, Config, Lookup, Port, Scope, ServiceAddress};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// How many of `count` messages each of the servers gets; `tag` names them.
fn shares<const N: usize>(caller: &Port, servers: [&Port; N], tags: impl Iterator<Item = u64>) -> [usize; N] {
    let mut got = [0; N];
    for tag in tags {
        caller.send_with(SERVICE.into(), Class::Normal, Some(tag), b"x", None).unwrap();
        caller.flush(Some(PATIENCE)).unwrap();
        for (count, server) in got.iter_mut().zip(servers) {
            *count += usize::from(server.try_recv().unwrap().is_some());
        }
    }
    got
}

#[test]
fn messages_go_to_the_nearest_to_all_or_by_their_key() {
    let a = node(Config::new(), &[]);
    let b = node(Config::new(), &[address(&a)]);
    let (caller, near, far) = (a.port().unwrap(), a.port().unwrap(), b.port().unwrap());
    near.bind(SERVICE, Scope::Cluster).unwrap();
    // The two have met.
    far.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    far.bind(SERVICE, Scope::Cluster).unwrap();
    far.await_known(Some(PATIENCE)).unwrap();
    assert_eq!(shares(&caller, [&near, &far], 0..12), [12, 0], "own ports first");
    caller.set_lookup(Lookup::LeastDelay);
    assert_eq!(shares(&caller, [&near, &far], 0..12), [12, 0]);
    caller.set_lookup(Lookup::RoundRobin);
    assert_eq!(shares(&caller, [&near, &far], 0..12), [6, 6]);
    caller.set_lookup(Lookup::Sticky);
    let spread = shares(&caller, [&near, &far], 0..40);
    assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
    let other = b.port().unwrap();
    other.set_lookup(Lookup::Sticky);
    for tag in 0..6 {
        let [here, there] = shares(&caller, [&near, &far], std::iter::repeat_n(tag, 4));
        assert!(here * there == 0, "{tag}: all of one key to one server");
        assert_eq!(
            shares(&other, [&near, &far], std::iter::once(tag)),
            [here / 4, there / 4],
            "whoever sends"
        );
    }
}

#[test]
fn weights_share_messages_among_the_servers_of_any_node() {
    let a = node(Config::new(), &[]);
    let b = node(Config::new(), &[address(&a)]);
    let caller = a.port().unwrap();
    let servers = [1, 3].map(|weight| {
        let port = b.port().unwrap();
        port.bind_weighted(SERVICE, Scope::Cluster, weight).unwrap();
        port
    });
    caller.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    servers[0].await_known(Some(PATIENCE)).unwrap();
    assert_eq!(a.status().services.len(), 2);
    assert_eq!(shares(&caller, [&servers[0], &servers[1]], 0..40), [10, 30]);
}
