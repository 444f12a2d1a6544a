//! Which network interfaces become bearers.

use super::ConfigError;
use std::net::IpAddr;

/// Left out unless configured: bridges and pairs that lead to containers and virtual machines, not to other nodes.
pub const INTERFACES_EXCLUDED: [&str; 3] = ["docker*", "virbr*", "veth*"];

/// Which interfaces to use. Each rule is a name, a pattern with `*`, or a network as `10.0.0.0/8`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceRules {
    /// Interfaces to use; empty: every one that is not excluded. A name written out in full is used even if it is
    /// excluded or loopback.
    pub include: Vec<String>,
    /// Interfaces not to use; `None`: [`INTERFACES_EXCLUDED`] while `include` is empty, else none.
    pub exclude: Option<Vec<String>>,
}

impl InterfaceRules {
    /// Whether an interface that is up and has these addresses is to be used.
    pub fn selects(&self, name: &str, addresses: &[IpAddr], is_loopback: bool) -> bool {
        if addresses.is_empty() {
            return false;
        }
        if self.include.iter().any(|rule| rule == name) {
            return true;
        }
        let hits = |rule: &str| Rule::parse(rule).is_some_and(|rule| rule.hits(name, addresses));
        let excluded = match &self.exclude {
            Some(rules) => rules.iter().any(|rule| hits(rule)),
            None => self.include.is_empty() && INTERFACES_EXCLUDED.iter().any(|rule| hits(rule)),
        };
        !excluded && !is_loopback && (self.include.is_empty() || self.include.iter().any(|rule| hits(rule)))
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let include = self.include.iter().map(|rule| ("interfaces.include", rule));
        let exclude = self.exclude.iter().flatten().map(|rule| ("interfaces.exclude", rule));
        for (key, rule) in include.chain(exclude) {
            if Rule::parse(rule).is_none() {
                let allowed = "a name (\"eth0\"), a pattern (\"eth*\"), a network (\"10.0.0.0/8\")";
                return Err(ConfigError::new(key, format!("{rule:?} is no interface"), allowed));
            }
        }
        Ok(())
    }
}

enum Rule<'a> {
    Pattern(&'a str),
    Network(IpAddr, u32),
}

impl<'a> Rule<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            return (bits <= bits_max).then_some(Rule::Network(address, bits));
        }
        let is_name =
            (1..=15).contains(&text.len()) && !text.contains(|c: char| c.is_whitespace() || c == ':');
        is_name.then_some(Rule::Pattern(text))
    }

    fn hits(&self, name: &str, addresses: &[IpAddr]) -> bool {
        match *self {
            Rule::Pattern(pattern) => matches_pattern(pattern.as_bytes(), name.as_bytes()),
            Rule::Network(network, bits) => addresses.iter().any(|a| is_inside(*a, network, bits)),
        }
    }
}

fn is_inside(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let differing_bits = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing_bits >= bits
}

/// `*` stands for any characters, also none.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skipped| matches_pattern(rest, &name[skipped..])),
        Some((c, rest)) => name.first() == Some(c) && matches_pattern(rest, &name[1..]),
    }
}
