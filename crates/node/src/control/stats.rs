//! Counters: one row for each thing, and the sums.

use super::find::{self, link_name};
use super::rows::service_name;
use super::{Refusal, connections, mem, show};
use crate::engine::Engine;
use polyrail_proto::id::BearerId;
use polyrail_proto::link::Link;
use polyrail_proto::session::Session;
use polyrail_proto::stats::{LinkStats, SessionStats};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a link counted.
pub(super) fn link_counters(link: &Link) -> Value {
    link_sums(&link.stats)
}

fn link_sums(s: &LinkStats) -> Value {
    json!({
        "packets_sent": s.packets_sent, "bytes_sent": s.bytes_sent, "trains_sent": s.trains_sent,
        "packets_received": s.packets_received, "bytes_received": s.bytes_received, "packets_lost": s.packets_lost,
        "packets_lost_spuriously": s.packets_lost_spuriously, "trains_dropped_locally": s.trains_dropped_locally,
        "probe_timeouts": s.probe_timeouts, "failures": s.failures,
    })
}

/// What a session counted.
pub(super) fn session_counters(session: &Session) -> Value {
    session_sums(&session.stats)
}

fn session_sums(s: &SessionStats) -> Value {
    json!({
        "messages_sent": s.messages_sent, "messages_confirmed": s.messages_confirmed,
        "messages_received": s.messages_received, "messages_failed": s.messages_failed, "packets_insured": s.packets_insured,
        "messages_copied": s.messages_copied,
        "refused_here": s.messages_refused, "refused_here_no_port": s.refused_no_port,
        "refused_by_peer": s.refused_by_peer,
    })
}

fn add_links<'a>(links: impl Iterator<Item = &'a Link>) -> LinkStats {
    links.fold(LinkStats::default(), |sum, link| {
        let s = &link.stats;
        LinkStats {
            packets_sent: sum.packets_sent + s.packets_sent,
            bytes_sent: sum.bytes_sent + s.bytes_sent,
            trains_sent: sum.trains_sent + s.trains_sent,
            packets_received: sum.packets_received + s.packets_received,
            bytes_received: sum.bytes_received + s.bytes_received,
            packets_lost: sum.packets_lost + s.packets_lost,
            packets_lost_spuriously: sum.packets_lost_spuriously + s.packets_lost_spuriously,
            trains_dropped_locally: sum.trains_dropped_locally + s.trains_dropped_locally,
            probe_timeouts: sum.probe_timeouts + s.probe_timeouts,
            failures: sum.failures + s.failures,
        }
    })
}

fn add_sessions<'a>(sessions: impl Iterator<Item = &'a Session>) -> SessionStats {
    sessions.fold(SessionStats::default(), |sum, session| {
        let s = &session.stats;
        SessionStats {
            messages_sent: sum.messages_sent + s.messages_sent,
            messages_confirmed: sum.messages_confirmed + s.messages_confirmed,
            messages_received: sum.messages_received + s.messages_received,
            messages_failed: sum.messages_failed + s.messages_failed,
            packets_insured: sum.packets_insured + s.packets_insured,
            messages_copied: sum.messages_copied + s.messages_copied,
            messages_refused: sum.messages_refused + s.messages_refused,
            refused_no_port: sum.refused_no_port + s.refused_no_port,
            refused_by_peer: sum.refused_by_peer + s.refused_by_peer,
        }
    })
}

/// The sums over the links of a bearer.
pub(super) fn bearer_counters(engine: &Engine, bearer: BearerId) -> Value {
    let links = engine.remote_sessions().flat_map(|s| &s.links).filter(|l| l.spec.bearer == bearer);
    let mut out = link_sums(&add_links(links));
    let row = engine.bearer_rows().into_iter().find(|row| row.bearer == bearer.0 as usize);
    if let Some((sent, received)) = row.and_then(|row| row.express_frames) {
        out["express_frames_sent"] = json!(sent);
        out["express_frames_received"] = json!(received);
    }
    out
}

/// Drops by reason, of the node as a whole since it began.
pub(super) fn drops(engine: &Engine) -> Value {
    counters(engine.drop_rows())
}

/// Malformed packets by kind of fault.
pub(super) fn malformed(engine: &Engine) -> Value {
    counters(engine.fault_rows())
}

fn counters(rows: Vec<(String, u64)>) -> Value {
    let named = rows.into_iter().map(|(name, count)| (name.replace('-', "_"), json!(count)));
    Value::Object(named.collect::<Map<String, Value>>())
}

