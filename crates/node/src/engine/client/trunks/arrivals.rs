//! What comes by trunks: each item is put where it belongs.

use super::items::{
    ANSWER, DEAF, FIRST, Key, Kind, LAST, SERVED, STREAM, WAITS, has_front, key_of, kind_of, note,
};
use super::{EXTRA_BYTES_MAX, Part, Past, TALKS_MAX, Talk, Trunk, UNANSWERED_MAX, WINDOW, WINDOW_BYTES_MAX};
use crate::engine::client::connections::{Connections, Known, Request};
use crate::engine::client::slots::{self, DirectBody, Payload, Shorts};
use crate::engine::client::{Arrival, Client};
use crate::engine::command::Ended;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::limits::credit_cost;
use polyrail_shm::{DIRECT_ARENA_BYTES, Label};

/// Items taken of a trunk before the others have their turn.
const ITEMS_MAX: u32 = 1_024;
/// So much of the arena the program may have; what is longer is copied, so that what one connection does not read holds up no other.
const LENT_BYTES_MAX: u64 = DIRECT_ARENA_BYTES / 2;
/// So much is copied for programs that do not read before the trunk waits for them.
const COPIED_BYTES_MAX: u64 = 64 << 20;
/// So much may be owed to who does not read: more than an end that keeps to its part can be refused.
const OWED_MAX: usize = UNANSWERED_MAX + 24;

impl Client {
    /// Takes in what has come by trunks.
    #[inline]
    pub(crate) fn sort_trunks(&mut self) {
        if self.has_trunks() {
            self.sort_all_trunks();
        }
    }

    fn sort_all_trunks(&mut self) {
        let backlog = self.trunks.backlog as usize;
        let mut has_ended = false;
        for at in 0..self.trunks.list.len() {
            let Client { trunks, connections, shorts, .. } = self;
            let trunk = &mut trunks.list[at];
            // In this order: what was put in before the end was told is seen now.
            let is_over = trunk.given.back.is_over();
            trunk.take_all((connections, shorts), backlog);
            trunk.tell();
            trunks.unsure |= !trunk.owed.is_empty();
            has_ended |= is_over;
        }
        if has_ended {
            self.end_trunks();
        }
    }

    /// Notes which trunks have no other end any more: the engine, which would have said so, is gone.
    pub(in crate::engine::client) fn look_for_ended_trunks(&mut self) {
        for trunk in &mut self.trunks.list {
            if trunk.given.line.has_ended() {
                trunk.given.out.lose_receiver();
                trunk.given.back.lose_sender();
            }
        }
    }

    /// Forgets trunks whose other ends are gone, once all was read.
    fn end_trunks(&mut self) {
        let Client { trunks, connections, .. } = self;
        trunks.list.retain_mut(|trunk| {
            let stays = !trunk.given.back.is_over() || trunk.given.back.peek().is_some();
            if !stays {
                trunk.end(connections);
            }
            stays
        });
    }
}

impl Trunk {
    /// Tells the other end how far this one is, and wakes it if it waits for room.
    pub(super) fn tell(&mut self) {
        if self.given.back.tell() {
            self.ring();
        }
    }

    fn take_all(&mut self, (connections, shorts): (&mut Connections, &mut Shorts), backlog: usize) {
        for _ in 0..ITEMS_MAX {
            if self.owed.len() >= OWED_MAX || self.copied >= COPIED_BYTES_MAX {
                break;
            }
            let Some(label) = self.given.back.peek() else { break };
            if slots::is_passed(label.note) && !self.fetch_file(label.note) {
                break;
            }
            self.take((connections, shorts), backlog, label);
            self.rested = true;
        }
    }

