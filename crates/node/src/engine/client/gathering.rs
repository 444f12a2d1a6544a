//! Writes of a stream are put together while their writer is faster than it pays to hand each in.
//!
//! They are laid out in the arena one behind the other as one message that is still open (`polyrail_shm::open_entry`):
//! the client hands it in when it is full or something must come after it, and the engine takes it as it is when it looks
//! for what there is to do. So nothing is copied twice, and nothing waits for a writer that has gone silent.

use super::{Blocked, Client};
use crate::engine::command::{Body, Command};
use polyrail_proto::flow::Class;
use polyrail_proto::id::ConnectionId;
use polyrail_proto::node::Destination;

/// Bytes that are gathered at most.
pub const GATHERED_BYTES_MAX: usize = 262_144;

/// What is being gathered.
#[derive(Clone, Copy)]
pub(super) struct Gathering {
    id: ConnectionId,
    class: Class,
    /// Where it lies in the arena.
    start: u64,
    len: u64,
    cookie: u64,
}

impl Gathering {
    fn command(&self) -> Command {
        Command::Send {
            to: Destination::Connection(self.id),
            class: self.class,
            tag: None,
            body: Body::Spaced(self.start),
            len: self.len,
            cookie: self.cookie,
        }
    }
}

/// What became of bytes that were gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gathered {
    /// They wait for more, or for the engine.
    Kept,
    /// They were handed in with what was there before: there is enough for the engine to do.
    HandedIn,
}

impl Client {
    /// Whether this client's memory is laid out so that streams can be gathered.
    pub fn gathers(&self) -> bool {
        self.spacing.is_some()
    }

    /// Adds `bytes`, at most [`GATHERED_BYTES_MAX`], to what is gathered for a stream.
    pub fn gather(&mut self, id: ConnectionId, class: Class, bytes: &[u8]) -> Result<Gathered, Blocked> {
        if !self.add(id, class, bytes) {
            self.hand_in_gathered()?;
            self.begin(id, class, bytes).ok_or(Blocked)?;
        }
        let full = self.gathering.is_some_and(|g| g.len as usize + bytes.len() > GATHERED_BYTES_MAX);
        // If there is no room for it now it waits, as it may.
        let handed_in = full && self.hand_in_gathered().is_ok();
        Ok(if handed_in { Gathered::HandedIn } else { Gathered::Kept })
    }

    /// Adds bytes to what is open; false if they belong elsewhere or the engine has just taken it.
    fn add(&mut self, id: ConnectionId, class: Class, bytes: &[u8]) -> bool {
        let Some(mut open) = self.gathering else { return false };
        let len = open.len + bytes.len() as u64;
        if open.id != id || open.class != class || len > GATHERED_BYTES_MAX as u64 {
            return false;
        }
        if self.lay_behind(open.start, open.len, bytes).is_none() || !self.pair.open.extend(len as u32) {
            return false;
        }
        open.len = len;
        self.gathering = Some(open);
        true
    }

    fn begin(&mut self, id: ConnectionId, class: Class, bytes: &[u8]) -> Option<()> {
        let spacing = self.spacing?;
        if !self.may_send(Destination::Connection(id), bytes.len() as u64) {
            return None;
        }
        let start = self.alloc(spacing.stored_bytes(GATHERED_BYTES_MAX as u64))?;
        self.lay_behind(start, 0, bytes)?;
        let open = Gathering { id, class, start, len: bytes.len() as u64, cookie: self.sent };
        self.sent += 1;
        self.pair.words.accepted.store(self.sent);
        self.pair.open.open(&open.command().encode(), open.len as u32);
        self.gathering = Some(open);
        Some(())
    }

    /// Copies bytes behind the `len` that lie at `start` already.
    fn lay_behind(&mut self, start: u64, len: u64, bytes: &[u8]) -> Option<()> {
        let memory = self.pair.tx.memory();
        let mut rest = bytes;
        for (at, stretch) in self.spacing?.stretches(len, bytes.len() as u64) {
            let (now, later) = rest.split_at(stretch as usize);
            memory.write_at(start + at, now)?;
            rest = later;
        }
        Some(())
    }

    /// Hands in what was gathered, unless the engine has taken it.
    pub fn hand_in_gathered(&mut self) -> Result<(), Blocked> {
        let Some(open) = self.gathering else { return Ok(()) };
        if self.pair.sq.free() == 0 {
            return Err(Blocked);
        }
        self.gathering = None;
        if self.pair.open.close() {
            self.pair.sq.push(&open.command().encode()).expect("there is room, and nobody else writes");
        }
        self.note_sent(Destination::Connection(open.id), open.len);
        Ok(())
    }

    /// Something for `id` is to come after what was gathered for it.
    pub(super) fn close_gathered(&mut self, id: ConnectionId) -> Result<(), Blocked> {
        if self.gathering.is_some_and(|open| open.id == id) { self.hand_in_gathered() } else { Ok(()) }
    }
}
