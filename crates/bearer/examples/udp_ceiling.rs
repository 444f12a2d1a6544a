//! What the UDP bearer alone can carry between two network name spaces: the ceiling for any protocol on it.
//!
//! ```text
//! cargo run --release -p polyrail-bearer --example udp_ceiling -- [SECONDS] [ROUNDS] [PRIORITY]
//! ```
//!
//! First trains of full-size datagrams stream one way for SECONDS (default 2); an ideal window, held in shared
//! memory and free of charge, keeps the receiver's buffer from overflowing. Then 64 bytes go to and fro ROUNDS
//! times (default 100,000). Both sides spin, each pinned to a processor of its own where there are two. Needs the
//! right to make network name spaces. The name spaces end with the program.
//!
//! On a machine that does other work too the figures say more about that work, unless a PRIORITY from 1 to 99 puts
//! both sides before everything else (SCHED_FIFO; it stops everything else meanwhile).

use std::io::IoSlice;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::yield_now;

use polyrail_bearer::{Bearer, RxBatch, SendOutcome, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Transmit};
use polyrail_bearer::{UdpBearer, UdpConfig};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::interface;
use polyrail_sys::process::{Whose, cpu_usage, cpus_allowed, pin_thread, set_realtime, unshare_netns};

/// Bytes on their way that the receiver's buffer surely holds.
const WINDOW_BYTES: u64 = 2 << 20;

#[derive(Default)]
struct Progress {
    received: u64,
    /// Set by the sender at the end: all that will ever be sent.
    total: Option<u64>,
}

struct Side {
    bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
    preemptions: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(2, |text| text.parse().expect("SECONDS is a number"));
    let rounds: usize = arguments.next().map_or(100_000, |text| text.parse().expect("ROUNDS is a number"));
    let priority: i32 = arguments.next().map_or(0, |text| text.parse().expect("PRIORITY is a number"));
    let places = Places { cpus: cpus_allowed().unwrap_or_default(), priority };
    let (mut near, mut far) = open_pair();
    stream(&mut near, &mut far, seconds * 1_000_000_000, &places);
    ping_pong(&mut near, &mut far, rounds, &places);
}

/// Two bearers at the ends of a cable, each in its own name space.
fn open_pair() -> (UdpBearer, UdpBearer) {
    let (ready, made) = channel();
    let (go, told) = channel::<()>();
    let near = std::thread::spawn(move || {
        unshare_netns().expect("the right to make network name spaces");
        let peer = made.recv().expect("the other side's thread number");
        ip(&format!("link add va type veth peer name vb netns {peer}"));
        ip("addr add 10.0.0.1/24 dev va");
        ip("link set va up");
        go.send(()).expect("the other side waits");
        open("va", "10.0.0.1")
    });
    let far = std::thread::spawn(move || {
        unshare_netns().expect("the right to make network name spaces");
        announce(&ready);
        told.recv().expect("the other side made the cable");
        ip("addr add 10.0.0.2/24 dev vb");
        ip("link set vb up");
        open("vb", "10.0.0.2")
    });
    (near.join().expect("the near side"), far.join().expect("the far side"))
}

fn announce(ready: &Sender<String>) {
    let link = std::fs::read_link("/proc/thread-self").expect("a thread number");
    let number = link.file_name().expect("a thread number").to_string_lossy().into_owned();
    ready.send(number).expect("the other side waits");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("the program ip");
    assert!(status.success(), "ip {arguments}");
}

fn open(device: &str, address: &str) -> UdpBearer {
    // Until the kernel has noticed that the cable is in, it drops what is sent.
    while !interface::list().expect("interfaces").iter().any(|one| one.name == device && one.running) {
        yield_now();
    }
    let bearer = UdpBearer::open(UdpConfig::new(device, address.parse().expect("an address")));
    let bearer = bearer.expect("a bearer");
    if let Some(warning) = bearer.buffer_warning() {
        eprintln!("{warning}");
    }
    bearer
}

/// Where and how urgently the two sides run.
struct Places {
    cpus: Vec<usize>,
    priority: i32,
}

impl Places {
    /// Puts the calling thread where `side` belongs. A thread inherits the place of the one that starts it, so
    /// each is put there by itself, from a list made before any was.
    fn take(&self, side: usize) {
        if let Some(&cpu) = self.cpus.get(side % self.cpus.len().max(1)) {
            // Without the right to, the figure is only less steady.
            let _ = pin_thread(cpu);
        }
        if self.priority > 0 {
            set_realtime(self.priority).expect("the right to a real-time priority");
        }
    }
}

fn measured(work: impl FnOnce() -> u64) -> Side {
    let usage = || cpu_usage(Whose::Thread).expect("usage of this thread");
    let (start_ns, start) = (monotonic_ns(), usage());
    let bytes = work();
    let end = usage();
    Side {
        bytes,
        wall_ns: monotonic_ns() - start_ns,
        cpu_ns: end.user_ns + end.system_ns - start.user_ns - start.system_ns,
        preemptions: end.preemptions - start.preemptions,
    }
}

