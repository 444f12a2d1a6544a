//! The engine: joins the core to its bearers and its clients. One turn is bounded and says how much it did.
//!
//! Whoever drives it (the calling thread, the helper thread, the simulator) only calls [`Engine::turn`] with the
//! time; nothing here reads a clock, waits or starts a thread, so the simulator runs exactly this code.

mod admission;
mod bearers;
mod calls;
pub mod client;
pub mod command;
pub(crate) mod directs;
mod events;
mod gather;
pub(crate) mod guests;
pub(crate) mod history;
pub(crate) mod holdings;
#[cfg(test)]
mod joined;
mod looks;
pub mod passing;
mod picture;
pub(crate) mod readers;
mod rest;
mod spaced;
pub(crate) mod status;
mod store;
mod subscribers;
pub(crate) mod tap;
mod turn;
mod vacant;
mod waits;

/// What the engine answers to bind and unbind.
pub(crate) mod admission_answers {
    pub use super::admission::{
        ANSWER_INVERTED as INVERTED, ANSWER_LIMIT as LIMIT, ANSWER_NOT_BOUND as NOT_BOUND,
        ANSWER_NOT_PERMITTED as NOT_PERMITTED, ANSWER_OK as OK, ANSWER_RESERVED as RESERVED,
    };
}

pub(crate) use admission::denied::{Denied, Reason, Refusals};
pub(crate) use admission::users::{Charged, Cost, Limits, Whose};
pub(crate) use bearers::Lost;
pub use bearers::{Attachment, WhyClosed};
pub use client::Client;
pub(crate) use guests::Guest;
pub use polyrail_shm::{Pool, Quota, Sizes};
pub use status::{BearerStatus, BindingStatus, LinkReport, LostStatus, MissingStatus, PeerStatus, Status};
pub use store::LargeMemory;

use crate::config::{ClassDscps, InterfaceRules};
use crate::error::TooMuch;
use gather::Gather;
use history::History;
use passing::Passing;
use polyrail_bearer::{Address, Bearer, Descriptors, RxBatch};
use polyrail_proto::address::MediaAddress;
use polyrail_proto::error::LinkSetError;
use polyrail_proto::id::{BearerId, LinkId, NodeId, PortId};
use polyrail_proto::time::Instant;
use polyrail_proto::wire::LinkStatus;
use polyrail_proto::{BearerInfo, Config, Node, Train};
use polyrail_sys::eventfd::EventFd;
use spaced::Spacing;
use std::os::fd::RawFd;
use std::sync::Arc;
use store::EngineStore;
use tap::Tap;

/// Where a turn looks for what has come in. Loopback is looked at whenever something was sent by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// At bearers that were busy lately, and now and then everywhere.
    Busy,
    /// Only at those: the kernel watches the others for whoever is about to sleep.
    Near,
    /// At every socket.
    Everywhere,
    /// At those that [`Engine::woken`] was told of.
    Ready,
    /// The same after a rest: even if something is due, for the others were seen empty a moment ago.
    Rested,
    /// At no socket: the kernel watches them for whoever is about to sleep.
    Inside,
}

/// How much one turn may do before others have their turn.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Receive calls per bearer.
    pub receives: u32,
    /// Trains per bearer.
    pub trains: u32,
    /// Commands per client.
    pub commands: u32,
    /// Leave nothing: read to the end, beacons too, and look after what is done now and then only.
    pub thorough: bool,
    /// Where to look for what has come in.
    pub look: Look,
    /// The caller has just handed something in and will be back: read only what was not read for a while.
    pub sending: bool,
}