    fn take(&mut self, (connections, shorts): (&mut Connections, &mut Shorts), backlog: usize, label: Label) {
        let Label { note, meta } = label;
        let (kind, key) = (kind_of(note), key_of(note));
        let (front, payload) = slots::take(&mut self.given.back, shorts, note, has_front(kind));
        self.has_file = false;
        match kind {
            Kind::Open => self.take_request(connections, backlog, (label, key), payload),
            Kind::Signal => self.take_flags(connections, key, label),
            Kind::Data => {
                self.take_message(connections, key, Part::Whole, payload);
                self.take_flags(connections, key, label);
            }
            Kind::Piece => {
                self.take_message(connections, key, Part::Piece(meta), payload);
                self.take_flags(connections, key, Label { note: note & !ANSWER, meta });
            }
            Kind::Abort => {
                self.take_message(connections, key, Part::Abort, payload);
                self.take_flags(connections, key, label);
            }
            Kind::Credit => {
                if let Some(known) = connections.get_mut(self.id(key)) {
                    known.granted = (known.granted.0.max(meta), known.granted.1.max(front));
                }
            }
            Kind::Refuse => {
                self.take_grant(meta >> 8);
                self.take_refusal(connections, key, meta as u8);
            }
            Kind::Grant => self.take_grant(meta),
        }
    }

    fn take_grant(&mut self, grant: u64) {
        self.granted = self.granted.max(grant);
    }

    /// Somebody wants a connection.
    fn take_request(
        &mut self,
        connections: &mut Connections,
        backlog: usize,
        (Label { note, meta }, key): (Label, Key),
        payload: Payload,
    ) {
        self.heard += 1;
        // A number that is taken makes no sense, and what it says is of no use.
        let is_known = self.talks.contains_key(&key) || connections.knows(self.id(key));
        let refused = match backlog {
            0 => Some(Ended::NobodyListens),
            _ if connections.waiting() >= backlog || self.talks.len() >= TALKS_MAX => Some(Ended::Backlog),
            _ => None,
        };
        if is_known || refused.is_some() {
            self.discard(payload);
            if let Some(why) = refused.filter(|_| !is_known) {
                self.refuse(key, why, (backlog - connections.waiting().min(backlog)) as u64);
            }
            return;
        }
        let service = (note & SERVED != 0)
            .then_some(ServiceAddress { kind: (meta >> 32) as u32, instance: meta as u32 });
        let (id, from, class) = (self.id(key), self.given.peer, self.given.class);
        connections.insert(id, Known::with(WINDOW));
        connections.ask(Request { id, from, service, stream: note & STREAM != 0, class });
        self.talks.insert(key, Talk::new(note & WAITS != 0));
        if note & FIRST != 0 {
            self.take_message(connections, key, Part::Whole, payload);
        } else {
            self.discard(payload);
        }
        if note & LAST != 0 {
            self.take_flags(connections, key, Label { note: LAST, meta: 0 });
        }
    }

    /// Refuses a connection that was asked for; it is said as soon as there is room.
    pub(super) fn refuse(&mut self, key: Key, why: Ended, room: u64) {
        let grant = self.grant(room);
        self.told = self.told.max(grant);
        let note = note(Kind::Refuse, key, key.side());
        self.owed.push_back(Label { note, meta: grant << 8 | why as u64 });
        self.pay();
    }

    fn take_refusal(&mut self, connections: &mut Connections, key: Key, why: u8) {
        if !self.talks.contains_key(&key) {
            return;
        }
        self.remove(key);
        let refusals = [Ended::Backlog, Ended::NobodyListens, Ended::NotAllowed];
        let why = refusals.into_iter().find(|one| *one as u8 == why).unwrap_or(Ended::Aborted);
        connections.end(self.id(key), |known| known.over = Some(why));
    }

    /// A connection goes on as the flags say.
    fn take_flags(&mut self, connections: &mut Connections, key: Key, Label { note, meta }: Label) {
        let id = self.id(key);
        let Some(talk) = self.talks.get_mut(&key) else { return };
        if note & ANSWER != 0 && key.ours && !talk.answered {
            talk.answered = true;
            self.unanswered -= 1;
            self.granted = self.granted.max(meta);
            if let Some(known) = connections.get_mut(id) {
                known.open = true;
            }
        }
        if note & DEAF != 0 {
            connections.end(id, |known| known.deaf = true);
        }
        if note & LAST != 0 {
            talk.heard_all = true;
            connections.end(id, |known| known.ended = true);
            self.retire(key);
        }
    }

