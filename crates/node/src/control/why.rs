//! `why`: what a message to a peer would take now, link by link, in numbers and in words. The decisions are the core's
//! (`Session::outlook`); here they get their names.

mod words;

use super::Refusal;
use super::find::{self, link_name};
use super::show::{ms, us};
use crate::engine::Engine;
use crate::engine::status::status_name;
use crate::moment::Moment;
use polyrail_proto::flow::Class;
use polyrail_proto::id::NodeId;
use polyrail_proto::link::Link;
use polyrail_proto::link::pace::Known;
use polyrail_proto::session::{LinkOutlook, Outlook, Part, Session, Way};
use polyrail_proto::wire::MESSAGE_BYTES_MAX;
use serde_json::{Value, json};
use words::Scene;

/// Bytes of the message if nobody says how many.
const BYTES_DEFAULT: u64 = 64;

/// How large the message is, from the request's `bytes`.
pub(super) fn bytes_of(request: &Value) -> Result<u64, Refusal> {
    match &request["bytes"] {
        Value::Null => Ok(BYTES_DEFAULT),
        given => given.as_u64().filter(|bytes| *bytes <= MESSAGE_BYTES_MAX).ok_or_else(|| {
            let message = format!("\"bytes\" is {given}; allowed: a number, {MESSAGE_BYTES_MAX} at most");
            Refusal::new("usage", message)
        }),
    }
}

/// What a message of `bytes` to the peer called `name` would take.
pub(super) fn tell(engine: &mut Engine, name: &str, bytes: u64, moment: &Moment) -> Result<Value, Refusal> {
    let node = peer(engine, name, moment)?;
    // What waits in a bearer's own queue is asked for first: it takes the engine for itself.
    let bearers: Vec<Option<(bool, u32)>> =
        (0..engine.core().bearers().count()).map(|index| engine.bearer_queue(index)).collect();
    let session = engine.session_with(node).ok_or_else(|| gone(engine, node, name, moment))?;
    let outlook = session.outlook(bytes);
    let scene = Scene { engine, session, outlook: &outlook, bytes, moment };
    let sent_bytes: u64 = session.links.iter().map(|link| link.stats.bytes_sent).sum();
    let links = session.links.iter().zip(&outlook.links).map(|(link, told)| {
        let mut row = facts(link, sent_bytes, session.hope());
        let queue = bearers.get(link.spec.bearer.0 as usize).copied().flatten();
        row["name"] = json!(link_name(&session.peer.name, link.spec.id));
        row["bearer"] = json!(engine.bearer_name(link.spec.bearer.0));
        row["bearer_queued_bytes"] = json!(queue.map(|(_, bytes)| bytes));
        row["takes"] = json!(told.part.takes());
        row["part"] = json!(part_name(told.part));
        row["why"] = json!(scene.of_link(link, told));
        decision(&mut row, told, bytes);
        row
    });
    let links: Vec<Value> = links.collect();
    Ok(json!({
        "peer": {
            "node": node.to_string(), "name": session.peer.name.as_str(),
            "state": if session.is_up() { "up" } else { "isolated" },
        },
        "message": message(&scene, session, &outlook, bytes),
        "links": links,
    }))
}

/// The peer with that name; where there is none, what there is and what to do.
fn peer(engine: &Engine, name: &str, moment: &Moment) -> Result<NodeId, Refusal> {
    let node = find::node(engine, name).map_err(|refusal| match refusal.code {
        "not_found" => {
            let peers = engine.remote_sessions().map(|session| session.peer.name.to_string());
            let message = format!(
                "no peer {name:?}: this node has no session with a node of that name or identity; there are: {}. See \
                 `polyrail node list`; is the node running, and does a network of its reach one of ours?",
                find::listed(peers.collect())
            );
            Refusal::new("not_found", message)
        }
        _ => refusal,
    })?;
    if node == engine.core().config().node {
        let message =
            format!("{name:?} is this node itself: messages between its ports take no link; name a peer");
        return Err(Refusal::new("usage", message));
    }
    if engine.session_with(node).is_some() { Ok(node) } else { Err(gone(engine, node, name, moment)) }
}

