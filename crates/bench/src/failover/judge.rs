//! How late the messages around a cut were, and how much of that the machine itself was away.

use serde::{Deserialize, Serialize};

use crate::control::Span;

/// One message in the receiver's hands; times are of the machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// Lateness of the latest message, in ns.
    pub gap_ns: u64,
    /// The largest lateness once the machine's own stalls are subtracted from each, in ns.
    pub gap_net_ns: u64,
    /// The latest message.
    pub worst: Delivery,
    /// Longest time without any delivery, in ns.
    pub silence_ns: u64,
    /// Messages that were under way or due between the cut and the link's return.
    pub messages: u64,
    /// Whether messages due before the link's return had not come when it was given up; the gap is then what had
    /// passed by that time.
    pub unfinished: bool,
}

/// Judges the deliveries, in the order of their arrival, of messages that were under way or due within `span`.
pub(crate) fn judge(deliveries: &[Delivery], stalls: &[Stall], span: Span) -> Judgement {
    let stalls = merged(stalls);
    let mut judgement = Judgement::default();
    let mut last_ns = span.cut_ns;
    let concerned = |delivery: &&Delivery| {
        delivery.delivered_ns >= span.cut_ns && delivery.scheduled_ns <= span.restored_ns
    };
    for delivery in deliveries.iter().filter(concerned) {
        judgement.messages += 1;
        judgement.silence_ns = judgement.silence_ns.max(delivery.delivered_ns.saturating_sub(last_ns));
        last_ns = delivery.delivered_ns;
        let late_ns = delivery.late_ns();
        if late_ns > judgement.gap_ns {
            (judgement.gap_ns, judgement.worst) = (late_ns, *delivery);
        }
        if late_ns > judgement.gap_net_ns {
            let net_ns = late_ns - overlap_ns(&stalls, delivery.scheduled_ns, delivery.delivered_ns);
            judgement.gap_net_ns = judgement.gap_net_ns.max(net_ns);
        }
    }
    judgement
}

/// Lateness of what was due and arrived in the calm before a cut, in ns.
pub(crate) fn calm_lateness_ns(deliveries: &[Delivery], span: Span) -> impl Iterator<Item = u64> {
    let calm = move |delivery: &&Delivery| {
        delivery.scheduled_ns >= span.calm_ns && delivery.delivered_ns < span.cut_ns
    };
    deliveries.iter().filter(calm).map(Delivery::late_ns)
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

    const SPAN: Span = Span { calm_ns: 500, cut_ns: 1_000, restored_ns: 2_000 };

    fn delivery(scheduled_ns: u64, delivered_ns: u64) -> Delivery {
        Delivery { scheduled_ns, begun_ns: scheduled_ns, delivered_ns }
    }

    #[test]
    fn the_gap_is_the_lateness_of_the_latest_message_that_the_cut_concerned() {
        let deliveries = [
            delivery(100, 900),   // Late, but in hand before the cut.
            delivery(950, 1_300), // Under way when the link was cut.
            delivery(1_500, 1_510),
            delivery(1_990, 2_400), // Due before the link's return, in hand after it.
            delivery(2_001, 9_000), // Due after it.
        ];
        let judgement = judge(&deliveries, &[], SPAN);
        assert_eq!((judgement.gap_ns, judgement.gap_net_ns, judgement.messages), (410, 410, 3));
        assert_eq!(judgement.worst, deliveries[3]);
        assert_eq!(judgement.silence_ns, 890);
    }

    #[test]
    fn a_sender_that_was_held_up_does_not_make_a_message_less_late() {
        let held_up = Delivery { scheduled_ns: 1_100, begun_ns: 1_900, delivered_ns: 1_950 };
        assert_eq!(judge(&[held_up], &[], SPAN).gap_ns, 850);
    }

    #[test]
    fn a_stall_is_subtracted_once_however_many_cores_it_met_and_only_where_it_overlaps() {
        let deliveries = [delivery(1_000, 1_600), delivery(1_700, 2_200)];
        let stall = |from_ns, until_ns| Stall { from_ns, until_ns };
        let stalls = [stall(1_100, 1_400), stall(1_200, 1_500), stall(2_150, 3_000), stall(0, 1_000)];
        let judgement = judge(&deliveries, &stalls, SPAN);
        assert_eq!(judgement.gap_ns, 600);
        // 600 less 400 of the two cores' common stall; 500 less the 50 that lie before its delivery.
        assert_eq!(judgement.gap_net_ns, 450);
    }

    #[test]
    fn calm_is_what_was_due_and_arrived_before_the_cut() {
        let deliveries = [delivery(499, 501), delivery(500, 503), delivery(998, 1_000), delivery(990, 999)];
        assert_eq!(calm_lateness_ns(&deliveries, SPAN).collect::<Vec<_>>(), [3, 9]);
    }
}
