//! Settings of a node that follow from the findings, as its file has them. Only what was measured is said; a node's own default
//! stands for the rest.

use super::choice::Choice;
use super::question::{Finding, Question};
use crate::report::said;

/// The protocol whose settings these are.
const PROTOCOL: &str = "polyrail";

/// The file, with the evidence of each line; `machine` says where it was measured.
pub(super) fn toml(findings: &[Finding], machine: &str) -> String {
    let lines = [wait(findings), policy(findings), socket_buffer(findings)];
    let mut text = format!(
        "# Measured on {machine}.\n\
         # Must be said, and is not measured: nothing authenticates a peer (docs/operating.md, \"Security\").\n\
         security = \"none\"\n"
    );
    lines.iter().flatten().for_each(|line| text += &format!("\n{line}\n"));
    text
}

fn of(findings: &[Finding], question: Question) -> impl Iterator<Item = &Finding> {
    let is_ours =
        |finding: &&Finding| finding.conditions.get("protocol").is_none_or(|protocol| protocol == PROTOCOL);
    findings.iter().filter(move |finding| finding.question == question).filter(is_ours)
}

fn evidence(finding: &Finding) -> String {
    let Choice { choice, best, .. } = &finding.choice;
    let shown: Vec<String> =
        finding.choice.evidence.iter().map(|one| format!("{} {:.4}", one.name, one.median)).collect();
    let why = if choice == best { "best" } else { "not shown to be worse than the best" };
    format!("# {}: {choice} is {why} ({}: {})", said(&finding.conditions), finding.figure, shown.join(", "))
}

/// The most eager that any pattern needs.
fn wait(findings: &[Finding]) -> Option<String> {
    let all: Vec<&Finding> = of(findings, Question::Wait).collect();
    let deciding = all.iter().find(|finding| finding.choice.choice == "adaptive").or(all.first())?;
    Some(format!("{}\nwait = \"{}\"", evidence(deciding), deciding.choice.choice))
}

/// One policy serves all messages, so another than the usual one has to be better by what stands out, and nowhere worse.
fn policy(findings: &[Finding]) -> Option<String> {
    let all: Vec<&Finding> = of(findings, Question::Policy).collect();
    let first = all.first()?;
    let name =
        |finding: &Finding| finding.choice.choice.strip_prefix("polyrail-").unwrap_or("adaptive").to_owned();
    let agreed = all.iter().all(|finding| name(finding) == name(first) && finding.choice.stands_out);
    let (policy, shown) = if agreed { (name(first), *first) } else { ("adaptive".to_owned(), *first) };
    Some(format!("{}\npolicy = \"{policy}\"", evidence(shown)))
}

/// Without the key, sockets get as much as the kernel gives; a limit has to be shown to be better than the most measured.
fn socket_buffer(findings: &[Finding]) -> Option<String> {
    let all: Vec<&Finding> = of(findings, Question::SocketBuffer).collect();
    let bytes = |name: &str| name.parse::<u64>().unwrap_or(0);
    let is_better = |finding: &&&Finding| {
        let most = finding.choice.evidence.iter().max_by_key(|one| bytes(&one.name));
        most.is_some_and(|most| super::choice::shows_worse(most.worse_by))
    };
    let first = *all.first()?;
    let better: Vec<&&Finding> = all.iter().filter(is_better).collect();
    if better.len() < all.len() {
        return Some(format!(
            "{}\n# socket_buffer_max: as many bytes as the kernel gives are not shown to be worse, so none is set",
            evidence(first)
        ));
    }
    let most = better.iter().max_by_key(|finding| bytes(&finding.choice.choice))?;
    Some(format!("{}\nsocket_buffer_max = {}", evidence(most), most.choice.choice))
}