impl Budget {
    /// For a thread that will come back at once.
    pub const USUAL: Budget = Budget {
        receives: 4,
        trains: 16,
        commands: 1_024,
        thorough: false,
        look: Look::Busy,
        sending: false,
    };
    /// For a thread that sends.
    pub const SENDING: Budget = Budget { sending: true, ..Budget::USUAL };
    /// For a thread that is to sleep unless something has come.
    pub const BRIEF: Budget = Budget { look: Look::Near, ..Budget::USUAL };
    /// For whoever will not be back soon, and for the simulator.
    pub const THOROUGH: Budget = Budget { thorough: true, look: Look::Everywhere, ..Budget::USUAL };
    /// For the last turn before a sleep that anything to read will end.
    pub const SLEEPY: Budget = Budget { look: Look::Inside, ..Budget::THOROUGH };
    /// For the first turn after such a sleep.
    const WOKEN: Budget = Budget { look: Look::Ready, ..Budget::USUAL };
    /// For the first turn after a rest, for which much has been left.
    const RESTED: Budget = Budget { look: Look::Rested, receives: 16, ..Budget::USUAL };
}

/// What a turn did, and what it would like next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Commands, datagram groups, trains and events handled.
    pub done: u32,
    /// When to call again at the latest, nanoseconds of the driver's clock; `None`: nothing is planned.
    pub next_deadline_ns: Option<u64>,
    /// Every source was seen empty: nothing is left to do before the deadline or news.
    pub drained: bool,
    /// A bearer has no room for what waits to leave.
    pub blocked: bool,
    /// A client that sleeps was told something.
    pub rang: bool,
}

/// A bearer with what the engine keeps for it.
struct Attached {
    bearer: Box<dyn Bearer>,
    id: BearerId,
    /// It had no room at the last try.
    blocked: bool,
    checked_at: Instant,
    /// When all its sockets were looked at.
    looked_at: Instant,
    /// When something was found there.
    found_at: Instant,
    /// When beacons were looked for.
    beacons_at: Instant,
    send_buffer: u32,
    loopback: bool,
    /// It was closed: its place is free.
    vacant: bool,
    opened_at: Instant,
    /// See [`polyrail_bearer::Capabilities::near`].
    near: bool,
    /// Something was sent by loopback and no look since has found nothing: what arrives there is only what this node sends.
    looped: bool,
}

/// One running node.
pub struct Engine {
    node: Node,
    bearers: Vec<Attached>,
    /// How often bearers were opened and closed.
    changes: u32,
    /// Interfaces that should have a bearer and have none.
    missing: bearers::Missing,
    interfaces: InterfaceRules,
    store: EngineStore,
    gather: Gather,
    train: Train,
    batch: RxBatch,
    hot: usize,
    passing: Arc<Passing>,
    turns: u64,
    next_at: Instant,
    turned_at: Instant,
    /// When send buffers were sized last.
    sized_at: Instant,
    /// Descriptors that ended the last sleep, with the numbers of their bearers.
    ready: Vec<(usize, RawFd)>,
    /// A bearer had no room at the last try.
    any_blocked: bool,
    /// The last turn left something that could have gone on.
    unfinished: bool,
    closing: Vec<PortId>,
    news: events::News,
    bells: subscribers::Bells,
    waits: waits::Waits,
    notices: Vec<polyrail_bearer::Notice>,
    loopback_at: Option<usize>,
    history: History,
    /// Somebody wants to see the packets.
    tap: Option<Tap>,
    started_at: Instant,
    /// What time it is once something was sent that began at this moment.
    clock: fn(u64) -> u64,
    dscps: ClassDscps,
    directs: directs::Directs,
    users: admission::users::Users,
    kept: subscribers::Kept,
}

impl Engine {
    /// An engine without bearers and clients.
    pub fn new(now_ns: u64, config: Config) -> Engine {
        Engine {
            gather: Gather::new(config.full_check),
            node: Node::new(Instant(now_ns), config),
            bearers: Vec::new(),
            changes: 0,
            missing: bearers::Missing::default(),
            interfaces: InterfaceRules::default(),
            store: EngineStore::default(),
            train: Train::new(),
            batch: RxBatch::new(8),
            hot: 0,
            passing: Arc::default(),
            turns: 0,
            next_at: Instant::ZERO,
            turned_at: Instant(now_ns),
            sized_at: Instant::ZERO,
            ready: Vec::new(),
            any_blocked: false,
            unfinished: false,
            closing: Vec::new(),
            news: events::News::default(),
            bells: subscribers::Bells::default(),
            waits: waits::Waits::default(),
            notices: Vec::new(),
            loopback_at: None,
            history: History::default(),
            tap: None,
            started_at: Instant(now_ns),
            clock: |began_ns| began_ns,
            dscps: ClassDscps::default(),
            directs: directs::Directs::default(),
            users: admission::users::Users::default(),
            kept: subscribers::Kept::default(),
        }
    }

