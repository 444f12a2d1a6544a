//! Which bearers a node that runs should open, resize and close: those that it would have if it began now.
//!
//! Only one thing is not as it would be then: of addresses that are as good as each other, a bearer keeps the one that it has.

use crate::config::InterfaceRules;
use crate::engine::{Attachment, WhyClosed};
use crate::node::select::{best_address, chooses, chosen, rank};
use polyrail_bearer::datagram_bytes_max;
use polyrail_sys::interface::Interface;
use std::net::IpAddr;

/// What there is to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Bearers to close, by their place among those that there are, and why.
    pub close: Vec<(usize, WhyClosed)>,
    /// Bearers whose datagrams have another size, by number.
    pub resize: Vec<(usize, u16)>,
    /// Interfaces to open a bearer on, and by which address.
    pub open: Vec<(String, IpAddr)>,
}

/// Compares the bearers `held` with the interfaces that there are.
pub(super) fn plan(rules: &InterfaceRules, held: &[Attachment], all: &[Interface]) -> Plan {
    let mut plan = Plan::default();
    for (at, bearer) in held.iter().enumerate() {
        match judge(rules, bearer, all) {
            Err(why) => plan.close.push((at, why)),
            Ok(bytes) if bytes != bearer.mtu_bytes => plan.resize.push((bearer.bearer, bytes)),
            Ok(_) => {}
        }
    }
    let is_held = |name: &str| {
        let closes = |at: usize| plan.close.iter().any(|(closed, _)| *closed == at);
        held.iter().enumerate().any(|(at, bearer)| bearer.interface == name && !closes(at))
    };
    let wanted = chosen(rules, all).into_iter().filter(|(interface, _)| !is_held(&interface.name));
    plan.open = wanted.map(|(interface, address)| (interface.name.clone(), address)).collect();
    plan
}

