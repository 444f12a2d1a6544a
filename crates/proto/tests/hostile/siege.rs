//! A victim, an honest peer whose session must not suffer, and one attacker after the other.

use super::craft;
use super::live::Live;
use super::mutate;
use super::records::Records;
use crate::world::host::Arrival;
use crate::world::random::Random;
use crate::world::{Host, Packet, World, address};
use polyrail_proto::address::{MediaAddress, ServiceAddress, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId, PortAddress, PortId};
use polyrail_proto::service::BindError;
use polyrail_proto::time::Duration;
use polyrail_proto::wire::describe;
use polyrail_proto::{Config, Destination, Event};
use std::collections::VecDeque;

/// Places in `World::hosts`.
pub const VICTIM: usize = 0;
pub const HONEST: usize = 1;
const ATTACKER: usize = 2;

/// Who the hosts say they are.
const VICTIM_ID: NodeId = NodeId(0x5000);
const HONEST_ID: NodeId = NodeId(0x6000);
const NEWCOMER_ID: NodeId = NodeId(0x9999_9999);
/// The attackers come as the same two again and again: now the victim opens the session, now the attacker does.
const LOWER_ID: u64 = 0x4000;
const HIGHER_ID: u64 = 0x7000;

const MEDIA: [u8; 2] = [0, 1];
const SERVICE: ServiceAddress = ServiceAddress::new(1_000, 7);
/// Sizes of the messages that make the traffic: whole, in fragments, and as transfers.
const SIZES: [usize; 9] = [0, 1, 100, 1_400, 5_000, 60_000, 65_536, 65_537, 300_000];

/// Packets that are remembered for a report.
const TRAIL: usize = 24;

/// How far the attacker's session with the victim is when the attack begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// None: the victim has never heard of it.
    Stranger,
    /// The victim has answered, but hears nothing that would make the session's link usable.
    HalfOpen,
    /// Both sides have said who they are and what they offer.
    Established,
    /// Messages of all sizes under way both ways.
    Busy,
    /// As before, and ports close while their messages are under way.
    Closing,
}

pub const STAGES: [Stage; 6] =
    [Stage::Stranger, Stage::HalfOpen, Stage::Established, Stage::Busy, Stage::Busy, Stage::Closing];

pub struct Siege {
    pub world: World,
    pub random: Random,
    pub stage: Stage,
    /// Packets that were damaged or made up, and batches.
    pub hostile_packets: u64,
    records: Records,
    victim_port: PortId,
    honest_port: PortId,
    target_port: PortId,
    attacker_ports: Vec<PortId>,
    lives: u64,
    /// The last packets of the attack, newest last.
    trail: VecDeque<Packet>,
    /// Messages of the honest pair: sent and received, each way.
    honest_sent: [u64; 2],
    honest_got: [u64; 2],
}

impl Siege {
    pub fn new(seed: u64, meter: fn() -> usize) -> Siege {
        let mut world = World::new();
        for (node, seat, meter) in [(VICTIM_ID, 0, meter), (HONEST_ID, 1, no_meter as fn() -> usize)] {
            let config = Config { host: node.0, ..Config::new(node, Incarnation(1)) };
            let host = Host::new(world.now, config, seat, &MEDIA, meter);
            world.hosts.push(host);
        }
        let victim_port = world.hosts[VICTIM].open_port();
        let honest_port = world.hosts[HONEST].open_port();
        let mut siege = Siege {
            world,
            random: Random(seed),
            stage: Stage::Stranger,
            hostile_packets: 0,
            records: Records::default(),
            victim_port,
            honest_port,
            target_port: PortId(0),
            attacker_ports: Vec::new(),
            lives: 0,
            trail: VecDeque::new(),
            honest_sent: [0; 2],
            honest_got: [0; 2],
        };
        siege.open_target();
        let met = siege
            .world
            .run_while(2_000, |w| w.hosts[VICTIM].session_with(HONEST_ID).is_none_or(|s| !s.announced));
        assert!(met, "the honest pair meets");
        siege.world.hosts.iter_mut().for_each(|h| h.news.clear());
        siege
    }

