//! What programs of several users may have of one node: a user that takes all it can get has no more than it may, others have what is
//! theirs, and what a killed program had is given back.

mod processes;

use polyrail::{
    BindError, Config, ErrorCode, Memory, Node, Port, Right, Scope, SendError, ServiceAddress, ServiceRange,
    StartError, SubscribeError, Topic, UserLimits,
};
use polyrail_shm::Segment;
use polyrail_sys::unix::{Packet, Place, UnixSocket};
use processes::{Door, Other, PATIENCE, can_be_others, ready, role, say, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Two users that have no name on any machine.
const ONE: u32 = 61_001;
const OTHER: u32 = 61_002;
/// Types of services that only the second may bind.
const KEPT: ServiceRange = ServiceRange { kind: 2_000, lower: 0, upper: 9 };
const MIB: u64 = 1 << 20;
/// What a port of the arenas of these tests comes to, at most.
const PORT_BYTES: u64 = 9 * MIB / 4;

#[test]
fn a_role() {
    let Some((role, path)) = role() else { return };
    match &role[..] {
        "ports" => ports(&path),
        "names" => names(&path),
        "rings" => rings(&path),
        "trunks" => trunks(&path),
        "subscriptions" => subscriptions(&path),
        "lender" => lender(&path),
        "server" => server(&path),
        other => panic!("{other}"),
    }
}

/// A program with small arenas.
fn attach(path: &Path) -> Node {
    Node::attach_with(path, small()).unwrap()
}

fn small() -> Config {
    let memory = Memory {
        tx_arena_bytes: MIB as usize,
        rx_arena_bytes: MIB as usize,
        submission_entries: 64,
        completion_entries: 1_024,
    };
    Config::new().insecure().memory(memory)
}

/// Says how it went, and holds what it has until it is killed.
fn hold<T>(said: &str, held: T) {
    say(&format!("result {said}"));
    std::thread::sleep(PATIENCE);
    drop(held);
}

/// Opens ports until it gets no more.
fn ports(path: &Path) {
    let node = attach(path);
    ready();
    let mut held = Vec::new();
    let refused = loop {
        match node.port() {
            Ok(port) => held.push(port),
            Err(error) => break error,
        }
    };
    // Asking on is of no use.
    assert!((0..50).all(|_| matches!(node.port(), Err(StartError::Limit(_)))));
    assert_eq!(refused.code(), ErrorCode::TooMany);
    hold(&format!("{} {refused}", held.len()), (node, held));
}

/// Binds names until it gets no more, of a type that anybody may bind and of one that is not for all.
fn names(path: &Path) {
    let node = attach(path);
    let ports = [node.port().unwrap(), node.port().unwrap()];
    ready();
    let kept = ports[0].bind(KEPT, Scope::Node);
    if kept.is_err() {
        assert_eq!(ports[0].bind_exclusive(KEPT, Scope::Node), kept, "by no other way either");
    }
    let mut count = 0u32;
    let refused = loop {
        match ports[count as usize % 2].bind(ServiceAddress::new(1_000, count), Scope::Cluster) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    // What is taken back may be bound anew.
    for _ in 0..3 {
        ports[0].unbind(ServiceAddress::new(1_000, 0), Scope::Cluster).unwrap();
        ports[1].bind(ServiceAddress::new(1_000, 0), Scope::Cluster).unwrap();
        assert_eq!(ports[1].bind(ServiceAddress::new(1_000, 1), Scope::Cluster), Err(refused));
        ports[1].unbind(ServiceAddress::new(1_000, 0), Scope::Cluster).unwrap();
        ports[0].bind(ServiceAddress::new(1_000, 0), Scope::Cluster).unwrap();
    }
    hold(&format!("{count} {refused:?} {kept:?}"), (node, ports));
}

/// Sends to ports of its own, each worth a ring, until it has had several more than it may.
fn rings(path: &Path) {
    let node = attach(path);
    let sender = node.port().unwrap();
    let mut receivers: Vec<(Port, u64)> = (0..10).map(|_| (node.port().unwrap(), 0)).collect();
    ready();
    for (receiver, direct) in &mut receivers {
        let before = sender.sent_direct();
        for number in 0..400u64 {
            sender.send(receiver.address(), &number.to_le_bytes()).unwrap();
            let message = receiver.recv_timeout(PATIENCE).unwrap().expect("it arrives by either way");
            assert_eq!(message.bytes(), number.to_le_bytes());
        }
        *direct = sender.sent_direct() - before;
    }
    let by_rings = receivers.iter().filter(|(_, direct)| *direct > 0).count();
    hold(&format!("{by_rings} of {}", receivers.len()), (node, sender, receivers));
}

/// Connects to ports of its own: each time that is worth a trunk.
fn trunks(path: &Path) {
    let node = attach(path);
    let mut client = node.port().unwrap();
    let servers: Vec<Port> = (0..4).map(|_| node.port().unwrap()).collect();
    ready();
    let mut by_trunks = 0;
    for server in &servers {
        server.listen(4).unwrap();
        // Once there is an answer to this the node knows that it listens, and gives a trunk to who asks.
        server.bind(ServiceAddress::new(1_000, 1), Scope::Node).unwrap();
        let before = client.sent_direct();
        let address = server.address();
        let asking = std::thread::spawn(move || {
            let asking = client.connect(address).unwrap();
            asking.send(&vec![7; 100_000]).unwrap();
            assert_eq!(asking.recv_timeout(PATIENCE).unwrap().expect("an answer").bytes(), b"!");
            drop(asking);
            client
        });
        let answering = server.accept_timeout(PATIENCE).unwrap();
        assert_eq!(answering.recv_timeout(PATIENCE).unwrap().expect("a question").bytes(), [7; 100_000]);
        answering.send(b"!").unwrap();
        client = asking.join().unwrap();
        by_trunks += u64::from(client.sent_direct() > before);
    }
    hold(&by_trunks.to_string(), (node, client, servers));
}

/// Subscribes until it gets no more.
fn subscriptions(path: &Path) {
    let node = attach(path);
    ready();
    let mut held = Vec::new();
    let refused = loop {
        match node.subscribe(Topic::services(KEPT)) {
            Ok(subscription) => held.push(subscription),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, SubscribeError::TooMany);
    hold(&held.len().to_string(), (node, held));
}

/// Sends more than fits its memory, and then what does.
fn lender(path: &Path) {
    let node = attach(path);
    let (sender, receiver) = (node.port().unwrap(), node.port().unwrap());
    ready();
    let refused = sender.send(receiver.address(), &vec![1; 30 << 20]);
    assert!(matches!(refused, Err(SendError::Memory(_))), "{refused:?}");
    for round in 0..5 {
        let sent = vec![round; 4 << 20];
        sender.send(receiver.address(), &sent).unwrap();
        assert!(receiver.recv_timeout(PATIENCE).unwrap().expect("it arrives").bytes() == sent);
    }
    hold("done", (node, sender, receiver));
}

/// Answers what it is sent, until it is killed.
fn server(path: &Path) {
    let node = attach(path);
    let port = node.port().unwrap();
    port.bind(KEPT, Scope::Node).unwrap();
    ready();
    loop {
        let message = port.recv().unwrap();
        port.send(message.from(), message.bytes()).unwrap();
    }
}

/// A node of this process, where every user may attach, and which can be asked.
struct Machine {
    door: Door,
    node: Node,
    control: PathBuf,
}

impl Machine {
    fn new(test: &str, config: Config) -> Machine {
        let (door, control) = (Door::new(test), Door::new(test).0.with_extension("sock"));
        let config = config.interfaces(["lo"]).discovery(false).attach(&door.0).control(&control);
        let node = Node::embed(config.memory(small().memory)).unwrap();
        door.open_to_all();
        Machine { door, node, control }
    }

    fn start(&self, uid: u32, role: &str) -> Other {
        Other::start_as(uid, role, &self.door.0)
    }

    /// The answer to a question at the control socket.
    fn ask(&self, command: &str) -> Value {
        let mut stream = UnixStream::connect(&self.control).unwrap();
        writeln!(stream, "{}", json!({ "command": command })).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        answer["show"].clone()
    }

    /// What a user has.
    fn user(&self, uid: u32) -> Value {
        let rows = self.ask("mem")["users"].clone();
        rows.as_array().unwrap().iter().find(|row| row["uid"] == uid).cloned().unwrap_or_default()
    }

    /// Nothing is left of a user that has ended.
    fn has_nothing_of(&self, uid: u32) {
        until("all is given back", || {
            let user = self.user(uid);
            ["ports", "names", "promised_bytes"].iter().all(|member| user[member] == 0)
        });
    }

    /// Whether it serves a program of another user, and the one that embeds it.
    fn serves_others(&self) {
        let mut server = self.start(OTHER, "server");
        let port = self.node.port().unwrap();
        let service = ServiceAddress::new(KEPT.kind, 3);
        port.send(service, b"hello").unwrap();
        assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"hello");
        server.kill();
        until("its name is gone", || port.send(service, b"gone?").is_err());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.control);
    }
}

/// The numbers that begin a result.
fn number(result: &str) -> u64 {
    result.split(' ').next().unwrap().parse().unwrap()
}

fn limits(ports: usize, names: usize, memory_bytes: u64) -> UserLimits {
    UserLimits { ports: Some(ports), names: Some(names), memory_bytes: Some(memory_bytes) }
}

#[test]
fn who_opens_ports_in_a_loop_has_as_many_as_its_user_may_and_others_have_theirs() {
    if !can_be_others("who_opens_ports_in_a_loop_has_as_many_as_its_user_may_and_others_have_theirs") {
        return;
    }
    let machine = Machine::new("ports", Config::new().insecure().user(ONE, limits(20, 100, 1 << 30)));
    let mut greedy = machine.start(ONE, "ports");
    let result = greedy.hear("result");
    assert_eq!(number(&result), 20, "{result}");
    assert!(result.contains(&format!("user {ONE} has as many ports")) && result.contains("(20)"), "{result}");
    // Another process of the same user has nothing left.
    let mut second = machine.start(ONE, "ports");
    assert_eq!(number(&second.hear("result")), 0);
    machine.serves_others();
    let user = machine.user(ONE);
    assert_eq!((&user["ports"], &user["ports_max"]), (&json!(20), &json!(20)), "{user}");
    assert_eq!(user["refused_ports"], 102, "{user}");
    assert_eq!(machine.ask("stats")["refused"]["ports"], 102);
    greedy.kill();
    second.kill();
    machine.has_nothing_of(ONE);
    assert_eq!(number(&machine.start(ONE, "ports").hear("result")), 20, "what it had is given back");
}

#[test]
fn limits_that_are_set_while_programs_run_hold_from_then_on_and_take_nothing_away() {
    if !can_be_others("limits_that_are_set_while_programs_run_hold_from_then_on_and_take_nothing_away") {
        return;
    }
    let start = || Config::new().insecure().memory_bytes_max(1 << 30).memory(small().memory);
    let machine = Machine::new("renewed", start().user(ONE, limits(5, 100, 1 << 29)));
    let ports_of = |role: &mut Other| number(&role.hear("result"));
    let mut first = machine.start(ONE, "ports");
    assert_eq!(ports_of(&mut first), 5);
    machine.node.set_limits(&start().user(ONE, limits(8, 100, 1 << 29))).unwrap();
    let mut second = machine.start(ONE, "ports");
    assert_eq!(ports_of(&mut second), 3, "as many more");
    // Fewer than there are: those stay.
    machine.node.set_limits(&start().user(ONE, limits(2, 100, 1 << 29))).unwrap();
    assert_eq!(machine.user(ONE)["ports"], 8);
    second.kill();
    until("its ports are gone", || machine.user(ONE)["ports"] == 5);
    assert_eq!(ports_of(&mut machine.start(ONE, "ports")), 0);
    first.kill();
    machine.has_nothing_of(ONE);
    // It may have two ports, but not the memory of one. Then it is the node that has too little, and a type that is kept for others.
    machine.node.set_limits(&start().user(ONE, limits(2, 100, MIB))).unwrap();
    assert_eq!(ports_of(&mut machine.start(ONE, "ports")), 0);
    machine.node.set_limits(&start().memory_bytes_max(4 * MIB)).unwrap();
    assert_eq!(machine.ask("mem")["memory"]["limit_bytes"], 4 * MIB);
    assert!(ports_of(&mut machine.start(ONE, "ports")) < 3);
    let kept = start().user(ONE, limits(20, 100, 1 << 29)).right(KEPT.kind..=KEPT.kind, [OTHER]);
    machine.node.set_limits(&kept).unwrap();
    machine.has_nothing_of(ONE);
    let result = machine.start(ONE, "names").hear("result");
    assert!(number(&result) == 100 && result.contains("Err(NotPermitted)"), "{result}");
    let error = machine.node.set_limits(&start().user(ONE, limits(1, 1, 7))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Config);
    assert_eq!(machine.user(ONE)["ports_max"], 20, "as before");
    let error = attach(&machine.door.0).set_limits(&start()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotPermitted, "it is the node's own program that sets them");
    machine.serves_others();
}

#[test]
fn memory_is_promised_to_a_user_up_to_its_limit_and_to_all_up_to_that_of_the_node() {
    if !can_be_others("memory_is_promised_to_a_user_up_to_its_limit_and_to_all_up_to_that_of_the_node") {
        return;
    }
    let config = Config::new().insecure().memory_bytes_max(64 * MIB);
    let machine = Machine::new("memory", config.user(ONE, limits(1_000, 100, 20 * MIB)));
    let mut greedy = machine.start(ONE, "ports");
    let result = greedy.hear("result");
    let count = number(&result);
    assert!((20 * MIB / PORT_BYTES..20).contains(&count), "{result}");
    assert!(result.contains("`memory_bytes`") && result.contains("smaller arenas"), "{result}");
    // Who has no limit of its own has half of the node's.
    let mut third = machine.start(OTHER + 1, "ports");
    assert!(number(&third.hear("result")) > count);
    machine.serves_others();
    let shown = machine.ask("mem");
    let memory = &shown["memory"];
    let bytes = |member: &str| memory[member].as_u64().unwrap();
    assert_eq!(bytes("limit_bytes"), 64 * MIB);
    assert_eq!(bytes("promised_bytes") + bytes("left_bytes"), bytes("limit_bytes"), "{memory}");
    assert!(bytes("resident_bytes") < bytes("promised_bytes"), "{memory}");
    let of_kinds = shown["kinds"].as_array().unwrap().iter();
    let of_kinds: u64 = of_kinds.map(|row| row["promised_bytes"].as_u64().unwrap()).sum();
    assert_eq!(of_kinds, bytes("promised_bytes"), "{shown}");
    assert!(machine.user(ONE)["promised_bytes"].as_u64().unwrap() <= 20 * MIB);
    assert!(machine.user(ONE)["refused_user_memory"].as_u64().unwrap() >= 51);
    // The program that embeds the node has no share, but the node has an end.
    let mut own = Vec::new();
    let refused = loop {
        match machine.node.port() {
            Ok(port) => own.push(port),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, StartError::Limit(what) if what.contains("`memory_bytes_max`")), "{refused}");
    assert!(machine.ask("mem")["memory"]["promised_bytes"].as_u64().unwrap() <= 64 * MIB);
    drop(own);
    greedy.kill();
    third.kill();
    machine.has_nothing_of(ONE);
    machine.has_nothing_of(OTHER + 1);
    until("the node's own are given back", || machine.node.port().is_ok());
}

#[test]
fn who_binds_in_a_loop_has_as_many_names_as_its_user_may_and_none_that_are_kept_for_others() {
    if !can_be_others(
        "who_binds_in_a_loop_has_as_many_names_as_its_user_may_and_none_that_are_kept_for_others",
    ) {
        return;
    }
    let config = Config::new().insecure().users(limits(100, 30, 1 << 30)).right(1_999..=2_000, [OTHER]);
    let machine = Machine::new("names", config);
    let mut greedy = machine.start(ONE, "names");
    assert_eq!(greedy.hear("result"), "30 Limit Err(NotPermitted)");
    machine.serves_others();
    let user = machine.user(ONE);
    assert_eq!(
        (&user["names"], &user["refused_names"], &user["refused_rights"]),
        (&json!(30), &json!(4), &json!(2))
    );
    let mut allowed = machine.start(OTHER, "names");
    assert_eq!(allowed.hear("result"), "29 Limit Ok(())");
    // The program that embeds the node may do as it likes.
    let own = machine.node.port().unwrap();
    for instance in 0..100 {
        own.bind(ServiceAddress::new(1_999, instance), Scope::Node).unwrap();
    }
    greedy.kill();
    machine.has_nothing_of(ONE);
    assert_eq!(machine.start(ONE, "names").hear("result"), "30 Limit Err(NotPermitted)");
}

#[test]
fn messages_go_by_the_engine_where_a_user_may_have_no_more_rings() {
    if !can_be_others("messages_go_by_the_engine_where_a_user_may_have_no_more_rings") {
        return;
    }
    // Eleven ports, and two rings of 8.4 MiB.
    let memory_bytes = 11 * PORT_BYTES + 18 * MIB;
    let machine = Machine::new("rings", Config::new().insecure().user(ONE, limits(50, 10, memory_bytes)));
    let mut greedy = machine.start(ONE, "rings");
    let by_rings = number(&greedy.hear("result"));
    assert!((1..10).contains(&by_rings), "{by_rings}");
    let user = machine.user(ONE);
    assert!(user["refused_user_memory"].as_u64().unwrap() >= 10 - by_rings, "{user}");
    assert!(user["promised_bytes"].as_u64().unwrap() <= memory_bytes, "{user}");
    let rows = machine.ask("mem")["kinds"].clone();
    let rings = rows.as_array().unwrap().iter().find(|row| row["kind"] == "rings").unwrap().clone();
    assert_eq!(rings["count"], by_rings, "{rows}");
    // Another user has rings.
    let mut other = machine.start(OTHER, "rings");
    assert_eq!(number(&other.hear("result")), 10);
    greedy.kill();
    machine.has_nothing_of(ONE);
}

#[test]
fn connections_go_by_the_engine_where_a_user_may_have_no_trunk() {
    if !can_be_others("connections_go_by_the_engine_where_a_user_may_have_no_trunk") {
        return;
    }
    let machine = Machine::new("trunks", Config::new().insecure().user(ONE, limits(50, 10, 7 * PORT_BYTES)));
    let mut poor = machine.start(ONE, "trunks");
    assert_eq!(number(&poor.hear("result")), 0);
    assert!(machine.user(ONE)["refused_user_memory"].as_u64().unwrap() >= 4);
}

#[test]
fn memory_that_programs_lend_counts_too() {
    if !can_be_others("memory_that_programs_lend_counts_too") {
        return;
    }
    let machine = Machine::new("lent", Config::new().insecure().user(ONE, limits(50, 10, 30 * MIB)));
    let mut lender = machine.start(ONE, "lender");
    assert_eq!(lender.hear("result"), "done");
    assert!(machine.user(ONE)["refused_user_memory"].as_u64().unwrap() >= 1);
    lender.kill();
    machine.has_nothing_of(ONE);
}

#[test]
fn no_user_takes_all_subscriptions() {
    if !can_be_others("no_user_takes_all_subscriptions") {
        return;
    }
    let machine = Machine::new("subscriptions", Config::new().insecure());
    let mut greedy = machine.start(ONE, "subscriptions");
    assert_eq!(number(&greedy.hear("result")), 512);
    let mut other = machine.start(OTHER, "subscriptions");
    assert_eq!(number(&other.hear("result")), 512);
    greedy.kill();
    machine.has_nothing_of(ONE);
    assert!(machine.node.subscribe(Topic::services(KEPT)).is_ok());
    assert_eq!(number(&machine.start(ONE, "subscriptions").hear("result")), 512, "what it had is given back");
}

// ----- words as they are -----------------------------------------------------------------------------------------

/// What the node answers to words, and what comes with it.
fn tell(socket: &UnixSocket, words: &str, memory: Option<&Segment>) -> (String, Packet) {
    let descriptors: Vec<_> = memory.and_then(|memory| memory.fd()).into_iter().collect();
    socket.send(words.as_bytes(), &descriptors).unwrap();
    hear(socket)
}

/// The next packet of the node.
fn hear(socket: &UnixSocket) -> (String, Packet) {
    let mut buffer = vec![0; 65_536];
    let start = Instant::now();
    let mut lost = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(Some(packet)) => {
                return (String::from_utf8_lossy(&buffer[..packet.bytes]).into_owned(), packet);
            }
            Ok(None) => {}
            // That the node has not read what it was told comes before what it has said.
            Err(_) => lost += 1,
        }
        assert!(lost < 2, "it has said nothing");
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_lends_more_than_there_is_is_told_so() {
    let machine = Machine::new("huge", Config::new().insecure().users(limits(10, 10, 64 * MIB)));
    let socket = UnixSocket::connect(Place::Path(&machine.door.0)).unwrap();
    let hello = |version: &str| format!(r#"{{"ask":"hello","version":{version},"program":"test"}}"#);
    let (told, _) = tell(&socket, &hello("0"), None);
    let version = told.split("the node version ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    assert!(tell(&socket, &hello(version), None).0.contains("welcome"));
    let port = r#"{"ask":"port","sq_entries":64,"cq_entries":64,"tx_bytes":65536,"rx_bytes":65536}"#;
    let (_, mut packet) = tell(&socket, port, None);
    let port = packet.descriptors.pop().map(UnixSocket::from).unwrap();
    // A file of a TiB that has no page costs its maker nothing.
    let huge = Segment::shared(1 << 40).unwrap();
    for _ in 0..10 {
        let (answer, _) = tell(&port, r#"{"ask":"lend","number":1}"#, Some(&huge));
        assert!(answer.contains("refused") && answer.contains("`memory_bytes`"), "{answer}");
    }
    let usual = Segment::shared(MIB as usize).unwrap();
    for number in 0..200 {
        let (answer, _) = tell(&port, &format!(r#"{{"ask":"lend","number":{number}}}"#), Some(&usual));
        assert!(answer.contains("done"), "{answer}");
    }
    let lent =
        machine.ask("mem")["kinds"].as_array().unwrap().iter().find(|row| row["kind"] == "lent").cloned();
    assert_eq!(lent.unwrap()["promised_bytes"], 4 * MIB, "the oldest go");
    drop((socket, port));
    machine.has_nothing_of(0);
}

#[test]
fn who_connects_in_a_loop_has_as_many_processes_as_its_user_may() {
    let machine = Machine::new("processes", Config::new().insecure());
    // The refusal of its version says that a process was let in.
    let connect = || {
        let socket = UnixSocket::connect(Place::Path(&machine.door.0)).unwrap();
        let hello = br#"{"ask":"hello","version":0,"program":"test"}"#;
        // Who is not let in is told so unasked.
        let _ = socket.send(hello, &[]);
        let answer = hear(&socket).0;
        if answer.contains("the node version") { Ok(socket) } else { Err(answer) }
    };
    let mut held = Vec::new();
    let refused = loop {
        match connect() {
            Ok(socket) => held.push(socket),
            Err(answer) => break answer,
        }
    };
    // Where the system grants this process few descriptors, half of those are fewer.
    let reason = if held.len() == 2_048 { "processes" } else { "descriptors" };
    assert!(refused.contains(reason) && held.len() <= 2_048, "{}: {refused}", held.len());
    assert!((0..10).all(|_| connect().is_err()));
    match Node::attach(&machine.door.0) {
        Err(StartError::Limit(what)) => assert!(what.contains(reason), "{what}"),
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(machine.ask("mem")["refused"][reason], 12);
    if can_be_others("who_connects_in_a_loop_has_as_many_processes_as_its_user_may, the part of others") {
        machine.serves_others();
    }
    held.clear();
    until("they are gone", || connect().is_ok());
}

#[test]
fn buffers_of_the_nodes_own_program_count_to_its_budget() {
    let machine = Machine::new("pool", Config::new().insecure().memory_bytes_max(64 * MIB));
    let port = machine.node.port().unwrap();
    let pool =
        || machine.ask("mem")["kinds"].as_array().unwrap().iter().find(|row| row["kind"] == "pool").cloned();
    assert!(matches!(port.alloc(80 << 20), Err(SendError::Memory(_))));
    let buffer = port.alloc(40 << 20).unwrap();
    assert_eq!(pool().unwrap()["promised_bytes"], 40 * MIB);
    assert!(matches!(port.alloc(40 << 20), Err(SendError::Memory(_))));
    // What is kept for the next makes room for ports.
    drop(buffer);
    assert_eq!(pool().unwrap()["promised_bytes"], 40 * MIB);
    let ports: Vec<Port> = (0..20).map(|_| machine.node.port().unwrap()).collect();
    assert_eq!((pool().unwrap()["promised_bytes"].as_u64(), ports.len()), (Some(0), 20));
}

#[test]
fn rights_are_read_as_they_are_written() {
    let right = Config::new().right(7_000..=7_009, [1, 2]).rights.remove(0);
    assert_eq!(right, Right { types: 7_000..=7_009, users: [2, 1].into() });
    assert_eq!(BindError::NotPermitted.code(), ErrorCode::NotPermitted);
}
