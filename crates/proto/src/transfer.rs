//! Large messages: announced, granted, then sent as extents that any link may carry (protocol.md §5.3).

use crate::flow::send::Outgoing;
use crate::id::{BufferId, LinkId, PortId, TransferId};
use crate::limits;
use crate::ranges::RangeSet;
use crate::wire;
use arrayvec::ArrayVec;

/// Bytes before the payload in a packet that carries a piece of a transfer and nothing else.
pub const PIECE_HEAD_BYTES: usize = wire::HEADER_BYTES + wire::TransferFragment::HEADER_BYTES;

/// Payload bytes of such a packet of at most `packet_bytes`.
pub const fn piece_bytes(packet_bytes: usize) -> usize {
    packet_bytes.saturating_sub(PIECE_HEAD_BYTES) & !7
}

/// A large message on its way out.
#[derive(Debug)]
pub struct SendTransfer {
    /// The flow that it belongs to.
    pub flow: u32,
    /// Its number there.
    pub seq: u64,
    /// It.
    pub message: Outgoing,
    /// It stands in the list of its flow.
    pub queued: bool,
    transfer: Option<TransferId>,
    granted: u64,
    cursor: u64,
    again: RangeSet,
    confirmed: RangeSet,
    /// What each link is to carry, if that was decided.
    parts: ArrayVec<Part, { limits::LINKS_MAX }>,
}

/// What one link is to carry of a transfer.
#[derive(Clone, Copy, Debug)]
struct Part {
    link: LinkId,
    cursor: u64,
    end: u64,
}

/// What of a transfer is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// What was lost, then what no link was given.
    Free,
    /// The part of this number.
    Part(usize),
}

/// The first of the bytes `start..end` that were not confirmed: other links may have brought some.
fn first_missing(confirmed: &RangeSet, start: u64, end: u64) -> Option<(u64, u64)> {
    if start < end { confirmed.missing(start, end).into_iter().next() } else { None }
}

impl SendTransfer {
    /// A transfer that was not granted yet.
    pub fn new(flow: u32, seq: u64, message: Outgoing) -> Self {
        SendTransfer {
            flow,
            seq,
            message,
            queued: false,
            transfer: None,
            granted: 0,
            cursor: 0,
            again: RangeSet::new(),
            confirmed: RangeSet::new(),
            parts: ArrayVec::new(),
        }
    }

    /// Takes in a grant.
    pub fn grant(&mut self, cts: &wire::Cts) {
        self.transfer = Some(cts.transfer);
        self.granted = self.granted.max(cts.granted.min(self.message.len));
    }

    /// The receiver's number, once granted.
    pub fn transfer(&self) -> Option<TransferId> {
        self.transfer
    }

    /// Whether something could be sent now.
    pub fn ready(&self) -> bool {
        let waits = !self.again.is_empty() || self.cursor < self.granted;
        self.transfer.is_some() && (waits || self.stretch_for(|_| true).is_some())
    }

