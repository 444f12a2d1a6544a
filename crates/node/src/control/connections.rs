//! Connections: a list that may be long, one connection, and what became of all of them.
//!
//! A session may have 65,536 of them, so the engine is held only for those that are shown; the others are counted.

use super::find;
use super::{Refusal, show::ROWS_MAX};
use crate::engine::Engine;
use crate::moment::Moment;
use polyrail_proto::id::{NodeId, PortId};
use polyrail_proto::session::{ConnectionPicture, ConnectionState, GivenPicture, Session};
use polyrail_proto::stats::{ConnectionStats, Refusals};
use serde_json::{Value, json};

/// Rows of a list where nobody asks for more, and that anybody may ask for.
const LISTED: u64 = 256;
const LISTED_MAX: u64 = 4_096;

/// Which connections a list is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Only {
    peer: Option<String>,
    port: Option<String>,
    rows_max: usize,
}

impl Only {
    /// From the members of a request.
    pub(super) fn read(request: &Value) -> Result<Only, Refusal> {
        let wrong =
            |name: &str, allowed: &str| Refusal::new("request", format!("\"{name}\"; allowed: {allowed}"));
        let text = |name: &str| match &request[name] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(name, "a name as the lists show it")),
        };
        let rows_max = match &request["limit"] {
            Value::Null => LISTED,
            number => {
                let allowed = number.as_u64().filter(|rows| (1..=LISTED_MAX).contains(rows));
                allowed.ok_or_else(|| wrong("limit", &format!("1 to {LISTED_MAX}")))?
            }
        };
        Ok(Only { peer: text("peer")?, port: text("port")?, rows_max: rows_max as usize })
    }
}

impl Default for Only {
    fn default() -> Only {
        Only { peer: None, port: None, rows_max: LISTED as usize }
    }
}

/// The list, and how many there are.
pub(super) fn list(engine: &Engine, only: &Only, moment: &Moment) -> Result<(Vec<Value>, usize), Refusal> {
    let peer = only.peer.as_ref().map(|name| find::node(engine, name)).transpose()?;
    let port = only.port.as_ref().map(|name| find::port(engine, name)).transpose()?;
    Ok(rows(engine, (peer, port), only.rows_max, moment))
}

/// Rows of the connections with `peer` and of `port`, so many at most, and how many there are.
pub(super) fn rows(
    engine: &Engine,
    (peer, port): (Option<NodeId>, Option<PortId>),
    rows_max: usize,
    moment: &Moment,
) -> (Vec<Value>, usize) {
    let mut shown = Vec::new();
    let mut total = 0;
    for session in sorted(engine).into_iter().filter(|s| peer.is_none_or(|peer| peer == s.peer.node)) {
        for end in session.connection_ends(port) {
            total += 1;
            if shown.len() < rows_max {
                shown.extend(session.connection_picture(end).map(|c| row(session, &c, moment)));
            }
        }
    }
    (shown, total)
}

/// The sessions by the names of their peers, the one with the node itself among them.
fn sorted(engine: &Engine) -> Vec<&Session> {
    let mut sessions: Vec<&Session> = engine.core().sessions().collect();
    sessions.sort_by_key(|session| (session.peer.name, session.peer.node));
    sessions
}

/// The name of a connection: its number is unique only together with who asked for it.
pub(super) fn name_of(session: &Session, end: PortId) -> String {
    format!("{}/{}", session.peer.name, number_of(end))
}

/// Its name without that of the peer: `out-7` is the seventh that this node asked for.
pub(super) fn number_of(end: PortId) -> String {
    let way = if end.is_connecting_end() { "out" } else { "in" };
    format!("{way}-{}", end.connection_number())
}

fn state_name(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Asked => "asked",
        ConnectionState::Waiting => "waiting",
        ConnectionState::Open => "open",
        ConnectionState::SentAll => "sent-all",
        ConnectionState::HeardAll => "heard-all",
        ConnectionState::Closing => "closing",
    }
}

fn row(session: &Session, c: &ConnectionPicture, moment: &Moment) -> Value {
    let mut row = identity(session, c, moment);
    let (sending, receiving) = (sending(c), receiving(c));
    for member in ["messages_sent", "messages_unconfirmed", "messages_unsent", "starved"] {
        row[member] = sending[member].clone();
    }
    row["messages_received"] = receiving["messages_used"].clone();
    for member in ["bytes_left", "messages_left"] {
        row[format!("sending_{member}")] = sending[member].clone();
        row[format!("receiving_{member}")] = receiving[member].clone();
    }
    row
}

fn identity(session: &Session, c: &ConnectionPicture, moment: &Moment) -> Value {
    json!({
        "name": name_of(session, c.end), "port": c.port.0, "peer": session.peer.name.as_str(),
        "node": session.peer.node.to_string(), "peer_port": c.far.0, "class": c.class.name(),
        "carries": if c.stream { "stream" } else { "messages" },
        "asked_by": if c.end.is_connecting_end() { "us" } else { "peer" }, "state": state_name(c.state),
        "age_s": moment.ago_s(c.began_at),
    })
}

/// What we send: our credit, and what waits.
fn sending(c: &ConnectionPicture) -> Value {
    let taken = c.taken.map(|taken| {
        let bytes = (taken.limit_bytes, taken.used_bytes);
        (bytes, (taken.limit_messages, taken.used_messages))
    });
    let mut out = credit(taken);
    out["messages_sent"] = json!(c.sent);
    out["messages_unconfirmed"] = json!(c.unconfirmed);
    out["messages_unsent"] = json!(c.unsent);
    out["starved"] = json!(c.starved);
    out["sent_all"] = json!(c.said.0);
    out["peer_receives_no_more"] = json!(c.heard.1);
    out
}

