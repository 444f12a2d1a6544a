//! Two documents beside each other: what became better, what worse, and whether chance alone does as much.
//!
//! The two were measured at different times, so nothing pairs their samples, and what the machine did in between is in
//! the ratio too: notes tell what can be known of that.

mod figures;
mod notes;
mod table;

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::document::{Document, Row};
use super::read::read;
use crate::stats::{median, shift};
use figures::{Better, Figure};

/// Name and version of the JSON form of a comparison.
pub const COMPARE_SCHEMA: &str = "polyrail-compare/1";

/// What became of the figures of one document in another.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// The two files.
    a: String,
    b: String,
    /// A figure that is worse by less than this is no regression.
    threshold_percent: f64,
    /// How many figures are worse by as much.
    regressions: usize,
    rows: Vec<RowPair>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    only_in_a: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    only_in_b: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// One protocol under conditions that both documents have.
#[derive(Clone, Debug, Serialize)]
struct RowPair {
    #[serde(skip)]
    name: String,
    /// The conditions, as the documents have them.
    #[serde(flatten)]
    conditions: Map<String, Value>,
    figures: Vec<Compared>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// One figure of both documents.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    /// Its place in the documents.
    figure: String,
    better: Better,
    a: Middle,
    b: Middle,
    /// B by A; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Ratio>,
    verdict: Verdict,
    /// Worse, and by as much as the threshold.
    regression: bool,
}

/// What one document has of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Middle {
    median: Option<f64>,
    samples: usize,
    /// How many of them lie too far from the others to count.
    outliers: usize,
}

/// A ratio with its 97 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    ratio: f64,
    low: f64,
    high: f64,
}

/// What a figure's ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Verdict {
    #[serde(rename = "better")]
    Better,
    #[serde(rename = "worse")]
    Worse,
    /// The interval contains 1.
    #[serde(rename = "no difference shown")]
    NotShown,
    /// Fewer than five on a side.
    #[serde(rename = "too few samples")]
    TooFew,
    /// A value is not above zero.
    #[serde(rename = "no ratio")]
    NoRatio,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NotShown => "no difference shown",
            Self::TooFew => "too few samples",
            Self::NoRatio => "no ratio: not all above zero",
        }
    }
}

impl Comparison {
    /// Compares the document in the file `second` to that in `first`. What is wrong with them is part of the result.
    pub(crate) fn of_files(first: &Path, second: &Path, threshold_percent: f64) -> Self {
        let nothing = Self {
            schema: COMPARE_SCHEMA,
            a: first.display().to_string(),
            b: second.display().to_string(),
            threshold_percent,
            regressions: 0,
            rows: Vec::new(),
            only_in_a: Vec::new(),
            only_in_b: Vec::new(),
            notes: Vec::new(),
            error: None,
        };
        let documents = read(first).and_then(|first| Ok((first, read(second)?)));
        let compared = match documents {
            Ok((a, b)) => nothing.clone().of_documents(&a, &b),
            Err(error) => Err(error),
        };
        compared.unwrap_or_else(|error| Self { error: Some(error), ..nothing })
    }

    /// Why nothing could be compared.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The exit code: 0 no regression, 1 at least one, 2 nothing could be compared.
    pub(crate) fn exit_code(&self) -> i32 {
        match (&self.error, self.regressions) {
            (Some(_), _) => 2,
            (None, 0) => 0,
            (None, _) => 1,
        }
    }

    /// The comparison as one JSON document.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"schema\":\"{COMPARE_SCHEMA}\",\"error\":\"{error}\"}}"))
    }

    /// The comparison for a terminal.
    pub(crate) fn table(&self) -> String {
        table::render(self)
    }

    fn of_documents(mut self, a: &Document, b: &Document) -> Result<Self, String> {
        let (pairs, only_in_a, only_in_b) = matched(&a.results, &b.results);
        if pairs.is_empty() {
            let (first, second) = (&self.a, &self.b);
            return Err(format!(
                "{first} and {second} have no row in common: a protocol under the same conditions is needed in both"
            ));
        }
        self.rows = pairs.into_iter().map(|(a, b)| self.pair(a, b)).collect();
        let figures = || self.rows.iter().flat_map(|row| &row.figures);
        if figures().next().is_none() {
            return Err(format!("{} and {} have no figure in common that is compared", self.a, self.b));
        }
        self.regressions = figures().filter(|figure| figure.regression).count();
        self.notes = notes::of_documents((&self.a, a), (&self.b, b));
        self.only_in_a = only_in_a.into_iter().map(Row::name).collect();
        self.only_in_b = only_in_b.into_iter().map(Row::name).collect();
        Ok(self)
    }

    fn pair(&self, a: &Row, b: &Row) -> RowPair {
        let of_b = figures::of(b);
        let both = figures::of(a).into_iter().filter_map(|figure| {
            let counterpart = of_b.iter().find(|other| other.name == figure.name)?;
            Some(compared(&figure, counterpart, self.threshold_percent))
        });
        let figures: Vec<Compared> = both.collect();
        let mut notes = notes::of_rows(("A", a), ("B", b));
        notes.extend(figures.iter().flat_map(notes::of_figure));
        let conditions = a.conditions().into_iter().filter(|(_, value)| !value.is_null());
        let conditions = conditions.map(|(name, value)| (name.to_owned(), value)).collect();
        RowPair { name: a.name(), conditions, figures, notes }
    }
}

/// A fixed seed: the same samples give the same interval.
const SEED: u64 = 1;

fn compared(a: &Figure, b: &Figure, threshold_percent: f64) -> Compared {
    let shift = shift(&a.values, &b.values, SEED);
    let few = a.values.len().min(b.values.len()) < crate::stats::SAMPLES_MIN;
    let verdict = match shift {
        None if few => Verdict::TooFew,
        None => Verdict::NoRatio,
        Some(shift) if !shift.is_shown() => Verdict::NotShown,
        Some(shift) if (shift.ratio > 1.0) == (a.better == Better::Higher) => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    let change_percent = shift.map_or(0.0, |shift| (shift.ratio - 1.0).abs() * 100.0);
    let middle = |figure: &Figure, side: usize| Middle {
        median: median(&figure.values),
        samples: figure.values.len(),
        outliers: shift.map_or(0, |shift| shift.outliers[side]),
    };
    Compared {
        figure: a.name.clone(),
        better: a.better,
        a: middle(a, 0),
        b: middle(b, 1),
        ratio: shift.map(|shift| Ratio { ratio: shift.ratio, low: shift.low, high: shift.high }),
        verdict,
        regression: verdict == Verdict::Worse && change_percent >= threshold_percent,
    }
}

/// Rows with the same conditions, and what is left of either document.
fn matched<'a>(a: &'a [Row], b: &'a [Row]) -> (Vec<(&'a Row, &'a Row)>, Vec<&'a Row>, Vec<&'a Row>) {
    let mut left: Vec<(Vec<_>, &Row)> = b.iter().map(|row| (row.conditions(), row)).collect();
    let (mut pairs, mut only_in_a) = (Vec::new(), Vec::new());
    for row in a {
        // Of equal rows, the first has the first.
        let conditions = row.conditions();
        match left.iter().position(|(other, _)| *other == conditions) {
            Some(place) => pairs.push((row, left.remove(place).1)),
            None => only_in_a.push(row),
        }
    }
    (pairs, only_in_a, left.into_iter().map(|(_, row)| row).collect())
}

#[cfg(test)]
mod tests;
