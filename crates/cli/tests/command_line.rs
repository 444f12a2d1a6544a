//! The program as a person or a script meets it: help, exit codes, failures in one line.

#![forbid(unsafe_code)]

use std::process::{Command, Output};

fn polyrail(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

/// Runs a command that fails with `code`, and gives its one line on the standard error.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = polyrail(arguments);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {line}");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    line.trim_end().to_string()
}

/// A file that vanishes with the value.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file can be written");
        File(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Every command by its words, as `--help` lists them.
fn commands(prefix: &[&str]) -> Vec<Vec<String>> {
    let help = text(&polyrail(&[prefix, &["--help"]].concat()).stdout);
    let listed = help.split("Commands:").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let names =
        listed.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let mut found = Vec::new();
    for name in names {
        let words = [prefix, &[name]].concat();
        let below = commands(&words);
        if below.is_empty() {
            found.push(words.iter().map(|word| word.to_string()).collect());
        }
        found.extend(below);
    }
    found
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands = commands(&[]);
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = polyrail(&arguments);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        let example = format!("Example: polyrail {}", command.join(" "));
        assert!(text(&output.stdout).contains(&example), "{command:?} shows no example");
    }
}

#[test]
fn the_help_lists_the_exit_codes() {
    let help = text(&polyrail(&["--help"]).stdout);
    for code in ["0 done", "1 failed", "2 wrong", "3 not available", "4 no such", "5 timed out"] {
        assert!(help.contains(code), "{help}");
    }
}

#[test]
fn wrong_flags_are_answered_in_one_line_with_what_is_allowed() {
    let line = failure(&["--log", "loud", "testbed", "list"], 2);
    assert!(
        line.contains("'loud'") && line.contains("[possible values: error, warn, info, debug]"),
        "{line}"
    );
    let line = failure(&["testbed", "up"], 2);
    assert!(line.contains("<NAME>"), "{line}");
    let line = failure(&["testbed", "up", "t", "--link", "speed=3"], 2);
    assert!(line.contains("\"speed=3\"") && line.contains("allowed: rate, burst"), "{line}");
    let line = failure(&["tesbed"], 2);
    assert!(line.contains("'tesbed'") && line.contains("'testbed'"), "{line}");
}

