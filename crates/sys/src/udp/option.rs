//! Socket options, one method each.

use std::io;
use std::net::IpAddr;

use libc::c_int;

use super::UdpSocket;
use crate::call::{get_option, set_option, set_option_bytes};

impl UdpSocket {
    /// Lets several sockets have one address, if all of them want it at the time of binding: for multicast, where each
    /// then gets every datagram, and for connected sockets, which get what comes from their other end.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, on.into())
    }

    /// Sends and receives through interface `device` only. Old kernels want privilege for it (EPERM).
    pub fn bind_to_device(&self, device: &str) -> io::Result<()> {
        set_option_bytes(self.fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())
    }

    /// Has the kernel report ICMP errors and local drops (ENOBUFS) instead of keeping them to itself.
    pub fn set_receive_errors(&self) -> io::Result<()> {
        self.set_family((libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR), 1)
    }

    /// Never fragments, and believes no path MTU that somebody reported: only the interface's own counts.
    pub fn set_path_mtu_probe(&self) -> io::Result<()> {
        self.set_family(
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            libc::IP_PMTUDISC_PROBE,
        )
    }

    /// Has the kernel put datagrams of one sender together into groups, or not.
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_UDP, libc::UDP_GRO, on.into())
    }

    /// Whether the kernel knows segmentation on sending.
    pub fn knows_gso(&self) -> bool {
        get_option::<c_int>(self.fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// Has everything sent from now on, if no size is given with it, cut into datagrams of `bytes`; 0: not cut.
    pub fn set_segment(&self, bytes: u16) -> io::Result<()> {
        self.set(libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
    }

    /// Whether what is sent carries a checksum (IPv4; without one there is no segmentation either).
    pub fn set_checksums(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_NO_CHECK, (!on).into())
    }

    /// Marks what is sent, if nothing else is said with it: the DSCP in the upper six bits, the ECN code point in the lower two.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        let (level, name) = self.traffic_class_option();
        self.set(level, name, class.into())
    }

    /// Level and name of the option for that, which are those of its control message too.
    pub(super) fn traffic_class_option(&self) -> (c_int, c_int) {
        if self.is_v6() { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) }
    }

    /// Has the DSCP and the ECN code point of what is received told.
    pub fn set_receive_traffic_class(&self) -> io::Result<()> {
        self.set_family((libc::IPPROTO_IP, libc::IP_RECVTOS), (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS), 1)
    }

    /// Asks for a send buffer of `bytes` as the kernel counts (with its overhead) and returns what it granted.
    /// Beyond the system's limit this needs privilege.
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<u32> {
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
    }

    /// The same for the receive buffer.
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<u32> {
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
    }

    /// Receives what is sent to multicast `group` on interface `index`.
    pub fn join(&self, group: IpAddr, index: u32) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                let group = c_int::from_ne_bytes(group.octets());
                let request = [group, 0, index as c_int];
                set_option(self.fd(), libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, request)
            }
            IpAddr::V6(group) => {
                let mut request = [0u32; 5];
                for (word, bytes) in request.iter_mut().zip(group.octets().chunks_exact(4)) {
                    *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
                request[4] = index;
                set_option(self.fd(), libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, request)
            }
        }
    }

    /// Sends multicast through interface `index` and from `source` (IPv4; IPv6 chooses by itself).
    pub fn set_multicast_interface(&self, index: u32, source: IpAddr) -> io::Result<()> {
        match source {
            IpAddr::V4(source) => {
                let source = c_int::from_ne_bytes(source.octets());
                let request = [0, source, index as c_int];
                set_option(self.fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_IF, request)
            }
            IpAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, index as c_int),
        }
    }

    /// How many routers multicast may cross, plus one.
    pub fn set_multicast_hops(&self, hops: u8) -> io::Result<()> {
        self.set_family(
            (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
            hops.into(),
        )
    }

    /// Whether this machine hears its own multicast.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.set_family(
            (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP),
            on.into(),
        )
    }

    /// Takes multicast of own memberships only, not of every group that anybody on this machine has joined.
    pub fn set_multicast_own_only(&self) -> io::Result<()> {
        /// From `linux/in6.h`.
        const IPV6_MULTICAST_ALL: c_int = 29;
        self.set_family(
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
            (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
            0,
        )
    }

    pub(super) fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        set_option(self.fd(), level, name, value)
    }

    fn set_family(&self, v4: (c_int, c_int), v6: (c_int, c_int), value: c_int) -> io::Result<()> {
        let (level, name) = if self.is_v6() { v6 } else { v4 };
        self.set(level, name, value)
    }

    fn set_buffer(&self, force: c_int, plain: c_int, bytes: u32) -> io::Result<u32> {
        // The kernel doubles what it is told, to leave room for its overhead, and answers with the double.
        let half = (bytes / 2).min(i32::MAX as u32 / 2) as c_int;
        if self.set(libc::SOL_SOCKET, force, half).is_err() {
            self.set(libc::SOL_SOCKET, plain, half)?;
        }
        let granted: c_int = get_option(self.fd(), libc::SOL_SOCKET, plain)?;
        Ok(granted.max(0) as u32)
    }

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(self)
    }
}
