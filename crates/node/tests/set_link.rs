//! A program puts a link of its node aside, and its peer hears of it.

mod local;

use local::{PATIENCE, address};
use polyrail::{
    Config, ErrorCode, LinkId, LinkReport, LinkStatus, Node, NodeId, Scope, ServiceAddress, ServiceRange,
};
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// The first link of a node, once it is as wanted.
fn link(node: &Node, is: impl Fn(&LinkReport) -> bool) -> LinkReport {
    let until = Instant::now() + PATIENCE;
    loop {
        let links = node.status().links;
        match links.iter().find(|link| is(link)) {
            Some(link) => return link.clone(),
            None => assert!(Instant::now() < until, "it stays {links:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_node_wants_of_a_link_is_known_at_both_ends_and_the_last_one_is_not_drained() {
    // One link alone is between them.
    let a = local::node(Config::new().shared_memory(false), &[]);
    let b = local::node(Config::new(), &[address(&a)]);
    let id = LinkId(link(&a, |link| link.state == "up").link);
    link(&b, |link| link.state == "up");
    a.set_link(b.id(), id, LinkStatus::Standby).unwrap();
    assert_eq!(link(&a, |_| true).status, "standby");
    link(&b, |link| link.status_of_peer == "standby" && link.status == "active");

    // There is no active one, so it serves.
    let (sender, receiver) = (a.port().unwrap(), b.port().unwrap());
    receiver.bind(ServiceRange::from(SERVICE), Scope::Cluster).unwrap();
    sender.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    sender.send(SERVICE, b"by standby").unwrap();
    assert_eq!(receiver.recv().unwrap().bytes(), b"by standby");

    let code = |peer, link, status| a.set_link(peer, link, status).unwrap_err().code();
    assert_eq!(code(b.id(), id, LinkStatus::Drain), ErrorCode::LastLink);
    assert_eq!(code(b.id(), id, LinkStatus::Down), ErrorCode::Unsupported);
    assert_eq!(code(b.id(), LinkId(id.0 + 1), LinkStatus::Standby), ErrorCode::NoLink);
    assert_eq!(code(NodeId(1), id, LinkStatus::Standby), ErrorCode::NoNode);
    assert_eq!(link(&a, |_| true).status, "standby", "as it was");
    a.set_link(b.id(), id, LinkStatus::Active).unwrap();
    link(&b, |link| link.status_of_peer == "active");
}
