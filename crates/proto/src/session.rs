//! What two node incarnations share: links, flows, transfers, control frames.
//!
//! Here is what a session is made of; what it does with each part has a file of its own in this folder. Packets go out by
//! `transmit` and come in by `receive`, and `outcome` says what became of those that left.

mod aims;
mod bearers;
mod bottleneck;
mod calm;
mod choice;
pub(crate) mod connection;
mod consumed;
mod control;
mod copies;
mod credit;
mod deliver;
mod division;
mod expiry;
mod flows;
mod insurance;
mod links;
mod multicast;
mod notices;
mod outcome;
mod outlook;
mod picture;
mod policy;
mod quiet;
mod receive;
mod rivals;
mod schedule;
mod serving;
mod sparing;
mod timers;
mod transfers;
mod transmit;
mod turns;
mod wanted;

pub use bottleneck::Shared;
pub use calm::Rest;
pub use connection::{ConnectionPicture, ConnectionState, Incoming};
pub use control::Notice;
pub use outlook::{LinkOutlook, Outlook, Part, Way};
pub use picture::{FlowPicture, GivenPicture, TakenPicture};
pub use serving::Obstacle;
pub use transmit::Outcome;

use crate::address::MediaAddress;
use crate::config::Config;
use crate::event::Event;
use crate::flow::FlowKey;
use crate::flow::receive::ReceiveFlow;
use crate::flow::send::SendFlow;
use crate::id::{BearerId, Incarnation, LinkId, NodeId, PortId, SessionId};
use crate::limits;
use crate::link::send::Item;
use crate::link::{Link, LinkSpec};
use crate::port::Port;
use crate::service::{Digests, Feed, Table};
use crate::slab::Slab;
use crate::stats::{Drops, SessionStats};
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::transfer::{ReceiveTransfer, SendTransfer};
use crate::wire::{self, Hello, Refuse};
use arrayvec::{ArrayString, ArrayVec};
use bottleneck::Trials;
use choice::Choice;
use connection::Connections;
use control::Control;
use credit::{GivenCredit, TakenCredit};
use expiry::Deadlines;
use multicast::Fans;
use policy::Assigners;
use quiet::Quiet;
use schedule::Schedule;
use sparing::Sparing;
use std::collections::{BTreeMap, VecDeque};

/// What a call into a session may use.
pub(crate) struct Cx<'a> {
    pub now: Instant,
    pub config: &'a Config,
    pub store: &'a mut dyn Store,
    pub events: &'a mut VecDeque<Event>,
    pub drops: &'a mut Drops,
    pub faults: &'a mut BTreeMap<wire::Fault, u64>,
    pub ports: &'a mut BTreeMap<PortId, Port>,
    pub table: &'a Table,
}

/// Sending half.
#[derive(Debug, Default)]
struct Sending {
    flows: Slab<SendFlow>,
    by_key: BTreeMap<FlowKey, u32>,
    /// The flow that was sent by last.
    last: Option<(FlowKey, u32)>,
    credits: Slab<TakenCredit>,
    credit_of: BTreeMap<PortId, u32>,
    transfers: Slab<SendTransfer>,
    refused: Vec<u32>,
    deadlines: Deadlines,
}

