//! Request and reply between two processes: `smoke serve IFACE...` and `smoke call IFACE...`, or `--attach=PATH` for the
//! interfaces, to use a node that runs already.
//!
//! The server binds service 1000:1 and answers every message; the caller sends a few of different sizes.

mod common;

use polyrail::{Node, Scope, ServiceAddress};
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

/// Gives every message back, for ever.
pub fn serve(node: &Node) -> Result<(), Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.bind(SERVICE, Scope::Cluster)?;
    loop {
        let message = port.recv()?;
        port.send(message.from(), message.bytes())?;
    }
}

/// Sends some and wants them back.
pub fn call(node: &Node) -> Result<(), Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    for len in [0, 64, 1_400, 4_096, 65_536, 1 << 20, 8 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i * 7) as u8).collect();
        let start = Instant::now();
        port.send(SERVICE, &bytes)?;
        let Some(reply) = port.recv_timeout(Duration::from_secs(5))? else { return Err("no reply".into()) };
        assert!(reply.bytes() == bytes);
        println!("{len} bytes there and back: {:?}", start.elapsed());
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests run the rest")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: smoke serve|call INTERFACE...|--attach=PATH";
    let (role, words) = args.split_first().ok_or(usage)?;
    let node = common::node(words)?;
    for warning in node.warnings() {
        eprintln!("{warning}");
    }
    match role.as_str() {
        "serve" => serve(&node),
        "call" => {
            call(&node)?;
            println!("{:#?}", node.status().links);
            Ok(node.leave(Duration::from_secs(1))?)
        }
        _ => Err(usage.into()),
    }
}
