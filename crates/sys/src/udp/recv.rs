//! Receiving: many datagrams or groups per call, into buffers of the caller.

use std::io;
use std::net::SocketAddr;

use super::UdpSocket;
use super::address::SocketAddress;
use super::control::Control;
use crate::call::{check, check_size};

/// What came in one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The sender.
    pub from: SocketAddr,
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Length of each datagram but the last if it is a group, else `None`.
    pub stride: Option<usize>,
    /// The ECN code point (3: congestion experienced).
    pub ecn: u8,
    /// The DSCP (0 to 63).
    pub dscp: u8,
    /// Whether the buffer was too small, so that bytes are missing.
    pub truncated: bool,
}

/// The books of a receive call: addresses and control messages of as many datagrams as one call may give.
pub struct RecvQueue {
    addresses: Box<[SocketAddress]>,
    controls: Box<[Control]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    received: usize,
}

// SAFETY: the pointers in `headers` and `vectors` lead to the other boxes of the same queue, which move with it, or
// to buffers that are used during a call only.
unsafe impl Send for RecvQueue {}

impl RecvQueue {
    /// Room for `datagrams_max` (at least 1) per call.
    pub fn new(datagrams_max: usize) -> RecvQueue {
        let count = datagrams_max.max(1);
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: the structure is plain data; zeros are a valid value of it.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        RecvQueue {
            addresses: vec![SocketAddress::empty(); count].into(),
            controls: vec![Control::empty(); count].into(),
            vectors: vec![empty; count].into(),
            headers: vec![header; count].into(),
            received: 0,
        }
    }

    /// What the last call received in its buffer `index`; `None` beyond, or if the sender is not of the internet.
    pub fn get(&self, index: usize) -> Option<Received> {
        let header = self.headers[..self.received].get(index)?;
        let mut out = Received {
            from: self.addresses[index].get()?,
            bytes: header.msg_len as usize,
            stride: None,
            ecn: 0,
            dscp: 0,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        // The C library's type of this length differs between systems.
        let control_bytes = header.msg_hdr.msg_controllen as _;
        for (level, kind, value) in self.controls[index].messages(control_bytes) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let stride = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                    out.stride = stride.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    // One byte for IPv4; a whole number in the machine's order for IPv6.
                    let class = value.first_chunk().map_or_else(
                        || value.first().copied().unwrap_or(0),
                        |bytes| i32::from_ne_bytes(*bytes) as u8,
                    );
                    (out.dscp, out.ecn) = (class >> 2, class & 3);
                }
                _ => {}
            }
        }
        Some(out)
    }

    /// Points the first headers to `buffers`; how many there are.
    fn prepare<'a>(&mut self, buffers: impl Iterator<Item = &'a mut [u8]>) -> usize {
        let mut count = 0;
        for (index, buffer) in buffers.take(self.headers.len()).enumerate() {
            self.vectors[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = self.addresses[index].as_mut_ptr().cast();
            header.msg_namelen = SocketAddress::CAPACITY as _;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].bytes.as_mut_ptr().cast();
            header.msg_controllen = Control::CAPACITY as _;
            header.msg_flags = 0;
            count = index + 1;
        }
        count
    }
}

impl UdpSocket {
    /// Fills `buffers` in order with what has arrived, one datagram or group each; how many were filled.
    /// [`RecvQueue::get`] tells about each. An empty look that offers one buffer is cheaper than one that offers many.
    /// Never waits: WouldBlock when nothing is there.
    ///
    /// # Errors
    /// Those of `recvmmsg`, among them asynchronous errors pending on the socket: read the error queue and try
    /// again.
    pub fn recv_many<'a>(
        &self,
        queue: &mut RecvQueue,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        queue.received = 0;
        let count = queue.prepare(buffers);
        if count == 0 {
            return Ok(0);
        }
        if count == 1 {
            return self.recv_one(queue);
        }
        let (fd, headers, none) = (self.raw(), queue.headers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the first `count` headers point to buffers that are exclusively borrowed until this function
        // returns, and to the queue's own books.
        let result = unsafe { libc::recvmmsg(fd, headers, count as _, libc::MSG_DONTWAIT, none) };
        queue.received = check(result)? as usize;
        Ok(queue.received)
    }

    fn recv_one(&self, queue: &mut RecvQueue) -> io::Result<usize> {
        let (fd, header) = (self.raw(), &mut queue.headers[0]);
        let message = &raw mut header.msg_hdr;
        // SAFETY: the header points to a buffer that the caller has borrowed exclusively, and to the queue's own books.
        let bytes = check_size(unsafe { libc::recvmsg(fd, message, libc::MSG_DONTWAIT) })?;
        header.msg_len = bytes as u32;
        queue.received = 1;
        Ok(1)
    }
}
