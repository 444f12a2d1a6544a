//! How much of both flows arrived while a link was away.
//!
//! Bulk comes in long messages, so it is counted from the arrival of one to the arrival of another: what is whole between the two
//! has come between the two, and nothing of it is guessed. But a flow that needs long to get on again, and then goes as before,
//! must not look like one that got on at once: then the time until its first message counts.

use serde::{Deserialize, Serialize};

use super::judge::Delivery;
use crate::control::Span;

/// How long a protocol has to get over a cut: the goodput counts from then on.
pub(crate) const GET_OVER_NS: u64 = 50_000_000;

/// Payload that reached the receiving application, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Goodput {
    /// Of both flows, whole messages.
    pub(crate) bytes: u64,
    pub(crate) span_ns: u64,
}

impl Goodput {
    /// In Mbit/s.
    pub(crate) fn mbps(self) -> f64 {
        self.bytes as f64 * 8e3 / self.span_ns as f64
    }
}

/// Lengths of the flows' messages, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) watched: usize,
    pub(super) bulk: usize,
}

/// Counts from the first bulk message of the outage to the first one behind it, or to `now_ns` if that has not come. Where that first
/// one was longer in coming than any after it, from `counted_from_ns`, and with it. Without any bulk message in the outage
/// that alone is counted, in which only the watched flow may have got on. `bulk_ns` and `log` are what arrived, in
/// order; none for an outage that was over before the count began.
pub(super) fn goodput(
    bulk_ns: &[u64],
    log: &[Delivery],
    sizes: Sizes,
    span: Span,
    now_ns: u64,
) -> Option<Goodput> {
    let Span { counted_from_ns, counted_until_ns, .. } = span;
    if counted_until_ns <= counted_from_ns {
        return None;
    }
    let first = bulk_ns.partition_point(|&ns| ns < counted_from_ns);
    let behind = bulk_ns.partition_point(|&ns| ns < counted_until_ns);
    let (from_ns, until_ns, bulk) = match &bulk_ns[first..behind] {
        [] => (counted_from_ns, counted_until_ns, 0),
        within => of_bulk(within, bulk_ns.get(behind).copied(), counted_from_ns, now_ns),
    };
    let watched = log.iter().filter(|delivery| (from_ns..until_ns).contains(&delivery.delivered_ns)).count();
    let bytes = (bulk * sizes.bulk + watched * sizes.watched) as u64;
    Some(Goodput { bytes, span_ns: until_ns.saturating_sub(from_ns).max(1) })
}

/// Where the count begins and ends, and the bulk messages in it.
fn of_bulk(within_ns: &[u64], closing_ns: Option<u64>, from_ns: u64, now_ns: u64) -> (u64, u64, usize) {
    let until_ns = closing_ns.unwrap_or(now_ns);
    // The first one opens the count and is no part of it; the closing one is.
    let messages = within_ns.len() - 1 + usize::from(closing_ns.is_some());
    let ends_ns = within_ns.iter().skip(1).copied().chain([until_ns]);
    let waits_ns = within_ns.iter().zip(ends_ns).map(|(begin_ns, end_ns)| end_ns.saturating_sub(*begin_ns));
    // Several messages may come together, after as many times the time that one takes: so the longest wait is what is usual.
    if within_ns[0] - from_ns > waits_ns.max().unwrap_or(0) {
        return (from_ns, until_ns, messages + 1);
    }
    (within_ns[0], until_ns, messages)
}

