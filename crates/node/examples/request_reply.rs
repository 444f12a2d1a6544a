//! A service that answers questions, each by a connection of its own.
//!
//!     cargo run --example request_reply -- serve lo                      on one machine
//!     cargo run --example request_reply -- ask lo "how long is this?"    on another one, or in another shell
//!
//! The connection, the question and its end leave in one packet, the answer and its end in another: one round trip in
//! all. A refusal, or a server that is lost meanwhile, is told by `recv`. With `--attach=PATH` for `lo` it uses a node that
//! runs already.

mod common;

use polyrail::{ConnectionError, Node, Scope, ServiceAddress};
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 20);

/// Answers whoever asks, one after the other, for ever.
pub fn serve(node: &Node) -> Result<(), Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.listen(128)?;
    port.bind(SERVICE, Scope::Cluster)?;
    loop {
        let connection = port.accept()?;
        // Who asks and goes away again, or sends nothing, is no reason to stop.
        let question = match connection.recv_timeout(Duration::from_secs(1)) {
            Ok(Some(question)) => question,
            Ok(None) | Err(ConnectionError::Disconnected(_) | ConnectionError::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        let answer = format!("{} letters", String::from_utf8_lossy(question.bytes()).chars().count());
        let _ = connection.send_last(answer.as_bytes());
    }
}

/// Asks once.
pub fn ask(node: &Node, question: &str) -> Result<String, Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    let connection = port.ask(SERVICE, question.as_bytes())?;
    let answer = connection.recv_timeout(Duration::from_secs(5))?.ok_or("the server has no answer")?;
    Ok(String::from_utf8_lossy(answer.bytes()).into_owned())
}

#[allow(dead_code, reason = "the tests run the rest")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage =
        "usage: request_reply serve INTERFACE|--attach=PATH | request_reply ask INTERFACE|--attach=PATH TEXT";
    let args: Vec<String> = std::env::args().skip(1).collect();
    let node = common::node(args.get(1..2).ok_or(usage)?)?;
    match (args[0].as_str(), args.get(2)) {
        ("serve", None) => serve(&node),
        ("ask", Some(text)) => {
            println!("{}", ask(&node, text)?);
            Ok(())
        }
        _ => Err(usage.into()),
    }
}
