//! Ways to peers that lead through another interface than the link's.

use super::finding::{Finding, Severity};
use super::picture::Picture;
use super::subnets::shared_network;

const WHY: &str =
    "what the peer sends is dropped on arrival by the system's strict check of the way back (rp_filter=1)";

/// Links whose peer the system would reach by another interface, where it drops what arrives on ours for that reason. A
/// node's sockets are bound to their interface, so where the system does not drop, the way does not matter.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let used = picture.used();
    let mut findings = Vec::new();
    for link in picture.links() {
        let bearer = picture.node.as_ref().and_then(|node| node.bearer_of(link));
        let own = bearer.and_then(|bearer| used.iter().find(|interface| interface.name == bearer.interface));
        let (Some(own), Some(to)) = (own, link.to.map(|to| to.ip())) else { continue };
        let Some(other) = picture.routes.get(&to).filter(|other| **other != own.name) else { continue };
        let other_one = picture.machine.interface(other);
        // To oneself the way is loopback, whatever the interface. Two in one network are found as such.
        let is_told = other_one.is_some_and(|other| other.loopback || shared_network(own, other).is_some());
        if is_told || own.rp_filter != Some(1) || !to.is_ipv4() {
            continue;
        }
        let seen = format!("arrives at {}, but the way to {to} leads through {other}", own.name);
        let finding = Finding::new(Severity::Error, "way-back", format!("link {}", link.name), seen, WHY);
        let finding = finding.mend(format!("sysctl -w net.ipv4.conf.{}.rp_filter=2", own.name));
        findings.push(finding.mend(format!("ip route replace {to}/32 dev {}  # or a way by it", own.name)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn routed() -> Picture {
        let mut picture = planted::sound();
        picture.routes.insert("10.0.1.2".parse().unwrap(), "eth0".into());
        picture
    }

    #[test]
    fn a_way_back_by_another_interface_is_found_where_the_system_is_strict() {
        assert_eq!(check(&planted::sound()), []);
        let found = check(&routed());
        assert_eq!((found.len(), found[0].about.as_str()), (1, "link beta/1"));
        assert_eq!(found[0].mend[0], "sysctl -w net.ipv4.conf.eth1.rp_filter=2");
        let mut loose = routed();
        loose.machine.interfaces[1].rp_filter = Some(2);
        assert_eq!(check(&loose), []);
    }

    #[test]
    fn a_peer_on_this_machine_is_no_finding() {
        let mut picture = routed();
        picture.machine.interfaces[0].loopback = true;
        assert_eq!(check(&picture), []);
    }
}
