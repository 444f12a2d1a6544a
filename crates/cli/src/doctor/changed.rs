//! Interfaces that are no longer as they were when the node began. A node opens its bearers once: it uses an interface
//! again that comes back as it was, but follows no change.

use super::finding::{Finding, Severity};
use super::mtu::{PACKET_BYTES_MAX, headers_bytes};
use super::picture::{Bearer, NodePicture, Picture};
use polyrail::machine::Interface;

const RESTART: &str = "then start the node again";

/// Bearers whose interface or address is another one now, and interfaces that came later.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let Some(node) = picture.node.as_ref().filter(|_| !picture.is_elsewhere()) else { return Vec::new() };
    let of_bearers = node.bearers.iter().filter_map(|bearer| of_bearer(picture, bearer));
    of_bearers.chain(unused(picture, node)).collect()
}

/// The first thing that is wrong with the interface, for it explains the others.
fn of_bearer(picture: &Picture, bearer: &Bearer) -> Option<Finding> {
    let Some(interface) = picture.machine.interface(&bearer.interface) else { return Some(gone(bearer)) };
    replaced(bearer, interface)
        .or_else(|| address_gone(bearer, interface))
        .or_else(|| mtu_changed(bearer, interface))
}

fn gone(bearer: &Bearer) -> Finding {
    let name = &bearer.interface;
    let why = "no link can use it, and a running node does not use an interface that takes its place";
    let seen = "there is no such interface any more";
    let finding = Finding::new(Severity::Error, "interface-gone", format!("interface {name}"), seen, why);
    finding.mend(format!("ip link show dev {name}  # bring it back with its address, {RESTART}"))
}

fn replaced(bearer: &Bearer, interface: &Interface) -> Option<Finding> {
    let before = bearer.interface_index.filter(|index| *index != interface.index)?;
    let (name, now) = (&bearer.interface, interface.index);
    let seen = format!(
        "it is interface {now} now, and was {before} when the node began: it was removed and made again"
    );
    let why = "the node's sockets are tied to the one that is gone, so no link can use it";
    let finding = Finding::new(Severity::Error, "interface-replaced", format!("interface {name}"), seen, why);
    let look = format!("ip -d addr show dev {name}  # whether it is complete, {RESTART}");
    Some(finding.mend(look))
}

fn address_gone(bearer: &Bearer, interface: &Interface) -> Option<Finding> {
    let own = bearer.address?.ip();
    if interface.addresses.iter().any(|(ip, _)| *ip == own) {
        return None;
    }
    let name = &bearer.interface;
    let of_family = || interface.addresses.iter().filter(|(ip, _)| ip.is_ipv4() == own.is_ipv4());
    let now = of_family().map(|(ip, bits)| format!("{ip}/{bits}")).collect::<Vec<_>>().join(" ");
    let now = if now.is_empty() { "none".to_owned() } else { now };
    let bits = of_family().next().map_or("PREFIX".to_owned(), |(_, bits)| bits.to_string());
    let seen = format!("the node uses its address {own}, which it does not have any more; it has {now}");
    let why = "the system refuses to send from this address, so no link can use the interface";
    let finding = Finding::new(Severity::Error, "address-gone", format!("interface {name}"), seen, why);
    let back = format!(
        "ip addr add {own}/{bits} dev {name}  # it is used again at once; or start the node again, with the new address"
    );
    Some(finding.mend(back))
}

fn mtu_changed(bearer: &Bearer, interface: &Interface) -> Option<Finding> {
    let (now, then) = (takes_bytes(bearer, interface), bearer.mtu_bytes.min(PACKET_BYTES_MAX));
    if now == then {
        return None;
    }
    let name = &bearer.interface;
    let before = bearer.mtu_bytes + headers_bytes(bearer.address);
    let seen = format!("its MTU is {}, and was {before} when the node began", interface.mtu_bytes);
    let why = if now < then {
        "larger packets are refused until each link has found out, and what a link sends at first may be lost"
    } else {
        "a running node sends no larger packets than its interface took when it began"
    };
    let finding = Finding::new(Severity::Warning, "mtu-changed", format!("interface {name}"), seen, why);
    Some(
        finding.mend(format!(
            "ip link set dev {name} mtu {before}  # or start the node again, with the new MTU"
        )),
    )
}

