//! Nodes and programs in processes of their own: what becomes of the others when one is killed, and what a program can do to its
//! node that does not mean well.

mod processes;

use polyrail::{
    Class, Config, Connect, ConnectionError, Destination, Disconnect, ErrorCode, Node, NodeEvent, Port,
    PortAddress, RecvError, Scope, SendError, SendOptions, ServiceAddress, StartError, Wait,
};
use polyrail_shm::Segment;
use polyrail_sys::membarrier;
use polyrail_sys::unix::{Packet, Place, UnixSocket};
use processes::{Door, Other, PATIENCE, ready, role, until};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

#[test]
fn a_role() {
    let Some((role, path)) = role() else { return };
    match &role[..] {
        "host" => host(&path),
        "server" => server(&path),
        "hoarder" => hoarder(&path),
        "talker" => talker(&path),
        "lender" => lender(&path),
        "busy" => busy(&path),
        "newcomer" => newcomer(&path),
        other => panic!("{other}"),
    }
}

/// Runs a node until it is killed.
fn host(path: &Path) {
    let _node = embed(path);
    ready();
    std::thread::sleep(PATIENCE);
}

/// Answers what it is sent, until it is killed.
fn server(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    ready();
    loop {
        let message = port.recv().unwrap();
        port.send(message.from(), message.bytes()).unwrap();
    }
}

/// Takes what it is sent and never reads it.
fn hoarder(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    ready();
    std::thread::sleep(PATIENCE);
}

/// Answers each question, and says something to all others until it is killed.
fn talker(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    port.listen(8).unwrap();
    ready();
    let mut held = Vec::new();
    loop {
        let answering = port.accept().unwrap();
        answering.send(b"I listen").unwrap();
        held.push(answering);
    }
}

/// Passes buffers to who serves, as long as that one gives them back.
fn lender(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    ready();
    for number in 0u64.. {
        pass(&port, SERVICE, if number % 2 == 0 { 20_000 } else { 2 << 20 }, number);
    }
}

/// Sends a buffer that is full of its number.
fn pass(port: &Port, to: impl Into<Destination>, len: usize, number: u64) {
    let mut buffer = port.alloc(len).unwrap();
    buffer.fill(number as u8);
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    port.send_buffer(to, buffer).unwrap();
}

/// Attaches, and tells whether fences of others reach it before it has talked to anybody.
fn newcomer(path: &Path) {
    let _node = Node::attach(path).unwrap();
    let has_part = membarrier::has_part();
    ready();
    processes::say(&format!("part {has_part:?}"));
}

/// Does all that a program can do, as fast as it can.
fn busy(path: &Path) {
    ready();
    let node = Node::attach(path).unwrap();
    for round in 0u32.. {
        let ports = [node.port().unwrap(), node.port().unwrap()];
        ports[0].bind(ServiceAddress::new(1001, round), Scope::Node).unwrap();
        ports[1].listen(4).unwrap();
        let to = ports[1].address();
        for bytes in [10, 1_000, 100_000, 9 << 20] {
            ports[0].send(to, &vec![7; bytes]).unwrap();
        }
        let connection = ports[0].ask(to, b"?").unwrap();
        for _ in 0..4 {
            assert!(ports[1].recv_timeout(PATIENCE).unwrap().is_some());
        }
        drop(connection);
        // By a ring soon, which is nobody's when the process is gone.
        for number in 0..100u64 {
            ports[0].send(to, &vec![7; if number % 10 == 0 { 50_000 } else { 50 }]).unwrap();
            assert!(ports[1].recv_timeout(PATIENCE).unwrap().is_some());
        }
        for number in 0..20 {
            pass(&ports[0], to, if number % 8 == 0 { 2 << 20 } else { 5_000 }, number);
            assert!(number >= 15 || ports[1].recv_timeout(PATIENCE).unwrap().is_some());
        }
        converse(&ports, to);
        let back = SendOptions { returns: true, ..SendOptions::default() };
        ports[0].send_as(to, b"unread", &back).unwrap();
    }
}

