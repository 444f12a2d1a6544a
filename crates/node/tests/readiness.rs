//! Programs with an event loop of their own: they sleep on the descriptors of ports and nodes.

use polyrail::{Config, Node, Port, Progress, Scope, ServiceAddress, ServiceRange, Wait};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use std::os::fd::RawFd;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// No wait of these tests takes so long, unless a signal was lost.
const PATIENCE_NS: u64 = 20_000_000_000;

fn node(progress: Progress, peers: &[String]) -> Node {
    let config = Config::new().insecure().interfaces(["lo"]).discovery(false).progress(progress);
    Node::embed(config.peers(peers)).unwrap()
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

/// The address at which `node` is reached.
fn address(node: &Node) -> String {
    let status = node.status();
    let bearer = status.bearers.iter().find(|b| b.name == "udp/lo" && b.address.starts_with("127.")).unwrap();
    bearer.address.clone()
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
fn threads_that_share_a_node_and_sleep_between_messages_wake_each_other() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let node = node(Progress::Auto, &[]);
        let (caller, server) = (node.port().unwrap(), node.port().unwrap());
        server.bind(ServiceRange::from(SERVICE), Scope::Node).unwrap();
        let patience = std::time::Duration::from_nanos(PATIENCE_NS);
        let count = 5_000u32;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                server.set_wait(wait);
                for _ in 0..count {
                    let message = server.recv_timeout(patience).unwrap().expect("a message in time");
                    server.send(message.from(), message.bytes()).unwrap();
                }
                server.flush(Some(patience)).unwrap();
            });
            caller.set_wait(wait);
            for number in 0..count {
                caller.send(SERVICE, &number.to_be_bytes()).unwrap();
                let answer = caller.recv_timeout(patience).unwrap().expect("an answer in time");
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
