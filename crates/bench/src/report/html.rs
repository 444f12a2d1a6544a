//! Documents as one page for people: findings first, pictures, then the machine and the method. One file, which needs no network, no
//! script and no other file; whatever a document holds shows as text.

mod cdf;
mod crowd;
mod curve;
mod cuts;
mod dots;
mod escape;
pub(super) mod figure;
pub(super) mod findings;
mod forest;
pub(super) mod group;
mod machine;
mod numbers;
mod page;
mod palette;
mod published;
mod ratios;
mod scale;
mod svg;
pub(super) mod units;
pub(super) mod versus;

use std::path::Path;

use super::Report;
use super::document::{Document, Row};
use super::read::read;
use super::samples::Measured;
use crate::failover::Kind;
use crate::host::Host;
use crate::workload::Workload;
use escape::{cut, escape, note};
use findings::Finding;
use group::{Chart, Found, charts, title};
use page::{card, list};
use palette::Palette;
pub(super) use palette::is_limit;

/// More charts make a page that nobody scrolls through.
const CHARTS_MAX: usize = 120;
/// Distributions shown of a chart.
const CDFS_MAX: usize = 4;
/// Sentences that everyone reads.
const FINDINGS_MAX: usize = 40;

/// A document and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The file's name, or where else it comes from.
    pub(super) name: String,
    pub(super) document: Document,
}

impl Source {
    /// Its samples.
    pub(crate) fn samples(&self) -> Measured {
        Measured::of(self.name.clone(), self.document.clone())
    }

    /// The document in a file; the error is one line that names it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path
            .file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, document: read(path)? })
    }

    /// What was just measured.
    pub(crate) fn measured(name: &str, report: &Report) -> Self {
        Self { name: name.to_owned(), document: report.document.clone() }
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.document.results.is_empty()
    }

    /// With what it ended, if it did with an error.
    pub(crate) fn error(&self) -> Option<&str> {
        self.document.error.as_deref()
    }
}

/// A page of documents.
#[derive(Debug)]
pub(crate) struct Page {
    sources: Vec<Source>,
    /// Sentences for who is to act on the figures, not yet escaped.
    advice: Vec<String>,
    /// What was left out of a measurement and why, not yet escaped.
    left_out: Vec<String>,
}

/// Documents of one machine and one build.
struct Group<'a> {
    host: &'a Host,
    sources: Vec<usize>,
}

impl Page {
    pub(crate) fn new(sources: Vec<Source>, advice: Vec<String>, left_out: Vec<String>) -> Self {
        Self { sources, advice, left_out }
    }

