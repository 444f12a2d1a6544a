//! Connections of a session: two ports that send to each other, in order, until either has had enough (protocol.md §5.8).
//!
//! Each end has a number that takes the place of a port in the frames of its messages, so a connection is two flows
//! with credit of their own, and everything else (order, loss, links) is as for all flows. What is special is only how it
//! begins and how it ends, which is here.

mod picture;

pub use picture::{ConnectionPicture, ConnectionState};

use super::credit::GivenCredit;
use super::{Cx, Notice, Session};
use crate::address::ServiceAddress;
use crate::error::{ConnectError, ConnectionOver, Failure};
use crate::event::Event;
use crate::flow::send::Outgoing;
use crate::flow::{Class, FlowKey};
use crate::id::{BufferId, ConnectionId, PortAddress, PortId};
use crate::limits;
#[cfg(feature = "planted")]
use crate::planted::Planted;
use crate::stats::ConnectionStats;
use crate::time::Instant;
use crate::wire::{self, RefusedConnect};
use std::collections::BTreeMap;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// We asked; the peer has not answered.
    Asked,
    /// The peer asked; our application has not answered.
    Waiting,
    /// Both want it.
    Open,
}

/// Our end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// The port that it belongs to.
    port: PortId,
    /// The peer's port: the one that asked, that was asked, or that has answered.
    far: PortId,
    class: Class,
    /// It carries a stream of bytes.
    stream: bool,
    /// When it was asked for, here or by the peer.
    began_at: Instant,
    stage: Stage,
    /// Messages handed in.
    sent: u64,
    /// We have said that we send no more.
    sent_all: bool,
    /// We have said that we receive no more.
    deaf: bool,
    /// The peer sends no more than so many messages, low half.
    peer_end: Option<u32>,
    /// All of them were delivered, and the application was told.
    end_told: bool,
    /// The peer receives no more.
    peer_deaf: bool,
}

/// What a port wants of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub from: PortId,
    pub to: PortId,
    pub class: Class,
    pub stream: bool,
    pub service: Option<ServiceAddress>,
}

/// Connections of one session.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// By our end.
    ends: BTreeMap<PortId, End>,
    /// Counters.
    stats: ConnectionStats,
    /// Number of the connection that we asked for last.
    last_own: u32,
    /// Number of the connection that the peer asked for last; none before its first.
    last_of_peer: Option<u32>,
    /// Ends all of whose messages were confirmed of late: they may be over.
    idle: Vec<PortId>,
}

/// Whether number `a` was given out after `b`: they count up and begin anew after 2^30.
fn is_after(a: u32, b: u32) -> bool {
    let ahead = a.wrapping_sub(b) << 2;
    ahead != 0 && ahead < 1 << 31
}

/// What comes next by a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The number of its next message that is not delivered, the first having 0.
    pub seq: u64,
    /// If that is a large one that has memory: where it goes, and how many bytes it has from its beginning without a hole.
    pub here: Option<(BufferId, u64)>,
}

/// What a message to an end of ours is to be done with.
pub(super) enum Admission {
    /// It is for this port.
    For(PortId),
    /// Its connection has not been heard of yet, or is not open yet.
    Early,
    /// Its connection is over.
    Late,
    /// It breaks the protocol.
    Breach,
}

impl Connections {
    /// Number of ends.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn next_number(&mut self) -> u32 {
        loop {
            self.last_own = (self.last_own + 1) & ((1 << 30) - 1);
            // After 2^30 connections some of the first may still be there.
            if !self.ends.contains_key(&PortId::accepting_end(self.last_own).far_end()) {
                return self.last_own;
            }
        }
    }

    /// What is to be done with a message from port `from` in `class` to our end `end`.
    pub(super) fn admit(&self, from: PortId, end: PortId, class: Class) -> Admission {
        let Some(entry) = self.ends.get(&end) else {
            let number = end.connection_number();
            let heard_of =
                end.is_connecting_end() || self.last_of_peer.is_some_and(|last| !is_after(number, last));
            return if heard_of { Admission::Late } else { Admission::Early };
        };
        if entry.deaf || entry.end_told {
            return Admission::Late;
        }
        match entry.peer() {
            None => Admission::Early,
            Some(peer) if peer == from && entry.class == class => Admission::For(entry.port),
            Some(_) => Admission::Breach,
        }
    }

    /// The port that an end belongs to, whatever has become of it (planted fault only).
    #[cfg(feature = "planted")]
    pub(super) fn owner(&self, end: PortId) -> Option<PortId> {
        self.ends.get(&end).map(|entry| entry.port)
    }

    /// All messages to the far end of `to` were confirmed.
    #[inline]
    pub(super) fn note_idle(&mut self, to: PortId) {
        self.idle.push(to.far_end());
    }
}

