//! `polyrail top` at two nodes that send to each other.

#![forbid(unsafe_code)]

mod running;

use running::pair::{Pair, Watched, lines};
use serde_json::Value;

#[test]
fn pictures_have_ports_and_links_with_their_rates() {
    let mut pair = Pair::new("top-pictures");
    pair.send("hello");
    pair.send("world!");
    let control = pair.control("beta");
    let (said, code) = lines(&["--json", "top", "--count", "2", "--every", "20ms", "--control", &control]);
    assert_eq!((code, said.len()), (Some(0), 2), "{said:?}");
    for line in &said {
        let picture: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&picture["ok"], &picture["node"]), (&true.into(), &"beta".into()), "{line}");
        assert!(picture["span_s"].as_f64().is_some_and(|span_s| span_s > 0.0), "{line}");
        let port = pair.receiving(&picture).expect("it has received");
        assert_eq!((&port["messages_received"], &port["bytes_received"]), (&2.into(), &11.into()), "{line}");
        assert_eq!((&port["messages_sent"], &port["program"]), (&0.into(), &"polyrail".into()), "{line}");
        assert!(port["received_bytes_per_s"].is_number(), "{line}");
        let link = &picture["links"][0];
        assert_eq!(link["name"], "alpha/0", "{line}");
        assert!(link["state"] == "up" || link["state"] == "probation", "{line}");
        assert!(link["sent_bytes_per_s"].is_number() && link["rtt_us"].is_number(), "{line}");
    }
}

#[test]
fn what_arrives_between_two_pictures_shows_as_a_rate() {
    let mut pair = Pair::new("top-rates");
    let control = pair.control("beta");
    let mut top = Watched::start(&["--json", "top", "--every", "20ms", "--control", &control]);
    let mut rate = |pair: &Pair| pair.receiving(&top.document())?["received_messages_per_s"].as_f64();
    while rate(&pair) != Some(0.0) {}
    pair.send("hello");
    while rate(&pair) == Some(0.0) {}
    top.running.signal("TERM");
    while top.running.line().is_some() {}
    assert_eq!(top.running.exit_code(), Some(0));
}

#[test]
fn people_without_a_terminal_get_text_that_no_screen_needs() {
    let pair = Pair::new("top-text");
    let control = pair.control("beta");
    let (said, code) =
        lines(&["top", "--count", "2", "--every", "20ms", "--sort", "received", "--control", &control]);
    assert_eq!(code, Some(0), "{said:?}");
    let headings = |begins: &str| said.iter().filter(|line| line.trim_start().starts_with(begins)).count();
    assert_eq!((headings("port "), headings("link "), headings("beta: ")), (2, 2, 2), "{said:?}");
    assert!(said.iter().all(|line| !line.contains('\u{1b}')), "{said:?}");
}

#[test]
fn a_node_that_goes_away_ends_it_with_what_to_do() {
    let pair = Pair::new("top-gone");
    let control = pair.control("beta");
    let mut top = Watched::start(&["--json", "top", "--every", "20ms", "--control", &control]);
    assert_eq!(top.document()["ok"], true);
    pair.beta.running.signal("KILL");
    let last = std::iter::from_fn(|| top.running.line()).last().expect("why it ended");
    let last: Value = serde_json::from_str(&last).expect("JSON");
    let message = last["error"]["message"].as_str().expect("a message");
    assert!(message.contains(&control) && message.contains("`polyrail node`"), "{message}");
    let code = last["error"]["code"].as_str().expect("a code");
    // Killed while it answers, or before it was asked.
    let expected = if code == "not_found" { 4 } else { 1 };
    assert_eq!(top.running.exit_code(), Some(expected), "{last}");
    let (said, code) = lines(&["--json", "top", "--control", &control]);
    assert_eq!(code, Some(4), "{said:?}");
}
