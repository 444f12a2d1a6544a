//! Sending side of a flow: messages that are not confirmed yet, what of them must go out, and credit.

use super::FlowKey;
use crate::address::ServiceAddress;
use crate::id::BufferId;
use crate::limits::{self, credit_cost};
use crate::ranges::RangeSet;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// A message as a port hands it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Its bytes.
    pub buffer: BufferId,
    /// How many.
    pub len: u64,
    /// The service that the sender addressed.
    pub service: Option<ServiceAddress>,
    /// The sender's tag.
    pub tag: Option<u64>,
}

#[derive(Debug)]
struct Unconfirmed {
    message: Outgoing,
    progress: Progress,
    /// Some of it was sent more than once, so a refusal does not prove that no copy was taken.
    repeated: bool,
    /// What of it must go out again; each byte once, however many copies of it were lost.
    lost: Option<Box<RangeSet>>,
}

/// How much of a message the receiver confirmed.
#[derive(Debug)]
enum Progress {
    /// Nothing; sent in one piece or not at all.
    Open,
    /// Parts of an eager message.
    Parts(Box<RangeSet>),
    /// Announced as transfer `token`.
    Transfer(u32),
    /// Everything.
    Done,
}

/// What became of a message when its flow ended before it was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Some of it was sent; it may have arrived.
    Unknown,
    /// None of it was ever sent.
    NotSent,
    /// Its receiver refused it, and no copy can have been taken before.
    Refused,
}

/// Credit of a destination port as its sender knows it (protocol.md §6.2).
#[derive(Clone, Copy, Debug)]
pub struct SendCredit {
    /// May have been sent in all, bytes.
    pub limit_bytes: u64,
    /// May have been sent in all, messages.
    pub limit_messages: u64,
    /// Sent in all, bytes.
    pub used_bytes: u64,
    /// Sent in all, messages.
    pub used_messages: u64,
}

impl SendCredit {
    /// The credit of a port that has never answered.
    pub fn initial(bytes: u32, messages: u32) -> Self {
        SendCredit {
            limit_bytes: bytes as u64,
            limit_messages: messages as u64,
            used_bytes: 0,
            used_messages: 0,
        }
    }
    fn affords(&self, bytes: u64) -> bool {
        self.used_bytes + bytes <= self.limit_bytes && self.used_messages < self.limit_messages
    }
    fn charge(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.used_messages += 1;
    }
    /// Takes in a CREDIT frame; true if it raised a limit.
    pub fn raise(&mut self, bytes: u64, messages_low: u32) -> bool {
        let messages = expand(messages_low, self.limit_messages);
        let raised = bytes > self.limit_bytes || messages > self.limit_messages;
        self.limit_bytes = self.limit_bytes.max(bytes);
        self.limit_messages = self.limit_messages.max(messages);
        raised
    }
}

/// The 64-bit number nearest to `near` whose low half is `low`.
pub fn expand(low: u32, near: u64) -> u64 {
    near.wrapping_add_signed(low.wrapping_sub(near as u32) as i32 as i64)
}

/// Something to put into a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// A whole message.
    Whole {
        /// Its number.
        seq: u64,
        /// It.
        message: Outgoing,
    },
    /// A piece of an eager message.
    Part {
        /// Its number.
        seq: u64,
        /// The whole.
        message: Outgoing,
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// The announcement of a large message.
    Announce {
        /// Its number.
        seq: u64,
        /// It.
        message: Outgoing,
        /// The transfer's token, if it has one already (the announcement is repeated).
        token: Option<u32>,
    },
}

/// Smallest piece of an eager message worth a frame of its own.
const PART_BYTES_MIN: usize = 128;
/// Frame header of a whole message and of a piece, without service and tag.
const WHOLE_HEADER: usize = 16;
const PART_HEADER: usize = 24;
/// RTS with service and tag.
const ANNOUNCE_BYTES: usize = 56;

