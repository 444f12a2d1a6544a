//! Connections that go past the engine: by a trunk, which is a ring each way between two ports and carries all connections between
//! the two of one class (ARCHITECTURE.md, "Direct connections").
//!
//! What the engine does for other connections, the two ends do themselves here: they refuse what finds no room, grant credit,
//! and forget a connection when both halves have ended. Each end believes of the other only what harms nobody but that one.

mod arrivals;
mod counted;
mod items;
mod opening;
mod passing;
mod reading;
mod sending;
#[cfg(test)]
mod tests;

use super::connections::Connections;
use super::slots::{self, DirectBody};
use super::{Blocked, lines};
use crate::attach::GivenTrunk;
use counted::Counted;
use items::{ANSWER, DEAF, Key, Kind, LAST, id_of, note, place_of};
use polyrail_proto::id::ConnectionId;
use polyrail_proto::limits::{EAGER_BYTES_MAX, INITIAL_CREDIT};
use polyrail_shm::Label;
use polyrail_sys::unix::UnixSocket;
use std::collections::{BTreeMap, VecDeque};

/// Connections of one trunk at a time.
const TALKS_MAX: usize = 4_096;
/// Those of them that wait for an answer: so many refusals find a place at the other end, whatever the ring holds.
const UNANSWERED_MAX: usize = 1_000;
/// A message that does not fit at once goes in pieces of so many bytes, each in a block of the arena.
const PIECE_BYTES: usize = EAGER_BYTES_MAX as usize;
/// What a connection may have unread: at first, and where its reader keeps up.
const WINDOW: (u64, u64) = (INITIAL_CREDIT.0 as u64, INITIAL_CREDIT.1 as u64);
const WINDOW_BYTES_MAX: u64 = 2 << 20;
/// What all connections of a trunk have beyond that.
const EXTRA_BYTES_MAX: u64 = 32 << 20;

/// What came by a connection past the engine.
#[derive(Debug)]
pub struct Past {
    pub(crate) part: Part,
    pub(crate) len: usize,
    pub(crate) body: DirectBody,
}

/// How much of a message it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Whole,
    /// A piece of one of so many bytes.
    Piece(u64),
    /// What came of the last one was in vain.
    Abort,
}

/// The trunks of one client.
#[derive(Default)]
pub(super) struct Trunks {
    list: Vec<Trunk>,
    /// Announced by the engine, and not taken yet.
    offered: Vec<u64>,
    made: u16,
    /// So many requests may wait for the port.
    backlog: u32,
    /// Accepted connections whose other ends were not told.
    owing: Vec<ConnectionId>,
    /// Others may have to be told how many connections they may ask for.
    unsure: bool,
    counted: Counted,
}

/// One trunk, as one end knows it.
struct Trunk {
    index: u16,
    given: GivenTrunk,
    talks: BTreeMap<Key, Talk>,
    /// Number of the connection that we ask for next, if that one is free.
    next: u16,
    /// The ring was full, and this end is woken when it is not.
    waits: bool,
    /// What found no room, and can't wait for it.
    owed: VecDeque<Label>,
    /// Connections that we have asked for in all, and how many we may.
    asked: u64,
    granted: u64,
    unanswered: usize,
    /// Those that the other end has asked for, and how many it knows that it may.
    heard: u64,
    told: u64,
    /// Something was taken since something was last put in.
    rested: bool,
    /// Bytes of the arena that the program has, and bytes of copies.
    lent: u64,
    copied: u64,
    /// What windows are larger than at first.
    extra: u64,
    /// Which connection passed a buffer under each number last.
    passed_by: Vec<Key>,
    /// The file that comes with the next item was fetched, if there is one.
    has_file: bool,
}

/// One connection, as far as that is no business of the program's.
struct Talk {
    /// Who asks waits to be told.
    waits: bool,
    answered: bool,
    /// It was accepted, and the other side was not told yet.
    owes_answer: bool,
    said_all: bool,
    said_deaf: bool,
    heard_all: bool,
    /// Nobody reads it here any more.
    dropped: bool,
    /// What came in all, what was read, and what may come: bytes, messages.
    came: (u64, u64),
    read: (u64, u64),
    granted: (u64, u64),
    window: (u64, u64),
    /// The most bytes that could be sent at any moment.
    most: u64,
    /// So many bytes of a message have left in pieces.
    sending: Option<usize>,
    /// Such a message was given up, and the other end was not told yet.
    owes_abort: bool,
}

impl Talk {
    fn new(waits: bool) -> Talk {
        Talk {
            waits,
            answered: false,
            owes_answer: false,
            said_all: false,
            said_deaf: false,
            heard_all: false,
            dropped: false,
            came: (0, 0),
            read: (0, 0),
            granted: WINDOW,
            window: WINDOW,
            most: 0,
            sending: None,
            owes_abort: false,
        }
    }

