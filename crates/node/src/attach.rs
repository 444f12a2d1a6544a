//! Programs that share a node of another process: they attach to it by a socket, and talk to its engine through memory
//! (ARCHITECTURE.md, "Life of a guest").

pub(crate) mod door;
mod tie;
mod words;

pub(crate) use tie::Tie;

use crate::engine::directs::Wanted;
use crate::engine::{Client, Status};
use crate::error::{LinkSetError, StartError, SubscribeError, TooMuch, UpdateError};
use crate::node::events::NodeEvent;
use crate::readiness::Readiness;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{LinkId, NodeId, PortAddress};
use polyrail_proto::node::Destination;
use polyrail_proto::service::{Topic, Update};
use polyrail_proto::wire::LinkStatus;
use polyrail_shm::{DirectReceiver, DirectSender, PortBell, Segment, Sizes};
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::membarrier;
use polyrail_sys::unix::{Place, UnixSocket};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use words::{Answer, Ask, Happened, Refusal, Target, Told, VERSION};

/// A node of another process, as far as this one is joined to it.
pub(crate) struct Attached {
    tie: Mutex<Tie>,
    /// Wakes its engine.
    wake: EventFd,
    /// Start of the process's fork count, to notice that we are in a child.
    forks: u64,
}

/// The bell of another port.
fn bell_to_ring(file: OwnedFd) -> io::Result<PortBell> {
    let bell = PortBell::attach(file)?;
    Ok(if membarrier::takes_part() { bell.take_part() } else { bell })
}

/// What a node says of itself to who attaches.
pub(crate) struct Welcome {
    pub id: NodeId,
    pub name: String,
    pub message_bytes_max: u64,
}

/// What a node says of the way to another port.
pub(crate) struct FoundWay {
    /// The only one that gets the messages.
    pub to: Option<PortAddress>,
    /// Which generation of the names says so.
    pub generation: u64,
    /// A ring to it, if that was asked for.
    pub ring: Option<RingToSend>,
    /// A trunk, if that was asked for, and how many connections may wait at its other end.
    pub trunk: Option<GivenTrunk>,
    pub backlog: u32,
    /// There is none to that port, and is to be none.
    pub refused: bool,
}

/// A ring that a node gives to who sends by it.
pub(crate) struct RingToSend {
    pub number: u64,
    pub ring: DirectSender,
    /// The receiver's.
    pub bell: PortBell,
    /// Ends with the receiver. Files of buffers go by it that are passed, if both are of one user.
    pub line: UnixSocket,
    pub same_user: bool,
}

/// A ring that a node gives to who receives by it.
pub(crate) struct GivenRing {
    pub number: u64,
    /// Who sends by it, in which class.
    pub from: PortAddress,
    pub class: Class,
    /// Both programs are of one user.
    pub same_user: bool,
    pub ring: DirectReceiver,
    /// The sender's.
    pub bell: PortBell,
    /// Ends with the sender. Files of buffers come by it that are passed.
    pub line: UnixSocket,
}

/// A trunk that a node gives to either end.
pub(crate) struct GivenTrunk {
    pub number: u64,
    /// The port at the other end.
    pub peer: PortAddress,
    pub class: Class,
    /// Both programs are of one user.
    pub same_user: bool,
    pub out: DirectSender,
    pub back: DirectReceiver,
    /// The other end's.
    pub bell: PortBell,
    /// Ends with the other end.
    pub line: UnixSocket,
}

impl Attached {
    /// Attaches to the node whose socket is at `path`.
    pub(crate) fn to(path: &Path) -> Result<(Attached, Welcome), StartError> {
        let failed = |why: String| StartError::Attach { path: path.to_owned(), why };
        let socket = UnixSocket::connect(Place::Path(path)).map_err(|error| failed(not_there(&error)))?;
        let (tie, program) = (Tie::from(socket), program_name());
        let asked = tie.ask(&Ask::Hello { version: VERSION, program });
        let (answer, descriptors) = asked
            .or_else(|error| tie.parting_words().ok_or(error))
            .map_err(|error| failed(format!("its node does not answer as expected: {error}")))?;
        match (answer, descriptors.into_iter().next()) {
            (Answer::Welcome { node, name, message_bytes_max }, Some(wake)) => {
                // Now, and not with the first ring: where a process has several threads the kernel takes some ten milliseconds for it.
                membarrier::takes_part();
                let forks = polyrail_sys::process::fork_count();
                let attached = Attached { tie: Mutex::new(tie), wake: wake.into(), forks };
                Ok((attached, Welcome { id: node, name, message_bytes_max }))
            }
            (Answer::Refused { code: Refusal::TooMany, message }, _) => Err(StartError::Limit(message)),
            (Answer::Refused { message, .. }, _) => Err(failed(message)),
            _ => Err(failed("its node does not answer as expected".to_owned())),
        }
    }

