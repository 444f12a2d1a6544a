//! Peers with fewer links than there could be.

use super::finding::{Finding, Severity};
use super::life::JOINING_S;
use super::network::share;
use super::picture::{Bearer, NodePicture, Peer, Picture};

/// Bearers in one network with a bearer of the peer, but without a link; and bearers that share no network with any.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let Some(node) = &picture.node else { return Vec::new() };
    let peers = node.peers.iter().filter(|peer| peer.up && peer.uptime_s >= JOINING_S);
    peers
        .flat_map(|peer| node.bearers.iter().filter_map(|bearer| of_bearer(picture, node, peer, bearer)))
        .collect()
}

fn of_bearer(picture: &Picture, node: &NodePicture, peer: &Peer, bearer: &Bearer) -> Option<Finding> {
    let links = || node.links.iter().filter(|link| link.peer == peer.name);
    if !bearer.carrier || links().any(|link| link.bearer == bearer.name) {
        return None;
    }
    let (own, interface) = (bearer.address?.ip(), picture.machine.interface(&bearer.interface)?);
    let bits = interface.addresses.iter().find(|(ip, _)| *ip == own).map(|(_, bits)| *bits)?;
    let near = peer.bearers.iter().find(|theirs| share(own, theirs.ip(), bits));
    let about = format!("peer {}, interface {}", peer.name, bearer.interface);
    if let Some(near) = near {
        let seen = format!("no link from {own} to {}, although they are in one network", near.ip());
        let why = "the peer has fewer links than bearers: less throughput, and less to fall back on";
        let finding = Finding::new(Severity::Warning, "missing-link", about, seen, why);
        return Some(finding.mend(format!("ping -c 3 -I {} {}", bearer.interface, near.ip())));
    }
    // A peer with no bearer left over could have no more links.
    if peer.bearers.len() <= links().count() {
        return None;
    }
    let theirs: Vec<String> = peer.bearers.iter().map(|address| address.ip().to_string()).collect();
    let seen = format!("{own}/{bits} shares no network with the peer's {}", theirs.join(", "));
    let why = "no link goes by this interface; both sides have one that is used for nothing between them";
    let finding = Finding::new(Severity::Note, "no-common-network", about, seen, why);
    let leave_out = format!("polyrail node --interface '!{}'  # if it leads elsewhere", bearer.interface);
    let dev = &bearer.interface;
    Some(
        finding
            .mend(leave_out)
            .mend(format!("ip addr add ADDRESS/PREFIX dev {dev}  # in the network of the peer's")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn without_second_link() -> Picture {
        let mut picture = planted::sound();
        picture.node.as_mut().unwrap().links.pop();
        picture
    }

    #[test]
    fn a_bearer_without_a_link_to_a_peer_in_its_network_is_found() {
        assert_eq!(check(&planted::sound()), []);
        let found = check(&without_second_link());
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "missing-link", Severity::Warning));
        assert_eq!(found[0].mend, ["ping -c 3 -I eth1 10.0.1.2"]);
    }

    #[test]
    fn bearers_left_over_in_different_networks_are_noted() {
        let mut picture = without_second_link();
        picture.node.as_mut().unwrap().peers[0].bearers[1] = "10.9.0.2:7430".parse().unwrap();
        let found = check(&picture);
        assert_eq!(
            (found.len(), found[0].check, found[0].severity),
            (1, "no-common-network", Severity::Note)
        );
        picture.node.as_mut().unwrap().peers[0].bearers.pop();
        assert_eq!(check(&picture), [], "the peer has no more");
    }

    #[test]
    fn a_bearer_without_a_carrier_and_a_peer_that_is_gone_or_new_miss_nothing() {
        let mut picture = without_second_link();
        picture.node.as_mut().unwrap().bearers[1].carrier = false;
        assert_eq!(check(&picture), []);
        let mut picture = without_second_link();
        picture.node.as_mut().unwrap().peers[0].up = false;
        assert_eq!(check(&picture), []);
        let mut picture = without_second_link();
        picture.node.as_mut().unwrap().peers[0].uptime_s = 0.5;
        assert_eq!(check(&picture), [], "its links are still joining");
    }
}
