//! Everything known of one thing, in groups (docs/operating.md, "Control socket"). A group is an object, or a list of
//! objects; what has no limit of its own gets one here.

use super::connections::name_of;
use super::find::{self, link_name, unknown};
use super::rows::{bearer_row, bindings_of, owner, service_name};
use super::{Refusal, connections, stats, why};
use crate::engine::Engine;
use crate::engine::history::LinkChange;
use crate::engine::status::{show as address, status_name};
use crate::moment::Moment;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{BearerId, PortId};
use polyrail_proto::limits::ACK_DELAY_MAX;
use polyrail_proto::link::Link;
use polyrail_proto::session::{FlowPicture, GivenPicture, Session, TakenPicture};
use polyrail_proto::time::{Duration, Instant};
use serde_json::{Value, json};

/// Rows that one group may have; `..._total` beside it tells how many there are.
pub(super) const ROWS_MAX: usize = 256;

pub(super) fn us(span: Duration) -> f64 {
    span.0 as f64 / 1_000.0
}

pub(super) fn ms(span: Duration) -> f64 {
    span.0 as f64 / 1_000_000.0
}

// ----- link ---------------------------------------------------------------------------------------------------------

/// A link, or what is remembered of one that is gone.
pub(super) fn link(engine: &mut Engine, name: &str, moment: &Moment) -> Result<Value, Refusal> {
    let (node, id) = find::link(engine, name)?;
    let past = engine.history().of(node);
    let changes = past.into_iter().flat_map(|past| past.link(id)).map(|c| link_change(engine, c, moment));
    let changes: Vec<Value> = changes.collect();
    let found = engine.session_with(node).and_then(|s| Some((s, s.links.iter().find(|l| l.spec.id == id)?)));
    let Some((session, link)) = found else {
        let peer = past.map_or_else(String::new, |past| past.name.clone());
        let gone = json!({
            "name": link_name(&peer, id), "peer": peer, "node": node.to_string(), "link": id.0, "state": "gone",
        });
        return Ok(json!({ "link": gone, "changes": changes }));
    };
    Ok(json!({
        "link": link_identity(engine, session, link, moment),
        "path": link_path(session, link),
        "window": link_window(link),
        "traffic": stats::link_counters(link),
        "trouble": link_trouble(session, link, moment),
        "changes": changes,
    }))
}

fn link_identity(engine: &Engine, session: &Session, link: &Link, moment: &Moment) -> Value {
    let bearer = engine.core().bearers().nth(link.spec.bearer.0 as usize);
    json!({
        "name": link_name(&session.peer.name, link.spec.id), "peer": session.peer.name.as_str(),
        "node": session.peer.node.to_string(), "link": link.spec.id.0,
        "bearer": engine.bearer_name(link.spec.bearer.0), "peer_bearer": link.spec.peer_bearer.0,
        "from": bearer.map(|(info, _)| address(&info.address)), "to": address(&link.spec.to),
        "state": link.state.state().name(), "status": status_name(link.status),
        "status_of_peer": status_name(link.status_of_peer), "carrier": link.carrier,
        "carries_messages": link.usable(), "takes_messages": session.serves(link), "in_doubt": link.in_doubt(),
        "began": moment.date(link.created_at()), "age_s": moment.ago_s(link.created_at()),
    })
}

fn link_path(session: &Session, link: &Link) -> Value {
    let sampled = |span: Duration| link.rtt.has_sample().then(|| us(span));
    json!({
        "mtu_bytes": link.mtu.current(), "mtu_search": link.mtu.is_searching(), "mtu_bearers_bytes": link.spec.mtu,
        "rtt_us": sampled(link.rtt.srtt()), "rtt_min_us": sampled(link.rtt.min()),
        "rtt_latest_us": sampled(link.rtt.latest()), "rtt_variation_us": sampled(link.rtt.rttvar()),
        "probe_timeout_us": us(link.rtt.pto(ACK_DELAY_MAX)), "queueing_towards_us": us(link.received.queueing()),
        "shares_bottleneck_with": link.shared.with().map(|with| link_name(&session.peer.name, with)),
        "bottleneck_trials": link.shared.trials,
    })
}

fn link_window(link: &Link) -> Value {
    json!({
        "window_bytes": link.window.cwnd(), "inflight_bytes": link.sent.inflight_bytes(), "room_bytes": link.room(),
        "rate_bytes_per_s": link.pace.bytes_per_s(), "rate_known": why::rate_known(link),
        "rate_when_full_bytes_per_s": link.window.rate_bytes_per_s(), "starting": link.window.is_starting(),
        "queue_target_us": us(link.window.queue_target()), "bearer_full": link.blocked,
        "window_of_peer_bytes": link.spec.window,
    })
}

