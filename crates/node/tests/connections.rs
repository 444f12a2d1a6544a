//! Connections between two nodes, and inside one: how they begin, what they carry, how they end.

mod local;

use local::{PATIENCE, address, node};
use polyrail::{
    Class, Config, Connect, Connection, ConnectionError, Disconnect, Node, Port, Scope, SendError,
    ServiceAddress,
};
use std::io::{Read, Write};
use std::ops::Deref;
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// A port that listens as [`SERVICE`] on one node, and a port that knows of it on another.
fn two_nodes() -> ([Node; 2], Port, Port) {
    let server = node(Config::new(), &[]);
    let client = node(Config::new(), &[address(&server)]);
    let ports = (listening(&server, 128), client.port().unwrap());
    ports.1.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    go_past(&ports.0, &ports.1);
    ([server, client], ports.0, ports.1)
}

fn listening(node: &Node, backlog: u32) -> Port {
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Cluster).unwrap();
    port.listen(backlog).unwrap();
    port
}

/// Has connections from `client` go past the engine from now on, where they can.
fn go_past(server: &Port, client: &Port) {
    let question = Connect { first: Some(b"?"), last: true, accepted_within: None, ..Connect::default() };
    while local::are_of_one_machine() && client.sent_direct() == 0 {
        drop(joined(server, client, &question));
    }
}

/// Both ends of a connection.
fn joined<'a>(
    server: &'a Port,
    client: &'a Port,
    how: &Connect<'_>,
) -> (Connection<&'a Port>, Connection<&'a Port>) {
    let at_once = Connect { accepted_within: None, ..*how };
    let asking = client.connect_with(SERVICE, &at_once).unwrap();
    let answering = server.accept_timeout(PATIENCE).unwrap();
    (answering, asking)
}

fn recv<P: Deref<Target = Port>>(connection: &Connection<P>) -> Option<Vec<u8>> {
    connection.recv_timeout(PATIENCE).unwrap().map(|message| message.to_vec())
}

fn over(connection: &Connection<&Port>) -> Disconnect {
    match connection.recv_timeout(PATIENCE) {
        Err(ConnectionError::Disconnected(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Drives both nodes until `is_so`.
fn until(ports: [&Port; 2], mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if is_so() {
            return;
        }
        for port in ports {
            assert!(port.try_recv().unwrap().is_none());
        }
    }
    panic!("it is never so");
}

fn connections_of(node: &Node) -> usize {
    node.status().peers.iter().map(|peer| peer.connections).sum()
}

#[test]
fn messages_go_both_ways_in_order_and_then_both_ends_are_forgotten() {
    let (nodes, server, client) = two_nodes();
    let (answering, asking) =
        joined(&server, &client, &Connect { class: Class::Urgent, ..Connect::default() });
    assert_eq!((answering.peer(), answering.service()), (client.address(), Some(SERVICE)));
    assert_eq!((asking.peer(), answering.class()), (server.address(), Class::Urgent));
    for n in 0..500_u32 {
        asking.send(&n.to_le_bytes()).unwrap();
        answering.send(&(n + 1).to_le_bytes()).unwrap();
    }
    for n in 0..500_u32 {
        assert_eq!(recv(&answering).unwrap(), n.to_le_bytes());
        assert_eq!(recv(&asking).unwrap(), (n + 1).to_le_bytes());
    }
    asking.finish();
    assert_eq!(recv(&answering), None, "the end comes after the last message");
    answering.send_last(b"goodbye").unwrap();
    assert_eq!(recv(&asking).as_deref(), Some(&b"goodbye"[..]), "half of it goes on");
    assert_eq!((recv(&asking), recv(&asking)), (None, None), "and stays ended");
    drop((answering, asking));
    until([&server, &client], || nodes.iter().all(|node| connections_of(node) == 0));
}

#[test]
fn a_question_and_its_answer_take_a_connection_of_their_own_each() {
    let (nodes, server, client) = two_nodes();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2_000 {
                let answering = server.accept_timeout(PATIENCE).unwrap();
                let question = recv(&answering).unwrap();
                answering.send_last(&question).unwrap();
            }
            server.flush(Some(PATIENCE)).unwrap();
        });
        for n in 0..2_000_u32 {
            let asking = client.ask(SERVICE, &n.to_le_bytes()).unwrap();
            assert_eq!(recv(&asking).unwrap(), n.to_le_bytes());
            assert_eq!(recv(&asking), None);
        }
    });
    assert_eq!(connections_of(&nodes[1]), 0, "nothing is left of 2,000");
}

