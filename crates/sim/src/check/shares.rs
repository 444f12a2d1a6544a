//! Shares and waits in a contest: equal flows get equal shares of each second (I18), and urgent messages do not wait behind
//! bulk (I19). Afterwards messages go one at a time, each in the time that the links take for it (I21).

use super::PortKey;
use crate::queue::{MS, S, TimeNs};
use std::collections::VecDeque;

/// What was received is counted by spans of this length; a second is any so many of them in a row.
const SPAN_NS: TimeNs = 100 * MS;
const SPANS: usize = (S / SPAN_NS) as usize;
/// Jain's index of a second is at least this, in thousandths.
const JAIN_MIN_PERMILLE: u64 = 900;
/// With fewer urgent messages than this their 99th percentile says nothing.
const URGENT_MIN: usize = 50;
/// Who sends both knows that bulk shares the links for so long after something else was sent (protocol.md §5.11).
const SHARED_NS: TimeNs = 100 * MS;

/// One flow of a contest.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The port that sends.
    pub from: PortKey,
    /// The port that receives.
    pub to: PortKey,
    sent_bytes: u64,
    received_bytes: u64,
    /// Bytes received in each span.
    spans: Vec<u64>,
}

/// What became of a contest's messages.
#[derive(Debug, Default)]
pub struct Ledger {
    flows: Vec<Flow>,
    /// The port that receives urgent messages.
    urgent_to: Option<PortKey>,
    /// Those under way: they arrive in that order.
    urgent: VecDeque<Urgent>,
    sharing: Sharing,
    /// How long each took that was sent while links were known to be shared.
    took_ns: Vec<TimeNs>,
    /// How long each of the others took.
    took_first_ns: Vec<TimeNs>,
    /// The message that is under way alone.
    lone: Option<Lone>,
    /// The first of these that came late: when, and what it was.
    late: Option<(TimeNs, String)>,
}

/// An urgent message under way.
#[derive(Clone, Copy, Debug)]
struct Urgent {
    sent_ns: TimeNs,
    /// Links were known to be shared, and had time to become what they are to be then.
    shared: bool,
}

/// Since when it has been known that bulk is not alone.
#[derive(Clone, Copy, Debug, Default)]
struct Sharing {
    /// Links have become what they are to be when it has been known for so long.
    settles_ns: TimeNs,
    since_ns: TimeNs,
    last_ns: Option<TimeNs>,
}

impl Sharing {
    /// An urgent message is sent beside bulk: whether its links are known to be shared, and have become so.
    fn on_urgent(&mut self, at_ns: TimeNs) -> bool {
        if self.last_ns.is_none_or(|last_ns| at_ns - last_ns >= SHARED_NS) {
            self.since_ns = at_ns;
        }
        self.last_ns = Some(at_ns);
        at_ns - self.since_ns > self.settles_ns
    }
}

/// A message while nothing else is sent.
#[derive(Clone, Copy, Debug)]
struct Lone {
    to: PortKey,
    bytes: usize,
    sent_ns: TimeNs,
    /// It takes no longer than this.
    max_ns: TimeNs,
}

impl Ledger {
    /// A flow takes part.
    pub fn add_flow(&mut self, from: PortKey, to: PortKey) {
        self.flows.push(Flow { from, to, sent_bytes: 0, received_bytes: 0, spans: Vec::new() });
    }

    /// Urgent messages go to this port. Links that have been known to be shared for `settles_ns` are what they are to be then.
    pub fn set_urgent(&mut self, to: PortKey, settles_ns: TimeNs) {
        self.urgent_to = Some(to);
        self.sharing.settles_ns = settles_ns;
    }

    /// The flows.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Bytes of flow `index` that were accepted and not received.
    pub fn ahead_bytes(&self, index: usize) -> u64 {
        self.flows[index].sent_bytes - self.flows[index].received_bytes
    }

    /// A message of flow `index` was accepted.
    pub fn on_sent(&mut self, index: usize, bytes: usize) {
        self.flows[index].sent_bytes += bytes as u64;
    }

    /// An urgent message was accepted.
    pub fn on_urgent_sent(&mut self, at_ns: TimeNs) {
        let shared = self.sharing.on_urgent(at_ns);
        self.urgent.push_back(Urgent { sent_ns: at_ns, shared });
    }

    /// A message was accepted while nothing else was under way, and is to take no longer than `max_ns`.
    pub fn on_lone_sent(&mut self, sent_ns: TimeNs, to: PortKey, bytes: usize, max_ns: TimeNs) {
        self.lone = Some(Lone { to, bytes, sent_ns, max_ns });
    }

