//! Nodes of one machine reach each other by memory that they share.

#![forbid(unsafe_code)]

mod local;

use local::{PATIENCE, address};
use polyrail::{Config, Message, Node, Port, Scope, ServiceAddress, ServiceRange, Wait};
use polyrail_sys::clock::monotonic_ns;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// Packets that a node has sent by each of its links to the other one, and whether the link is up.
fn packets(node: &Node, medium: &str) -> (u64, bool) {
    let links = node.status().links;
    let of = links.iter().filter(|link| link.bearer.starts_with(medium));
    let sums = of.map(|link| (link.packets.0, link.state == "up"));
    sums.fold((0, false), |(all, any), (sent, up)| (all + sent, any | up))
}

fn pair(wait: Wait, shares: [bool; 2]) -> [Node; 2] {
    let node =
        |shares: bool, peers: &[String]| local::node(Config::new().wait(wait).shared_memory(shares), peers);
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

#[test]
fn what_two_nodes_of_one_machine_say_to_each_other_does_not_go_by_its_network() {
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let nodes = pair(wait, [true, true]);
        let (client, server) = ports(&nodes);
        let until = monotonic_ns() + PATIENCE.as_nanos() as u64;
        while !nodes.iter().all(|node| packets(node, "shm").1) {
            assert!(monotonic_ns() < until, "it never comes up: {:#?}", nodes[0].status().links);
            ask(&client, &server, b"more");
        }
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
    assert!(packets(&nodes[0], "shm").0 > 0);
}