    /// From now on ports that are opened get memory for large messages before their programs are asked for it.
    pub fn set_large_memory(&mut self, large: LargeMemory) {
        self.store.set_large(large);
    }

    /// Has each train leave with the DSCP of its class.
    pub fn set_dscps(&mut self, dscps: ClassDscps) {
        self.dscps = dscps;
    }

    /// Has a turn ask what time it is between sending and receiving. Sending takes time, in which answers may come
    /// already: without this, they take no time at all. A simulated turn takes none.
    pub fn set_clock(&mut self, clock: fn(u64) -> u64) {
        self.clock = clock;
    }

    /// Opens a port with a queue pair of its own; `None` when no port number or memory is left.
    pub fn open_client(&mut self, sizes: Sizes, exchange: client::Exchange) -> std::io::Result<Client> {
        let bytes = sizes.segment_bytes().unwrap_or_default();
        let charge = self.pay(None, Cost { bytes, descriptors: 0 });
        let charge = charge.map_err(|denied| std::io::Error::other(TooMuch(denied.message)))?;
        let port = self.node.open_port().map_err(std::io::Error::other)?;
        let spacing = self.spacing();
        let opened = self.store.open(port, self.node.config().node, (sizes, charge), exchange, spacing);
        self.or_close(port, opened)
    }

    /// What was opened for a port, which closes again if that failed.
    fn or_close<T>(&mut self, port: PortId, opened: std::io::Result<T>) -> std::io::Result<T> {
        if opened.is_err() {
            self.node.close_port(self.turned_at, port, &mut self.store);
            self.closing.push(port);
        }
        opened
    }

    /// How large messages are best laid out: for the largest packets that all bearers to the outside carry. Not at all
    /// where packets carry a check over their payload, which is made of copies.
    fn spacing(&self) -> Option<Spacing> {
        if self.node.config().full_check {
            return None;
        }
        let outside = self.bearers.iter().filter(|b| !b.loopback && !b.vacant);
        Spacing::for_packets(outside.map(|b| b.bearer.capabilities().mtu_bytes).min()?)
    }

    /// The carrier of a bearer came or went.
    pub fn carrier(&mut self, now_ns: u64, bearer: usize, up: bool) {
        let Some(id) = self.bearers.get(bearer).map(|b| b.id) else { return };
        self.next_at = Instant::ZERO;
        self.node.handle_carrier(Instant(now_ns), id, up, &mut self.store);
    }

    /// What an operator wants of a link: active, standby or drain (protocol.md §6.4).
    ///
    /// # Errors
    /// There is no such link, or it is the last one that takes messages and is to be drained.
    pub fn set_link(&mut self, peer: NodeId, link: LinkId, status: LinkStatus) -> Result<(), LinkSetError> {
        self.next_at = Instant::ZERO;
        self.node.set_link(peer, link, status)
    }

    /// Tries to open a session with whoever answers at `address`, by every bearer that may reach it.
    pub fn connect(&mut self, now_ns: u64, address: Address) {
        self.next_at = Instant::ZERO;
        let to = media(&address);
        let reaching: Vec<BearerId> = self.reaching(&to);
        for bearer in reaching {
            self.node.connect(Instant(now_ns), bearer, to.clone());
        }
    }

    /// Forgets configured peers that are not among `addresses`.
    pub fn retain_connects(&mut self, addresses: &[Address]) {
        let keep: Vec<MediaAddress> = addresses.iter().map(media).collect();
        self.node.retain_connects(|a| keep.contains(a));
    }

