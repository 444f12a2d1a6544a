//! Writes of a stream are put together while their writer is faster than it pays to hand each in.
//!
//! They are laid out in the arena one behind the other as one message that is still open (`polyrail_shm::open_entry`):
//! the client hands it in when it is full or something must come after it, and the engine takes it as it is when it looks
//! for what there is to do. So nothing is copied twice, and nothing waits for a writer that has gone silent.

use super::{Blocked, Client};
use crate::engine::command::{Body, Command};
use arrayvec::ArrayVec;
use polyrail_proto::flow::Class;
use polyrail_proto::id::ConnectionId;
use polyrail_proto::node::Destination;
use polyrail_shm::ArenaAllocator;
use polyrail_shm::arena::{BLOCK_BYTES, HandedOver};

/// Bytes that are gathered at most. Each message is announced, granted and confirmed by packets of its own, so that longer ones
/// carry a stream faster.
const GATHERED_BYTES_MAX: u64 = 1 << 20;
/// The largest part of the sending arena that is gathered in.
const ARENA_PART: u64 = 8;

/// Who has so many messages under way waits for memory for a whole one: short ones carry a stream more slowly.
const ENOUGH_UNDER_WAY: usize = 2;

/// What is being gathered.
#[derive(Clone, Copy)]
pub(super) struct Gathering {
    id: ConnectionId,
    class: Class,
    /// Where it lies in the arena.
    start: u64,
    len: u64,
    /// As many bytes as there is memory for.
    most: u64,
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

/// The newest messages that were gathered for one stream.
#[derive(Default)]
pub(super) struct Gone {
    of: Option<ConnectionId>,
    newest: ArrayVec<HandedOver, ENOUGH_UNDER_WAY>,
}

impl Gone {
    fn note(&mut self, id: ConnectionId, handed: HandedOver) {
        if self.of.replace(id) != Some(id) {
            self.newest.clear();
        }
        if self.newest.is_full() {
            self.newest.remove(0);
        }
        self.newest.push(handed);
    }

