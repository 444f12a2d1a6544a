//! Choices among candidates whose samples are known.

use super::choice::{Better, Candidate, Choice, choose};

fn candidate(name: &str, rank: usize, values: &[f64]) -> Candidate {
    Candidate {
        name: name.to_owned(),
        values: values.iter().copied().map(Some).collect(),
        document: 0,
        in_turns: true,
        rank,
        not_for_choice: None,
        cores_used: None,
    }
}

/// Eight samples around a middle, by a share up and down.
fn around(middle: f64, share: f64) -> Vec<f64> {
    [-1.0, 0.6, -0.3, 0.9, 0.2, -0.7, 0.4, -0.1].map(|place| middle * (1.0 + share * place)).to_vec()
}

fn chosen(candidates: Vec<Candidate>, better: Better) -> Choice {
    choose(candidates, better).expect("two can be chosen")
}

#[test]
fn what_is_shown_to_be_better_is_chosen_and_stands_out() {
    let both = vec![candidate("simple", 0, &around(10.0, 0.02)), candidate("quick", 1, &around(8.0, 0.02))];
    let lower = chosen(both.clone(), Better::Lower);
    assert_eq!((lower.choice.as_str(), lower.best.as_str(), lower.stands_out), ("quick", "quick", true));
    assert!((lower.evidence[1].worse_by.ratio - 1.25).abs() < 0.01, "{:?}", lower.evidence);
    assert_eq!(chosen(both, Better::Higher).choice, "simple");
}

#[test]
fn within_the_spread_the_simpler_is_chosen_and_nothing_stands_out() {
    let mut reversed = around(9.9, 0.1);
    reversed.reverse();
    let choice = chosen(
        vec![candidate("quick", 1, &reversed), candidate("simple", 0, &around(10.0, 0.1))],
        Better::Lower,
    );
    assert_eq!((choice.choice.as_str(), choice.stands_out), ("simple", false));
}

#[test]
fn what_is_shown_but_smaller_than_matters_is_no_reason_for_what_is_less_simple() {
    let all = vec![candidate("simple", 0, &around(10.0, 0.001)), candidate("quick", 1, &around(9.9, 0.001))];
    assert_eq!(chosen(all, Better::Lower).choice, "simple");
}

#[test]
fn a_drift_that_both_have_does_not_hide_a_difference_of_samples_taken_in_turns() {
    let drift: Vec<f64> = (1..=8).map(f64::from).collect();
    let slower: Vec<f64> = drift.iter().map(|value| value * 1.1).collect();
    let mut all = vec![candidate("simple", 0, &slower), candidate("quick", 1, &drift)];
    assert_eq!(chosen(all.clone(), Better::Lower).choice, "quick");
    all[0].document = 1;
    assert_eq!(chosen(all, Better::Lower).choice, "simple", "taken at different times, the drift may be all");
}

#[test]
fn what_must_not_be_chosen_and_what_was_looked_at_once_are_told_only() {
    let mut unreliable = candidate("unreliable", 0, &around(5.0, 0.02));
    unreliable.not_for_choice = Some("promises no delivery");
    let all = vec![
        unreliable,
        candidate("looked at once", 0, &[10.1, 10.2]),
        candidate("slow", 1, &around(12.0, 0.02)),
        candidate("quick", 2, &around(10.0, 0.02)),
    ];
    let choice = chosen(all, Better::Lower);
    assert_eq!((choice.choice.as_str(), choice.evidence.len()), ("quick", 4));
    assert_eq!(choice.evidence[0].name, "unreliable");
    let told = |name: &str| choice.evidence.iter().find(|one| one.name == name).unwrap().not_for_choice;
    assert!(told("unreliable").is_some() && told("looked at once").is_some() && told("slow").is_none());
}

#[test]
fn one_candidate_is_no_choice() {
    assert!(choose(vec![candidate("only", 0, &around(1.0, 0.1))], Better::Lower).is_none());
    let empty = candidate("failed", 1, &[]);
    assert!(choose(vec![candidate("only", 0, &around(1.0, 0.1)), empty], Better::Lower).is_none());
}
