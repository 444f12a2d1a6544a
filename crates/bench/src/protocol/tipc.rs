//! The kernel's TIPC, by its four socket types, each addressed by service name.
//!
//! Nobody else may bind the name: TIPC would share the messages out between the two without a word.

mod bearer;

use std::io;
use std::str::FromStr;
use std::time::Duration;

use polyrail_sys::tipc::{self, MESSAGE_BYTES_MAX, Scope, service_address};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::{Domain, SockAddr, Socket, Type};

use super::byte_stream::StreamPipe;
use super::packet_socket::{HELLO, PacketPipe};
use super::transaction::{self, Answers, Calls, Habits};
use super::{Answerer, Caller, Listener, Pipe, Protocol, Reach, Setup, Transactor, stream_socket};
use crate::clock::now_ns;
use crate::netns::Testbed;
use crate::wait::Waiter;
use crate::workload::Workload;

/// TIPC sockets of one type.
pub(super) struct Tipc {
    name: &'static str,
    about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    SeqPacket,
    /// Messages without a connection.
    Reliable,
    /// The same; the kernel keeps the difference but does nothing about it.
    Datagram,
}

/// One for each type of socket.
pub(super) static ALL: [&Tipc; 4] = [
    &Tipc { name: "tipc-stream", about: "The kernel's TIPC, connected, a byte stream", kind: Kind::Stream },
    &Tipc {
        name: "tipc-seqpacket",
        about: "The kernel's TIPC, connected, one message per call",
        kind: Kind::SeqPacket,
    },
    &Tipc {
        name: "tipc-rdm",
        about: "The kernel's TIPC, \"reliable\" messages by name: dropped only where the receiver's queue is full",
        kind: Kind::Reliable,
    },
    &Tipc {
        name: "tipc-dgram",
        about: "The kernel's TIPC, datagrams by name, which the kernel treats like tipc-rdm",
        kind: Kind::Datagram,
    },
];

/// The service type that all names have; the instance tells them apart.
const SERVICE: u32 = 0x706F_6C79;
const HELLO_EVERY: Duration = Duration::from_millis(20);
/// How long the first of many transactions looks for the name of the answerer.
const FOUND_WITHIN: Duration = Duration::from_secs(3);

impl Protocol for Tipc {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn reliable(&self) -> bool {
        self.kind.is_connected()
    }

    fn reach(&self) -> Reach {
        Reach::Testbed
    }

    fn fails_over(&self) -> bool {
        true
    }

