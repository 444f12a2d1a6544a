//! Something to put under a profiler: `profile echo|count IFACE` on one node, `profile ping|flood BYTES COUNT IFACE`
//! on the other. `profile self BYTES COUNT IFACE` sends to itself, so that only the program's own work is seen.
//! `profile engines BYTES COUNT [BURST]` has two engines talk in one thread under a clock of its own, one message at a time or
//! BURST, so that the same instructions are executed each time: for counting them. `profile embedded|attached BYTES COUNT` has two nodes
//! talk over `lo`, by ports of their own or of a program attached to each, all in one process that sleeps while it waits: what the
//! engine's process adds is the difference, counted twice with different COUNT. The others spin; figures to compare with come from
//! `polyrail bench`, not from here.

use polyrail::engine::client::{Arrival, Exchange};
use polyrail::engine::{Budget, Client, Engine};
use polyrail::{Class, Config, Destination, Node, NodeId, Port, Scope, ServiceAddress, ServiceRange, Wait};
use polyrail_bearer::{MemoryConfig, MemoryHub};
use polyrail_proto::id::Incarnation;
use polyrail_shm::Sizes;
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let role =
        args.first().ok_or("usage: profile echo|count IFACE | ping|flood|self BYTES COUNT IFACE | engines BYTES COUNT [BURST] | embedded|attached BYTES COUNT")?.clone();
    if role == "engines" {
        let burst = args.get(3).map_or(Ok(1), |word| word.parse())?;
        Pair::new()?.exchange(args[1].parse()?, args[2].parse()?, burst);
        return Ok(());
    }
    if role == "embedded" || role == "attached" {
        return two_nodes(role == "attached", args[1].parse()?, args[2].parse()?);
    }
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
        return ping_and_tell(&port, bytes, count);
    }
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    if role == "ping" { ping_and_tell(&port, bytes, count) } else { flood(&port, bytes, count) }
}

fn serve(port: &Port, echo: bool) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        let message = port.recv()?;
        if echo {
            port.send(message.from(), message.bytes())?;
        }
    }
}

fn ping_and_tell(port: &Port, bytes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (mut sends, mut trips) = ping(port, bytes, count)?;
    trips.sort_unstable();
    sends.sort_unstable();
    let (send, trip, rare) = (sends[count / 2], trips[count / 2], trips[count - count / 100]);
    println!("send p50 {send} ns, round trip p50 {trip} ns, p99 {rare} ns");
    Ok(())
}

/// Nanoseconds of each send and of each round trip. Nothing but the exchange is in it, so it can be measured alone.
#[inline(never)]
fn ping(
    port: &Port,
    bytes: usize,
    count: usize,
) -> Result<(Vec<u128>, Vec<u128>), Box<dyn std::error::Error>> {
    let (mut trips, mut sends) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let body = vec![7; bytes];
    for _ in 0..count {
        let start = Instant::now();
        port.send(SERVICE, &body)?;
        sends.push(start.elapsed().as_nanos());
        port.recv()?;
        trips.push(start.elapsed().as_nanos());
    }
    Ok((sends, trips))
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

/// Round trips between two nodes over `lo`, each of which has its engine driven by threads of its own or by the ports'.
fn two_nodes(is_attached: bool, bytes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let path = |end: &str| std::env::temp_dir().join(format!("profile-{}-{end}", std::process::id()));
    let settings = || Config::new().insecure().interfaces(["lo"]).shared_memory(false).discovery(false);
    let waiting = || Config::new().wait(Wait::Block);
    let first = Node::embed(settings().wait(Wait::Block).attach(path("a")))?;
    let met = first.status().bearers[0].address.clone();
    let second = Node::embed(settings().wait(Wait::Block).peers([met]).attach(path("b")))?;
    let guests = match is_attached {
        true => Some([Node::attach_with(path("a"), waiting())?, Node::attach_with(path("b"), waiting())?]),
        false => None,
    };
    let (asks, answers) = guests.as_ref().map_or((&first, &second), |[a, b]| (a, b));
    let (asking, answering) = (asks.port()?, answers.port()?);
    answering.bind(ServiceRange::from(SERVICE), Scope::Cluster)?;
    asking.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..count {
                let message = answering.recv().expect("the node is there");
                answering.send(message.from(), message.bytes()).expect("the sender waits for it");
            }
            answering.flush(None).expect("the sender is there");
        });
        ping_and_tell(&asking, bytes, count)
    })
}

/// Two engines over a medium in memory, each with a client that has bound the service of its number.
struct Pair {
    now_ns: u64,
    ends: [(Engine, Client); 2],
}

const SIZES: Sizes = Sizes { sq_entries: 1024, cq_entries: 32_768, tx_bytes: 16 << 20, rx_bytes: 16 << 20 };
/// Time from turn to turn.
const TURN_NS: u64 = 5_000;

impl Pair {
    /// The two have met and know each other's services.
    fn new() -> std::io::Result<Pair> {
        let now_ns = 1_000_000;
        let hub = MemoryHub::with_config(MemoryConfig { mtu_bytes: 1_472, ..MemoryConfig::default() });
        let end = |id: u32| -> std::io::Result<(Engine, Client)> {
            let config = polyrail_proto::Config::new(NodeId(id as u64 + 1), Incarnation(1));
            let mut engine = Engine::new(now_ns, config);
            engine.add_bearer(now_ns, Box::new(hub.bearer(id)));
            engine.add_loopback(now_ns, Box::new(MemoryHub::new().bearer(0)));
            let mut client = engine.open_client(SIZES, Exchange::default())?;
            let bound = client.bind(ServiceRange::from(service(id as usize)), Scope::Cluster);
            bound.expect("the queue is empty");
            Ok((engine, client))
        };
        let mut pair = Pair { now_ns, ends: [end(0)?, end(1)?] };
        for _ in 0..100_000 {
            (0..2).for_each(|end| pair.turn(end, Budget::THOROUGH));
        }
        for (_, client) in &mut pair.ends {
            assert!(matches!(client.poll(), Some(Arrival::Answer(0))), "the service is bound");
        }
        Ok(pair)
    }

    fn turn(&mut self, end: usize, budget: Budget) {
        self.now_ns += TURN_NS;
        self.ends[end].0.turn(self.now_ns, budget);
    }

    /// `count` messages each way, `burst` in turn. Each end has a turn to send, one that finds nothing and one to receive.
    #[inline(never)]
    fn exchange(&mut self, bytes: usize, count: usize, burst: usize) {
        let body = vec![7; bytes];
        for _ in 0..count / burst {
            for (from, to) in [(0, 1), (1, 0)] {
                let destination = Destination::Service(service(to));
                for _ in 0..burst {
                    let sent = self.ends[from].1.send(destination, Class::Normal, None, &body);
                    sent.expect("nothing else is under way");
                }
                self.turn(from, Budget::SENDING);
                self.turn(to, Budget::USUAL);
                let client = &mut self.ends[to].1;
                for _ in 0..burst {
                    let Some(Arrival::Message(envelope, offset)) = client.poll() else {
                        panic!("no message")
                    };
                    assert_eq!(client.bytes(offset, envelope.len), body);
                    client.release(offset, envelope.len);
                }
                self.turn(from, Budget::USUAL);
            }
        }
    }
}

fn service(end: usize) -> ServiceAddress {
    ServiceAddress::new(SERVICE.kind, end as u32)
}
