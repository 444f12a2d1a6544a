//! Ports: where a thread sends and receives.

use crate::clock::now_ns;
use crate::config::Wait;
use crate::engine::Client;
use crate::engine::admission_answers as answers;
use crate::engine::client::gathering::{GATHERED_BYTES_MAX, Gathered};
use crate::engine::client::{Arrival, Envelope, Returned};
use crate::error::{BindError, Error, ErrorCode, RecvError, SendError};
use crate::message::Message;
use crate::node::Shared;
use crate::readiness::Readiness;
use crate::wait::{Sleeper, Slept};
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, PortAddress};
use polyrail_proto::limits::EAGER_BYTES_MAX;
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::service::Lookup;
use polyrail_shm::Buffer;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// One port of a node: one thread at a time owns it (`Send`, not `Sync`).
///
/// `send` returning `Ok` means that the node has the message; [`Port::flush`] returns when its receivers have all of
/// them. What was sent when a port is dropped is still delivered while the node lives.
pub struct Port {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: RefCell<Client>,
    // These point at the same mapping as `client`; message bytes are borrowed from here so that verbs can go on.
    pub(crate) rx: polyrail_shm::Region,
    pub(crate) tx: polyrail_shm::Region,
    address: PortAddress,
    wait: Cell<Wait>,
    failures: RefCell<VecDeque<(u64, ErrorCode)>>,
    returns: RefCell<Vec<(Envelope, Option<u64>)>>,
    /// Messages that came back and were not taken.
    pub(crate) returned: RefCell<VecDeque<Returned>>,
    /// Those that were taken and dropped in the middle of a verb.
    dropped: RefCell<Vec<Returned>>,
    pace: RefCell<Pace>,
    known: Cell<Option<(ServiceAddress, u64)>>,
    readiness: OnceCell<Readiness>,
    /// What is sent waits for more to be handed in.
    held: Cell<bool>,
}

/// Decides when a sending thread drives the engine: at once, or, while it sends as fast as it can, once per batch.
#[derive(Default)]
struct Pace {
    /// Messages since the engine was driven last, and their bytes.
    messages: u32,
    bytes: usize,
    driven_at_ns: u64,
    /// Batches in a row that followed each other closely.
    close: u32,
    /// When the last write of a stream returned.
    written_ns: u64,
    /// Writes of streams in a row that followed each other closely.
    writes: u32,
}

/// Sends this far apart (nanoseconds) are a flood.
const FLOOD_GAP_NS: u64 = 1_500;
/// Close sends in a row that make a flood.
const FLOOD_RUN: u32 = 16;
/// In a flood the engine is driven after so many messages, so many bytes, or so long.
const BATCH_MESSAGES: u32 = 192;
const BATCH_BYTES: usize = 48 * 1024;
const BATCH_SPAN_NS: u64 = 25_000;

impl Pace {
    /// The time if the engine should be driven now that a message of `bytes` was handed in.
    fn wants_drive(&mut self, bytes: usize) -> Option<u64> {
        self.messages += 1;
        self.bytes += bytes;
        if self.close < FLOOD_RUN {
            let now = now_ns();
            self.close =
                if now.saturating_sub(self.driven_at_ns) < FLOOD_GAP_NS { self.close + 1 } else { 0 };
            return Some(now);
        }
        if self.messages >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES {
            return Some(now_ns());
        }
        if self.messages.is_multiple_of(16) {
            let now = now_ns();
            let span = now.saturating_sub(self.driven_at_ns);
            if span > FLOOD_GAP_NS * self.messages as u64 {
                self.close = 0;
                return Some(now);
            }
            return (span > BATCH_SPAN_NS).then_some(now);
        }
        None
    }

    /// Notes that a write of a stream begins; whether its writer has hardly done anything else for a while.
    fn note_write(&mut self) -> bool {
        let close = now_ns().saturating_sub(self.written_ns) < FLOOD_GAP_NS;
        self.writes = if close { self.writes.saturating_add(1) } else { 0 };
        self.writes >= FLOOD_RUN
    }

