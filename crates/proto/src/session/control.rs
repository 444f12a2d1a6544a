//! Control frames: few, small, processed by the peer exactly once and in order (protocol.md §5.5).

use crate::id::{Incarnation, LinkId, NodeId, PortId};
use crate::limits;
use crate::wire::{self, Binding, LinkStatus};
use std::collections::{BTreeMap, VecDeque};

/// A control frame as a value that owns what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Records of a node's binding log.
    Bindings {
        /// Whose.
        origin: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// Number of the first record.
        log_seq: u64,
        /// The records.
        records: Vec<Binding>,
    },
    /// What a replica of a binding log should look like.
    Digest(wire::NameDigest),
    /// A port of the sender is gone.
    PortClosed(PortId),
    /// News of a link.
    LinkSet(LinkId, LinkStatus, u32),
    /// News of a bearer.
    BearerSet(wire::BearerSet),
    /// A connection is wanted.
    Connect(wire::Connect),
    /// The answer to that.
    Accept(wire::Accept),
    /// One end of a connection has had enough.
    Shutdown(wire::Shutdown),
    /// Messages were read, or will not be.
    Consumed(wire::Consumed),
}

impl Notice {
    /// Bytes of its frame.
    pub fn bytes(&self) -> usize {
        match self {
            Notice::Bindings { records, .. } => wire::Bindings::emitted_bytes(records.len()),
            Notice::Digest(_) => wire::NameDigest::BYTES,
            Notice::PortClosed(_) | Notice::LinkSet(..) => 16,
            Notice::BearerSet(_) => wire::BearerSet::BYTES,
            Notice::Connect(_) => wire::Connect::BYTES,
            Notice::Accept(_) => wire::Accept::BYTES,
            Notice::Shutdown(_) => wire::Shutdown::BYTES,
            Notice::Consumed(_) => wire::Consumed::BYTES,
        }
    }

    /// Writes its frame.
    pub fn emit(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Notice::Bindings { origin, incarnation, log_seq, records } => {
                wire::Bindings::emit(number, *origin, *incarnation, *log_seq, records, out);
            }
            Notice::Digest(digest) => wire::NameDigest { control: number, ..*digest }.emit(out),
            Notice::PortClosed(port) => wire::Frame::PortClosed(number, *port).emit(out),
            Notice::LinkSet(link, status, next) => {
                wire::LinkSet { control: number, link: *link, status: *status, number: *next }.emit(out);
            }
            Notice::BearerSet(set) => wire::BearerSet { control: number, ..set.clone() }.emit(out),
            Notice::Connect(connect) => wire::Connect { control: number, ..*connect }.emit(out),
            Notice::Accept(accept) => wire::Accept { control: number, ..*accept }.emit(out),
            Notice::Shutdown(shutdown) => wire::Shutdown { control: number, ..*shutdown }.emit(out),
            Notice::Consumed(consumed) => wire::Consumed { control: number, ..*consumed }.emit(out),
        }
    }
}

#[derive(Debug)]
struct Pending {
    notice: Notice,
    confirmed: bool,
    /// It stands among those to be sent again: once, however many copies of it were lost, or copies would breed copies.
    again: bool,
}

/// Control frames of one session, both ways.
#[derive(Debug, Default)]
pub struct Control {
    base: u32,
    pending: VecDeque<Pending>,
    /// Answers to connections among them.
    answers: usize,
    /// News of closed ports among them.
    closings: usize,
    sent: u32,
    again: VecDeque<u32>,
    expected: u32,
    held: BTreeMap<u32, Notice>,
    /// What was processed before its turn (planted fault only).
    #[cfg(feature = "planted")]
    early: Option<std::collections::BTreeSet<u32>>,
}

/// What became of a control frame that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Taken, or seen before.
    Taken,
    /// Too far ahead: not to be acknowledged.
    TooFar,
}

impl Control {
    /// Whether another notice may be queued.
    pub fn has_room(&self) -> bool {
        self.pending.len() < limits::CONTROL_FRAMES_MAX
    }

    /// Whether another question may be taken in, which obliges to an answer. Questions of our own do not count: two nodes
    /// that ask each other as much as they may would else wait for each other for ever.
    pub fn may_answer(&self) -> bool {
        self.answers < limits::CONTROL_FRAMES_MAX
    }

    /// Whether what leaves next may tell of a port that has closed.
    pub fn tells_of_closing(&self) -> bool {
        self.closings > 0 && self.ready()
    }

