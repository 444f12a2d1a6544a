//! `polyrail metrics` at two nodes that send to each other, printed and served.

#![forbid(unsafe_code)]

#[path = "metrics/dashboard.rs"]
mod dashboard;
mod running;

use running::pair::{PATIENCE, Pair, Watched, lines};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

/// What a server of the page answers: status line and body.
fn get(at: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// The metrics that a page explains.
fn explained(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect()
}

#[test]
fn metrics_are_printed_and_served() {
    let mut pair = Pair::new("metrics");
    pair.send("hello");
    let control = pair.control("beta");
    let (printed, code) = lines(&["metrics", "--control", &control]);
    let printed = printed.join("\n");
    let pid = pair.receiver.running.child.id();
    let received = |page: &str| {
        let line = page.lines().find(|line| {
            line.starts_with("polyrail_port_received_bytes_total{")
                && line.contains(&format!("pid=\"{pid}\""))
        });
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned())
    };
    assert_eq!((code, received(&printed).as_deref()), (Some(0), Some("5")), "{printed}");
    let mut server = Watched::start(&["--json", "metrics", "--listen", "127.0.0.1:0", "--control", &control]);
    let at = server.document()["listening"].as_str().expect("an address").to_owned();
    let (status, page) = get(&at, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    assert_eq!((status.as_str(), received(&page).as_deref()), ("HTTP/1.1 200 OK", Some("5")), "{page}");
    assert_eq!(explained(&page), explained(&printed));
    assert!(page.contains("polyrail_link_sent_bytes_total{peer=\"alpha\","), "{page}");
    assert!(get(&at, "GET / HTTP/1.1\r\n\r\n").0.contains("404"));
    assert!(get(&at, "POST /metrics HTTP/1.1\r\n\r\n").0.contains("405"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(9_000));
    assert!(get(&at, &long).0.contains("431"));
    // Who says nothing does not keep the next one out.
    let silent = TcpStream::connect(&at).expect("it listens");
    assert!(get(&at, "GET /metrics HTTP/1.1\r\n\r\n").0.contains("200"));
    drop(silent);
    pair.beta.running.signal("KILL");
    assert_eq!(pair.beta.running.exit_code(), None);
    assert!(get(&at, "GET /metrics HTTP/1.1\r\n\r\n").0.contains("503"));
    server.running.signal("TERM");
    assert_eq!(server.running.exit_code(), Some(0));
}