fn link_trouble(session: &Session, link: &Link, moment: &Moment) -> Value {
    json!({
        "silent_ms": ms(link.received.silent_since(moment.now)), "probe_timeouts_in_a_row": link.pto_count,
        "suspicions_refuted": link.state.spurious(), "deaths": link.state.downs(),
        "penalty": link.state.penalty(moment.now), "last_resort": link.pressed,
        "tolerance_ms": ms(session.tolerance()),
    })
}

fn link_change(engine: &Engine, change: &LinkChange, moment: &Moment) -> Value {
    let BearerId(bearer) = change.bearer;
    json!({
        "at": moment.date(change.at), "ago_s": moment.ago_s(change.at), "from": change.from.name(),
        "to": change.to.name(), "why": change.why.to_string(), "bearer": engine.bearer_name(bearer),
    })
}

// ----- node ---------------------------------------------------------------------------------------------------------

/// A peer with everything shared with it, a node that is gone, or the node itself.
pub(super) fn node(engine: &mut Engine, name: &str, moment: &Moment) -> Result<Value, Refusal> {
    let id = find::node(engine, name)?;
    if id == engine.core().config().node {
        return Ok(own_node(engine, moment));
    }
    let past = engine.history().of(id);
    let changes = past.into_iter().flat_map(|past| &past.changes).map(|change| {
        let (at, incarnation) = (change.at, change.incarnation.0);
        json!({
            "at": moment.date(at), "ago_s": moment.ago_s(at), "what": change.what.to_string(), "incarnation": incarnation,
        })
    });
    let changes: Vec<Value> = changes.collect();
    let Some(session) = engine.session_with(id) else {
        let name = past.map_or_else(String::new, |past| past.name.clone());
        return Ok(json!({
            "node": { "node": id.to_string(), "name": name, "state": "gone" }, "changes": changes,
        }));
    };
    // Those of connections are shown with these.
    let taken: Vec<_> = session.taken_credits().filter(|taken| !taken.port.is_connection()).collect();
    let given: Vec<_> = session.given_credits().filter(|given| !given.port.is_connection()).collect();
    let flows: Vec<FlowPicture> = session.flows().collect();
    Ok(json!({
        "node": {
            "node": id.to_string(), "name": session.peer.name.as_str(),
            "state": if session.is_up() { "up" } else { "isolated" }, "incarnation": session.peer.incarnation.0,
            "bearers": session.peer.bearers.iter().map(|b| address(&b.address)).collect::<Vec<_>>(),
        },
        "session": session_facts(session, moment),
        "messages": stats::session_counters(session),
        "queues": queues(session, &flows, taken.len(), given.len()),
        "credit_of_peer": taken.iter().take(ROWS_MAX).map(taken_row).collect::<Vec<_>>(),
        "credit_for_peer": given.iter().take(ROWS_MAX).map(given_row).collect::<Vec<_>>(),
        "flows": flows.iter().take(ROWS_MAX).map(|flow| flow_row(session, flow, moment.now)).collect::<Vec<_>>(),
        "connections": connections::group(engine, (Some(id), None), moment).0,
        "links": session.links.iter().map(|link| short_link_row(engine, session, link)).collect::<Vec<_>>(),
        "changes": changes,
    }))
}

fn own_node(engine: &mut Engine, moment: &Moment) -> Value {
    let (held, held_bytes) = engine.held_buffers();
    let (core, ports) = (engine.core(), engine.port_ids().len());
    let config = core.config();
    let sessions = engine.remote_sessions();
    let (peers, links) = sessions.fold((0, 0), |(peers, links), s| (peers + 1, links + s.links.len()));
    json!({
        "node": {
            "node": config.node.to_string(), "name": config.name.as_str(), "state": "self",
            "incarnation": config.incarnation.0, "began": moment.date(engine.started_at()),
            "uptime_s": moment.ago_s(engine.started_at()), "tolerance_ms": ms(config.tolerance),
            "beacons": config.discovery, "full_check": config.full_check, "policy": config.policy.name(),
            "class_policies": class_policies(config),
        },
        "holds": {
            "peers": peers, "links": links, "ports": ports, "bearers": engine.bearer_rows().len(),
            "bindings": core.table().len(), "buffers_of_large_messages": held,
            "buffers_of_large_messages_bytes": held_bytes,
        },
        "engine": { "turns": engine.turns() },
        "drops": stats::drops(engine),
        "malformed": stats::malformed(engine),
    })
}

