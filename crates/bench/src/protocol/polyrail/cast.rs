//! One message for several nodes: as one multicast, or as a message to each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polyrail::{Destination, Node, Port, PortAddress, Scope, SendError, ServiceAddress, ServiceRange};

use super::{Polyrail, PolyrailPipe, class_of, embed};
use crate::clock::now_ns;
use crate::control::Setup;
use crate::protocol::{Caster, Listener, Pipe, Pipes, Protocol};
use crate::wait::Waiter;
use crate::workload::Workload;

/// The service of all members: an instance for each port of each node.
const SERVICE_TYPE: u32 = 1_001;

/// Multicast: every port of every node gets each message.
pub(in crate::protocol) struct Multicast;

impl Protocol for Multicast {
    fn name(&self) -> &'static str {
        "polyrail-multicast"
    }

    fn about(&self) -> &'static str {
        "Polyrail's multicast, one copy for each node, handed to the ports there"
    }

    fn striped(&self) -> bool {
        true
    }

    fn supports(&self, workload: Workload, size: usize) -> Result<(), String> {
        if workload != Workload::Multicast {
            return Err(format!("sends to several nodes at once, which {} is not about", workload.name()));
        }
        if size > MULTICAST_BYTES_MAX {
            return Err(format!("messages hold {MULTICAST_BYTES_MAX} bytes at the most"));
        }
        Ok(())
    }

    fn listen(&self, _setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&self, _setup: &Setup, _address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn caster(&self) -> Option<&dyn Caster> {
        Some(self)
    }
}

/// Largest message to several (docs/protocol.md §5.9).
const MULTICAST_BYTES_MAX: usize = 65_536;

impl Caster for Multicast {
    fn members(&self, setup: &Setup) -> io::Result<Pipes> {
        members(setup, setup.member_ports)
    }

    fn cast(&self, setup: &Setup, nodes: u32, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let instances = nodes * setup.member_ports.max(1);
        let cast = Cast::open(setup, instances, timeout)?;
        let range = ServiceRange::new(SERVICE_TYPE, 0, instances - 1);
        Ok(Box::new(Cast { to: vec![Destination::Multicast(range)], ..cast }))
    }
}

/// The same by a message to one port of each node.
impl Caster for Polyrail {
    fn members(&self, setup: &Setup) -> io::Result<Pipes> {
        members(setup, 1)
    }

    fn cast(&self, setup: &Setup, nodes: u32, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        Ok(Box::new(Cast::open(setup, nodes, timeout)?))
    }
}

/// The ports of one node, each with an instance of its own.
fn members(setup: &Setup, ports: u32) -> io::Result<Pipes> {
    let node = embed(setup, "member", &[])?;
    let open = |port: u32| -> io::Result<Box<dyn Pipe>> {
        let pipe = PolyrailPipe::open(&node, setup)?;
        let instance = setup.flow * ports + port;
        let range = ServiceRange::new(SERVICE_TYPE, instance, instance);
        pipe.port.bind(range, Scope::Cluster).map_err(io::Error::other)?;
        Ok(Box::new(pipe))
    };
    (0..ports).map(open).collect()
}

/// What sends each message to all places, one after the other.
struct Cast {
    port: Port,
    setup: Setup,
    to: Vec<Destination>,
    /// So many of them have got the present message.
    done: usize,
    _node: Arc<Node>,
}

impl Cast {
    /// Waits until all `instances` are known, and sends to the port of each.
    fn open(setup: &Setup, instances: u32, timeout: Duration) -> io::Result<Self> {
        let node = embed(setup, "sender", &[])?;
        let port = node.port().map_err(io::Error::other)?;
        let until_ns = now_ns() + timeout.as_nanos() as u64;
        let find = |instance: u32| {
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            port.wait_for(ServiceAddress::new(SERVICE_TYPE, instance), Some(left)).map_err(io::Error::other)
        };
        (0..instances).try_for_each(find)?;
        let to = (0..instances).map(|instance| address_of(&node, instance)).collect::<io::Result<_>>()?;
        Ok(Self { port, setup: setup.clone(), to, done: 0, _node: node })
    }
}

/// The port that has bound an instance: whoever sends there has nothing to look up.
fn address_of(node: &Node, instance: u32) -> io::Result<Destination> {
    let services = node.status().services;
    let found = services.iter().find(|bound| bound.kind == SERVICE_TYPE && bound.lower == instance);
    let address = found.and_then(|bound| {
        let node = u64::from_str_radix(&bound.node, 16).ok()?;
        Some(PortAddress { node: polyrail::NodeId(node), port: polyrail::PortId(bound.port) })
    });
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("member {instance} is gone again"));
    Ok(Destination::Port(address.ok_or_else(gone)?))
}

impl Pipe for Cast {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        while let Some(to) = self.to.get(self.done) {
            let class = class_of(&self.setup);
            match self.port.send_with(*to, class, None, message, Some(Waiter::BLOCK_MAX)) {
                Ok(()) => self.done += 1,
                Err(SendError::Blocked) => return Ok(false),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        self.done = 0;
        Ok(true)
    }

    fn recv(&mut self, _sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
