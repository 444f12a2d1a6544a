//! A client's side of a queue pair: verbs that never wait. `Port` adds waiting to them; the simulator uses them as
//! they are.

pub mod connections;
pub(crate) mod direct;
pub mod gathering;
mod laying;
mod lines;
pub(crate) mod slots;
pub(crate) mod trunks;

use super::admission::{CLIENT_CLOSING, CLIENT_READ_AT};
use super::command::{Awaited, Body, Command, Completion, FailureCode};
use super::spaced::Spacing;
use super::store::COOKIE_MASK;
use connections::Connections;
use direct::Directs;
use gathering::{Gathering, Gone};
use laying::Laying;
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::config::Policy;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, NodeId, PortAddress, PortId};
use polyrail_proto::limits::EAGER_BYTES_MAX;
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::service::Lookup;
use polyrail_shm::{ArenaAllocator, Buffer, Client as Pair, PortBell};
use slots::Shorts;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use trunks::{Part, Past, Trunks};

/// Where buffers change hands between clients and the engine of one process.
#[derive(Clone, Default)]
pub struct Exchange(Arc<Mutex<Vec<Option<Buffer>>>>);

impl Exchange {
    /// Leaves a buffer; the number under which it is found.
    pub fn put(&self, buffer: Buffer) -> u64 {
        let mut seats = self.0.lock().unwrap_or_else(|e| e.into_inner());
        match seats.iter().position(Option::is_none) {
            Some(at) => {
                seats[at] = Some(buffer);
                at as u64
            }
            None => {
                seats.push(Some(buffer));
                seats.len() as u64 - 1
            }
        }
    }

    /// Takes the buffer with that number.
    pub fn take(&self, number: u64) -> Option<Buffer> {
        let mut seats = self.0.lock().unwrap_or_else(|e| e.into_inner());
        seats.get_mut(usize::try_from(number).ok()?)?.take()
    }
}

/// What a client gets.
#[derive(Debug)]
pub enum Arrival {
    /// A message in the receiving arena: `release` it.
    Message(Envelope, u64),
    /// A message in a buffer of its own.
    Owned(Envelope, Buffer),
    /// A message that wants memory: `accept` it.
    Offer {
        /// Who sends it.
        from: PortAddress,
        /// Bytes.
        len: u64,
        /// Names it.
        offer: (u32, u32),
    },
    /// Something for a connection, put where it belongs.
    Sorted,
    /// A message of ours failed: the count of messages sent before it, and why.
    Failed(u64, FailureCode),
    /// A message of ours failed and is here again, as was asked: `drop_returned` it.
    Returned(Box<Returned>),
    /// A bind or unbind was done (0) or refused.
    Answer(u8),
    /// What was awaited under this number is so.
    Came(u64),
    /// A bind was refused: a binding of that node is in the way.
    Taken(NodeId),
    /// An exclusive binding was taken back, for that node's sake.
    Unbound(ServiceRange, NodeId),
    /// Another port sends by the direct ring of this number from now on: take it.
    Direct(u64),
    /// Something came by a connection past the engine.
    Past(Past),
}

impl Arrival {
    /// Whether it is a message of somebody else's.
    pub(crate) fn is_message(&self) -> bool {
        matches!(
            self,
            Arrival::Message(..) | Arrival::Owned(..) | Arrival::Past(Past { part: Part::Whole, .. })
        )
    }
}

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub from: PortAddress,
    /// The connection by which it came.
    pub connection: Option<ConnectionId>,
    /// The service that was addressed, if any.
    pub service: Option<ServiceAddress>,
    /// The sender's tag.
    pub tag: Option<u64>,
    /// Its class.
    pub class: Class,
    /// Bytes.
    pub len: u64,
    /// Its sender is told that it was read.
    pub notify: bool,
}

impl Envelope {
    /// Of no message yet.
    pub(crate) const EMPTY: Envelope = Envelope {
        from: PortAddress { node: NodeId(0), port: PortId(0) },
        connection: None,
        service: None,
        tag: None,
        class: Class::Normal,
        len: 0,
        notify: false,
    };
}

