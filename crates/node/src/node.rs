//! A node: one running engine with an identity.

pub(crate) mod bearers;
pub mod events;
pub(crate) mod select;

use crate::attach::door::Door;
use crate::attach::{Attached, Tie, Welcome};
use crate::attendant;
use crate::clock::now_ns;
use crate::config::{Config, Profile, Progress, Security, Wait};
use crate::engine::client::Exchange;
use crate::engine::{Engine, LargeMemory, Limits, Status};
use crate::error::{Error, LimitsError, LinkSetError, StartError, SubscribeError};
use crate::host::Host;
use crate::port::Port;
use crate::readiness::Readiness;
use crate::subscription::Subscription;
use crate::wait::{Drive, Sleeper, Slept};
use arrayvec::ArrayString;
use events::NodeEvent;
use polyrail_bearer::MemoryHub;
use polyrail_proto::config::cluster_hash;
use polyrail_proto::id::{Incarnation, LinkId, NodeId};
use polyrail_proto::service::Topic;
use polyrail_proto::time::Duration as Span;
use polyrail_proto::wire::LinkStatus;
use polyrail_shm::{Pool, Quota, Sizes};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// An engine of this process, for the threads that drive and serve it.
pub(crate) struct Home {
    pub(crate) config: Config,
    pub(crate) drive: Drive,
}

/// What a node's ports have in common.
pub(crate) struct Shared {
    pub(crate) host: Host,
    /// As far as it is about ports: where the engine is in another process, that one has settings of its own.
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    exchange: Exchange,
}

/// A node inside this process, or one of another that this one is attached to. Dropping the latter closes the ports of this process, dropping the former leaves the cluster; messages that are not confirmed by then fail, so
/// flush the ports first, or call [`Node::leave`].
pub struct Node {
    shared: Arc<Shared>,
    id: NodeId,
    name: String,
    warnings: Vec<String>,
    threads: Vec<JoinHandle<()>>,
    listener: OnceLock<EventSource>,
}

/// Where events come from, once somebody wants them.
enum EventSource {
    Own(Readiness),
    Other(Mutex<Tie>),
}

/// How often a node that leaves looks whether all is confirmed.
const LEAVE_TICK_NS: u64 = 5_000_000;

/// Limit of buffers for large messages, bytes.
const POOL_BYTES_MAX: usize = 4 << 30;
/// Buffers kept for the next large message, bytes.
const POOL_IDLE_BYTES_MAX: usize = 64 << 20;
/// How many times the memory of the machine is promised at most unless the settings say something else: of a port that has sent and
/// received many small messages a sixteenth is there, its queues, and the rest was never touched.
const MEMORY_PROMISED_TIMES: u64 = 16;
/// Descriptors that are not for programs that attach.
const DESCRIPTORS_OWN: usize = 256;
/// What of it large messages may take for which no program was asked, bytes: those to one port, and all.
const AHEAD_PORT_BYTES_MAX: usize = 32 << 20;
const AHEAD_BYTES_MAX: usize = 256 << 20;

impl Node {
    /// Starts a node in this process: its links, names and sessions live as long as it does. The calling threads
    /// drive it; a parked helper thread does when they do not.
    ///
    /// After a fork the node belongs to the parent: in the child every call returns an error that says so.
    pub fn embed(config: Config) -> Result<Node, StartError> {
        config.validate()?;
        if config.security != Security::None {
            return Err(StartError::Security);
        }
        let core = core_config(&config)?;
        let (id, name) = (core.node, core.name.to_string());
        let mut engine = Engine::new(now_ns(), core);
        engine.set_clock(|_| now_ns());
        engine.set_dscps(config.dscp);
        engine.set_limits(limits_of(&config));
        let pool = Pool::within(POOL_BYTES_MAX, POOL_IDLE_BYTES_MAX, engine.users().budget());
        engine.set_large_memory(LargeMemory {
            pool: pool.clone(),
            quota: Quota::new(AHEAD_BYTES_MAX),
            port_bytes_max: AHEAD_PORT_BYTES_MAX,
            message_bytes_max: config.message_bytes_max,
        });
        let hub = MemoryHub::new();
        let warnings = bearers::open_all(&mut engine, &config)?;
        engine.add_loopback(now_ns(), Box::new(hub.bearer(0)));
        let drive = Drive::new(engine)
            .map_err(|source| StartError::System { what: "readiness".to_owned(), source })?;
        let home = Arc::new(Home { drive, config: config.clone() });
        let threads = start_threads(&home)?;
        let host = Host::Own(home);
        let shared = Arc::new(Shared { host, pool, exchange: Exchange::default(), config });
        Ok(Node { shared, id, name, warnings, threads, listener: OnceLock::new() })
    }

