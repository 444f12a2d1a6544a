//! What the doctor says at a node of a testbed, and what an operator does about it.
#![allow(dead_code)]

use crate::world::{PROGRAM, Scratch, last_document};
use polyrail_bench::netns::Testbed;
use serde_json::Value;
use std::process::Stdio;

/// Exit code and document of `polyrail doctor` at a node of the testbed.
pub fn doctor(testbed: &Testbed, node: usize, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = testbed.command(node, PROGRAM);
    command.args(["--json", "doctor"]).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    (output.status.code(), last_document(&output))
}

/// The findings of one check.
pub fn found<'a>(document: &'a Value, check: &str) -> Vec<&'a Value> {
    let all = document["findings"].as_array().unwrap_or_else(|| panic!("no findings: {document}"));
    all.iter().filter(|finding| finding["check"] == check).collect()
}

/// Asks the doctor until a check finds something, for nodes need a while to notice; the limit is there for what hangs.
pub fn until_found(testbed: &Testbed, node: usize, socket: &Scratch, check: &str) -> Value {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (code, document) = doctor(testbed, node, &["--control", socket.path()]);
        if let Some(finding) = found(&document, check).first() {
            assert!(code == Some(1) || finding["severity"] == "note", "{document}");
            return (*finding).clone();
        }
        assert!(std::time::Instant::now() < deadline, "no {check}: {document}");
    }
}

/// Runs a line of a shell inside a node, as an operator would.
pub fn shell(testbed: &Testbed, node: usize, line: &str) {
    let output = testbed.command(node, "sh").args(["-c", line]).output().expect("sh starts");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Runs the first command that a finding gives, inside the node at which it was found.
pub fn mend(testbed: &Testbed, node: usize, finding: &Value) {
    shell(testbed, node, finding["mend"][0].as_str().expect("a command"));
}

/// Asks the doctor until a check finds nothing any more.
pub fn until_gone(testbed: &Testbed, node: usize, socket: &Scratch, check: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (_, document) = doctor(testbed, node, &["--control", socket.path()]);
        if found(&document, check).is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{check} stays: {document}");
    }
}
