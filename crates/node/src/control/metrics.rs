//! `metrics`: what can be counted and measured of a node, as Prometheus scrapes it (docs/operating.md, "Metrics"). Base
//! units, and counters that begin anew with what they belong to: a session, a port, the node.

pub(super) mod memory;
mod page;

use super::rows::owner;
use crate::engine::Engine;
use crate::moment::Moment;
use page::{Kind, Labels, Metric, Page};
use polyrail_proto::flow::Class;
use polyrail_proto::link::Link;
use polyrail_proto::link::state::LinkState;
use polyrail_proto::session::Session;
use polyrail_proto::stats::{ConnectionStats, LinkStats, PortStats, SessionStats};
use polyrail_proto::time::Duration;

/// Ports that have samples: a node may have 32,768, and the engine waits while they are looked at.
const PORTS_MAX: usize = 1_024;

/// The page of a node now.
pub(super) fn text(engine: &mut Engine, moment: &Moment) -> String {
    let mut page = Page::default();
    node(&mut page, engine, moment);
    let peers: Vec<(Labels, Peer)> = engine.remote_sessions().map(peer).collect();
    page.add(&PEERS, &peers);
    by_class_and_reason(&mut page, &peers);
    let links: Vec<(Labels, Way)> =
        engine.remote_sessions().flat_map(|s| s.links.iter().map(|link| way(engine, s, link))).collect();
    page.add(&LINKS, &links);
    states(&mut page, &links);
    bearers(&mut page, engine);
    ports(&mut page, engine);
    page.into_text()
}

/// Prometheus has nothing but floating point.
fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

fn flag(is: bool) -> Option<f64> {
    Some(f64::from(u8::from(is)))
}

fn seconds(span: Duration) -> f64 {
    span.0 as f64 / 1e9
}

// ----- node ---------------------------------------------------------------------------------------------------------

/// What a node has as a whole.
struct Whole {
    uptime_s: f64,
    turns: u64,
    attached: usize,
    peers: usize,
    ports: usize,
    bindings: usize,
    unconfirmed: usize,
    held: (usize, u64),
}

const NODE: [Metric<Whole>; 10] = [
    Metric::gauge("polyrail_uptime_seconds", "Time since the node began.", |n| Some(n.uptime_s)),
    Metric::counter("polyrail_engine_turns_total", "Passes of the node's engine over everything.", |n| {
        count(n.turns)
    }),
    Metric::gauge("polyrail_attached_processes", "Processes that are attached to the node.", |n| {
        count(n.attached as u64)
    }),
    Metric::gauge("polyrail_peers", "Nodes that there is a session with.", |n| count(n.peers as u64)),
    Metric::gauge("polyrail_ports", "Ports of the node's programs.", |n| count(n.ports as u64)),
    Metric::gauge(
        "polyrail_ports_left_out",
        "Ports that have no metrics of their own: there are too many.",
        |n| count(n.ports.saturating_sub(PORTS_MAX) as u64),
    ),
    Metric::gauge("polyrail_bindings", "Bindings of services that the node knows.", |n| {
        count(n.bindings as u64)
    }),
    Metric::gauge("polyrail_unconfirmed_messages", "Messages of all ports that are not confirmed.", |n| {
        count(n.unconfirmed as u64)
    }),
    Metric::gauge("polyrail_pool_buffers", "Buffers of the pool that hold large messages.", |n| {
        count(n.held.0 as u64)
    }),
    Metric::gauge("polyrail_pool_bytes", "Bytes of the pool's buffers that hold large messages.", |n| {
        count(n.held.1)
    }),
];

