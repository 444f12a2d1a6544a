//! Spinning 64-byte request and reply: `pp serve IFACE...` and `pp call IFACE...` print the median round trip.

use polyrail::{Config, Node, Scope, ServiceAddress, ServiceRange, Wait};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (role, interfaces) = args.split_first().ok_or("usage: pp serve|call [INTERFACE...]")?;
    let node = Node::embed(Config::new().insecure().interfaces(interfaces.to_vec()).wait(Wait::Spin))?;
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
    let (mut took, mut sends) = (Vec::new(), Vec::new());
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(50_000);
    for _ in 0..rounds {
        let start = Instant::now();
        port.send(service, &[7; 64])?;
        sends.push(start.elapsed().as_nanos());
        port.recv()?;
        took.push(start.elapsed().as_nanos());
    }
    took.sort_unstable();
    sends.sort_unstable();
    println!("send p50 {} ns; round trip p50 {} ns, p99 {} ns", sends[sends.len() / 2], took[took.len() / 2], took[took.len() * 99 / 100]);
    Ok(())
}
