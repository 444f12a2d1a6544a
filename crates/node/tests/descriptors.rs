//! Programs that wait on their port's descriptor for what comes past their node, and after that is gone: they are woken when there is
//! something, and only then.

mod processes;

use polyrail::{Config, Connection, Node, Port, RecvError, Scope, ServiceAddress};
use polyrail_sys::poll::PollSet;
use processes::{Door, Other, PATIENCE, ready, role, until};
use std::path::Path;
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

#[test]
fn a_role() {
    let Some((role, path)) = role() else { return };
    match &role[..] {
        "host" => host(&path),
        "server" => server(&path),
        other => panic!("{other}"),
    }
}

/// Runs a node until it is killed.
fn host(path: &Path) {
    let _node =
        Node::embed(Config::new().insecure().interfaces(["lo"]).discovery(false).attach(path)).unwrap();
    ready();
    std::thread::sleep(PATIENCE);
}

/// Answers what it is sent, waiting on its descriptor, until it is killed.
fn server(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    ready();
    loop {
        await_readable(&port);
        while let Ok(Some(message)) = port.try_recv() {
            port.send(message.from(), message.bytes()).unwrap();
        }
    }
}

fn is_readable(port: &Port, timeout: Duration) -> bool {
    let mut set = PollSet::default();
    set.add(port.fd().unwrap(), false);
    set.wait(Some(timeout.as_nanos() as u64)).unwrap() > 0
}

fn await_readable(port: &Port) {
    assert!(is_readable(port, PATIENCE), "it was not told");
}

/// A message there and back; how often this end was woken for it.
fn question(port: &Port, number: u64) -> u32 {
    let bytes = vec![number as u8; 8 + number as usize % 3_000];
    port.send(SERVICE, &bytes).unwrap();
    for woken in 1.. {
        await_readable(port);
        if let Some(answer) = port.try_recv().unwrap() {
            assert_eq!(answer.bytes(), bytes);
            drop(answer);
            assert!(port.try_recv().unwrap().is_none());
            return woken;
        }
    }
    unreachable!()
}

/// Nothing wakes it until something comes.
fn assert_quiet(port: &Port) {
    // What had happened before is looked at once.
    until("it is quiet", || !is_readable(port, Duration::ZERO) || !matches!(port.try_recv(), Ok(None)));
    assert!(!is_readable(port, Duration::from_millis(50)), "there is nothing");
}

/// A program that talks past its node to a server of that, both by descriptors.
fn talking(door: &Door) -> (Node, Port) {
    let node = Node::attach(&door.0).unwrap();
    let port = node.port().unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let mut number = 0;
    until("they talk past the node", || {
        (0..50).for_each(|_| {
            question(&port, number);
            number += 1;
        });
        port.sent_direct() > 500
    });
    (node, port)
}

#[test]
fn a_descriptor_serves_on_when_the_node_is_gone_and_is_readable_only_when_there_is_something() {
    let door = Door::new("descriptor-orphans");
    let mut host = Other::start("host", &door.0);
    let mut server = Other::start("server", &door.0);
    let (_node, port) = talking(&door);
    assert_quiet(&port);
    host.kill();
    await_readable(&port);
    assert!(port.try_recv().unwrap().is_none() && port.has_lost_node());
    assert_quiet(&port);
    let woken: u32 = (0..2_000).map(|number| question(&port, number)).sum();
    // Some wake-ups say that there is room, or come twice.
    assert!(woken < 2 * 2_000, "{woken}");
    assert_quiet(&port);
    // Whoever has something to say may be gone, too.
    server.kill();
    await_readable(&port);
    until("it is told", || matches!(port.try_recv(), Err(RecvError::Closed)));
    for _ in 0..3 {
        assert!(is_readable(&port, Duration::ZERO), "and again");
        assert!(matches!(port.try_recv(), Err(RecvError::Closed)));
    }
}

