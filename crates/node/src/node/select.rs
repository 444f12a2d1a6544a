//! Which interfaces become bearers, and by which of their addresses.

use crate::config::InterfaceRules;
use crate::error::StartError;
use polyrail_sys::interface::{Interface, Kind};
use std::net::IpAddr;

/// Interfaces of which a message tells.
const TOLD_MAX: usize = 32;

/// The interfaces that the rules select, each with the address to use. A rule that is met by nothing is an error: whoever
/// named an interface counts on it, and a node that goes on without it would have fewer links and not say so.
pub(crate) fn selected<'a>(
    rules: &InterfaceRules,
    all: &'a [Interface],
) -> Result<Vec<(&'a Interface, IpAddr)>, StartError> {
    let present: Vec<(&str, Vec<IpAddr>, bool)> =
        all.iter().map(|i| (i.name.as_str(), addresses(i), is_loopback(i))).collect();
    if let Some(rule) = rules.unmet(&present) {
        let what = format!("{rule:?} is met by none; {}", advice(all));
        return Err(StartError::NoBearer(what));
    }
    let chosen = chosen(rules, all);
    if chosen.is_empty() {
        return Err(StartError::NoBearer(format!(
            "none selected that is up and has an address; {}",
            advice(all)
        )));
    }
    Ok(chosen)
}

/// The same without an error: what a node that runs should use now.
pub(crate) fn chosen<'a>(rules: &InterfaceRules, all: &'a [Interface]) -> Vec<(&'a Interface, IpAddr)> {
    let usable = all.iter().filter(|i| i.up && chooses(rules, i));
    usable.filter_map(|i| Some((i, best_address(rules, i)?))).collect()
}

/// Whether the rules choose an interface, up or not.
pub(crate) fn chooses(rules: &InterfaceRules, interface: &Interface) -> bool {
    rules.selects(&interface.name, &addresses(interface), is_loopback(interface))
}

fn addresses(interface: &Interface) -> Vec<IpAddr> {
    interface.addresses.iter().map(|a| a.ip).collect()
}

fn is_loopback(interface: &Interface) -> bool {
    interface.kind == Kind::Loopback
}

/// What there is, and where to choose among it.
fn advice(all: &[Interface]) -> String {
    let told = all.iter().take(TOLD_MAX).map(|interface| {
        let addresses = interface.addresses.iter().map(|a| format!("{}/{}", a.ip, a.prefix_bits));
        let addresses = addresses.collect::<Vec<_>>().join(" ");
        let state = if interface.up { "" } else { "down, " };
        let addresses = if addresses.is_empty() { "no address" } else { &addresses };
        format!("{} ({state}{addresses})", interface.name)
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let more = match all.len().saturating_sub(TOLD_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("there are: {told}{more}; choose with `interfaces` or --interface RULE")
}

/// One address per interface: one in a network that a rule names, before others IPv4, else a global IPv6, else a
/// link-local one. Two families on one wire would be two links with one fate.
pub(crate) fn best_address(rules: &InterfaceRules, interface: &Interface) -> Option<IpAddr> {
    let usable = interface.addresses.iter().filter(|a| !a.tentative).map(|a| a.ip);
    usable.min_by_key(|ip| rank(rules, *ip))
}

/// How much an address is wanted: the least comes first.
pub(crate) fn rank(rules: &InterfaceRules, ip: IpAddr) -> (bool, u8) {
    let family = match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    };
    (!rules.names_network_of(ip), family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use polyrail_sys::interface::{InterfaceAddress, Scope};

    fn interface(name: &str, up: bool, addresses: &[&str]) -> Interface {
        let address = |ip: &&str| InterfaceAddress {
            ip: ip.parse().unwrap(),
            prefix_bits: 24,
            scope: Scope::Global,
            tentative: false,
        };
        let kind = if name == "lo" { Kind::Loopback } else { Kind::Ordinary };
        let addresses = addresses.iter().map(address).collect();
        Interface {
            index: 1,
            name: name.into(),
            up,
            running: up,
            multicast: true,
            mtu_bytes: 1500,
            kind,
            addresses,
        }
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface("lo", true, &["127.0.0.1"]),
            interface("eth0", true, &["fe80::1", "192.168.0.7", "10.0.0.7"]),
            interface("eth1", true, &["10.1.0.7"]),
            interface("eth2", false, &[]),
            interface("docker0", true, &["172.17.0.1"]),
        ]
    }

    fn choose(include: &[&str]) -> Result<Vec<String>, String> {
        let (all, rules) = (machine(), Config::new().interfaces(include.iter().copied()).interfaces);
        let chosen = selected(&rules, &all).map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|(interface, address)| format!("{} {address}", interface.name)).collect())
    }

    #[test]
    fn what_is_excluded_leaves_the_others() {
        assert_eq!(choose(&[]).unwrap(), ["eth0 192.168.0.7", "eth1 10.1.0.7"]);
        assert_eq!(choose(&["!eth0"]).unwrap(), ["eth1 10.1.0.7"]);
        assert_eq!(choose(&["*", "!10.1.0.0/16"]).unwrap(), ["eth0 192.168.0.7", "docker0 172.17.0.1"]);
        assert_eq!(choose(&["*", "!docker*", "!eth1"]).unwrap(), ["eth0 192.168.0.7"]);
    }

    #[test]
    fn a_network_chooses_the_address_as_well() {
        assert_eq!(choose(&["10.0.0.0/16"]).unwrap(), ["eth0 10.0.0.7"]);
        assert_eq!(choose(&["fe80::/10"]).unwrap(), ["eth0 fe80::1"]);
    }

    #[test]
    fn a_rule_met_by_none_is_told_with_what_there_is() {
        for wrong in ["eth7", "ib*", "10.9.0.0/16", "127.0.0.0/8"] {
            let error = choose(&["eth0", wrong]).unwrap_err();
            assert!(error.contains(&format!("{wrong:?} is met by none")), "{error}");
            assert!(error.contains("eth1 (10.1.0.7/24), eth2 (down, no address)"), "{error}");
        }
        assert!(choose(&["!ib0", "!10.9.0.0/16"]).is_ok(), "what is not there need not be excluded");
        // It is there, and may come up later, but not for this node.
        assert!(choose(&["eth2"]).unwrap_err().contains("none selected that is up"));
        assert_eq!(choose(&["eth1", "eth2"]).unwrap(), ["eth1 10.1.0.7"]);
    }
}