    /// The whole page.
    pub(crate) fn render(&self) -> String {
        let protocols = self.sources.iter().flat_map(|source| &source.document.results);
        let palette = Palette::of(protocols.map(|row| row.protocol.as_str()));
        let groups = self.groups();
        let mut body = String::new();
        for (number, group) in groups.iter().enumerate() {
            if groups.len() > 1 {
                let (number, machine) = (number + 1, machine::summary(group.host));
                body += &format!(
                    "<h2 class=\"machine\">Machine {number}: {machine}</h2>{}",
                    self.files_of(group)
                );
            }
            body += &self.measured(group, &palette);
        }
        let style = include_str!("html/style.css");
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>{style}</style></head>\
             <body><main>{header}{published}{findings}{body}{end}</main></body></html>\n",
            title = escape(&self.title()),
            header = self.header(&groups),
            published = published::section(&self.sources),
            findings = self.findings_section(&groups),
            end = self.end(&groups),
        )
    }

    /// What the page says in sentences, as plain text, with how sure each is.
    pub(crate) fn sentences(&self) -> Vec<(String, &'static str)> {
        let all = self.groups().iter().flat_map(|group| self.findings(group)).collect::<Vec<_>>();
        let compared = all.into_iter().map(|finding| (plain(&finding.html), finding.certainty.name()));
        published::sentences(&self.sources).chain(compared).collect()
    }

    /// What stands in the way of trusting the figures, as plain text.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let groups = self.groups();
        let several = (groups.len() > 1).then(|| {
            let number = groups.len();
            format!(
                "The documents are of {number} machines or builds, which are shown one after the other: figures of one say nothing \
                 of those of another."
            )
        });
        let of_sources = self.sources.iter().flat_map(|source| warnings_of(source, self.sources.len() > 1));
        several.into_iter().chain(self.left_out.iter().cloned()).chain(of_sources).collect()
    }

    fn names(&self) -> Vec<String> {
        self.sources.iter().map(|source| cut(&source.name, 40)).collect()
    }

    fn title(&self) -> String {
        let names: Vec<String> = self.names().into_iter().take(4).collect();
        format!("Polyrail measurements: {}", names.join(", "))
    }

    /// Documents by machine, in the order in which they came.
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group> = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            let host = &source.document.host;
            match groups.iter_mut().find(|group| group.host.differences(host).is_empty()) {
                Some(group) => group.sources.push(number),
                None => groups.push(Group { host, sources: vec![number] }),
            }
        }
        groups
    }

    fn header(&self, groups: &[Group]) -> String {
        let machine = match groups {
            [only] => machine::summary(only.host),
            several => format!("{} machines or builds", several.len()),
        };
        let names: Vec<String> =
            self.names().iter().map(|name| format!("<code>{}</code>", escape(name))).collect();
        format!(
            "<header><h1>Polyrail measurements</h1><p>{machine}</p><p>From {}</p></header>",
            names.join(", ")
        )
    }

    fn files_of(&self, group: &Group) -> String {
        let names = self.names();
        let files: Vec<String> = group.sources.iter().map(|source| escape(&names[*source])).collect();
        format!("<p>{}</p>", files.join(", "))
    }

    fn findings_section(&self, groups: &[Group]) -> String {
        let all: Vec<Finding> = groups.iter().flat_map(|group| self.findings(group)).collect();
        let item = |finding: &Finding| {
            let Finding { html, certainty } = finding;
            let (class, name) = (certainty.class(), certainty.name());
            format!(r#"{html} <span class="tag {class}">{name}</span>"#)
        };
        let more = all.len().saturating_sub(FINDINGS_MAX);
        let mut items: Vec<String> = all.iter().take(FINDINGS_MAX).map(item).collect();
        if more > 0 {
            items.push(format!("{more} more are in the sections below."));
        }
        if items.is_empty() {
            items.push("Nothing here can be compared: no row has a figure.".to_owned());
        }
        let warnings: Vec<String> = self.warnings().iter().map(|text| note(text)).collect();
        let warned = match warnings.is_empty() {
            true => String::new(),
            false => format!(
                "<section class=\"warnings\"><h2>Before you rely on it</h2>{}</section>",
                list("", &warnings)
            ),
        };
        let advice: Vec<String> = self.advice.iter().map(|text| note(text)).collect();
        let advised = match advice.is_empty() {
            true => String::new(),
            false => format!("<section><h2>What to do</h2>{}</section>", list("findings", &advice)),
        };
        format!("<section><h2>Findings</h2>{}</section>{advised}{warned}", list("findings", &items))
    }

    fn found<'a>(&'a self, group: &Group, workload: Workload) -> Vec<Found<'a>> {
        let of = |source: &usize| {
            let source = *source;
            self.sources[source].document.results.iter().map(move |row| Found { source, row })
        };
        group.sources.iter().flat_map(of).filter(|found| found.row.workload == workload).collect()
    }

    fn findings(&self, group: &Group) -> Vec<Finding> {
        let names = self.names();
        let mut all = Vec::new();
        for workload in Workload::all() {
            let found = self.found(group, *workload);
            let rows: Vec<&Row> = found.iter().map(|found| found.row).collect();
            if *workload == Workload::Failover {
                all.extend(findings::of_cuts(&rows));
            } else {
                all.extend(charts(*workload, &found, &names).iter().flat_map(findings::of_chart));
            }
            all.extend(findings::of_crowd(&rows));
        }
        all
    }

    /// A section for each workload.
    fn measured(&self, group: &Group, palette: &Palette) -> String {
        let names = self.names();
        let mut room = CHARTS_MAX;
        let mut body = String::new();
        for workload in Workload::all() {
            let found = self.found(group, *workload);
            if found.is_empty() {
                continue;
            }
            let section = if *workload == Workload::Failover {
                failover(&found, palette)
            } else {
                let all = charts(*workload, &found, &names);
                let left_out = all.len().saturating_sub(room);
                let shown = all.iter().take(room);
                let mut text: String = shown.map(|chart| chart_section(chart, palette, &names)).collect();
                room = room.saturating_sub(all.len());
                if left_out > 0 {
                    text += &format!("<p>{left_out} more sets of conditions are in the documents.</p>");
                }
                text + &crowd_card(&found, palette)
            };
            body += &format!("<section><h2>{}</h2>{section}</section>", title(*workload));
        }
        body
    }

    fn end(&self, groups: &[Group]) -> String {
        let mut body = String::new();
        for group in groups {
            let pulses: String =
                group.sources.iter().filter_map(|source| machine::pulse(&self.sources[*source])).collect();
            let documents: Vec<&Document> =
                group.sources.iter().map(|source| &self.sources[*source].document).collect();
            let (facts, testbed) = (machine::facts(group.host), machine::testbed(&documents));
            body += &format!("<div class=\"cards\">{pulses}</div>{facts}{testbed}");
        }
        let sources: String = self
            .sources
            .iter()
            .map(|source| {
                format!("<h3>{}</h3>{}", escape(&cut(&source.name, 60)), machine::provenance(source))
            })
            .collect();
        format!(
            "<section><h2>Machine</h2>{body}</section><section><h2>Documents</h2>{sources}</section>\
             <section><h2>Method</h2>{}</section>",
            machine::METHOD
        )
    }
}

