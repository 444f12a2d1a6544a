//! Nodes of one machine reach each other by memory that they share.

#![forbid(unsafe_code)]

mod local;

use local::{PATIENCE, address};
use polyrail::{Config, Message, Node, Port, Scope, SendError, ServiceAddress, ServiceRange, Wait};
use polyrail_sys::clock::monotonic_ns;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
const OTHER: ServiceAddress = ServiceAddress::new(1000, 2);

/// Packets that a node has sent by each of its links to the other one, and whether the link is up.
fn packets(node: &Node, medium: &str) -> (u64, bool) {
    let links = node.status().links;
    let of = links.iter().filter(|link| link.bearer.starts_with(medium));
    let sums = of.map(|link| (link.packets.0, link.state == "up"));
    sums.fold((0, false), |(all, any), (sent, up)| (all + sent, any | up))
}

fn pair(wait: Wait, shares: [bool; 2]) -> [Node; 2] {
    let node = |shares: bool, peers: &[String]| local::node(config().wait(wait).shared_memory(shares), peers);
    let first = node(shares[0], &[]);
    let peers = [address(&first)];
    let second = node(shares[1], &peers);
    [first, second]
}

fn next(port: &Port) -> Message<'_> {
    port.recv_timeout(PATIENCE).unwrap().expect("a message")
}

/// Sends a message there and back.
fn ask(client: &Port, server: &Port, bytes: &[u8]) {
    client.send(SERVICE, bytes).unwrap();
    let question = next(server);
    assert_eq!(question.bytes(), bytes);
    server.send(question.from(), question.bytes()).unwrap();
    assert_eq!(next(client).bytes(), bytes);
}

fn ports(nodes: &[Node; 2]) -> (Port, Port) {
    let (client, server) = (nodes[1].port().unwrap(), nodes[0].port().unwrap());
    server.bind(ServiceRange::from(SERVICE), Scope::Cluster).unwrap();
    client.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    (client, server)
}

/// Until both have the link by shared memory.
fn ask_until_near(nodes: &[Node; 2], client: &Port, server: &Port) {
    let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
    while !nodes.iter().all(|node| packets(node, "shm").1) {
        assert!(monotonic_ns() < until, "it never comes up: {:#?}", nodes[0].status().links);
        ask(client, server, b"more");
    }
}

#[test]
fn what_two_nodes_of_one_machine_say_to_each_other_does_not_go_by_its_network() {
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let nodes = pair(wait, [true, true]);
        let (client, server) = ports(&nodes);
        ask_until_near(&nodes, &client, &server);
        let before = nodes.each_ref().map(|node| (packets(node, "shm").0, packets(node, "udp").0));
        let started_ns = monotonic_ns();
        for bytes in [0usize, 1, 64, 112, 113, 1_000, 16_384, 65_536, 100_000, 1 << 20, 12 << 20] {
            for round in 0..20u8 {
                let content: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(7) ^ round).collect();
                ask(&client, &server, &content);
            }
        }
        let ms = (monotonic_ns() - started_ns) / 1_000_000;
        for (node, (shm, udp)) in nodes.iter().zip(before) {
            let (by_memory, by_network) = (packets(node, "shm").0 - shm, packets(node, "udp").0 - udp);
            assert!(by_memory >= 20 * 11, "{by_memory} packets by memory");
            // Nothing but a sign of life now and then.
            assert!(
                by_network <= ms / 2 + 50,
                "{by_network} packets by the network in {ms} ms, {by_memory} by memory"
            );
        }
    }
}

#[test]
fn nodes_of_one_cluster_find_each_other_without_any_network() {
    // None hears the others' beacons.
    let node = |cluster: &str, beacon_port: u16| {
        let cluster = format!("shm-{}-{cluster}", std::process::id());
        let config = Config::new().insecure().cluster(cluster).interfaces(["lo"]).beacon_port(beacon_port);
        Node::embed(config).unwrap()
    };
    // It is there when they look.
    let stranger = node("b", 17_433);
    let nodes = [node("a", 17_431), node("a", 17_432)];
    let (client, server) = ports(&nodes);
    ask(&client, &server, b"by memory alone");
    assert!(nodes.iter().all(|node| packets(node, "shm").1));
    assert!(stranger.status().peers.is_empty(), "it is of another cluster");
    for node in nodes.iter().chain([&stranger]) {
        let drops = node.status().drops;
        assert!(
            drops.iter().all(|(why, count)| why != "foreign-cluster" || *count == 0),
            "they do not even ask: {drops:?}"
        );
    }
}

