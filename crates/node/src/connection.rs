//! Connections: two ports that send to each other, in order, until they have had enough.

use crate::clock::now_ns;
use crate::engine::client::connections::{Known, Request, Wish};
use crate::engine::client::trunks::{Part, Past, is_past};
use crate::engine::client::{Arrival, Envelope};
use crate::engine::command::NotConnecting;
use crate::engine::readers::Reader;
use crate::error::{ConnectionError, Disconnect, RecvError, SendError};
use crate::message::Message;
use crate::node::Node;
use crate::port::{Limit, Port};
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, PortAddress};
use polyrail_proto::limits::EAGER_BYTES_MAX;
use polyrail_proto::node::Destination;
use polyrail_shm::Buffer;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// How long [`Port::connect`] waits for the other side to accept.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(10);

/// Shorter writes of a stream share packets, which is as good as putting them together.
const GATHERED_BYTES_MIN: usize = 4_096;
/// Bytes of a write that become one message where writes are not gathered.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

/// How to connect: see [`Port::connect_with`].
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// Class of all messages; normal if not set.
    pub class: Class,
    /// The connection carries a stream of bytes: what is written in pieces may be read in others.
    pub stream: bool,
    /// A message that leaves with the question, so that the answer may be here after one round trip.
    pub first: Option<&'a [u8]>,
    /// Nothing follows the first message: the other side sees the end after it.
    pub last: bool,
    /// How long to wait for the other side to accept; `None`: not at all, for a refusal is told by the first `recv`.
    pub accepted_within: Option<Duration>,
}

impl Default for Connect<'_> {
    fn default() -> Self {
        Connect {
            class: Class::Normal,
            stream: false,
            first: None,
            last: false,
            accepted_within: Some(ACCEPTED_WITHIN),
        }
    }
}

impl Port {
    /// From now on this port takes connections, at its address and at the services that it has bound; `backlog` of them
    /// may wait to be accepted, further ones are refused. 0: it takes none any more.
    pub fn listen(&self, backlog: u32) -> Result<(), ConnectionError> {
        self.check_fork()?;
        self.submit(|port| port.client.borrow_mut().listen(backlog).is_ok());
        self.drive();
        Ok(())
    }

    /// Accepts the next connection; waits for one.
    pub fn accept(&self) -> Result<Connection<&Port>, ConnectionError> {
        Connection::accept(self, None)
    }

