//! The kernel's SCTP, one-to-one: a connection of one stream that keeps the boundaries of messages.
//!
//! Each end names one address of its own, or the kernel would offer all of them and use several links.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use polyrail_sys::sctp::set_nodelay;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};
use socket2::{Domain, SockAddr, Socket, Type};

use super::transaction::{Answers, Calls, Habits, Kind};
use super::{Answerer, Caller, Listener, Pipe, Protocol, Setup, Transactor, packet_socket, stream_socket};
use crate::wait::Waiter;
use crate::workload::Workload;

/// SCTP over the first link.
pub(super) struct Sctp;

impl Protocol for Sctp {
    fn name(&self) -> &'static str {
        "sctp"
    }

    fn about(&self) -> &'static str {
        "The kernel's SCTP, one association over the first link, one ordered stream, messages kept whole"
    }

    fn available(&self) -> Result<(), String> {
        let opened = Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::SCTP));
        match opened.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            Err((Some(code), _)) if code == Errno::PROTONOSUPPORT.raw_os_error() => {
                Err("this kernel has no SCTP: try `modprobe sctp`, or boot one with CONFIG_IP_SCTP"
                    .to_owned())
            }
            Err((_, error)) => Err(format!("socket refused: {error}")),
        }
    }

    fn packet_payload(&self) -> usize {
        1_452
    }

    fn supports(&self, _workload: Workload, size: usize) -> Result<(), String> {
        fits_send_buffer(size, None)
    }

    fn supports_buffers(&self, size: usize, bytes: usize) -> Result<(), String> {
        fits_send_buffer(size, Some(bytes))
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let socket = open(own_address(setup)?, setup)?;
        socket.listen(8)?;
        let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Box::new(SctpListener { socket, address, setup: setup.clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let socket = open(own_address(setup)?, setup)?;
        socket.connect_timeout(&address.into(), timeout)?;
        Ok(Box::new(SctpPipe::new(socket, setup)?))
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        Some(self)
    }
}

impl Transactor for Sctp {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        let at = own_address(setup)?;
        let address = |socket: &Socket| {
            socket.local_addr()?.as_socket().map(|at| at.to_string()).ok_or(io::ErrorKind::InvalidData.into())
        };
        Ok(Box::new(Answers::new(&of_transactions(at.ip(), None, setup), &at.into(), address, setup)?))
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let kind = of_transactions(address.ip(), Some(own_address(setup)?), setup);
        Ok(Box::new(Calls::new(kind, address.into(), setup)))
    }
}

/// The kernel refuses what its send buffer can never hold.
fn fits_send_buffer(size: usize, buffer_bytes: Option<usize>) -> Result<(), String> {
    let buffer = || {
        let probe = Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::SCTP))?;
        set_buffers(&probe, buffer_bytes)?;
        probe.send_buffer_size()
    };
    let buffer = buffer().map_err(|error| format!("socket refused: {error}"))?;
    if size > buffer {
        let setting = if buffer_bytes.is_some() { "wmem_max" } else { "wmem_default" };
        return Err(format!(
            "a message must fit the send buffer of {buffer} bytes, and {size} do not: `sysctl net.core.{setting}` \
             limits that"
        ));
    }
    Ok(())
}

/// A calling socket names its own address, an answering one is bound by whoever opens it.
fn of_transactions(ip: IpAddr, own: Option<SocketAddr>, setup: &Setup) -> Kind {
    let buffer = setup.socket_buffer_max;
    let prepare = move |socket: &Socket| {
        set_nodelay(socket)?;
        set_buffers(socket, buffer)?;
        own.map_or(Ok(()), |own| socket.bind(&own.into()))
    };
    let habits = Habits { connects_first: true, ..Habits::default() };
    let (kind, protocol) = (Type::STREAM, Some(socket2::Protocol::SCTP));
    Kind { domain: domain(ip), kind, protocol, prepare: Box::new(prepare), habits }
}

fn own_address(setup: &Setup) -> io::Result<SocketAddr> {
    let ip = setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(SocketAddr::new(*ip, 0))
}

fn open(at: SocketAddr, setup: &Setup) -> io::Result<Socket> {
    let socket = Socket::new(domain(at.ip()), Type::STREAM, Some(socket2::Protocol::SCTP))?;
    set_buffers(&socket, setup.socket_buffer_max)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

fn domain(ip: IpAddr) -> Domain {
    if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 }
}

fn set_buffers(socket: &Socket, buffer_bytes: Option<usize>) -> io::Result<()> {
    if let Some(bytes) = buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

struct SctpListener {
    socket: Socket,
    address: SocketAddr,
    setup: Setup,
}

impl Listener for SctpListener {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let expects = |from: &SockAddr| from.as_socket().is_none_or(|from| self.setup.expects(from.ip()));
        let socket = stream_socket::accept(&self.socket, timeout, expects)?;
        Ok(Box::new(SctpPipe::new(socket, &self.setup)?))
    }
}

/// One end of an association. A large message may come in several reads; the last of them says so.
struct SctpPipe {
    socket: Socket,
    waiter: Waiter,
    buffer: Vec<u8>,
    filled: usize,
}

impl SctpPipe {
    fn new(socket: Socket, setup: &Setup) -> io::Result<Self> {
        // Where the time of one message counts it must not wait for others; one way, small ones may share a packet.
        if setup.prompt || setup.both_ways {
            set_nodelay(&socket)?;
        }
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        // One byte more than a message, so that an overlong one is seen as damaged.
        Ok(Self { socket, waiter: Waiter::new(setup.wait), buffer: vec![0; setup.size + 1], filled: 0 })
    }
}

impl Pipe for SctpPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        packet_socket::send(&self.socket, self.waiter, message)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let (socket, room) = (&self.socket, &mut self.buffer[self.filled..]);
        let received = self.waiter.turn(|may_sleep| {
            let flags = if may_sleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let (mut rooms, mut nothing) = ([IoSliceMut::new(room)], RecvAncillaryBuffer::default());
            let part = rustix::net::recvmsg(socket, &mut rooms, &mut nothing, flags)?;
            if part.bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(part) }
        })?;
        let Some(part) = received else { return Ok(0) };
        self.filled += part.bytes;
        if !part.flags.contains(ReturnFlags::EOR) && self.filled < self.buffer.len() {
            return Ok(0);
        }
        sink(&self.buffer[..self.filled]);
        self.filled = 0;
        Ok(1)
    }
}
