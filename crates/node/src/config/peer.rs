//! Static peers: `host` or `host:port`.

use super::ConfigError;
use std::fmt;
use std::net::Ipv6Addr;

/// A node to greet, not resolved yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerName {
    /// DNS name or literal address; an IPv6 address without brackets, `%interface` kept.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

impl PeerName {
    /// Reads `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
    pub fn parse(text: &str, port_default: u16) -> Result<Self, ConfigError> {
        let wrong = || {
            let allowed = "\"host\", \"host:port\", \"[ipv6]:port\" with host a DNS name or an address";
            ConfigError::new("peers", format!("{text:?} is no peer"), allowed)
        };
        let (host, port) = split(text).ok_or_else(wrong)?;
        let port = match port {
            None => port_default,
            Some(digits) => digits.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        };
        if !is_host(host) {
            return Err(wrong());
        }
        Ok(PeerName { host: host.into(), port })
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
        return is_ipv6(host).then_some((host, port));
    }
    if is_ipv6(text) {
        return Some((text, None));
    }
    Some(match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    })
}

fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok()
}

fn is_host(host: &str) -> bool {
    let is_name = !host.is_empty()
        && host.len() <= 253
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    is_name || is_ipv6(host)
}