    /// A message, or a piece of one.
    fn take_message(&mut self, connections: &mut Connections, key: Key, part: Part, payload: Payload) {
        let id = self.id(key);
        let (len, cost) = match payload {
            Payload::Empty => (0, credit_cost(0)),
            Payload::Short(len, _) | Payload::Long(_, len) => (len, credit_cost(len as u64)),
            // It lies in its sender's memory.
            Payload::Passed(_, len) => (len, 0),
        };
        let Some(talk) = self.talks.get_mut(&key).filter(|talk| !talk.dropped && !talk.heard_all) else {
            return self.discard(payload);
        };
        if part != Part::Abort {
            talk.came = (talk.came.0 + cost, talk.came.1 + 1);
        }
        if talk.came.0 > talk.granted.0 || talk.came.1 > talk.granted.1 {
            // It has not kept to what was granted.
            self.discard(payload);
            return self.give_up(connections, key);
        }
        let Some(body) = self.body_of(payload) else { return self.give_up(connections, key) };
        let left = connections.put(id, Arrival::Past(Past { part, len, body }));
        debug_assert!(left.is_none(), "what nobody holds is dropped before");
    }

    /// Ends a connection whose other end makes no sense.
    pub(super) fn give_up(&mut self, connections: &mut Connections, key: Key) {
        connections.end(self.id(key), |known| known.over = Some(Ended::Aborted));
        self.remove(key);
        let note = note(Kind::Signal, key, key.side() | LAST | DEAF);
        self.owed.push_back(Label { note, meta: 0 });
    }

    /// Where the program finds what has come; `None`: that makes no sense.
    fn body_of(&mut self, payload: Payload) -> Option<DirectBody> {
        let (offset, len) = match payload {
            Payload::Empty => return Some(DirectBody::Copied(Vec::new())),
            Payload::Short(_, bytes) => return Some(DirectBody::Short(bytes)),
            Payload::Passed(number, len) => return self.passed_body(number, len),
            Payload::Long(offset, len) => (offset, len),
        };
        let given = &mut self.given;
        // Another user's program could change it while it is looked at.
        if !given.same_user || self.lent + len as u64 > LENT_BYTES_MAX {
            self.copied += len as u64;
            return Some(DirectBody::Copied(slots::copy_out(&mut given.back, offset, len)));
        }
        self.lent += len as u64;
        Some(DirectBody::Long { memory: given.back.memory().clone(), offset, ring: given.number })
    }

    fn discard(&mut self, payload: Payload) {
        match payload {
            Payload::Long(offset, _) => self.given.back.release(offset),
            Payload::Passed(number, _) => self.given.back.return_passed(number),
            Payload::Empty | Payload::Short(..) => {}
        }
    }

    /// Tells the other end how much was read of a connection, and gives it a wider window if its reader keeps up; whether there
    /// was room for that.
    pub(super) fn tell_read(&mut self, key: Key) -> bool {
        let Some(talk) = self.talks.get(&key).filter(|talk| !talk.heard_all) else { return true };
        let (read, mut window) = (talk.read, talk.window);
        let more = window.0.min(WINDOW_BYTES_MAX - window.0);
        if self.extra + more <= EXTRA_BYTES_MAX {
            window.0 += more;
        }
        let granted = (read.0 + window.0, read.1 + window.1);
        let label = Label { note: note(Kind::Credit, key, key.side()), meta: granted.0 };
        if self.put(label, Some(granted.1), &[]).is_err() {
            return false;
        }
        if let Some(talk) = self.talks.get_mut(&key) {
            self.extra += window.0 - talk.window.0;
            (talk.granted, talk.window) = (granted, window);
        }
        true
    }

    /// Nothing follows: what the other end had not ended is cut off, and nobody hears what we send.
    fn end(&mut self, connections: &mut Connections) {
        for (key, talk) in std::mem::take(&mut self.talks) {
            connections.end(self.id(key), |known| match talk.heard_all {
                true => known.deaf = true,
                false => known.over = Some(Ended::Aborted),
            });
        }
    }
}
