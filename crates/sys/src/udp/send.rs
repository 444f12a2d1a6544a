//! Sending: one datagram or one train per call, gathered from many slices.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use super::UdpSocket;
use super::address::SocketAddress;
use super::control::Control;
use crate::call::{check, check_size};

/// Most slices one call takes (the kernel's UIO_MAXIOV).
pub const SLICES_MAX: usize = 1_024;

/// Most datagrams one `send_segments` takes.
const SEGMENTS_MAX: usize = 64;

impl UdpSocket {
    /// Sends `slices`, one after the other, as one datagram to `to`, or to the other end of a connected socket if
    /// that is `None`; with `segment_bytes` as a train of datagrams of that size, cut by the kernel or the interface; with
    /// `traffic_class` marked so, and not as the socket marks what it sends ([`UdpSocket::set_traffic_class`]).
    /// Never waits. At most [`SLICES_MAX`] slices.
    ///
    /// # Errors
    /// Those of `sendmsg`, and whatever asynchronous error was pending on the socket, in which case nothing was
    /// sent: read the error queue and try again.
    pub fn send_to(
        &self,
        to: Option<SocketAddr>,
        slices: &[IoSlice<'_>],
        segment_bytes: Option<u16>,
        traffic_class: Option<u8>,
    ) -> io::Result<usize> {
        let mut to = to.map(SocketAddress::from);
        let mut control = self.control(segment_bytes, traffic_class);
        let message = header(to.as_mut(), slices, control.as_mut());
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `message` points to the address, the slices and the control bytes, all of which outlive the
        // call and are only read by it. `IoSlice` has the layout of `iovec`.
        check_size(unsafe { libc::sendmsg(self.raw(), &raw const message, flags) })
    }

    /// Sends each of `segments` (at most 64) as one datagram to `to` (`None`: the other end of a connected socket), all
    /// by one call, without any offload, with `traffic_class` marked so; how many were taken.
    ///
    /// # Errors
    /// As for `send_to`, when not even the first was taken.
    pub fn send_segments(
        &self,
        to: Option<SocketAddr>,
        segments: &[&[IoSlice<'_>]],
        traffic_class: Option<u8>,
    ) -> io::Result<usize> {
        let mut to = to.map(SocketAddress::from);
        let mut control = self.control(None, traffic_class);
        let mut messages = Vec::with_capacity(segments.len().min(SEGMENTS_MAX));
        for slices in segments.iter().take(SEGMENTS_MAX) {
            let msg_hdr = header(to.as_mut(), slices, control.as_mut());
            messages.push(libc::mmsghdr { msg_hdr, msg_len: 0 });
        }
        let (fd, count) = (self.raw(), messages.len() as libc::c_uint);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the messages point to the address, the slices and the control bytes, which outlive the call and are
        // only read by it. `IoSlice` has the layout of `iovec`.
        let sent = check(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, flags) })?;
        Ok(sent as usize)
    }

    /// What to say beside the bytes, and how long it is; most often nothing, which costs nothing.
    fn control(&self, segment_bytes: Option<u16>, traffic_class: Option<u8>) -> Option<(Control, usize)> {
        if segment_bytes.is_none() && traffic_class.is_none() {
            return None;
        }
        let (mut control, mut length) = (Control::empty(), 0);
        if let Some(bytes) = segment_bytes {
            length = control.put(length, libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
        }
        if let Some(class) = traffic_class {
            let (level, name) = self.traffic_class_option();
            length = control.put(length, level, name, &libc::c_int::from(class).to_ne_bytes());
        }
        Some((control, length))
    }
}

/// A message to `to` with the given payload. The pointers in it are good as long as the arguments live.
fn header(
    to: Option<&mut SocketAddress>,
    slices: &[IoSlice<'_>],
    control: Option<&mut (Control, usize)>,
) -> libc::msghdr {
    // SAFETY: the structure is plain data; zeros are a valid value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = to {
        message.msg_namelen = to.len();
        message.msg_name = to.as_mut_ptr().cast();
    }
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    if let Some((control, length)) = control {
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = *length as _;
    }
    message
}
