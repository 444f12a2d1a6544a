//! The demo's promise: whatever is cut, everything arrives, once, in order, unchanged. Needs root or user namespaces;
//! says so and passes where there are none.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::Write;
use std::process::Command;

#[test]
fn cuts_in_mid_transfer_lose_and_double_nothing() {
    let arguments = ["--json", "demo", "--bytes", "64M", "--no-figures", "--source", "/usr/lib"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output().expect("the program starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {told}"));
    if output.status.code() == Some(3) {
        // Past the capture of the test's output: a skipped test is said aloud.
        let _ = writeln!(std::io::stderr(), "SKIPPED demo: {}", document["error"]["message"]);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{document}\n{told}");
    for count in ["lost", "duplicated", "disordered"] {
        assert_eq!(document[count], 0, "{document}\n{told}");
    }
    assert_eq!(document["hash_ok"], true, "{document}");
    assert_eq!(document["bytes"], 64 << 20);
    for switch in ["carrier", "carrier_restored", "black_hole", "black_hole_restored"] {
        assert!(document["gaps_ms"].get(switch).is_some(), "{switch} was not thrown: {document}\n{told}");
    }
}
