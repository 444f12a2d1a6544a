//! How late the messages around a cut were, and how much of that the machine itself was away.

use serde::{Deserialize, Serialize};

use super::goodput::Goodput;
use crate::control::Span;

/// One message in the receiver's hands; times are of the machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Which one it is, counted from 0.
    pub number: u64,
    /// When it was due to be sent, in ns.
    pub scheduled_ns: u64,
    /// When the sender got to it, in ns: later, if the protocol still held up the one before.
    pub begun_ns: u64,
    /// When the receiver had it, in ns.
    pub delivered_ns: u64,
}

impl Delivery {
    fn late_ns(&self) -> u64 {
        self.delivered_ns.saturating_sub(self.scheduled_ns)
    }
}

/// A time in which a core ran nothing of ours, in ns of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
}

/// What one cut did to the watched flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Lateness of the latest message that the cut concerned, in ns.
    pub gap_ns: u64,
    /// The largest lateness once the machine's own stalls are subtracted from each, in ns.
    pub gap_net_ns: u64,
    /// The latest message.
    pub worst: Delivery,
    /// Longest time without any delivery, from the cut on, in ns.
    pub silence_ns: u64,
    /// Messages that the cut concerned.
    pub messages: u64,
    /// How late the flow was at the moment of the cut, in ns: what an earlier cut had left behind.
    pub before_ns: u64,
    /// Largest lateness of what was due after the link cut before had come back, until the calm, in ns.
    pub aftermath_ns: u64,
    /// Whether a message due before the link's return had not come when it was given up. It counts as delivered at
    /// that moment.
    pub unfinished: bool,
    /// What arrived while the link was away; none if that was too short.
    #[serde(default)]
    pub(crate) goodput: Option<Goodput>,
}

/// What a message is evidence of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// How the return of the link cut before went.
    Aftermath,
    /// The flow undisturbed.
    Calm,
    /// The cut.
    Cut,
    /// Nothing yet: due after the link's return.
    Later,
}

/// Every message belongs to one phase, so that none is left out and none counts twice. What was due before the calm
/// is late because of what happened before: it says nothing of this cut, however late it comes.
fn phase(delivery: &Delivery, span: Span) -> Phase {
    match delivery.scheduled_ns {
        due_ns if due_ns > span.restored_ns => Phase::Later,
        due_ns if due_ns < span.calm_ns => Phase::Aftermath,
        _ if delivery.delivered_ns < span.cut_ns => Phase::Calm,
        _ => Phase::Cut,
    }
}

/// Judges a cut at `now_ns` by all that was delivered since the cut before, in the order of arrival.
pub(crate) fn judge(log: &[Delivery], stalls: &[Stall], span: Span, now_ns: u64) -> Judgement {
    let stalls = merged(stalls);
    let absent = first_absent(log, span, now_ns);
    let mut judgement = Judgement { unfinished: absent.is_some(), ..Judgement::default() };
    let mut last_ns = span.cut_ns;
    for delivery in log.iter().chain(&absent) {
        let (phase, late_ns) = (phase(delivery, span), delivery.late_ns());
        if phase != Phase::Later && delivery.delivered_ns >= span.cut_ns {
            let due_before_ns = span.cut_ns.saturating_sub(delivery.scheduled_ns);
            judgement.before_ns = judgement.before_ns.max(due_before_ns);
            judgement.silence_ns = judgement.silence_ns.max(delivery.delivered_ns.saturating_sub(last_ns));
            last_ns = delivery.delivered_ns;
        }
        match phase {
            Phase::Cut => judgement.count(delivery, &stalls),
            Phase::Aftermath => judgement.aftermath_ns = judgement.aftermath_ns.max(late_ns),
            Phase::Calm | Phase::Later => {}
        }
    }
    judgement
}

impl Judgement {
    /// Takes a message that the cut concerned.
    fn count(&mut self, delivery: &Delivery, stalls: &[Stall]) {
        let late_ns = delivery.late_ns();
        self.messages += 1;
        if late_ns > self.gap_ns {
            (self.gap_ns, self.worst) = (late_ns, *delivery);
        }
        if late_ns > self.gap_net_ns {
            let stalled_ns = overlap_ns(stalls, delivery.scheduled_ns, delivery.delivered_ns);
            self.gap_net_ns = self.gap_net_ns.max(late_ns - stalled_ns);
        }
    }
}

