//! The door: a client's command is decoded, bounded and checked here before the core hears of it.

pub(crate) mod denied;
pub(crate) mod users;

use super::command::{Body, Command, Completion, FailureCode};
use super::store::{Asked, COOKIE_MASK, Place};
use super::{Budget, Engine};
use denied::Reason;
use polyrail_proto::Node;
use polyrail_proto::address::ServiceRange;
use polyrail_proto::error::{ConnectError, SendError};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{BufferId, ConnectionId, PortAddress, PortId, SessionId};
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::service::BindError;
use polyrail_proto::time::Instant;
use polyrail_shm::arena::BLOCK_BYTES;
use polyrail_shm::open_entry::Seen;

/// Answers to bind and unbind.
pub const ANSWER_OK: u8 = 0;
pub const ANSWER_RESERVED: u8 = 1;
pub const ANSWER_INVERTED: u8 = 2;
pub const ANSWER_TOO_MANY: u8 = 3;
pub const ANSWER_NOT_BOUND: u8 = 4;
pub const ANSWER_NOT_PERMITTED: u8 = 5;
pub const ANSWER_LIMIT: u8 = 6;

/// Client words: the client asks for its port to be closed. The bits above are the count of messages that it has read of
/// those whose senders want to be told.
pub(crate) const CLIENT_CLOSING: u64 = 1;
/// Where that count begins.
pub(crate) const CLIENT_READ_AT: u32 = 8;

impl Engine {
    /// Takes what clients handed in and notes what they gave back; how many things that were. Nearly always it is nothing,
    /// or one thing.
    pub(super) fn take_from_clients(&mut self, now: Instant, budget: Budget) -> u32 {
        let mut count = 0;
        for index in 0..self.store.len() {
            let Some(slot) = self.store.slot(index) else { continue };
            let consumed = slot.has_consumed();
            // What it is to follow was submitted before it was opened, so it is looked for first and taken last. A thread
            // that writes a stream will hand it in itself.
            let open = if budget.sending { None } else { slot.pair.open.look() };
            if slot.has_commands() {
                count += self.take_commands(index, now, budget);
            }
            if let Some(open) = open {
                count += self.take_open(index, now, open);
            }
            if consumed {
                count += self.take_consumed(index);
            }
        }
        count
    }

    #[inline(never)]
    fn take_commands(&mut self, index: usize, now: Instant, budget: Budget) -> u32 {
        let mut count = 0;
        let Some(slot) = self.store.slot(index) else { return 0 };
        let (port, lost) = (slot.port, slot.is_lost());
        let most = if lost { slot.pair.sq.capacity() as u32 } else { budget.commands };
        for _ in 0..most {
            let Some(slot) = self.store.slot(index) else { break };
            let Some(entry) = slot.pair.sq.take() else { break };
            count += 1;
            if let Some((to, how, body, len, cookie)) = Command::sent_by(&entry) {
                self.take_message(now, (index, port), (to, how), (body, len, cookie));
                continue;
            }
            match Command::decode(&entry) {
                Some(command) => self.command(now, index, port, command),
                None => self.fail(port, 0, FailureCode::Invalid),
            }
        }
        if count > 0 {
            self.store.note_taken(index);
        }
        let Some(slot) = self.store.slot(index) else { return count };
        let closes = slot.is_asked_to_close() && (lost || slot.pair.sq.is_empty());
        count += self.take_read(index, if closes { u32::MAX } else { budget.commands });
        let Some(slot) = self.store.slot(index) else { return count };
        if closes {
            if let Some(open) = slot.pair.open.look() {
                count += self.take_open(index, now, open);
            }
            let Some(slot) = self.store.slot(index) else { return count };
            slot.closing = true;
            count += 1;
            self.end_rings(port);
            self.note_unbound(port, self.node.table().bindings_of(port));
            self.node.close_port(now, port, &mut self.store);
            self.closing.push(port);
        }
        count
    }

    /// Takes what a client has gathered so far of a stream, if all that it submitted before was taken.
    #[inline(never)]
    fn take_open(&mut self, index: usize, now: Instant, open: Seen) -> u32 {
        let Some(slot) = self.store.slot(index) else { return 0 };
        if !slot.pair.sq.is_empty() || slot.closing {
            return 0;
        }
        let (port, Some((entry, open_len))) = (slot.port, slot.pair.open.take(open)) else { return 0 };
        match Command::decode(&entry) {
            Some(Command::Send { to, how, body, cookie, .. }) => {
                let len = open_len as u64;
                self.command(now, index, port, Command::Send { to, how, body, len, cookie });
            }
            _ => self.fail(port, 0, FailureCode::Invalid),
        }
        1
    }

