//! Credit: what ports of ours give to the peer and have it told, and what ports of the peer gave us (protocol.md §6.2).

use super::receive::Taken;
use super::{Cx, Session};
use crate::flow::send::SendCredit;
use crate::id::PortId;
use crate::limits;
use crate::wire;
use std::collections::VecDeque;

/// Credit that a port of ours gave to this session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenCredit {
    pub port: PortId,
    pub received_bytes: u64,
    pub received_messages: u64,
    pub limit_bytes: u64,
    pub limit_messages: u64,
    pub(super) told_bytes: u64,
    pub(super) told_messages: u64,
    /// Messages that were not received although later ones of their flows were: their sender has been charged.
    pub(super) gaps: u64,
    /// It stands among those to be told.
    pub(super) dirty: bool,
    /// The node was asked to raise it.
    wanted: bool,
}

/// Credit that a port of the peer gave us, with the flows that wait for it.
#[derive(Debug)]
pub(super) struct TakenCredit {
    pub(super) credit: SendCredit,
    /// Each once (see [`crate::flow::send::SendFlow::starved`]).
    pub(super) waiting: Vec<u32>,
}

/// What a port that closes gives to each session, bytes and messages: more than anybody can have waiting.
const CLOSING_CREDIT: (u64, u64) = (1 << 40, 1 << 24);

impl GivenCredit {
    /// So many bytes and messages, which the peer is told otherwise than by a frame of its own.
    pub(super) fn known(port: PortId, (bytes, messages): (u64, u32)) -> GivenCredit {
        GivenCredit {
            port,
            received_bytes: 0,
            received_messages: 0,
            limit_bytes: bytes,
            limit_messages: messages as u64,
            told_bytes: bytes,
            told_messages: messages as u64,
            gaps: 0,
            dirty: false,
            wanted: false,
        }
    }

    /// Has it told, once.
    #[inline]
    fn tell(&mut self, key: u32, untold: &mut VecDeque<u32>) {
        if !std::mem::replace(&mut self.dirty, true) {
            untold.push_back(key);
        }
    }

    /// All of it is being told.
    #[inline]
    fn on_told(&mut self) {
        (self.told_bytes, self.told_messages) = (self.limit_bytes, self.limit_messages);
        self.dirty = false;
    }

    /// Whether so little is left that the node should raise it.
    #[inline]
    fn runs_low(&self) -> bool {
        let window = self.told_bytes.saturating_sub(self.received_bytes);
        let messages = self.told_messages.saturating_sub(self.received_messages);
        window < 1 << 20 || messages < 8_192
    }
}

impl Session {
    // ----- what we give --------------------------------------------------------------------------------------

    pub(crate) fn given_credit(&self, port: PortId) -> Option<&GivenCredit> {
        self.receiving.credits.get(*self.receiving.credit_of.get(&port)?)
    }

    /// Raises what `port` gives to this session, and has it told if that is worth a frame.
    pub(crate) fn give_credit(&mut self, port: PortId, bytes: u64, messages: u64) {
        let Some(key) = self.receiving.credit_of.get(&port) else { return };
        let Some(given) = self.receiving.credits.get_mut(*key) else { return };
        given.limit_bytes = given.limit_bytes.max(bytes);
        given.limit_messages = given.limit_messages.max(messages);
        given.wanted = false;
        let left = given.told_bytes.saturating_sub(given.received_bytes);
        let left_messages = given.told_messages.saturating_sub(given.received_messages);
        let more = given.limit_bytes - given.told_bytes;
        let more_messages = given.limit_messages - given.told_messages;
        // Whoever has less left than the largest eager message may be waiting for just this.
        let starved =
            left < 2 * limits::EAGER_BYTES_MAX && more > 0 || left_messages < 2 && more_messages > 0;
        if starved || more >= (left / 2).max(4_096) || more_messages >= (left_messages / 2).max(16) {
            given.tell(*key, &mut self.receiving.untold);
            self.quiet.stir();
        }
    }

    /// Whether credit covers a new message at distance `at` of its flow that costs `cost`, and those before it that
    /// are still under way (protocol.md §6.2): by how much they become more. `None`: it was not granted.
    #[inline]
    pub(super) fn admit(&self, key: u32, at: usize, cost: u64) -> Option<i64> {
        let flow = self.receiving.flows.get(key)?;
        let given = self.receiving.credits.get(flow.credit)?;
        let made = flow.gaps_made(at);
        let messages = given.received_messages + 1 + given.gaps.saturating_add_signed(made);
        let covered = given.received_bytes + cost <= given.limit_bytes && messages <= given.limit_messages;
        covered.then_some(made)
    }

    /// A message that costs `cost` was taken in.
    pub(super) fn charge(&mut self, cx: &mut Cx<'_>, credit: u32, cost: u64, gaps: i64) {
        self.note_traffic(cx);
        let Some(given) = self.receiving.credits.get_mut(credit) else { return };
        given.received_bytes += cost;
        given.received_messages += 1;
        given.gaps = given.gaps.saturating_add_signed(gaps);
        match given.port {
            PortId::MULTICAST => self.refresh_multicast_credit(),
            // What a connection may send depends on what its application has read, not on what is free.
            port if port.is_connection() => {}
            port if !given.wanted && given.runs_low() => {
                given.wanted = true;
                self.credit_wanted.push(port);
            }
            _ => {}
        }
    }