/// Receiving half.
#[derive(Debug, Default)]
struct Receiving {
    flows: Slab<ReceiveFlow>,
    by_key: BTreeMap<FlowKey, u32>,
    last: Option<(FlowKey, u32)>,
    credits: Slab<GivenCredit>,
    credit_of: BTreeMap<PortId, u32>,
    /// Credit that is to be told, each once.
    untold: VecDeque<u32>,
    /// Flows of which it is to be told how far they were read.
    consumed: Vec<u32>,
    transfers: Slab<ReceiveTransfer>,
    waiting: VecDeque<u32>,
    cts: VecDeque<u32>,
    refuse: VecDeque<Refuse>,
    fans: Fans,
    /// Ports of the peer that closed lately: late copies of what they sent must not open their flows anew.
    closed: VecDeque<PortId>,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Identity.
    pub node: NodeId,
    /// Life.
    pub incarnation: Incarnation,
    /// Name.
    pub name: ArrayString<63>,
    /// Its machine or namespace.
    pub host: u64,
    /// Its index of this session.
    pub session: SessionId,
    /// The largest message that it takes without being asked, bytes.
    pub eager_bytes_max: u32,
    /// Credit of its ports before they said more.
    pub initial_credit: (u32, u32),
    /// How long it may be silent.
    pub tolerance: Duration,
    /// What it knows beside wire version 1, of what we know.
    pub features: u64,
    /// Its bearers.
    pub bearers: ArrayVec<wire::BearerAddress, { wire::handshake::BEARERS_MAX }>,
}

impl From<&Hello> for Peer {
    fn from(hello: &Hello) -> Self {
        Peer {
            node: hello.node,
            incarnation: hello.incarnation,
            name: hello.name,
            host: hello.host,
            session: hello.session,
            eager_bytes_max: hello.eager_bytes_max,
            initial_credit: hello.initial_credit,
            tolerance: Duration::ms(hello.tolerance_ms as u64),
            features: hello.features & wire::FEATURES,
            bearers: hello.bearers.clone(),
        }
    }
}

/// A session with one incarnation of one peer.
#[derive(Debug)]
pub struct Session {
    /// Our index of it.
    pub index: SessionId,
    /// Who is at the other end.
    pub peer: Peer,
    /// We opened it, so we number its links.
    pub initiator: bool,
    /// The attempt that made it.
    pub attempt: u32,
    /// Its links.
    pub links: Vec<Link>,
    /// Counters.
    pub stats: SessionStats,
    /// The application was told that the peer is up.
    pub announced: bool,
    /// What the peer has still to be told of our bindings.
    pub(crate) feed: Option<Feed>,
    pub(crate) digests: Digests,
    /// It has not been told all of them, for the window of control frames was full.
    pub(crate) lags: bool,
    /// It lags so far that the log no longer has what it has not been told.
    pub(crate) behind: bool,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) closed_by_peer: Option<u16>,
    pub(crate) credit_wanted: Vec<PortId>,
    /// Ports of ours that got memory back from flows that ended: credit of others may grow.
    pub(crate) freed: Vec<PortId>,
    /// A newcomer claims this peer's identity: since when, and the proof of life seen last.
    pub(crate) contested: Option<Instant>,
    sending: Sending,
    receiving: Receiving,
    schedule: Schedule,
    choice: Choice,
    /// Who decides by which link messages go, where that is decided before.
    assigners: Assigners,
    trials: Trials,
    sparing: Sparing,
    control: Control,
    connections: Connections,
    quiet: Quiet,
    next_link: u16,
    /// Links that were closed last: what of them is still under way must not make them anew, for their numbers would start again.
    retired: VecDeque<LinkId>,
    last_app_at: Instant,
    /// When anything but a large message last passed.
    prompt_at: Instant,
    isolated_since: Option<Instant>,
    /// Somebody said that the peer does not know this session: when it was asked.
    doubted_at: Option<Instant>,
    last_proof_at: Instant,
    tolerance: Duration,
    scratch: Vec<Item>,
    /// Bytes that were late on one link and that others were given too.
    insured_bytes: u64,
    /// The planted fault, and the buffers that it gave back early.
    #[cfg(feature = "planted")]
    planted: Option<crate::planted::Planted>,
    #[cfg(feature = "planted")]
    early: std::collections::BTreeSet<(PortId, crate::id::BufferId)>,
}

/// How long after its last message a session keeps the keepalives of a busy one.
const BUSY_FOR: Duration = Duration::s(1);