/// A message that came back to its sender.
#[derive(Debug)]
pub struct Returned {
    /// The count of messages sent before it.
    pub number: u64,
    /// Why.
    pub why: FailureCode,
    /// Where it was to go.
    pub to: Destination,
    /// Its class.
    pub class: Class,
    /// Its tag.
    pub tag: Option<u64>,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub body: ReturnedBody,
}

/// Where the bytes of a returned message are.
#[derive(Debug)]
pub enum ReturnedBody {
    /// In the sending arena, at this offset.
    Arena(u64),
    /// In the buffer that was handed over.
    Owned(Buffer),
}

/// Nothing could be taken now: drive the engine and try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked;

/// The non-blocking verbs of one port.
pub struct Client {
    pub(crate) pair: Pair,
    address: PortAddress,
    exchange: Exchange,
    /// How large messages are laid out, if they are.
    spacing: Option<Spacing>,
    /// The arena had no room for so many bytes when so many messages were completed.
    full: Option<(u64, u64)>,
    sent: u64,
    consumed_bytes: u64,
    consumed_entries: u64,
    untold: (u64, u64),
    /// Messages handed out whose senders are told so.
    read: u64,
    /// Waits begun for what is no message.
    waits: u64,
    /// The port is to be closed.
    closing: bool,
    /// What was handed in and told when that was looked at last.
    handed: [u64; 4],
    kept: VecDeque<Arrival>,
    lent: Lent,
    laying: Laying,
    connections: Connections,
    gathering: Option<Gathering>,
    gone: Gone,
    directs: Directs,
    trunks: Trunks,
    pub(crate) shorts: Shorts,
    /// Where this port is rung, if its engine is in another process.
    pub(crate) bell: Option<PortBell>,
}

/// Buffers of our own that messages under way occupy.
#[derive(Default)]
struct Lent {
    /// Number of the message and its bytes, oldest first.
    buffers: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Lent {
    /// Forgets those that came back, `completed` messages being over. Messages to several receivers end in any order,
    /// so this is exact only once all are over; it bounds memory, it does not account for it.
    fn settle(&mut self, completed: u64) {
        while let Some(&(number, bytes)) = self.buffers.front() {
            if number >= completed {
                break;
            }
            self.buffers.pop_front();
            self.bytes -= bytes;
        }
    }
}

/// Messages that take up to a quarter of this keep to so much of the sending arena, and buffers under way hold no more. More would
/// not be faster, for it would leave the cache before its turn comes. Beyond lie longer messages only, so that several of
/// them are under way: while one is confirmed and the next is copied, one more is sent.
const LOW_BYTES: u64 = 8 << 20;

/// Longer buffers are sent from where they are: by then what our copy costs is what it saves the kernel.
const COPIED_BUFFER_MAX: u64 = LOW_BYTES / 4;

/// So many buffers may be under way whatever their size: while one is confirmed the next is sent.
const LENT_ALWAYS: usize = 2;

/// Memory given back is told when this much of it has gathered, or when there is nothing left to read.
const TELL_BYTES: u64 = 65_536;
const TELL_ENTRIES: u64 = 256;

impl Client {
    pub(super) fn new(
        pair: Pair,
        address: PortAddress,
        exchange: Exchange,
        spacing: Option<Spacing>,
    ) -> Client {
        let mut pair = pair;
        if spacing.is_some() {
            pair.tx.prefer_huge_pages();
        }
        pair.tx.keep_low(LOW_BYTES);
        Client {
            pair,
            address,
            exchange,
            spacing,
            full: None,
            sent: 0,
            consumed_bytes: 0,
            consumed_entries: 0,
            untold: (0, 0),
            read: 0,
            waits: 0,
            closing: false,
            handed: [0; 4],
            kept: VecDeque::new(),
            lent: Lent::default(),
            laying: Laying::default(),
            connections: Connections::default(),
            gathering: None,
            gone: Gone::default(),
            directs: Directs::default(),
            trunks: Trunks::default(),
            shorts: Shorts::default(),
            bell: None,
        }
    }

