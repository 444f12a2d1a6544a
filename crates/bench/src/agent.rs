//! The measured process: one side of one measurement, told what to do on standard input.
//!
//! It is the program itself, started again with a hidden sub-command, so that the same code runs inside any
//! namespace without being installed there. It ends when its standard input ends: an orchestrator that dies takes
//! its processes with it.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::calibrate::calibrate;
use crate::control::{Address, Event, Job, Order, Role, Setup, SideReport, Task};
use crate::failover;
use crate::process::{claim_the_machine, pin_thread};
use crate::protocol::{self, Flow, Pipe, Protocol};
use crate::workload::{NOT_DRAINING, Surroundings, play};

/// The hidden sub-command under which the program must call [`agent_main`].
pub const AGENT_COMMAND: &str = "bench-agent";

/// How long one side waits for the other to appear; the receiver, for its process to be started too.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// Plays one side of a measurement; gives the process's exit code. `args` are those after [`AGENT_COMMAND`]: none.
pub fn agent_main(args: &[String]) -> i32 {
    if !args.is_empty() || std::io::IsTerminal::is_terminal(&io::stdin()) {
        eprintln!("{AGENT_COMMAND} is started by `polyrail bench` and takes its orders from there");
        return 2;
    }
    match work() {
        Ok(()) => 0,
        Err(error) => {
            say(&Event::Failed { error });
            1
        }
    }
}

fn work() -> Result<(), String> {
    let task: Task = read_line()?;
    let mut notes = claim_the_machine();
    let job = match task {
        Task::Calibrate => {
            say(&Event::Pulse(calibrate()));
            return Ok(());
        }
        Task::Play(job) => job,
    };
    let protocol = protocol::find(&job.protocol).ok_or_else(|| format!("no protocol {}", job.protocol))?;
    let heard = Heard::default();
    let (told, orders) = channel();
    let mut pipes = open(&job, protocol, &heard, told, &mut notes)?;
    say(&Event::Ready);
    let report = measure(&job, protocol, &mut pipes, &heard, &orders)?;
    say(&Event::Done(SideReport { notes, ..report }));
    // The pipes stay open until both sides have reported: closing them could discard what is still under way.
    wait_for(&orders, Order::Quit)
}

/// Does the work of one side; the pipes outlive it.
fn measure(
    job: &Job,
    protocol: &dyn Protocol,
    pipes: &mut [Box<dyn Pipe>],
    heard: &Heard,
    orders: &Receiver<Order>,
) -> Result<SideReport, String> {
    wait_for(orders, Order::Go)?;
    if let [watched, bulk] = pipes {
        return failover::play(job, watched.as_mut(), bulk.as_mut(), orders, &say);
    }
    let pipe = pipes.first_mut().ok_or("nothing connected")?;
    let mut progress = |report: &SideReport| say(&Event::Progress(report.clone()));
    let around = Surroundings { drain: &heard.drain, resume: &heard.resume, progress: &mut progress };
    play(job, pipe.as_mut(), protocol.reliable(), around)
        .map_err(|error| format!("{}: {error}", job.protocol))
}

/// Orders that a side looks up in the middle of its work.
struct Heard {
    drain: Arc<AtomicU64>,
    resume: Arc<AtomicBool>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { drain: Arc::new(AtomicU64::new(NOT_DRAINING)), resume: Arc::default() }
    }
}

fn wait_for(orders: &Receiver<Order>, wanted: Order) -> Result<(), String> {
    let found = orders.iter().any(|order| order == wanted);
    if found { Ok(()) } else { Err("ended before its time".to_owned()) }
}

/// Connects the pair: one pipe, or two side by side. The thread that hears orders starts once nothing else is read
/// from standard input.
fn open(
    job: &Job,
    protocol: &dyn Protocol,
    heard: &Heard,
    orders: Sender<Order>,
    notes: &mut Vec<String>,
) -> Result<Vec<Box<dyn Pipe>>, String> {
    let failed = |what: &str, error: io::Error| format!("{}: {what}: {error}", job.protocol);
    let setups: Vec<Setup> =
        [&job.setup].into_iter().chain(job.beside.as_ref().map(|beside| &beside.bulk)).cloned().collect();
    // A protocol's own threads begin before the pinning and stay free; only the measuring thread is bound.
    let mut pin = || {
        if let Some(Err(note)) = job.core.map(pin_thread) {
            notes.push(note);
        }
    };
    match job.role {
        Role::Receiver => {
            let listeners = protocol.listen_flows(&setups).map_err(|error| failed("listen", error))?;
            let addresses: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
            say(&Event::Listening { address: addresses.join(" ") });
            hear(heard, orders);
            pin();
            let accept = |listener: Box<dyn protocol::Listener>| listener.accept(CONNECT_MAX);
            listeners
                .into_iter()
                .map(accept)
                .collect::<io::Result<_>>()
                .map_err(|error| failed("accept", error))
        }
        Role::Sender => {
            let Address { address } = read_line()?;
            hear(heard, orders);
            let flow = |(setup, address)| Flow { setup, address };
            let flows: Vec<Flow> = setups.iter().zip(address.split(' ')).map(flow).collect();
            let pipes = protocol
                .connect_flows(&flows, CONNECT_MAX)
                .map_err(|error| failed(&format!("connect to {address}"), error))?;
            pin();
            Ok(pipes)
        }
    }
}

/// Hears orders in a thread of its own; it sleeps but for a handful of lines.
fn hear(heard: &Heard, orders: Sender<Order>) {
    let (drain, resume) = (heard.drain.clone(), heard.resume.clone());
    std::thread::spawn(move || {
        loop {
            match read_line::<Order>() {
                Ok(Order::Drain { expected }) => drain.store(expected, Ordering::Relaxed),
                Ok(Order::Resume) => resume.store(true, Ordering::Relaxed),
                // An error of sending means that the main thread has gone on without needing the order.
                Ok(order) => drop(orders.send(order)),
                Err(_) => std::process::exit(3),
            }
        }
    });
}

fn read_line<T: DeserializeOwned>() -> Result<T, String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err("the orchestrator has gone".to_owned()),
        Ok(_) => serde_json::from_str(&line).map_err(|error| format!("order not understood: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

fn say(event: &Event) {
    let Ok(mut line) = serde_json::to_string(event) else { return };
    line.push('\n');
    // If nobody listens, standard input has ended too and the process ends by that.
    let mut out = io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
