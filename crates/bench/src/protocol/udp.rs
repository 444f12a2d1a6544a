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
    /// Whether many datagrams go in one call.
    offloads: bool,
}

/// One datagram per call.
pub(super) static PLAIN: Udp = Udp {
    name: "udp",
    about: "UDP over the first link, one datagram per call, nothing acknowledged: offered against received",
    offloads: false,
};

/// Many datagrams per call.
pub(super) static GSO: Udp = Udp {
    name: "udp-gso",
    about: "The same with segmentation and coalescing offload: up to 64 datagrams per call",
    offloads: true,
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
        if self.offloads { udp_gso::probe() } else { Ok(()) }
    }

    fn supports(&self, _workload: Workload, size: usize) -> Result<(), String> {
        if self.offloads && size > udp_gso::SEGMENT_BYTES_MAX {
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
        Ok(Box::new(UdpListener { socket, setup: setup.clone(), offloads: self.offloads }))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let peer: SocketAddr = address.parse().map_err(io::Error::other)?;
        let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let socket = self.open(SocketAddr::new(ip, 0), setup)?;
        socket.connect(peer)?;
        socket.set_read_timeout(Some(HELLO_EVERY))?;
        let start_ns = now_ns();
        let mut answer = [0; 16];
        while u128::from(now_ns() - start_ns) < timeout.as_nanos() {
            socket.send(HELLO)?;
            if socket.recv(&mut answer).is_ok_and(|length| &answer[..length] == HELLO) {
                return pipe(socket, setup, self.offloads);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Udp {
    fn open(&self, address: SocketAddr, setup: &Setup) -> io::Result<UdpSocket> {
        let socket = if self.offloads { udp_gso::open(address, setup)? } else { UdpSocket::bind(address)? };
        if let Some(bytes) = setup.socket_buffer_max {
            let options = SockRef::from(&socket);
            options.set_send_buffer_size(bytes)?;
            options.set_recv_buffer_size(bytes)?;
        }
        Ok(socket)
    }
}

fn pipe(socket: UdpSocket, setup: &Setup, offloads: bool) -> io::Result<Box<dyn Pipe>> {
    Ok(if offloads {
        Box::new(TrainPipe::new(socket.into(), setup)?)
    } else {
        Box::new(PacketPipe::new(socket.into(), setup, false)?)
    })
}

struct UdpListener {
    socket: UdpSocket,
    setup: Setup,
    offloads: bool,
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
                self.socket.connect(peer)?;
                self.socket.send(HELLO)?;
                return pipe(self.socket, &self.setup, self.offloads);
            }
        }
    }
}
