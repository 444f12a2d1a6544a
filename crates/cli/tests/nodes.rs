//! Real nodes as processes of their own, in two network namespaces with two links between them. Needs root; says so
//! and passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/world.rs"]
mod world;

use serde_json::Value;
use world::{PROGRAM, Running, Scratch, ask_until, inside, last_document, testbed};

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

    let until = |noun: &str, what: &dyn Fn(&[Value]) -> bool| {
        ask_until(&socket, &[noun, "list"], |answer| {
            what(answer["rows"].as_array().map_or(&[], Vec::as_slice))
        });
    };
    // Two by the links, one by shared memory.
    until("bearer", &|rows| rows.len() == 3 && rows.iter().all(|row| row["state"] == "up"));
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

#[test]
fn rules_choose_the_bearers_of_a_node_and_one_that_nothing_meets_ends_it_with_what_there_is() {
    let Some(testbed) = testbed("rules") else { return };
    let network = format!("{}/24", testbed.address(0, 1));
    let cases: [(&[&str], &[&str]); 4] = [
        (&[], &["udp/l0", "udp/l1", "shm"]),
        (&["!l0"], &["udp/l1", "shm"]),
        (&["!l[1-9]"], &["udp/l0", "shm"]),
        (&[&format!("!{network}")], &["udp/l0", "shm"]),
    ];
    for (index, (rules, expected)) in cases.into_iter().enumerate() {
        let socket = Scratch::new(&format!("rules-{index}.sock"));
        let flags = rules.iter().flat_map(|rule| ["--interface", rule]);
        // `inside` adds the rule l* behind them.
        let arguments: Vec<&str> = ["node", "--control", socket.path()].into_iter().chain(flags).collect();
        let mut node = Running::start(inside(&testbed, 0, &arguments));
        node.first_line();
        let rows = ask_until(&socket, &["bearer", "list"], |answer| answer["ok"] == true)["rows"].clone();
        let bearers: Vec<&str> =
            rows.as_array().expect("rows").iter().flat_map(|r| r["bearer"].as_str()).collect();
        assert_eq!(bearers, expected, "{rules:?}");
    }
    for rule in ["l7", "ib*", "10.99.0.0/16"] {
        let output = Running::start(inside(&testbed, 0, &["node", "--interface", rule])).finish();
        let error = last_document(&output)["error"]["message"].as_str().expect("a message").to_owned();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(error.contains(&format!("{rule:?} is met by none; there are: lo (")), "{error}");
        assert!(error.contains("l0 (") && error.contains("l1 ("), "{error}");
    }
}
