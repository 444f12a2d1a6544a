//! Where programs attach: a thread of the node's that lets them in, gives them ports, and tells them what is no message. Messages
//! do not pass here.

mod visitor;

use super::words::{Answer, Ask, PACKET_BYTES_MAX, Refusal, say, understand};
use crate::clock::now_ns;
use crate::engine::{Charged, Cost, Denied, Guest, Reason};
use crate::node::Home;
use polyrail_proto::id::PortId;
use polyrail_proto::service::SubscriptionId;
use polyrail_shm::{Segment, Sizes};
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::unix::{Credentials, Packet, Place, UnixListener, UnixSocket};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use visitor::{Said, Visitor, Wants};

/// How often it is looked whether the node ends.
const TICK_NS: u64 = 250_000_000;
/// What one visitor may say before others are heard.
const PACKETS_AT_ONCE: usize = 16;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Processes, and their ports and subscriptions together.
const VISITORS_MAX: usize = 32_768;
/// Entries of a port's queues: the engine writes those that nobody reads.
const ENTRIES_MAX: u32 = 65_536;
/// What one process may have of them.
const OF_PROCESS_MAX: usize = 4_096;
/// Processes of one user. With their ports and subscriptions they are not more than half of all.
const PROCESSES_OF_USER_MAX: usize = 2_048;
/// A socket, and what wakes the engine.
const PROCESS_COST: Cost = Cost { bytes: 0, descriptors: 2 };

const LISTENER: u64 = 0;

/// Lets programs in.
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
    epoll: Epoll,
    /// Processes, their ports and their subscriptions, by token.
    visitors: BTreeMap<u64, Visitor>,
    /// Processes by user.
    processes: BTreeMap<u32, usize>,
    next_token: u64,
}

impl Door {
    /// Opens it at `path`; a socket that a killed node left behind is replaced, a live one is an error.
    pub(crate) fn open(path: &Path) -> io::Result<Door> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if path.exists() {
            if UnixSocket::connect(Place::Path(path)).is_ok() {
                let what = format!("{}: another node answers there", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            std::fs::remove_file(path)?;
        }
        let (listener, epoll) = (UnixListener::bind(Place::Path(path), BACKLOG)?, Epoll::new()?);
        epoll.add(listener.as_raw_fd(), LISTENER, Interest::READ)?;
        let (visitors, processes) = (BTreeMap::new(), BTreeMap::new());
        Ok(Door { listener, path: path.to_owned(), epoll, visitors, processes, next_token: 2 })
    }

    /// Starts the thread; it ends when the node does.
    pub(crate) fn start(self, home: &Arc<Home>) -> io::Result<JoinHandle<()>> {
        let home = Arc::downgrade(home);
        std::thread::Builder::new().name("polyrail-door".to_owned()).spawn(move || self.run(&home))
    }

    fn run(mut self, home: &Weak<Home>) {
        let mut events = Events::new(64);
        loop {
            // An interrupted wait is as good as an ended one.
            let _ = self.epoll.wait(&mut events, Some(TICK_NS));
            let Some(home) = home.upgrade() else { return };
            if home.drive.is_stopping() {
                return;
            }
            for event in events.iter() {
                match event.token {
                    LISTENER => self.let_in(&home),
                    token => self.attend(&home, token),
                }
            }
        }
    }

    /// Accepts whoever has come.
    fn let_in(&mut self, home: &Home) {
        loop {
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                // There are no descriptors left: who has come waits, and not in a circle.
                Err(_) => return std::thread::sleep(Duration::from_millis(1)),
            };
            let Ok(whose) = socket.peer() else { continue };
            if self.visitors.len() >= VISITORS_MAX {
                let message =
                    format!("the node has {VISITORS_MAX} processes, ports and subscriptions already");
                let _ = say(&socket, &Answer::Refused { code: Refusal::TooMany, message }, &[]);
                continue;
            }
            match self.admit(home, whose) {
                Ok(charge) => self.welcome(Visitor::process(socket, whose, charge), whose.uid),
                Err(denied) => drop(Said::from(denied).to(&socket)),
            }
        }
    }

    /// Whether one process more of that user may come in, and as what it counts.
    fn admit(&self, home: &Home, whose: Credentials) -> Result<Charged, Denied> {
        let uid = whose.uid;
        let own = self.processes.get(&uid).copied().unwrap_or_default();
        if own < PROCESSES_OF_USER_MAX {
            return home.drive.engine().pay(Some(&visitor::whose(whose)), PROCESS_COST);
        }
        let what = format!("user {uid} has as many processes at this node as it may ({own}); end some");
        Err(home.drive.engine().deny(uid, Reason::Processes, what))
    }

