//! What every protocol with a packet socket shares: one message per call.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::{Pipe, Setup};
use crate::wait::Waiter;

/// A packet no message can be taken for: it is shorter than a number.
pub(super) const HELLO: &[u8] = b"hello";

/// Receives from a connected packet socket. No bytes: the other side has ended it.
///
/// That is asked twice: a Unix socket whose other side sends and closes between the kernel's look at the queue and its look
/// at the end is told to have ended (unix_dgram_recvmsg), although a packet is there.
pub(super) fn recv(socket: impl AsFd, room: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let mut ask = || rustix::net::recv(socket.as_fd(), &mut *room, flags);
    Ok(match ask()?.0 {
        0 => ask()?.0,
        length => length,
    })
}

/// Sends a message whole, for one turn; whether it was taken.
pub(super) fn send(socket: &Socket, waiter: Waiter, message: &[u8]) -> io::Result<bool> {
    send_by(socket, waiter, |socket, flags| rustix::net::send(socket, message, flags))
}

fn send_by(
    socket: &Socket,
    waiter: Waiter,
    mut call: impl FnMut(&Socket, SendFlags) -> rustix::io::Result<usize>,
) -> io::Result<bool> {
    let sent = waiter.turn(|may_sleep| {
        let flags = if may_sleep { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        Ok(call(socket, flags)?)
    })?;
    Ok(sent.is_some())
}

/// One end of a connected pair of packet sockets.
pub(super) struct PacketPipe {
    socket: Socket,
    waiter: Waiter,
    buffer: Vec<u8>,
    /// Whether a packet of no bytes says that the other side has ended it.
    ends: bool,
}

impl PacketPipe {
    /// Takes a connected socket.
    pub(super) fn new(socket: Socket, setup: &Setup, ends: bool) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        // One byte more than a message, so that an overlong packet is seen as damaged.
        let buffer = vec![0; setup.size.max(HELLO.len()) + 1];
        Ok(Self { socket, waiter: Waiter::new(setup.wait), buffer, ends })
    }

    /// Sends by `call`, for one turn; whether the message was taken.
    pub(super) fn send_by(
        &mut self,
        call: impl FnMut(&Socket, SendFlags) -> rustix::io::Result<usize>,
    ) -> io::Result<bool> {
        send_by(&self.socket, self.waiter, call)
    }

    /// Receives by `call`, for one turn, and hands on what came; `call` says `None` for a packet that counts for nothing.
    pub(super) fn recv_by(
        &mut self,
        sink: &mut dyn FnMut(&[u8]),
        mut call: impl FnMut(&Socket, &mut [u8], RecvFlags) -> io::Result<Option<usize>>,
    ) -> io::Result<usize> {
        let (socket, buffer) = (&self.socket, &mut self.buffer);
        let received = self.waiter.turn(|may_sleep| {
            let flags = if may_sleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            call(socket, buffer, flags)
        })?;
        match received.flatten() {
            Some(0) if self.ends => Err(io::ErrorKind::UnexpectedEof.into()),
            // A repeated greeting that was answered already.
            Some(length) if &self.buffer[..length] == HELLO => Ok(0),
            Some(length) => {
                sink(&self.buffer[..length]);
                Ok(1)
            }
            None => Ok(0),
        }
    }
}

impl Pipe for PacketPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        send(&self.socket, self.waiter, message)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let ends = self.ends;
        self.recv_by(sink, |socket, room, flags| {
            if ends {
                return recv(socket, room, flags).map(Some);
            }
            Ok(Some(rustix::net::recv(socket, room, flags)?.0))
        })
    }
}
