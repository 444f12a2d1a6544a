//! Direct rings and trunks as the engine sees them: it makes them, tells both ends, and says to each when the other is gone. What
//! goes by them it does not see.

use super::Engine;
use super::admission::denied::Reason;
use super::admission::users::{Cost, Paid};
use super::command::Completion;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{PortAddress, PortId};
use polyrail_proto::node::Destination;
use polyrail_proto::time::Instant;
use polyrail_shm::{Direct, PortBell, Segment};
use polyrail_sys::unix::UnixSocket;
use std::io;
use std::sync::Arc;

/// Rings of all ports together, and those that one sends by.
const RINGS_MAX: usize = 8_192;
pub(super) const RINGS_OF_PORT_MAX: usize = 256;
/// Those that the ports of one user send by.
const RINGS_OF_USER_MAX: usize = RINGS_MAX / 2;
/// Trunks that lead to a port, for it looks at each of them.
const TRUNKS_TO_PORT_MAX: usize = 64;

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
    /// Of a trunk: the ring the other way.
    back: Option<Direct>,
    /// The receiver's end of the line between the two, until it has it.
    line: Option<UnixSocket>,
    /// The sender's.
    bell: PortBell,
    same_user: bool,
    /// The receiver has it.
    taken: bool,
    /// The sender has left it.
    left: bool,
    /// Whose it is: who asked for it.
    paid: Paid,
}

impl Ring {
    /// What an end gets, the bell being the other end's.
    fn given(&self, bell: &PortBell, line: Option<UnixSocket>) -> Given {
        let back = self.back.as_ref().map(|back| back.segment().clone());
        let memory =
            [self.memory.segment().clone(), bell.segment().clone()].into_iter().chain(back).collect();
        Given { memory, line }
    }
}

/// What an end of a ring or trunk gets.
#[derive(Default)]
pub(crate) struct Given {
    /// The ring, the bell of the other end, and of a trunk the ring the other way.
    pub memory: Vec<Arc<Segment>>,
    /// A socket to the other end, by which each notices when that one is gone, though this engine may be gone too; and files go from
    /// sender to receiver, if buffers are passed.
    pub line: Option<UnixSocket>,
}

/// What is to go past the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Messages: a ring.
    Ring,
    /// Connections: a trunk, which is a ring each way.
    Trunk,
}

/// What the engine says to a port that asks for the way to another.
pub(crate) struct Found {
    /// Who gets the messages; `None`: one of several, or nobody.
    pub to: Option<PortAddress>,
    /// Which generation of the names says so.
    pub generation: u64,
    /// A new ring or trunk, and its number.
    pub ring: Option<(u64, Given)>,
    /// There is none to that port, and is to be none.
    pub refused: bool,
    /// Both programs are of one user.
    pub same_user: bool,
    /// So many more connections may wait for the port.
    pub backlog: u32,
}

/// What the engine gives to a port that takes a ring.
pub(crate) struct Taken {
    pub from: PortAddress,
    pub class: Class,
    /// Both programs are of one user.
    pub same_user: bool,
    pub given: Given,
}