/// What there is to repeat of a message.
enum Again {
    /// Nothing any more.
    Nothing,
    /// Something that does not fit.
    NoRoom,
    /// This.
    Take(Take),
}

/// One flow towards a peer's port.
#[derive(Debug)]
pub struct SendFlow {
    /// Ports and class.
    pub key: FlowKey,
    /// Index of its credit in the session.
    pub credit: u32,
    /// It stands in its class's ring.
    pub queued: bool,
    /// It stands in the list of those that wait for credit.
    pub starved: bool,
    /// Its transfers with something to send: number of the message and token, oldest first.
    pub(crate) transfers: VecDeque<(u64, u32)>,
    /// They stand in their class's ring.
    pub(crate) transfers_queued: bool,
    base: u64,
    messages: VecDeque<Unconfirmed>,
    next: u64,
    cursor: u64,
    /// Messages of which something must go out again, each once.
    again: VecDeque<u64>,
    blocked_until: Instant,
    /// Refusals since something was confirmed.
    refusals: u32,
}

/// Longest wait after a refusal.
const REFUSED_MAX: Duration = Duration::ms(32);

impl SendFlow {
    /// An empty flow.
    pub fn new(key: FlowKey, credit: u32) -> Self {
        SendFlow {
            key,
            credit,
            queued: false,
            starved: false,
            transfers: VecDeque::new(),
            transfers_queued: false,
            base: 0,
            messages: VecDeque::new(),
            next: 0,
            cursor: 0,
            again: VecDeque::new(),
            blocked_until: Instant::ZERO,
            refusals: 0,
        }
    }

    /// Appends a message; returns its number.
    pub fn push(&mut self, message: Outgoing) -> u64 {
        self.messages.push_back(Unconfirmed {
            message,
            progress: Progress::Open,
            repeated: false,
            lost: None,
        });
        self.base + self.messages.len() as u64 - 1
    }