fn session_facts(session: &Session, moment: &Moment) -> Value {
    let began = session.began_at();
    json!({
        "began": moment.date(began), "uptime_s": moment.ago_s(began), "opened_by": if session.initiator { "us" } else { "peer" },
        "index": session.index.0, "index_of_peer": session.peer.session.0, "tolerance_ms": ms(session.tolerance()),
        "tolerance_of_peer_ms": ms(session.peer.tolerance), "busy": session.is_busy(moment.now),
        "last_confirmed_s": moment.ago_s(session.last_proof_at()),
        "isolated_s": session.isolated_since().map(|at| moment.ago_s(at)),
    })
}

fn queues(session: &Session, flows: &[FlowPicture], taken: usize, given: usize) -> Value {
    let [_, _, transfers_out, transfers_in] = session.sizes();
    let (control, control_held) = session.control_frames();
    let (grants_and_refusals, _) = session.backlog();
    let mut out = json!({
        "messages_unconfirmed": flows.iter().map(|flow| flow.unconfirmed).sum::<usize>(),
        "messages_unsent": flows.iter().map(|flow| flow.unsent).sum::<usize>(),
        "flows_total": flows.len(), "flows_starved": flows.iter().filter(|flow| flow.starved).count(),
        "credit_of_peer_total": taken, "credit_for_peer_total": given,
        "connections_total": session.connections(),
        "transfers_sending": transfers_out, "transfers_receiving": transfers_in,
        "transfers_waiting_for_memory": session.waiting_transfers(),
        "control_frames_unconfirmed": control, "control_frames_early": control_held,
        "grants_and_refusals_untold": grants_and_refusals,
    });
    for (class, queued) in Class::ALL.into_iter().zip(session.queued()) {
        out[format!("ready_{}", class.name())] = json!(queued);
    }
    out
}

/// The policies of the classes that have one of their own.
fn class_policies(config: &polyrail_proto::Config) -> Value {
    let own = Class::ALL.into_iter().zip(config.class_policies);
    own.filter_map(|(class, policy)| Some((class.name().to_owned(), json!(policy?.name())))).collect()
}

fn taken_row(taken: &TakenPicture) -> Value {
    let credit = &taken.credit;
    json!({
        "port": taken.port.0, "bytes_given": credit.limit_bytes, "bytes_used": credit.used_bytes,
        "bytes_left": credit.limit_bytes.saturating_sub(credit.used_bytes), "messages_given": credit.limit_messages,
        "messages_used": credit.used_messages,
        "messages_left": credit.limit_messages.saturating_sub(credit.used_messages),
        "starved_flows": taken.starved_flows,
    })
}

fn given_row(given: &GivenPicture) -> Value {
    let ((bytes, bytes_told), (messages, messages_told)) = (given.limit_bytes, given.limit_messages);
    json!({
        "port": given.port.0, "bytes_given": bytes, "bytes_told": bytes_told, "bytes_used": given.received_bytes,
        "bytes_left": bytes.saturating_sub(given.received_bytes), "messages_given": messages,
        "messages_told": messages_told, "messages_used": given.received_messages,
        "messages_left": messages.saturating_sub(given.received_messages), "messages_missing": given.gaps,
    })
}

fn flow_row(session: &Session, flow: &FlowPicture, now: Instant) -> Value {
    json!({
        "peer": session.peer.name.as_str(), "from": flow.key.from.0, "to": flow.key.to.0,
        "connection": flow.key.to.is_connection().then(|| name_of(session, flow.key.to.far_end())), "class": flow.key.class.name(), "policy": flow.policy.name(), "unconfirmed": flow.unconfirmed, "unsent": flow.unsent,
        "starved": flow.starved, "retry_in_ms": (flow.retry_at > now).then(|| ms(flow.retry_at.since(now))),
    })
}

fn short_link_row(engine: &Engine, session: &Session, link: &Link) -> Value {
    json!({
        "name": link_name(&session.peer.name, link.spec.id), "bearer": engine.bearer_name(link.spec.bearer.0),
        "to": address(&link.spec.to), "state": link.state.state().name(),
        "rtt_us": link.rtt.has_sample().then(|| us(link.rtt.srtt())), "inflight_bytes": link.sent.inflight_bytes(),
    })
}

// ----- bearer, service, port ----------------------------------------------------------------------------------------

