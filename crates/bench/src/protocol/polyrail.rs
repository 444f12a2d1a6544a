//! Polyrail itself: a node embedded in each measured process, over every link of the testbed.
//!
//! The receiver binds a service, the sender finds it by name. The node's waiting mode is Polyrail's own, not the
//! emulation that sockets get.

mod cast;
mod connected;
mod hub;
pub(crate) mod lodger;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polyrail::config::MESSAGE_BYTES_LIMIT;
use polyrail::{
    Class, Config, Destination, Message, Node, Policy, Port, PortAddress, Scope, SendEachError, SendError,
    ServiceAddress, ServiceRange, Wait,
};

pub(super) use cast::Multicast;
pub(super) use connected::{BYTES, MESSAGES};

use super::{Caster, Flow, Hub, Listener, Pipe, Pipes, Protocol, Reach, Setup, Transactor};
use crate::args::{FlowClass, ReadKind, SendKind};
use crate::check::MESSAGE_BYTES_MIN;
use crate::wait::{WaitMode, Waiter};

/// Polyrail over some links, which messages are shared among by `policy`.
pub(super) struct Polyrail {
    name: &'static str,
    about: &'static str,
    policy: Policy,
    over: Over,
    home: Home,
}

/// Which process has the node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// The measured one.
    Own,
    /// One of its own, which the measured one is attached to.
    Other,
    /// The receiver's, which the sender is attached to.
    Receiver,
}

/// Which links a node uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    All,
    First,
    Last,
}

/// As programs get it.
pub(super) static ADAPTIVE: Polyrail = Polyrail {
    name: "polyrail",
    about: "Polyrail over all links, unencrypted, one service bound by the receiver",
    policy: Policy::Adaptive,
    over: Over::All,
    home: Home::Own,
};

/// What all links together must not be slower than.
pub(super) static FIRST: Polyrail = Polyrail {
    name: "polyrail-first",
    about: "Polyrail over the first link alone",
    policy: Policy::Adaptive,
    over: Over::First,
    home: Home::Own,
};

/// The same, where that one is the best.
pub(super) static LAST: Polyrail = Polyrail {
    name: "polyrail-last",
    about: "Polyrail over the last link alone",
    policy: Policy::Adaptive,
    over: Over::Last,
    home: Home::Own,
};

/// As programs get it that share a node.
pub(super) static ATTACHED: Polyrail = Polyrail {
    name: "polyrail-attached",
    about: "Polyrail over all links, its node in a process of its own that the measured one is attached to",
    policy: Policy::Adaptive,
    over: Over::All,
    home: Home::Other,
};

/// As programs get it whose server has the node: what they send to it goes by the engine.
pub(super) static HOSTED: Polyrail = Polyrail {
    name: "polyrail-hosted",
    about: "Polyrail, the node in the receiver's process, which senders of the same machine are attached to",
    policy: Policy::Adaptive,
    over: Over::All,
    home: Home::Receiver,
};

/// With the policies that it is to be compared with.
pub(super) static POLICIES: [Polyrail; 6] = [
    Polyrail {
        name: "polyrail-static",
        about: "Polyrail, each flow by a link of its own",
        policy: Policy::Static,
        over: Over::All,
        home: Home::Own,
    },
    Polyrail {
        name: "polyrail-one-way",
        about: "Polyrail, each link for one direction",
        policy: Policy::OneWay,
        over: Over::All,
        home: Home::Own,
    },
    Polyrail {
        name: "polyrail-round-robin",
        about: "Polyrail, each message by the next link, large ones in equal parts by all",
        policy: Policy::RoundRobin,
        over: Over::All,
        home: Home::Own,
    },
    Polyrail {
        name: "polyrail-mnc",
        about: "Polyrail, each message by a link that is free at both ends, large ones in equal parts by all of these",
        policy: Policy::Mnc,
        over: Over::All,
        home: Home::Own,
    },
    Polyrail {
        name: "polyrail-mnc-rtt",
        about: "The same, and the peer is asked before each large message",
        policy: Policy::MncRtt,
        over: Over::All,
        home: Home::Own,
    },
    Polyrail {
        name: "polyrail-redundant",
        about: "Polyrail, each message by every link",
        policy: Policy::Redundant,
        over: Over::All,
        home: Home::Own,
    },
];

