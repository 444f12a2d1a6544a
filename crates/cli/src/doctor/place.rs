//! Whether what is looked at here is what the node sees, and whether there is anything to look at.

use super::finding::{Finding, Severity};
use super::picture::Picture;

/// Interfaces that are not here, or none at all.
pub fn check(picture: &Picture) -> Vec<Finding> {
    if let Some(node) = picture.node.as_ref().filter(|_| picture.is_elsewhere()) {
        let about = format!("node {}", node.name);
        let seen = "none of its interfaces and addresses is seen here";
        let why = "it runs in another network namespace, or every address has changed since it began, so interfaces, queues \
                   and routes were not looked at";
        let finding = Finding::new(Severity::Note, "elsewhere", about, seen, why);
        return vec![finding.mend("ip netns list; ip netns exec NAMESPACE polyrail doctor")];
    }
    if picture.node.is_none() && picture.used().is_empty() {
        let there = picture.machine.interfaces.iter().map(|interface| {
            let state = match (interface.up, interface.addresses.is_empty()) {
                (false, _) => " (down)",
                (true, true) => " (no address)",
                _ => "",
            };
            format!("{}{state}", interface.name)
        });
        let there = there.collect::<Vec<_>>().join(", ");
        let why = "a node finds nothing to use and does not start";
        let seen = format!("none of the interfaces would be used: {there}");
        let finding = Finding::new(Severity::Error, "no-interface", "this machine", seen, why);
        return vec![finding.mend("polyrail node --insecure --interface NAME")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    #[test]
    fn a_node_in_another_namespace_is_told_once() {
        let mut picture = planted::sound();
        assert_eq!(check(&picture), []);
        picture.machine.interfaces.remove(1);
        assert_eq!(check(&picture), [], "one of its interfaces is here");
        picture.machine.interfaces.remove(0);
        assert_eq!(check(&picture)[0].check, "elsewhere");
    }

    #[test]
    fn a_machine_whose_interfaces_are_all_left_out_is_told_which_there_are() {
        let mut picture = planted::sound();
        picture.node = None;
        assert_eq!(check(&picture), []);
        picture.machine.interfaces.iter_mut().for_each(|interface| interface.chosen = None);
        picture.machine.interfaces[1].up = false;
        let found = check(&picture);
        assert!(found[0].seen.ends_with("eth0, eth1 (down)"), "{found:?}");
    }
}
