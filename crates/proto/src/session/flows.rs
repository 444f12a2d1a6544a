//! Flows of messages from ports of ours, what the peer refuses of them, and how flows of either side end.

use super::receive::Taken;
use super::{Cx, Notice, Session};
use crate::config::Policy;
use crate::error::Failure;
use crate::event::Event;
use crate::flow::send::{Fate, Outgoing, SendFlow};
use crate::flow::{Class, FlowKey};
use crate::id::{PortAddress, PortId};
use crate::limits;
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::wire::{self, RefuseReason, Rejected};

/// Closed ports of a peer that are remembered; late copies are milliseconds late, not this many ports.
pub(super) const CLOSED_PORTS_MAX: usize = 1_024;

impl Session {
    // ----- what ports send -----------------------------------------------------------------------------------

    /// Queues a message of a local port.
    pub(crate) fn send(&mut self, now: Instant, key: FlowKey, message: Outgoing) -> bool {
        self.queue(now, key, message).is_some()
    }

    /// The same; the key of its flow, unless there are too many.
    #[inline]
    pub(super) fn queue(&mut self, now: Instant, key: FlowKey, message: Outgoing) -> Option<u32> {
        let flow_key = self.send_flow(key)?;
        let flow = self.sending.flows.get_mut(flow_key)?;
        flow.push(message);
        self.last_app_at = now;
        self.stats.messages_sent += 1;
        self.schedule.enqueue_flow(flow_key, flow);
        self.quiet.stir();
        Some(flow_key)
    }

    fn send_flow(&mut self, key: FlowKey) -> Option<u32> {
        if let Some((last, k)) = self.sending.last
            && last == key
            && self.sending.flows.get(k).is_some()
        {
            return Some(k);
        }
        if let Some(&k) = self.sending.by_key.get(&key) {
            self.sending.last = Some((key, k));
            return Some(k);
        }
        let credit = self.taken_from(key.to)?;
        let policy = self.assigners.number_for(&key);
        let mut flow = SendFlow::new(key, credit);
        flow.policy = policy;
        // What a connection may send depends on what its application reads, not on what memory there is.
        if !key.to.is_connection() {
            flow.unasked_bytes_max = limits::UNASKED_BYTES_MAX.min(self.peer.eager_bytes_max as u64);
        }
        let k = self.sending.flows.insert(flow)?;
        self.sending.by_key.insert(key, k);
        Some(k)
    }

    /// Sets the policy by which the flows of a port go that begin from now on; `None`: that of their class.
    pub(crate) fn set_policy(&mut self, port: PortId, policy: Option<Policy>) {
        self.assigners.set(port, policy);
    }

    /// Whether a message to `to` would be held back for want of credit or behind many others.
    pub(crate) fn is_ready_for(&self, from: PortId, to: PortId, class: Class) -> bool {
        let key = FlowKey { from, to, class };
        let Some(flow) = self.sending.by_key.get(&key).and_then(|k| self.sending.flows.get(*k)) else {
            return true;
        };
        flow.unconfirmed() < 256
    }

    /// Messages of `port` that are not confirmed.
    pub(crate) fn unconfirmed_of(&self, port: PortId) -> usize {
        self.sending.flows.iter().filter(|(_, f)| f.key.from == port).map(|(_, f)| f.unconfirmed()).sum()
    }

    // ----- what the peer refuses -----------------------------------------------------------------------------

