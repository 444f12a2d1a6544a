//! Nodes on two hosts with two cables between them, one of which carries express frames but no datagrams any more.

#![forbid(unsafe_code)]

mod cabled;

use std::time::Duration;

use cabled::{CABLES, Cabled, Host, PATIENCE, SERVICE};
use polyrail::{Node, NodeEvent, Port};
use polyrail_sys::clock::monotonic_ns;

/// Two hosts, two cables, a node and a port on each; `None` where there are no name spaces or no packet sockets.
struct World {
    hosts: [Host; 2],
    nodes: [Node; 2],
    ports: [Port; 2],
    asked: u64,
}

impl World {
    fn new(claim: &str) -> Option<World> {
        let Cabled { hosts, nodes, ports } = Cabled::new(claim, std::time::Duration::from_secs(5))?;
        if nodes[0].status().bearers.iter().any(|bearer| bearer.express_frames.is_none()) {
            eprintln!("SKIPPED {claim}: no packet sockets");
            return None;
        }
        Some(World { hosts, nodes, ports, asked: 0 })
    }

    /// Asks and is answered, by a message of so many bytes each: the next that comes is the one that was sent last.
    fn ask(&mut self, bytes: usize) {
        let mut question = self.asked.to_le_bytes().to_vec();
        question.resize(bytes.max(8), 7);
        self.asked += 1;
        self.ports[0].send(SERVICE, &question).unwrap();
        let heard = self.ports[1].recv_timeout(PATIENCE).unwrap().expect("the question");
        assert_eq!(heard.bytes(), question);
        self.ports[1].send(heard.from(), heard.bytes()).unwrap();
        drop(heard);
        let answer = self.ports[0].recv_timeout(PATIENCE).unwrap().expect("the answer");
        assert_eq!(answer.bytes(), question);
    }

    /// Goes on asking until `is_so`.
    fn ask_until(&mut self, mut is_so: impl FnMut(&mut World) -> bool) {
        let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
        while !is_so(self) {
            assert!(monotonic_ns() < until, "it is never so: {:#?}", self.nodes[0].status().links);
            // Small ones, which may be frames, and every now and then a train.
            self.ask(if self.asked % 100 == 99 { 20_000 } else { 8 });
        }
    }

    /// Frames that the first node has sent and received by a cable.
    fn frames(&self, cable: usize) -> u64 {
        let name = format!("udp/{}", CABLES[cable][0]);
        let bearers = self.nodes[0].status().bearers;
        let frames = bearers.into_iter().find(|bearer| bearer.name == name).and_then(|b| b.express_frames);
        frames.map_or(0, |(sent, received)| sent + received)
    }

    /// Whether the first node's link by a cable is dead, or was since last asked.
    fn has_died(&self, cable: usize) -> bool {
        let news = self.nodes[0].events();
        let gone = |event: &NodeEvent| matches!(event, NodeEvent::PeerDown { .. });
        assert!(!news.iter().any(gone), "the session ends: {news:#?}");
        let name = format!("udp/{}", CABLES[cable][0]);
        let links = self.nodes[0].status().links;
        let Some(link) = links.iter().find(|link| link.bearer == name) else { return false };
        let died = news.iter().any(|event| match event {
            NodeEvent::Link { link: number, to, .. } => {
                *number == link.link && *to == polyrail::LinkState::Down
            }
            _ => false,
        });
        died || ["down", "damped"].contains(&link.state.as_str())
    }

    /// Drops every datagram that comes by a cable to one side, and no frame.
    fn drop_datagrams(&self, cable: usize, side: usize) {
        let device = CABLES[cable][side];
        let chain = format!(
            "add chain netdev holes some {{ type filter hook ingress device {device} priority 0 ; }}"
        );
        for change in ["add table netdev holes", &chain, "add rule netdev holes some ip protocol udp drop"] {
            self.hosts[side].command("nft", change);
        }
    }
}

#[test]
fn a_link_that_carries_frames_only_dies_and_loses_nothing() {
    for side in [1, 0] {
        // A new one each time, whose links have not failed yet.
        let claim = "a_link_that_carries_frames_only_dies_and_loses_nothing";
        let Some(mut world) = World::new(claim) else { return };
        // The hole is where the frames are.
        let mut busy = 0;
        world.ask_until(|world| {
            let frames = [0, 1].map(|cable| world.frames(cable));
            busy = usize::from(frames[1] > frames[0]);
            frames[busy] > 500
        });
        world.has_died(busy);
        world.drop_datagrams(busy, side);
        world.ask_until(|world| world.has_died(busy));
        (0..1_000).for_each(|_| world.ask(8));
        world.has_died(busy);
    }
}

#[test]
fn a_session_does_not_live_on_frames_alone() {
    let Some(mut world) = World::new("a_session_does_not_live_on_frames_alone") else { return };
    world.ask_until(|world| world.frames(0) + world.frames(1) > 500);
    (0..2).for_each(|cable| world.drop_datagrams(cable, 1));
    let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
    // Both sides go on talking, each by itself, so that frames keep coming as long as they are sent.
    while ![0, 1].iter().any(|side: &usize| {
        world.nodes[*side].events().iter().any(|event| matches!(event, NodeEvent::PeerDown { .. }))
    }) {
        assert!(monotonic_ns() < until, "frames keep it alive: {:#?}", world.nodes[0].status().links);
        let [near, far] = &world.ports;
        let _ = near.try_send(SERVICE, b"question");
        if let Ok(Some(heard)) = far.recv_timeout(Duration::from_millis(1)) {
            let _ = far.try_send(heard.from(), b"answer");
        }
        let _ = near.try_recv();
    }
}