    /// Tells the core what was read of the messages whose senders want to know. What a client read before it asked to be
    /// closed is told first.
    fn take_read(&mut self, index: usize, most: u32) -> u32 {
        for count in 0..most {
            let Some(receipt) = self.store.slot(index).and_then(|slot| slot.take_read()) else {
                return count;
            };
            self.node.handle_read(receipt);
        }
        most
    }

    #[inline(never)]
    fn take_consumed(&mut self, index: usize) -> u32 {
        let Some(slot) = self.store.slot(index) else { return 0 };
        slot.note_consumed();
        let port = slot.port;
        self.node.handle_consumed(port, &mut self.store);
        1
    }

    fn command(&mut self, now: Instant, index: usize, port: PortId, command: Command) {
        match command {
            Command::Send { to, how, body, len, cookie } => {
                self.take_message(now, (index, port), (to, how), (body, len, cookie));
            }
            Command::Bind(range, scope, weight) => {
                self.bind(port, range, |node| node.bind_weighted(port, range, scope, weight));
            }
            Command::BindExclusive(range, scope) => {
                self.bind(port, range, |node| node.bind_exclusive(port, range, scope));
            }
            Command::Unbind(range, scope) => {
                let unbound = self.node.unbind(port, range, scope).is_ok();
                self.note_unbound(port, usize::from(unbound));
                let answer = if unbound { ANSWER_OK } else { ANSWER_NOT_BOUND };
                self.store.complete(port, Completion::Answer(answer));
            }
            Command::Listen(backlog) => self.node.listen(port, backlog),
            Command::Connect { to, class, stream, first, last, cookie } => {
                let asked = self.node.open_connection(now, port, to, class, stream, &mut self.store);
                self.connecting(now, index, port, asked, (first, last, cookie));
            }
            Command::Take(id) => drop(self.node.accept_connection(port, id)),
            Command::ShutDown { id, sent_all, deaf } => {
                self.node.shut_down(now, port, id, (sent_all, deaf), &mut self.store);
            }
            Command::Consumed { id, bytes, messages } => {
                self.node.handle_connection_consumed(port, id, (bytes, messages));
            }
            Command::Lookup(lookup) => self.node.set_lookup(port, lookup),
            Command::Policy(policy) => self.node.set_policy(port, policy),
            Command::Await { what, number } => self.begin_wait(port, what, number),
            Command::Forget => self.waits.forget(port),
            Command::EndDirect(number) => self.leave_ring(port, number),
            Command::Accept { offer, buffer } => {
                let Some(held) = self.store.hold(index, buffer, 0) else {
                    return self.fail(port, 0, FailureCode::Invalid);
                };
                if !self.node.accept(SessionId(offer.0), offer.1, held) {
                    // The session ended meanwhile: the buffer goes back to its pool.
                    use polyrail_proto::Store;
                    self.store.discard(held);
                }
            }
        }
    }

    /// Binds a name if the port's user may.
    fn bind(
        &mut self,
        port: PortId,
        range: ServiceRange,
        bind: impl FnOnce(&mut Node) -> Result<(), BindError>,
    ) {
        let answer = match self.admit_name(port, range) {
            Ok(()) => {
                let bound = bind(&mut self.node);
                self.note_bound(port, usize::from(bound.is_ok()));
                answer_to(bound)
            }
            Err(Reason::Rights) => Completion::Answer(ANSWER_NOT_PERMITTED),
            Err(_) => Completion::Answer(ANSWER_LIMIT),
        };
        self.store.complete(port, answer);
    }

    /// A client sends a message.
    #[inline]
    fn take_message(
        &mut self,
        now: Instant,
        (index, port): (usize, PortId),
        (to, how): (Destination, Manner),
        (body, len, cookie): (Body, u64, u64),
    ) {
        match self.admit_body(index, body, len, cookie) {
            Some(buffer) => self.send(now, port, to, how, (buffer, len)),
            None => self.fail(port, cookie, FailureCode::Invalid),
        }
    }

