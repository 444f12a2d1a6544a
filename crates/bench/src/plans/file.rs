//! A plan file, read and checked: every error names its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::{Args, Command, FromArgMatches};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::finding::Placed;
use super::place::Source;
use super::shipped;
use crate::args::{BenchArgs, Plan};

/// A plan file.
#[derive(Clone, Debug)]
pub(crate) struct PlanFile {
    source: Source,
    pub(crate) title: String,
    /// Where its findings were published.
    pub(crate) published_in: Option<String>,
    /// Rounds: each measures everything once.
    pub(crate) repeat: u32,
    pub(crate) measurements: Vec<Measurement>,
    pub(super) findings: Vec<Placed>,
}

/// One measurement of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) args: BenchArgs,
    /// Protocols that take part whatever the command line says.
    always: Vec<String>,
    span: std::ops::Range<usize>,
    /// Where each of its options stands, and its words.
    keys: BTreeMap<String, (std::ops::Range<usize>, Vec<String>)>,
}

/// What a command line changes about a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides<'a> {
    pub(crate) protocol: &'a [String],
    pub(crate) rate: Option<&'a str>,
    pub(crate) size: &'a [String],
    pub(crate) duration: Option<f64>,
    pub(crate) warmup: Option<f64>,
    pub(crate) repeat: Option<u32>,
    pub(crate) vs: &'a [String],
}

/// What is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    title: String,
    source: Option<String>,
    #[serde(default = "repeat_default")]
    repeat: Spanned<u32>,
    #[serde(default)]
    measure: Vec<Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>>,
    #[serde(default)]
    finding: Vec<Placed>,
}

/// Fewest rounds whose interval covers the middle in 95 of 100 cases.
const REPEAT_DEFAULT: u32 = 6;
const REPEAT_MAX: u32 = 1_000;
/// Keys of a measurement that are no options of `bench`: what is measured, and who takes part whatever `--protocol` says.
const WORKLOAD: &str = "workload";
const ALWAYS: &str = "always";
/// Options that say where results go, how often all is repeated or which machine is measured to: not a measurement's.
const NOT_HERE: [&str; 7] = ["json", "csv", "journal", "repeat", "tight", "key-file", "local"];

fn repeat_default() -> Spanned<u32> {
    Spanned::new(0..0, REPEAT_DEFAULT)
}

impl PlanFile {
    /// The plan of this name, or the one in this file.
    ///
    /// # Errors
    /// There is neither, or something in it is wrong: one line for the user, with file and line.
    pub(crate) fn load(name: &str) -> Result<Self, String> {
        let text = match shipped::text(name) {
            Some(text) => text.to_owned(),
            None => fs::read_to_string(name).map_err(|error| {
                format!(
                    "no plan is named `{name}`, and as a file it cannot be read ({error}): there are {}",
                    shipped::names().join(", ")
                )
            })?,
        };
        Self::read(name, text)
    }

    /// The plan with this text, checked; `name` is what errors call it.
    pub(super) fn read(name: &str, text: String) -> Result<Self, String> {
        let plan = Self::parse(Source { name: name.to_owned(), text })?;
        super::evidence::check(&plan)?;
        Ok(plan)
    }

    fn parse(source: Source) -> Result<Self, String> {
        let written: Written = toml::from_str(&source.text).map_err(|error| {
            source.error(&error.span().unwrap_or_default(), &error.message().replace('\n', " "))
        })?;
        let (repeat, at) = (*written.repeat.get_ref(), written.repeat.span());
        if !(1..=REPEAT_MAX).contains(&repeat) {
            return Err(source.error(&at, &format!("repeat = {repeat}: not within 1 to {REPEAT_MAX}")));
        }
        let mut measurements = Vec::new();
        for table in &written.measure {
            measurements.extend(read(&source, table)?);
        }
        if measurements.is_empty() {
            return Err(source.error(&(0..0), "the plan measures nothing: it needs [[measure]]"));
        }
        let Written { title, source: published_in, finding: findings, .. } = written;
        Ok(Self { source, title, published_in, repeat, measurements, findings })
    }

