//! What the checks look at: this machine, and a node as it answers at its control socket.

use crate::control::{self, Question};
use crate::failure::{Exit, Failure};
use polyrail::machine::{Interface, Machine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The machine.
    pub machine: Machine,
    /// The node, if one runs.
    pub node: Option<NodePicture>,
    /// For addresses of peers, the interface by which the system itself would send there.
    pub routes: BTreeMap<IpAddr, String>,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct NodePicture {
    /// Its name.
    pub name: String,
    /// Its bearers.
    pub bearers: Vec<Bearer>,
    /// Interfaces that had a bearer, or should have one, and have none.
    pub missing: Vec<Missing>,
    /// Nodes that were lost of late.
    pub lost: Vec<Lost>,
    /// Its peers.
    pub peers: Vec<Peer>,
    /// Their links.
    pub links: Vec<Link>,
    /// Drops by reason, since the node began.
    pub drops: BTreeMap<String, u64>,
}

/// A bearer of the node on an interface: of shared memory there is nothing that an operator could mend.
#[derive(Clone, Debug, Default)]
pub struct Bearer {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// The number of that interface when it was opened.
    pub interface_index: Option<u32>,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Largest datagram, in bytes.
    pub mtu_bytes: u64,
    /// Whether it can send express frames.
    pub express_frames: bool,
    /// Socket buffers, in bytes as the system counts: for receiving, for sending.
    pub buffer_bytes: (u32, u32),
}

/// An interface without a bearer.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    /// Its name.
    pub interface: String,
    /// The address that the bearer had.
    pub address: Option<SocketAddr>,
    /// Why there is none.
    pub why: String,
    /// Since when, in seconds.
    pub ago_s: f64,
    /// The settings name it in full.
    pub named: bool,
}

/// A node that was lost.
#[derive(Clone, Debug, Default)]
pub struct Lost {
    /// Its name.
    pub name: String,
    /// When, in seconds before now.
    pub ago_s: f64,
    /// What took its last link away.
    pub why: String,
}

/// A peer of the node.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Whether a link carries messages.
    pub up: bool,
    /// How long its session has lasted, in seconds.
    pub uptime_s: f64,
    /// Where its bearers are reached.
    pub bearers: Vec<SocketAddr>,
}

/// A link of the node.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The peer's name.
    pub peer: String,
    /// Our bearer's name.
    pub bearer: String,
    /// Where it goes to.
    pub to: Option<SocketAddr>,
    /// Its state.
    pub state: String,
    /// Its state before it was watched; empty if it was not there.
    pub state_before: String,
    /// How old it is, in seconds.
    pub age_s: f64,
    /// Largest packet that passes, in bytes, and whether a larger one is being looked for.
    pub mtu_bytes: u64,
    /// Whether that is being looked for now.
    pub mtu_search: bool,
    /// Largest packet that both bearers take, in bytes.
    pub mtu_bearers_bytes: u64,
    /// Packets sent, and those of them that are lost.
    pub sent: u64,
    /// Packets lost, but for those that came after all.
    pub lost: u64,
    /// Packets sent while it was watched.
    pub sent_meanwhile: u64,
    /// Packets received while it was watched.
    pub received_meanwhile: u64,
    /// The link that delivers what this one no longer does once it is left out.
    pub shares_with: Option<String>,
    /// Changes of its state.
    pub changes: Vec<Change>,
}

/// A change of a link's state.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The state that it came to.
    pub to: String,
    /// What brought it about.
    pub why: String,
    /// When, in seconds before now.
    pub ago_s: f64,
}

impl Picture {
    /// Adds to both what only the system knows: the ways to the peers.
    pub fn new(machine: Machine, node: Option<NodePicture>) -> Picture {
        let links = node.iter().flat_map(|node| &node.links);
        let to = links.filter_map(|link| Some(link.to?.ip()));
        let routes = to.filter_map(|ip| Some((ip, machine.route_to(ip)?.name.clone()))).collect();
        Picture { machine, node, routes }
    }

    /// Whether none of the node's interfaces is seen here: it runs in another network namespace.
    pub fn is_elsewhere(&self) -> bool {
        let is_here = |bearer: &Bearer| {
            let Some(interface) = self.machine.interface(&bearer.interface) else { return false };
            bearer.address.is_none_or(|own| interface.addresses.iter().any(|(ip, _)| *ip == own.ip()))
        };
        // Loopback is the same everywhere.
        let tells = |bearer: &&Bearer| bearer.address.is_none_or(|own| !own.ip().is_loopback());
        let mut telling = self.node.iter().flat_map(|node| &node.bearers).filter(tells).peekable();
        telling.peek().is_some() && !telling.any(is_here)
    }

