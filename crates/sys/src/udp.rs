//! UDP sockets with everything that makes them fast and honest: trains in one call, groups in one read, errors
//! as values, the kernel's own idea of its buffers.

mod address;
mod control;
mod error_queue;
mod lend;
mod option;
mod recv;
mod send;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::call::{check, own};
use address::SocketAddress;

pub use error_queue::{ErrorOrigin, QueuedError};
pub use lend::PageLender;
pub use recv::{Received, RecvQueue};
pub use send::SLICES_MAX;

/// What a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// Something has arrived.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// An asynchronous error is pending, or the error queue is not empty.
    pub error: bool,
}

/// A non-blocking IPv4 or IPv6 datagram socket. An IPv6 socket carries IPv6 only.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    v6: bool,
}

impl UdpSocket {
    /// A new socket, not yet bound.
    pub fn new(v6: bool) -> io::Result<UdpSocket> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes no pointers.
        let fd = own(unsafe { libc::socket(family, kind, libc::IPPROTO_UDP) })?;
        let socket = UdpSocket { fd, v6 };
        if v6 {
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        Ok(socket)
    }

    /// Whether it is an IPv6 socket.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Gives the socket its address; port 0 lets the kernel choose.
    pub fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let address = SocketAddress::from(local);
        // SAFETY: the pointer and the length describe `address`.
        check(unsafe { libc::bind(self.raw(), address.as_ptr(), address.len()) })?;
        Ok(())
    }

    /// Fixes the other end; the kernel looks for a way there and fails if it has none.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        let address = SocketAddress::from(remote);
        // SAFETY: the pointer and the length describe `address`.
        check(unsafe { libc::connect(self.raw(), address.as_ptr(), address.len()) })?;
        Ok(())
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let mut address = SocketAddress::empty();
        let mut length = SocketAddress::CAPACITY as u32;
        // SAFETY: the pointer and the length describe `address`.
        check(unsafe { libc::getsockname(self.raw(), address.as_mut_ptr(), &raw mut length) })?;
        address.get().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Bytes waiting in the kernel's queue to be sent, with its overhead (SIOCOUTQ).
    pub fn queued_bytes(&self) -> io::Result<u32> {
        let mut queued: libc::c_int = 0;
        // SAFETY: `queued` is a valid place for the answer of this request.
        check(unsafe { libc::ioctl(self.raw(), libc::TIOCOUTQ, &raw mut queued) })?;
        Ok(queued.max(0) as u32)
    }

    /// What can be done now, without waiting.
    pub fn readiness(&self) -> io::Result<Readiness> {
        let mut poll = libc::pollfd { fd: self.raw(), events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: `poll` is one valid entry; a timeout of 0 does not wait.
        check(unsafe { libc::poll(&raw mut poll, 1, 0) })?;
        let has = |bit| poll.revents & bit != 0;
        Ok(Readiness { readable: has(libc::POLLIN), writable: has(libc::POLLOUT), error: has(libc::POLLERR) })
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.raw()
    }
}

#[cfg(test)]
mod tests;
