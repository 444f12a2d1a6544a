//! temporary
use polyrail::{Config, Node, Scope, ServiceAddress, ServiceRange, Wait};
use std::time::Duration;
const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let node = Node::embed(Config::new().insecure().interfaces(["l0", "l1"]).wait(Wait::Adaptive))?;
    let port = node.port()?;
    if args[0] == "recv" {
        port.bind(ServiceRange::from(SERVICE), Scope::Cluster)?;
        let ticks = node.port()?;
        ticks.bind(ServiceRange::new(1000, 2, 2), Scope::Cluster)?;
        std::thread::spawn(move || {
            let mut next = 0u64;
            loop {
                let Ok(m) = ticks.recv() else { return };
                let n = u64::from_le_bytes(m.bytes()[..8].try_into().unwrap());
                if n != next {
                    println!("TICK expected {next}, got {n} {:?}", m);
                }
                next = n + 1;
            }
        });
        let mut next = 0u64;
        while let Some(m) = port.recv_timeout(Duration::from_secs(6))? {
            let n = u64::from_le_bytes(m.bytes()[..8].try_into()?);
            if n != next {
                println!("expected {next}, got {n} {:?}", m);
                println!("{:#?}", node.status());
            }
            next = n + 1;
        }
        println!("{next} received {:?}", node.status().peers);
        return Ok(());
    }
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    let node = std::sync::Arc::new(node);
    let own = node.clone();
    let start = std::time::Instant::now();
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_millis(1));
        for e in own.events() {
            if !matches!(e, polyrail::NodeEvent::Names) { println!("{:?} {e:?}", start.elapsed()); }
        }
    });
    let ticks = node.port()?;
    std::thread::spawn(move || {
        for n in 0..100000u64 {
            let mut b = vec![1u8; 4096];
            b[..8].copy_from_slice(&n.to_le_bytes());
            std::thread::sleep(Duration::from_micros(1000));
            ticks.send_timeout(ServiceAddress::new(1000, 2), &b, Duration::from_secs(20)).unwrap();
        }
    });
    let mut body = vec![7; 262144];
    for n in 0..1500u64 {
        body[..8].copy_from_slice(&n.to_le_bytes());
        port.send_timeout(SERVICE, &body, Duration::from_secs(20))?;
    }
    println!("flush {:?}", port.flush(Some(Duration::from_secs(20))));
    println!("sent {:?} {:?}", node.status().peers, node.events().iter().filter(|e| !matches!(e, polyrail::NodeEvent::Names)).collect::<Vec<_>>());
    Ok(())
}
