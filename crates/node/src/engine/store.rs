//! Where bytes live: each client's arenas, and buffers that changed hands.

mod held;
mod returns;
mod slot;

use held::Held;
pub(super) use held::Lent;
pub(super) use returns::Asked;
pub(crate) use slot::Arrived;
pub(super) use slot::Slot;

use super::admission::users::{CLIENTS_MAX, Charged};
use super::client::{Client, Envelope, Exchange};
use super::command::{Body, Completion};
use super::guests::Guest;
use super::readers::Readers;
use super::spaced::{Loans, Spacing};
use polyrail_proto::id::{BufferId, NodeId, PortId};
use polyrail_proto::transfer::PIECE_HEAD_BYTES;
use polyrail_proto::{Piece, Receipt, Store, Train};
use polyrail_shm::arena::BLOCK_BYTES;
use polyrail_shm::{Backing, Engine as Pair, Pool, PortBell, QueuePair, Quota, Segment, Sizes};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::io::IoSlice;
use std::sync::Arc;

/// What a buffer number stands for: two bits of kind, 14 of client, 24 of place, 24 of the sender's cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Offset in the client's sending arena, and the low bits of the message's cookie.
    Tx(usize, u64, u32),
    /// The same for a message with room for headers between its pieces.
    Spaced(usize, u64, u32),
    /// Offset in the client's receiving arena.
    Rx(usize, u64),
    /// Index of a buffer that the engine holds, and the low bits of the message's cookie.
    Held(usize, u32),
}

/// Allocations are cut in grains of this many bytes, so that an arena of 1 GiB has 24 bits of places.
const GRAIN_BYTES: u64 = 64;
/// The largest arena whose places fit: in a larger one they would name another client's.
const ARENA_BYTES_MAX: u64 = GRAIN_BYTES << 24;
/// Bits of a cookie that a buffer number carries.
pub(super) const COOKIE_MASK: u64 = 0xff_ffff;

impl Place {
    pub(super) fn id(self) -> BufferId {
        BufferId(match self {
            Place::Tx(client, offset, cookie) => {
                (client as u64) << 48 | (offset / GRAIN_BYTES) << 24 | cookie as u64 & COOKIE_MASK
            }
            Place::Spaced(client, offset, cookie) => {
                3 << 62 | (client as u64) << 48 | (offset / GRAIN_BYTES) << 24 | cookie as u64 & COOKIE_MASK
            }
            Place::Rx(client, offset) => 1 << 62 | (client as u64) << 48 | (offset / GRAIN_BYTES) << 24,
            Place::Held(index, cookie) => 2 << 62 | (index as u64) << 24 | cookie as u64 & COOKIE_MASK,
        })
    }

    /// The low bits of the cookie of a message that a client sends.
    pub(super) fn cookie(self) -> u64 {
        match self {
            Place::Tx(_, _, cookie) | Place::Spaced(_, _, cookie) | Place::Held(_, cookie) => cookie as u64,
            Place::Rx(..) => 0,
        }
    }

    pub(super) fn of(id: BufferId) -> Place {
        let client = (id.0 >> 48 & 0x3fff) as usize;
        let (place, cookie) = (id.0 >> 24 & 0xff_ffff, (id.0 & COOKIE_MASK) as u32);
        match id.0 >> 62 {
            0 => Place::Tx(client, place * GRAIN_BYTES, cookie),
            1 => Place::Rx(client, place * GRAIN_BYTES),
            2 => Place::Held(place as usize, cookie),
            _ => Place::Spaced(client, place * GRAIN_BYTES, cookie),
        }
    }
}

