//! What a finding in a plan file says, and which of the measured rows it is about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::{Spanned, Value};

/// Something that was found by others, to be decided by what is measured here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    pub(super) name: String,
    /// The finding as a sentence.
    pub(super) says: String,
    /// Where it was published, if not where the plan says.
    pub(super) source: Option<String>,
    /// What it cannot be decided without, and what is not there: then nothing else is asked.
    pub(super) needs: Option<String>,
    pub(super) figure: Option<Figure>,
    /// What all rows have in common.
    #[serde(default)]
    pub(super) rows: BTreeMap<String, Value>,
    /// Rows whose figures are multiplied, and those by which that is divided.
    #[serde(default)]
    pub(super) of: Vec<BTreeMap<String, Value>>,
    #[serde(default)]
    pub(super) by: Vec<BTreeMap<String, Value>>,
    /// Conditions that take several values: one verdict for each of them.
    #[serde(default)]
    pub(super) each: BTreeMap<String, Vec<Value>>,
    /// What was published: one number, or one for each verdict.
    pub(super) published: Option<Published>,
    /// It holds above this number, below it, or within these.
    pub(super) above: Option<f64>,
    pub(super) below: Option<f64>,
    pub(super) between: Option<[f64; 2]>,
}

/// Published numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Published {
    One(f64),
    Each(Vec<f64>),
}

/// What of a row is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Payload that arrived, of all pairs.
    Throughput,
    /// Messages, or answers, per second.
    Rate,
    /// The median time.
    Latency,
    /// Throughput of the pair that got least.
    LeastOfPairs,
    /// CPU time per byte of one side.
    SenderCpu,
    ReceiverCpu,
    /// Time that cores of the machine were busy, per byte.
    MachineCpu,
}

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Claim {
    Above(f64),
    Below(f64),
    Between(f64, f64),
}

impl Claim {
    pub(super) fn words(self) -> String {
        match self {
            Self::Above(bound) => format!("above {bound}"),
            Self::Below(bound) => format!("below {bound}"),
            Self::Between(low, high) => format!("{low} to {high}"),
        }
    }
}

/// One verdict to be given: rows with their powers, in a product.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The values of `each`, as the conditions of a row have them.
    pub(super) at: BTreeMap<String, Json>,
    pub(super) published: Option<f64>,
    pub(super) terms: Vec<Term>,
}

#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) conditions: BTreeMap<String, Json>,
    pub(super) power: f64,
}

/// Keys of a row's selection that are no conditions: a power of the figure, and a socket buffer by the size of the message.
const POWER: &str = "power";
const BUFFER_BY_SIZE: &str = "socket_buffer_by_size";
const BUFFER: &str = "socket_buffer_max";

impl Finding {
    /// The figure and what decides.
    ///
    /// # Errors
    /// One of them is missing or there are two.
    pub(super) fn decides(&self) -> Result<(Figure, Claim), String> {
        let figure = self.figure.ok_or("the finding has no `figure` (or what it `needs`)")?;
        let claim = match (self.above, self.below, self.between) {
            (Some(bound), None, None) => Claim::Above(bound),
            (None, Some(bound), None) => Claim::Below(bound),
            (None, None, Some([low, high])) if low < high => Claim::Between(low, high),
            _ => return Err("the finding needs one of `above`, `below`, `between = [low, high]`".to_owned()),
        };
        if self.of.is_empty() || self.by.is_empty() {
            return Err(
                "the finding needs rows `of` which figures are divided `by` those of others".to_owned()
            );
        }
        Ok((figure, claim))
    }

