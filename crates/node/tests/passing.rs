//! Buffers that programs of one machine pass to each other past their node instead of copying them: what is read is what was sent,
//! whoever keeps it for however long, is killed, or outlives its node.

mod processes;

use polyrail::{Config, Connect, Connection, Destination, Node, Port, Scope, SendError, ServiceAddress};
use processes::{Door, Other, PATIENCE, ready, role, until};
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
const LENGTHS: [usize; 9] = [8, 100, 2_049, 20_000, 65_536, 1 << 20, (1 << 20) + 1, 3 << 20, 10 << 20];

#[test]
fn a_role() {
    let Some((role, path)) = role() else { return };
    match &role[..] {
        "host" => host(&path),
        "lender" => lender(&path),
        "keeper" => keeper(&path),
        "hoarder" => hoarder(&path),
        other => panic!("{other}"),
    }
}

/// Runs a node until it is killed.
fn host(path: &Path) {
    let _node = embed(path);
    ready();
    std::thread::sleep(PATIENCE);
}

/// Passes buffers by a connection, as long as they are taken: such as fit the window when they are copied, so that none is there in part.
fn lender(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    let connection = port.connect(SERVICE).unwrap();
    ready();
    for number in 0u64.. {
        connection
            .send_buffer(filled(&port, if number % 2 == 0 { 20_000 } else { 150_000 }, number))
            .unwrap();
    }
}

/// Keeps what it is sent by connections.
fn keeper(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = listening(&node);
    ready();
    let mut accepted: Vec<Connection<&Port>> = Vec::new();
    loop {
        accepted.extend(port.accept_timeout(Duration::from_millis(1)));
        // Taken in, and never read.
        for connection in &accepted {
            let _ = connection.recv_arrived().map(std::mem::forget);
        }
    }
}

/// Takes the ways to it, and reads nothing that came by them.
fn hoarder(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    ready();
    std::thread::sleep(PATIENCE);
}

fn embed(path: &Path) -> Node {
    let config = Config::new().insecure().interfaces(["lo"]).discovery(false);
    Node::embed(config.attach(path)).unwrap()
}

fn listening(node: &Node) -> Port {
    let port = node.port().unwrap();
    port.listen(8).unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    port
}

/// A buffer that says which it is, and is full of that.
fn filled(port: &Port, len: usize, number: u64) -> polyrail::Buffer {
    let mut buffer = port.alloc(len).unwrap();
    buffer.fill(number as u8);
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    buffer
}

/// Whether bytes are those of [`filled`].
fn assert_is(bytes: &[u8], len: usize, number: u64) {
    assert_eq!((bytes.len(), &bytes[..8]), (len, &number.to_le_bytes()[..]));
    assert!(bytes[8..].iter().all(|&byte| byte == number as u8), "{number}");
}

/// Two programs of one node, a connection between them, and the other end of it.
fn joined<'a>(client: &'a Port, server: &'a Port, how: Connect<'_>) -> [Connection<&'a Port>; 2] {
    client.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let first = Connect { first: Some(b"?"), accepted_within: None, ..how };
    while client.sent_direct() == 0 {
        drop(client.connect_with(SERVICE, &first).unwrap());
        drop(server.accept_timeout(PATIENCE).unwrap());
    }
    let asking = client.connect_with(SERVICE, &first).unwrap();
    let answering = server.accept_timeout(PATIENCE).unwrap();
    let mut first = [0; 1];
    assert_eq!(answering.read(&mut first).unwrap(), 1);
    [asking, answering]
}