    pub(super) fn on_refuse(&mut self, cx: &mut Cx<'_>, refuse: &wire::Refuse) -> Taken {
        self.stats.refused_by_peer += 1;
        let key = FlowKey { from: refuse.from, to: refuse.to, class: Class::from_bits(refuse.class) };
        let flow = self.sending.by_key.get(&key).and_then(|k| self.sending.flows.get(*k));
        // Where messages wait to be read, it is being said what has become of them: the flow ends when that is here.
        if refuse.reason != RefuseReason::NoRoom && !flow.is_some_and(|flow| flow.holds()) {
            let why = if refuse.reason == RefuseReason::NoPort { Failure::NoPort } else { Failure::TooLarge };
            self.fail_flows(cx, |k| *k == key, why, Some(refuse.seq));
            if refuse.reason == RefuseReason::NoPort {
                self.release_taken(key.to);
            }
            return Taken::Yes;
        }
        let Some(&k) = self.sending.by_key.get(&key) else { return Taken::Yes };
        let Some(flow) = self.sending.flows.get_mut(k) else { return Taken::Yes };
        flow.refused(cx.now, Duration::us(refuse.retry_after_us.clamp(100, 100_000) as u64));
        if !self.sending.refused.contains(&k) {
            self.sending.refused.push(k);
        }
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::CreditLeak)
            && let Some(taken) = self.sending.credits.get_mut(flow.credit)
        {
            taken.credit.used_bytes += 65_536;
        }
        Taken::Yes
    }

    /// Flows whose messages were refused may try again when that was long enough ago.
    pub(super) fn retry_refused(&mut self, now: Instant) {
        let refused = std::mem::take(&mut self.sending.refused);
        for key in refused {
            let Some(flow) = self.sending.flows.get_mut(key) else { continue };
            if flow.wakes_at(now) == Instant::NEVER {
                self.schedule.enqueue_flow(key, flow);
            } else {
                self.sending.refused.push(key);
            }
        }
    }

    // ----- how they end --------------------------------------------------------------------------------------

    /// A local port is gone and everything it sent was confirmed: forget its flows, tell the peer.
    pub(crate) fn forget_sender(&mut self, port: PortId) {
        let keys: Vec<FlowKey> = self.sending.by_key.keys().filter(|k| k.from == port).copied().collect();
        for key in &keys {
            if let Some(k) = self.sending.by_key.remove(key) {
                self.sending.flows.remove(k);
            }
        }
        self.assigners.set(port, None);
        if self.forget_given(port) || !keys.is_empty() {
            self.notify(Notice::PortClosed(port));
        }
    }

    /// A local port closes: what waits for it is dropped, what comes for it is refused.
    pub(crate) fn close_receiver(&mut self, store: &mut dyn Store, port: PortId) {
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().filter(|k| k.to == port).copied().collect();
        for key in keys {
            self.reject_unread(key, Rejected::PortClosed);
            self.end_receive_flow(store, key);
        }
        self.receiving.fans.close_port(store, port);
        self.release_credit(port);
    }

    pub(super) fn end_receive_flow(&mut self, store: &mut dyn Store, key: FlowKey) {
        self.receiving.last = None;
        let Some(mut flow) = self.receiving.by_key.remove(&key).and_then(|k| self.receiving.flows.remove(k))
        else {
            return;
        };
        if let Some(given) = self.receiving.credits.get_mut(flow.credit) {
            given.gaps = given.gaps.saturating_sub(flow.gaps());
        }
        self.freed.push(flow.owner);
        let mut transfers = Vec::new();
        let fans = &mut self.receiving.fans;
        let discard = |buffer| match key.to {
            PortId::MULTICAST => fans.discard(store, buffer),
            _ => store.discard(buffer),
        };
        flow.end(discard, |transfer| transfers.push(transfer));
        self.receiving.waiting.retain(|waiting| !transfers.contains(waiting));
        for transfer in transfers {
            if let Some(buffer) = self.receiving.transfers.remove(transfer).and_then(|t| t.buffer()) {
                store.discard(buffer);
            }
        }
    }

    /// The peer's port is gone: its flows end, and what was on its way to it failed.
    pub(super) fn peer_port_closed(&mut self, cx: &mut Cx<'_>, port: PortId) {
        if self.receiving.closed.len() >= CLOSED_PORTS_MAX {
            self.receiving.closed.pop_front();
        }
        self.receiving.closed.push_back(port);
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().filter(|k| k.from == port).copied().collect();
        for key in keys {
            self.end_receive_flow(cx.store, key);
        }
        // What was under way may have been delivered before the port closed; the rest was not.
        self.fail_flows(cx, |key| key.to == port, Failure::NoPort, None);
        self.forget_taken(port);
    }

    /// Ends the send flows that `which` names and reports every message that they held: as indeterminate if it may
    /// have arrived, else with `why`.
    fn fail_flows(
        &mut self,
        cx: &mut Cx<'_>,
        which: impl Fn(&FlowKey) -> bool,
        why: Failure,
        refused: Option<u32>,
    ) {
        let keys: Vec<FlowKey> = self.sending.by_key.keys().filter(|k| which(k)).copied().collect();
        for key in keys {
            self.fail_flow(cx, key, why, refused);
        }
    }

    /// The same for one flow.
    pub(super) fn fail_flow(&mut self, cx: &mut Cx<'_>, key: FlowKey, why: Failure, refused: Option<u32>) {
        let Some(flow_key) = self.sending.by_key.remove(&key) else { return };
        if let Some(mut flow) = self.sending.flows.remove(flow_key) {
            self.sending.deadlines.forget(flow_key, &flow);
            let to = PortAddress { node: self.peer.node, port: key.to };
            let stats = &mut self.stats;
            let port = key.from;
            #[cfg(feature = "planted")]
            let port = match self.planted {
                Some(crate::planted::Planted::MisdirectedReturn) => {
                    cx.ports.keys().copied().find(|other| *other != port).unwrap_or(port)
                }
                _ => port,
            };
            let tokens = flow.end(refused, |message, fate| {
                #[cfg(feature = "planted")]
                let early = self.early.remove(&(key.from, message.buffer));
                #[cfg(not(feature = "planted"))]
                let early = false;
                if !early {
                    cx.store.release(key.from, message.buffer, fate == Fate::Read);
                }
                let why = match fate {
                    Fate::Read => return stats.messages_confirmed += 1,
                    // What its receiver has not read it never will.
                    _ if why == Failure::ShutDown && message.returns => why,
                    Fate::Unknown => Failure::Indeterminate,
                    _ if why == Failure::ShutDown => Failure::NoPort,
                    _ => why,
                };
                stats.messages_failed += 1;
                cx.events.push_back(Event::SendFailed { port, buffer: message.buffer, to, why });
            });
            for token in tokens {
                self.sending.transfers.remove(token);
            }
        }
    }

    /// The session is over: every message that it holds comes to an end.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>) {
        self.fail_flows(cx, |_| true, Failure::NotSent, None);
        self.end_connections(cx);
        let keys: Vec<FlowKey> = self.receiving.by_key.keys().copied().collect();
        for key in keys {
            self.end_receive_flow(cx.store, key);
        }
    }
}