    fn driven(&mut self) {
        (self.messages, self.bytes) = (0, 0);
        self.driven_at_ns = now_ns();
    }
}

/// Largest slice that is copied into the arena; longer ones get a buffer of their own.
const ARENA_SLICE_MAX: usize = 4 << 20;

impl Port {
    pub(crate) fn new(shared: Arc<Shared>, client: Client) -> Port {
        let wait = shared.config.wait;
        Port {
            address: client.address(),
            rx: client.pair.rx.memory().clone(),
            tx: client.pair.tx.memory().clone(),
            client: RefCell::new(client),
            shared,
            wait: Cell::new(wait),
            failures: RefCell::default(),
            returns: RefCell::default(),
            returned: RefCell::default(),
            dropped: RefCell::default(),
            pace: RefCell::default(),
            known: Cell::new(None),
            readiness: OnceCell::new(),
            held: Cell::new(false),
        }
    }

    /// The address at which others reach this port.
    pub fn address(&self) -> PortAddress {
        self.address
    }

    /// How calls of this port wait; the node's setting at first.
    pub fn set_wait(&self, wait: Wait) {
        self.wait.set(wait);
    }

    /// A descriptor that becomes readable when there may be a message, or work for the engine: then call `try_recv`
    /// until it gives `None`. Wait for it to be readable, but do not read from it. It is the port's and is closed with
    /// it.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn fd(&self) -> io::Result<RawFd> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness.fd());
        }
        let readiness = Readiness::new(self.shared.drive.fd()?)?;
        self.shared.drive.engine().watch_port(self.address.port, readiness.told());
        Ok(self.readiness.get_or_init(|| readiness).fd())
    }

    // ----- names ---------------------------------------------------------------------------------------------

    /// Makes this port one that serves `range`. A port may have several bindings, and several ports may serve one
    /// service: they share its messages.
    pub fn bind(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        self.bind_weighted(range, scope, 1)
    }

    /// The same with a share among the bindings of one service: of weights 1 and 3, the second gets three of four messages.
    /// 0 counts as 1.
    pub fn bind_weighted(
        &self,
        range: impl Into<ServiceRange>,
        scope: Scope,
        weight: u8,
    ) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.bind_weighted(range, scope, weight).is_ok())
    }

    /// Makes this port the only one that serves `range`: of all that this node knows of in the cluster, or, if the scope is
    /// the node, of those of this node. From then on nobody who knows of it can bind any of the range.
    ///
    /// Two nodes can't see what they do at the same time, or while they can't hear each other. When they do, one of two such
    /// bindings is taken back, and the port that had it is told by the next [`Port::recv`]: [`RecvError::Unbound`].
    ///
    /// # Errors
    /// [`BindError::Taken`] if somebody is known to have bound any of the range.
    pub fn bind_exclusive(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.bind_exclusive(range, scope).is_ok())
    }

    /// Takes one binding back.
    pub fn unbind(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.unbind(range, scope).is_ok())
    }

    fn ask_to_bind(&self, ask: impl Fn(&mut Client) -> bool) -> Result<(), BindError> {
        if self.shared.drive.is_forked() {
            return Err(BindError::Forked);
        }
        let mut asked = false;
        let mut answer = None;
        self.wait_until(None, |port| {
            let mut client = port.client.borrow_mut();
            asked = asked || ask(&mut client);
            while let Some(arrival) = client.poll_fresh() {
                match arrival {
                    Arrival::Answer(code) => {
                        answer = Some(Ok(code));
                        break;
                    }
                    Arrival::Taken(by) => {
                        answer = Some(Err(by));
                        break;
                    }
                    other => client.keep(other),
                }
            }
            answer.is_some()
        });
        match answer {
            Some(Ok(answers::OK)) => Ok(()),
            Some(Ok(answers::RESERVED)) => Err(BindError::Reserved),
            Some(Ok(answers::INVERTED)) => Err(BindError::Inverted),
            Some(Ok(answers::NOT_BOUND)) => Err(BindError::NotBound),
            Some(Ok(_)) => Err(BindError::TooMany),
            Some(Err(by)) => Err(BindError::Taken { by }),
            None => Err(BindError::Closed),
        }
    }

    /// Waits until somebody has bound `service`.
    pub fn wait_for(&self, service: ServiceAddress, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.drive.is_forked() {
            return Err(Error::Forked);
        }
        let mut generation = u64::MAX;
        let mut found = false;
        self.wait_until(deadline(timeout), |port| {
            let engine = port.shared.drive.engine();
            let table = engine.core().table();
            if table.generation() != generation {
                generation = table.generation();
                found = !table.lookup(service).is_empty();
            }
            found
        });
        if found {
            return Ok(());
        }
        Err(Error::TimedOut(format!("; service {service} is not bound; bound now: {}", self.shared.bound())))
    }

    /// Sets how this port chooses among those that serve what it sends to, from the next message on;
    /// [`Lookup::LocalFirst`] at first.
    pub fn set_lookup(&self, lookup: Lookup) {
        if self.shared.drive.is_forked() {
            return;
        }
        // What was sent before is chosen as it was meant then.
        self.wait_until(None, |port| port.client.borrow_mut().backlog() == 0);
        self.shared.drive.engine().set_lookup(self.address.port, lookup);
    }

    /// Waits until every node that is reachable now knows all bindings that ports of this node have made so far, and no
    /// longer knows those taken back: whoever is told of a service after this finds it. A node that is lost meanwhile is
    /// not waited for; one that joins later learns them before it can be reached by name.
    ///
    /// # Errors
    /// Time is up; the message names who does not know them yet.
    pub fn await_known(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.drive.is_forked() {
            return Err(Error::Forked);
        }
        let barrier = self.shared.drive.engine().begin_barrier(self.address.port);
        self.wait_until(deadline(timeout), |port| port.shared.drive.engine().is_past(barrier));
        let behind = self.shared.drive.engine().end_barrier(barrier);
        match &behind[..] {
            [] => Ok(()),
            names => Err(Error::TimedOut(format!("; not all bindings are known to {}", names.join(", ")))),
        }
    }

    // ----- sending -------------------------------------------------------------------------------------------

    /// Sends a copy of `bytes` to a port or a service, waiting for memory if need be. `Ok` means that the node has
    /// taken it: it arrives exactly once, or a later call tells that it failed.
    pub fn send(&self, to: impl Into<Destination>, bytes: &[u8]) -> Result<(), SendError> {
        self.send_with(to.into(), Class::Normal, None, bytes, None)
    }

    /// Sends a copy of `bytes` to every port that has bound something of `range`, each once, on all nodes; at most 64 KiB. One
    /// copy goes to each node. Messages of one port and class arrive at each in the order sent, whatever their ranges. A port
    /// without room holds up what follows. If a node is lost meanwhile, that is told as of any message, for each such node.
    pub fn multicast(&self, range: impl Into<ServiceRange>, bytes: &[u8]) -> Result<(), SendError> {
        let max = EAGER_BYTES_MAX;
        if bytes.len() as u64 > max {
            return Err(SendError::TooLarge { len: bytes.len() as u64, max });
        }
        self.send_with(Destination::Multicast(range.into()), Class::Normal, None, bytes, None)
    }

    /// Like `send`, but gives up with [`SendError::Blocked`] after `timeout`.
    pub fn send_timeout(
        &self,
        to: impl Into<Destination>,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_with(to.into(), Class::Normal, None, bytes, Some(timeout))
    }

    /// Like `send`, but never waits.
    pub fn try_send(&self, to: impl Into<Destination>, bytes: &[u8]) -> Result<(), SendError> {
        self.send_with(to.into(), Class::Normal, None, bytes, Some(Duration::ZERO))
    }

    /// Sends with class and tag.
    pub fn send_with(
        &self,
        to: Destination,
        class: Class,
        tag: Option<u64>,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        self.submit_bytes(to, (class, tag).into(), bytes, deadline(timeout)).map(drop)
    }

    /// Hands a copy of `bytes` in, waiting until then for memory; the message's number.
    pub(crate) fn submit_bytes(
        &self,
        to: Destination,
        how: Manner,
        bytes: &[u8],
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        if bytes.len() > ARENA_SLICE_MAX {
            let mut buffer = self.alloc(bytes.len())?;
            buffer.copy_from_slice(bytes);
            return self.submit_buffer(to, how, buffer, until_ns);
        }
        self.check_send(to)?;
        let mut number = self.client.borrow_mut().send_as(to, how, bytes).ok();
        if number.is_none() {
            self.wait_until(until_ns, |port| {
                number = port.client.borrow_mut().send_as(to, how, bytes).ok();
                number.is_some()
            });
        }
        let number = number.ok_or(SendError::Blocked)?;
        self.sent(to, number, bytes.len())?;
        Ok(number)
    }

    /// Sends a buffer of [`Port::alloc`]. What is copied on the way is the node's choice: nothing, if the buffer is larger
    /// than a quarter of the sending arena.
    pub fn send_buffer(&self, to: impl Into<Destination>, buffer: Buffer) -> Result<(), SendError> {
        self.submit_buffer(to.into(), (Class::Normal, None).into(), buffer, None).map(drop)
    }

    /// The same for a buffer.
    pub(crate) fn submit_buffer(
        &self,
        to: Destination,
        how: Manner,
        buffer: Buffer,
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        self.check_send(to)?;
        let len = buffer.len();
        let mut slot = Some(buffer);
        let mut number = None;
        let mut attempt = |port: &Port| {
            let Some(buffer) = slot.take() else { return true };
            match port.client.borrow_mut().send_buffer_as(to, how, buffer) {
                Ok(n) => number = Some(n),
                Err(back) => slot = Some(back),
            }
            number.is_some()
        };
        if !attempt(self) {
            self.wait_until(until_ns, attempt);
        }
        let number = number.ok_or(SendError::Blocked)?;
        self.sent(to, number, len)?;
        Ok(number)
    }

    /// Memory to write a message into, for `send_buffer`; waits while the pool's limit is in use by messages under
    /// way.
    pub fn alloc(&self, len: usize) -> Result<Buffer, SendError> {
        let mut buffer = self.shared.pool.alloc(len).ok();
        if buffer.is_none() && self.client.borrow().unconfirmed() > 0 {
            self.wait_until(None, |port| {
                buffer = port.shared.pool.alloc(len).ok();
                buffer.is_some() || port.client.borrow().unconfirmed() == 0
            });
        }
        buffer.ok_or(SendError::Memory(len as u64))
    }

    fn check_send(&self, _to: Destination) -> Result<(), SendError> {
        if self.shared.drive.is_forked() {
            return Err(SendError::Forked);
        }
        if let Some((number, why)) = self.failures.borrow_mut().pop_front() {
            return Err(SendError::Earlier { number, why });
        }
        Ok(())
    }

    /// A message was handed in: drive the engine if it is time, and see whether its destination exists.
    fn sent(&self, to: Destination, number: u64, len: usize) -> Result<(), SendError> {
        let unsure = match to {
            Destination::Service(service) => self.is_unsure_of(service),
            Destination::Port(_) => number == 0,
            Destination::Multicast(range) => self.is_unsure_of(ServiceAddress::new(range.kind, range.lower)),
            Destination::Connection(_) if self.held.get() => return Ok(()),
            Destination::Connection(_) => false,
        };
        let mut pace = self.pace.borrow_mut();
        if unsure {
            // The first message to a service: its sender learns at once whether there is such a service.
            self.wait_until(deadline(Some(Duration::from_millis(100))), |port| {
                port.client.borrow_mut().backlog() == 0
            });
            // If another thread has taken it, the answer is there once that one gives the engine back.
            drop(self.shared.drive.engine());
            pace.driven();
            self.sort_arrivals();
            return self.own_failure(to, number);
        }
        if let Some(now) = pace.wants_drive(len) {
            self.shared.drive.send(now);
            pace.driven();
        }
        Ok(())
    }

    /// Whether the names have changed since the last message to `service`.
    fn is_unsure_of(&self, service: ServiceAddress) -> bool {
        let generation = self.client.borrow().pair.words.names_generation.load();
        self.known.replace(Some((service, generation))) != Some((service, generation))
    }

    /// Puts failures aside from what has arrived.
    pub(crate) fn sort_arrivals(&self) {
        let mut client = self.client.borrow_mut();
        while let Some(arrival) = client.poll_fresh() {
            match arrival {
                Arrival::Failed(number, why) => self.failures.borrow_mut().push_back((number, why.into())),
                Arrival::Returned(returned) => self.returned.borrow_mut().push_back(*returned),
                other => client.keep(other),
            }
        }
    }

    fn own_failure(&self, to: Destination, number: u64) -> Result<(), SendError> {
        if self.returned.borrow().iter().any(|returned| returned.number == number) {
            // Its sender gets it back instead.
            self.known.set(None);
            return Ok(());
        }
        let mut failures = self.failures.borrow_mut();
        let Some(at) = failures.iter().position(|f| f.0 == number) else { return Ok(()) };
        let Some((_, why)) = failures.remove(at) else { return Ok(()) };
        self.known.set(None);
        Err(match (why, to) {
            (ErrorCode::NoService, Destination::Multicast(range)) => {
                let service = ServiceAddress::new(range.kind, range.lower);
                SendError::NoService { service, bound: self.shared.bound() }
            }
            (ErrorCode::NoService, Destination::Service(service)) => {
                SendError::NoService { service, bound: self.shared.bound() }
            }
            (ErrorCode::NoNode, to) => SendError::NoNode(to),
            (why, _) => SendError::Earlier { number, why },
        })
    }

    /// Waits until every message sent so far is in its receiver's hands. An error: one of them failed, or time is
    /// up. One that is to come back if it fails was read by then, or came back, which is no error here.
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.drive.is_forked() {
            return Err(Error::Forked);
        }
        let done = self.wait_until(deadline(timeout), |port| port.client.borrow().unconfirmed() == 0);
        self.sort_arrivals();
        if let Some((number, why)) = self.failures.borrow_mut().pop_front() {
            return Err(Error::Failed { number, why });
        }
        let left = self.client.borrow().unconfirmed();
        if done { Ok(()) } else { Err(Error::TimedOut(format!("; {left} messages are not confirmed"))) }
    }

    /// Messages sent that are neither confirmed nor failed.
    pub fn unconfirmed(&self) -> u64 {
        self.client.borrow().unconfirmed()
    }

    /// The next failure of a message sent earlier: the count of messages sent before it, and why.
    pub fn take_failure(&self) -> Option<(u64, ErrorCode)> {
        self.sort_arrivals();
        self.failures.borrow_mut().pop_front()
    }

    // ----- receiving -----------------------------------------------------------------------------------------

    /// The next message; waits for it.
    pub fn recv(&self) -> Result<Message<'_>, RecvError> {
        loop {
            if let Some(message) = self.recv_until(None)? {
                return Ok(message);
            }
        }
    }

    /// The next message, or `None` after `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message<'_>>, RecvError> {
        self.recv_until(Some(timeout))
    }

    /// The next message among those that came with the last one: looks for no more, so that it costs nothing when there
    /// is none. (A large message among them is fetched, which may take a while.)
    pub fn recv_arrived(&self) -> Result<Option<Message<'_>>, RecvError> {
        self.next()
    }

    /// The next message if one is here or at the door.
    pub fn try_recv(&self) -> Result<Option<Message<'_>>, RecvError> {
        if let Some(message) = self.next()? {
            return Ok(Some(message));
        }
        if self.shared.drive.is_forked() {
            return Err(RecvError::Forked);
        }
        self.drive();
        let next = self.next()?;
        if next.is_none()
            && let Some(readiness) = self.readiness.get()
        {
            readiness.clear();
            return self.next();
        }
        Ok(next)
    }

    /// The next message, copied to the front of `into`; its length, which may be larger than what was copied.
    pub fn recv_into(&self, into: &mut [u8]) -> Result<usize, RecvError> {
        let message = self.recv()?;
        let len = message.len().min(into.len());
        into[..len].copy_from_slice(&message.bytes()[..len]);
        Ok(message.len())
    }

    fn recv_until(&self, timeout: Option<Duration>) -> Result<Option<Message<'_>>, RecvError> {
        if let Some(message) = self.next()? {
            return Ok(Some(message));
        }
        if self.shared.drive.is_forked() {
            return Err(RecvError::Forked);
        }
        let until_ns = deadline(timeout);
        loop {
            let arrived = self.wait_until(until_ns, |port| port.client.borrow_mut().has_arrivals());
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            if !arrived {
                return Ok(None);
            }
        }
    }

    /// The next message among what has arrived; everything else is put where it belongs.
    fn next(&self) -> Result<Option<Message<'_>>, RecvError> {
        self.take_returns();
        loop {
            let Some(arrival) = self.client.borrow_mut().poll() else { return Ok(None) };
            match arrival {
                Arrival::Message(envelope, offset) => {
                    self.note_taken(&envelope);
                    let bytes = self.rx.bytes(offset, envelope.len as usize).unwrap_or(&[]);
                    return Ok(Some(Message::in_arena(self, envelope, bytes, offset)));
                }
                Arrival::Owned(envelope, buffer) => {
                    self.note_taken(&envelope);
                    return Ok(Some(Message::owned(self, envelope, buffer)));
                }
                Arrival::Offer { len, offer, from } => {
                    if let Err(error) = self.accept_offer(len, offer) {
                        self.client.borrow_mut().keep_offer(len, offer, from);
                        return Err(error);
                    }
                }
                Arrival::Failed(number, why) => self.failures.borrow_mut().push_back((number, why.into())),
                Arrival::Returned(returned) => self.returned.borrow_mut().push_back(*returned),
                Arrival::Unbound(range, by) => return Err(RecvError::Unbound { range, by }),
                Arrival::Answer(_) | Arrival::Taken(_) | Arrival::Sorted => {}
            }
        }
    }

    /// The program gets a message. If its sender waits to hear of that, it is told now, for the program may be busy with it
    /// for long; unless more is here, for which it will be back.
    #[inline]
    fn note_taken(&self, envelope: &Envelope) {
        if envelope.notify && !self.client.borrow_mut().has_arrivals() {
            self.shared.drive.inline();
        }
    }

    /// Finds memory for a large message whose turn it is.
    pub(crate) fn accept_offer(&self, len: u64, offer: (u32, u32)) -> Result<(), RecvError> {
        let max = self.shared.config.message_bytes_max as u64;
        if len > max {
            return Err(RecvError::TooLarge { len, max });
        }
        let Ok(buffer) = self.shared.pool.alloc(len as usize) else { return Err(RecvError::Memory(len)) };
        let mut slot = Some(buffer);
        self.wait_until(None, |port| {
            let Some(buffer) = slot.take() else { return true };
            slot = port.client.borrow_mut().accept(offer, buffer).err();
            slot.is_none()
        });
        self.drive();
        Ok(())
    }

    /// A message was dropped. Its port may be in the middle of a verb, so that the memory is given back at the next.
    pub(crate) fn give_back(&self, envelope: &Envelope, offset: Option<u64>) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.give_back(envelope, offset),
            Err(_) => self.returns.borrow_mut().push((*envelope, offset)),
        }
    }

    /// The same for a message that came back.
    pub(crate) fn drop_returned(&self, returned: Returned) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.drop_returned(returned),
            Err(_) => self.dropped.borrow_mut().push(returned),
        }
    }

    pub(crate) fn take_returns(&self) {
        if self.returns.borrow().is_empty() && self.dropped.borrow().is_empty() {
            return;
        }
        let mut client = self.client.borrow_mut();
        for returned in self.dropped.borrow_mut().drain(..) {
            client.drop_returned(returned);
        }
        for (envelope, offset) in self.returns.borrow_mut().drain(..) {
            client.give_back(&envelope, offset);
        }
    }

    // ----- waiting -------------------------------------------------------------------------------------------

    /// Lets what `send` sends wait for what is handed in after it.
    pub(crate) fn hold<R>(&self, send: impl FnOnce() -> R) -> R {
        self.held.set(true);
        let sent = send();
        self.held.set(false);
        sent
    }

    /// Sends a part of a stream. Of a writer that does nothing else so much is put together that it pays to send it.
    pub(crate) fn write(
        &self,
        id: ConnectionId,
        class: Class,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        let to = Destination::Connection(id);
        let gathers = bytes.len() <= GATHERED_BYTES_MAX && self.client.borrow().gathers();
        let written = if self.pace.borrow_mut().note_write() && gathers {
            self.gather(id, class, bytes, timeout)
        } else {
            self.send_with(to, class, None, bytes, timeout)
        };
        self.pace.borrow_mut().written_ns = now_ns();
        written
    }

    fn gather(
        &self,
        id: ConnectionId,
        class: Class,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        self.check_send(Destination::Connection(id))?;
        let mut gathered = self.client.borrow_mut().gather(id, class, bytes).ok();
        if gathered.is_none() {
            self.wait_until(deadline(timeout), |port| {
                gathered = port.client.borrow_mut().gather(id, class, bytes).ok();
                gathered.is_some()
            });
        }
        if gathered.ok_or(SendError::Blocked)? == Gathered::HandedIn {
            self.shared.drive.send(now_ns());
            self.pace.borrow_mut().driven();
        }
        Ok(())
    }

    /// Has the engine take what was handed in.
    pub(crate) fn hand_in(&self) {
        self.shared.drive.send(now_ns());
        self.pace.borrow_mut().close = 0;
    }

    pub(crate) fn drive(&self) {
        self.shared.drive.inline();
        self.pace.borrow_mut().close = 0;
    }

    /// Drives the engine until `done`, by the port's way of waiting; false if time ran out first.
    pub(crate) fn wait_until(&self, until_ns: Option<u64>, mut done: impl FnMut(&Port) -> bool) -> bool {
        let spin_until = match self.wait.get() {
            Wait::Spin => u64::MAX,
            Wait::Adaptive => now_ns() + self.shared.config.adaptive_spin.as_nanos() as u64,
            Wait::Block => 0,
        };
        let mut first = true;
        loop {
            if done(self) {
                return true;
            }
            let now = now_ns();
            if until_ns.is_some_and(|until| now >= until) && !first {
                return false;
            }
            if first || now < spin_until {
                first = false;
                if self.shared.drive.inline_at(now).is_none() {
                    std::hint::spin_loop();
                }
                continue;
            }
            // What `done` has done once must not be done again.
            if self.sleep(until_ns, &mut done) {
                return true;
            }
        }
    }

    /// Sleeps until something happens; whether `done` was asked and said yes.
    fn sleep(&self, until_ns: Option<u64>, done: &mut impl FnMut(&Port) -> bool) -> bool {
        self.client.borrow().pair.client_bell.prepare();
        if done(self) {
            self.client.borrow().pair.client_bell.cancel();
            return true;
        }
        let awake = || {
            self.client.borrow().pair.client_bell.cancel();
        };
        let slept = self.shared.drive.poll(Sleeper::Port, until_ns, &mut || done(self), &awake);
        if slept != Slept::NoSeat {
            self.client.borrow().pair.client_bell.cancel();
            self.shared.drive.left_seat();
            return slept == Slept::Done;
        }
        // The poller may leave its seat without ringing: look again after a while at the latest.
        let tick = Duration::from_millis(2);
        let left =
            until_ns.map_or(tick, |until| Duration::from_nanos(until.saturating_sub(now_ns())).min(tick));
        self.client.borrow().pair.client_bell.wait(Some(left));
        false
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.shared.drive.is_forked() {
            return;
        }
        self.take_returns();
        self.client.borrow_mut().close();
        self.shared.drive.inline();
    }
}

pub(crate) fn deadline(timeout: Option<Duration>) -> Option<u64> {
    timeout.map(|t| now_ns().saturating_add(t.as_nanos().min(u64::MAX as u128 / 2) as u64))
}