/// What the memory and the queues of a port hold.
#[derive(Clone, Debug)]
pub(crate) struct PortMemory {
    /// Its program is gone; what it sent is still under way.
    pub closing: bool,
    /// Messages that it sent and that are over.
    pub completed: u64,
    pub send_arena_bytes: u64,
    pub receive_arena_bytes: u64,
    pub receive_free_bytes: u64,
    /// Commands that the engine has not taken.
    pub commands_waiting: usize,
    /// Messages and answers that the program has not taken.
    pub completions_waiting: usize,
    pub completions_max: usize,
    /// Whose it is, if it is in another process.
    pub guest: Option<Guest>,
}

/// A train that lies in memory as it leaves.
pub(super) struct Run {
    client: usize,
    /// Where the message lies.
    start: u64,
    /// The bytes of the message that it carries.
    from: u64,
    to: u64,
    /// Where the train lies, and its length.
    at: u64,
    bytes: usize,
}

/// Memory of all clients.
#[derive(Default)]
pub(super) struct EngineStore {
    slots: Vec<Option<Slot>>,
    by_port: BTreeMap<PortId, usize>,
    last: Option<(PortId, usize)>,
    held: Vec<Option<Held>>,
    names_generation: u64,
    /// Messages of which several copies are under way.
    shares: BTreeMap<(PortId, BufferId), Share>,
    /// Where memory for large messages is taken from that nobody was asked for.
    large: Option<LargeMemory>,
    /// Messages that their senders want back if they fail.
    asked: BTreeMap<BufferId, Asked>,
    /// Who waits for bytes of a stream.
    pub(super) readers: Readers,
    /// Clients in other processes.
    pub(super) guests: usize,
    /// Something is to be published.
    dirty: bool,
}

/// Memory for large messages that are on their way to ports whose programs were not asked for it.
#[derive(Clone)]
pub struct LargeMemory {
    /// Where it comes from.
    pub pool: Pool,
    /// What all ports together may have of it.
    pub quota: Arc<Quota>,
    /// What one port may have of it.
    pub port_bytes_max: usize,
    /// The largest message that gets any.
    pub message_bytes_max: usize,
}

/// A message of which several copies are under way.
struct Share {
    copies: u32,
    /// One of them failed.
    failed: bool,
}

/// Part of a receiving arena kept for messages that are next in their flow.
const URGENT_SHARE: u64 = 16;
/// Share of the completion entries kept for failures, offers, and messages that have arrived but are not delivered.
const ENTRIES_KEPT_SHARE: usize = 4;

/// Whether `bytes` can be had without touching the blocks that are kept for messages next in their flow.
///
/// Whole blocks are kept, for a block is free again only when all that was cut from it is: what waits for its turn
/// pins the rest of its block, and the message that it waits for might find no room anywhere.
fn spares_urgent_share(free_bytes: u64, capacity_bytes: u64, bytes: u64) -> bool {
    let kept_bytes = (capacity_bytes / URGENT_SHARE).next_multiple_of(BLOCK_BYTES);
    let rest_bytes = free_bytes % BLOCK_BYTES;
    // Also zero bytes take memory.
    let bytes = bytes.max(1);
    let taken_bytes =
        if bytes.next_multiple_of(64) <= rest_bytes { 0 } else { bytes.next_multiple_of(BLOCK_BYTES) };
    free_bytes - rest_bytes >= taken_bytes + kept_bytes
}

impl EngineStore {
    pub(super) fn open(
        &mut self,
        port: PortId,
        node: NodeId,
        (sizes, charge): (Sizes, Charged),
        exchange: Exchange,
        spacing: Option<Spacing>,
    ) -> io::Result<Client> {
        let (client, pair) = QueuePair::create(sizes, Backing::Private)?;
        self.insert(port, (pair, charge), (exchange.clone(), spacing), None)?;
        Ok(Client::new(client, polyrail_proto::id::PortAddress { node, port }, exchange, spacing))
    }

