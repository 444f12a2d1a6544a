//! Polyrail's connections: one for each transaction, or one that stays and carries messages or bytes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polyrail::{Connect, Connection, ConnectionError, Node, Port, Scope, SendError, ServiceAddress};

use super::{DOOR, Polyrail, Reading, SERVICE_TYPE, TURN_MESSAGES_MAX, addresses, class_of, embed, peers};
use crate::protocol::byte_stream::{ByteStream, StreamPipe};
use crate::protocol::{Answerer, Caller, Listener, Pipe, Protocol, Setup, Transactor};
use crate::wait::Waiter;

/// A connection that stays.
pub(in crate::protocol) struct Connected {
    name: &'static str,
    about: &'static str,
    /// Whether it carries bytes.
    stream: bool,
}

/// Messages over a connection.
pub(in crate::protocol) static MESSAGES: Connected = Connected {
    name: "polyrail-connection",
    about: "Polyrail over all links, messages by one connection",
    stream: false,
};

/// Bytes over a connection.
pub(in crate::protocol) static BYTES: Connected = Connected {
    name: "polyrail-stream",
    about: "Polyrail over all links, a stream of bytes by one connection",
    stream: true,
};

/// Callers that may wait for the answerer.
const BACKLOG: u32 = 64;

impl Protocol for Connected {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn supports_buffers(&self, _size: usize, bytes: usize) -> Result<(), String> {
        super::node_takes_buffers(bytes)
    }

    fn striped(&self) -> bool {
        true
    }

    fn packet_payload(&self) -> usize {
        super::PACKET_PAYLOAD
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Listening::open(embed(setup, "receiver", &[])?, setup, None)?))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let node = embed(setup, "sender", &peers(address))?;
        let port = node.port().map_err(io::Error::other)?;
        let service = ServiceAddress::new(SERVICE_TYPE, setup.flow);
        port.wait_for(service, Some(timeout)).map_err(io::Error::other)?;
        let how = Connect {
            stream: self.stream,
            class: class_of(setup),
            accepted_within: Some(timeout),
            ..Connect::default()
        };
        pipe(Connection::open(Box::new(port), service, &how)?, node, setup)
    }
}

type Owned = Connection<Box<Port>>;

fn pipe(connection: Owned, node: Arc<Node>, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
    Ok(if connection.is_stream() {
        Box::new(StreamPipe::new(Bytes { connection, _node: node }, setup))
    } else {
        Box::new(Messages { connection, reading: Reading::of(setup), _node: node })
    })
}

/// A port that listens as the flow's service.
struct Listening {
    port: Port,
    node: Arc<Node>,
    setup: Setup,
    address: String,
}

impl Listening {
    fn open(node: Arc<Node>, setup: &Setup, door: Option<PathBuf>) -> io::Result<Self> {
        let port = node.port().map_err(io::Error::other)?;
        port.listen(BACKLOG)?;
        let service = ServiceAddress::new(SERVICE_TYPE, setup.flow);
        port.bind(service, Scope::Cluster).map_err(io::Error::other)?;
        let mut address = format!("{SERVICE_TYPE}:{}", setup.flow);
        if let Some(path) = door {
            address = format!("{address}{DOOR}{}", path.display());
        } else if setup.far.is_some() {
            address = format!("{address}@{}", addresses(&node, setup).join(","));
        }
        Ok(Self { port, node, setup: setup.clone(), address })
    }
}

impl Listener for Listening {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let connection = Connection::accept(Box::new(self.port), Some(timeout))?;
        pipe(connection, self.node, &self.setup)
    }
}

/// Messages by a connection.
struct Messages {
    connection: Owned,
    reading: Reading,
    /// The node lives as long as its port is used.
    _node: Arc<Node>,
}

/// What was sent; `None`: there is no room now.
fn sent(sent: Result<(), SendError>) -> io::Result<Option<()>> {
    match sent {
        Ok(()) => Ok(Some(())),
        Err(SendError::Blocked) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

impl Pipe for Messages {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        Ok(sent(self.connection.send_timeout(message, Some(Waiter::BLOCK_MAX)))?.is_some())
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        match self.connection.recv_timeout(Waiter::BLOCK_MAX) {
            Ok(Some(message)) => self.reading.give(message.bytes(), sink),
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(ConnectionError::TimedOut) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let mut count = 1;
        while count < TURN_MESSAGES_MAX
            && let Some(message) = self.connection.recv_arrived()?
        {
            self.reading.give(message.bytes(), sink);
            count += 1;
        }
        Ok(count)
    }
}

/// Bytes by a connection.
struct Bytes {
    connection: Owned,
    /// The node lives as long as its port is used.
    _node: Arc<Node>,
}

fn patience(may_sleep: bool) -> Duration {
    if may_sleep { Waiter::BLOCK_MAX } else { Duration::ZERO }
}

impl ByteStream for Bytes {
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize> {
        let sent = sent(self.connection.send_timeout(bytes, Some(patience(may_sleep))))?;
        sent.map(|()| bytes.len()).ok_or(io::ErrorKind::WouldBlock.into())
    }

    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize> {
        match self.connection.read_timeout(room, patience(may_sleep)) {
            Err(ConnectionError::TimedOut) => Err(io::ErrorKind::WouldBlock.into()),
            other => Ok(other?),
        }
    }
}

impl Transactor for Polyrail {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        let node = self.receiver(setup)?;
        Ok(Box::new(Listening::open(node, setup, self.door(setup))?))
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        let node = self.sender(setup, address)?;
        let port = node.port().map_err(io::Error::other)?;
        let service = ServiceAddress::new(SERVICE_TYPE, setup.flow);
        port.wait_for(service, Some(FOUND_WITHIN)).map_err(io::Error::other)?;
        Ok(Box::new(Asking { port, service, _node: node }))
    }
}

/// Longest time for the answerer's name to be known.
const FOUND_WITHIN: Duration = Duration::from_secs(20);
/// Step after which a transaction has failed.
const FAILED_AFTER: Duration = Duration::from_secs(4);

impl Answerer for Listening {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn answer(&mut self) -> io::Result<bool> {
        let connection = match self.port.accept_timeout(Waiter::BLOCK_MAX) {
            Err(ConnectionError::TimedOut) => return Ok(false),
            other => other?,
        };
        let message = connection.recv_timeout(FAILED_AFTER)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        connection.send_last(message.bytes()).map_err(io::Error::other)?;
        Ok(true)
    }
}

/// Asks by a connection each.
struct Asking {
    port: Port,
    service: ServiceAddress,
    _node: Arc<Node>,
}

impl Caller for Asking {
    fn call(&mut self, message: &[u8], answer: &mut [u8]) -> io::Result<()> {
        let connection = self.port.ask(self.service, message)?;
        let got = connection.recv_timeout(FAILED_AFTER)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if got.len() != answer.len() {
            return Err(io::Error::other("an answer of another length"));
        }
        answer.copy_from_slice(got.bytes());
        drop(got);
        match connection.recv_timeout(FAILED_AFTER)? {
            None => Ok(()),
            Some(_) => Err(io::Error::other("more came than one answer")),
        }
    }
}
