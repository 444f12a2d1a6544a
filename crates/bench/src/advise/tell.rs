//! Advice in plain words, each with its evidence.

use super::against::Held;
use super::ask::Advice;
use super::choice::{Evidence, Ratio};
use super::question::{Finding, Question};
use super::sizes::SizeAdvice;
use crate::report::{said, short};
use crate::workload::Workload;

/// Candidates that are told of each finding; the document has all.
const TOLD: usize = 4;
/// A choice that is worse than the best by no more than this is as good.
const WITHIN: f64 = 1.05;

pub(super) fn render(advice: &Advice) -> String {
    let mut text = String::new();
    for question in Question::ALL {
        let findings: Vec<&Finding> = advice.findings.iter().filter(|one| one.question == question).collect();
        if !findings.is_empty() {
            text += &format!("{}\n", question.name());
        }
        findings.iter().for_each(|finding| text += &of(finding));
    }
    if !advice.sizes.is_empty() {
        text += "which size to aim at\n";
    }
    advice.sizes.iter().for_each(|one| text += &size(one));
    if !advice.against.is_empty() {
        text += "held against the sweep\n";
    }
    advice.against.iter().for_each(|one| text += &against(one));
    if !advice.against.is_empty() {
        let within = advice.against.iter().filter(|one| one.worse_by.ratio <= WITHIN).count();
        text += &format!("  {within} of {} choices are within 5 % of the best\n", advice.against.len());
    }
    if !advice.unknown.is_empty() {
        text += "not known\n";
    }
    for one in &advice.unknown {
        text += &format!("  {}; this would tell: {}\n", one.what, one.command);
    }
    advice.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

/// Each choice and its verdict, a sentence for all conditions of which they are the same.
pub(super) fn sentences(advice: &Advice) -> Vec<String> {
    let mut choices: Vec<(String, Vec<String>)> = Vec::new();
    for finding in &advice.findings {
        let what = format!("{}: {}, {}", finding.question.name(), finding.choice.choice, verdict(finding));
        let conditions = said(&finding.conditions);
        match choices.iter_mut().find(|(known, _)| *known == what) {
            Some((_, all)) => all.push(conditions),
            None => choices.push((what, vec![conditions])),
        }
    }
    let choices = choices.into_iter().map(|(what, all)| format!("{what}: {}", all.join("; ")));
    let sizes = advice.sizes.iter().map(|one| format!("which size to aim at, {}", size(one).trim()));
    choices.chain(sizes).collect()
}

fn verdict(finding: &Finding) -> String {
    let choice = &finding.choice;
    match (choice.stands_out, choice.choice == choice.best) {
        (true, true) => "the best".to_owned(),
        (true, false) => {
            format!("better than what is simpler, and {} is not shown to be better still", choice.best)
        }
        (false, true) => "the simplest of those between which no difference stands out".to_owned(),
        (false, false) => format!("no difference that stands out to {}, and simpler", choice.best),
    }
}

fn of(finding: &Finding) -> String {
    let choice = &finding.choice;
    let mut text = format!("  {}: {}: {}\n", said(&finding.conditions), choice.choice, verdict(finding));
    let chosen = |one: &Evidence| one.name == choice.choice;
    let told =
        choice.evidence.iter().take(TOLD).chain(choice.evidence.iter().skip(TOLD).filter(|one| chosen(one)));
    told.for_each(|one| text += &evidence(finding, one, chosen(one)));
    let more = choice.evidence.len().saturating_sub(TOLD);
    if more > 0 {
        text += &format!("      and {more} more in --json\n");
    }
    if let Some(waiting) = waiting(finding) {
        text += &format!("    {waiting}\n");
    }
    text
}

fn evidence(finding: &Finding, one: &Evidence, is_chosen: bool) -> String {
    let unit = match finding.workload {
        Workload::Stream | Workload::Links | Workload::Buffer => "Mbit/s",
        Workload::Rate => "messages/s",
        _ => "us",
    };
    let ratio = if is_chosen { String::new() } else { format!(", {}", worse(one.worse_by)) };
    let cores = one.cores_used.map_or(String::new(), |cores| format!(", {cores:.2} cores busy"));
    let why_not = one.not_for_choice.map_or(String::new(), |why| format!("; {why}"));
    format!(
        "      {}: {} {unit} ({} to {}, {} samples){ratio}{cores}{why_not}\n",
        one.name,
        short(one.median),
        short(one.low),
        short(one.high),
        one.samples
    )
}

fn worse(by: Ratio) -> String {
    let Ratio { ratio, low, high } = by;
    let (ratio, low, high, word) = if ratio >= 1.0 {
        (ratio, low, high, "worse")
    } else {
        (1.0 / ratio, 1.0 / high, 1.0 / low, "better")
    };
    format!("{word} by a factor of {ratio:.2} ({low:.2} to {high:.2})")
}

/// What adaptive waiting costs and spares, beside the two others.
fn waiting(finding: &Finding) -> Option<String> {
    if finding.question != Question::Wait {
        return None;
    }
    let of = |name: &str| finding.choice.evidence.iter().find(|one| one.name == name);
    let (adaptive, spin, block) = (of("adaptive")?, of("spin"), of("block"));
    let beside = |other: &Evidence| {
        let cores = match (adaptive.cores_used, other.cores_used) {
            (Some(here), Some(there)) => format!(" and {:+.2} cores", here - there),
            _ => String::new(),
        };
        format!("{:+.2} us{cores} beside {}", adaptive.median - other.median, other.name)
    };
    let costs: Vec<String> = [spin, block].into_iter().flatten().map(beside).collect();
    (!costs.is_empty()).then(|| format!("adaptive waiting costs {}", costs.join(", ")))
}

fn size(one: &SizeAdvice) -> String {
    let most = one.n_90_bytes.map_or("nine tenths by none of the sizes measured".to_owned(), |most| {
        format!("nine tenths from {:.0} B on ({:.0} to {:.0})", most.value, most.low, most.high)
    });
    format!(
        "  {}: half of {} Mbit/s is reached from {:.0} B on ({:.0} to {:.0}), {most}\n",
        said(&one.conditions),
        short(one.bandwidth_mbps.value),
        one.n_half_bytes.value,
        one.n_half_bytes.low,
        one.n_half_bytes.high
    )
}

fn against(one: &Held) -> String {
    format!("  {}: {}, best {}: {}\n", said(&one.conditions), one.choice, one.best, worse(one.worse_by))
}
