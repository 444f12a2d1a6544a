//! `polyrail watch`: tells of services, nodes and links as they come and go.

use crate::failure::Failure;
use crate::node_args::NodeChoice;
use crate::output::Output;
use crate::service::parse_range;
use crate::size;
use clap::{ArgGroup, Args};
use polyrail::{Node, Publication, Scope, ServiceRange, Subscription, Topic, Update, UpdateError};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

/// Updates that wait to be written; more wait in the node, which bounds them.
const AHEAD: usize = 16;

/// What to watch, and how long.
#[derive(Args)]
#[command(group = ArgGroup::new("topic").required(true).multiple(true).args(["service", "nodes", "links"]))]
#[command(after_help = "Example: polyrail watch --insecure 100:0-99 --nodes --for 60")]
pub struct Watch {
    /// Services whose bindings to tell of: TYPE:INSTANCE or TYPE:LOWER-UPPER
    #[arg(value_parser = parse_range)]
    service: Option<ServiceRange>,
    /// Tells of nodes that join and leave
    #[arg(long)]
    nodes: bool,
    /// Tells of links that come, change their state, and go
    #[arg(long)]
    links: bool,
    /// Of several bindings of the same range, tells of the first that comes and the last that goes
    #[arg(long, requires = "service")]
    first_last: bool,
    /// Ends after this long; without it, at SIGINT or SIGTERM
    #[arg(long = "for", value_name = "SPAN", value_parser = size::parse_span)]
    span: Option<Duration>,
    #[command(flatten)]
    node: NodeChoice,
}

/// Why the next line is none.
enum Said {
    Update(Update),
    Ended(UpdateError),
    Signal,
}

/// Tells until the time is over or a signal comes.
pub fn run(watch: &Watch, output: &Output) -> Result<ExitCode, Failure> {
    let mut signals = crate::node::signals()?;
    let node = watch.node.node()?;
    let subscription = subscribe(watch, &node)?;
    let (said, says) = mpsc::sync_channel(AHEAD);
    let by_signal = said.clone();
    std::thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            // Nobody listens any more if the time was over just before.
            let _ = by_signal.send(Said::Signal);
        }
    });
    std::thread::spawn(move || pass_on(subscription, &said));
    for next in says {
        match next {
            Said::Update(Update::TimedOut) | Said::Signal => break,
            Said::Update(update) => output.result(text(&update), &document(&update)),
            Said::Ended(error) => return Err(error.into()),
        }
    }
    node.leave(Duration::from_secs(5))?;
    Ok(ExitCode::SUCCESS)
}

fn subscribe(watch: &Watch, node: &Node) -> Result<Subscription, Failure> {
    let mut topic = match (watch.service, watch.nodes) {
        (Some(range), _) => Topic::services(range),
        (None, true) => Topic::nodes(),
        (None, false) => Topic::links(),
    };
    if watch.first_last {
        topic = topic.first_and_last();
    }
    if watch.nodes {
        topic = topic.and_nodes();
    }
    if watch.links {
        topic = topic.and_links();
    }
    let subscription = match watch.span {
        Some(span) => node.subscribe_for(topic, span)?,
        None => node.subscribe(topic)?,
    };
    Ok(subscription)
}

/// Hands updates on for as long as somebody takes them.
fn pass_on(mut subscription: Subscription, said: &SyncSender<Said>) {
    loop {
        let (next, goes_on) = match subscription.next() {
            Ok(update) => (Said::Update(update), update != Update::TimedOut),
            Err(error) => (Said::Ended(error), false),
        };
        if said.send(next).is_err() || !goes_on {
            return;
        }
    }
}

