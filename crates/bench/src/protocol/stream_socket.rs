//! What every protocol with a byte-stream socket shares: options, connecting, and messages of fixed size in a stream.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Socket, Type};

use super::{Listener, Pipe, Setup};
use crate::clock::now_ns;
use crate::wait::Waiter;

/// What is set on a socket before it connects or listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Protocol number for socket(2).
    pub(super) protocol: socket2::Protocol,
    /// Congestion control by name; none: the system's default.
    pub(super) congestion: Option<&'static str>,
    /// Whether small segments leave at once.
    pub(super) nodelay: bool,
    /// Whether to listen on every address: a subflow that arrives on another link needs it.
    pub(super) every_address: bool,
}

/// Opens a listening socket on the first of the setup's addresses.
pub(super) fn listen(options: Options, setup: &Setup) -> io::Result<Box<dyn Listener>> {
    let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = open(options, ip, setup)?;
    let unspecified = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let bound = if options.every_address { unspecified } else { ip };
    socket.bind(&SocketAddr::new(bound, 0).into())?;
    socket.listen(8)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    Ok(Box::new(StreamListener { socket, address: SocketAddr::new(ip, port), options, setup: setup.clone() }))
}

/// Connects to a listening socket.
pub(super) fn connect(
    options: Options,
    setup: &Setup,
    address: &str,
    timeout: Duration,
) -> io::Result<Box<dyn Pipe>> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let socket = open(options, address.ip(), setup)?;
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(Box::new(StreamPipe::new(socket, options, setup)?))
}

/// Whether a socket with these options can be opened at all.
pub(super) fn probe(options: Options) -> Result<(), String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(options.protocol))
        .map_err(|error| format!("socket refused: {error}"))?;
    set_congestion(&socket, options).map_err(|error| error.to_string())
}

fn open(options: Options, ip: IpAddr, setup: &Setup) -> io::Result<Socket> {
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(options.protocol))?;
    set_congestion(&socket, options)?;
    if let Some(bytes) = setup.socket_buffer_max {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

fn set_congestion(socket: &Socket, options: Options) -> io::Result<()> {
    let Some(name) = options.congestion else { return Ok(()) };
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let reason = match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOENT.raw_os_error() => {
                format!("not in this kernel; try `modprobe tcp_{name}`")
            }
            Some(code) if code == rustix::io::Errno::PERM.raw_os_error() => {
                "not in net.ipv4.tcp_allowed_congestion_control, and no CAP_NET_ADMIN".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("congestion control {name}: {reason}"))
    })
}

struct StreamListener {
    socket: Socket,
    address: SocketAddr,
    options: Options,
    setup: Setup,
}

impl Listener for StreamListener {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        self.socket.set_nonblocking(true)?;
        let start_ns = now_ns();
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false)?;
                    return Ok(Box::new(StreamPipe::new(socket, self.options, &self.setup)?));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if u128::from(now_ns() - start_ns) > timeout.as_nanos() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Smallest read that is asked for: small messages are taken many at once.
const READ_BYTES_MIN: usize = 64 * 1024;

/// One end of a connected stream.
struct StreamPipe {
    socket: Socket,
    waiter: Waiter,
    size: usize,
    /// Bytes of the message under way that the kernel has taken.
    sent: usize,
    /// Bytes that arrived and are not yet handed out, from the front.
    buffer: Vec<u8>,
    filled: usize,
}

impl StreamPipe {
    fn new(socket: Socket, options: Options, setup: &Setup) -> io::Result<Self> {
        if options.nodelay || setup.prompt {
            socket.set_tcp_nodelay(true)?;
        }
        socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
        socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
        // A large message is read into its own place, with nothing of the next; small ones share a read.
        let capacity = if setup.size >= READ_BYTES_MIN { setup.size } else { READ_BYTES_MIN + setup.size };
        Ok(Self {
            socket,
            waiter: Waiter::new(setup.wait),
            size: setup.size,
            sent: 0,
            buffer: vec![0; capacity],
            filled: 0,
        })
    }
}

impl Pipe for StreamPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let (socket, rest) = (&self.socket, &message[self.sent..]);
        let sent = self.waiter.turn(|may_sleep| {
            let flags =
                if may_sleep { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
            Ok(rustix::net::send(socket, rest, flags)?)
        })?;
        self.sent += sent.unwrap_or(0);
        let whole = self.sent == message.len();
        if whole {
            self.sent = 0;
        }
        Ok(whole)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let (socket, room) = (&self.socket, &mut self.buffer[self.filled..]);
        let received = self.waiter.turn(|may_sleep| {
            let flags = if may_sleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let (bytes, _) = rustix::net::recv(socket, &mut *room, flags)?;
            if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
        })?;
        self.filled += received.unwrap_or(0);
        let whole = self.filled / self.size;
        self.buffer[..whole * self.size].chunks_exact(self.size).for_each(sink);
        self.buffer.copy_within(whole * self.size..self.filled, 0);
        self.filled -= whole * self.size;
        Ok(whole)
    }
}
