//! Sockets within a machine: streams, sequenced packets, datagrams.
//!
//! Their addresses are abstract names, which leave no file behind.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::byte_stream::StreamPipe;
use super::packet_socket::{HELLO, PacketPipe};
use super::stream_server::StreamServer;
use super::transaction::{self, Answers, Calls, Habits};
use super::{
    Answerer, Caller, Hub, Listener, Pipe, Protocol, Reach, Server, Setup, Transactor, local_name,
    stream_socket,
};
use crate::wait::Waiter;
use crate::workload::Workload;

/// Unix sockets of one type.
pub(super) struct Unix {
    name: &'static str,
    about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    SeqPacket,
    Datagram,
}

/// Connected byte streams.
pub(super) static STREAM: Unix =
    Unix { name: "unix-stream", about: "Unix socket, a byte stream", kind: Kind::Stream };
/// Connected packets.
pub(super) static SEQPACKET: Unix = Unix {
    name: "unix-seqpacket",
    about: "Unix socket, connected, one packet per call",
    kind: Kind::SeqPacket,
};
/// Packets without a connection.
pub(super) static DATAGRAM: Unix =
    Unix { name: "unix-dgram", about: "Unix socket, one datagram per call", kind: Kind::Datagram };

/// What the kernel keeps of a send buffer that one packet must fit.
const PACKET_OVERHEAD_BYTES: usize = 32;

impl Protocol for Unix {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn supports(&self, _workload: Workload, size: usize) -> Result<(), String> {
        let buffer = send_buffer_bytes().saturating_sub(PACKET_OVERHEAD_BYTES);
        if self.kind != Kind::Stream && size > buffer {
            return Err(format!(
                "a packet holds at most {buffer} bytes, not {size}: `sysctl net.core.wmem_default` sets that"
            ));
        }
        Ok(())
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let name = local_name();
        let socket = match self.kind {
            Kind::Datagram => UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?.into(),
            Kind::Stream | Kind::SeqPacket => {
                let socket = Socket::new(Domain::UNIX, self.kind.of_socket(), None)?;
                socket.bind(&abstract_address(&name)?)?;
                socket.listen(8)?;
                socket
            }
        };
        set_buffers(&socket, setup.socket_buffer_max)?;
        Ok(Box::new(UnixListener { socket, name, kind: self.kind, setup: setup.clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        if self.kind == Kind::Datagram {
            // A name of its own: the receiver answers to it.
            let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(local_name())?)?;
            socket.connect_addr(&SocketAddr::from_abstract_name(address)?)?;
            socket.set_write_timeout(Some(timeout))?;
            socket.send(HELLO)?;
            let socket = Socket::from(socket);
            set_buffers(&socket, setup.socket_buffer_max)?;
            return Ok(Box::new(PacketPipe::new(socket, setup, false)?));
        }
        let socket = Socket::new(Domain::UNIX, self.kind.of_socket(), None)?;
        set_buffers(&socket, setup.socket_buffer_max)?;
        socket.connect(&abstract_address(address)?)?;
        self.kind.pipe(socket, setup)
    }

    fn reads_whole(&self) -> bool {
        self.kind == Kind::Stream
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        (self.kind != Kind::Datagram).then_some(self)
    }

    fn hub(&self) -> Option<&dyn Hub> {
        (self.kind == Kind::Stream).then_some(self)
    }
}

impl Hub for Unix {
    fn server(&self, setup: &Setup, clients: u32) -> io::Result<Box<dyn Server>> {
        let name = local_name();
        let socket = Socket::new(Domain::UNIX, self.kind.of_socket(), None)?;
        set_buffers(&socket, setup.socket_buffer_max)?;
        socket.bind(&abstract_address(&name)?)?;
        let buffer = setup.socket_buffer_max;
        let prepare = Box::new(move |socket: &Socket| set_buffers(socket, buffer));
        Ok(Box::new(StreamServer::open(socket, name, setup, clients, prepare)?))
    }
}

impl Transactor for Unix {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        let name = local_name();
        let kind = self.kind.of_transactions(setup);
        let at = abstract_address(&name)?;
        Ok(Box::new(Answers::new(&kind, &at, |_| Ok(name), setup)?))
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        let kind = self.kind.of_transactions(setup);
        Ok(Box::new(Calls::new(kind, abstract_address(address)?, setup)))
    }
}

impl Kind {
    fn of_transactions(self, setup: &Setup) -> transaction::Kind {
        let buffer = setup.socket_buffer_max;
        let prepare = Box::new(move |socket: &Socket| set_buffers(socket, buffer));
        let (kind, habits) = (self.of_socket(), Habits::default());
        transaction::Kind { domain: Domain::UNIX, kind, protocol: None, prepare, habits }
    }

    fn of_socket(self) -> Type {
        match self {
            Self::Stream => Type::STREAM,
            Self::SeqPacket => Type::SEQPACKET,
            Self::Datagram => Type::DGRAM,
        }
    }

    fn pipe(self, socket: Socket, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
        if self != Self::Stream {
            return Ok(Box::new(PacketPipe::new(socket, setup, self == Self::SeqPacket)?));
        }
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        Ok(Box::new(StreamPipe::new(socket, setup)))
    }
}

fn abstract_address(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}

fn set_buffers(socket: &Socket, buffer_bytes: Option<usize>) -> io::Result<()> {
    if let Some(bytes) = buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// A socket's send buffer where nothing sets it, in bytes.
fn send_buffer_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/wmem_default");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(212_992)
}

struct UnixListener {
    socket: Socket,
    name: String,
    kind: Kind,
    setup: Setup,
}

impl Listener for UnixListener {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        if self.kind != Kind::Datagram {
            return self.kind.pipe(stream_socket::accept(&self.socket, timeout, |_| true)?, &self.setup);
        }
        SockRef::from(&self.socket).set_read_timeout(Some(timeout))?;
        let socket = UnixDatagram::from(std::os::fd::OwnedFd::from(self.socket));
        let mut hello = [0; 16];
        loop {
            let (length, peer) = socket.recv_from(&mut hello)?;
            if &hello[..length] == HELLO {
                socket.connect_addr(&peer)?;
                return Ok(Box::new(PacketPipe::new(socket.into(), &self.setup, false)?));
            }
        }
    }
}