impl Session {
    // ----- what ports do -------------------------------------------------------------------------------------

    /// Asks for a connection; our end of it.
    ///
    /// # Errors
    /// The peer does not know of connections; there are too many; too much is under way.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        wanted: Wanted,
        credit: (u64, u32),
    ) -> Result<PortId, ConnectError> {
        if self.connections.len() >= limits::CONNECTIONS_MAX {
            return Err(ConnectError::TooMany);
        }
        if !self.control.has_room() {
            return Err(ConnectError::Blocked);
        }
        let end = PortId::accepting_end(self.connections.next_number()).far_end();
        let Wanted { from, to, class, stream, service } = wanted;
        self.connections.stats.asked += 1;
        let entry = End::new(cx.now, (from, to), (class, stream), Stage::Asked);
        self.open_end(cx, end, entry, credit, self.peer.initial_credit);
        self.notify(Notice::Connect(wire::Connect {
            control: 0,
            end: end.far_end(),
            from,
            to,
            class: class as u8,
            stream,
            credit,
            service,
        }));
        self.last_app_at = cx.now;
        Ok(end)
    }

    /// Enters an end with the credit that it gives and the credit that it has.
    fn open_end(&mut self, cx: &mut Cx<'_>, id: PortId, end: End, given: (u64, u32), taken: (u32, u32)) {
        if let Some(port) = cx.ports.get_mut(&end.port) {
            port.connections += 1;
        }
        self.enter_given(GivenCredit::known(id, given));
        self.enter_taken(id.far_end(), taken);
        self.connections.ends.insert(id, end);
    }

    /// More may be sent on an end: whoever holds messages back until then hears of it.
    pub(super) fn tell_credit(&self, cx: &mut Cx<'_>, end: PortId) {
        if let Some(entry) = self.connections.ends.get(&end) {
            let id = ConnectionId { session: self.index, end };
            let credit = self.credit_on(end);
            cx.events.push_back(Event::ConnectionCredit { port: entry.port, id, credit });
        }
    }

    /// The application takes a connection that waits; false if it is over already.
    pub(crate) fn accept_connection(&mut self, port: PortId, end: PortId, credit: (u64, u32)) -> bool {
        let Some(entry) = self.connections.ends.get_mut(&end) else { return false };
        if entry.port != port || entry.stage != Stage::Waiting {
            return false;
        }
        entry.stage = Stage::Open;
        self.connections.stats.opened += 1;
        self.give_credit(end, credit.0, credit.1 as u64);
        // The answer says so.
        self.tell_otherwise(end);
        self.notify(Notice::Accept(wire::Accept {
            control: 0,
            end: end.far_end(),
            answer: Ok(port),
            credit,
        }));
        true
    }

    /// Queues a message on a connection.
    pub(crate) fn send_on(&mut self, now: Instant, port: PortId, end: PortId, message: Outgoing) -> bool {
        let Some(entry) = self.connections.ends.get_mut(&end) else { return false };
        if entry.port != port || entry.sent_all || entry.peer_deaf || entry.stage == Stage::Waiting {
            return false;
        }
        entry.sent += 1;
        let key = entry.sending(end);
        self.send(now, key, message)
    }

    /// An end sends no more, or receives no more, or both.
    pub(crate) fn shut_down(
        &mut self,
        cx: &mut Cx<'_>,
        port: PortId,
        end: PortId,
        sent_all: bool,
        deaf: bool,
    ) {
        let Some(entry) = self.connections.ends.get_mut(&end) else { return };
        if entry.port != port {
            return;
        }
        if entry.stage == Stage::Waiting {
            return self.refuse_waiting(cx, end, RefusedConnect::NotAllowed);
        }
        // To a peer that has sent all it is no news that nobody listens any more.
        let news = sent_all && !entry.sent_all || deaf && !entry.deaf && !entry.end_told;
        entry.sent_all |= sent_all;
        entry.deaf |= deaf;
        let (sent_all, deaf, messages) = (entry.sent_all, entry.deaf, entry.sent as u32);
        if news {
            let said =
                wire::Shutdown { control: 0, end: end.far_end(), messages, sent_all, deaf, abort: false };
            self.notify(Notice::Shutdown(said));
        }
        if deaf {
            self.stop_receiving(cx, end);
        }
        self.forget_if_over(cx, end);
    }

    fn refuse_waiting(&mut self, cx: &mut Cx<'_>, end: PortId, reason: RefusedConnect) {
        self.refuse_connect(end, reason);
        self.forget_end(cx, end);
    }

    /// Tells the peer that there will be no connection with our end `end`.
    fn refuse_connect(&mut self, end: PortId, reason: RefusedConnect) {
        self.connections.stats.refused_here.count(reason);
        #[cfg(feature = "planted")]
        let end = match self.planted {
            Some(Planted::MisdirectedRefusal) => {
                PortId::accepting_end(end.connection_number().wrapping_sub(1))
            }
            _ => end,
        };
        let refusal = wire::Accept { control: 0, end: end.far_end(), answer: Err(reason), credit: (0, 0) };
        self.notify(Notice::Accept(refusal));
    }

    /// The application gave back so much in all of what came to an end: bytes and messages.
    pub(crate) fn connection_consumed(
        &mut self,
        port: PortId,
        end: PortId,
        consumed: (u64, u64),
        window: (u64, u32),
    ) {
        if self.connections.ends.get(&end).is_none_or(|entry| entry.port != port) {
            return;
        }
        #[cfg(feature = "planted")]
        if self.planted == Some(Planted::ForgottenReading) {
            return;
        }
        // Nobody has read more than came.
        let Some(given) = self.given_credit(end) else { return };
        let consumed = (consumed.0.min(given.received_bytes), consumed.1.min(given.received_messages));
        self.give_credit(end, consumed.0 + window.0, consumed.1 + window.1 as u64);
    }

    /// What comes next to our end `end`, if that is one of `port`'s.
    pub(crate) fn incoming(&self, port: PortId, end: PortId) -> Option<Incoming> {
        let entry = self.connections.ends.get(&end).filter(|entry| entry.port == port && !entry.deaf)?;
        let key = entry.receiving(end)?;
        let Some(flow) = self.receiving.by_key.get(&key).and_then(|k| self.receiving.flows.get(*k)) else {
            return Some(Incoming { seq: 0, here: None });
        };
        let transfer = flow.head_transfer().and_then(|number| self.receiving.transfers.get(number));
        let here = transfer.and_then(|transfer| Some((transfer.buffer()?, transfer.ready_bytes())));
        Some(Incoming { seq: flow.next(), here })
    }

    /// A local port closes: its connections end in order, what they sent is still delivered.
    pub(crate) fn close_connections_of(&mut self, cx: &mut Cx<'_>, port: PortId) {
        let ends: Vec<PortId> = self.ends_of(|_, end| end.port == port);
        for end in ends {
            self.shut_down(cx, port, end, true, true);
        }
    }

    fn ends_of(&self, which: impl Fn(PortId, &End) -> bool) -> Vec<PortId> {
        self.connections.ends.iter().filter(|(id, end)| which(**id, end)).map(|(id, _)| *id).collect()
    }

    /// The session is over, and every connection with it.
    pub(super) fn end_connections(&mut self, cx: &mut Cx<'_>) {
        for end in self.ends_of(|_, _| true) {
            self.tell_over(cx, end, ConnectionOver::NodeLost);
            self.forget_end(cx, end);
        }
    }

    // ----- what the peer says --------------------------------------------------------------------------------

    pub(super) fn on_connect(&mut self, cx: &mut Cx<'_>, connect: &wire::Connect) {
        let number = connect.end.connection_number();
        let taken = self.connections.ends.contains_key(&connect.end);
        if taken || self.connections.last_of_peer.is_some_and(|last| !is_after(number, last)) {
            cx.drops.violation += 1;
            return;
        }
        self.connections.last_of_peer = Some(number);
        self.connections.stats.offered += 1;
        let id = ConnectionId { session: self.index, end: connect.end };
        if let Err(reason) = self.may_wait(cx, connect.to, id) {
            cx.drops.refused_connection += 1;
            return self.refuse_connect(connect.end, reason);
        }
        let class = Class::from_bits(connect.class);
        let kind = (class, connect.stream);
        let end = End::new(cx.now, (connect.to, connect.from), kind, Stage::Waiting);
        let (bytes, messages) = limits::INITIAL_CREDIT;
        let theirs = (connect.credit.0.min(u32::MAX as u64) as u32, connect.credit.1);
        self.open_end(cx, connect.end, end, (bytes as u64, messages), theirs);
        let from = PortAddress { node: self.peer.node, port: connect.from };
        cx.events.push_back(Event::Connect {
            port: connect.to,
            id,
            from,
            service: connect.service,
            stream: connect.stream,
            class,
            credit: self.credit_on(connect.end),
        });
    }

    /// Takes a CONNECT that was taken before for a new one (planted fault only).
    #[cfg(feature = "planted")]
    pub(super) fn connect_again(&mut self, cx: &mut Cx<'_>, connect: &wire::Connect) {
        self.forget_end(cx, connect.end);
        self.connections.last_of_peer = None;
        self.on_connect(cx, connect);
    }

    /// Lets one more connection wait for port `to`, if it takes one.
    fn may_wait(&self, cx: &mut Cx<'_>, to: PortId, id: ConnectionId) -> Result<(), RefusedConnect> {
        let listening = cx.ports.get_mut(&to).filter(|port| !port.closing).and_then(|p| p.listening.as_mut());
        let listening = listening.ok_or(RefusedConnect::NobodyListens)?;
        if listening.waiting.len() >= listening.backlog as usize
            || self.connections.len() >= limits::CONNECTIONS_MAX
        {
            return Err(RefusedConnect::Backlog);
        }
        listening.waiting.insert(id);
        Ok(())
    }

    pub(super) fn on_accept(&mut self, cx: &mut Cx<'_>, accept: &wire::Accept) {
        let end = accept.end;
        // We may have lost interest meanwhile.
        let Some(entry) = self.connections.ends.get_mut(&end) else { return };
        if entry.stage != Stage::Asked {
            cx.drops.violation += 1;
            return;
        }
        match accept.answer {
            Ok(port) => {
                (entry.stage, entry.far) = (Stage::Open, port);
                self.connections.stats.opened += 1;
                let (own, peer) = (entry.port, PortAddress { node: self.peer.node, port });
                let (bytes, messages) = accept.credit;
                self.raise_credit(&wire::Credit { port: end.far_end(), messages, bytes });
                cx.events.push_back(Event::Connected {
                    port: own,
                    id: ConnectionId { session: self.index, end },
                    peer,
                    credit: self.credit_on(end),
                });
            }
            Err(reason) => {
                self.connections.stats.refused_by_peer.count(reason);
                self.tell_over(cx, end, ConnectionOver::Refused(reason));
                self.forget_end(cx, end);
            }
        }
    }

    pub(super) fn on_shutdown(&mut self, cx: &mut Cx<'_>, shutdown: &wire::Shutdown) {
        let end = shutdown.end;
        let Some(entry) = self.connections.ends.get_mut(&end) else { return };
        if shutdown.abort {
            self.connections.stats.aborted += 1;
            self.tell_over(cx, end, ConnectionOver::Aborted);
            return self.forget_end(cx, end);
        }
        if shutdown.sent_all && entry.peer_end.is_none() {
            entry.peer_end = Some(shutdown.messages);
        }
        if shutdown.deaf && !std::mem::replace(&mut entry.peer_deaf, true) {
            let (port, sending) = (entry.port, entry.sending(end));
            cx.events
                .push_back(Event::ConnectionDeaf { port, id: ConnectionId { session: self.index, end } });
            self.fail_flow(cx, sending, Failure::NoPort, None);
        }
        self.note_end(cx, end);
        self.forget_if_over(cx, end);
    }

    // ----- how it ends ---------------------------------------------------------------------------------------

    /// Something was delivered to `end`, or its peer has said how much there will be: tells the application if that was
    /// all.
    pub(super) fn note_end(&mut self, cx: &mut Cx<'_>, end: PortId) {
        let Some(entry) = self.connections.ends.get_mut(&end) else { return };
        let (Some(messages), false) = (entry.peer_end, entry.end_told) else { return };
        let Some(key) = entry.receiving(end) else { return };
        let flow = self.receiving.by_key.get(&key).and_then(|k| self.receiving.flows.get(*k));
        let all_here = flow.map_or(0, |flow| flow.next()) as u32 == messages;
        #[cfg(feature = "planted")]
        let all_here = all_here || self.planted == Some(Planted::HastyEnd);
        if !all_here {
            return;
        }
        entry.end_told = true;
        cx.events.push_back(Event::ConnectionEnd {
            port: entry.port,
            id: ConnectionId { session: self.index, end },
        });
        self.stop_receiving(cx, end);
        self.forget_if_over(cx, end);
    }

    /// Ends whose messages were all confirmed may be over.
    pub(super) fn forget_idle_connections(&mut self, cx: &mut Cx<'_>) {
        while let Some(end) = self.connections.idle.pop() {
            self.forget_if_over(cx, end);
        }
    }

    fn forget_if_over(&mut self, cx: &mut Cx<'_>, end: PortId) {
        let Some(entry) = self.connections.ends.get(&end) else { return };
        let flow = self.sending.by_key.get(&entry.sending(end)).and_then(|k| self.sending.flows.get(*k));
        let confirmed = flow.is_none_or(|flow| flow.is_idle());
        let out_done = entry.peer_deaf || entry.sent_all && confirmed;
        let in_done = entry.end_told || entry.deaf;
        #[cfg(feature = "planted")]
        let in_done = in_done && self.planted != Some(Planted::StaleConnection);
        if out_done && in_done {
            self.forget_end(cx, end);
        }
    }

    fn tell_over(&mut self, cx: &mut Cx<'_>, end: PortId, why: ConnectionOver) {
        if let Some(entry) = self.connections.ends.get(&end)
            && !(entry.deaf && entry.sent_all)
        {
            cx.events.push_back(Event::ConnectionOver {
                port: entry.port,
                id: ConnectionId { session: self.index, end },
                why,
            });
        }
    }

    /// Forgets an end and all that belongs to it. What it had not sent fails.
    fn forget_end(&mut self, cx: &mut Cx<'_>, end: PortId) {
        let Some(entry) = self.connections.ends.remove(&end) else { return };
        self.connections.stats.over += 1;
        if let Some(port) = cx.ports.get_mut(&entry.port) {
            port.connections = port.connections.saturating_sub(1);
        }
        self.fail_flow(cx, entry.sending(end), Failure::NoPort, None);
        if let Some(key) = entry.receiving(end) {
            self.end_receive_flow(cx.store, key);
        }
        #[cfg(feature = "planted")]
        if self.planted == Some(Planted::KeptCredit) {
            return;
        }
        self.forget_taken(end.far_end());
        self.forget_given(end);
    }

    /// Nothing that comes for `end` is of interest any more.
    fn stop_receiving(&mut self, cx: &mut Cx<'_>, end: PortId) {
        if let Some(key) = self.connections.ends.get(&end).and_then(|entry| entry.receiving(end)) {
            self.end_receive_flow(cx.store, key);
        }
    }
}

impl End {
    fn new(now: Instant, (port, far): (PortId, PortId), (class, stream): (Class, bool), stage: Stage) -> End {
        End {
            port,
            far,
            class,
            stream,
            began_at: now,
            stage,
            sent: 0,
            sent_all: false,
            deaf: false,
            peer_end: None,
            end_told: false,
            peer_deaf: false,
        }
    }

    /// The port that alone may send to this end; none before the peer has accepted.
    fn peer(&self) -> Option<PortId> {
        (self.stage != Stage::Asked).then_some(self.far)
    }

    /// The flow by which this end, `id`, sends.
    fn sending(&self, id: PortId) -> FlowKey {
        FlowKey { from: self.port, to: id.far_end(), class: self.class }
    }

    /// The flow that comes to this end, `id`, once it is known whose.
    fn receiving(&self, id: PortId) -> Option<FlowKey> {
        Some(FlowKey { from: self.peer()?, to: id, class: self.class })
    }
}