fn stream(near: &mut UdpBearer, far: &mut UdpBearer, duration_ns: u64, places: &Places) {
    let to = far.local().address;
    let (progress, ready) = (Mutex::new(Progress::default()), Barrier::new(2));
    let (sender, receiver) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            places.take(1);
            ready.wait();
            measured(|| receive_all(far, &progress))
        });
        let sender = scope.spawn(|| {
            places.take(0);
            ready.wait();
            measured(|| send_for(near, to, duration_ns, &progress))
        });
        (sender.join().expect("the sender"), receiver.join().expect("the receiver"))
    });
    let gbit = receiver.bytes as f64 * 8.0 / receiver.wall_ns as f64;
    let lost = 100.0 * (1.0 - receiver.bytes as f64 / sender.bytes as f64);
    println!("stream: {gbit:.1} Gbit/s payload, {lost:.3} % lost");
    for (name, side) in [("sender", sender), ("receiver", receiver)] {
        let per_gb = side.cpu_ns as f64 / side.bytes as f64;
        println!("  {name}: {per_gb:.2} cpu s/GB, preempted {} times", side.preemptions);
    }
}

fn lock(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send_for(
    bearer: &mut UdpBearer,
    to: polyrail_bearer::Address,
    duration_ns: u64,
    progress: &Mutex<Progress>,
) -> u64 {
    let segment_bytes = usize::from(bearer.capabilities().mtu_bytes);
    let segments = (TRAIN_BYTES_MAX / segment_bytes).min(TRAIN_SEGMENTS_MAX);
    let payload = vec![7u8; segments * segment_bytes];
    // As in real use: a small header from one place and a payload from another, for each datagram.
    let slices: Vec<IoSlice> = payload
        .chunks(segment_bytes)
        .flat_map(|d| [IoSlice::new(&d[..24]), IoSlice::new(&d[24..])])
        .collect();
    let transmit = Transmit {
        to,
        segment_bytes,
        bytes: payload.len(),
        slices: &slices,
        express: true,
        lend: false,
        dscp: 0,
    };
    let (start_ns, mut sent) = (monotonic_ns(), 0u64);
    let mut heard = (0, start_ns);
    while monotonic_ns() - start_ns < duration_ns {
        let received = lock(progress).received;
        if received != heard.0 {
            heard = (received, monotonic_ns());
        }
        if sent - received > WINDOW_BYTES {
            // Losses would hold the window for ever; 100 ms without progress means that they have.
            if monotonic_ns() - heard.1 > 100_000_000 {
                lock(progress).received = sent;
            }
            yield_now();
            continue;
        }
        match bearer.send(&transmit) {
            SendOutcome::Sent => sent += payload.len() as u64,
            SendOutcome::WouldBlock | SendOutcome::Dropped => yield_now(),
            other => panic!("{other:?}"),
        }
    }
    lock(progress).total = Some(sent);
    sent
}

fn receive_all(bearer: &mut UdpBearer, progress: &Mutex<Progress>) -> u64 {
    let (mut batch, mut bytes) = (RxBatch::new(16), 0u64);
    loop {
        batch.clear();
        let ended = lock(progress).total.is_some();
        if bearer.recv(&mut batch, true).expect("receiving") > 0 {
            bytes += batch.total_bytes() as u64;
            lock(progress).received += batch.total_bytes() as u64;
        } else if ended {
            // The end was announced before this empty look: what is not here by now is lost.
            return bytes;
        } else {
            std::hint::spin_loop();
        }
    }
}

fn ping_pong(near: &mut UdpBearer, far: &mut UdpBearer, rounds: usize, places: &Places) {
    let (here, there) = (near.local().address, far.local().address);
    let ready = Barrier::new(2);
    let mut times_ns = std::thread::scope(|scope| {
        scope.spawn(|| {
            places.take(1);
            ready.wait();
            let mut batch = RxBatch::new(4);
            for _ in 0..rounds {
                await_one(far, &mut batch);
                send_64(far, here);
            }
        });
        let pinger = scope.spawn(|| {
            places.take(0);
            ready.wait();
            let (mut batch, mut times_ns) = (RxBatch::new(4), Vec::with_capacity(rounds));
            for _ in 0..rounds {
                let start_ns = monotonic_ns();
                send_64(near, there);
                await_one(near, &mut batch);
                times_ns.push(monotonic_ns() - start_ns);
            }
            times_ns
        });
        pinger.join().expect("the pinger")
    });
    times_ns.sort_unstable();
    let us = |share: f64| times_ns[((rounds - 1) as f64 * share) as usize] as f64 / 1_000.0;
    println!(
        "ping-pong 64 B, spinning: min {:.2} us, p50 {:.2} us, p99 {:.2} us, max {:.2} us",
        us(0.0),
        us(0.5),
        us(0.99),
        us(1.0)
    );
}

fn send_64(bearer: &mut UdpBearer, to: polyrail_bearer::Address) {
    let slices = [IoSlice::new(&[1; 64])];
    let outcome = bearer.send(&Transmit {
        to,
        segment_bytes: 64,
        bytes: 64,
        slices: &slices,
        express: true,
        lend: false,
        dscp: 0,
    });
    assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
}

fn await_one(bearer: &mut UdpBearer, batch: &mut RxBatch) {
    batch.clear();
    while bearer.recv(batch, true).expect("receiving") == 0 {
        std::hint::spin_loop();
    }
}
