//! TIPC, the kernel's cluster protocol: its addresses and options, which no library knows.

use std::io;
use std::mem::size_of;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::{SockAddr, SockAddrStorage};

use crate::call::set_option;

/// The address family, for socket(2).
pub const FAMILY: i32 = libc::AF_TIPC;
/// The socket type of datagrams that links do not lose, for socket(2).
pub const RELIABLE_DATAGRAM: i32 = libc::SOCK_RDM;
/// The largest message of every socket type but streams, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 66_000;

// From linux/tipc.h.
const SERVICE_ADDRESS: u8 = 2;
const LEVEL: c_int = 271;
const DESTINATION_DROPPABLE: c_int = 129;
const NODELAY: c_int = 138;

/// How far a bound service is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum Scope {
    /// In every node of the cluster.
    Cluster = 2,
    /// In its own node.
    Node = 3,
}

/// `sockaddr_tipc` with the union's form for one service instance.
#[derive(Clone, Copy)]
#[repr(C)]
struct ServiceAddress {
    family: u16,
    kind: u8,
    scope: i8,
    service: u32,
    instance: u32,
    /// Node to look in; 0: all.
    domain: u32,
}

/// The address of one instance of a service, to bind or to connect to. Service types below 64 are the kernel's own.
pub fn service_address(service: u32, instance: u32, scope: Scope) -> SockAddr {
    let kind = SERVICE_ADDRESS;
    let address =
        ServiceAddress { family: FAMILY as u16, kind, scope: scope as i8, service, instance, domain: 0 };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is larger than the address, aligned for every address, and all of its bytes are set.
    *unsafe { storage.view_as::<ServiceAddress>() } = address;
    // SAFETY: an address of the family that it names stands at the beginning, as long as the length says.
    unsafe { SockAddr::new(storage, size_of::<ServiceAddress>() as libc::socklen_t) }
}

/// Lets a stream send each message at once instead of gathering small ones.
pub fn set_nodelay(socket: impl AsFd) -> io::Result<()> {
    set_option(socket.as_fd(), LEVEL, NODELAY, 1)
}

/// Whether a message that finds the receiver's queue full or the receiver gone vanishes, instead of coming back.
pub fn set_droppable(socket: impl AsFd, droppable: bool) -> io::Result<()> {
    set_option(socket.as_fd(), LEVEL, DESTINATION_DROPPABLE, c_int::from(droppable))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_address_lies_as_the_kernel_reads_it() {
        let offsets = [
            offset_of!(ServiceAddress, family),
            offset_of!(ServiceAddress, kind),
            offset_of!(ServiceAddress, scope),
            offset_of!(ServiceAddress, service),
            offset_of!(ServiceAddress, instance),
            offset_of!(ServiceAddress, domain),
        ];
        assert_eq!(offsets, [0, 2, 3, 4, 8, 12]);
        assert_eq!(size_of::<ServiceAddress>(), 16);
    }

    #[test]
    fn an_address_says_its_family_and_length_and_differs_by_each_part() {
        let address = service_address(1000, 7, Scope::Node);
        assert_eq!((i32::from(address.family()), address.len()), (FAMILY, 16));
        assert_eq!(address, service_address(1000, 7, Scope::Node));
        assert_ne!(address, service_address(1001, 7, Scope::Node));
        assert_ne!(address, service_address(1000, 8, Scope::Node));
        assert_ne!(address, service_address(1000, 7, Scope::Cluster));
    }
}