    /// What told of the credit of `port` was lost.
    pub(super) fn repeat_credit(&mut self, port: PortId) {
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::LostCredit) {
            return;
        }
        if let Some(key) = self.receiving.credit_of.get(&port)
            && let Some(given) = self.receiving.credits.get_mut(*key)
        {
            given.tell(*key, &mut self.receiving.untold);
        }
    }

    /// Credit that the peer has to be told now.
    pub(super) fn take_untold(&mut self) -> Option<wire::Credit> {
        loop {
            let key = self.receiving.untold.pop_front()?;
            // It may be gone, or the answer to a question for a connection may have said it.
            let Some(given) = self.receiving.credits.get_mut(key).filter(|given| given.dirty) else {
                continue;
            };
            given.on_told();
            let (port, bytes, messages) = (given.port, given.limit_bytes, given.limit_messages as u32);
            return Some(wire::Credit { port, messages, bytes });
        }
    }

    /// Another frame tells of all that `port` gives.
    pub(super) fn tell_otherwise(&mut self, port: PortId) {
        let key = self.receiving.credit_of.get(&port);
        if let Some(given) = key.and_then(|key| self.receiving.credits.get_mut(*key)) {
            given.on_told();
        }
    }

    /// The key of what a port gives, which is entered when it gets its first message.
    pub(super) fn given_to(&mut self, port: PortId) -> Option<u32> {
        match self.receiving.credit_of.get(&port) {
            Some(&key) => Some(key),
            None => self.enter_given(initial_given(port)),
        }
    }

    /// Enters what a port gives; its key, unless there are too many.
    pub(super) fn enter_given(&mut self, given: GivenCredit) -> Option<u32> {
        let key = self.receiving.credits.insert(given)?;
        self.receiving.credit_of.insert(given.port, key);
        Some(key)
    }

    /// A port of ours closes: who waits for its credit gets it and is refused. Without it they would send nothing that could be
    /// refused, and two ports that close while each has messages for the other would wait for each other for ever.
    pub(super) fn release_credit(&mut self, port: PortId) {
        if let Some(given) = self.given_credit(port) {
            let (bytes, messages) =
                (given.limit_bytes + CLOSING_CREDIT.0, given.limit_messages + CLOSING_CREDIT.1);
            self.give_credit(port, bytes, messages);
        }
    }

    /// A port of ours gives nothing any more; whether it gave anything.
    pub(super) fn forget_given(&mut self, port: PortId) -> bool {
        let Some(key) = self.receiving.credit_of.remove(&port) else { return false };
        self.receiving.credits.remove(key);
        true
    }

    // ----- what the peer gives -------------------------------------------------------------------------------

    /// The key of what a port of the peer gives, which is entered when it is sent its first message.
    pub(super) fn taken_from(&mut self, port: PortId) -> Option<u32> {
        match self.sending.credit_of.get(&port) {
            Some(&key) => Some(key),
            None => self.enter_taken(port, self.peer.initial_credit),
        }
    }

    /// Enters what a port of the peer gives: so many bytes and messages. Its key, unless there are too many.
    pub(super) fn enter_taken(&mut self, port: PortId, (bytes, messages): (u32, u32)) -> Option<u32> {
        let taken = TakenCredit { credit: SendCredit::initial(bytes, messages), waiting: Vec::new() };
        let key = self.sending.credits.insert(taken)?;
        self.sending.credit_of.insert(port, key);
        Some(key)
    }

    /// The peer has no such port: who waits for its credit, now or later, need not wait to be told the same.
    pub(super) fn release_taken(&mut self, port: PortId) {
        let key = self.sending.credit_of.get(&port);
        let Some(taken) = key.and_then(|key| self.sending.credits.get(*key)) else { return };
        let bytes = taken.credit.used_bytes + CLOSING_CREDIT.0;
        let messages = (taken.credit.used_messages + CLOSING_CREDIT.1) as u32;
        self.raise_credit(&wire::Credit { port, messages, bytes });
    }

    /// A port of the peer is gone, and what it gave with it.
    pub(super) fn forget_taken(&mut self, port: PortId) {
        if let Some(key) = self.sending.credit_of.remove(&port) {
            self.sending.credits.remove(key);
        }
    }

    pub(super) fn on_credit(&mut self, cx: &mut Cx<'_>, credit: &wire::Credit) -> Taken {
        if self.raise_credit(credit) && credit.port.is_connection() {
            self.tell_credit(cx, credit.port.far_end());
        }
        Taken::Yes
    }

    /// Takes in credit; whether it was more than before.
    pub(super) fn raise_credit(&mut self, credit: &wire::Credit) -> bool {
        let Some(&key) = self.sending.credit_of.get(&credit.port) else { return false };
        let Some(taken) = self.sending.credits.get_mut(key) else { return false };
        if !taken.credit.raise(credit.bytes, credit.messages) {
            return false;
        }
        let waiting = std::mem::take(&mut taken.waiting);
        for flow_key in waiting {
            if let Some(flow) = self.sending.flows.get_mut(flow_key) {
                flow.starved = false;
                self.schedule.enqueue_flow(flow_key, flow);
            }
        }
        for flow_key in &self.sending.refused {
            if let Some(flow) = self.sending.flows.get_mut(*flow_key)
                && flow.credit == key
            {
                flow.unblock();
            }
        }
        true
    }

    /// What may be sent on an end in all, bytes and messages.
    pub(crate) fn credit_on(&self, end: PortId) -> (u64, u64) {
        let key = self.sending.credit_of.get(&end.far_end());
        let taken = key.and_then(|key| self.sending.credits.get(*key));
        taken.map_or((0, 0), |taken| (taken.credit.limit_bytes, taken.credit.limit_messages))
    }
}

/// Credit of a port before it said anything (protocol.md §6.2).
pub(super) fn initial_given(port: PortId) -> GivenCredit {
    let (bytes, messages) = limits::INITIAL_CREDIT;
    GivenCredit::known(port, (bytes as u64, messages))
}