/// The largest datagram of a bearer that stays, or why it does not. An interface that is down or has no carrier keeps its
/// bearer, which is used again as soon as it is back.
fn judge(rules: &InterfaceRules, bearer: &Attachment, all: &[Interface]) -> Result<u16, WhyClosed> {
    let named = all.iter().find(|interface| interface.name == bearer.interface);
    let interface = named.ok_or(WhyClosed::InterfaceRemoved)?;
    if bearer.interface_index.is_some_and(|index| index != interface.index) {
        return Err(WhyClosed::InterfaceReplaced);
    }
    let own = bearer.address.ip();
    if !interface.addresses.iter().any(|address| address.ip == own) {
        return Err(WhyClosed::AddressRemoved);
    }
    if !chooses(rules, interface) {
        return Err(WhyClosed::NotChosen);
    }
    let best = best_address(rules, interface);
    if interface.up && best.is_some_and(|best| rank(rules, best) < rank(rules, own)) {
        return Err(WhyClosed::AddressPreferred);
    }
    Ok(datagram_bytes_max(interface.mtu_bytes, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use polyrail_sys::interface::{InterfaceAddress, Kind, Scope};

    fn interface(name: &str, index: u32, addresses: &[&str]) -> Interface {
        let address = |ip: &&str| InterfaceAddress {
            ip: ip.parse().unwrap(),
            prefix_bits: 24,
            scope: Scope::Global,
            tentative: false,
        };
        Interface {
            index,
            name: name.into(),
            up: true,
            running: true,
            multicast: true,
            mtu_bytes: 1_500,
            kind: if name == "lo" { Kind::Loopback } else { Kind::Ordinary },
            addresses: addresses.iter().map(address).collect(),
        }
    }

    fn held(bearer: usize, interface: &str, index: u32, ip: &str) -> Attachment {
        let address = std::net::SocketAddr::new(ip.parse().unwrap(), 7_430);
        let mtu_bytes = datagram_bytes_max(1_500, address.ip());
        Attachment { bearer, interface: interface.into(), interface_index: Some(index), address, mtu_bytes }
    }

    /// What is planned for a node with a bearer on eth0 and one on eth1, if the machine is like this.
    fn planned(rules: &[&str], machine: &[Interface]) -> Plan {
        let rules = Config::new().interfaces(rules.iter().copied()).interfaces;
        let bearers = [held(3, "eth0", 2, "10.0.0.1"), held(5, "eth1", 3, "10.0.1.1")];
        plan(&rules, &bearers, machine)
    }

    fn machine() -> [Interface; 3] {
        [
            interface("lo", 1, &["127.0.0.1"]),
            interface("eth0", 2, &["10.0.0.1"]),
            interface("eth1", 3, &["10.0.1.1", "10.0.1.2", "fe80::1"]),
        ]
    }

    fn opened(plan: &Plan) -> Vec<String> {
        plan.open.iter().map(|(interface, address)| format!("{interface} {address}")).collect()
    }

    #[test]
    fn nothing_is_done_where_nothing_has_changed() {
        assert_eq!(planned(&[], &machine()), Plan::default());
        let mut down = machine();
        (down[1].up, down[1].running) = (false, false);
        assert_eq!(planned(&[], &down), Plan::default(), "it is used again when it is back");
        let mut beside = machine();
        beside[2].addresses.rotate_left(1);
        assert_eq!(planned(&[], &beside), Plan::default(), "an address that is as good is no reason");
    }

    #[test]
    fn what_comes_is_opened_if_the_rules_choose_it() {
        let mut more = machine().to_vec();
        more.extend([interface("eth2", 7, &["10.0.2.1"]), interface("docker0", 8, &["172.17.0.1"])]);
        more.push(Interface { up: false, ..interface("eth3", 9, &["10.0.3.1"]) });
        more.push(interface("eth4", 10, &[]));
        assert_eq!(opened(&planned(&[], &more)), ["eth2 10.0.2.1"]);
        assert!(planned(&[], &more).close.is_empty());
        assert_eq!(opened(&planned(&["eth[01]", "docker0"], &more)), ["docker0 172.17.0.1"]);
        assert_eq!(opened(&planned(&["*", "!eth2", "!docker*"], &more)), [""; 0]);
        more[3].addresses[0].tentative = true;
        assert_eq!(
            opened(&planned(&[], &more)),
            [""; 0],
            "an address that is checked for doubles is none yet"
        );
    }

    #[test]
    fn what_is_gone_is_closed_and_what_takes_its_place_opened() {
        let only = |change: fn(&mut Vec<Interface>)| {
            let mut all = machine().to_vec();
            change(&mut all);
            let plan = planned(&[], &all);
            assert!(plan.close.len() == 1 && plan.close[0].0 == 1, "{plan:?}");
            (plan.close[0].1.clone(), opened(&plan))
        };
        assert_eq!(only(|all| drop(all.remove(2))), (WhyClosed::InterfaceRemoved, vec![]));
        let remade = only(|all| all[2].index = 9);
        assert_eq!(remade, (WhyClosed::InterfaceReplaced, vec!["eth1 10.0.1.1".to_owned()]));
        let renamed = only(|all| all[2].name = "eth9".to_owned());
        assert_eq!(renamed, (WhyClosed::InterfaceRemoved, vec!["eth9 10.0.1.1".to_owned()]));
        let moved = only(|all| all[2].addresses = all[2].addresses.split_off(1));
        assert_eq!(moved, (WhyClosed::AddressRemoved, vec!["eth1 10.0.1.2".to_owned()]));
        assert_eq!(only(|all| all[2].addresses.clear()), (WhyClosed::AddressRemoved, vec![]));
    }

    #[test]
    fn rules_that_name_networks_are_asked_again() {
        let mut all = machine();
        assert_eq!(planned(&["10.0.0.0/16"], &all), Plan::default());
        all[2].addresses.push(interface("x", 0, &["10.9.0.1"]).addresses[0]);
        let plan = planned(&["10.0.0.0/24", "10.9.0.0/16"], &all);
        assert_eq!(plan.close, [(1, WhyClosed::AddressPreferred)]);
        assert_eq!(opened(&plan), ["eth1 10.9.0.1"]);
        assert_eq!(planned(&["*", "!10.9.0.0/16"], &all).close, [(1, WhyClosed::NotChosen)]);
    }

    #[test]
    fn an_address_of_the_link_alone_gives_way_to_a_better_one() {
        let rules = Config::new().interfaces(["eth*"]).interfaces;
        let bearer = [held(0, "eth0", 2, "fe80::1")];
        let before = [interface("eth0", 2, &["fe80::1"])];
        assert_eq!(plan(&rules, &bearer, &before), Plan::default());
        let after = [interface("eth0", 2, &["fe80::1", "10.0.0.1"])];
        let plan = plan(&rules, &bearer, &after);
        assert_eq!((plan.close.len(), opened(&plan)), (1, vec!["eth0 10.0.0.1".to_owned()]));
    }

    #[test]
    fn another_mtu_is_another_size_of_datagrams() {
        let mut all = machine();
        all[2].mtu_bytes = 9_000;
        let plan = planned(&[], &all);
        assert_eq!((&plan.resize[..], plan.close.len(), plan.open.len()), (&[(5, 8_972)][..], 0, 0));
    }
}