    fn send(&mut self, now: Instant, port: PortId, to: Destination, how: Manner, body: (BufferId, u64)) {
        use polyrail_proto::Store;
        let (buffer, len) = body;
        let Manner { class, tag, returns, expires_at } = how;
        let alone = matches!(to, Destination::Port(_) | Destination::Service(_));
        if !alone && (returns || expires_at.is_some()) {
            self.store.release(port, buffer, false);
            return self.store.give_up(port, buffer, FailureCode::Invalid);
        }
        if returns {
            self.store.ask_back(buffer, Asked { to, class, tag, len });
        }
        if let Err(error) = self.node.send(now, port, to, how, body, &mut self.store) {
            self.store.release(port, buffer, false);
            // Of a connection that is over its port is told once, and not by each message.
            if error != SendError::NotConnected {
                self.store.give_up(port, buffer, code_of(error));
            }
        }
    }

    /// Answers a client that asks for a connection, and has its first message sent with the question.
    fn connecting(
        &mut self,
        now: Instant,
        index: usize,
        port: PortId,
        asked: Result<(ConnectionId, PortAddress), ConnectError>,
        (first, last, cookie): (Option<(Body, u64)>, bool, u64),
    ) {
        let buffer = first.and_then(|(body, len)| Some((self.admit_body(index, body, len, cookie)?, len)));
        if first.is_some() && buffer.is_none() {
            self.fail(port, cookie, FailureCode::Invalid);
        }
        match asked {
            Ok((id, peer)) => {
                let credit = self.node.connection_credit(id);
                self.store.complete(port, Completion::Connecting { cookie, id, peer, credit });
                if let Some(body) = buffer {
                    // It was opened just now, so that this can only fail as a whole.
                    let _ = self.node.send(
                        now,
                        port,
                        Destination::Connection(id),
                        (Class::Normal, None),
                        body,
                        &mut self.store,
                    );
                }
                if last {
                    self.node.shut_down(now, port, id, (true, false), &mut self.store);
                }
            }
            Err(error) => {
                if let Some((buffer, _)) = buffer {
                    use polyrail_proto::Store;
                    self.store.release(port, buffer, false);
                }
                self.store.complete(port, Completion::NotConnecting { cookie, why: error.into() });
            }
        }
    }

    /// The buffer number of a message's bytes, if they lie where the client may send from.
    fn admit_body(&mut self, index: usize, body: Body, len: u64, cookie: u64) -> Option<BufferId> {
        let cookie = (cookie & COOKIE_MASK) as u32;
        match body {
            Body::Arena(offset) => {
                let slot = self.store.slot(index)?;
                let inside = offset.checked_add(len)? <= slot.pair.tx.capacity() && offset.is_multiple_of(64);
                inside.then(|| Place::Tx(index, offset, cookie).id())
            }
            Body::Spaced(offset) => {
                let slot = self.store.slot(index)?;
                let inside = |bytes: u64| Some(offset.checked_add(bytes)? <= slot.pair.tx.capacity());
                let spacing = slot.spacing.filter(|_| inside(len) == Some(true))?;
                let inside = inside(spacing.stored_bytes(len))? && offset.is_multiple_of(BLOCK_BYTES);
                inside.then(|| Place::Spaced(index, offset, cookie).id())
            }
            Body::Exchanged(number) => {
                let id = self.store.hold(index, number, cookie)?;
                (self.store.held_len(id)? >= len).then_some(id)
            }
        }
    }

    /// Where a port's client finds a message's bytes.
    pub(super) fn body_for(&mut self, port: PortId, buffer: BufferId) -> Option<Body> {
        match Place::of(buffer) {
            Place::Rx(_, offset) => Some(Body::Arena(offset)),
            Place::Held(..) => self.store.hand_over(port, buffer).map(Body::Exchanged),
            Place::Tx(..) | Place::Spaced(..) => None,
        }
    }
}

fn answer_to(bound: Result<(), BindError>) -> Completion {
    Completion::Answer(match bound {
        Ok(()) => ANSWER_OK,
        Err(BindError::Taken { by }) => return Completion::Taken(by),
        Err(BindError::Reserved) => ANSWER_RESERVED,
        Err(BindError::Inverted) => ANSWER_INVERTED,
        Err(_) => ANSWER_TOO_MANY,
    })
}

fn code_of(error: SendError) -> FailureCode {
    match error {
        SendError::NoService(_) => FailureCode::NoService,
        SendError::NoNode(_) => FailureCode::NoNode,
        SendError::TooLarge(_) => FailureCode::TooLarge,
        SendError::Unsupported(_) => FailureCode::NoNode,
        SendError::Expired => FailureCode::Expired,
        SendError::Overload(_) => FailureCode::Overload,
        _ => FailureCode::NotSent,
    }
}
