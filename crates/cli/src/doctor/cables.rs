//! Interfaces that are parts of one: their links share its cable, its throughput and its fate.

use super::finding::{Finding, Severity};
use super::picture::Picture;
use polyrail::machine::{Interface, Machine};
use std::collections::BTreeSet;

/// An interface on an interface on ... : no machine has more, and a circle ends.
const DEPTH_MAX: usize = 8;

/// Each pair of interfaces in use that has one below both, or the one below the other.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let used = picture.used();
    let mut findings = Vec::new();
    for (index, one) in used.iter().enumerate() {
        for two in &used[index + 1..] {
            let ends = bottoms(&picture.machine, two);
            if let Some(shared) = bottoms(&picture.machine, one).intersection(&ends).next() {
                findings.push(finding(&one.name, &two.name, shared));
            }
        }
    }
    findings
}

fn finding(one: &str, two: &str, shared: &str) -> Finding {
    let about = format!("interfaces {one} and {two}");
    let seen = format!("both go by {shared}");
    let why = "two links by one cable are no faster than one, and fail together";
    let finding = Finding::new(Severity::Warning, "one-cable", about, seen, why);
    let less = if two == shared { one } else { two };
    finding.mend(format!("polyrail node --interface '!{less}'  # with the node's other flags"))
}

/// What an interface ends up at: itself, if there is nothing below.
fn bottoms(machine: &Machine, interface: &Interface) -> BTreeSet<String> {
    let mut found = BTreeSet::from([interface.name.clone()]);
    for _ in 0..DEPTH_MAX {
        let below = |name: &String| match machine.interface(name) {
            Some(one) if !one.lower.is_empty() => one.lower.clone(),
            _ => vec![name.clone()],
        };
        found = found.iter().flat_map(below).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn with_lower(lower: [&[&str]; 2]) -> Vec<Finding> {
        let mut picture = planted::sound();
        for (interface, lower) in picture.machine.interfaces.iter_mut().zip(lower) {
            interface.lower = lower.iter().map(|name| (*name).to_owned()).collect();
        }
        check(&picture)
    }

    #[test]
    fn interfaces_by_one_cable_are_found() {
        let found = with_lower([&[], &["eth0"]]);
        assert_eq!((found.len(), found[0].seen.as_str()), (1, "both go by eth0"));
        assert!(found[0].mend[0].starts_with("polyrail node --interface '!eth1'"), "{found:?}");
        assert_eq!(with_lower([&["nic0"], &["nic0"]]).len(), 1);
        assert!(with_lower([&["eth1"], &[]])[0].mend[0].starts_with("polyrail node --interface '!eth0'"));
    }

    #[test]
    fn interfaces_by_cables_of_their_own_are_not_and_a_circle_ends() {
        assert_eq!(with_lower([&[], &[]]), []);
        assert_eq!(with_lower([&["nic0"], &["nic1"]]), []);
        assert_eq!(with_lower([&["eth0"], &[]]), []);
    }
}
