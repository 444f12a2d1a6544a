//! Nodes on two hosts with two cables between them, one of which is pulled and plugged in again; its far end is in service
//! a little later than its near end, as one of two ends always is.

#![forbid(unsafe_code)]

#[path = "../../bearer/tests/conformance/hosts.rs"]
mod hosts;

use std::process::Command;
use std::time::Duration;

use hosts::Host;
use polyrail::{Config, Node, Port, Scope, ServiceAddress};
use polyrail_sys::clock::monotonic_ns;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
/// No wait of these tests takes so long, unless something was lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// A machine that is busy with other things may let links die, but not the session.
const TOLERANCE: Duration = Duration::from_secs(5);
const CABLES: [[&str; 2]; 2] = [["va0", "vb0"], ["va1", "vb1"]];
/// The cable that is pulled.
const PULLED: [&str; 2] = CABLES[1];
/// A machine that is busy with other things may be late with what makes the far end late.
const TRIES: u32 = 10;

/// Two hosts, two cables, a node and a port on each; `None` where there are no name spaces.
struct World {
    hosts: [Host; 2],
    nodes: [Node; 2],
    ports: [Port; 2],
}

impl World {
    fn new(claim: &str) -> Option<World> {
        let hosts: [Host; 2] = Host::some(claim)?;
        for (number, [near, far]) in CABLES.iter().enumerate() {
            hosts[0].link(&hosts[1], near, far, 1_500);
            hosts[0].ip(&format!("addr add dev {near} 10.0.{number}.1/24"));
            hosts[1].ip(&format!("addr add dev {far} 10.0.{number}.2/24"));
        }
        let nodes = [0, 1].map(|side: usize| {
            let config =
                Config::new().insecure().tolerance(TOLERANCE).interfaces(CABLES.map(|cable| cable[side]));
            hosts[side].run(|| Node::embed(config.interfaces_excluded(Vec::<String>::new())).unwrap())
        });
        let ports = nodes.each_ref().map(|node| node.port().unwrap());
        ports[1].bind(SERVICE, Scope::Cluster).unwrap();
        ports[0].wait_for(SERVICE, Some(PATIENCE)).unwrap();
        Some(World { hosts, nodes, ports })
    }

    /// Goes on sending messages there and back until `is_so`.
    fn talk_until(&self, is_so: impl Fn(&World) -> bool) {
        let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
        while !is_so(self) {
            assert!(monotonic_ns() < until, "it is never so: {:#?}", self.nodes.each_ref().map(Node::status));
            self.ports[0].send(SERVICE, b"question").unwrap();
            let heard = self.ports[1].recv_timeout(PATIENCE).unwrap().expect("the question");
            self.ports[1].send(heard.from(), b"answer").unwrap();
            self.ports[0].recv_timeout(PATIENCE).unwrap().expect("the answer");
        }
    }

    /// Whether a node has a carrier by the pulled cable.
    fn has_carrier(&self, side: usize) -> bool {
        let name = format!("udp/{}", PULLED[side]);
        self.nodes[side].status().bearers.iter().any(|bearer| bearer.name == name && bearer.carrier)
    }

    /// Whether both nodes have heard the answer of the other by the pulled cable.
    fn is_joined(&self) -> bool {
        [0, 1].iter().all(|&side: &usize| {
            let name = format!("udp/{}", PULLED[side]);
            let links = self.nodes[side].status().links;
            let joined = |state: &str| ["up", "probation", "damped"].contains(&state);
            links.iter().any(|link| link.bearer == name && joined(&link.state))
        })
    }

    /// How often the near host has asked by the pulled cable who has the far host's address.
    fn asked(&self) -> u64 {
        let list =
            || Command::new("nft").args("list chain netdev neighbours asked".split(' ')).output().unwrap();
        let text = String::from_utf8(self.hosts[1].run(list).stdout).unwrap();
        let count = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count: {text}"))
    }

    /// Pulls the cable and plugs it in again. What the far end answers to the question for its address, and what it asks,
    /// is lost until the near node has its carrier, as if the far host put its end into service only then. How often
    /// the near host had to ask until both nodes had heard each other.
    fn pull_and_plug_in(&self) -> u64 {
        let near = &self.hosts[0];
        near.ip(&format!("link set {} down", PULLED[0]));
        self.talk_until(|world| !world.is_joined() && ![0, 1].iter().any(|&side| world.has_carrier(side)));
        near.command("nft", "add rule netdev neighbours late ether type arp drop");
        let before = self.asked();
        near.ip(&format!("link set {} up", PULLED[0]));
        self.talk_until(|world| world.has_carrier(0));
        near.command("nft", "flush chain netdev neighbours late");
        self.talk_until(World::is_joined);
        self.asked() - before
    }
}

#[test]
fn a_returning_link_does_not_ask_for_the_peers_address_before_the_peer_can_answer() {
    let claim = "a_returning_link_does_not_ask_for_the_peers_address_before_the_peer_can_answer";
    let Some(world) = World::new(claim) else { return };
    for (host, name, device, rule) in [
        (0, "late", PULLED[0], None),
        (1, "asked", PULLED[1], Some("ether type arp arp operation request counter")),
    ] {
        let host: &Host = &world.hosts[host];
        host.command("nft", "add table netdev neighbours");
        let hook = format!("{{ type filter hook ingress device {device} priority 0 ; }}");
        host.command("nft", &format!("add chain netdev neighbours {name} {hook}"));
        if let Some(rule) = rule {
            host.command("nft", &format!("add rule netdev neighbours {name} {rule}"));
        }
    }
    world.talk_until(World::is_joined);
    // A question that is lost is repeated by the system, after a second at the soonest.
    let asked: Vec<u64> =
        (0..TRIES).map(|_| world.pull_and_plug_in()).take_while(|asked| *asked > 1).collect();
    assert!(asked.len() < TRIES as usize, "asked in vain each time: {asked:?}");
}