    /// The verdicts to be given, in order; `known` are the names of conditions.
    ///
    /// # Errors
    /// A name that is no condition, or fewer or more published numbers than verdicts.
    pub(super) fn questions(&self, known: &[&str]) -> Result<Vec<Question>, String> {
        let mut places: Vec<BTreeMap<String, Json>> = vec![BTreeMap::new()];
        for (name, values) in &self.each {
            let with = |place: &BTreeMap<String, Json>| {
                let one = |value: &Value| {
                    let mut place = place.clone();
                    place.insert(name.clone(), json(value));
                    place
                };
                values.iter().map(one).collect::<Vec<_>>()
            };
            places = places.iter().flat_map(with).collect();
        }
        let count = places.len();
        let published = match &self.published {
            None => vec![None; count],
            Some(Published::One(number)) => vec![Some(*number); count],
            Some(Published::Each(numbers)) if numbers.len() == count => {
                numbers.iter().map(|number| Some(*number)).collect()
            }
            Some(Published::Each(numbers)) => {
                return Err(format!("`published` has {} numbers for {count} verdicts", numbers.len()));
            }
        };
        let question = |(at, published)| {
            let terms = self.terms(&at, known)?;
            Ok(Question { at, published, terms })
        };
        places.into_iter().zip(published).map(question).collect()
    }

    fn terms(&self, at: &BTreeMap<String, Json>, known: &[&str]) -> Result<Vec<Term>, String> {
        let signed = self.of.iter().map(|row| (row, 1.0)).chain(self.by.iter().map(|row| (row, -1.0)));
        signed.map(|(row, sign)| self.term(row, sign, at, known)).collect()
    }

    fn term(
        &self,
        row: &BTreeMap<String, Value>,
        sign: f64,
        at: &BTreeMap<String, Json>,
        known: &[&str],
    ) -> Result<Term, String> {
        let number = |name: &str, value: &Json| {
            value.as_f64().ok_or_else(|| format!("`{name}` is no number: {value}"))
        };
        let mut term = Term { conditions: BTreeMap::new(), power: sign };
        let mut by_size = None;
        // What a row says of itself counts more than what is said of all.
        let common = self.rows.iter().map(|(name, value)| (name, json(value)));
        let varied = at.iter().map(|(name, value)| (name, value.clone()));
        let own = row.iter().map(|(name, value)| (name, json(value)));
        for (name, value) in common.chain(varied).chain(own) {
            match name.as_str() {
                POWER => term.power = sign * number(name, &value)?,
                BUFFER_BY_SIZE => by_size = Some(number(name, &value)?),
                name if known.contains(&name) => {
                    term.conditions.insert(name.to_owned(), value);
                }
                name => {
                    return Err(format!(
                        "`{name}` is no condition of a row: there are {}, {POWER}, {BUFFER_BY_SIZE}",
                        known.join(", ")
                    ));
                }
            }
        }
        if let Some(factor) = by_size {
            let size = term.conditions.get("size").ok_or(format!("`{BUFFER_BY_SIZE}` needs a `size`"))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in bytes")]
            let bytes = (factor * number("size", size)?) as u64;
            term.conditions.insert(BUFFER.to_owned(), bytes.into());
        }
        Ok(term)
    }
}

impl Term {
    /// Whether a row with these conditions is meant.
    pub(super) fn is_about(&self, row: &[(&'static str, Json)]) -> bool {
        let has = |name: &str, wanted: &Json| {
            row.iter().find(|(known, _)| *known == name).is_some_and(|(_, value)| is_same(value, wanted))
        };
        self.conditions.iter().all(|(name, wanted)| has(name, wanted))
    }

    pub(super) fn words(&self) -> String {
        let word = |(name, value): (&String, &Json)| match value {
            Json::String(text) => format!("{name} {text}"),
            value => format!("{name} {value}"),
        };
        self.conditions.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// What a condition is that a row has not: TOML has no word for that.
const NONE: &str = "none";

/// Whether a row's value is the one that is wanted. TOML tells whole numbers from others, JSON does not always.
fn is_same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Null, Json::String(text)) => text == NONE,
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        _ => a == b || a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a == b),
    }
}

fn json(value: &Value) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

/// A finding and where it stands in its file.
pub(crate) type Placed = Spanned<Finding>;
