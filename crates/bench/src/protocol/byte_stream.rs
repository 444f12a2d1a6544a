//! Messages of fixed size in a stream of bytes, whatever carries the stream.

use std::io;

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::{Pipe, Setup};
use crate::wait::Waiter;

/// One end of a stream in both directions.
pub(super) trait ByteStream: Send {
    /// Hands over what is taken of `bytes`, and says how many. If it `may_sleep`, for [`Waiter::BLOCK_MAX`] at most.
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize>;

    /// Takes what is there, and says how many bytes; 0: the other side has ended it. Sleeps like `send`.
    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize>;
}

/// Its timeouts must have been set to [`Waiter::BLOCK_MAX`].
impl ByteStream for Socket {
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize> {
        let flags = if may_sleep { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        Ok(rustix::net::send(self, bytes, flags)?)
    }

    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize> {
        let flags = if may_sleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        Ok(rustix::net::recv(self, room, flags)?.0)
    }
}

/// Smallest read that is asked for: small messages are taken many at once.
const READ_BYTES_MIN: usize = 64 * 1024;

/// One end of a connected stream.
pub(super) struct StreamPipe<S> {
    stream: S,
    waiter: Waiter,
    size: usize,
    /// Bytes of the message under way that the kernel has taken.
    sent: usize,
    /// Bytes that arrived and are not yet handed out, from the front.
    buffer: Vec<u8>,
    filled: usize,
}

impl<S: ByteStream> StreamPipe<S> {
    pub(super) fn new(stream: S, setup: &Setup) -> Self {
        // A large message is read into its own place, with nothing of the next; small ones share a read.
        let capacity = if setup.size >= READ_BYTES_MIN { setup.size } else { READ_BYTES_MIN + setup.size };
        Self {
            stream,
            waiter: Waiter::new(setup.wait),
            size: setup.size,
            sent: 0,
            buffer: vec![0; capacity],
            filled: 0,
        }
    }
}

impl<S: ByteStream> Pipe for StreamPipe<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let (stream, rest) = (&self.stream, &message[self.sent..]);
        self.sent += self.waiter.turn(|may_sleep| stream.send(rest, may_sleep))?.unwrap_or(0);
        let whole = self.sent == message.len();
        if whole {
            self.sent = 0;
        }
        Ok(whole)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let (stream, room) = (&self.stream, &mut self.buffer[self.filled..]);
        let received = self.waiter.turn(|may_sleep| match stream.recv(room, may_sleep)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => Ok(bytes),
        })?;
        self.filled += received.unwrap_or(0);
        let whole = self.filled / self.size;
        self.buffer[..whole * self.size].chunks_exact(self.size).for_each(sink);
        self.buffer.copy_within(whole * self.size..self.filled, 0);
        self.filled -= whole * self.size;
        Ok(whole)
    }
}
