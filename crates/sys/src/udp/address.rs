//! Socket addresses in the kernel's layout.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;

/// `sockaddr_in` or `sockaddr_in6` as bytes, aligned like them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SocketAddress {
    bytes: [u8; SocketAddress::CAPACITY],
}

impl SocketAddress {
    /// Room for either.
    pub const CAPACITY: usize = 32;

    /// A place for the kernel to fill.
    pub const fn empty() -> SocketAddress {
        SocketAddress { bytes: [0; SocketAddress::CAPACITY] }
    }

    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self).cast()
    }

    pub fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }

    /// Length of the layout that the family says.
    pub fn len(&self) -> libc::socklen_t {
        if self.family() == libc::AF_INET6 as u16 { V6_BYTES as _ } else { V4_BYTES as _ }
    }

    /// The address; `None` unless it is of the internet.
    pub fn get(&self) -> Option<SocketAddr> {
        decode(&self.bytes)
    }

    fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> SocketAddress {
        let mut out = SocketAddress::empty();
        out.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                out.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                out.bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                out.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                out.bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                out.bytes[8..24].copy_from_slice(&v6.ip().octets());
                out.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        out
    }
}

/// Reads `sockaddr_in` or `sockaddr_in6` from bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let word: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
    match family {
        libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(word), port).into()),
        libc::AF_INET6 => {
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, u32::from_be_bytes(word), scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_with_scope_and_flow() {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 7430, 5, 3).into();
        for address in ["10.0.0.1:80".parse().unwrap(), v6] {
            assert_eq!(SocketAddress::from(address).get(), Some(address));
        }
        assert_eq!(SocketAddress::empty().get(), None);
        assert_eq!(decode(&[2, 0, 0]), None);
    }
}