    /// Accepts the next connection, or gives up with [`ConnectionError::TimedOut`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Connection<&Port>, ConnectionError> {
        Connection::accept(self, Some(timeout))
    }

    /// Connects to a port or a service; waits until the other side has accepted.
    pub fn connect(&self, to: impl Into<Destination>) -> Result<Connection<&Port>, ConnectionError> {
        self.connect_with(to, &Connect::default())
    }

    /// Connects for a stream of bytes; waits until the other side has accepted.
    pub fn connect_stream(&self, to: impl Into<Destination>) -> Result<Connection<&Port>, ConnectionError> {
        self.connect_with(to, &Connect { stream: true, ..Connect::default() })
    }

    /// Asks a question and nothing more: the connection, the message and its end leave together, and the answer may be here
    /// after one round trip. Does not wait: a refusal is told by the first `recv`.
    pub fn ask(
        &self,
        to: impl Into<Destination>,
        question: &[u8],
    ) -> Result<Connection<&Port>, ConnectionError> {
        let how = Connect { first: Some(question), last: true, accepted_within: None, ..Connect::default() };
        self.connect_with(to, &how)
    }

    /// Connects in any way.
    pub fn connect_with(
        &self,
        to: impl Into<Destination>,
        how: &Connect<'_>,
    ) -> Result<Connection<&Port>, ConnectionError> {
        Connection::open(self, to, how)
    }

    /// Has the engine ask for a connection, again while too much is under way to that node.
    fn ask_for(
        &self,
        to: Destination,
        how: &Connect<'_>,
        limit: &mut Limit,
    ) -> Result<(ConnectionId, PortAddress), ConnectionError> {
        let first = how.first.filter(|first| first.len() as u64 <= EAGER_BYTES_MAX);
        if how.first.is_some() && first.is_none() {
            return Err(ConnectionError::FirstTooLarge { max: EAGER_BYTES_MAX });
        }
        let wish = Wish { class: how.class, stream: how.stream, last: how.last };
        if let Some(opened) = self.ask_past(to, (wish, how.accepted_within.is_some()), first) {
            return Ok(opened);
        }
        loop {
            let mut cookie = None;
            self.submit(|port| {
                cookie = port.client.borrow_mut().connect(to, wish, first).ok();
                cookie.is_some()
            });
            let Some(cookie) = cookie else { return Err(ConnectionError::Closed) };
            let mut answer = None;
            self.wait_until(Limit::Never, |port| {
                let mut client = port.sorted();
                answer = client.take_answer(cookie);
                answer.is_some()
            });
            match (answer, to) {
                (Some(Ok(connection)), _) => return Ok(connection),
                (Some(Err(NotConnecting::Blocked)), _)
                    if limit.until_ns().is_none_or(|until| now_ns() < until) =>
                {
                    // Confirmations make room; whoever waits for them drives the engine.
                    let tick = now_ns() + 50_000;
                    self.wait_until(Some(tick), |_| false);
                }
                (Some(Err(NotConnecting::NoService)), Destination::Service(service)) => {
                    let bound = self.bound();
                    return Err(ConnectionError::NoService { service, bound });
                }
                (Some(Err(NotConnecting::Blocked)), _) => return Err(ConnectionError::TimedOut),
                (Some(Err(NotConnecting::Unsupported)), _) => return Err(ConnectionError::Unsupported),
                (Some(Err(NotConnecting::TooMany)), _) => return Err(ConnectionError::TooMany),
                (Some(Err(NotConnecting::NoNode)), to) => return Err(ConnectionError::NoNode(to)),
                _ => return Err(ConnectionError::Closed),
            }
        }
    }

    /// The next connection of this port of which something may be read, its end among that; `None` after `timeout`. Each is
    /// named once until it was asked: read it until there is nothing more.
    pub fn next_readable(&self, timeout: Option<Duration>) -> Option<ConnectionId> {
        let mut next = None;
        self.wait_past(timeout, |port| {
            let mut client = port.sorted();
            next = client.next_readable();
            next.is_some()
        });
        next
    }

    /// Hands something to the engine, waiting for room.
    fn submit(&self, mut attempt: impl FnMut(&Port) -> bool) {
        if !attempt(self) {
            self.wait_until(Limit::Never, attempt);
        }
    }

    fn check_fork(&self) -> Result<(), ConnectionError> {
        if self.shared.host.is_forked() { Err(ConnectionError::Forked) } else { Ok(()) }
    }
}

/// A connection of a port. Dropping it ends it: what was sent is still delivered, what was not read is not.
///
/// `P` is how it holds its port: by reference, as those that [`Port::accept`] and [`Port::connect`] give; shared, for
/// structures that keep both (`Rc<Port>`); or as its own (`Box<Port>`), so that it may move to another thread, as those of
/// [`Node::connect`] do.
pub struct Connection<P: Deref<Target = Port>> {
    port: P,
    id: ConnectionId,
    peer: PortAddress,
    service: Option<ServiceAddress>,
    stream: bool,
    class: Class,
}

impl Node {
    /// Connects with a port of the connection's own.
    pub fn connect(
        &self,
        to: impl Into<Destination>,
        how: &Connect<'_>,
    ) -> Result<Connection<Box<Port>>, ConnectionError> {
        Connection::open(Box::new(self.port()?), to, how)
    }
}

impl<P: Deref<Target = Port>> Connection<P> {
    /// Accepts the next connection of `port`, or gives up with [`ConnectionError::TimedOut`].
    pub fn accept(port: P, timeout: Option<Duration>) -> Result<Self, ConnectionError> {
        port.check_fork()?;
        let mut request = None;
        port.wait_past(timeout, |port| {
            let mut client = port.sorted();
            request = client.take_request();
            request.is_some()
        });
        let none = if port.is_cut_off() { ConnectionError::Closed } else { ConnectionError::TimedOut };
        let Request { id, from, service, stream, class } = request.ok_or(none)?;
        // The answer leaves with what is sent first, or when somebody waits.
        port.submit(|port| port.client.borrow_mut().accept_connection(id).is_ok());
        Ok(Connection { port, id, peer: from, service, stream, class })
    }

    /// Connects by `port`.
    pub fn open(port: P, to: impl Into<Destination>, how: &Connect<'_>) -> Result<Self, ConnectionError> {
        port.check_fork()?;
        let to = to.into();
        let mut limit = Limit::from(how.accepted_within);
        let (id, peer) = port.ask_for(to, how, &mut limit)?;
        let service = match to {
            Destination::Service(service) => Some(service),
            _ => None,
        };
        let connection = Connection { port, id, peer, service, stream: how.stream, class: how.class };
        if how.accepted_within.is_some() {
            let accepted = connection.wait(&mut limit, |port| {
                connection.look(port, |known| known.open || known.over.is_some()).unwrap_or(true)
            });
            if !accepted {
                let gone = connection.is_cut_off();
                return Err(if gone { ConnectionError::Closed } else { ConnectionError::TimedOut });
            }
            connection.check_over()?;
        }
        Ok(connection)
    }