/// Whether all has come that [`goodput`] asks for, once the outage is over.
pub(super) fn is_told(bulk_ns: &[u64], span: Span) -> bool {
    let Span { counted_from_ns, counted_until_ns, .. } = span;
    let any = bulk_ns.iter().any(|ns| (counted_from_ns..counted_until_ns).contains(ns));
    !any || bulk_ns.last().is_some_and(|&last_ns| last_ns >= counted_until_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span =
        Span { calm_ns: 0, cut_ns: 500, counted_from_ns: 1_000, counted_until_ns: 2_000, restored_ns: 2_050 };
    const NOW_NS: u64 = 9_000;

    fn log(delivered_ns: &[u64]) -> Vec<Delivery> {
        delivered_ns.iter().map(|&delivered_ns| Delivery { delivered_ns, ..Delivery::default() }).collect()
    }

    /// Bytes and time, where a watched message has 1 byte and one of the bulk 100.
    fn counted(bulk_ns: &[u64], watched_ns: &[u64]) -> Option<(u64, u64)> {
        let sizes = Sizes { watched: 1, bulk: 100 };
        let counted = goodput(bulk_ns, &log(watched_ns), sizes, SPAN, NOW_NS)?;
        Some((counted.bytes, counted.span_ns))
    }

    #[test]
    fn whole_messages_are_counted_from_one_arrival_to_another() {
        let bulk_ns = [900, 1_100, 1_400, 1_700, 2_300, 2_600];
        // Three of bulk in 1,200, and what the watched flow got in the same time.
        assert_eq!(counted(&bulk_ns, &[1_099, 1_100, 1_500, 2_299, 2_300]), Some((303, 1_200)));
        assert!(is_told(&bulk_ns, SPAN));
        assert_eq!(Goodput { bytes: 303, span_ns: 1_200 }.mbps(), 303.0 * 8e3 / 1_200.0);
    }

    #[test]
    fn arrivals_exactly_at_the_bounds_open_and_close_the_count() {
        assert_eq!(counted(&[999, 1_000, 2_000, 2_001], &[]), Some((100, 1_000)));
        assert_eq!(counted(&[999, 1_500, 2_001], &[]), Some((100, 501)));
        // Those that come together count as well.
        assert_eq!(counted(&[1_000, 1_000, 1_500, 1_500, 2_000, 2_000], &[]), Some((400, 1_000)));
    }

    #[test]
    fn messages_that_come_together_make_the_wait_before_them_a_usual_one() {
        let pairs = [800, 801, 1_300, 1_301, 1_800, 1_801, 2_300, 2_301];
        assert_eq!(counted(&pairs, &[]), Some((400, 1_000)));
    }

    #[test]
    fn without_bulk_the_outage_counts_with_what_the_watched_flow_got() {
        for bulk_ns in [&[][..], &[999, 2_000], &[2_000], &[999]] {
            assert_eq!(counted(bulk_ns, &[999, 1_000, 1_999, 2_000]), Some((2, 1_000)), "{bulk_ns:?}");
            assert!(is_told(bulk_ns, SPAN), "nothing that could still come changes it");
        }
        assert_eq!(counted(&[], &[]), Some((0, 1_000)), "both stood still");
    }

    #[test]
    fn a_standstill_counts_before_the_first_message_and_behind_the_last() {
        // It got on after 800, and then came one every 100: three in all that time.
        assert_eq!(counted(&[600, 1_800, 1_900, 2_000], &[1_000, 1_700]), Some((302, 1_000)));
        assert_eq!(counted(&[600, 1_100, 1_200], &[]), Some((100, NOW_NS - 1_100)));
        // It waited no longer than it did again.
        assert_eq!(counted(&[1_100, 1_200, 2_000], &[]), Some((200, 900)));
        // It got on for a moment and then stood still until long after the return.
        assert_eq!(counted(&[1_000, 1_100, 8_000], &[1_050, 7_000]), Some((202, 7_000)));
    }

    #[test]
    fn a_count_that_nothing_closes_lasts_until_the_judgement() {
        assert!(!is_told(&[1_200, 1_400], SPAN));
        assert_eq!(counted(&[1_200, 1_400], &[5_000]), Some((101, NOW_NS - 1_200)));
        assert_eq!(counted(&[1_200], &[]), Some((0, NOW_NS - 1_200)));
    }

    #[test]
    fn an_outage_that_was_over_before_the_count_began_has_none() {
        let short = Span { counted_until_ns: 1_000, ..SPAN };
        assert_eq!(goodput(&[1_000, 1_001], &[], Sizes { watched: 1, bulk: 1 }, short, NOW_NS), None);
        assert!(is_told(&[1_000], short));
    }
}
