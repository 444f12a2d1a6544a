//! Guests: clients in other processes. What they share with the engine is theirs to spoil, so that nothing of it is lent, and
//! nothing is handed over but by copies; they are rung and ring as others do, by words in that memory.

use super::store::{Arrived, Lent};
use super::{Engine, Sizes};
use polyrail_proto::id::{PortAddress, PortId};
use polyrail_shm::Segment;
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

impl Guest {
    pub(crate) fn new(pid: u32, uid: u32, program: Arc<str>) -> Guest {
        Guest { pid, uid, program, lost: false, lent: VecDeque::new() }
    }

    /// Memory that was given under this number.
    pub(super) fn take_lent(&mut self, number: u64) -> Option<Lent> {
        let at = self.lent.iter().position(|lent| lent.number == number)?;
        self.lent.remove(at)
    }
}

impl Engine {
    /// Opens a port for another process: its address, and the memory to be passed to that one.
    pub(crate) fn open_guest(
        &mut self,
        sizes: Sizes,
        guest: Guest,
    ) -> io::Result<(PortAddress, Arc<Segment>)> {
        let port = self.node.open_port().map_err(io::Error::other)?;
        let segment = self.store.open_guest(port, sizes, guest)?;
        Ok((PortAddress { node: self.node.config().node, port }, segment))
    }

    /// The process of a port is gone: what it has handed in is still sent, then the port closes.
    pub(crate) fn lose_guest(&mut self, port: PortId) {
        if let Some(guest) = self.store.guest_of(port) {
            guest.lost = true;
        }
    }

    /// Takes memory that a guest gives for a message which it will name by this number.
    pub(crate) fn borrow_from(&mut self, port: PortId, number: u64, memory: Arc<Segment>) {
        if let Some(guest) = self.store.guest_of(port) {
            if guest.lent.len() >= LENT_MAX {
                guest.lent.pop_front();
            }
            guest.lent.push_back(Lent { memory, number, port });
        }
    }

    /// Tells a guest by its socket whenever something is put into its queue from now on, and now.
    pub(crate) fn watch_guest(&mut self, port: PortId, socket: Arc<UnixSocket>) {
        self.store.watch(port, Arrived::Guest(socket));
    }

    /// Has guests ring from now on when they hand something in, and looks whether one has already.
    pub(crate) fn await_guests(&mut self) -> bool {
        self.store.guests > 0 && self.store.await_guests()
    }

    /// Has guests ring no more, for their queues are looked at.
    pub(crate) fn attend_guests(&mut self) {
        if self.store.guests > 0 {
            self.store.attend_guests();
        }
    }
}
