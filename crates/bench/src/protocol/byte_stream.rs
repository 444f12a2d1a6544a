//! Messages of fixed size in a stream of bytes, whatever carries the stream.

use std::io;

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::{Pipe, Setup};
use crate::args::ReadKind;
use crate::wait::Waiter;

/// One end of a stream in both directions.
pub(super) trait ByteStream: Send {
    /// Hands over what is taken of `bytes`, and says how many. If it `may_sleep`, for [`Waiter::BLOCK_MAX`] at most.
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize>;

    /// Takes what is there, and says how many bytes; 0: the other side has ended it. Sleeps like `send`.
    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize>;

    /// The same, but sleeps until all of the room is filled, if the stream can, for [`Waiter::BLOCK_MAX`] at most.
    fn recv_all(&self, room: &mut [u8]) -> io::Result<usize> {
        self.recv(room, true)
    }
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

    fn recv_all(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, room, RecvFlags::WAITALL)?.0)
    }
}

/// Smallest read that is asked for: small messages are taken many at once.
const READ_BYTES_MIN: usize = 64 * 1024;

/// One end of a connected stream.
pub(super) struct StreamPipe<S> {
    stream: S,
    waiter: Waiter,
    size: usize,
    /// Whether each call waits for a whole message.
    whole: bool,
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
            whole: setup.read == ReadKind::Whole,
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
        let (stream, whole) = (&self.stream, self.whole);
        let end = if whole { self.size } else { self.buffer.len() };
        let room = &mut self.buffer[self.filled..end];
        let recv = |room: &mut [u8], may_sleep| {
            if whole && may_sleep { stream.recv_all(room) } else { stream.recv(room, may_sleep) }
        };
        let received = self.waiter.turn(|may_sleep| match recv(room, may_sleep)? {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use socket2::{Domain, Type};

    use super::*;
    use crate::wait::WaitMode;
    use crate::workload::setup_for_tests;

    /// Gives half of what it is asked for, and keeps how much that was and whether all of it was wanted.
    struct Halves(RefCell<Vec<(usize, bool)>>);

    impl ByteStream for Halves {
        fn send(&self, bytes: &[u8], _: bool) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn recv(&self, room: &mut [u8], _: bool) -> io::Result<usize> {
            self.0.borrow_mut().push((room.len(), false));
            Ok(room.len().div_ceil(2))
        }

        fn recv_all(&self, room: &mut [u8]) -> io::Result<usize> {
            self.0.borrow_mut().push((room.len(), true));
            Ok(room.len().div_ceil(2))
        }
    }

    fn asked(read: ReadKind) -> Vec<(usize, bool)> {
        let setup = Setup { read, wait: WaitMode::Block, ..setup_for_tests(100) };
        let mut pipe = StreamPipe::new(Halves(RefCell::new(Vec::new())), &setup);
        for _ in 0..3 {
            pipe.recv(&mut |_| {}).unwrap();
        }
        pipe.stream.0.take()
    }

    #[test]
    fn a_reader_of_whole_messages_asks_for_the_rest_of_one_and_others_for_what_is_there() {
        assert_eq!(asked(ReadKind::Whole), [(100, true), (50, true), (25, true)]);
        let others = asked(ReadKind::Place);
        assert!(others.iter().all(|(room, all)| *room > 100 && !all), "{others:?}");
    }

    #[test]
    fn a_socket_that_is_asked_for_all_returns_no_earlier() {
        let (receiver, sender) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        sender.send(&[1; 50]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(&[2; 50]).unwrap());
            let mut room = [0; 100];
            assert_eq!(receiver.recv_all(&mut room).unwrap(), 100);
            assert_eq!((room[49], room[50]), (1, 2));
        });
    }
}
