//! `polyrail watch` beside other nodes on this machine's loopback interface.

#![forbid(unsafe_code)]

mod running;

use running::Running;
use std::net::UdpSocket;
use std::process::Command;

/// Starts the program with a node at the loopback interface.
fn started(arguments: &[&str]) -> Running {
    Running::start(&[arguments, &["--insecure", "--interface", "lo", "--no-discovery"]].concat())
}

/// A port of this machine that nobody uses now.
fn free_port() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.local_addr().expect("it is bound").port().to_string()
}

#[test]
fn what_a_node_binds_is_told_and_that_it_is_lost_with_all() {
    let (port, other_port) = (free_port(), free_port());
    let mut watch =
        started(&["--json", "watch", "100:0-9", "--nodes", "--links", "--port", &port, "--cluster", &port]);
    assert_eq!(watch.document(), serde_json::json!({ "ok": true, "event": "snapshot-end" }));
    let peer = format!("127.0.0.1:{port}");
    let recv =
        ["recv", "100:3-5", "--port", &other_port, "--peer", &peer, "--name", "beta", "--cluster", &port];
    let receiver = started(&recv);
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
    // One link by the network, one by shared memory.
    let last = seen.split_off(seen.len() - 4);
    let events: Vec<&str> = last.iter().filter_map(|update| update["event"].as_str()).collect();
    assert_eq!(events, ["withdrawn", "link-gone", "link-gone", "node-down"], "{seen:?}");
    assert_eq!((&last[0]["key"], &last[0]["node"]), (&published["key"], &published["node"]));
    assert_eq!(last[3]["left"], false, "nobody said farewell");

    watch.signal("TERM");
    assert_eq!(watch.exit_code(), Some(0));
    assert_eq!(watch.line(), None);
}

#[test]
fn its_time_ends_it_and_people_get_a_line_for_each_update() {
    let port = free_port();
    let mut watch = started(&["watch", "--nodes", "--for", "0.1", "--port", &port, "--cluster", &port]);
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
