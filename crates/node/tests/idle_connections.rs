//! What a connection costs that is open and not used.

#![forbid(unsafe_code)]

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Config, Connect, Connection, Port, Scope, ServiceAddress};
use polyrail_sys::process::resident_bytes;

const SERVICE: ServiceAddress = ServiceAddress::new(4_711, 0);
/// Open before anything is measured: what the nodes need once is there then.
const FIRST: usize = 500;
const MANY: usize = 10_000;
/// For both ends.
const BYTES_MAX: u64 = 2 * 4_096;

/// Opens so many, each of which carries a message both ways.
fn open<'a>(client: &'a Port, server: &'a Port, count: usize) -> Vec<[Connection<&'a Port>; 2]> {
    let how = Connect { first: Some(b"hello"), accepted_within: None, ..Connect::default() };
    let pair = |_| {
        let asking = client.connect_with(SERVICE, &how).unwrap();
        let answering = server.accept_timeout(PATIENCE).unwrap();
        let heard = answering.recv_timeout(PATIENCE).unwrap().expect("the question");
        answering.send(heard.bytes()).unwrap();
        drop(heard);
        assert_eq!(asking.recv_timeout(PATIENCE).unwrap().expect("the answer").bytes(), b"hello");
        [asking, answering]
    };
    (0..count).map(pair).collect()
}

#[test]
fn ten_thousand_that_rest_take_four_kibibytes_each_at_either_end() {
    let a = node(Config::default(), &[]);
    let b = node(Config::default(), &[address(&a)]);
    let (server, client) = (a.port().unwrap(), b.port().unwrap());
    server.bind(SERVICE, Scope::Cluster).unwrap();
    server.listen(16).unwrap();
    client.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    let some = open(&client, &server, FIRST);
    let before = resident_bytes().unwrap();
    let many = open(&client, &server, MANY);
    let each = resident_bytes().unwrap().saturating_sub(before) / MANY as u64;
    println!("{each} bytes for both ends of a connection that rests");
    assert!(each <= BYTES_MAX, "{each} bytes for both ends of a connection");
    for [asking, answering] in some.iter().chain(&many).step_by(997) {
        asking.send(b"still there").unwrap();
        assert_eq!(answering.recv_timeout(PATIENCE).unwrap().expect("a word").bytes(), b"still there");
    }
}
