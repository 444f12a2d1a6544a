//! Messages that are kept until they were read, because their sender wants them back otherwise (protocol.md §5.10).

use super::{Outgoing, SendFlow, expand};

impl SendFlow {
    /// Whether messages have arrived of which it is not known whether they will be read.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// All that asked were read before the number whose low half is `low`; `freed` gets each that need not be kept any
    /// more. False: that is more than was sent.
    pub fn consume(&mut self, low: u32, mut freed: impl FnMut(Outgoing)) -> bool {
        let oldest = self.held.front().map_or(self.base, |(seq, _)| *seq);
        let end = expand(low, oldest);
        if end > self.next {
            return false;
        }
        self.consumed = self.consumed.max(end);
        while let Some((seq, message)) = self.held.front()
            && *seq < self.consumed
        {
            freed(*message);
            self.held.pop_front();
        }
        true
    }

    /// Nobody wants anything back any more: what is kept for that is freed, and the rest once it is confirmed.
    pub fn forget_returns(&mut self, mut freed: impl FnMut(Outgoing)) {
        self.held.drain(..).for_each(|(_, message)| freed(message));
        self.messages.iter_mut().for_each(|entry| entry.message.returns = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::send::{Fate, SendCredit, Take};
    use crate::flow::{Class, FlowKey};
    use crate::id::{BufferId, PortId};
    use crate::time::Instant;

    /// A flow whose messages 0 to 5 have left; the even ones are kept until they were read.
    fn flow() -> SendFlow {
        let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
        let (mut flow, mut credit) = (SendFlow::new(key, 0), SendCredit::initial(1 << 20, 100));
        for n in 0..6 {
            let (buffer, returns) = (BufferId(n), n % 2 == 0);
            flow.push(Outgoing { buffer, len: 8, service: None, range: None, tag: None, returns });
            let taken = flow.take(Instant(5), &mut credit, 1_000, 1_400);
            assert!(matches!(taken, Some(Take::Whole { .. })));
        }
        flow
    }

    fn confirm(flow: &mut SendFlow, first: u64, count: u32) -> Vec<u64> {
        let mut freed = vec![];
        flow.confirm_whole(first, count, |m| freed.push(m.buffer.0));
        freed
    }

    fn consume(flow: &mut SendFlow, low: u32) -> Option<Vec<u64>> {
        let mut freed = vec![];
        flow.consume(low, |m| freed.push(m.buffer.0)).then_some(freed)
    }

    #[test]
    fn what_arrived_is_kept_until_it_was_read_and_nothing_else_is() {
        let mut flow = flow();
        assert_eq!(confirm(&mut flow, 0, 4), [1, 3]);
        assert!(flow.holds());
        assert_eq!(flow.unconfirmed(), 4, "two that are kept, two under way");
        assert_eq!(consume(&mut flow, 1), Some(vec![0]));
        assert_eq!(consume(&mut flow, 0), Some(vec![]), "older news says nothing new");
        assert_eq!(consume(&mut flow, 7), None, "there is no message 6");
        assert_eq!(consume(&mut flow, u32::MAX - 9), None, "nor is there any before the first");
        assert_eq!(consume(&mut flow, 5), Some(vec![2]));
        assert!(!flow.holds());
        assert_eq!(confirm(&mut flow, 4, 2), [4, 5], "it was read before that was confirmed");
        assert_eq!(flow.unconfirmed(), 0);
    }

    #[test]
    fn a_flow_that_ends_knows_what_was_read() {
        let mut flow = flow();
        confirm(&mut flow, 0, 1);
        assert_eq!(consume(&mut flow, 3), Some(vec![0]));
        let mut ended = vec![];
        flow.end(None, |m, fate| ended.push((m.buffer.0, fate)));
        let unknown = |n| (n, Fate::Unknown);
        assert_eq!(ended, [unknown(1), (2, Fate::Read), unknown(3), unknown(4), unknown(5)]);
        let mut flow = self::flow();
        confirm(&mut flow, 0, 1);
        flow.end(None, |m, fate| ended.push((m.buffer.0, fate)));
        assert_eq!(ended[5], unknown(0), "nobody said that it was read");
        assert_eq!((ended.len(), flow.unconfirmed()), (11, 0));
    }

    #[test]
    fn who_wants_nothing_back_keeps_nothing() {
        let mut flow = flow();
        confirm(&mut flow, 0, 1);
        let mut freed = vec![];
        flow.forget_returns(|m| freed.push(m.buffer.0));
        assert_eq!((freed, flow.unconfirmed()), (vec![0], 5));
        assert_eq!(confirm(&mut flow, 1, 5), [1, 2, 3, 4, 5]);
    }
}