    /// A queue pair for a port of another process: the memory to be passed to it, and that of its bell.
    pub(super) fn open_guest(
        &mut self,
        port: PortId,
        (sizes, charge): (Sizes, Charged),
        guest: Guest,
    ) -> io::Result<[Arc<Segment>; 2]> {
        let (_, mut pair) = QueuePair::create(sizes, Backing::Shared)?;
        // Whoever sleeps has not announced that here.
        pair.engine_bell.prepare();
        // Others ring it, too, who are to see nothing else of the port.
        let bell = PortBell::create()?;
        pair.client_bell = bell.bell().clone();
        let memory = [pair.segment().clone(), bell.segment().clone()];
        self.insert(port, (pair, charge), (Exchange::default(), None), Some((guest, bell)))?;
        Ok(memory)
    }

    fn insert(
        &mut self,
        port: PortId,
        (pair, charge): (Pair, Charged),
        (exchange, spacing): (Exchange, Option<Spacing>),
        guest: Option<(Guest, PortBell)>,
    ) -> io::Result<()> {
        let (guest, bell) = guest.unzip();
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index >= CLIENTS_MAX {
            return Err(io::Error::other(format!("{CLIENTS_MAX} clients are attached already")));
        }
        if pair.tx.capacity().max(pair.rx.capacity()) > ARENA_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "arenas have 1 GiB at most"));
        }
        if index == self.slots.len() {
            self.slots.push(None);
        }
        // Nobody in another process could read a buffer of ours.
        let large = self.large.as_ref().filter(|_| guest.is_none());
        self.guests += guest.is_some() as usize;
        self.slots[index] = Some(Slot {
            pair,
            charge,
            port,
            exchange,
            spacing,
            loans: Loans::default(),
            ahead: large.map(|large| Quota::of(&large.quota, large.port_bytes_max)),
            closing: false,
            overflow: VecDeque::new(),
            completed: 0,
            consumed_seen: (0, 0),
            unread: VecDeque::new(),
            read_seen: 0,
            knows_names: false,
            dirty: false,
            taken: false,
            state_seen: 0,
            arrived: None,
            guest,
            bell,
        });
        self.by_port.insert(port, index);
        self.dirty = true;
        Ok(())
    }

    /// From now on ports that are opened get memory for large messages that nobody was asked for.
    pub(super) fn set_large(&mut self, large: LargeMemory) {
        self.large = Some(large);
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.by_port.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)?.as_mut()
    }

    /// What the memory and the queues of a port hold.
    pub(super) fn memory_of(&mut self, port: PortId) -> Option<PortMemory> {
        let (_, slot) = self.slot_of(port)?;
        let pair = &mut slot.pair;
        Some(PortMemory {
            closing: slot.closing,
            completed: slot.completed,
            send_arena_bytes: pair.tx.capacity(),
            receive_arena_bytes: pair.rx.capacity(),
            receive_free_bytes: pair.rx.reclaim(),
            commands_waiting: pair.sq.len(),
            completions_waiting: pair.cq.capacity() - pair.cq.free() + slot.overflow.len(),
            completions_max: pair.cq.capacity(),
            guest: slot.guest.clone(),
        })
    }

    /// Gives buffers that nobody uses back to the machine, until that are so many bytes.
    pub(super) fn give_up_idle(&self, bytes: usize) {
        self.large.iter().for_each(|large| large.pool.give_up_idle(bytes));
    }

    /// Where buffers for large messages come from.
    pub(super) fn pool(&self) -> Option<&Pool> {
        self.large.as_ref().map(|large| &large.pool)
    }

    /// All clients that there are.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// What guests have lent and the engine holds.
    pub(super) fn lent(&self) -> impl Iterator<Item = &Lent> {
        let held = self.held.iter().flatten().filter_map(|held| match held {
            Held::Lent(lent) => Some(lent),
            Held::Own(_) => None,
        });
        held.chain(self.clients().filter_map(|slot| slot.guest.as_ref()).flat_map(Guest::lent))
    }

    /// Buffers that changed hands and are the engine's now: how many, and their bytes.
    pub(super) fn held(&self) -> (usize, u64) {
        let held = self.held.iter().flatten();
        held.fold((0, 0), |(count, bytes), buffer| (count + 1, bytes + buffer.len() as u64))
    }

    fn index_of(&self, port: PortId) -> Option<usize> {
        match self.last {
            Some((last, index)) if last == port => Some(index),
            _ => self.by_port.get(&port).copied(),
        }
    }

    fn slot_of(&mut self, port: PortId) -> Option<(usize, &mut Slot)> {
        let index = self.index_of(port)?;
        self.last = Some((port, index));
        Some((index, self.slots.get_mut(index)?.as_mut()?))
    }

    /// Forgets a client whose port is gone; its user, if it was a guest.
    pub(super) fn close(&mut self, port: PortId) -> Option<u32> {
        let slot = self.by_port.remove(&port).and_then(|index| self.slots[index].take());
        self.readers.close(port);
        self.last = None;
        let uid = slot?.guest?.uid;
        self.guests -= 1;
        Some(uid)
    }

    /// Takes a buffer of the client into the engine's hands.
    pub(super) fn hold(&mut self, index: usize, number: u64, cookie: u32) -> Option<BufferId> {
        let slot = self.slots.get_mut(index)?.as_mut()?;
        let held = match &mut slot.guest {
            Some(guest) => Held::Lent(guest.take_lent(number)?),
            None => Held::Own(slot.exchange.take(number)?),
        };
        Some(self.keep(held, cookie))
    }

    fn keep(&mut self, buffer: Held, cookie: u32) -> BufferId {
        let at = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        if at == self.held.len() {
            self.held.push(None);
        }
        self.held[at] = Some(buffer);
        Place::Held(at, cookie).id()
    }

    /// Length of a held buffer.
    pub(super) fn held_len(&self, id: BufferId) -> Option<u64> {
        match Place::of(id) {
            Place::Held(at, _) => Some(self.held.get(at)?.as_ref()?.len() as u64),
            _ => None,
        }
    }

    /// Hands a held buffer to a client: its number in the exchange.
    pub(super) fn hand_over(&mut self, port: PortId, id: BufferId) -> Option<u64> {
        let Place::Held(at, _) = Place::of(id) else { return None };
        let held = self.held.get_mut(at)?.take()?;
        let (_, slot) = self.slot_of(port)?;
        Some(match held {
            Held::Own(buffer) => slot.exchange.put(buffer),
            Held::Lent(lent) => lent.number,
        })
    }

    /// A buffer that the engine held is nobody's any more; one that a guest has lent is that one's.
    fn let_go(&mut self, at: usize) {
        if let Some(Held::Lent(lent)) = self.held.get_mut(at).and_then(Option::take) {
            self.complete(lent.port, Completion::GivenBack(lent.number));
        }
    }

    /// A message is about to be told to a client, and its sender wants to know when it was read.
    pub(super) fn note_unread(&mut self, port: PortId, receipt: Receipt) {
        if let Some((_, slot)) = self.slot_of(port) {
            slot.unread.push_back(receipt);
        }
    }

    /// Whose a port of another process is.
    pub(super) fn guest_of(&mut self, port: PortId) -> Option<&mut Guest> {
        self.slot_of(port)?.1.guest.as_mut()
    }

    /// Where a guest is rung that is there, and stays.
    pub(super) fn bell_of(&mut self, port: PortId) -> Option<PortBell> {
        let (_, slot) = self.slot_of(port)?;
        let stays = !slot.closing && !slot.is_lost();
        slot.bell.clone().filter(|_| stays)
    }

    /// Whether all is taken that a client has handed in.
    pub(super) fn has_taken_all(&mut self, port: PortId) -> bool {
        self.slot_of(port).is_some_and(|(_, slot)| slot.pair.sq.is_empty())
    }

    /// Announces a sleep at the doorbells of all guests; whether one of them has handed something in before.
    pub(super) fn await_guests(&mut self) -> bool {
        let mut news = false;
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.guest.is_some() && !slot.closing) {
            slot.pair.engine_bell.prepare();
            news |= slot.has_news();
        }
        news
    }

    /// Takes those announcements back.
    pub(super) fn attend_guests(&mut self) {
        for slot in self.slots.iter().flatten().filter(|slot| slot.guest.is_some()) {
            slot.pair.engine_bell.cancel();
        }
    }

    /// Commands of a client were taken: it is told so when what followed from them is told.
    pub(super) fn note_taken(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            slot.note_taken();
            self.dirty = true;
        }
    }

    /// Queues a completion for a port's client.
    pub(super) fn complete(&mut self, port: PortId, completion: Completion) {
        self.dirty = true;
        let Some((_, slot)) = self.slot_of(port) else { return };
        slot.dirty = true;
        if !slot.overflow.is_empty() || slot.pair.cq.stage(&completion.encode()).is_err() {
            slot.overflow.push_back(completion);
        }
    }

    /// The same for a message.
    #[inline]
    pub(super) fn complete_message(&mut self, port: PortId, envelope: Envelope, body: Body) {
        self.dirty = true;
        let Some((_, slot)) = self.slot_of(port) else { return };
        slot.dirty = true;
        let entry = Completion::encode_message(&envelope, body);
        if !slot.overflow.is_empty() || slot.pair.cq.stage(&entry).is_err() {
            slot.overflow.push_back(Completion::Message(envelope, body));
        }
    }

    /// Makes what was staged visible, and wakes clients that sleep; `rang` says whether there were any. Returns how many
    /// were told something.
    pub(super) fn publish(&mut self, names_generation: u64, rang: &mut bool) -> u32 {
        let renamed = self.names_generation != names_generation;
        if !renamed && !self.dirty {
            return 0;
        }
        let mut told = 0;
        self.names_generation = names_generation;
        self.dirty = false;
        for slot in self.slots.iter_mut().flatten() {
            if renamed || !slot.knows_names {
                slot.knows_names = true;
                slot.pair.words.names_generation.store(names_generation);
                // A program with an event loop may have been told that nobody has a name that somebody has now.
                slot.dirty |= matches!(slot.arrived, Some(Arrived::Guest(_)));
            }
            while let Some(next) = slot.overflow.front() {
                if slot.pair.cq.stage(&next.encode()).is_err() {
                    break;
                }
                slot.overflow.pop_front();
                slot.dirty = true;
            }
            self.dirty |= !slot.overflow.is_empty();
            let dirty = std::mem::take(&mut slot.dirty);
            if dirty {
                told += 1;
                slot.pair.cq.publish();
                slot.pair.words.completed.store(slot.completed);
            }
            if std::mem::take(&mut slot.taken) {
                // After the completions: who sees its commands taken sees what followed from them.
                slot.pair.sq.commit();
            }
            if dirty {
                *rang |= slot.pair.client_bell.ring();
                if let Some(arrived) = &slot.arrived {
                    arrived.tell();
                }
            }
        }
        told
    }

    /// Wakes the thread that waits for `port`: what it waits for is not in its queue.
    pub(super) fn ring(&mut self, port: PortId) {
        if let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.port == port) {
            slot.dirty = true;
            self.dirty = true;
        }
    }

    /// Tells by `arrived` whenever something is put into the queue of `port`, and now for what may be there.
    pub(super) fn watch(&mut self, port: PortId, arrived: Arrived) {
        if let Some((_, slot)) = self.slot_of(port) {
            arrived.tell();
            slot.arrived = Some(arrived);
        }
    }

    /// Somebody else has put something where the client looks, and rang, but the client waits on descriptors.
    pub(super) fn nudge(&mut self, port: PortId) {
        if let Some(arrived) = self.slot_of(port).and_then(|(_, slot)| slot.arrived.as_ref()) {
            arrived.tell();
        }
    }

    /// Copies what has arrived of a message to where it is kept until the program reads it.
    pub(super) fn keep_bytes(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        match Place::of(buffer) {
            Place::Rx(client, start) => {
                if let Some(slot) = self.slots.get_mut(client).and_then(Option::as_mut) {
                    slot.pair.rx.memory().write_at(start + offset, bytes);
                }
            }
            Place::Held(at, _) => {
                if let Some(held) = self.held.get_mut(at).and_then(Option::as_mut) {
                    held.write_at(offset, bytes);
                }
            }
            Place::Tx(..) | Place::Spaced(..) => {}
        }
    }

    /// Bytes of a message on its way in, which were placed before.
    pub(super) fn received(&self, buffer: BufferId, offset: u64, len: usize) -> Option<&[u8]> {
        match Place::of(buffer) {
            Place::Rx(client, start) => {
                self.slots.get(client)?.as_ref()?.pair.rx.memory().bytes(start + offset, len)
            }
            Place::Held(at, _) => self.held.get(at)?.as_ref()?.bytes(offset, len),
            Place::Tx(..) | Place::Spaced(..) => None,
        }
    }

    /// Bytes of a message as a slice to send from.
    pub(super) fn io_slice(&self, id: BufferId, offset: u64, len: usize) -> Option<IoSlice<'_>> {
        match Place::of(id) {
            Place::Tx(client, start, _) => {
                self.slots.get(client)?.as_ref()?.pair.tx.memory().io_slice(start + offset, len)
            }
            Place::Held(at, _) => self.held.get(at)?.as_ref()?.io_slice(offset, len),
            Place::Spaced(client, start, _) => {
                let slot = self.slots.get(client)?.as_ref()?;
                let mut stretches = slot.spacing?.stretches(offset, len as u64);
                let (at, _) = stretches.next().filter(|stretch| stretch.1 == len as u64)?;
                slot.pair.tx.memory().io_slice(start + at, len)
            }
            Place::Rx(..) => None,
        }
    }

    /// The parts of `len` bytes from byte `offset` of a message that each lie in one piece: where they begin in the
    /// message, and their lengths.
    pub(super) fn parts(&self, id: BufferId, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let piece_bytes = match Place::of(id) {
            Place::Spaced(client, ..) => {
                let slot = self.slots.get(client).and_then(Option::as_ref);
                slot.and_then(|slot| slot.spacing).map_or(u64::MAX, Spacing::piece_bytes)
            }
            _ => u64::MAX,
        };
        let (mut at, end) = (offset, offset + len as u64);
        std::iter::from_fn(move || {
            let first = at;
            at = (at / piece_bytes + 1).saturating_mul(piece_bytes).min(end);
            (first < end).then(|| (first, (at - first) as usize))
        })
    }

    /// Has a train lie in memory as it leaves, by writing its headers before the pieces of the message that it consists
    /// of. `None` if it is not of that kind, or if its headers were lent and may still be read.
    pub(super) fn lay_heads(&mut self, train: &Train) -> Option<Run> {
        let Some(run) = self.run_of(train) else {
            self.note_repeats(train);
            return None;
        };
        let slot = self.slots.get_mut(run.client)?.as_mut()?;
        if !slot.loans.is_first(run.start, run.from, run.to) {
            return None;
        }
        let spacing = slot.spacing?;
        let memory = slot.pair.tx.memory();
        let mut head_at = run.at;
        for head in train.head.chunks(PIECE_HEAD_BYTES) {
            memory.write_at(head_at, head)?;
            head_at += spacing.stored_bytes(spacing.piece_bytes());
        }
        Some(run)
    }

    /// Where a train lies that consists of pieces of a spaced message, one after the other.
    fn run_of(&self, train: &Train) -> Option<Run> {
        let [Piece::Head { start: 0, .. }, Piece::Body { buffer, offset: from, .. }, ..] = train.pieces[..]
        else {
            return None;
        };
        let Place::Spaced(client, start, _) = Place::of(buffer) else { return None };
        let spacing = self.slots.get(client)?.as_ref()?.spacing?;
        let to = run_end(&train.pieces, spacing, buffer, from)?;
        Some(Run { client, start, from, to, at: start + spacing.head(from)?, bytes: train.bytes })
    }

    /// Remembers what of a train was lent before, and is thus being sent again.
    fn note_repeats(&mut self, train: &Train) {
        for piece in &train.pieces {
            let Piece::Body { buffer, offset, len } = *piece else { continue };
            if let Place::Spaced(client, start, _) = Place::of(buffer)
                && let Some(slot) = self.slots.get_mut(client).and_then(Option::as_mut)
            {
                slot.loans.is_first(start, offset, offset + len as u64);
            }
        }
    }

    /// The bytes of such a train.
    pub(super) fn run_slice(&self, run: &Run) -> Option<IoSlice<'_>> {
        self.slots.get(run.client)?.as_ref()?.pair.tx.memory().io_slice(run.at, run.bytes)
    }

    /// Its pages may have been lent to the kernel.
    pub(super) fn lend(&mut self, run: &Run) {
        if let Some(slot) = self.slots.get_mut(run.client).and_then(Option::as_mut) {
            slot.loans.lend(run.start, run.from, run.to);
        }
    }

    /// Copies bytes of a message to the end of `out`; false if there are none such.
    pub(super) fn copy_out(&self, id: BufferId, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + len, 0);
        let copied = match Place::of(id) {
            Place::Tx(client, at, _) => {
                let slot = self.slots.get(client).and_then(Option::as_ref);
                slot.and_then(|s| s.pair.tx.memory().read_at(at + offset, &mut out[start..]))
            }
            Place::Spaced(client, at, _) => {
                let slot = self.slots.get(client).and_then(Option::as_ref);
                slot.and_then(|s| {
                    let mut rest = &mut out[start..];
                    for (stretch, len) in s.spacing?.stretches(offset, len as u64) {
                        let (now, later) = rest.split_at_mut(len as usize);
                        s.pair.tx.memory().read_at(at + stretch, now)?;
                        rest = later;
                    }
                    Some(())
                })
            }
            Place::Held(at, _) => {
                let held = self.held.get(at).and_then(Option::as_ref);
                held.and_then(|held| held.read_at(offset, &mut out[start..]))
            }
            Place::Rx(..) => None,
        };
        if copied.is_none() {
            out.truncate(start);
        }
        copied.is_some()
    }
}

