//! What the program says of connections of nodes that run: here two inside the test, over the loopback interface.

#![forbid(unsafe_code)]

#[path = "../../node/tests/local/mod.rs"]
mod local;

use local::{PATIENCE, address};
use polyrail::{Config, Connect, Node, Port, Scope, ServiceAddress};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};

const SERVICE: ServiceAddress = ServiceAddress::new(1_000, 1);

/// A control socket that vanishes with the value.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn program(socket: &Socket, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.args(words).arg("--control").arg(&socket.0).output().expect("the program starts")
}

fn ask(socket: &Socket, words: &[&str]) -> Value {
    let output = program(socket, &[&["--json"], words].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

fn node(name: &str, peers: &[String], socket: &Socket) -> Node {
    local::node(Config::new().name(name).control(&socket.0), peers)
}

/// Nodes alpha, which asks, and beta, which listens; their ports, and alpha's control socket.
fn two_nodes(test: &str) -> ([Node; 2], [Port; 2], Socket) {
    let socket =
        |name| Socket(std::env::temp_dir().join(format!("polyrail-{test}-{}-{name}", std::process::id())));
    let (asking, answering) = (socket("alpha"), socket("beta"));
    let beta = node("beta", &[], &answering);
    let alpha = node("alpha", &[address(&beta)], &asking);
    let (client, server) = (alpha.port().expect("a port"), beta.port().expect("a port"));
    server.bind(SERVICE, Scope::Cluster).expect("bound");
    server.listen(8).expect("it listens");
    client.wait_for(SERVICE, Some(PATIENCE)).expect("found");
    ([alpha, beta], [client, server], asking)
}

#[test]
fn connections_are_listed_shown_and_counted() {
    let (_nodes, [client, server], socket) = two_nodes("connections");
    let wish = Connect { accepted_within: None, ..Connect::default() };
    let asking: Vec<_> = (0..3).map(|_| client.connect_with(SERVICE, &wish).expect("asked")).collect();
    let answering = server.accept_timeout(PATIENCE).expect("one waits");
    answering.send(b"answer").expect("sent");
    assert!(asking[0].recv_timeout(PATIENCE).expect("open").is_some());

    let all = ask(&socket, &["connection", "list"]);
    let states: Vec<&str> = all["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["state"].as_str().expect("a word"))
        .collect();
    assert_eq!((states, &all["rows_total"]), (vec!["open", "asked", "asked"], &json!(3)), "{all}");
    let one = ask(&socket, &["connection", "list", "--limit", "1", "--peer", "beta"]);
    assert_eq!((&one["rows"][0]["name"], &one["rows_total"]), (&json!("beta/out-1"), &json!(3)));
    assert_eq!(one["rows"].as_array().map(Vec::len), Some(1));
    let shown = ask(&socket, &["connection", "show", "beta/out-1"])["show"].clone();
    assert_eq!(
        (&shown["receiving"]["messages_used"], &shown["connection"]["state"]),
        (&json!(1), &json!("open"))
    );
    let counted = ask(&socket, &["connection", "stats", "beta"])["rows"].clone();
    assert_eq!((&counted[0]["asked_by_us"], &counted[0]["now_asked"]), (&json!(3), &json!(2)), "{counted}");

    let text = program(&socket, &["connection", "list", "--limit", "2"]);
    let (out, aside) = (String::from_utf8_lossy(&text.stdout), String::from_utf8_lossy(&text.stderr));
    let firsts: Vec<&str> = out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(firsts, ["name", "beta/out-1", "beta/out-2"], "{out}");
    assert!(aside.contains("2 of 3 connections shown"), "{aside}");
    let wrong = program(&socket, &["connection", "list", "--limit", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let unknown = program(&socket, &["connection", "show", "beta/in-9"]);
    let line = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(4), "{line}");
    assert!(line.contains("there are: beta/out-1, beta/out-2, beta/out-3"), "{line}");
}
