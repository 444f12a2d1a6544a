//! Request and reply between two processes: `smoke serve IFACE...` and `smoke call IFACE...`.
//!
//! The server binds service 1000:1 and answers every message; the caller sends a few of different sizes.

use polyrail::{Config, Node, Scope, ServiceAddress, ServiceRange};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (role, interfaces) = args.split_first().ok_or("usage: smoke serve|call [INTERFACE...]")?;
    let node = Node::embed(Config::new().insecure().interfaces(interfaces.to_vec()))?;
    for warning in node.warnings() {
        eprintln!("{warning}");
    }
    let port = node.port()?;
    let service = ServiceAddress::new(1000, 1);
    if role == "serve" {
        port.bind(ServiceRange::from(service), Scope::Cluster)?;
        loop {
            let message = port.recv()?;
            port.send(message.from(), message.bytes())?;
        }
    }
    port.wait_for(service, Some(Duration::from_secs(10)))?;
    for len in [0, 64, 1_400, 4_096, 65_536, 1 << 20, 8 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i * 7) as u8).collect();
        let start = Instant::now();
        port.send(service, &bytes)?;
        let Some(reply) = port.recv_timeout(Duration::from_secs(5))? else { return Err("no reply".into()) };
        assert!(reply.bytes() == bytes);
        println!("{len} bytes there and back: {:?}", start.elapsed());
    }
    println!("{:#?}", node.status().links);
    node.leave(Duration::from_secs(1))?;
    Ok(())
}
