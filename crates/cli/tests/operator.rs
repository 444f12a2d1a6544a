//! What an operator asks of real nodes, in two network namespaces with two links between them. Needs root; says so and
//! passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/world.rs"]
mod world;

use polyrail_bench::netns::Testbed;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use world::{PROGRAM, Running, Scratch, ask, ask_until, inside, last_document, testbed};

/// Two nodes, alpha and beta, that have met on both links, and their control sockets.
fn two_nodes(testbed: &Testbed, name: &str) -> ([Running; 2], [Scratch; 2]) {
    two_nodes_with(testbed, name, &[])
}

/// The same; the first with more arguments.
fn two_nodes_with(testbed: &Testbed, name: &str, more: &[&str]) -> ([Running; 2], [Scratch; 2]) {
    let sockets = ["a", "b"].map(|end| Scratch::new(&format!("{name}-{end}.sock")));
    let nodes = [(0, "alpha"), (1, "beta")].map(|(index, name)| {
        let mut arguments = vec!["node", "--name", name, "--control", sockets[index].path()];
        arguments.extend(more.iter().filter(|_| index == 0));
        let mut node = Running::start(inside(testbed, index, &arguments));
        assert_eq!(node.first_line()["name"], name);
        node
    });
    for socket in &sockets {
        ask_until(socket, &["node", "list"], |answer| {
            let rows = answer["rows"].as_array();
            rows.is_some_and(|rows| rows.iter().any(|row| row["state"] == "up" && row["links_up"] == 2))
        });
    }
    (nodes, sockets)
}

#[test]
fn a_link_that_was_cut_tells_when_and_why_it_went_down() {
    let Some(testbed) = testbed("cut") else { return };
    let (_nodes, [socket, other]) = two_nodes(&testbed, "cut");
    let links = ask(&socket, &["link", "list"])["rows"].clone();
    let cut = links.as_array().and_then(|rows| rows.iter().find(|row| row["bearer"] == "udp/l1")).cloned();
    let number = cut.expect("a link by the second interface")["link"].as_u64().expect("a number");
    let name = format!("beta/{number}");
    testbed.carrier(1, 0, false).expect("the carrier can be taken");
    // Each end of a wire loses its carrier, and each tells the other: what comes first at an end is its reason, and
    // a packet that was to leave before the carrier was looked at is refused.
    let ends = [(&socket, name.clone()), (&other, format!("alpha/{number}"))];
    let reasons = ends.each_ref().map(|(socket, name)| {
        let is_down = |answer: &Value| answer["show"]["link"]["state"] == "down";
        let down = ask_until(socket, &["link", "show", name], is_down);
        let last = down["show"]["changes"].as_array().and_then(|changes| changes.last()).cloned();
        let last = last.expect("a change");
        assert_eq!((&last["from"], &last["to"]), (&json!("up"), &json!("down")), "{down}");
        assert!(last["at"].as_str().is_some_and(|at| at.len() == 24 && at.ends_with('Z')), "{last}");
        assert!(last["ago_s"].as_f64().is_some_and(|ago| ago >= 0.0), "{last}");
        last["why"].as_str().expect("a reason").to_owned()
    });
    let own = |why: &String| why == "carrier lost" || why == "system refused to send";
    assert!(reasons.iter().any(own), "{reasons:?}");
    assert!(reasons.iter().all(|why| own(why) || why == "peer says down"), "{reasons:?}");
    let without_carrier = |answer: &Value| answer["show"]["link"]["carrier"] == false;
    ends.iter().for_each(|(socket, name)| drop(ask_until(socket, &["link", "show", name], without_carrier)));

    let text = Command::new(PROGRAM).args(["link", "show", &name, "--control", socket.path()]).output();
    let text = String::from_utf8(text.expect("the program starts").stdout).expect("UTF-8");
    assert!(text.lines().any(|line| line.starts_with("changes")), "{text}");
    assert!(text.lines().any(|line| line.contains("down") && line.contains(&reasons[0])), "{text}");
    testbed.carrier(1, 0, true).expect("the carrier can be given back");
    let back = |answer: &Value| answer["show"]["link"]["carries_messages"] == true;
    let back = ask_until(&socket, &["link", "show", &name], back);
    assert_eq!(back["show"]["trouble"]["deaths"], 1, "{back}");
}

