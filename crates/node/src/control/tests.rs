mod connections;
mod mem;
mod metrics;
mod ports;
mod set;
mod why;

use super::*;
use crate::engine::client::{Arrival, Exchange};
use crate::engine::{Budget, Client};
use polyrail_bearer::{Address, Bearer as _, MemoryBearer, MemoryHub, Transmit};
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::config::Policy;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId};
use polyrail_proto::node::Destination;
use polyrail_proto::time::Instant;
use polyrail_proto::wire::{self, Reset};
use polyrail_proto::{Config, id::SessionId};
use polyrail_shm::Sizes;

const SIZES: Sizes = Sizes { sq_entries: 1_024, cq_entries: 2_048, tx_bytes: 4 << 20, rx_bytes: 1 << 20 };
const STEP_NS: u64 = 20_000;

/// Two engines, alpha and beta, with two bearers each, and one seat more in the first hub for whoever is up to no good.
struct World {
    now_ns: u64,
    engines: Vec<Engine>,
    stranger: MemoryBearer,
}

impl World {
    fn new() -> World {
        World::with(Policy::Adaptive)
    }

    fn with(policy: Policy) -> World {
        let (hubs, now_ns) = ([MemoryHub::new(), MemoryHub::new()], 1_000_000);
        let engines = ["alpha", "beta"].into_iter().zip(1u64..).map(|(name, id)| {
            let mut config = Config::new(NodeId(id), Incarnation(7));
            config.name = arrayvec::ArrayString::from(name).unwrap();
            config.policy = policy;
            let mut engine = Engine::new(now_ns, config);
            for hub in &hubs {
                engine.add_bearer(now_ns, Box::new(hub.bearer(id as u32)));
            }
            engine.add_loopback(now_ns, Box::new(MemoryHub::new().bearer(0)));
            engine
        });
        World { now_ns, engines: engines.collect(), stranger: hubs[0].bearer(9) }
    }

    /// Two engines that have met.
    fn met() -> World {
        let mut world = World::new();
        world.run(400);
        assert_eq!(world.ask(0, "link list", None)["rows"].as_array().unwrap().len(), 2);
        world
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms * 50 {
            self.now_ns += STEP_NS;
            for engine in &mut self.engines {
                engine.turn(self.now_ns, Budget::THOROUGH);
            }
        }
    }

    fn client(&mut self, node: usize) -> Client {
        self.engines[node].open_client(SIZES, Exchange::default()).unwrap()
    }

    fn ask(&mut self, node: usize, command: &str, name: Option<&str>) -> Value {
        let mut line = json!({ "command": command });
        if let Some(name) = name {
            line["name"] = json!(name);
        }
        self.request(node, &line)
    }

    /// The answer to a line, as the socket gives it.
    fn request(&mut self, node: usize, line: &Value) -> Value {
        let moment = Moment { now: Instant(self.now_ns), unix_ns: 1_000_000_000_000_000_000 };
        let request = Request::read(line.to_string().as_bytes());
        let engine = &mut self.engines[node];
        let reply = request.and_then(|request| {
            let reply = reply_to(&request, engine, &moment)?;
            Ok(with_memory(reply, holdings_for(&request, engine)))
        });
        reply.unwrap_or_else(|refusal| refusal.to_json())
    }

    /// A datagram of the stranger's to alpha's first bearer.
    fn forge(&mut self, bytes: &[u8]) {
        let (to, slices) = (Address::Memory(1), [std::io::IoSlice::new(bytes)]);
        let (segment_bytes, bytes) = (bytes.len(), bytes.len());
        let transmit =
            Transmit { to, segment_bytes, bytes, slices: &slices, express: false, lend: false, dscp: 0 };
        assert!(matches!(self.stranger.send(&transmit), polyrail_bearer::SendOutcome::Sent));
        self.run(1);
    }
}