    fn reaching(&self, to: &MediaAddress) -> Vec<BearerId> {
        let outside = || self.node.bearers().enumerate().filter(|(i, _)| Some(*i) != self.loopback_at);
        let same =
            |(i, (info, _)): (usize, (&BearerInfo, bool))| info.reaches(to).then_some(BearerId(i as u8));
        let near: Vec<BearerId> = outside().filter_map(same).collect();
        if !near.is_empty() {
            return near;
        }
        let family = to.as_bytes().first();
        outside()
            .filter(|(_, (info, _))| info.address.as_bytes().first() == family)
            .map(|(i, _)| BearerId(i as u8))
            .collect()
    }

    /// Messages of all clients that are not confirmed yet.
    pub fn unconfirmed(&self) -> usize {
        self.store.ports().map(|p| self.node.unconfirmed(p)).sum()
    }

    /// The same of some.
    pub(crate) fn unconfirmed_of(&self, ports: &[PortId]) -> usize {
        ports.iter().map(|&port| self.node.unconfirmed(port)).sum()
    }

    /// The services that are bound, for messages to users.
    pub(crate) fn bound(&self) -> String {
        let rows: Vec<String> =
            self.node.table().list().take(8).map(|(_, _, range, _)| range.to_string()).collect();
        if rows.is_empty() { "nothing".to_owned() } else { rows.join(", ") }
    }

    /// Tells every peer that this node leaves. Drive a few turns afterwards so that the word gets out.
    pub fn leave(&mut self, now_ns: u64) {
        self.next_at = Instant::ZERO;
        self.node.leave(Instant(now_ns), &mut self.store);
    }

    /// What to wait on, bearer by bearer.
    pub fn fds(&self) -> impl Iterator<Item = (usize, Descriptors)> {
        self.bearers.iter().map(|b| b.bearer.fds()).enumerate()
    }

    /// Changes whenever `fds` has other descriptors than before.
    pub fn fds_version(&self) -> u64 {
        let of_bearers = self.bearers.iter().fold(0, |sum: u32, b| sum.wrapping_add(b.bearer.fds_version()));
        u64::from(self.changes) << 32 | u64::from(of_bearers)
    }

    /// Which bearers have no room for what waits.
    pub fn blocked(&self) -> impl Iterator<Item = (usize, bool)> {
        self.bearers.iter().enumerate().map(|(i, b)| (i, b.blocked))
    }

    /// What tells that a bearer without room has some again.
    pub fn full_fds(&self) -> impl Iterator<Item = std::os::fd::RawFd> {
        self.bearers.iter().filter(|b| b.blocked).filter_map(|b| b.bearer.fds().room)
    }

    /// Signals `arrived` whenever something is put into the port's queue from now on, and now if something is there.
    pub(crate) fn watch_port(&mut self, port: PortId, arrived: Arc<EventFd>) {
        self.store.watch(port, store::Arrived::Event(arrived));
    }

    /// Whether any session carries messages now (carriers are then watched closely).
    pub fn is_busy(&self, now_ns: u64) -> bool {
        let own = self.node.config().node;
        self.node.sessions().any(|s| s.peer.node != own && s.is_busy(Instant(now_ns)))
    }

    /// Whether no session with others waits for a single packet.
    fn is_calm(&self, now: Instant) -> bool {
        let own = self.node.config().node;
        self.node.sessions().filter(|s| s.peer.node != own).all(|s| s.waits_for_none(now))
    }

    /// What passes, for who has not got the engine, too.
    pub fn passing(&self) -> Arc<Passing> {
        self.passing.clone()
    }

    /// Bytes of the ports' receiving arenas that messages occupy, those that applications hold among them. Looks at all of
    /// them.
    pub fn receiving_bytes(&mut self) -> u64 {
        let slots = (0..self.store.len()).filter_map(|index| {
            let slot = self.store.slot(index)?;
            Some(slot.pair.rx.capacity() - slot.pair.rx.reclaim())
        });
        slots.sum()
    }

    /// The core, for reports and checks.
    pub fn core(&self) -> &Node {
        &self.node
    }
}

/// A bearer's address as the core's opaque bytes.
pub(crate) fn media(address: &Address) -> MediaAddress {
    let (bytes, len) = address.to_bytes();
    MediaAddress::padded(bytes, len)
}
