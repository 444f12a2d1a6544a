//! Limits and rights of users at a running node, and `polyrail mem`, as a user would type it.

#![forbid(unsafe_code)]

mod running;

use running::{Running, pair::lines};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// A folder that vanishes with the value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number of the user of this test.
fn uid() -> u32 {
    std::fs::metadata("/proc/self").expect("there is a process").uid()
}

/// What a program that fails says, and its exit code.
fn failure(arguments: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output().expect("it starts");
    (String::from_utf8(output.stderr).expect("UTF-8"), output.status.code())
}

#[test]
fn who_has_what_of_a_node_is_shown_and_who_asks_for_more_is_told_why_not() {
    let folder = Folder(std::env::temp_dir().join(format!("polyrail-mem-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let (config, control) = (folder.0.join("node.toml"), folder.0.join("alpha.sock"));
    let settings = format!(
        "security = \"none\"\nmemory_bytes_max = 1073741824\n[user.{}]\nports = 1\n[rights]\n200-299 = []\n",
        uid()
    );
    std::fs::write(&config, settings).expect("a file");
    let [config, control] = [config, control].map(|path| path.display().to_string());
    let start = ["--json", "node", "--config", &config, "--interface", "lo", "--no-discovery"];
    let mut node = Running::start(&[&start[..], &["--control", &control]].concat());
    let attach = format!("--attach={}", node.document()["attach"].as_str().expect("a path"));

    let (told, code) = failure(&["recv", &attach, "200:0"]);
    assert!(told.contains("`[rights]`"), "{told}");
    assert_eq!(code, Some(3));
    let mut receiver = Running::start(&["--json", "recv", &attach, "100:0", "--count", "1"]);
    let shown = || -> Value {
        let (said, code) = lines(&["--json", "mem", "--control", &control]);
        assert_eq!((code, said.len()), (Some(0), 1), "{said:?}");
        serde_json::from_str::<Value>(&said[0]).expect("JSON")["show"].clone()
    };
    let user = |shown: &Value| shown["users"][0].clone();
    while user(&shown())["names"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (told, code) = failure(&["send", &attach, "100:0", "--text", "hello"]);
    assert!(told.contains("has as many ports") && told.contains("`ports`"), "{told}");
    assert_eq!(code, Some(1));
    let shown = shown();
    assert_eq!(shown["memory"]["limit_bytes"], 1 << 30, "{shown}");
    let row = user(&shown);
    assert_eq!((&row["uid"], &row["ports"], &row["ports_max"]), (&json!(uid()), &json!(1), &json!(1)));
    assert_eq!((&row["refused_ports"], &row["refused_rights"]), (&json!(1), &json!(1)), "{row}");
    let program = shown["programs"].as_array().expect("rows").iter().find(|row| row["program"] == "polyrail");
    let program = program.expect("the receiver");
    assert_eq!(program["pid"], receiver.child.id(), "{program}");
    assert!(program["resident_bytes"].as_u64() < program["promised_bytes"].as_u64(), "{program}");

    let (said, code) = lines(&["mem", "--control", &control]);
    assert_eq!(code, Some(0));
    let heads: Vec<&str> = said.iter().filter(|line| !line.starts_with(' ')).map(String::as_str).collect();
    assert_eq!(heads, ["memory", "kinds", "users", "programs", "refused"], "{said:?}");
    assert!(said.iter().any(|line| line.contains("refused_ports")), "{said:?}");
    assert!(said.iter().all(|line| !line.contains("refused_node_memory")), "nobody was: {said:?}");
    receiver.signal("KILL");
    assert_eq!(receiver.exit_code(), None);
    // What it had is free again.
    let mut next = Running::start(&["--json", "recv", &attach, "100:1", "--timeout", "0.2"]);
    assert_eq!(next.exit_code(), Some(5));
}

#[test]
fn a_node_reads_its_file_again_when_it_is_told_to_and_keeps_what_it_has_if_that_is_wrong() {
    let folder = Folder(std::env::temp_dir().join(format!("polyrail-again-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let file = folder.0.join("node.toml");
    let write = |ports: &str| {
        let settings = format!("security = \"none\"\n[user.{}]\nports = {ports}\n", uid());
        std::fs::write(&file, settings).expect("a file");
    };
    write("1");
    let [config, control] =
        [file.clone(), folder.0.join("alpha.sock")].map(|path| path.display().to_string());
    let program = env!("CARGO_BIN_EXE_polyrail");
    let node = format!("node --config {config} --interface lo --no-discovery --control {control}");
    let mut shell = Command::new("sh");
    // Among what it says is what it warns of; at first of security, and of a port that another test has.
    let mut node = Running::of(shell.args(["-c", &format!("exec {program} --json {node} 2>&1")]));
    let started = std::iter::from_fn(|| node.line()).find(|line| line.starts_with('{')).expect("it runs");
    let started: Value = serde_json::from_str(&started).expect("JSON");
    let attach = format!("--attach={}", started["attach"].as_str().expect("a path"));
    let mut receiver = Running::start(&["--json", "recv", &attach, "100:0", "--count", "2"]);
    let user = || -> Value {
        let said = lines(&["--json", "mem", "--control", &control]).0;
        serde_json::from_str::<Value>(&said[0]).expect("JSON")["show"]["users"][0].clone()
    };
    while user()["names"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(failure(&["send", &attach, "100:0", "--text", "hello"]).1, Some(1), "it has one port already");
    write("2");
    node.signal("HUP");
    let said = node.document();
    assert_eq!((&said["event"], &said["file"]), (&json!("read_again"), &json!(config)), "{said}");
    assert_eq!(failure(&["send", &attach, "100:0", "--text", "hello"]), (String::new(), Some(0)));
    // What is wrong is told, and changes nothing; the right file after it does again.
    for wrong in ["-1", "7\nmemory_bytes = 7"] {
        write(wrong);
        node.signal("HUP");
        let line = node.line().expect("a warning");
        assert!(line.contains("all settings stay as they are") && line.contains("node.toml:"), "{line}");
        assert_eq!(user()["ports_max"], 2);
    }
    write("3");
    node.signal("HUP");
    assert_eq!(node.document()["event"], "read_again");
    assert_eq!(user()["ports_max"], 3);
    assert_eq!(failure(&["send", &attach, "100:0", "--text", "hello"]), (String::new(), Some(0)));
    assert_eq!(receiver.exit_code(), Some(0), "it stayed all the time");
    node.signal("TERM");
    assert_eq!(node.exit_code(), Some(0));
}

#[test]
fn a_node_may_have_as_many_descriptors_as_the_system_lets_it() {
    let folder = Folder(std::env::temp_dir().join(format!("polyrail-descriptors-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let control = folder.0.join("alpha.sock").display().to_string();
    let program = env!("CARGO_BIN_EXE_polyrail");
    let line = format!(
        "ulimit -Sn 100 && exec {program} node --insecure --name alpha --interface lo --no-discovery --control {control}"
    );
    let mut shell = Command::new("sh");
    let mut node = Running::of(shell.args(["-c", &line]));
    assert!(node.line().expect("it runs").contains("runs"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.child.id())).expect("it is there");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let numbers: Vec<&str> = line.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{line}");
}
