//! What a client knows of its port's connections: what has come by each, and how far each has come.
//!
//! All connections of a port share its queue pair, so what arrives is sorted here by connection until its owner asks.

use super::trunks::{Past, is_past};
use super::{Arrival, Blocked, Client, Envelope};
use crate::engine::command::{Body, Command, Completion, Ended, NotConnecting};
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, PortAddress, PortId, SessionId};
use polyrail_proto::limits::{EAGER_BYTES_MAX, INITIAL_CREDIT, credit_cost};
use polyrail_proto::node::Destination;
use polyrail_shm::Buffer;
use std::collections::{BTreeMap, VecDeque};

/// A connection that somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names it.
    pub id: ConnectionId,
    /// Who asks.
    pub from: PortAddress,
    /// The service that was addressed.
    pub service: Option<ServiceAddress>,
    /// It is to carry a stream of bytes.
    pub stream: bool,
    /// Class of its messages.
    pub class: Class,
}

/// What becomes of asking: the connection and the port at its other end, or why there is none.
pub type Answer = Result<(ConnectionId, PortAddress), NotConnecting>;

/// How to ask for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Class of its messages.
    pub class: Class,
    /// It carries a stream of bytes.
    pub stream: bool,
    /// Nothing follows the first message.
    pub last: bool,
}

/// How far a connection has come, as its owner may know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Both sides want it.
    pub open: bool,
    /// Something came and was not read.
    pub unread: bool,
    /// The other side has sent all; what of it was not read is still there.
    pub ended: bool,
    /// The other side receives no more.
    pub deaf: bool,
    /// It is over, and why.
    pub over: Option<Ended>,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What came and was not read.
    pub(crate) arrivals: VecDeque<Arrival>,
    /// Bytes of the first of these that were read already. If there is none: of the next message, which is on its way.
    pub(crate) read: u64,
    /// Messages that have come in all.
    pub(crate) came: u64,
    /// Its owner holds it: we asked for it, or have accepted it.
    pub(crate) taken_in: bool,
    /// The other side has accepted, or we have.
    pub(crate) open: bool,
    /// We have sent all.
    pub(crate) sent_all: bool,
    /// The other side has sent all.
    pub(crate) ended: bool,
    /// The other side receives no more.
    pub(crate) deaf: bool,
    /// It is over, and why.
    pub(crate) over: Option<Ended>,
    /// What has come of a message in pieces, past the engine: its memory, and how many bytes are there.
    pub(crate) whole: Option<(Buffer, usize)>,
    /// What was read in all, as it counts against credit: bytes, messages.
    consumed: (u64, u64),
    /// How much of that the engine was told.
    told: (u64, u64),
    /// What the other side's application has room for, in all: bytes, messages.
    pub(super) granted: (u64, u64),
    /// What of that was handed in.
    used: (u64, u64),
    /// It is among the readable ones.
    listed: bool,
}

/// Connections of one client.
#[derive(Default)]
pub(crate) struct Connections {
    known: BTreeMap<ConnectionId, Known>,
    requests: VecDeque<Request>,
    /// Answers to `connect`, by cookie.
    answers: Vec<(u64, Answer)>,
    asked: u64,
    /// Of questions without an answer that take a message along: the cookie, what the message costs, whether it is the last.
    firsts: Vec<(u64, u64, bool)>,
    /// Those of which more was read than the engine knows, for want of room in the queue.
    untold: Vec<ConnectionId>,
    /// Those of which something may be read, each once.
    readable: VecDeque<ConnectionId>,
}

impl Connections {
    fn take_first(&mut self, cookie: u64) -> Option<(u64, bool)> {
        let at = self.firsts.iter().position(|(of, ..)| *of == cookie)?;
        let (_, cost, last) = self.firsts.swap_remove(at);
        Some((cost, last))
    }

