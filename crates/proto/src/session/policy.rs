//! By which link a message goes, decided before any of it leaves: the ways of the literature, to be compared with
//! (protocol.md §5.11). Each has a file in this folder.
//!
//! The default, `adaptive`, has none: there each link takes what it has room for, and only `schedule` and `division` say what
//! it does not take.

mod by_hash;
mod mnc;
mod one_way;
mod redundant;
mod round_robin;

use super::serving::{Obstacle, Serving};
use crate::config::{Config, Policy};
use crate::flow::send::SendFlow;
use crate::flow::{Class, FlowKey};
use crate::id::{BearerId, LinkId, PortId};
use crate::limits;
use crate::link::Link;
use crate::slab::Slab;
use crate::time::Instant;
use crate::transfer::{SendTransfer, Stretch};
use crate::wire::BearerState;
use arrayvec::ArrayVec;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Links, each at most once.
pub(super) type Links = ArrayVec<LinkId, { limits::LINKS_MAX }>;

/// A way to decide.
pub(super) trait Choose: Debug + Send {
    /// The link by which all of a message goes. `None`: none serves.
    fn whole(&mut self, view: &View<'_>, key: &FlowKey) -> Option<LinkId>;

    /// The links by which equal parts of a large message go, one each. Empty: none serves.
    fn parts(&mut self, view: &View<'_>, key: &FlowKey) -> Links;

    /// Whether each of the links of `whole` and `parts` carries all: `whole` names one of them then.
    fn copies(&self) -> bool {
        false
    }

    /// Whether the peer is asked for the state of its links before a large message goes.
    fn asks(&self) -> bool {
        false
    }

    /// Whether peers are told which of our bearers are busy.
    fn tells(&self) -> bool {
        false
    }

    /// What the peer says of one of its bearers.
    fn on_state(&mut self, _now: Instant, _state: &BearerState) {}
}

/// What is decided by.
pub(super) struct View<'a> {
    pub now: Instant,
    pub links: &'a [Link],
    serving: Serving,
    /// Our identity is less than the peer's: of two ends, one is so.
    pub is_lower: bool,
}

impl View<'_> {
    /// The links that serve, in order.
    pub fn serving(&self) -> impl Iterator<Item = &Link> + Clone {
        self.links.iter().filter(|link| self.serving.includes(link))
    }

    /// Whether what a link was given stays its: one in doubt keeps it.
    fn keeps(&self, id: LinkId) -> bool {
        let held = |link: &Link| matches!(self.serving.obstacle(link), None | Some(Obstacle::InDoubt));
        self.links.iter().any(|link| link.spec.id == id && held(link))
    }
}

/// The policies by which flows of a session go, the default one excepted.
#[derive(Debug)]
pub(super) struct Assigners {
    /// By class.
    rules: [Policy; 4],
    /// Of the flows of some ports.
    ports: BTreeMap<PortId, Policy>,
    is_lower: bool,
    list: ArrayVec<Assigner, { Policy::ALL.len() }>,
    /// The bearers that the peer was told are busy, one bit each, and the number of the newest report.
    told: (u32, u32),
}

impl Assigners {
    pub(super) fn new(config: &Config, is_lower: bool) -> Assigners {
        let rules = Class::ALL.map(|class| config.policy_of(class));
        let list = ArrayVec::new();
        let mut assigners = Assigners { rules, ports: BTreeMap::new(), is_lower, list, told: (0, 0) };
        // They listen to the peer from the beginning.
        rules.into_iter().for_each(|policy| _ = assigners.number(policy));
        assigners
    }

    /// Sets the policy of the flows of a port that begin from now on; `None`: that of their class.
    pub(super) fn set(&mut self, port: PortId, policy: Option<Policy>) {
        match policy {
            Some(policy) => self.ports.insert(port, policy),
            None => self.ports.remove(&port),
        };
    }

