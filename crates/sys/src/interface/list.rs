//! Asks the kernel for all interfaces and all their addresses.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netlink::{Message, attributes, dump_request, messages, open, u32_at};
use super::{Interface, InterfaceAddress, Kind, Scope};

const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
/// Fixed part of a link message: family, type, index, flags, change.
pub(super) const LINK_BYTES: usize = 16;
/// Fixed part of an address message: family, prefix, flags, scope, index.
const ADDRESS_BYTES: usize = 8;

/// All interfaces of the calling thread's network name space, by index.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    dump(libc::RTM_GETLINK, LINK_BYTES, |message| {
        if message.kind == libc::RTM_NEWLINK {
            interfaces.extend(link(message.body));
        }
    })?;
    dump(libc::RTM_GETADDR, ADDRESS_BYTES, |message| {
        let Some((index, found)) = address(message.body) else { return };
        if message.kind == libc::RTM_NEWADDR
            && let Some(interface) = interfaces.iter_mut().find(|i| i.index == index)
        {
            interface.addresses.push(found);
        }
    })?;
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

pub(super) fn dump(kind: u16, body_bytes: usize, mut each: impl FnMut(Message<'_>)) -> io::Result<()> {
    let mut socket = open(0, 0)?;
    socket.write_all(&dump_request(kind, body_bytes))?;
    let mut buffer = vec![0; 65_536];
    loop {
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for message in messages(&buffer[..count]) {
            match message.kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let errno = u32_at(message.body, 0).map_or(libc::EPROTO, |code| -(code as i32));
                    return Err(io::Error::from_raw_os_error(errno));
                }
                _ => each(message),
            }
        }
    }
}

/// Index and flags from the fixed part of a link message.
pub(super) fn link_head(body: &[u8]) -> Option<(u32, i32)> {
    Some((u32_at(body, 4)?, u32_at(body, 8)? as i32))
}

fn link(body: &[u8]) -> Option<Interface> {
    let (index, flags) = link_head(body)?;
    let (mut name, mut mtu_bytes) = (String::new(), 0);
    for (kind, value) in attributes(body.get(LINK_BYTES..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
                name = String::from_utf8_lossy(&value[..end]).into_owned();
            }
            libc::IFLA_MTU => mtu_bytes = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(Interface {
        index,
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
        multicast: flags & libc::IFF_MULTICAST != 0,
        mtu_bytes,
        kind: kind_of(&name, flags & libc::IFF_LOOPBACK != 0),
        name,
        addresses: Vec::new(),
    })
}

fn kind_of(name: &str, loopback: bool) -> Kind {
    if loopback {
        Kind::Loopback
    } else if ["docker", "virbr", "veth", "br-"].iter().any(|prefix| name.starts_with(prefix)) {
        Kind::Virtual
    } else {
        Kind::Ordinary
    }
}

fn address(body: &[u8]) -> Option<(u32, InterfaceAddress)> {
    let &[_, prefix_bits, flags, scope] = body.first_chunk()?;
    let index = u32_at(body, 4)?;
    let (mut local, mut remote) = (None, None);
    for (kind, value) in attributes(body.get(ADDRESS_BYTES..)?) {
        match kind {
            // On a point-to-point link IFA_ADDRESS is the other end, and IFA_LOCAL is ours.
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_ADDRESS => remote = ip(value),
            _ => {}
        }
    }
    let scope = match scope {
        254 => Scope::Host,
        253 => Scope::Link,
        200 => Scope::Site,
        _ => Scope::Global,
    };
    let tentative = u32::from(flags) & libc::IFA_F_TENTATIVE != 0;
    Some((index, InterfaceAddress { ip: local.or(remote)?, prefix_bits, scope, tentative }))
}

/// An address of either family.
pub(super) fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(value).ok().map(|v6| Ipv6Addr::from(v6).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_address() {
        let interfaces = list().unwrap();
        let lo = interfaces.iter().find(|i| i.kind == Kind::Loopback).unwrap();
        assert!(lo.up && lo.running && lo.mtu_bytes >= 1_500, "{lo:?}");
        let home = lo.addresses.iter().find(|a| a.ip == IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!((home.prefix_bits, home.scope), (8, Scope::Host));
    }

    #[test]
    fn kinds_are_guessed_by_name() {
        for name in ["docker0", "virbr1", "veth12ab", "br-0123"] {
            assert_eq!(kind_of(name, false), Kind::Virtual);
        }
        assert_eq!(kind_of("eth0", false), Kind::Ordinary);
        assert_eq!(kind_of("lo", true), Kind::Loopback);
    }
}