    /// Names it among the connections of its port.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The port at the other end.
    pub fn peer(&self) -> PortAddress {
        self.peer
    }

    /// The service that was addressed when it began, if any.
    pub fn service(&self) -> Option<ServiceAddress> {
        self.service
    }

    /// Whether it carries a stream of bytes, in which the ends of messages mean nothing.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Class of its messages.
    pub fn class(&self) -> Class {
        self.class
    }

    // ----- sending -------------------------------------------------------------------------------------------

    /// Sends a copy of `bytes`. Waits while the other side's application has not read what was sent before, as far as that
    /// fills its window, or while memory is short.
    pub fn send(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_timeout(bytes, None)
    }

    /// Sends a copy of `bytes`, or gives up with [`SendError::Blocked`].
    pub fn send_timeout(&self, bytes: &[u8], timeout: Option<Duration>) -> Result<(), SendError> {
        self.check_sending()?;
        if self.stream && bytes.len() >= GATHERED_BYTES_MIN {
            return self.port.write(self.id, self.class, bytes, timeout);
        }
        self.port.send_with(Destination::Connection(self.id), self.class, None, bytes, timeout)
    }

    /// Sends a buffer of [`Port::alloc`]; of a stream, too, as one message. Waits as [`Connection::send`] does. What is copied on the way is the
    /// node's choice, as with [`Port::send_buffer`]: a program of the same user that is attached to the same node reads what is longer than
    /// 2 KiB where it lies. While it has 32 buffers of this connection and has not dropped their messages, those of up to 64 KiB are copied and longer
    /// ones wait.
    pub fn send_buffer(&self, buffer: Buffer) -> Result<(), SendError> {
        self.check_sending()?;
        let to = Destination::Connection(self.id);
        self.port.submit_buffer(to, (self.class, None).into(), buffer, None).map(drop)
    }

    /// Sends a copy of `bytes` and nothing after it: message and end leave together.
    pub fn send_last(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.check_sending()?;
        if is_past(self.id) {
            return self.port.send_past(self.id, bytes, true, None).map(drop);
        }
        self.port
            .hold(|| self.port.send_with(Destination::Connection(self.id), self.class, None, bytes, None))?;
        self.finish();
        Ok(())
    }

    /// Sends no more. The other side sees the end after what was sent; it may still answer.
    pub fn finish(&self) {
        self.port.submit(|port| port.client.borrow_mut().shut_down(self.id, true, false).is_ok());
        self.hand_in();
    }

    /// Has the engine take what was handed in, if it is to hear of it.
    fn hand_in(&self) {
        if !is_past(self.id) {
            self.port.hand_in();
        }
    }

    fn check_sending(&self) -> Result<(), SendError> {
        let state = self.look(&self.port, |known| (known.over, known.deaf));
        match state {
            Some((None, false)) => Ok(()),
            Some((Some(over), _)) => Err(SendError::Disconnected(over.into())),
            Some((None, true)) => Err(SendError::Disconnected(Disconnect::Deaf)),
            None => Err(SendError::Closed),
        }
    }

    // ----- receiving -----------------------------------------------------------------------------------------

