//! By which interface the system would send to an address, if nobody said which.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use super::list::ip;
use super::netlink::{attributes, messages, open, request, u32_at};

/// Fixed part of a route message: family, lengths, service, table, protocol, scope, type, flags.
const ROUTE_BYTES: usize = 12;

/// The way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Number of the interface.
    pub interface_index: u32,
    /// The router, if it is not a neighbour.
    pub gateway: Option<IpAddr>,
}

/// The way to `to`; an error of the kernel's (ENETUNREACH) where there is none.
pub fn route_to(to: IpAddr) -> io::Result<Route> {
    let (family, bytes) = match to {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    };
    let mut fixed = [0; ROUTE_BYTES];
    fixed[0] = family;
    fixed[1] = (bytes.len() * 8) as u8;
    let mut socket = open(0, 0)?;
    socket.write_all(&request(libc::RTM_GETROUTE, &fixed, &[(libc::RTA_DST, &bytes)]))?;
    let mut buffer = vec![0; 8_192];
    let count = socket.read(&mut buffer)?;
    answer(&buffer[..count])
}

fn answer(bytes: &[u8]) -> io::Result<Route> {
    for message in messages(bytes) {
        if message.kind == libc::NLMSG_ERROR as u16 {
            let errno = u32_at(message.body, 0).map_or(libc::EPROTO, |code| (code as i32).wrapping_neg());
            return Err(io::Error::from_raw_os_error(errno));
        }
        if message.kind == libc::RTM_NEWROUTE
            && let Some(route) = route(message.body)
        {
            return Ok(route);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn route(body: &[u8]) -> Option<Route> {
    let (mut interface_index, mut gateway) = (None, None);
    for (kind, value) in attributes(body.get(ROUTE_BYTES..)?) {
        match kind {
            libc::RTA_OIF => interface_index = u32_at(value, 0),
            libc::RTA_GATEWAY => gateway = ip(value),
            _ => {}
        }
    }
    Some(Route { interface_index: interface_index?, gateway })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Kind, list};
    use std::net::Ipv4Addr;

    #[test]
    fn the_way_to_this_machine_is_loopback() {
        let lo = list().unwrap().into_iter().find(|i| i.kind == Kind::Loopback).unwrap();
        let route = route_to(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(route, Route { interface_index: lo.index, gateway: None });
    }

    #[test]
    fn an_error_of_the_kernel_is_one_and_rubbish_is_too() {
        let mut refused = request(libc::NLMSG_ERROR as u16, &(-libc::ENETUNREACH).to_ne_bytes(), &[]);
        assert_eq!(answer(&refused).unwrap_err().raw_os_error(), Some(libc::ENETUNREACH));
        refused.truncate(9);
        assert_eq!(answer(&refused).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let empty = request(libc::RTM_NEWROUTE, &[0; ROUTE_BYTES], &[]);
        assert!(answer(&empty).is_err());
    }
}
