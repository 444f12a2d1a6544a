//! Offloads that are switched off although the interface has them.

use super::finding::{Finding, Severity};
use super::picture::Picture;
use polyrail::machine::Interface;

/// Without a checksum that is left to the interface, the system cuts no trains.
const CHECKSUMS: [&str; 2] = ["tx-checksum-ip-generic", "tx-checksum-ipv4"];

/// Segmentation, grouping and checksums. One that an interface does not have cannot be switched on and is no finding.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let used = picture.used();
    used.iter()
        .filter(|interface| !interface.loopback)
        .flat_map(|interface| of_interface(interface))
        .collect()
}

fn of_interface(interface: &Interface) -> Vec<Finding> {
    let off = |name: &str| interface.features.iter().any(|f| f.name == name && !f.on && f.changeable);
    let on = |name: &str| interface.features.iter().any(|f| f.name == name && f.on);
    let (name, about) = (&interface.name, format!("interface {}", interface.name));
    let mut findings = Vec::new();
    if CHECKSUMS.iter().any(|name| off(name)) && !CHECKSUMS.iter().any(|name| on(name)) {
        let why = "the system then refuses to cut trains, so each packet costs a call of its own";
        let seen = "checksums of what is sent (tx-checksumming) are off";
        let finding = Finding::new(Severity::Warning, "offload", about.clone(), seen, why);
        findings.push(finding.mend(format!("ethtool -K {name} tx on")));
    }
    if off("tx-udp-segmentation") {
        let why = "trains of up to 64 packets are cut by the processor and not at the interface";
        let seen = "segmentation of UDP (tx-udp-segmentation) is off";
        let finding = Finding::new(Severity::Warning, "offload", about.clone(), seen, why);
        findings.push(finding.mend(format!("ethtool -K {name} tx-udp-segmentation on")));
    }
    // Between interfaces that the system alone makes, trains stay whole on their way: there is nothing to put together.
    if interface.hardware && off("rx-gro") {
        let why = "packets that arrive together are handed up one by one, each with the whole cost of one";
        let seen = "grouping of what is received (generic-receive-offload) is off";
        let finding = Finding::new(Severity::Warning, "offload", about, seen, why);
        findings.push(finding.mend(format!("ethtool -K {name} gro on")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn with_off(names: &[&str], change: impl Fn(&mut Interface)) -> Vec<String> {
        let mut picture = planted::sound();
        let interface = &mut picture.machine.interfaces[1];
        interface
            .features
            .iter_mut()
            .for_each(|feature| feature.on = !names.contains(&feature.name.as_str()));
        change(interface);
        check(&picture).into_iter().flat_map(|finding| finding.mend).collect()
    }

    #[test]
    fn each_offload_that_is_off_is_found_with_the_switch() {
        assert!(with_off(&[], |_| ()).is_empty());
        let names = ["tx-checksum-ip-generic", "tx-udp-segmentation", "rx-gro"];
        let switches = ["tx", "tx-udp-segmentation", "gro"];
        for (name, switch) in names.into_iter().zip(switches) {
            assert_eq!(with_off(&[name], |_| ()), [format!("ethtool -K eth1 {switch} on")]);
        }
    }

    #[test]
    fn what_the_interface_does_not_have_is_no_finding() {
        let all = ["tx-checksum-ip-generic", "tx-udp-segmentation", "rx-gro"];
        assert!(with_off(&all, |i| i.features.iter_mut().for_each(|f| f.changeable = false)).is_empty());
        assert!(with_off(&all, |i| i.loopback = true).is_empty());
        assert!(with_off(&["rx-gro"], |i| i.hardware = false).is_empty(), "nothing to put together");
    }
}
