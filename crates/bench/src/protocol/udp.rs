//! UDP: no acknowledgements, no order, no flow control. What is offered and what arrives are two figures.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::SockRef;

use super::packet_socket::{HELLO, PacketPipe};
use super::udp_gso::{self, TrainPipe};
use super::{Listener, Pipe, Protocol, Setup};
use crate::clock::now_ns;
use crate::workload::Workload;

/// UDP over the first link.
pub(super) struct Udp {
    name: &'static str,
    about: &'static str,
    way: Way,
}

/// How datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One per call, over a socket that knows its peer.
    Connected,
    /// One per call, which names the peer: what a server does that has many.
    Addressed,
    /// Many per call, over a socket that knows its peer.
    Trains,
}

/// One datagram per call.
pub(super) static PLAIN: Udp = Udp {
    name: "udp",
    about: "UDP over the first link, one datagram per call, nothing acknowledged: offered against received",
    way: Way::Connected,
};

/// One datagram per call, over a socket that is not connected.
pub(super) static ADDRESSED: Udp = Udp {
    name: "udp-addressed",
    about: "The same over sockets that are not connected: each call names the peer, as a server's with many peers does",
    way: Way::Addressed,
};

/// Many datagrams per call.
pub(super) static GSO: Udp = Udp {
    name: "udp-gso",
    about: "The same with segmentation and coalescing offload: up to 64 datagrams per call",
    way: Way::Trains,
};

/// The largest payload of a datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
const HELLO_EVERY: Duration = Duration::from_millis(20);

impl Protocol for Udp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn reliable(&self) -> bool {
        false
    }

    fn available(&self) -> Result<(), String> {
        if self.way == Way::Trains { udp_gso::probe() } else { Ok(()) }
    }

    fn supports(&self, _workload: Workload, size: usize) -> Result<(), String> {
        if self.way == Way::Trains && size > udp_gso::SEGMENT_BYTES_MAX {
            let most = udp_gso::SEGMENT_BYTES_MAX;
            return Err(format!("a datagram that leaves whole holds at most {most} bytes, not {size}"));
        }
        if size > DATAGRAM_BYTES_MAX {
            return Err(format!("a datagram holds at most {DATAGRAM_BYTES_MAX} bytes, not {size}"));
        }
        Ok(())
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let socket = self.open(SocketAddr::new(ip, 0), setup)?;
        Ok(Box::new(UdpListener { socket, setup: setup.clone(), way: self.way }))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let peer: SocketAddr = address.parse().map_err(io::Error::other)?;
        let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let socket = self.open(SocketAddr::new(ip, 0), setup)?;
        if self.way != Way::Addressed {
            socket.connect(peer)?;
        }
        socket.set_read_timeout(Some(HELLO_EVERY))?;
        let start_ns = now_ns();
        let mut answer = [0; 16];
        while u128::from(now_ns() - start_ns) < timeout.as_nanos() {
            greet(&socket, peer, self.way)?;
            if socket
                .recv_from(&mut answer)
                .is_ok_and(|(length, from)| from == peer && &answer[..length] == HELLO)
            {
                return pipe(socket, peer, setup, self.way);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Udp {
    fn open(&self, address: SocketAddr, setup: &Setup) -> io::Result<UdpSocket> {
        let socket =
            if self.way == Way::Trains { udp_gso::open(address, setup)? } else { UdpSocket::bind(address)? };
        if let Some(bytes) = setup.socket_buffer_max {
            let options = SockRef::from(&socket);
            options.set_send_buffer_size(bytes)?;
            options.set_recv_buffer_size(bytes)?;
        }
        Ok(socket)
    }
}

fn greet(socket: &UdpSocket, peer: SocketAddr, way: Way) -> io::Result<usize> {
    if way == Way::Addressed { socket.send_to(HELLO, peer) } else { socket.send(HELLO) }
}

fn pipe(socket: UdpSocket, peer: SocketAddr, setup: &Setup, way: Way) -> io::Result<Box<dyn Pipe>> {
    Ok(match way {
        Way::Connected => Box::new(PacketPipe::new(socket.into(), setup, false)?),
        Way::Addressed => {
            Box::new(AddressedPipe { pipe: PacketPipe::new(socket.into(), setup, false)?, peer })
        }
        Way::Trains => Box::new(TrainPipe::new(socket.into(), setup)?),
    })
}

/// One end of a pair of sockets that are not connected.
struct AddressedPipe {
    pipe: PacketPipe,
    peer: SocketAddr,
}

impl Pipe for AddressedPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.pipe.send_by(|socket, flags| rustix::net::sendto(socket, message, flags, &self.peer))
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let peer = self.peer;
        self.pipe.recv_by(sink, |socket, room, flags| {
            let (length, _, from) = rustix::net::recvfrom(socket, room, flags)?;
            // A stranger's is passed over, as the kernel does for a connected socket.
            Ok(from
                .and_then(|from| SocketAddr::try_from(from).ok())
                .filter(|from| *from == peer)
                .map(|_| length))
        })
    }
}

struct UdpListener {
    socket: UdpSocket,
    setup: Setup,
    way: Way,
}

impl Listener for UdpListener {
    fn address(&self) -> String {
        self.socket.local_addr().map_or(String::new(), |address| address.to_string())
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        self.socket.set_read_timeout(Some(timeout))?;
        let mut hello = [0; 16];
        loop {
            let (length, peer) = self.socket.recv_from(&mut hello)?;
            if &hello[..length] == HELLO && self.setup.expects(peer.ip()) {
                if self.way != Way::Addressed {
                    self.socket.connect(peer)?;
                }
                greet(&self.socket, peer, self.way)?;
                return pipe(self.socket, peer, &self.setup, self.way);
            }
        }
    }
}
