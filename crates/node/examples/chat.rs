//! A room in which everybody hears everybody: one message to all who have bound the room's service.
//!
//!     cargo run --example chat -- lo alice      in one shell, and with other names in others, here or on other machines
//!
//! Each line of the standard input goes to all members, by one copy for each node. Nobody keeps a list of members: whoever
//! has bound the service is one, and whoever is gone is none. With `--attach=PATH` for `lo` it uses a node that runs already.

mod common;

use polyrail::{Message, Node, Port, Scope, SendError, ServiceAddress};
use std::io::BufRead;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

const ROOM: ServiceAddress = ServiceAddress::new(1000, 22);

/// Enters the room.
pub fn enter(node: &Node) -> Result<Port, Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.bind(ROOM, Scope::Cluster)?;
    Ok(port)
}

/// Says something to everybody, oneself among them.
pub fn say(port: &Port, name: &str, text: &str) -> Result<(), SendError> {
    port.multicast(ROOM, format!("{name}: {text}").as_bytes())
}

/// What somebody has said.
pub fn heard(message: &Message<'_>) -> String {
    String::from_utf8_lossy(message.bytes()).into_owned()
}

#[allow(dead_code, reason = "the tests run the rest")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [_, name] = &args[..] else { return Err("usage: chat INTERFACE|--attach=PATH NAME".into()) };
    let node = common::node(&args[..1])?;
    let port = enter(&node)?;
    let typed = lines();
    loop {
        if let Some(message) = port.recv_timeout(Duration::from_millis(50))? {
            println!("{}", heard(&message));
        }
        match typed.try_recv() {
            Ok(line) => say(&port, name, &line)?,
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
    }
    node.leave(Duration::from_secs(1))?;
    Ok(())
}

/// What is typed: reading it would hold up what arrives.
fn lines() -> Receiver<String> {
    let (typed, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if typed.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
