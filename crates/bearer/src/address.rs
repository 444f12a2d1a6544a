//! Addresses on a medium, opaque to the protocol above: it stores, compares and forwards them as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const FAMILY_MEMORY: u8 = 1;
const FAMILY_SHM: u8 = 2;
const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

/// Where a datagram comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IPv4 or IPv6 address with its UDP port. The scope id and flow label of an IPv6 address are always 0
    /// here, so that an address read from the wire equals the one that datagrams come from: a bearer knows its
    /// own interface.
    Ip(SocketAddr),
    /// A seat in an in-process hub.
    Memory(u32),
    /// A node that shares memory with others of its machine.
    Shm {
        /// The same for all that can.
        machine: u64,
        /// Drawn by the node at its start.
        seat: u64,
    },
}

impl Address {
    /// The stable wire form and its length: one byte family (4, 6, 1 or 2), port, address, all in network order. Where there
    /// is no port, two bytes are 0 (shared memory) or missing (a hub).
    ///
    /// The scope id of an IPv6 link-local address means something on this machine only, so it is left out.
    pub fn to_bytes(&self) -> ([u8; 24], usize) {
        let mut out = [0; 24];
        match self {
            Address::Ip(address) => {
                out[1..3].copy_from_slice(&address.port().to_be_bytes());
                match address.ip() {
                    IpAddr::V4(ip) => {
                        out[0] = FAMILY_V4;
                        out[3..7].copy_from_slice(&ip.octets());
                        (out, 7)
                    }
                    IpAddr::V6(ip) => {
                        out[0] = FAMILY_V6;
                        out[3..19].copy_from_slice(&ip.octets());
                        (out, 19)
                    }
                }
            }
            Address::Memory(seat) => {
                out[0] = FAMILY_MEMORY;
                out[1..5].copy_from_slice(&seat.to_be_bytes());
                (out, 5)
            }
            Address::Shm { machine, seat } => {
                out[0] = FAMILY_SHM;
                out[3..11].copy_from_slice(&machine.to_be_bytes());
                out[11..19].copy_from_slice(&seat.to_be_bytes());
                (out, 19)
            }
        }
    }

    /// Reads the wire form; `None` when it is not exactly one address. Link-local addresses come back with
    /// scope id 0: the bearer that sends to them fills in its own interface.
    pub fn from_bytes(bytes: &[u8]) -> Option<Address> {
        let (&family, rest) = bytes.split_first()?;
        match family {
            FAMILY_MEMORY => Some(Address::Memory(u32::from_be_bytes(rest.try_into().ok()?))),
            FAMILY_SHM => {
                let (machine, seat) = rest.strip_prefix(&[0, 0])?.split_first_chunk::<8>()?;
                let seat = u64::from_be_bytes(seat.try_into().ok()?);
                Some(Address::Shm { machine: u64::from_be_bytes(*machine), seat })
            }
            FAMILY_V4 => {
                let (port, ip) = rest.split_first_chunk::<2>()?;
                let ip = Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?);
                Some(Address::Ip(SocketAddr::from((ip, u16::from_be_bytes(*port)))))
            }
            FAMILY_V6 => {
                let (port, ip) = rest.split_first_chunk::<2>()?;
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
                Some(Address::Ip(SocketAddrV6::new(ip, u16::from_be_bytes(*port), 0, 0).into()))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Memory(seat) => write!(f, "memory:{seat}"),
            Address::Shm { seat, .. } => write!(f, "shm:{seat:016x}"),
        }
    }
}

/// A bearer's own address and how much of it is common to its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// The address datagrams of this bearer come from.
    pub address: Address,
    /// Leading bits that all addresses on the medium share (a hub ignores them).
    pub prefix_bits: u8,
}

impl Network {
    /// Whether `other` is a neighbour on this medium: same family and same subnet, or the same machine; in a hub, always.
    pub fn reaches(&self, other: &Address) -> bool {
        match (self.address, other) {
            (Address::Memory(_), Address::Memory(_)) => true,
            (Address::Shm { machine: own, .. }, Address::Shm { machine: other, .. }) => own == *other,
            (Address::Ip(own), Address::Ip(other)) => match (own.ip(), other.ip()) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    let differ = u32::from(a) ^ u32::from(b);
                    differ.leading_zeros() >= u32::from(self.prefix_bits.min(32))
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    let differ = u128::from(a) ^ u128::from(b);
                    differ.leading_zeros() >= u32::from(self.prefix_bits.min(128))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    #[test]
    fn wire_form_is_fixed_and_comes_back() {
        let (bytes, length) = ip("10.1.2.3:258").to_bytes();
        assert_eq!(bytes[..length], [4, 1, 2, 10, 1, 2, 3]);
        let shm = Address::Shm { machine: u64::MAX - 1, seat: 0x0102_0304_0506_0708 };
        assert_eq!(shm.to_string(), "shm:0102030405060708");
        for address in [ip("10.1.2.3:7430"), ip("[fd00::1]:9"), Address::Memory(0xDEAD_BEEF), shm] {
            let (bytes, length) = address.to_bytes();
            assert_eq!(Address::from_bytes(&bytes[..length]), Some(address));
            assert_eq!(Address::from_bytes(&bytes[..length - 1]), None);
            assert_eq!(Address::from_bytes(&bytes[..length + 1]), None);
        }
        assert_eq!(Address::from_bytes(&[]), None);
        assert_eq!(Address::from_bytes(&[9, 0, 0, 0, 0]), None);
    }

    #[test]
    fn scope_id_stays_at_home() {
        let own = Address::Ip(SocketAddrV6::new("fe80::7".parse().unwrap(), 5, 0, 3).into());
        let (bytes, length) = own.to_bytes();
        assert_eq!(Address::from_bytes(&bytes[..length]), Some(ip("[fe80::7]:5")));
    }

    #[test]
    fn neighbours_share_the_subnet() {
        let v4 = Network { address: ip("10.0.1.1:1"), prefix_bits: 24 };
        assert!(v4.reaches(&ip("10.0.1.200:9")));
        assert!(!v4.reaches(&ip("10.0.2.1:1")));
        assert!(!v4.reaches(&ip("[fd00::1]:1")));
        assert!(!v4.reaches(&Address::Memory(1)));
        let v6 = Network { address: ip("[fd00:0:0:1::1]:1"), prefix_bits: 64 };
        assert!(v6.reaches(&ip("[fd00:0:0:1::ffff]:1")));
        assert!(!v6.reaches(&ip("[fd00:0:0:2::1]:1")));
        assert!(Network { address: ip("1.2.3.4:1"), prefix_bits: 0 }.reaches(&ip("200.2.3.4:1")));
        assert!(!Network { address: ip("1.2.3.4:1"), prefix_bits: 32 }.reaches(&ip("1.2.3.5:1")));
        assert!(Network { address: Address::Memory(1), prefix_bits: 0 }.reaches(&Address::Memory(9)));
        let shm = |machine: u64, seat: u64| Address::Shm { machine, seat };
        let network = Network { address: shm(5, 1), prefix_bits: 64 };
        assert!(
            network.reaches(&shm(5, 9))
                && !network.reaches(&shm(6, 1))
                && !network.reaches(&Address::Memory(5))
        );
    }
}
