//! Ports: where a thread sends and receives. Here is what a port is, how it sends and how it waits.

mod awake;
mod descriptor;
mod direct;
mod names;
mod pace;
mod passing;
mod patience;
mod receive;
mod spin;
mod trunk;
mod waiting;

use crate::attach::Tie;
use crate::clock::now_ns;
use crate::config::Wait;
use crate::engine::client::gathering::Gathered;
use crate::engine::client::slots::{DirectBody, Held};
use crate::engine::client::trunks::is_past;
use crate::engine::client::{Arrival, Envelope, Returned};
use crate::engine::{Budget, Client, Work};
use crate::error::{Error, ErrorCode, SendEachError, SendError};
use crate::node::Shared;
use descriptor::Descriptor;
use pace::Pace;
use passing::Passed;
use patience::Patience;
use polyrail_proto::address::{ServiceAddress, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, PortAddress};
use polyrail_proto::limits::EAGER_BYTES_MAX;
use polyrail_proto::node::{Destination, Manner};
use polyrail_shm::{Buffer, Landing};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use waiting::Limit;

/// So many messages go past the engine at most before their receiver is woken.
const RUN_MESSAGES_MAX: usize = 64;

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
    /// It has said that it looks by itself, and how many messages had come past the engine when it last said that it may sleep.
    awake: Cell<bool>,
    slept_at: Cell<u64>,
    failures: RefCell<VecDeque<(u64, ErrorCode)>>,
    returns: RefCell<Vec<(Envelope, Option<u64>)>>,
    /// There is something among these, or among those that follow.
    owes: Cell<bool>,
    /// The memory of messages that came past the engine and were dropped in the middle of a verb: ring and what it is.
    direct_returns: RefCell<Vec<(u64, Held)>>,
    /// The same of messages that came by a connection past the engine.
    past_returns: RefCell<Vec<(Envelope, DirectBody)>>,
    /// Messages that came back and were not taken.
    pub(crate) returned: RefCell<VecDeque<Returned>>,
    /// Those that were taken and dropped in the middle of a verb.
    dropped: RefCell<Vec<Returned>>,
    pace: RefCell<Pace>,
    known: Cell<Option<(ServiceAddress, u64)>>,
    descriptor: OnceCell<Descriptor>,
    landing: OnceCell<Arc<Landing>>,
    /// What is sent waits for more to be handed in.
    held: Cell<bool>,
    patience: RefCell<Patience>,
    /// What joins it to an engine in another process.
    tie: Option<Tie>,
}

impl Port {
    pub(crate) fn new(shared: Arc<Shared>, client: Client, tie: Option<Tie>) -> Port {
        let wait = shared.config.wait;
        let port = Port {
            address: client.address(),
            rx: client.pair.rx.memory().clone(),
            tx: client.pair.tx.memory().clone(),
            client: RefCell::new(client),
            shared,
            wait: Cell::new(wait),
            awake: Cell::new(false),
            slept_at: Cell::new(0),
            failures: RefCell::default(),
            returns: RefCell::default(),
            owes: Cell::new(false),
            direct_returns: RefCell::default(),
            past_returns: RefCell::default(),
            returned: RefCell::default(),
            dropped: RefCell::default(),
            pace: RefCell::default(),
            known: Cell::new(None),
            descriptor: OnceCell::new(),
            landing: OnceCell::new(),
            held: Cell::new(false),
            patience: RefCell::default(),
            tie,
        };
        port.note_awake();
        port
    }

    /// The address at which others reach this port.
    pub fn address(&self) -> PortAddress {
        self.address
    }

    /// How calls of this port wait; the node's setting at first.
    pub fn set_wait(&self, wait: Wait) {
        self.wait.set(wait);
        self.note_sleepy();
        self.note_awake();
    }

    /// Whether the node of another process that it belongs to is gone. The port talks on to those that it has talked to past that
    /// node (ARCHITECTURE.md, "Direct rings"), as long as they live; for all else attach anew.
    pub fn has_lost_node(&self) -> bool {
        self.tie.iter().for_each(Tie::look);
        self.has_no_engine()
    }

    /// Whether its engine, in another process, is known to be gone.
    #[inline]
    pub(crate) fn has_no_engine(&self) -> bool {
        self.tie.as_ref().is_some_and(Tie::has_ended)
    }

    /// Whether nothing more comes of what this port does: its engine is gone, and so are all that it talked to past that.
    #[inline]
    pub(crate) fn is_cut_off(&self) -> bool {
        self.has_no_engine() && !self.client.borrow().has_ways()
    }