/// The first message due before the link's return that is missing, as if it came now; when it was due is not known
/// better than that it was after its predecessor.
fn first_absent(log: &[Delivery], span: Span, now_ns: u64) -> Option<Delivery> {
    let mut known: Vec<&Delivery> = log.iter().collect();
    known.sort_by_key(|delivery| delivery.number);
    let begun = known.partition_point(|delivery| delivery.scheduled_ns <= span.restored_ns);
    let hole = known.windows(2).take(begun).find(|pair| pair[1].number > pair[0].number + 1);
    let predecessor = match (hole, known.get(begun)) {
        (Some(pair), _) => pair[0],
        (None, Some(_)) => return None,
        (None, None) => match known.last() {
            Some(last) => last,
            None => &Delivery { scheduled_ns: span.cut_ns, ..Delivery::default() },
        },
    };
    let (number, scheduled_ns) = (predecessor.number + 1, predecessor.scheduled_ns);
    Some(Delivery { number, scheduled_ns, begun_ns: scheduled_ns, delivered_ns: now_ns })
}

/// Lateness of what was due and arrived in the calm before a cut, in ns.
pub(crate) fn calm_lateness_ns(log: &[Delivery], span: Span) -> impl Iterator<Item = u64> {
    log.iter().filter(move |delivery| phase(delivery, span) == Phase::Calm).map(Delivery::late_ns)
}

/// Stalls of several cores as one row without overlaps: while either core is away, the flow may be.
fn merged(stalls: &[Stall]) -> Vec<Stall> {
    let mut sorted = stalls.to_vec();
    sorted.sort_by_key(|stall| stall.from_ns);
    let mut row: Vec<Stall> = Vec::with_capacity(sorted.len());
    for stall in sorted {
        match row.last_mut() {
            Some(last) if stall.from_ns <= last.until_ns => last.until_ns = last.until_ns.max(stall.until_ns),
            _ => row.push(stall),
        }
    }
    row
}

