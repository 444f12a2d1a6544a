//! Readers: threads that wait for bytes of a stream and have lent their own memory for them.
//!
//! What comes next by their connection goes there at once instead of into the arena, of which each byte would be written and read
//! once more, mostly past the cache. A reader waits for one message, the next of its connection; when that is complete, the rest
//! of it takes the usual way, and the client leaves out what has landed.
//!
//! What a reader has no room for is left where it was received until the next turn: it may be back for that by then.

use super::Engine;
use super::store::EngineStore;
use polyrail_bearer::{RxBatch, SLOT_BYTES};
use polyrail_proto::id::{BufferId, ConnectionId, PortId};
use polyrail_shm::Landing;
use std::sync::Arc;

/// A reader that waits.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub port: PortId,
    pub connection: ConnectionId,
    /// Messages that have come to it by that connection.
    pub came: u64,
    /// Bytes of the next one that it has read.
    pub read: u64,
    /// Its memory, and the token for it.
    pub landing: Arc<Landing>,
    pub token: u64,
}

/// Where the next bytes for a reader come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    buffer: BufferId,
    offset: u64,
}

struct Waiting {
    reader: Reader,
    /// Where that is known.
    bound: Option<Bound>,
    /// Something has landed: it is told so at the end of the turn.
    served: bool,
}

/// Bytes of a message that a reader had no room for, where they were received.
#[derive(Clone, Copy, Debug)]
struct Left {
    port: PortId,
    at: Bound,
    /// Where the packets lie that carry them, and their bytes.
    packets: (usize, usize),
    stride: usize,
    /// Bytes before the payload of each, and so many of the first one's payload have landed.
    head: usize,
    skip: usize,
}

impl Left {
    /// The packets, which are in `batch` until something else is received there.
    fn packets<'a>(&self, batch: &'a RxBatch) -> Option<&'a [u8]> {
        let (start, len) = self.packets;
        let at = |bytes: &[u8]| start.checked_sub(bytes.as_ptr().addr());
        batch.iter().find_map(|group| group.bytes.get(at(group.bytes)?..)?.get(..len))
    }

    /// Their payloads, but for what has landed.
    fn payloads<'a>(&self, packets: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (head, mut skip) = (self.head, self.skip);
        packets
            .chunks(self.stride)
            .map(move |packet| packet.get(head + std::mem::take(&mut skip)..).unwrap_or(&[]))
    }

    /// The same without the next `bytes`, of which `packets` have some; `None`: that is all.
    fn without(self, packets: &[u8], bytes: usize) -> Option<Left> {
        let (mut first, mut skip) = (0, self.skip + bytes);
        for packet in packets.chunks(self.stride) {
            let payload_bytes = packet.len().saturating_sub(self.head);
            if skip < payload_bytes {
                let at = Bound { offset: self.at.offset + bytes as u64, ..self.at };
                let rest = (self.packets.0 + first, self.packets.1 - first);
                return Some(Left { at, packets: rest, skip, ..self });
            }
            skip -= payload_bytes;
            first += packet.len();
        }
        None
    }
}

/// Those of all ports, each port having one at most.
#[derive(Default)]
pub(super) struct Readers {
    waiting: Vec<Waiting>,
    left: Option<Left>,
}

impl Readers {
    fn enter(&mut self, reader: Reader) {
        self.leave(reader.port);
        self.waiting.push(Waiting { reader, bound: None, served: false });
    }

    /// The reader of a port waits no more.
    fn leave(&mut self, port: PortId) {
        self.waiting.retain(|waiting| waiting.reader.port != port);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one of them has something, so that it should be told rather than more be received.
    #[inline]
    pub(super) fn is_served(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.served)
    }

