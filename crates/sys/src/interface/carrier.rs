//! Whether the cable is in, asked for directly: at once and exact, where messages may come 600 ms late.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::call::check;

pub(super) const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GLINK: u32 = 0x0a;

/// Whether interface `device` has a carrier. `socket` is any socket of the name space. Takes a lock of the
/// kernel's network configuration: about 1 us, but up to 20 ms while interfaces come and go.
pub fn carrier(socket: &impl AsFd, device: &str) -> io::Result<bool> {
    // The command, then the kernel's answer.
    let mut value = [ETHTOOL_GLINK, 0];
    let mut request = named(device)?;
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `request` is valid for the call, and the place it points to has room for the two numbers that this
    // command reads and writes.
    check(unsafe { libc::ioctl(fd, SIOCETHTOOL, &raw mut request) })?;
    Ok(value[1] != 0)
}

/// Whether interface `device` is up and the system says that it is in service. What is sent after a carrier came back and
/// before it is in service is dropped without a word. [`carrier`] makes newer systems put it into service;
/// older ones do so by themselves at once, but may be a second late to say so of an interface that was set up again.
pub fn in_service(socket: &impl AsFd, device: &str) -> io::Result<bool> {
    let mut request = named(device)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `request` is valid for the call, which writes the flags into it.
    check(unsafe { libc::ioctl(fd, libc::SIOCGIFFLAGS as libc::Ioctl, &raw mut request) })?;
    // SAFETY: this command has filled in the flags.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    Ok(flags & wanted == wanted)
}

/// A request about `device`.
pub(super) fn named(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the structure is plain data; zeros are a valid value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_carrier_and_nothing_has_none() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(carrier(&socket, "lo").unwrap());
        assert!(in_service(&socket, "lo").unwrap());
        assert_eq!(carrier(&socket, "none-such").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(carrier(&socket, "a-name-that-is-too-long").is_err());
    }
}
