//! How far messages were read: their senders want those back that are not (protocol.md §5.10).

use super::{Cx, Notice, Session};
use crate::error::Failure;
use crate::flow::send::expand;
use crate::flow::{Class, FlowKey};
use crate::id::PortId;
#[cfg(feature = "planted")]
use crate::planted::Planted;
use crate::store::Store;
use crate::wire::{self, Rejected};

impl Session {
    // ----- the receiver's side -------------------------------------------------------------------------------

    /// The application has read message `seq` of a flow, and all before it that ask.
    pub(crate) fn handle_read(&mut self, index: u32, seq: u32) {
        // Its sender may have closed meanwhile.
        let Some(flow) = self.receiving.flows.get_mut(index) else { return };
        let first = flow.consumed.unwrap_or(flow.next());
        flow.consumed = Some(first.max(expand(seq, first) + 1));
        if !std::mem::replace(&mut flow.news, true) {
            self.receiving.consumed.push(index);
        }
        self.tell_consumed();
    }

    /// Tells the peer how far its messages were read, as far as there is room: what waits for it is told as one.
    pub(super) fn tell_consumed(&mut self) {
        while self.control.has_room() {
            let Some(index) = self.receiving.consumed.pop() else { return };
            let Some(flow) = self.receiving.flows.get_mut(index) else { continue };
            flow.news = false;
            let (key, Some(seq)) = (flow.key, flow.consumed) else { continue };
            self.notify(notice_of(key, seq, None));
        }
    }

    /// A flow ends: those of its messages that ask and were not read will not be.
    pub(super) fn reject_unread(&mut self, key: FlowKey, why: Rejected) {
        let flow = self.receiving.by_key.get(&key).and_then(|k| self.receiving.flows.get(*k));
        let Some(flow) = flow else { return };
        let Some(seq) = flow.consumed else { return };
        #[cfg(feature = "planted")]
        let seq = if self.planted == Some(Planted::UnreadForgotten) { flow.next() } else { seq };
        self.notify(notice_of(key, seq, Some(why)));
    }

    // ----- the sender's side ---------------------------------------------------------------------------------

    /// The peer says how far our messages were read.
    pub(super) fn on_consumed(&mut self, cx: &mut Cx<'_>, consumed: &wire::Consumed) {
        let key = FlowKey { from: consumed.from, to: consumed.to, class: Class::from_bits(consumed.class) };
        let flow = self.sending.by_key.get(&key).and_then(|k| self.sending.flows.get_mut(*k));
        // We may have closed meanwhile.
        let Some(flow) = flow else { return };
        let (store, stats) = (&mut *cx.store, &mut self.stats);
        let sound = flow.consume(consumed.seq, |message| {
            stats.messages_confirmed += 1;
            store.release(key.from, message.buffer, true);
        });
        if !sound {
            cx.drops.violation += 1;
            return;
        }
        if consumed.rest.is_some() {
            self.fail_flow(cx, key, Failure::ShutDown, None);
        }
    }

    /// A port of ours closes: nobody takes back what it sent.
    pub(crate) fn forget_returns(&mut self, store: &mut dyn Store, port: PortId) {
        for (key, flow_key) in &self.sending.by_key {
            if key.from != port {
                continue;
            }
            let Some(flow) = self.sending.flows.get_mut(*flow_key) else { continue };
            flow.forget_returns(|message| {
                self.stats.messages_confirmed += 1;
                store.release(port, message.buffer, true);
            });
        }
    }
}

fn notice_of(key: FlowKey, seq: u64, rest: Option<Rejected>) -> Notice {
    let FlowKey { from, to, class } = key;
    Notice::Consumed(wire::Consumed { control: 0, from, to, class: class as u8, seq: seq as u32, rest })
}