/// Everything about one set of conditions.
fn chart_section(chart: &Chart, palette: &Palette, names: &[String]) -> String {
    let places = chart.places();
    let is_curve = places.len() > 1;
    let mut cards = String::new();
    for (number, metric) in chart.metrics.iter().enumerate() {
        let picture =
            if is_curve { curve::draw(chart, metric, palette) } else { dots::draw(chart, metric, palette) };
        let better = if metric.is_better_high { "More is better." } else { "Less is better." };
        cards += &picture.map_or(String::new(), |picture| card(&capital(metric.name), &picture, better));
        if number == 0 {
            cards += &versus_card(chart, palette);
        }
    }
    // Of many places the ends and what lies between tell enough.
    let step = places.len().div_ceil(CDFS_MAX).max(1);
    for place in places.iter().step_by(step) {
        let heading = if is_curve {
            format!("Single times, {}", chart.axis.text(*place))
        } else {
            "Single times".to_owned()
        };
        let below = "How many are within which time; from 90 % on, each line up leaves a tenth.";
        cards += &cdf::draw(chart, *place, palette)
            .map_or(String::new(), |picture| card(&heading, &picture, below));
    }
    let mixed = findings::missing(chart, names)
        .map_or(String::new(), |text| format!("<p class=\"mixed\">{}</p>", escape(&text)));
    let heading = capital(&escape(&chart.heading()));
    format!("<h3>{heading}</h3>{mixed}<div class=\"cards\">{cards}</div>{}", numbers::of_chart(chart))
}

/// One protocol beside the others.
fn versus_card(chart: &Chart, palette: &Palette) -> String {
    let Some((picture, left_out)) = forest::draw(chart, palette) else { return String::new() };
    let first = forest::reference(chart).map_or("", |series| series.label.as_str());
    let more = if left_out > 0 { format!("; {left_out} more are not shown") } else { String::new() };
    let figure = chart.metrics.first().map_or("", |metric| metric.name);
    let first = escape(first);
    let below = format!("Times, by {figure}: right of 1, {first} is ahead of the one named{more}.");
    card(&format!("{first} beside the others"), &picture, &below)
}

