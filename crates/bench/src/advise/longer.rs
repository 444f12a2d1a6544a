//! A third look, where the second one leaves open whether the choice is the best, or another look says otherwise: what is chosen and
//! what may be better, in turns, for longer.

use super::choice::{Better, Choice};
use super::question::{Group, Question, figure, groups};
use crate::args::BenchArgs;
use crate::report::{Measured, MeasuredRow};
use crate::stats::median;

/// A choice that may be worse than the best by more than this is looked at once more.
const OPEN: f64 = 1.05;
/// Repetitions of that look.
const LOOK_LONGER: u32 = 15;
/// Its window, in seconds.
const WINDOW_S: f64 = 0.2;

/// By how much the choice may be worse than what has the best median, as far as the samples say: 1 is not at all.
fn may_be_worse_by(choice: &Choice) -> f64 {
    let best = choice.evidence.iter().find(|one| one.name == choice.best);
    best.filter(|_| choice.best != choice.choice).map_or(1.0, |best| 1.0 / best.worse_by.low)
}

/// What was better than the choice by more than [`OPEN`] in any of the looks, and by how much at most: one look may have been disturbed
/// that the other was not, and the medians of the later one alone would decide.
fn once_better(group: &Group, choice: &str) -> Option<(String, f64)> {
    let middle = |row: &MeasuredRow| {
        let (_, better, values) = figure(row)?;
        let middle =
            median(&values.iter().flatten().copied().collect::<Vec<_>>()).filter(|middle| *middle > 0.0)?;
        Some(if better == Better::Higher { 1.0 / middle } else { middle })
    };
    let of_choice = group.rows.iter().filter(|(_, row)| row.protocol == choice);
    let all = of_choice.flat_map(|(document, chosen)| {
        let rivals = group.rows.iter().filter(move |(other, row)| other == document && row.reliable);
        rivals.filter_map(move |(_, row)| Some((row.protocol.clone(), middle(chosen)? / middle(row)?)))
    });
    all.filter(|(_, by)| *by > OPEN).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The most open choice that was not looked at for longer yet, as what is to be measured; `orders` are those that gave the documents.
pub(super) fn most_open(documents: &[Measured], orders: &[BenchArgs]) -> Option<BenchArgs> {
    let all = Question::ALL.into_iter().flat_map(|question| groups(question, documents));
    let open = all.filter_map(|group| Some((group.finding()?.choice, group)));
    let open = open.filter_map(|(choice, group)| {
        let once = match group.question {
            Question::Protocol => once_better(&group, &choice.choice),
            _ => None,
        };
        let by = once.iter().map(|(_, by)| *by).fold(may_be_worse_by(&choice), f64::max);
        Some((by, longer(&group, &choice, once.map(|(name, _)| name), orders)?))
    });
    open.filter(|(by, _)| *by > OPEN).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, order)| order)
}