fn node(page: &mut Page, engine: &mut Engine, moment: &Moment) {
    let core = engine.core();
    let config = core.config();
    let info = Labels::new(&[
        ("name", &config.name),
        ("node", &config.node.to_string()),
        ("incarnation", &config.incarnation.0.to_string()),
        ("version", env!("CARGO_PKG_VERSION")),
    ]);
    let help = "The node: its name, identity and life, and the program's version.";
    page.family("polyrail_node_info", Kind::Gauge, help, std::iter::once((info, 1.0)));
    let whole = Whole {
        uptime_s: moment.ago_s(engine.started_at()),
        turns: engine.turns(),
        attached: engine.attached(),
        peers: engine.remote_sessions().count(),
        ports: engine.port_ids().len(),
        bindings: core.table().len(),
        unconfirmed: engine.unconfirmed(),
        held: engine.held_buffers(),
    };
    page.add(&NODE, &[(Labels::new(&[]), whole)]);
    let named = |label: &'static str, rows: Vec<(String, u64)>| {
        let row = move |(name, number): (String, u64)| {
            Some((Labels::new(&[(label, &name.replace('-', "_"))]), count(number)?))
        };
        rows.into_iter().filter_map(row)
    };
    let help = "Packets, frames and other things that were dropped, by reason.";
    page.family("polyrail_drops_total", Kind::Counter, help, named("reason", engine.drop_rows()));
    let help = "Malformed packets by kind of fault.";
    page.family("polyrail_malformed_packets_total", Kind::Counter, help, named("fault", engine.fault_rows()));
}

// ----- peers --------------------------------------------------------------------------------------------------------

/// A session with another node.
struct Peer {
    up: bool,
    stats: SessionStats,
    connections: usize,
    connected: ConnectionStats,
    queued: [usize; 4],
    unsent: usize,
    starved: usize,
}

const PEERS: [Metric<Peer>; 15] = [
    Metric::gauge("polyrail_peer_up", "Whether a link to the peer carries messages.", |p| flag(p.up)),
    Metric::counter(
        "polyrail_peer_sent_messages_total",
        "Messages for the peer, taken from local ports.",
        |p| count(p.stats.messages_sent),
    ),
    Metric::counter("polyrail_peer_confirmed_messages_total", "Messages that the peer confirmed.", |p| {
        count(p.stats.messages_confirmed)
    }),
    Metric::counter(
        "polyrail_peer_received_messages_total",
        "Messages of the peer, delivered to ports.",
        |p| count(p.stats.messages_received),
    ),
    Metric::counter("polyrail_peer_failed_messages_total", "Messages for the peer that failed.", |p| {
        count(p.stats.messages_failed)
    }),
    Metric::counter(
        "polyrail_peer_refused_messages_total",
        "Messages of the peer that were refused here.",
        |p| count(p.stats.messages_refused),
    ),
    Metric::counter("polyrail_peer_messages_refused_by_peer_total", "Messages that the peer refused.", |p| {
        count(p.stats.refused_by_peer)
    }),
    Metric::counter(
        "polyrail_peer_insured_packets_total",
        "Packets that were late on one link and whose contents another carried too.",
        |p| count(p.stats.packets_insured),
    ),
    Metric::counter("polyrail_peer_copies_total", "Copies that were sent by another link.", |p| {
        count(p.stats.messages_copied)
    }),
    Metric::gauge("polyrail_peer_unsent_messages", "Messages of which nothing has left.", |p| {
        count(p.unsent as u64)
    }),
    Metric::gauge(
        "polyrail_peer_starved_flows",
        "Flows with messages to send and no credit for them.",
        |p| count(p.starved as u64),
    ),
    Metric::gauge("polyrail_peer_connections", "Ends of connections that are here.", |p| {
        count(p.connections as u64)
    }),
    Metric::counter("polyrail_peer_opened_connections_total", "Connections that both sides wanted.", |p| {
        count(p.connected.opened)
    }),
    Metric::counter(
        "polyrail_peer_aborted_connections_total",
        "Connections that the peer ended without order.",
        |p| count(p.connected.aborted),
    ),
    Metric::counter(
        "polyrail_peer_over_connections_total",
        "Ends of connections that are here no more.",
        |p| count(p.connected.over),
    ),
];

