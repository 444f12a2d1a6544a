//! The service table of a whole cluster: many nodes that bind much, come, go, and lose packets.

#[path = "world/world.rs"]
mod world;

use polyrail_proto::Config;
use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::id::{Incarnation, NodeId, PortId};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::{self, Frame, Frames, PacketType};
use std::collections::{BTreeSet, VecDeque};
use world::random::Random;
use world::{Host, Packet, World, pair};

const KIND: u32 = 100;

/// Bindings of one node, the oldest first.
struct Owner {
    port: PortId,
    bound: VecDeque<ServiceRange>,
    incarnation: u64,
}

struct Cluster {
    world: World,
    owners: Vec<Owner>,
    random: Random,
    /// Records and bytes of BINDINGS frames that were sent, lost ones too.
    records: u64,
    frame_bytes: u64,
    /// Publications and withdrawals, each as often as there are nodes to tell.
    due: u64,
}

fn node_id(seat: usize) -> NodeId {
    NodeId(100 + seat as u64)
}

impl Cluster {
    fn new(nodes: usize) -> Cluster {
        let world = World::new();
        let (owners, random) = (Vec::new(), Random(nodes as u64));
        let mut cluster = Cluster { world, owners, random, records: 0, frame_bytes: 0, due: 0 };
        for seat in 0..nodes {
            let (host, owner) = cluster.host(seat, 1);
            cluster.world.hosts.push(host);
            cluster.owners.push(owner);
        }
        cluster
    }

    fn host(&self, seat: usize, incarnation: u64) -> (Host, Owner) {
        let config = Config::new(node_id(seat), Incarnation(incarnation));
        let mut host = Host::new(self.world.now, config, seat as u16, &[0], || 0);
        let port = host.open_port();
        (host, Owner { port, bound: VecDeque::new(), incarnation })
    }

    /// Binds single instances mostly, and ranges that overlap those of other nodes.
    fn bind(&mut self, seat: usize, count: usize) {
        let owner = &mut self.owners[seat];
        for _ in 0..count {
            let lower = (self.random.next() >> 40) as u32;
            let width = if self.random.one_in(8) { self.random.below(1_000) as u32 } else { 0 };
            let range = ServiceRange::new(KIND + seat as u32 % 3, lower, lower + width);
            self.world.hosts[seat].bind(owner.port, range);
            owner.bound.push_back(range);
        }
        self.due += (count * (self.owners.len() - 1)) as u64;
    }

    fn unbind(&mut self, seat: usize, count: usize) {
        let owner = &mut self.owners[seat];
        for range in owner.bound.drain(..count) {
            let node = &mut self.world.hosts[seat].node;
            node.unbind(owner.port, range, Scope::Cluster).expect("it was bound");
        }
        self.due += (count * (self.owners.len() - 1)) as u64;
    }

    /// A node dies without a word, and another life of it begins with nothing bound.
    fn restart(&mut self, seat: usize) {
        let (host, owner) = self.host(seat, self.owners[seat].incarnation + 1);
        self.world.hosts[seat] = host;
        self.owners[seat] = owner;
        // Everybody else tells the newcomer all that there is.
        let others = self.owners.iter().enumerate().filter(|(of, _)| *of != seat);
        self.due += others.map(|(_, owner)| owner.bound.len() as u64).sum::<u64>();
    }

    /// A step of a millisecond, in which one of `lost` packets is lost (0: none).
    fn step(&mut self, lost: usize) {
        for packet in &self.world.wire {
            let (records, bytes) = records_in(packet);
            self.records += records;
            self.frame_bytes += bytes;
        }
        let random = &mut self.random;
        self.world.step(Duration::ms(1), |_| lost == 0 || !random.one_in(lost));
    }

