//! Guests: clients in other processes. What they share with the engine is theirs to spoil, so that nothing of it is lent, and
//! nothing is handed over but by copies; they are rung and ring as others do, by words in that memory.

use super::admission::denied::Denied;
use super::admission::users::{Charged, Cost, Paid, Whose};
use super::store::{Arrived, Lent};
use super::{Engine, Sizes};
use polyrail_proto::id::{PortAddress, PortId};
use polyrail_shm::Segment;
use polyrail_shm::segment::PAGE_BYTES;
use polyrail_sys::unix::UnixSocket;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The packet that tells a guest to look into its queue.
pub(crate) const NEWS: u8 = b'!';

/// Whose a port of another process is.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// The process, as numbered where this one runs; 0 if it can't be seen from here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What it calls itself.
    pub program: Arc<str>,
    /// It is gone, or has let the port go.
    pub lost: bool,
    /// Memory that it has given for large messages and not yet said what for, oldest first.
    lent: VecDeque<Lent>,
}

/// So much memory may be given before it is said what for: a port sends or receives one message after the other.
const LENT_MAX: usize = 4;
/// Its memory, its bell, and its socket.
const PORT_DESCRIPTORS: usize = 3;

impl Guest {
    pub(crate) fn new(pid: u32, uid: u32, program: Arc<str>) -> Guest {
        Guest { pid, uid, program, lost: false, lent: VecDeque::new() }
    }

    /// Whose its port is.
    pub(crate) fn whose(&self) -> Whose {
        Whose { uid: self.uid, pid: self.pid, program: self.program.clone() }
    }

    /// Memory that was given and is not in use.
    pub(super) fn lent(&self) -> impl Iterator<Item = &Lent> {
        self.lent.iter()
    }

    /// Memory that was given under this number.
    pub(super) fn take_lent(&mut self, number: u64) -> Option<Lent> {
        let at = self.lent.iter().position(|lent| lent.number == number)?;
        self.lent.remove(at)
    }
}

impl Engine {
    /// Opens a port for another process: its address, and the memory to be passed to that one: the port's and its bell's.
    pub(crate) fn open_guest(
        &mut self,
        sizes: Sizes,
        guest: Guest,
    ) -> io::Result<(PortAddress, [Arc<Segment>; 2])> {
        let bytes = sizes.segment_bytes().map_or(0, |bytes| bytes + PAGE_BYTES);
        let cost = Cost { bytes, descriptors: PORT_DESCRIPTORS };
        let charge = self.admit_port(&guest.whose(), cost).map_err(io::Error::other)?;
        let uid = guest.uid;
        let opened = self.open_admitted((sizes, charge), guest);
        if opened.is_err() {
            self.note_port_gone(uid);
        }
        opened
    }

    fn open_admitted(
        &mut self,
        paid: (Sizes, Charged),
        guest: Guest,
    ) -> io::Result<(PortAddress, [Arc<Segment>; 2])> {
        let port = self.node.open_port().map_err(io::Error::other)?;
        let opened = self.store.open_guest(port, paid, guest);
        let memory = self.or_close(port, opened)?;
        Ok((PortAddress { node: self.node.config().node, port }, memory))
    }

    /// The process of a port is gone: what it has handed in is still sent, then the port closes.
    pub(crate) fn lose_guest(&mut self, port: PortId) {
        if let Some(guest) = self.store.guest_of(port) {
            guest.lost = true;
        }
    }

    /// Takes memory that a guest gives for a message which it will name by this number.
    ///
    /// # Errors
    /// Its user has as much as it may.
    pub(crate) fn borrow_from(
        &mut self,
        port: PortId,
        number: u64,
        memory: Arc<Segment>,
    ) -> Result<(), Denied> {
        let Some(guest) = self.store.guest_of(port) else { return Ok(()) };
        if guest.lent.len() >= LENT_MAX {
            guest.lent.pop_front();
        }
        let whose = Some(guest.whose());
        // It is kept here even if its process is gone.
        let charge = self.pay(whose.as_ref(), Cost { bytes: memory.len(), descriptors: 1 })?;
        if let Some(guest) = self.store.guest_of(port) {
            guest.lent.push_back(Lent { memory, number, port, paid: Arc::new(Paid { whose, charge }) });
        }
        Ok(())
    }

    /// Tells a guest by its socket whenever something is put into its queue from now on, and now.
    pub(crate) fn watch_guest(&mut self, port: PortId, socket: Arc<UnixSocket>) {
        self.store.watch(port, Arrived::Guest(socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Budget, Client};
    use polyrail_proto::Config;
    use polyrail_proto::address::{Scope, ServiceRange};
    use polyrail_proto::id::{Incarnation, NodeId};

    const SIZES: Sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 16, rx_bytes: 1 << 16 };

    fn engine() -> Engine {
        Engine::new(0, Config::new(NodeId(1), Incarnation(1)))
    }

    fn guest() -> Guest {
        Guest::new(1, 0, "test".into())
    }

    fn opened(engine: &mut Engine) -> Client {
        let (address, memory) = engine.open_guest(SIZES, guest()).unwrap();
        let [memory, bell] = memory.map(|segment| segment.fd().unwrap().try_clone_to_owned().unwrap());
        Client::of_guest(memory, bell, address).unwrap()
    }

    #[test]
    fn who_does_not_read_its_answers_is_heard_no_more_until_it_has() {
        let mut engine = engine();
        let mut client = opened(&mut engine);
        let ask = |client: &mut Client| client.unbind(ServiceRange::new(1000, 1, 1), Scope::Node).is_ok();
        let mut asked = 0;
        for turn in 1..100 {
            asked += (0..64).filter(|_| ask(&mut client)).count();
            engine.turn(turn, Budget::USUAL);
        }
        assert!((128..=256).contains(&asked), "{asked}: its queues, and what was taken at once");
        assert!(!engine.await_calls() && !engine.await_calls(), "nor does it keep the engine awake");
        let mut answers = 0;
        for turn in 100..200 {
            answers += std::iter::from_fn(|| client.poll()).count();
            engine.turn(turn, Budget::USUAL);
        }
        assert_eq!(answers, asked);
    }

    #[test]
    fn an_arena_whose_places_would_name_another_client_is_refused() {
        let mut engine = engine();
        let large = Sizes { tx_bytes: (1 << 30) + (1 << 16), ..SIZES };
        assert!(engine.open_guest(large, guest()).is_err());
        assert!(engine.open_guest(Sizes { tx_bytes: 1 << 30, ..SIZES }, guest()).is_ok());
    }

    #[test]
    fn a_port_that_got_no_memory_is_none() {
        let mut engine = engine();
        let port = engine.node.open_port().unwrap();
        assert!(engine.node.has_port(port));
        assert!(engine.or_close(port, Err::<(), _>(io::ErrorKind::OutOfMemory.into())).is_err());
        engine.turn(1, Budget::THOROUGH);
        assert!(!engine.node.has_port(port));
    }
}
