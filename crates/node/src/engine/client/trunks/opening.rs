//! How connections past the engine begin: a trunk is found or wanted, a connection asked for, and accepted.

use super::items::{FIRST, Key, Kind, LAST, SERVED, STREAM, WAITS, id_of, note};
use super::{TALKS_MAX, Talk, Trunk, UNANSWERED_MAX, WINDOW};
use crate::attach::GivenTrunk;
use crate::engine::client::connections::{Known, Wish};
use crate::engine::client::{Blocked, Client};
use crate::engine::command::Ended;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, PortAddress};
use polyrail_proto::limits::credit_cost;
use polyrail_proto::node::Destination;
use polyrail_shm::Label;
use std::collections::{BTreeMap, VecDeque};

impl Client {
    /// The only port that gets what is asked of `to`, if a trunk leads there that has room for one more.
    fn trunk_to(&self, to: Destination, class: Class) -> Option<usize> {
        let peer = self.sole_receiver(to)?;
        self.trunks.list.iter().position(|trunk| {
            let given = &trunk.given;
            (given.peer, given.class) == (peer, class)
                && trunk.talks.len() < TALKS_MAX
                && !given.out.is_over()
        })
    }

    /// Whether a connection to `to` goes past the engine, as far as is known.
    fn goes_past(&self, to: Destination, class: Class) -> bool {
        self.trunk_to(to, class).is_some()
    }

    pub(crate) fn has_trunks(&self) -> bool {
        !self.trunks.list.is_empty()
    }

    /// Ports to which there are trunks of `class`.
    pub(crate) fn trunks_of(&self, class: Class) -> Vec<PortAddress> {
        let of_class = self.trunks.list.iter().filter(|trunk| trunk.given.class == class);
        of_class.map(|trunk| trunk.given.peer).collect()
    }

    /// Counts a connection that is about to be asked for; whether a trunk is to be asked for first.
    pub(crate) fn wants_trunk(&mut self, to: Destination, class: Class, waits: bool) -> bool {
        if !self.may_have_ring(to) || self.goes_past(to, class) {
            return false;
        }
        // Where there are trunks one may lead there, if only it were known who serves.
        let counted = self.trunks.counted.count(to, class, waits);
        counted || self.has_trunks() && !self.knows(to)
    }

    /// The engine has no trunk for it, and is not asked again.
    pub(crate) fn note_refused_trunk(&mut self, to: Destination, class: Class) {
        self.trunks.counted.refuse(to, class);
    }

    /// There is a trunk from now on; by it we may ask for so many connections.
    pub(crate) fn add_trunk(&mut self, given: GivenTrunk, granted: u64) {
        let is_free = |index: u16| {
            let all = id_of(index, Key { ours: false, number: 0 });
            let trunks = self.trunks.list.iter().all(|trunk| trunk.index != index);
            trunks && !self.connections.has_any_of(all.session)
        };
        let mut index = self.trunks.made;
        while !is_free(index) {
            index = index.wrapping_add(1);
        }
        self.trunks.made = index.wrapping_add(1);
        self.trunks.list.push(Trunk {
            index,
            given,
            talks: BTreeMap::new(),
            next: 0,
            waits: false,
            owed: VecDeque::new(),
            asked: 0,
            granted,
            unanswered: 0,
            heard: 0,
            told: 0,
            rested: false,
            lent: 0,
            copied: 0,
            extra: 0,
            passed_by: Vec::new(),
            has_file: false,
        });
        self.trunks.unsure = true;
    }

    /// A trunk to this port was announced.
    pub(in crate::engine::client) fn note_offered_trunk(&mut self, number: u64) {
        self.trunks.offered.push(number);
    }

    /// Trunks that were announced: to be taken.
    #[inline]
    pub(crate) fn take_offered_trunk(&mut self) -> Option<u64> {
        self.trunks.offered.pop()
    }

    /// So many requests may wait from now on.
    pub(in crate::engine::client) fn set_backlog(&mut self, backlog: u32) {
        (self.trunks.backlog, self.trunks.unsure) = (backlog, true);
    }

    /// One that waited does so no longer.
    pub(in crate::engine::client) fn note_room(&mut self) {
        self.trunks.unsure = true;
    }

    /// How many more may wait.
    pub(super) fn room(&self) -> u64 {
        u64::from(self.trunks.backlog).saturating_sub(self.connections.waiting() as u64)
    }

