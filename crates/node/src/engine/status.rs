//! What an engine looks like from outside: plain data, for lists and JSON.

use super::Engine;
use polyrail_bearer::Address;
use polyrail_proto::address::{MediaAddress, Scope};
use polyrail_proto::link::Link;
use polyrail_proto::session::Session;
use polyrail_proto::stats::Drops;
use polyrail_proto::time::Instant;
use polyrail_proto::wire::{Fault, LinkStatus};
use serde::{Deserialize, Serialize};

/// Everything about a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Identity, 16 hexadecimal digits.
    pub id: String,
    /// Name.
    pub name: String,
    /// This life.
    pub incarnation: u64,
    /// Processes that are attached to it.
    pub attached: usize,
    /// Its bearers.
    pub bearers: Vec<BearerStatus>,
    /// Interfaces that should have a bearer and have none.
    pub missing: Vec<MissingStatus>,
    /// The nodes that it has sessions with.
    pub peers: Vec<PeerStatus>,
    /// Nodes that were lost of late and have not come back.
    pub lost: Vec<LostStatus>,
    /// The links of those sessions.
    pub links: Vec<LinkReport>,
    /// Who has bound what, as known here.
    pub services: Vec<BindingStatus>,
    /// Drops by reason.
    pub drops: Vec<(String, u64)>,
    /// Malformed packets by kind of fault.
    pub malformed: Vec<(String, u64)>,
}

/// One bearer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BearerStatus {
    /// Its number.
    pub bearer: usize,
    /// Its name, such as `udp/eth0`.
    pub name: String,
    /// The number of its interface when it was opened.
    pub interface_index: Option<u32>,
    /// The address that peers send to.
    pub address: String,
    /// Largest datagram, bytes.
    pub mtu: u16,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Whether trains leave by one call.
    pub gso: bool,
    /// Packets sent and received as express frames; none where the system does not allow them.
    pub express_frames: Option<(u64, u64)>,
    /// Socket buffers as granted: send, receive, bytes.
    pub buffers: (u32, u32),
    /// Bytes that the kernel's queue should hold.
    pub queue_target_bytes: u32,
    /// When it was opened, nanoseconds of the node's clock.
    pub opened_at_ns: u64,
}

/// An interface that had a bearer, or should have one, and has none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MissingStatus {
    /// Its name.
    pub interface: String,
    /// The address that the bearer had, if there was one.
    pub address: Option<String>,
    /// Why there is none.
    pub why: String,
    /// Since when, seconds.
    pub since_s: f64,
    /// The settings name the interface in full.
    pub is_named: bool,
}

/// One peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Identity, 16 hexadecimal digits.
    pub id: String,
    /// Name.
    pub name: String,
    /// Its life.
    pub incarnation: u64,
    /// Whether a link carries messages.
    pub up: bool,
    /// Messages accepted, confirmed, received, failed, refused here.
    pub messages: (u64, u64, u64, u64, u64),
    /// Ends of connections that are here.
    pub connections: usize,
}

/// A node that was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LostStatus {
    /// Identity, 16 hexadecimal digits.
    pub id: String,
    /// Name.
    pub name: String,
    /// The life that was lost.
    pub incarnation: u64,
    /// How long ago, seconds.
    pub ago_s: f64,
    /// What took its last link away.
    pub why: String,
}

/// One link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The peer's name.
    pub peer: String,
    /// The peer's identity, 16 hexadecimal digits.
    pub node: String,
    /// Number of the link in the session.
    pub link: u16,
    /// Name of our bearer.
    pub bearer: String,
    /// The peer's address.
    pub to: String,
    /// State.
    pub state: String,
    /// The operator's word.
    pub status: String,
    /// The word of the peer's operator.
    pub status_of_peer: String,
    /// Packet size that the path bears, bytes.
    pub mtu: u16,
    /// Smoothed and least round trip, nanoseconds.
    pub rtt_ns: (u64, u64),
    /// What it is expected to deliver or, if that is forgotten, what it delivered last; bytes per second, 0 if nothing is known.
    pub rate_bytes_per_s: u64,
    /// May be in flight, is in flight, bytes.
    pub window_bytes: (u64, u64),
    /// Packets sent, received, lost, lost spuriously.
    pub packets: (u64, u64, u64, u64),
    /// Bytes sent and received.
    pub bytes: (u64, u64),
    /// Probe time-outs and failures.
    pub troubles: (u64, u64),
}

