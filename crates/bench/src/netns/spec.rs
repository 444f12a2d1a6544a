//! What a testbed shall look like, and the names that follow from it.

use serde::{Deserialize, Serialize};

use super::command::NetnsError;

/// One link of a testbed: the same for every node on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Rate of the token bucket at both ends, in Mbit/s; none: as fast as the machine copies.
    pub rate_mbit: Option<u32>,
    /// Burst of the token bucket in KiB. Under 128 the bucket cuts large segments apart, at ten times the CPU.
    pub burst_kb: u32,
    /// Longest time a packet waits in the token bucket, in ms.
    pub latency_ms: u32,
    /// MTU of the devices, in bytes.
    pub mtu: u32,
    /// Share of arriving packets (IP, express frames, TIPC) dropped at random, in percent.
    pub loss_percent: f64,
    /// How long every packet takes each way, in us: a relay holds it for so long. Two nodes only.
    #[serde(default)]
    pub delay_us: u32,
    /// Whether large segments pass the link whole. Off: the unit that the link loses is one packet, not 64 KiB.
    pub gso: bool,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate_mbit: None,
            burst_kb: 128,
            latency_ms: 5,
            mtu: 1500,
            loss_percent: 0.0,
            delay_us: 0,
            gso: true,
        }
    }
}

/// A testbed: nodes, each in a network namespace, that share links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Name, part of the namespaces' names: small letters, digits and `-`, at most 24.
    pub name: String,
    /// Number of nodes, 2 to 64. Two nodes are joined by veth pairs, more by one bridge per link.
    pub nodes: usize,
    /// The links, 1 to 16.
    pub links: Vec<LinkSpec>,
}

impl Spec {
    /// A testbed of two nodes.
    pub fn pair(name: impl Into<String>, links: Vec<LinkSpec>) -> Self {
        Self { name: name.into(), nodes: 2, links }
    }

    pub(super) fn check(&self) -> Result<(), NetnsError> {
        let invalid = |what: String| Err(NetnsError::Invalid(what));
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 24 || !self.name.chars().all(good) {
            return invalid(format!("testbed name `{}`: small letters, digits and `-`, 1 to 24", self.name));
        }
        if !(2..=64).contains(&self.nodes) {
            return invalid(format!("{} nodes: a testbed has 2 to 64", self.nodes));
        }
        if !(1..=16).contains(&self.links.len()) {
            return invalid(format!("{} links: a testbed has 1 to 16", self.links.len()));
        }
        self.links.iter().enumerate().try_for_each(|(index, link)| {
            if link.rate_mbit == Some(0) {
                return invalid(format!("link {index}: rate 0"));
            }
            if !(0.0..=100.0).contains(&link.loss_percent) {
                return invalid(format!("link {index}: loss {} percent", link.loss_percent));
            }
            if link.delay_us > 0 && self.nodes > 2 {
                return invalid(format!(
                    "link {index}: delay {} us, which only two nodes can have",
                    link.delay_us
                ));
            }
            if link.delay_us > DELAY_US_MAX {
                return invalid(format!("link {index}: delay {} us, at most {DELAY_US_MAX}", link.delay_us));
            }
            if !(576..=65_535).contains(&link.mtu) {
                return invalid(format!("link {index}: MTU {} is not within 576 to 65535", link.mtu));
            }
            Ok(())
        })
    }

    /// Name of a node's namespace: `pr-NAME-a`, `pr-NAME-b`, ... and `pr-NAME-n26` from the 27th on.
    pub fn namespace(&self, node: usize) -> String {
        match u8::try_from(node) {
            Ok(index) if index < 26 => format!("pr-{}-{}", self.name, char::from(b'a' + index)),
            _ => format!("pr-{}-n{node}", self.name),
        }
    }

    /// Name of the namespace that holds a link's bridge, where there are more than two nodes.
    pub(super) fn bridge_namespace(&self, link: usize) -> String {
        format!("pr-{}-l{link}", self.name)
    }

    /// Name of the namespace that holds the relay, where a link is delayed.
    pub(super) fn relay_namespace(&self) -> String {
        format!("pr-{}-relay", self.name)
    }

    /// Whether a link goes through the relay.
    pub(super) fn is_delayed(&self, link: usize) -> bool {
        self.links[link].delay_us > 0
    }

    /// Every namespace of the testbed.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let bridges = if self.nodes > 2 { self.links.len() } else { 0 };
        let delayed = (0..self.links.len()).any(|link| self.is_delayed(link));
        (0..self.nodes)
            .map(|node| self.namespace(node))
            .chain((0..bridges).map(|link| self.bridge_namespace(link)))
            .chain(delayed.then(|| self.relay_namespace()))
            .collect()
    }
}

/// Longest delay of a link in us, each way: at 10 Gbit/s the relay then holds 1.25 GB.
const DELAY_US_MAX: u32 = 1_000_000;

/// Name of the relay's device of a link towards a node.
pub(super) fn relay_port(link: usize, node: usize) -> String {
    format!("r{link}n{node}")
}

/// Name of a link's device, the same in every node.
pub fn device(link: usize) -> String {
    format!("l{link}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_specifications_are_refused_with_the_reason() {
        let good = Spec::pair("x", vec![LinkSpec::default()]);
        assert!(good.check().is_ok());
        let refused = |spec: Spec, word: &str| {
            let text = spec.check().unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        };
        refused(Spec { name: "A b".into(), ..good.clone() }, "name");
        refused(Spec { nodes: 1, ..good.clone() }, "nodes");
        refused(Spec { links: vec![], ..good.clone() }, "links");
        let link = |change: fn(&mut LinkSpec)| {
            let mut link = LinkSpec::default();
            change(&mut link);
            Spec::pair("x", vec![link])
        };
        refused(link(|l| l.loss_percent = 101.0), "loss");
        refused(link(|l| l.loss_percent = f64::NAN), "loss");
        refused(link(|l| l.mtu = 9), "MTU");
        refused(link(|l| l.rate_mbit = Some(0)), "rate");
        refused(link(|l| l.delay_us = 2_000_000), "delay");
        let delayed = link(|l| l.delay_us = 1);
        assert!(delayed.check().is_ok());
        refused(Spec { nodes: 3, ..delayed }, "two nodes");
    }

    #[test]
    fn namespaces_are_named_by_letters_and_bridges_by_links() {
        let two = Spec::pair("x", vec![LinkSpec::default(); 2]);
        assert_eq!(two.namespaces(), ["pr-x-a", "pr-x-b"]);
        let mut delayed = two.clone();
        delayed.links[1].delay_us = 5;
        assert_eq!(delayed.namespaces(), ["pr-x-a", "pr-x-b", "pr-x-relay"]);
        let three = Spec { nodes: 3, ..two };
        assert_eq!(three.namespaces(), ["pr-x-a", "pr-x-b", "pr-x-c", "pr-x-l0", "pr-x-l1"]);
    }
}
