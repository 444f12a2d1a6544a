//! Interfaces that share one IPv4 network: the system then answers for the one by the other, unless it is told not to.

use super::finding::{Finding, Severity};
use super::network::share;
use super::picture::Picture;
use polyrail::machine::Interface;
use std::net::IpAddr;

const WHY: &str = "the system sends to that network by one of them only and may answer questions about an address (ARP) by the \
                   wrong one, so both links may use one cable, or packets are dropped on arrival";

/// Each pair, with the settings that would make it work.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let used = picture.used();
    let pairs = used
        .iter()
        .enumerate()
        .flat_map(|(index, one)| used[index + 1..].iter().map(move |two| (*one, *two)));
    pairs.filter_map(|(one, two)| of_pair(one, two)).collect()
}

/// The network that two interfaces share.
pub fn shared_network(one: &Interface, two: &Interface) -> Option<(IpAddr, u8)> {
    let v4 = |interface: &Interface| -> Vec<(IpAddr, u8)> {
        interface.addresses.iter().copied().filter(|(ip, _)| ip.is_ipv4()).collect()
    };
    let others = v4(two);
    v4(one).into_iter().find(|(ip, bits)| {
        // A network of one address is shared by nobody.
        *bits < 32 && others.iter().any(|(other, other_bits)| share(*ip, *other, (*bits).min(*other_bits)))
    })
}

fn of_pair(one: &Interface, two: &Interface) -> Option<Finding> {
    let (ip, bits) = shared_network(one, two)?;
    let settings: Vec<String> = [one, two].into_iter().flat_map(missing).collect();
    if settings.is_empty() {
        return None;
    }
    let severity =
        if [one, two].iter().any(|i| i.rp_filter == Some(1)) { Severity::Error } else { Severity::Warning };
    let seen = format!("both have an address in the network of {ip}/{bits}");
    let about = format!("interfaces {} and {}", one.name, two.name);
    let finding = Finding::new(severity, "one-network", about, seen, WHY);
    let finding = finding.mend(format!("sysctl -w {}", settings.join(" ")));
    Some(finding.mend(format!("ip addr replace ADDRESS/PREFIX dev {}  # or a network of its own", two.name)))
}

/// The settings with which an interface works beside another in its network, but for those that it has.
fn missing(interface: &Interface) -> Vec<String> {
    let name = &interface.name;
    let mut settings = Vec::new();
    if interface.rp_filter == Some(1) {
        settings.push(format!("net.ipv4.conf.{name}.rp_filter=2"));
    }
    if interface.arp_ignore == Some(0) {
        settings.push(format!("net.ipv4.conf.{name}.arp_ignore=1"));
    }
    if interface.arp_announce.is_some_and(|announce| announce < 2) {
        settings.push(format!("net.ipv4.conf.{name}.arp_announce=2"));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn in_one_network() -> Picture {
        let mut picture = planted::sound();
        let own = "10.0.0.9".parse().unwrap();
        picture.machine.interfaces[1].addresses = vec![(own, 24)];
        picture.node.as_mut().unwrap().bearers[1].address = Some((own, 7430).into());
        picture
    }

    #[test]
    fn two_interfaces_in_one_network_are_found_with_what_they_lack() {
        assert_eq!(check(&planted::sound()), []);
        let found = check(&in_one_network());
        assert_eq!((found.len(), found[0].severity), (1, Severity::Error));
        assert!(
            found[0].mend[0].contains("eth0.rp_filter=2") && found[0].mend[0].contains("eth1.arp_ignore=1")
        );
        let mut loose = in_one_network();
        loose.machine.interfaces.iter_mut().for_each(|interface| interface.rp_filter = Some(2));
        let found = check(&loose);
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(!found[0].mend[0].contains("rp_filter"), "{found:?}");
    }

    #[test]
    fn with_the_settings_it_is_no_finding() {
        let mut picture = in_one_network();
        for interface in &mut picture.machine.interfaces {
            (interface.rp_filter, interface.arp_ignore, interface.arp_announce) = (Some(2), Some(1), Some(2));
        }
        assert_eq!(check(&picture), []);
    }

    #[test]
    fn addresses_without_a_network_share_none() {
        // One address on both: there is no network around it in which they could answer for each other.
        let mut picture = in_one_network();
        let own = picture.machine.interfaces[0].addresses[0].0;
        picture.machine.interfaces.iter_mut().for_each(|interface| interface.addresses = vec![(own, 32)]);
        let [one, two] = &picture.machine.interfaces[..] else { panic!("two interfaces") };
        assert_eq!(shared_network(one, two), None);
    }
}