    /// Whether nothing of the contest is under way.
    pub fn is_quiet(&self) -> bool {
        let received = |flow: &Flow| flow.sent_bytes == flow.received_bytes;
        self.lone.is_none() && self.urgent.is_empty() && self.flows.iter().all(received)
    }

    /// I21: the first lone message that came late.
    pub fn late(&self) -> Option<(TimeNs, String)> {
        self.late.clone()
    }

    /// A port received a message.
    pub fn on_received(&mut self, at_ns: TimeNs, to: PortKey, bytes: usize) {
        if let Some(lone) = self.lone.filter(|lone| lone.to == to) {
            self.lone = None;
            let (took_ns, Lone { bytes, sent_ns, max_ns, .. }) = (at_ns - lone.sent_ns, lone);
            if took_ns > max_ns {
                let what = format!("a lone message of {bytes} bytes took {took_ns} ns, not {max_ns}");
                self.late.get_or_insert((sent_ns, what));
            }
            return;
        }
        if self.urgent_to == Some(to) {
            let Some(Urgent { sent_ns, shared }) = self.urgent.pop_front() else { return };
            let took_ns = if shared { &mut self.took_ns } else { &mut self.took_first_ns };
            return took_ns.push(at_ns - sent_ns);
        }
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.to == to) else { return };
        flow.received_bytes += bytes as u64;
        let span = (at_ns / SPAN_NS) as usize;
        flow.spans.resize(flow.spans.len().max(span + 1), 0);
        flow.spans[span] += bytes as u64;
    }

    /// I18: the first second between the two times in which shares were not fair, and what they were.
    pub fn unfair(&self, from_ns: TimeNs, until_ns: TimeNs) -> Option<(TimeNs, String)> {
        let mut seconds = self.seconds(from_ns, until_ns);
        let (at_ns, shares) = seconds.find(|(_, shares)| jain_permille(shares) < JAIN_MIN_PERMILLE)?;
        let index = jain_permille(&shares);
        Some((at_ns, format!("flows got {shares:?} bytes in a second: Jain's index is {index} / 1000")))
    }

    /// Jain's index of the least fair second between the two times, in thousandths.
    pub fn least_permille(&self, from_ns: TimeNs, until_ns: TimeNs) -> Option<u64> {
        self.seconds(from_ns, until_ns).map(|(_, shares)| jain_permille(&shares)).min()
    }

    /// Each second that begins with a span and lies between the two times: when it begins, and the bytes of each flow.
    fn seconds(&self, from_ns: TimeNs, until_ns: TimeNs) -> impl Iterator<Item = (TimeNs, Vec<u64>)> {
        let first = from_ns.div_ceil(SPAN_NS) as usize;
        let end = ((until_ns / SPAN_NS) as usize + 1).saturating_sub(SPANS);
        let shares = |span| self.flows.iter().map(|flow| flow.second(span)).collect();
        (first..end).map(move |span| (span as u64 * SPAN_NS, shares(span)))
    }

    /// I19: what was too long: 99 of 100 urgent messages by links known to be shared take no longer than `max_ns`, and no other
    /// longer than `first_max_ns`.
    pub fn slow(&self, max_ns: TimeNs, first_max_ns: TimeNs) -> Option<String> {
        let slowest_ns = self.took_first_ns.iter().copied().max().filter(|took_ns| *took_ns > first_max_ns);
        if let Some(took_ns) = slowest_ns {
            return Some(format!("a first urgent message took {took_ns} ns, not {first_max_ns}"));
        }
        let p99_ns = self.urgent_p99_ns()?;
        let count = self.took_ns.len();
        let text = || format!("99 of 100 of {count} urgent messages took {p99_ns} ns, not {max_ns}");
        (p99_ns > max_ns).then(text)
    }

    /// What 99 of 100 urgent messages took by links known to be shared.
    pub fn urgent_p99_ns(&self) -> Option<TimeNs> {
        let mut took_ns = self.took_ns.clone();
        took_ns.sort_unstable();
        let count = took_ns.len();
        (count >= URGENT_MIN).then(|| took_ns[(count * 99).div_ceil(100) - 1])
    }

    /// Urgent messages received.
    pub fn urgent_count(&self) -> u64 {
        (self.took_ns.len() + self.took_first_ns.len()) as u64
    }
}

impl Flow {
    /// Bytes received in the second that begins with a span.
    fn second(&self, span: usize) -> u64 {
        self.spans.iter().skip(span).take(SPANS).sum()
    }
}

