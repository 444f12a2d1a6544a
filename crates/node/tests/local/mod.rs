//! Nodes on the loopback interface, which meet those whose addresses they are given and no others.

use polyrail::{Config, Node};
use std::time::Duration;

/// No wait of these tests takes so long, unless something was lost.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node that is otherwise as `config` wants it.
pub fn node(config: Config, peers: &[String]) -> Node {
    Node::embed(config.insecure().interfaces(["lo"]).discovery(false).peers(peers)).unwrap()
}

/// The address at which `node` is reached.
pub fn address(node: &Node) -> String {
    let status = node.status();
    let bearer = status.bearers.iter().find(|b| b.name == "udp/lo" && b.address.starts_with("127.")).unwrap();
    bearer.address.clone()
}
