//! What connections look like from outside: plain values, taken only when somebody asks.

use super::{End, Session, Stage};
use crate::flow::Class;
use crate::flow::send::SendCredit;
use crate::id::PortId;
use crate::session::GivenPicture;
use crate::stats::ConnectionStats;
use crate::time::Instant;

/// How far a connection has come, as seen from one end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConnectionState {
    /// We asked; the peer has not answered.
    Asked,
    /// The peer asked; our application has not answered.
    Waiting,
    /// Messages may go both ways.
    Open,
    /// We send no more, or the peer receives no more.
    SentAll,
    /// The peer sends no more, or we receive no more.
    HeardAll,
    /// Both: what was sent is still to be confirmed, or what was told to be delivered.
    Closing,
}

impl ConnectionState {
    /// All of them, in the order in which a connection goes through them.
    pub const ALL: [ConnectionState; 6] = [
        ConnectionState::Asked,
        ConnectionState::Waiting,
        ConnectionState::Open,
        ConnectionState::SentAll,
        ConnectionState::HeardAll,
        ConnectionState::Closing,
    ];
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPicture {
    /// The end that is here.
    pub end: PortId,
    /// The port here that it belongs to.
    pub port: PortId,
    /// The port at the other end; while our question has no answer, the one that was asked.
    pub far: PortId,
    /// Class of its messages.
    pub class: Class,
    /// It carries a stream of bytes.
    pub stream: bool,
    /// When it was asked for, here or by the peer.
    pub began_at: Instant,
    /// How far it has come.
    pub state: ConnectionState,
    /// We have said that we send no more, and that we receive no more.
    pub said: (bool, bool),
    /// The peer has said the same.
    pub heard: (bool, bool),
    /// What we may send, and have sent.
    pub taken: Option<SendCredit>,
    /// What the peer may send, and has sent.
    pub given: Option<GivenPicture>,
    /// Messages that our application handed in.
    pub sent: u64,
    /// Those of them that are not confirmed.
    pub unconfirmed: usize,
    /// Those of them of which nothing was sent.
    pub unsent: usize,
    /// It has something to send and no credit for it.
    pub starved: bool,
    /// Messages that have come, whole or in part, and wait for the rest of them or for earlier ones.
    pub undelivered: u64,
}

impl End {
    fn state(&self) -> ConnectionState {
        let sent_all = self.sent_all || self.peer_deaf;
        let heard_all = self.peer_end.is_some() || self.deaf;
        match (self.stage, sent_all, heard_all) {
            (Stage::Waiting, ..) => ConnectionState::Waiting,
            (_, true, true) => ConnectionState::Closing,
            (Stage::Asked, ..) => ConnectionState::Asked,
            (Stage::Open, false, false) => ConnectionState::Open,
            (Stage::Open, true, false) => ConnectionState::SentAll,
            (Stage::Open, false, true) => ConnectionState::HeardAll,
        }
    }
}

impl Session {
    /// What became of its connections so far.
    pub fn connection_stats(&self) -> &ConnectionStats {
        &self.connections.stats
    }

    /// How many ends that are here are in each state, in the order of [`ConnectionState::ALL`].
    pub fn connection_states(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for end in self.connections.ends.values() {
            counts[end.state() as usize] += 1;
        }
        counts
    }

    /// Ends that are here, of `port` if that is given: by number, those first that the peer asked for.
    pub fn connection_ends(&self, port: Option<PortId>) -> impl Iterator<Item = PortId> {
        let ends = self.connections.ends.iter();
        ends.filter(move |(_, end)| port.is_none_or(|port| end.port == port)).map(|(id, _)| *id)
    }

    /// Whether this end is here.
    pub fn has_connection_end(&self, id: PortId) -> bool {
        self.connections.ends.contains_key(&id)
    }

    /// One end, looked at closely.
    pub fn connection_picture(&self, id: PortId) -> Option<ConnectionPicture> {
        let end = self.connections.ends.get(&id)?;
        let taken = self.sending.credit_of.get(&id.far_end());
        let taken = taken.and_then(|key| self.sending.credits.get(*key));
        let flow = self.sending.by_key.get(&end.sending(id)).and_then(|key| self.sending.flows.get(*key));
        let given = self.given_credit(id).map(GivenPicture::of);
        let coming = end.receiving(id).and_then(|key| self.receiving.by_key.get(&key));
        let coming = coming.and_then(|key| self.receiving.flows.get(*key));
        let received = given.map_or(0, |given| given.received_messages);
        Some(ConnectionPicture {
            end: id,
            port: end.port,
            far: end.far,
            class: end.class,
            stream: end.stream,
            began_at: end.began_at,
            state: end.state(),
            said: (end.sent_all, end.deaf),
            heard: (end.peer_end.is_some(), end.peer_deaf),
            taken: taken.map(|taken| taken.credit),
            given,
            sent: end.sent,
            unconfirmed: flow.map_or(0, |flow| flow.unconfirmed()),
            unsent: flow.map_or(0, |flow| flow.unsent()),
            starved: flow.is_some_and(|flow| flow.starved && flow.unsent() > 0),
            undelivered: coming.map_or(0, |flow| received.saturating_sub(flow.next())),
        })
    }
}
