//! Programs with an event loop of their own: they sleep on the descriptors of ports and nodes.

mod local;

use local::{PATIENCE, address};
use polyrail::{Config, Node, Port, Progress, Scope, ServiceAddress, ServiceRange, Wait};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use std::os::fd::RawFd;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

const PATIENCE_NS: u64 = PATIENCE.as_nanos() as u64;

fn node(progress: Progress, peers: &[String]) -> Node {
    local::node(Config::new().progress(progress), peers)
}

/// An event loop of the smallest kind.
struct Loop(Epoll);

impl Loop {
    fn new(fds: &[RawFd]) -> Loop {
        let epoll = Epoll::new().unwrap();
        for fd in fds {
            epoll.add(*fd, 0, Interest::READ).unwrap();
        }
        Loop(epoll)
    }

    /// Whether there is something now.
    fn is_awake(&self) -> bool {
        self.0.wait(&mut Events::new(4), Some(0)).unwrap() > 0
    }

    /// Lets a thread work until it could sleep.
    fn settle(&self, mut work: impl FnMut()) {
        let until = monotonic_ns() + PATIENCE_NS;
        while self.is_awake() {
            assert!(monotonic_ns() < until, "it is never left in peace");
            work();
        }
    }

    fn wait(&self) {
        let until = monotonic_ns() + PATIENCE_NS;
        // A stopped and continued process, for one, ends the wait early.
        while self.0.wait(&mut Events::new(4), Some(PATIENCE_NS)).unwrap() == 0 {
            assert!(monotonic_ns() < until, "slept although there was something");
        }
    }
}

/// The next message of `port`, by its event loop.
fn next(port: &Port, events: &Loop) -> Vec<u8> {
    loop {
        if let Some(message) = port.try_recv().unwrap() {
            return message.bytes().to_vec();
        }
        events.wait();
    }
}

fn ping_pong(a: &Node, b: &Node, count: u32) {
    let (caller, server) = (a.port().unwrap(), b.port().unwrap());
    server.bind(ServiceRange::from(SERVICE), Scope::Cluster).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let events = Loop::new(&[server.fd().unwrap()]);
            for _ in 0..count {
                let message = loop {
                    if let Some(message) = server.try_recv().unwrap() {
                        break message;
                    }
                    events.wait();
                };
                server.send(message.from(), message.bytes()).unwrap();
            }
            // What was sent last is still to be confirmed.
            let _ = server.flush(None);
        });
        let events = Loop::new(&[caller.fd().unwrap()]);
        while let Err(error) = caller.send(SERVICE, b"there?") {
            assert!(matches!(error, polyrail::SendError::NoService { .. }), "{error}");
            events.wait();
            assert!(caller.try_recv().unwrap().is_none());
        }
        assert_eq!(next(&caller, &events), b"there?");
        for number in 1..count {
            caller.send(SERVICE, &number.to_be_bytes()).unwrap();
            assert_eq!(next(&caller, &events), number.to_be_bytes());
        }
    });
}

#[test]
fn a_port_that_sleeps_on_its_descriptor_misses_nothing_within_a_node() {
    let node = node(Progress::Auto, &[]);
    ping_pong(&node, &node, 3_000);
}

#[test]
fn a_port_that_sleeps_on_its_descriptor_misses_nothing_between_nodes() {
    let a = node(Progress::Auto, &[]);
    let b = node(Progress::Auto, &[address(&a)]);
    ping_pong(&a, &b, 3_000);
}

#[test]
fn nodes_that_only_their_programs_drive_need_no_other_clock_than_their_descriptor() {
    let a = node(Progress::Manual, &[]);
    let b = node(Progress::Manual, &[address(&a)]);
    ping_pong(&a, &b, 1_000);
}

#[test]
fn a_node_that_is_waited_for_tells_its_news() {
    let a = node(Progress::Auto, &[]);
    let events = Loop::new(&[a.fd().unwrap()]);
    let b = node(Progress::Auto, &[address(&a)]);
    let news = |wanted: fn(&polyrail::NodeEvent) -> bool| {
        while !a.events().iter().any(wanted) {
            events.wait();
            a.progress();
        }
    };
    news(|event| matches!(event, polyrail::NodeEvent::PeerUp { .. }));
    drop(b);
    news(|event| matches!(event, polyrail::NodeEvent::PeerDown { .. }));
}