    /// The client of a port whose engine is in another process, which has made this memory for it.
    pub(crate) fn of_guest(memory: OwnedFd, bell: OwnedFd, address: PortAddress) -> io::Result<Client> {
        let (mut pair, bell) = (Pair::attach(memory)?, PortBell::attach(bell)?);
        pair.client_bell = bell.bell().clone();
        let client = Client::new(pair, address, Exchange::default(), None);
        Ok(Client { bell: Some(bell), ..client })
    }

    /// The port's address.
    pub fn address(&self) -> PortAddress {
        self.address
    }

    /// Messages handed in so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages handed in that are neither confirmed nor failed.
    pub fn unconfirmed(&self) -> u64 {
        self.sent - self.pair.words.completed.load().min(self.sent)
    }

    /// Bytes of the sending arena that messages under way occupy. Looks at all of it.
    pub fn sending_bytes(&mut self) -> u64 {
        let tx = &mut self.pair.tx;
        tx.capacity() - tx.reclaim()
    }

    /// Largest message that `send` copies into the arena; longer ones need a buffer.
    pub fn arena_message_max(&self) -> u64 {
        self.pair.tx.capacity() / 4
    }

    /// Copies a message into the arena and hands it in; its number.
    pub fn send(
        &mut self,
        to: Destination,
        class: Class,
        tag: Option<u64>,
        bytes: &[u8],
    ) -> Result<u64, Blocked> {
        self.send_as(to, (class, tag).into(), bytes)
    }

    /// The same in any manner.
    pub fn send_as(&mut self, to: Destination, how: Manner, bytes: &[u8]) -> Result<u64, Blocked> {
        if let Some(sent) = self.send_direct(to, &how, bytes) {
            return sent;
        }
        let len = bytes.len() as u64;
        if !self.is_ready(to, len) {
            return Err(Blocked);
        }
        if let Some(spacing) = self.spacing_of(how, len) {
            let offset = self.lay_out(spacing, bytes).ok_or(Blocked)?;
            return self.submit(to, how, Body::Spaced(offset), len);
        }
        let offset = self.alloc(len).ok_or(Blocked)?;
        self.pair.tx.memory().write_at(offset, bytes).ok_or(Blocked)?;
        self.submit(to, how, Body::Arena(offset), len)
    }

    /// How a message is laid out, if it is. What may come back stays in one piece, and is never lent to the kernel.
    fn spacing_of(&self, how: Manner, len: u64) -> Option<Spacing> {
        self.spacing.filter(|_| len > EAGER_BYTES_MAX && !how.returns)
    }

    /// Whether a message may be handed in now.
    fn is_ready(&mut self, to: Destination, len: u64) -> bool {
        if let Destination::Connection(id) = to
            && self.close_gathered(id).is_err()
        {
            return false;
        }
        self.pair.sq.free() > 0 && self.may_send(to, len)
    }

    /// Memory of the arena. What was full is looked through again only once a message has been completed: whoever waits
    /// for room asks again and again.
    fn alloc(&mut self, bytes: u64) -> Option<u64> {
        self.alloc_by(bytes, ArenaAllocator::alloc)
    }

    fn alloc_by(
        &mut self,
        bytes: u64,
        alloc: impl Fn(&mut ArenaAllocator, u64) -> Option<u64>,
    ) -> Option<u64> {
        let completed = self.pair.words.completed.load();
        let is_full = self.full.is_some_and(|(then, least)| then == completed && bytes >= least);
        if is_full && !self.notice_taken() {
            return None;
        }
        let mut offset = alloc(&mut self.pair.tx, bytes);
        if offset.is_none() && self.notice_taken() {
            offset = alloc(&mut self.pair.tx, bytes);
        }
        self.full = offset.is_none().then_some((completed, bytes));
        offset
    }