    /// Bytes that are to leave yet, also those that were not granted.
    pub fn waiting_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.end - part.cursor).sum::<u64>();
        self.message.len - self.cursor + self.again.bytes() + parts
    }

    /// Whether each link was given its part.
    pub fn is_divided(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Gives what has not left yet to `links`, in equal parts that begin at multiples of `unit` bytes.
    pub fn divide(&mut self, links: &[LinkId], unit: u64) {
        let left = self.message.len - self.cursor;
        let each = left.div_ceil(links.len().max(1) as u64).next_multiple_of(unit.max(1));
        for &link in links.iter().take(limits::LINKS_MAX) {
            let (cursor, end) = (self.cursor, self.message.len.min(self.cursor + each));
            self.parts.push(Part { link, cursor, end });
            self.cursor = end;
        }
    }

    /// Gives what has not left yet to each of `links`.
    pub fn copy_to(&mut self, links: &[LinkId]) {
        for &link in links.iter().take(limits::LINKS_MAX) {
            self.parts.push(Part { link, cursor: self.cursor, end: self.message.len });
        }
        self.cursor = self.message.len;
    }

    /// Something that may leave now, of the part of a link that `allowed` names.
    pub fn stretch_for(&self, allowed: impl Fn(LinkId) -> bool) -> Option<Stretch> {
        let again = self.again.first().map(|(start, _)| start);
        let part_of = |start| self.parts.iter().find(|part| start < part.end);
        if again.and_then(part_of).is_some_and(|part| allowed(part.link)) {
            return Some(Stretch::Free);
        }
        let waits = |part: &Part| {
            let end = part.end.min(self.granted);
            allowed(part.link) && first_missing(&self.confirmed, part.cursor, end).is_some()
        };
        self.parts.iter().position(waits).map(Stretch::Part)
    }

    /// Where what is sent next of `stretch` most likely begins, and how long it is.
    pub fn next(&self, stretch: Stretch) -> (u64, u64) {
        if let Stretch::Part(number) = stretch {
            let part = self.parts[number];
            let open = first_missing(&self.confirmed, part.cursor, part.end.min(self.granted));
            return open.map_or((part.cursor, 0), |(start, end)| (start, end - start));
        }
        let (start, end) = self.again.first().unwrap_or((self.cursor, self.granted));
        (start, end.saturating_sub(start))
    }

    /// What is sent next of `stretch`, at most `max` bytes; what was lost goes first.
    pub fn take(&mut self, stretch: Stretch, max: u64) -> Option<(u64, u64)> {
        self.transfer?;
        if let Stretch::Part(number) = stretch {
            let part = &mut self.parts[number];
            let end = part.end.min(self.granted);
            let Some((start, end)) = first_missing(&self.confirmed, part.cursor, end) else {
                part.cursor = end.max(part.cursor);
                return None;
            };
            part.cursor = end.min(start + max);
            return Some((start, part.cursor));
        }
        while let Some((start, end)) = self.again.pop_first(max) {
            if let Some((from, to)) = self.confirmed.missing(start, end).into_iter().next() {
                if to < end {
                    self.again.insert(to, end);
                }
                return Some((from, to));
            }
        }
        let end = self.granted.min(self.cursor + max);
        if self.cursor >= end {
            return None;
        }
        let start = self.cursor;
        self.cursor = end;
        Some((start, end))
    }

    /// Bytes arrived; true when that was the last of them.
    pub fn confirm(&mut self, offset: u64, len: u32) -> bool {
        self.confirmed.insert(offset, offset + len as u64);
        self.confirmed.covers(0, self.message.len)
    }

    /// Bytes were lost, or may be.
    pub fn repeat(&mut self, offset: u64, len: u32) {
        for (start, end) in self.confirmed.missing(offset, offset + len as u64) {
            self.again.insert(start, end);
        }
    }
}

/// A large message on its way in.
#[derive(Debug)]
pub struct ReceiveTransfer {
    /// The flow that it belongs to.
    pub flow: u32,
    /// The port that it is for.
    pub owner: PortId,
    /// Its number there.
    pub seq: u64,
    /// The sender's name for it.
    pub token: u32,
    /// Bytes of the whole.
    pub total: u64,
    /// From the announcement.
    pub message: wire::Message,
    /// The application was asked for memory.
    pub offered: bool,
    /// The grant must be sent (again).
    pub dirty: bool,
    buffer: Option<BufferId>,
    got: RangeSet,
}

/// What became of a piece of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placed {
    /// Some or none of it was new; the transfer goes on.
    Some,
    /// The transfer is complete.
    Complete(BufferId),
    /// Nowhere to put it: outside the message, not granted, or too many holes.
    No,
}

impl ReceiveTransfer {
    /// As announced.
    pub fn new(flow: u32, owner: PortId, seq: u64, rts: &wire::Rts) -> Self {
        ReceiveTransfer {
            flow,
            owner,
            seq,
            token: rts.token,
            total: rts.total,
            message: rts.message,
            offered: false,
            dirty: false,
            buffer: None,
            got: RangeSet::new(),
        }
    }