    /// The services that are bound, for messages to users.
    pub(crate) fn bound(&self) -> String {
        match (self.shared.host.own(), &self.tie) {
            (Some(drive), _) => drive.engine().bound(),
            (_, Some(tie)) => tie.bound(),
            (None, None) => String::new(),
        }
    }

    // ----- sending -------------------------------------------------------------------------------------------

    /// Sends a copy of `bytes` to a port or a service, waiting for memory if need be. `Ok` means that the node has
    /// taken it: it arrives exactly once, or a later call tells that it failed ([`SendError::Earlier`], the oldest first).
    /// While no link to the receiver works it waits; the peer is given up after the tolerance.
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
        if self.send_at_once(&to, class, tag, &[bytes]) > 0 {
            return Ok(());
        }
        self.submit_bytes(to, (class, tag).into(), bytes, deadline(timeout)).map(drop)
    }

    /// Sends copies of several messages, in order, as if each were sent by itself. Small ones cost least this way: where they
    /// go past the engine, the way is looked up once, and their receiver woken once for up to 64 of them.
    ///
    /// # Errors
    /// As [`Port::send_timeout`], and how many were taken before.
    pub fn send_each<B: AsRef<[u8]>>(
        &self,
        to: impl Into<Destination>,
        messages: &[B],
        timeout: Option<Duration>,
    ) -> Result<(), SendEachError> {
        self.send_each_with(to.into(), Class::Normal, messages, timeout)
    }

    /// The same with a class.
    ///
    /// # Errors
    /// As [`Port::send_each`].
    pub fn send_each_with<B: AsRef<[u8]>>(
        &self,
        to: Destination,
        class: Class,
        messages: &[B],
        timeout: Option<Duration>,
    ) -> Result<(), SendEachError> {
        let (mut taken, mut limit) = (0, Limit::from(timeout));
        while taken < messages.len() {
            let run = &messages[taken..messages.len().min(taken + RUN_MESSAGES_MAX)];
            let count = self.send_at_once(&to, class, None, run);
            taken += count;
            if let Some(message) = run.get(count) {
                self.submit_bytes(to, (class, None).into(), message.as_ref(), limit.until_ns())
                    .map_err(|why| SendEachError { taken, why })?;
                taken += 1;
            }
        }
        Ok(())
    }

    /// Sends messages past the engine, as long as they go that way and nothing is in their way; how many did.
    #[inline]
    fn send_at_once<B: AsRef<[u8]>>(
        &self,
        to: &Destination,
        class: Class,
        tag: Option<u64>,
        messages: &[B],
    ) -> usize {
        if self.tie.is_none() || self.shared.host.is_forked() || !self.failures.borrow().is_empty() {
            return 0;
        }
        self.client.borrow_mut().send_at_once(to, class, tag, messages)
    }

    /// Hands a copy of `bytes` in, waiting until then for memory; the message's number.
    pub(crate) fn submit_bytes(
        &self,
        to: Destination,
        how: Manner,
        bytes: &[u8],
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        if let Destination::Connection(id) = to
            && is_past(id)
        {
            return self.send_past(id, bytes, false, until_ns);
        }
        let len = bytes.len() as u64;
        let fits_arena = len <= self.client.borrow().arena_message_max();
        let needs_buffer = !fits_arena && !self.client.borrow().goes_direct(to, &how, len);
        if needs_buffer || self.is_better_passed(to, &how, len) {
            match self.alloc_until(bytes.len(), until_ns) {
                Ok(mut buffer) => {
                    buffer.copy_from_slice(bytes);
                    return self.submit_buffer(to, how, buffer, until_ns);
                }
                // Without one it goes by the engine, if that has room.
                Err(SendError::Memory(_)) if fits_arena => {}
                Err(error) => return Err(error),
            }
        }
        self.check_send(to)?;
        self.prepare_way(to, how.class);
        let goes_past = |port: &Port| port.client.borrow().goes_direct(to, &how, len);
        if !goes_past(self) {
            self.check_engine()?;
        }
        let direct = self.client.borrow().sent_direct();
        let mut number = self.client.borrow_mut().send_as(to, how, bytes).ok();
        if number.is_none() {
            self.wait_past(until_ns, |port| {
                if port.has_no_engine() && !goes_past(port) {
                    return true;
                }
                port.read_to_be_heard();
                number = port.client.borrow_mut().send_as(to, how, bytes).ok();
                number.is_some()
            });
        }
        let number = number.ok_or_else(|| self.not_taken(goes_past(self)))?;
        if self.client.borrow().sent_direct() == direct {
            self.sent(to, number, bytes.len())?;
            self.seek_ring(to, how.class, len, until_ns);
        }
        Ok(number)
    }

    /// Sends a buffer of [`Port::alloc`]. What is copied on the way is the node's choice: nothing, if the buffer is larger
    /// than 2 MiB; nor if it is larger than 2 KiB and goes past the node of another process to a program of the same user, which
    /// reads it where it lies.
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
        if let Some(tie) = &self.tie {
            return self.submit_lent(tie, to, how, buffer, until_ns);
        }
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
        let number = number.ok_or_else(|| self.not_taken(false))?;
        self.sent(to, number, len)?;
        Ok(number)
    }

    /// The same where the engine is in another process: short messages go through the arena, longer ones are lent.
    fn submit_lent(
        &self,
        tie: &Tie,
        to: Destination,
        how: Manner,
        mut buffer: Buffer,
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        if let Destination::Connection(id) = to
            && is_past(id)
        {
            return self.send_buffer_past(id, buffer, false, until_ns);
        }
        let len = buffer.len() as u64;
        match self.pass(to, &how, buffer, until_ns)? {
            Passed::Number(number) => return Ok(number),
            Passed::Not(back) => buffer = back,
        }
        if len <= self.client.borrow().arena_message_max() || self.client.borrow().goes_direct(to, &how, len)
        {
            return self.submit_bytes(to, how, &buffer, until_ns);
        }
        self.check_engine()?;
        // Buffers that come back are free again, also for who never receives.
        self.sort_arrivals();
        self.check_send(to)?;
        self.prepare_way(to, how.class);
        let buffer = self.own(buffer)?;
        let len = buffer.len();
        let lent = self.lend(tie, buffer).ok_or(SendError::Memory(len as u64))?;
        let mut number = None;
        self.wait_until(until_ns, |port| {
            port.read_to_be_heard();
            number = port.client.borrow_mut().send_lent(to, how, (lent, len as u64)).ok();
            number.is_some()
        });
        let Some(number) = number else {
            drop(self.client.borrow().take_up(lent));
            return Err(self.not_taken(false));
        };
        self.sent(to, number, len)?;
        Ok(number)
    }

    /// Gives the engine of another process memory for one message: its number. `None`: that one can't have it.
    pub(crate) fn lend(&self, tie: &Tie, buffer: Buffer) -> Option<u64> {
        let file = buffer.file()?.clone();
        let number = self.client.borrow().lay_down(buffer);
        if tie.lend(number, &file).is_ok() {
            return Some(number);
        }
        drop(self.client.borrow().take_up(number));
        None
    }

    /// Memory to write a message into, for `send_buffer`; waits while the pool's limit is in use by messages under
    /// way.
    pub fn alloc(&self, len: usize) -> Result<Buffer, SendError> {
        self.alloc_until(len, None)
    }

    fn alloc_until(&self, len: usize, until_ns: Option<u64>) -> Result<Buffer, SendError> {
        let mut all_back = self.client.borrow_mut().reclaim_passed();
        let mut buffer = self.shared.pool.alloc(len).ok();
        if buffer.is_none() && (self.client.borrow().unconfirmed() > 0 || !all_back) {
            let in_time = self.wait_past(until_ns, |port| {
                // Among what has come may be buffers that were lent.
                port.sort_arrivals();
                all_back = port.client.borrow_mut().await_passed();
                buffer = port.shared.pool.alloc(len).ok();
                let engine_has_none = port.client.borrow().unconfirmed() == 0 || port.has_no_engine();
                buffer.is_some() || engine_has_none && all_back
            });
            if !in_time && !self.is_cut_off() {
                return Err(SendError::Blocked);
            }
        }
        buffer.ok_or(SendError::Memory(len as u64))
    }

    fn check_send(&self, _to: Destination) -> Result<(), SendError> {
        if self.shared.host.is_forked() {
            return Err(SendError::Forked);
        }
        if let Some((number, why)) = self.failures.borrow_mut().pop_front() {
            return Err(SendError::Earlier { number, why });
        }
        if self.is_cut_off() { Err(SendError::Closed) } else { Ok(()) }
    }

    /// A message needs the engine: is there one?
    fn check_engine(&self) -> Result<(), SendError> {
        if self.has_no_engine() { Err(SendError::Closed) } else { Ok(()) }
    }

    /// An engine in another process takes nothing from who does not read its answers.
    fn read_to_be_heard(&self) {
        if self.tie.is_some() {
            self.sort_arrivals();
        }
    }

    /// Why a message was not taken for which there was no room, on its way past the engine or not.
    fn not_taken(&self, past: bool) -> SendError {
        let is_over = if past { self.is_cut_off() } else { self.has_no_engine() };
        if is_over { SendError::Closed } else { SendError::Blocked }
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
            // The first message to a service: its sender learns at once whether there is such a service, for that is told before
            // the message is seen to be taken.
            self.wait_until(Some(Duration::from_millis(100)), |port| port.client.borrow_mut().backlog() == 0);
            pace.driven();
            self.sort_arrivals();
            return self.own_failure(to, number);
        }
        if self.tie.is_some() {
            self.turn(0, Budget::SENDING);
        } else if let Some(now) = pace.wants_drive(len) {
            self.turn(now, Budget::SENDING);
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
        // It was lost with what was sent before it: that says more than that nobody is there now.
        if failures.front().is_some_and(|earlier| earlier.0 < number)
            && let Some((number, why)) = failures.pop_front()
        {
            return Err(SendError::Earlier { number, why });
        }
        Err(match (why, to) {
            (ErrorCode::NoService, Destination::Multicast(range)) => {
                let service = ServiceAddress::new(range.kind, range.lower);
                SendError::NoService { service, bound: self.bound() }
            }
            (ErrorCode::NoService, Destination::Service(service)) => {
                SendError::NoService { service, bound: self.bound() }
            }
            (ErrorCode::NoNode, to) => SendError::NoNode(to),
            (why, _) => SendError::Earlier { number, why },
        })
    }

    /// Waits until every message sent so far is in its receiver's hands. An error: one of them failed, or time is
    /// up. One that is to come back if it fails was read by then, or came back, which is no error here.
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.host.is_forked() {
            return Err(Error::Forked);
        }
        let done = self.wait_until(timeout, |port| port.client.borrow().unconfirmed() == 0);
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

    /// Messages sent past the engine so far, straight to ports of other programs on this machine. Only those of a node that was
    /// attached to do.
    pub fn sent_direct(&self) -> u64 {
        self.client.borrow().sent_direct()
    }

    /// The next failure of a message sent earlier: the count of messages sent before it, and why.
    pub fn take_failure(&self) -> Option<(u64, ErrorCode)> {
        self.sort_arrivals();
        self.failures.borrow_mut().pop_front()
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
        if is_past(id) {
            return self.write_past(id, bytes, deadline(timeout));
        }
        let to = Destination::Connection(id);
        let gathers = self.gathered_bytes_max().is_some_and(|max| bytes.len() <= max);
        let written = if self.pace.borrow_mut().note_write(bytes.len()) && gathers {
            self.gather(id, class, bytes, timeout)
        } else {
            self.send_with(to, class, None, bytes, timeout)
        };
        self.pace.borrow_mut().note_written();
        written
    }

    /// The longest write of a stream that is put together with others.
    pub(crate) fn gathered_bytes_max(&self) -> Option<usize> {
        self.client.borrow().gathered_bytes_max()
    }

    fn gather(
        &self,
        id: ConnectionId,
        class: Class,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        self.check_send(Destination::Connection(id))?;
        self.check_engine()?;
        let mut gathered = self.client.borrow_mut().gather(id, class, bytes).ok();
        if gathered.is_none() {
            self.wait_until(timeout, |port| {
                gathered = port.client.borrow_mut().gather(id, class, bytes).ok();
                gathered.is_some()
            });
        }
        if gathered.ok_or_else(|| self.not_taken(false))? == Gathered::HandedIn {
            self.turn(now_ns(), Budget::SENDING);
            self.pace.borrow_mut().driven();
        }
        Ok(())
    }

    /// Has the engine take what was handed in.
    pub(crate) fn hand_in(&self) {
        self.turn(now_ns(), Budget::SENDING);
        self.pace.borrow_mut().pause();
    }

    /// Where bytes of a stream land for whose reader this port waits.
    pub(crate) fn landing(&self) -> &Arc<Landing> {
        self.landing.get_or_init(Arc::default)
    }

    fn turn(&self, now_ns: u64, budget: Budget) -> Option<Work> {
        if self.tie.is_some() {
            self.client.borrow_mut().attend_trunks();
        }
        self.shared.host.turn(&self.client, now_ns, budget)
    }

    pub(crate) fn drive(&self) {
        self.turn(now_ns(), Budget::USUAL);
        self.pace.borrow_mut().pause();
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.shared.host.is_forked() {
            return;
        }
        self.take_returns();
        self.client.borrow_mut().close();
        self.turn(now_ns(), Budget::USUAL);
    }
}

pub(crate) fn deadline(timeout: Option<Duration>) -> Option<u64> {
    timeout.map(|timeout| later(now_ns(), timeout))
}

fn later(at_ns: u64, by: Duration) -> u64 {
    at_ns.saturating_add(by.as_nanos().min(u64::MAX as u128 / 2) as u64)
}