    /// The bytes of message `seq` if all of it has left once (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn sent_whole(&self, seq: u64) -> Option<BufferId> {
        self.message(seq).filter(|_| seq < self.next).map(|m| m.message.buffer)
    }

    /// Whether some of message `seq` was sent again (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn was_repeated(&self, seq: u64) -> bool {
        self.message(seq).is_some_and(|m| m.repeated)
    }

    /// Messages that are not confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.messages.len()
    }

    /// Whether nothing is left to do for this flow.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes waiting to be sent for the first time, an estimate for choosing links (first few messages).
    pub fn next_bytes(&self) -> Option<u64> {
        if let Some(seq) = self.again.front() {
            return self.message(*seq).map(|m| m.message.len).or(Some(0));
        }
        self.message(self.next).map(|m| m.message.len)
    }

    /// Whether `take` could give something if there is room.
    pub fn ready(&self, now: Instant, credit: &SendCredit) -> bool {
        if now < self.blocked_until {
            return false;
        }
        if !self.again.is_empty() || self.cursor > 0 {
            return true;
        }
        self.message(self.next).is_some_and(|m| credit.affords(cost_of(&m.message)))
    }

    /// Whether nothing more may leave before its oldest message is confirmed (protocol.md §5.2).
    pub fn fills_window(&self) -> bool {
        self.again.is_empty() && self.next >= self.base + limits::REORDER_MESSAGES_MAX
    }

    /// When a flow that was refused may try again, also if that is past: whoever waits for it must still be woken.
    pub fn retry_at(&self) -> Instant {
        self.blocked_until
    }

    /// When a flow that was refused may try again; `NEVER` if it waits for nothing.
    pub fn wakes_at(&self, now: Instant) -> Instant {
        if now < self.blocked_until { self.blocked_until } else { Instant::NEVER }
    }

    fn message(&self, seq: u64) -> Option<&Unconfirmed> {
        self.messages.get(seq.checked_sub(self.base)? as usize)
    }

    fn message_mut(&mut self, seq: u64) -> Option<&mut Unconfirmed> {
        self.messages.get_mut(seq.checked_sub(self.base)? as usize)
    }

    /// The next thing that fits into `room` bytes of a packet whose whole room is `packet_room`.
    pub fn take(
        &mut self,
        now: Instant,
        credit: &mut SendCredit,
        room: usize,
        packet_room: usize,
    ) -> Option<Take> {
        if now < self.blocked_until {
            return None;
        }
        if let Some(take) = self.take_again(room, packet_room) {
            return Some(take);
        }
        if !self.again.is_empty() {
            return None;
        }
        if self.fills_window() {
            return None;
        }
        let seq = self.next;
        let message = self.message(seq)?.message;
        let fresh = self.cursor == 0;
        if fresh && !credit.affords(cost_of(&message)) {
            return None;
        }
        let take = piece(seq, message, self.cursor, message.len - self.cursor, room, packet_room)?;
        if fresh {
            credit.charge(cost_of(&message));
        }
        self.cursor = match take {
            Take::Part { offset, len, .. } if (offset as u64 + len as u64) < message.len => {
                offset as u64 + len as u64
            }
            _ => 0,
        };
        if self.cursor == 0 {
            self.next += 1;
        }
        Some(take)
    }

    /// Something to be repeated; what was confirmed meanwhile is left out.
    fn take_again(&mut self, room: usize, packet_room: usize) -> Option<Take> {
        while let Some(&seq) = self.again.front() {
            match self.again_of(seq, room, packet_room) {
                Again::Nothing => drop(self.again.pop_front()),
                Again::NoRoom => return None,
                Again::Take(take) => return Some(take),
            }
        }
        None
    }

    fn again_of(&mut self, seq: u64, room: usize, packet_room: usize) -> Again {
        let Some(entry) = self.message_mut(seq) else { return Again::Nothing };
        let message = entry.message;
        let Some(lost) = &mut entry.lost else { return Again::Nothing };
        if let Progress::Parts(parts) = &entry.progress {
            for (start, end) in parts.iter() {
                lost.remove(start, end);
            }
        }
        let hole = if matches!(entry.progress, Progress::Done) { None } else { lost.first() };
        let Some((start, end)) = hole else {
            // An empty message has no bytes to miss, but it may be missing.
            let empty = message.len == 0 && matches!(entry.progress, Progress::Open);
            if !empty {
                entry.lost = None;
                return Again::Nothing;
            }
            let Some(take) = piece(seq, message, 0, 0, room, packet_room) else { return Again::NoRoom };
            entry.lost = None;
            return Again::Take(take);
        };
        let take = match entry.progress {
            Progress::Transfer(token) if room >= ANNOUNCE_BYTES => {
                Some(Take::Announce { seq, message, token: Some(token) })
            }
            Progress::Transfer(_) => None,
            _ => piece(seq, message, start, end - start, room, packet_room),
        };
        let Some(take) = take else { return Again::NoRoom };
        let taken = match take {
            Take::Part { offset, len, .. } => offset as u64 + len as u64,
            _ => message.len,
        };
        lost.remove(0, taken);
        if lost.is_empty() {
            entry.lost = None;
        }
        Again::Take(take)
    }

    /// The bytes `start..end` of message `seq` must go out again.
    fn again(&mut self, seq: u64, start: u64, end: Option<u64>) {
        let Some(entry) = self.message_mut(seq) else { return };
        if matches!(entry.progress, Progress::Done) {
            return;
        }
        entry.repeated = true;
        let end = end.unwrap_or(entry.message.len);
        let fresh = entry.lost.is_none();
        entry.lost.get_or_insert_default().insert(start, end);
        if fresh {
            self.again.push_back(seq);
        }
    }

    /// The flow's message `seq` is now transfer `token`.
    pub fn announced(&mut self, seq: u64, token: u32) {
        if let Some(entry) = self.message_mut(seq) {
            entry.progress = Progress::Transfer(token);
        }
    }

    /// Whole messages confirmed. `freed` gets each message that is thereby done with.
    pub fn confirm_whole(&mut self, first: u64, count: u32, freed: impl FnMut(Outgoing)) {
        for seq in first..first + count as u64 {
            if let Some(entry) = self.message_mut(seq) {
                entry.progress = Progress::Done;
            }
        }
        self.pop_done(freed);
    }

    /// A piece of an eager message confirmed.
    pub fn confirm_part(&mut self, seq: u64, offset: u32, len: u32, freed: impl FnMut(Outgoing)) {
        let Some(entry) = self.message_mut(seq) else { return };
        let total = entry.message.len;
        if matches!(entry.progress, Progress::Open) {
            entry.progress = Progress::Parts(Box::default());
        }
        let Progress::Parts(parts) = &mut entry.progress else { return };
        parts.insert(offset as u64, offset as u64 + len as u64);
        if parts.covers(0, total) {
            entry.progress = Progress::Done;
            self.pop_done(freed);
        }
    }

    /// A message is in its receiver's hands.
    pub fn confirm_message(&mut self, seq: u64, freed: impl FnMut(Outgoing)) {
        self.confirm_whole(seq, 1, freed);
    }

    fn pop_done(&mut self, mut freed: impl FnMut(Outgoing)) {
        while let Some(front) = self.messages.front() {
            if !matches!(front.progress, Progress::Done) || self.base >= self.next {
                break;
            }
            freed(front.message);
            self.messages.pop_front();
            self.base += 1;
            self.refusals = 0;
        }
    }

    /// Whole messages were lost on the way.
    pub fn repeat_whole(&mut self, first: u64, count: u32) {
        for seq in first..first + count as u64 {
            self.again(seq, 0, None);
        }
    }

    /// A piece was lost on the way.
    pub fn repeat_part(&mut self, seq: u64, offset: u32, len: u32) {
        self.again(seq, offset as u64, Some(offset as u64 + len as u64));
    }

    /// The receiver had no room: wait before anything of this flow goes out again, at first for `patience`, then twice
    /// as long each time. Else flows that are refused would leave no window for the one whose end they wait for.
    pub fn refused(&mut self, now: Instant, patience: Duration) {
        if now < self.blocked_until {
            return;
        }
        let patience = Duration(patience.0 << self.refusals.min(8)).min(REFUSED_MAX);
        self.refusals += 1;
        self.blocked_until = now + patience;
    }

    /// Credit moved: a refusal need not be waited out.
    pub fn unblock(&mut self) {
        (self.blocked_until, self.refusals) = (Instant::ZERO, 0);
    }

    /// Ends the flow: every message that it still holds is handed to `fate`. Returns the
    /// transfers that it had announced. `refused`: low half of the number of a message that found no port.
    pub fn end(&mut self, refused: Option<u32>, mut fate: impl FnMut(Outgoing, Fate)) -> Vec<u32> {
        let mut tokens = Vec::new();
        // Nothing behind a message that was certainly not taken can have been delivered.
        let refused = refused
            .map(|low| expand(low, self.base))
            .filter(|s| self.message(*s).is_some_and(|m| !m.repeated));
        let (base, next, cursor) = (self.base, self.next, self.cursor);
        for (i, entry) in self.messages.drain(..).enumerate() {
            let seq = base + i as u64;
            if let Progress::Transfer(token) = entry.progress {
                tokens.push(token);
            }
            // A confirmed message that is still here waits behind an open one: its receiver has it, its port not.
            let told = if refused.is_some_and(|r| seq >= r) {
                Fate::Refused
            } else if seq < next || (seq == next && cursor > 0) {
                Fate::Unknown
            } else {
                Fate::NotSent
            };
            fate(entry.message, told);
        }
        self.base = self.base.max(next);
        self.next = self.base;
        self.cursor = 0;
        self.again.clear();
        tokens
    }
}

