//! Sending side of a flow: messages that are not confirmed yet, what of them must go out, and credit.

mod expiry;
mod held;

use super::FlowKey;
use crate::address::{ServiceAddress, ServiceRange};
use crate::id::{BufferId, LinkId};
use crate::limits::{self, credit_cost};
use crate::ranges::RangeSet;
use crate::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message as a port hands it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Its bytes.
    pub buffer: BufferId,
    /// How many.
    pub len: u64,
    /// The service that the sender addressed.
    pub service: Option<ServiceAddress>,
    /// The range of services to all of which it goes.
    pub range: Option<ServiceRange>,
    /// The sender's tag.
    pub tag: Option<u64>,
    /// It is kept until it was read, for its sender wants it back if it is not.
    pub returns: bool,
}

#[derive(Debug)]
struct Unconfirmed {
    message: Outgoing,
    progress: Progress,
    /// Some of it was sent more than once, so a refusal does not prove that no copy was taken.
    repeated: bool,
    /// It expired behind others that wait too: its place is taken out when its turn comes.
    withdrawn: bool,
    /// It is large and leaves in pieces all the same, without asking.
    unasked: bool,
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
    /// It was read.
    Read,
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

impl Take {
    /// Bytes of its frame.
    pub fn frame_bytes(&self) -> usize {
        match self {
            Take::Whole { message, .. } => whole_bytes(message),
            Take::Part { message, offset, len, .. } => {
                header_bytes(message, PART_HEADER, *offset == 0) + (*len as usize).next_multiple_of(8)
            }
            Take::Announce { .. } => ANNOUNCE_BYTES,
        }
    }
}

/// What the frame of a message costs its flow, besides its bytes.
pub const FRAME_COST: u64 = 24;
/// Smallest piece of an eager message worth a frame of its own.
const PART_BYTES_MIN: usize = 128;
/// Frame header of a whole message and of a piece, without service and tag.
const WHOLE_HEADER: usize = 16;
const PART_HEADER: usize = 24;
/// The same of either if it goes to several.
const MULTICAST_HEADER: usize = 32;
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
    /// The largest message that may leave without asking where it is alone (protocol.md §5.1).
    pub unasked_bytes_max: u64,
    /// By which of its session's policies it goes; `None`: by the default one, which decides nothing before.
    pub policy: Option<u8>,
    /// Bytes for which it had its turn and that did not leave.
    pub unsent_bytes: u64,
    /// The link by which its next message goes, where that was decided.
    pub by: Option<LinkId>,
    /// Its transfers with something to send: number of the message and token, oldest first.
    pub(crate) transfers: VecDeque<(u64, u32)>,
    /// They stand in their class's ring.
    pub(crate) transfers_queued: bool,
    base: u64,
    messages: VecDeque<Unconfirmed>,
    next: u64,
    cursor: u64,
    /// Messages of which something must go out again. The oldest goes first: the receiver may have no room for the others
    /// before it has that one whole.
    again: BTreeSet<u64>,
    blocked_until: Instant,
    /// Refusals since something was confirmed.
    refusals: u32,
    /// Messages pushed so far. A message is named by how many were pushed before it where its number may still change.
    pushed: u64,
    /// Messages that expire and of which nothing has left: name and moment.
    dated: BTreeMap<u64, Instant>,
    /// The one among them of which something has left just now.
    begun: Option<(u64, Instant)>,
    /// Expired messages that still have a place here.
    withdrawn: usize,
    /// Messages that arrived and were not read yet, with their numbers, oldest first.
    held: VecDeque<(u64, Outgoing)>,
    /// All that are kept until they were read were, before this number.
    consumed: u64,
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
            unsent_bytes: 0,
            unasked_bytes_max: 0,
            transfers: VecDeque::new(),
            transfers_queued: false,
            base: 0,
            messages: VecDeque::new(),
            next: 0,
            cursor: 0,
            again: BTreeSet::new(),
            blocked_until: Instant::ZERO,
            refusals: 0,
            pushed: 0,
            dated: BTreeMap::new(),
            begun: None,
            withdrawn: 0,
            held: VecDeque::new(),
            consumed: 0,
            policy: None,
            by: None,
        }
    }

    /// Appends a message; returns its number.
    pub fn push(&mut self, message: Outgoing) -> u64 {
        self.messages.push_back(Unconfirmed {
            message,
            progress: Progress::Open,
            repeated: false,
            withdrawn: false,
            unasked: false,
            lost: None,
        });
        self.pushed += 1;
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

    /// Messages that are not confirmed, or are kept until they were read.
    pub fn unconfirmed(&self) -> usize {
        self.messages.len() - self.withdrawn + self.held.len()
    }

    /// Messages of which nothing was sent.
    pub fn unsent(&self) -> usize {
        (self.base + self.messages.len() as u64).saturating_sub(self.next) as usize - self.withdrawn
    }

    /// Whether nothing is left to do for this flow.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes waiting to be sent for the first time, an estimate for choosing links (first few messages).
    pub fn next_bytes(&self) -> Option<u64> {
        if let Some(seq) = self.again.first() {
            return self.message(*seq).map(|m| m.message.len).or(Some(0));
        }
        self.message(self.next).map(|m| m.message.len)
    }

    /// Bytes of the only message that waits, if nothing of it has left yet.
    pub fn lone_bytes(&self) -> Option<u64> {
        let waiting = (self.base + self.messages.len() as u64).saturating_sub(self.next);
        let untouched = self.again.is_empty() && self.cursor == 0;
        if untouched && waiting == 1 { self.next_bytes() } else { None }
    }

    /// Whether what is next goes as small messages do, by the link by which it arrives first: one of those, or the announcement of
    /// a large one, whose answer the whole of it waits for.
    pub fn is_small(&self, credit: &SendCredit) -> bool {
        let again = self.again.first();
        let Some(entry) = self.message(*again.unwrap_or(&self.next)) else { return true };
        let is_announced = match again {
            Some(_) => matches!(entry.progress, Progress::Transfer(_)),
            None if self.cursor > 0 || entry.message.len <= limits::EAGER_BYTES_MAX => false,
            None => !self.needs_no_answer(&entry.message, credit),
        };
        is_announced || entry.message.len <= limits::SMALL_BYTES_MAX
    }

    /// Bytes that wait to be sent, as far as `enough` and as is seen from the first `looks` messages that wait.
    pub fn waiting_bytes(&self, enough: u64, looks: usize) -> u64 {
        let lost = |seq: &u64| self.message(*seq).and_then(|m| Some(m.lost.as_ref()?.bytes())).unwrap_or(0);
        let mut bytes: u64 = self.again.iter().take(looks).map(lost).sum();
        let first = self.next.saturating_sub(self.base) as usize;
        for (looked, waiting) in self.messages.range(first.min(self.messages.len())..).enumerate() {
            if bytes >= enough || looked >= looks {
                return bytes.max(enough);
            }
            bytes += waiting.message.len;
        }
        bytes.saturating_sub(self.cursor)
    }

    /// Whether `take` could give something if there is room.
    pub fn ready(&self, now: Instant, credit: &SendCredit) -> bool {
        if now < self.blocked_until {
            return false;
        }
        if !self.again.is_empty() || self.cursor > 0 {
            return true;
        }
        self.message(self.next).is_some_and(|m| credit.affords(least_cost(&m.message)))
    }

    /// Whether something is left to send, now or later.
    pub fn has_more(&self) -> bool {
        !self.again.is_empty() || self.cursor > 0 || self.next < self.base + self.messages.len() as u64
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

    /// Message `seq`, or the bytes of it that `part` names, once more: `None` if they were confirmed.
    pub fn copy(&mut self, seq: u64, part: Option<(u32, u32)>) -> Option<Take> {
        let entry = self.message_mut(seq).filter(|entry| !entry.withdrawn)?;
        let message = entry.message;
        let take = match (&entry.progress, part) {
            (Progress::Open, None) => Take::Whole { seq, message },
            (Progress::Open, Some((offset, len))) => Take::Part { seq, message, offset, len },
            (Progress::Parts(parts), Some((offset, len)))
                if !parts.covers(offset as u64, offset as u64 + len as u64) =>
            {
                Take::Part { seq, message, offset, len }
            }
            (Progress::Transfer(token), None) => Take::Announce { seq, message, token: Some(*token) },
            _ => return None,
        };
        entry.repeated = true;
        Some(take)
    }

    /// Bytes of messages `first..first + count`, with their heads.
    pub fn bytes_of(&self, first: u64, count: u32) -> u64 {
        let messages = (first..first + count as u64).filter_map(|seq| self.message(seq));
        messages.map(|waiting| waiting.message.len + FRAME_COST).sum()
    }

    fn message(&self, seq: u64) -> Option<&Unconfirmed> {
        self.messages.get(seq.checked_sub(self.base)? as usize)
    }

    fn message_mut(&mut self, seq: u64) -> Option<&mut Unconfirmed> {
        self.messages.get_mut(seq.checked_sub(self.base)? as usize)
    }

    /// The next thing that fits into `room` bytes of a packet whose whole room is `packet_room`.
    #[inline]
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
        let &Unconfirmed { message, unasked, .. } = self.message(seq)?;
        let fresh = self.cursor == 0;
        let unasked = if fresh { self.needs_no_answer(&message, credit) } else { unasked };
        let eager = unasked || message.len <= limits::EAGER_BYTES_MAX;
        let cost = if eager { credit_cost(message.len) } else { 0 };
        if fresh && !credit.affords(cost) {
            return None;
        }
        let take = piece(seq, message, eager, (self.cursor, message.len - self.cursor), (room, packet_room))?;
        if fresh {
            credit.charge(cost);
            if unasked && let Some(entry) = self.message_mut(seq) {
                entry.unasked = true;
            }
            self.note_begun();
        }
        let taken = match take {
            Take::Part { offset, len, .. } => offset as u64 + len as u64,
            _ => message.len,
        };
        self.advance(taken, message.len);
        Some(take)
    }

    /// Whether the messages behind the one that was taken last may be taken by [`SendFlow::take_plain`]: nothing is to be repeated,
    /// and none of them expires or is withdrawn.
    pub fn is_plain(&self) -> bool {
        self.cursor == 0 && self.again.is_empty() && self.dated.is_empty() && self.withdrawn == 0
    }

    /// As [`SendFlow::take`] of a flow that [is plain](SendFlow::is_plain) and may send now, if what is next is a small message and fits
    /// whole into `room` bytes: most of many are, and to look at everything for each would cost more than to put it in.
    #[inline]
    pub fn take_plain(&mut self, credit: &mut SendCredit, room: usize) -> Option<(u64, Outgoing)> {
        let seq = self.next;
        let message = self.message(seq)?.message;
        let cost = credit_cost(message.len);
        let fits = message.len <= limits::SMALL_BYTES_MAX && whole_bytes(&message) <= room;
        if !fits || self.fills_window() || !credit.affords(cost) {
            return None;
        }
        credit.charge(cost);
        self.next += 1;
        Some((seq, message))
    }

    /// The next message has left up to `taken` of its `len` bytes.
    fn advance(&mut self, taken: u64, len: u64) {
        self.cursor = if taken < len { taken } else { 0 };
        if self.cursor == 0 {
            self.by = None;
            self.next += 1;
            self.skip_withdrawn();
        }
    }

    /// Goes on with the message of which `take` is a part by up to `most` bytes, if nothing else is to go before; where they
    /// end.
    pub fn go_on(&mut self, take: &Take, most: u64) -> Option<u64> {
        let Take::Part { seq, message, offset, len } = *take else { return None };
        let start = offset as u64 + len as u64;
        if seq != self.next || self.cursor != start || !self.again.is_empty() {
            return None;
        }
        let end = message.len.min(start + most);
        self.advance(end, message.len);
        Some(end)
    }

    /// Message `seq`, if it is not confirmed.
    pub fn outgoing(&self, seq: u64) -> Option<Outgoing> {
        self.message(seq).map(|entry| entry.message)
    }

    /// Whether a large message leaves at once: it is alone, so nobody is kept waiting by it, and there is memory for it.
    fn needs_no_answer(&self, message: &Outgoing, credit: &SendCredit) -> bool {
        (limits::EAGER_BYTES_MAX + 1..=self.unasked_bytes_max).contains(&message.len)
            && self.messages.len() == 1
            && self.policy.is_none()
            && credit.affords(credit_cost(message.len))
    }

    /// Something to be repeated; what was confirmed meanwhile is left out.
    fn take_again(&mut self, room: usize, packet_room: usize) -> Option<Take> {
        while let Some(&seq) = self.again.first() {
            match self.again_of(seq, room, packet_room) {
                Again::Nothing => drop(self.again.pop_first()),
                Again::NoRoom => return None,
                Again::Take(take) => return Some(take),
            }
        }
        None
    }

    fn again_of(&mut self, seq: u64, room: usize, packet_room: usize) -> Again {
        let Some(entry) = self.message_mut(seq) else { return Again::Nothing };
        let message = entry.message;
        let eager = entry.unasked || message.len <= limits::EAGER_BYTES_MAX;
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
            let Some(take) = piece(seq, message, true, (0, 0), (room, packet_room)) else {
                return Again::NoRoom;
            };
            entry.lost = None;
            return Again::Take(take);
        };
        let take = match entry.progress {
            Progress::Transfer(token) if room >= ANNOUNCE_BYTES => {
                Some(Take::Announce { seq, message, token: Some(token) })
            }
            Progress::Transfer(_) => None,
            _ => piece(seq, message, eager, (start, end - start), (room, packet_room)),
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
            self.again.insert(seq);
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
            let message = front.message;
            if message.returns && self.base >= self.consumed {
                self.held.push_back((self.base, message));
            } else {
                freed(message);
            }
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
        self.held.drain(..).for_each(|(_, message)| fate(message, Fate::Unknown));
        for (i, entry) in self.messages.drain(..).enumerate() {
            if entry.withdrawn {
                continue;
            }
            let seq = base + i as u64;
            if let Progress::Transfer(token) = entry.progress {
                tokens.push(token);
            }
            // A confirmed message that is still here waits behind an open one: its receiver has it, its port not.
            let told = if entry.message.returns && seq < self.consumed {
                Fate::Read
            } else if refused.is_some_and(|r| seq >= r) {
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
        self.withdrawn = 0;
        self.again.clear();
        tokens
    }
}

/// What a message must be granted to begin: the bytes of a large one have credit of their own.
fn least_cost(message: &Outgoing) -> u64 {
    if message.len > limits::EAGER_BYTES_MAX { 0 } else { credit_cost(message.len) }
}

/// Header bytes of a frame of a message, which is `own` if it goes to one; `first`: it names service and tag.
fn header_bytes(message: &Outgoing, own: usize, first: bool) -> usize {
    let extra = 8 * (message.service.is_some() as usize + message.tag.is_some() as usize);
    let header = if message.range.is_some() { MULTICAST_HEADER } else { own };
    header + if first { extra } else { 0 }
}

/// Bytes of the frame of a whole message.
#[inline]
fn whole_bytes(message: &Outgoing) -> usize {
    header_bytes(message, WHOLE_HEADER, true) + (message.len as usize).next_multiple_of(8)
}

/// Bytes of a message in a packet of `packet_room` that carries one piece of it, not the first, and nothing else.
pub fn piece_bytes(message: &Outgoing, packet_room: usize) -> usize {
    packet_room.saturating_sub(header_bytes(message, PART_HEADER, false)) & !7
}

/// Cuts the bytes `offset..offset + len` of a message to what fits; of one that is not `eager`, its announcement.
fn piece(
    seq: u64,
    message: Outgoing,
    eager: bool,
    (offset, len): (u64, u64),
    (room, packet_room): (usize, usize),
) -> Option<Take> {
    if !eager {
        return (room >= ANNOUNCE_BYTES).then_some(Take::Announce { seq, message, token: None });
    }
    let whole = header_bytes(&message, WHOLE_HEADER, true) + (len as usize).next_multiple_of(8);
    if len == message.len && whole <= room {
        return Some(Take::Whole { seq, message });
    }
    let space = room.checked_sub(header_bytes(&message, PART_HEADER, offset == 0))? & !7;
    let fits = (len as usize).min(space);
    // A message that a fresh packet could take whole is cut only when the rest of this packet is worth it.
    let worth = if whole <= packet_room { PART_BYTES_MIN.max(whole / 4) } else { PART_BYTES_MIN };
    if fits == len as usize || fits >= worth {
        return Some(Take::Part { seq, message, offset: offset as u32, len: fits as u32 });
    }
    None
}

#[cfg(test)]
mod tests;