#[test]
fn a_stream_is_read_in_other_pieces_than_it_was_written() {
    let (nodes, server, _client) = two_nodes();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 + n / 253) as u8).collect();
    let expected = bytes.clone();
    let nodes = &nodes;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut asking =
                nodes[1].connect(SERVICE, &Connect { stream: true, ..Connect::default() }).unwrap();
            let (mut rest, mut size) = (&bytes[..], 1);
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at(size.min(rest.len()));
                asking.write_all(piece).unwrap();
                size = (size * 3 + 1) % 200_000 + 1;
            }
            asking.finish();
            assert_eq!(recv(&asking).as_deref(), Some(&b"thanks"[..]));
        });
        let mut answering = server.accept_timeout(PATIENCE).unwrap();
        assert!(answering.is_stream());
        let mut got = vec![0; 1_000];
        Connection::read_exact(&answering, &mut got).unwrap();
        answering.read_to_end(&mut got).unwrap();
        assert!(got == expected, "{} bytes of {}", got.len(), expected.len());
        assert_eq!(Connection::read_exact(&answering, &mut [0]), Err(ConnectionError::Ended));
        answering.send(b"thanks").unwrap();
        server.flush(Some(PATIENCE)).unwrap();
    });
}

/// Numbers that look random, always the same ones.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn whatever_is_read_at_a_time_each_byte_is_read_once() {
    const BYTES: usize = 24 << 20;
    let (nodes, server, _client) = two_nodes();
    let pattern = |from: usize, len: usize| -> Vec<u8> {
        (from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
    };
    let nodes = &nodes;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut asking =
                nodes[1].connect(SERVICE, &Connect { stream: true, ..Connect::default() }).unwrap();
            let (mut below, mut at) = (numbers(1), 0);
            while at < BYTES {
                let most = [100, 5_000, 70_000, 3 << 20][below(4)];
                let piece = pattern(at, (below(most) + 1).min(BYTES - at));
                asking.write_all(&piece).unwrap();
                at += piece.len();
            }
            asking.finish();
            assert_eq!(recv(&asking).as_deref(), Some(&b"thanks"[..]));
        });
        let answering = server.accept_timeout(PATIENCE).unwrap();
        let (mut below, mut at, mut room) = (numbers(2), 0, vec![0; 1 << 20]);
        loop {
            let most = [10, 3_000, 65_536, 1 << 20][below(4)];
            let here = match below(8) {
                // Also as what is left of a message.
                0 => recv(&answering).unwrap_or_default(),
                1 => {
                    let read = answering.read_timeout(&mut room[..most], Duration::from_micros(50));
                    match read {
                        Err(ConnectionError::TimedOut) => continue,
                        read => room[..read.unwrap()].to_vec(),
                    }
                }
                _ => {
                    let len = answering.read_timeout(&mut room[..below(most) + 1], PATIENCE).unwrap();
                    room[..len].to_vec()
                }
            };
            if here.is_empty() {
                break;
            }
            assert!(here == pattern(at, here.len()), "{} bytes after {at}", here.len());
            at += here.len();
        }
        assert_eq!(at, BYTES);
        answering.send(b"thanks").unwrap();
        server.flush(Some(PATIENCE)).unwrap();
    });
}

#[test]
fn a_message_of_which_all_was_read_is_not_received_once_more() {
    const LEN: usize = 3 << 20;
    let (_nodes, server, client) = two_nodes();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let asking = client.connect_stream(SERVICE).unwrap();
            for round in 0..20_u8 {
                asking.send(&vec![round; LEN]).unwrap();
                assert_eq!(recv(&asking).as_deref(), Some(&b"got it"[..]));
                asking.send(&[round, round]).unwrap();
                assert_eq!(recv(&asking).as_deref(), Some(&b"next"[..]));
            }
        });
        let answering = server.accept_timeout(PATIENCE).unwrap();
        let mut got = vec![0; LEN];
        for round in 0..20_u8 {
            got.chunks_mut(65_536).for_each(|piece| Connection::read_exact(&answering, piece).unwrap());
            assert!(got.iter().all(|byte| *byte == round));
            answering.send(b"got it").unwrap();
            assert_eq!(recv(&answering), Some(vec![round, round]));
            answering.send(b"next").unwrap();
        }
        server.flush(Some(PATIENCE)).unwrap();
    });
}

const SIZES: [usize; 8] = [0, 1, 1_400, 65_536, 65_537, 1 << 20, 9 << 20, 3];

#[test]
fn messages_of_all_sizes_go_by_a_connection() {
    let (_nodes, server, client) = two_nodes();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let asking = client.connect(SERVICE).unwrap();
            for size in SIZES {
                asking.send(&vec![size as u8; size]).unwrap();
            }
            assert_eq!(recv(&asking), None);
        });
        let answering = server.accept_timeout(PATIENCE).unwrap();
        for size in SIZES {
            let got = recv(&answering).unwrap();
            assert!(got.len() == size && got.iter().all(|byte| *byte == size as u8), "{size}: {}", got.len());
        }
    });
}