    /// The number of the policy of a flow that begins. `None`: nothing is decided before.
    pub(super) fn number_for(&mut self, key: &FlowKey) -> Option<u8> {
        self.number(self.ports.get(&key.from).copied().unwrap_or(self.rules[key.class as usize]))
    }

    fn number(&mut self, policy: Policy) -> Option<u8> {
        let known = self.list.iter().position(|assigner| assigner.policy == policy);
        let number = known.or_else(|| {
            self.list.try_push(Assigner::new(policy, self.is_lower)?).ok()?;
            Some(self.list.len() - 1)
        });
        number.map(|number| number as u8)
    }

    /// Whether all flows go by the default policy.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// By which policy a flow goes.
    pub(super) fn policy_of(&self, flow: &SendFlow) -> Policy {
        let assigner = flow.policy.and_then(|number| self.list.get(number as usize));
        assigner.map_or(Policy::Adaptive, |assigner| assigner.policy)
    }

    /// What decides for a flow, if it does not go by the default policy.
    #[inline]
    pub(super) fn of(&mut self, flow: &SendFlow) -> Option<&mut Assigner> {
        flow.policy.and_then(|number| self.list.get_mut(number as usize))
    }

    /// Whether the peer is to be asked now what its links do.
    pub(super) fn take_question(&mut self, now: Instant) -> bool {
        self.list.iter_mut().any(|assigner| assigner.take_question(now))
    }

    /// The peer has answered.
    pub(super) fn on_answer(&mut self) {
        self.list.iter_mut().for_each(Assigner::on_answer);
    }

    pub(super) fn on_state(&mut self, now: Instant, state: &BearerState) {
        self.list.iter_mut().for_each(|assigner| assigner.choose.on_state(now, state));
    }

    /// What is news to the peer of one of our bearers, if peers are told: busy is one by which any link is.
    pub(super) fn report(&mut self, links: &[Link]) -> Option<BearerState> {
        if !self.list.iter().any(|assigner| assigner.choose.tells()) {
            return None;
        }
        let over = |bearer: BearerId| links.iter().filter(move |link| link.spec.bearer == bearer);
        let is_busy = |bearer| over(bearer).any(|link| !is_free(link));
        let bit = |bearer: BearerId| 1 << (bearer.0 as u32).min(31);
        let bearers = || links.iter().map(|link| link.spec.bearer);
        let bearer = bearers().find(|&bearer| is_busy(bearer) != (self.told.0 & bit(bearer) != 0))?;
        self.told = (self.told.0 ^ bit(bearer), self.told.1.wrapping_add(1));
        let state = if is_busy(bearer) { BUSY } else { FREE };
        let backlog = over(bearer).map(|link| link.sent.inflight_bytes()).sum::<u64>();
        Some(BearerState {
            bearer,
            tx_state: state,
            rx_state: state,
            tx_backlog: backlog.min(u32::MAX as u64) as u32,
            rx_backlog: 0,
            rx_window: 0,
            senders: 0,
            rx_rate: 0,
            seq: self.told.1,
        })
    }
}

/// A policy, and what it needs to know of the session.
#[derive(Debug)]
pub(super) struct Assigner {
    policy: Policy,
    choose: Box<dyn Choose>,
    is_lower: bool,
    asked: Option<Asked>,
}

/// A question to the peer, without whose answer a large message does not go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// It is to leave yet.
    Wanted(u32),
    At(u32, Instant),
    Answered(u32),
}

impl Assigner {
    /// `None`: nothing is decided before.
    fn new(policy: Policy, is_lower: bool) -> Option<Assigner> {
        let choose: Box<dyn Choose> = match policy {
            Policy::Adaptive => return None,
            Policy::Static => Box::new(by_hash::ByHash),
            Policy::OneWay => Box::new(one_way::OneWay),
            Policy::RoundRobin => Box::new(round_robin::RoundRobin::default()),
            Policy::Mnc => Box::new(mnc::Mnc::new(false)),
            Policy::MncRtt => Box::new(mnc::Mnc::new(true)),
            Policy::Redundant => Box::new(redundant::Redundant),
        };
        Some(Assigner { policy, choose, is_lower, asked: None })
    }