#[test]
fn a_node_that_only_its_program_drives_goes_on_by_itself() {
    // The program drives its node itself.
    if local::are_attached() {
        return;
    }
    // Somebody who never answers, so that only time can tell the node to ask again.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let node = node(Progress::Manual, &[silent.local_addr().unwrap().to_string()]);
    let events = Loop::new(&[node.fd().unwrap()]);
    let mut asked = 0;
    while asked < 4 {
        events.wait();
        node.progress();
        node.events();
        while silent.recv(&mut [0; 2_048]).is_ok() {
            asked += 1;
        }
    }
}

/// A node that only this thread drives, with a descriptor that knows of nothing to do.
fn settled_node() -> (Node, Port, Loop) {
    let node = node(Progress::Manual, &[]);
    let port = node.port().unwrap();
    let events = Loop::new(&[port.fd().unwrap()]);
    // The first message to itself opens its way.
    port.send(port.address(), b"first").unwrap();
    assert_eq!(next(&port, &events), b"first");
    events.settle(|| assert!(port.try_recv().unwrap().is_none()));
    (node, port, events)
}

#[test]
fn a_port_is_told_what_another_has_fetched_for_it() {
    let (node, port, events) = settled_node();
    let other = node.port().unwrap();
    for text in [b"one", b"two"] {
        other.send(port.address(), text).unwrap();
        other.flush(None).unwrap();
        assert!(events.is_awake());
        assert_eq!(next(&port, &events), text);
        events.settle(|| assert!(port.try_recv().unwrap().is_none()));
    }
    // What is there already is told to whoever asks for a descriptor later.
    port.send(other.address(), b"three").unwrap();
    port.flush(None).unwrap();
    events.settle(|| assert!(port.try_recv().unwrap().is_none()));
    let later = Loop::new(&[other.fd().unwrap()]);
    assert!(later.is_awake());
    assert_eq!(next(&other, &later), b"three");
}

#[test]
fn a_node_tells_the_news_that_others_have_caused() {
    let (node, port, _) = settled_node();
    let bind = |instance| port.bind(ServiceAddress::new(1000, instance), Scope::Node).unwrap();
    let names = |events: &Loop| {
        events.wait();
        node.progress();
        assert!(node.events().contains(&polyrail::NodeEvent::Names));
        events.settle(|| {
            node.progress();
            node.events();
        });
    };
    // Those that came before somebody asked, and those that come later.
    bind(1);
    node.progress();
    let events = Loop::new(&[node.fd().unwrap()]);
    assert!(events.is_awake());
    names(&events);
    bind(2);
    names(&events);
}

#[test]
fn threads_that_share_a_node_and_sleep_between_messages_wake_each_other() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let node = node(Progress::Auto, &[]);
        let (caller, server) = (node.port().unwrap(), node.port().unwrap());
        server.bind(ServiceRange::from(SERVICE), Scope::Node).unwrap();
        let count = 5_000u32;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                server.set_wait(wait);
                for _ in 0..count {
                    let message = server.recv_timeout(PATIENCE).unwrap().expect("a message in time");
                    server.send(message.from(), message.bytes()).unwrap();
                }
                server.flush(Some(PATIENCE)).unwrap();
            });
            caller.set_wait(wait);
            for number in 0..count {
                caller.send(SERVICE, &number.to_be_bytes()).unwrap();
                let answer = caller.recv_timeout(PATIENCE).unwrap().expect("an answer in time");
                assert_eq!(answer.bytes(), number.to_be_bytes());
            }
        });
    }
}

#[test]
fn an_unknown_service_is_told_at_once_whoever_drives() {
    let node = node(Progress::Auto, &[]);
    let port = node.port().unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                node.progress();
            }
        });
        let unknown = |instance| {
            matches!(
                port.send(ServiceAddress::new(77, instance), b"anybody?"),
                Err(polyrail::SendError::NoService { .. })
            )
        };
        let missed = (0..20_000).find(|instance| !unknown(*instance));
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(missed, None, "the first message to a service tells whether it is bound");
    });
}