    fn open_target(&mut self) {
        self.target_port = self.world.hosts[VICTIM].open_port();
        match self.world.hosts[VICTIM].try_bind(self.target_port, ServiceRange::from(SERVICE)) {
            Ok(()) => {}
            // An attacker may want the service for himself alone for as long as he is there, and no longer.
            Err(BindError::Taken { by }) => assert!(by != VICTIM_ID && by != HONEST_ID),
            Err(error) => panic!("a service for programs: {error}"),
        }
        self.world.hosts[VICTIM].listen(self.target_port, 3);
    }

    /// A new attacker comes, does its worst in `batches` batches of packets, and goes.
    pub fn episode(&mut self, stage: Stage, batches: usize, mut check: impl FnMut(&Siege)) {
        self.stage = stage;
        self.enter();
        for _ in 0..batches {
            self.batch();
            self.expect_honest_progress();
            check(self);
        }
        self.leave();
    }

    // ----- the attacker's life -------------------------------------------------------------------------------

    fn enter(&mut self) {
        self.lives += 1;
        let node = self.random.pick(&[LOWER_ID, HIGHER_ID, HIGHER_ID, unused_id(self.lives)]);
        let config = Config {
            host: 0xA77AC,
            tolerance: Duration::ms(100),
            // Text in what is damaged, so that it stops being text.
            name: "an uninvited guest, ἄκλητος".parse().expect("it fits"),
            ..Config::new(NodeId(node), Incarnation(self.lives))
        };
        let media = if self.random.one_in(3) { &MEDIA[..1] } else { &MEDIA };
        let mut host = Host::new(self.world.now, config, 2, media, no_meter);
        self.attacker_ports = (0..3).map(|_| host.open_port()).collect();
        host.bind(self.attacker_ports[0], ServiceRange::new(2_000, 0, 9));
        self.world.hosts.push(host);
        match self.stage {
            Stage::Stranger => {}
            Stage::HalfOpen => self.quiet_steps(60, false),
            _ => {
                let id = NodeId(node);
                let up = |w: &World| {
                    let up = |h: &Host, n| h.session_with(n).is_some_and(|s| s.announced && s.is_up());
                    up(&w.hosts[VICTIM], id) && up(&w.hosts[ATTACKER], w.hosts[VICTIM].id())
                };
                for _ in 0..5_000 {
                    self.quiet_steps(5, true);
                    if up(&self.world) {
                        break;
                    }
                }
                assert!(up(&self.world), "a new peer can join: life {} as {id}", self.lives);
            }
        }
        if matches!(self.stage, Stage::Busy | Stage::Closing) {
            (0..6).for_each(|_| self.traffic());
            self.quiet_steps(3, true);
        }
    }

    fn leave(&mut self) {
        if self.random.one_in(4) {
            let now = self.world.now;
            self.world.hosts[ATTACKER].core(|node, memory| node.leave(now, memory));
            self.quiet_steps(3, true);
        }
        self.world.hosts.truncate(ATTACKER);
        if self.random.one_in(3) {
            let now = self.world.now;
            self.world.hosts[VICTIM].close_port(now, self.target_port);
            self.open_target();
        }
    }

    /// Everything that the attackers left behind comes to its end: who asked for patience has it for a minute.
    pub fn silence(&mut self) {
        for ms in 0..70_000 {
            self.world.step(Duration::ms(1), |_| true);
            if ms % 16 == 0 {
                self.honest_traffic();
            }
            self.read_all();
            if ms > 7_000 && self.world.hosts[VICTIM].node.sessions().count() == 1 {
                break;
            }
        }
        let sessions = self.world.hosts[VICTIM].node.sessions().count();
        assert_eq!(sessions, 1, "of all sessions only the honest one is left");
        self.expect_honest_progress();
        let victim = &self.world.hosts[VICTIM];
        let (kept, open) = (victim.memory.in_use().1, victim.node.unconfirmed(self.victim_port));
        assert!(kept <= open, "{kept} messages are kept, {open} have not come to their end");
    }

