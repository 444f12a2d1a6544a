//! Messages that are given up if nothing of them has left by a moment (protocol.md §5.10).
//!
//! The numbers of a flow have no gap, so only what has no number on the wire yet may be taken out. What waits behind it moves
//! up, so a message is named here by how many were pushed before it.

use super::{Outgoing, SendFlow};
use crate::time::Instant;

impl SendFlow {
    /// The message that was pushed last expires at `at`; its name.
    pub fn set_deadline(&mut self, at: Instant) -> u64 {
        let name = self.pushed - 1;
        self.dated.insert(name, at);
        name
    }

    /// Messages that expire and of which nothing has left: name and moment.
    pub fn deadlines(&self) -> impl Iterator<Item = (u64, Instant)> {
        self.dated.iter().map(|(name, at)| (*name, *at))
    }

    /// The message that expires no more because `take` has given something of it: name and moment, once.
    #[inline]
    pub fn take_begun(&mut self) -> Option<(u64, Instant)> {
        self.begun.take()
    }

    /// Takes a message out of which nothing has left.
    pub fn withdraw(&mut self, name: u64) -> Option<Outgoing> {
        self.dated.remove(&name)?;
        let index = self.index_of(name)?;
        let entry = self.messages.get_mut(index)?;
        let message = entry.message;
        // Closing the gap at once would move all that waits, for each that expires.
        entry.withdrawn = true;
        self.withdrawn += 1;
        self.skip_withdrawn();
        Some(message)
    }

    /// Where a message stands of which nothing has left: all that were pushed after it are still behind it.
    fn index_of(&self, name: u64) -> Option<usize> {
        self.messages.len().checked_sub((self.pushed - name) as usize)
    }