#[test]
fn a_packet_made_by_hand_moves_the_counter_of_its_fault() {
    let Some(testbed) = testbed("drops") else { return };
    let (_nodes, [socket, _other]) = two_nodes(&testbed, "drops");
    let malformed = |answer: &Value| answer["show"]["malformed"]["truncated"].as_u64().unwrap_or_default();
    let before = ask(&socket, &["stats"]);
    assert_eq!(malformed(&before), 0, "{before}");
    // The version and type of a DATA packet, and then too little.
    let send = format!("printf '\\x10bad' > /dev/udp/{}/7430", testbed.address(0, 0));
    let sent = testbed.command(1, "bash").args(["-c", &send]).status().expect("bash starts");
    assert!(sent.success());
    let after = ask_until(&socket, &["stats"], |answer| malformed(answer) == 1);
    assert_eq!(after["show"]["drops"]["malformed"], 1, "{after}");
}

#[test]
fn what_is_not_there_is_answered_with_what_there_is() {
    let Some(testbed) = testbed("unknown-names") else { return };
    let (_nodes, [socket, _other]) = two_nodes(&testbed, "unknown-names");
    for noun in ["link", "node", "bearer", "port", "service", "connection"] {
        for verb in ["show", "stats"] {
            // Connections are counted by node.
            let thing = if (noun, verb) == ("connection", "stats") { "node" } else { noun };
            let name = if noun == "service" { "9999:1" } else { "nobody" };
            let arguments = [noun, verb, name, "--control", socket.path()];
            let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
            let line = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!((output.status.code(), line.lines().count()), (Some(4), 1), "{arguments:?}: {line}");
            assert!(line.contains(&format!("no {thing} \"{name}\"; there are: ")), "{line}");
        }
        assert_eq!(ask(&socket, &[noun, "stats"])["ok"], true);
    }
    assert!(ask(&socket, &["bearer", "show", "l1"])["show"]["bearer"]["bearer"] == "udp/l1");
}

/// Runs the program against a node, which refuses: its exit code and its one line.
fn refused(socket: &Scratch, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).args(words).args(["--control", socket.path()]).output();
    let output = output.expect("the program starts");
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(line.lines().count(), 1, "{words:?}: {line}");
    (output.status.code(), line)
}

#[test]
fn a_link_is_set_aside_on_a_running_node_and_its_peer_knows() {
    let Some(testbed) = testbed("set") else { return };
    let (_nodes, [socket, other]) = two_nodes(&testbed, "set");
    let status = |answer: &Value, link: usize, member: &str| answer["rows"][link][member].clone();
    let answer = ask(&socket, &["link", "set", "beta/0", "--state", "drain"]);
    assert_eq!((&answer["ok"], &answer["link"]["status"]), (&json!(true), &json!("drain")), "{answer}");
    assert_eq!(status(&ask(&socket, &["link", "list"]), 0, "status"), "drain");
    let told = |wanted: &'static str| move |answer: &Value| answer["rows"][0]["status_of_peer"] == wanted;
    ask_until(&other, &["link", "list"], told("drain"));
    let (code, line) = refused(&socket, &["link", "set", "beta/1", "--state", "drain"]);
    assert!(
        code == Some(1) && line.contains("is the last one that takes messages to \"beta\""),
        "{code:?} {line}"
    );
    // The peer's word counts: for it, too, the second link is the last one.
    let (code, line) = refused(&other, &["link", "set", "alpha/1", "--state", "drain"]);
    assert!(code == Some(1) && line.contains("is the last one"), "{code:?} {line}");
    let (code, line) = refused(&socket, &["link", "set", "beta/9", "--state", "drain"]);
    assert!(code == Some(4) && line.contains("no link \"beta/9\"; there are: beta/0, beta/1"), "{line}");
    let (code, line) = refused(&socket, &["link", "set", "beta/0", "--state", "down"]);
    assert!(code == Some(2) && line.contains("[possible values: active, standby, drain]"), "{line}");
    let (code, line) = refused(&Scratch::new("nobody.sock"), &["link", "set", "beta/0", "--state", "drain"]);
    assert!(code == Some(4) && line.contains("no node answers"), "{line}");
    let text = Command::new(PROGRAM)
        .args(["link", "set", "beta/0", "--state", "active", "--control", socket.path()])
        .output()
        .expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&text.stdout), "beta/0: active\n");
    ask_until(&other, &["link", "list"], told("active"));
}