/// One binding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BindingStatus {
    /// Service type.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
    /// Node, 16 hexadecimal digits.
    pub node: String,
    /// Port.
    pub port: u32,
    /// How far it is known.
    pub scope: String,
}

impl Engine {
    /// A picture of everything now.
    pub fn status(&self, now_ns: u64) -> Status {
        let config = self.node.config();
        let remote = || self.node.sessions().filter(|s| s.peer.node != config.node);
        Status {
            id: config.node.to_string(),
            name: config.name.to_string(),
            incarnation: config.incarnation.0,
            attached: self.news.listeners(),
            bearers: self.bearer_rows(),
            missing: self.missing_rows(Instant(now_ns)),
            peers: remote().map(peer_row).collect(),
            lost: self.lost_rows(Instant(now_ns)),
            links: remote()
                .flat_map(|s| s.links.iter().map(|l| link_row(s, self.bearer_name(l.spec.bearer.0), l)))
                .collect(),
            services: self.service_rows(),
            drops: self.drop_rows(),
            malformed: self.fault_rows(),
        }
    }

    pub(crate) fn bearer_name(&self, index: u8) -> String {
        self.bearers.get(index as usize).map_or_else(String::new, |b| b.bearer.name().to_owned())
    }

    pub(crate) fn bearer_rows(&self) -> Vec<BearerStatus> {
        let rows = self.bearers.iter().zip(self.node.bearers()).enumerate();
        rows.filter(|(_, (b, _))| !b.loopback && !b.vacant)
            .map(|(bearer, (b, (_, carrier)))| {
                let facts = b.bearer.capabilities();
                BearerStatus {
                    bearer,
                    name: b.bearer.name().to_owned(),
                    interface_index: b.bearer.device_index(),
                    address: b.bearer.local().address.to_string(),
                    mtu: facts.mtu_bytes,
                    carrier,
                    gso: facts.segments_max > 1,
                    express_frames: b.bearer.express_frames(),
                    buffers: (facts.send_buffer_bytes, facts.receive_buffer_bytes),
                    queue_target_bytes: b.send_buffer,
                    opened_at_ns: b.opened_at.0,
                }
            })
            .collect()
    }

    /// A node that begins anew has another identity as a rule, but the same name: it is not lost.
    fn lost_rows(&self, now: Instant) -> Vec<LostStatus> {
        let is_back = |name: &str| self.remote_sessions().any(|s| s.peer.name.as_str() == name);
        let lost =
            self.history().lost(now).filter(|(_, past, _)| past.name.is_empty() || !is_back(&past.name));
        let rows = lost.map(|(node, past, change)| LostStatus {
            id: node.to_string(),
            name: past.name.clone(),
            incarnation: change.incarnation.0,
            ago_s: now.since(change.at).0 as f64 / 1e9,
            why: past.last_down().map_or_else(|| "unknown".to_owned(), |down| down.why.to_string()),
        });
        rows.collect()
    }

    pub(crate) fn missing_rows(&self, now: Instant) -> Vec<MissingStatus> {
        let rows = self.missing.iter(now).map(|(interface, lost)| MissingStatus {
            interface: interface.to_owned(),
            address: lost.address.map(|address| address.to_string()),
            why: lost.why.to_string(),
            since_s: now.since(lost.at).0 as f64 / 1e9,
            is_named: lost.is_named,
        });
        rows.collect()
    }

    pub(crate) fn service_rows(&self) -> Vec<BindingStatus> {
        let rows = self.node.table().list();
        rows.map(|(node, port, range, scope)| BindingStatus {
            kind: range.kind,
            lower: range.lower,
            upper: range.upper,
            node: node.to_string(),
            port: port.0,
            scope: if scope == Scope::Node { "node" } else { "cluster" }.to_owned(),
        })
        .collect()
    }

