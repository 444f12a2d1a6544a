//! What the figures say, in plain sentences: what is fastest where, by how much, and with which certainty. Nothing is said that the
//! samples of one document do not show.

use super::escape::{cut, escape};
use super::figure::{Figure, Metric};
use super::forest::reference;
use super::group::{Axis, Chart, Series, about, title};
use super::palette::is_limit;
use super::units::{Unit, count};
use super::versus::{Shown, Versus, times};
use crate::report::document::Row;
use crate::report::figures::Gaps;

/// Sentences for a chart; more would be read by nobody.
const SENTENCES_MAX: usize = 6;

/// One sentence, as HTML, and how sure it is.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Finding {
    pub(in crate::report) html: String,
    pub(in crate::report) certainty: Certainty,
}

/// How much a sentence can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Certainty {
    /// The 95 % interval is on one side.
    Shown,
    /// The interval contains 1.
    NotShown,
    /// Fewer than six pairs: the range of what was seen.
    Few,
    /// It counts what happened, or there is nothing to compare with.
    Counted,
}

impl Certainty {
    /// In a word or two.
    pub(in crate::report) fn name(self) -> &'static str {
        match self {
            Self::Shown => "certain to 95 %",
            Self::NotShown => "no difference shown",
            Self::Few => "few samples",
            Self::Counted => "as counted",
        }
    }

    /// The class that gives the colour.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Shown => "sure",
            Self::NotShown => "open",
            Self::Few => "few",
            Self::Counted => "told",
        }
    }
}

/// What a chart says: for each document in it, for each place of its axis, neighbours that say the same in one sentence.
pub(super) fn of_chart(chart: &Chart) -> Vec<Finding> {
    let mut sources: Vec<usize> = chart.series.iter().map(|series| series.source).collect();
    sources.sort_unstable();
    sources.dedup();
    let Some(metric) = chart.metrics.first() else { return Vec::new() };
    sources.into_iter().flat_map(|source| of_source(chart, metric, source)).take(SENTENCES_MAX).collect()
}

/// Kinds of one protocol have its name in common.
fn family(protocol: &str) -> &str {
    protocol.split_once('-').map_or(protocol, |(family, _)| family)
}

/// Who leads at a place, and by how much.
struct Lead<'a> {
    places: Vec<u64>,
    first: &'a Series<'a>,
    figures: Vec<f64>,
    /// The next one and by how many times it is led; none where the first is alone.
    next: Option<(&'a Series<'a>, Vec<Versus>)>,
}

impl Lead<'_> {
    fn shown(&self) -> Option<Shown> {
        self.next.as_ref().and_then(|(_, all)| all.first()).map(Versus::shown)
    }

    fn says_the_same_as(&self, other: &Self) -> bool {
        let next = |lead: &Self| lead.next.as_ref().map(|(series, _)| series.label.clone());
        self.first.label == other.first.label && next(self) == next(other) && self.shown() == other.shown()
    }
}

fn of_source(chart: &Chart, metric: &Metric, source: usize) -> Vec<Finding> {
    let mut leads: Vec<Lead> = Vec::new();
    for place in chart.places() {
        let Some(lead) = lead(chart, metric, source, place) else { continue };
        match leads.last_mut() {
            Some(last) if last.says_the_same_as(&lead) => {
                last.places.extend(lead.places);
                last.figures.extend(lead.figures);
                if let (Some((_, known)), Some((_, new))) = (&mut last.next, lead.next) {
                    known.extend(new);
                }
            }
            _ => leads.push(lead),
        }
    }
    leads.iter().map(|lead| sentence(chart, metric, lead)).collect()
}

