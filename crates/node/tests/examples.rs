//! The examples do what they teach: server and client are two nodes.

#[path = "../examples/chat.rs"]
mod chat;
#[path = "../examples/file_server.rs"]
mod file_server;
#[path = "../examples/request_reply.rs"]
mod request_reply;

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Config, Node};
use std::thread;

/// Two nodes on the loopback interface, the second of which knows the first.
fn two_nodes() -> [Node; 2] {
    let first = node(Config::new(), &[]);
    let second = node(Config::new(), &[address(&first)]);
    [first, second]
}

#[test]
fn questions_are_answered() {
    let [server, client] = two_nodes();
    thread::spawn(move || request_reply::serve(&server).unwrap());
    assert_eq!(request_reply::ask(&client, "how long is this?").unwrap(), "17 letters");
    assert_eq!(request_reply::ask(&client, "and thís").unwrap(), "8 letters");
}

#[test]
fn files_arrive_whole_and_names_that_lead_elsewhere_do_not_lead_there() {
    let folder = std::env::temp_dir().join(format!("polyrail-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let bytes: Vec<u8> = (0..2_500_000_u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(folder.join("large"), &bytes).unwrap();
    std::fs::write(folder.join("empty"), []).unwrap();
    let [server, client] = two_nodes();
    let served = folder.clone();
    thread::spawn(move || file_server::serve(&server, &served).unwrap());
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

#[test]
fn everybody_in_the_room_hears_what_is_said_in_order() {
    let nodes = two_nodes();
    let members = [&nodes[0], &nodes[1], &nodes[1]].map(|node| chat::enter(node).unwrap());
    // Until the first node knows of the members on the second one, it says it to those it knows.
    members[2].wait_for(polyrail::ServiceAddress::new(1000, 22), Some(PATIENCE)).unwrap();
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