#[test]
fn connections_bring_buffers_of_any_length_as_they_were_written() {
    let door = Door::new("passing-lengths");
    let _node = embed(&door.0);
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let (client, server) = (programs[0].port().unwrap(), listening(&programs[1]));
    let ends = joined(&client, &server, Connect::default());
    let mut number = 0;
    for len in LENGTHS.repeat(3) {
        for (from, to, port) in [(&ends[0], &ends[1], &client), (&ends[1], &ends[0], &server)] {
            from.send_buffer(filled(port, len, number)).unwrap();
            let message = to.recv_timeout(PATIENCE).unwrap().unwrap();
            assert_is(message.bytes(), len, number);
            number += 1;
            // What does not fit the window goes in pieces, for which somebody has to read at the same time.
            if (65_537..=1 << 20).contains(&len) {
                continue;
            }
            // What is longer is copied to where it is passed from.
            let copied = filled(port, len, number);
            from.send(&copied).unwrap();
            drop(message);
            assert_is(to.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), len, number);
            number += 1;
        }
    }
    let last = filled(&client, 3 << 20, number);
    ends[0].send_last(&last).unwrap();
    assert_is(ends[1].recv_timeout(PATIENCE).unwrap().unwrap().bytes(), 3 << 20, number);
    assert!(ends[1].recv_timeout(PATIENCE).unwrap().is_none(), "that was the last");
}

#[test]
fn of_a_stream_buffers_are_read_in_other_pieces_than_they_were_passed() {
    let door = Door::new("passing-streams");
    let _node = embed(&door.0);
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let (client, server) = (programs[0].port().unwrap(), listening(&programs[1]));
    let [mut asking, answering] = joined(&client, &server, Connect { stream: true, ..Connect::default() });
    let mut bytes = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let buffer = filled(&client, len, number as u64);
        bytes.extend_from_slice(&buffer);
        asking.send_buffer(buffer).unwrap();
        asking.write_all(b"written between two").unwrap();
        bytes.extend_from_slice(b"written between two");
    }
    let (mut read, mut piece) = (Vec::new(), vec![0; 70_001]);
    while read.len() < bytes.len() {
        let len = 1 + read.len() % piece.len();
        let taken = answering.read(&mut piece[..len]).unwrap();
        read.extend_from_slice(&piece[..taken]);
    }
    assert!(read == bytes);
}

#[test]
fn what_is_kept_of_a_connection_is_not_written_again() {
    let door = Door::new("passing-kept");
    let _node = embed(&door.0);
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let (client, server) = (programs[0].port().unwrap(), listening(&programs[1]));
    let ends = joined(&client, &server, Connect::default());
    let mut kept = VecDeque::new();
    for number in 0..400u64 {
        // At last more than are passed at a time: others are copied.
        let kept_max = if number < 200 { 20 } else { 50 };
        let len = if kept_max == 20 && number % 10 == 0 { (1 << 20) + 1 } else { 10_000 };
        ends[0].send_buffer(filled(&client, len, number)).unwrap();
        kept.push_back((number, len, ends[1].recv_timeout(PATIENCE).unwrap().unwrap()));
        if kept.len() > kept_max {
            let (number, len, message) = kept.remove(number as usize % kept_max).unwrap();
            assert_is(message.bytes(), len, number);
        }
    }
    kept.iter().for_each(|(number, len, message)| assert_is(message.bytes(), *len, *number));
}

#[test]
fn a_port_passes_messages_and_connections_buffers_at_the_same_time() {
    let door = Door::new("passing-both");
    let _node = embed(&door.0);
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let (client, server) = (programs[0].port().unwrap(), listening(&programs[1]));
    let [asking, answering] = joined(&client, &server, Connect::default());
    for number in 0..600u64 {
        let len = [3_000, 50_000, 2 << 20][number as usize % 3];
        asking.send_buffer(filled(&client, len, number)).unwrap();
        client.send_buffer(SERVICE, filled(&client, len, number + 1)).unwrap();
        assert_is(server.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), len, number + 1);
        assert_is(answering.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), len, number);
    }
}