fn lead<'a>(chart: &'a Chart<'a>, metric: &Metric, source: usize, place: u64) -> Option<Lead<'a>> {
    let mut there: Vec<(&Series, &Row, f64)> = chart
        .series
        .iter()
        .filter(|series| series.source == source && !is_limit(series.protocol))
        .filter_map(|series| {
            let row = series.at(place)?;
            Some((series, row, Figure::of(row, metric)?.middle))
        })
        .collect();
    there.sort_by(|a, b| if metric.is_better_high { b.2.total_cmp(&a.2) } else { a.2.total_cmp(&b.2) });
    let (first, row, figure) = *there.first()?;
    // One of its own family is no rival: what others do is what is asked.
    let is_rival = |other: &&(&Series, &Row, f64)| family(other.0.protocol) != family(first.protocol);
    let next = there.iter().find(is_rival).or(there.get(1));
    let next = next.and_then(|(next, other, _)| Some((*next, vec![Versus::of(row, other, metric)?])));
    Some(Lead { places: vec![place], first, figures: vec![figure], next })
}

fn sentence(chart: &Chart, metric: &Metric, lead: &Lead) -> Finding {
    let name = |series: &Series| format!("<b>{}</b>", escape(&cut(&series.label, 60)));
    let places = match lead.places.as_slice() {
        [only] => chart.axis.text(*only),
        [first, .., last] => format!("{} to {}", chart.axis.text(*first), chart.axis.text(*last)),
        [] => String::new(),
    };
    let begin = place_of(&format!("{} · {places} · {}", title(chart.workload), chart.about));
    let figure = range(&lead.figures, |value| metric.unit.text(value));
    let Some((next, all)) = &lead.next else {
        let html =
            format!("{begin}{} has {figure} ({}), with nothing beside it.", name(lead.first), metric.name);
        return Finding { html, certainty: Certainty::Counted };
    };
    let ratios: Vec<f64> = all.iter().map(|versus| versus.ratio.median).collect();
    let how = match all.as_slice() {
        [only] => only.certainty(),
        several => {
            let low = several.iter().map(|versus| versus.ratio.low).fold(f64::INFINITY, f64::min);
            let high = several.iter().map(|versus| versus.ratio.high).fold(0.0, f64::max);
            let pairs = several.iter().map(|versus| versus.ratio.pairs).min().unwrap_or(0);
            format!("all within {} to {}, {} each", times(low), times(high), count(pairs, "pair", "pairs"))
        }
    };
    let (first, next, better) = (name(lead.first), name(next), better(metric));
    let ratio = range(&ratios, times);
    let (html, certainty) = match lead.shown() {
        Some(Shown::Nothing) => (
            format!(
                "{begin}No difference is shown between {first} ({figure}) and {next}: {ratio} times ({how})."
            ),
            Certainty::NotShown,
        ),
        Some(Shown::Worse) => (
            // Medians of each and of the ratios within pairs may differ in direction where the machine drifts.
            format!(
                "{begin}{first} has the best median ({figure}), but within pairs {next} is ahead: {ratio} times ({how})."
            ),
            Certainty::NotShown,
        ),
        Some(Shown::Few) => {
            (format!("{begin}{first} {better}, {figure}: {ratio} times {next} ({how})."), Certainty::Few)
        }
        _ => (format!("{begin}{first} {better}, {figure}: {ratio} times {next} ({how})."), Certainty::Shown),
    };
    Finding { html, certainty }
}

/// Where a sentence holds, above it; the text is not yet escaped.
fn place_of(text: &str) -> String {
    format!("<span class=\"where\">{}</span>", escape(text))
}

/// What the first is, by what is compared.
fn better(metric: &Metric) -> &'static str {
    match metric.unit {
        Unit::Mbps | Unit::PerSecond | Unit::Us => "is fastest",
        _ => "does best",
    }
}

