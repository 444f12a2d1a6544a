//! A few nodes of the core, with memory and media of the test's own, driven by hand under one clock.
#![allow(dead_code)]

pub mod host;
pub mod memory;
pub mod random;

pub use host::Host;

use polyrail_proto::Config;
use polyrail_proto::address::MediaAddress;
use polyrail_proto::id::{Incarnation, NodeId, PortId};
use polyrail_proto::time::{Duration, Instant};

/// One datagram under way.
#[derive(Clone)]
pub struct Packet {
    pub from: MediaAddress,
    /// `None`: all neighbours.
    pub to: Option<MediaAddress>,
    pub bytes: Vec<u8>,
}

impl Packet {
    /// The medium that it travels on.
    pub fn medium(&self) -> u8 {
        self.from.as_bytes()[1]
    }
}

/// The address of a seat on a medium.
pub fn address(medium: u8, seat: u16) -> MediaAddress {
    MediaAddress::from_bytes(&[1, medium, (seat >> 8) as u8, seat as u8]).expect("it is short")
}

/// The nodes of a [`pair`].
pub const IDS: [NodeId; 2] = [NodeId(5), NodeId(6)];

/// Two nodes that have met by two media, with a port each.
pub fn pair() -> (World, [PortId; 2]) {
    let mut world = World::new();
    for (seat, id) in IDS.into_iter().enumerate() {
        let config = Config::new(id, Incarnation(1));
        let host = Host::new(world.now, config, seat as u16, &[0, 1], || 0);
        world.hosts.push(host);
    }
    let ports = [0, 1].map(|index| world.hosts[index].open_port());
    let met = world.run_while(1_000, |w| {
        !w.hosts.iter().all(|h| h.node.sessions().any(|s| s.announced && s.links.iter().all(|l| l.usable())))
    });
    assert!(met, "the two meet by both media");
    (world, ports)
}

/// Nodes and what is under way between them.
pub struct World {
    pub now: Instant,
    pub hosts: Vec<Host>,
    pub wire: Vec<Packet>,
}

impl World {
    pub fn new() -> World {
        World { now: Instant(1_000_000_000), hosts: Vec::new(), wire: Vec::new() }
    }

    /// Time passes; what is on the wire arrives, unless `pass` takes it away; every node has a turn.
    pub fn step(&mut self, by: Duration, mut pass: impl FnMut(&Packet) -> bool) {
        self.now += by;
        let mut arrived = std::mem::take(&mut self.wire);
        arrived.retain(|packet| pass(packet));
        for run in arrived.chunk_by(goes_on) {
            self.deliver_run(run);
        }
        for host in &mut self.hosts {
            host.turn(self.now, &mut self.wire);
        }
    }

    /// Steps of 100 us for as long as `goes_on`, at most `ms`; whether it ended before.
    pub fn run_while(&mut self, ms: u64, mut goes_on: impl FnMut(&mut World) -> bool) -> bool {
        for _ in 0..ms * 10 {
            if !goes_on(self) {
                return true;
            }
            self.step(Duration::us(100), |_| true);
        }
        false
    }

    pub fn deliver(&mut self, packet: &Packet) {
        self.deliver_run(std::slice::from_ref(packet));
    }

    /// Packets of one length from one sender to one receiver.
    fn deliver_run(&mut self, run: &[Packet]) {
        let first = &run[0];
        let bytes: Vec<u8> = run.iter().flat_map(|packet| &packet.bytes).copied().collect();
        for host in &mut self.hosts {
            let own = address(first.medium(), host.seat);
            let meant = first.to.as_ref().is_none_or(|to| *to == own);
            if meant
                && own != first.from
                && let Some(bearer) = host.bearer_on(first.medium())
            {
                host.handle_packets(self.now, bearer, &first.from, &bytes, first.bytes.len());
            }
        }
    }
}

/// Whether a kernel would hand over the second packet together with the first (GRO).
fn goes_on(first: &Packet, second: &Packet) -> bool {
    (&first.from, &first.to, first.bytes.len()) == (&second.from, &second.to, second.bytes.len())
}