/// Largest packet that a bearer's interface takes now, in bytes.
pub fn takes_bytes(bearer: &Bearer, interface: &Interface) -> u64 {
    u64::from(interface.mtu_bytes).saturating_sub(headers_bytes(bearer.address)).min(PACKET_BYTES_MAX)
}

/// Interfaces that a node would use that began now.
fn unused(picture: &Picture, node: &NodePicture) -> Option<Finding> {
    let is_used = |name: &str| node.bearers.iter().any(|bearer| bearer.interface == name);
    let chosen = picture.machine.interfaces.iter().filter(|interface| !is_used(&interface.name));
    let named = chosen.filter_map(|interface| Some(format!("{} ({})", interface.name, interface.chosen?)));
    let named = named.collect::<Vec<_>>().join(", ");
    if named.is_empty() {
        return None;
    }
    let seen = format!("not used: {named}");
    let why = "its settings leave them out, or they came, or came up, after it began: a running node does not take them up";
    let finding = Finding::new(Severity::Note, "unused-interface", format!("node {}", node.name), seen, why);
    Some(finding.mend("polyrail bearer list  # if they are to be used, start the node again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    /// What is found of a second interface that was changed.
    fn changed(change: impl Fn(&mut Interface)) -> Vec<Finding> {
        let mut picture = planted::sound();
        change(&mut picture.machine.interfaces[1]);
        check(&picture)
    }

    #[test]
    fn an_interface_that_is_gone_or_another_one_is_found() {
        assert_eq!(check(&planted::sound()), []);
        let mut picture = planted::sound();
        picture.machine.interfaces.remove(1);
        let found = check(&picture);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "interface-gone", Severity::Error));
        let found = changed(|interface| (interface.index, interface.mtu_bytes) = (9, 9_000));
        assert_eq!((found.len(), found[0].check), (1, "interface-replaced"));
        assert!(found[0].seen.starts_with("it is interface 9 now, and was 3"), "{found:?}");
    }

    #[test]
    fn an_address_that_is_gone_is_found_with_the_command_that_brings_it_back() {
        let found = changed(|interface| interface.addresses = vec![("10.0.1.7".parse().unwrap(), 24)]);
        assert_eq!((found.len(), found[0].check), (1, "address-gone"));
        assert!(found[0].seen.ends_with("it has 10.0.1.7/24"), "{found:?}");
        assert!(found[0].mend[0].starts_with("ip addr add 10.0.1.1/24 dev eth1  # "), "{found:?}");
        let found = changed(|interface| interface.addresses.clear());
        assert!(found[0].seen.ends_with("it has none") && found[0].mend[0].contains("/PREFIX"), "{found:?}");
    }

    #[test]
    fn an_mtu_that_is_not_what_it_was_is_found() {
        for mtu in [1280, 9000] {
            let found = changed(|interface| interface.mtu_bytes = mtu);
            assert_eq!((found.len(), found[0].check), (1, "mtu-changed"));
            assert_eq!(found[0].seen, format!("its MTU is {mtu}, and was 1500 when the node began"));
            assert!(found[0].mend[0].starts_with("ip link set dev eth1 mtu 1500  # "), "{found:?}");
        }
        let mut picture = planted::sound();
        picture.machine.interfaces[1].mtu_bytes = 65_536;
        picture.node.as_mut().unwrap().bearers[1].mtu_bytes = 65_507;
        assert_eq!(check(&picture), [], "packets are no larger than that");
    }

    #[test]
    fn an_interface_that_came_later_is_noted() {
        let mut picture = planted::sound();
        picture.node.as_mut().unwrap().bearers.pop();
        let found = check(&picture);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "unused-interface", Severity::Note));
        assert_eq!(found[0].seen, "not used: eth1 (10.0.1.1)");
        picture.machine.interfaces[1].chosen = None;
        assert_eq!(check(&picture), [], "it would not be used");
    }
}