#[test]
fn an_interface_for_need_serves_when_the_other_is_cut_and_not_before() {
    let Some(testbed) = testbed("standby") else { return };
    let (_nodes, [socket, other]) = two_nodes_with(&testbed, "standby", &["--standby", "l1"]);
    let on = |answer: &Value, bearer: &str| {
        let rows = answer["rows"].as_array();
        rows.and_then(|rows| rows.iter().find(|row| row["bearer"] == bearer)).cloned().expect("a link")
    };
    let links = ask(&socket, &["link", "list"]);
    let words = ["udp/l0", "udp/l1"].map(|bearer| on(&links, bearer)["status"].clone());
    assert_eq!(words, ["active", "standby"], "{links}");
    ask_until(&other, &["link", "list"], |answer| on(answer, "udp/l1")["status_of_peer"] == "standby");
    // Whoever sends, the first link is the choice.
    for (socket, peer) in [(&socket, "beta"), (&other, "alpha")] {
        let first = on(&ask(socket, &["link", "list"]), "udp/l0")["link"].as_u64().expect("a number");
        let told = ask(socket, &["why", peer])["why"].clone();
        assert_eq!(told["message"]["choice"], format!("{peer}/{first}"), "{told}");
    }
    let second = on(&links, "udp/l1")["link"].as_u64().expect("a number");
    // An interface that loses its address and gets it again has another link, which is for need too.
    let address = |verb: &str| {
        let address = format!("{}/24", testbed.address(0, 1));
        let done = testbed.command(0, "ip").args(["addr", verb, &address, "dev", "l1"]).status();
        assert!(done.expect("ip starts").success(), "{verb} {address}");
    };
    let count = |answer: &Value| answer["rows"].as_array().map_or(0, Vec::len);
    address("del");
    ask_until(&socket, &["link", "list"], |answer| count(answer) == 1);
    address("add");
    let links = ask_until(&socket, &["link", "list"], |answer| count(answer) == 2);
    let again = on(&links, "udp/l1");
    assert!(again["link"] != second && again["status"] == "standby", "{links}");
    ask_until(&other, &["link", "list"], |answer| {
        count(answer) == 2 && on(answer, "udp/l1")["status_of_peer"] == "standby"
    });
    let second = again["link"].clone();
    testbed.carrier(0, 0, false).expect("the carrier can be taken");
    for (socket, peer) in [(&socket, "beta"), (&other, "alpha")] {
        let choice = format!("{peer}/{second}");
        ask_until(socket, &["why", peer], |answer| answer["why"]["message"]["choice"] == *choice);
    }
}