    fn is_over(&self) -> bool {
        self.said_all && self.heard_all
    }
}

/// Whether a connection goes past the engine.
pub(crate) fn is_past(id: ConnectionId) -> bool {
    place_of(id).is_some()
}

impl Trunk {
    /// Puts an item into the ring, and wakes who waits for it.
    fn put(&mut self, label: Label, front: Option<u64>, bytes: &[u8]) -> Result<(), Blocked> {
        self.pay();
        if !self.owed.is_empty() {
            return Err(Blocked);
        }
        self.put_now(label, front, bytes)
    }

    fn put_now(&mut self, label: Label, front: Option<u64>, bytes: &[u8]) -> Result<(), Blocked> {
        self.note_rest();
        let out = &mut self.given.out;
        if slots::put(out, label, front, bytes).is_none() {
            out.await_room();
            self.waits = true;
            slots::put(out, label, front, bytes).ok_or(Blocked)?;
        }
        self.wake();
        Ok(())
    }

    fn note_rest(&mut self) {
        if std::mem::take(&mut self.rested) {
            self.given.out.rest();
        }
    }

    /// Something was put in: wakes who waits for it.
    fn wake(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.given.out.forget_room();
        }
        self.ring();
    }

    /// Wakes the other end.
    fn ring(&self) {
        if self.given.bell.ring() {
            lines::tell(&self.given.line);
        }
    }

    /// Says what is owed, as far as there is room.
    fn pay(&mut self) {
        while let Some(label) = self.owed.front().copied() {
            if self.put_now(label, None, &[]).is_err() {
                break;
            }
            self.owed.pop_front();
        }
    }

    fn id(&self, key: Key) -> ConnectionId {
        id_of(self.index, key)
    }

    /// How many connections the other end may have asked for in all, if so many more may wait here.
    fn grant(&self, room: u64) -> u64 {
        self.heard + room
    }

    /// Whether the other end may ask for less than half of what may wait here.
    fn is_short(&self, backlog: u32) -> bool {
        2 * self.told.saturating_sub(self.heard) < u64::from(backlog)
    }

    /// A number that no connection of ours has. They go round, so that what is still under way for one is never taken for another.
    /// `None`: the program holds one of each, over or not.
    fn free_key(&mut self, connections: &Connections) -> Option<Key> {
        (0..=u16::MAX).find_map(|_| {
            let key = Key { ours: true, number: self.next };
            self.next = self.next.wrapping_add(1);
            let is_free = !self.talks.contains_key(&key) && !connections.knows(self.id(key));
            is_free.then_some(key)
        })
    }

    /// Forgets a connection if both halves have ended.
    fn retire(&mut self, key: Key) {
        if self.talks.get(&key).is_some_and(Talk::is_over) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(talk) = self.talks.remove(&key) else { return };
        self.extra -= talk.window.0 - WINDOW.0;
        self.unanswered -= usize::from(key.ours && !talk.answered);
    }

    /// Says something of a connection, and that it is accepted if that was not said: how many may be asked for stands beside that.
    fn say(&mut self, what: (Kind, Key, u32), room: u64, bytes: &[u8]) -> Result<(), Blocked> {
        self.say_by(what, room, |trunk, label| trunk.put(label, None, bytes))
    }

    /// The same, put in by whatever way.
    fn say_by(
        &mut self,
        (kind, key, flags): (Kind, Key, u32),
        room: u64,
        put: impl FnOnce(&mut Trunk, Label) -> Result<(), Blocked>,
    ) -> Result<(), Blocked> {
        let owes_answer = self.talks.get(&key).is_some_and(|talk| talk.owes_answer);
        let grant = self.grant(room);
        let (answer, meta) = if owes_answer { (ANSWER, grant) } else { (0, 0) };
        put(self, Label { note: note(kind, key, key.side() | flags | answer), meta })?;
        let Some(talk) = self.talks.get_mut(&key) else { return Ok(()) };
        if owes_answer {
            (talk.owes_answer, talk.answered) = (false, true);
            self.told = self.told.max(grant);
        }
        talk.said_all |= flags & LAST != 0;
        talk.said_deaf |= flags & DEAF != 0;
        self.retire(key);
        Ok(())
    }
}

impl Trunks {
    pub(super) fn lines(&self) -> impl Iterator<Item = &UnixSocket> {
        self.list.iter().map(|trunk| &trunk.given.line)
    }

    fn at(&mut self, id: ConnectionId) -> Option<(&mut Trunk, Key)> {
        let (index, key) = place_of(id)?;
        Some((self.list.iter_mut().find(|trunk| trunk.index == index)?, key))
    }
}
