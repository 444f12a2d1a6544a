//! What every protocol with a byte-stream socket over IP shares: options and connecting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::byte_stream::StreamPipe;
use super::stream_server::StreamServer;
use super::transaction::{Answers, Calls, Habits, Kind};
use super::{Answerer, Caller, Listener, Pipe, Server, Setup};
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
    /// Send buffer of what fills links that are cut, in bytes; none: the system's.
    pub(super) cut_send_buffer: Option<usize>,
}

/// Opens a listening socket on the first of the setup's addresses.
pub(super) fn listen(options: Options, setup: &Setup) -> io::Result<Box<dyn Listener>> {
    let (socket, address) = bound(options, setup)?;
    socket.listen(8)?;
    Ok(Box::new(StreamListener { socket, address, options, setup: setup.clone() }))
}

/// Serves several clients there.
pub(super) fn server(options: Options, setup: &Setup, clients: u32) -> io::Result<Box<dyn Server>> {
    let (socket, address) = bound(options, setup)?;
    let prepare = Box::new(move |socket: &Socket| socket.set_tcp_nodelay(options.nodelay));
    Ok(Box::new(StreamServer::open(socket, address.to_string(), setup, clients, prepare)?))
}

/// A socket that can listen, and where it is reached.
fn bound(options: Options, setup: &Setup) -> io::Result<(Socket, SocketAddr)> {
    let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = open(options, ip, setup)?;
    let unspecified = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // With one link there is nothing that another address could be needed for.
    let bound = if options.every_address && setup.local.len() > 1 { unspecified } else { ip };
    socket.bind(&SocketAddr::new(bound, 0).into())?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    Ok((socket, SocketAddr::new(ip, port)))
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
    connected(socket, options, setup)
}

/// Answers transactions on the first of the setup's addresses.
pub(super) fn answerer(options: Options, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
    let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let address = |socket: &Socket| {
        socket.local_addr()?.as_socket().map(|at| at.to_string()).ok_or(io::ErrorKind::InvalidData.into())
    };
    let at = SocketAddr::new(ip, 0).into();
    Ok(Box::new(Answers::new(&kind(options, ip, setup), &at, address, setup)?))
}

/// Calls such an answerer.
pub(super) fn caller(options: Options, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    Ok(Box::new(Calls::new(kind(options, address.ip(), setup), address.into(), setup)))
}

fn kind(options: Options, ip: IpAddr, setup: &Setup) -> Kind {
    let setup = setup.clone();
    let prepare = move |socket: &Socket| {
        if options.nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        set_options(socket, options, &setup)
    };
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let (kind, protocol) = (Type::STREAM, Some(options.protocol));
    let habits =
        Habits { accepts_untimed: options.protocol == socket2::Protocol::MPTCP, ..Habits::default() };
    Kind { domain, kind, protocol, prepare: Box::new(prepare), habits }
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
    set_options(&socket, options, setup)?;
    Ok(socket)
}

fn set_options(socket: &Socket, options: Options, setup: &Setup) -> io::Result<()> {
    set_congestion(socket, options)?;
    match (setup.socket_buffer_max, options.cut_send_buffer) {
        (Some(bytes), _) => {
            socket.set_send_buffer_size(bytes)?;
            socket.set_recv_buffer_size(bytes)
        }
        (None, Some(bytes)) if setup.cut => socket.set_send_buffer_size(bytes),
        _ => Ok(()),
    }
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

fn connected(socket: Socket, options: Options, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
    if options.nodelay || setup.prompt {
        socket.set_tcp_nodelay(true)?;
    }
    socket.set_read_timeout(Some(Waiter::BLOCK_MAX))?;
    socket.set_write_timeout(Some(Waiter::BLOCK_MAX))?;
    Ok(Box::new(StreamPipe::new(socket, setup)))
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
        let expects = |from: &SockAddr| from.as_socket().is_none_or(|from| self.setup.expects(from.ip()));
        let pipe = connected(accept(&self.socket, timeout, expects)?, self.options, &self.setup)?;
        Ok(Box::new(Accepted { pipe, _listening: self.socket }))
    }
}

/// A pipe that was accepted, and the socket that listens: a subflow that joins later, over a link that takes longer or after
/// one that was cut, is refused where nobody listens any more.
struct Accepted {
    pipe: Box<dyn Pipe>,
    _listening: Socket,
}

impl Pipe for Accepted {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.pipe.send(message)
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.pipe.flush()
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.pipe.recv(sink)
    }
}

/// Waits for whom `expects` takes to connect to a listening socket; others are turned away.
pub(super) fn accept(
    listening: &Socket,
    timeout: Duration,
    expects: impl Fn(&SockAddr) -> bool,
) -> io::Result<Socket> {
    listening.set_nonblocking(true)?;
    let start_ns = now_ns();
    while u128::from(now_ns() - start_ns) <= timeout.as_nanos() {
        match listening.accept() {
            Ok((socket, from)) if expects(&from) => {
                socket.set_nonblocking(false)?;
                return Ok(socket);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::setup_for_tests;

    #[test]
    fn a_send_buffer_for_cuts_is_set_where_links_are_cut_and_none_was_asked_for() {
        let options = Options {
            protocol: socket2::Protocol::TCP,
            congestion: None,
            nodelay: false,
            every_address: false,
            cut_send_buffer: Some(40_000),
        };
        let sent_by = |cut, socket_buffer_max| {
            let setup = Setup { cut, socket_buffer_max, ..setup_for_tests(64) };
            open(options, Ipv4Addr::LOCALHOST.into(), &setup).unwrap().send_buffer_size().unwrap()
        };
        // Linux tells twice what was asked for.
        assert_eq!((sent_by(true, None), sent_by(true, Some(9_000))), (80_000, 18_000));
        assert_ne!(sent_by(false, None), 80_000);
    }
}