    fn available(&self) -> Result<(), String> {
        match self.kind.socket().map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            Err((Some(code), _)) if code == Errno::AFNOSUPPORT.raw_os_error() => {
                Err("this kernel has no TIPC: try `modprobe tipc`, or boot one with CONFIG_TIPC".to_owned())
            }
            Err((_, error)) => Err(format!("socket refused: {error}")),
        }
    }

    fn packet_payload(&self) -> usize {
        1_476
    }

    fn supports(&self, workload: Workload, size: usize) -> Result<(), String> {
        if self.kind == Kind::Stream {
            return Ok(());
        }
        if workload == Workload::Failover {
            return Err(format!(
                "a message holds at most {MESSAGE_BYTES_MAX} bytes, too few for the bulk of failover"
            ));
        }
        if size > MESSAGE_BYTES_MAX {
            return Err(format!("a message holds at most {MESSAGE_BYTES_MAX} bytes, not {size}"));
        }
        Ok(())
    }

    /// There is no send buffer, and what a process may ask for as its receive buffer is less than TIPC's flow control counts
    /// on: connections would break.
    fn supports_buffers(&self, _size: usize, _bytes: usize) -> Result<(), String> {
        Err("TIPC's queues are the system's (`sysctl net.tipc.tipc_rmem`): leave out --socket-buffer-max"
            .to_owned())
    }

    fn prepare(&self, testbed: &Testbed, _receivers: &[usize]) -> Result<(), String> {
        bearer::prepare(testbed)
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let (socket, name) = (self.kind.open(setup)?, Name::new()?);
        socket.bind(&name.address(setup))?;
        if self.kind.is_connected() {
            socket.listen(8)?;
        }
        Ok(Box::new(TipcListener { socket, name, kind: self.kind, setup: setup.clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let to = address.parse::<Name>()?.address(setup);
        if !self.kind.is_connected() {
            return greet(self.kind.open(setup)?, &to, setup, timeout);
        }
        let socket = until_found(timeout, || {
            let socket = self.kind.open(setup)?;
            socket.connect_timeout(&to, timeout)?;
            Ok(socket)
        })?;
        self.kind.pipe(socket, setup)
    }

    fn reads_whole(&self) -> bool {
        self.kind == Kind::Stream
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        self.kind.is_connected().then_some(self)
    }
}

impl Transactor for Tipc {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        let name = Name::new()?;
        let (kind, at) = (self.kind.of_transactions(), name.address(setup));
        Ok(Box::new(Answers::new(&kind, &at, |_| Ok(name.to_string()), setup)?))
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        let (kind, to) = (self.kind.of_transactions(), address.parse::<Name>()?.address(setup));
        Ok(Box::new(TipcCaller { calls: Calls::new(kind, to, setup), found: false }))
    }
}

impl Kind {
    fn is_connected(self) -> bool {
        matches!(self, Self::Stream | Self::SeqPacket)
    }

    fn of_socket(self) -> Type {
        match self {
            Self::Stream => Type::STREAM,
            Self::SeqPacket => Type::SEQPACKET,
            Self::Reliable => Type::from(tipc::RELIABLE_DATAGRAM),
            Self::Datagram => Type::DGRAM,
        }
    }

    fn socket(self) -> io::Result<Socket> {
        Socket::new(Domain::from(tipc::FAMILY), self.of_socket(), None)
    }

    fn open(self, setup: &Setup) -> io::Result<Socket> {
        let socket = self.socket()?;
        self.set_options(&socket, setup.prompt || setup.both_ways)?;
        Ok(socket)
    }

    /// `prompt`: the time of one message counts, so a stream must not gather several.
    fn set_options(self, socket: &Socket, prompt: bool) -> io::Result<()> {
        match self {
            Self::Stream if prompt => tipc::set_nodelay(socket),
            // Not every kernel has the same default. Nobody would read what comes back.
            Self::Reliable | Self::Datagram => tipc::set_droppable(socket, true),
            _ => Ok(()),
        }
    }

    fn pipe(self, socket: Socket, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
        if self != Self::Stream {
            // The end of the other side is a reset, for it closes without a word before.
            return Ok(Box::new(PacketPipe::new(socket, setup, false)?));
        }
        self.set_options(&socket, setup.prompt || setup.both_ways)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        Ok(Box::new(StreamPipe::new(socket, setup)))
    }

    fn of_transactions(self) -> transaction::Kind {
        let prepare = Box::new(move |socket: &Socket| self.set_options(socket, true));
        let habits = Habits { connects_first: true, says_its_end: true, ..Habits::default() };
        let (domain, kind) = (Domain::from(tipc::FAMILY), self.of_socket());
        transaction::Kind { domain, kind, protocol: None, prepare, habits }
    }
}

/// An instance of the service, drawn by its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    instance: u32,
}

impl Name {
    fn new() -> io::Result<Self> {
        let mut bytes = [0; 4];
        polyrail_sys::process::random_bytes(&mut bytes)?;
        Ok(Self { instance: u32::from_ne_bytes(bytes) })
    }

    /// Known to the cluster where there are links, else to this node.
    fn address(self, setup: &Setup) -> SockAddr {
        let scope = if setup.devices.is_empty() { Scope::Node } else { Scope::Cluster };
        service_address(SERVICE, self.instance, scope)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SERVICE}:{}", self.instance)
    }
}

impl FromStr for Name {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let instance = text.strip_prefix(&format!("{SERVICE}:")).and_then(|rest| rest.parse().ok());
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("`{text}` is no name of a service"));
        Ok(Self { instance: instance.ok_or_else(wrong)? })
    }
}