    /// Whether this is a child of the process that was attached.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        polyrail_sys::process::fork_count() != self.forks
    }

    /// Whether the node has ended, said once.
    pub(crate) fn take_end(&self) -> bool {
        let tie = self.tie();
        tie.look();
        let is_new = tie.has_ended() && !tie.is_told_all();
        if is_new {
            tie.note_told_all();
        }
        is_new
    }

    /// Lets go of the node: it closes the ports of this process.
    pub(crate) fn detach(&self) {
        self.tie().shut_down();
    }

    /// Wakes the engine if it sleeps and `client` has handed something in.
    #[inline]
    pub(crate) fn call(&self, client: &RefCell<Client>) {
        let Ok(mut client) = client.try_borrow_mut() else { return };
        if client.take_news() && client.pair.engine_bell.claim() {
            self.wake.signal();
        }
    }

    /// Opens a port.
    pub(crate) fn port(&self, sizes: Sizes) -> io::Result<(Client, Tie)> {
        let (answer, descriptors) = self.ask(&Ask::port(sizes))?;
        let Answer::Port { address } = answer else { return Err(unexpected(answer)) };
        let Ok([memory, bell, socket]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok((Client::of_guest(memory, bell, address)?, Tie::from(UnixSocket::from(socket))))
    }

    pub(crate) fn status(&self) -> io::Result<Status> {
        match self.ask(&Ask::Status)?.0 {
            Answer::Status { status } => Ok(*status),
            other => Err(unexpected(other)),
        }
    }

    /// Messages of this process that are not confirmed.
    pub(crate) fn unconfirmed(&self) -> io::Result<u64> {
        match self.ask(&Ask::Unconfirmed)?.0 {
            Answer::Count { count } => Ok(count),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn set_link(
        &self,
        peer: NodeId,
        link: LinkId,
        status: LinkStatus,
    ) -> Result<(), LinkSetError> {
        match self.ask(&Ask::SetLink { peer, link, status }) {
            Ok((Answer::Done, _)) => Ok(()),
            Ok((Answer::LinkRefused { why }, _)) => Err(LinkSetError::Refused(why)),
            _ => Err(LinkSetError::Closed),
        }
    }

    /// Asks about `topic`: what updates come by.
    pub(crate) fn subscribe(&self, topic: Topic, timeout_ns: Option<u64>) -> Result<Tie, SubscribeError> {
        let system = |error: io::Error| SubscribeError::System(error.to_string());
        match self.ask(&Ask::Subscribe { topic, timeout_ns }).map_err(system)? {
            (Answer::Done, descriptors) => own_tie(descriptors).map_err(system),
            (Answer::Refused { code: Refusal::Inverted, .. }, _) => Err(SubscribeError::Inverted),
            (Answer::Refused { code: Refusal::TooMany, .. }, _) => Err(SubscribeError::TooMany),
            (other, _) => Err(system(unexpected(other))),
        }
    }

    /// What events come by.
    pub(crate) fn events(&self) -> io::Result<Tie> {
        match self.ask(&Ask::Events)? {
            (Answer::Done, descriptors) => own_tie(descriptors),
            (other, _) => Err(unexpected(other)),
        }
    }

    fn ask(&self, ask: &Ask) -> io::Result<(Answer, Vec<OwnedFd>)> {
        if self.is_forked() {
            return Err(io::Error::other("the process forked: attach anew in the child"));
        }
        self.tie().ask(ask)
    }

    fn tie(&self) -> MutexGuard<'_, Tie> {
        self.tie.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What only some ties are for.
impl Tie {
    /// Has the node tell by this socket when something has come to the port, and joins it with what tells of news that
    /// were put off. A node that is gone tells nothing; others may.
    pub(crate) fn watch(&self) -> io::Result<Readiness> {
        let event = Arc::new(EventFd::new()?);
        self.set_put_off(event.clone());
        match self.ask(&Ask::Watch) {
            Ok((Answer::Done, _)) => {}
            Ok((other, _)) => return Err(unexpected(other)),
            Err(_) if self.has_ended() => {}
            Err(error) => return Err(error),
        }
        Readiness::of_guest(self.as_raw_fd(), event)
    }

    /// Gives the node memory for a message that will be named by this number.
    pub(crate) fn lend(&self, number: u64, memory: &Segment) -> io::Result<()> {
        let file: Vec<_> = memory.fd().into_iter().collect();
        match self.ask_with(&Ask::Lend { number }, &file)?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// The way to where a port sends, with what is wanted past the engine.
    pub(crate) fn find_way(
        &self,
        to: Destination,
        (class, wanted): (Class, Wanted),
        rings: Vec<PortAddress>,
    ) -> io::Result<FoundWay> {
        let to = match to {
            Destination::Port(to) => Target::Port(to),
            Destination::Service(ServiceAddress { kind, instance }) => Target::Service { kind, instance },
            Destination::Connection(_) | Destination::Multicast(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        let ask = Ask::Way { to, class: class as u8, trunk: wanted == Wanted::Trunk, rings };
        let (answer, descriptors) = self.ask(&ask)?;
        let Answer::Way { to, number, generation, refused, same_user, backlog } = answer else {
            return Err(unexpected(answer));
        };
        let mut found = FoundWay { to, generation, ring: None, trunk: None, refused, backlog };
        let mut descriptors = descriptors.into_iter();
        let Some(first) = descriptors.next() else { return Ok(found) };
        let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidData);
        let (ring, bell) = (DirectSender::attach(first)?, bell_to_ring(next()?)?);
        match (wanted, to) {
            (Wanted::Ring, _) => {
                found.ring = Some(RingToSend { number, ring, bell, line: next()?.into(), same_user });
            }
            (Wanted::Trunk, Some(peer)) => {
                let (out, back, line) = (ring, DirectReceiver::attach(next()?)?, next()?.into());
                found.trunk = Some(GivenTrunk { number, peer, class, same_user, out, back, bell, line });
            }
            (Wanted::Trunk, None) => {}
        }
        Ok(found)
    }

    /// The ring that was announced under this number.
    pub(crate) fn take_ring(&self, number: u64) -> io::Result<GivenRing> {
        let (from, class, same_user, descriptors) = self.take_announced(number)?;
        let Ok([ring, bell, line]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (ring, bell) = (DirectReceiver::attach(ring)?, bell_to_ring(bell)?);
        Ok(GivenRing { number, from, class, same_user, ring, bell, line: line.into() })
    }

    /// The trunk that was announced under this number.
    pub(crate) fn take_trunk(&self, number: u64) -> io::Result<GivenTrunk> {
        let (peer, class, same_user, descriptors) = self.take_announced(number)?;
        let Ok([back, bell, out, line]) = <[OwnedFd; 4]>::try_from(descriptors) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (out, back) = (DirectSender::attach(out)?, DirectReceiver::attach(back)?);
        let (bell, line) = (bell_to_ring(bell)?, line.into());
        Ok(GivenTrunk { number, peer, class, same_user, out, back, bell, line })
    }

    fn take_announced(&self, number: u64) -> io::Result<(PortAddress, Class, bool, Vec<OwnedFd>)> {
        let (answer, descriptors) = self.ask(&Ask::Take { number })?;
        let Answer::Ring { from, class, same_user } = answer else { return Err(unexpected(answer)) };
        Ok((from, Class::from_bits(class), same_user, descriptors))
    }

    /// What is bound, for a message to the user.
    pub(crate) fn bound(&self) -> String {
        match self.ask(&Ask::Bound) {
            Ok((Answer::Text { text }, _)) => text,
            _ => "unknown: the node does not answer".to_owned(),
        }
    }

    /// Who does not know yet what this port waits for others to know.
    pub(crate) fn behind(&self) -> Vec<String> {
        match self.ask(&Ask::Behind) {
            Ok((Answer::Names { names }, _)) => names,
            _ => Vec::new(),
        }
    }

    /// The next update of a subscription; `None` if there is none within the time given.
    ///
    /// # Errors
    /// Its time was up, and that was told, or the node is gone.
    pub(crate) fn update(&self, timeout_ns: Option<u64>) -> Result<Option<Update>, UpdateError> {
        let told = self.await_words::<Told>(timeout_ns).map_err(|_| match self.is_told_all() {
            true => UpdateError::Over,
            false => UpdateError::Closed,
        })?;
        let update = told.map(|(told, _)| told.update);
        if update == Some(Update::TimedOut) {
            self.note_told_all();
        }
        Ok(update)
    }

    /// The next event that has come.
    pub(crate) fn event(&self) -> Option<NodeEvent> {
        Some(self.next_words::<Happened>().ok()??.0.event)
    }
}

/// What this process calls itself, for lists of who has a port.
fn program_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name);
    name.map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn own_tie(descriptors: Vec<OwnedFd>) -> io::Result<Tie> {
    let socket = descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Tie::from(UnixSocket::from(socket)))
}

fn unexpected(answer: Answer) -> io::Error {
    match answer {
        Answer::Refused { code: Refusal::TooMany, message } => io::Error::other(TooMuch(message)),
        Answer::Refused { message, .. } => io::Error::other(message),
        other => io::Error::new(io::ErrorKind::InvalidData, format!("the node answered {other:?}")),
    }
}

fn not_there(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such socket; start a node with `polyrail node`, which says where \
                                    programs attach, or give the path that it said"
                .to_owned()
        }
        io::ErrorKind::ConnectionRefused => {
            "its node has ended; start it again with `polyrail node`".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not; the node's owner sets who may write to its socket".to_owned()
        }
        _ => error.to_string(),
    }
}
