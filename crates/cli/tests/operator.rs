//! What an operator asks of real nodes, in two network namespaces with two links between them. Needs root; says so and
//! passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/world.rs"]
mod world;

use polyrail_bench::netns::Testbed;
use serde_json::{Value, json};
use std::process::Command;
use world::{PROGRAM, Running, Scratch, ask, ask_until, inside, testbed};

/// Two nodes, alpha and beta, that have met on both links, and their control sockets.
fn two_nodes(testbed: &Testbed, name: &str) -> ([Running; 2], [Scratch; 2]) {
    let sockets = ["a", "b"].map(|end| Scratch::new(&format!("{name}-{end}.sock")));
    let nodes = [(0, "alpha"), (1, "beta")].map(|(index, name)| {
        let arguments = ["node", "--name", name, "--control", sockets[index].path()];
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
    // Each end of a wire loses its carrier, and each tells the other: what comes first at an end is its reason.
    let ends = [(&socket, name.clone()), (&other, format!("alpha/{number}"))];
    let reasons = ends.map(|(socket, name)| {
        let is_down = |answer: &Value| answer["show"]["link"]["state"] == "down";
        let down = ask_until(socket, &["link", "show", &name], is_down);
        let last = down["show"]["changes"].as_array().and_then(|changes| changes.last()).cloned();
        let last = last.expect("a change");
        assert_eq!((&last["from"], &last["to"]), (&json!("up"), &json!("down")), "{down}");
        assert!(last["at"].as_str().is_some_and(|at| at.len() == 24 && at.ends_with('Z')), "{last}");
        assert!(last["ago_s"].as_f64().is_some_and(|ago| ago >= 0.0), "{last}");
        last["why"].as_str().expect("a reason").to_owned()
    });
    assert!(reasons.iter().any(|why| why == "carrier lost"), "{reasons:?}");
    assert!(reasons.iter().all(|why| why == "carrier lost" || why == "peer says down"), "{reasons:?}");

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
    for noun in ["link", "node", "bearer", "port", "service"] {
        for verb in ["show", "stats"] {
            let name = if noun == "service" { "9999:1" } else { "nobody" };
            let arguments = [noun, verb, name, "--control", socket.path()];
            let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
            let line = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!((output.status.code(), line.lines().count()), (Some(4), 1), "{arguments:?}: {line}");
            assert!(line.contains(&format!("no {noun} \"{name}\"; there are: ")), "{line}");
        }
        assert_eq!(ask(&socket, &[noun, "stats"])["ok"], true);
    }
    assert!(ask(&socket, &["bearer", "show", "l1"])["show"]["bearer"]["bearer"] == "udp/l1");
}