    /// Attaches to the node of another process on this machine, such as `polyrail node` runs, by its socket: links, names and
    /// sessions are that one's, and its threads drive them. Ports work as those of an embedded node do; when this process ends,
    /// in whatever way, they close. Of a node that has ended every call tells that it is closed, but for what had arrived before.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use polyrail::{Node, ServiceAddress};
    ///
    /// let node = Node::attach("/run/polyrail/alpha.attach")?;
    /// node.port()?.send(ServiceAddress::new(1000, 7), b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Nobody is there, this user may not, or that node is of another release: the message says which, and what to do.
    pub fn attach(path: impl AsRef<Path>) -> Result<Node, StartError> {
        Node::attach_with(path, Config::new())
    }

    /// The same with settings: of those in `config` that are about ports (`wait`, `adaptive_spin`, `memory`), for the others are the
    /// node's own.
    ///
    /// # Errors
    /// As [`Node::attach`].
    pub fn attach_with(path: impl AsRef<Path>, mut config: Config) -> Result<Node, StartError> {
        config.validate_settings()?;
        let (attached, Welcome { id, name, message_bytes_max }) = Attached::to(path.as_ref())?;
        config.message_bytes_max = message_bytes_max.min(usize::MAX as u64) as usize;
        config.progress = Progress::Auto;
        let pool = Pool::in_files(POOL_BYTES_MAX, POOL_IDLE_BYTES_MAX);
        let shared = Shared { host: Host::Other(attached), pool, exchange: Exchange::default(), config };
        let (warnings, threads) = (Vec::new(), Vec::new());
        Ok(Node { shared: Arc::new(shared), id, name, warnings, threads, listener: OnceLock::new() })
    }

    /// Identity.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the operator should know: small socket buffers and the command that enlarges them, a port that was
    /// taken, and the like.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Opens a port.
    pub fn port(&self) -> Result<Port, StartError> {
        let memory = &self.shared.config.memory;
        let sizes = Sizes {
            sq_entries: memory.submission_entries as u32,
            cq_entries: memory.completion_entries as u32,
            tx_bytes: memory.tx_arena_bytes as u64,
            rx_bytes: memory.rx_arena_bytes as u64,
        };
        let opened = match &self.shared.host {
            Host::Own(home) => {
                let client = home.drive.engine().open_client(sizes, self.shared.exchange.clone());
                client.map(|client| (client, None))
            }
            Host::Other(attached) => attached.port(sizes).map(|(client, tie)| (client, Some(tie))),
        };
        let (client, tie) = opened.map_err(|error| StartError::of("port", error))?;
        Ok(Port::new(self.shared.clone(), client, tie))
    }

    /// Asks about services, nodes or links: what there is, and from then on whatever changes. Any number of threads may
    /// have subscriptions of their own; they last until they are dropped.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use polyrail::{Config, Node, ServiceRange, Topic, Update};
    ///
    /// let node = Node::embed(Config::new().insecure())?;
    /// let mut servers = node.subscribe(Topic::services(ServiceRange::new(1000, 0, 99)).and_nodes())?;
    /// loop {
    ///     match servers.next()? {
    ///         Update::Published(service) => println!("{} is served by {}", service.range, service.port),
    ///         Update::NodeDown { node, left, .. } => println!("{node} {}", if left { "left" } else { "is lost" }),
    ///         _ => {}
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// An inverted range, too many subscriptions, or no descriptors left.
    pub fn subscribe(&self, topic: Topic) -> Result<Subscription, SubscribeError> {
        Subscription::new(self.shared.clone(), topic, None)
    }

    /// The same, but only for as long as `span`: the last update is [`Update::TimedOut`](crate::Update::TimedOut). With
    /// no time at all it is a picture of what there is.
    ///
    /// # Errors
    /// As for [`Node::subscribe`].
    pub fn subscribe_for(&self, topic: Topic, span: Duration) -> Result<Subscription, SubscribeError> {
        Subscription::new(self.shared.clone(), topic, Some(span))
    }

    /// A picture of the node now; an empty one of a node that has ended.
    pub fn status(&self) -> Status {
        match &self.shared.host {
            Host::Own(home) => home.drive.engine().status(now_ns()),
            Host::Other(attached) => attached.status().unwrap_or_default(),
        }
    }

    /// Puts a link to `peer` aside, or to use again: a standby link carries messages only while no active one can, one that
    /// is drained finishes what it carries and takes no message more. The peer is told, and does the same. It holds until
    /// it is set otherwise or the session with the peer ends; [`Node::status`] shows it.
    ///
    /// # Errors
    /// There is no such link, or it is the last one that takes messages and is to be drained.
    pub fn set_link(&self, peer: NodeId, link: LinkId, status: LinkStatus) -> Result<(), LinkSetError> {
        if self.shared.host.is_forked() {
            return Err(LinkSetError::Forked);
        }
        match &self.shared.host {
            Host::Own(home) => {
                home.drive.engine().set_link(peer, link, status)?;
                // The word leaves now, and what waited for the link with it.
                home.drive.inline();
                Ok(())
            }
            Host::Other(attached) => attached.set_link(peer, link, status),
        }
    }