    /// The error, with file and line of what it is about.
    pub(super) fn error(&self, span: &std::ops::Range<usize>, error: &str) -> String {
        self.source.error(span, error)
    }

    /// The plan of each measurement.
    ///
    /// # Errors
    /// Options that do not go together, with their line.
    pub(crate) fn plans(&self) -> Result<Vec<Plan>, String> {
        let plan = |one: &Measurement| {
            let plan = one.args.plan().map_err(|error| self.error_of(one, &error))?;
            match plan.host {
                None => Ok(Plan { repeat: self.repeat, ..plan }),
                Some(_) => {
                    Err(self.error_of(one, "--placement: a plan measures on this machine: inter or intra"))
                }
            }
        };
        self.measurements.iter().map(plan).collect()
    }

    /// An error of a measurement: at the line of the option that it names, by itself or by one of its words in quotes, else where
    /// the measurement begins.
    pub(crate) fn error_of(&self, one: &Measurement, error: &str) -> String {
        let named = |key: &str| {
            let at = error.find(&format!("--{key}")).map(|at| at + 2 + key.len());
            at.is_some_and(|end| !error[end..].starts_with(|c: char| c.is_alphanumeric() || c == '-'))
        };
        let quoted = |words: &[String]| words.iter().any(|word| error.contains(&format!("`{word}`")));
        let by_name = one.keys.iter().find(|(key, _)| named(key));
        let known = by_name.or_else(|| one.keys.iter().find(|(_, (_, words))| quoted(words)));
        let span = known.map_or(&one.span, |(_, (span, _))| span);
        self.error(span, error)
    }

    /// The same, as a command line wants it.
    ///
    /// # Errors
    /// It asks for what has no meaning here.
    pub(crate) fn with(mut self, asked: &Overrides) -> Result<Self, String> {
        let rates: BTreeSet<&Vec<String>> =
            self.measurements.iter().map(|one| &one.args.rate).filter(|rate| !rate.is_empty()).collect();
        if let (Some(rate), true) = (asked.rate, rates.len() != 1) {
            return Err(format!(
                "--rate {rate}: the measurements of {0} have rates of their own, or none: change them in a copy \
                 (polyrail bench plan {0} --show)",
                self.source.name
            ));
        }
        self.repeat = asked.repeat.unwrap_or(self.repeat);
        for one in &mut self.measurements {
            one.change(asked);
        }
        Ok(self)
    }
}

impl Measurement {
    fn change(&mut self, asked: &Overrides) {
        let args = &mut self.args;
        if !asked.protocol.is_empty() {
            args.protocol = asked.protocol.to_vec();
        }
        let missing = self.always.iter().filter(|name| !args.protocol.contains(name));
        let missing: Vec<String> = missing.cloned().collect();
        args.protocol.extend(missing);
        if !asked.size.is_empty() && !args.size.is_empty() {
            args.size = asked.size.to_vec();
            args.around = None;
        }
        if let Some(rate) = asked.rate.filter(|_| !args.rate.is_empty()) {
            let links = usize::from(args.links.unwrap_or(1));
            args.rate = vec![rate.split(':').take(links).collect::<Vec<_>>().join(":")];
        }
        args.duration = asked.duration.or(args.duration);
        args.warmup = asked.warmup.or(args.warmup);
        if !asked.vs.is_empty() {
            args.vs = asked.vs.to_vec();
        }
    }
}