    pub(crate) fn fault_rows(&self) -> Vec<(String, u64)> {
        let mut sums: std::collections::BTreeMap<String, u64> = Default::default();
        for (fault, count) in self.node.faults() {
            *sums.entry(fault_name(*fault)).or_default() += count;
        }
        sums.into_iter().collect()
    }

    pub(crate) fn drop_rows(&self) -> Vec<(String, u64)> {
        // Every one: a reason that is added is missing here.
        let Drops {
            malformed,
            version,
            foreign_cluster,
            unknown_session,
            unknown_link,
            duplicate_packet,
            stale_packet,
            duplicate_message,
            holes,
            skipped_frame,
            violation,
            refused_connection,
            late_message,
            early_message,
            names_diverged,
            names_full,
            bindings_refused,
            repeated_opening,
            opening,
            bearers_refused,
            links_refused,
        } = *self.node.drops();
        [
            ("malformed", malformed),
            ("version", version),
            ("foreign-cluster", foreign_cluster),
            ("unknown-session", unknown_session),
            ("unknown-link", unknown_link),
            ("duplicate-packet", duplicate_packet),
            ("stale-packet", stale_packet),
            ("duplicate-message", duplicate_message),
            ("holes", holes),
            ("skipped-frame", skipped_frame),
            ("violation", violation),
            ("refused-connection", refused_connection),
            ("late-message", late_message),
            ("early-message", early_message),
            ("names-diverged", names_diverged),
            ("names-full", names_full),
            ("bindings-refused", bindings_refused),
            ("repeated-opening", repeated_opening),
            ("opening", opening),
            ("bearers-refused", bearers_refused),
            ("links-refused", links_refused),
            ("slow-subscriber", self.node.subscriptions().overflows()),
        ]
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
    }
}

/// A kind of fault as the name of a counter; what a peer can vary freely is not part of it.
fn fault_name(fault: Fault) -> String {
    match fault {
        Fault::Version(_) => "version".to_owned(),
        Fault::PacketType(_) => "packet-type".to_owned(),
        Fault::CriticalFrame(_) => "critical-frame".to_owned(),
        other => other.to_string().replace(' ', "-"),
    }
}

fn peer_row(s: &Session) -> PeerStatus {
    let m = &s.stats;
    PeerStatus {
        id: s.peer.node.to_string(),
        name: s.peer.name.to_string(),
        incarnation: s.peer.incarnation.0,
        up: s.is_up(),
        messages: (
            m.messages_sent,
            m.messages_confirmed,
            m.messages_received,
            m.messages_failed,
            m.messages_refused,
        ),
        connections: s.connections(),
    }
}

/// The operator's word for a link.
pub(crate) fn status_name(status: LinkStatus) -> &'static str {
    match status {
        LinkStatus::Active => "active",
        LinkStatus::Standby => "standby",
        LinkStatus::Drain => "drain",
        LinkStatus::Down => "down",
    }
}

fn expected_bytes_per_s(link: &Link) -> u64 {
    match link.pace.bytes_per_s() {
        0 => link.window.rate_bytes_per_s(),
        expected => expected,
    }
}

fn link_row(session: &Session, bearer: String, l: &Link) -> LinkReport {
    LinkReport {
        peer: session.peer.name.to_string(),
        node: session.peer.node.to_string(),
        link: l.spec.id.0,
        bearer,
        to: show(&l.spec.to),
        state: l.state.state().name().to_owned(),
        status: status_name(l.status).to_owned(),
        status_of_peer: status_name(l.status_of_peer).to_owned(),
        mtu: l.mtu.current(),
        rtt_ns: (l.rtt.srtt().0, l.rtt.min().0),
        rate_bytes_per_s: expected_bytes_per_s(l),
        window_bytes: (l.window.cwnd(), l.sent.inflight_bytes()),
        packets: (
            l.stats.packets_sent,
            l.stats.packets_received,
            l.stats.packets_lost,
            l.stats.packets_lost_spuriously,
        ),
        bytes: (l.stats.bytes_sent, l.stats.bytes_received),
        troubles: (l.stats.probe_timeouts, l.stats.failures),
    }
}

/// An address of the core's as text.
pub(crate) fn show(address: &MediaAddress) -> String {
    Address::from_bytes(address.as_bytes()).map_or_else(|| format!("{address:?}"), |a| a.to_string())
}
