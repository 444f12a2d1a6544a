//! Carriers, links that are not in use, and peers that no link reaches.

use super::finding::{Finding, Severity};
use super::picture::{Bearer, Link, NodePicture, Picture};

/// A link or a session that is so young may still be joining.
pub const JOINING_S: f64 = 2.0;
/// A link that is not in use asks at least four times a second; so many packets make a silence one.
const ASKED: u64 = 2;
/// A link that went down so often in this time is flapping.
const FLAPS: usize = 3;
const FLAPPING_S: f64 = 600.0;

/// Bearers without a carrier.
pub fn check_bearers(picture: &Picture) -> Vec<Finding> {
    let bearers = picture.node.iter().flat_map(|node| &node.bearers);
    // An interface that is gone is told as that.
    let is_here = |name: &str| picture.is_elsewhere() || picture.machine.interface(name).is_some();
    let without = bearers.filter(|bearer| !bearer.carrier && is_here(&bearer.interface));
    without.map(|bearer| no_carrier(picture, bearer)).collect()
}

fn no_carrier(picture: &Picture, bearer: &Bearer) -> Finding {
    let name = &bearer.interface;
    let is_down = picture.machine.interface(name).is_some_and(|interface| !interface.up);
    let (seen, mend) = if is_down {
        ("the interface is down", format!("ip link set dev {name} up"))
    } else {
        let hint = "the cable, or the other end's interface";
        (
            "the interface is up, but has no carrier",
            format!("ip -s link show dev {name}  # then see to {hint}"),
        )
    };
    let why = "no link can use it";
    Finding::new(Severity::Error, "no-carrier", format!("interface {name}"), seen, why).mend(mend)
}

/// Links that are not in use, those that are heard one way only, and those that come and go.
pub fn check_links(picture: &Picture) -> Vec<Finding> {
    let Some(node) = &picture.node else { return Vec::new() };
    node.links.iter().filter_map(|link| of_link(node, link)).collect()
}

fn of_link(node: &NodePicture, link: &Link) -> Option<Finding> {
    let bearer = node.bearer_of(link);
    // Of a bearer without a carrier that is told, and of all its links nothing else.
    if bearer.is_some_and(|bearer| !bearer.carrier) {
        return None;
    }
    let about = format!("link {}", link.name);
    let interface = bearer.map_or("any", |bearer| bearer.interface.as_str());
    match link.state.as_str() {
        state if is_in_use(state) => flapping(link, about, interface),
        "damped" => {
            let seen = format!("it failed too often; {}", last_change(link));
            let why = "it carries nothing while another link does, until it has been quiet for a while";
            Some(Finding::new(Severity::Warning, "damped", about, seen, why).mend(look(link, interface)))
        }
        "suspect" => {
            let why = "nothing new goes by it until something is heard; a machine that stalls makes peers suspect it";
            let finding = Finding::new(Severity::Note, "suspect", about, last_change(link), why);
            Some(finding.mend("polyrail doctor  # again: it is over, or the link is down, within a moment"))
        }
        "new" if link.age_s < JOINING_S => None,
        // What was counted while it was in use says nothing of now.
        _ if !is_in_use(&link.state_before) && link.sent_meanwhile >= ASKED => {
            Some(one_way(link, about, bearer, interface))
        }
        state => {
            let seen = format!("it is not in use: {state}; {}", last_change(link));
            let why = "it carries nothing";
            Some(Finding::new(Severity::Error, "link-down", about, seen, why).mend(look(link, interface)))
        }
    }
}

/// Whether a link in this state carries messages.
pub fn is_in_use(state: &str) -> bool {
    ["up", "probation"].contains(&state)
}

