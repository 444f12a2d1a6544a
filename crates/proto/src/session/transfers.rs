//! Large messages: announced by their sender, given memory and granted by their receiver (protocol.md §5.3).

use super::receive::{Taken, breach};
use super::{Cx, Session};
use crate::config::Config;
use crate::error::Violation;
use crate::event::Event;
use crate::flow::receive::{Arrived, Place, Slot};
use crate::id::{BufferId, ConnectionId, PortAddress, PortId};
use crate::limits;
use crate::store::Store;
use crate::transfer::{Placed, ReceiveTransfer};
use crate::wire::{self, RefuseReason};

impl Session {
    pub(super) fn on_rts(&mut self, cx: &mut Cx<'_>, rts: &wire::Rts) -> Taken {
        if rts.total > limits::MESSAGE_BYTES_MAX || rts.total == 0 {
            return breach(Violation::Inconsistent);
        }
        let key = match self.receive_flow(cx, &rts.message) {
            Ok(key) => key,
            Err(taken) => return taken,
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        let at = match flow.place(rts.message.seq) {
            Place::Old => return Taken::Yes,
            Place::Beyond => return breach(Violation::BeyondWindow),
            Place::At(at) => at,
        };
        if let Some(Slot::Transfer(existing)) = flow.peek(at) {
            let existing = *existing;
            if self.receiving.transfers.get(existing).is_some_and(|transfer| transfer.buffer().is_some()) {
                self.repeat_grant(existing);
            }
            return Taken::Yes;
        }
        if !matches!(flow.peek(at), None | Some(Slot::Empty)) {
            return Taken::Yes;
        }
        if self.receiving.transfers.len() >= limits::TRANSFERS_MAX {
            return self.refuse(&rts.message, RefuseReason::NoRoom);
        }
        let seq = flow.next() + at as u64;
        let Some(gaps) = self.admit(key, at, 0) else {
            return breach(Violation::BeyondCredit);
        };
        let Some(owner) = self.receiving.flows.get(key).map(|flow| flow.owner) else { return Taken::No };
        let mut transfer = ReceiveTransfer::new(key, owner, seq, rts);
        // If it is next and there is none, its receiver is asked for memory (see `offer_head`).
        let memory = memory_for(cx.store, owner, rts.total, cx.config);
        let accepted = memory.is_some();
        if let Some(buffer) = memory {
            transfer.accept(buffer);
        }
        let Some(number) = self.receiving.transfers.insert(transfer) else {
            return self.refuse(&rts.message, RefuseReason::NoRoom);
        };
        let Some(flow) = self.receiving.flows.get_mut(key) else { return Taken::No };
        *flow.slot(at) = Slot::Transfer(number);
        let credit = flow.credit;
        self.charge(cx, credit, 0, gaps);
        if accepted {
            self.receiving.cts.push_back(number);
        } else {
            self.receiving.waiting.push_back(number);
            self.offer_head(cx, key);
        }
        Taken::Yes
    }

    pub(super) fn on_transfer_part(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        offset: u64,
        payload: &[u8],
    ) -> Taken {
        let Some(transfer) = self.receiving.transfers.get_mut(number) else {
            // Finished, and repeated because an acknowledgement was lost.
            cx.drops.duplicate_message += 1;
            return Taken::Yes;
        };
        let store = &mut *cx.store;
        let placed = transfer.place(offset, payload.len(), |buffer, at, from, to| {
            store.place(buffer, at, &payload[from..to]);
        });
        match placed {
            Placed::Some => {}
            Placed::No => {
                cx.drops.holes += 1;
                return Taken::No;
            }
            Placed::Complete(buffer) => {
                let (flow, seq, m) = (transfer.flow, transfer.seq, transfer.message);
                let (len, notify) = (transfer.total, m.notify);
                let arrived = Arrived { buffer, len, service: m.service, tag: m.tag, notify };
                self.receiving.transfers.remove(number);
                if let Some(entry) = self.receiving.flows.get_mut(flow) {
                    entry.complete_transfer(seq, arrived);
                }
                self.drain(cx, flow);
            }
        }
        self.note_traffic(cx);
        Taken::Yes
    }

    pub(super) fn offer_head(&mut self, cx: &mut Cx<'_>, key: u32) {
        let Some(flow) = self.receiving.flows.get(key) else { return };
        let Some(number) = flow.head_transfer() else { return };
        let Some(transfer) = self.receiving.transfers.get_mut(number) else { return };
        if transfer.buffer().is_none() && !transfer.offered {
            transfer.offered = true;
            let from = PortAddress { node: self.peer.node, port: flow.key.from };
            let (port, len) = (flow.owner, transfer.total);
            let (session, to) = (self.index, flow.key.to);
            let connection = to.is_connection().then_some(ConnectionId { session, end: to });
            cx.events.push_back(Event::Offer { port, from, len, session, transfer: number, connection });
        }
    }

    /// A grant was lost, unless it is still on its way out.
    pub(super) fn repeat_grant(&mut self, number: u32) {
        if let Some(transfer) = self.receiving.transfers.get_mut(number)
            && !std::mem::replace(&mut transfer.dirty, true)
        {
            self.receiving.cts.push_back(number);
        }
    }

    /// Memory for an offered message.
    pub(crate) fn accept(&mut self, transfer: u32, buffer: BufferId) -> bool {
        let Some(entry) = self.receiving.transfers.get_mut(transfer) else { return false };
        if entry.buffer().is_some() {
            return false;
        }
        entry.accept(buffer);
        self.receiving.waiting.retain(|w| *w != transfer);
        self.receiving.cts.push_back(transfer);
        self.quiet.stir();
        true
    }

    /// Tries again to find memory for large messages that wait.
    pub(crate) fn retry_waiting(&mut self, store: &mut dyn Store, port: PortId, config: &Config) {
        let waiting = std::mem::take(&mut self.receiving.waiting);
        for key in waiting {
            let Some(transfer) = self.receiving.transfers.get_mut(key) else { continue };
            let mine = transfer.owner == port;
            match if mine { memory_for(store, port, transfer.total, config) } else { None } {
                Some(buffer) => {
                    transfer.accept(buffer);
                    self.receiving.cts.push_back(key);
                    self.quiet.stir();
                }
                None => self.receiving.waiting.push_back(key),
            }
        }
    }

    pub(super) fn on_cts(&mut self, cts: &wire::Cts) -> Taken {
        let Some(transfer) = self.sending.transfers.get_mut(cts.token) else { return Taken::Yes };
        transfer.grant(cts);
        if let Some(flow) = self.sending.flows.get_mut(transfer.flow) {
            self.schedule.enqueue_transfer(cts.token, transfer, flow);
        }
        Taken::Yes
    }
}

/// Memory for a message of `bytes` that was announced for `port`.
fn memory_for(store: &mut dyn Store, port: PortId, bytes: u64, config: &Config) -> Option<BufferId> {
    let placed = if bytes <= config.auto_accept_bytes_max { store.reserve(port, bytes, false) } else { None };
    placed.or_else(|| store.reserve_ahead(port, bytes))
}
