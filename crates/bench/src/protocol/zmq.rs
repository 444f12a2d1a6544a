//! ZeroMQ: PUSH to PULL one way, PAIR to PAIR for ping-pong, over TCP on the first link.
//!
//! Its I/O threads are its own and run wherever the scheduler puts them; only the measuring thread is pinned.

use std::io;
use std::time::Duration;

use zmq::{Context, DONTWAIT, Message, Socket, SocketType};

use super::{Listener, Pipe, Protocol, Setup};
use crate::wait::Waiter;

/// ZeroMQ over TCP.
pub(super) struct Zmq;

/// Bytes that may wait in each queue; ZeroMQ itself counts messages, which for large ones would be memory by the GB.
const QUEUE_BYTES_MAX: usize = 16 << 20;

impl Protocol for Zmq {
    fn name(&self) -> &'static str {
        "zmq"
    }

    fn about(&self) -> &'static str {
        "ZeroMQ over TCP on the first link: PUSH/PULL one way, PAIR for ping-pong"
    }

    fn has_carrying_threads(&self) -> bool {
        true
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let ip = *setup.local.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let socket = open(setup, SocketType::PULL)?;
        let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        socket.bind(&format!("tcp://{host}:*")).map_err(system)?;
        let address = socket
            .get_last_endpoint()
            .map_err(system)?
            .map_err(|_| io::Error::other("libzmq gave an endpoint that is not text"))?;
        Ok(Box::new(ZmqListener { address, pipe: ZmqPipe::new(socket, setup) }))
    }

    fn connect(&self, setup: &Setup, address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let socket = open(setup, SocketType::PUSH)?;
        // libzmq connects in the background; sending waits until a connection stands.
        socket.connect(address).map_err(system)?;
        Ok(Box::new(ZmqPipe::new(socket, setup)))
    }
}

fn open(setup: &Setup, one_way: SocketType) -> io::Result<Socket> {
    let kind = if setup.both_ways { SocketType::PAIR } else { one_way };
    let socket = Context::new().socket(kind).map_err(system)?;
    let queue = i32::try_from((QUEUE_BYTES_MAX / setup.size).max(8)).unwrap_or(i32::MAX);
    let block_ms = i32::try_from(Waiter::BLOCK_MAX.as_millis()).unwrap_or(50);
    let set = || -> Result<(), zmq::Error> {
        socket.set_sndhwm(queue)?;
        socket.set_rcvhwm(queue)?;
        socket.set_rcvtimeo(block_ms)?;
        socket.set_sndtimeo(block_ms)?;
        socket.set_linger(0)?;
        socket.set_ipv6(setup.local.first().is_some_and(std::net::IpAddr::is_ipv6))?;
        if let Some(bytes) = setup.socket_buffer_max {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            socket.set_sndbuf(bytes)?;
            socket.set_rcvbuf(bytes)?;
        }
        Ok(())
    };
    set().map_err(system)?;
    Ok(socket)
}

fn system(error: zmq::Error) -> io::Error {
    match error {
        zmq::Error::EAGAIN => io::ErrorKind::WouldBlock.into(),
        zmq::Error::EINTR => io::ErrorKind::Interrupted.into(),
        other => io::Error::other(format!("libzmq: {other}")),
    }
}

struct ZmqListener {
    address: String,
    pipe: ZmqPipe,
}

impl Listener for ZmqListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(self: Box<Self>, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        // libzmq accepts in the background, and tells nobody.
        Ok(Box::new(self.pipe))
    }
}

struct ZmqPipe {
    socket: Socket,
    waiter: Waiter,
    message: Message,
}

impl ZmqPipe {
    fn new(socket: Socket, setup: &Setup) -> Self {
        Self { socket, waiter: Waiter::new(setup.wait), message: Message::new() }
    }
}

impl Pipe for ZmqPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let socket = &self.socket;
        let sent = self
            .waiter
            .turn(|may_sleep| socket.send(message, if may_sleep { 0 } else { DONTWAIT }).map_err(system))?;
        Ok(sent.is_some())
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let (socket, message) = (&self.socket, &mut self.message);
        let received = self
            .waiter
            .turn(|may_sleep| socket.recv(message, if may_sleep { 0 } else { DONTWAIT }).map_err(system))?;
        if received.is_none() {
            return Ok(0);
        }
        sink(&self.message);
        Ok(1)
    }
}
