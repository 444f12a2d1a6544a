//! Transactions over sockets that connect: a connection, one message each way, and its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Answerer, Caller, Setup, packet_socket};
use crate::clock::now_ns;
use crate::control::Far;
use crate::wait::{WaitMode, Waiter, is_ready, sleep_until_ready};

/// Step after which a transaction has failed: SCTP asks a second time after 3 s.
const FAILED_AFTER_NS: u64 = 4_500_000_000;
/// Callers that may wait for the answerer, which serves one at a time.
const BACKLOG: i32 = 64;

/// What a socket is, and what is set on it before it connects or listens.
pub(super) struct Kind {
    pub(super) domain: Domain,
    pub(super) kind: Type,
    pub(super) protocol: Option<Protocol>,
    /// Sets the options, also those that an accepted socket inherits.
    pub(super) prepare: Box<dyn Prepare>,
    pub(super) habits: Habits,
}

/// Where a protocol's connections want to be treated otherwise than most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// Whether nothing may be sent or received before the connection is there: an error instead of "not yet".
    pub(super) connects_first: bool,
    /// Whether closing alone tells the other side of a reset, so that the end must be said before.
    pub(super) says_its_end: bool,
    /// Whether an accept that sleeps has no time-out, so that the sleep is a call before it.
    pub(super) accepts_untimed: bool,
}

/// Sets options on a socket.
pub(super) trait Prepare: Fn(&Socket) -> io::Result<()> {}

impl<F: Fn(&Socket) -> io::Result<()>> Prepare for F {}

impl Kind {
    fn steps(&self, setup: &Setup) -> Steps {
        Steps { mode: setup.wait, packets: self.kind == Type::SEQPACKET && self.domain == Domain::UNIX }
    }

    fn open(&self, nonblocking: bool) -> io::Result<Socket> {
        let kind = if nonblocking { self.kind.nonblocking() } else { self.kind };
        let socket = Socket::new(self.domain, kind, self.protocol)?;
        (self.prepare)(&socket)?;
        Ok(socket)
    }
}

/// Each step of a transaction, in one mode of waiting.
#[derive(Clone, Copy)]
struct Steps {
    mode: WaitMode,
    /// Whether messages go as packets of a Unix socket, which is asked twice for its end.
    packets: bool,
}

impl Steps {
    /// Whether calls sleep in the kernel by themselves; sockets are non-blocking otherwise.
    fn sleeps_in_calls(self) -> bool {
        self.mode == WaitMode::Block
    }

    /// Tries for one turn; `None`: not yet.
    fn turn<T>(
        self,
        socket: impl AsFd,
        ready: PollFlags,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let sleeps_in_calls = self.sleeps_in_calls();
        Waiter::new(self.mode).turn(|may_sleep| match attempt() {
            Err(error) if may_sleep && !sleeps_in_calls && error.kind() == io::ErrorKind::WouldBlock => {
                sleep_until_ready(&socket, ready)?;
                attempt()
            }
            other => other,
        })
    }

    /// Tries until it is done.
    fn until_done<T>(
        self,
        what: &str,
        socket: impl AsFd,
        ready: PollFlags,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut started_ns = None;
        loop {
            if let Some(done) = self.turn(socket.as_fd(), ready, &mut attempt)? {
                return Ok(done);
            }
            let now = now_ns();
            if now - *started_ns.get_or_insert(now) > FAILED_AFTER_NS {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: timed out")));
            }
        }
    }

    /// Waits until a connection that goes on by itself is there, or has failed.
    fn until_connected(self, socket: &Socket) -> io::Result<()> {
        self.until_done("connecting", socket, PollFlags::OUT, || {
            if !is_ready(socket, PollFlags::OUT)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            socket.take_error()?.map_or(Ok(()), Err)
        })
    }

    fn send_all(self, socket: impl AsFd, message: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < message.len() {
            sent += self.until_done("sending", socket.as_fd(), PollFlags::OUT, || {
                Ok(rustix::net::send(socket.as_fd(), &message[sent..], SendFlags::NOSIGNAL)?)
            })?;
        }
        Ok(())
    }