    /// Takes from `config` what the users of programs that attach may have from now on: `users`, `user`, `right` and
    /// `memory_bytes_max`. What they have already stays theirs, be it more. Nothing else of `config` matters.
    ///
    /// # Errors
    /// A setting is wrong, or the node is another process's: nothing has changed then.
    pub fn set_limits(&self, config: &Config) -> Result<(), LimitsError> {
        if self.shared.host.is_forked() {
            return Err(LimitsError::Forked);
        }
        let drive = self.shared.host.own().ok_or(LimitsError::NotOwn)?;
        config.validate_settings()?;
        drive.engine().renew_limits(limits_of(config));
        Ok(())
    }

    /// News since the last call: peers, links, names.
    pub fn events(&self) -> Vec<NodeEvent> {
        match &self.shared.host {
            Host::Own(home) => {
                if let Some(EventSource::Own(readiness)) = self.listener.get() {
                    readiness.clear();
                }
                let mut engine = home.drive.engine();
                std::iter::from_fn(|| engine.poll_event()).collect()
            }
            Host::Other(attached) => {
                let tie = self.listen(attached);
                let news = tie.iter().flat_map(|tie| std::iter::from_fn(|| tie.event()));
                let end = attached.take_end().then_some(NodeEvent::NodeEnded);
                // In this order: what it said before is told before.
                news.collect::<Vec<_>>().into_iter().chain(end).collect()
            }
        }
    }

    /// A descriptor that becomes readable when there may be news, or work for the engine: then call
    /// [`Node::progress`] and [`Node::events`]. Wait for it to be readable, but do not read from it.
    ///
    /// # Errors
    /// The process has no descriptors left, or the node has ended.
    pub fn fd(&self) -> io::Result<RawFd> {
        match (self.listener.get(), &self.shared.host) {
            (Some(EventSource::Own(readiness)), _) => Ok(readiness.fd()),
            (_, Host::Own(home)) => {
                let readiness = Readiness::new(home.drive.fd()?)?;
                let mut engine = home.drive.engine();
                // Another thread may have been faster; then this one is thrown away.
                if self.listener.get().is_none() {
                    engine.watch_events(readiness.told());
                }
                match self.listener.get_or_init(|| EventSource::Own(readiness)) {
                    EventSource::Own(readiness) => Ok(readiness.fd()),
                    EventSource::Other(_) => Err(io::ErrorKind::Unsupported.into()),
                }
            }
            (_, Host::Other(attached)) => Ok(self.listen(attached)?.as_raw_fd()),
        }
    }

