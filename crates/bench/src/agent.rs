//! The measured process: one side of one measurement, told what to do on standard input.
//!
//! It is the program itself, started again with a hidden sub-command, so that the same code runs inside any
//! namespace without being installed there. It ends when its standard input ends: an orchestrator that dies takes
//! its processes with it.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::calibrate::calibrate;
use crate::control::{Address, Event, Job, Order, Role, SideReport, Task};
use crate::process::{claim_the_machine, pin_thread};
use crate::protocol::{self, Pipe, Protocol};
use crate::workload::{NOT_DRAINING, Surroundings, play};

/// The hidden sub-command under which the program must call [`agent_main`].
pub const AGENT_COMMAND: &str = "bench-agent";

/// How long one side waits for the other to appear.
const CONNECT_MAX: Duration = Duration::from_secs(5);

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
    let (drain, quit) = (Arc::new(AtomicU64::new(NOT_DRAINING)), channel());
    let (mut pipe, go) = open(&job, protocol, &drain, quit.0, &mut notes)?;
    say(&Event::Ready);
    go.recv().map_err(|_| "ended before the start".to_owned())?;
    let mut progress = |report: &SideReport| say(&Event::Progress(report.clone()));
    let around = Surroundings { drain: &drain, progress: &mut progress };
    let played = play(&job, pipe.as_mut(), protocol.reliable(), around);
    let report = played.map_err(|error| format!("{}: {error}", job.protocol))?;
    say(&Event::Done(SideReport { notes, ..report }));
    // The pipe stays open until both sides have reported: closing it could discard what is still under way.
    let _ = quit.1.recv();
    Ok(())
}

/// Connects the pair. The thread that hears orders starts once nothing else is read from standard input.
fn open(
    job: &Job,
    protocol: &dyn Protocol,
    drain: &Arc<AtomicU64>,
    quit: Sender<()>,
    notes: &mut Vec<String>,
) -> Result<(Box<dyn Pipe>, Receiver<()>), String> {
    let failed = |what: &str, error: io::Error| format!("{}: {what}: {error}", job.protocol);
    // A protocol's own threads begin before the pinning and stay free; only the measuring thread is bound.
    let mut pin = || {
        if let Some(Err(note)) = job.core.map(pin_thread) {
            notes.push(note);
        }
    };
    match job.role {
        Role::Receiver => {
            let listener = protocol.listen(&job.setup).map_err(|error| failed("listen", error))?;
            say(&Event::Listening { address: listener.address() });
            let go = hear(drain.clone(), quit);
            pin();
            let pipe = listener.accept(CONNECT_MAX).map_err(|error| failed("accept", error))?;
            Ok((pipe, go))
        }
        Role::Sender => {
            let Address { address } = read_line()?;
            let go = hear(drain.clone(), quit);
            let pipe = protocol
                .connect(&job.setup, &address, CONNECT_MAX)
                .map_err(|error| failed(&format!("connect to {address}"), error))?;
            pin();
            Ok((pipe, go))
        }
    }
}

/// Hears orders in a thread of its own; it sleeps but for a handful of lines.
fn hear(drain: Arc<AtomicU64>, quit: Sender<()>) -> Receiver<()> {
    let (go, started) = channel();
    std::thread::spawn(move || {
        loop {
            // An error of sending means that the main thread has gone on without needing the order.
            match read_line::<Order>() {
                Ok(Order::Go) => drop(go.send(())),
                Ok(Order::Drain { expected }) => drain.store(expected, Ordering::Relaxed),
                Ok(Order::Quit) => drop(quit.send(())),
                Err(_) => std::process::exit(3),
            }
        }
    });
    started
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