    /// The interfaces that the node uses, or without one, would use.
    pub fn used(&self) -> Vec<&Interface> {
        match &self.node {
            Some(_) if self.is_elsewhere() => Vec::new(),
            Some(node) => {
                let is_used = |i: &&Interface| node.bearers.iter().any(|bearer| bearer.interface == i.name);
                self.machine.interfaces.iter().filter(is_used).collect()
            }
            None => self.machine.interfaces.iter().filter(|interface| interface.chosen.is_some()).collect(),
        }
    }

    /// The links of the node.
    pub fn links(&self) -> &[Link] {
        self.node.as_ref().map_or(&[], |node| &node.links)
    }
}

impl NodePicture {
    /// Asks a node twice, so long after each other; of one peer only, if it is named.
    pub fn take(socket: &Path, peer: Option<&str>, watch: Duration) -> Result<NodePicture, Failure> {
        let ask = |command: &str, name: Option<&str>| {
            control::ask(Some(socket), &Question { command, name, only: None })
        };
        let rows = |command: &str| Ok::<_, Failure>(control::rows_of(&ask(command, None)?)?.to_vec());
        let nodes = rows("node list")?;
        let own = nodes.iter().find(|row| row["state"] == "self").map(|row| text(row, "name"));
        let is_meant = |row: &&Value| peer.is_none_or(|peer| row["name"] == peer || row["node"] == peer);
        let others = nodes.iter().filter(|row| row["state"] != "self").filter(is_meant);
        let (lost, meant): (Vec<&Value>, Vec<&Value>) = others.partition(|row| row["state"] == "lost");
        if let (Some(peer), true) = (peer, meant.is_empty() && lost.is_empty()) {
            return Err(unknown(peer, &nodes));
        }
        let before = rows("link list")?;
        std::thread::sleep(watch);
        let links = rows("link list")?;
        let links = links.iter().filter(|row| meant.iter().any(|node| node["name"] == row["peer"]));
        // A link may go between two questions; then there is nothing to say of it.
        let links = links.filter_map(|row| {
            let shown = ask("link show", row["name"].as_str()).ok()?;
            let earlier = before.iter().find(|earlier| earlier["name"] == row["name"]);
            Some(link(row, earlier, &shown["show"]))
        });
        let links = links.collect();
        let peers = meant.iter().filter_map(|row| {
            let shown = ask("node show", row["node"].as_str()).ok()?;
            Some(peer_of(row, &shown["show"]))
        });
        let bearers = rows("bearer list")?;
        let (closed, open): (Vec<&Value>, Vec<&Value>) =
            bearers.iter().filter(|row| row["medium"] == "udp").partition(|row| row["state"] == "closed");
        let drops = ask("stats", None)?["show"]["drops"].clone();
        Ok(NodePicture {
            name: own.unwrap_or_default(),
            bearers: open.into_iter().map(bearer).collect(),
            missing: closed.into_iter().map(missing).collect(),
            lost: lost.into_iter().map(lost_node).collect(),
            peers: peers.collect(),
            links,
            drops: serde_json::from_value(drops).unwrap_or_default(),
        })
    }

    /// The bearer of a link.
    pub fn bearer_of(&self, link: &Link) -> Option<&Bearer> {
        self.bearers.iter().find(|bearer| bearer.name == link.bearer)
    }
}

fn unknown(peer: &str, nodes: &[Value]) -> Failure {
    let known = nodes.iter().filter(|row| row["state"] != "self").map(|row| text(row, "name"));
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none".to_owned() } else { known };
    Failure::new(Exit::NotFound, format!("no peer {peer:?}; there are: {known}"))
}

fn text(row: &Value, key: &str) -> String {
    row[key].as_str().unwrap_or_default().to_owned()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_default()
}

fn address(text: &Value) -> Option<SocketAddr> {
    text.as_str()?.parse().ok()
}

fn bearer(row: &Value) -> Bearer {
    let bytes = |key| u32::try_from(number(row, key)).unwrap_or(u32::MAX);
    Bearer {
        name: text(row, "bearer"),
        interface: text(row, "interface"),
        interface_index: row["interface_index"].as_u64().and_then(|index| u32::try_from(index).ok()),
        address: address(&row["address"]),
        carrier: row["state"] == "up",
        mtu_bytes: number(row, "mtu_bytes"),
        express_frames: row["express_frames"] == true,
        buffer_bytes: (bytes("receive_buffer_bytes"), bytes("send_buffer_bytes")),
    }
}