    /// The next message; waits for it. `None`: the other side has sent all.
    pub fn recv(&self) -> Result<Option<Message<'_>>, ConnectionError> {
        self.recv_until(None)
    }

    /// The next message, or [`ConnectionError::TimedOut`]. `None`: the other side has sent all.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message<'_>>, ConnectionError> {
        self.recv_until(Some(timeout))
    }

    /// The next message among those that have arrived: looks for no more, so that it costs nothing when there is none.
    pub fn recv_arrived(&self) -> Result<Option<Message<'_>>, ConnectionError> {
        while self.has_arrivals() {
            if let Some(message) = self.take_next()? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn recv_until(&self, timeout: Option<Duration>) -> Result<Option<Message<'_>>, ConnectionError> {
        let mut limit = Limit::from(timeout);
        loop {
            if !self.await_arrival(&mut limit, || false)? {
                return Ok(None);
            }
            if let Some(message) = self.take_next()? {
                return Ok(Some(message));
            }
        }
    }

    /// Reads what has come, up to the length of `into`, at least one byte; waits for it. 0: the other side has sent all. Of a stream
    /// also what has come of a message that is still on its way: while its reader waits, bytes go straight to `into`.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, ConnectionError> {
        self.read_until(into, Limit::Never)
    }

    /// The same, or [`ConnectionError::TimedOut`].
    pub fn read_timeout(&self, into: &mut [u8], timeout: Duration) -> Result<usize, ConnectionError> {
        self.read_until(into, Limit::Within(timeout))
    }

    fn has_arrivals(&self) -> bool {
        self.look(&self.port, |known| !known.arrivals.is_empty()).unwrap_or(false)
    }

    fn read_until(&self, into: &mut [u8], mut limit: Limit) -> Result<usize, ConnectionError> {
        let mut filled = 0;
        while filled < into.len() {
            if !self.has_arrivals() {
                if filled > 0 {
                    break;
                }
                match self.await_bytes(into, &mut limit)? {
                    (_, landed) if landed > 0 => return Ok(landed),
                    (here, _) if !here => return Ok(0),
                    _ => {}
                }
            }
            let Some(message) = self.take_next()? else { continue };
            let rest = message.bytes();
            let take = rest.len().min(into.len() - filled);
            into[filled..filled + take].copy_from_slice(&rest[..take]);
            filled += take;
            if take < rest.len() {
                self.put_back(message, take);
            }
        }
        Ok(filled)
    }

    /// Waits for a message, or for bytes of one of a stream that is still on its way, which go to `into`: whether something is
    /// here, false being the end, and how many such bytes.
    fn await_bytes(&self, into: &mut [u8], limit: &mut Limit) -> Result<(bool, usize), ConnectionError> {
        if !self.stream {
            return self.await_arrival(limit, || false).map(|here| (here, 0));
        }
        self.port.check_fork()?;
        let landing = self.port.landing();
        let (waited, landed) = landing.open(into, |token| {
            // Who is in another process can't lend memory of its own.
            if let Some(drive) = self.port.shared.host.own()
                && let Some((came, read)) = self.look(&self.port, |known| (known.came, known.read))
            {
                let (port, connection) = (self.port.address().port, self.id);
                let reader = Reader { port, connection, came, read, landing: Arc::clone(landing), token };
                drive.engine().add_reader(reader);
            }
            self.await_arrival(limit, || landing.landed() > 0)
        });
        if landed == 0 {
            return waited.map(|here| (here, 0));
        }
        if let Some(known) = self.port.client.borrow_mut().connection(self.id) {
            known.read += landed as u64;
        }
        Ok((true, landed))
    }

    /// Reads exactly as many bytes as `into` has.
    ///
    /// # Errors
    /// Beside those of `read`: the other side has sent all, and that was less ([`ConnectionError::Ended`]).
    pub fn read_exact(&self, into: &mut [u8]) -> Result<(), ConnectionError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => return Err(ConnectionError::Ended),
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    /// Waits as whoever is at the other end is reached: past the engine or by it.
    fn wait(&self, limit: &mut Limit, done: impl FnMut(&Port) -> bool) -> bool {
        let is_vain = if is_past(self.id) { Port::is_cut_off } else { Port::has_no_engine };
        self.port.wait_by(limit, is_vain, done)
    }

    /// Whether nobody reaches the other end any more.
    fn is_cut_off(&self) -> bool {
        if is_past(self.id) { self.port.is_cut_off() } else { self.port.has_no_engine() }
    }

    /// Waits until something is here, or `or` says yes; false: the other side has sent all, and it was read.
    fn await_arrival(&self, limit: &mut Limit, or: impl Fn() -> bool) -> Result<bool, ConnectionError> {
        self.port.check_fork()?;
        self.port.take_returns();
        let mut state = None;
        self.wait(limit, |port| {
            state = self.look(port, |known| (!known.arrivals.is_empty(), known.ended, known.over.is_some()));
            or() || state.is_none_or(|(here, ended, over)| here || ended || over)
        });
        match state {
            Some((true, ..)) => Ok(true),
            Some((_, true, _)) => Ok(false),
            Some((.., true)) => self.check_over().map(|()| false),
            Some(_) if self.is_cut_off() => Err(ConnectionError::Closed),
            Some(_) => Err(ConnectionError::TimedOut),
            None => Err(ConnectionError::Closed),
        }
    }

    /// Takes what was not read before of the first that has come. `None`: that was nothing, or it wanted memory first, which it has now
    /// been given.
    fn take_next(&self) -> Result<Option<Message<'_>>, ConnectionError> {
        let next = self.port.client.borrow_mut().connection(self.id).and_then(Known::take_next);
        Ok(match next {
            Some((Arrival::Message(envelope, offset), read)) => {
                let bytes = self.port.rx.bytes(offset, envelope.len as usize).unwrap_or(&[]);
                Message::in_arena(&self.port, envelope, bytes, offset).behind(read)
            }
            Some((Arrival::Owned(envelope, buffer), read)) => {
                Message::owned(&self.port, envelope, buffer).behind(read)
            }
            Some((Arrival::Offer { len, offer, from }, _)) => {
                if let Err(error) = self.port.accept_offer(len, offer) {
                    let mut client = self.port.client.borrow_mut();
                    if let Some(known) = client.connection(self.id) {
                        known.arrivals.push_front(Arrival::Offer { from, len, offer });
                    }
                    return Err(error.into());
                }
                None
            }
            Some((Arrival::Past(past), read)) => self.take_past(past, read)?,
            Some(_) | None => None,
        })
    }

    /// The same of what came past the engine: a message, or a piece of one that is put together.
    fn take_past(&self, past: Past, read: u64) -> Result<Option<Message<'_>>, ConnectionError> {
        let envelope = |len: u64| Envelope {
            from: self.peer,
            connection: Some(self.id),
            service: None,
            tag: None,
            class: self.class,
            len,
            notify: false,
        };
        if past.part == Part::Whole {
            return Ok(Message::past(&self.port, envelope(past.len as u64), past.body).behind(read));
        }
        let whole = self.port.put_together(self.id, past)?;
        Ok(whole.and_then(|whole| Message::owned(&self.port, envelope(whole.len() as u64), whole).behind(0)))
    }

    /// The rest of a message is read later, without the first `taken` bytes of what is left of it.
    fn put_back(&self, message: Message<'_>, taken: usize) {
        let (arrival, read) = message.into_arrival();
        if let Some(known) = self.port.client.borrow_mut().connection(self.id) {
            known.put_back(arrival, read + taken as u64);
        }
    }

    /// Sorts what has arrived and looks at the connection; `None`: its port has forgotten it.
    fn look<R>(&self, port: &Port, look: impl FnOnce(&Known) -> R) -> Option<R> {
        port.sorted().connection(self.id).map(|known| look(known))
    }

    fn check_over(&self) -> Result<(), ConnectionError> {
        match self.look(&self.port, |known| known.over) {
            Some(Some(over)) => Err(ConnectionError::Disconnected(over.into())),
            Some(None) => Ok(()),
            None => Err(ConnectionError::Closed),
        }
    }
}