/// The service that the receiver binds, one instance a flow; the testbed is private, so nobody else does.
const SERVICE_TYPE: u32 = 1_000;
/// Payload of a full packet of 1,500 bytes.
const PACKET_PAYLOAD: usize = 1_432;
/// Messages handed out in one turn at most, so that the caller gets to look at the time.
const TURN_MESSAGES_MAX: usize = 64;

/// Whether a node may have such buffers of its sockets, or what it allows.
fn node_takes_buffers(bytes: usize) -> Result<(), String> {
    let config = polyrail::Config::new().insecure().socket_buffer_max(bytes);
    config.validate().map_err(|error| format!("a node refuses such socket buffers: {error}"))
}

impl Protocol for Polyrail {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn supports_buffers(&self, _size: usize, bytes: usize) -> Result<(), String> {
        node_takes_buffers(bytes)
    }

    fn is_usual(&self) -> bool {
        self.policy == Policy::Adaptive && self.over == Over::All && self.home == Home::Own
    }

    fn reach(&self) -> Reach {
        if self.home == Home::Receiver { Reach::Machine } else { Reach::Network }
    }

    fn striped(&self) -> bool {
        self.over == Over::All
    }

    fn links(&self, count: usize) -> Range<usize> {
        match self.over {
            Over::All => 0..count,
            Over::First => 0..count.min(1),
            Over::Last => count.saturating_sub(1)..count,
        }
    }

    fn packet_payload(&self) -> usize {
        PACKET_PAYLOAD
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(PolyrailListener::open(&self.receiver(setup)?, setup, self.door(setup))?))
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let node = self.sender(setup, address)?;
        let pipe = PolyrailPipe::open(&node, setup)?;
        pipe.find(timeout)?;
        Ok(Box::new(pipe))
    }

    fn listen_flows(&self, setups: &[Setup]) -> io::Result<Vec<Box<dyn Listener>>> {
        let Some(first) = setups.first() else { return Ok(Vec::new()) };
        let node = self.receiver(first)?;
        let listen = |setup| -> io::Result<Box<dyn Listener>> {
            Ok(Box::new(PolyrailListener::open(&node, setup, self.door(setup))?))
        };
        setups.iter().map(listen).collect()
    }

    fn connect_flows(&self, flows: &[Flow], timeout: Duration) -> io::Result<Pipes> {
        let Some(first) = flows.first() else { return Ok(Vec::new()) };
        let node = self.sender(first.setup, first.address)?;
        let connect = |flow: &Flow| -> io::Result<Box<dyn Pipe>> {
            let pipe = PolyrailPipe::open(&node, flow.setup)?;
            pipe.find(timeout)?;
            Ok(Box::new(pipe))
        };
        flows.iter().map(connect).collect()
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        (self.is_usual() || self.home != Home::Own).then_some(self)
    }

    fn hub(&self) -> Option<&dyn Hub> {
        Some(self)
    }

    fn caster(&self) -> Option<&dyn Caster> {
        self.is_usual().then_some(self)
    }

    fn offers(&self, _send: SendKind) -> bool {
        true
    }

    fn has_classes(&self) -> bool {
        true
    }
}

/// Before the path in an address, where both sides attach to one node.
const DOOR: char = '#';

impl Polyrail {
    /// Where the sender is to attach, if it is to share the receiver's node: on one machine programs do.
    fn door(&self, setup: &Setup) -> Option<PathBuf> {
        let shares = self.home != Home::Own && setup.devices.is_empty();
        shares.then(|| lodger::path_of("receiver"))
    }

    /// The receiver's node.
    fn receiver(&self, setup: &Setup) -> io::Result<Arc<Node>> {
        if self.home == Home::Receiver {
            return embed_with(config(setup, "receiver", &[]).attach(lodger::path_of("receiver")));
        }
        self.embed(setup, "receiver", &[])
    }