impl Engine {
    /// The way from a port to where it wants to send, with what is `wanted` for `class` unless the receiver is among those to
    /// which there are `rings`, or something that the port has sent is under way, which a ring of messages must not overtake.
    ///
    /// # Errors
    /// The system has no memory for a ring.
    pub(crate) fn find_way(
        &mut self,
        from: PortId,
        to: Destination,
        (class, wanted): (Class, Wanted),
        rings: &[PortAddress],
    ) -> io::Result<Found> {
        let generation = self.node.table().generation();
        let address = match to {
            Destination::Port(to) => Some(to),
            Destination::Service(service) => self.sole_server(service),
            Destination::Connection(_) | Destination::Multicast(_) => None,
        };
        let own = self.node.config().node;
        let mut found =
            Found { to: address, generation, ring: None, refused: false, same_user: false, backlog: 0 };
        if let Some(to) = address
            && to.node == own
            && to.port != from
            && !rings.contains(&to)
            && (wanted == Wanted::Ring || self.node.listening(to.port).is_some())
            && (wanted == Wanted::Trunk || self.node.unconfirmed(from) == 0 && self.store.has_taken_all(from))
        {
            found.ring = self.make_ring(from, to.port, (class, wanted))?;
            found.refused = found.ring.is_none();
            found.backlog = match self.node.listening(to.port) {
                Some((backlog, waiting)) => backlog.saturating_sub(waiting as u32),
                None => 0,
            };
            found.same_user = self.are_of_one_user(from, to.port);
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
        (class, wanted): (Class, Wanted),
    ) -> io::Result<Option<(u64, Given)>> {
        let of_port = self.directs.list.iter().filter(|ring| ring.from == from).count();
        let trunks = self.directs.list.iter().filter(|ring| ring.to == to && ring.back.is_some()).count();
        if of_port >= RINGS_OF_PORT_MAX
            || self.directs.list.len() >= RINGS_MAX
            || wanted == Wanted::Trunk && trunks >= TRUNKS_TO_PORT_MAX
        {
            return Ok(None);
        }
        let (Some(bell), Some(own)) = (self.store.bell_of(to), self.store.bell_of(from)) else {
            return Ok(None);
        };
        let same_user = self.are_of_one_user(from, to);
        let memory = Direct::create()?;
        let (back, told): (_, fn(u64) -> Completion) = match wanted {
            Wanted::Ring => (None, Completion::Direct),
            Wanted::Trunk => (Some(Direct::create()?), Completion::Trunk),
        };
        let Some(paid) = self.pay_ring(from, std::iter::once(&memory).chain(&back)) else { return Ok(None) };
        let (receivers, senders) = UnixSocket::pair()?;
        self.directs.made += 1;
        let number = self.directs.made;
        let (taken, left) = (false, false);
        let line = Some(receivers);
        let ring =
            Ring { number, from, to, class, memory, back, line, bell: own, same_user, taken, left, paid };
        let given = ring.given(&bell, Some(senders));
        self.directs.list.push(ring);
        // A ring stands behind all that the sender has sent before, and that was confirmed.
        self.store.complete(to, told(number));
        // It is told with the next turn, whatever else that one has to do.
        self.next_at = Instant::ZERO;
        Ok(Some((number, given)))
    }

    /// Has a new ring count to the user of the port that asked for it. `None`: it may not have it, and its messages go by the engine.
    fn pay_ring<'a>(&mut self, from: PortId, memory: impl Iterator<Item = &'a Direct>) -> Option<Paid> {
        let whose = self.store.guest_of(from)?.whose();
        let own = |ring: &&Ring| ring.paid.whose.as_ref().is_some_and(|other| other.uid == whose.uid);
        if self.directs.list.iter().filter(own).count() >= RINGS_OF_USER_MAX {
            // A program is not told, for it lacks nothing.
            self.users.deny(Some(whose.uid), Reason::Rings, String::new());
            return None;
        }
        // The line to whoever has not taken it yet.
        let line = Cost { bytes: 0, descriptors: 1 };
        let cost = memory.fold(line, |cost, direct| Cost {
            bytes: cost.bytes + direct.segment().len(),
            descriptors: cost.descriptors + 1,
        });
        let charge = self.pay(Some(&whose), cost).ok()?;
        Some(Paid { whose: Some(whose), charge })
    }

    /// All rings and trunks: what they count as, and their memory.
    pub(super) fn rings(&self) -> impl Iterator<Item = (Wanted, &Paid, [Option<&Arc<Segment>>; 2])> {
        self.directs.list.iter().map(|ring| {
            let kind = if ring.back.is_some() { Wanted::Trunk } else { Wanted::Ring };
            (kind, &ring.paid, [Some(ring.memory.segment()), ring.back.as_ref().map(Direct::segment)])
        })
    }

    fn are_of_one_user(&mut self, one: PortId, other: PortId) -> bool {
        let [one, other] = [one, other].map(|port| self.store.guest_of(port).map(|guest| guest.uid));
        one == other
    }

    /// A port takes the ring that it was told of.
    pub(crate) fn take_ring(&mut self, port: PortId, number: u64) -> Option<Taken> {
        let at = self.directs.list.iter().position(|ring| ring.number == number && ring.to == port)?;
        let ring = &mut self.directs.list[at];
        if std::mem::replace(&mut ring.taken, true) {
            return None;
        }
        let from = PortAddress { node: self.node.config().node, port: ring.from };
        let line = ring.line.take();
        let given = ring.given(&ring.bell, line);
        let taken = Taken { from, class: ring.class, same_user: ring.same_user, given };
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
        let mut told = Vec::new();
        self.directs.list.retain_mut(|ring| {
            if ring.to != port {
                return true;
            }
            ring.memory.lose_receiver();
            let back = ring.back.as_mut();
            back.into_iter().for_each(Direct::lose_sender);
            // It may wait for room, or for what would have come back.
            if ring.bell.ring() {
                told.push(ring.from);
            }
            false
        });
        told.into_iter().for_each(|port| self.store.nudge(port));
    }

