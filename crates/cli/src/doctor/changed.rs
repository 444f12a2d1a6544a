//! Interfaces that a node had a bearer on, or should have one on, and has none. A node follows its interfaces by itself, so
//! what is told here is what it waits for.

use super::finding::{Finding, Severity};
use super::mtu::{PACKET_BYTES_MAX, headers_bytes};
use super::picture::{Bearer, Missing, NodePicture, Picture};
use polyrail::machine::Interface;
use std::net::IpAddr;

/// A node takes up what comes within this time, in seconds, also an interface that keeps going.
const TAKEN_UP_S: f64 = 15.0;

/// Interfaces without a bearer, and those that the node's settings may leave out.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let Some(node) = picture.node.as_ref().filter(|_| !picture.is_elsewhere()) else { return Vec::new() };
    let without_carrier = node.bearers.iter().filter(|bearer| !bearer.carrier);
    let vanished = without_carrier.filter_map(|bearer| {
        let now = picture.machine.interface(&bearer.interface).map(|interface| interface.index);
        let is_it = bearer.interface_index.is_none_or(|then| now == Some(then));
        let seen = "it is gone, or another one has its name, and the node has not followed";
        (now.is_none() || !is_it).then(|| gone(&bearer.interface, Severity::Error, seen))
    });
    let missing = node.missing.iter().filter_map(|missing| of_missing(picture, missing));
    vanished.chain(missing).chain(unused(picture, node)).collect()
}

/// What an interface without a bearer lacks.
fn of_missing(picture: &Picture, missing: &Missing) -> Option<Finding> {
    let (name, severity) =
        (&missing.interface, if missing.named { Severity::Error } else { Severity::Warning });
    let Some(interface) = picture.machine.interface(name) else {
        let seen = format!("there is no such interface any more, since {:.0} s", missing.ago_s);
        return Some(gone(name, severity, &seen));
    };
    if !interface.up {
        let seen = "it was removed, or has lost its address, and is down";
        let why = "no link can use it; the node uses it again by itself when it is up and has an address";
        let finding = Finding::new(severity, "interface-gone", format!("interface {name}"), seen, why);
        return Some(finding.mend(format!("ip link set dev {name} up")));
    }
    let has_it = |own: IpAddr| interface.addresses.iter().any(|(ip, _)| *ip == own);
    match missing.address.map(|own| has_it(own.ip())) {
        _ if is_refusal(&missing.why) => Some(refused(missing, severity)),
        // The node is about to take it up.
        Some(true) if missing.ago_s < TAKEN_UP_S => None,
        Some(true) => Some(refused(missing, severity)),
        _ => Some(address_gone(missing, interface, severity)),
    }
}

fn is_refusal(why: &str) -> bool {
    why.starts_with("cannot be opened") || why == "too many bearers"
}

fn gone(name: &str, severity: Severity, seen: &str) -> Finding {
    let why = "no link can use it; the node uses it again by itself when it is back";
    let finding = Finding::new(severity, "interface-gone", format!("interface {name}"), seen, why);
    finding.mend(format!("ip link show dev {name}  # bring it back, up and with an address"))
}

fn refused(missing: &Missing, severity: Severity) -> Finding {
    let (name, seen) = (&missing.interface, format!("it has no bearer: {}", missing.why));
    let why = "no link can use it; the node tries again every 10 s";
    let finding = Finding::new(severity, "bearer-refused", format!("interface {name}"), seen, why);
    if missing.why == "too many bearers" {
        return finding.mend(format!(
            "polyrail bearer list  # a node has 14 at most: leave one out, --interface '!{name}'"
        ));
    }
    finding.mend(format!("ip -d addr show dev {name}"))
}

fn address_gone(missing: &Missing, interface: &Interface, severity: Severity) -> Finding {
    let name = &missing.interface;
    let now =
        interface.addresses.iter().map(|(ip, bits)| format!("{ip}/{bits}")).collect::<Vec<_>>().join(" ");
    let now = if now.is_empty() { "none".to_owned() } else { now };
    let had = missing.address.map_or("an address".to_owned(), |own| own.ip().to_string());
    let seen =
        format!("the node used its address {had} and does not any more: {}; it has {now}", missing.why);
    let why = "no link can use the interface; the node uses it again by itself when it has an address that its settings choose";
    let finding = Finding::new(severity, "address-gone", format!("interface {name}"), seen, why);
    let bits = interface
        .addresses
        .iter()
        .find(|(ip, _)| missing.address.is_some_and(|own| own.is_ipv4() == ip.is_ipv4()));
    let bits = bits.map_or("PREFIX".to_owned(), |(_, bits)| bits.to_string());
    finding.mend(format!("ip addr add {had}/{bits} dev {name}  # or another one that the settings choose"))
}

/// Largest packet that a bearer's interface takes now, in bytes.
pub fn takes_bytes(bearer: &Bearer, interface: &Interface) -> u64 {
    u64::from(interface.mtu_bytes).saturating_sub(headers_bytes(bearer.address)).min(PACKET_BYTES_MAX)
}