fn overlap_ns(stalls: &[Stall], from_ns: u64, until_ns: u64) -> u64 {
    let overlap = |stall: &Stall| stall.until_ns.min(until_ns).saturating_sub(stall.from_ns.max(from_ns));
    stalls.iter().map(overlap).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        calm_ns: 500,
        cut_ns: 1_000,
        counted_from_ns: 1_500,
        counted_until_ns: 1_990,
        restored_ns: 2_000,
    };
    const NOW_NS: u64 = 20_000;

    /// Messages (due, delivered), numbered as they stand.
    fn log(times_ns: &[(u64, u64)]) -> Vec<Delivery> {
        let delivery = |(number, &(scheduled_ns, delivered_ns))| Delivery {
            number,
            scheduled_ns,
            begun_ns: scheduled_ns,
            delivered_ns,
        };
        (7..).zip(times_ns).map(delivery).collect()
    }

    fn judged(times_ns: &[(u64, u64)], stalls: &[Stall]) -> Judgement {
        judge(&log(times_ns), stalls, SPAN, NOW_NS)
    }

    #[test]
    fn the_gap_is_the_lateness_of_the_latest_message_that_the_cut_concerned() {
        let times_ns = [
            (600, 990),     // Late, but in hand before the cut.
            (950, 1_300),   // Under way when the link was cut.
            (1_500, 1_510), //
            (1_990, 2_400), // Due before the link's return, in hand after it.
            (2_001, 9_000), // Due after it.
        ];
        let judgement = judged(&times_ns, &[]);
        assert_eq!((judgement.gap_ns, judgement.gap_net_ns, judgement.messages), (410, 410, 3));
        assert_eq!(judgement.worst, log(&times_ns)[3]);
        assert_eq!((judgement.silence_ns, judgement.before_ns), (890, 50));
        assert!(!judgement.unfinished);
    }

    #[test]
    fn what_an_earlier_cut_made_late_does_not_count_to_this_one() {
        // Due before the calm and still under way at the cut: 900 late, of which the next cut is not guilty.
        let judgement = judged(&[(450, 1_350), (1_350, 1_360), (2_100, 2_110)], &[]);
        assert_eq!((judgement.gap_ns, judgement.messages), (10, 1));
        assert_eq!((judgement.aftermath_ns, judgement.before_ns), (900, 550));
    }

    #[test]
    fn what_is_late_after_a_return_counts_to_it_and_to_no_cut() {
        let mut log = log(&[(1_000, 1_010), (2_001, 2_800), (2_300, 2_801), (3_500, 3_505)]);
        assert_eq!(judge(&log, &[], SPAN, NOW_NS).gap_ns, 10);
        log.retain(|delivery| delivery.scheduled_ns > SPAN.restored_ns);
        let next = Span { calm_ns: 3_000, cut_ns: 3_600, restored_ns: 4_000, ..SPAN };
        log.push(Delivery { number: 11, scheduled_ns: 4_100, begun_ns: 4_100, delivered_ns: 4_100 });
        let judgement = judge(&log, &[], next, NOW_NS);
        assert_eq!((judgement.aftermath_ns, judgement.gap_ns, judgement.unfinished), (799, 0, false));
        assert_eq!(calm_lateness_ns(&log, next).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn every_message_belongs_to_one_phase() {
        let phase = |scheduled_ns, delivered_ns| phase(&log(&[(scheduled_ns, delivered_ns)])[0], SPAN);
        assert_eq!(phase(499, 501), Phase::Aftermath);
        assert_eq!(phase(499, 5_000), Phase::Aftermath);
        assert_eq!(phase(500, 999), Phase::Calm);
        assert_eq!(phase(500, 1_000), Phase::Cut);
        assert_eq!(phase(2_000, 9_000), Phase::Cut);
        assert_eq!(phase(2_001, 9_000), Phase::Later);
    }

    #[test]
    fn a_message_that_never_comes_is_as_late_as_the_judgement() {
        // Nothing after the second one: its successor was due later than it.
        let judgement = judged(&[(900, 910), (1_200, 1_210)], &[]);
        assert!(judgement.unfinished);
        assert_eq!((judgement.gap_ns, judgement.silence_ns), (NOW_NS - 1_200, NOW_NS - 1_210));
        assert_eq!(judgement.worst.number, 9);
        // Nothing at all since the cut before.
        assert_eq!(judged(&[], &[]).gap_ns, NOW_NS - 1_000);
    }

    #[test]
    fn a_hole_in_the_numbers_is_noticed_although_later_messages_came() {
        let mut log = log(&[(900, 910), (1_100, 1_110), (1_200, 1_210), (1_300, 1_310), (2_100, 2_110)]);
        log.remove(2);
        let judgement = judge(&log, &[], SPAN, NOW_NS);
        assert_eq!((judgement.unfinished, judgement.worst.number), (true, 9));
        assert_eq!(judgement.gap_ns, NOW_NS - 1_100);
        // One that is due after the link's return is the next judgement's affair.
        let mut log = super::tests::log(&[(1_100, 1_110), (2_100, 2_110), (2_200, 2_210), (2_300, 2_310)]);
        log.remove(2);
        assert!(!judge(&log, &[], SPAN, NOW_NS).unfinished);
        // One that was overtaken is not missing.
        let log = super::tests::log(&[(1_100, 1_400), (1_200, 1_210), (2_100, 2_110)]);
        let overtaken: Vec<Delivery> = [1, 0, 2].map(|place| log[place]).to_vec();
        assert!(!judge(&overtaken, &[], SPAN, NOW_NS).unfinished);
    }

    #[test]
    fn a_sender_that_was_held_up_does_not_make_a_message_less_late() {
        let held_up = Delivery { number: 0, scheduled_ns: 1_100, begun_ns: 1_900, delivered_ns: 1_950 };
        assert_eq!(judge(&[held_up], &[], SPAN, 1_950).gap_ns, 850);
    }

    #[test]
    fn a_stall_is_subtracted_once_however_many_cores_it_met_and_only_where_it_overlaps() {
        let stall = |from_ns, until_ns| Stall { from_ns, until_ns };
        let stalls = [stall(1_100, 1_400), stall(1_200, 1_500), stall(2_150, 3_000), stall(0, 1_000)];
        let judgement = judged(&[(1_000, 1_600), (1_700, 2_200), (2_100, 2_200)], &stalls);
        assert_eq!(judgement.gap_ns, 600, "the gap itself excuses nothing");
        // 600 less 400 of the two cores' common stall; 500 less the 50 that lie before its delivery.
        assert_eq!(judgement.gap_net_ns, 450);
        // A message that never comes is excused by no more than the stalls, either.
        let judgement = judged(&[(1_000, 1_010)], &stalls);
        assert_eq!((judgement.gap_ns, judgement.gap_net_ns), (19_000, 19_000 - 400 - 850));
    }

    #[test]
    fn calm_is_what_was_due_and_arrived_before_the_cut() {
        let log = log(&[(499, 501), (500, 503), (998, 1_000), (990, 999)]);
        assert_eq!(calm_lateness_ns(&log, SPAN).collect::<Vec<_>>(), [3, 9]);
    }
}