#[test]
fn a_node_that_is_not_to_share_memory_is_reached_by_the_network() {
    for shares in [[true, false], [false, true], [false, false]] {
        let nodes = pair(Wait::Adaptive, shares);
        let (client, server) = ports(&nodes);
        for _ in 0..100 {
            ask(&client, &server, &[3; 5_000]);
        }
        assert_eq!(nodes.each_ref().map(|node| packets(node, "shm")), [(0, false); 2]);
    }
}

#[test]
fn a_connection_goes_by_shared_memory_as_messages_do() {
    let nodes = pair(Wait::Adaptive, [true, true]);
    let (client, server) = ports(&nodes);
    ask_until_near(&nodes, &client, &server);
    let before = packets(&nodes[0], "shm").0;
    server.listen(64).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..200 {
                let accepted = server.accept_timeout(PATIENCE).unwrap();
                let message = accepted.recv_timeout(PATIENCE).unwrap().expect("its message");
                accepted.send(message.bytes()).unwrap();
                assert!(accepted.recv_timeout(PATIENCE).unwrap().is_none(), "that was all");
            }
        });
        for round in 0..200u32 {
            let connection = client.connect(SERVICE).unwrap();
            connection.send(&round.to_be_bytes()).unwrap();
            let answer = connection.recv_timeout(PATIENCE).unwrap().expect("the answer");
            assert_eq!(answer.bytes(), round.to_be_bytes());
        }
    });
    assert!(packets(&nodes[0], "shm").0 - before >= 200);
}

/// Each test has a cluster of its own: an address that a node of one has left may be that of another's next, and whoever knew the
/// former would take up with the latter. Processes of a test are told which.
fn cluster() -> String {
    let of_test = || {
        let mut hasher = DefaultHasher::new();
        std::thread::current().name().hash(&mut hasher);
        format!("{}-{:x}", std::process::id(), hasher.finish())
    };
    std::env::var("POLYRAIL_CLUSTER").unwrap_or_else(|_| of_test())
}

fn config() -> Config {
    Config::new().cluster(cluster())
}

/// What a process of these tests does that is not the test itself: the same program, started again for this one "test".
#[test]
fn role() {
    let Ok(role) = std::env::var("POLYRAIL_ROLE") else { return };
    let Ok(peer) = std::env::var("POLYRAIL_PEER") else { return keeper() };
    let node = local::node(config(), &[peer]);
    let port = node.port().unwrap();
    match &role[..] {
        "busy" => busy(&node, &port),
        "reader" => reader(&node, &port),
        other => panic!("{other}"),
    }
}

/// Asks and is answered, in all sizes, until it is killed.
fn busy(node: &Node, port: &Port) {
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let (mut is_near, mut is_told) = (false, false);
    for round in 0u32.. {
        for bytes in [8, 100, 1_000, 30_000, 300_000] {
            let content = vec![round as u8; bytes];
            port.send(SERVICE, &content).unwrap();
            assert_eq!(next(port).bytes(), content);
        }
        is_near |= packets(node, "shm").1;
        if is_near && !std::mem::replace(&mut is_told, true) {
            println!("\nready");
        }
    }
}

/// Takes numbers, which must come in order and none twice, and says how many it has when it is asked.
fn reader(_node: &Node, port: &Port) {
    port.bind(SERVICE, Scope::Cluster).unwrap();
    println!("\nready");
    let mut count = 0u64;
    loop {
        let message = next(port);
        if message.bytes().is_empty() {
            port.send(message.from(), &count.to_le_bytes()).unwrap();
            continue;
        }
        assert_eq!(message.bytes()[..8], count.to_le_bytes());
        count += 1;
    }
}

/// A process in one of those roles; it is killed with this value.
struct Other(Child);