/// The picture of the whole node: drops, and the sums over what lives now.
pub(super) fn total(engine: &mut Engine) -> Value {
    let sessions = || engine.remote_sessions();
    let own = engine.core().config().node;
    json!({
        "drops": drops(engine),
        "malformed": malformed(engine),
        "refused": mem::refusals(engine.users().refused()),
        "messages": session_sums(&add_sessions(sessions())),
        "messages_inside": session_sums(&add_sessions(engine.session_with(own).into_iter())),
        "connections": connections::total(engine),
        "links": link_sums(&add_links(sessions().flat_map(|s| &s.links))),
        "holds": {
            "peers": sessions().count(), "links": sessions().map(|s| s.links.len()).sum::<usize>(),
            "ports": engine.port_ids().len(), "bindings": engine.core().table().len(),
            "messages_unconfirmed": engine.unconfirmed(),
        },
    })
}

/// A row of counters for each thing of a kind, or for the one that is named.
pub(super) fn rows(engine: &mut Engine, noun: &str, name: Option<&str>) -> Result<Vec<Value>, Refusal> {
    let named: Vec<(String, Value)> = match noun {
        "link" => {
            let only = name.map(|name| find::link(engine, name)).transpose()?;
            let links = engine.remote_sessions().flat_map(|s| s.links.iter().map(move |l| (s, l)));
            let links = links.filter(|(s, l)| only.is_none_or(|only| only == (s.peer.node, l.spec.id)));
            links.map(|(s, l)| (link_name(&s.peer.name, l.spec.id), link_counters(l))).collect()
        }
        "node" => {
            let only = name.map(|name| find::node(engine, name)).transpose()?;
            let sessions = engine.core().sessions().filter(|s| only.is_none_or(|only| only == s.peer.node));
            sessions.map(|s| (s.peer.name.to_string(), session_counters(s))).collect()
        }
        "bearer" => {
            let only = name.map(|name| find::bearer(engine, name)).transpose()?;
            let rows = engine.bearer_rows().into_iter().filter(|b| only.is_none_or(|only| only == b.bearer));
            rows.map(|b| (b.name, bearer_counters(engine, BearerId(b.bearer as u8)))).collect()
        }
        "port" => port_rows(engine, name)?,
        "connection" => connections::stats(engine, name)?,
        _ => service_rows(engine, name)?,
    };
    let rows = named.into_iter().map(|(name, mut counters)| {
        counters["name"] = json!(name);
        counters
    });
    Ok(rows.collect())
}

fn port_rows(engine: &mut Engine, name: Option<&str>) -> Result<Vec<(String, Value)>, Refusal> {
    let only = name.map(|name| find::port(engine, name)).transpose()?;
    let ports = engine.port_ids().into_iter().filter(|port| only.is_none_or(|only| only == *port));
    let row = |port| {
        let memory = engine.port_memory(port)?;
        let unconfirmed = engine.core().unconfirmed(port);
        let did = engine.core().port_stats(port).unwrap_or_default();
        let counters = json!({
            "messages_sent": did.messages_sent, "bytes_sent": did.bytes_sent,
            "messages_received": did.messages_received, "bytes_received": did.bytes_received,
            "messages_settled": memory.completed, "messages_unconfirmed": unconfirmed,
            "commands_waiting": memory.commands_waiting, "completions_waiting": memory.completions_waiting,
            "receive_used_bytes": memory.receive_arena_bytes.saturating_sub(memory.receive_free_bytes),
        });
        Some((format!("{port}"), counters))
    };
    Ok(ports.collect::<Vec<_>>().into_iter().filter_map(row).collect())
}

/// Services by range: how many ports have bound each, on how many nodes.
fn service_rows(engine: &mut Engine, name: Option<&str>) -> Result<Vec<(String, Value)>, Refusal> {
    if let Some(name) = name {
        // The same answer to a name that nothing has.
        show::service(engine, name)?;
    }
    let only = name.map(find::service).transpose()?;
    let mut found: BTreeMap<(u32, u32, u32), (String, Vec<String>)> = BTreeMap::new();
    for s in engine.service_rows() {
        let inside = |r: polyrail_proto::address::ServiceRange| {
            s.kind == r.kind && s.lower <= r.upper && r.lower <= s.upper
        };
        if only.is_none_or(inside) {
            let entry =
                found.entry((s.kind, s.lower, s.upper)).or_insert_with(|| (service_name(&s), Vec::new()));
            entry.1.push(s.node);
        }
    }
    let rows = found.into_values().map(|(name, mut nodes)| {
        let bindings = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        (name, json!({ "bindings": bindings, "nodes": nodes.len() }))
    });
    Ok(rows.collect())
}
