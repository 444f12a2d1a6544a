//! Real nodes as processes of their own, in two network namespaces with two links between them. Needs root; says so
//! and passes where there is none.

#![forbid(unsafe_code)]

use polyrail_bench::netns::{LinkSpec, NetnsError, Spec, Testbed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_polyrail");

/// Two nodes, two links; `None` where this machine makes no namespaces, said past the capture of test output.
fn testbed(name: &str) -> Option<Testbed> {
    let name = format!("cli-{name}-{}", std::process::id());
    match Testbed::create(Spec::pair(name, vec![LinkSpec::default(); 2])) {
        Ok(testbed) => Some(testbed),
        Err(error @ (NetnsError::Permission | NetnsError::Missing { .. })) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED nodes: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The program inside a node of the testbed.
fn inside(testbed: &Testbed, node: usize, arguments: &[&str]) -> Command {
    let mut command = testbed.command(node, PROGRAM);
    command.arg("--json").args(arguments).args([
        "--insecure",
        "--interface",
        "l*",
        "--cluster",
        &testbed.spec().name,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A process that is ended with the value, if it has not ended by itself.
struct Running(Option<Child>);

impl Running {
    fn start(mut command: Command) -> Self {
        Running(Some(command.spawn().expect("the program starts")))
    }
    fn finish(mut self) -> Output {
        self.0.take().expect("still running").wait_with_output().expect("the program ends")
    }
    fn first_line(&mut self) -> Value {
        let stdout = self.0.as_mut().expect("still running").stdout.as_mut().expect("piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }
    fn signal(&self, name: &str) {
        let pid = self.0.as_ref().expect("still running").id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn last_document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// A path in the temporary folder whose file vanishes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("polyrail-nodes-{}-{name}", std::process::id())))
    }
    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_arrives_as_it_is_by_the_name_of_a_service() {
    let Some(testbed) = testbed("file") else { return };
    let (original, copy) = (Scratch::new("original"), Scratch::new("copy"));
    // Bytes whose place shows: a piece lost, doubled or moved changes them.
    let bytes: Vec<u8> = (0..5_000_000u32).flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(&original.0, &bytes).expect("a temporary file can be written");

    let recv = ["recv", "100:0-9", "--until-end", "--output", copy.path(), "--timeout", "60"];
    let receiver = Running::start(inside(&testbed, 1, &recv));
    let send = ["send", "100:5", original.path(), "--wait=60", "--end", "--chunk", "300000"];
    let sent = Running::start(inside(&testbed, 0, &send)).finish();
    let received = receiver.finish();

    assert!(sent.status.success(), "{sent:?}");
    assert!(received.status.success(), "{received:?}");
    assert!(std::fs::read(&copy.0).expect("the copy exists") == bytes, "the copy differs");
    assert_eq!(last_document(&sent)["messages"], 68, "67 pieces and the end");
    assert_eq!(last_document(&received)["bytes"], 20_000_000);
}

#[test]
fn lines_arrive_as_messages_in_order_with_their_sender_and_service() {
    let Some(testbed) = testbed("lines") else { return };
    let lines = Scratch::new("lines");
    std::fs::write(&lines.0, "one\n\ntwo\nthree").expect("a temporary file can be written");
    let receiver = Running::start(inside(&testbed, 1, &["recv", "100:7", "--count", "8", "--timeout", "60"]));
    let send = ["send", "100:7", lines.path(), "--lines", "--repeat", "2", "--wait=60"];
    let sent = Running::start(inside(&testbed, 0, &send)).finish();
    assert!(sent.status.success(), "{sent:?}");
    let received = receiver.finish();
    let text = String::from_utf8_lossy(&received.stdout).into_owned();
    let documents: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let texts: Vec<&str> = documents.iter().filter_map(|document| document["text"].as_str()).collect();
    assert_eq!(texts, ["one", "", "two", "three", "one", "", "two", "three"]);
    assert!(
        documents[..8].iter().all(|d| d["service"] == "100:7" && d["from"] == documents[0]["from"]),
        "{text}"
    );
}

#[test]
fn an_unknown_service_is_not_found_and_silence_times_out() {
    let Some(testbed) = testbed("unknown") else { return };
    let mut command = testbed.command(0, PROGRAM);
    command.args(["send", "100:7", "--text", "x", "--insecure", "--interface", "l*", "--wait=0.2"]);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("100:7") && said.contains("bound now: nothing"), "{said}");

    let output = Running::start(inside(&testbed, 1, &["recv", "100:7", "--timeout", "0.2"])).finish();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(last_document(&output)["error"]["code"], "timed_out");
}

#[test]
fn a_node_lists_what_it_knows_and_leaves_at_sigterm() {
    let Some(testbed) = testbed("lists") else { return };
    let (socket, other) = (Scratch::new("a.sock"), Scratch::new("b.sock"));
    let node = |index, name, path| {
        Running::start(inside(&testbed, index, &["node", "--name", name, "--control", path]))
    };
    let mut alpha = node(0, "alpha", socket.path());
    let mut beta = node(1, "beta", other.path());
    assert_eq!(alpha.first_line()["name"], "alpha");
    assert_eq!(beta.first_line()["event"], "started");
    let receiver = Running::start(inside(&testbed, 1, &["recv", "100:0-9", "--port", "7432"]));

    let rows = |noun: &str| {
        let output =
            Command::new(PROGRAM).args(["--json", noun, "list", "--control", socket.path()]).output();
        last_document(&output.expect("the program starts"))["rows"].as_array().cloned().unwrap_or_default()
    };
    let until = |noun: &str, what: &dyn Fn(&[Value]) -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let rows = rows(noun);
            if what(&rows) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{noun} list stays {rows:?}");
        }
    };
    until("bearer", &|rows| rows.len() == 2 && rows.iter().all(|row| row["state"] == "up"));
    let both_links = |row: &Value| row["name"] == "beta" && row["state"] == "up" && row["links_up"] == 2;
    until("node", &|rows| rows.iter().any(both_links));
    until("link", &|rows| {
        rows.iter().filter(|row| row["peer"] == "beta" && row["state"] == "up").count() == 2
    });
    until("service", &|rows| rows.iter().any(|row| row["service"] == "100:0-9" && row["scope"] == "cluster"));

    drop(receiver);
    beta.signal("TERM");
    let left = beta.finish();
    assert!(left.status.success(), "{left:?}");
    assert_eq!(last_document(&left)["event"], "left");
    until("node", &|rows| !rows.iter().any(|row| row["name"] == "beta" && row["state"] == "up"));
    alpha.signal("INT");
    assert!(alpha.finish().status.success());
    assert!(!socket.0.exists(), "the control socket is gone with its node");
}
