//! The socket's error queue: what ICMP and the local interface said about datagrams sent earlier.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::UdpSocket;
use super::address::{SocketAddress, decode};
use super::control::Control;
use crate::call::check_size;

/// Who reported an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorOrigin {
    /// This machine.
    Local,
    /// An ICMP message.
    Icmp,
    /// An ICMPv6 message.
    Icmp6,
    /// Something else.
    Other,
}

/// One error about a datagram sent earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuedError {
    /// Where that datagram was to go.
    pub to: Option<SocketAddr>,
    /// Which machine reported it.
    pub offender: Option<IpAddr>,
    /// The error number.
    pub errno: i32,
    /// Who reported it.
    pub origin: ErrorOrigin,
    /// Type of the ICMP message.
    pub icmp_type: u8,
    /// Code of the ICMP message.
    pub icmp_code: u8,
    /// With EMSGSIZE: the MTU of the path in bytes, IP header included.
    pub info: u32,
}

impl UdpSocket {
    /// Takes the oldest error off the queue; `None` when there is none.
    pub fn take_error(&self) -> io::Result<Option<QueuedError>> {
        let (mut to, mut control, mut payload) = (SocketAddress::empty(), Control::empty(), [0u8; 8]);
        let mut vector = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
        // SAFETY: the structure is plain data; zeros are a valid value of it.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = to.as_mut_ptr().cast();
        message.msg_namelen = SocketAddress::CAPACITY as _;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = Control::CAPACITY as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `message` points to places on this frame, each with its length.
        match check_size(unsafe { libc::recvmsg(self.raw(), &raw mut message, flags) }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let found = control.messages(message.msg_controllen as _).find_map(|(level, kind, value)| {
            let wanted = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
            wanted.contains(&(level, kind)).then(|| parse(value)).flatten()
        });
        found
            .map(|error| Some(QueuedError { to: to.get(), ..error }))
            .ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// Reads `sock_extended_err` and the offender's address behind it.
fn parse(value: &[u8]) -> Option<QueuedError> {
    let (head, offender) = value.split_first_chunk::<16>()?;
    let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some(QueuedError {
        to: None,
        offender: decode(offender).map(|address| address.ip()),
        errno: number(0) as i32,
        origin: match head[4] {
            libc::SO_EE_ORIGIN_LOCAL => ErrorOrigin::Local,
            libc::SO_EE_ORIGIN_ICMP => ErrorOrigin::Icmp,
            libc::SO_EE_ORIGIN_ICMP6 => ErrorOrigin::Icmp6,
            _ => ErrorOrigin::Other,
        },
        icmp_type: head[5],
        icmp_code: head[6],
        info: number(8),
    })
}
