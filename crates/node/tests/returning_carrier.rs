//! Nodes on two hosts with two cables between them, one of which is pulled and plugged in again; its far end is in service
//! a little later than its near end, as one of two ends always is.

#![forbid(unsafe_code)]

mod cabled;

use std::process::Command;
use std::time::Duration;

use cabled::{CABLES, Cabled, Host, PATIENCE, SERVICE};
use polyrail::Node;
use polyrail_sys::clock::monotonic_ns;

/// The cable that is pulled.
const PULLED: [&str; 2] = CABLES[1];
/// A machine that is busy with other things may let links die, but not the session.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A machine that is busy with other things may be late with what makes the far end late.
const TRIES: u32 = 10;

impl Cabled {
    /// Goes on sending messages there and back until `is_so`.
    fn talk_until(&self, is_so: impl Fn(&Cabled) -> bool) {
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
        self.talk_until(Cabled::is_joined);
        self.asked() - before
    }
}

#[test]
fn a_returning_link_does_not_ask_for_the_peers_address_before_the_peer_can_answer() {
    let claim = "a_returning_link_does_not_ask_for_the_peers_address_before_the_peer_can_answer";
    let Some(world) = Cabled::new(claim, TOLERANCE) else { return };
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
    world.talk_until(Cabled::is_joined);
    // A question that is lost is repeated by the system, after a second at the soonest.
    let asked: Vec<u64> =
        (0..TRIES).map(|_| world.pull_and_plug_in()).take_while(|asked| *asked > 1).collect();
    assert!(asked.len() < TRIES as usize, "asked in vain each time: {asked:?}");
}
