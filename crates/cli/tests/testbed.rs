//! `polyrail testbed`, against real network namespaces. Needs root; says so and passes where there is none.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output};

fn polyrail(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polyrail"))
        .arg("--json")
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Removes its testbed even if the test fails.
struct Guard(String);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = polyrail(&["testbed", "down", &self.0]);
    }
}

#[test]
fn a_testbed_stays_until_it_is_taken_down_and_runs_commands_inside() {
    let name = format!("cli-{}", std::process::id());
    let up = polyrail(&["testbed", "up", &name, "--link", "rate=100", "--link", "rate=100,mtu=1400"]);
    if up.status.code() == Some(3) {
        // Past the capture of the test's output: a skipped test is said aloud.
        let reason = document(&up)["error"]["message"].to_string();
        let _ = writeln!(std::io::stderr(), "SKIPPED testbed: {reason}");
        return;
    }
    let _guard = Guard(name.clone());
    assert_eq!(up.status.code(), Some(0), "{}", String::from_utf8_lossy(&up.stdout));
    let rows = document(&up)["rows"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), 4, "two nodes on two links: {rows:?}");

    let listed = document(&polyrail(&["testbed", "list"]));
    assert!(listed["rows"].as_array().expect("rows").iter().any(|row| row["testbed"] == *name));

    let again = polyrail(&["testbed", "up", &name]);
    assert_eq!(again.status.code(), Some(1), "a name that is held is refused");
    assert!(document(&again)["error"]["message"].to_string().contains("polyrail testbed down"), "{again:?}");

    let address = rows[2]["address"].as_str().expect("an address");
    let inside = polyrail(&["testbed", "exec", &name, "b", "--", "ip", "-o", "address", "show", "dev", "l0"]);
    assert!(String::from_utf8_lossy(&inside.stdout).contains(address), "{inside:?}");
    let code = polyrail(&["testbed", "exec", &name, "a", "--", "sh", "-c", "exit 42"]).status.code();
    assert_eq!(code, Some(42), "the command's own exit code is handed on");
    assert_eq!(polyrail(&["testbed", "exec", &name, "z", "--", "true"]).status.code(), Some(4));

    let down = polyrail(&["testbed", "down", &name]);
    assert_eq!(document(&down)["removed"][0], *name);
    assert_eq!(polyrail(&["testbed", "down", &name]).status.code(), Some(4));
}