/// A link that is not in use although we send: what comes back tells which direction is at fault.
fn one_way(link: &Link, about: String, bearer: Option<&Bearer>, interface: &str) -> Finding {
    let (sent, received, peer) = (link.sent_meanwhile, link.received_meanwhile, &link.peer);
    let last = last_change(link);
    if received > 0 {
        let seen = format!(
            "{received} packets of {peer} arrive meanwhile, but {peer} answers none of our {sent}; {last}"
        );
        let why = "one direction is cut: what we send does not arrive, so nothing can be confirmed";
        let port = link.to.map_or(7430, |to| to.port());
        let open = format!(
            "nft insert rule inet filter input udp dport {port} accept  # on {peer}, if it drops them"
        );
        return Finding::new(Severity::Error, "one-way", about, seen, why)
            .mend(open)
            .mend(look(link, interface));
    }
    let seen = format!("{sent} packets sent meanwhile, none received; {last}");
    let why = "nothing comes back: the peer's answers, or what we send, are dropped on the way; \
               `polyrail doctor` on the peer tells which";
    let own_port = bearer.and_then(|bearer| bearer.address).map_or(7430, |own| own.port());
    let open = format!(
        "nft insert rule inet filter input iifname \"{interface}\" udp dport {own_port} accept  # if it is dropped here"
    );
    Finding::new(Severity::Error, "nothing-back", about, seen, why).mend(look(link, interface)).mend(open)
}

fn flapping(link: &Link, about: String, interface: &str) -> Option<Finding> {
    let downs = link.changes.iter().filter(|change| change.to == "down" && change.ago_s <= FLAPPING_S);
    let downs = downs.count();
    if downs < FLAPS {
        return None;
    }
    let seen = format!("it went down {downs} times in ten minutes; {}", last_down(link));
    let why = "each time what was on its way is sent again by another link, and it is not used for a while";
    Some(Finding::new(Severity::Warning, "flapping", about, seen, why).mend(look(link, interface)))
}

/// Shows the packets of a link as they leave and arrive.
fn look(link: &Link, interface: &str) -> String {
    let host = link.to.map_or(String::new(), |to| format!(" and (host {} or ether proto 0x88b5)", to.ip()));
    format!(
        "tcpdump -ni {interface} -c 20 '(udp or icmp or ether proto 0x88b5){host}'  # here and at the peer"
    )
}

fn last_change(link: &Link) -> String {
    let told = |change: &super::picture::Change| {
        format!("{} for {:.0} s, because: {}", change.to, change.ago_s, change.why)
    };
    link.changes.last().map_or("it never was in use".to_owned(), told)
}

fn last_down(link: &Link) -> String {
    let last = link.changes.iter().rev().find(|change| change.to == "down");
    last.map_or(String::new(), |change| format!("the last {:.0} s ago because: {}", change.ago_s, change.why))
}

/// Peers that no link reaches.
pub fn check_peers(picture: &Picture) -> Vec<Finding> {
    let Some(node) = &picture.node else { return Vec::new() };
    let isolated = node.peers.iter().filter(|peer| !peer.up);
    let finding = |peer: &super::picture::Peer| {
        let links = node.links.iter().filter(|link| link.peer == peer.name).count();
        let seen = format!("none of its {links} links carries messages");
        let why = "messages wait; they fail if it stays so for the tolerance";
        let finding = Finding::new(Severity::Error, "isolated", format!("peer {}", peer.name), seen, why);
        finding.mend(format!("polyrail node show {}", peer.name))
    };
    isolated.map(finding).collect()
}