/// What decides between the choice, the best and what was better `once`; none where that was measured.
fn longer(group: &Group, choice: &Choice, once: Option<String>, orders: &[BenchArgs]) -> Option<BenchArgs> {
    let (document, row) = group.rows.last()?;
    let order = orders.get(*document)?;
    let was_longer =
        |document: usize| orders.get(document).is_some_and(|one| one.repeat >= Some(LOOK_LONGER));
    // What another question was looked at for has one candidate of this one at most.
    if group.rows.iter().filter(|(document, _)| was_longer(*document)).count() > 1 {
        return None;
    }
    let protocol = match group.question {
        Question::Protocol => {
            let mut names = vec![choice.choice.clone(), choice.best.clone()];
            names.extend(once);
            names.dedup();
            names
        }
        _ => order.protocol.clone(),
    };
    Some(BenchArgs {
        protocol,
        size: vec![row.size.to_string()],
        repeat: Some(LOOK_LONGER),
        duration: order.duration.map(|window_s| window_s.max(WINDOW_S)),
        ..order.clone()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::args::Placement;
    use crate::host::Host;
    use crate::report::MeasuredRow;
    use crate::wait::WaitMode;
    use crate::workload::Workload;

    fn row(protocol: &str, size: usize, us: &[f64]) -> MeasuredRow {
        let mut conditions = Map::new();
        conditions.insert("size".to_owned(), json!(size));
        MeasuredRow {
            workload: Workload::PingPong,
            protocol: protocol.to_owned(),
            reliable: true,
            placement: Placement::Inter,
            links: 1,
            rate_mbit: vec![None],
            size,
            wait: WaitMode::Adaptive,
            socket_buffer_max: None,
            conditions,
            throughput_mbps: Vec::new(),
            rate_per_s: Vec::new(),
            latency_p50_us: us.iter().copied().map(Some).collect(),
            cpu_s_per_gb: [Vec::new(), Vec::new()],
            cores_used: Vec::new(),
            cacheline_ns: Vec::new(),
        }
    }

    fn document(rows: Vec<MeasuredRow>) -> Measured {
        Measured {
            source: "test".to_owned(),
            host: Host::here(),
            peer_host: None,
            rows,
            unavailable: Vec::new(),
            error: None,
        }
    }

    fn order(protocols: &[&str], repeat: u32) -> BenchArgs {
        BenchArgs {
            workload: Some(Workload::PingPong),
            protocol: protocols.iter().map(|&name| name.to_owned()).collect(),
            repeat: Some(repeat),
            duration: Some(0.06),
            ..BenchArgs::default()
        }
    }

    const WIDE: [f64; 6] = [9.7, 11.0, 11.8, 11.2, 10.1, 11.6];
    const OTHER: [f64; 6] = [11.9, 10.1, 10.4, 11.7, 10.2, 10.9];

    #[test]
    fn what_samples_leave_open_is_looked_at_for_longer_and_once() {
        let of_64 = [row("tcp-nodelay", 64, &WIDE), row("polyrail", 64, &OTHER)];
        let sure = [row("tcp-nodelay", 128, &[10.0; 6]), row("polyrail", 128, &[5.0; 6])];
        let mut documents = vec![document([of_64, sure].concat())];
        let mut orders = vec![order(&["tcp-nodelay", "polyrail", "zmq"], 6)];
        let next = most_open(&documents, &orders).expect("one of 64 B is open");
        assert_eq!(
            (next.protocol.join(" "), next.size.join(" ")),
            ("tcp-nodelay polyrail".into(), "64".into())
        );
        assert_eq!((next.repeat, next.duration), (Some(LOOK_LONGER), Some(0.2)));

        // As wide as before: nothing more is to be had by the same look again.
        documents.push(document(vec![
            row("tcp-nodelay", 64, &WIDE.repeat(3)[..15]),
            row("polyrail", 64, &OTHER.repeat(3)[..15]),
        ]));
        orders.push(next);
        assert!(most_open(&documents, &orders).is_none());

        // Nor if one of the two was measured once more since, for another question.
        documents.push(document(vec![row("polyrail", 64, &OTHER[..3])]));
        orders.push(order(&["polyrail"], 3));
        assert!(most_open(&documents, &orders).is_none());
    }

    #[test]
    fn what_was_better_at_one_look_takes_part_though_it_was_worse_at_the_next() {
        let [quick, slow] = [[10.0; 4], [20.0; 4]].map(|us| us.to_vec());
        let looks = [
            document(vec![
                row("tcp-nodelay", 64, &[11.0; 4]),
                row("polyrail", 64, &quick),
                row("zmq", 64, &slow),
            ]),
            document(vec![row("tcp-nodelay", 64, &[11.0; 6]), row("polyrail", 64, &[14.0; 6])]),
        ];
        let orders = [order(&["tcp-nodelay", "polyrail", "zmq"], 4), order(&["tcp-nodelay", "polyrail"], 6)];
        let next = most_open(&looks, &orders).expect("the looks contradict each other");
        assert_eq!(next.protocol, ["tcp-nodelay", "polyrail"]);
        // Less than what matters is no contradiction.
        let alike = [
            document(vec![row("tcp-nodelay", 64, &[10.4; 4]), row("polyrail", 64, &quick)]),
            document(vec![row("tcp-nodelay", 64, &[11.0; 6]), row("polyrail", 64, &[14.0; 6])]),
        ];
        assert!(most_open(&alike, &orders).is_none());
    }

    #[test]
    fn the_choice_that_may_be_worst_off_comes_first_and_small_differences_never() {
        let near =
            [row("tcp-nodelay", 32, &[10.0, 10.1, 10.0, 10.2, 10.1, 10.0]), row("polyrail", 32, &[9.9; 6])];
        let open = [row("tcp-nodelay", 64, &WIDE), row("polyrail", 64, &OTHER)];
        let stretched = WIDE.map(|us| if us < 11.5 { us } else { 2.0 * us });
        let wider = [row("tcp-nodelay", 96, &stretched), row("polyrail", 96, &OTHER)];
        let orders = [order(&["tcp-nodelay", "polyrail"], 6)];
        let first =
            |rows: Vec<MeasuredRow>| most_open(&[document(rows)], &orders).map(|next| next.size.join(""));
        assert_eq!(first(near.to_vec()), None);
        assert_eq!(first([near, open, wider].concat()).as_deref(), Some("96"));
    }
}