    /// Asks for a connection; `None`: no trunk leads there.
    pub(crate) fn open_by_trunk(
        &mut self,
        to: Destination,
        (wish, waits): (Wish, bool),
        first: Option<&[u8]>,
    ) -> Option<Result<(ConnectionId, PortAddress), Blocked>> {
        let mut at = self.trunk_to(to, wish.class)?;
        let trunk = &self.trunks.list[at];
        if trunk.asked >= trunk.granted || trunk.unanswered >= UNANSWERED_MAX {
            self.sort_fresh();
            at = self.trunk_to(to, wish.class)?;
        }
        let trunk = &mut self.trunks.list[at];
        if trunk.unanswered >= UNANSWERED_MAX {
            return Some(Err(Blocked));
        }
        let key = trunk.free_key(&self.connections)?;
        Some(self.open_by((at, key), to, (wish, waits), first))
    }

    fn open_by(
        &mut self,
        (at, key): (usize, Key),
        to: Destination,
        (wish, waits): (Wish, bool),
        first: Option<&[u8]>,
    ) -> Result<(ConnectionId, PortAddress), Blocked> {
        let Client { trunks, connections, directs, .. } = self;
        let trunk = &mut trunks.list[at];
        let mut known = Known::with(WINDOW);
        known.taken_in = true;
        if trunk.asked >= trunk.granted {
            // It would be refused, if only once the other end looks.
            known.over = Some(Ended::Backlog);
        } else {
            let (served, meta) = match to {
                Destination::Service(service) => {
                    (SERVED, u64::from(service.kind) << 32 | u64::from(service.instance))
                }
                _ => (0, 0),
            };
            let flags = [(wish.stream, STREAM), (waits, WAITS), (first.is_some(), FIRST), (wish.last, LAST)];
            let flags = flags.into_iter().fold(served, |all, (is, flag)| if is { all | flag } else { all });
            trunk.put(Label { note: note(Kind::Open, key, flags), meta }, None, first.unwrap_or(&[]))?;
            let mut talk = Talk::new(false);
            if let Some(first) = first {
                known.charge(credit_cost(first.len() as u64));
                directs.count_sent();
            }
            (talk.said_all, known.sent_all) = (wish.last, wish.last);
            trunk.asked += 1;
            trunk.unanswered += 1;
            trunk.talks.insert(key, talk);
        }
        let id = trunk.id(key);
        connections.insert(id, known);
        Ok((id, trunk.given.peer))
    }

    /// Accepts a connection: the other end is told with what is sent first, unless it waits to hear of it.
    pub(in crate::engine::client) fn accept_by_trunk(&mut self, id: ConnectionId) -> Result<(), Blocked> {
        let backlog = self.trunks.backlog;
        let Some((trunk, key)) = self.trunks.at(id) else { return Ok(()) };
        let Some(talk) = trunk.talks.get_mut(&key) else { return Ok(()) };
        talk.owes_answer = !talk.answered;
        let at_once = talk.waits || trunk.is_short(backlog);
        if at_once {
            return self.answer(id);
        }
        self.trunks.owing.push(id);
        Ok(())
    }

    fn answer(&mut self, id: ConnectionId) -> Result<(), Blocked> {
        let room = self.room();
        let Some((trunk, key)) = self.trunks.at(id) else { return Ok(()) };
        if trunk.talks.get(&key).is_none_or(|talk| !talk.owes_answer) {
            return Ok(());
        }
        trunk.say((Kind::Signal, key, 0), room, &[])
    }

    /// Says what is to be said before this thread waits, and takes in what has come meanwhile.
    #[inline]
    pub(crate) fn attend_trunks(&mut self) {
        self.flush_trunks();
        self.sort_trunks();
    }

    #[inline]
    pub(crate) fn flush_trunks(&mut self) {
        if !self.trunks.owing.is_empty() || self.trunks.unsure {
            self.flush_all_trunks();
        }
    }

    #[inline(never)]
    fn flush_all_trunks(&mut self) {
        let owing = std::mem::take(&mut self.trunks.owing);
        for id in owing {
            if self.answer(id).is_err() {
                self.trunks.owing.push(id);
            }
        }
        if !std::mem::take(&mut self.trunks.unsure) {
            return;
        }
        let (room, backlog) = (self.room(), self.trunks.backlog);
        for at in 0..self.trunks.list.len() {
            let trunk = &mut self.trunks.list[at];
            trunk.pay();
            let grant = trunk.grant(room);
            // Who may still ask for many is told with the next answer.
            if grant > trunk.told && trunk.is_short(backlog) {
                let key = Key { ours: false, number: 0 };
                let said = trunk.put(Label { note: note(Kind::Grant, key, 0), meta: grant }, None, &[]);
                match said {
                    Ok(()) => trunk.told = grant,
                    Err(Blocked) => self.trunks.unsure = true,
                }
            }
            self.trunks.unsure |= !self.trunks.list[at].owed.is_empty();
        }
    }
}
