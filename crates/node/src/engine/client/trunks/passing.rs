//! Buffers that connections past the engine pass instead of copying them, as rings do (`direct::passing`): by the trunk's line,
//! which brings files both ways.
//!
//! A message that is passed costs no credit for bytes, for it lies in its sender's memory, but counts as one. Where it can't be passed it
//! is copied, so that no connection waits for what others have out.

use super::items::{Key, Kind, LAST, has_front, kind_of};
use super::{Blocked, PIECE_BYTES, Trunk};
use crate::engine::client::Client;
use crate::engine::client::connections::Known;
use crate::engine::client::direct::passing::{fetch_file, give, memory_of};
use crate::engine::client::slots::{self, DirectBody};
use polyrail_proto::id::ConnectionId;
use polyrail_shm::passed::PASSED_MAX;
use polyrail_shm::{Buffer, Label, PassedNumber};

/// So many of a trunk's numbers one connection has at most: what nobody reads there leaves some to the others.
const PASSED_OF_ONE_MAX: usize = PASSED_MAX as usize / 2;

impl Trunk {
    /// Whether the other end may be passed buffers.
    fn may_pass(&self) -> bool {
        self.given.same_user && !self.given.out.is_over()
    }

    /// Whether this connection has as many buffers out as it may.
    fn has_all_out(&mut self, key: Key) -> bool {
        let Trunk { given, passed_by, .. } = self;
        given.out.reclaim_passed();
        let own = |number: &usize| passed_by[*number] == key && given.out.is_passed(*number as u32);
        (0..passed_by.len()).filter(own).count() >= PASSED_OF_ONE_MAX
    }

    /// Has the other end say when it gives a buffer back, if this connection has all out that it may and has begun no copy; whether that is so.
    /// Look once more afterwards.
    fn await_own(&mut self, key: Key) -> bool {
        let is_free = self.talks.get(&key).is_some_and(|talk| talk.sending.is_none());
        let waits = is_free && self.may_pass() && self.has_all_out(key);
        if waits {
            self.waits = true;
            self.given.out.await_room();
        }
        waits
    }

    /// Passes a buffer as a message; it comes back where that can't be now.
    fn pass(
        &mut self,
        (known, key): (&mut Known, Key),
        buffer: Buffer,
        last: bool,
        room: u64,
    ) -> Result<(), Buffer> {
        // What has left of a message in pieces is followed by the rest of it.
        let is_free = self.talks.get(&key).is_some_and(|talk| talk.sending.is_none());
        if !is_free || !known.affords((0, 0)) || !self.may_pass() || self.has_all_out(key) {
            return Err(buffer);
        }
        if self.say_abort(key, room).is_err() {
            return Err(buffer);
        }
        self.pay();
        let number = if self.owed.is_empty() { self.given.out.number_of(&buffer) } else { None };
        let Some(number) = number else { return Err(buffer) };
        if number.is_new && give(&self.given.line, number.number, &buffer).is_err() {
            return Err(buffer);
        }
        let flags = if last { LAST } else { 0 };
        let len = buffer.len() as u64;
        let put = |trunk: &mut Trunk, label| trunk.put_passed(label, number, len);
        if self.say_by((Kind::Data, key, flags), room, put).is_err() {
            return Err(buffer);
        }
        self.note_passed(key, number.number, buffer);
        known.charge(0);
        Ok(())
    }

    /// There is room, as for all that has a number.
    fn put_passed(&mut self, label: Label, number: PassedNumber, len: u64) -> Result<(), Blocked> {
        self.note_rest();
        slots::put_passed(&mut self.given.out, label, None, number, len).ok_or(Blocked)?;
        self.wake();
        Ok(())
    }

    fn note_passed(&mut self, key: Key, number: u32, buffer: Buffer) {
        self.given.out.note_passed(number, buffer);
        let number = number as usize;
        if number >= self.passed_by.len() {
            self.passed_by.resize(number + 1, key);
        }
        self.passed_by[number] = key;
    }

    /// Sees to it that the file is here of the next item, which was passed; false if there is no room for it now.
    #[inline(never)]
    pub(super) fn fetch_file(&mut self, note: u32) -> bool {
        if !self.has_file {
            let front = has_front(kind_of(note));
            self.has_file = fetch_file(&mut self.given.back, &self.given.line, front);
        }
        self.has_file
    }

    /// A message that was passed, where its sender wrote it; `None`: it makes no sense, and is given back.
    pub(super) fn passed_body(&mut self, number: u32, len: usize) -> Option<DirectBody> {
        let given = &mut self.given;
        let memory = if given.same_user { memory_of(&given.back, number, len) } else { None };
        if memory.is_none() {
            given.back.return_passed(number);
        }
        Some(DirectBody::Passed { memory: memory?, number, ring: given.number })
    }
}

impl Client {
    /// Whether buffers are passed by this connection.
    pub(crate) fn may_pass_by_trunk(&mut self, id: ConnectionId) -> bool {
        self.trunks.at(id).is_some_and(|(trunk, key)| trunk.talks.contains_key(&key) && trunk.may_pass())
    }

    /// Passes a buffer by a connection past the engine. It comes back where its reader has all that it may have, who says then when one is
    /// free: to wait for that is better than to copy what is long (true). Or where it has to be copied, or nobody is there (false).
    pub(crate) fn pass_or_wait(
        &mut self,
        id: ConnectionId,
        buffer: Buffer,
        last: bool,
    ) -> Result<(), (Buffer, bool)> {
        let Err(buffer) = self.pass_by_trunk(id, buffer, last) else { return Ok(()) };
        // By itself its end would not be seen, nor what was read.
        self.sort_fresh();
        let is_long = buffer.len() > PIECE_BYTES;
        if !is_long || !self.trunks.at(id).is_some_and(|(trunk, key)| trunk.await_own(key)) {
            return Err((buffer, false));
        }
        let is_there = self.connections.get_mut(id).is_some_and(|known| known.over.is_none() && !known.deaf);
        self.pass_by_trunk(id, buffer, last).map_err(|buffer| (buffer, is_there))
    }

    pub(in crate::engine::client) fn pass_by_trunk(
        &mut self,
        id: ConnectionId,
        buffer: Buffer,
        last: bool,
    ) -> Result<(), Buffer> {
        let room = self.room();
        let Client { trunks, connections, .. } = self;
        let Some((trunk, key)) = trunks.at(id) else { return Err(buffer) };
        let Some(known) = connections.get_mut(id) else { return Err(buffer) };
        if known.over.is_some() || known.deaf || known.sent_all {
            return Err(buffer);
        }
        let passed = trunk.pass((known, key), buffer, last, room);
        if passed.is_ok() {
            known.sent_all |= last;
            self.directs.count_sent();
        }
        passed
    }

    /// Takes back what was passed by trunks and given back; whether that is all.
    pub(in crate::engine::client) fn reclaim_passed_by_trunks(&mut self) -> bool {
        let mut all_back = true;
        self.trunks.list.iter_mut().for_each(|trunk| all_back &= trunk.given.out.reclaim_passed());
        all_back
    }

    /// Has whoever has buffers of ours by trunks say when one is given back. Look once more afterwards.
    pub(in crate::engine::client) fn await_passed_by_trunks(&mut self) {
        for trunk in &mut self.trunks.list {
            if !trunk.given.out.reclaim_passed() {
                trunk.waits = true;
                trunk.given.out.await_room();
            }
        }
    }
}