impl<P: Deref<Target = Port>> Drop for Connection<P> {
    fn drop(&mut self) {
        if self.port.check_fork().is_err() {
            return;
        }
        // When both sides have sent all, and it was read, nothing is left to say: it is over once that is confirmed.
        let all_done = |known: &Known| known.ended && known.sent_all && known.arrivals.is_empty();
        let is_over = |known: &Known| known.over.is_some() || all_done(known);
        if self.look(&self.port, is_over).unwrap_or(true) {
            return self.port.client.borrow_mut().forget(self.id);
        }
        self.port.submit(|port| port.client.borrow_mut().shut_down(self.id, true, true).is_ok());
        self.port.client.borrow_mut().forget(self.id);
        self.hand_in();
    }
}

impl<P: Deref<Target = Port>> io::Read for Connection<P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(Connection::read(self, into)?)
    }
}

impl<P: Deref<Target = Port>> io::Write for Connection<P> {
    /// Takes all of `bytes`, in messages of 1 MiB at most.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.chunks(self.port.gathered_bytes_max().unwrap_or(WRITTEN_BYTES_MAX)) {
            self.send(piece).map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    /// What was written leaves now, also if more would have been put with it.
    fn flush(&mut self) -> io::Result<()> {
        self.port.drive();
        Ok(())
    }
}

impl From<RecvError> for ConnectionError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::TooLarge { len, max } => ConnectionError::TooLarge { len, max },
            RecvError::Memory(len) => ConnectionError::Memory(len),
            RecvError::Forked => ConnectionError::Forked,
            // No message of a connection leads to the second one.
            RecvError::Closed | RecvError::Unbound { .. } => ConnectionError::Closed,
        }
    }
}

impl<P: Deref<Target = Port>> std::fmt::Debug for Connection<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).field("peer", &self.peer).finish()
    }
}