#[test]
fn one_of_two_that_is_gone_with_the_node_makes_no_noise() {
    let door = Door::new("descriptor-one-of-two");
    let mut host = Other::start("host", &door.0);
    let server = Other::start("server", &door.0);
    let (node, port) = talking(&door);
    // Another one sends to this port past the node.
    let second = node.port().unwrap();
    until("it has a ring", || {
        second.send(port.address(), b"?").unwrap();
        while port.try_recv().unwrap().is_some() {}
        second.sent_direct() > 0
    });
    host.kill();
    drop(second);
    assert_quiet(&port);
    for number in 0..100 {
        question(&port, number);
    }
    assert_quiet(&port);
    drop(server);
}

#[test]
fn who_asks_for_a_descriptor_when_the_node_is_gone_has_one() {
    let door = Door::new("descriptor-late");
    let mut host = Other::start("host", &door.0);
    let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
    let (sender, receiver) = (node.port().unwrap(), other.port().unwrap());
    until("they talk past the node", || {
        sender.send(receiver.address(), b"?").unwrap();
        while receiver.try_recv().unwrap().is_some() {}
        sender.sent_direct() > 10
    });
    host.kill();
    until("it is told", || receiver.has_lost_node());
    assert_quiet(&receiver);
    sender.send(receiver.address(), b"!").unwrap();
    await_readable(&receiver);
    assert_eq!(receiver.try_recv().unwrap().unwrap().bytes(), b"!");
    assert_quiet(&receiver);
}

#[test]
fn files_and_news_come_by_one_line() {
    let door = Door::new("descriptor-files");
    let mut host = Other::start("host", &door.0);
    let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
    let receiver = other.port().unwrap();
    let to = receiver.address();
    await_readable(&receiver);
    const COUNT: u64 = 1_500;
    let (killed, kill) = std::sync::mpsc::channel();
    let sending = std::thread::spawn(move || {
        let sender = node.port().unwrap();
        let mut held = Vec::new();
        for number in 0..COUNT {
            if number == COUNT / 2 {
                // All ways are there by then.
                assert!(sender.sent_direct() > 0);
                killed.send(()).unwrap();
            }
            let mut buffer = sender.alloc([3_000, 70_000][number as usize % 2]).unwrap();
            buffer[..8].copy_from_slice(&number.to_le_bytes());
            sender.send_buffer(to, buffer).unwrap();
            if number % 20 == 0 {
                // So that others are taken next, whose files nobody has.
                held.push(sender.alloc(3_000).unwrap());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        sender
    });
    let mut next = 0;
    while next < COUNT {
        if kill.try_recv().is_ok() {
            host.kill();
        }
        await_readable(&receiver);
        while let Some(message) = receiver.try_recv().unwrap() {
            assert_eq!(u64::from_le_bytes(message.bytes()[..8].try_into().unwrap()), next);
            next += 1;
        }
    }
    let sender = sending.join().unwrap();
    assert!(sender.sent_direct() > COUNT / 2);
    assert_quiet(&receiver);
}

#[test]
fn connections_are_told_by_descriptors_when_the_node_is_gone() {
    let door = Door::new("descriptor-connections");
    let mut host = Other::start("host", &door.0);
    let (node, other) = (Node::attach(&door.0).unwrap(), Node::attach(&door.0).unwrap());
    let server = other.port().unwrap();
    server.listen(8).unwrap();
    let to = server.address();
    await_readable(&server);
    const COUNT: u64 = 400;
    let (killed, kill) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        let client = node.port().unwrap();
        for number in 0..COUNT {
            if number == COUNT / 2 {
                assert!(client.sent_direct() > 0);
                killed.send(()).unwrap();
            }
            let asking: Connection<&Port> = client.ask(to, &number.to_le_bytes()).unwrap();
            let answer = asking.recv_timeout(PATIENCE).unwrap().expect("an answer");
            assert_eq!(answer.bytes(), number.to_le_bytes());
        }
        client
    });
    let mut answered = 0;
    while answered < COUNT {
        if kill.try_recv().is_ok() {
            host.kill();
        }
        await_readable(&server);
        assert!(server.try_recv().unwrap().is_none());
        while let Ok(answering) = server.accept_timeout(Duration::ZERO) {
            let question = answering.recv_timeout(PATIENCE).unwrap().expect("it came with the question");
            answering.send_last(question.bytes()).unwrap();
            answered += 1;
        }
    }
    let client = asking.join().unwrap();
    assert!(client.sent_direct() > COUNT / 2);
    assert_quiet(&server);
}