/// One figure, or the least and the most of several.
fn range(values: &[f64], text: impl Fn(f64) -> String) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (text(low), text(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

/// What cuts did: a sentence for each kind of cut and protocol.
pub(super) fn of_cuts(rows: &[&Row]) -> Vec<Finding> {
    let mut all = Vec::new();
    for row in rows {
        for gaps in &row.gaps {
            let share = gaps.goodput_share.map_or(String::new(), |share| {
                format!(" Meanwhile {:.0} % of what the other links carry arrived.", share.p50 * 100.0)
            });
            let html = format!(
                "{}<b>{}</b>'s latest message was {} late (median; {} at most).{share} {}",
                place_of(&format!(
                    "{} · {} · {}",
                    title(row.workload),
                    cuts_of(gaps),
                    about(row, Axis::Size)
                )),
                escape(&cut(&row.protocol, 60)),
                Unit::Ms.text(gaps.gap_ms.p50),
                Unit::Ms.text(gaps.gap_ms.max),
                faults(row)
                    .map_or("Nothing was lost or came twice.".to_owned(), |faults| format!("{faults}.")),
            );
            all.push(Finding { html, certainty: Certainty::Counted });
        }
    }
    all
}

fn cuts_of(gaps: &Gaps) -> String {
    format!("{} of {}", count(gaps.cuts, "cut", "cuts"), gaps.kind.name())
}

/// How evenly clients shared a server: a sentence for each number of clients.
pub(super) fn of_crowd(rows: &[&Row]) -> Vec<Finding> {
    let mut numbers: Vec<u32> = rows.iter().filter_map(|row| row.load.clients).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let one = |row: &&Row| {
        let fairness = row.by_client.as_ref()?.fairness.median;
        Some(format!("<b>{}</b> {}", escape(&cut(&row.protocol, 60)), times(fairness)))
    };
    let of_number = |number: u32| {
        let with = rows.iter().filter(|row| row.load.clients == Some(number));
        let each: Vec<String> = with.filter_map(one).take(SENTENCES_MAX).collect();
        let place = place_of(&format!("Clients of one server · {number} clients"));
        let html = format!("{place}How evenly they are served (1: equal shares): {}.", each.join(", "));
        (!each.is_empty()).then_some(Finding { html, certainty: Certainty::Counted })
    };
    numbers.into_iter().filter_map(of_number).collect()
}

/// Messages that did not come as they were sent; none where all did.
pub(super) fn faults(row: &Row) -> Option<String> {
    let counts = [
        (row.lost, "lost"),
        (row.duplicated, "twice"),
        (row.reordered, "out of order"),
        (row.damaged, "damaged"),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, how)| format!("{number} {how}"))
        .collect();
    (!told.is_empty()).then(|| format!("Messages: {}", told.join(", ")))
}

/// Protocols that are held against one of another document alone, which nobody can do.
pub(super) fn missing(chart: &Chart, names: &[String]) -> Option<String> {
    if !chart.is_mixed() {
        return None;
    }
    let first = reference(chart)?;
    let mut sources: Vec<usize> = chart.series.iter().map(|series| series.source).collect();
    sources.dedup();
    sources.sort_unstable();
    sources.dedup();
    let protocols: std::collections::BTreeSet<&str> =
        chart.series.iter().map(|series| series.protocol).collect();
    let lacks = |source: &usize| {
        let has = |protocol: &str| chart.series.iter().any(|s| s.source == *source && s.protocol == protocol);
        let lacking: Vec<String> =
            protocols.iter().filter(|protocol| !has(protocol)).map(|protocol| cut(protocol, 40)).collect();
        let name = names.get(*source).map_or("?", String::as_str);
        (!lacking.is_empty()).then(|| format!("{name} has no {}", lacking.join(", ")))
    };
    let lacks: Vec<String> = sources.iter().filter_map(lacks).collect();
    let lacks = if lacks.is_empty() { String::new() } else { format!(" {}.", lacks.join("; ")) };
    let name = names.get(first.source).map_or("?", String::as_str);
    Some(format!(
        "Several documents are in this picture. They were measured at different times, so only rows of one document are \
         compared ({name}); `polyrail bench compare` compares two documents.{lacks}"
    ))
}