/// Jain's index of fairness in thousandths: 1000 if all are equal, 1000 / n if one has all. Nothing for all is not fair.
fn jain_permille(shares: &[u64]) -> u64 {
    let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let squares: u128 = shares.iter().map(|share| u128::from(*share).pow(2)).sum();
    (sum * sum * 1_000).checked_div(squares * shares.len() as u128).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(port: u32) -> PortKey {
        PortKey { node: 0, life: 0, port }
    }

    fn ledger(flows: u32) -> Ledger {
        let mut ledger = Ledger::default();
        (0..flows).for_each(|flow| ledger.add_flow(port(100 + flow), port(flow)));
        ledger
    }

    #[test]
    fn the_index_is_one_for_equal_shares_and_less_for_others() {
        assert_eq!(jain_permille(&[5, 5, 5]), 1_000);
        assert_eq!(jain_permille(&[9, 0, 0]), 333);
        assert_eq!(jain_permille(&[2, 1]), 900);
        assert_eq!(jain_permille(&[201, 100]), 898);
        assert_eq!(jain_permille(&[0, 0]), 0);
    }

    #[test]
    fn one_unfair_second_is_found_wherever_it_begins() {
        let mut ledger = ledger(2);
        for ms in (0..3_000).step_by(10) {
            ledger.on_received(ms * MS, port(0), 1_000);
            if !(1_150..1_700).contains(&ms) {
                ledger.on_received(ms * MS, port(1), 1_000);
            }
        }
        let (at_ns, what) = ledger.unfair(0, 3 * S).unwrap();
        assert!((600 * MS..=800 * MS).contains(&at_ns), "{at_ns} {what}");
        assert_eq!(ledger.unfair(0, S), None);
        assert_eq!(ledger.unfair(1_700 * MS, 3 * S), None);
        assert!(ledger.unfair(3 * S, 5 * S).is_some(), "nothing for all is not fair");
    }

    /// Sends so many urgent messages, one each millisecond from `at_ns` on, that take so long.
    fn urgent(ledger: &mut Ledger, at_ns: TimeNs, took_ns: TimeNs, count: u64) {
        for sent_ns in (0..count).map(|n| at_ns + n * MS) {
            ledger.on_urgent_sent(sent_ns);
            ledger.on_received(sent_ns + took_ns, port(9), 64);
        }
    }

    #[test]
    fn urgent_messages_that_wait_are_found_if_they_are_more_than_one_in_a_hundred() {
        let mut ledger = ledger(1);
        ledger.set_urgent(port(9), 0);
        let mut send = |at_ms: TimeNs, took_ns: TimeNs, count: u64| {
            urgent(&mut ledger, at_ms * MS, took_ns, count);
            ledger.slow(10, 10).is_some()
        };
        assert!(!send(1, 10, 100), "the first one apart");
        assert!(!send(101, 1_000, 1));
        assert!(send(102, 11, 1));
        assert_eq!(Ledger::default().slow(0, 0), None);
    }

    #[test]
    fn urgent_messages_are_first_until_links_have_been_shared_for_long_enough_and_after_each_pause() {
        let mut ledger = ledger(1);
        ledger.set_urgent(port(9), 4 * MS);
        urgent(&mut ledger, MS, 100, 60);
        assert_eq!((ledger.took_first_ns.len(), ledger.took_ns.len()), (5, 55));
        assert_eq!(ledger.slow(10, 100), Some("99 of 100 of 55 urgent messages took 100 ns, not 10".into()));
        assert_eq!(ledger.slow(100, 99), Some("a first urgent message took 100 ns, not 99".into()));
        assert_eq!(ledger.slow(100, 100), None);
        urgent(&mut ledger, 60 * MS + SHARED_NS - 1, 100, 1);
        assert_eq!(ledger.took_first_ns.len(), 5);
        urgent(&mut ledger, 60 * MS + 2 * SHARED_NS - 1, 101, 1);
        assert_eq!(ledger.took_first_ns.len(), 6);
        assert_eq!(ledger.slow(100, 100), Some("a first urgent message took 101 ns, not 100".into()));
    }

    #[test]
    fn a_lone_message_that_comes_late_is_found() {
        let mut ledger = ledger(1);
        for (took_ns, late) in [(100, false), (101, true)] {
            assert!(ledger.is_quiet());
            ledger.on_lone_sent(5, port(9), 64, 100);
            assert!(!ledger.is_quiet());
            ledger.on_received(5 + took_ns, port(9), 64);
            assert_eq!(ledger.late().is_some(), late);
        }
    }

    #[test]
    fn what_is_under_way_is_ahead() {
        let mut ledger = ledger(2);
        ledger.on_sent(1, 500);
        ledger.on_sent(1, 500);
        ledger.on_received(1, port(1), 500);
        assert_eq!((ledger.ahead_bytes(0), ledger.ahead_bytes(1)), (0, 500));
    }
}
