//! One client as the engine keeps it.

use crate::engine::admission::users::Charged;
use crate::engine::admission::{CLIENT_CLOSING, CLIENT_READ_AT};
use crate::engine::client::Exchange;
use crate::engine::command::Completion;
use crate::engine::guests::{Guest, NEWS};
use crate::engine::spaced::{Loans, Spacing};
use polyrail_proto::Receipt;
use polyrail_proto::id::PortId;
use polyrail_shm::segment::PAGE_BYTES;
use polyrail_shm::{Engine as Pair, PortBell, Quota};
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::unix::UnixSocket;
use std::collections::VecDeque;
use std::sync::Arc;

/// The engine's side of one client.
pub(in crate::engine) struct Slot {
    pub pair: Pair,
    /// What its memory counts as.
    pub charge: Charged,
    pub port: PortId,
    pub exchange: Exchange,
    /// How its large messages are laid out.
    pub spacing: Option<Spacing>,
    pub(super) loans: Loans,
    /// What it may have of the memory for large messages.
    pub(super) ahead: Option<Arc<Quota>>,
    /// The client is gone; what it sent is still under way.
    pub closing: bool,
    /// Completions that found the queue full.
    pub(super) overflow: VecDeque<Completion>,
    pub(super) completed: u64,
    pub(super) consumed_seen: (u64, u64),
    /// Messages that the client has not read and whose senders want to be told, oldest first.
    pub(super) unread: VecDeque<Receipt>,
    /// So many of these it has read.
    pub(super) read_seen: u64,
    pub(super) knows_names: bool,
    pub(super) dirty: bool,
    /// Commands were taken that it has not been told of.
    pub(super) taken: bool,
    /// What the client said of its state before the last sleep.
    pub(super) state_seen: u64,
    /// Told when something is put into the queue, for a client that waits on descriptors.
    pub(super) arrived: Option<Arrived>,
    /// Whose it is, if it is in another process.
    pub guest: Option<Guest>,
    /// Where that one is rung, by the engine and by those who send to it past the engine.
    pub bell: Option<PortBell>,
}

/// How a client that waits on descriptors is told.
pub(crate) enum Arrived {
    Event(Arc<EventFd>),
    Guest(Arc<UnixSocket>),
}

impl Arrived {
    pub(super) fn tell(&self) {
        match self {
            Arrived::Event(event) => event.signal(),
            // If there is no room it has enough to read.
            Arrived::Guest(socket) => drop(socket.send(&[NEWS], &[])),
        }
    }
}

impl Slot {
    /// Whether the client handed something in or asked to be closed.
    #[inline]
    pub fn has_commands(&mut self) -> bool {
        // Its state differs once it asks to be closed, or has read what is to be told.
        let news = self.pair.words.client_state.load() != self.read_seen << CLIENT_READ_AT;
        (news || !self.pair.sq.is_empty() || self.is_lost()) && !self.closing && !self.is_deaf()
    }

    /// Whether it is a guest that does not read its answers, which would fill our memory: it is heard again when it has.
    pub(super) fn is_deaf(&self) -> bool {
        !self.overflow.is_empty() && self.guest.as_ref().is_some_and(|guest| !guest.lost)
    }

    /// Whether there is something that was not there when this was asked last, or was not taken since. A state that makes no sense is
    /// news once: no guest keeps the engine awake by it.
    pub(super) fn has_news(&mut self) -> bool {
        let state = self.pair.words.client_state.load();
        let news = std::mem::replace(&mut self.state_seen, state) != state;
        self.has_consumed() || !self.is_deaf() && (news || !self.pair.sq.is_empty())
    }

    pub fn is_asked_to_close(&self) -> bool {
        let asked = self.pair.words.client_state.load() & ((1 << CLIENT_READ_AT) - 1) == CLIENT_CLOSING;
        asked || self.is_lost()
    }

    /// Whether its process is gone. What that one left in the queue is taken, but who only pretends to be gone is not waited for.
    pub fn is_lost(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.lost)
    }

    /// Tells the client later in this turn, once what follows from its commands is there to be seen, that they were taken. One
    /// in another process can't know otherwise when to look.
    pub fn note_taken(&mut self) {
        self.taken = true;
        self.dirty |= self.guest.is_some();
    }

    /// The next message that the client has read since it was asked, of those whose senders want to be told.
    pub fn take_read(&mut self) -> Option<Receipt> {
        let read = self.pair.words.client_state.load() >> CLIENT_READ_AT;
        if self.read_seen == read {
            return None;
        }
        let receipt = self.unread.pop_front();
        // A client may claim what it likes, but it has read no more than there was.
        self.read_seen = if receipt.is_some() { self.read_seen + 1 } else { read };
        receipt
    }

    /// Whether the client gave memory back since that was noted.
    #[inline]
    pub fn has_consumed(&self) -> bool {
        self.consumed() != self.consumed_seen
    }

    pub fn note_consumed(&mut self) {
        self.consumed_seen = self.consumed();
    }

    fn consumed(&self) -> (u64, u64) {
        (self.pair.words.consumed_bytes.load(), self.pair.words.consumed_entries.load())
    }

    /// Gives the memory of a spaced message back. Where packets may still refer to its pages, they keep them, and the
    /// arena gets others.
    pub(super) fn give_back(&mut self, start: u64, confirmed: bool) {
        if let (Some(until), Some(spacing)) = (self.loans.end(start, confirmed), self.spacing) {
            // Such messages have their blocks for themselves: the rest of the last page is theirs too.
            let bytes = spacing.stored_bytes(until).next_multiple_of(PAGE_BYTES as u64);
            if !self.pair.tx.memory().renew(start, bytes as usize) {
                // It stays taken: better less memory than another message in packets of this one.
                return;
            }
        }
        self.pair.tx.release(start);
    }
}
