//! Rows of the lists: one flat object for each thing.

use super::find::link_name;
use crate::engine::status::status_name;
use crate::engine::{BearerStatus, BindingStatus, Engine, Guest, LinkReport, MissingStatus, Status};
use polyrail_proto::id::{LinkId, NodeId, PortId};
use polyrail_proto::link::Link;
use polyrail_proto::session::Session;
use polyrail_proto::time::Instant;
use serde_json::{Value, json};

pub(super) fn bearer_row(b: &BearerStatus, now: Instant) -> Value {
    let (medium, interface) = b.name.split_once('/').unwrap_or((&b.name, ""));
    json!({
        "bearer": b.name, "interface": interface, "interface_index": b.interface_index, "medium": medium, "address": b.address,
        "state": if b.carrier { "up" } else { "no-carrier" }, "mtu_bytes": b.mtu, "gso": b.gso,
        "express_frames": b.express_frames.is_some(),
        "express_frames_sent": b.express_frames.map(|(sent, _)| sent),
        "express_frames_received": b.express_frames.map(|(_, received)| received),
        "send_buffer_bytes": b.buffers.0, "receive_buffer_bytes": b.buffers.1,
        "queue_target_bytes": b.queue_target_bytes,
        "age_s": now.since(Instant(b.opened_at_ns)).0 as f64 / 1e9,
    })
}

/// An interface that had a bearer, or should have one: the same members, as far as there is something to tell.
pub(super) fn missing_row(m: &MissingStatus) -> Value {
    json!({
        "bearer": format!("udp/{}", m.interface), "interface": m.interface, "medium": "udp", "address": m.address,
        "state": "closed", "why": m.why, "closed_ago_s": m.since_s, "named": m.is_named,
    })
}

pub(super) fn link_row(l: &LinkReport) -> Value {
    json!({
        "name": link_name(&l.peer, LinkId(l.link)),
        "peer": l.peer, "link": l.link, "bearer": l.bearer, "to": l.to, "state": l.state, "status": l.status,
        "status_of_peer": l.status_of_peer,
        "rtt_us": l.rtt_ns.0 as f64 / 1_000.0, "rtt_min_us": l.rtt_ns.1 as f64 / 1_000.0, "mtu_bytes": l.mtu,
        "rate_bytes_per_s": l.rate_bytes_per_s, "window_bytes": l.window_bytes.0, "inflight_bytes": l.window_bytes.1,
        "packets_sent": l.packets.0, "packets_received": l.packets.1, "packets_lost": l.packets.2,
        "packets_lost_spuriously": l.packets.3, "bytes_sent": l.bytes.0, "bytes_received": l.bytes.1,
        "probe_timeouts": l.troubles.0, "failures": l.troubles.1,
    })
}

/// What has become of a link that was set.
pub(super) fn set_row(session: &Session, link: &Link) -> Value {
    json!({
        "name": link_name(&session.peer.name, link.spec.id), "state": link.state.state().name(),
        "status": status_name(link.status), "status_of_peer": status_name(link.status_of_peer),
        "takes_messages": session.serves(link), "inflight_bytes": link.sent.inflight_bytes(),
    })
}

pub(super) fn node_rows(status: &Status) -> Vec<Value> {
    let own = json!({
        "node": status.id, "name": status.name, "state": "self", "incarnation": status.incarnation,
        "links": status.links.len(), "links_up": status.links.iter().filter(|l| l.state == "up").count(),
    });
    let peers = status.peers.iter().map(|p| {
        let links = || status.links.iter().filter(|l| l.node == p.id);
        json!({
            "node": p.id, "name": p.name, "state": if p.up { "up" } else { "isolated" },
            "incarnation": p.incarnation, "links": links().count(),
            "links_up": links().filter(|l| l.state == "up").count(),
            "messages_sent": p.messages.0, "messages_confirmed": p.messages.1, "messages_received": p.messages.2,
            "messages_failed": p.messages.3, "messages_refused": p.messages.4,
        })
    });
    let lost = status.lost.iter().map(|l| {
        json!({
            "node": l.id, "name": l.name, "state": "lost", "incarnation": l.incarnation, "links": 0, "links_up": 0,
            "lost_ago_s": l.ago_s, "why": l.why,
        })
    });
    std::iter::once(own).chain(peers).chain(lost).collect()
}

pub(super) fn service_row(s: &BindingStatus) -> Value {
    json!({
        "service": service_name(s), "type": s.kind, "lower": s.lower, "upper": s.upper, "scope": s.scope,
        "node": s.node, "port": s.port,
    })
}

/// A range as it is typed.
pub(super) fn service_name(s: &BindingStatus) -> String {
    let (kind, lower, upper) = (s.kind, s.lower, s.upper);
    if lower == upper { format!("{kind}:{lower}") } else { format!("{kind}:{lower}-{upper}") }
}

/// The ports of this node's programs.
pub(super) fn port_rows(engine: &mut Engine) -> Vec<Value> {
    let bindings = engine.service_rows();
    let ports = engine.port_ids();
    ports.into_iter().filter_map(|port| port_row(engine, port, &bindings)).collect()
}

fn port_row(engine: &mut Engine, port: PortId, bindings: &[BindingStatus]) -> Option<Value> {
    let memory = engine.port_memory(port)?;
    let node = engine.core().config().node;
    let (program, pid, uid) = owner(memory.guest.as_ref());
    let did = engine.core().port_stats(port).unwrap_or_default();
    Some(json!({
        "port": port.0, "address": format!("{node}:{port}"),
        "state": if memory.closing { "closing" } else { "open" }, "program": program, "pid": pid, "uid": uid,
        "bindings": bindings_of(node, port, bindings), "connections": engine.core().connections_of(port),
        "messages_unconfirmed": engine.core().unconfirmed(port),
        "messages_settled": memory.completed, "messages_sent": did.messages_sent, "bytes_sent": did.bytes_sent,
        "messages_received": did.messages_received, "bytes_received": did.bytes_received,
        "commands_waiting": memory.commands_waiting,
        "completions_waiting": memory.completions_waiting, "receive_arena_bytes": memory.receive_arena_bytes,
        "receive_free_bytes": memory.receive_free_bytes,
    }))
}

/// Whose a port is: program, process and user; without a user if it is the node's own.
pub(super) fn owner(guest: Option<&Guest>) -> (&str, u32, Option<u32>) {
    guest.map_or(("(node)", std::process::id(), None), |guest| (&*guest.program, guest.pid, Some(guest.uid)))
}

/// What a port of this node has bound.
pub(super) fn bindings_of(node: NodeId, port: PortId, bindings: &[BindingStatus]) -> Vec<String> {
    let node = node.to_string();
    bindings.iter().filter(|b| b.port == port.0 && b.node == node).map(service_name).collect()
}
