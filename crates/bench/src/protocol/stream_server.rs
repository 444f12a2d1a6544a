//! One process that serves several clients by a byte stream each: it sleeps until any of them has sent something (epoll).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFlags, Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::transaction::Prepare;
use super::{Server, Setup, stream_socket};
use crate::clock::now_ns;
use crate::wait::{Waiter, sleep_until_ready};

/// Most that is read of one client before the next one has its turn.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Clients that one call tells of.
const READY_MAX: usize = 64;
/// How long a client may take no answer before it has failed.
const STUCK_AFTER_NS: u64 = 6_000_000_000;

/// What clients connect to.
pub(super) struct StreamServer {
    listening: Socket,
    address: String,
    /// What is set on each client's socket.
    prepare: Box<dyn Prepare>,
    clients: Vec<Client>,
    clients_max: usize,
    poller: OwnedFd,
    waiter: Waiter,
    size: usize,
}

struct Client {
    socket: Socket,
    /// Bytes that arrived and are not yet handed out, from the front.
    buffer: Vec<u8>,
    filled: usize,
}

impl StreamServer {
    /// Begins to listen on a socket that is bound.
    pub(super) fn open(
        listening: Socket,
        address: String,
        setup: &Setup,
        clients: u32,
        prepare: Box<dyn Prepare>,
    ) -> io::Result<Self> {
        listening.listen(i32::try_from(clients).unwrap_or(i32::MAX))?;
        Ok(Self {
            listening,
            address,
            prepare,
            clients: Vec::new(),
            clients_max: clients as usize,
            poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            waiter: Waiter::new(setup.wait),
            size: setup.size,
        })
    }

    /// The clients that have sent something; waits for one turn at most.
    fn ready(&self) -> io::Result<Vec<usize>> {
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        let found = self.waiter.turn(|may_sleep| {
            let limit = if may_sleep { Waiter::BLOCK_MAX } else { Duration::ZERO };
            let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
            let (ready, _) = epoll::wait(&self.poller, &mut events, Some(&limit))?;
            let ready: Vec<usize> = ready.iter().map(|event| event.data.u64() as usize).collect();
            if ready.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(ready) }
        })?;
        Ok(found.unwrap_or_default())
    }
}

impl Server for StreamServer {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self, timeout: Duration) -> io::Result<()> {
        while self.clients.len() < self.clients_max {
            let socket = stream_socket::accept(&self.listening, timeout, |_| true)?;
            (self.prepare)(&socket)?;
            let number = epoll::EventData::new_u64(self.clients.len() as u64);
            epoll::add(&self.poller, &socket, number, epoll::EventFlags::IN)?;
            let buffer = vec![0; READ_BYTES_MAX.max(self.size)];
            self.clients.push(Client { socket, buffer, filled: 0 });
        }
        Ok(())
    }

    fn serve(&mut self, sink: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<usize> {
        let mut count = 0;
        for number in self.ready()? {
            count += self.clients[number].serve(self.size, sink)?;
        }
        Ok(count)
    }
}

impl Client {
    fn serve(&mut self, size: usize, sink: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<usize> {
        match rustix::net::recv(&self.socket, &mut self.buffer[self.filled..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a client has ended")),
            Ok((bytes, _)) => self.filled += bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let whole = self.filled / size;
        for message in self.buffer[..whole * size].chunks_exact(size) {
            if sink(message) {
                send_whole(&self.socket, message)?;
            }
        }
        self.buffer.copy_within(whole * size..self.filled, 0);
        self.filled -= whole * size;
        Ok(whole)
    }
}

/// Sends all of it. A client that waits for its answer has room for it, but for one longer than its socket's buffers.
fn send_whole(socket: &Socket, message: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    let mut stuck_ns = None;
    while sent < message.len() {
        match rustix::net::send(socket, &message[sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(bytes) => {
                sent += bytes;
                stuck_ns = None;
            }
            Err(rustix::io::Errno::AGAIN) => {
                let now = now_ns();
                if now - *stuck_ns.get_or_insert(now) > STUCK_AFTER_NS {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "a client takes no answer"));
                }
                sleep_until_ready(socket, PollFlags::OUT)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