impl Session {
    pub(crate) fn new(
        now: Instant,
        index: SessionId,
        peer: Peer,
        initiator: bool,
        attempt: u32,
        config: &Config,
    ) -> Self {
        let tolerance = config.tolerance.max(peer.tolerance.min(limits::TOLERANCE_UNPROVED_MAX));
        let assigners = Assigners::new(config, config.node < peer.node);
        let choice = Choice::new(config.node > peer.node);
        Session {
            index,
            peer,
            initiator,
            attempt,
            links: Vec::new(),
            stats: SessionStats::default(),
            announced: false,
            feed: None,
            digests: Digests::default(),
            lags: false,
            behind: false,
            notices: VecDeque::new(),
            closed_by_peer: None,
            credit_wanted: Vec::new(),
            freed: Vec::new(),
            contested: None,
            sending: Sending::default(),
            receiving: Receiving::default(),
            schedule: Schedule::default(),
            choice,
            assigners,
            trials: Trials::default(),
            sparing: Sparing::default(),
            control: Control::default(),
            connections: Connections::default(),
            quiet: Quiet::default(),
            next_link: 0,
            retired: VecDeque::new(),
            last_app_at: now,
            prompt_at: now,
            isolated_since: Some(now),
            doubted_at: None,
            last_proof_at: now,
            tolerance,
            scratch: Vec::new(),
            insured_bytes: 0,
            #[cfg(feature = "planted")]
            planted: config.planted,
            #[cfg(feature = "planted")]
            early: Default::default(),
        }
    }

    /// Links came or went, changed their state, or other ones are wanted.
    fn forget_choices(&mut self) {
        self.choice.forget();
        self.sparing.note_held_up();
    }

    /// Goes on with what is being found out about links.
    fn try_links(&mut self, now: Instant) {
        self.try_bottleneck(now);
        self.try_sparing(now);
    }

    /// Number for a new link, if one is left; only the initiator allocates.
    pub(crate) fn allocate_link(&mut self) -> Option<LinkId> {
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::ReusedLink)
            && let Some(last) = self.links.last().filter(|link| !link.usable())
        {
            return Some(last.spec.id);
        }
        self.next_link = self.next_link.checked_add(1)?;
        Some(LinkId(self.next_link))
    }

    /// Adds a link that then has to be joined.
    pub(crate) fn add_link(&mut self, now: Instant, spec: LinkSpec, config: &Config) {
        self.next_link = self.next_link.max(spec.id.0);
        self.quiet.add_link(spec.bearer);
        self.links.push(Link::new(now, spec, config));
    }

    pub(crate) fn link_index(&self, id: LinkId) -> Option<usize> {
        self.links.iter().position(|l| l.spec.id == id)
    }

    /// Whether a link over this pair of attachments exists.
    pub(crate) fn has_link(&self, bearer: BearerId, to: &MediaAddress) -> bool {
        self.links.iter().any(|l| l.spec.bearer == bearer && l.spec.to == *to)
    }

    /// Whether at least one link carries messages.
    pub fn is_up(&self) -> bool {
        self.links.iter().any(Link::usable)
    }

    /// The peer has proved to be there: from now on it may be silent for as long as it said.
    pub(crate) fn announce(&mut self) {
        self.announced = true;
        self.quiet.stir();
        self.tolerance = self.tolerance.max(self.peer.tolerance.min(limits::TOLERANCE_MAX));
    }

    /// Whether messages went either way lately.
    pub fn is_busy(&self, now: Instant) -> bool {
        now.since(self.last_app_at) < BUSY_FOR || !self.sending.flows.iter().all(|(_, f)| f.is_idle())
    }

    /// Something of a message was taken in.
    fn note_traffic(&mut self, cx: &Cx<'_>) {
        self.last_app_at = cx.now;
    }

    /// When the peer last confirmed anything.
    pub fn last_proof_at(&self) -> Instant {
        self.last_proof_at
    }
}

#[cfg(test)]
mod tests;