fn peer(session: &Session) -> (Labels, Peer) {
    let (mut unsent, mut starved) = (0, 0);
    for flow in session.flows() {
        unsent += flow.unsent;
        starved += usize::from(flow.starved);
    }
    let row = Peer {
        up: session.is_up(),
        stats: session.stats,
        connections: session.connections(),
        connected: *session.connection_stats(),
        queued: session.queued(),
        unsent,
        starved,
    };
    (peer_labels(session), row)
}

/// Two peers may have one name.
fn peer_labels(session: &Session) -> Labels {
    Labels::new(&[("peer", &session.peer.name), ("peer_id", &session.peer.node.to_string())])
}

/// What has a label more than the peer.
fn by_class_and_reason(page: &mut Page, peers: &[(Labels, Peer)]) {
    let ready = peers.iter().flat_map(|(labels, peer)| {
        let classes = Class::ALL.into_iter().zip(peer.queued);
        classes.map(|(class, queued)| (labels.and(&[("class", class.name())]), queued as f64))
    });
    let help = "Flows and large messages that wait for their turn to send, by class.";
    page.family("polyrail_peer_ready", Kind::Gauge, help, ready);
    let refused = peers.iter().flat_map(|(labels, peer)| {
        let sides = [("us", peer.connected.refused_here), ("peer", peer.connected.refused_by_peer)];
        sides.into_iter().flat_map(move |(by, refused)| {
            let reasons = [
                ("backlog", refused.backlog),
                ("nobody_listens", refused.nobody_listens),
                ("not_allowed", refused.not_allowed),
            ];
            reasons.map(|(reason, number)| (labels.and(&[("by", by), ("reason", reason)]), number as f64))
        })
    });
    let help = "Connections that were refused, by whom and why.";
    page.family("polyrail_peer_refused_connections_total", Kind::Counter, help, refused);
}

// ----- links --------------------------------------------------------------------------------------------------------

/// A link.
struct Way {
    state: LinkState,
    takes: bool,
    stats: LinkStats,
    /// Smoothed and least; nothing before there was one.
    rtt: Option<(Duration, Duration)>,
    rate_bytes_per_s: Option<u64>,
    window_bytes: u64,
    inflight_bytes: u64,
    mtu_bytes: u64,
    deaths: u64,
}

const LINKS: [Metric<Way>; 18] = [
    Metric::gauge("polyrail_link_takes_messages", "Whether new messages may leave by the link.", |l| {
        flag(l.takes)
    }),
    Metric::counter("polyrail_link_sent_bytes_total", "Bytes sent, packet headers included.", |l| {
        count(l.stats.bytes_sent)
    }),
    Metric::counter("polyrail_link_received_bytes_total", "Bytes received.", |l| {
        count(l.stats.bytes_received)
    }),
    Metric::counter("polyrail_link_sent_packets_total", "Packets sent.", |l| count(l.stats.packets_sent)),
    Metric::counter("polyrail_link_received_packets_total", "Packets received and accepted.", |l| {
        count(l.stats.packets_received)
    }),
    Metric::counter(
        "polyrail_link_lost_packets_total",
        "Packets declared lost; what they carried is sent again.",
        |l| count(l.stats.packets_lost),
    ),
    Metric::counter(
        "polyrail_link_spuriously_lost_packets_total",
        "Packets declared lost that had arrived after all.",
        |l| count(l.stats.packets_lost_spuriously),
    ),
    Metric::counter("polyrail_link_sent_trains_total", "Trains sent.", |l| count(l.stats.trains_sent)),
    Metric::counter("polyrail_link_dropped_trains_total", "Trains that the local queue refused.", |l| {
        count(l.stats.trains_dropped_locally)
    }),
    Metric::counter("polyrail_link_probe_timeouts_total", "Probe time-outs.", |l| {
        count(l.stats.probe_timeouts)
    }),
    Metric::counter("polyrail_link_failures_total", "Times that the link was no longer in use.", |l| {
        count(l.stats.failures)
    }),
    Metric::counter("polyrail_link_deaths_total", "Times that the link went down.", |l| count(l.deaths)),
    Metric::gauge("polyrail_link_rtt_seconds", "Round trip, smoothed.", |l| Some(seconds(l.rtt?.0))),
    Metric::gauge("polyrail_link_rtt_min_seconds", "Least round trip of late.", |l| Some(seconds(l.rtt?.1))),
    Metric::gauge(
        "polyrail_link_rate_bytes_per_second",
        "What the link delivers, as far as it was measured.",
        |l| count(l.rate_bytes_per_s?),
    ),
    Metric::gauge("polyrail_link_window_bytes", "What may be in flight.", |l| count(l.window_bytes)),
    Metric::gauge("polyrail_link_inflight_bytes", "What is in flight.", |l| count(l.inflight_bytes)),
    Metric::gauge("polyrail_link_mtu_bytes", "Packet size that the path bears.", |l| count(l.mtu_bytes)),
];

