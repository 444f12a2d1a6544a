//! `bench model`: documents in, models out. What is wrong with the documents is part of the answer.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use super::bootstrap::{Fitted, Interval};
use super::collect::{Series, same_machine, series};
use super::loggp::{LogGp, parameters};
use crate::report::{Measured, said};

/// Name and version of the JSON form of models.
pub const MODEL_SCHEMA: &str = "polyrail-model/1";

/// The models of all curves of some documents.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Models {
    schema: &'static str,
    files: Vec<String>,
    pub(super) models: Vec<Model>,
    pub(super) loggp: Vec<LogGp>,
    /// Curves that were not fitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<Refused>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// One curve's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Model {
    #[serde(flatten)]
    pub(super) conditions: Map<String, Value>,
    #[serde(flatten)]
    pub(super) fitted: Fitted,
    /// Times of sizes that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) predicted: Vec<Predicted>,
}

/// What the model says of a size that was not measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Predicted {
    pub(super) size_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_us: Option<Interval>,
    /// Why nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
}

/// A curve that could not be fitted.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Refused {
    #[serde(flatten)]
    pub(super) conditions: Map<String, Value>,
    pub(super) why: String,
}

impl Model {
    pub(super) fn name(&self) -> String {
        said(&self.conditions)
    }
}

impl Refused {
    pub(super) fn name(&self) -> String {
        said(&self.conditions)
    }
}

impl Models {
    /// The models of the documents in `files`, and what they say of messages of the sizes `at`.
    pub(crate) fn of_files(files: &[PathBuf], at: &[usize]) -> Self {
        let names = files.iter().map(|file| file.display().to_string()).collect();
        let nothing = Self { schema: MODEL_SCHEMA, files: names, ..Self::default() };
        let read = files.iter().map(|file| Measured::read(file)).collect::<Result<Vec<_>, _>>();
        let all = match read {
            Ok(all) => all,
            Err(error) => return Self { error: Some(error), ..nothing },
        };
        match same_machine(&all) {
            Ok(notes) => nothing.of(&series(&all), at, notes),
            Err(error) => Self { error: Some(error), ..nothing },
        }
    }

    /// Nothing, for wrong arguments.
    pub(crate) fn refused(error: String) -> Self {
        Self { schema: MODEL_SCHEMA, error: Some(error), ..Self::default() }
    }

    fn of(mut self, all: &[Series], at: &[usize], notes: Vec<String>) -> Self {
        self.notes = notes;
        let mut fitted = Vec::new();
        for one in all {
            match Fitted::of(&one.curve) {
                Ok(model) => fitted.push((one, model)),
                Err(why) => self.refused.push(Refused { conditions: one.conditions.clone(), why }),
            }
        }
        let modelled: Vec<_> = fitted.iter().map(|(series, model)| (*series, model)).collect();
        self.loggp = parameters(&modelled);
        let model = |(series, fitted): (&Series, Fitted)| Model {
            conditions: series.conditions.clone(),
            predicted: at.iter().map(|&size_bytes| predicted(&fitted, size_bytes)).collect(),
            fitted,
        };
        self.models = fitted.into_iter().map(model).collect();
        if all.is_empty() {
            self.error = Some(
                "nothing in there tells times over sizes: give documents of pingpong, stream, rate, transact or lone, such as \
                 `polyrail bench stream --size 64..1M --json`"
                    .to_owned(),
            );
        } else if self.models.is_empty() {
            let (name, why) = (self.refused[0].name(), &self.refused[0].why);
            self.error = Some(format!("none of {} curves can be fitted; {name}: {why}", all.len()));
        }
        self
    }

    /// Why nothing was fitted.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// 0 all is fitted and predicted, 1 something is not, 2 nothing could be.
    pub(crate) fn exit_code(&self) -> i32 {
        let refused = self.models.iter().flat_map(|model| &model.predicted).any(|one| one.refused.is_some());
        match (&self.error, self.refused.is_empty() && !refused) {
            (Some(_), _) => 2,
            (None, true) => 0,
            (None, false) => 1,
        }
    }

    /// All of it as one JSON document.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"schema\":\"{MODEL_SCHEMA}\",\"error\":\"{error}\"}}"))
    }

    /// All of it for a terminal.
    pub(crate) fn table(&self, plots: bool) -> String {
        super::tell::render(self, plots)
    }
}

fn predicted(fitted: &Fitted, size_bytes: usize) -> Predicted {
    match fitted.time_us(size_bytes) {
        Ok(time_us) => Predicted { size_bytes, time_us: Some(time_us), refused: None },
        Err(why) => Predicted { size_bytes, time_us: None, refused: Some(why) },
    }
}
