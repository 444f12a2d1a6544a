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
            how: (self.class, None).into(),
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

#[cfg(test)]
mod tests {
    use super::super::connections::Wish;
    use super::super::{Arrival, Exchange};
    use super::*;
    use crate::engine::{Budget, Engine};
    use polyrail_bearer::MemoryHub;
    use polyrail_proto::Config;
    use polyrail_proto::id::{Incarnation, NodeId};
    use polyrail_shm::Sizes;

    const SIZES: Sizes = Sizes { sq_entries: 16, cq_entries: 2_048, tx_bytes: 4 << 20, rx_bytes: 4 << 20 };

    /// Two clients of one engine with a stream from the first to the second.
    struct World {
        now_ns: u64,
        engine: Engine,
        clients: [Client; 2],
        ids: [ConnectionId; 2],
    }

    impl World {
        fn new() -> World {
            let mut engine = Engine::new(1, Config::new(NodeId(1), Incarnation(1)));
            engine.add_bearer(1, Box::new(MemoryHub::new().bearer(1)));
            engine.add_loopback(1, Box::new(MemoryHub::new().bearer(0)));
            let clients = [(); 2].map(|()| engine.open_client(SIZES, Exchange::default()).unwrap());
            let nobody = ConnectionId { session: Default::default(), end: Default::default() };
            let mut world = World { now_ns: 1_000_000, engine, clients, ids: [nobody; 2] };
            world.clients[1].listen(1).unwrap();
            world.turn(Budget::USUAL);
            let to = Destination::Port(world.clients[1].address());
            let wish = Wish { class: Class::Normal, stream: true, last: false };
            let cookie = world.clients[0].connect(to, wish, None).unwrap();
            world.turn(Budget::USUAL);
            world.clients.iter_mut().for_each(Client::sort_fresh);
            let (asking, _) = world.clients[0].take_answer(cookie).unwrap().unwrap();
            let answering = world.clients[1].take_request().unwrap().id;
            world.clients[1].accept_connection(answering).unwrap();
            world.ids = [asking, answering];
            world.turn(Budget::USUAL);
            world
        }

        fn turn(&mut self, budget: Budget) {
            for _ in 0..20 {
                self.now_ns += 10_000;
                self.engine.turn(self.now_ns, budget);
            }
        }

        fn gather(&mut self, bytes: &[u8]) -> Gathered {
            let [writer, _] = &mut self.clients;
            writer.gather(self.ids[0], Class::Normal, bytes).unwrap()
        }

        /// What the other side has been sent so far, message by message.
        fn read(&mut self) -> Vec<Vec<u8>> {
            self.turn(Budget::SENDING);
            let [_, reader] = &mut self.clients;
            reader.sort_fresh();
            let arrivals = std::iter::from_fn(|| reader.read(self.ids[1]));
            let arrivals: Vec<Arrival> = arrivals.collect();
            let message = |arrival| match arrival {
                Arrival::Message(envelope, offset) => reader.bytes(offset, envelope.len).to_vec(),
                other => panic!("{other:?}"),
            };
            arrivals.into_iter().map(message).collect()
        }
    }

    #[test]
    fn who_writes_keeps_it_open_and_whoever_looks_for_work_takes_it() {
        let mut world = World::new();
        assert!(world.clients[0].gathers());
        assert_eq!((world.gather(&[1; 9_000]), world.gather(&[2; 100])), (Gathered::Kept, Gathered::Kept));
        assert!(world.read().is_empty(), "turns of a sending thread leave it open");
        world.turn(Budget::USUAL);
        assert_eq!(world.read(), [[vec![1; 9_000], vec![2; 100]].concat()]);
        assert_eq!(world.gather(&[3; 5_000]), Gathered::Kept);
        world.turn(Budget::SLEEPY);
        assert_eq!(world.read(), [vec![3; 5_000]], "what was taken is not extended");
        assert_eq!(world.clients[0].unconfirmed(), 0);
    }

    #[test]
    fn what_follows_comes_behind_what_was_gathered() {
        let mut world = World::new();
        let to = Destination::Connection(world.ids[0]);
        for way in 0..3 {
            world.gather(&[1; 5_000]);
            match way {
                0 => drop(world.clients[0].send(to, Class::Normal, None, &[2; 10]).unwrap()),
                1 => assert_eq!(
                    world.clients[0].gather(world.ids[0], Class::Bulk, &[2; 10]),
                    Ok(Gathered::Kept)
                ),
                _ => world.clients[0].shut_down(world.ids[0], true, false).unwrap(),
            }
            let mut read = world.read();
            world.turn(Budget::USUAL);
            read.extend(world.read());
            let behind: &[Vec<u8>] = if way < 2 { &[vec![2; 10]] } else { &[] };
            assert_eq!(read, [&[vec![1; 5_000]], behind].concat(), "way {way}");
        }
        assert!(world.clients[1].progress(world.ids[1]).unwrap().ended);
    }

    #[test]
    fn a_port_that_closes_has_sent_what_it_gathered() {
        let mut world = World::new();
        world.gather(&[1; 5_000]);
        world.clients[0].close();
        assert_eq!(world.read(), [vec![1; 5_000]]);
    }

    #[test]
    fn a_full_one_is_handed_in_and_the_next_begun() {
        let mut world = World::new();
        let piece = vec![9; GATHERED_BYTES_MAX / 4];
        let gathered: Vec<Gathered> = (0..5).map(|_| world.gather(&piece)).collect();
        let kept = Gathered::Kept;
        assert_eq!(gathered, [kept, kept, kept, Gathered::HandedIn, kept]);
        let lens = |read: Vec<Vec<u8>>| read.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lens(world.read()), [GATHERED_BYTES_MAX]);
        world.turn(Budget::USUAL);
        assert_eq!(lens(world.read()), [GATHERED_BYTES_MAX / 4]);
    }

    #[test]
    fn without_room_to_hand_it_in_it_stays_open() {
        let mut world = World::new();
        let to = Destination::Port(world.clients[1].address());
        while world.clients[0].send(to, Class::Normal, None, b"x").is_ok() {}
        let piece = vec![9; GATHERED_BYTES_MAX];
        assert_eq!(world.gather(&piece), Gathered::Kept);
        assert_eq!(world.clients[0].gather(world.ids[0], Class::Normal, b"more"), Err(Blocked));
        world.turn(Budget::USUAL);
        assert_eq!(world.gather(b"more"), Gathered::Kept, "it was taken");
    }
}