fn names(answer: &Value) -> Vec<String> {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn both_ends_note_when_more_than_a_packet_or_two_passed_at_once() {
    let mut world = World::met();
    let (mut server, mut client) = (world.client(1), world.client(0));
    let noted = |world: &World| [0, 1].map(|end: usize| world.engines[end].passing().many_at_ns());
    let mut send = |world: &mut World, bytes: usize| {
        client.send(Destination::Port(server.address()), Class::Normal, None, &vec![7; bytes]).unwrap();
        world.run(20);
        assert!(server.poll().is_some());
        noted(world)
    };
    let (before, at_ns) = (noted(&world), world.now_ns);
    assert_eq!(send(&mut world, 64), before);
    assert!(send(&mut world, 12_000).iter().all(|&noted_ns| noted_ns > at_ns));
}

#[test]
fn both_ends_note_that_nothing_but_large_messages_passes() {
    let mut world = World::met();
    let (mut server, mut client) = (world.client(1), world.client(0));
    let mut send = |world: &mut World, bytes: usize| {
        client.send(Destination::Port(server.address()), Class::Normal, None, &vec![7; bytes]).unwrap();
        world.run(20);
        let Some(Arrival::Message(envelope, offset)) = server.poll() else { panic!("{bytes} bytes") };
        server.release(offset, envelope.len);
        [0, 1].map(|end: usize| world.engines[end].passing().is_calm())
    };
    assert_eq!(send(&mut world, 64), [false; 2]);
    let noted: Vec<_> = (0..10).map(|_| send(&mut world, 300_000)).collect();
    assert_eq!((noted[0], noted[9]), ([false; 2], [true; 2]), "{noted:?}");
    assert_eq!(send(&mut world, 64), [false; 2]);
}

#[test]
fn requests_are_read_with_and_without_a_name() {
    let read = |line: &str| Request::read(line.as_bytes());
    let (command, name) = ("link show".to_owned(), Some("beta/1".to_owned()));
    assert_eq!(
        read(r#"{"command":"link show","name":"beta/1"}"#),
        Ok(Request { command, name, trace: None, only: Only::default(), status: None, bytes: None })
    );
    assert_eq!(
        read(r#"{"command":"status"}"#),
        Ok(Request {
            command: "status".to_owned(),
            name: None,
            trace: None,
            only: Only::default(),
            status: None,
            bytes: None
        })
    );
    for wrong in ["", "{}", "[]", r#"{"command":3}"#, r#"{"command":"link show","name":3}"#] {
        assert_eq!(read(wrong).unwrap_err().code, "request", "{wrong:?}");
    }
}

#[test]
fn every_noun_can_be_listed_shown_and_counted() {
    let mut world = World::met();
    let mut server = world.client(1);
    server.bind(ServiceRange::new(100, 0, 9), Scope::Cluster).unwrap();
    let mut client = world.client(0);
    world.run(20);
    client.send(Destination::Service(ServiceAddress::new(100, 4)), Class::Normal, None, b"hello").unwrap();
    world.run(20);
    let port = client.address().port.to_string();
    let bearer = world.ask(0, "bearer list", None)["rows"][0]["bearer"].as_str().unwrap().to_owned();
    for (noun, name) in
        [("link", "beta/0"), ("node", "beta"), ("node", "alpha"), ("service", "100:4"), ("port", &port)]
    {
        let listed = world.ask(0, &format!("{noun} list"), None);
        assert!(!listed["rows"].as_array().unwrap().is_empty(), "{noun}");
        let shown = world.ask(0, &format!("{noun} show"), Some(name));
        assert_eq!(shown["ok"], true, "{noun}: {shown}");
        assert!(shown["show"][noun].is_object(), "{noun}: {shown}");
        let counted = world.ask(0, &format!("{noun} stats"), Some(name));
        assert_eq!(counted["rows"].as_array().unwrap().len(), 1, "{noun}: {counted}");
        assert!(names(&world.ask(0, &format!("{noun} stats"), None)).contains(&names(&counted)[0]));
    }
    // Two bearers of the hub go by one name here, which no bearer on an interface does.
    assert_eq!(world.ask(0, "bearer stats", None)["rows"].as_array().unwrap().len(), 2);
    assert_eq!(world.ask(0, "bearer show", Some(&bearer))["error"]["code"], "usage");
    let shown = world.ask(0, "node show", Some("beta"))["show"].clone();
    assert_eq!(shown["messages"]["messages_sent"], 1, "{shown}");
    assert_eq!(shown["links"].as_array().unwrap().len(), 2);
    assert_eq!(shown["changes"][0]["what"], "up");
    let total = world.ask(0, "stats", None);
    assert_eq!(total["show"]["messages"]["messages_confirmed"], 1, "{total}");
}

#[test]
fn a_refusal_says_what_there_is() {
    let mut world = World::met();
    let message = |answer: Value| answer["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message(world.ask(0, "link show", Some("gamma/0"))),
        "no link \"gamma/0\"; there are: beta/0, beta/1"
    );
    assert_eq!(
        message(world.ask(0, "node show", Some("gamma"))),
        "no node \"gamma\"; there are: alpha, beta"
    );
    assert_eq!(message(world.ask(0, "port stats", Some("1"))), "no port \"1\"; there are: none");
    assert_eq!(message(world.ask(0, "service show", Some("1:2"))), "no service \"1:2\"; there are: none");
    assert!(message(world.ask(0, "link show", None)).contains("which link?"));
    for unknown in ["", "lnk list", "link lst", "stats list", "status show", "list"] {
        let answer = world.ask(0, unknown, None);
        assert_eq!(answer["error"]["code"], "command", "{unknown:?}");
        assert!(message(answer).contains("bearer|connection|link|node|port|service list"));
    }
}

#[test]
fn a_link_tells_when_and_why_it_went_down_and_came_back() {
    let mut world = World::met();
    let cut_at_ns = world.now_ns;
    world.engines[0].carrier(cut_at_ns, 1, false);
    world.run(1_000);
    let gone = world.ask(0, "link show", Some("beta/1"))["show"].clone();
    assert_eq!((&gone["link"]["state"], &gone["link"]["carrier"]), (&json!("down"), &json!(false)), "{gone}");
    assert_eq!((&gone["trouble"]["deaths"], &gone["traffic"]["failures"]), (&json!(1), &json!(1)));
    let change = gone["changes"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&change["from"], &change["to"]), (&json!("up"), &json!("down")));
    assert_eq!((&change["why"], &change["ago_s"]), (&json!("carrier lost"), &json!(1.0)));
    assert_eq!(change["at"], "2001-09-09T01:46:39.000Z");
    let other = world.ask(1, "link show", Some("alpha/1"))["show"].clone();
    assert_eq!(other["changes"].as_array().unwrap().last().unwrap()["why"], "peer says down", "{other}");

    world.engines[0].carrier(world.now_ns, 1, true);
    world.run(3_000);
    let back = world.ask(0, "link show", Some("0000000000000002/1"))["show"].clone();
    let why: Vec<&str> =
        back["changes"].as_array().unwrap().iter().map(|c| c["why"].as_str().unwrap()).collect();
    assert_eq!(why, ["joined", "carrier lost", "joined", "probation passed"], "{back}");
}

#[test]
fn a_peer_that_is_lost_keeps_its_name_and_its_past() {
    let mut world = World::met();
    world.engines.truncate(1);
    world.run(2_000);
    assert_eq!(world.ask(0, "link list", None)["rows"], json!([]));
    let node = world.ask(0, "node show", Some("beta"))["show"].clone();
    assert_eq!(
        (&node["node"]["state"], &node["changes"][1]["what"]),
        (&json!("gone"), &json!("lost")),
        "{node}"
    );
    let link = world.ask(0, "link show", Some("beta/0"))["show"].clone();
    assert_eq!(link["link"]["state"], "gone", "{link}");
    let why: Vec<&Value> = link["changes"].as_array().unwrap().iter().map(|change| &change["why"]).collect();
    assert!(
        why.contains(&&json!("silence")) && why.contains(&&json!("no answer to the suspicion")),
        "{link}"
    );
}

#[test]
fn bad_packets_move_the_counter_of_their_reason() {
    let mut world = World::met();
    let count = |world: &mut World, group: &str, name: &str| {
        world.ask(0, "stats", None)["show"][group][name].as_u64().unwrap_or_default()
    };
    let mut packet = Vec::new();
    Reset { session: SessionId(1), node: NodeId(5), incarnation: Incarnation(5) }.emit_packet(1, &mut packet);
    let before = count(&mut world, "drops", "malformed");
    packet[wire::HEADER_BYTES] ^= 1;
    world.forge(&packet);
    world.forge(b"\x10hort");
    assert_eq!(count(&mut world, "drops", "malformed"), before + 2);
    assert_eq!(
        (count(&mut world, "malformed", "checksum"), count(&mut world, "malformed", "truncated")),
        (1, 1)
    );

    let mut data = Vec::new();
    wire::Header {
        kind: wire::PacketType::Data,
        flags: 0,
        link: Default::default(),
        to: SessionId(0xffff_ffff),
        number: 1,
        stamp: 0,
        check: 0,
    }
    .emit(&mut data);
    wire::finish(&mut data).unwrap();
    world.forge(&data);
    assert_eq!(count(&mut world, "drops", "unknown_session"), 1);
    data[0] = 0x20;
    world.forge(&data);
    assert_eq!((count(&mut world, "drops", "version"), count(&mut world, "malformed", "version")), (1, 1));
}

#[test]
fn a_flow_without_credit_shows_as_starved_until_its_receiver_reads() {
    let mut world = World::met();
    let (mut server, mut client) = (world.client(1), world.client(0));
    let to = Destination::Port(server.address());
    for _ in 0..40 {
        client.send(to, Class::Bulk, None, &[7; 60_000]).unwrap();
        world.run(2);
    }
    let starved = |world: &mut World| {
        let shown = world.ask(0, "node show", Some("beta"))["show"].clone();
        (shown["queues"]["flows_starved"].clone(), shown["credit_of_peer"][0].clone(), shown)
    };
    let (flows, credit, shown) = starved(&mut world);
    assert_eq!((&flows, &credit["starved_flows"]), (&json!(1), &json!(1)), "{shown}");
    assert!(credit["bytes_left"].as_u64().unwrap() < 60_032, "{credit}");
    assert_eq!((&shown["flows"][0]["class"], &shown["flows"][0]["starved"]), (&json!("bulk"), &json!(true)));
    let port = client.address().port.to_string();
    let sending = world.ask(0, "port show", Some(&port))["show"]["sending"].clone();
    assert_eq!(sending["flows_starved"], 1, "{sending}");
    let receiver = server.address().port.to_string();
    let receiving = world.ask(1, "port show", Some(&receiver))["show"].clone();
    let waiting = receiving["receiving"]["completions_waiting"].as_u64().unwrap();
    assert!(waiting > 0, "{receiving}");
    assert_eq!(receiving["credit_given"][0]["messages_used"], waiting, "{receiving}");

    let mut read = 0;
    while read < 40 {
        while let Some(crate::engine::client::Arrival::Message(envelope, offset)) = server.poll() {
            server.release(offset, envelope.len);
            read += 1;
        }
        world.run(2);
    }
    let (flows, _, shown) = starved(&mut world);
    assert_eq!((flows, &shown["queues"]["messages_unconfirmed"]), (json!(0), &json!(0)), "{shown}");
}