    fn leave_rings(&mut self, which: impl Fn(&Ring) -> bool) {
        let mut told = Vec::new();
        self.directs.list.retain_mut(|ring| {
            if !which(ring) {
                return true;
            }
            ring.memory.lose_sender();
            if let Some(back) = &mut ring.back {
                // Its connections are over, and somebody may wait for what would have come by them.
                back.lose_receiver();
                told.push(ring.to);
            }
            ring.left = true;
            !ring.taken
        });
        for port in told {
            if self.store.bell_of(port).is_some_and(|bell| bell.ring()) {
                self.store.nudge(port);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Budget, Client, Guest, Sizes};
    use polyrail_proto::Config;
    use polyrail_proto::id::{Incarnation, NodeId};

    const SIZES: Sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 16, rx_bytes: 1 << 16 };

    fn opened(engine: &mut Engine, uid: u32) -> Client {
        let (address, memory) = engine.open_guest(SIZES, Guest::new(1, uid, "test".into())).unwrap();
        let [memory, bell] = memory.map(|segment| segment.fd().unwrap().try_clone_to_owned().unwrap());
        Client::of_guest(memory, bell, address).unwrap()
    }

    #[test]
    fn there_is_no_ring_before_all_that_was_handed_in_has_arrived() {
        let mut engine = Engine::new(0, Config::new(NodeId(1), Incarnation(1)));
        let (mut sender, receiver) = (opened(&mut engine, 1), opened(&mut engine, 2));
        let (from, to) = (sender.address().port, Destination::Port(receiver.address()));
        let ring =
            |engine: &mut Engine| engine.find_way(from, to, (Class::Normal, Wanted::Ring), &[]).unwrap().ring;
        sender.send(to, Class::Normal, None, b"first").unwrap();
        assert!(ring(&mut engine).is_none(), "the engine has not even taken it");
        for turn in 1..20 {
            engine.turn(turn * 1_000_000, Budget::THOROUGH);
        }
        // Nobody delivers to a node without a loopback.
        assert_eq!(engine.node.unconfirmed(from) == 0, ring(&mut engine).is_some());
    }

    #[test]
    fn rings_are_forgotten_when_either_end_is_gone_and_are_taken_once_by_whom_they_lead_to() {
        let mut engine = Engine::new(0, Config::new(NodeId(1), Incarnation(1)));
        let (one, other, third) = (opened(&mut engine, 1), opened(&mut engine, 2), opened(&mut engine, 1));
        let ports = [&one, &other, &third].map(|client| client.address().port);
        let ring = |engine: &mut Engine, from: usize, to: &Client| {
            let to = Destination::Port(to.address());
            engine
                .find_way(ports[from], to, (Class::Normal, Wanted::Ring), &[])
                .unwrap()
                .ring
                .map(|(number, _)| number)
        };
        let numbers =
            [ring(&mut engine, 0, &other), ring(&mut engine, 2, &one), ring(&mut engine, 1, &third)];
        let numbers = numbers.map(Option::unwrap);
        assert!(engine.take_ring(ports[2], numbers[0]).is_none(), "it is another's");
        assert!(!engine.take_ring(ports[1], numbers[0]).unwrap().same_user);
        assert!(engine.take_ring(ports[1], numbers[0]).is_none(), "once");
        assert!(engine.take_ring(ports[0], numbers[1]).unwrap().same_user);
        engine.end_rings(ports[0]);
        assert_eq!(engine.directs.list.len(), 1);
        // What was put into a ring that its receiver has not taken is still read.
        engine.end_rings(ports[1]);
        assert_eq!(engine.directs.list.len(), 1);
        assert!(engine.take_ring(ports[2], numbers[2]).is_some());
        assert!(engine.directs.list.is_empty());
        assert!(ring(&mut engine, 0, &one).is_none(), "nobody needs a ring to itself");
    }
}
