//! Addresses of this machine and of the other: what a person types, the route between them, and the devices that
//! carry them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use super::CONTROL_PORT;

/// A machine as a person names it: `HOST`, `HOST:PORT`, `[IPV6]:PORT`, or a bare IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName {
    /// A DNS name or an address, without brackets.
    host: String,
    port: u16,
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no HOST[:PORT], such as node7, 10.0.0.2:{CONTROL_PORT} or [fd00::2]:{CONTROL_PORT}"
            )
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) })
            }
            None if text.parse::<IpAddr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(CONTROL_PORT), |digits| digits.parse().map_err(|_| wrong()))?;
        let is_host = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl HostName {
    /// Its addresses, as the resolver orders them.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

/// The device that carries each of these addresses of this machine, each named once.
///
/// # Errors
/// An address is not this machine's, or says nothing without a device; one line.
pub(crate) fn devices_of(addresses: &[IpAddr]) -> Result<Vec<String>, String> {
    let interfaces = polyrail_sys::interface::list().map_err(|error| format!("interfaces: {error}"))?;
    let mut devices: Vec<String> = Vec::new();
    for &address in addresses {
        if let IpAddr::V6(v6) = address
            && v6.is_unicast_link_local()
        {
            return Err(format!("{address}: holds on one link only: use an address that holds everywhere"));
        }
        let carries = |interface: &&polyrail_sys::interface::Interface| {
            // All of 127.0.0.0/8 is this machine, though only one address of it is listed.
            interface.addresses.iter().any(|found| found.ip == address)
                || address.is_loopback() && interface.name == "lo"
        };
        let device = interfaces
            .iter()
            .find(carries)
            .ok_or_else(|| format!("{address}: no address of this machine"))?;
        if !devices.contains(&device.name) {
            devices.push(device.name.clone());
        }
    }
    Ok(devices)
}

/// The address from which this machine would send to `to`; nothing is sent.
pub(super) fn local_towards(to: IpAddr) -> io::Result<IpAddr> {
    let unspecified: IpAddr = match to {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0))?;
    socket.connect((to, CONTROL_PORT))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_in_every_usual_way() {
        for (text, shown) in [
            ("node7", "node7:7432"),
            ("node7.example:9", "node7.example:9"),
            ("10.0.0.2", "10.0.0.2:7432"),
            ("10.0.0.2:1", "10.0.0.2:1"),
            ("fd00::2", "[fd00::2]:7432"),
            ("[fd00::2]", "[fd00::2]:7432"),
            ("[fd00::2]:0", "[fd00::2]:0"),
        ] {
            let name: HostName = text.parse().unwrap();
            assert_eq!(name.to_string(), shown);
            assert_eq!(shown.parse(), Ok(name));
        }
        for wrong in
            ["", ":1", "a:b", "a:99999", "[fd00::2", "[node7]:1", "[fd00::2]1", "a b", "a/b", "a:1:2"]
        {
            let said = wrong.parse::<HostName>().unwrap_err();
            assert!(said.contains("HOST[:PORT]"), "{said}");
        }
    }

    #[test]
    fn an_address_has_its_device_and_a_strangers_has_none() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(devices_of(&[ip("127.0.0.1"), ip("127.0.0.9")]).unwrap(), ["lo"]);
        assert!(devices_of(&[ip("192.0.2.77")]).unwrap_err().contains("192.0.2.77: no address"));
        assert!(devices_of(&[ip("fe80::1")]).unwrap_err().contains("one link only"));
        assert_eq!(local_towards(ip("127.0.0.1")).unwrap(), ip("127.0.0.1"));
    }
}