    // ----- traffic -------------------------------------------------------------------------------------------

    /// Steps of 200 us in which nothing hostile is sent; packets are recorded all the same.
    fn quiet_steps(&mut self, steps: usize, both_ways: bool) {
        for _ in 0..steps {
            let (records, random) = (&mut self.records, &mut self.random);
            self.world.step(Duration::us(200), |packet| {
                records.note(random, packet, is_honest(packet));
                both_ways || !is_between(packet, VICTIM as u16, ATTACKER as u16)
            });
            self.read_all();
        }
    }

    /// A message each way between the victim and the attacker, if they know each other.
    fn traffic(&mut self) {
        let now = self.world.now;
        let size = self.random.pick(&SIZES);
        let class = self.random.pick(&Class::ALL);
        let (victim, attacker) = (self.world.hosts[VICTIM].id(), self.world.hosts[ATTACKER].id());
        let own = self.random.pick(&self.attacker_ports);
        let waits = |h: &Host, p: PortId| h.node.unconfirmed(p) > 40;
        if !waits(&self.world.hosts[VICTIM], self.target_port) {
            let to = Destination::Port(PortAddress { node: attacker, port: own });
            self.world.hosts[VICTIM].send(now, self.target_port, to, class, 1, &vec![1; size]);
        }
        if !waits(&self.world.hosts[ATTACKER], own) {
            let port = self.target_port;
            let to = if self.random.one_in(2) {
                Destination::Service(SERVICE)
            } else {
                Destination::Port(PortAddress { node: victim, port })
            };
            self.world.hosts[ATTACKER].send(now, own, to, class, 2, &vec![2; size]);
        }
    }

    /// The next numbered message each way between the victim and its honest peer.
    fn honest_traffic(&mut self) {
        let now = self.world.now;
        let ends = [
            (VICTIM, self.victim_port, HONEST, self.honest_port),
            (HONEST, self.honest_port, VICTIM, self.victim_port),
        ];
        for (way, (from, port, to, to_port)) in ends.into_iter().enumerate() {
            let number = self.honest_sent[way];
            if number - self.honest_got[way] > 64 {
                continue;
            }
            let node = self.world.hosts[to].id();
            let size = [8, 100, 3_000, 100_000][(number % 16 / 5) as usize];
            let to = Destination::Port(PortAddress { node, port: to_port });
            let sent =
                self.world.hosts[from].send(now, port, to, Class::Normal, number, &vec![number as u8; size]);
            assert!(sent, "the honest pair keeps its session");
            self.honest_sent[way] += 1;
        }
    }

    fn read_all(&mut self) {
        for index in 0..self.world.hosts.len() {
            while let Some((arrival, bytes)) = self.world.hosts[index].receive() {
                self.on_arrival(index, &arrival, &bytes);
            }
        }
        for index in [VICTIM, HONEST] {
            for event in self.world.hosts[index].news.drain(..) {
                let honest = |n: NodeId| n == VICTIM_ID || n == HONEST_ID;
                assert!(!matches!(event, Event::PeerDown { node, .. } if honest(node)), "{event:?}");
            }
        }
    }

    fn on_arrival(&mut self, index: usize, arrival: &Arrival, bytes: &[u8]) {
        let way = match index {
            HONEST if arrival.port == self.honest_port && arrival.from.port == self.victim_port => 0,
            VICTIM if arrival.port == self.victim_port && arrival.from.node == HONEST_ID => 1,
            _ => return,
        };
        let number = self.honest_got[way];
        assert_eq!(arrival.tag, Some(number), "honest messages arrive once and in order");
        assert!(bytes.iter().all(|b| *b == number as u8), "and with their bytes");
        self.honest_got[way] += 1;
    }