/// Connections that go past the engine, with messages of all kinds, some of which nobody has read when they end.
fn converse(ports: &[Port; 2], to: PortAddress) {
    while ports[1].accept_timeout(Duration::ZERO).is_ok() {}
    for round in 0..40usize {
        let first = Connect { first: Some(b"?"), accepted_within: None, ..Connect::default() };
        let asking = ports[0].connect_with(to, &first).unwrap();
        let answering = ports[1].accept_timeout(PATIENCE).unwrap();
        asking.send(&vec![7; [10, 50_000, 200_000][round % 3]]).unwrap();
        for _ in 0..round % 3 {
            assert!(answering.recv_timeout(PATIENCE).unwrap().is_some());
        }
        answering.send_last(b"!").unwrap();
    }
}

fn embed(path: &Path) -> Node {
    let config = Config::new().insecure().interfaces(["lo"]).discovery(false);
    Node::embed(config.attach(path)).unwrap()
}

/// Whether `node` still serves others.
fn goes_on(node: &Node) {
    let (one, other) = (node.port().unwrap(), node.port().unwrap());
    one.send(other.address(), b"still here").unwrap();
    assert_eq!(other.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"still here");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How often this thread has given its core away to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_program_to_which_nothing_comes_seldom_wakes() {
    let door = Door::new("calm");
    let _node = embed(&door.0);
    let guest = Node::attach(&door.0).unwrap();
    let port = guest.port().unwrap();
    port.set_wait(Wait::Block);
    let before = sleeps();
    assert!(port.recv_timeout(Duration::from_secs(2)).unwrap().is_none());
    let woken = sleeps() - before;
    assert!((1..30).contains(&woken), "{woken} times in 2 s");
}

#[test]
fn who_attaches_is_ready_for_rings_before_there_is_any() {
    let door = Door::new("newcomer");
    let _node = embed(&door.0);
    match &Other::start("newcomer", &door.0).hear("part ")[..] {
        "None" => println!("skipped: this kernel does not tell"),
        part => assert_eq!(part, "Some(true)"),
    }
}

#[test]
fn a_killed_program_leaves_no_name_and_what_it_did_not_read_comes_back() {
    let door = Door::new("killed");
    let node = embed(&door.0);
    let port = node.port().unwrap();
    let mut server = Other::start("server", &door.0);
    port.send(SERVICE, b"hello").unwrap();
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"hello");
    server.kill();
    until("its name is gone", || node.status().services.is_empty());
    assert!(matches!(port.send(SERVICE, b"hello"), Err(SendError::NoService { .. })));

    let mut hoarder = Other::start("hoarder", &door.0);
    let back = SendOptions { returns: true, class: Class::Urgent, ..SendOptions::default() };
    port.send_as(SERVICE, b"read me", &back).unwrap();
    assert!(port.wait_returned(Some(Duration::from_millis(20))).is_none(), "it is there");
    hoarder.kill();
    let returned = port.wait_returned(Some(PATIENCE)).expect("it comes back");
    assert_eq!(returned.bytes(), b"read me");
    // It may not have got there.
    assert!(matches!(returned.why(), ErrorCode::ShutDown | ErrorCode::NoPort), "{:?}", returned.why());
    until("nobody is attached", || node.status().attached == 0);
}

#[test]
fn who_was_connected_with_a_killed_program_past_the_node_reads_what_was_said_and_learns_of_its_end() {
    let door = Door::new("talker");
    let _node = embed(&door.0);
    let mut talker = Other::start("talker", &door.0);
    let program = Node::attach(&door.0).unwrap();
    let port = program.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let (asking, other) = (port.connect(SERVICE).unwrap(), port.connect(SERVICE).unwrap());
    other.send(b"by now this goes past the node").unwrap();
    assert!(port.sent_direct() > 0);
    for _ in [&asking, &other] {
        assert!(port.next_readable(Some(PATIENCE)).is_some());
    }
    talker.kill();
    for connection in [&asking, &other] {
        let said = connection.recv_timeout(PATIENCE).unwrap().expect("what was said before");
        assert_eq!(said.bytes(), b"I listen");
        drop(said);
        let why = connection.recv_timeout(PATIENCE).unwrap_err();
        assert_eq!(why, ConnectionError::Disconnected(Disconnect::Aborted));
        assert_eq!(connection.send(b"?"), Err(SendError::Disconnected(Disconnect::Aborted)));
    }
    let gone = port.connect(SERVICE).unwrap_err();
    assert!(matches!(gone, ConnectionError::NoService { .. }), "{gone}");
}