    /// Copies a message into the arena with room for the headers of its packets; where it lies.
    fn lay_out(&mut self, spacing: Spacing, bytes: &[u8]) -> Option<u64> {
        let start = self.alloc(spacing.stored_bytes(bytes.len() as u64))?;
        let pieces = bytes.chunks(spacing.piece_bytes() as usize);
        self.laying.lay(self.pair.tx.memory(), bytes.len() as u64, |layer| {
            let mut offset = 0;
            for piece in pieces {
                layer.write_at(start + spacing.place(offset), piece)?;
                offset += piece.len() as u64;
            }
            Some(start)
        })
    }

    /// Hands in a message in a buffer of its own; its number. The buffer comes back if there is no room: when two buffers or
    /// more are under way that hold 8 MiB together, or as much as the sending arena if that is less.
    pub fn send_buffer(
        &mut self,
        to: Destination,
        class: Class,
        tag: Option<u64>,
        buffer: Buffer,
    ) -> Result<u64, Buffer> {
        self.send_buffer_as(to, (class, tag).into(), buffer)
    }

    /// The same in any manner.
    pub fn send_buffer_as(&mut self, to: Destination, how: Manner, buffer: Buffer) -> Result<u64, Buffer> {
        let len = buffer.len() as u64;
        if !self.is_ready(to, len) {
            return Err(buffer);
        }
        if let Some(spacing) = self.spacing_of(how, len)
            && len <= COPIED_BUFFER_MAX.min(self.arena_message_max())
        {
            // One copy of ours saves the kernel's, which costs more for being cut in pieces.
            let Some(offset) = self.lay_out(spacing, &buffer) else { return Err(buffer) };
            return self.submit(to, how, Body::Spaced(offset), len).map_err(|_| buffer);
        }
        self.lent.settle(self.pair.words.completed.load());
        if self.lent.bytes >= LOW_BYTES.min(self.pair.tx.capacity()) && self.lent.buffers.len() >= LENT_ALWAYS
        {
            return Err(buffer);
        }
        let number = self.exchange.put(buffer);
        let sent = self.submit(to, how, Body::Exchanged(number), len);
        let sent = sent.map_err(|_| self.exchange.take(number).expect("nobody else knows the number"))?;
        self.lent.buffers.push_back((sent, len));
        self.lent.bytes += len;
        Ok(sent)
    }

    fn submit(&mut self, to: Destination, how: Manner, body: Body, len: u64) -> Result<u64, Blocked> {
        let cookie = self.sent;
        self.pair.sq.push(&Command::encode_send(to, how, (body, len), cookie)).map_err(|_| Blocked)?;
        self.note_sent(to, len);
        self.directs.note_engine(cookie);
        self.sent += 1;
        self.pair.words.accepted.store(self.sent);
        Ok(cookie + self.directs.sent())
    }

    /// Asks for a binding; the answer arrives as `Arrival::Answer`.
    pub fn bind(&mut self, range: ServiceRange, scope: Scope) -> Result<(), Blocked> {
        self.bind_weighted(range, scope, 1)
    }