    /// Memory was found: the sender may send all of it.
    pub fn accept(&mut self, buffer: BufferId) {
        self.buffer = Some(buffer);
        self.dirty = true;
    }

    /// Bytes that have not arrived.
    pub fn left_bytes(&self) -> u64 {
        self.total - self.got.bytes()
    }

    /// Bytes that have arrived before the first that has not.
    pub fn ready_bytes(&self) -> u64 {
        self.got.prefix()
    }

    /// Its memory, once found.
    pub fn buffer(&self) -> Option<BufferId> {
        self.buffer
    }

    /// Places what is new of a piece through `place(buffer, offset, from, to)`, `from..to` within the piece.
    pub fn place(
        &mut self,
        offset: u64,
        len: usize,
        mut place: impl FnMut(BufferId, u64, usize, usize),
    ) -> Placed {
        let Some(buffer) = self.buffer else { return Placed::No };
        let Some(end) = offset.checked_add(len as u64).filter(|e| *e <= self.total) else {
            return Placed::No;
        };
        if self.got.len() >= limits::HOLES_MAX && !self.got.intersects(offset.saturating_sub(1), end + 1) {
            return Placed::No;
        }
        for (start, stop) in self.got.missing(offset, end) {
            place(buffer, start, (start - offset) as usize, (stop - offset) as usize);
        }
        self.got.insert(offset, end);
        if self.got.covers(0, self.total) { Placed::Complete(buffer) } else { Placed::Some }
    }

    /// Enters up to `count` pieces of `len` bytes each that continue what has arrived, but none that completes the message: where it
    /// goes, and how many they are. `None` leaves the first to [`ReceiveTransfer::place`].
    pub fn go_on(&mut self, offset: u64, len: usize, count: usize) -> Option<(BufferId, usize)> {
        let buffer = self.buffer?;
        let count = self.got.extend_by(self.total, offset, (len as u64, count as u64))?;
        Some((buffer, count as usize))
    }

