//! Receiving side of a flow: order and exactly-once (protocol.md §5.2).

use super::FlowKey;
use super::send::expand;
use crate::address::ServiceAddress;
use crate::id::{BufferId, PortId};
use crate::limits;
use crate::ranges::RangeSet;
use std::collections::VecDeque;

/// A complete message that waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its bytes.
    pub buffer: BufferId,
    /// How many.
    pub len: u64,
    /// The service that the sender addressed.
    pub service: Option<ServiceAddress>,
    /// The sender's tag.
    pub tag: Option<u64>,
    /// The sender wants to be told when it was read.
    pub notify: bool,
}

/// An eager message of which pieces arrived.
#[derive(Debug)]
pub struct Partial {
    /// Where its bytes go.
    pub buffer: BufferId,
    /// Bytes of the whole.
    pub total: u32,
    /// Bytes placed.
    pub got: RangeSet,
    /// From the first piece.
    pub service: Option<ServiceAddress>,
    /// From the first piece.
    pub tag: Option<u64>,
    /// From the first piece.
    pub notify: bool,
}

/// A message number's place in the window.
#[derive(Debug)]
pub enum Slot {
    /// Nothing arrived.
    Empty,
    /// Some pieces.
    Partial(Box<Partial>),
    /// All of it, waiting for earlier ones.
    Arrived(Arrived),
    /// Announced; index of the transfer in the session.
    Transfer(u32),
}

/// Memory for more places than this is given back when nothing waits any more.
const PLACES_KEPT: usize = 1_024;

/// Where a message number falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Delivered before.
    Old,
    /// In the window; distance from the next one to deliver.
    At(usize),
    /// Beyond the window: a breach of the protocol.
    Beyond,
}

/// One flow from a peer's port.
#[derive(Debug)]
pub struct ReceiveFlow {
    /// Ports and class.
    pub key: FlowKey,
    /// The port that its messages are for: `key.to`, or that of the connection's end.
    pub owner: PortId,
    /// Index of its port's credit in the session.
    pub credit: u32,
    /// Its own index in the session.
    pub(crate) index: u32,
    /// The first number not read, of those whose sender wants to be told; none has wanted it yet.
    pub(crate) consumed: Option<u64>,
    /// The sender is to be told of it.
    pub(crate) news: bool,
    next: u64,
    slots: VecDeque<Slot>,
}

impl ReceiveFlow {
    /// A flow of which nothing has arrived.
    pub fn new(key: FlowKey, owner: PortId, credit: u32) -> Self {
        ReceiveFlow {
            key,
            owner,
            credit,
            index: 0,
            consumed: None,
            news: false,
            next: 0,
            slots: VecDeque::new(),
        }
    }

    /// The number of the next message to deliver.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Where the message with low half `seq` falls.
    pub fn place(&self, seq: u32) -> Place {
        let full = expand(seq, self.next);
        if full < self.next || full > u64::MAX / 2 {
            Place::Old
        } else if full - self.next >= limits::REORDER_MESSAGES_MAX {
            Place::Beyond
        } else {
            Place::At((full - self.next) as usize)
        }
    }

    /// The slot at a distance that `place` gave.
    pub fn slot(&mut self, at: usize) -> &mut Slot {
        while self.slots.len() <= at {
            self.slots.push_back(Slot::Empty);
        }
        &mut self.slots[at]
    }

    /// The slot at a distance, if anything was stored that far.
    pub fn peek(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at)
    }

    /// What has come in pieces at a distance that `place` gave.
    pub fn partial(&mut self, at: usize) -> Option<&mut Partial> {
        match self.slots.get_mut(at)? {
            Slot::Partial(partial) => Some(partial),
            _ => None,
        }
    }

    /// By how many messages that have not arrived the flow's gaps grow if the one at this distance does: the numbers
    /// between the last one stored and it, or minus one if it fills a gap.
    pub fn gaps_made(&self, at: usize) -> i64 {
        match self.slots.get(at) {
            Some(Slot::Empty) => -1,
            Some(_) => 0,
            None => (at - self.slots.len()) as i64,
        }
    }

    /// Messages that have not arrived although later ones have.
    pub fn gaps(&self) -> u64 {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Empty)).count() as u64
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The next message was delivered without ever being stored (the usual case).
    pub fn pass(&mut self) {
        debug_assert!(self.slots.front().is_none_or(|s| matches!(s, Slot::Empty)));
        self.advance();
    }

    /// The next message if it is complete.
    pub fn pop(&mut self) -> Option<Arrived> {
        let Some(Slot::Arrived(arrived)) = self.slots.front() else { return None };
        let arrived = *arrived;
        self.advance();
        Some(arrived)
    }

    fn advance(&mut self) {
        self.slots.pop_front();
        self.next += 1;
        if self.slots.is_empty() && self.slots.capacity() > PLACES_KEPT {
            self.slots = VecDeque::new();
        }
    }

    /// Takes any complete message, order or not (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn pop_any(&mut self) -> Option<Arrived> {
        let at = self.slots.iter().position(|s| matches!(s, Slot::Arrived(_)))?;
        let slot = self.slots.remove(at)?;
        self.next += 1;
        match slot {
            Slot::Arrived(arrived) => Some(arrived),
            _ => None,
        }
    }

    /// The transfer whose turn it is, if the next message is one.
    pub fn head_transfer(&self) -> Option<u32> {
        match self.slots.front() {
            Some(Slot::Transfer(index)) => Some(*index),
            _ => None,
        }
    }

    /// Transfer `index` is complete: its slot holds a message now.
    pub fn complete_transfer(&mut self, seq: u64, arrived: Arrived) {
        if let Some(slot) = seq.checked_sub(self.next).and_then(|at| self.slots.get_mut(at as usize)) {
            *slot = Slot::Arrived(arrived);
        }
    }

    /// Ends the flow; hands out every buffer that it holds and every transfer.
    pub fn end(&mut self, mut buffer: impl FnMut(BufferId), mut transfer: impl FnMut(u32)) {
        for slot in self.slots.drain(..) {
            match slot {
                Slot::Empty => {}
                Slot::Partial(partial) => buffer(partial.buffer),
                Slot::Arrived(arrived) => buffer(arrived.buffer),
                Slot::Transfer(index) => transfer(index),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Class;

    fn flow() -> ReceiveFlow {
        ReceiveFlow::new(FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal }, PortId(2), 0)
    }

    fn arrived(n: u64) -> Arrived {
        Arrived { buffer: BufferId(n), len: 1, service: None, tag: None, notify: false }
    }

    #[test]
    fn messages_wait_for_their_turn() {
        let mut flow = flow();
        *flow.slot(2) = Slot::Arrived(arrived(2));
        *flow.slot(1) = Slot::Arrived(arrived(1));
        assert_eq!(flow.pop(), None);
        flow.pass();
        assert_eq!(flow.pop(), Some(arrived(1)));
        assert_eq!(flow.pop(), Some(arrived(2)));
        assert_eq!(flow.pop(), None);
        assert_eq!(flow.next(), 3);
    }

    #[test]
    fn numbers_fall_before_inside_or_beyond_the_window() {
        let mut flow = flow();
        assert_eq!(flow.place(0), Place::At(0));
        assert_eq!(flow.place(32_767), Place::At(32_767));
        assert_eq!(flow.place(32_768), Place::Beyond);
        assert_eq!(flow.place(u32::MAX), Place::Old);
        flow.next = 0x1_0000_0000;
        assert_eq!(flow.place(u32::MAX), Place::Old);
        assert_eq!(flow.place(1), Place::At(1));
    }
}
