//! `polyrail advise`: from documents, or from a quick measurement, to advice; and what is wrong with them.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::against::{Held, held};
use super::question::{Finding, Question, groups};
use super::quick::{Quick, Unknown, quick};
use super::settings::toml;
use super::sizes::{self, SizeAdvice, sizes};
use crate::args::{AdviseArgs, Placement};
use crate::fit::same_machine;
use crate::report::Measured;

/// Name and version of the JSON form of advice.
pub const ADVICE_SCHEMA: &str = "polyrail-advice/1";

/// All that is advised, and all that is not known.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Advice {
    schema: &'static str,
    /// Where the samples come from; empty where they were taken for it and not kept.
    files: Vec<String>,
    pub(super) findings: Vec<Finding>,
    pub(super) sizes: Vec<SizeAdvice>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) against: Vec<Held>,
    pub(super) unknown: Vec<Unknown>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Settings that follow, as a node loads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    toml: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    is_refused: bool,
}

/// Advises and gives the exit code: 0 good, 1 something could not be measured, 2 wrong arguments or documents.
pub fn advise(asked: &AdviseArgs, json: bool) -> i32 {
    let measures = asked.files.is_empty();
    if measures
        && asked.check().is_ok()
        && asked.placement.contains(&Placement::Inter)
        && let Some(report) = crate::run::enter()
    {
        let failed = Advice { error: report.error().map(str::to_owned), ..Advice::empty(asked) };
        return failed.emit(asked, json);
    }
    Advice::of(asked).emit(asked, json)
}

impl Advice {
    fn empty(asked: &AdviseArgs) -> Self {
        let files = asked.files.iter().map(|file| file.display().to_string()).collect();
        Self { schema: ADVICE_SCHEMA, files, ..Self::default() }
    }

    fn of(asked: &AdviseArgs) -> Self {
        let refused = |error| Self { error: Some(error), is_refused: true, ..Self::empty(asked) };
        let sweep = match read(&asked.against) {
            Ok(sweep) => sweep,
            Err(error) => return refused(error),
        };
        let documents = if asked.files.is_empty() {
            asked.check().map(|()| quick(asked))
        } else {
            read(&asked.files).map(Quick::of)
        };
        let Quick { documents, unknown, error, .. } = match documents {
            Ok(documents) => documents,
            Err(error) => return refused(error),
        };
        let notes = match same_machine(&documents) {
            // Each question names its own candidates: that a document has fewer protocols than another one tells nothing.
            Ok(notes) => notes.into_iter().filter(|note| !note.contains(" is not in ")).collect(),
            Err(error) => return refused(error),
        };
        let mut advice = Self { unknown, error, notes, ..Self::empty(asked) };
        advice.add(&documents, &sweep);
        advice
    }

    fn add(&mut self, documents: &[Measured], sweep: &[Measured]) {
        let of = |question| groups(question, documents).iter().filter_map(|group| group.finding()).collect();
        self.findings =
            Question::ALL.into_iter().flat_map(|question| -> Vec<Finding> { of(question) }).collect();
        self.sizes = sizes(documents);
        self.against = held(&self.findings, sweep);
        let answered =
            |question: &Question| self.findings.iter().any(|finding| finding.question == *question);
        let open = Question::ALL.into_iter().filter(|question| !answered(question));
        let mut open: Vec<(&str, &str)> =
            open.map(|question| (question.name(), question.command())).collect();
        open.extend(self.sizes.is_empty().then_some((sizes::WHAT, sizes::COMMAND)));
        for (what, command) in open {
            // What there was no time for stands there already, with its own command.
            if !self.unknown.iter().any(|known| known.what.starts_with(what)) {
                self.unknown.push(Unknown { what: what.to_owned(), command: command.to_owned() });
            }
        }
        if let Some(measured) = documents.first() {
            let host = &measured.host;
            let machine = format!("{}, {} cores, {}", host.cpu, host.cores, host.kernel);
            self.toml = Some(toml(&self.findings, &machine));
            if !host.optimized {
                self.notes.push("the program was built without optimisation: what is inside it looks several times slower".to_owned());
            }
        }
        if self.findings.is_empty() && self.sizes.is_empty() && self.error.is_none() {
            let first = &self.unknown[0];
            self.error = Some(format!(
                "nothing can be advised from what there is: no two choices were measured under the same conditions; such as `{}`",
                first.command
            ));
        }
    }

    /// What documents of one machine say of what to do, a sentence each; nothing where they are of several.
    pub(crate) fn sentences(documents: &[Measured]) -> Vec<String> {
        if same_machine(documents).is_err() {
            return Vec::new();
        }
        let mut advice = Self::default();
        advice.add(documents, &[]);
        super::tell::sentences(&advice)
    }

    fn emit(&self, asked: &AdviseArgs, json: bool) -> i32 {
        let code = match (&self.error, self.is_refused) {
            (_, true) => 2,
            (Some(_), false) => 1,
            (None, false) => 0,
        };
        if let Some(error) = &self.error {
            eprintln!("polyrail advise: {error}");
        }
        let text = match (json, asked.toml) {
            (true, _) => serde_json::to_string_pretty(self)
                .unwrap_or_else(|error| format!("{{\"schema\":\"{ADVICE_SCHEMA}\",\"error\":\"{error}\"}}")),
            (false, _) if self.is_refused => return code,
            (false, true) => self.toml.clone().unwrap_or_default(),
            (false, false) => super::tell::render(self),
        };
        let mut out = std::io::stdout().lock();
        // A reader that went away has seen enough.
        let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        code
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Measured>, String> {
    files.iter().map(|file| Measured::read(file)).collect()
}