    pub(super) fn insert(&mut self, id: ConnectionId, known: Known) {
        self.known.insert(id, known);
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Known> {
        self.known.get_mut(&id)
    }

    pub(super) fn knows(&self, id: ConnectionId) -> bool {
        self.known.contains_key(&id)
    }

    /// Whether any connection is known of that session.
    pub(super) fn has_any_of(&self, session: SessionId) -> bool {
        let [first, last] = [0, u32::MAX].map(|end| ConnectionId { session, end: PortId(end) });
        self.known.range(first..=last).next().is_some()
    }

    /// Somebody wants a connection.
    pub(super) fn ask(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// How many want one.
    pub(super) fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// Notes how a connection ends.
    pub(super) fn end(&mut self, id: ConnectionId, note: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.get_mut(&id) {
            note(known);
            list(known, id, &mut self.readable);
        }
    }

    /// Puts what came by a connection there; it comes back if nobody knows of that one.
    pub(super) fn put(&mut self, id: ConnectionId, arrival: Arrival) -> Option<Arrival> {
        let Some(known) = self.known.get_mut(&id) else { return Some(arrival) };
        known.came += arrival.is_message() as u64;
        known.arrivals.push_back(arrival);
        list(known, id, &mut self.readable);
        None
    }

    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Of this connection more was read than could be told.
    pub(super) fn note_untold(&mut self, id: ConnectionId) {
        self.untold.push(id);
    }

    /// Forgets a connection. Of the readable ones it is taken with others, for to find it among them takes a look at each.
    fn remove(&mut self, id: ConnectionId) -> Option<Known> {
        let removed = self.known.remove(&id)?;
        if removed.listed && self.readable.len() >= 2 * self.known.len() + READABLE_MIN {
            self.readable.retain(|id| self.known.contains_key(id));
        }
        Some(removed)
    }
}

/// So many readable ones are kept in any case.
const READABLE_MIN: usize = 16;

/// Notes that something may be read.
fn list(known: &mut Known, id: ConnectionId, readable: &mut VecDeque<ConnectionId>) {
    if !std::mem::replace(&mut known.listed, true) {
        readable.push_back(id);
    }
}

/// What a message takes of the credit for bytes. One that is announced first takes none (protocol.md §6.2).
fn cost_of(len: u64) -> u64 {
    if len > EAGER_BYTES_MAX { 0 } else { credit_cost(len) }
}

/// The credit that a message takes together with one of `before` bytes ahead of it, and how many are ahead.
fn wanted(before: Option<u64>, len: u64) -> (u64, u64) {
    (before.map_or(0, cost_of) + cost_of(len), before.is_some() as u64)
}

impl Known {
    /// A new one, on which so much may be sent in all.
    pub(super) fn with(granted: (u64, u64)) -> Known {
        Known { granted, ..Known::default() }
    }

    /// Whether the credit is enough for one more message after `before` others, with which it takes `cost` bytes of it.
    pub(super) fn affords(&self, (cost, before): (u64, u64)) -> bool {
        self.used.0 + cost <= self.granted.0 && self.used.1 + before < self.granted.1
    }

    /// The first of what has come, and how many bytes of it were read before.
    pub(crate) fn take_next(&mut self) -> Option<(Arrival, u64)> {
        let arrival = self.arrivals.pop_front()?;
        let read = if arrival.is_message() { std::mem::take(&mut self.read) } else { 0 };
        Some((arrival, read))
    }

    /// The rest of a message is read later; so much of it was read before.
    pub(crate) fn put_back(&mut self, arrival: Arrival, read: u64) {
        self.read = read;
        self.arrivals.push_front(arrival);
    }

    /// Bytes that the credit is enough for.
    pub(super) fn credit_left(&self) -> u64 {
        self.granted.0.saturating_sub(self.used.0)
    }

    pub(super) fn charge(&mut self, cost: u64) {
        self.used = (self.used.0 + cost, self.used.1 + 1);
    }
}

/// What was read is told when so much has gathered: a quarter of what a connection begins with.
const TELL: (u64, u64) = (INITIAL_CREDIT.0 as u64 / 4, INITIAL_CREDIT.1 as u64 / 4);

impl Client {
    /// From now on so many connections may wait for this port.
    pub fn listen(&mut self, backlog: u32) -> Result<(), Blocked> {
        self.pair.sq.push(&Command::Listen(backlog).encode()).map_err(|_| Blocked)?;
        self.set_backlog(backlog);
        Ok(())
    }

    /// Asks for a connection, with a first message if there is one; the cookie under which the answer is found.
    pub fn connect(&mut self, to: Destination, wish: Wish, first: Option<&[u8]>) -> Result<u64, Blocked> {
        if self.pair.sq.free() == 0 {
            return Err(Blocked);
        }
        let first = match first {
            None => None,
            Some(bytes) => {
                let len = bytes.len() as u64;
                let offset = self.alloc(len).ok_or(Blocked)?;
                self.pair.tx.memory().write_at(offset, bytes).ok_or(Blocked)?;
                Some((Body::Arena(offset), len))
            }
        };
        // The cookie of a message is its number; a question without one has a number of its own.
        let cookie = if first.is_some() { self.sent } else { u64::MAX - self.connections.asked };
        self.connections.asked += 1;
        let Wish { class, stream, last } = wish;
        let command = Command::Connect { to, class, stream, first, last, cookie };
        self.pair.sq.push(&command.encode()).expect("there is room, and nobody else writes");
        if let Some((_, len)) = first {
            self.connections.firsts.push((cookie, cost_of(len), last));
            self.directs.note_engine(cookie);
            self.sent += 1;
            self.pair.words.accepted.store(self.sent);
        }
        Ok(cookie)
    }

    /// Whether a message to `to` may be handed in. By a connection only as much as the other side's application has room
    /// for: what waits for that would take the memory from which all that the port sends leaves.
    pub(super) fn may_send(&mut self, to: Destination, len: u64) -> bool {
        let Destination::Connection(id) = to else { return true };
        self.may_send_behind(id, None, len)
    }

    /// The same for a message that follows one of `before` bytes, which is not handed in yet.
    pub(super) fn may_send_behind(&mut self, id: ConnectionId, before: Option<u64>, len: u64) -> bool {
        let wanted = wanted(before, len);
        self.affords(id, wanted) || {
            self.sort_fresh();
            self.affords(id, wanted)
        }
    }

    fn affords(&self, id: ConnectionId, wanted: (u64, u64)) -> bool {
        // What is over takes nothing: that is told by other ways than waiting.
        let known = self.connections.known.get(&id).filter(|known| known.over.is_none() && !known.deaf);
        known.is_none_or(|known| known.affords(wanted))
    }

    /// A message to `to` was handed in.
    pub(super) fn note_sent(&mut self, to: Destination, len: u64) {
        if let Destination::Connection(id) = to
            && let Some(known) = self.connections.known.get_mut(&id)
        {
            known.charge(cost_of(len));
        }
    }

    /// The answer to `connect`, once it is here.
    pub fn take_answer(&mut self, cookie: u64) -> Option<Answer> {
        let answers = &mut self.connections.answers;
        let at = answers.iter().position(|(of, _)| *of == cookie)?;
        Some(answers.swap_remove(at).1)
    }

    /// The next connection that somebody wants.
    pub fn take_request(&mut self) -> Option<Request> {
        loop {
            let request = *self.connections.requests.front()?;
            let over = self.connections.known.get(&request.id).is_none_or(|known| known.over.is_some());
            // What is over is not offered; but it takes a place among those that wait until it is answered.
            if over && self.shut_down(request.id, true, true).is_err() {
                return None;
            }
            self.connections.requests.pop_front();
            self.note_room();
            if !over {
                return Some(request);
            }
            self.forget(request.id);
        }
    }

    /// Accepts a connection.
    pub fn accept_connection(&mut self, id: ConnectionId) -> Result<(), Blocked> {
        if is_past(id) {
            self.accept_by_trunk(id)?;
        } else {
            self.pair.sq.push(&Command::Take(id).encode()).map_err(|_| Blocked)?;
        }
        let known = self.connections.known.entry(id).or_default();
        (known.open, known.taken_in) = (true, true);
        Ok(())
    }

    /// Says that no more is sent, no more received, or both; refuses a connection that waits.
    pub fn shut_down(&mut self, id: ConnectionId, sent_all: bool, deaf: bool) -> Result<(), Blocked> {
        if is_past(id) {
            self.shut_down_by_trunk(id, sent_all, deaf)?;
        } else {
            self.close_gathered(id)?;
            self.pair.sq.push(&Command::ShutDown { id, sent_all, deaf }.encode()).map_err(|_| Blocked)?;
        }
        if let Some(known) = self.connections.known.get_mut(&id) {
            known.sent_all |= sent_all;
        }
        Ok(())
    }

    /// A connection, unless it is forgotten.
    pub(crate) fn connection(&mut self, id: ConnectionId) -> Option<&mut Known> {
        self.connections.known.get_mut(&id)
    }

    /// How far a connection has come; `None` if it is forgotten.
    pub fn progress(&self, id: ConnectionId) -> Option<Progress> {
        let Known { arrivals, open, ended, deaf, over, .. } = self.connections.known.get(&id)?;
        let unread = !arrivals.is_empty();
        Some(Progress { open: *open, unread, ended: *ended, deaf: *deaf, over: *over })
    }

    /// The next of what has come by a connection: a message, or the offer of one.
    pub fn read(&mut self, id: ConnectionId) -> Option<Arrival> {
        self.connections.known.get_mut(&id)?.arrivals.pop_front()
    }

    /// Puts an offer that could not be accepted back: it stays next in line on its connection.
    pub fn unread(&mut self, id: ConnectionId, arrival: Arrival) {
        if let Some(known) = self.connections.known.get_mut(&id) {
            known.arrivals.push_front(arrival);
        }
    }

    /// The next of which something may be read: messages, or their end. Those that wait to be accepted wait for that.
    pub fn next_readable(&mut self) -> Option<ConnectionId> {
        for _ in 0..self.connections.readable.len() {
            let id = self.connections.readable.pop_front()?;
            match self.connections.known.get_mut(&id) {
                Some(known) if known.taken_in => {
                    known.listed = false;
                    return Some(id);
                }
                Some(_) => self.connections.readable.push_back(id),
                None => {}
            }
        }
        None
    }

    /// Nobody wants to know of a connection any more: what came by it is given back.
    pub fn forget(&mut self, id: ConnectionId) {
        let Some(known) = self.connections.remove(id) else { return };
        self.forget_past(id);
        for arrival in known.arrivals {
            self.drop_arrival(id, arrival);
        }
    }

    fn drop_arrival(&mut self, id: ConnectionId, arrival: Arrival) {
        match arrival {
            Arrival::Past(Past { len, body, .. }) => self.drop_past(id, len, body),
            Arrival::Message(envelope, offset) => self.release(offset, envelope.len),
            // Its sender will be told that nobody wants it.
            Arrival::Owned(..) | Arrival::Offer { .. } => {}
            Arrival::Failed(..) | Arrival::Returned(_) | Arrival::Answer(_) | Arrival::Sorted => {}
            Arrival::Came(_) | Arrival::Taken(_) | Arrival::Unbound(..) | Arrival::Direct(_) => {}
        }
    }

    /// Puts what came by a connection where it belongs.
    pub(super) fn sort(&mut self, id: ConnectionId, arrival: Arrival) {
        if let Some(arrival) = self.connections.put(id, arrival) {
            self.drop_arrival(id, arrival);
        }
    }

    /// Takes in news of a connection.
    pub(super) fn note(&mut self, completion: Completion) {
        let connections = &mut self.connections;
        match completion {
            Completion::Request { id, from, service, stream, class, credit } => {
                connections.known.insert(id, Known::with(credit));
                connections.requests.push_back(Request { id, from, service, stream, class });
            }
            Completion::Connecting { cookie, id, peer, credit } => {
                let mut known = Known { taken_in: true, granted: credit, ..Known::default() };
                if let Some((cost, last)) = connections.take_first(cookie) {
                    known.charge(cost);
                    known.sent_all = last;
                }
                connections.known.insert(id, known);
                connections.answers.push((cookie, Ok((id, peer))));
            }
            Completion::NotConnecting { cookie, why } => {
                connections.take_first(cookie);
                connections.answers.push((cookie, Err(why)));
            }
            Completion::Connected { id, credit, .. } => {
                if let Some(known) = connections.known.get_mut(&id) {
                    (known.open, known.granted) = (true, credit);
                }
            }
            Completion::Credit { id, credit } => {
                if let Some(known) = connections.known.get_mut(&id) {
                    known.granted = credit;
                }
            }
            Completion::Ended { id, how } => {
                if let Some(known) = connections.known.get_mut(&id) {
                    match how {
                        Ended::SentAll => known.ended = true,
                        Ended::Deaf => known.deaf = true,
                        why => known.over = Some(why),
                    }
                    list(known, id, &mut connections.readable);
                }
            }
            _ => {}
        }
    }

    /// A message that came by a connection was read.
    pub(super) fn note_read(&mut self, id: ConnectionId, envelope: &Envelope, in_arena: bool) {
        let Some(known) = self.connections.known.get_mut(&id) else { return };
        // What was announced first has its memory from elsewhere.
        known.consumed.0 += if in_arena { credit_cost(envelope.len) } else { 0 };
        known.consumed.1 += 1;
        let due = known.consumed.0 - known.told.0 >= TELL.0 || known.consumed.1 - known.told.1 >= TELL.1;
        if due && !self.tell_read(id) {
            self.connections.untold.push(id);
        }
    }

    /// Tells the engine how much of a connection was read; whether that could be done.
    fn tell_read(&mut self, id: ConnectionId) -> bool {
        if is_past(id) {
            return self.tell_read_past(id);
        }
        let Some(known) = self.connections.known.get_mut(&id) else { return true };
        if known.consumed == known.told {
            return true;
        }
        let (bytes, messages) = known.consumed;
        let command = Command::Consumed { id, bytes, messages };
        let told = self.pair.sq.push(&command.encode()).is_ok();
        if told {
            known.told = known.consumed;
        }
        told
    }

    /// Tells the engine what it could not be told before.
    pub(super) fn tell_untold(&mut self) {
        while let Some(id) = self.connections.untold.pop() {
            if !self.tell_read(id) {
                return self.connections.untold.push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ConnectionId {
        ConnectionId { session: SessionId(1), end: PortId(number) }
    }

    #[test]
    fn connections_that_nobody_asked_after_leave_nothing_behind() {
        let mut connections = Connections::default();
        for number in 0..10_000 {
            connections.known.insert(id(number), Known::default());
            list(connections.known.get_mut(&id(number)).unwrap(), id(number), &mut connections.readable);
            if number >= 100 {
                assert!(connections.remove(id(number - 50)).is_some());
            }
            assert!(connections.readable.len() <= 2 * 101 + READABLE_MIN);
        }
        let still: Vec<ConnectionId> = connections.known.keys().copied().collect();
        connections.readable.retain(|id| connections.known.contains_key(id));
        assert_eq!(connections.readable, still, "each that is known, in order");
    }

    #[test]
    fn what_follows_a_message_that_is_not_handed_in_needs_credit_for_both() {
        let known = |granted| Known { granted, ..Known::default() };
        let both = (cost_of(5_000) + cost_of(100), 1);
        assert!(known((both.0, 2)).affords(both));
        assert!(!known((both.0 - 1, 2)).affords(both), "bytes");
        assert!(!known((both.0, 1)).affords(both), "messages");
        assert_eq!(wanted(None, 100), (cost_of(100), 0));
        assert_eq!(wanted(Some(5_000), 100), both);
    }
}
