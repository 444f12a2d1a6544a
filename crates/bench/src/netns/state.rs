//! The record of every testbed that exists, so that any process can list and remove them.
//!
//! The record is written before the first namespace and removed after the last: a creation that is cut short can
//! always be cleaned up.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::command::NetnsError;
use super::spec::Spec;

/// A testbed as recorded on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Process that created the testbed.
    pub pid: u32,
    /// Second number of the addresses: link `i` has the network 10.`subnet`.`i`.0/24.
    pub subnet: u8,
    /// What the testbed looks like.
    pub spec: Spec,
    /// Whether it shall outlive the process that created it.
    #[serde(default)]
    pub kept: bool,
}

impl Record {
    /// Whether the process that created the testbed still runs.
    pub fn owner_runs(&self) -> bool {
        PathBuf::from(format!("/proc/{}", self.pid)).exists()
    }

    /// Whether nobody will remove it: its process was killed.
    pub fn is_abandoned(&self) -> bool {
        !self.kept && !self.owner_runs()
    }
}

/// The folder of the records: /run/polyrail/testbed for root, else below $XDG_RUNTIME_DIR.
fn folder() -> Result<PathBuf, NetnsError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/polyrail/testbed"));
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) => Ok(PathBuf::from(run).join("polyrail/testbed")),
        None => Err(NetnsError::Permission),
    }
}

/// Writes a new record. Creating the file exclusively makes two creators of one name exclude each other.
pub(super) fn claim(record: &Record) -> Result<(), NetnsError> {
    let folder = folder()?;
    let failed = |error: std::io::Error| NetnsError::State(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(failed)?;
    let text = serde_json::to_string(record).map_err(|error| NetnsError::State(error.to_string()))?;
    let path = folder.join(format!("{}.json", record.spec.name));
    let mut file = fs::File::create_new(&path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => NetnsError::Exists {
            name: record.spec.name.clone(),
            pid: find(&record.spec.name).map_or(0, |r| r.pid),
        },
        _ => failed(error),
    })?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

/// Replaces a record, at once and as a whole.
pub(super) fn replace(record: &Record) -> Result<(), NetnsError> {
    let path = folder()?.join(format!("{}.json", record.spec.name));
    let fresh = path.with_extension("new");
    let text = serde_json::to_string(record).map_err(|error| NetnsError::State(error.to_string()))?;
    fs::write(&fresh, text)
        .and_then(|()| fs::rename(&fresh, &path))
        .map_err(|error| NetnsError::State(format!("{}: {error}", path.display())))
}

/// Removes a record; a missing one is fine.
pub(super) fn release(name: &str) -> Result<(), NetnsError> {
    let path = folder()?.join(format!("{name}.json"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(NetnsError::State(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The record of one testbed.
pub(super) fn find(name: &str) -> Option<Record> {
    all().into_iter().find(|record| record.spec.name == name)
}

/// Every record that can be read.
pub(super) fn all() -> Vec<Record> {
    let Ok(entries) = folder().and_then(|f| fs::read_dir(f).map_err(|e| NetnsError::State(e.to_string())))
    else {
        return Vec::new();
    };
    let mut records: Vec<Record> = entries
        .filter_map(|entry| fs::read(entry.ok()?.path()).ok())
        .filter_map(|text| serde_json::from_slice(&text).ok())
        .collect();
    records.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    records
}