#[test]
fn what_a_killed_program_passed_is_read_to_the_end() {
    let door = Door::new("lender");
    let _node = embed(&door.0);
    let own = Node::attach(&door.0).unwrap();
    let port = own.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    let mut lender = Other::start("lender", &door.0);
    let mut numbers = 0u64..;
    let mut is_next = |message: polyrail::Message<'_>| {
        let (number, bytes) = (numbers.next().unwrap(), message.bytes());
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), number);
        assert!(bytes[8..].iter().all(|&byte| byte == number as u8), "{number}");
        number
    };
    while is_next(port.recv_timeout(PATIENCE).unwrap().unwrap()) < 200 {}
    // It has passed all that it can.
    std::thread::sleep(Duration::from_millis(100));
    lender.kill();
    let mut last = 0;
    while let Some(message) = port.recv_timeout(Duration::from_millis(200)).unwrap() {
        last = is_next(message);
    }
    assert!(last > 230, "only {last} came");
}

#[test]
fn programs_killed_at_any_moment_leave_nothing_behind() {
    let door = Door::new("storm");
    let node = embed(&door.0);
    let before = descriptors();
    // `POLYRAIL_KILLS=10000` for a soak.
    let kills = std::env::var("POLYRAIL_KILLS").map_or(40, |kills| kills.parse().unwrap());
    for round in 0..kills {
        let mut busy = Other::start("busy", &door.0);
        std::thread::sleep(Duration::from_micros(round * round * 7_919 % 40_009));
        assert!(busy.child.try_wait().unwrap().is_none(), "it has ended by itself");
        busy.kill();
    }
    until("all have gone", || node.status().attached == 0 && node.status().services.is_empty());
    // The node's bearer may have opened one by which it watches its sockets.
    until("their descriptors are closed", || descriptors() <= before + 1);
    goes_on(&node);
}

#[test]
fn a_node_that_is_killed_is_told_to_its_programs_and_the_next_takes_its_place() {
    let door = Door::new("host");
    let mut host = Other::start("host", &door.0);
    let node = Node::attach(&door.0).unwrap();
    let (one, other) = (node.port().unwrap(), node.port().unwrap());
    one.send(other.address(), b"before").unwrap();
    one.flush(Some(PATIENCE)).unwrap();
    let waiting = std::thread::scope(|scope| {
        let third = node.port().unwrap();
        let waits = scope.spawn(move || third.recv().map(|message| message.to_vec()));
        host.kill();
        waits.join().unwrap()
    });
    assert_eq!(waiting, Err(RecvError::Closed));
    assert_eq!(other.recv().unwrap().bytes(), b"before", "what had arrived is still read");
    assert!(matches!(other.recv(), Err(RecvError::Closed)));
    let sent = (0..3).find_map(|_| {
        one.flush(Some(Duration::from_millis(100))).ok();
        one.send(other.address(), b"after").err()
    });
    assert_eq!(sent, Some(SendError::Closed));
    match Node::attach(&door.0) {
        Err(StartError::Attach { why, .. }) => assert!(why.contains("start it again"), "{why}"),
        other => panic!("{:?}", other.err()),
    }
    let _next = Other::start("host", &door.0);
    let node = Node::attach(&door.0).unwrap();
    let port = node.port().unwrap();
    port.send(port.address(), b"anew").unwrap();
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"anew");
}

/// A message there and back.
fn question(port: &Port, to: impl Into<Destination>, number: u64) {
    let bytes = vec![number as u8; 8 + number as usize % 3_000];
    port.send(to, &bytes).unwrap();
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().expect("waited in vain").bytes(), bytes);
}