    /// What should be in every table.
    fn truth(&self) -> Vec<(NodeId, PortId, ServiceRange, Scope)> {
        let of = |(seat, owner): (usize, &Owner)| {
            let (node, port) = (node_id(seat), owner.port);
            owner.bound.iter().map(move |range| (node, port, *range, Scope::Cluster)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.owners.iter().enumerate().flat_map(of).collect();
        all.sort_unstable();
        all
    }

    fn is_settled(&self) -> bool {
        let bound = self.owners.iter().map(|owner| owner.bound.len()).sum();
        self.world.hosts.iter().all(|host| host.node.table().len() == bound)
    }

    /// Lives of `bindings` for each node: bound before the nodes meet and after, replaced bit by bit under loss, with
    /// three nodes that die; then the tables must become one.
    fn live(&mut self, bindings: usize) {
        let nodes = self.owners.len();
        for seat in 0..nodes {
            self.bind(seat, bindings / 2);
        }
        for round in 0..300 {
            for seat in 0..nodes {
                if round < 50 {
                    self.bind(seat, bindings / 100);
                } else if round >= 200 {
                    self.unbind(seat, bindings / 1_000);
                    self.bind(seat, bindings / 1_000);
                }
            }
            if round % 80 == 60 {
                let seat = self.random.below(nodes);
                self.restart(seat);
                self.bind(seat, bindings);
            }
            self.step(50);
        }
        let mut steps = 0;
        while !self.is_settled() {
            self.step(0);
            steps += 1;
            assert!(steps < 20_000, "the tables never agree");
        }
        let truth = self.truth();
        for host in &self.world.hosts {
            assert!(host.node.table().list().eq(truth.iter().copied()), "node {:?}", host.id());
            assert_eq!(host.node.drops().violation, 0);
        }
    }
}

/// Binding records in a packet, and the bytes of their frames.
fn records_in(packet: &Packet) -> (u64, u64) {
    if wire::peek_type(&packet.bytes) != Some(PacketType::Data) {
        return (0, 0);
    }
    let frames = Frames::new(&packet.bytes[wire::HEADER_BYTES..], wire::HEADER_BYTES).flatten();
    let bindings = frames.filter_map(|frame| match frame {
        Frame::Bindings(bindings) => Some(bindings.iter().len()),
        _ => None,
    });
    bindings.fold((0, 0), |(records, bytes), count| {
        (records + count as u64, bytes + wire::Bindings::emitted_bytes(count) as u64)
    })
}

fn tables_of_all_nodes_become_one(nodes: usize, bindings: usize) {
    let mut cluster = Cluster::new(nodes);
    cluster.live(bindings);
    let distinct: BTreeSet<_> = cluster.truth().into_iter().collect();
    let (records, due) = (cluster.records, cluster.due);
    println!(
        "{nodes} nodes, {} ranges: {due} records due, {records} sent in {} bytes",
        distinct.len(),
        cluster.frame_bytes
    );
    // One packet in 50 is lost; a node that dies was told something in vain.
    assert!(records < due + due / 4, "{records} records were sent for {due}");
    assert!(cluster.frame_bytes < due * 60, "{} bytes were sent for {due} records", cluster.frame_bytes);
}

#[test]
fn tables_of_fifty_nodes_become_one() {
    tables_of_all_nodes_become_one(50, 200);
}

#[test]
#[ignore = "takes minutes and gigabytes"]
fn a_hundred_thousand_bindings_become_one_table() {
    tables_of_all_nodes_become_one(50, 2_000);
}

#[test]
fn a_peer_that_lags_behind_all_that_is_remembered_begins_again() {
    let (mut world, ports) = pair();
    world.hosts[0].bind(ports[0], ServiceRange::new(KIND, 0, 0));
    assert!(world.run_while(1_000, |w| w.hosts[1].node.table().is_empty()));
    // Two lots of 30,000, bound and taken back, are more operations than are kept.
    for _ in 0..2 {
        let port = world.hosts[0].open_port();
        for n in 1..30_000 {
            world.hosts[0].bind(port, ServiceRange::new(KIND, n, n));
        }
        let now = world.now;
        world.hosts[0].close_port(now, port);
    }
    world.hosts[0].bind(ports[0], ServiceRange::new(KIND, 7, 7));
    let agreed = world.run_while(10_000, |w| {
        let [here, there] = [0, 1].map(|index| w.hosts[index].node.table().list());
        !here.eq(there)
    });
    assert!(agreed, "{} bindings", world.hosts[1].node.table().len());
    assert_eq!(world.hosts[1].node.table().len(), 2);
}

#[test]
fn names_of_a_node_that_dies_go_within_the_tolerance_and_one_interval() {
    // The worst moment is the one before a keepalive is due: the last ten are between two that are a second apart.
    for idle_ms in [0, 300, 5_000].into_iter().chain(3_990..4_000) {
        let (mut world, ports) = pair();
        (0..500).for_each(|n| world.hosts[1].bind(ports[1], ServiceRange::new(KIND, n, n)));
        assert!(world.run_while(1_000, |w| w.hosts[0].node.table().len() < 500));
        (0..idle_ms).for_each(|_| world.step(Duration::ms(1), |_| true));
        let (died_at, config) = (world.now, world.hosts[0].node.config());
        // What the clock of this test, which moves by a millisecond, adds at both ends.
        let at_most = config.tolerance.0 + config.keepalive_idle.0 + Duration::ms(2).0;
        while !world.hosts[0].node.table().is_empty() {
            world.step(Duration::ms(1), |packet| packet.from.as_bytes()[3] == 0);
            let since = world.now.since(died_at);
            assert!(since.0 <= at_most, "after {idle_ms} ms of rest: {since:?}");
            let known = world.hosts[0].node.table().len();
            assert!(known == 500 || known == 0, "all go at once");
        }
    }
}