/// The refusal of a peer that was there once.
fn gone(engine: &Engine, node: NodeId, name: &str, moment: &Moment) -> Refusal {
    let last = engine.history().of(node).and_then(|past| past.changes.back());
    let when = last
        .map_or_else(String::new, |change| format!(": {}, {} s ago", change.what, moment.ago_s(change.at)));
    let message = format!(
        "peer {name:?} is gone{when}; there is no session with it until it is heard again. See `polyrail node show {name}`; \
         is it running, and do its networks work?"
    );
    Refusal::new("not_found", message)
}

/// What is known of a link, whatever becomes of the message; null is what was never measured.
fn facts(link: &Link, sent_bytes: u64, hope: u64) -> Value {
    let stats = &link.stats;
    let lost = stats.packets_lost.saturating_sub(stats.packets_lost_spuriously);
    let sampled = link.rtt.has_sample();
    json!({
        "link": link.spec.id.0, "state": link.state.state().name(), "status": status_name(link.status),
        "status_of_peer": status_name(link.status_of_peer), "in_doubt": link.in_doubt(), "bearer_full": link.blocked,
        "rate_bytes_per_s": link.has_measured_rate().then(|| link.pace.bytes_per_s()),
        "rate_counted_bytes_per_s": link.rate(hope), "rate_known": rate_known(link),
        "rtt_us": sampled.then(|| us(link.rtt.srtt())), "rtt_min_us": sampled.then(|| us(link.rtt.min())),
        "inflight_bytes": link.sent.inflight_bytes(), "window_bytes": link.window.cwnd(), "room_bytes": link.room(),
        "lost_percent": percent(lost, stats.packets_sent), "mtu_bytes": link.mtu.current(),
        "sent_bytes": stats.bytes_sent, "sent_percent": percent(stats.bytes_sent, sent_bytes),
    })
}

/// How much is known of a link's rate.
pub(super) fn rate_known(link: &Link) -> &'static str {
    match link.rate_known() {
        Known::Nothing => "unknown",
        Known::Seen => "seen",
        Known::Measured => "measured",
    }
}

/// What the message has to do with a link.
fn decision(row: &mut Value, told: &LinkOutlook, bytes: u64) {
    row["offer_us"] = json!(told.offer.map(us));
    row["queue_us"] = json!(us(told.expected.queue));
    row["trip_us"] = json!(us(told.expected.trip));
    row["doubt_us"] = json!(us(told.expected.doubt));
    row["loss_us"] = json!(us(told.loss));
    row["share_bytes"] = json!(told.share_bytes);
    let whole = told.share_bytes.filter(|share| *share == bytes).map(|_| 100.0);
    row["share_percent"] = json!(whole.or_else(|| percent(told.share_bytes?, bytes)));
}

fn message(scene: &Scene<'_>, session: &Session, outlook: &Outlook, bytes: u64) -> Value {
    let unsent: usize = session.flows().map(|flow| flow.unsent).sum();
    json!({
        "bytes": bytes, "way": way_name(outlook.way), "policy": scene.engine.core().config().policy_of(Class::Normal).name(),
        "choice": outlook.choice.map(|link| link_name(&session.peer.name, link)),
        "announcement_us": outlook.announcement.map(us), "arrival_us": outlook.arrival.map(us),
        "arrival_is": scene.certainty(), "why": scene.of_message(), "formula": scene.formula(),
        "messages_before": unsent, "flows_starved": session.flows().filter(|flow| flow.starved).count(),
        "silent_ms": session.isolated_since().map(|at| ms(scene.moment.now.since(at))),
    })
}

fn way_name(way: Way) -> &'static str {
    match way {
        Way::Small => "small",
        Way::Pieces => "pieces",
        Way::Announced => "announced",
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Chosen => "chosen",
        Part::Admitted => "admitted",
        Part::Behind => "behind",
        Part::Pulls => "pulls",
        Part::Late => "late",
        Part::Spared => "spared",
        Part::Barred(_) => "barred",
    }
}

/// A share of the whole; unknown where there is nothing to have a share of.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}