    /// The sender's node.
    fn sender(&self, setup: &Setup, address: &str) -> io::Result<Arc<Node>> {
        match address.split_once(DOOR) {
            Some((_, path)) => lodger::join(setup, "sender", Path::new(path)),
            None => self.embed(setup, "sender", &peers(address)),
        }
    }

    fn embed(&self, setup: &Setup, name: &str, peers: &[&str]) -> io::Result<Arc<Node>> {
        let config = match setup.devices.as_slice() {
            [] => config(setup, name, peers),
            all => config(setup, name, peers).interfaces(&all[self.links(all.len())]),
        };
        if self.home == Home::Other {
            return lodger::attach(setup, name, peers);
        }
        embed_with(config.policy(self.policy))
    }
}

fn class_of(setup: &Setup) -> Class {
    match setup.class {
        FlowClass::Urgent => Class::Urgent,
        FlowClass::Normal => Class::Normal,
        FlowClass::Bulk => Class::Bulk,
    }
}

/// The receiver's node as its address names it; where beacons find it, it names none.
fn peers(address: &str) -> Vec<&str> {
    address.split_once('@').map_or(Vec::new(), |(_, nodes)| nodes.split(',').collect())
}

fn embed(setup: &Setup, name: &str, peers: &[&str]) -> io::Result<Arc<Node>> {
    embed_with(config(setup, name, peers))
}

fn embed_with(config: Config) -> io::Result<Arc<Node>> {
    Ok(Arc::new(Node::embed(config).map_err(io::Error::other)?))
}

fn config(setup: &Setup, name: &str, peers: &[&str]) -> Config {
    let wait = match setup.wait {
        WaitMode::Spin => Wait::Spin,
        WaitMode::Adaptive => Wait::Adaptive,
        WaitMode::Block => Wait::Block,
    };
    let loopback = ["lo".to_owned()];
    let devices = if setup.devices.is_empty() { &loopback[..] } else { &setup.devices[..] };
    let mut config = Config::new().insecure().name(name).interfaces(devices).wait(wait);
    // Others take messages of any length that is measured.
    config = config.message_bytes_max(MESSAGE_BYTES_LIMIT);
    if let Some(far) = &setup.far {
        // Beacons do not pass routers, and others on that network may have nodes of their own.
        config = config.cluster(&far.cluster).peers(peers.iter().copied());
    }
    if let Some(bytes) = setup.socket_buffer_max {
        config = config.socket_buffer_max(bytes);
    }
    config
}

/// Where a node can be reached on the setup's addresses.
fn addresses(node: &Node, setup: &Setup) -> Vec<String> {
    let bearers = node.status().bearers.into_iter();
    let addresses = bearers.filter_map(|bearer| bearer.address.parse::<SocketAddr>().ok());
    addresses.filter(|at| setup.local.contains(&at.ip())).map(|at| at.to_string()).collect()
}

struct PolyrailListener {
    pipe: PolyrailPipe,
    /// Where its node can be reached, if the sender must be told.
    nodes: Vec<String>,
    /// Where the sender attaches to the same node.
    door: Option<PathBuf>,
}

impl PolyrailListener {
    fn open(node: &Arc<Node>, setup: &Setup, door: Option<PathBuf>) -> io::Result<Self> {
        let pipe = PolyrailPipe::open(node, setup)?;
        let range = ServiceRange::new(SERVICE_TYPE, setup.flow, setup.flow);
        pipe.port.bind(range, Scope::Cluster).map_err(io::Error::other)?;
        let nodes = if setup.far.is_some() { addresses(node, setup) } else { Vec::new() };
        Ok(Self { pipe, nodes, door })
    }
}

impl Listener for PolyrailListener {
    fn address(&self) -> String {
        let service = format!("{SERVICE_TYPE}:{}", self.pipe.service.instance);
        match &self.door {
            Some(path) => format!("{service}{DOOR}{}", path.display()),
            None if self.nodes.is_empty() => service,
            None => format!("{service}@{}", self.nodes.join(",")),
        }
    }

    fn accept(self: Box<Self>, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        // Messages come without a connection.
        Ok(Box::new(self.pipe))
    }
}

