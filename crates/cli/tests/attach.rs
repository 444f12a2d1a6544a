//! Programs that use the node of a running `polyrail node`, as a user would type it.

#![forbid(unsafe_code)]

mod running;

use running::Running;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that vanishes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("polyrail-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output().expect("the program starts")
}

/// A node that runs, its control socket, and what programs are given to attach.
fn running(folder: &Folder) -> (Running, String, String) {
    let control = folder.0.join("alpha.sock").display().to_string();
    let arguments =
        ["--json", "node", "--insecure", "--name", "alpha", "--interface", "lo", "--no-discovery"];
    let mut node = Running::start(&[&arguments[..], &["--control", &control]].concat());
    let started = node.document();
    let attach = started["attach"].as_str().expect("a path").to_owned();
    assert_eq!(Path::new(&attach), folder.0.join("alpha.attach"));
    (node, control, format!("--attach={attach}"))
}

#[test]
fn what_one_program_sends_another_receives_by_a_node_of_neither() {
    let folder = Folder::new("attach");
    let (_node, control, attach) = running(&folder);
    let mut receiver = Running::start(&["--json", "recv", &attach, "100:0", "--count", "1"]);
    let mut watcher = Running::start(&["--json", "watch", &attach, "100:0-9"]);
    let published = watcher.document();
    // It may have looked before the other had bound.
    let published = if published["event"] == "snapshot-end" { watcher.document() } else { published };
    assert_eq!((&published["event"], &published["lower"]), (&json!("published"), &json!(0)));
    let ports = run(&["--json", "port", "list", "--control", &control]);
    let ports: Value = serde_json::from_slice(&ports.stdout).expect("JSON");
    assert_eq!(ports["rows"][0]["program"], "polyrail", "{ports}");
    assert_eq!(ports["rows"][0]["pid"], receiver.child.id());
    let sent = run(&["send", &attach, "100:0", "--text", "hello"]);
    assert!(sent.status.success(), "{sent:?}");
    let message = receiver.document();
    assert_eq!(message["text"], "hello", "{message}");
    let withdrawn = std::iter::from_fn(|| Some(watcher.document())).find(|told| told["event"] == "withdrawn");
    assert_eq!(withdrawn.map(|told| told["type"].clone()), Some(json!(100)), "it has ended");
}

#[test]
fn who_finds_no_node_to_attach_to_is_told_what_to_do() {
    let folder = Folder::new("attach-nobody");
    let nobody = folder.0.join("nobody.attach").display().to_string();
    let failed = run(&["send", &format!("--attach={nobody}"), "100:0", "--text", "hello"]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains(&nobody) && said.contains("polyrail node"), "{said}");
}

#[test]
fn the_instrument_makes_transactions_of_programs_that_share_a_node_and_a_core() {
    let line = "bench transact --placement intra --one-core --wait block --size 128 --protocol polyrail-attached \
                --duration 0.2 --warmup 0.05 --repeat 1 --json";
    let measured = run(&line.split_whitespace().collect::<Vec<_>>());
    let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let row = &report["results"][0];
    let count = row["transactions"]["median"].as_f64().expect("a count");
    assert!(measured.status.success() && count > 100.0, "{count}: {}", report["errors"]);
    for count in ["lost", "duplicated", "reordered", "damaged"] {
        assert_eq!(row[count], 0, "{row}");
    }
    assert!(report["notes"].to_string().contains("shared core 0"), "{}", report["notes"]);
}

#[test]
fn the_instrument_measures_many_clients_of_one_server_that_lose_nothing() {
    for workload in ["pingpong", "rate"] {
        let line = format!(
            "bench {workload} --placement intra --clients 6 --protocol polyrail-attached,polyrail-hosted,unix-stream \
             --duration 0.2 --warmup 0.05 --repeat 1 --vs polyrail-attached:unix-stream --json"
        );
        let measured = run(&line.split_whitespace().collect::<Vec<_>>());
        let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
        assert!(measured.status.success(), "{report}");
        let rows = report["results"].as_array().expect("rows");
        assert!(rows.len() == 3 && !report["ratios"][0].is_null(), "{report}");
        for row in rows {
            assert_eq!((&row["clients"], &row["wait"]), (&json!(6), &json!("block")), "{row}");
            for count in ["lost", "duplicated", "reordered", "damaged"] {
                assert_eq!(row[count], 0, "{row}");
            }
            let messages = row["by_client"]["messages"][0].as_array().expect("a count for each");
            assert!(messages.len() == 6 && messages.iter().any(|count| count.as_u64() > Some(0)), "{row}");
            let node = row["crowd_memory_mib"]["node"]["median"].as_f64().expect("its memory");
            assert_eq!(node > 0.0, row["protocol"] == "polyrail-attached", "{row}");
        }
    }
}