#[test]
fn programs_talk_on_past_a_node_that_was_killed_as_long_as_both_live() {
    let door = Door::new("orphans");
    let mut host = Other::start("host", &door.0);
    let mut server = Other::start("server", &door.0);
    let node = Node::attach(&door.0).unwrap();
    assert!(!node.events().contains(&NodeEvent::NodeEnded));
    let port = node.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    // The answers go past the node by then too.
    until("they talk past the node", || {
        (0..50).for_each(|number| question(&port, SERVICE, number));
        port.sent_direct() > 500
    });
    let direct = port.sent_direct();
    assert!(!port.has_lost_node());

    host.kill();
    for (number, wait) in (0..2_000).zip([Wait::Block, Wait::Adaptive, Wait::Spin].into_iter().cycle()) {
        port.set_wait(wait);
        question(&port, SERVICE, number);
    }
    pass(&port, SERVICE, 3 << 20, 7);
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().len(), 3 << 20);
    assert_eq!(port.sent_direct() - direct, 2_001);
    until("it is told", || port.has_lost_node() && node.events().contains(&NodeEvent::NodeEnded));
    assert!(!node.events().contains(&NodeEvent::NodeEnded), "once");
    // What only a node can do is refused, and costs nothing of the rest.
    let elsewhere = ServiceAddress::new(7, 7);
    assert_eq!(port.send(elsewhere, b"?"), Err(SendError::Closed));
    assert!(port.bind(elsewhere, Scope::Node).is_err());
    assert!(matches!(port.connect(elsewhere), Err(ConnectionError::Closed)));
    assert_eq!(port.recv_timeout(Duration::from_millis(50)).unwrap().map(|message| message.len()), None);
    question(&port, SERVICE, 1);

    // Another node is another world, and does not disturb this one.
    let _next = Other::start("host", &door.0);
    let new_node = Node::attach(&door.0).unwrap();
    let anew = new_node.port().unwrap();
    anew.send(anew.address(), b"anew").unwrap();
    assert_eq!(anew.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"anew");
    question(&port, SERVICE, 2);

    server.kill();
    assert!(matches!(port.recv_timeout(PATIENCE), Err(RecvError::Closed)));
    assert_eq!(port.send(SERVICE, b"?"), Err(SendError::Closed));
}

#[test]
fn a_ring_that_its_receiver_had_not_taken_when_the_node_was_killed_is_told_as_lost() {
    let door = Door::new("untaken");
    let mut host = Other::start("host", &door.0);
    let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
    let (sender, receiver) = (node.port().unwrap(), other.port().unwrap());
    let mut sent = 0u64;
    // Nobody looks at the other port.
    until("they would talk past the node", || {
        sender.send(receiver.address(), &sent.to_le_bytes()).unwrap();
        sent += 1;
        sender.sent_direct() > 10
    });
    let lost = sent - sender.sent_direct();
    host.kill();
    until("it is told", || {
        let _ = sender.recv_timeout(Duration::from_millis(1));
        sender.take_failure() == Some((lost, ErrorCode::NotSent))
    });
    for number in 0..lost {
        let message = receiver.recv_timeout(PATIENCE).unwrap().expect("it was in the node's hands");
        assert_eq!(message.bytes(), number.to_le_bytes());
    }
    assert!(matches!(receiver.recv_timeout(PATIENCE), Err(RecvError::Closed)));
}