fn way(engine: &Engine, session: &Session, link: &Link) -> (Labels, Way) {
    let labels = peer_labels(session)
        .and(&[("link", &link.spec.id.to_string()), ("bearer", &engine.bearer_name(link.spec.bearer.0))]);
    let row = Way {
        state: link.state.state(),
        takes: session.serves(link),
        stats: link.stats,
        rtt: link.rtt.has_sample().then(|| (link.rtt.srtt(), link.rtt.min())),
        rate_bytes_per_s: link.has_measured_rate().then(|| link.pace.bytes_per_s()),
        window_bytes: link.window.cwnd(),
        inflight_bytes: link.sent.inflight_bytes(),
        mtu_bytes: u64::from(link.mtu.current()),
        deaths: link.state.downs(),
    };
    (labels, row)
}

/// A sample for each state, so that the one that a link has left is told to be over.
fn states(page: &mut Page, links: &[(Labels, Way)]) {
    let samples = links.iter().flat_map(|(labels, link)| {
        LinkState::ALL.into_iter().map(move |state| {
            (labels.and(&[("state", state.name())]), f64::from(u8::from(state == link.state)))
        })
    });
    let help = "1 for the state that the link is in, else 0.";
    page.family("polyrail_link_state", Kind::Gauge, help, samples);
}

// ----- bearers ------------------------------------------------------------------------------------------------------

/// A local attachment.
struct Attachment {
    carrier: bool,
    mtu_bytes: u16,
    /// Of its sockets, sending and receiving.
    buffer_bytes: (u32, u32),
    /// No room in it, and how much waits.
    queue: (bool, u32),
    express_frames: Option<(u64, u64)>,
}

const BEARERS: [Metric<Attachment>; 8] = [
    Metric::gauge("polyrail_bearer_carrier", "Whether the bearer has a carrier.", |b| flag(b.carrier)),
    Metric::gauge("polyrail_bearer_mtu_bytes", "Largest datagram.", |b| count(u64::from(b.mtu_bytes))),
    Metric::gauge("polyrail_bearer_send_buffer_bytes", "Send buffer as granted.", |b| {
        count(u64::from(b.buffer_bytes.0))
    }),
    Metric::gauge("polyrail_bearer_receive_buffer_bytes", "Receive buffer as granted.", |b| {
        count(u64::from(b.buffer_bytes.1))
    }),
    Metric::gauge("polyrail_bearer_queued_bytes", "What waits in the bearer's queue.", |b| {
        count(u64::from(b.queue.1))
    }),
    Metric::gauge("polyrail_bearer_full", "Whether the bearer took nothing at the last try.", |b| {
        flag(b.queue.0)
    }),
    Metric::counter("polyrail_bearer_sent_express_frames_total", "Packets sent as express frames.", |b| {
        count(b.express_frames?.0)
    }),
    Metric::counter(
        "polyrail_bearer_received_express_frames_total",
        "Packets received as express frames.",
        |b| count(b.express_frames?.1),
    ),
];