    /// Whether so many of `id` are under way that there is something to send until memory comes back.
    fn are_enough(&self, id: ConnectionId, arena: &ArenaAllocator) -> bool {
        let out = |handed: &HandedOver| !arena.is_released(*handed);
        self.of == Some(id) && self.newest.is_full() && self.newest.iter().all(out)
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
    /// The longest write that is gathered; `None` where memory is not laid out so that streams can be.
    pub fn gathered_bytes_max(&self) -> Option<usize> {
        let most = GATHERED_BYTES_MAX.min(self.pair.tx.capacity() / ARENA_PART);
        self.spacing.map(|spacing| spacing.whole_trains_bytes(most) as usize)
    }

    /// Adds `bytes`, at most [`Client::gathered_bytes_max`], to what is gathered for a stream. What no longer fits begins
    /// the next message, so that each leaves in whole trains.
    pub fn gather(&mut self, id: ConnectionId, class: Class, bytes: &[u8]) -> Result<Gathered, Blocked> {
        let same = self.gathering.filter(|open| open.id == id && open.class == class);
        let room = same.map_or(0, |open| (open.most - open.len) as usize);
        if bytes.len() > room {
            return self.begin_behind(id, class, bytes, room);
        }
        if !self.add(bytes) {
            return self.begin_behind(id, class, bytes, 0);
        }
        let full = bytes.len() == room;
        // If there is no room for it now it waits, as it may.
        let handed_in = full && self.hand_in_gathered() == Ok(true);
        Ok(if handed_in { Gathered::HandedIn } else { Gathered::Kept })
    }

    /// Adds bytes to what is open; false if the engine has just taken it.
    fn add(&mut self, bytes: &[u8]) -> bool {
        let Some(open) = self.gathering else { return false };
        let len = open.len + bytes.len() as u64;
        if self.lay_behind(open.start, open.len, bytes).is_none() || !self.pair.open.extend(len as u32) {
            return false;
        }
        self.gathering = Some(Gathering { len, ..open });
        true
    }

    /// Begins a message with what does not fit into the `room` that is left in the one that is open, which is handed in.
    /// All of `bytes` is taken, or nothing.
    fn begin_behind(
        &mut self,
        id: ConnectionId,
        class: Class,
        bytes: &[u8],
        room: usize,
    ) -> Result<Gathered, Blocked> {
        let before = self.gathering.filter(|open| open.id == id).map(|open| open.len);
        let no_room = self.gathering.is_some() && self.pair.sq.free() == 0;
        if no_room || !self.may_send_behind(id, before, bytes.len() as u64) {
            return Err(Blocked);
        }
        let (start, most) = self.alloc_gathering(id, bytes.len() as u64).ok_or(Blocked)?;
        let fits = if room > 0 && self.add(&bytes[..room]) { room } else { 0 };
        let handed_in = self.hand_in_gathered()?;
        self.begin(id, class, (start, most), &bytes[fits..]).ok_or(Blocked)?;
        Ok(if handed_in { Gathered::HandedIn } else { Gathered::Kept })
    }

    /// Memory for what is gathered, at least for `len` bytes: where it lies, and how many bytes it is for. Always blocks of
    /// its own, for its pages may be lent to the kernel.
    fn alloc_gathering(&mut self, id: ConnectionId, len: u64) -> Option<(u64, u64)> {
        let (spacing, most) = (self.spacing?, self.gathered_bytes_max()? as u64);
        let len = len.max(BLOCK_BYTES);
        if let Some(start) = self.alloc_by(spacing.stored_bytes(most), ArenaAllocator::alloc_open) {
            return Some((start, most));
        }
        if self.gone.are_enough(id, &self.pair.tx) {
            return None;
        }
        let start = self.alloc_by(spacing.stored_bytes(len), ArenaAllocator::alloc_open)?;
        Some((start, len))
    }

    fn begin(
        &mut self,
        id: ConnectionId,
        class: Class,
        (start, most): (u64, u64),
        bytes: &[u8],
    ) -> Option<()> {
        debug_assert!(start.is_multiple_of(BLOCK_BYTES), "the engine takes no others");
        self.lay_behind(start, 0, bytes)?;
        let open = Gathering { id, class, start, len: bytes.len() as u64, most, cookie: self.sent };
        self.directs.note_engine(self.sent);
        self.sent += 1;
        self.pair.words.accepted.store(self.sent);
        self.pair.open.open(&open.command().encode(), open.len as u32);
        self.gathering = Some(open);
        Some(())
    }

    /// Copies bytes behind the `len` that lie at `start` already.
    fn lay_behind(&mut self, start: u64, len: u64, bytes: &[u8]) -> Option<()> {
        let stretches = self.spacing?.stretches(len, bytes.len() as u64);
        self.laying.lay(self.pair.tx.memory(), bytes.len() as u64, |layer| {
            let mut rest = bytes;
            for (at, stretch) in stretches {
                let (now, later) = rest.split_at(stretch as usize);
                layer.write_at(start + at, now)?;
                rest = later;
            }
            Some(())
        })
    }

    /// Hands in what was gathered, unless the engine has taken it; whether there was anything to hand in.
    pub fn hand_in_gathered(&mut self) -> Result<bool, Blocked> {
        let Some(open) = self.gathering else { return Ok(false) };
        if self.pair.sq.free() == 0 {
            return Err(Blocked);
        }
        let ours = self.pair.open.close();
        if ours {
            self.pair.sq.push(&open.command().encode()).expect("there is room, and nobody else writes");
        }
        self.settle(open);
        Ok(ours)
    }

    /// Takes notice if the engine has taken what was gathered: the memory that it was to grow into may be all that is left.
    pub(super) fn notice_taken(&mut self) -> bool {
        let Some(open) = self.gathering.filter(|_| self.pair.open.is_taken()) else { return false };
        self.pair.open.close();
        self.settle(open);
        true
    }

    /// It has been handed in, or taken.
    fn settle(&mut self, open: Gathering) {
        self.gathering = None;
        if let Some(spacing) = self.spacing {
            self.pair.tx.close(open.start, spacing.stored_bytes(open.len));
            self.full = None;
            if let Some(handed) = self.pair.tx.handed_over(open.start) {
                self.gone.note(open.id, handed);
            }
        }
        self.note_sent(Destination::Connection(open.id), open.len);
    }

    /// Something for `id` is to come after what was gathered for it.
    pub(super) fn close_gathered(&mut self, id: ConnectionId) -> Result<(), Blocked> {
        let same = self.gathering.is_some_and(|open| open.id == id);
        if same { self.hand_in_gathered().map(drop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arrival;
    use super::*;
    use crate::engine::Budget;
    use crate::engine::joined::Joined as World;
    use polyrail_shm::Sizes;

    const SIZES: Sizes = Sizes { sq_entries: 16, cq_entries: 2_048, tx_bytes: 4 << 20, rx_bytes: 4 << 20 };

    impl World {
        fn new() -> World {
            World::with(SIZES)
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
        assert!(world.clients[0].gathered_bytes_max().is_some());
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
                    Ok(Gathered::HandedIn)
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
    fn a_full_one_is_handed_in_and_what_does_not_fit_begins_the_next() {
        let mut world = World::new();
        let max = world.clients[0].gathered_bytes_max().unwrap();
        let pieces = [1, 2, 3, 4].map(|number| vec![number; max * 3 / 10]);
        let gathered = pieces.each_ref().map(|piece| world.gather(piece));
        let kept = Gathered::Kept;
        assert_eq!(gathered, [kept, kept, kept, Gathered::HandedIn]);
        let mut read = world.read();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].len(), max);
        world.turn(Budget::USUAL);
        read.extend(world.read());
        assert!(read.concat() == pieces.concat(), "in order, each byte once");
        assert_eq!(world.gather(&vec![5; max]), Gathered::Kept);
        assert_eq!(world.gather(&[6]), Gathered::HandedIn);
    }

    #[test]
    fn what_has_just_become_full_is_handed_in() {
        let mut world = World::new();
        let max = world.clients[0].gathered_bytes_max().unwrap();
        assert_eq!(
            (world.gather(&vec![1; max - 1]), world.gather(&[2])),
            (Gathered::Kept, Gathered::HandedIn)
        );
        assert_eq!(world.read().concat().len(), max);
    }

    #[test]
    fn full_ones_leave_in_whole_trains() {
        let world = World::new();
        let client = &world.clients[0];
        let (max, piece) = (client.gathered_bytes_max().unwrap(), client.spacing.unwrap().piece_bytes());
        let train = (65_507 / (piece + 40)).min(64) * piece;
        assert_eq!(max as u64 % train, 0);
        assert!(max as u64 <= SIZES.tx_bytes / 8 && max as u64 + train > SIZES.tx_bytes / 8);
    }

    #[test]
    fn what_is_handed_in_early_gives_back_the_memory_that_it_did_not_need() {
        let mut world = World::new();
        let client = &mut world.clients[0];
        let before = client.pair.tx.reclaim();
        // Nothing is confirmed, for the engine has not had its turn.
        for count in 1..=12 {
            assert_eq!(client.gather(world.ids[0], Class::Normal, &[1; 5_000]), Ok(Gathered::Kept));
            assert_eq!(client.hand_in_gathered(), Ok(true));
            assert_eq!(client.pair.tx.reclaim(), before - count * BLOCK_BYTES);
        }
    }

    #[test]
    fn a_stream_that_went_silent_leaves_the_memory_to_others() {
        let mut world = World::new();
        let most = world.clients[0].gathered_bytes_max().unwrap();
        let all_but_little = vec![2; SIZES.tx_bytes as usize - most];
        let to = Destination::Port(world.clients[1].address());
        assert_eq!(world.gather(&[1; 5_000]), Gathered::Kept);
        assert!(world.clients[0].send(to, Class::Normal, None, &all_but_little).is_err(), "it may grow");
        world.turn(Budget::USUAL);
        assert_eq!(world.read(), [vec![1; 5_000]]);
        world.turn(Budget::USUAL);
        assert!(world.clients[0].send(to, Class::Normal, None, &all_but_little).is_ok());
    }

    #[test]
    fn of_a_write_that_does_not_fit_wholly_nothing_is_taken() {
        let mut world = World::new();
        let (max, to) =
            (world.clients[0].gathered_bytes_max().unwrap(), Destination::Port(world.clients[1].address()));
        assert_eq!(world.gather(&[1; 1_000]), Gathered::Kept);
        while world.clients[0].send(to, Class::Normal, None, &[7; 200_000]).is_ok() {}
        assert!(world.clients[0].pair.sq.free() > 0, "it is memory that is short");
        assert_eq!(world.clients[0].gather(world.ids[0], Class::Normal, &vec![2; max]), Err(Blocked));
        world.turn(Budget::USUAL);
        assert_eq!(world.read(), [vec![1; 1_000]]);
    }

    #[test]
    fn where_memory_is_short_less_is_gathered() {
        let mut world = World::new();
        let to = Destination::Port(world.clients[1].address());
        for _ in 0..15 {
            world.clients[0].send(to, Class::Normal, None, &[7; 200_000]).unwrap();
        }
        let free = world.clients[0].pair.tx.largest_alloc();
        assert!(free < world.clients[0].gathered_bytes_max().unwrap() as u64, "{free}");
        let (little, much) = (vec![1; 100], vec![2; free as usize / 2]);
        assert_eq!(world.gather(&little), Gathered::Kept);
        assert_eq!(world.gather(&much), Gathered::HandedIn);
        assert_eq!(world.clients[0].gather(world.ids[0], Class::Normal, &[3; 300_000]), Err(Blocked));
        let mut read = world.read();
        world.turn(Budget::USUAL);
        read.extend(world.read());
        assert!(read.concat() == [little, much].concat());
        assert_eq!(world.gather(&[3; 300_000]), Gathered::Kept);
    }

    #[test]
    fn who_has_enough_under_way_waits_for_memory_for_a_whole_one() {
        let mut world = World::new();
        let to = Destination::Port(world.clients[1].address());
        world.clients[0].send(to, Class::Normal, None, &[7; 200_000]).unwrap();
        let whole = vec![1; world.clients[0].gathered_bytes_max().unwrap()];
        while world.clients[0].gather(world.ids[0], Class::Normal, &whole).is_ok() {}
        assert!(world.clients[0].pair.tx.largest_alloc() > 100_000 && world.clients[0].pair.sq.free() > 0);
        assert_eq!(world.clients[0].gather(world.ids[0], Class::Normal, &[2; 65_536]), Err(Blocked));
        assert!(world.read().concat().len() >= whole.len());
        world.gather(&[2; 65_536]);
        assert!(world.clients[0].gathering.unwrap().most as usize >= whole.len());
    }

    #[test]
    fn without_room_to_hand_it_in_it_stays_open() {
        let mut world = World::new();
        let to = Destination::Port(world.clients[1].address());
        while world.clients[0].send(to, Class::Normal, None, b"x").is_ok() {}
        let piece = vec![9; world.clients[0].gathered_bytes_max().unwrap()];
        assert_eq!(world.gather(&piece), Gathered::Kept);
        assert_eq!(world.clients[0].gather(world.ids[0], Class::Normal, b"more"), Err(Blocked));
        world.turn(Budget::USUAL);
        assert_eq!(world.gather(b"more"), Gathered::Kept, "it was taken");
    }
}