#[test]
fn a_failure_with_json_is_one_document_on_the_standard_output() {
    for arguments in [["--json", "config", "check", "/nowhere"], ["config", "check", "/nowhere", "--json"]] {
        let output = polyrail(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stderr.is_empty());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert_eq!(document["ok"], false);
        assert_eq!(document["error"]["code"], "usage");
        assert!(
            document["error"]["message"].as_str().is_some_and(|m| m.starts_with("/nowhere: ")),
            "{document}"
        );
    }
    let output = polyrail(&["--json", "nonsense"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((output.status.code(), &document["error"]["code"]), (Some(2), &"usage".into()));
}

#[test]
fn config_check_accepts_the_example_and_names_the_line_of_a_mistake() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/polyrail.toml");
    assert_eq!(polyrail(&["config", "check", example]).status.code(), Some(0));

    let wrong = File::new("wrong.toml", "security = \"none\"\n\nport = 70000\n");
    let line = failure(&["config", "check", wrong.path()], 2);
    assert!(line.starts_with(&format!("polyrail: {}:3: ", wrong.path())), "{line}");

    let silent = File::new("silent.toml", "cluster = \"x\"\n");
    let line = failure(&["config", "check", silent.path()], 2);
    assert!(line.contains("security: not set; allowed: \"none\""), "{line}");
}

#[test]
fn an_unknown_testbed_is_not_found_and_the_known_ones_are_named() {
    for arguments in [&["testbed", "down", "no-such"][..], &["testbed", "exec", "no-such", "a", "--", "true"]]
    {
        let line = failure(arguments, 4);
        assert!(line.contains("no testbed is named no-such; there "), "{line}");
    }
}

#[test]
fn a_file_that_is_not_there_is_told_before_the_service_is_waited_for() {
    let arguments = ["send", "--insecure", "--wait=1ms", "60000:1", "-", "no-such-file"];
    let line = failure(&arguments, 1);
    assert!(line.contains("no-such-file: No such file"), "{line}");
}

#[test]
fn the_version_is_printed() {
    let output = polyrail(&["--version"]);
    assert_eq!(text(&output.stdout), concat!("polyrail ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// A report of one row with the throughputs `mbps`, a repetition each.
fn report(schema: &str, mbps: &[f64]) -> String {
    let host = serde_json::json!({
        "kernel": "Linux", "cpu": "a", "cores": 2, "governor": null, "hypervisor": false, "memory_mib": 1,
        "congestion_control": "cubic", "load_1min": 0.0, "version": "0", "optimized": true
    });
    let spread = serde_json::json!({ "median": mbps[0], "low": 0.0, "high": 9e9, "samples": mbps.len(), "values": mbps });
    let row = serde_json::json!({
        "workload": "stream", "protocol": "pipe", "placement": "intra", "links": 1, "rate_mbit": [null],
        "loss_percent": [0.0], "size": 64, "wait": "spin", "throughput_mbps": spread, "lost": 0, "duplicated": 0,
        "reordered": 0, "damaged": 0, "calibration": []
    });
    serde_json::json!({ "schema": schema, "host": host, "results": [row], "ratios": [] }).to_string()
}

#[test]
fn comparing_tells_by_its_code_whether_anything_became_worse() {
    let before = [100.0, 101.0, 102.0, 103.0, 104.0];
    let a = File::new("a.json", &report("polyrail-bench/1", &before));
    let b = File::new("b.json", &report("polyrail-bench/1", &before.map(|mbps| 0.9 * mbps)));
    let compared = |arguments: &[&str]| polyrail(&[&["bench", "compare"], arguments].concat());
    let same = compared(&[a.path(), a.path()]);
    assert!(same.status.code() == Some(0) && text(&same.stdout).contains("no difference shown"));
    assert_eq!(compared(&[b.path(), a.path()]).status.code(), Some(0), "better is no regression");
    let worse = compared(&[a.path(), b.path()]);
    assert_eq!((worse.status.code(), text(&worse.stderr)), (Some(1), String::new()));
    assert!(text(&worse.stdout).contains("worse, regression"), "{}", text(&worse.stdout));
    assert_eq!(compared(&[a.path(), b.path(), "--threshold", "15"]).status.code(), Some(0));
    let json = compared(&[a.path(), b.path(), "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON document");
    assert_eq!((json.status.code(), &document["schema"]), (Some(1), &"polyrail-compare/1".into()));
    assert_eq!(document["rows"][0]["figures"][0]["verdict"], "worse");
}

#[test]
fn what_cannot_be_compared_is_told_in_one_line_that_names_the_file() {
    let good = File::new("good.json", &report("polyrail-bench/1", &[1.0]));
    let newer = File::new("newer.json", &report("polyrail-bench/2", &[1.0]));
    let text_file = File::new("text.json", "fast");
    let line = failure(&["bench", "compare", good.path(), newer.path()], 2);
    let expected =
        format!("{}: has schema polyrail-bench/2, this program knows polyrail-bench/1", newer.path());
    assert!(line.contains(&expected), "{line}");
    let line = failure(&["bench", "compare", text_file.path(), good.path()], 2);
    assert!(line.contains(&format!("{}: is not JSON", text_file.path())), "{line}");
    let line = failure(&["bench", "compare", "/nowhere.json", good.path()], 2);
    assert!(line.contains("/nowhere.json: No such file"), "{line}");
    let output = polyrail(&["bench", "compare", "/nowhere.json", good.path(), "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((output.status.code(), &document["schema"]), (Some(2), &"polyrail-compare/1".into()));
    let line = failure(&["bench", "compare", good.path(), good.path(), "--threshold", "much"], 2);
    assert!(line.contains("`much`"), "{line}");
}

#[test]
fn files_of_results_that_cannot_be_written_are_refused_before_measuring() {
    let measuring = ["bench", "stream", "--placement", "intra", "--protocol", "pipe", "--duration", "3600"];
    for (file, name) in [("--csv", "/nowhere/x"), ("--journal", "/nowhere/x"), ("--csv", "/dev/null")] {
        let line = failure(&[&measuring[..], &[file, name]].concat(), 2);
        assert!(line.starts_with(&format!("polyrail bench: {file} {name}: ")), "{line}");
    }
    let line = failure(&[&measuring[..], &["--csv", "-", "--journal", "/proc/version"]].concat(), 2);
    assert!(line.contains("--journal /proc/version: "), "{line}");
}
