//! Nodes on two hosts with two cables between them, and a port on each node.

#[path = "../../../bearer/tests/conformance/hosts.rs"]
mod hosts;

use std::time::Duration;

pub use hosts::Host;
use polyrail::{Config, Node, Port, Scope, ServiceAddress};

/// What the second host's port is bound to.
pub const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
/// No wait of these tests takes so long, unless something was lost.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The cables by the names of their ends, the first host's first.
pub const CABLES: [[&str; 2]; 2] = [["va0", "vb0"], ["va1", "vb1"]];

/// The first host, node and port has what it needs to reach the second.
pub struct Cabled {
    pub hosts: [Host; 2],
    pub nodes: [Node; 2],
    pub ports: [Port; 2],
}

impl Cabled {
    /// Nodes that give each other up after a silence of `tolerance`; `None`, and a word about it, where there are no name
    /// spaces.
    pub fn new(claim: &str, tolerance: Duration) -> Option<Cabled> {
        Cabled::with(claim, Config::new().tolerance(tolerance))
    }

    /// Nodes of these settings.
    pub fn with(claim: &str, settings: Config) -> Option<Cabled> {
        let hosts: [Host; 2] = Host::some(claim)?;
        for (number, [near, far]) in CABLES.iter().enumerate() {
            hosts[0].link(&hosts[1], near, far, 1_500);
            hosts[0].ip(&format!("addr add dev {near} 10.0.{number}.1/24"));
            hosts[1].ip(&format!("addr add dev {far} 10.0.{number}.2/24"));
        }
        let nodes = [0, 1].map(|side: usize| {
            let config = settings.clone().insecure().interfaces(CABLES.map(|cable| cable[side]));
            hosts[side].run(|| Node::embed(config.interfaces_excluded(Vec::<String>::new())).unwrap())
        });
        let ports = nodes.each_ref().map(|node| node.port().unwrap());
        ports[1].bind(SERVICE, Scope::Cluster).unwrap();
        ports[0].wait_for(SERVICE, Some(PATIENCE)).unwrap();
        Some(Cabled { hosts, nodes, ports })
    }
}
