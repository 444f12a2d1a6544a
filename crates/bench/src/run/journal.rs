//! The file that remembers every sample once it is taken, so that a run that was cut can be continued.
//!
//! One JSON value a line: first what is measured and where, then samples as they come. A line is written at once and
//! brought to the disk; what a power cut leaves of the last one is dropped when the run goes on.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Sample;
use crate::args::Plan;
use crate::calibrate::Pulses;
use crate::host::Host;
use crate::report::Case;
use crate::schema;

/// Name and version of the journal's form.
pub const JOURNAL_SCHEMA: &str = "polyrail-bench-journal/1";

/// How every journal begins: what else a file without a whole line holds is not ours to overwrite.
const BEGINNING: &[u8] = b"{\"schema\":\"polyrail-bench-journal/";
/// No run fills more; what is larger is something else.
const JOURNAL_BYTES_MAX: u64 = 4 << 30;

/// A journal that is open and locked.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Samples of earlier runs that came to their end, by case and repetition.
    taken: HashMap<(String, u32), (Sample, Pulses)>,
    /// Machines of the earlier runs, where they differ from this one.
    elsewhere: Vec<String>,
    /// How many of `taken` this run has used.
    used: usize,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    schema: String,
    plan: Value,
    host: Host,
}

/// Every further line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// Something was measured.
    Sample(Box<Entry>),
    /// A further run goes on from here.
    Continued { host: Box<Host> },
}

#[derive(Serialize, Deserialize)]
struct Entry {
    case: Value,
    /// Counted from 1.
    repetition: u32,
    calibration: Pulses,
    sample: Sample,
}

impl Journal {
    /// Opens the journal at `path`, or begins one. The error is one line for the user.
    pub(super) fn open(path: &Path, plan: &Plan, host: &Host) -> Result<Self, String> {
        let told = |error: String| format!("--journal {}: {error}", path.display());
        let mut file = lock(path).map_err(told)?;
        let bytes = read(&mut file).map_err(told)?;
        let plan = as_read(plan);
        let mut journal =
            Self { path: path.to_owned(), file, taken: HashMap::new(), elsewhere: Vec::new(), used: 0 };
        match journal.take(&bytes, &plan, host).map_err(told)? {
            0 => {
                journal.cut(0)?;
                journal.write(&Head { schema: JOURNAL_SCHEMA.to_owned(), plan, host: host.clone() })?;
            }
            good => {
                journal.cut(good)?;
                journal.write(&Line::Continued { host: Box::new(host.clone()) })?;
            }
        }
        Ok(journal)
    }

