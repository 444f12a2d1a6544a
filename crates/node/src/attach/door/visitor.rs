//! Those who have come by the door: processes, and what belongs to them, each with a socket of its own whose end is its end.

use super::files_of;
use crate::attach::words::{Answer, Ask, Happened, Refusal, Target, Told, VERSION, say};
use crate::engine::directs::{Found, Given, Taken, Wanted};
use crate::engine::{Charged, Denied, Guest, Whose};
use crate::node::Home;
use crate::node::events::NodeEvent;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{PortAddress, PortId};
use polyrail_proto::node::Destination;
use polyrail_proto::service::{SubscribeError, SubscriptionId, Update};
use polyrail_shm::Segment;
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::unix::{Credentials, UnixSocket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Longest name of a program that is kept, bytes.
const PROGRAM_BYTES_MAX: usize = 64;

/// What a visitor is watched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// That it says something.
    Words,
    /// That it makes room for what it is to be told.
    Room,
}

/// An answer, with the descriptors that go with it.
pub(super) struct Said {
    answer: Answer,
    descriptors: Vec<OwnedFd>,
}

impl From<Answer> for Said {
    fn from(answer: Answer) -> Said {
        Said { answer, descriptors: Vec::new() }
    }
}

impl From<Denied> for Said {
    fn from(denied: Denied) -> Said {
        Said::refuse(Refusal::TooMany, denied)
    }
}

impl Said {
    /// Of what could not be made, for want of it or because there is too much of it.
    pub(super) fn of_error(error: io::Error) -> Said {
        match error.downcast::<Denied>() {
            Ok(denied) => denied.into(),
            Err(error) => Said::refuse(Refusal::System, error),
        }
    }

    pub(super) fn done() -> Said {
        Answer::Done.into()
    }

    pub(super) fn refuse(code: Refusal, message: impl ToString) -> Said {
        Answer::Refused { code, message: message.to_string() }.into()
    }

    pub(super) fn with(answer: Answer, descriptors: Vec<OwnedFd>) -> Said {
        Said { answer, descriptors }
    }

    pub(super) fn to(&self, socket: &UnixSocket) -> io::Result<()> {
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        say(socket, &self.answer, &descriptors)
    }
}

pub(super) enum Visitor {
    Process(Process),
    Port(Port),
    Subscriber(Subscriber),
    Listener(Listener),
}

pub(super) struct Process {
    socket: UnixSocket,
    whose: Credentials,
    program: Arc<str>,
    /// What it wakes the engine by, once it is welcome.
    wake: Option<EventFd>,
    /// Where events are kept for it, from then on.
    events: Option<u64>,
    /// It counts to its user.
    _charge: Charged,
}

pub(super) struct Port {
    socket: Arc<UnixSocket>,
    /// The process, by its token.
    pub(super) of: u64,
    pub(super) port: PortId,
}

/// Told of what it asked about.
pub(super) struct Subscriber {
    socket: UnixSocket,
    of: u64,
    id: SubscriptionId,
    bell: Arc<EventFd>,
    /// There was no room for it.
    waiting: Option<Update>,
    over: bool,
}

/// Told of events.
pub(super) struct Listener {
    socket: UnixSocket,
    of: u64,
    id: u64,
    bell: Arc<EventFd>,
    waiting: Option<NodeEvent>,
}

/// Whose a process is that has not said what it is called.
pub(super) fn whose(credentials: Credentials) -> Whose {
    Whose { uid: credentials.uid, pid: credentials.pid, program: "?".into() }
}

pub(super) fn refusal_of(error: SubscribeError) -> Refusal {
    match error {
        SubscribeError::Inverted => Refusal::Inverted,
        _ => Refusal::TooMany,
    }
}

impl Process {
    pub(super) fn is_welcome(&self) -> bool {
        self.wake.is_some()
    }

    /// Where events are kept for it; once.
    pub(super) fn take_events(&mut self) -> Option<u64> {
        self.events.take()
    }

    pub(super) fn guest(&self) -> Guest {
        let Credentials { pid, uid, .. } = self.whose;
        Guest::new(pid, uid, self.program.clone())
    }