    /// As `withdraw`, but the message stays (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn pretend_to_withdraw(&mut self, name: u64) -> Option<Outgoing> {
        self.dated.remove(&name)?;
        Some(self.messages.get(self.index_of(name)?)?.message)
    }

    /// Something of the next message is about to leave for the first time.
    #[inline]
    pub(super) fn note_begun(&mut self) {
        if self.dated.is_empty() {
            return;
        }
        let behind = self.messages.len() as u64 - (self.next - self.base);
        let name = self.pushed - behind;
        self.begun = self.dated.remove(&name).map(|at| (name, at));
    }

    /// Closes the gap of expired messages that would be next: what follows gets their numbers.
    #[inline]
    pub(super) fn skip_withdrawn(&mut self) {
        if self.withdrawn == 0 || self.cursor > 0 {
            return;
        }
        let index = (self.next - self.base) as usize;
        while self.messages.get(index).is_some_and(|entry| entry.withdrawn) {
            self.messages.remove(index);
            self.withdrawn -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::send::{SendCredit, Take};
    use crate::flow::{Class, FlowKey};
    use crate::id::{BufferId, PortId};

    const NOW: Instant = Instant(5);

    fn flow() -> (SendFlow, SendCredit) {
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
        (SendFlow::new(key, 0), SendCredit::initial(1 << 30, 1 << 20))
    }

    /// Pushes message `n`; its name, if it is one that expires.
    fn push(flow: &mut SendFlow, n: u64, len: u64, expires: bool) -> Option<u64> {
        flow.push(Outgoing {
            buffer: BufferId(n),
            len,
            service: None,
            range: None,
            tag: None,
            returns: false,
        });
        expires.then(|| flow.set_deadline(Instant(100 + n)))
    }

    /// The number and the name of what leaves next.
    fn take(flow: &mut SendFlow, credit: &mut SendCredit) -> Option<(u64, u64)> {
        match flow.take(NOW, credit, 1_000, 1_400)? {
            Take::Whole { seq, message }
            | Take::Part { seq, message, .. }
            | Take::Announce { seq, message, .. } => Some((seq, message.buffer.0)),
        }
    }

    #[test]
    fn what_waits_behind_an_expired_message_gets_its_number() {
        let (mut flow, mut credit) = flow();
        let names: Vec<u64> = (0..6).filter_map(|n| push(&mut flow, n, 8, true)).collect();
        assert_eq!(take(&mut flow, &mut credit), Some((0, 0)));
        assert_eq!(flow.take_begun(), Some((names[0], Instant(100))));
        assert_eq!(flow.take_begun(), None, "it is told once");
        // One in the middle, the next one, and the last.
        for n in [3, 1, 5] {
            assert_eq!(flow.withdraw(names[n]).map(|m| m.buffer.0), Some(n as u64));
            assert_eq!(flow.withdraw(names[n]), None, "once");
        }
        assert_eq!(flow.withdraw(names[0]), None, "it has left");
        assert_eq!((flow.unconfirmed(), flow.unsent()), (3, 2));
        assert_eq!(flow.deadlines().map(|(name, _)| name).collect::<Vec<_>>(), [names[2], names[4]]);
        assert_eq!(take(&mut flow, &mut credit), Some((1, 2)));
        assert_eq!(take(&mut flow, &mut credit), Some((2, 4)));
        assert_eq!((take(&mut flow, &mut credit), flow.has_more()), (None, false));
        let mut freed = vec![];
        flow.confirm_whole(0, 3, |m| freed.push(m.buffer.0));
        assert_eq!(freed, [0, 2, 4]);
        assert!(flow.is_idle());
    }

    #[test]
    fn a_message_of_which_a_part_has_left_stays_and_keeps_its_number() {
        let (mut flow, mut credit) = flow();
        let names: Vec<u64> = (0..3).filter_map(|n| push(&mut flow, n, 3_000, true)).collect();
        assert_eq!(take(&mut flow, &mut credit), Some((0, 0)));
        assert_eq!(flow.withdraw(names[0]), None);
        assert!(flow.withdraw(names[1]).is_some());
        while let Some((seq, n)) = take(&mut flow, &mut credit) {
            assert_eq!(seq, n / 2, "the last one is the second now");
        }
        assert_eq!(credit.used_messages, 2, "what did not leave costs nothing");
        assert!(push(&mut flow, 3, 8, true).is_some_and(|name| flow.withdraw(name).is_some()));
        assert_eq!((flow.unsent(), flow.has_more()), (0, false));
    }

    #[test]
    fn a_flow_that_ends_says_nothing_of_what_has_expired() {
        let (mut flow, mut credit) = flow();
        let names: Vec<u64> = (0..4).filter_map(|n| push(&mut flow, n, 8, true)).collect();
        take(&mut flow, &mut credit);
        flow.withdraw(names[2]);
        let mut ended = vec![];
        flow.end(None, |m, fate| ended.push((m.buffer.0, fate)));
        use crate::flow::send::Fate::{NotSent, Unknown};
        assert_eq!(ended, [(0, Unknown), (1, NotSent), (3, NotSent)]);
        assert_eq!((flow.unconfirmed(), flow.is_idle()), (0, true));
    }

    #[test]
    fn whatever_expires_numbers_have_no_gap_and_order_holds() {
        for seed in 0..200u64 {
            let (mut flow, mut credit) = flow();
            let (mut dated, mut expected) = (Vec::new(), std::collections::VecDeque::new());
            let (mut next, mut pushed) = (0, 0);
            for step in 0..400 {
                let draw = crate::mix::mix(seed << 32 | step) as usize;
                match draw % 4 {
                    0 | 1 => {
                        let name = push(&mut flow, pushed, (draw >> 8) as u64 % 900, draw & 64 > 0);
                        dated.extend(name.map(|name| (name, pushed)));
                        expected.push_back(pushed);
                        pushed += 1;
                    }
                    2 if !dated.is_empty() => {
                        let (name, n) = dated.swap_remove((draw >> 8) % dated.len());
                        let waits = expected.contains(&n);
                        assert_eq!(flow.withdraw(name).map(|m| m.buffer.0), waits.then_some(n), "{seed}");
                        expected.retain(|of| *of != n);
                    }
                    _ => {
                        let taken = take(&mut flow, &mut credit);
                        let wanted = expected.pop_front().map(|n| (next, n));
                        assert_eq!(taken, wanted, "seed {seed}, step {step}");
                        next += u64::from(taken.is_some());
                    }
                }
                assert_eq!(flow.unsent(), expected.len(), "seed {seed}, step {step}");
            }
        }
    }
}
