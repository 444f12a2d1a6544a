//! Which crate of the project may need which: the picture of ARCHITECTURE.md as a table.

use super::source;
use std::collections::BTreeSet;
use std::fs;
use toml::{Table, Value};

/// Each crate's folder and the folders of the crates it may need. Lower floors first.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("sys", &[]),
    ("shm", &[]),
    ("proto", &[]),
    ("bearer", &["shm", "sys"]),
    ("node", &["proto", "bearer", "shm", "sys"]),
    ("sim", &["node", "proto", "bearer"]),
    ("bench", &["node", "shm", "sys"]),
    ("cli", &["bench", "node"]),
];

/// What tests may need beyond that.
const ALLOWED_IN_TESTS: [(&str, &[&str]); 2] = [("node", &["bench"]), ("bearer", &["bench"])];

/// One line for each arrow that is not allowed.
pub fn findings() -> Vec<String> {
    let crates = source::root().join("crates");
    let mut folders: Vec<String> = fs::read_dir(&crates)
        .expect("crates/ can be read")
        .map(|entry| entry.expect("an entry can be read").file_name().into_string().expect("names are ASCII"))
        .filter(|name| crates.join(name).join("Cargo.toml").exists())
        .collect();
    folders.sort();
    let mut findings = Vec::new();
    for folder in &folders {
        let text =
            fs::read_to_string(crates.join(folder).join("Cargo.toml")).expect("a manifest can be read");
        let manifest: Table = text.parse().expect("a manifest is TOML");
        findings.extend(manifest_findings(folder, &manifest));
    }
    findings
}

fn manifest_findings(folder: &str, manifest: &Table) -> Vec<String> {
    let Some(allowed) = row(&ALLOWED, folder) else {
        return vec![format!("crates/{folder}: has no row in the table of arrows")];
    };
    let in_tests = row(&ALLOWED_IN_TESTS, folder).unwrap_or_default();
    let mut findings = Vec::new();
    for needed in needs(manifest, &["dependencies", "build-dependencies"]) {
        if !allowed.contains(&needed.as_str()) {
            findings
                .push(format!("crates/{folder}/Cargo.toml: {folder} needs {needed}; allowed: {allowed:?}"));
        }
    }
    for needed in needs(manifest, &["dev-dependencies"]) {
        if !allowed.contains(&needed.as_str()) && !in_tests.contains(&needed.as_str()) {
            findings.push(format!("crates/{folder}/Cargo.toml: the tests of {folder} need {needed}"));
        }
    }
    findings
}

fn row<'a>(table: &[(&str, &'a [&'a str])], folder: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(name, _)| *name == folder).map(|(_, needed)| *needed)
}

/// The folders of our crates that these sections name, also below `[target.*]`.
fn needs(manifest: &Table, sections: &[&str]) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, value)| value.as_table()).chain([manifest]);
    tables
        .flat_map(|table| sections.iter().filter_map(|section| table.get(*section)?.as_table()))
        .flat_map(|dependencies| dependencies.iter())
        .filter_map(|(name, value)| {
            let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
            if package == "polyrail" { Some("node") } else { package.strip_prefix("polyrail-") }
        })
        .map(str::to_string)
        .collect()
}

#[test]
fn a_forbidden_arrow_is_found_in_every_section() {
    let found = |folder: &str, text: &str| manifest_findings(folder, &text.parse().unwrap()).len();
    assert_eq!(found("proto", "[dependencies]\narrayvec = \"0.7\""), 0);
    assert_eq!(found("proto", "[dependencies]\npolyrail-sys.workspace = true"), 1);
    assert_eq!(found("bearer", "[dependencies]\ncore = { package = \"polyrail-proto\", path = \"x\" }"), 1);
    assert_eq!(found("bench", "[target.'cfg(unix)'.dependencies]\npolyrail-cli = { path = \"x\" }"), 1);
    assert_eq!(found("node", "[dev-dependencies]\npolyrail-bench.workspace = true"), 0);
    assert_eq!(found("node", "[dependencies]\npolyrail-bench.workspace = true"), 1);
    assert_eq!(found("attic", ""), 1);
}