    /// Notices that are not confirmed, and those of the peer that wait for earlier ones.
    pub fn lens(&self) -> (usize, usize) {
        (self.pending.len(), self.held.len())
    }

    /// Queues a notice. Callers that produce many ask `has_room` first; single ones always fit.
    pub fn push(&mut self, notice: Notice) {
        self.answers += usize::from(matches!(notice, Notice::Accept(_)));
        self.closings += usize::from(matches!(notice, Notice::PortClosed(_)));
        self.pending.push_back(Pending { notice, confirmed: false, again: false });
    }

    /// The notice that was queued last, if it has never left: what belongs to it may still join it.
    pub fn last_unsent(&mut self) -> Option<&mut Notice> {
        let unsent = (self.sent as usize) < self.pending.len();
        self.pending.back_mut().filter(|_| unsent).map(|pending| &mut pending.notice)
    }

    /// The number that the next notice gets.
    pub fn end(&self) -> u32 {
        self.base.wrapping_add(self.pending.len() as u32)
    }

    /// Whether the peer has processed all notices below number `end`.
    pub fn has_confirmed(&self, end: u32) -> bool {
        self.base.wrapping_sub(end) <= u32::MAX / 2
    }

    /// Whether something may be sent: a notice beyond the window has to wait for confirmations.
    pub fn ready(&self) -> bool {
        !self.again.is_empty() || (self.sent as usize) < self.pending.len().min(limits::CONTROL_FRAMES_MAX)
    }

    /// The next notice to send that fits into `room` bytes, with its number.
    pub fn take(&mut self, room: usize) -> Option<(u32, &Notice)> {
        while let Some(&number) = self.again.front() {
            let index = number.wrapping_sub(self.base) as usize;
            match self.pending.get_mut(index) {
                Some(p) if !p.confirmed => {
                    if p.notice.bytes() > room {
                        return None;
                    }
                    p.again = false;
                    self.again.pop_front();
                    return Some((number, &self.pending[index].notice));
                }
                _ => drop(self.again.pop_front()),
            }
        }
        // The window keeps the peer's memory bounded.
        if self.sent as usize >= limits::CONTROL_FRAMES_MAX {
            return None;
        }
        let entry = self.pending.get(self.sent as usize)?;
        if entry.notice.bytes() > room {
            return None;
        }
        let number = self.base.wrapping_add(self.sent);
        self.sent += 1;
        Some((number, &entry.notice))
    }

    /// The peer has number `number`.
    pub fn confirm(&mut self, number: u32) {
        if let Some(p) = self.pending.get_mut(number.wrapping_sub(self.base) as usize) {
            p.confirmed = true;
        }
        while self.sent > 0 && self.pending.front().is_some_and(|p| p.confirmed) {
            let gone = self.pending.pop_front().map(|p| p.notice);
            self.answers -= usize::from(matches!(gone, Some(Notice::Accept(_))));
            self.closings -= usize::from(matches!(gone, Some(Notice::PortClosed(_))));
            self.base = self.base.wrapping_add(1);
            self.sent -= 1;
        }
    }

    /// Number `number` was lost on the way.
    pub fn repeat(&mut self, number: u32) {
        let Some(p) = self.pending.get_mut(number.wrapping_sub(self.base) as usize) else { return };
        if !p.confirmed && !std::mem::replace(&mut p.again, true) {
            self.again.push_back(number);
        }
    }

    /// Takes in a notice of the peer.
    pub fn receive(&mut self, number: u32, notice: impl FnOnce() -> Notice) -> Received {
        let ahead = number.wrapping_sub(self.expected);
        if ahead > u32::MAX / 2 {
            return Received::Taken;
        }
        if ahead as usize >= limits::CONTROL_FRAMES_MAX {
            return Received::TooFar;
        }
        #[cfg(feature = "planted")]
        if self.early.as_ref().is_some_and(|early| early.contains(&number)) {
            return Received::Taken;
        }
        self.held.entry(number).or_insert_with(notice);
        Received::Taken
    }

    /// Whether the peer's notice `number` was processed before.
    pub(crate) fn is_old(&self, number: u32) -> bool {
        number.wrapping_sub(self.expected) > u32::MAX / 2
    }

