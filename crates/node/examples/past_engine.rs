//! What a message past the engine costs, in one process and easy to profile: `past_engine rate|ping BYTES COUNT [REPETITIONS [block]]`
//! has two threads, each attached to a node for itself, on core 0 and 1, that spin or sleep. `past_engine alone BYTES COUNT` sends and receives by turns in one
//! thread, so that the same instructions are executed each time: for counting them. Figures to compare with come from
//! `polyrail bench`, not from here.

use polyrail::{Config, Destination, Message, Node, Port, Scope, ServiceAddress, ServiceRange, Wait};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
const ANSWERS: ServiceAddress = ServiceAddress::new(1000, 2);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [role, bytes, count, more @ ..] = &args[..] else {
        return Err("usage: past_engine rate|ping|alone BYTES COUNT [REPETITIONS [block]]".into());
    };
    let (bytes, count) = (bytes.parse()?, count.parse()?);
    let repetitions = more.first().map_or(Ok(1), |word| word.parse::<usize>())?;
    let wait = if more.get(1).is_some_and(|word| word == "block") { Wait::Block } else { Wait::Spin };
    let path = std::env::temp_dir().join(format!("past-engine-{}.attach", std::process::id()));
    let _node = Node::embed(Config::new().insecure().interfaces(["lo"]).attach(&path))?;
    let guest = || -> Outcome<Node> { Ok(Node::attach_with(&path, Config::new().wait(wait))?) };
    for _ in 0..repetitions {
        let (here, there) = (guest()?, guest()?);
        match role.as_str() {
            "alone" => alone(&here.port()?, &there.port()?, bytes, count)?,
            role => {
                let word_ns = bare_word_ns();
                let ns = both(&here, &there, role == "ping", (bytes, count))?;
                println!("{ns:.1} ns, {:.2} M/s (a word takes {word_ns:.0} ns)", 1e3 / ns);
            }
        }
    }
    Ok(())
}

/// Nanoseconds for each message one way.
fn both(here: &Node, there: &Node, is_ping: bool, (bytes, count): (usize, u64)) -> Outcome<f64> {
    let (to, from) = (there.port()?, here.port()?);
    to.bind(ServiceRange::from(SERVICE), Scope::Node)?;
    from.bind(ServiceRange::from(ANSWERS), Scope::Node)?;
    from.wait_for(SERVICE, None)?;
    to.wait_for(ANSWERS, None)?;
    thread::scope(|scope| {
        let server = scope.spawn(move || serve(&to, is_ping, count));
        pin(1);
        let ns = if is_ping { ping(&from, bytes, count) } else { flood(&from, bytes, count) };
        server.join().expect("the receiver does not panic")?;
        ns
    })
}

fn serve(port: &Port, is_ping: bool, count: u64) -> Outcome<()> {
    pin(0);
    let mut taken = 0;
    while taken < count {
        if is_ping {
            let each = |message: &Message<'_>| {
                port.send(message.from(), message.bytes()).expect("the sender waits for it");
            };
            taken += port.recv_each(64, None, each)? as u64;
            continue;
        }
        taken += take(port)?;
    }
    port.send(ANSWERS, b"all")?;
    Ok(())
}

#[inline(never)]
fn flood(port: &Port, bytes: usize, count: u64) -> Outcome<f64> {
    let mut message = vec![7; bytes];
    let began = Instant::now();
    for number in 0..count {
        message[..8].copy_from_slice(&number.to_ne_bytes());
        port.send(SERVICE, &message)?;
    }
    port.recv()?;
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

#[inline(never)]
fn ping(port: &Port, bytes: usize, count: u64) -> Outcome<f64> {
    let message = vec![7; bytes];
    let began = Instant::now();
    for _ in 0..count {
        port.send(SERVICE, &message)?;
        port.recv_each(1, None, |_| ())?;
    }
    let ns = began.elapsed().as_nanos() as f64 / (2 * count) as f64;
    port.recv()?;
    Ok(ns)
}

/// Sends to itself by another port, so that a profiler counts the same instructions each time.
fn alone(from: &Port, to: &Port, bytes: usize, count: u64) -> Outcome<()> {
    to.bind(ServiceRange::from(SERVICE), Scope::Node)?;
    from.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    // Until there is a ring.
    for _ in 0..100 {
        from.send(SERVICE, b"first")?;
        to.recv()?;
        from.flush(None)?;
    }
    by_turns(from, to, bytes, count)
}

#[inline(never)]
fn by_turns(from: &Port, to: &Port, bytes: usize, count: u64) -> Outcome<()> {
    const BATCH: u64 = 64;
    let (message, to_service) = (vec![7; bytes], Destination::Service(SERVICE));
    for _ in 0..count / BATCH {
        for _ in 0..BATCH {
            put(from, to_service, &message)?;
        }
        let mut taken = 0;
        while taken < BATCH {
            taken += take(to)?;
        }
    }
    Ok(())
}

#[inline(never)]
fn put(port: &Port, to: Destination, message: &[u8]) -> Outcome<()> {
    Ok(port.send(to, message)?)
}

#[inline(never)]
fn take(port: &Port) -> Outcome<u64> {
    let each = |message: &Message<'_>| {
        std::hint::black_box(message.bytes());
    };
    Ok(port.recv_each(64, None, each)? as u64)
}

/// How long a word takes from one core to the other.
fn bare_word_ns() -> f64 {
    const ROUNDS: u64 = 50_000;
    #[repr(align(128))]
    struct Alone(AtomicU64);
    let word = &Alone(AtomicU64::new(0));
    let turns = |core, parity| {
        pin(core);
        let began = Instant::now();
        for round in 0..ROUNDS {
            while word.0.load(Ordering::Acquire) != 2 * round + parity {
                std::hint::spin_loop();
            }
            word.0.store(2 * round + parity + 1, Ordering::Release);
        }
        began.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64
    };
    thread::scope(|scope| {
        scope.spawn(|| turns(0, 0));
        turns(1, 1)
    })
}

fn pin(core: usize) {
    let _ = polyrail_sys::process::pin_thread(core);
}