/// Nodes that were lost and have not come back.
pub fn check_lost(picture: &Picture) -> Vec<Finding> {
    let lost = picture.node.iter().flat_map(|node| &node.lost);
    let finding = |lost: &super::picture::Lost| {
        let seen =
            format!("it was lost {:.0} s ago; its last link went down because: {}", lost.ago_s, lost.why);
        let why = "it was silent for the tolerance: what was sent to it and not confirmed has failed, and what it had bound \
                   is gone; the two find each other again by themselves when they can";
        let finding = Finding::new(Severity::Warning, "lost-node", format!("node {}", lost.name), seen, why);
        finding.mend(format!(
            "polyrail node show {}  # its links' last changes; then see whether it runs",
            lost.name
        ))
    };
    lost.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::picture::{Change, Lost};
    use super::*;
    use crate::doctor::planted;

    fn link_in(state: &str, sent: u64, received: u64) -> Vec<Finding> {
        check_links(&planted::with_link(|link| {
            (link.state, link.sent_meanwhile, link.received_meanwhile) = (state.into(), sent, received);
            link.state_before = link.state.clone();
            link.changes.push(Change { to: state.into(), why: "silence".into(), ago_s: 7.0 });
        }))
    }

    #[test]
    fn a_carrier_that_is_missing_is_told_once_and_by_whose_hand() {
        let mut picture = planted::with_link(|link| link.state = "down".into());
        assert_eq!(check_bearers(&picture), []);
        picture.node.as_mut().unwrap().bearers[1].carrier = false;
        assert!(check_bearers(&picture)[0].mend[0].starts_with("ip -s link show dev eth1"));
        assert_eq!(check_links(&picture), [], "of its links nothing is told");
        picture.machine.interfaces[1].up = false;
        assert_eq!(check_bearers(&picture)[0].mend, ["ip link set dev eth1 up"]);
        picture.machine.interfaces.pop();
        assert_eq!(check_bearers(&picture), [], "that it is gone is told elsewhere");
    }

    #[test]
    fn a_link_that_is_heard_one_way_tells_which() {
        let found = link_in("down", 5, 4);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "one-way", Severity::Error));
        assert!(found[0].seen.contains("down for 7 s, because: silence"), "{found:?}");
        assert!(found[0].mend[0].contains("on beta"), "{found:?}");
        let found = link_in("down", 5, 0);
        assert_eq!(found[0].check, "nothing-back");
        assert!(found[0].mend[1].contains("iifname \"eth1\""), "{found:?}");
    }

    #[test]
    fn each_state_that_is_not_use_is_found_with_its_reason() {
        for (state, check) in [("down", "link-down"), ("suspect", "suspect"), ("damped", "damped")] {
            let found = link_in(state, 0, 0);
            assert_eq!((found.len(), found[0].check), (1, check), "{state}");
            assert!(found[0].seen.contains("silence") && found[0].seen.contains(state), "{found:?}");
        }
        for state in ["up", "probation"] {
            assert_eq!(link_in(state, 9, 0), [], "{state}: silence is the node's to judge");
        }
    }

    #[test]
    fn what_moved_before_a_link_went_down_is_not_held_against_it() {
        let found = check_links(&planted::with_link(|link| {
            (link.state, link.sent_meanwhile, link.received_meanwhile) = ("down".into(), 90, 80);
        }));
        assert_eq!((found.len(), found[0].check), (1, "link-down"));
    }

    #[test]
    fn a_suspicion_is_only_a_note() {
        let found = link_in("suspect", 90, 80);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Note));
    }

    #[test]
    fn a_link_that_is_still_joining_is_no_finding() {
        let young = |age_s| {
            planted::with_link(|link| {
                (link.state, link.age_s, link.sent_meanwhile) = ("new".into(), age_s, 9);
                link.state_before = String::new();
            })
        };
        assert_eq!(check_links(&young(0.5)), []);
        assert_eq!(check_links(&young(30.0)).len(), 1);
    }

    #[test]
    fn a_link_that_comes_and_goes_is_found_though_it_is_up() {
        let with_downs = |count: usize, ago_s| {
            planted::with_link(|link| {
                let down = Change { to: "down".into(), why: "carrier lost".into(), ago_s };
                link.changes = vec![down; count];
            })
        };
        let found = check_links(&with_downs(3, 100.0));
        assert!(found[0].check == "flapping" && found[0].seen.contains("carrier lost"), "{found:?}");
        assert_eq!(check_links(&with_downs(2, 100.0)), []);
        assert_eq!(check_links(&with_downs(9, 3_600.0)), [], "long ago");
    }

    #[test]
    fn a_peer_that_no_link_reaches_is_found() {
        let mut picture = planted::sound();
        assert_eq!(check_peers(&picture), []);
        picture.node.as_mut().unwrap().peers[0].up = false;
        assert_eq!(check_peers(&picture)[0].about, "peer beta");
    }

    #[test]
    fn a_node_that_was_lost_is_told_with_what_took_its_last_link() {
        let mut picture = planted::sound();
        assert_eq!(check_lost(&picture), []);
        let lost = Lost { name: "gamma".into(), ago_s: 41.7, why: "carrier lost".into() };
        picture.node.as_mut().unwrap().lost.push(lost);
        let found = check_lost(&picture);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "lost-node", Severity::Warning));
        assert!(found[0].seen.starts_with("it was lost 42 s ago") && found[0].seen.ends_with("carrier lost"));
        assert!(found[0].mend[0].starts_with("polyrail node show gamma  # "), "{found:?}");
    }
}