fn cost_of(message: &Outgoing) -> u64 {
    if message.len > limits::EAGER_BYTES_MAX { 0 } else { credit_cost(message.len) }
}

/// Cuts the bytes `offset..offset + len` of a message to what fits.
fn piece(
    seq: u64,
    message: Outgoing,
    offset: u64,
    len: u64,
    room: usize,
    packet_room: usize,
) -> Option<Take> {
    if message.len > limits::EAGER_BYTES_MAX {
        return (room >= ANNOUNCE_BYTES).then_some(Take::Announce { seq, message, token: None });
    }
    let extra = 8 * (message.service.is_some() as usize + message.tag.is_some() as usize);
    let whole = WHOLE_HEADER + extra + (len as usize).next_multiple_of(8);
    if len == message.len && whole <= room {
        return Some(Take::Whole { seq, message });
    }
    let header = PART_HEADER + if offset == 0 { extra } else { 0 };
    let space = room.checked_sub(header)? & !7;
    let fits = (len as usize).min(space);
    // A message that a fresh packet could take whole is cut only when the rest of this packet is worth it.
    let worth = if whole <= packet_room { PART_BYTES_MIN.max(whole / 4) } else { PART_BYTES_MIN };
    if fits == len as usize || fits >= worth {
        return Some(Take::Part { seq, message, offset: offset as u32, len: fits as u32 });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Class;
    use crate::id::PortId;

    fn flow() -> (SendFlow, SendCredit) {
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
        (SendFlow::new(key, 0), SendCredit::initial(1 << 20, 100))
    }

    fn message(n: u64, len: u64) -> Outgoing {
        Outgoing { buffer: BufferId(n), len, service: None, tag: None }
    }

    #[test]
    fn messages_leave_in_order_and_within_credit() {
        let (mut flow, mut credit) = flow();
        credit.limit_messages = 2;
        for n in 0..3 {
            flow.push(message(n, 64));
        }
        let now = Instant(5);
        for n in 0..2 {
            let take = flow.take(now, &mut credit, 1000, 1400).unwrap();
            assert_eq!(take, Take::Whole { seq: n, message: message(n, 64) });
        }
        assert_eq!(flow.take(now, &mut credit, 1000, 1400), None);
        assert!(credit.raise(1 << 20, 3));
        assert!(matches!(flow.take(now, &mut credit, 1000, 1400), Some(Take::Whole { seq: 2, .. })));
        assert_eq!(credit.used_bytes, 192);
    }

    #[test]
    fn a_long_message_is_cut_to_the_room_and_freed_when_all_parts_are_confirmed() {
        let (mut flow, mut credit) = flow();
        flow.push(message(9, 3000));
        let mut parts = vec![];
        while let Some(Take::Part { offset, len, .. }) = flow.take(Instant(1), &mut credit, 1448, 1448) {
            parts.push((offset, len));
        }
        assert_eq!(parts, [(0, 1424), (1424, 1424), (2848, 152)]);
        flow.repeat_part(0, 1424, 1424);
        flow.confirm_part(0, 0, 1424, |_| panic!("freed early"));
        flow.confirm_part(0, 2848, 152, |_| panic!("freed early"));
        let again = flow.take(Instant(1), &mut credit, 1448, 1448);
        assert!(matches!(again, Some(Take::Part { offset: 1424, len: 1424, .. })), "{again:?}");
        let mut freed = vec![];
        flow.confirm_part(0, 1424, 1424, |m| freed.push(m.buffer));
        assert_eq!(freed, [BufferId(9)]);
        assert!(flow.is_idle());
        assert_eq!(credit.used_messages, 1, "a repetition is not charged again");
    }

    #[test]
    fn what_was_confirmed_meanwhile_is_not_repeated() {
        let (mut flow, mut credit) = flow();
        for n in 0..3 {
            flow.push(message(n, 8));
            flow.take(Instant(1), &mut credit, 1000, 1400).unwrap();
        }
        flow.repeat_whole(0, 3);
        flow.confirm_whole(0, 2, |_| {});
        assert!(matches!(flow.take(Instant(1), &mut credit, 1000, 1400), Some(Take::Whole { seq: 2, .. })));
        assert_eq!(flow.take(Instant(1), &mut credit, 1000, 1400), None);
    }

    #[test]
    fn numbers_expand_around_the_expected_one() {
        assert_eq!(expand(5, 0x1_0000_0003), 0x1_0000_0005);
        assert_eq!(expand(0xffff_ffff, 0x1_0000_0003), 0xffff_ffff);
        assert_eq!(expand(1, 0xffff_fff0), 0x1_0000_0001);
    }

    #[test]
    fn failing_tells_what_was_never_sent() {
        let (mut flow, mut credit) = flow();
        for n in 0..3 {
            flow.push(message(n, 8));
        }
        flow.take(Instant(1), &mut credit, 1000, 1400).unwrap();
        let mut told = vec![];
        flow.end(None, |m, fate| told.push((m.buffer.0, fate)));
        assert_eq!(told, [(0, Fate::Unknown), (1, Fate::NotSent), (2, Fate::NotSent)]);
    }

    const NOW: Instant = Instant(1_000_000);

    /// Hands in `count` messages of `len` bytes, and takes out what may leave.
    fn taken(flow: &mut SendFlow, credit: &mut SendCredit, count: u64, len: u64) -> Vec<Take> {
        (0..count).for_each(|n| _ = flow.push(message(n, len)));
        std::iter::from_fn(|| flow.take(NOW, credit, 1_448, 1_448)).collect()
    }

    #[test]
    fn credit_is_kept_to_the_byte_and_to_the_message() {
        for (bytes, messages, leave) in [(256, 100, 4), (255, 100, 3), (320, 3, 3), (0, 100, 0), (320, 0, 0)]
        {
            let (mut flow, _) = flow();
            let mut credit = SendCredit::initial(bytes, messages);
            assert_eq!(taken(&mut flow, &mut credit, 5, 64).len(), leave);
            assert!(!flow.ready(NOW, &credit));
            assert!(!credit.raise(bytes as u64, messages), "nothing new");
            assert!(credit.raise(bytes as u64 + 1_000, messages));
            assert!(credit.raise(0, messages + 100));
            assert!(flow.ready(NOW, &credit));
            assert_eq!(taken(&mut flow, &mut credit, 0, 64).len(), 5 - leave);
            assert_eq!((credit.used_bytes, credit.used_messages, flow.unconfirmed()), (320, 5, 5));
        }
    }

    #[test]
    fn a_message_under_way_needs_no_more_credit_and_numbers_go_on() {
        let (mut flow, mut credit) = flow();
        assert_eq!(flow.next_bytes(), None);
        assert_eq!((flow.push(message(0, 3_000)), flow.push(message(1, 8))), (0, 1));
        assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some());
        (credit.limit_bytes, credit.limit_messages) = (0, 0);
        assert!(flow.ready(NOW, &credit) && flow.next_bytes() == Some(3_000));
        assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some());
        assert!(matches!(flow.take(NOW, &mut credit, 1_448, 1_448), Some(Take::Part { offset: 2_848, .. })));
        assert!(!flow.ready(NOW, &credit) && flow.next_bytes() == Some(8));
        flow.confirm_message(0, |_| {});
        assert_eq!((flow.push(message(2, 8)), flow.unconfirmed()), (2, 2));
    }

    #[test]
    fn a_refused_flow_waits_twice_as_long_each_time_up_to_a_bound() {
        let (mut flow, mut credit) = flow();
        taken(&mut flow, &mut credit, 2, 8);
        flow.repeat_whole(0, 2);
        let mut now = NOW;
        for ms in [1, 2, 4, 8, 16, 32, 32, 32, 32, 32, 32] {
            flow.refused(now, Duration::ms(1));
            flow.refused(now, Duration::ms(1));
            let end = now + Duration::ms(ms);
            assert_eq!((flow.retry_at(), flow.wakes_at(now)), (end, end));
            now = Instant(end.0 - 1);
            assert!(!flow.ready(now, &credit) && flow.take(now, &mut credit, 1_448, 1_448).is_none());
            now = end;
            assert!(flow.ready(now, &credit) && flow.wakes_at(now) == Instant::NEVER);
        }
        assert!(flow.take(now, &mut credit, 1_448, 1_448).is_some());
        flow.confirm_whole(0, 1, |_| {});
        flow.refused(now, Duration::ms(1));
        assert_eq!(flow.retry_at(), now + Duration::ms(1), "something was taken in between");
        flow.unblock();
        assert!(flow.ready(now, &credit));
        flow.refused(now, Duration::ms(1));
        assert_eq!(flow.retry_at(), now + Duration::ms(1), "and credit forgives too");
    }

    #[test]
    fn an_empty_message_is_repeated_once_and_not_after_it_arrived() {
        let (mut flow, mut credit) = flow();
        assert_eq!(taken(&mut flow, &mut credit, 3, 0).len(), 3);
        flow.confirm_whole(1, 1, |_| panic!("it waits for the first"));
        flow.repeat_whole(0, 3);
        let again = |flow: &mut SendFlow, credit: &mut SendCredit| flow.take(NOW, credit, 1_448, 1_448);
        assert_eq!(flow.take(NOW, &mut credit, 8, 1_448), None, "no room");
        for seq in [0, 2] {
            assert_eq!(again(&mut flow, &mut credit), Some(Take::Whole { seq, message: message(seq, 0) }));
        }
        assert_eq!(again(&mut flow, &mut credit), None);
        flow.repeat_whole(2, 1);
        flow.confirm_whole(2, 1, |_| {});
        assert_eq!(again(&mut flow, &mut credit), None);
    }

    #[test]
    fn an_announcement_is_repeated_with_its_token_where_there_is_room() {
        let (mut flow, mut credit) = flow();
        let large = limits::EAGER_BYTES_MAX + 1;
        let first = taken(&mut flow, &mut credit, 1, large);
        assert_eq!(first, [Take::Announce { seq: 0, message: message(0, large), token: None }]);
        assert_eq!((credit.used_bytes, credit.used_messages), (0, 1), "its bytes have credit of their own");
        flow.announced(0, 7);
        flow.repeat_whole(0, 1);
        assert_eq!(flow.take(NOW, &mut credit, ANNOUNCE_BYTES - 1, 1_448), None);
        let again = flow.take(NOW, &mut credit, ANNOUNCE_BYTES, 1_448);
        assert_eq!(again, Some(Take::Announce { seq: 0, message: message(0, large), token: Some(7) }));
        assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
        let mut freed = 0;
        flow.confirm_message(0, |_| freed += 1);
        assert_eq!((freed, flow.is_idle()), (1, true));
    }

    #[test]
    fn of_a_piece_that_was_lost_just_that_is_repeated() {
        let (mut flow, mut credit) = flow();
        let pieces = taken(&mut flow, &mut credit, 1, 65_536);
        let (offset, len) = (1_424, 1_424);
        assert!(matches!(pieces[1], Take::Part { offset: 1_424, len: 1_424, .. }));
        flow.repeat_part(0, offset, len);
        flow.repeat_part(0, offset, len);
        // In two goes: what is left of it is still to be repeated.
        let cut = flow.take(NOW, &mut credit, 24 + 800, 1_448);
        assert!(matches!(cut, Some(Take::Part { offset: 1_424, len: 800, .. })), "{cut:?}");
        let rest = flow.take(NOW, &mut credit, 1_448, 1_448);
        assert!(matches!(rest, Some(Take::Part { offset: 2_224, len: 624, .. })), "{rest:?}");
        assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
    }

    #[test]
    fn only_a_message_that_cannot_have_been_taken_is_called_refused() {
        for (repeated, fates) in [
            (false, [Fate::Unknown, Fate::Refused, Fate::Refused, Fate::Refused]),
            (true, [Fate::Unknown, Fate::Unknown, Fate::Unknown, Fate::NotSent]),
        ] {
            let (mut flow, mut credit) = flow();
            assert_eq!(taken(&mut flow, &mut credit, 2, 8).len(), 2);
            flow.push(message(2, 3_000));
            assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some(), "the first of its pieces");
            flow.push(message(3, 8));
            if repeated {
                flow.repeat_whole(1, 1);
            }
            let mut told = vec![];
            flow.end(Some(1), |_, fate| told.push(fate));
            assert_eq!(told, fates);
            assert!(flow.is_idle() && flow.take(NOW, &mut credit, 1_448, 1_448).is_none());
        }
    }

    #[test]
    fn a_message_is_cut_only_where_that_is_worth_a_packet_more() {
        let (service, tag) = (Some(ServiceAddress::new(1, 2)), Some(3));
        let cut = |len: u64, room: usize, packet_room: usize, extra: bool| {
            let (service, tag) = if extra { (service, tag) } else { (None, None) };
            let message = Outgoing { buffer: BufferId(0), len, service, tag };
            match piece(0, message, 0, len, room, packet_room) {
                Some(Take::Part { len, .. }) => Some(len as u64),
                Some(Take::Whole { .. }) => Some(len),
                Some(Take::Announce { .. }) => Some(0),
                None => None,
            }
        };
        // Whole, where header, service, tag and padding leave room for it.
        assert_eq!((cut(100, 120, 1_448, false), cut(100, 119, 1_448, false)), (Some(100), None));
        assert_eq!((cut(100, 136, 1_448, true), cut(100, 135, 1_448, true)), (Some(100), None));
        // A fresh packet would take it whole: a quarter of it at least, and 128 bytes.
        assert_eq!(
            (cut(1_200, 24 + 304, 1_448, false), cut(1_200, 24 + 303, 1_448, false)),
            (Some(304), None)
        );
        assert_eq!((cut(400, 24 + 128, 1_448, false), cut(400, 24 + 127, 1_448, false)), (Some(128), None));
        // No packet takes it whole.
        assert_eq!(
            (cut(9_000, 24 + 128, 1_448, false), cut(9_000, 24 + 127, 1_448, false)),
            (Some(128), None)
        );
        assert_eq!((cut(9_000, 40 + 128, 1_448, true), cut(9_000, 40 + 127, 1_448, true)), (Some(128), None));
        let largest = limits::EAGER_BYTES_MAX;
        assert_eq!(
            (cut(largest, 1_448, 1_448, false), cut(largest + 1, 56, 1_448, false)),
            (Some(1_424), Some(0))
        );
        assert_eq!(cut(largest + 1, 55, 1_448, false), None);
    }

    #[test]
    fn no_more_leaves_than_the_receiver_keeps_in_order_before_the_oldest_is_confirmed() {
        let (mut flow, _) = flow();
        let mut credit = SendCredit::initial(u32::MAX, u32::MAX);
        let window = limits::REORDER_MESSAGES_MAX;
        assert_eq!(taken(&mut flow, &mut credit, window + 2, 8).len() as u64, window);
        assert!(flow.fills_window() && !flow.is_idle());
        flow.confirm_whole(1, 5, |_| panic!("the oldest is missing"));
        assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
        flow.repeat_whole(0, 1);
        assert!(!flow.fills_window());
        assert!(matches!(flow.take(NOW, &mut credit, 1_448, 1_448), Some(Take::Whole { seq: 0, .. })));
        flow.confirm_whole(0, 1, |_| {});
        assert_eq!(taken(&mut flow, &mut credit, 0, 8).len(), 2);
    }
}