    /// Welcomes a process that speaks our version.
    pub(super) fn greet(&mut self, home: &Home, version: u32, mut program: String) -> Said {
        if version != VERSION {
            let message = format!(
                "the program speaks version {version} of what programs and nodes say to each other on one machine, the node \
                 version {VERSION}: build the program, or start the node, with the other's release"
            );
            return Said::refuse(Refusal::Version, message);
        }
        if self.is_welcome() {
            return Said::refuse(Refusal::Request, "welcomed before");
        }
        while program.len() > PROGRAM_BYTES_MAX {
            program.pop();
        }
        self.program = program.into();
        let kept = home.drive.engine().keep_events(self.guest().whose());
        let id = match kept {
            Ok(id) => id,
            Err(denied) => return denied.into(),
        };
        match self.lend_wake(home) {
            Ok(wake) => {
                self.events = Some(id);
                let (node, name) = {
                    let engine = home.drive.engine();
                    (engine.core().config().node, engine.core().config().name.to_string())
                };
                let message_bytes_max = home.config.message_bytes_max as u64;
                Said::with(Answer::Welcome { node, name, message_bytes_max }, vec![wake])
            }
            Err(error) => {
                home.drive.engine().forget_listener(id);
                Said::refuse(Refusal::System, error)
            }
        }
    }

    fn lend_wake(&mut self, home: &Home) -> io::Result<OwnedFd> {
        let wake = EventFd::new()?;
        let lent = wake.as_fd().try_clone_to_owned()?;
        home.drive.add_caller(wake.as_raw_fd())?;
        self.wake = Some(wake);
        Ok(lent)
    }
}

impl Port {
    pub(super) fn answer(&self, home: &Home, ask: Ask, descriptors: Vec<OwnedFd>) -> Said {
        if let Ask::Lend { number } = ask {
            return self.borrow(home, number, descriptors);
        }
        match ask {
            Ask::Way { to, class, trunk, rings } => {
                let wanted = if trunk { Wanted::Trunk } else { Wanted::Ring };
                return self.find_way(home, to, (Class::from_bits(class), wanted), &rings);
            }
            Ask::Take { number } => return self.give_ring(home, number),
            _ => {}
        }
        let mut engine = home.drive.engine();
        match ask {
            Ask::Watch => {
                engine.watch_guest(self.port, self.socket.clone());
                Said::done()
            }
            Ask::Bound => Answer::Text { text: engine.bound() }.into(),
            Ask::Behind => Answer::Names { names: engine.behind(self.port) }.into(),
            _ => Said::refuse(Refusal::Request, "a port is not asked this"),
        }
    }

    fn find_way(&self, home: &Home, to: Target, wanted: (Class, Wanted), rings: &[PortAddress]) -> Said {
        let to = match to {
            Target::Port(to) => Destination::Port(to),
            Target::Service { kind, instance } => Destination::Service(ServiceAddress { kind, instance }),
        };
        let found = home.drive.engine().find_way(self.port, to, wanted, rings);
        let said = found.and_then(|Found { to, generation, ring, refused, same_user, backlog }| {
            let (number, given) = ring.unwrap_or_default();
            let answer = Answer::Way { to, number, generation, refused, same_user, backlog };
            Ok(Said::with(answer, descriptors_of(given)?))
        });
        // The receiver is to hear of it.
        home.drive.inline();
        said.unwrap_or_else(|error| Said::refuse(Refusal::System, error))
    }

    fn give_ring(&self, home: &Home, number: u64) -> Said {
        let Some(Taken { from, class, same_user, given }) = home.drive.engine().take_ring(self.port, number)
        else {
            return Said::refuse(Refusal::Request, "there is no such ring");
        };
        let answer = Answer::Ring { from, class: class as u8, same_user };
        let given = descriptors_of(given).map(|descriptors| Said::with(answer, descriptors));
        given.unwrap_or_else(|error| Said::refuse(Refusal::System, error))
    }

    fn borrow(&self, home: &Home, number: u64, descriptors: Vec<OwnedFd>) -> Said {
        let Some(file) = descriptors.into_iter().next() else {
            return Said::refuse(Refusal::Request, "no memory came with it");
        };
        match Segment::from_fd(file) {
            Ok(memory) => {
                let taken = home.drive.engine().borrow_from(self.port, number, memory);
                taken.map_or_else(Said::from, |()| Said::done())
            }
            Err(error) => Said::refuse(Refusal::System, error),
        }
    }
}

fn descriptors_of(Given { memory, line }: Given) -> io::Result<Vec<OwnedFd>> {
    let mut descriptors = files_of(&memory)?;
    descriptors.extend(line.map(OwnedFd::from));
    Ok(descriptors)
}

impl Subscriber {
    /// The next update; if there is none, the bell is silent until there is.
    fn next(&self, home: &Home) -> io::Result<Option<Update>> {
        let poll = || home.drive.engine().poll_subscription(self.id).map_err(io::Error::other);
        if let Some(update) = poll()? {
            return Ok(Some(update));
        }
        self.bell.clear();
        // What came before the bell was silenced is found now.
        poll()
    }