#[test]
fn why_tells_of_each_link_what_a_message_would_do_with_it() {
    let Some(testbed) = testbed("why") else { return };
    let (_nodes, [socket, _other]) = two_nodes(&testbed, "why");
    ask(&socket, &["link", "set", "beta/0", "--state", "standby"]);
    let told = ask(&socket, &["why", "beta"])["why"].clone();
    assert_eq!((&told["peer"]["name"], &told["message"]["bytes"]), (&json!("beta"), &json!(64)), "{told}");
    assert_eq!((&told["message"]["way"], &told["message"]["choice"]), (&json!("small"), &json!("beta/1")));
    assert_eq!(told["links"][0]["why"], "standby: an active link is usable");
    assert_eq!((&told["links"][0]["takes"], &told["links"][1]["takes"]), (&json!(false), &json!(true)));
    let told = ask(&socket, &["why", "beta", "--size", "1M"])["why"].clone();
    assert_eq!((&told["message"]["way"], &told["message"]["bytes"]), (&json!("announced"), &json!(1 << 20)));

    let output = Command::new(PROGRAM).args(["why", "beta", "--control", socket.path()]).output();
    let text = String::from_utf8(output.expect("the program starts").stdout).expect("UTF-8");
    assert!(text.starts_with("a message of 64 bytes to beta ("), "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(
        row("beta/0").contains("no ") && row("beta/0").ends_with("standby: an active link is usable"),
        "{text}"
    );
    assert!(row("beta/1").contains("yes") && row("beta/1").contains("the only link that may"), "{text}");

    let (code, line) = refused(&socket, &["why", "gamma"]);
    assert!(
        code == Some(4) && line.contains("no peer \"gamma\"") && line.contains("there are: beta"),
        "{line}"
    );
    let (code, line) = refused(&socket, &["why", "alpha"]);
    assert!(code == Some(2) && line.contains("this node itself"), "{line}");
    let (code, line) = refused(&socket, &["why", "beta", "--size", "much"]);
    assert!(code == Some(2) && line.contains("no number of bytes"), "{line}");
    let (code, line) = refused(&Scratch::new("nobody.sock"), &["why", "beta"]);
    assert!(code == Some(4) && line.contains("no node answers"), "{line}");
}

/// The IPv4 packets of a capture file: sender, receiver, and what UDP carried.
fn packets_of(file: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
    assert_eq!((word(0), word(20)), (0xA1B2_3C4D, 101), "nanoseconds, raw IP");
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let ip = &file[at + 16..at + 16 + word(at + 8)];
        let end = |from: usize, port: usize| {
            let octets: Vec<String> = ip[from..from + 4].iter().map(u8::to_string).collect();
            format!("{}:{}", octets.join("."), u16::from_be_bytes([ip[port], ip[port + 1]]))
        };
        packets.push((end(12, 20), end(16, 22), ip[28..].to_vec()));
        at += 16 + ip.len();
    }
    packets
}

#[test]
fn a_trace_holds_the_packets_of_a_running_node_with_their_addresses() {
    let Some(testbed) = testbed("trace") else { return };
    let (_nodes, [socket, other]) = two_nodes(&testbed, "trace");
    let file = Scratch::new("trace.pcap");
    let arguments =
        ["trace", "--out", file.path(), "--packets", "40", "--for", "60", "--control", socket.path()];
    let output = Command::new(PROGRAM).arg("--json").args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let sum = last_document(&output);
    let packets = packets_of(&std::fs::read(&file.0).expect("a file"));
    assert_eq!((packets.len(), &sum["packets"], &sum["not_captured"]), (40, &json!(40), &json!(0)), "{sum}");
    let address = |node: usize, link: usize| format!("{}:7430", testbed.address(node, link));
    for link in 0..2 {
        let (here, there) = (address(0, link), address(1, link));
        let goes = |from: &str, to: &str| packets.iter().any(|(f, t, _)| f == from && t == to);
        assert!(goes(&here, &there) && goes(&there, &here), "both ways of link {link}: {packets:?}");
    }
    // Every one is a packet of this wire version.
    assert!(packets.iter().all(|(_, _, bytes)| bytes.len() >= 24 && bytes[0] >> 4 == 1), "{packets:?}");

    let only = ["trace", "--print", "--peer", "alpha", "--packets", "8", "--control", other.path()];
    let printed = Command::new(PROGRAM).args(only).output().expect("the program starts");
    let text = String::from_utf8(printed.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines.last().copied()), (9, Some("8 packets")), "{text}");
    assert!(lines[..8].iter().all(|line| line.contains(" > ") && !line.contains("malformed")), "{text}");
    assert!(lines.iter().any(|line| line.contains(" B: data to ")), "{text}");
}

