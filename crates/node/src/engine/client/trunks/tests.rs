//! Two clients joined by a trunk, with nobody else: what they do is compared with what connections are to do.

use super::*;
use crate::engine::client::connections::{Request, Wish};
use crate::engine::client::{Arrival, Envelope};
use crate::engine::command::Ended;
use crate::engine::{Client, Engine, Guest, Sizes};
use polyrail_proto::Config;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortAddress};
use polyrail_proto::node::Destination;
use polyrail_shm::{Buffer, Direct, DirectReceiver, DirectSender, Pool, PortBell};
use polyrail_sys::unix::UnixSocket;
use std::collections::{BTreeMap, VecDeque};

const SIZES: Sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 16, rx_bytes: 1 << 16 };

/// A buffer that another process could map.
fn filled(pool: &Pool, bytes: &[u8]) -> Buffer {
    let mut buffer = pool.alloc(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

/// Two ports of programs, and what the engine keeps of the trunk between them.
struct Pair {
    ends: [Client; 2],
    rings: [Direct; 2],
    _engine: Engine,
}

impl Pair {
    fn new(same_user: bool, backlog: u32) -> Pair {
        let mut engine = Engine::new(0, Config::new(NodeId(1), Incarnation(1)));
        let mut opened = || {
            let (address, memory) = engine.open_guest(SIZES, Guest::new(1, 1, "test".into())).unwrap();
            let [memory, bell] = memory.map(|segment| segment.fd().unwrap().try_clone_to_owned().unwrap());
            Client::of_guest(memory, bell, address).unwrap()
        };
        let mut ends = [opened(), opened()];
        let rings = [Direct::create().unwrap(), Direct::create().unwrap()];
        let (one, other) = UnixSocket::pair().unwrap();
        let mut lines = [one, other].into_iter();
        let file = |ring: &Direct| ring.segment().fd().unwrap().try_clone_to_owned().unwrap();
        for at in 0..2 {
            ends[at].listen(backlog).unwrap();
            let given = GivenTrunk {
                number: 1,
                peer: ends[1 - at].address(),
                class: Class::Normal,
                same_user,
                out: DirectSender::attach(file(&rings[at])).unwrap(),
                back: DirectReceiver::attach(file(&rings[1 - at])).unwrap(),
                bell: PortBell::create().unwrap(),
                line: lines.next().unwrap(),
            };
            ends[at].add_trunk(given, u64::from(backlog));
        }
        Pair { ends, rings, _engine: engine }
    }

    fn to(&self, from: usize) -> Destination {
        Destination::Port(self.ends[1 - from].address())
    }

    fn open(&mut self, from: usize, first: Option<&[u8]>, last: bool) -> Option<ConnectionId> {
        let (to, wish) = (self.to(from), Wish { class: Class::Normal, stream: false, last });
        let opened = self.ends[from].open_by_trunk(to, (wish, false), first).expect("a trunk");
        opened.ok().map(|(id, _)| id)
    }

    fn request(&mut self, at: usize) -> Option<Request> {
        self.ends[at].sort_fresh();
        self.ends[at].take_request()
    }

    fn over(&mut self, at: usize, id: ConnectionId) -> Option<Ended> {
        self.ends[at].sort_fresh();
        self.ends[at].connection(id).and_then(|known| known.over)
    }

    /// The next whole message of a connection, and `None` if there is none now.
    fn read(&mut self, at: usize, id: ConnectionId) -> Option<Vec<u8>> {
        let client = &mut self.ends[at];
        client.sort_fresh();
        loop {
            let (arrival, _) = client.connection(id)?.take_next()?;
            let Arrival::Past(past) = arrival else { panic!("{arrival:?}") };
            match past.part {
                Part::Whole => {
                    let bytes = past.body.bytes(past.len).to_vec();
                    let envelope = Envelope {
                        from: PortAddress::default(),
                        connection: Some(id),
                        service: None,
                        tag: None,
                        class: Class::Normal,
                        len: past.len as u64,
                        notify: false,
                    };
                    client.give_back_past(&envelope, past.body);
                    return Some(bytes);
                }
                Part::Piece(len) => {
                    let known = client.connection(id).unwrap();
                    let pool = polyrail_shm::Pool::new(64 << 20);
                    known.whole.get_or_insert_with(|| (pool.alloc(len as usize).unwrap(), 0));
                    if let Some(whole) = client.add_piece(id, past) {
                        return Some(whole.to_vec());
                    }
                }
                Part::Abort => client.connection(id).unwrap().whole = None,
            }
        }
    }

    fn talks(&self) -> [usize; 2] {
        [0, 1].map(|at| self.ends[at].trunks.list.iter().map(|trunk| trunk.talks.len()).sum())
    }
}

/// Numbers that look random, always the same ones.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// One end of a connection in the model.
#[derive(Default)]
struct Half {
    id: Option<ConnectionId>,
    /// Messages that the other side is to read, in order.
    sent: VecDeque<Vec<u8>>,
    /// One that was begun, and may have left in part.
    begun: Option<Vec<u8>>,
    has_ended: bool,
}

/// What two ends do, and what is to come of it.
struct Model<R> {
    pair: Pair,
    random: R,
    /// By who asked, and the number that stands in the message with which that was done.
    talks: BTreeMap<(usize, u32), [Half; 2]>,
    asked: u32,
    read: u64,
    refused: u32,
    pool: Pool,
    passed: u64,
}

impl<R: FnMut(usize) -> usize> Model<R> {
    fn ask(&mut self, at: usize) {
        let first = self.asked.to_le_bytes();
        let Some(id) = self.pair.open(at, Some(&first), false) else { return };
        if self.pair.over(at, id).is_some() {
            self.refused += 1;
            return self.pair.ends[at].forget(id);
        }
        let mut ends: [Half; 2] = Default::default();
        ends[at].id = Some(id);
        ends[at].sent.push_back(first.to_vec());
        self.talks.insert((at, self.asked), ends);
        self.asked += 1;
    }

    fn accept(&mut self, at: usize) {
        let Some(request) = self.pair.request(at) else { return };
        self.pair.ends[at].accept_connection(request.id).unwrap();
        let first = self.pair.read(at, request.id).expect("it came with the question");
        let number = u32::from_le_bytes(first.try_into().unwrap());
        let ends = self.talks.get_mut(&(1 - at, number)).unwrap();
        ends[1 - at].sent.pop_front().unwrap();
        ends[at].id = Some(request.id);
    }

    /// Something on one of the connections.
    fn converse(&mut self, at: usize) {
        let one = (self.random)(self.talks.len().max(1));
        let Some(key) = self.talks.keys().nth(one).copied() else { return };
        let Some(id) = self.talks[&key][at].id else { return };
        let has_ended = self.talks[&key][at].has_ended;
        match (self.random)(24) {
            0..8 if !has_ended => self.send(key, at, id),
            8 if !has_ended && (self.random)(4) == 0 => {
                let end = &mut self.talks.get_mut(&key).unwrap()[at];
                if end.begun.take().is_some() {
                    self.pair.ends[at].abandon(id);
                }
                end.has_ended = self.pair.ends[at].shut_down(id, true, false).is_ok();
            }
            9.. => self.receive(key, at, id),
            _ => {}
        }
        let is_over = |end: &Half| end.has_ended && end.sent.is_empty() && end.id.is_some();
        if self.talks[&key].iter().all(is_over) {
            self.part(key);
        }
    }

    fn send(&mut self, key: (usize, u32), at: usize, id: ConnectionId) {
        let len = [3, 100, 112, 5_000, 70_000, 300_000, 2_000_000][(self.random)(7)];
        let end = &mut self.talks.get_mut(&key).unwrap()[at];
        let bytes = || (0..len).map(|byte| (byte * 7 + len + self.read as usize) as u8).collect();
        let is_new = end.begun.is_none();
        let message: Vec<u8> = end.begun.take().unwrap_or_else(bytes);
        if is_new && len > 2_048 && (self.random)(2) == 0 {
            let buffer = filled(&self.pool, &message);
            if self.pair.ends[at].pass_by_trunk(id, buffer, false).is_ok() {
                self.passed += 1;
                return end.sent.push_back(message);
            }
        }
        match self.pair.ends[at].send_by_trunk(id, &message, false) {
            Ok(()) => end.sent.push_back(message),
            Err(Blocked) if (self.random)(8) == 0 => self.pair.ends[at].abandon(id),
            Err(Blocked) => end.begun = Some(message),
        }
    }

    fn receive(&mut self, key: (usize, u32), at: usize, id: ConnectionId) {
        let came = self.pair.read(at, id);
        let other = &mut self.talks.get_mut(&key).unwrap()[1 - at];
        if let Some(came) = came {
            assert!(Some(&came) == other.sent.front(), "{} bytes", came.len());
            other.sent.pop_front();
            self.read += 1;
        } else if self.pair.ends[at].connection(id).is_some_and(|known| known.ended) {
            assert!(other.has_ended && other.sent.is_empty());
        }
    }

    /// Both halves have ended, and all was read.
    fn part(&mut self, key: (usize, u32)) {
        for (at, end) in self.talks.remove(&key).unwrap().into_iter().enumerate() {
            assert!(self.pair.over(at, end.id.unwrap()).is_none());
            self.pair.ends[at].forget(end.id.unwrap());
        }
    }

    /// Ends all: nothing is left at either end.
    fn end(mut self) {
        for (at, end) in self.talks.values().flat_map(|ends| ends.iter().enumerate()) {
            let Some(id) = end.id else { continue };
            while self.pair.ends[at].shut_down(id, true, true).is_err() {
                self.pair.ends[1 - at].sort_fresh();
            }
            self.pair.ends[at].forget(id);
        }
        for at in [0, 1, 0, 1] {
            while let Some(request) = self.pair.request(at) {
                self.pair.ends[at].shut_down(request.id, true, true).unwrap();
                self.pair.ends[at].forget(request.id);
            }
            self.pair.ends[at].flush_trunks();
        }
        assert_eq!(self.pair.talks(), [0, 0]);
        for end in &self.pair.ends {
            let trunk = &end.trunks.list[0];
            assert_eq!((trunk.lent, trunk.copied, trunk.extra, trunk.unanswered), (0, 0, 0, 0));
        }
        let all_back = self.pair.ends.iter_mut().all(Client::reclaim_passed);
        assert!(all_back && self.pool.held_bytes() == self.pool.idle_bytes());
    }
}

#[test]
fn whatever_both_ends_do_each_message_comes_once_and_in_order() {
    for (seed, same_user) in [(1, true), (2, false), (3, true)] {
        let (pair, random) = (Pair::new(same_user, 4), numbers(seed));
        let pool = Pool::in_files(1 << 30, 64 << 20);
        let talks = BTreeMap::new();
        let mut model = Model { pair, random, talks, asked: 0, read: 0, refused: 0, pool, passed: 0 };
        for _ in 0..25_000 {
            let at = (model.random)(2);
            match (model.random)(24) {
                0 => model.ask(at),
                1 | 2 => model.accept(at),
                _ => model.converse(at),
            }
            let other = (model.random)(2);
            model.pair.ends[other].flush_trunks();
        }
        assert_eq!(model.passed > 500, same_user, "{} passed", model.passed);
        let Model { asked, read, refused, .. } = model;
        assert!(asked > 100 && read > 2_000 && refused > 0, "{asked} asked, {read} read, {refused} refused");
        model.end();
    }
}

#[test]
fn who_is_gone_is_known_to_be_after_all_was_read() {
    let mut pair = Pair::new(true, 8);
    let [kept, ended] = [false, true].map(|last| pair.open(0, Some(b"?"), last).unwrap());
    let [first, second] = [(); 2].map(|()| pair.request(1).unwrap());
    for request in [first, second] {
        pair.ends[1].accept_connection(request.id).unwrap();
        pair.ends[1].send_by_trunk(request.id, b"the last", request.id == second.id).unwrap();
    }
    // As the engine does when a program was killed.
    pair.rings[1].lose_sender();
    pair.rings[0].lose_receiver();
    assert_eq!(pair.read(0, kept).as_deref(), Some(&b"the last"[..]));
    assert_eq!(pair.over(0, kept), Some(Ended::Aborted));
    assert_eq!(pair.read(0, ended).as_deref(), Some(&b"the last"[..]));
    assert_eq!(pair.over(0, ended), None, "that had ended before");
    assert!(!pair.ends[0].has_trunks());
    assert_eq!(pair.ends[0].send_by_trunk(kept, b"to nobody", false), Ok(()), "which the connection tells");
}

#[test]
fn what_nobody_reads_holds_up_no_other_connection() {
    let mut pair = Pair::new(true, 64);
    let ids: Vec<_> = (0..40).map(|_| pair.open(0, Some(b"?"), false).unwrap()).collect();
    let mut others = Vec::new();
    while let Some(request) = pair.request(1) {
        pair.ends[1].accept_connection(request.id).unwrap();
        others.push(request.id);
    }
    let message = vec![7; 60_000];
    for id in &ids[1..] {
        let mut sent = 0;
        // The other end looks, and leaves what came where it is.
        while pair.ends[0].send_by_trunk(*id, &message, false).is_ok() || {
            pair.ends[1].sort_fresh();
            pair.ends[0].send_by_trunk(*id, &message, false).is_ok()
        } {
            sent += 1;
        }
        assert!((1..=5).contains(&sent), "{sent}");
    }
    let long = vec![9; 900_000];
    for round in 0..100 {
        let message = if round % 10 == 0 { &long } else { &message };
        while pair.ends[0].send_by_trunk(ids[0], message, false).is_err() {
            assert!(pair.read(1, others[0]).is_none_or(|first| first == b"?"));
        }
        while let Some(came) = pair.read(1, others[0]) {
            assert!(came == b"?" || came == *message);
        }
    }
}

#[test]
fn who_keeps_what_was_passed_leaves_numbers_to_others_and_gets_copies() {
    let mut pair = Pair::new(true, 8);
    let pool = Pool::in_files(64 << 20, 64 << 20);
    let ids = [(); 3].map(|()| pair.open(0, Some(b"?"), false).unwrap());
    let others = [(); 3].map(|()| pair.request(1).unwrap().id);
    let pass = |pair: &mut Pair, at: usize, byte: u8| {
        pair.ends[0].pass_by_trunk(ids[at], filled(&pool, &[byte; 5_000]), false).is_ok()
    };
    for id in others {
        pair.ends[1].accept_connection(id).unwrap();
        assert_eq!(pair.read(1, id).unwrap(), b"?");
    }
    assert!((0..32).all(|_| pass(&mut pair, 0, 1)));
    assert!(!pass(&mut pair, 0, 2), "it has half of all");
    let long =
        |pair: &mut Pair, at: usize| pair.ends[0].pass_or_wait(ids[at], filled(&pool, &[6; 70_000]), false);
    assert!(matches!(long(&mut pair, 0), Err((_, true))), "long ones wait for its own reader");
    assert!((0..32).all(|_| pass(&mut pair, 1, 3)));
    assert!(!pass(&mut pair, 2, 4), "all are out");
    assert!(matches!(long(&mut pair, 2), Err((_, false))), "for those of others nobody waits");
    assert!(!pair.ends[0].reclaim_passed());
    for (at, byte) in [(0, 2), (2, 4)] {
        assert_eq!(pair.ends[0].send_by_trunk(ids[at], &[byte; 5_000], false), Ok(()), "a copy is taken");
    }
    let read = |pair: &mut Pair, at: usize| pair.read(1, others[at]).unwrap()[0];
    assert_eq!(read(&mut pair, 2), 4, "it waits for nobody");
    // As many as were given back may be passed again, by whoever.
    assert_eq!(read(&mut pair, 0), 1);
    assert!(pass(&mut pair, 2, 5) && !pass(&mut pair, 2, 6));
    assert_eq!(read(&mut pair, 1), 3);
    assert!(pass(&mut pair, 0, 7) && !pass(&mut pair, 0, 8));
    // Who drops a connection gives back what it has not read, and what comes for it afterwards.
    pair.ends[1].forget(others[0]);
    assert!(pass(&mut pair, 0, 9));
    pair.ends[1].sort_fresh();
    assert_eq!((1..32).map(|_| read(&mut pair, 1)).filter(|&byte| byte == 3).count(), 31);
    assert_eq!(read(&mut pair, 2), 5);
    assert!(pair.ends[0].reclaim_passed());
}

#[test]
fn what_claims_to_be_passed_and_is_not_ends_its_connection_only() {
    let mut pair = Pair::new(true, 8);
    let ids = [(); 3].map(|()| pair.open(0, Some(b"?"), false).unwrap());
    let others = [(); 3].map(|()| pair.request(1).unwrap().id);
    for (at, id) in others.into_iter().enumerate() {
        pair.ends[1].accept_connection(id).unwrap();
        assert_eq!(pair.read(1, id).unwrap(), b"?");
        let trunk = &mut pair.ends[0].trunks.list[0];
        let (_, key) = place_of(ids[at]).unwrap();
        let label = Label { note: note([Kind::Data, Kind::Piece, Kind::Data][at], key, key.side()), meta: 9 };
        if at < 2 {
            // There is no such file, and none comes with it.
            let number = polyrail_shm::PassedNumber { number: at as u32, is_new: at == 1 };
            slots::put_passed(&mut trunk.given.out, label, None, number, 9).unwrap();
            assert_eq!(pair.over(1, id), Some(Ended::Aborted));
        }
    }
    pair.ends[1].flush_trunks();
    pair.ends[0].sort_fresh();
    assert_eq!(ids.map(|id| pair.ends[0].connection(id).unwrap().deaf), [true, true, false]);
    pair.ends[0].send_by_trunk(ids[2], b"the third", false).unwrap();
    assert_eq!(pair.read(1, others[2]).unwrap(), b"the third");
}

#[test]
fn what_does_not_listen_or_has_no_room_refuses_and_room_is_told() {
    let mut pair = Pair::new(true, 2);
    let ids = [(); 3].map(|()| pair.open(0, None, false).unwrap());
    assert_eq!(ids.map(|id| pair.over(0, id)), [None, None, Some(Ended::Backlog)]);
    let request = pair.request(1).unwrap();
    pair.ends[1].accept_connection(request.id).unwrap();
    let more = pair.open(0, None, false).unwrap();
    assert_eq!(pair.over(0, more), None, "one was accepted");
    assert!(pair.ends[0].connection(ids[0]).unwrap().open);
    // Not accepted, but turned away.
    let request = pair.request(1).unwrap();
    pair.ends[1].shut_down(request.id, true, true).unwrap();
    pair.ends[1].forget(request.id);
    assert_eq!(pair.over(0, ids[1]), Some(Ended::NotAllowed));
    pair.ends[1].listen(0).unwrap();
    let refused = pair.open(0, None, false).unwrap();
    pair.ends[1].sort_fresh();
    assert_eq!(pair.over(0, refused), Some(Ended::NobodyListens));
    assert_eq!(pair.talks()[0], 2, "one that is open, and one that waits");
}

#[test]
fn numbers_of_connections_are_used_again_only_when_nothing_of_them_is_left() {
    let mut pair = Pair::new(true, 8);
    let held = pair.open(0, None, false).unwrap();
    let request = pair.request(1).unwrap();
    pair.ends[1].accept_connection(request.id).unwrap();
    for round in 0..70_000u32 {
        let asking = pair.open(0, Some(&round.to_le_bytes()), true).unwrap();
        assert_ne!(asking, held);
        let request = pair.request(1).unwrap();
        assert_eq!(pair.read(1, request.id).unwrap(), round.to_le_bytes());
        pair.ends[1].accept_connection(request.id).unwrap();
        pair.ends[1].send_by_trunk(request.id, b"!", true).unwrap();
        pair.ends[1].forget(request.id);
        assert_eq!(pair.read(0, asking).unwrap(), b"!");
        pair.ends[0].forget(asking);
    }
    assert_eq!(pair.talks(), [1, 1]);
}

#[test]
fn who_holds_as_many_as_there_are_numbers_goes_by_the_engine() {
    let mut pair = Pair::new(true, 8);
    let to = pair.to(0);
    for _ in 0..=u16::MAX {
        let asking = pair.open(0, None, true).unwrap();
        let request = pair.request(1).unwrap();
        pair.ends[1].accept_connection(request.id).unwrap();
        pair.ends[1].shut_down(request.id, true, false).unwrap();
        pair.ends[1].forget(request.id);
        // Over, and held all the same.
        assert!(pair.over(0, asking).is_none() && pair.ends[0].connection(asking).unwrap().ended);
    }
    let wish = Wish { class: Class::Normal, stream: false, last: true };
    assert!(pair.ends[0].open_by_trunk(to, (wish, false), None).is_none());
}

#[test]
fn an_end_that_scribbles_spoils_its_own_connections_only() {
    for same_user in [true, false] {
        let mut pair = Pair::new(same_user, 8);
        let mut random = numbers(7);
        let pool = Pool::in_files(64 << 20, 1 << 20);
        let (mut held, mut came) = (Vec::<ConnectionId>::new(), 0);
        for round in 0..40_000usize {
            if round % 2_000 == 0 {
                // What was spoiled stays so.
                (pair, held) = (Pair::new(same_user, 8), Vec::new());
            }
            // The ring from the first to the second: control page, slots, and what counts the arena.
            let front = (4_096 + 128 + 32_768 * 128 + 4_096) / 8;
            let word = match random(3) {
                0 => (round as u64) << 32 | random(1 << 16) as u64,
                1 => (random(1_100) as u64) << 32 | random(1 << 31) as u64,
                _ => (random(1 << 31) as u64) << 33 | random(1 << 31) as u64,
            };
            let at = random(front) as u64 * 8;
            // Not that it is gone, which it could say itself.
            if at >= 4_096 {
                pair.rings[0].segment().write_at(at, &word.to_ne_bytes());
            }
            let id = pair.open(0, Some(&vec![1; random(400)]), false);
            if let Some(id) = id {
                if random(4) == 0 {
                    let _ = pair.ends[0].pass_by_trunk(id, filled(&pool, &[2; 5_000]), false);
                }
                let _ =
                    pair.ends[0].send_by_trunk(id, &vec![2; [10, 300, 90_000][random(3)]], random(2) == 0);
                pair.ends[0].forget(id);
            }
            if let Some(request) = pair.request(1) {
                let _ = pair.ends[1].accept_connection(request.id);
                held.push(request.id);
            }
            let Some(id) = held.get(random(held.len().max(1))).copied() else { continue };
            // Not put together here: what claims to be a piece of something large would take so much memory.
            while let Some((Arrival::Past(past), _)) =
                pair.ends[1].connection(id).and_then(|known| known.take_next())
            {
                came += 1;
                let sum: u64 = past.body.bytes(past.len).iter().map(|&byte| u64::from(byte)).sum();
                assert!(sum < u64::MAX);
                let cost = super::reading::cost_of(past.len, &past.body);
                pair.ends[1].drop_past(id, past.len, past.body);
                pair.ends[1].note_read_past(id, cost);
            }
            let _ = pair.ends[1].send_by_trunk(id, b"answer", false);
            if held.len() > 20 {
                let id = held.swap_remove(random(held.len()));
                let _ = pair.ends[1].shut_down(id, true, true);
                pair.ends[1].forget(id);
            }
            let trunk = &pair.ends[1].trunks.list[0];
            assert!(trunk.talks.len() <= TALKS_MAX && trunk.owed.len() <= 2_100);
        }
        assert!(came > 100, "{came}");
    }
}