    /// So many groups are worth receiving at once: what the reader has no room for takes the longer way.
    pub(super) fn groups_max(&self) -> usize {
        let bound = self.waiting.iter().filter(|waiting| waiting.bound.is_some());
        let room = bound.filter_map(|waiting| waiting.reader.landing.room(waiting.reader.token));
        room.map(|bytes| bytes.div_ceil(SLOT_BYTES).max(1)).min().unwrap_or(usize::MAX)
    }

    /// Lands what `packets` carry behind their first `head` bytes, if a reader waits for byte `offset` of `buffer`; how many bytes need
    /// not be kept elsewhere.
    #[inline]
    pub(super) fn land(
        &mut self,
        place: (BufferId, u64),
        packets: &[u8],
        stride: usize,
        head: usize,
    ) -> usize {
        let at = Bound { buffer: place.0, offset: place.1 };
        let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.bound == Some(at)) else {
            return 0;
        };
        let port = waiting.reader.port;
        let left =
            Left { port, at, packets: (packets.as_ptr().addr(), packets.len()), stride, head, skip: 0 };
        let landed = waiting.land(at.offset, left.payloads(packets));
        if landed == 0 || self.left.is_some() {
            return landed;
        }
        self.left = left.without(packets, landed);
        left.payloads(packets).map(<[u8]>::len).sum()
    }

    /// A port is gone, and its memory with it.
    pub(super) fn close(&mut self, port: PortId) {
        self.leave(port);
        self.left = self.left.filter(|left| left.port != port);
    }

    /// The memory of a message is given back, and may be another one's at once.
    #[inline]
    pub(super) fn forget(&mut self, buffer: BufferId) {
        self.left = self.left.filter(|left| left.at.buffer != buffer);
        for waiting in &mut self.waiting {
            waiting.bound = waiting.bound.filter(|bound| bound.buffer != buffer);
        }
    }
}

impl Waiting {
    fn land<'a>(&mut self, offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> usize {
        let landed = self.reader.landing.fill(self.reader.token, pieces);
        self.served |= landed > 0;
        // Without room, or when it has given up, it waits for nothing more.
        let bound = self.bound.filter(|_| landed > 0);
        self.bound = bound.map(|bound| Bound { offset: offset + landed as u64, ..bound });
        landed
    }
}

impl EngineStore {
    /// Keeps what was left where it was received, before anything else is received there.
    #[inline]
    pub(super) fn keep_left(&mut self, batch: &RxBatch) {
        let Some(left) = self.readers.left.take() else { return };
        let packets = left.packets(batch);
        debug_assert!(packets.is_some(), "all that is placed comes from the batch, which is kept until then");
        let mut at = left.at.offset;
        for payload in left.payloads(packets.unwrap_or(&[])) {
            self.keep_bytes(left.at.buffer, at, payload);
            at += payload.len() as u64;
        }
    }

    /// The same for a message that is complete.
    pub(super) fn keep_left_of(&mut self, buffer: BufferId, batch: &RxBatch) {
        if self.readers.left.is_some_and(|left| left.at.buffer == buffer) {
            self.keep_left(batch);
        }
    }

    /// Finds out where the next bytes for a reader come from, and lands those that are here.
    fn bind(&mut self, waiting: &mut Waiting, (buffer, ready_bytes): (BufferId, u64), batch: &RxBatch) {
        let at = Bound { buffer, offset: waiting.reader.read };
        waiting.bound = Some(at);
        if let Some(left) = self.readers.left.filter(|left| left.at == at)
            && let Some(packets) = left.packets(batch)
        {
            let landed = waiting.land(at.offset, left.payloads(packets));
            self.readers.left = left.without(packets, landed);
            return;
        }
        self.keep_left(batch);
        let here = ready_bytes.checked_sub(at.offset).filter(|bytes| *bytes > 0);
        if let Some(bytes) = here.and_then(|bytes| self.received(buffer, at.offset, bytes as usize)) {
            waiting.land(at.offset, std::iter::once(bytes));
        }
    }
}

