//! SCTP: the one option that no library knows.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;

use crate::call::set_option;

/// From linux/sctp.h.
const NODELAY: c_int = 3;

/// Lets each message leave at once instead of waiting for others while something is unacknowledged.
pub fn set_nodelay(socket: impl AsFd) -> io::Result<()> {
    set_option(socket.as_fd(), libc::IPPROTO_SCTP, NODELAY, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_another_protocol_is_refused() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(set_nodelay(&socket).is_err());
    }
}
