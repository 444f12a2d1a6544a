//! UDP with the kernel's offloads: many datagrams of equal size in one send, and in one read.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::packet_socket::HELLO;
use super::{Pipe, Setup};
use crate::wait::Waiter;

/// Payload of a datagram that leaves whole where the MTU is 1500.
pub(super) const SEGMENT_BYTES_MAX: usize = 1_472;
/// Datagrams that one send may be cut into (UDP_MAX_SEGMENTS of older systems).
const SEGMENTS_MAX: usize = 64;
/// Payload of one send or one read.
const TRAIN_BYTES_MAX: usize = 65_507;

/// A socket that cuts what it sends into datagrams of one message each, and gets arriving ones together.
pub(super) fn open(address: SocketAddr, setup: &Setup) -> io::Result<UdpSocket> {
    let socket = polyrail_sys::udp::UdpSocket::new(address.is_ipv6())?;
    let segment = u16::try_from(setup.size).map_err(|_| io::ErrorKind::InvalidInput)?;
    socket.set_segment(segment)?;
    socket.set_gro(true)?;
    socket.bind(address)?;
    let socket = UdpSocket::from(socket.as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Whether the kernel knows both offloads.
pub(super) fn probe() -> Result<(), String> {
    let refused = |error: io::Error| format!("socket refused: {error}");
    let socket = polyrail_sys::udp::UdpSocket::new(false).map_err(refused)?;
    if !socket.knows_gso() {
        return Err("this kernel has no UDP_SEGMENT: Linux 4.18 is the first that has".to_owned());
    }
    socket.set_gro(true).map_err(|error| format!("no UDP_GRO: {error}; Linux 5.0 is the first that has it"))
}

/// One end of a connected pair.
pub(super) struct TrainPipe {
    socket: Socket,
    waiter: Waiter,
    size: usize,
    /// Messages to be sent, and how many bytes of them make a train.
    train: Vec<u8>,
    train_bytes: usize,
    buffer: Vec<u8>,
}

impl TrainPipe {
    /// Takes a connected socket.
    pub(super) fn new(socket: Socket, setup: &Setup) -> io::Result<Self> {
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        // A question waits for no other before it leaves.
        let most = if setup.both_ways { 1 } else { (TRAIN_BYTES_MAX / setup.size).min(SEGMENTS_MAX) };
        Ok(Self {
            socket,
            waiter: Waiter::new(setup.wait),
            size: setup.size,
            train: Vec::with_capacity(most * setup.size),
            train_bytes: most * setup.size,
            buffer: vec![0; TRAIN_BYTES_MAX],
        })
    }
}

impl Pipe for TrainPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.train.len() == self.train_bytes && !self.flush()? {
            return Ok(false);
        }
        self.train.extend_from_slice(message);
        if self.train.len() == self.train_bytes {
            self.flush()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<bool> {
        if self.train.is_empty() {
            return Ok(true);
        }
        let (socket, train) = (&self.socket, &self.train);
        let sent = self.waiter.turn(|may_sleep| {
            let flags = if may_sleep { SendFlags::empty() } else { SendFlags::DONTWAIT };
            Ok(rustix::net::send(socket, train, flags)?)
        })?;
        if sent.is_some() {
            self.train.clear();
        }
        Ok(sent.is_some())
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let (socket, buffer) = (&self.socket, &mut self.buffer);
        let received = self.waiter.turn(|may_sleep| {
            let flags = if may_sleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            Ok(rustix::net::recv(socket, buffer.as_mut_slice(), flags)?.0)
        })?;
        match received {
            None => Ok(0),
            // A repeated greeting that was answered already.
            Some(length) if &self.buffer[..length] == HELLO => Ok(0),
            Some(length) => {
                // Only the last of a group may be shorter: it is damaged then.
                self.buffer[..length].chunks(self.size).for_each(sink);
                Ok(length.div_ceil(self.size))
            }
        }
    }
}
