//! What a plan's documents say of what was published: a card for each finding, with the published ratio beside the one that was
//! measured, and the verdict.

use super::Source;
use super::escape::{cut, escape, note};
use super::page::{card, list};
use super::palette::{Look, Mark};
use super::ratios;
use super::versus::times;
use crate::plans::{FindingRow, Verdict};
use crate::report::findings::{counts, place};
use crate::stats::Ratio;

/// More cards, or more lines of one, are in the document.
const CARDS_MAX: usize = 60;
const LINES_MAX: usize = 24;
const LABEL_CHARS_MAX: usize = 26;

const MEASURED: Look = Look { colour: 0, mark: Mark::Circle, is_limit: false };
const PUBLISHED: Look = Look { colour: 0, mark: Mark::Ring, is_limit: true };

/// The section; nothing where no document has findings.
pub(super) fn section(sources: &[Source]) -> String {
    let body: String = sources.iter().filter_map(of_source).collect();
    match body.is_empty() {
        true => String::new(),
        false => format!("<section><h2>What was published, and what is seen here</h2>{body}</section>"),
    }
}

/// The same as sentences for programs, each with its verdict.
pub(super) fn sentences(sources: &[Source]) -> impl Iterator<Item = (String, &'static str)> {
    let rows = sources.iter().flat_map(|source| &source.document.findings);
    rows.map(|row| (format!("{}: {}{}", row.says, begin(row), told(row)), row.verdict.words()))
}

fn of_source(source: &Source) -> Option<String> {
    let rows = &source.document.findings;
    let names = distinct(rows);
    if names.is_empty() {
        return None;
    }
    let title = source.document.title.as_deref().unwrap_or(&source.name);
    let cards: String = names.iter().take(CARDS_MAX).map(|name| finding(name, rows)).collect();
    let more = match names.len().saturating_sub(CARDS_MAX) {
        0 => String::new(),
        more => format!("<p>{more} more are in the document.</p>"),
    };
    let (title, counts) = (escape(&cut(title, 120)), counts(rows));
    Some(format!("<h3>{title}: {counts}</h3><div class=\"cards\">{cards}</div>{more}"))
}

/// The names of findings, each once, in their order.
fn distinct(rows: &[FindingRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

fn finding(name: &str, all: &[FindingRow]) -> String {
    let rows: Vec<&FindingRow> = all.iter().filter(|row| row.name == name).collect();
    let left_out = rows.len().saturating_sub(LINES_MAX);
    let rows = &rows[..rows.len() - left_out];
    let Some(first) = rows.first() else { return String::new() };
    let (seen, unseen): (Vec<&FindingRow>, Vec<&FindingRow>) =
        rows.iter().partition(|row| row.measured.is_some());
    let picture = draw(&seen, &first.says).unwrap_or_default();
    // Why nothing is decided stands below, in words; a reason that several share once.
    let mut why: Vec<String> = Vec::new();
    for row in seen.iter().chain(&unseen).filter(|row| row.measured.is_none() || row.why.is_some()) {
        let text = note(&format!("{}{}", begin(row), told(row)));
        if !why.contains(&text) {
            why.push(text);
        }
    }
    if left_out > 0 {
        why.push(format!("{left_out} more are in the document."));
    }
    let claim = first.claim.as_deref().map_or(String::new(), |claim| format!("Has to be {}. ", note(claim)));
    let rings = match seen.iter().any(|row| row.published.is_some()) {
        true => "Ring: published. ",
        false => "",
    };
    let source = first.source.as_deref().map_or(String::new(), note);
    card(&note(&first.says), &format!("{picture}{}", list("why", &why)), &format!("{claim}{rings}{source}"))
}

/// What a verdict is about, before what is told of it.
fn begin(row: &FindingRow) -> String {
    let place = place(row);
    if place.is_empty() { place } else { format!("{}: ", cut(&place, 60)) }
}

/// Figure, interval, what was published, and the reason where nothing is decided.
fn told(row: &FindingRow) -> String {
    let measured = row.measured.as_ref().map_or(String::new(), |Ratio { median, low, high, pairs }| {
        let [median, low, high] = [median, low, high].map(|ratio| times(*ratio));
        format!("{median} (95 %: {low} to {high}, {pairs} rounds)")
    });
    let published = row.published.map_or(String::new(), |number| format!("published {}", times(number)));
    let why = row.why.clone().unwrap_or_default();
    let parts = [row.verdict.words().to_owned(), measured, published, why];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The intervals below each other; none where nothing was measured.
fn draw(rows: &[&FindingRow], says: &str) -> Option<String> {
    let lines: Vec<ratios::Line> = rows.iter().filter_map(|row| line(row)).collect();
    ratios::draw(&cut(says, 300), &lines, false)
}

fn line(row: &FindingRow) -> Option<ratios::Line<'_>> {
    let ratio = row.measured.as_ref()?;
    let published = |number| (number, PUBLISHED, format!("published: {}", times(number)));
    Some(ratios::Line {
        label: cut(&place(row), LABEL_CHARS_MAX),
        number: format!("{} {}", times(ratio.median), word(row.verdict)),
        ratio,
        look: MEASURED,
        told: told(row),
        beside: row.published.map(published),
    })
}

/// A verdict where there is little room.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotSeen => "not decided",
        decided => decided.words(),
    }
}