    /// Whether each link carries all messages.
    pub(super) fn copies(&self) -> bool {
        self.choose.copies()
    }

    fn view<'a>(&self, now: Instant, links: &'a [Link]) -> View<'a> {
        View { now, links, serving: Serving::of(links), is_lower: self.is_lower }
    }

    /// Whether what the flow sends next may leave by link `index`.
    pub(super) fn lets(&mut self, now: Instant, links: &[Link], flow: &mut SendFlow, index: usize) -> bool {
        let view = self.view(now, links);
        if self.choose.copies() {
            return view.serving.includes(&links[index]);
        }
        if !flow.by.is_some_and(|by| view.keeps(by)) {
            flow.by = self.choose.whole(&view, &flow.key);
        }
        flow.by == Some(links[index].spec.id)
    }

    /// What link `index` may take of a transfer, whose parts begin at multiples of `unit` bytes. What was for a link that
    /// does not serve any more, any may take.
    fn stretch(
        &mut self,
        now: Instant,
        links: &[Link],
        key: &FlowKey,
        (token, transfer): (u32, &mut SendTransfer),
        (index, unit): (usize, u64),
    ) -> Option<Stretch> {
        let view = self.view(now, links);
        if !transfer.is_divided() {
            if self.choose.asks() && !self.is_answered(now, token) {
                return None;
            }
            let parts = self.choose.parts(&view, key);
            if self.choose.copies() {
                transfer.copy_to(&parts);
            } else {
                transfer.divide(&parts, unit);
            }
        }
        let own = links[index].spec.id;
        transfer.stretch_for(|link| link == own || !view.keeps(link))
    }

    /// The first of a flow's transfers of which link `index` may take something, and what; `None`: of none.
    pub(super) fn next(
        &mut self,
        now: Instant,
        links: &[Link],
        flow: &SendFlow,
        transfers: &mut Slab<SendTransfer>,
        (index, unit): (usize, u64),
    ) -> Option<(u32, Stretch)> {
        flow.transfers.iter().find_map(|&(_, token)| {
            let transfer = transfers.get_mut(token).filter(|transfer| transfer.ready())?;
            let stretch = self.stretch(now, links, &flow.key, (token, transfer), (index, unit))?;
            Some((token, stretch))
        })
    }

    /// Whether the peer has answered for a transfer, or will not.
    fn is_answered(&mut self, now: Instant, token: u32) -> bool {
        match self.asked {
            Some(Asked::Answered(of)) if of == token => true,
            // Questions and answers get lost.
            Some(Asked::At(of, at)) if of == token && now.since(at) > mnc::STALE => true,
            Some(Asked::At(_, at)) if now.since(at) <= mnc::STALE => false,
            Some(Asked::Wanted(_)) => false,
            _ => {
                self.asked = Some(Asked::Wanted(token));
                false
            }
        }
    }

    /// Whether the peer is to be asked now.
    fn take_question(&mut self, now: Instant) -> bool {
        let Some(Asked::Wanted(token)) = self.asked else { return false };
        self.asked = Some(Asked::At(token, now));
        true
    }

    /// The peer has answered.
    fn on_answer(&mut self) {
        if let Some(Asked::At(token, _)) = self.asked {
            self.asked = Some(Asked::Answered(token));
        }
    }
}

/// Whether a link has nothing to do: less than a train is in flight, and its bearer takes more.
fn is_free(link: &Link) -> bool {
    !link.blocked && link.sent.inflight_bytes() < link.train_bytes()
}

/// The states of bearers as peers are told them (protocol.md §4.5).
const FREE: u8 = 1;
const BUSY: u8 = 2;