#[test]
fn who_does_not_read_holds_up_nobody_else() {
    let (_nodes, server, client) = two_nodes();
    let (_unread, filling) = joined(&server, &client, &Connect::default());
    let (answering, asking) = joined(&server, &client, &Connect::default());
    let message = vec![7; 60_000];
    // Until nothing moves any more, because the receiver's application does not want it.
    let mut unwanted = 0;
    while filling.send_timeout(&message, Some(Duration::from_millis(100))).is_ok() {
        unwanted += 1;
    }
    assert!((4..40).contains(&unwanted), "as many as fit its window: {unwanted}");
    // What waits for a reader takes no memory from what others may send.
    let small = b"small";
    let mut asked = 0;
    while asked < 100 {
        asking.send(small).unwrap();
        assert_eq!(recv(&answering).as_deref(), Some(&small[..]));
        asked += 1;
    }
}

#[test]
fn nobody_there_is_told_at_once_each_in_its_way() {
    let (nodes, server, client) = two_nodes();
    let nowhere = ServiceAddress::new(1000, 2);
    assert!(matches!(client.connect(nowhere), Err(ConnectionError::NoService { .. })));
    let deaf = nodes[0].port().unwrap();
    let refused = client.connect(deaf.address()).unwrap_err();
    assert_eq!(refused, ConnectionError::Disconnected(Disconnect::NobodyListens));
    let gone = deaf.address();
    drop(deaf);
    assert_eq!(client.connect(gone).unwrap_err(), ConnectionError::Disconnected(Disconnect::NobodyListens));
    let nobody = polyrail::PortAddress { node: polyrail::NodeId(77), ..gone };
    assert!(matches!(client.connect(nobody), Err(ConnectionError::NoNode(_))));
    // A question is asked without waiting: its connection tells.
    let asking = client.ask(gone, b"anybody?").unwrap();
    assert_eq!(over(&asking), Disconnect::NobodyListens);
    assert_eq!(asking.send(b"?"), Err(SendError::Disconnected(Disconnect::NobodyListens)));
    drop((asking, server));
}

#[test]
fn a_full_backlog_refuses_and_accepting_makes_room() {
    let node = node(Config::new(), &[]);
    let server = listening(&node, 2);
    let client = node.port().unwrap();
    let at_once = Connect { accepted_within: None, ..Connect::default() };
    let ask = || client.connect_with(SERVICE, &at_once).unwrap();
    let backlog = ConnectionError::Disconnected(Disconnect::Backlog);
    let [first, second] = [ask(), ask()];
    assert_eq!(client.connect(SERVICE).unwrap_err(), backlog);
    let accepted = server.accept_timeout(PATIENCE).unwrap();
    // A turn of the helper's that is under way may see what one port wants and not what another has said just before.
    assert!(
        server.recv_timeout(Duration::from_millis(5)).unwrap().is_none(),
        "the engine has heard of it by now"
    );
    let third = ask();
    assert_eq!(client.connect(SERVICE).unwrap_err(), backlog, "one was accepted, one has come");
    for (asking, answering) in
        [(first, accepted), (second, server.accept().unwrap()), (third, server.accept().unwrap())]
    {
        asking.send(&asking.id().end.connection_number().to_le_bytes()).unwrap();
        let heard = recv(&answering).unwrap();
        assert_eq!(
            heard,
            answering.id().end.connection_number().to_le_bytes(),
            "in the order in which they came"
        );
    }
}

#[test]
fn who_comes_and_goes_takes_no_more_than_the_backlog() {
    let (nodes, server, client) = two_nodes();
    server.listen(4).unwrap();
    let at_once = Connect { accepted_within: None, first: Some(b"knock"), ..Connect::default() };
    for _ in 0..1_000 {
        drop(client.connect_with(SERVICE, &at_once).unwrap());
    }
    until([&server, &client], || connections_of(&nodes[1]) == 0);
    let mut waited = 0;
    while let Ok(gone) = server.accept_timeout(Duration::ZERO) {
        waited += 1;
        assert_eq!(recv(&gone).as_deref(), Some(&b"knock"[..]));
        assert_eq!(recv(&gone), None);
    }
    assert_eq!(waited, 4);
    let (answering, asking) = joined(&server, &client, &Connect::default());
    asking.send(b"there is room again").unwrap();
    assert!(recv(&answering).is_some());
}

#[test]
fn who_drops_a_connection_tells_the_other_side() {
    let (nodes, server, client) = two_nodes();
    let (answering, asking) = joined(&server, &client, &Connect::default());
    asking.send(b"unread").unwrap();
    answering.send(b"the last").unwrap();
    drop(answering);
    assert_eq!(recv(&asking).as_deref(), Some(&b"the last"[..]), "what was sent before is delivered");
    assert_eq!(recv(&asking), None);
    let refused = loop {
        if let Err(error) = asking.send(b"?") {
            break error;
        }
    };
    assert_eq!(refused, SendError::Disconnected(Disconnect::Deaf));
    drop(asking);
    until([&server, &client], || nodes.iter().all(|node| connections_of(node) == 0));
}