    /// The same with a share among the bindings of one service; 0 counts as 1.
    pub fn bind_weighted(&mut self, range: ServiceRange, scope: Scope, weight: u8) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Bind(range, scope, weight).encode()).map_err(|_| Blocked)
    }

    /// Asks for a binding that nobody else is to have; the answer arrives as `Arrival::Answer` or `Arrival::Taken`.
    pub fn bind_exclusive(&mut self, range: ServiceRange, scope: Scope) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::BindExclusive(range, scope).encode()).map_err(|_| Blocked)
    }

    /// Takes a binding back; the answer arrives as `Arrival::Answer`.
    pub fn unbind(&mut self, range: ServiceRange, scope: Scope) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Unbind(range, scope).encode()).map_err(|_| Blocked)
    }

    /// Sets how the port chooses among those that serve what it sends to, from the next message on.
    pub fn set_lookup(&mut self, lookup: Lookup) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Lookup(lookup).encode()).map_err(|_| Blocked)
    }

    /// Sets the policy of flows that begin from now on.
    pub fn set_policy(&mut self, policy: Option<Policy>) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Policy(policy).encode()).map_err(|_| Blocked)
    }

    /// Asks to be told when `what` is so, by `Arrival::Came` with the number that this gives. Ends the wait before.
    pub fn begin_wait(&mut self, what: Awaited) -> Result<u64, Blocked> {
        let number = self.waits + 1;
        self.pair.sq.push(&Command::Await { what, number }.encode()).map_err(|_| Blocked)?;
        self.waits = number;
        Ok(number)
    }

    /// Waits no longer.
    pub fn forget_wait(&mut self) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Forget.encode()).map_err(|_| Blocked)
    }

    /// Gives memory for an offered message.
    pub fn accept(&mut self, offer: (u32, u32), buffer: Buffer) -> Result<(), Buffer> {
        if self.pair.sq.free() == 0 {
            return Err(buffer);
        }
        let number = self.exchange.put(buffer);
        self.accept_lent(offer, number).expect("there is room, and nobody else writes");
        Ok(())
    }

    /// The same by the number of a buffer that was laid down.
    pub(crate) fn accept_lent(&mut self, offer: (u32, u32), number: u64) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Accept { offer, buffer: number }.encode()).map_err(|_| Blocked)
    }

    /// Hands in a message by the number of a buffer that was laid down; its number.
    pub(crate) fn send_lent(
        &mut self,
        to: Destination,
        how: Manner,
        lent: (u64, u64),
    ) -> Result<u64, Blocked> {
        let (number, len) = lent;
        self.leave_rings_for(to, &how)?;
        if !self.is_ready(to, len) {
            return Err(Blocked);
        }
        self.submit(to, how, Body::Exchanged(number), len)
    }

    /// Puts a buffer where the engine will find it under this number.
    pub(crate) fn lay_down(&self, buffer: Buffer) -> u64 {
        self.exchange.put(buffer)
    }

    /// Takes a buffer that was laid down, for the engine does not want it.
    pub(crate) fn take_up(&self, number: u64) -> Option<Buffer> {
        self.exchange.take(number)
    }

    /// Whether something was handed in or told since this was asked last, so that an engine that sleeps should hear of it.
    pub(crate) fn take_news(&mut self) -> bool {
        let (bytes, entries) = (self.consumed_bytes - self.untold.0, self.consumed_entries - self.untold.1);
        let handed = [self.pair.sq.published(), bytes, entries, self.state()];
        std::mem::replace(&mut self.handed, handed) != handed
    }

    /// Commands that the engine has not taken yet.
    pub fn backlog(&mut self) -> usize {
        self.pair.sq.capacity() - self.pair.sq.free()
    }

    /// Whether `poll` has anything to give or to tell.
    #[inline]
    pub(crate) fn has_business(&mut self) -> bool {
        let is_told = self.untold == (0, 0) && self.pair.cq.is_committed() && !self.connections.has_untold();
        !is_told || self.has_arrivals()
    }

    /// Whether `poll` would give something.
    pub fn has_arrivals(&mut self) -> bool {
        !self.kept.is_empty() || !self.pair.cq.is_empty()
    }

    /// Puts an arrival back to the front of the queue.
    pub fn keep(&mut self, arrival: Arrival) {
        self.kept.push_back(arrival);
    }

    /// Puts an offer that could not be accepted back: it stays next in line.
    pub fn keep_offer(&mut self, len: u64, offer: (u32, u32), from: PortAddress) {
        self.kept.push_front(Arrival::Offer { from, len, offer });
    }

    /// The next arrival, kept ones first.
    pub fn poll(&mut self) -> Option<Arrival> {
        let arrival = match self.kept.pop_front() {
            Some(kept) => kept,
            None => self.poll_fresh()?,
        };
        if let Arrival::Message(Envelope { notify: true, .. }, _)
        | Arrival::Owned(Envelope { notify: true, .. }, _) = &arrival
        {
            self.read += 1;
            self.tell_state();
        }
        Some(arrival)
    }

    /// The next arrival if it is a message in memory; anything else stays next in line. If there is none nobody is told anything yet,
    /// unlike by [`Client::poll`]: whoever has just been handed a message is about to answer it.
    #[inline]
    pub(crate) fn poll_message(&mut self) -> Option<Arrival> {
        if !self.has_arrivals() {
            return None;
        }
        let arrival = self.poll()?;
        if matches!(arrival, Arrival::Message(..) | Arrival::Owned(..)) {
            return Some(arrival);
        }
        self.kept.push_front(arrival);
        None
    }

    /// The next arrival that was not seen before.
    pub fn poll_fresh(&mut self) -> Option<Arrival> {
        let Some(entry) = self.pair.cq.take() else {
            self.pair.cq.commit();
            self.tell_consumed();
            self.tell_untold();
            return None;
        };
        self.consumed_entries += 1;
        self.untold.1 += 1;
        if self.untold.1 >= TELL_ENTRIES {
            self.pair.cq.commit();
            self.tell_consumed();
        }
        if let Some((envelope, body)) = Completion::told_by(&entry) {
            let arrival = match body {
                Body::Arena(offset) => Arrival::Message(envelope, offset),
                Body::Exchanged(number) => Arrival::Owned(envelope, self.exchange.take(number)?),
                Body::Spaced(_) => return None,
            };
            return Some(self.sorted(envelope.connection, arrival));
        }
        match Completion::decode(&entry)? {
            Completion::Offer { from, len, offer, connection } => {
                Some(self.sorted(connection, Arrival::Offer { from, len, offer }))
            }
            Completion::Failed { cookie, why } => Some(Arrival::Failed(self.expand(cookie), why)),
            Completion::Returned { cookie, why, to, class, tag, body, len } => {
                let body = match body {
                    Body::Exchanged(number) => ReturnedBody::Owned(self.exchange.take(number)?),
                    Body::Arena(offset) | Body::Spaced(offset) => ReturnedBody::Arena(offset),
                };
                let number = self.expand(cookie);
                Some(Arrival::Returned(Box::new(Returned { number, why, to, class, tag, len, body })))
            }
            Completion::Answer(code) => Some(Arrival::Answer(code)),
            Completion::Came(number) => Some(Arrival::Came(number)),
            Completion::Taken(by) => Some(Arrival::Taken(by)),
            Completion::GivenBack(number) => {
                drop(self.exchange.take(number));
                Some(Arrival::Sorted)
            }
            Completion::Unbound { range, by } => Some(Arrival::Unbound(range, by)),
            Completion::Direct(number) => Some(Arrival::Direct(number)),
            Completion::Trunk(number) => {
                self.note_offered_trunk(number);
                Some(Arrival::Sorted)
            }
            news => {
                self.note(news);
                Some(Arrival::Sorted)
            }
        }
    }

    /// An arrival that came by a connection goes there, others are given back.
    #[inline]
    fn sorted(&mut self, connection: Option<ConnectionId>, arrival: Arrival) -> Arrival {
        match connection {
            None => arrival,
            Some(id) => {
                self.sort(id, arrival);
                Arrival::Sorted
            }
        }
    }

    /// Takes in what has arrived, but no message that did not come by a connection: those are kept for their turn.
    pub fn sort_fresh(&mut self) {
        while let Some(arrival) = self.poll_fresh() {
            if !matches!(arrival, Arrival::Sorted) {
                self.keep(arrival);
            }
        }
        self.sort_trunks();
    }

    /// The full count whose low bits are `cookie`: the newest not beyond what was sent.
    fn expand(&self, cookie: u64) -> u64 {
        let newest = self.sent.saturating_sub(1);
        let behind = newest.wrapping_sub(cookie) & COOKIE_MASK;
        let seq = newest.saturating_sub(behind);
        seq + self.directs.before(seq)
    }

    /// Bytes of a message that is in the arena.
    pub fn bytes(&self, offset: u64, len: u64) -> &[u8] {
        self.pair.rx.memory().bytes(offset, len as usize).unwrap_or(&[])
    }

    /// Bytes of a message that came back.
    pub fn returned_bytes<'a>(&'a self, returned: &'a Returned) -> &'a [u8] {
        match &returned.body {
            ReturnedBody::Arena(offset) => {
                self.pair.tx.memory().bytes(*offset, returned.len as usize).unwrap_or(&[])
            }
            ReturnedBody::Owned(buffer) => buffer.get(..returned.len as usize).unwrap_or(&[]),
        }
    }

    /// Nobody needs a message any more that came back: its memory may hold another.
    pub fn drop_returned(&mut self, returned: Returned) {
        if let ReturnedBody::Arena(offset) = returned.body {
            // The engine has left it to us.
            self.pair.tx.release_own(offset);
            self.full = None;
        }
    }

    /// A message was read: its memory is free, and the connection by which it came may carry more.
    pub fn give_back(&mut self, envelope: &Envelope, offset: Option<u64>) {
        if let Some(offset) = offset {
            self.release(offset, envelope.len);
        }
        if let Some(id) = envelope.connection
            && !trunks::is_past(id)
        {
            self.note_read(id, envelope, offset.is_some());
        }
    }

    /// Gives the memory of a message back.
    pub fn release(&mut self, offset: u64, len: u64) {
        self.pair.rx.release(offset);
        self.consumed_bytes += len.max(64);
        self.untold.0 += len.max(64);
        if self.untold.0 >= TELL_BYTES {
            self.tell_consumed();
        }
    }

    fn tell_consumed(&mut self) {
        if self.untold != (0, 0) {
            self.untold = (0, 0);
            self.pair.words.consumed_bytes.store(self.consumed_bytes);
            self.pair.words.consumed_entries.store(self.consumed_entries);
        }
    }

    /// Asks the engine to close the port once it has taken the commands before. What was sent is still delivered.
    pub fn close(&mut self) {
        self.close_trunks();
        self.closing = true;
        self.tell_state();
    }

    fn tell_state(&mut self) {
        self.pair.words.client_state.store(self.state());
    }

    fn state(&self) -> u64 {
        let closing = if self.closing { CLIENT_CLOSING } else { 0 };
        self.read << CLIENT_READ_AT | closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_shm::{Backing, QueuePair, Sizes};

    #[test]
    fn what_is_no_message_stays_next_in_line_for_who_wants_messages() {
        let sizes = Sizes { sq_entries: 16, cq_entries: 16, tx_bytes: 1 << 16, rx_bytes: 1 << 16 };
        let (pair, _engine) = QueuePair::create(sizes, Backing::Private).unwrap();
        let address = PortAddress { node: NodeId(1), port: PortId(2) };
        let mut client = Client::new(pair, address, Exchange::default(), None);
        let message = |offset| Arrival::Message(Envelope::EMPTY, offset);
        for arrival in [message(0), Arrival::Came(7), message(64), Arrival::Failed(8, FailureCode::NoPort)] {
            client.keep(arrival);
        }
        assert!(matches!(client.poll_message(), Some(Arrival::Message(_, 0))));
        for _ in 0..2 {
            assert!(client.poll_message().is_none());
        }
        assert!(matches!(client.poll(), Some(Arrival::Came(7))));
        assert!(matches!(client.poll_message(), Some(Arrival::Message(_, 64))));
        assert!(client.poll_message().is_none());
        assert!(matches!(client.poll(), Some(Arrival::Failed(8, _))));
        assert!(client.poll_message().is_none() && client.poll().is_none());
    }
}