#[test]
fn what_a_killed_program_passed_by_a_connection_is_read_to_the_end() {
    let door = Door::new("passing-lender");
    let _node = embed(&door.0);
    let own = Node::attach(&door.0).unwrap();
    let port = listening(&own);
    let started = std::thread::spawn({
        let path = door.0.clone();
        move || Other::start("lender", &path)
    });
    let connection = port.accept_timeout(PATIENCE).unwrap();
    let mut numbers = 0u64..;
    let mut is_next = |message: polyrail::Message<'_>| {
        let number = numbers.next().unwrap();
        assert_is(message.bytes(), if number % 2 == 0 { 20_000 } else { 150_000 }, number);
        number
    };
    while is_next(connection.recv_timeout(PATIENCE).unwrap().unwrap()) < 200 {}
    let mut lender = started.join().unwrap();
    // Most likely it has passed all that it can by then.
    std::thread::sleep(Duration::from_millis(100));
    lender.kill();
    let mut last = 200;
    while let Ok(Some(message)) = connection.recv_timeout(PATIENCE) {
        last = is_next(message);
    }
    assert!(last > 200, "nothing was there");
}

#[test]
fn what_a_killed_receiver_had_is_used_no_more_and_memory_is_there_again() {
    let door = Door::new("passing-keeper");
    let _node = embed(&door.0);
    // Of its buffers each keeper takes more than half.
    let config = Config::new().message_bytes_max(64 << 20);
    let own = Node::attach_with(&door.0, config).unwrap();
    for _ in 0..6 {
        let mut keeper = Other::start("keeper", &door.0);
        let port = own.port().unwrap();
        port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
        let connection = port.connect(SERVICE).unwrap();
        for number in 0..30 {
            connection.send_buffer(filled(&port, 4 << 20, number)).unwrap();
        }
        keeper.kill();
        until("it is told", || connection.send(b"?").is_err());
        let failed = connection.send_buffer(filled(&port, 4 << 20, 30));
        assert!(matches!(failed, Err(SendError::Disconnected(_))), "{failed:?}");
    }
}

#[test]
fn connections_pass_buffers_past_a_node_that_was_killed() {
    let door = Door::new("passing-orphans");
    let mut host = Other::start("host", &door.0);
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let (client, server) = (programs[0].port().unwrap(), listening(&programs[1]));
    let [asking, answering] = joined(&client, &server, Connect::default());
    for (number, len) in LENGTHS.repeat(6).into_iter().enumerate() {
        if number == 20 {
            host.kill();
        }
        asking.send_buffer(filled(&client, len, number as u64)).unwrap();
        let message = answering.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_is(message.bytes(), len, number as u64);
    }
    until("it is told", || client.has_lost_node());
    assert_eq!(
        client.send_buffer(Destination::Service(ServiceAddress::new(7, 7)), filled(&client, 3_000, 0)),
        Err(SendError::Closed)
    );
}

// ----- one buffer for several --------------------------------------------------------------------------------

/// Which file of the machine's bytes are in.
fn file_of(bytes: &[u8]) -> String {
    let at = bytes.as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &&str| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
        (from..to).contains(&at)
    };
    maps.lines().find(holds).unwrap().split_whitespace().nth(4).unwrap().to_owned()
}

/// Ports of other programs, to each of which messages of `sender` go past the node.
fn receivers(programs: &[Node], sender: &Port) -> Vec<Port> {
    let ports: Vec<Port> = programs.iter().map(|program| program.port().unwrap()).collect();
    for port in &ports {
        let direct = sender.sent_direct();
        until("a ring is there", || {
            sender.send(port.address(), b"?").unwrap();
            port.recv_timeout(PATIENCE).unwrap().unwrap();
            sender.sent_direct() > direct
        });
    }
    ports
}

fn all_sent(sent: Vec<Result<(), SendError>>) {
    sent.into_iter().for_each(|sent| sent.unwrap());
}