/// What the peer sends: the credit that it has, and what has come.
fn receiving(c: &ConnectionPicture) -> Value {
    let given = c.given.map(|given: GivenPicture| {
        let bytes = (given.limit_bytes.1, given.received_bytes);
        (bytes, (given.limit_messages.1, given.received_messages))
    });
    let mut out = credit(given);
    out["messages_undelivered"] = json!(c.undelivered);
    out["peer_sent_all"] = json!(c.heard.0);
    out["receives_no_more"] = json!(c.said.1);
    out
}

/// Given, used and left, of bytes and messages.
fn credit(both: Option<((u64, u64), (u64, u64))>) -> Value {
    let ((bytes, bytes_used), (messages, messages_used)) = both.unwrap_or_default();
    json!({
        "bytes_given": bytes, "bytes_used": bytes_used, "bytes_left": bytes.saturating_sub(bytes_used),
        "messages_given": messages, "messages_used": messages_used,
        "messages_left": messages.saturating_sub(messages_used),
    })
}

/// One connection, in groups.
pub(super) fn show(engine: &Engine, name: &str, moment: &Moment) -> Result<Value, Refusal> {
    let (session, end) = find::connection(sorted(engine), name)?;
    let gone = || find::unknown("connection", name, Vec::new());
    let c = session.connection_picture(end).ok_or_else(gone)?;
    let mut own = identity(session, &c, moment);
    own["end"] = json!(end.0);
    own["began"] = json!(moment.date(c.began_at));
    Ok(json!({ "connection": own, "sending": sending(&c), "receiving": receiving(&c) }))
}

/// What became of connections with each peer, and with all of them together.
pub(super) fn stats(engine: &Engine, name: Option<&str>) -> Result<Vec<(String, Value)>, Refusal> {
    let only = name.map(|name| find::node(engine, name)).transpose()?;
    let sessions = sorted(engine).into_iter().filter(|s| only.is_none_or(|only| only == s.peer.node));
    let mut named: Vec<(String, Value)> =
        sessions.map(|s| (s.peer.name.to_string(), sums([s].into_iter()))).collect();
    if only.is_none() {
        named.push(("all".to_owned(), total(engine)));
    }
    Ok(named)
}

/// What became of all connections. Messages that came too early or too late are the whole node's, since it began.
pub(super) fn total(engine: &Engine) -> Value {
    let mut out = sums(engine.core().sessions());
    let drops = engine.core().drops();
    out["messages_early"] = json!(drops.early_message);
    out["messages_late"] = json!(drops.late_message);
    out
}

fn sums<'a>(sessions: impl Iterator<Item = &'a Session>) -> Value {
    let (mut now, mut all) = ([0; ConnectionState::ALL.len()], ConnectionStats::default());
    for session in sessions {
        for (sum, count) in now.iter_mut().zip(session.connection_states()) {
            *sum += count;
        }
        all = add(all, *session.connection_stats());
    }
    let mut out = json!({
        "now": now.iter().sum::<usize>(), "asked_by_us": all.asked, "asked_by_peer": all.offered,
        "opened": all.opened, "over": all.over, "aborted_by_peer": all.aborted,
    });
    for (state, count) in ConnectionState::ALL.into_iter().zip(now) {
        out[format!("now_{}", state_name(state).replace('-', "_"))] = json!(count);
    }
    for (by, refused) in [("here", all.refused_here), ("by_peer", all.refused_by_peer)] {
        out[format!("refused_{by}_backlog")] = json!(refused.backlog);
        out[format!("refused_{by}_nobody_listens")] = json!(refused.nobody_listens);
        out[format!("refused_{by}_not_allowed")] = json!(refused.not_allowed);
    }
    out
}

fn add(a: ConnectionStats, b: ConnectionStats) -> ConnectionStats {
    let refusals = |a: Refusals, b: Refusals| Refusals {
        backlog: a.backlog + b.backlog,
        nobody_listens: a.nobody_listens + b.nobody_listens,
        not_allowed: a.not_allowed + b.not_allowed,
    };
    ConnectionStats {
        asked: a.asked + b.asked,
        offered: a.offered + b.offered,
        opened: a.opened + b.opened,
        refused_here: refusals(a.refused_here, b.refused_here),
        refused_by_peer: refusals(a.refused_by_peer, b.refused_by_peer),
        aborted: a.aborted + b.aborted,
        over: a.over + b.over,
    }
}

/// Those of a port, or with a node, as a group of it.
pub(super) fn group(
    engine: &Engine,
    of: (Option<NodeId>, Option<PortId>),
    moment: &Moment,
) -> (Vec<Value>, usize) {
    rows(engine, of, ROWS_MAX, moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_and_what_is_wrong_with_it_is_told() {
        assert_eq!(Only::read(&json!({})), Ok(Only::default()));
        let some = Only::read(&json!({ "peer": "beta", "port": "7", "limit": 4_096 }));
        let (peer, port) = (Some("beta".to_owned()), Some("7".to_owned()));
        assert_eq!(some, Ok(Only { peer, port, rows_max: 4_096 }));
        for wrong in
            [json!({ "peer": 1 }), json!({ "port": 7 }), json!({ "limit": 0 }), json!({ "limit": 4_097 })]
        {
            assert_eq!(Only::read(&wrong).unwrap_err().code, "request", "{wrong}");
        }
    }

    #[test]
    fn the_name_of_a_connection_says_who_asked_for_it() {
        let accepting = PortId::accepting_end(7);
        assert_eq!(
            (number_of(accepting), number_of(accepting.far_end())),
            ("in-7".to_owned(), "out-7".to_owned())
        );
    }
}