/// A bearer and the links over it.
pub(super) fn bearer(engine: &mut Engine, name: &str, moment: &Moment) -> Result<Value, Refusal> {
    let index = find::bearer(engine, name)?;
    let row = engine.bearer_rows().into_iter().find(|row| row.bearer == index);
    let row = row.map(|row| bearer_row(&row, moment.now));
    let (full, backlog) = engine.bearer_queue(index).unwrap_or_default();
    let id = BearerId(index as u8);
    let (rate, target) = engine.core().bearer_rate(id);
    let links: Vec<Value> = engine
        .remote_sessions()
        .flat_map(|s| s.links.iter().filter(|l| l.spec.bearer == id).map(move |l| (s, l)))
        .map(|(session, link)| short_link_row(engine, session, link))
        .collect();
    Ok(json!({
        "bearer": row,
        "queue": {
            "full": full, "waiting_bytes": backlog, "rate_of_links_bytes_per_s": rate, "queue_target_us": us(target),
        },
        "traffic": stats::bearer_counters(engine, id),
        "links": links,
    }))
}

/// Who has bound a service, or a part of it.
pub(super) fn service(engine: &mut Engine, name: &str) -> Result<Value, Refusal> {
    let range = find::service(name)?;
    let own = engine.core().config().node.to_string();
    let all = engine.service_rows();
    let overlaps = |s: &&crate::engine::BindingStatus| {
        s.kind == range.kind && s.lower <= range.upper && range.lower <= s.upper
    };
    let bindings: Vec<Value> = all
        .iter()
        .filter(overlaps)
        .map(|s| {
            let session = engine.remote_sessions().find(|session| session.peer.node.to_string() == s.node);
            let name = session.map(|session| session.peer.name.as_str());
            let here = s.node == own;
            json!({
                "service": service_name(s), "scope": s.scope, "node": s.node, "port": s.port,
                "name": name.or(here.then_some(engine.core().config().name.as_str())),
                "reachable": here || session.is_some_and(Session::is_up),
            })
        })
        .collect();
    if bindings.is_empty() {
        let mut there: Vec<String> = all.iter().map(service_name).collect();
        there.dedup();
        return Err(unknown("service", name, there));
    }
    let total = bindings.len();
    let shown: Vec<Value> = bindings.into_iter().take(ROWS_MAX).collect();
    Ok(json!({ "service": { "service": range.to_string(), "bindings_total": total }, "bindings": shown }))
}

/// A port of this node.
pub(super) fn port(engine: &mut Engine, name: &str, moment: &Moment) -> Result<Value, Refusal> {
    let port = find::port(engine, name)?;
    let gone = || unknown("port", name, Vec::new());
    let memory = engine.port_memory(port).ok_or_else(gone)?;
    let node = engine.core().config().node;
    let (program, pid, uid) = owner(memory.guest.as_ref());
    let flows = || {
        let sessions = engine.core().sessions();
        sessions.flat_map(|s| s.flows().filter(|f| f.key.from == port).map(move |f| (s, f)))
    };
    let (connected, connected_total) = connections::group(engine, (None, Some(port)), moment);
    let listening = engine.core().listening(port);
    let shown: Vec<Value> = flows().take(ROWS_MAX).map(|(s, f)| flow_row(s, &f, moment.now)).collect();
    Ok(json!({
        "port": {
            "port": port.0, "address": format!("{node}:{port}"),
            "state": if memory.closing { "closing" } else { "open" }, "program": program, "pid": pid, "uid": uid,
            "bindings": bindings_of(node, port, &engine.service_rows()), "connections_total": connected_total,
            "backlog": listening.map(|(backlog, _)| backlog), "connections_waiting": listening.map(|(_, waiting)| waiting),
        },
        "sending": {
            "messages_unconfirmed": engine.core().unconfirmed(port), "messages_settled": memory.completed,
            "commands_waiting": memory.commands_waiting, "arena_bytes": memory.send_arena_bytes,
            "flows_total": flows().count(), "flows_starved": flows().filter(|(_, flow)| flow.starved).count(),
        },
        "receiving": {
            "completions_waiting": memory.completions_waiting, "completions_max": memory.completions_max,
            "arena_bytes": memory.receive_arena_bytes, "arena_free_bytes": memory.receive_free_bytes,
        },
        "flows": shown,
        "connections": connected,
        "credit_given": given_by(engine, port),
    }))
}

/// What a port of ours gives to each peer.
fn given_by(engine: &Engine, port: PortId) -> Vec<Value> {
    let rows = engine.core().sessions().filter_map(|session| {
        let given = session.given_credits().find(|given| given.port == port)?;
        let mut row = given_row(&given);
        row["peer"] = json!(session.peer.name.as_str());
        Some(row)
    });
    rows.take(ROWS_MAX).collect()
}