/// Where the stretch of a message ends that a train carries, if it consists of pieces of it that follow each other in
/// memory and nothing else.
fn run_end(pieces: &[Piece], spacing: Spacing, buffer: BufferId, from: u64) -> Option<u64> {
    let piece_bytes = spacing.piece_bytes();
    let mut next = from.is_multiple_of(piece_bytes).then_some(from)?;
    let (pairs, rest) = pieces.as_chunks::<2>();
    for pair in pairs {
        let &[Piece::Head { len: head, .. }, Piece::Body { buffer: of, offset, len }] = pair else {
            return None;
        };
        let whole = next.is_multiple_of(piece_bytes) && head as usize == PIECE_HEAD_BYTES;
        if !whole || of != buffer || offset != next || len as u64 > piece_bytes {
            return None;
        }
        next += len as u64;
    }
    rest.is_empty().then_some(next)
}

impl EngineStore {
    /// Counts the release of one copy of a message; whether all were delivered, if it was the last.
    fn last_release(&mut self, port: PortId, buffer: BufferId, delivered: bool) -> Option<bool> {
        // Nearly always there is none.
        if self.shares.is_empty() {
            return Some(delivered);
        }
        let Some(share) = self.shares.get_mut(&(port, buffer)) else { return Some(delivered) };
        share.copies -= 1;
        share.failed |= !delivered;
        if share.copies > 0 {
            return None;
        }
        self.shares.remove(&(port, buffer)).map(|share| !share.failed)
    }
}