fn missing(row: &Value) -> Missing {
    Missing {
        interface: text(row, "interface"),
        address: address(&row["address"]),
        why: text(row, "why"),
        ago_s: row["closed_ago_s"].as_f64().unwrap_or_default(),
        named: row["named"] == true,
    }
}

fn lost_node(row: &Value) -> Lost {
    let ago_s = row["lost_ago_s"].as_f64().unwrap_or_default();
    Lost { name: text(row, "name"), ago_s, why: text(row, "why") }
}

fn peer_of(row: &Value, shown: &Value) -> Peer {
    let uptime_s = shown["session"]["uptime_s"].as_f64().unwrap_or_default();
    let bearers = shown["node"]["bearers"].as_array().into_iter().flatten().filter_map(address).collect();
    Peer { name: text(row, "name"), up: row["state"] == "up", uptime_s, bearers }
}

fn link(row: &Value, earlier: Option<&Value>, shown: &Value) -> Link {
    let (path, changes) = (&shown["path"], shown["changes"].as_array());
    let meanwhile = |key| {
        let before = earlier.map_or(0, |earlier| number(earlier, key));
        number(row, key).saturating_sub(before)
    };
    let change = |change: &Value| Change {
        to: text(change, "to"),
        why: text(change, "why"),
        ago_s: change["ago_s"].as_f64().unwrap_or_default(),
    };
    Link {
        name: text(row, "name"),
        peer: text(row, "peer"),
        bearer: text(row, "bearer"),
        to: address(&row["to"]),
        state: text(row, "state"),
        state_before: earlier.map_or(String::new(), |earlier| text(earlier, "state")),
        age_s: shown["link"]["age_s"].as_f64().unwrap_or_default(),
        mtu_bytes: number(path, "mtu_bytes"),
        mtu_search: path["mtu_search"] == true,
        mtu_bearers_bytes: number(path, "mtu_bearers_bytes"),
        sent: number(row, "packets_sent"),
        lost: number(row, "packets_lost").saturating_sub(number(row, "packets_lost_spuriously")),
        sent_meanwhile: meanwhile("packets_sent"),
        received_meanwhile: meanwhile("packets_received"),
        shares_with: path["shares_bottleneck_with"].as_str().map(str::to_owned),
        changes: changes.into_iter().flatten().map(change).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;
    use serde_json::json;

    #[test]
    fn a_link_is_read_from_its_rows_and_what_is_shown_of_it() {
        let row = |sent: u64| {
            json!({ "name": "b/1", "peer": "b", "bearer": "udp/l1", "to": "10.0.0.2:7430", "state": "down",
                "packets_sent": sent, "packets_received": 5, "packets_lost": 9, "packets_lost_spuriously": 2 })
        };
        let shown = json!({ "link": { "age_s": 6.5 },
            "path": { "mtu_bytes": 1300, "mtu_search": true, "mtu_bearers_bytes": 1472,
                "shares_bottleneck_with": "b/0" },
            "changes": [{ "to": "down", "why": "silence", "ago_s": 1.5 }] });
        let read = link(&row(30), Some(&row(20)), &shown);
        assert_eq!((read.sent, read.lost, read.sent_meanwhile, read.received_meanwhile), (30, 7, 10, 0));
        assert_eq!(
            (read.mtu_bytes, read.mtu_search, read.mtu_bearers_bytes, read.age_s),
            (1300, true, 1472, 6.5)
        );
        assert_eq!(read.shares_with.as_deref(), Some("b/0"));
        assert_eq!((read.changes[0].why.as_str(), read.to), ("silence", "10.0.0.2:7430".parse().ok()));
        // What a node of another version leaves out is nothing, and no panic.
        let empty = link(&json!({}), None, &json!({}));
        assert_eq!((empty.name.as_str(), empty.to, empty.changes.len()), ("", None, 0));
    }

    #[test]
    fn a_node_whose_addresses_are_not_here_runs_elsewhere() {
        let mut picture = planted::sound();
        assert!(!picture.is_elsewhere());
        assert_eq!(picture.used().len(), 2);
        picture.machine.interfaces[1].addresses.clear();
        assert!(!picture.is_elsewhere(), "one of two is here");
        picture.machine.interfaces[0].addresses.clear();
        assert!(picture.is_elsewhere() && picture.used().is_empty());
        let loopback = "127.0.0.1:7430".parse().ok();
        picture.node.as_mut().unwrap().bearers[1].address = loopback;
        assert!(picture.is_elsewhere(), "loopback is everywhere");
    }
}