#[test]
fn what_went_past_a_node_that_is_killed_at_any_moment_arrives_or_is_told() {
    let rounds = std::env::var("POLYRAIL_KILLS").map_or(30, |kills| kills.parse().unwrap());
    let mut went_on = 0;
    for round in 0..rounds {
        let door = Door::new("orphan-storm");
        let mut host = Other::start("host", &door.0);
        let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
        let (sender, receiver) = (node.port().unwrap(), other.port().unwrap());
        let to = receiver.address();
        let receiving = std::thread::spawn(move || {
            let mut next = 0u64;
            while let Ok(Some(message)) = receiver.recv_timeout(PATIENCE) {
                assert_eq!(u64::from_le_bytes(message.bytes()[..8].try_into().unwrap()), next);
                next += 1;
            }
            next
        });
        let sending = std::thread::spawn(move || {
            let accepted =
                |number: &u64| sender.send(to, &[&number.to_le_bytes()[..], &[7; 200]].concat()).is_ok();
            let accepted = (0u64..60_000).take_while(accepted).count() as u64;
            (accepted, sender)
        });
        std::thread::sleep(Duration::from_micros(round * round * 7_919 % 6_007));
        host.kill();
        let (accepted, sender) = sending.join().unwrap();
        let confirmed = sender.flush(Some(Duration::from_secs(1))).is_ok();
        let is_told = sender.take_failure().is_some() || !confirmed;
        drop(sender);
        let received = receiving.join().unwrap();
        assert!(received == accepted || is_told, "{received} of {accepted} arrived, and nobody was told");
        went_on += u64::from(received == 60_000);
    }
    assert!(went_on > 0, "no ring was there in time");
}

#[test]
fn connections_past_a_node_that_was_killed_go_on_and_end_in_order() {
    let door = Door::new("orphaned-connections");
    let mut host = Other::start("host", &door.0);
    let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
    let answering = std::thread::spawn(move || {
        let port = other.port().unwrap();
        port.listen(8).unwrap();
        port.bind(SERVICE, Scope::Node).unwrap();
        for _ in 0..120 {
            let connection = port.accept_timeout(PATIENCE).unwrap();
            while let Ok(Some(message)) =
                connection.recv_timeout(PATIENCE).map(|message| message.map(|m| m.to_vec()))
            {
                connection.send(&message).unwrap();
            }
        }
    });
    let port = node.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let ask = |number: usize| {
        let connection = port.connect(SERVICE).unwrap();
        for len in [10, 5_000, 300_000] {
            connection.send(&vec![number as u8; len]).unwrap();
            let answer = connection.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
            assert_eq!(answer.bytes(), vec![number as u8; len]);
        }
    };
    (0..20).for_each(&ask);
    host.kill();
    (20..119).for_each(&ask);
    assert!(port.has_lost_node());
    let last = port.connect(SERVICE).unwrap();
    // The other program ends, and says so itself.
    last.send_last(b"bye").unwrap();
    assert_eq!(last.recv_timeout(PATIENCE).unwrap().expect("waited in vain").bytes(), b"bye");
    answering.join().unwrap();
    let ended = last.recv_timeout(PATIENCE).map(|message| message.is_some());
    assert!(!matches!(ended, Ok(true) | Err(ConnectionError::TimedOut)), "{ended:?}");
    until("nobody is there", || port.connect(SERVICE).is_err());
}

#[test]
fn who_is_connected_with_a_program_that_is_killed_after_its_node_is_told() {
    let door = Door::new("orphaned-talker");
    let mut host = Other::start("host", &door.0);
    let mut talker = Other::start("talker", &door.0);
    let node = Node::attach(&door.0).unwrap();
    let port = node.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let connection = port.connect(SERVICE).unwrap();
    assert_eq!(connection.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"I listen");
    host.kill();
    talker.kill();
    let why = connection.recv_timeout(PATIENCE).unwrap_err();
    assert_eq!(why, ConnectionError::Disconnected(Disconnect::Aborted));
    assert!(matches!(port.connect(SERVICE), Err(ConnectionError::Closed)));
}

#[test]
fn programs_in_other_namespaces_need_the_socket_only() {
    let door = Door::new("namespaces");
    let node = embed(&door.0);
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--ipc",
        "--net",
    ]);
    command.arg(program);
    let _server = Other::run(command, "server", &door.0);
    let port = node.port().unwrap();
    port.send(SERVICE, b"hello").unwrap();
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"hello");
}

// ----- who does not mean well --------------------------------------------------------------------------------