#[test]
fn a_trace_ends_at_a_signal_and_another_has_to_wait_for_it() {
    let Some(testbed) = testbed("trace-signal") else { return };
    let (_nodes, [socket, _other]) = two_nodes(&testbed, "trace-signal");
    let file = Scratch::new("signal.pcap");
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "trace", "--headers", "--out", file.path(), "--control", socket.path()]);
    let running = Running::start({
        command.stdout(std::process::Stdio::piped());
        command
    });
    // The file begins when the trace does.
    let begun = || std::fs::metadata(&file.0).is_ok_and(|file| file.len() > 24);
    ask_until(&socket, &["node", "list"], |_| begun());
    let refused = ask(&socket, &["trace", "--print", "--packets", "1"]);
    assert!(
        refused["error"]["message"].as_str().is_some_and(|m| m.contains("another trace runs")),
        "{refused}"
    );
    running.signal("INT");
    let ended = running.finish();
    assert!(ended.status.success(), "{ended:?}");
    let sum = last_document(&ended);
    let packets = packets_of(&std::fs::read(&file.0).expect("a file"));
    assert_eq!(sum["packets"], packets.len(), "{sum}");
    assert!(packets.iter().all(|(_, _, bytes)| bytes.len() <= 256));
    // The node is free for the next one.
    assert_eq!(
        ask_until(&socket, &["trace", "--print", "--packets", "1"], |answer| answer["ok"] == true)["packets"],
        1
    );
    let unknown = ask(&socket, &["trace", "--print", "--peer", "nobody"]);
    assert!(
        unknown["error"]["message"].as_str().is_some_and(|m| m.contains("there are: alpha, beta")),
        "{unknown}"
    );
}

#[test]
fn a_client_that_goes_away_without_reading_ends_its_trace() {
    let Some(testbed) = testbed("trace-gone") else { return };
    let (_nodes, [socket, _other]) = two_nodes(&testbed, "trace-gone");
    let mut client = UnixStream::connect(&socket.0).expect("the node listens");
    client.write_all(b"{\"command\":\"trace\"}\n").expect("it takes the request");
    let mut first = String::new();
    BufReader::new(&client).read_line(&mut first).expect("an answer");
    assert_eq!(first, "{\"ok\":true,\"trace\":{\"format\":\"pcap\"}}\n");
    let one = ["trace", "--print", "--packets", "1"];
    assert_eq!(ask(&socket, &one)["ok"], false, "it runs");
    drop(client);
    ask_until(&socket, &one, |answer| answer["ok"] == true);
}

#[test]
fn a_node_that_ends_ends_its_trace_in_order() {
    let Some(testbed) = testbed("trace-end") else { return };
    let ([alpha, _beta], [socket, _other]) = two_nodes(&testbed, "trace-end");
    let file = Scratch::new("end.pcap");
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "trace", "--out", file.path(), "--control", socket.path()]);
    let running = Running::start({
        command.stdout(std::process::Stdio::piped());
        command
    });
    ask_until(&socket, &["node", "list"], |_| std::fs::metadata(&file.0).is_ok_and(|file| file.len() > 24));
    alpha.signal("TERM");
    let traced = running.finish();
    assert!(traced.status.success() && alpha.finish().status.success(), "{traced:?}");
    let packets = packets_of(&std::fs::read(&file.0).expect("a file"));
    assert_eq!(last_document(&traced)["packets"], packets.len());
    // The last that it says is that it leaves.
    assert!(packets.iter().rev().take(8).any(|(_, _, bytes)| bytes.windows(4).any(|w| w == [0x80, 0, 8, 0])));
}
