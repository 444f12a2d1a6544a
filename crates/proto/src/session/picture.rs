//! What a session looks like from outside: credit, flows and queues as plain values, taken only when somebody asks.

use super::Session;
use super::credit::GivenCredit;
use super::serving::Serving;
use crate::config::Policy;
use crate::flow::FlowKey;
use crate::flow::send::SendCredit;
use crate::id::PortId;
use crate::link::Link;
use crate::time::{Duration, Instant};

/// Credit that a port of the peer gave us.
#[derive(Clone, Copy, Debug)]
pub struct TakenPicture {
    /// The peer's port.
    pub port: PortId,
    /// What may have been sent to it, and what was.
    pub credit: SendCredit,
    /// Flows of ours that have messages and no credit to send them.
    pub starved_flows: usize,
}

/// Credit that a port of ours gave to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GivenPicture {
    /// Our port.
    pub port: PortId,
    /// Bytes that may have been sent in all, as decided here and as the peer was told.
    pub limit_bytes: (u64, u64),
    /// Messages that may have been sent in all, as decided here and as the peer was told.
    pub limit_messages: (u64, u64),
    /// Bytes received in all, each message rounded up.
    pub received_bytes: u64,
    /// Messages received in all.
    pub received_messages: u64,
    /// Messages that are missing before others that were received.
    pub gaps: u64,
}

/// A flow of messages from a port of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPicture {
    /// Ports and class.
    pub key: FlowKey,
    /// Messages that are not confirmed.
    pub unconfirmed: usize,
    /// Those of them of which nothing was sent.
    pub unsent: usize,
    /// It has something to send and no credit for it.
    pub starved: bool,
    /// The peer refused its oldest message: when it is sent again.
    pub retry_at: Instant,
    /// How the links share it.
    pub policy: Policy,
}

impl GivenPicture {
    pub(super) fn of(given: &GivenCredit) -> GivenPicture {
        GivenPicture {
            port: given.port,
            limit_bytes: (given.limit_bytes, given.told_bytes),
            limit_messages: (given.limit_messages, given.told_messages),
            received_bytes: given.received_bytes,
            received_messages: given.received_messages,
            gaps: given.gaps,
        }
    }
}

impl Session {
    /// When the session began.
    pub fn began_at(&self) -> Instant {
        self.links.iter().map(|link| link.created_at()).min().unwrap_or(Instant::ZERO)
    }

    /// Whether new messages may leave by `link`: it is usable, and neither put aside nor in doubt while others are not.
    pub fn serves(&self, link: &Link) -> bool {
        Serving::of(&self.links).includes(link)
    }

    /// How long the peer may be silent before the session ends.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// Since when no link carries messages; `None` while one does.
    pub fn isolated_since(&self) -> Option<Instant> {
        self.isolated_since
    }

    /// Credit of the peer's ports, as far as it is known.
    pub fn taken_credits(&self) -> impl Iterator<Item = TakenPicture> {
        let starved =
            |flow: &&u32| self.sending.flows.get(**flow).is_some_and(|f| f.starved && f.unsent() > 0);
        self.sending.credit_of.iter().filter_map(move |(port, key)| {
            let taken = self.sending.credits.get(*key)?;
            let starved_flows = taken.waiting.iter().filter(starved).count();
            Some(TakenPicture { port: *port, credit: taken.credit, starved_flows })
        })
    }

    /// Credit that ports of ours gave.
    pub fn given_credits(&self) -> impl Iterator<Item = GivenPicture> {
        self.receiving.credits.iter().map(|(_, given)| GivenPicture::of(given))
    }

    /// Flows from ports of ours, by port.
    pub fn flows(&self) -> impl Iterator<Item = FlowPicture> {
        self.sending.by_key.values().filter_map(|key| {
            let flow = self.sending.flows.get(*key)?;
            Some(FlowPicture {
                key: flow.key,
                unconfirmed: flow.unconfirmed(),
                unsent: flow.unsent(),
                starved: flow.starved && flow.unsent() > 0,
                retry_at: flow.retry_at(),
                policy: self.assigners.policy_of(flow),
            })
        })
    }

    /// Flows and transfers that wait for their turn to send, by class.
    pub fn queued(&self) -> [usize; 4] {
        self.schedule.lens()
    }

    /// Control frames that are not confirmed, and those of the peer that wait for earlier ones.
    pub fn control_frames(&self) -> (usize, usize) {
        self.control.lens()
    }

    /// Large messages of the peer that wait for memory here.
    pub fn waiting_transfers(&self) -> usize {
        self.receiving.waiting.len()
    }

    /// Credit frames, grants and refusals that wait, for reports and tests.
    pub fn backlog(&self) -> (usize, usize) {
        (self.receiving.cts.len() + self.receiving.refuse.len(), self.schedule.len())
    }

    /// Ends of connections that are here.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Credits that belong to ends of connections, given and taken.
    pub fn connection_credits(&self) -> usize {
        let given = self.receiving.credit_of.keys().filter(|port| port.is_connection());
        given.count() + self.sending.credit_of.keys().filter(|port| port.is_connection()).count()
    }

    /// Flows of connections that exist, sending and receiving.
    pub fn connection_flows(&self) -> usize {
        let sending = self.sending.by_key.keys().filter(|key| key.to.is_connection());
        sending.count() + self.receiving.by_key.keys().filter(|key| key.to.is_connection()).count()
    }

    /// Flows that exist, sending and receiving, and transfers, sending and receiving.
    pub fn sizes(&self) -> [usize; 4] {
        [
            self.sending.flows.len(),
            self.receiving.flows.len(),
            self.sending.transfers.len(),
            self.receiving.transfers.len(),
        ]
    }
}