struct PolyrailPipe {
    port: Port,
    service: ServiceAddress,
    send: SendKind,
    reading: Reading,
    class: Class,
    /// Where the last message came from: who answers sends there.
    peer: Option<PortAddress>,
    /// The node lives as long as its port is used.
    _node: Arc<Node>,
}

impl PolyrailPipe {
    fn open(node: &Arc<Node>, setup: &Setup) -> io::Result<Self> {
        let class = class_of(setup);
        let port = node.port().map_err(io::Error::other)?;
        let service = ServiceAddress::new(SERVICE_TYPE, setup.flow);
        let reading = Reading::of(setup);
        Ok(Self { port, service, send: setup.send, reading, class, peer: None, _node: node.clone() })
    }

    /// Who answers does so to whom the last message came from.
    fn to(&self) -> Destination {
        self.peer.map_or(Destination::Service(self.service), Destination::Port)
    }

    fn find(&self, timeout: Duration) -> io::Result<()> {
        self.port.wait_for(self.service, Some(timeout)).map_err(io::Error::other)
    }
}

impl Pipe for PolyrailPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let to = self.to();
        let sent = match self.send {
            SendKind::Slice | SendKind::Batch => {
                self.port.send_with(to, self.class, None, message, Some(Waiter::BLOCK_MAX))
            }
            SendKind::Buffer => {
                // Composed in place: only the numbers at both ends, which is all that the receiver looks at.
                let mut buffer = self.port.alloc(message.len()).map_err(io::Error::other)?;
                let end = message.len() - MESSAGE_BYTES_MIN;
                buffer[..MESSAGE_BYTES_MIN].copy_from_slice(&message[..MESSAGE_BYTES_MIN]);
                buffer[end..].copy_from_slice(&message[end..]);
                self.port.send_buffer(to, buffer)
            }
        };
        match sent {
            Ok(()) => Ok(true),
            Err(SendError::Blocked) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn send_each(&mut self, messages: &[Vec<u8>]) -> io::Result<usize> {
        match self.port.send_each_with(self.to(), self.class, messages, Some(Waiter::BLOCK_MAX)) {
            Ok(()) => Ok(messages.len()),
            Err(SendEachError { taken, why: SendError::Blocked }) => Ok(taken),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let Self { port, reading, peer, .. } = self;
        let each = |message: &Message<'_>| {
            reading.give(message.bytes(), sink);
            *peer = Some(message.from());
        };
        port.recv_each(TURN_MESSAGES_MAX, Some(Waiter::BLOCK_MAX), each).map_err(io::Error::other)
    }
}

/// Where messages are looked at: where they lie, or in memory of the program's.
struct Reading(Option<Vec<u8>>);

impl Reading {
    fn of(setup: &Setup) -> Self {
        Self((setup.read == ReadKind::Copy).then(|| vec![0; setup.size]))
    }

    fn give(&mut self, message: &[u8], sink: &mut dyn FnMut(&[u8])) {
        match self.0.as_mut().and_then(|own| own.get_mut(..message.len())) {
            Some(copy) => {
                copy.copy_from_slice(message);
                sink(std::hint::black_box(copy));
            }
            None => sink(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::setup_for_tests;

    #[test]
    fn buffers_that_a_node_refuses_are_refused_before_the_run() {
        let refused = ADAPTIVE.supports_buffers(64, 2_048).unwrap_err();
        assert!(refused.contains("socket_buffer_max") && refused.contains("65536"), "{refused}");
        assert_eq!(MESSAGES.supports_buffers(64, 2_048), Err(refused));
        ADAPTIVE.supports_buffers(64, 65_536).unwrap();
    }

    #[test]
    fn a_receiver_that_copies_looks_at_memory_of_its_own_and_others_at_the_message() {
        let message = [7, 8, 9];
        for (read, copies) in [(ReadKind::Copy, true), (ReadKind::Place, false)] {
            let mut reading = Reading::of(&Setup { read, ..setup_for_tests(64) });
            let mut seen = None;
            reading.give(&message, &mut |bytes| seen = Some((bytes.to_vec(), bytes.as_ptr())));
            let (bytes, at) = seen.unwrap();
            assert_eq!((bytes.as_slice(), at != message.as_ptr()), (&message[..], copies));
        }
    }
}
