//! Something to put under a profiler: `profile echo|count IFACE` on one node, `profile ping|flood BYTES COUNT IFACE`
//! on the other. `profile self BYTES COUNT IFACE` sends to itself, so that only the program's own work is seen.
//! Spinning; figures to compare with come from `polyrail bench`, not from here.

use polyrail::{Config, Node, Port, Scope, ServiceAddress, ServiceRange, Wait};
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let role =
        args.first().ok_or("usage: profile echo|count IFACE | ping|flood|self BYTES COUNT IFACE")?.clone();
    let interfaces = args.last().cloned();
    let node = Node::embed(Config::new().insecure().interfaces(interfaces).wait(Wait::Spin))?;
    let port = node.port()?;
    if role == "echo" || role == "count" {
        port.bind(ServiceRange::from(SERVICE), Scope::Cluster)?;
        return serve(&port, role == "echo");
    }
    let (bytes, count) = (args[1].parse()?, args[2].parse()?);
    if role == "self" {
        port.bind(ServiceRange::from(SERVICE), Scope::Node)?;
        return ping(&port, bytes, count);
    }
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    if role == "ping" { ping(&port, bytes, count) } else { flood(&port, bytes, count) }
}

fn serve(port: &Port, echo: bool) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        let message = port.recv()?;
        if echo {
            port.send(message.from(), message.bytes())?;
        }
    }
}

fn ping(port: &Port, bytes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (mut trips, mut sends) = (Vec::new(), Vec::new());
    let body = vec![7; bytes];
    for _ in 0..count {
        let start = Instant::now();
        port.send(SERVICE, &body)?;
        sends.push(start.elapsed().as_nanos());
        port.recv()?;
        trips.push(start.elapsed().as_nanos());
    }
    trips.sort_unstable();
    sends.sort_unstable();
    let (send, trip, rare) = (sends[count / 2], trips[count / 2], trips[count - count / 100]);
    println!("send p50 {send} ns, round trip p50 {trip} ns, p99 {rare} ns");
    Ok(())
}

fn flood(port: &Port, bytes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let body = vec![7; bytes];
    let start = Instant::now();
    for _ in 0..count {
        port.send(SERVICE, &body)?;
    }
    port.flush(Some(Duration::from_secs(10)))?;
    let ns = start.elapsed().as_nanos() as f64;
    println!("{:.1} ns per message, {:.0} Mbit/s", ns / count as f64, (bytes * count) as f64 * 8_000.0 / ns);
    Ok(())
}
