//! The examples do what they teach: server and client are two nodes, or two programs that are attached to one.

#![allow(clippy::duplicate_mod, reason = "each example has the lines that all share")]

#[path = "../examples/chat.rs"]
mod chat;
#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/file_server.rs"]
mod file_server;
#[path = "../examples/request_reply.rs"]
mod request_reply;
#[path = "../examples/smoke.rs"]
mod smoke;
#[path = "../examples/watcher.rs"]
mod watcher;

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Config, Node, Scope, ServiceAddress, Topic};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Makes a test of each claim for both ways to get a node.
macro_rules! both_ways {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[test]
            fn $claim() {
                super::$claim(super::two_nodes());
            })+
        }
        mod attached {
            $(#[test]
            fn $claim() {
                super::$claim(super::two_attached());
            })+
        }
    };
}

both_ways!(
    questions_are_answered,
    files_arrive_whole_and_names_that_lead_elsewhere_do_not_lead_there,
    everybody_in_the_room_hears_what_is_said_in_order,
    messages_of_every_size_come_back,
    the_directory_has_a_server_while_it_serves,
);

/// What two programs have.
struct Two {
    server: Node,
    client: Node,
    /// What both are attached to, if they are.
    _home: Option<Node>,
}

/// A node each on the loopback interface, the second of which knows the first.
fn two_nodes() -> Two {
    let server = node(Config::new(), &[]);
    let client = node(Config::new(), &[address(&server)]);
    Two { server, client, _home: None }
}

/// One node that both are attached to, as the examples do it when they are asked to.
fn two_attached() -> Two {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("polyrail-examples-{pid}-{count}.attach"));
    let home = node(Config::new().attach(&path), &[]);
    let attached = || common::node(&[format!("--attach={}", path.display())]).unwrap();
    let (server, client) = (attached(), attached());
    assert_eq!(home.status().attached, 2);
    Two { server, client, _home: Some(home) }
}

/// Lets a server serve until its node ends.
fn in_the_background(serve: impl FnOnce() -> Result<(), Box<dyn Error>> + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = serve() {
            eprintln!("the server has ended: {error}");
        }
    });
}

fn questions_are_answered(two: Two) {
    let Two { server, client, _home } = two;
    in_the_background(move || request_reply::serve(&server));
    assert_eq!(request_reply::ask(&client, "how long is this?").unwrap(), "17 letters");
    assert_eq!(request_reply::ask(&client, "and thís").unwrap(), "8 letters");
}

fn files_arrive_whole_and_names_that_lead_elsewhere_do_not_lead_there(two: Two) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("polyrail-files-{pid}-{count}"));
    std::fs::create_dir_all(&folder).unwrap();
    let bytes: Vec<u8> = (0..2_500_000_u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(folder.join("large"), &bytes).unwrap();
    std::fs::write(folder.join("empty"), []).unwrap();
    let Two { server, client, _home } = two;
    let served = folder.clone();
    in_the_background(move || file_server::serve(&server, &served));
    let get = |name: &str| {
        let mut copy = Vec::new();
        file_server::get(&client, name, &mut copy).map(|length| (length, copy)).map_err(|e| e.to_string())
    };
    let (length, copy) = get("large").unwrap();
    assert!(length == bytes.len() as u64 && copy == bytes, "{length} bytes");
    assert_eq!(get("empty"), Ok((0, vec![])));
    for name in ["nothing", "../etc/passwd", "/etc/passwd"] {
        assert_eq!(get(name), Err(format!("{name}: the server has no such file")));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn everybody_in_the_room_hears_what_is_said_in_order(two: Two) {
    let nodes = [&two.server, &two.client];
    let members = [nodes[0], nodes[1], nodes[1]].map(|node| chat::enter(node).unwrap());
    // Until the first node knows of the members on the second one, it says it to those it knows.
    members[2].wait_for(ServiceAddress::new(1000, 22), Some(PATIENCE)).unwrap();
    while nodes.iter().any(|node| node.status().services.len() < 3) {
        members.iter().for_each(|member| assert!(member.try_recv().unwrap().is_none()));
    }
    for n in 0..50 {
        chat::say(&members[1], "bob", &format!("line {n}")).unwrap();
    }
    for member in &members {
        for n in 0..50 {
            let message = member.recv_timeout(PATIENCE).unwrap().unwrap();
            assert_eq!(chat::heard(&message), format!("bob: line {n}"));
        }
    }
}

fn messages_of_every_size_come_back(two: Two) {
    let Two { server, client, _home } = two;
    in_the_background(move || smoke::serve(&server));
    smoke::call(&client).unwrap();
}

fn the_directory_has_a_server_while_it_serves(two: Two) {
    let service = ServiceAddress::new(1000, 7);
    let updates = two.client.subscribe(Topic::services(watcher::SERVICES)).unwrap();
    let port = two.server.port().unwrap();
    port.bind(service, Scope::Cluster).unwrap();
    let mut port = Some(port);
    let mut shown = Vec::new();
    let directory = watcher::watch(updates, |directory| {
        let servers = directory.servers_of(7).count();
        shown.push(servers);
        // Closed once it was seen.
        if servers == 1 {
            port = None;
        }
        servers == 0 && port.is_none()
    });
    assert_eq!(directory.unwrap().bindings(), 0);
    assert!(shown.ends_with(&[1, 0]), "{shown:?}");
}