    /// The honest pair's next messages arrive, whatever goes on beside them.
    fn expect_honest_progress(&mut self) {
        self.honest_traffic();
        let goal = self.honest_sent;
        for _ in 0..20_000 {
            if self.honest_got == goal {
                return;
            }
            self.quiet_steps(1, true);
        }
        panic!("the honest pair is stuck: sent {goal:?}, got {:?}", self.honest_got);
    }

    // ----- the attack ----------------------------------------------------------------------------------------

    /// Some steps during which packets of the attacker are damaged, replaced, repeated and made up.
    fn batch(&mut self) {
        for _ in 0..6 {
            if !matches!(self.stage, Stage::Stranger | Stage::HalfOpen) && self.random.one_in(2) {
                self.traffic();
            }
            if self.stage == Stage::Closing && self.random.one_in(30) {
                let now = self.world.now;
                self.world.hosts[VICTIM].close_port(now, self.target_port);
                self.open_target();
            }
            let passed = self.take_attackers_packets();
            for packet in passed {
                self.attack(packet);
            }
            for _ in 0..self.random.below(12) {
                let bytes = self.invent();
                self.inject(bytes);
            }
            if let Some(replay) = self.records.honest(&mut self.random) {
                self.attack(replay);
            }
            let span = if self.random.one_in(20) { Duration::ms(20) } else { Duration::us(50) };
            let deaf = self.stage == Stage::HalfOpen;
            self.world.step(span, |packet| !deaf || !is_between(packet, VICTIM as u16, ATTACKER as u16));
            // A slow reader now and then, so that memory runs out.
            if !self.random.one_in(3) {
                self.read_all();
            }
        }
    }

    /// What the attacker's own node has on the wire, some of it damaged.
    fn take_attackers_packets(&mut self) -> Vec<Packet> {
        let own = [address(0, 2), address(1, 2)];
        let (mine, others) =
            std::mem::take(&mut self.world.wire).into_iter().partition(|p: &Packet| own.contains(&p.from));
        self.world.wire = others;
        let mut out = Vec::new();
        for packet in Vec::from_iter::<Vec<Packet>>(mine) {
            self.records.note(&mut self.random, &packet, false);
            match self.random.below(8) {
                0..=3 => out.push(packet),
                4 => {
                    out.push(packet.clone());
                    out.push(self.damaged(packet));
                }
                5 => {}
                _ => out.push(self.damaged(packet)),
            }
        }
        out
    }

    /// A damaged copy, for the victim only: made of what the victim said, it could be believed to be the victim by its
    /// honest peer.
    fn damaged(&mut self, packet: Packet) -> Packet {
        self.hostile_packets += 1;
        let live = self.live();
        let other = self.records.any(&mut self.random);
        let to = Some(address(packet.medium(), VICTIM as u16));
        Packet { to, bytes: mutate::mutate(&mut self.random, &packet.bytes, &other, &live), ..packet }
    }

    /// A packet that nobody sent: made up, or of an earlier time.
    fn invent(&mut self) -> Vec<u8> {
        self.hostile_packets += 1;
        let live = self.live();
        match self.random.below(10) {
            0..=3 => craft::data(&mut self.random, &live),
            4 => self.outside(&live),
            5 => self.records.any(&mut self.random),
            6 => {
                let mut replay = self.records.any(&mut self.random);
                mutate::aim(&mut self.random, &mut replay, &live);
                replay
            }
            7 => {
                let made = craft::data(&mut self.random, &live);
                let other = self.records.any(&mut self.random);
                mutate::mutate(&mut self.random, &made, &other, &live)
            }
            _ => {
                let (one, other) = (self.records.any(&mut self.random), self.records.any(&mut self.random));
                mutate::mutate(&mut self.random, &one, &other, &live)
            }
        }
    }

    fn outside(&mut self, live: &Live) -> Vec<u8> {
        match self.records.hello() {
            Some(hello) => craft::outside(&mut self.random, live, &hello, HONEST_ID),
            None => self.records.any(&mut self.random),
        }
    }