/// Interfaces that the settings given to the doctor choose, and the node's do not.
fn unused(picture: &Picture, node: &NodePicture) -> Option<Finding> {
    let is_used = |name: &str| node.bearers.iter().any(|bearer| bearer.interface == name);
    let is_told = |name: &str| node.missing.iter().any(|missing| missing.interface == name);
    let chosen = picture.machine.interfaces.iter().filter(|i| !is_used(&i.name) && !is_told(&i.name));
    let named = chosen.filter_map(|interface| Some((&interface.name, interface.chosen?))).collect::<Vec<_>>();
    let first = named.first()?.0;
    let all =
        named.iter().map(|(name, address)| format!("{name} ({address})")).collect::<Vec<_>>().join(", ");
    let seen = format!("not used: {all}");
    let why = "its settings leave them out; it takes up by itself what they choose, whenever that comes";
    let finding = Finding::new(Severity::Note, "unused-interface", format!("node {}", node.name), seen, why);
    Some(finding.mend(format!(
        "polyrail node --insecure --interface {first}  # if it is to be used: beside the node's other settings"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    /// What is found if the second bearer was closed and the second interface is like this.
    fn missing(why: &str, change: impl Fn(&mut Picture, &mut Missing)) -> Vec<Finding> {
        let mut picture = planted::sound();
        let node = picture.node.as_mut().unwrap();
        let bearer = node.bearers.pop().unwrap();
        let (interface, address) = (bearer.interface, bearer.address);
        let mut missing = Missing { interface, address, why: why.into(), ago_s: 60.0, named: false };
        change(&mut picture, &mut missing);
        picture.node.as_mut().unwrap().missing.push(missing);
        check(&picture)
    }

    #[test]
    fn an_interface_that_is_gone_is_told_and_counts_more_if_the_settings_name_it() {
        assert_eq!(check(&planted::sound()), []);
        let found = missing("interface removed", |picture, _| drop(picture.machine.interfaces.pop()));
        assert_eq!(
            (found.len(), found[0].check, found[0].severity),
            (1, "interface-gone", Severity::Warning)
        );
        assert_eq!(found[0].seen, "there is no such interface any more, since 60 s");
        let found = missing("interface removed", |picture, missing| {
            picture.machine.interfaces[1].up = false;
            missing.named = true;
        });
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "interface-gone", Severity::Error));
        assert_eq!(found[0].mend, ["ip link set dev eth1 up"]);
        // A node that does not follow: its bearer is there, and its interface is not.
        let mut picture = planted::sound();
        picture.machine.interfaces.pop();
        assert_eq!(check(&picture), [], "it is about to");
        picture.node.as_mut().unwrap().bearers[1].carrier = false;
        assert_eq!(check(&picture)[0].check, "interface-gone");
        let mut picture = planted::sound();
        picture.machine.interfaces[1].index = 9;
        assert_eq!(check(&picture), []);
        picture.node.as_mut().unwrap().bearers[1].carrier = false;
        assert!(check(&picture)[0].seen.contains("has not followed"));
    }

    #[test]
    fn an_address_that_is_gone_is_found_with_the_command_that_brings_it_back() {
        let found = missing("address removed", |picture, _| {
            picture.machine.interfaces[1].addresses = vec![("10.9.1.7".parse().unwrap(), 16)];
        });
        assert_eq!((found.len(), found[0].check), (1, "address-gone"));
        assert!(found[0].seen.ends_with("address removed; it has 10.9.1.7/16"), "{found:?}");
        assert!(found[0].mend[0].starts_with("ip addr add 10.0.1.1/16 dev eth1  # "), "{found:?}");
        let found = missing("address removed", |picture, _| picture.machine.interfaces[1].addresses.clear());
        assert!(found[0].seen.ends_with("it has none") && found[0].mend[0].contains("/PREFIX"), "{found:?}");
    }

    #[test]
    fn what_the_node_is_about_to_take_up_is_not_told_and_what_it_cannot_is() {
        assert_eq!(missing("interface removed", |_, missing| missing.ago_s = 3.0), []);
        assert_eq!(
            missing("interface removed", |_, _| {})[0].check,
            "bearer-refused",
            "it should have by now"
        );
        let found = missing("cannot be opened: no buffers", |_, _| {});
        assert_eq!((found.len(), found[0].check), (1, "bearer-refused"));
        assert!(found[0].seen.ends_with("no buffers") && found[0].mend[0].contains("dev eth1"), "{found:?}");
        let found = missing("too many bearers", |_, _| {});
        assert!(found[0].mend[0].ends_with("--interface '!eth1'"), "{found:?}");
    }

    #[test]
    fn an_interface_that_the_settings_leave_out_is_noted() {
        let mut picture = planted::sound();
        picture.node.as_mut().unwrap().bearers.pop();
        let found = check(&picture);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "unused-interface", Severity::Note));
        assert_eq!(found[0].seen, "not used: eth1 (10.0.1.1)");
        assert!(found[0].mend[0].contains("--interface eth1"), "{found:?}");
        picture.machine.interfaces[1].chosen = None;
        assert_eq!(check(&picture), [], "it would not be used");
    }
}