#[test]
fn several_programs_read_one_buffer_where_it_lies_and_it_is_free_when_all_let_it_go() {
    let door = Door::new("passing-several");
    let _node = embed(&door.0);
    let own = Node::attach(&door.0).unwrap();
    let sender = own.port().unwrap();
    let programs = [(); 5].map(|()| Node::attach(&door.0).unwrap());
    let ports = receivers(&programs, &sender);
    let to: Vec<Destination> = ports.iter().map(|port| port.address().into()).collect();
    let mut kept = VecDeque::new();
    for number in 0..200u64 {
        let len = [100, 2_049, 60_000, 1 << 20, 5 << 20][number as usize % 5];
        let direct = sender.sent_direct();
        all_sent(sender.send_buffer_to_each(&to, filled(&sender, len, number)));
        assert_eq!(sender.sent_direct() - direct, 5);
        let messages: Vec<_> =
            ports.iter().map(|port| port.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
        let files: BTreeSet<_> = messages.iter().map(|one| file_of(one.bytes())).collect();
        // What is short is in no file.
        assert_eq!(files.len() == 1 && !files.contains("0"), len > 2_048, "{len} bytes in {files:?}");
        kept.extend(messages.into_iter().map(|message| (number, len, message)));
        // They let go in any order, and others are sent meanwhile.
        while kept.len() > 30 {
            let (number, len, message) = kept.remove(number as usize * 7 % 30).unwrap();
            assert_is(message.bytes(), len, number);
        }
    }
    kept.iter().for_each(|(number, len, message)| assert_is(message.bytes(), *len, *number));
}

#[test]
fn who_is_reached_in_another_way_gets_a_copy() {
    let door = Door::new("passing-others");
    let node = embed(&door.0);
    let own = Node::attach(&door.0).unwrap();
    let sender = own.port().unwrap();
    let programs = [(); 2].map(|()| Node::attach(&door.0).unwrap());
    let mut ports = receivers(&programs, &sender);
    // Of the node's own program, and one that nothing was sent to.
    ports.extend([node.port().unwrap(), programs[0].port().unwrap()]);
    let mut to: Vec<Destination> = ports.iter().map(|port| port.address().into()).collect();
    // The first is to have it twice.
    to.push(to[0]);
    for (number, len) in [8, 5_000, 100_000, 3 << 20].repeat(5).into_iter().enumerate() {
        all_sent(sender.send_buffer_to_each(&to, filled(&sender, len, number as u64)));
        for port in ports.iter().chain([&ports[0]]) {
            assert_is(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), len, number as u64);
        }
    }
    // An embedded node copies for each.
    let embedded = node.port().unwrap();
    all_sent(embedded.send_buffer_to_each(&to[..4], filled(&embedded, 100_000, 7)));
    ports
        .iter()
        .for_each(|port| assert_is(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), 100_000, 7));
    let nobody = sender.send_buffer_to_each(&[SERVICE.into(), to[0]], filled(&sender, 5_000, 8));
    assert!(matches!(nobody[..], [Err(SendError::NoService { .. }), Ok(())]), "{nobody:?}");
    assert_is(ports[0].recv_timeout(PATIENCE).unwrap().unwrap().bytes(), 5_000, 8);
}

#[test]
fn of_several_one_that_is_killed_spoils_nothing_for_the_others() {
    let door = Door::new("passing-one-killed");
    let node = embed(&door.0);
    let own = Node::attach(&door.0).unwrap();
    let (sender, reader) = (own.port().unwrap(), Node::attach(&door.0).unwrap());
    let port = receivers(std::slice::from_ref(&reader), &sender).remove(0);
    for _ in 0..4 {
        let mut hoarder = Other::start("hoarder", &door.0);
        sender.wait_for(SERVICE, Some(PATIENCE)).unwrap();
        let direct = sender.sent_direct();
        until("it has a ring", || {
            sender.send(SERVICE, b"?").unwrap();
            sender.sent_direct() > direct
        });
        let to = [port.address().into(), SERVICE.into()];
        for number in 0..20 {
            all_sent(sender.send_buffer_to_each(&to, filled(&sender, 2 << 20, number)));
        }
        let first = port.recv_timeout(PATIENCE).unwrap().unwrap();
        hoarder.kill();
        until("its name is gone", || node.status().services.is_empty());
        // What it had is used for nothing else as long as somebody reads it.
        drop((0..20).map(|_| filled(&sender, 2 << 20, 255)).collect::<Vec<_>>());
        assert_is(first.bytes(), 2 << 20, 0);
        drop(first);
        (1..20).for_each(|number| {
            assert_is(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), 2 << 20, number)
        });
    }
}
