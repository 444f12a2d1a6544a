//! Which network interfaces become bearers.

mod pattern;

use super::ConfigError;
use std::net::IpAddr;

/// Left out unless configured: bridges and pairs that lead to containers and virtual machines, not to other nodes.
pub const INTERFACES_EXCLUDED: [&str; 3] = ["docker*", "virbr*", "veth*"];

/// Which interfaces to use. Each rule is a name, a pattern as a shell's (`eth*`, `eth?`, `eth[0-3]`), or a network as
/// `10.0.0.0/8`; with `!` before it, it excludes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceRules {
    /// Interfaces to use, and with `!` those not to use; without any to use: every one that is not excluded. A name
    /// written out in full is used even if it is excluded or loopback.
    pub include: Vec<String>,
    /// Interfaces not to use, beside those with `!`; `None`: [`INTERFACES_EXCLUDED`] while nothing is included, else
    /// none.
    pub exclude: Option<Vec<String>>,
    /// Of those that are used, whose links are on standby: they carry messages only while no other to that peer can.
    pub standby: Vec<String>,
}

impl InterfaceRules {
    /// Whether an interface that is up and has these addresses is to be used.
    pub fn selects(&self, name: &str, addresses: &[IpAddr], is_loopback: bool) -> bool {
        if addresses.is_empty() {
            return false;
        }
        if self.including().any(|rule| rule == name) {
            return true;
        }
        let hits = |rule: &str| Rule::parse(rule).is_some_and(|rule| rule.hits(name, addresses));
        let includes_all = self.including().next().is_none();
        let excluded = match &self.exclude {
            Some(rules) => rules.iter().any(|rule| hits(rule)),
            None => includes_all && INTERFACES_EXCLUDED.iter().any(|rule| hits(rule)),
        };
        let excluded = excluded || self.include.iter().filter_map(|rule| rule.strip_prefix('!')).any(hits);
        !excluded && !is_loopback && (includes_all || self.including().any(hits))
    }

    /// Whether links by an interface that has this address are on standby from the first.
    pub(crate) fn is_standby(&self, name: &str, address: IpAddr) -> bool {
        let hits = |rule: &String| Rule::parse(rule).is_some_and(|rule| rule.hits(name, &[address]));
        self.standby.iter().any(hits)
    }

    /// Whether an interface is named in full: whoever does that counts on it.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.including().any(|rule| rule == name)
    }

    /// Whether an address lies in a network that is included: of several addresses of an interface, that is the one
    /// that was meant.
    pub(crate) fn names_network_of(&self, address: IpAddr) -> bool {
        let is_network = |rule| match Rule::parse(rule) {
            Some(Rule::Network(network, bits)) => is_inside(address, network, bits),
            _ => false,
        };
        self.including().any(is_network)
    }

    /// The first rule that is to include something and meets none of `present`, each a name, its addresses and whether
    /// it is loopback. What is to be excluded may be missing: the same settings serve many machines.
    pub(crate) fn unmet(&self, present: &[(&str, Vec<IpAddr>, bool)]) -> Option<&str> {
        let meets = |rule: &str, (name, addresses, is_loopback): &(&str, Vec<IpAddr>, bool)| {
            // Loopback is meant only by who writes it out.
            let hits = || Rule::parse(rule).is_some_and(|rule| rule.hits(name, addresses));
            rule == *name || !is_loopback && hits()
        };
        self.including().find(|rule| !present.iter().any(|one| meets(rule, one)))
    }

    /// The rules that say what to use.
    fn including(&self) -> impl Iterator<Item = &str> {
        self.include.iter().map(String::as_str).filter(|rule| !rule.starts_with('!'))
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let bare = |rule: &'_ String| rule.strip_prefix('!').unwrap_or(rule).to_owned();
        let include = self.include.iter().map(|rule| ("interfaces.include", rule, bare(rule)));
        let exclude = self.exclude.iter().flatten().map(|rule| ("interfaces.exclude", rule, rule.clone()));
        let standby = self.standby.iter().map(|rule| ("interfaces.standby", rule, rule.clone()));
        for (key, rule, bare) in include.chain(exclude).chain(standby) {
            if Rule::parse(&bare).is_none() {
                let negated =
                    if key == "interfaces.include" { "; with ! before it: not this one" } else { "" };
                let allowed =
                    format!("a name (\"eth0\"), a pattern (\"eth*\"), a network (\"10.0.0.0/8\"){negated}");
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

/// Longest name of an interface, which the system sets, and longest pattern.
const NAME_BYTES_MAX: usize = 15;
const PATTERN_BYTES_MAX: usize = 63;

impl<'a> Rule<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            return (bits <= bits_max).then_some(Rule::Network(address, bits));
        }
        let bytes_max = if text.contains(['*', '?', '[']) { PATTERN_BYTES_MAX } else { NAME_BYTES_MAX };
        let is_name = (1..=bytes_max).contains(&text.len())
            && !text.starts_with('!')
            && !text.contains(|c: char| c.is_whitespace() || c == ':');
        is_name.then_some(Rule::Pattern(text))
    }

    fn hits(&self, name: &str, addresses: &[IpAddr]) -> bool {
        match *self {
            Rule::Pattern(pattern) => pattern::matches(pattern.as_bytes(), name.as_bytes()),
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
