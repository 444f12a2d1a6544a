//! Reads a document that `--json` wrote.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::report::SCHEMA;
use crate::report::document::Document;
use crate::schema;

/// No report comes near; what is larger is something else.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// The document in a file; the error is one line that names it.
pub(in crate::report) fn read(path: &Path) -> Result<Document, String> {
    let told = |error: String| format!("{}: {error}", path.display());
    parse(&bytes(path).map_err(told)?).map_err(told)
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(format!("is larger than {DOCUMENT_BYTES_MAX} bytes: it is no report of bench"));
    }
    Ok(bytes)
}

/// The document that these bytes are; the error is one line.
pub(in crate::report) fn parse(bytes: &[u8]) -> Result<Document, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))?;
    // First of all: what else a newer document has may well look wrong here.
    schema::check(&value, SCHEMA)?;
    serde_json::from_value(value).map_err(|error| format!("is no report of bench: {error}"))
}