    /// The first notice that is here, in order or not (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn next_of_any(&mut self) -> Option<Notice> {
        let (number, notice) = self.held.pop_first()?;
        let early = self.early.get_or_insert_default();
        early.insert(number);
        while early.remove(&self.expected) {
            self.expected = self.expected.wrapping_add(1);
        }
        Some(notice)
    }

    /// Whether notices of the peer are here, in order or not.
    #[inline]
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The next notice in order, if it is here.
    pub fn next(&mut self) -> Option<Notice> {
        let notice = self.held.remove(&self.expected)?;
        self.expected = self.expected.wrapping_add(1);
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(n: u32) -> Notice {
        Notice::PortClosed(PortId(n))
    }

    #[test]
    fn notices_are_processed_once_and_in_order() {
        let mut control = Control::default();
        for n in [2, 0, 0, 2] {
            assert_eq!(control.receive(n, || notice(n)), Received::Taken);
        }
        assert_eq!(control.next(), Some(notice(0)));
        assert_eq!(control.next(), None);
        control.receive(1, || notice(1));
        assert_eq!(control.next(), Some(notice(1)));
        assert_eq!(control.next(), Some(notice(2)));
        control.receive(2, || notice(2));
        assert_eq!(control.next(), None);
        assert_eq!(control.receive(3 + 256, || notice(0)), Received::TooFar);
    }

    #[test]
    fn a_lost_notice_goes_out_again_and_a_confirmed_one_does_not() {
        let mut control = Control::default();
        for n in 0..3 {
            control.push(notice(n));
        }
        for n in 0..3 {
            assert_eq!(control.take(100), Some((n, &notice(n))));
        }
        control.repeat(0);
        control.repeat(1);
        control.confirm(1);
        control.confirm(2);
        assert_eq!(control.take(100), Some((0, &notice(0))));
        assert_eq!(control.take(100), None);
        control.confirm(0);
        assert_eq!(control.take(100), None);
        control.push(notice(3));
        assert_eq!(control.take(100), Some((3, &notice(3))));
    }

    #[test]
    fn however_many_copies_of_a_notice_are_lost_it_goes_out_again_once() {
        let mut control = Control::default();
        control.push(notice(0));
        for _ in 0..3 {
            assert_eq!(control.take(100), Some((0, &notice(0))));
            // Each copy that is under way is lost, or copied because its link is suspect.
            (0..5).for_each(|_| control.repeat(0));
        }
        assert_eq!(control.take(100), Some((0, &notice(0))));
        assert_eq!(control.take(100), None);
        assert!(!control.ready());
    }

    #[test]
    fn there_is_room_until_the_window_is_full_and_nothing_more_leaves_than_it_holds() {
        let mut control = Control::default();
        for n in 0..limits::CONTROL_FRAMES_MAX as u32 {
            assert!(control.has_room());
            control.push(notice(n));
        }
        assert!(!control.has_room());
        control.push(notice(limits::CONTROL_FRAMES_MAX as u32));
        while control.take(100).is_some() {}
        assert_eq!(control.sent as usize, limits::CONTROL_FRAMES_MAX);
        assert!(!control.ready(), "what the window keeps back is nothing to send");
        control.confirm(0);
        assert_eq!(
            control.take(100).map(|(number, _)| number as usize),
            Some(limits::CONTROL_FRAMES_MAX),
            "what is confirmed makes room for the next"
        );
    }

    #[test]
    fn notices_are_processed_by_the_peer_once_all_before_them_are_confirmed() {
        // Where numbers wrap.
        let mut control = Control { base: u32::MAX, ..Control::default() };
        assert!(control.has_confirmed(control.end()), "there is nothing");
        control.push(notice(0));
        control.push(notice(1));
        let end = control.end();
        assert_eq!(end, 1);
        while control.take(100).is_some() {}
        control.push(notice(2));
        control.confirm(0);
        assert!(!control.has_confirmed(end), "the first is missing");
        control.confirm(u32::MAX);
        assert!(control.has_confirmed(end) && !control.has_confirmed(control.end()));
    }

    #[test]
    fn it_is_ready_while_something_is_unsent_or_lost_and_not_otherwise() {
        let mut control = Control::default();
        assert!(!control.ready());
        control.push(notice(0));
        control.push(notice(1));
        assert!(control.ready());
        assert!(control.take(15).is_none(), "a notice of 16 bytes does not fit");
        assert!(control.take(16).is_some());
        assert!(control.ready(), "one is unsent");
        assert!(control.take(100).is_some());
        assert!(!control.ready(), "all were sent");
        control.repeat(1);
        assert!(control.ready(), "one was lost");
        assert!(control.take(15).is_none());
        assert!(control.ready(), "and still is");
    }
}