    fn welcome(&mut self, process: Visitor, uid: u32) {
        if self.enter(process).is_ok() {
            *self.processes.entry(uid).or_default() += 1;
        }
    }

    /// Keeps a visitor, whose socket is heard from now on.
    fn enter(&mut self, visitor: Visitor) -> io::Result<u64> {
        let token = self.next_token;
        self.next_token += 2;
        self.epoll.add(visitor.socket().as_raw_fd(), token, Interest::READ)?;
        if let Some(bell) = visitor.bell() {
            self.epoll.add(bell.as_raw_fd(), token | 1, Interest::READ)?;
        }
        self.visitors.insert(token, visitor);
        Ok(token)
    }

    /// Something has come from a visitor, or is to be told to it (that is the odd token).
    fn attend(&mut self, home: &Home, token: u64) {
        let (at, told) = (token & !1, token & 1 == 1);
        let Some(visitor) = self.visitors.get_mut(&at) else { return };
        let stays = if told { visitor.tell(home) } else { self.hear(home, at) };
        match stays {
            // What it was told of waits until it reads.
            Ok(wants) => self.watch(at, wants),
            Err(_) => self.part(home, at),
        }
    }

    fn watch(&mut self, token: u64, wants: Wants) {
        let Some(visitor) = self.visitors.get(&token) else { return };
        let interest = if wants == Wants::Room { Interest::BOTH } else { Interest::READ };
        let _ = self.epoll.modify(visitor.socket().as_raw_fd(), token, interest);
        if let Some(bell) = visitor.bell() {
            let bell_interest = if wants == Wants::Room { Interest::NONE } else { Interest::READ };
            let _ = self.epoll.modify(bell.as_raw_fd(), token | 1, bell_interest);
        }
    }