/// The section of links that are cut.
fn failover(found: &[Found], palette: &Palette) -> String {
    let rows: Vec<&Row> = found.iter().map(|found| found.row).collect();
    let mut text = String::new();
    for row in &rows {
        let conditions = group::about(row, group::Axis::Size);
        let heading = format!("<h3>{}, {}</h3>", escape(&cut(&row.protocol, 60)), escape(&conditions));
        let picture = cuts::timelines(row, palette);
        text += &heading;
        text += &match picture.is_empty() {
            true => "<p>The document has no course over time: it is of an earlier version, or nothing was cut.</p>".to_owned(),
            false => format!("<figure class=\"card full\">{picture}<figcaption>Grey: the link is away.</figcaption></figure>"),
        };
    }
    let mut cards = String::new();
    for kind in Kind::ALL {
        let heading = format!("How late the latest message is, {} cuts", kind.name());
        let below = "A dot for each cut; less is better.";
        cards += &cuts::gaps(&rows, kind, palette)
            .map_or(String::new(), |picture| card(&heading, &picture, below));
    }
    format!("{text}<div class=\"cards\">{cards}</div>{}", cuts::table(&rows))
}

fn crowd_card(found: &[Found], palette: &Palette) -> String {
    let picture = crowd::draw(found, palette);
    let below = "A dot for each client and repetition; all on the line: everyone got the same.";
    let text = picture.map(|picture| card("What each client got, by an equal share", &picture, below));
    text.map_or(String::new(), |card| format!("<div class=\"cards\">{card}</div>"))
}

/// What is to be known of a document before its figures are believed.
fn warnings_of(source: &Source, is_one_of_several: bool) -> Vec<String> {
    let Source { name, document } = source;
    let mut told = Vec::new();
    if let Some(error) = &document.error {
        told.push(format!("it ended with an error: {}", cut(error, 300)));
    }
    if document.results.is_empty() {
        told.push("it has no results: nothing was measured".to_owned());
    }
    if document.host.emulated {
        told.push(
            "its cores are emulated: times and rates are none of a real machine, only ratios of one run say something"
                .to_owned(),
        );
    }
    if !document.host.optimized {
        told.push(
            "the program was built without optimisation: what runs inside it (polyrail) is slower than it is"
                .to_owned(),
        );
    }
    let failed: usize = document.results.iter().map(|row| row.failed.len()).sum();
    if failed > 0 {
        told.push(format!("{failed} samples failed and are left out; the tables say why"));
    }
    let mixed =
        document.results.iter().flat_map(|row| &row.calibration).filter(|pulses| !pulses.is_steady()).count();
    if mixed > 0 {
        let all: usize = document.results.iter().map(|row| row.calibration.len()).sum();
        told.push(format!("{mixed} of {all} samples were taken while the machine changed its speed"));
    }
    let faulty = document.results.iter().filter_map(|row| Some((row, findings::faults(row)?)));
    told.extend(faulty.take(12).map(|(row, faults)| format!("{}: {faults}", cut(&row.name(), 120))));
    told.extend(
        document
            .unavailable
            .iter()
            .take(24)
            .map(|one| format!("{} could not run: {}", cut(&one.protocol, 60), cut(&one.reason, 200))),
    );
    told.extend(document.notes.iter().take(24).cloned());
    let begin =
        |text: String| if is_one_of_several { format!("{}: {text}", cut(name, 40)) } else { capital(&text) };
    told.into_iter().map(begin).collect()
}

/// The first letter large.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A sentence without its markup.
fn plain(html: &str) -> String {
    let text = html.replace("<b>", "").replace("</b>", "");
    let text = text.replace("<span class=\"where\">", "").replace("</span>", ": ");
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    text.replace("&amp;", "&")
}