impl Store for EngineStore {
    fn reserve(&mut self, port: PortId, bytes: u64, urgent: bool) -> Option<BufferId> {
        let (index, slot) = self.slot_of(port)?;
        let rx = &mut slot.pair.rx;
        if !urgent && !spares_urgent_share(rx.free_bytes(), rx.capacity(), bytes) {
            return None;
        }
        rx.alloc(bytes).map(|offset| Place::Rx(index, offset).id())
    }

    fn reserve_ahead(&mut self, port: PortId, bytes: u64) -> Option<BufferId> {
        let large = self.large.clone()?;
        let (_, slot) = self.slot_of(port)?;
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= large.message_bytes_max)?;
        let buffer = large.pool.alloc_within(bytes, slot.ahead.as_ref()?).ok()?;
        Some(self.keep(Held::Own(buffer), 0))
    }

    fn place(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        if self.readers.is_empty() {
            return self.keep_bytes(buffer, offset, bytes);
        }
        self.place_run(buffer, offset, bytes, bytes.len().max(1), 0);
    }

    fn place_run(&mut self, buffer: BufferId, offset: u64, packets: &[u8], stride: usize, head: usize) {
        let mut landed = self.readers.land((buffer, offset), packets, stride, head);
        let mut at = offset;
        for packet in packets.chunks(stride) {
            let payload = packet.get(head..).unwrap_or(&[]);
            let skip = landed.min(payload.len());
            landed -= skip;
            if skip < payload.len() {
                self.keep_bytes(buffer, at + skip as u64, &payload[skip..]);
            }
            at += payload.len() as u64;
        }
    }

    fn discard(&mut self, buffer: BufferId) {
        self.readers.forget(buffer);
        match Place::of(buffer) {
            Place::Rx(client, offset) => {
                if let Some(slot) = self.slots.get_mut(client).and_then(Option::as_mut) {
                    slot.pair.rx.release_own(offset);
                }
            }
            Place::Held(at, _) => self.let_go(at),
            Place::Tx(..) | Place::Spaced(..) => {}
        }
    }

    fn share(&mut self, port: PortId, buffer: BufferId, copies: u32) {
        if copies > 1 {
            self.shares.insert((port, buffer), Share { copies, failed: false });
        }
    }

    fn release(&mut self, port: PortId, buffer: BufferId, delivered: bool) {
        let Some(delivered) = self.last_release(port, buffer, delivered) else { return };
        let stays = self.stays(port, buffer, delivered);
        if let Place::Held(at, _) = Place::of(buffer)
            && !stays
        {
            self.let_go(at);
        }
        self.dirty = true;
        let Some((_, slot)) = self.slot_of(port) else { return };
        match Place::of(buffer) {
            _ if stays => {}
            Place::Tx(_, offset, _) => {
                slot.pair.tx.release(offset);
            }
            Place::Spaced(_, offset, _) => slot.give_back(offset, delivered),
            _ => {}
        }
        slot.completed += 1;
        slot.dirty = true;
    }

    fn has_port(&self, port: PortId) -> bool {
        self.index_of(port).and_then(|i| self.slots.get(i)?.as_ref()).is_some_and(|s| !s.closing)
    }

    fn room(&mut self, port: PortId) -> (u64, u32) {
        let Some((_, slot)) = self.slot_of(port) else { return (0, 0) };
        let kept = slot.pair.rx.capacity() / URGENT_SHARE;
        // Exact: what is not seen free now may not be looked at again, for the sender may be waiting for just this.
        let bytes = slot.pair.rx.reclaim().saturating_sub(kept);
        let entries = if slot.overflow.is_empty() {
            slot.pair.cq.free().saturating_sub(slot.pair.cq.capacity() / ENTRIES_KEPT_SHARE)
        } else {
            0
        };
        (bytes, entries as u32)
    }
}

#[cfg(test)]
mod tests;