    /// Reads what a visitor says. An error: it is gone, or is to go.
    fn hear(&mut self, home: &Home, token: u64) -> io::Result<Wants> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        for _ in 0..PACKETS_AT_ONCE {
            let Some(visitor) = self.visitors.get_mut(&token) else { return Ok(Wants::Words) };
            let Some(Packet { bytes, descriptors, .. }) = visitor.socket().recv(&mut buffer)? else {
                // It may have made room for what waits to be told.
                return visitor.tell(home);
            };
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let asked = understand::<Ask>(&buffer[..bytes], descriptors);
            let said = match asked {
                Ok((ask, descriptors)) => self.answer(home, token, ask, descriptors),
                Err(error) => Said::refuse(Refusal::Request, error),
            };
            let Some(visitor) = self.visitors.get(&token) else { return Ok(Wants::Words) };
            // Who does not read his answers is not answered.
            said.to(visitor.socket())?;
        }
        Ok(Wants::Words)
    }

    fn answer(&mut self, home: &Home, token: u64, ask: Ask, descriptors: Vec<OwnedFd>) -> Said {
        let Some(visitor) = self.visitors.get_mut(&token) else { return Said::done() };
        match (visitor, ask) {
            (Visitor::Process(process), Ask::Hello { version, program }) => {
                process.greet(home, version, program)
            }
            (Visitor::Process(process), ask) if process.is_welcome() => {
                let whose = (token, process.guest());
                self.grant(home, whose, ask)
            }
            (Visitor::Port(port), ask) => port.answer(home, ask, descriptors),
            _ => Said::refuse(Refusal::Request, "it has to say hello first"),
        }
    }

    /// What a process may have.
    fn grant(&mut self, home: &Home, (of, guest): (u64, Guest), ask: Ask) -> Said {
        let refused = Said::of_error;
        match ask {
            Ask::Status => {
                let status = home.drive.engine().status(now_ns());
                Answer::Status { status: Box::new(status) }.into()
            }
            Ask::Unconfirmed => {
                let ports = self.ports_of(of).collect::<Vec<_>>();
                Answer::Count { count: home.drive.engine().unconfirmed_of(&ports) as u64 }.into()
            }
            Ask::SetLink { peer, link, status } => {
                let set = home.drive.engine().set_link(peer, link, status);
                home.drive.inline();
                set.map_or_else(|why| Answer::LinkRefused { why }.into(), |()| Said::done())
            }
            Ask::Port { .. } | Ask::Subscribe { .. } | Ask::Events if self.count_of(of) >= OF_PROCESS_MAX => {
                let message = format!("this process has {OF_PROCESS_MAX} ports and subscriptions already");
                Said::refuse(Refusal::TooMany, message)
            }
            Ask::Port { sq_entries, cq_entries, tx_bytes, rx_bytes } => {
                let sizes = Sizes { sq_entries, cq_entries, tx_bytes, rx_bytes };
                if sq_entries.max(cq_entries) > ENTRIES_MAX {
                    return Said::refuse(
                        Refusal::Request,
                        format!("queues have {ENTRIES_MAX} entries at most"),
                    );
                }
                self.open_port(home, of, guest, sizes).unwrap_or_else(refused)
            }
            Ask::Subscribe { topic, timeout_ns } => {
                let id = home.drive.engine().subscribe_for(Some(guest.whose()), now_ns(), topic, timeout_ns);
                id.map_or_else(
                    |error| Said::refuse(visitor::refusal_of(error), error),
                    |id| self.open_subscription(home, of, id).unwrap_or_else(refused),
                )
            }
            Ask::Events => match self.take_events(of) {
                Some(id) => self
                    .open_stream(home, |socket| Visitor::listener(home, of, socket, id))
                    .unwrap_or_else(refused),
                None => Said::refuse(Refusal::Request, "it listens already"),
            },
            _ => Said::refuse(Refusal::Request, "a process is not asked this"),
        }
    }

    fn open_port(&mut self, home: &Home, of: u64, guest: Guest, sizes: Sizes) -> io::Result<Said> {
        let (ours, theirs) = UnixSocket::pair()?;
        let (address, memory) = home.drive.engine().open_guest(sizes, guest)?;
        let entered = self.enter(Visitor::port(of, ours, address.port));
        if let Err(error) = entered {
            home.drive.engine().lose_guest(address.port);
            home.drive.inline();
            return Err(error);
        }
        // Else it would be told of its names at the next turn only.
        home.drive.inline();
        let mut descriptors = files_of(&memory)?;
        descriptors.push(theirs.into());
        Ok(Said::with(Answer::Port { address }, descriptors))
    }

    fn open_subscription(&mut self, home: &Home, of: u64, id: SubscriptionId) -> io::Result<Said> {
        let said = self.open_stream(home, |socket| Visitor::subscriber(home, of, socket, id));
        if said.is_err() {
            home.drive.engine().unsubscribe(id);
        }
        // Whoever sleeps may have to wake earlier.
        home.drive.inline();
        said
    }

    /// Lets in one that is told things. What there is to tell already is there with the answer.
    fn open_stream(
        &mut self,
        home: &Home,
        visitor: impl FnOnce(UnixSocket) -> io::Result<Visitor>,
    ) -> io::Result<Said> {
        let (ours, theirs) = UnixSocket::pair()?;
        let token = self.enter(visitor(ours)?)?;
        self.attend(home, token | 1);
        Ok(Said::with(Answer::Done, vec![theirs.into()]))
    }

    fn take_events(&mut self, process: u64) -> Option<u64> {
        match self.visitors.get_mut(&process)? {
            Visitor::Process(process) => process.take_events(),
            _ => None,
        }
    }

    /// A process of that user is gone.
    fn note_parted(&mut self, uid: u32) {
        if let Some(own) = self.processes.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                self.processes.remove(&uid);
            }
        }
    }

    fn ports_of(&self, process: u64) -> impl Iterator<Item = PortId> {
        self.visitors.values().filter_map(move |visitor| match visitor {
            Visitor::Port(port) if port.of == process => Some(port.port),
            _ => None,
        })
    }

    fn count_of(&self, process: u64) -> usize {
        self.visitors.values().filter(|visitor| visitor.of() == Some(process)).count()
    }

    /// A visitor is gone, and what was its own goes with it.
    fn part(&mut self, home: &Home, token: u64) {
        let Some(visitor) = self.visitors.remove(&token) else { return };
        let _ = self.epoll.remove(visitor.socket().as_raw_fd());
        if let Some(bell) = visitor.bell() {
            let _ = self.epoll.remove(bell.as_raw_fd());
        }
        let process_of = visitor.uid();
        visitor.part(home);
        if let Some(uid) = process_of {
            self.note_parted(uid);
            let own =
                self.visitors.iter().filter(|(_, other)| other.of() == Some(token)).map(|(own, _)| *own);
            own.collect::<Vec<_>>().into_iter().for_each(|own| self.part(home, own));
        }
    }
}

/// The descriptors of memory that is to be passed on.
fn files_of(memory: &[Arc<Segment>]) -> io::Result<Vec<OwnedFd>> {
    memory.iter().filter_map(|segment| segment.fd()).map(|fd| fd.try_clone_to_owned()).collect()
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
