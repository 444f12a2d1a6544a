//! Messages whose time is up before anything of them has left (protocol.md §5.10).

use super::{Cx, Session};
use crate::error::Failure;
use crate::event::Event;
use crate::flow::FlowKey;
use crate::flow::send::{Outgoing, SendFlow};
use crate::id::PortAddress;
use crate::time::Instant;
use std::collections::BTreeSet;

/// Messages that expire and of which nothing has left: moment, flow, and name in the flow. Those without a deadline are
/// not here and cost nothing.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, u32, u64)>);

impl Deadlines {
    /// The first of them.
    pub(super) fn next_at(&self) -> Instant {
        self.0.first().map_or(Instant::NEVER, |first| first.0)
    }

    /// A message has begun to leave.
    #[inline]
    pub(super) fn remove(&mut self, flow: u32, (name, at): (u64, Instant)) {
        self.0.remove(&(at, flow, name));
    }

    /// A flow has ended: its key may be another's soon.
    pub(super) fn forget(&mut self, key: u32, flow: &SendFlow) {
        for (name, at) in flow.deadlines() {
            self.0.remove(&(at, key, name));
        }
    }
}

impl Session {
    /// Queues a message that is given up if nothing of it has left by `at`.
    pub(crate) fn send_until(&mut self, now: Instant, key: FlowKey, message: Outgoing, at: Instant) -> bool {
        let Some(flow_key) = self.queue(now, key, message) else { return false };
        if let Some(flow) = self.sending.flows.get_mut(flow_key) {
            let name = flow.set_deadline(at);
            self.sending.deadlines.0.insert((at, flow_key, name));
        }
        true
    }

    /// Whether the time of a message is up.
    #[inline]
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        !self.sending.deadlines.0.is_empty() && self.sending.deadlines.next_at() <= now
    }

    /// Gives up the messages whose time is up.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_>) {
        while self.has_expired(cx.now) {
            let Some((_, key, name)) = self.sending.deadlines.0.pop_first() else { return };
            let Some(flow) = self.sending.flows.get_mut(key) else { continue };
            #[cfg(feature = "planted")]
            if self.planted == Some(crate::planted::Planted::HastyExpiry) {
                let Some(Outgoing { buffer, .. }) = flow.pretend_to_withdraw(name) else { continue };
                let (port, to) = (flow.key.from, PortAddress { node: self.peer.node, port: flow.key.to });
                cx.events.push_back(Event::SendFailed { port, buffer, to, why: Failure::Expired });
                continue;
            }
            let Some(Outgoing { buffer, .. }) = flow.withdraw(name) else { continue };
            let to = PortAddress { node: self.peer.node, port: flow.key.to };
            let (port, why) = (flow.key.from, Failure::Expired);
            // What waited behind it may be small enough for the credit that there is.
            self.schedule.enqueue_flow(key, flow);
            self.stats.messages_failed += 1;
            cx.store.release(port, buffer, false);
            cx.events.push_back(Event::SendFailed { port, buffer, to, why });
            self.quiet.stir();
        }
    }
}