    /// The grant to send.
    pub fn cts(&self, transfer: u32) -> wire::Cts {
        let granted = if self.buffer.is_some() { self.total } else { 0 };
        wire::Cts { token: self.token, transfer: TransferId(transfer), granted, done: self.ready_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending() -> SendTransfer {
        let message = Outgoing {
            buffer: BufferId(1),
            len: 1000,
            service: None,
            range: None,
            tag: None,
            returns: false,
        };
        SendTransfer::new(0, 0, message)
    }

    #[test]
    fn nothing_leaves_before_the_grant_and_nothing_beyond_it() {
        let mut transfer = sending();
        assert_eq!(transfer.take(Stretch::Free, 100), None);
        let mut cts = wire::Cts { token: 1, transfer: TransferId(9), granted: 150, done: 0 };
        transfer.grant(&cts);
        assert_eq!(transfer.take(Stretch::Free, 100), Some((0, 100)));
        assert_eq!(transfer.take(Stretch::Free, 100), Some((100, 150)));
        assert_eq!(transfer.take(Stretch::Free, 100), None);
        cts.granted = 5000;
        transfer.grant(&cts);
        assert_eq!(transfer.take(Stretch::Free, 10_000), Some((150, 1000)));
    }

    #[test]
    fn lost_bytes_go_first_and_confirmed_ones_are_left_out() {
        let mut transfer = sending();
        transfer.grant(&wire::Cts { token: 1, transfer: TransferId(9), granted: 1000, done: 0 });
        transfer.take(Stretch::Free, 600);
        transfer.repeat(100, 400);
        assert!(!transfer.confirm(200, 100));
        assert_eq!(transfer.take(Stretch::Free, 1000), Some((100, 200)));
        assert_eq!(transfer.take(Stretch::Free, 1000), Some((300, 500)));
        assert_eq!(transfer.take(Stretch::Free, 1000), Some((600, 1000)));
        assert!(!transfer.confirm(0, 200));
        assert!(transfer.confirm(300, 700));
    }

    /// A message of so many bytes that its sender has announced.
    fn announced(total: u64) -> ReceiveTransfer {
        let message = wire::Message {
            class: 2,
            from: PortId(1),
            to: PortId(2),
            seq: 0,
            service: None,
            tag: None,
            notify: false,
        };
        ReceiveTransfer::new(0, PortId(2), 0, &wire::Rts { message, token: 3, total })
    }

    #[test]
    fn bytes_already_placed_are_not_written_again() {
        let mut transfer = announced(100);
        assert_eq!(transfer.place(0, 10, |_, _, _, _| panic!("no memory yet")), Placed::No);
        transfer.accept(BufferId(5));
        let mut written = vec![];
        transfer.place(20, 30, |_, at, from, to| written.push((at, from, to)));
        transfer.place(10, 60, |_, at, from, to| written.push((at, from, to)));
        assert_eq!(written, [(20, 0, 30), (10, 0, 10), (50, 40, 60)]);
        assert_eq!(transfer.place(90, 11, |_, _, _, _| panic!("outside")), Placed::No);
        transfer.place(0, 10, |_, _, _, _| {});
        assert_eq!(transfer.place(70, 30, |_, _, _, _| {}), Placed::Complete(BufferId(5)));
    }

    #[test]
    fn a_piece_that_would_make_one_hole_too_many_is_not_placed() {
        let mut transfer = announced(1 << 20);
        transfer.accept(BufferId(5));
        let holes = limits::HOLES_MAX as u64;
        for n in 1..=holes {
            assert_eq!(transfer.place(n * 30, 10, |_, _, _, _| {}), Placed::Some);
        }
        let apart = [0, 41, 30 * holes + 11];
        for offset in apart {
            assert_eq!(transfer.place(offset, 10, |_, _, _, _| panic!("placed")), Placed::No);
        }
        // What touches a piece from either side makes none.
        for offset in [20, 70, 30 * holes + 10] {
            assert_eq!(transfer.place(offset, 10, |_, _, _, _| {}), Placed::Some);
        }
        assert_eq!(transfer.cts(9).done, 0);
        assert_eq!(transfer.place(0, 20, |_, _, _, _| {}), Placed::Some);
        let cts = wire::Cts { token: 3, transfer: TransferId(9), granted: 1 << 20, done: 40 };
        assert_eq!(transfer.cts(9), cts);
    }

    #[test]
    fn a_piece_goes_on_only_where_the_last_one_ended_and_the_end_is_left_to_others() {
        let mut transfer = announced(1_000);
        let taken = |pieces| Some((BufferId(5), pieces));
        assert_eq!(transfer.go_on(0, 100, 1), None, "there is no memory");
        transfer.accept(BufferId(5));
        assert_eq!(transfer.go_on(0, 100, 1), None, "nothing to go on from");
        assert_eq!(transfer.place(0, 100, |_, _, _, _| {}), Placed::Some);
        assert_eq!(transfer.go_on(100, 100, 3), taken(3));
        assert_eq!(transfer.go_on(100, 100, 3), None, "that is here");
        assert_eq!(transfer.go_on(400, 600, 1), None, "the last piece completes the message");
        assert_eq!(transfer.go_on(400, 601, 1), None, "outside");
        assert_eq!(transfer.go_on(400, 0, 1), None, "of nothing");
        assert_eq!(transfer.go_on(u64::MAX, 10, 1), None);
        assert_eq!(transfer.place(700, 300, |_, _, _, _| {}), Placed::Some);
        assert_eq!(transfer.go_on(400, 300, 1), None, "so does a piece in the middle");
        assert_eq!(transfer.go_on(400, 150, 2), taken(1), "all but that");
        assert_eq!(transfer.go_on(550, 20, 9), taken(7), "of many too");
        assert_eq!(transfer.place(690, 10, |_, _, _, _| {}), Placed::Complete(BufferId(5)));
    }
}