    /// Fills `room`; an end before that is an error.
    fn recv_all(self, socket: impl AsFd, room: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < room.len() {
            match self.recv("receiving", socket.as_fd(), &mut room[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    fn recv(self, what: &str, socket: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
        self.until_done(what, socket.as_fd(), PollFlags::IN, || {
            if self.packets {
                return packet_socket::recv(socket.as_fd(), room, RecvFlags::empty());
            }
            Ok(rustix::net::recv(socket.as_fd(), &mut *room, RecvFlags::empty())?.0)
        })
    }
}

/// The side that connects.
pub(super) struct Calls {
    kind: Kind,
    to: SockAddr,
    steps: Steps,
}

impl Calls {
    pub(super) fn new(kind: Kind, to: SockAddr, setup: &Setup) -> Self {
        let steps = kind.steps(setup);
        Self { kind, to, steps }
    }
}

impl Caller for Calls {
    fn call(&mut self, message: &[u8], answer: &mut [u8]) -> io::Result<()> {
        let steps = self.steps;
        let socket = self.kind.open(!steps.sleeps_in_calls())?;
        let connected =
            steps.until_done("connecting", &socket, PollFlags::OUT, || match socket.connect(&self.to) {
                // It goes on by itself; sending waits for it in most protocols.
                Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(false),
                other => other.map(|()| true),
            })?;
        if !connected && self.kind.habits.connects_first {
            steps.until_connected(&socket)?;
        }
        steps.send_all(&socket, message)?;
        steps.recv_all(&socket, answer)?;
        match steps.recv("waiting for the end", &socket, &mut [0])? {
            0 => Ok(()),
            _ => Err(io::Error::other("more came than one answer")),
        }
    }
}

/// The side that listens.
pub(super) struct Answers {
    listening: Socket,
    address: String,
    steps: Steps,
    habits: Habits,
    message: Vec<u8>,
    /// Who may call; none: anybody.
    far: Option<Far>,
}

impl Answers {
    /// Listens at `at`; `address` says where that is, in the caller's notation.
    pub(super) fn new(
        kind: &Kind,
        at: &SockAddr,
        address: impl FnOnce(&Socket) -> io::Result<String>,
        setup: &Setup,
    ) -> io::Result<Self> {
        let steps = kind.steps(setup);
        let sleeps_in_accept = steps.sleeps_in_calls() && !kind.habits.accepts_untimed;
        let listening = kind.open(!sleeps_in_accept)?;
        if sleeps_in_accept {
            // Accepted sockets inherit it, as a pipe's have it.
            listening.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        }
        listening.bind(at)?;
        listening.listen(BACKLOG)?;
        let address = address(&listening)?;
        let (habits, far) = (kind.habits, setup.far.clone());
        Ok(Self { listening, address, steps, habits, message: vec![0; setup.size], far })
    }
}

impl Answerer for Answers {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn answer(&mut self) -> io::Result<bool> {
        let (steps, listening) = (self.steps, &self.listening);
        let sleeps_before = steps.sleeps_in_calls() && self.habits.accepts_untimed;
        if sleeps_before && !sleep_until_ready(listening, PollFlags::IN)? {
            return Ok(false);
        }
        let nonblocking = if steps.sleeps_in_calls() { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
        let accept = || Ok(rustix::net::accept_with(listening, SocketFlags::CLOEXEC | nonblocking)?);
        let Some(socket) = steps.turn(listening, PollFlags::IN, accept)? else { return Ok(false) };
        let socket: OwnedFd = socket;
        if let Some(far) = &self.far
            && !is_expected(far, &socket)
        {
            return Ok(false);
        }
        steps.recv_all(&socket, &mut self.message)?;
        steps.send_all(&socket, &self.message)?;
        if self.habits.says_its_end {
            rustix::net::shutdown(&socket, Shutdown::Both)?;
        }
        Ok(true)
    }
}

/// Whether a caller is the one that is meant. One that has gone again is not.
fn is_expected(far: &Far, socket: &OwnedFd) -> bool {
    let from = rustix::net::getpeername(socket).ok().and_then(|from| SocketAddr::try_from(from?).ok());
    from.is_some_and(|from| far.expects(from.ip()))
}
