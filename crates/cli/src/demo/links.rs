//! What both nodes say of their links: how the orchestrator knows that a switch has taken effect.

use super::role::NodeNews;
use std::collections::BTreeMap;

/// The names of the two nodes.
pub const NODES: [&str; 2] = ["a", "b"];

/// The last word of each node on each link. A node's bearers are numbered as its interfaces are listed, so a bearer's
/// number is the testbed's number of the link.
#[derive(Default)]
pub struct Links {
    states: BTreeMap<(String, u64), String>,
}

impl Links {
    /// Takes in what a node says; news of anything but links changes nothing.
    pub fn note(&mut self, news: &NodeNews) {
        if news.what["event"] != "link" {
            return;
        }
        if let (Some(bearer), Some(to)) = (news.what["bearer"].as_u64(), news.what["to"].as_str()) {
            self.states.insert((news.node.clone(), bearer), to.into());
        }
    }

    /// Whether both nodes hold `link` for usable, or both for lost.
    pub fn agree(&self, link: usize, usable: bool) -> bool {
        NODES.iter().all(|node| match self.state(node, link) {
            Some("probation" | "up") => usable,
            Some("down" | "damped" | "new") => !usable,
            _ => false,
        })
    }

    /// What each node said last of `link`, for people.
    pub fn describe(&self, link: usize) -> String {
        NODES.map(|node| format!("node {node}: {}", self.state(node, link).unwrap_or("no word"))).join(", ")
    }

    fn state(&self, node: &str, link: usize) -> Option<&str> {
        self.states.get(&(node.to_string(), link as u64)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn links(words: &[(&str, u64, &str)]) -> Links {
        let mut links = Links::default();
        for (node, bearer, to) in words {
            let what = json!({ "event": "link", "bearer": bearer, "from": "new", "to": to });
            links.note(&NodeNews { at_us: 0, node: (*node).into(), what });
        }
        links
    }

    #[test]
    fn the_last_word_of_both_nodes_counts() {
        let healed = links(&[("a", 0, "down"), ("b", 0, "down"), ("a", 0, "probation"), ("b", 0, "up")]);
        assert!(healed.agree(0, true) && !healed.agree(0, false));
        let half = links(&[("a", 0, "down"), ("b", 0, "down"), ("a", 0, "up")]);
        assert!(!half.agree(0, true) && !half.agree(0, false));
        assert_eq!(half.describe(0), "node a: up, node b: down");
        assert_eq!(half.describe(1), "node a: no word, node b: no word");
    }

    #[test]
    fn a_suspect_is_neither_usable_nor_lost() {
        let doubtful = links(&[("a", 1, "down"), ("b", 1, "suspect")]);
        assert!(!doubtful.agree(1, false) && !doubtful.agree(1, true));
    }
}
