//! Direct rings as the engine sees them: it makes them, tells both ends, and says to each when the other is gone. What goes
//! by them it does not see.

use super::Engine;
use super::command::Completion;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{PortAddress, PortId};
use polyrail_proto::node::Destination;
use polyrail_proto::time::Instant;
use polyrail_shm::{Direct, PortBell, Segment};
use std::io;
use std::sync::Arc;

/// Rings of all ports together, and those that one sends by.
const RINGS_MAX: usize = 8_192;
const RINGS_OF_PORT_MAX: usize = 256;

/// All rings.
#[derive(Default)]
pub(super) struct Directs {
    list: Vec<Ring>,
    made: u64,
}

struct Ring {
    number: u64,
    from: PortId,
    to: PortId,
    class: Class,
    memory: Direct,
    /// The sender's.
    bell: PortBell,
    same_user: bool,
    /// The receiver has it.
    taken: bool,
    /// The sender has left it.
    left: bool,
}

/// What the engine says to a port that asks for the way to another.
pub(crate) struct Found {
    /// Who gets the messages; `None`: one of several, or nobody.
    pub to: Option<PortAddress>,
    /// Which generation of the names says so.
    pub generation: u64,
    /// A new ring, its number, and the bell of the receiver.
    pub ring: Option<(u64, [Arc<Segment>; 2])>,
}

/// What the engine gives to a port that takes a ring.
pub(crate) struct Taken {
    pub from: PortAddress,
    pub class: Class,
    /// Both programs are of one user.
    pub same_user: bool,
    /// The ring, and the bell of the sender.
    pub memory: [Arc<Segment>; 2],
}

impl Engine {
    /// The way from a port to where it wants to send, with a ring for messages of `class` unless the receiver is among those to
    /// which there are `rings`, or something that the port has sent is under way.
    ///
    /// # Errors
    /// The system has no memory for a ring.
    pub(crate) fn find_way(
        &mut self,
        from: PortId,
        to: Destination,
        class: Class,
        rings: &[PortAddress],
    ) -> io::Result<Found> {
        let generation = self.node.table().generation();
        let address = match to {
            Destination::Port(to) => Some(to),
            Destination::Service(service) => self.sole_server(service),
            Destination::Connection(_) | Destination::Multicast(_) => None,
        };
        let own = self.node.config().node;
        let mut found = Found { to: address, generation, ring: None };
        if let Some(to) = address
            && to.node == own
            && to.port != from
            && !rings.contains(&to)
            && self.node.unconfirmed(from) == 0
        {
            found.ring = self.make_ring(from, to.port, class)?;
        }
        Ok(found)
    }

    /// The only port that has bound a service, wherever it is.
    fn sole_server(&self, service: ServiceAddress) -> Option<PortAddress> {
        match self.node.table().lookup(service)[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    fn make_ring(
        &mut self,
        from: PortId,
        to: PortId,
        class: Class,
    ) -> io::Result<Option<(u64, [Arc<Segment>; 2])>> {
        let of_port = self.directs.list.iter().filter(|ring| ring.from == from).count();
        if of_port >= RINGS_OF_PORT_MAX || self.directs.list.len() >= RINGS_MAX {
            return Ok(None);
        }
        let (Some(bell), Some(own)) = (self.store.bell_of(to), self.store.bell_of(from)) else {
            return Ok(None);
        };
        let mut user_of = |port| self.store.guest_of(port).map(|guest| guest.uid);
        let same_user = user_of(from) == user_of(to);
        let memory = Direct::create()?;
        self.directs.made += 1;
        let number = self.directs.made;
        let given = [memory.segment().clone(), bell.segment().clone()];
        let (taken, left) = (false, false);
        let ring = Ring { number, from, to, class, memory, bell: own, same_user, taken, left };
        self.directs.list.push(ring);
        // It stands behind all that the sender has sent before, and that was confirmed.
        self.store.complete(to, Completion::Direct(number));
        // It is told with the next turn, whatever else that one has to do.
        self.next_at = Instant::ZERO;
        Ok(Some((number, given)))
    }

    /// A port takes the ring that it was told of.
    pub(crate) fn take_ring(&mut self, port: PortId, number: u64) -> Option<Taken> {
        let at = self.directs.list.iter().position(|ring| ring.number == number && ring.to == port)?;
        let ring = &mut self.directs.list[at];
        if std::mem::replace(&mut ring.taken, true) {
            return None;
        }
        let from = PortAddress { node: self.node.config().node, port: ring.from };
        let memory = [ring.memory.segment().clone(), ring.bell.segment().clone()];
        let taken = Taken { from, class: ring.class, same_user: ring.same_user, memory };
        if ring.left {
            self.directs.list.swap_remove(at);
        }
        Some(taken)
    }

    /// A sender leaves its ring: nothing follows what is there.
    pub(super) fn leave_ring(&mut self, from: PortId, number: u64) {
        self.leave_rings(|ring| ring.number == number && ring.from == from);
    }

    /// A port is gone, and with it its ends of rings.
    pub(super) fn end_rings(&mut self, port: PortId) {
        if self.directs.list.is_empty() {
            return;
        }
        self.leave_rings(|ring| ring.from == port);
        self.directs.list.retain_mut(|ring| {
            if ring.to != port {
                return true;
            }
            ring.memory.lose_receiver();
            // It may wait for room.
            ring.bell.ring();
            false
        });
    }

    fn leave_rings(&mut self, which: impl Fn(&Ring) -> bool) {
        self.directs.list.retain_mut(|ring| {
            if !which(ring) {
                return true;
            }
            ring.memory.lose_sender();
            ring.left = true;
            !ring.taken
        });
    }

    /// A port that may ring another one's bell says that its program waits on a descriptor.
    pub(super) fn nudge(&mut self, from: PortId, port: PortId) {
        let are_joined =
            |ring: &Ring| (ring.from, ring.to) == (from, port) || (ring.to, ring.from) == (from, port);
        if self.directs.list.iter().any(are_joined) {
            self.store.nudge(port);
        }
    }
}