    /// What events of a node of another process come by.
    fn listen(&self, attached: &Attached) -> io::Result<MutexGuard<'_, Tie>> {
        if self.listener.get().is_none() {
            let tie = attached.events()?;
            let _ = self.listener.set(EventSource::Other(Mutex::new(tie)));
        }
        match self.listener.get() {
            Some(EventSource::Other(tie)) => Ok(tie.lock().unwrap_or_else(|e| e.into_inner())),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Does what there is to do now, without waiting: for programs that drive the node themselves
    /// ([`Progress::Manual`](crate::Progress::Manual)) and have nothing to send or receive at the moment.
    pub fn progress(&self) {
        self.shared.host.own().map(Drive::inline);
    }

    /// Leaves the cluster in order: waits until what was sent is confirmed, at most `timeout`, then tells every
    /// peer. A node of another process does not leave: this one waits until what its own ports have sent is confirmed.
    ///
    /// # Errors
    /// Time is up, or the node of another process has ended.
    pub fn leave(self, timeout: Duration) -> Result<(), Error> {
        let until = now_ns().saturating_add(timeout.as_nanos().min(u64::MAX as u128) as u64);
        loop {
            let left = match &self.shared.host {
                Host::Own(home) => {
                    home.drive.inline();
                    home.drive.engine().unconfirmed() as u64
                }
                Host::Other(attached) => {
                    attached.unconfirmed().map_err(|error| Error::System(error.to_string()))?
                }
            };
            if left == 0 {
                return Ok(());
            }
            if now_ns() >= until {
                return Err(Error::TimedOut(format!("; {left} messages are not confirmed")));
            }
            let tick_ns = (now_ns() + LEAVE_TICK_NS).min(until);
            let Some(drive) = self.shared.host.own() else {
                std::thread::sleep(Duration::from_nanos(tick_ns.saturating_sub(now_ns())));
                continue;
            };
            if drive.poll(Sleeper::Other, Some(tick_ns), &mut || false, &|| ()) == Slept::NoSeat {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.shared.host.is_forked() {
            // The threads stayed in the parent.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        let drive = match &self.shared.host {
            Host::Own(home) => &home.drive,
            Host::Other(attached) => return attached.detach(),
        };
        // Acknowledgements may still be due; without them the senders of what was received here would be told that its
        // fate is unknown.
        let acknowledged_by = now_ns() + 2_000 * polyrail_proto::limits::ACK_DELAY_MAX.as_us();
        while now_ns() < acknowledged_by {
            drive.inline();
            std::thread::yield_now();
        }
        drive.engine().leave(now_ns());
        for _ in 0..4 {
            drive.inline();
        }
        drive.stop();
        drive.engine().wake_subscribers();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn start_threads(home: &Arc<Home>) -> Result<Vec<JoinHandle<()>>, StartError> {
    let mut threads = Vec::new();
    let failed = |source| StartError::System { what: "thread".to_owned(), source };
    if home.config.progress == Progress::Auto {
        let own = home.clone();
        let helper = std::thread::Builder::new().name("polyrail-help".to_owned()).stack_size(256 << 10);
        let spin_ns = match home.config.wait {
            Wait::Spin => u64::MAX,
            Wait::Adaptive => home.config.adaptive_spin.as_nanos() as u64,
            Wait::Block => 0,
        };
        threads.push(helper.spawn(move || own.drive.help(spin_ns)).map_err(failed)?);
    }
    if let Some(path) = &home.config.attach {
        let what = |source| StartError::System { what: path.display().to_string(), source };
        threads.push(Door::open(path).map_err(what)?.start(home).map_err(failed)?);
    }
    threads.push(attendant::start(home).map_err(failed)?);
    Ok(threads)
}

/// The settings about users and memory.
fn limits_of(config: &Config) -> Limits {
    let usual = || crate::machine::memory_bytes().saturating_mul(MEMORY_PROMISED_TIMES);
    let memory_bytes_max = config.memory_bytes_max.unwrap_or_else(usual);
    Limits {
        memory_bytes_max: usize::try_from(memory_bytes_max).unwrap_or(usize::MAX),
        descriptors_max: descriptors_max(),
        each: config.users,
        users: config.user.clone(),
        rights: config.rights.clone(),
    }
}

/// What of the descriptors that this process may have is for programs that attach: bearers, threads and the program itself have some, too.
fn descriptors_max() -> usize {
    let limit = crate::machine::descriptors().unwrap_or(usize::MAX);
    limit.saturating_sub(DESCRIPTORS_OWN).max(limit / 2)
}

/// The core's settings.
fn core_config(config: &Config) -> Result<polyrail_proto::Config, StartError> {
    let mut random = [0; 16];
    polyrail_sys::process::random_bytes(&mut random)
        .map_err(|source| StartError::System { what: "random numbers".to_owned(), source })?;
    let draw = u64::from_le_bytes(random[..8].try_into().unwrap_or_default());
    let node = config.id.unwrap_or(NodeId(draw.max(1)));
    let unix_ms = polyrail_sys::clock::unix_ms();
    let incarnation = Incarnation(unix_ms << 16 | u64::from(random[8]) << 8 | u64::from(random[9]));
    let mut core = polyrail_proto::Config::new(node, incarnation);
    core.name = ArrayString::from(&config.name_or_default()).unwrap_or_default();
    core.cluster = cluster_hash(&config.cluster);
    core.host = host_number();
    core.seed = u64::from_le_bytes(random[8..].try_into().unwrap_or_default());
    // Nobody drives a manual node but its application, which may be busy for a while: its peers are told to be patient.
    let manual = config.progress == Progress::Manual;
    core.tolerance = span(config.tolerance).max(if manual { Span::s(5) } else { Span::ZERO });
    core.keepalive_busy = span(config.keepalive);
    core.keepalive_idle = span(config.keepalive_idle);
    core.discovery = config.discovery;
    core.full_check = config.integrity == crate::config::Integrity::Full;
    core.policy = config.policy;
    core.class_policies = config.class_policies;
    if config.profile == Profile::Throughput {
        core.queue_target = (Span::ms(1), Span::ms(6));
    }
    Ok(core)
}

fn span(duration: Duration) -> Span {
    Span(duration.as_nanos().min(u64::MAX as u128) as u64)
}

/// The same for two lives of a node on one machine, different for a clone on another: boot and network namespace.
fn host_number() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let net =
        std::fs::read_link("/proc/thread-self/ns/net").map(|p| p.display().to_string()).unwrap_or_default();
    cluster_hash(&format!("{boot}{net}")).max(1)
}
