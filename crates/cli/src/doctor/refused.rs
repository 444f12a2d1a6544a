//! What the node dropped or refused, by cause.

use super::finding::{Finding, Severity};
use super::picture::Picture;

/// Causes with something to say: counter, severity, check, what was seen behind the count, why it matters, what mends it.
const CAUSES: [(&str, Severity, &str, &str, &str, &str); 7] = [
    (
        "version",
        Severity::Warning,
        "other-version",
        "packets of another version of the protocol",
        "a node of another version is near, and no session with it is possible",
        "polyrail --version  # on each machine of the network: install the same",
    ),
    (
        "opening",
        Severity::Warning,
        "refused-peer",
        "sessions refused: too many, or a node with the identity of another",
        "a node that is refused is not reached; of two nodes with one identity only one can be in the cluster",
        "polyrail node list  # then give each node an `id` of its own, or none",
    ),
    (
        "malformed",
        Severity::Warning,
        "malformed",
        "packets that are not Polyrail's, or were changed on the way",
        "something else sends to our ports, or a device on the way changes packets",
        "polyrail stats  # `malformed` has the faults; then polyrail trace --print",
    ),
    (
        "violation",
        Severity::Warning,
        "violation",
        "breaches of the protocol by a peer",
        "a peer's program is faulty, or somebody forges its packets",
        "polyrail --version  # on each machine of the network: install the same",
    ),
    (
        "names_diverged",
        Severity::Warning,
        "names-diverged",
        "times that what a peer had bound was not what we knew of it",
        "it was mended, but it is a fault of one of the two nodes",
        "polyrail --version  # on each machine of the network: install the same",
    ),
    (
        "names_full",
        Severity::Warning,
        "names-full",
        "bindings of peers for which there was no room",
        "these services are not found from here",
        "polyrail service stats  # then bind ranges instead of single instances",
    ),
    (
        "bindings_refused",
        Severity::Warning,
        "bindings-refused",
        "bindings of ports here that were refused: too many",
        "these services are found by nobody",
        "polyrail service stats  # then bind ranges instead of single instances",
    ),
];

/// A cluster beside ours, which may be meant so.
const FOREIGN: &str = "foreign_cluster";

/// One finding for each cause that says something, and one note for all others.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let Some(node) = &picture.node else { return Vec::new() };
    let about = || format!("node {}", node.name);
    let count = |name: &str| node.drops.get(name).copied().unwrap_or(0);
    let told =
        CAUSES.iter().filter(|cause| count(cause.0) > 0).map(|&(name, severity, check, what, why, mend)| {
            Finding::new(severity, check, about(), format!("{} {what}", count(name)), why).mend(mend)
        });
    let mut findings: Vec<Finding> = told.collect();
    if count(FOREIGN) > 0 {
        findings.push(foreign(about(), count(FOREIGN), node.peers.is_empty()));
    }
    let is_other = |name: &str| name != FOREIGN && CAUSES.iter().all(|cause| cause.0 != name);
    let others = node.drops.iter().filter(|(name, count)| **count > 0 && is_other(name));
    let others: Vec<String> =
        others.map(|(name, count)| format!("{} {count}", name.replace('_', "-"))).collect();
    if !others.is_empty() {
        let why = "drops since the node began; after a failover or the end of a peer some are usual";
        let finding = Finding::new(Severity::Note, "drops", about(), others.join(", "), why);
        findings.push(finding.mend("polyrail stats  # again later: whether they grow"));
    }
    findings
}

fn foreign(about: String, count: u64, alone: bool) -> Finding {
    let mend = "polyrail node --cluster NAME  # the same name on each machine of the cluster";
    let seen = format!("{count} beacons and openings of another cluster");
    if alone {
        let why = "this node has no peer, and those that it hears have another cluster's name (`cluster`)";
        return Finding::new(Severity::Error, "other-cluster", about, format!("{seen}, and no peer"), why)
            .mend(mend);
    }
    let why = "another cluster is on the same wire; if it is meant to be this one, its name differs";
    Finding::new(Severity::Note, "other-cluster", about, seen, why).mend(mend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn with(drops: &[(&str, u64)]) -> Picture {
        let mut picture = planted::sound();
        picture.node.as_mut().unwrap().drops =
            drops.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        picture
    }

    #[test]
    fn each_cause_that_is_not_zero_is_found() {
        for cause in CAUSES {
            assert_eq!(check(&with(&[(cause.0, 0)])), []);
            let found = check(&with(&[(cause.0, 3)]));
            assert_eq!((found.len(), found[0].check, found[0].severity), (1, cause.2, cause.1));
            assert!(found[0].seen.starts_with("3 ") && !found[0].mend.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn another_cluster_is_grave_only_for_a_node_that_is_alone() {
        let mut picture = with(&[("foreign_cluster", 9)]);
        assert_eq!(check(&picture)[0].severity, Severity::Note);
        picture.node.as_mut().unwrap().peers.clear();
        assert_eq!(
            (check(&picture)[0].severity, check(&picture)[0].check),
            (Severity::Error, "other-cluster")
        );
    }

    #[test]
    fn what_says_little_is_one_note() {
        let found = check(&with(&[("stale_packet", 2), ("holes", 0), ("duplicate_packet", 1)]));
        assert_eq!((found.len(), found[0].seen.as_str()), (1, "duplicate-packet 1, stale-packet 2"));
        assert_eq!(found[0].severity, Severity::Note);
    }
}