impl Engine {
    /// A reader waits from now on, unless something is there for it.
    pub(crate) fn add_reader(&mut self, reader: Reader) {
        self.store.readers.enter(reader);
        // It looks itself before it sleeps: it need not be told.
        self.serve_readers(|_, _| ());
    }

    /// Tells readers that have something.
    #[inline]
    pub(super) fn tell_readers(&mut self) {
        if !self.store.readers.is_empty() {
            self.serve_readers(|store, port| store.ring(port));
        }
    }

    /// Dismisses the readers that have something, or whose next message is complete; finds out where it lies for the others.
    #[inline(never)]
    fn serve_readers(&mut self, tell: impl Fn(&mut EngineStore, PortId)) {
        let mut readers = std::mem::take(&mut self.store.readers.waiting);
        readers.retain_mut(|waiting| {
            let Reader { port, connection, came, .. } = waiting.reader;
            let next = self.node.incoming(port, connection).filter(|incoming| incoming.seq == came);
            if let (None, false, Some(here)) =
                (waiting.bound, waiting.served, next.and_then(|next| next.here))
            {
                self.store.bind(waiting, here, &self.batch);
            }
            if waiting.served {
                tell(&mut self.store, port);
            }
            next.is_some() && !waiting.served
        });
        self.store.readers.waiting = readers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::client::{Arrival, Client};
    use crate::engine::joined::Joined;
    use crate::engine::{Budget, Sizes};
    use polyrail_proto::flow::Class;
    use polyrail_proto::node::Destination;

    const SIZES: Sizes = Sizes { sq_entries: 64, cq_entries: 2_048, tx_bytes: 8 << 20, rx_bytes: 8 << 20 };
    /// Less than half of a packet.
    const ROOM: usize = 4_000;

    /// Two clients of one engine with a stream from the first to the second: what that was sent, and what it has read.
    struct World {
        now_ns: u64,
        engine: Engine,
        clients: [Client; 2],
        ids: [ConnectionId; 2],
        landing: Arc<Landing>,
        sent: Vec<u8>,
        got: Vec<u8>,
    }

    impl World {
        fn new() -> World {
            let Joined { now_ns, engine, clients, ids } = Joined::with(SIZES);
            let (landing, sent, got) = Default::default();
            let mut world = World { now_ns, engine, clients, ids, landing, sent, got };
            world.turns(1);
            world
        }

        fn turns(&mut self, count: u32) {
            for _ in 0..count {
                self.now_ns += 10_000;
                self.engine.turn(self.now_ns, Budget::USUAL);
                self.clients.iter_mut().for_each(Client::sort_fresh);
            }
        }

        fn send(&mut self, len: usize) {
            let from = self.sent.len();
            self.sent.extend((from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8));
            let to = Destination::Connection(self.ids[0]);
            self.clients[0].send(to, Class::Normal, None, &self.sent[from..]).unwrap();
        }

        /// Lends `room` bytes for `turns` turns; how many have landed.
        fn lend(&mut self, room: usize, turns: u32) -> usize {
            let (mut into, landing) = (vec![0; room], Arc::clone(&self.landing));
            let (port, connection) = (self.clients[1].address().port, self.ids[1]);
            let known = self.clients[1].connection(connection).unwrap();
            let (came, read) = (known.came, known.read);
            let ((), landed) = landing.open(&mut into, |token| {
                let landing = Arc::clone(&landing);
                self.engine.add_reader(Reader { port, connection, came, read, landing, token });
                self.turns(turns);
            });
            self.clients[1].connection(connection).unwrap().read += landed as u64;
            self.got.extend(&into[..landed]);
            landed
        }

        /// Takes what has come as messages, but for what was read of the first.
        fn take_messages(&mut self) -> usize {
            let mut count = 0;
            while let Some((Arrival::Message(envelope, offset), read)) =
                self.clients[1].connection(self.ids[1]).unwrap().take_next()
            {
                self.got.extend(&self.clients[1].bytes(offset, envelope.len)[read as usize..]);
                self.clients[1].give_back(&envelope, Some(offset));
                count += 1;
            }
            count
        }

        /// Has the beginning of a large message arrive and not the rest, as far as there is room for its reader.
        fn begin(&mut self) {
            self.send(1 << 20);
            while self.lend(ROOM, 1) == 0 {}
        }
    }

    #[test]
    fn bytes_land_before_their_message_is_complete_and_what_had_no_room_is_there_for_who_comes_back() {
        let mut world = World::new();
        world.begin();
        assert_eq!(world.got.len(), ROOM);
        assert!(world.engine.store.readers.left.is_some(), "the rest of the train");
        assert_eq!(world.lend(ROOM, 0), ROOM, "without a turn");
        let rest = world.lend(1 << 20, 0);
        assert!((1..60_000).contains(&rest), "the rest of it: {rest}");
        assert!(world.engine.store.readers.left.is_none());
        while world.got.len() < 1 << 20 && world.take_messages() == 0 {
            world.lend(65_536, 1);
        }
        world.turns(20);
        world.take_messages();
        assert!(world.got == world.sent);
    }

    #[test]
    fn what_nobody_came_back_for_is_kept_with_its_message() {
        let mut world = World::new();
        world.begin();
        world.turns(100);
        assert!(world.engine.store.readers.left.is_none());
        assert_eq!((world.take_messages(), world.got == world.sent), (1, true));
    }

    #[test]
    fn a_message_that_a_reader_has_wholly_is_still_told_and_the_next_is_another() {
        let mut world = World::new();
        for _ in 0..3 {
            world.send(200_000);
            for _ in 0..40 {
                if world.take_messages() == 0 {
                    world.lend(1 << 20, 1);
                }
            }
            assert!(world.got == world.sent);
        }
        assert_eq!(world.clients[1].connection(world.ids[1]).unwrap().came, 3);
    }

    #[test]
    fn who_waited_before_anything_came_is_rung_for_what_lands() {
        let mut world = World::new();
        let (mut into, landing) = (vec![0; ROOM], Arc::clone(&world.landing));
        let (port, connection) = (world.clients[1].address().port, world.ids[1]);
        let (rung, landed) = landing.open(&mut into, |token| {
            let landing = Arc::clone(&landing);
            let (came, read) = (0, 0);
            world.engine.add_reader(Reader { port, connection, came, read, landing, token });
            world.send(1 << 20);
            let turn = |world: &mut World| {
                world.clients[1].pair.client_bell.prepare();
                world.now_ns += 10_000;
                world.engine.turn(world.now_ns, Budget::USUAL).rang
            };
            (0..20).any(|_| turn(&mut world) && world.landing.landed() > 0)
        });
        assert!(rung && into[..] == world.sent[..ROOM], "{rung} {landed}");
        assert!(world.engine.store.readers.is_empty(), "it has something");
    }

    #[test]
    fn where_something_is_left_already_the_rest_is_kept_at_once() {
        let mut world = World::new();
        world.begin();
        let left = world.engine.store.readers.left.unwrap();
        let (port, connection) = (world.clients[1].address().port, world.ids[1]);
        let store = &mut world.engine.store;
        let buffer = polyrail_proto::Store::reserve(store, port, 30, false).unwrap();
        let (mut into, landing) = ([0; 12], Arc::clone(&world.landing));
        let ((), landed) = landing.open(&mut into, |token| {
            let (came, read, landing) = (0, 0, Arc::clone(&landing));
            store.readers.enter(Reader { port, connection, came, read, landing, token });
            store.readers.waiting[0].bound = Some(Bound { buffer, offset: 0 });
            polyrail_proto::Store::place_run(store, buffer, 0, b"-0123456789-abcdefghij-KLMNOPQRST", 11, 1);
        });
        assert_eq!((landed, &into), (12, b"0123456789ab"));
        assert_eq!(store.received(buffer, 12, 18), Some(&b"cdefghijKLMNOPQRST"[..]));
        assert_eq!(store.readers.left.map(|left| left.at), Some(left.at), "it is still there");
    }

    #[test]
    fn a_reader_that_has_given_up_gets_nothing_any_more() {
        let mut world = World::new();
        world.lend(ROOM, 0);
        world.send(1 << 20);
        world.turns(100);
        assert_eq!((world.take_messages(), world.got == world.sent), (1, true));
        assert_eq!(world.landing.landed(), 0);
    }

    #[test]
    fn nobody_gets_what_comes_by_another_ports_connection() {
        let mut world = World::new();
        let (mut into, landing) = (vec![0; ROOM], Arc::clone(&world.landing));
        let ((), landed) = landing.open(&mut into, |token| {
            let (port, connection) = (world.clients[0].address().port, world.ids[1]);
            let (came, read, landing) = (0, 0, Arc::clone(&landing));
            world.send(1 << 20);
            for _ in 0..20 {
                let landing = Arc::clone(&landing);
                world.engine.add_reader(Reader { port, connection, came, read, landing, token });
                world.turns(1);
            }
        });
        assert_eq!((landed, world.take_messages(), world.got == world.sent), (0, 1, true));
    }

    #[test]
    fn a_port_that_closes_takes_along_what_was_left() {
        let mut world = World::new();
        world.begin();
        assert!(world.engine.store.readers.left.is_some());
        let closed = world.clients[1].address().port;
        world.engine.store.close(closed);
        assert!(world.engine.store.readers.left.is_none());
        let mut world = World::new();
        world.begin();
        let at = world.engine.store.readers.left.unwrap().at;
        polyrail_proto::Store::discard(&mut world.engine.store, at.buffer);
        assert!(world.engine.store.readers.left.is_none(), "its memory may be another message's now");
    }

    #[test]
    fn memory_that_is_another_messages_by_now_is_nothing_to_a_reader() {
        let mut world = World::new();
        world.begin();
        let at = world.engine.store.readers.left.unwrap().at;
        let (mut into, landing) = ([0; 8], Arc::clone(&world.landing));
        let (port, connection) = (world.clients[1].address().port, world.ids[1]);
        let ((), landed) = landing.open(&mut into, |token| {
            let landing = Arc::clone(&landing);
            let (came, read) = (0, at.offset);
            world.engine.store.readers.enter(Reader { port, connection, came, read, landing, token });
            world.engine.store.readers.waiting[0].bound = Some(at);
            polyrail_proto::Store::discard(&mut world.engine.store, at.buffer);
            polyrail_proto::Store::place(&mut world.engine.store, at.buffer, at.offset, b"other");
        });
        assert_eq!((landed, into), (0, [0; 8]));
    }

    #[test]
    fn whatever_is_lent_each_byte_is_read_once() {
        let mut state = 7_u64;
        let mut below = move |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        let (mut world, mut landed, mut checked) = (World::new(), 0, 0);
        for _ in 0..1_000 {
            match below(4) {
                0 if world.sent.len() - world.got.len() < 2 << 20 => {
                    let most = [100, 80_000, 400_000][below(3)];
                    world.send(below(most) + 1);
                }
                1 => drop(world.take_messages()),
                _ if world.take_messages() == 0 => {
                    let most = [100, ROOM, 200_000][below(3)];
                    landed += world.lend(below(most) + 1, below(3) as u32);
                }
                _ => {}
            }
            let new = checked..world.got.len();
            assert!(world.sent.get(new.clone()) == Some(&world.got[new.clone()]), "{new:?}");
            checked = new.end;
        }
        world.turns(200);
        world.take_messages();
        assert!(world.got == world.sent && landed > 1 << 20, "{landed} of {}", world.sent.len());
    }
}