    fn live(&self) -> Live {
        let hosts = &self.world.hosts;
        // Not the port of the honest pair: whoever may send to a port may fill what memory it has.
        let theirs = [self.target_port];
        Live::between(&hosts[ATTACKER], &hosts[VICTIM], &theirs, &self.attacker_ports)
    }

    fn inject(&mut self, bytes: Vec<u8>) {
        let medium = self.random.pick(&MEDIA);
        // Mostly from the attacker's place, at times from nowhere.
        let seat = if self.random.one_in(10) { 100 + self.random.below(2_000) as u16 } else { 2 };
        self.attack(Packet { from: address(medium, seat), to: Some(address(medium, 0)), bytes });
    }

    fn attack(&mut self, packet: Packet) {
        if self.trail.len() >= TRAIL {
            self.trail.pop_front();
        }
        self.trail.push_back(packet.clone());
        self.world.deliver(&packet);
    }

    // ----- afterwards ----------------------------------------------------------------------------------------

    /// A node that was never seen before joins the victim, and large and small messages pass both ways.
    pub fn expect_newcomer_is_served(&mut self) {
        let config = Config::new(NEWCOMER_ID, Incarnation(1));
        let host = Host::new(self.world.now, config, 3, &MEDIA, no_meter);
        self.world.hosts.push(host);
        let newcomer = self.world.hosts.len() - 1;
        let port = self.world.hosts[newcomer].open_port();
        let met = self.world.run_while(2_000, |w| {
            w.hosts[newcomer].session_with(VICTIM_ID).is_none_or(|s| !s.announced)
                || w.hosts[newcomer].node.table().lookup(SERVICE).is_empty()
        });
        assert!(met, "a fresh peer joins and learns the names");
        let now = self.world.now;
        for (tag, size) in SIZES.into_iter().enumerate() {
            let to = PortAddress { node: NEWCOMER_ID, port };
            let own = self.target_port;
            assert!(self.world.hosts[VICTIM].send(
                now,
                own,
                to.into(),
                Class::Normal,
                tag as u64,
                &vec![7; size]
            ));
            assert!(self.world.hosts[newcomer].send(
                now,
                port,
                SERVICE.into(),
                Class::Normal,
                tag as u64,
                &vec![7; size]
            ));
        }
        let mut got = [Vec::new(), Vec::new()];
        self.world.run_while(5_000, |w| {
            for (way, index) in [VICTIM, newcomer].into_iter().enumerate() {
                while let Some((arrival, bytes)) = w.hosts[index].receive() {
                    got[way].push((arrival.tag, bytes.len()));
                }
            }
            got.iter().any(|g| g.len() < SIZES.len())
        });
        let expected: Vec<_> =
            SIZES.into_iter().enumerate().map(|(tag, size)| (Some(tag as u64), size)).collect();
        assert_eq!(got, [expected.clone(), expected], "a fresh session carries everything in order");
    }
}

/// A run that failed tells what arrived last.
impl Drop for Siege {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}, at {} ns", self.stage, self.world.now.0);
            for packet in &self.trail {
                println!("{:?}: {}", packet.from, describe(&packet.bytes));
            }
        }
    }
}

/// An identity that no life had lately, by turns below and above the victim's. It is never that of a host which stays:
/// nobody can join as the one whom it calls, nor as the peer that is there.
fn unused_id(life: u64) -> u64 {
    if life.is_multiple_of(2) { 1 + life % (LOWER_ID - 1) } else { (1 << 32) + life }
}

/// Only the victim's appetite is of interest.
fn no_meter() -> usize {
    0
}

/// What the honest peer says to anybody, and what the victim says to it and to all.
fn is_honest(packet: &Packet) -> bool {
    let seat = |address: &MediaAddress| address.as_bytes()[3];
    seat(&packet.from) == 1 || seat(&packet.from) == 0 && packet.to.as_ref().is_none_or(|to| seat(to) == 1)
}

fn is_between(packet: &Packet, from: u16, to: u16) -> bool {
    let medium = packet.medium();
    packet.from == address(medium, from) && packet.to.as_ref().is_some_and(|t| *t == address(medium, to))
}
