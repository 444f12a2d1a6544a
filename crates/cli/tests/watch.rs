//! `polyrail watch` beside other nodes on this machine's loopback interface.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process of the program, ended with the value if it has not ended by itself.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts the program with a node at the loopback interface.
    fn start(arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
        command.args(arguments).args(["--insecure", "--interface", "lo", "--no-discovery"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("piped");
        Running { child, lines: BufReader::new(stdout).lines() }
    }

    fn line(&mut self) -> Option<String> {
        self.lines.next().map(|line| line.expect("UTF-8"))
    }

    fn document(&mut self) -> Value {
        let line = self.line().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The documents up to the first whose event is `event`.
    fn until(&mut self, event: &str) -> Vec<Value> {
        let mut seen = vec![self.document()];
        while seen[seen.len() - 1]["event"] != event {
            seen.push(self.document());
        }
        seen
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("the program ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of this machine that nobody uses now.
fn free_port() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.local_addr().expect("it is bound").port().to_string()
}

#[test]
fn what_a_node_binds_is_told_and_that_it_is_lost_with_all() {
    let (port, other_port) = (free_port(), free_port());
    let mut watch = Running::start(&[
        "--json",
        "watch",
        "100:0-9",
        "--nodes",
        "--links",
        "--port",
        &port,
        "--cluster",
        &port,
    ]);
    assert_eq!(watch.document(), serde_json::json!({ "ok": true, "event": "snapshot-end" }));
    let peer = format!("127.0.0.1:{port}");
    let recv =
        ["recv", "100:3-5", "--port", &other_port, "--peer", &peer, "--name", "beta", "--cluster", &port];
    let receiver = Running::start(&recv);
    let mut seen = watch.until("published");
    let published = seen.last().expect("it ends with it").clone();
    while !seen.iter().any(|update| update["event"] == "node-up") {
        seen.push(watch.document());
    }
    let up = seen.iter().find(|update| update["event"] == "node-up").expect("it is there");
    assert_eq!((&up["name"], &up["node"]), (&"beta".into(), &published["node"]));
    assert!(seen.iter().any(|update| update["event"] == "link" && update["to"] == "up"), "{seen:?}");
    assert_eq!((&published["service"], &published["scope"]), (&"100:3-5".into(), &"cluster".into()));

    receiver.signal("KILL");
    let mut seen = watch.until("node-down");
    let last = seen.split_off(seen.len() - 3);
    let events: Vec<&str> = last.iter().filter_map(|update| update["event"].as_str()).collect();
    assert_eq!(events, ["withdrawn", "link-gone", "node-down"], "{seen:?}");
    assert_eq!((&last[0]["key"], &last[0]["node"]), (&published["key"], &published["node"]));
    assert_eq!(last[2]["left"], false, "nobody said farewell");

    watch.signal("TERM");
    assert_eq!(watch.exit_code(), Some(0));
    assert_eq!(watch.line(), None);
}

#[test]
fn its_time_ends_it_and_people_get_a_line_for_each_update() {
    let port = free_port();
    let mut watch =
        Running::start(&["watch", "--nodes", "--for", "0.1", "--port", &port, "--cluster", &port]);
    assert_eq!(watch.line().as_deref(), Some("that is all so far; changes follow"));
    assert_eq!(watch.line(), None);
    assert_eq!(watch.exit_code(), Some(0));
}

#[test]
fn a_watch_over_nothing_is_refused_in_one_line() {
    for (arguments, named) in [
        (&["watch"][..], "<SERVICE|--nodes|--links>"),
        (&["watch", "--nodes", "--first-last"], "SERVICE"),
        (&["watch", "100:9-0"], "9 is above 0"),
        (&["watch", "--nodes", "--for", "soon"], "'soon'"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output();
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}