/// What the node answers to words sent as they are, and what comes with it.
fn say(socket: &UnixSocket, words: &str) -> (String, Packet) {
    socket.send(words.as_bytes(), &[]).unwrap();
    let mut buffer = vec![0; 65_536];
    let start = Instant::now();
    loop {
        if let Some(packet) = socket.recv(&mut buffer).unwrap() {
            return (String::from_utf8_lossy(&buffer[..packet.bytes]).into_owned(), packet);
        }
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

const HELLO: &str = r#"{"ask":"hello","version":5,"program":"test"}"#;
const PORT: &str = r#"{"ask":"port","sq_entries":64,"cq_entries":64,"tx_bytes":65536,"rx_bytes":65536}"#;

#[test]
fn who_speaks_another_version_or_nonsense_is_told_so_and_harms_nobody() {
    let door = Door::new("nonsense");
    let node = embed(&door.0);
    let connect = || UnixSocket::connect(Place::Path(&door.0)).unwrap();
    let (refused, _) = say(&connect(), &HELLO.replace(":5", ":999"));
    assert!(refused.contains("version 999") && refused.contains("other's release"), "{refused}");
    let stranger = connect();
    assert!(say(&stranger, PORT).0.contains("hello first"));
    for words in ["", "{}", "[1]", "\u{0}", "@", r#"{"ask":"port"}"#, &HELLO.replace("\"test\"", "7")] {
        if words.is_empty() {
            // That is how a socket ends.
            continue;
        }
        assert!(say(&stranger, words).0.contains("refused"), "{words}");
    }
    assert!(say(&stranger, HELLO).0.contains("welcome"));
    assert!(say(&stranger, HELLO).0.contains("refused"), "twice");
    for (named, value) in
        [("tx_bytes", "18446744073709551615"), ("rx_bytes", "1073807360"), ("cq_entries", "131072")]
    {
        let usual = if named == "cq_entries" { "64" } else { "65536" };
        let huge = PORT.replace(&format!("\"{named}\":{usual}"), &format!("\"{named}\":{value}"));
        assert!(huge != PORT && say(&stranger, &huge).0.contains("refused"), "{named}");
    }
    assert!(say(&stranger, r#"{"ask":"watch"}"#).0.contains("refused"), "it is no port");
    // One that asks and never listens is shown out.
    let deaf = connect();
    say(&deaf, HELLO);
    while deaf.send(br#"{"ask":"status"}"#, &[]).is_ok() {}
    drop((stranger, deaf));
    until("both are gone", || node.status().attached == 0);
    goes_on(&node);
}

#[test]
fn who_scribbles_over_its_queues_spoils_its_own_port_only() {
    let door = Door::new("scribbler");
    let node = embed(&door.0);
    let _server = Other::start("server", &door.0);
    let port = node.port().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..60 {
        let socket = UnixSocket::connect(Place::Path(&door.0)).unwrap();
        say(&socket, HELLO);
        let (answer, mut packet) = say(&socket, PORT);
        assert!(answer.contains("address"), "{answer}");
        let own = packet.descriptors.pop().map(UnixSocket::from).unwrap();
        let bell = Segment::from_fd(packet.descriptors.pop().unwrap()).unwrap();
        let memory = Segment::from_fd(packet.descriptors.pop().unwrap()).unwrap();
        // The queues and their words lie in front.
        let front = (memory.len() as u64 - 2 * 65_536).min(16_384);
        for _ in 0..200 {
            let at = next() % (front / 8) * 8;
            let value = if next() % 3 == 0 { next() } else { next() % 256 };
            memory.write_at(at, &value.to_le_bytes());
            bell.write_at(next() % 512 * 8, &value.to_le_bytes());
            if next() % 16 == 0 {
                port.send(SERVICE, &value.to_le_bytes()).unwrap();
                let answer = port.recv_timeout(PATIENCE).unwrap().expect("others are served");
                assert_eq!(answer.bytes(), value.to_le_bytes());
            }
        }
        drop(own);
    }
    until("they are gone", || node.status().attached == 1);
    assert!(port.send(Destination::Service(SERVICE), b"once more").is_ok());
    assert_eq!(port.recv_timeout(PATIENCE).unwrap().unwrap().bytes(), b"once more");
}