/// Tries until the name is known here: a node hears of it some time after it was bound.
fn until_found<T>(timeout: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start_ns = now_ns();
    loop {
        match attempt() {
            Err(error)
                if error.kind() == io::ErrorKind::HostUnreachable
                    && u128::from(now_ns() - start_ns) < timeout.as_nanos() =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Greets the receiver until it answers: nothing connects, and the first greetings may find nobody.
fn greet(socket: Socket, to: &SockAddr, setup: &Setup, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
    socket.connect(to)?;
    socket.set_read_timeout(Some(HELLO_EVERY))?;
    let start_ns = now_ns();
    while u128::from(now_ns() - start_ns) < timeout.as_nanos() {
        match socket.send(HELLO) {
            Err(error) if error.kind() == io::ErrorKind::HostUnreachable => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            sent => sent?,
        };
        let mut answer = [0; 16];
        let received = rustix::net::recv(&socket, &mut answer, RecvFlags::empty());
        if received.is_ok_and(|(length, _)| &answer[..length] == HELLO) {
            return Ok(Box::new(PacketPipe::new(socket, setup, false)?));
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

struct TipcListener {
    socket: Socket,
    name: Name,
    kind: Kind,
    setup: Setup,
}

impl Listener for TipcListener {
    fn address(&self) -> String {
        self.name.to_string()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        if self.kind.is_connected() {
            return self.kind.pipe(stream_socket::accept(&self.socket, timeout, |_| true)?, &self.setup);
        }
        self.socket.set_read_timeout(Some(timeout))?;
        let mut hello = [0; 16];
        loop {
            let (length, _, peer) = rustix::net::recvfrom(&self.socket, &mut hello, RecvFlags::empty())?;
            if let Some(peer) = peer.filter(|_| &hello[..length] == HELLO) {
                // From here on what is sent goes to the socket that greeted.
                rustix::net::connect(&self.socket, &peer)?;
                self.socket.send(HELLO)?;
                return Ok(Box::new(PacketPipe::new(self.socket, &self.setup, false)?));
            }
        }
    }
}

/// Calls by name, which may not be known yet when the first call is made.
struct TipcCaller {
    calls: Calls,
    found: bool,
}

impl Caller for TipcCaller {
    fn call(&mut self, message: &[u8], answer: &mut [u8]) -> io::Result<()> {
        if self.found {
            return self.calls.call(message, answer);
        }
        until_found(FOUND_WITHIN, || self.calls.call(message, answer))?;
        self.found = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_from_its_text_and_nothing_else_does() {
        let name = Name::new().unwrap();
        assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        for wrong in ["", "7", "1000:7", &format!("{SERVICE}:"), &format!("{SERVICE}:4294967296")] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_streams_carry_messages_above_the_kernels_limit() {
        for protocol in ALL {
            protocol.supports(Workload::Stream, 66_000).unwrap();
            let larger = protocol.supports(Workload::Stream, 66_001);
            assert_eq!(larger.is_ok(), protocol.kind == Kind::Stream, "{}", protocol.name);
            let failover = protocol.supports(Workload::Failover, 4_096);
            assert_eq!(
                failover.is_ok(),
                protocol.kind == Kind::Stream,
                "its bulk is large: {}",
                protocol.name
            );
        }
    }

    #[test]
    fn a_name_that_appears_late_is_found_and_one_that_never_does_is_given_up() {
        let unknown = || io::Error::from(io::ErrorKind::HostUnreachable);
        let mut attempts = 0;
        let found = until_found(Duration::from_secs(60), || {
            attempts += 1;
            if attempts == 3 { Ok(()) } else { Err(unknown()) }
        });
        assert!(found.is_ok() && attempts == 3);
        assert!(until_found(Duration::ZERO, || Err::<(), _>(unknown())).is_err());
        let refused =
            until_found(Duration::from_secs(60), || Err::<(), _>(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