impl Other {
    fn start(role: &str, peer: &Node) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role", "--nocapture"]).env("POLYRAIL_ROLE", role);
        command.env("POLYRAIL_PEER", address(peer)).env("POLYRAIL_CLUSTER", cluster());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.lines().any(|line| line.unwrap() == "ready"), "it has ended");
        Other(child)
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([format!("-{signal}"), self.0.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Descriptors of this process, and segments that it has mapped.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), maps.matches("memfd:polyrail").count())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
    while !is_so() {
        assert!(monotonic_ns() < deadline_ns, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nodes_killed_at_any_moment_leave_nothing_behind() {
    // In a process of its own, where nobody else opens anything.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role", "--nocapture"]).env("POLYRAIL_ROLE", "keeper");
    assert!(command.status().unwrap().success());
}

/// Kills nodes that talk to one of this process; `POLYRAIL_KILLS=5000` for a soak.
fn keeper() {
    let kills = std::env::var("POLYRAIL_KILLS").map_or(16, |kills| kills.parse().unwrap());
    let node = local::node(config().tolerance(Duration::from_millis(200)), &[]);
    let server = node.port().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.try_recv().is_err() {
                let message = server.recv_timeout(Duration::from_millis(20)).unwrap();
                if let Some(message) = message {
                    // Whoever asked may be dead; of one who was before that is told first.
                    let answer =
                        || server.send_timeout(message.from(), message.bytes(), Duration::from_millis(20));
                    while let Err(SendError::Earlier { .. }) = answer() {}
                }
            }
        });
        let gone = || node.status().peers.is_empty();
        // What is allocated once is there after the first.
        drop(Other::start("busy", &node));
        until("a dead node is not forgotten", gone);
        let before = held();
        for kill in 0..kills / 2 {
            let others = [Other::start("busy", &node), Other::start("busy", &node)];
            std::thread::sleep(Duration::from_micros(kill % 40 * 517));
            drop(others);
        }
        until("dead nodes are not forgotten", gone);
        // But for sockets of single peers, which come and go with the traffic, and what watches them.
        until("something of them is left", || {
            let (descriptors, segments) = held();
            descriptors <= before.0 + 6 && segments <= before.1
        });
        stop.send(()).unwrap();
    });
}

#[test]
fn a_node_that_is_stopped_for_a_while_misses_nothing_and_holds_up_nobody() {
    let node = local::node(config().tolerance(Duration::from_secs(20)), &[]);
    let reader = Other::start("reader", &node);
    let sender = node.port().unwrap();
    sender.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let mut sent = 0u64;
    let mut send = |bytes: usize| {
        let mut content = vec![7; bytes];
        content[..8].copy_from_slice(&sent.to_le_bytes());
        let taken = sender.send_timeout(SERVICE, &content, Duration::from_millis(5)).is_ok();
        sent += u64::from(taken);
    };
    until("the link by shared memory does not come up", || {
        send(100);
        packets(&node, "shm").1
    });
    for round in 0..3 {
        reader.signal("STOP");
        // More than the ring takes.
        (0..200).for_each(|_| send([50_000, 100, 8][round]));
        // Others are reached meanwhile, though they came after it was full.
        let others = local::node(config(), &[address(&node)]);
        let (theirs, ours) = (others.port().unwrap(), node.port().unwrap());
        ours.bind(OTHER, Scope::Cluster).unwrap();
        theirs.wait_for(OTHER, Some(PATIENCE)).unwrap();
        for number in 0..100u32 {
            theirs.send(OTHER, &number.to_le_bytes()).unwrap();
            let question = next(&ours);
            ours.send(question.from(), question.bytes()).unwrap();
            assert_eq!(next(&theirs).bytes(), number.to_le_bytes());
        }
        std::thread::sleep(Duration::from_millis(100));
        reader.signal("CONT");
        (0..50).for_each(|_| send(1_000));
    }
    sender.flush(Some(PATIENCE)).unwrap();
    sender.send(SERVICE, b"").unwrap();
    assert_eq!(next(&sender).bytes(), sent.to_le_bytes());
}

#[test]
fn a_node_that_is_killed_is_forgotten_at_once_and_its_names_with_it() {
    // A silence would have to be as long as the test waits for anything.
    let node = local::node(config().tolerance(PATIENCE), &[]);
    let reader = Other::start("reader", &node);
    let port = node.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    until("the link by shared memory does not come up", || {
        port.send(SERVICE, b"").unwrap();
        next(&port);
        packets(&node, "shm").1
    });
    let killed_ns = monotonic_ns();
    drop(reader);
    until("it is not forgotten", || node.status().peers.is_empty());
    assert!(monotonic_ns() - killed_ns < PATIENCE.as_nanos() as u64 / 2, "it was waited for");
    // That it had read the last question may not have got here.
    let mut sent = port.send(SERVICE, b"");
    while let Err(SendError::Earlier { .. }) = sent {
        sent = port.send(SERVICE, b"");
    }
    assert!(matches!(sent, Err(SendError::NoService { .. })), "{sent:?}");
}