/// A line for people.
fn text(update: &Update) -> String {
    let binding = |p: &Publication| match p.scope {
        Scope::Cluster => format!("{} at {}", p.range, p.port),
        Scope::Node => format!("{} at {} (this node only)", p.range, p.port),
    };
    match update {
        Update::Published(p) => format!("published {}", binding(p)),
        Update::Withdrawn(p) => format!("withdrawn {}", binding(p)),
        Update::NodeUp { node, name, .. } => format!("node {node} ({name}) is up"),
        Update::NodeDown { node, left, .. } => {
            format!("node {node} {}", if *left { "has left" } else { "is lost" })
        }
        Update::Link { node, link, from: None, to, .. } => format!("link {link} to {node}: {to}"),
        Update::Link { node, link, from: Some(from), to, .. } => {
            format!("link {link} to {node}: {to}, was {from}")
        }
        Update::LinkGone { node, link, .. } => format!("link {link} to {node} is gone"),
        Update::SnapshotEnd => "that is all so far; changes follow".to_owned(),
        Update::Overflow => "changes were lost: forget what was told; all again".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The same for programs.
fn document(update: &Update) -> Value {
    let binding = |event: &str, p: &Publication| {
        let (lower, upper) = (p.range.lower, p.range.upper);
        json!({
            "ok": true, "event": event, "service": p.range.to_string(), "type": p.range.kind, "lower": lower,
            "upper": upper, "node": p.port.node.to_string(), "port": p.port.port.0, "key": p.key,
            "scope": p.scope.to_string(), "weight": p.weight,
        })
    };
    let plain = |event: &str| json!({ "ok": true, "event": event });
    match update {
        Update::Published(p) => binding("published", p),
        Update::Withdrawn(p) => binding("withdrawn", p),
        Update::NodeUp { node, incarnation, name } => json!({
            "ok": true, "event": "node-up", "node": node.to_string(), "name": name.as_str(),
            "incarnation": incarnation.0,
        }),
        Update::NodeDown { node, incarnation, left } => json!({
            "ok": true, "event": "node-down", "node": node.to_string(), "incarnation": incarnation.0, "left": left,
        }),
        Update::Link { node, link, bearer, from, to } => json!({
            "ok": true, "event": "link", "node": node.to_string(), "link": link.0, "bearer": bearer.0,
            "from": from.map(|state| state.to_string()), "to": to.to_string(),
        }),
        Update::LinkGone { node, link, bearer } => json!({
            "ok": true, "event": "link-gone", "node": node.to_string(), "link": link.0, "bearer": bearer.0,
        }),
        Update::SnapshotEnd => plain("snapshot-end"),
        Update::Overflow => plain("overflow"),
        other => plain(&format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail::{BearerId, LinkId, LinkState, NodeId, PortAddress, PortId};

    #[test]
    fn every_update_is_one_line_for_people_and_one_document_for_programs() {
        let port = PortAddress { node: NodeId(0xc0ffee), port: PortId(7) };
        let (range, key) = (ServiceRange::new(100, 0, 9), 3);
        let publication = Publication { range, port, key, scope: Scope::Node, weight: 1 };
        let update = Update::Published(publication);
        assert_eq!(text(&update), "published 100:0-9 at 0000000000c0ffee:7 (this node only)");
        assert_eq!(
            document(&update),
            json!({
                "ok": true, "event": "published", "service": "100:0-9", "type": 100, "lower": 0, "upper": 9,
                "node": "0000000000c0ffee", "port": 7, "key": 3, "scope": "node", "weight": 1,
            })
        );
        let (node, link, bearer) = (NodeId(0xc0ffee), LinkId(1), BearerId(0));
        let update = Update::Link { node, link, bearer, from: Some(LinkState::Up), to: LinkState::Suspect };
        assert_eq!(text(&update), "link 1 to 0000000000c0ffee: suspect, was up");
        assert_eq!(
            (document(&update)["from"].as_str(), document(&update)["to"].as_str()),
            (Some("up"), Some("suspect"))
        );
        let update = Update::Link { node, link, bearer, from: None, to: LinkState::Up };
        assert_eq!(
            (text(&update).as_str(), &document(&update)["from"]),
            ("link 1 to 0000000000c0ffee: up", &Value::Null)
        );
    }
}