    fn tell(&mut self, home: &Home) -> io::Result<Wants> {
        loop {
            if self.over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(update) = self.waiting.take().map_or_else(|| self.next(home), |kept| Ok(Some(kept)))?
            else {
                return Ok(Wants::Words);
            };
            match say(&self.socket, &Told { update }, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = Some(update);
                    return Ok(Wants::Room);
                }
                said => said?,
            }
            self.over = update == Update::TimedOut;
        }
    }
}

impl Listener {
    fn next(&self, home: &Home) -> Option<NodeEvent> {
        let poll = || home.drive.engine().poll_event_for(self.id);
        poll().or_else(|| {
            self.bell.clear();
            // What came before the bell was silenced is found now.
            poll()
        })
    }

    fn tell(&mut self, home: &Home) -> io::Result<Wants> {
        while let Some(event) = self.waiting.take().or_else(|| self.next(home)) {
            let happened = Happened { event };
            match say(&self.socket, &happened, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = Some(happened.event);
                    return Ok(Wants::Room);
                }
                said => said?,
            }
        }
        Ok(Wants::Words)
    }
}

impl Visitor {
    pub(super) fn process(socket: UnixSocket, whose: Credentials, charge: Charged) -> Visitor {
        let (program, wake, events) = ("".into(), None, None);
        Visitor::Process(Process { socket, whose, program, wake, events, _charge: charge })
    }

    pub(super) fn port(of: u64, socket: UnixSocket, port: PortId) -> Visitor {
        Visitor::Port(Port { socket: Arc::new(socket), of, port })
    }

    pub(super) fn subscriber(
        home: &Home,
        of: u64,
        socket: UnixSocket,
        id: SubscriptionId,
    ) -> io::Result<Visitor> {
        let bell = Arc::new(EventFd::new()?);
        // There is a snapshot to read.
        bell.signal();
        home.drive.engine().watch_subscription(id, bell.clone());
        Ok(Visitor::Subscriber(Subscriber { socket, of, id, bell, waiting: None, over: false }))
    }

    pub(super) fn listener(home: &Home, of: u64, socket: UnixSocket, id: u64) -> io::Result<Visitor> {
        let bell = Arc::new(EventFd::new()?);
        home.drive.engine().watch_events_for(id, bell.clone());
        Ok(Visitor::Listener(Listener { socket, of, id, bell, waiting: None }))
    }

    pub(super) fn socket(&self) -> &UnixSocket {
        match self {
            Visitor::Process(process) => &process.socket,
            Visitor::Port(port) => &port.socket,
            Visitor::Subscriber(subscriber) => &subscriber.socket,
            Visitor::Listener(listener) => &listener.socket,
        }
    }

    /// The user of a process.
    pub(super) fn uid(&self) -> Option<u32> {
        match self {
            Visitor::Process(process) => Some(process.whose.uid),
            _ => None,
        }
    }

    /// The process that it belongs to.
    pub(super) fn of(&self) -> Option<u64> {
        match self {
            Visitor::Process(_) => None,
            Visitor::Port(port) => Some(port.of),
            Visitor::Subscriber(subscriber) => Some(subscriber.of),
            Visitor::Listener(listener) => Some(listener.of),
        }
    }

    /// What is signalled when it is to be told something.
    pub(super) fn bell(&self) -> Option<&EventFd> {
        match self {
            Visitor::Process(_) | Visitor::Port(_) => None,
            Visitor::Subscriber(subscriber) => Some(&subscriber.bell),
            Visitor::Listener(listener) => Some(&listener.bell),
        }
    }

    /// Tells it what there is to tell. An error: it is gone, or has been told all.
    pub(super) fn tell(&mut self, home: &Home) -> io::Result<Wants> {
        match self {
            Visitor::Process(_) | Visitor::Port(_) => Ok(Wants::Words),
            Visitor::Subscriber(subscriber) => subscriber.tell(home),
            Visitor::Listener(listener) => listener.tell(home),
        }
    }

    /// It is gone.
    pub(super) fn part(self, home: &Home) {
        match self {
            Visitor::Process(process) => {
                process.wake.iter().for_each(|wake| home.drive.remove_caller(wake.as_raw_fd()));
                process.events.iter().for_each(|id| home.drive.engine().forget_listener(*id));
            }
            Visitor::Port(port) => {
                home.drive.engine().lose_guest(port.port);
                // Its peers are to hear of it now.
                home.drive.inline();
            }
            Visitor::Subscriber(subscriber) => home.drive.engine().unsubscribe(subscriber.id),
            Visitor::Listener(listener) => home.drive.engine().forget_listener(listener.id),
        }
    }
}