#[test]
fn a_port_that_closes_ends_its_connections_in_order() {
    let (nodes, server, client) = two_nodes();
    let other = nodes[1].port().unwrap();
    {
        let (_answering, asking) = joined(&server, &client, &Connect::default());
        asking.send(b"from a port that closes").unwrap();
        // Neither end is dropped by its owner: the port takes all of them along.
        std::mem::forget(asking);
    }
    drop(client);
    until([&server, &other], || nodes.iter().all(|node| connections_of(node) == 0));
}

#[test]
fn a_lost_node_is_told_to_everyone_who_was_connected_with_it() {
    // Ports of a process that lets go of its node close before that one ends.
    if local::are_attached() {
        return;
    }
    let (nodes, server, client) = two_nodes();
    let (answering, asking) = joined(&server, &client, &Connect::default());
    answering.send(b"before").unwrap();
    assert_eq!(recv(&asking).as_deref(), Some(&b"before"[..]));
    let [first, _second] = nodes;
    // Only the node goes; its port and its end of the connection are still held by somebody.
    drop(first);
    assert_eq!(over(&asking), Disconnect::NodeLost);
    assert_eq!(asking.send(b"?"), Err(SendError::Disconnected(Disconnect::NodeLost)));
}

#[test]
fn both_ends_may_be_of_one_node_and_even_of_one_port() {
    let node = node(Config::new(), &[]);
    let server = listening(&node, 8);
    let client = node.port().unwrap();
    for client in [&client, &server] {
        let (answering, asking) = joined(&server, client, &Connect::default());
        asking.send(b"to myself").unwrap();
        answering.send(b"and back").unwrap();
        assert_eq!(recv(&answering).as_deref(), Some(&b"to myself"[..]));
        assert_eq!(recv(&asking).as_deref(), Some(&b"and back"[..]));
    }
}

#[test]
fn a_server_is_told_of_which_connection_there_is_something_to_read() {
    let (_nodes, server, client) = two_nodes();
    let pairs: Vec<_> = (0..20).map(|_| joined(&server, &client, &Connect::default())).collect();
    assert_eq!(server.next_readable(Some(Duration::ZERO)), None);
    for at in [3, 17, 8] {
        pairs[at].1.send(&[at as u8]).unwrap();
        let readable = server.next_readable(Some(PATIENCE)).unwrap();
        assert_eq!(readable, pairs[at].0.id());
        assert_eq!(recv(&pairs[at].0), Some(vec![at as u8]));
    }
    pairs[5].1.finish();
    assert_eq!(server.next_readable(Some(PATIENCE)), Some(pairs[5].0.id()), "an end is something, too");
    assert_eq!(recv(&pairs[5].0), None);
}

/// Byte `at` of the stream that the tests write.
fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 16) as u8
}

/// Reads `bytes` bytes of that stream.
fn read_all<P: Deref<Target = Port>>(connection: &Connection<P>, bytes: usize) {
    let (mut at, mut room) = (0, vec![0; 100_000]);
    while at < bytes {
        let read = connection.read_timeout(&mut room, PATIENCE).unwrap();
        assert!(read > 0, "it ends after {at} bytes");
        let wrong = room[..read].iter().enumerate().find(|(i, b)| **b != byte(at + i));
        assert_eq!(wrong, None, "byte {at} and on");
        at += read;
    }
    assert_eq!(at, bytes, "no more came than was written");
}

#[test]
fn what_a_busy_writer_writes_arrives_as_it_was_and_also_if_it_goes_silent() {
    let (nodes, server, _client) = two_nodes();
    let sizes = [65_536, 65_536, 4_096, 262_144, 100_000, 65_535, 17, 65_536, 300_000, 5_000];
    let rounds = 40;
    let total = rounds * sizes.iter().sum::<usize>();
    let written: Vec<u8> = (0..total).map(byte).collect();
    let all_read = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let streaming = Connect { stream: true, ..Connect::default() };
            let asking = nodes[1].connect(SERVICE, &streaming).unwrap();
            let mut rest = &written[..];
            for size in sizes.iter().cycle().take(rounds * sizes.len()) {
                let (now, later) = rest.split_at(*size);
                asking.send(now).unwrap();
                rest = later;
            }
            // From now on nobody calls the port that has written.
            all_read.wait();
        });
        let answering = server.accept_timeout(PATIENCE).unwrap();
        read_all(&answering, total);
        all_read.wait();
        assert_eq!(answering.read_timeout(&mut [0; 9], PATIENCE).unwrap_or(0), 0, "nothing comes behind it");
    });
}
