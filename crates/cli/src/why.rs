//! `polyrail why PEER`: what a message would take now, and why.

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::list::ListArgs;
use crate::output::{Output, table};
use crate::size::parse_bytes;
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Which message.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: polyrail why beta --size 1M")]
pub struct Why {
    /// Whom it would be for: a name or an identity, as `polyrail node list` shows them
    peer: String,
    /// How large it would be: bytes, or a number with K, M, G
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    size: u64,
    #[command(flatten)]
    node: ListArgs,
}

/// What is decided of each link; JSON has every member (docs/operating.md, "Why a message goes where it goes").
const DECISIONS: [&str; 5] = ["name", "takes", "share_percent", "offer_us", "why"];
/// What is known of it.
const FACTS: [&str; 12] = [
    "name",
    "bearer",
    "state",
    "status",
    "rate_bytes_per_s",
    "rtt_us",
    "bearer_queued_bytes",
    "inflight_bytes",
    "window_bytes",
    "lost_percent",
    "mtu_bytes",
    "sent_percent",
];

/// Asks and prints.
pub fn run(why: &Why, output: &Output) -> Result<ExitCode, Failure> {
    let only = json!({ "bytes": why.size });
    let question = Question { command: "why", name: Some(&why.peer), only: Some(&only) };
    let answer = control::ask(why.node.control.as_deref(), &question)?;
    output.result(text(&answer["why"]).join("\n"), &answer);
    Ok(ExitCode::SUCCESS)
}

/// What people read.
fn text(why: &Value) -> Vec<String> {
    let links: Vec<Value> = why["links"].as_array().into_iter().flatten().map(row).collect();
    let taken = links.iter().any(|link| link["takes"] == true);
    let mut lines = message(&why["peer"], &why["message"], taken);
    lines.push(String::new());
    lines.extend(table(&DECISIONS, &links));
    lines.push(String::new());
    lines.extend(table(&FACTS, &links));
    lines
}

fn message(peer: &Value, message: &Value, taken: bool) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let mut lines = vec![
        format!(
            "a message of {} bytes to {} ({}, {})",
            message["bytes"],
            word(&peer["name"]),
            word(&peer["node"]),
            word(&peer["state"])
        ),
        format!("  goes {}: {}", word(&message["way"]), word(&message["why"])),
        format!("  has arrived after {}", arrival(message, taken)),
        format!("  that is {}", word(&message["formula"])),
    ];
    let count = |member: &str| message[member].as_u64().unwrap_or_default();
    match (count("messages_before"), count("flows_starved")) {
        (0, _) => {}
        (before, 0) => lines.push(format!("  not counted: what waits to be sent to that node before it, messages: {before}")),
        (before, starved) => lines.push(format!(
            "  not counted: what waits to be sent to that node, messages: {before}; flows without credit, for their receivers do \
             not read: {starved} (`polyrail node show` tells which)"
        )),
    }
    lines
}

/// The prediction, as sure as it is.
fn arrival(message: &Value, taken: bool) -> String {
    let Some(arrival_us) = message["arrival_us"].as_f64() else {
        let why = if taken { "what its links can deliver was not measured yet" } else { "no link takes it" };
        return format!("an unknown time: {why}");
    };
    let (sure, condition) = match message["arrival_is"].as_str() {
        Some("at-most") => ("at most", ", whichever link is asked first"),
        Some("roughly") => ("roughly", ", by the largest rates that were seen so far"),
        Some("assumed") => {
            ("about", ", if its link moves what is assumed of links that had little to do yet")
        }
        _ => ("about", ""),
    };
    let announcement = match message["announcement_us"].as_f64() {
        Some(before_us) => format!(", {before_us:.1} us of them for the announcement and its answer"),
        None => String::new(),
    };
    format!("{sure} {arrival_us:.1} us{announcement}{condition}")
}

/// A row as people read it: what was never measured is unknown, and the largest rate that was seen is no measured one.
fn row(link: &Value) -> Value {
    let mut row = link.clone();
    if link["rate_known"] == "seen" {
        row["rate_bytes_per_s"] = json!(format!("~{}", link["rate_bytes_per_s"]));
    }
    for member in
        ["rate_bytes_per_s", "rtt_us", "bearer_queued_bytes", "lost_percent", "sent_percent", "share_percent"]
    {
        if row[member].is_null() {
            row[member] = json!("unknown");
        }
    }
    if link["status_of_peer"] != "active" && link["status_of_peer"] != link["status"] {
        let (own, of_peer) = (link["status"].as_str(), link["status_of_peer"].as_str());
        row["status"] = json!(format!("{}, {} by the peer", own.unwrap_or("-"), of_peer.unwrap_or("-")));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rate: Value, known: &str) -> Value {
        json!({
            "peer": { "name": "beta", "node": "02", "state": "up" },
            "message": {
                "bytes": 64, "way": "small", "why": "w", "formula": "f", "arrival_us": 81.25, "arrival_is": "at-most",
                "announcement_us": null, "messages_before": 3, "flows_starved": 0,
            },
            "links": [{ "name": "beta/0", "takes": true, "share_percent": 100.0, "offer_us": 81.3, "why": "least",
                "rate_bytes_per_s": rate, "rate_known": known, "status": "active", "status_of_peer": "standby" }],
        })
    }

    #[test]
    fn the_message_comes_first_and_then_the_links() {
        let lines = text(&told(json!(5), "seen"));
        assert_eq!(lines[0], "a message of 64 bytes to beta (02, up)");
        assert_eq!(lines[2], "  has arrived after at most 81.2 us, whichever link is asked first");
        assert!(lines[4].contains("messages: 3"), "{lines:?}");
        assert_eq!(lines[7], "beta/0  yes            100.0      81.3  least");
        assert!(lines[10].contains("active, standby by the peer") && lines[10].contains("~5"), "{lines:?}");
    }

    #[test]
    fn what_is_not_known_is_called_so() {
        let mut told = told(Value::Null, "unknown");
        told["message"]["arrival_us"] = Value::Null;
        let lines = text(&told);
        assert!(lines[2].contains("an unknown time"), "{lines:?}");
        assert!(lines[10].contains("unknown"), "{lines:?}");
    }
}