/// The measurements of one table: one for each of its workloads.
fn read(
    source: &Source,
    table: &Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>,
) -> Result<Vec<Measurement>, String> {
    let mut options = Vec::new();
    let (mut workloads, mut always) = (Vec::new(), Vec::new());
    let mut keys = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let words = words(value.get_ref()).map_err(|error| source.error(&value.span(), &error))?;
        match key.get_ref().as_str() {
            WORKLOAD => workloads = words.into_iter().map(|word| (word, value.span())).collect(),
            ALWAYS => always = words,
            name if NOT_HERE.contains(&name) || !is_option(name) => {
                return Err(source.error(&key.span(), &unknown(name)));
            }
            name => {
                keys.insert(name.to_owned(), (key.span(), words.clone()));
                options.push((name, words, value));
            }
        }
    }
    if workloads.is_empty() {
        return Err(source.error(&table.span(), "[[measure]] needs a `workload`"));
    }
    let one = |(workload, at): (String, std::ops::Range<usize>)| {
        parse(std::slice::from_ref(&workload)).map_err(|error| source.error(&at, &error))?;
        let mut line = vec![workload.clone()];
        for (name, words, value) in &options {
            let words = flag(name, words, value.get_ref());
            // Each by itself too, so that what is wrong with one is told at its line.
            let alone = std::iter::once(workload.clone()).chain(words.clone()).collect::<Vec<_>>();
            parse(&alone).map_err(|error| source.error(&value.span(), &error))?;
            line.extend(words);
        }
        let args = parse(&line).map_err(|error| source.error(&table.span(), &error))?;
        let mut one = Measurement { args, always: always.clone(), span: table.span(), keys: keys.clone() };
        one.change(&Overrides::default());
        Ok(one)
    };
    workloads.into_iter().map(one).collect()
}

/// The options of `bench`, as clap knows them.
fn command() -> Command {
    BenchArgs::augment_args(Command::new("plan").disable_help_flag(true).disable_version_flag(true))
}

fn is_option(name: &str) -> bool {
    command().get_arguments().any(|argument| argument.get_long() == Some(name))
}

fn unknown(name: &str) -> String {
    let dashed = name.replace('_', "-");
    if NOT_HERE.contains(&name) {
        return format!(
            "`{name}` has no meaning in a measurement: give it to `polyrail bench plan`, or put `repeat` at the top of the file"
        );
    }
    if dashed != name && is_option(&dashed) {
        return format!("`{name}` is no option of `polyrail bench`: write `{dashed}`");
    }
    format!(
        "`{name}` is no option of `polyrail bench` (see its --help): a measurement has those without their dashes, {WORKLOAD} and {ALWAYS}"
    )
}

/// What a value is on a command line: the words of a list.
fn words(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Integer(number) => Ok(vec![number.to_string()]),
        Value::Float(number) => Ok(vec![number.to_string()]),
        Value::Boolean(_) => Ok(Vec::new()),
        Value::Array(values) => {
            Ok(values.iter().map(words).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        other => Err(format!("{other} is neither a word, a number, true nor false, nor a list of these")),
    }
}

fn flag(name: &str, words: &[String], value: &Value) -> Vec<String> {
    match value {
        Value::Boolean(true) => vec![format!("--{name}")],
        Value::Boolean(false) => Vec::new(),
        _ => vec![format!("--{name}={}", words.join(","))],
    }
}

fn parse(words: &[String]) -> Result<BenchArgs, String> {
    let line = std::iter::once("plan".to_owned()).chain(words.iter().cloned());
    let matches =
        command().try_get_matches_from(line).map_err(|error| first_paragraph(&error.to_string()))?;
    BenchArgs::from_arg_matches(&matches).map_err(|error| first_paragraph(&error.to_string()))
}

/// What clap says is wrong, and what is allowed, in one line; its advice to look at the help is for command lines.
fn first_paragraph(error: &str) -> String {
    let lines = error.trim_start_matches("error: ").lines().map(str::trim);
    let told: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    let told: Vec<&str> =
        told.into_iter().filter(|line| !line.is_empty() && !line.contains("--help")).collect();
    told.join(" ")
}

#[cfg(test)]
mod tests;