    /// How many samples it has from before.
    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }

    /// What was measured before, if it was and came to its end; `repetition` counts from 0.
    pub(super) fn known(&mut self, case: &Case, repetition: u32) -> Option<(Sample, Pulses)> {
        let known = self.taken.remove(&(key(&as_read(case)), repetition + 1))?;
        self.used += 1;
        Some(known)
    }

    /// Remembers what was measured; `repetition` counts from 0.
    pub(super) fn add(
        &mut self,
        case: &Case,
        repetition: u32,
        sample: &Sample,
        pulses: &Pulses,
    ) -> Result<(), String> {
        let (sample, calibration) = (sample.clone(), *pulses);
        let entry = Entry { case: as_read(case), repetition: repetition + 1, calibration, sample };
        self.write(&Line::Sample(Box::new(entry)))
    }

    /// What the report must say of samples that this run did not take.
    pub(super) fn notes(&self) -> Vec<String> {
        if self.used == 0 {
            return Vec::new();
        }
        let (used, path) = (self.used, self.path.display());
        let from = format!(
            "{used} samples are from an earlier run, by the journal {path}: a repetition that was cut has pairs that were not \
             measured next to each other"
        );
        let elsewhere =
            self.elsewhere.iter().map(|host| format!("journal {path}: an earlier run had {host}"));
        std::iter::once(from).chain(elsewhere).collect()
    }

    /// Takes in what earlier runs left and gives the length of it that is whole.
    fn take(&mut self, bytes: &[u8], plan: &Value, host: &Host) -> Result<usize, String> {
        let mut good = 0;
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        for (index, line) in lines.enumerate() {
            let last = good + line.len() == bytes.len();
            let whole = line.ends_with(b"\n");
            match index {
                0 if !whole && (BEGINNING.starts_with(line) || line.starts_with(BEGINNING)) => break,
                0 => self.meet(&head(line, plan)?.host, host),
                _ if !whole => break,
                _ => match serde_json::from_slice(line) {
                    Ok(line) => self.take_line(line, host),
                    Err(_) if last => break,
                    Err(error) => return Err(format!("line {} is damaged: {error}", index + 1)),
                },
            }
            good += line.len();
        }
        Ok(good)
    }

    fn take_line(&mut self, line: Line, here: &Host) {
        match line {
            Line::Continued { host } => self.meet(&host, here),
            // What failed is measured again.
            Line::Sample(entry) if entry.sample.error.is_some() => {}
            Line::Sample(entry) => {
                let place = (key(&entry.case), entry.repetition);
                self.taken.insert(place, (entry.sample, entry.calibration));
            }
        }
    }

    /// Notes how the machine of an earlier run differs from this one.
    fn meet(&mut self, there: &Host, here: &Host) {
        for difference in there.differences(here) {
            let (name, there, here) = difference;
            let told = format!("{name} {there}, this one {here}");
            if !self.elsewhere.contains(&told) {
                self.elsewhere.push(told);
            }
        }
    }

    /// Drops what follows the first `length` bytes, and goes on writing there.
    fn cut(&mut self, length: usize) -> Result<(), String> {
        let length = length as u64;
        let cut = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::Start(length)));
        cut.map(|_| ()).map_err(|error| self.told(&error))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|error| self.told(&error))?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| self.told(&error))
    }

    fn told(&self, error: &dyn std::fmt::Display) -> String {
        format!("--journal {}: {error}", self.path.display())
    }
}

/// Opens the file for this run alone.
fn lock(path: &Path) -> Result<File, String> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = opened.map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("is no ordinary file".to_owned());
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err("another run writes it: wait for its end, or name another file".to_owned())
        }
        Err(error) => Err(format!("cannot be locked: {error}")),
    }
}

fn read(file: &mut File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(JOURNAL_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > JOURNAL_BYTES_MAX {
        return Err(format!("is larger than {JOURNAL_BYTES_MAX} bytes: it is no journal of bench"));
    }
    Ok(bytes)
}

/// The first line, if it is that of the same plan.
fn head(line: &[u8], plan: &Value) -> Result<Head, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("is no journal of bench: {error}"))?;
    schema::check(&value, JOURNAL_SCHEMA)?;
    let head: Head =
        serde_json::from_value(value).map_err(|error| format!("its first line is damaged: {error}"))?;
    let differs = differences(&head.plan, plan);
    if differs.is_empty() {
        return Ok(head);
    }
    Err(format!(
        "was begun with other arguments ({}): give the same, or name another file",
        differs.join("; ")
    ))
}

/// Which members of two plans differ, and how.
fn differences(there: &Value, here: &Value) -> Vec<String> {
    let names =
        |plan: &Value| plan.as_object().map(|plan| plan.keys().cloned().collect()).unwrap_or_default();
    let mut all: Vec<String> = names(there);
    all.extend(names(here));
    all.sort();
    all.dedup();
    let differs = all.iter().filter(|name| there.get(name) != here.get(name));
    let shown = |plan: &Value, name: &String| plan.get(name).map_or("absent".to_owned(), Value::to_string);
    differs.map(|name| format!("{name} {}, now {}", shown(there, name), shown(here, name))).collect()
}

/// A value as it is when it has been written and read again: only so do two of them compare.
fn as_read(value: &impl Serialize) -> Value {
    let text = serde_json::to_string(value).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn key(case: &Value) -> String {
    case.to_string()
}

#[cfg(test)]
mod tests;