fn bearers(page: &mut Page, engine: &mut Engine) {
    let rows = engine.bearer_rows().into_iter().map(|row| {
        let attachment = Attachment {
            carrier: row.carrier,
            mtu_bytes: row.mtu,
            buffer_bytes: row.buffers,
            queue: engine.bearer_queue(row.bearer).unwrap_or_default(),
            express_frames: row.express_frames,
        };
        (Labels::new(&[("bearer", &row.name)]), attachment)
    });
    let rows: Vec<(Labels, Attachment)> = rows.collect();
    page.add(&BEARERS, &rows);
}

// ----- ports --------------------------------------------------------------------------------------------------------

/// A port of the node's programs.
struct Place {
    stats: PortStats,
    commands_waiting: usize,
    completions_waiting: usize,
    receive_free_bytes: u64,
    receive_arena_bytes: u64,
    unconfirmed: usize,
    connections: u32,
}

const PORTS: [Metric<Place>; 10] = [
    Metric::counter("polyrail_port_sent_messages_total", "Messages taken from the program.", |p| {
        count(p.stats.messages_sent)
    }),
    Metric::counter("polyrail_port_sent_bytes_total", "Bytes of the messages taken from the program.", |p| {
        count(p.stats.bytes_sent)
    }),
    Metric::counter("polyrail_port_received_messages_total", "Messages delivered to the port.", |p| {
        count(p.stats.messages_received)
    }),
    Metric::counter(
        "polyrail_port_received_bytes_total",
        "Bytes of the messages delivered to the port.",
        |p| count(p.stats.bytes_received),
    ),
    Metric::gauge(
        "polyrail_port_unconfirmed_messages",
        "Messages that were sent and are not confirmed.",
        |p| count(p.unconfirmed as u64),
    ),
    Metric::gauge("polyrail_port_waiting_commands", "Commands that the engine has not taken.", |p| {
        count(p.commands_waiting as u64)
    }),
    Metric::gauge(
        "polyrail_port_waiting_completions",
        "Messages and answers that the program has not taken.",
        |p| count(p.completions_waiting as u64),
    ),
    Metric::gauge("polyrail_port_receive_free_bytes", "Memory that is free for what arrives.", |p| {
        count(p.receive_free_bytes)
    }),
    Metric::gauge("polyrail_port_receive_arena_bytes", "Memory for what arrives.", |p| {
        count(p.receive_arena_bytes)
    }),
    Metric::gauge("polyrail_port_connections", "Connections of the port.", |p| {
        count(u64::from(p.connections))
    }),
];

fn ports(page: &mut Page, engine: &mut Engine) {
    let ids = engine.port_ids().into_iter().take(PORTS_MAX);
    let rows = ids.filter_map(|port| {
        let memory = engine.port_memory(port)?;
        let (program, pid, uid) = owner(memory.guest.as_ref());
        let uid = uid.map(|uid| uid.to_string()).unwrap_or_default();
        let labels = Labels::new(&[
            ("port", &port.to_string()),
            ("program", program),
            ("pid", &pid.to_string()),
            ("uid", &uid),
        ]);
        let core = engine.core();
        let place = Place {
            stats: core.port_stats(port)?,
            commands_waiting: memory.commands_waiting,
            completions_waiting: memory.completions_waiting,
            receive_free_bytes: memory.receive_free_bytes,
            receive_arena_bytes: memory.receive_arena_bytes,
            unconfirmed: core.unconfirmed(port),
            connections: core.connections_of(port),
        };
        Some((labels, place))
    });
    let rows: Vec<(Labels, Place)> = rows.collect();
    page.add(&PORTS, &rows);
}
