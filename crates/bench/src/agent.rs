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
use crate::errand;
use crate::failover;
use crate::netns::{RELAY_WORD, relay};
use crate::process::{claim_the_machine, pin_thread};
use crate::protocol::polyrail::lodger::{NODE_WORD, run as run_node};
use crate::protocol::{self, Answerer, Caller, Caster, Flow, Pipe, Protocol, Server, Transactor};
use crate::workload::{
    NOT_DRAINING, QUESTION_BYTES, Surroundings, Workload, answer, call, play, play_beside, play_incast,
    play_parallel, serve, tool_cost,
};

/// The hidden sub-command under which the program must call [`agent_main`].
pub const AGENT_COMMAND: &str = "bench-agent";

/// How long one side waits for the other to appear; the receiver, for its process to be started too.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// Plays one side of a measurement, or the relay of a testbed; gives the process's exit code. `args` are those after
/// [`AGENT_COMMAND`]: none for a side.
pub fn agent_main(args: &[String]) -> i32 {
    if let Some((first, links)) = args.split_first()
        && first == RELAY_WORD
    {
        return match relay(links) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{error}");
                1
            }
        };
    }
    if args == [NODE_WORD] {
        return match run_node() {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{error}");
                1
            }
        };
    }
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
        Task::Tool(job) => {
            if let Some(core) = job.core {
                // Where pinning is refused the figure is that of the scheduler's choice.
                let _ = pin_thread(core);
            }
            say(&Event::Tool { cost: tool_cost(&job).map_err(|error| error.to_string())? });
            return Ok(());
        }
        Task::Run(errand) => return errand::run(&errand, notes, say),
        Task::Play(job) => job,
    };
    let protocol = protocol::find(&job.protocol).ok_or_else(|| format!("no protocol {}", job.protocol))?;
    let heard = Heard::new(&job);
    let (told, orders) = channel();
    let opening = Opening { job: &job, protocol, heard: &heard, orders: told, notes: &mut notes };
    let mut end = opening.end()?;
    say(&Event::Ready);
    let report = measure(&job, protocol, &mut end, &heard, &orders)?;
    say(&Event::Done(SideReport { notes, ..report }));
    // The pipes stay open until both sides have reported: closing them could discard what is still under way.
    wait_for(&orders, Order::Quit)
}

/// What one side works with.
enum End {
    /// Connected: one pipe, or two side by side.
    Pipes(Vec<Box<dyn Pipe>>),
    Answerer(Box<dyn Answerer>),
    Caller(Box<dyn Caller>),
    Server(Box<dyn Server>),
}

/// Does the work of one side; the pipes outlive it.
fn measure(
    job: &Job,
    protocol: &dyn Protocol,
    end: &mut End,
    heard: &Heard,
    orders: &Receiver<Order>,
) -> Result<SideReport, String> {
    wait_for(orders, Order::Go)?;
    // Of many clients nobody listens to each, and what they say costs the cores that all share.
    let tells = job.crowd.is_none() || job.role == Role::Receiver;
    let mut progress = |report: &SideReport| {
        if tells {
            say(&Event::Progress(report.clone()));
        }
    };
    let around = Surroundings { drain: &heard.drain[0], resume: &heard.resume, progress: &mut progress };
    let report = match end {
        End::Answerer(answerer) => answer(answerer.as_mut(), around),
        End::Caller(caller) => call(job, caller.as_mut(), around),
        End::Server(server) => serve(job, server.as_mut(), &heard.drain, around),
        End::Pipes(pipes) => match (job.workload, pipes.as_mut_slice()) {
            (Workload::Failover, [watched, bulk]) => {
                return failover::play(job, watched.as_mut(), bulk.as_mut(), orders, &say);
            }
            (Workload::Incast, pipes) => play_incast(job, pipes, around),
            (Workload::PingPong, [small, bulk]) => {
                let pipes: [&mut dyn Pipe; 2] = [small.as_mut(), bulk.as_mut()];
                play_beside(job, pipes, protocol.reliable(), &heard.drain, around)
            }
            (_, [pipe]) => play(job, pipe.as_mut(), protocol.reliable(), around),
            (_, pipes) => play_parallel(job, pipes, protocol.reliable(), &heard.drain, around),
        },
    };
    report.map_err(|error| format!("{}: {error}", job.protocol))
}

/// Orders that a side looks up in the middle of its work.
struct Heard {
    /// One for each flow, one at least.
    drain: Arc<[AtomicU64]>,
    resume: Arc<AtomicBool>,
}

impl Heard {
    fn new(job: &Job) -> Self {
        let drain = (0..job.flows.max(1)).map(|_| AtomicU64::new(NOT_DRAINING)).collect();
        Self { drain, resume: Arc::default() }
    }
}

fn wait_for(orders: &Receiver<Order>, wanted: Order) -> Result<(), String> {
    let found = orders.iter().any(|order| order == wanted);
    if found { Ok(()) } else { Err("ended before its time".to_owned()) }
}

/// One side that gets ready.
struct Opening<'a> {
    job: &'a Job,
    protocol: &'a dyn Protocol,
    heard: &'a Heard,
    orders: Sender<Order>,
    notes: &'a mut Vec<String>,
}

impl Opening<'_> {
    fn end(self) -> Result<End, String> {
        match (self.job.workload, self.job.role) {
            (_, Role::Receiver) if self.job.crowd.is_some() => self.server(),
            (Workload::Transact, Role::Receiver) => self.answerer(),
            (Workload::Transact, Role::Sender) => self.caller(),
            (Workload::Multicast, Role::Receiver) => self.members(),
            (Workload::Multicast, Role::Sender) => self.cast(),
            (_, Role::Receiver) => self.listen(),
            (_, Role::Sender) => self.connect(),
        }
    }

    fn answerer(mut self) -> Result<End, String> {
        let answerer =
            self.transactor()?.answerer(&self.job.setup).map_err(|error| self.failed("listen", error))?;
        self.is_listening(answerer.address());
        self.pin();
        Ok(End::Answerer(answerer))
    }

    fn caller(mut self) -> Result<End, String> {
        let address = self.address()?;
        let caller = self.transactor()?.caller(&self.job.setup, &address);
        self.pin();
        Ok(End::Caller(caller.map_err(|error| self.failed(&address, error))?))
    }

    /// Serves several clients.
    fn server(mut self) -> Result<End, String> {
        let clients = self.job.crowd.map_or(1, |crowd| crowd.clients);
        let hub = self.protocol.hub().ok_or_else(|| format!("{}: serves one sender", self.job.protocol))?;
        let mut server =
            hub.server(&self.job.setup, clients).map_err(|error| self.failed("listen", error))?;
        self.is_listening(server.address());
        self.pin();
        server.accept(CONNECT_MAX).map_err(|error| self.failed("accept", error))?;
        Ok(End::Server(server))
    }

    /// Listens as one of several nodes that get the same messages.
    fn members(mut self) -> Result<End, String> {
        // It stands for a machine of its own: all of its threads are started by this one, and stay where it is.
        self.pin();
        let pipes = self.caster()?.members(&self.job.setup).map_err(|error| self.failed("listen", error))?;
        self.is_listening(String::new());
        Ok(End::Pipes(pipes))
    }

    fn cast(mut self) -> Result<End, String> {
        // Members are found by name: what they say is only that they are there.
        self.address()?;
        let pipe = self.caster()?.cast(&self.job.setup, self.job.flows, CONNECT_MAX);
        self.pin();
        Ok(End::Pipes(vec![pipe.map_err(|error| self.failed("find the members", error))?]))
    }

    /// Listens for one pipe, or for two side by side.
    fn listen(mut self) -> Result<End, String> {
        let listeners =
            self.protocol.listen_flows(&self.setups()).map_err(|error| self.failed("listen", error))?;
        let addresses: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
        self.is_listening(addresses.join(" "));
        // A protocol's own threads begin before the pinning and stay free; only the measuring thread is bound.
        self.pin();
        let accept = |listener: Box<dyn protocol::Listener>| listener.accept(CONNECT_MAX);
        let pipes: io::Result<_> = listeners.into_iter().map(accept).collect();
        Ok(End::Pipes(pipes.map_err(|error| self.failed("accept", error))?))
    }

    fn connect(mut self) -> Result<End, String> {
        let (address, setups) = (self.address()?, self.setups());
        let flow = |(setup, address)| Flow { setup, address };
        let flows: Vec<Flow> = setups.iter().zip(address.split(' ')).map(flow).collect();
        let pipes = self.protocol.connect_flows(&flows, CONNECT_MAX);
        let pipes = pipes.map_err(|error| self.failed(&format!("connect to {address}"), error))?;
        self.pin();
        Ok(End::Pipes(pipes))
    }

    /// The conditions of each pipe.
    fn setups(&self) -> Vec<Setup> {
        let (job, setup) = (self.job, &self.job.setup);
        match (job.workload, job.role) {
            // What it takes are questions, or answers of that size.
            (Workload::Incast | Workload::Lone, Role::Sender) => {
                vec![Setup { size: QUESTION_BYTES, ..setup.clone() }]
            }
            _ if job.beside.is_some() => {
                let bulk = job.beside.as_ref().map(|beside| &beside.bulk);
                [setup].into_iter().chain(bulk).cloned().collect()
            }
            _ => (0..job.flows.max(1)).map(|n| Setup { flow: setup.flow + n, ..setup.clone() }).collect(),
        }
    }

    fn transactor(&self) -> Result<&dyn Transactor, String> {
        self.protocol.transactor().ok_or_else(|| format!("{}: makes no transactions", self.job.protocol))
    }

    fn caster(&self) -> Result<&dyn Caster, String> {
        let none = || format!("{}: does not send to several nodes", self.job.protocol);
        self.protocol.caster().ok_or_else(none)
    }

    fn failed(&self, what: &str, error: io::Error) -> String {
        format!("{}: {what}: {error}", self.job.protocol)
    }

    fn is_listening(&self, address: String) {
        say(&Event::Listening { address });
        hear(self.heard, self.orders.clone());
    }

    /// Where the receiver is. From here on orders are heard: nothing else is read from standard input.
    fn address(&self) -> Result<String, String> {
        let Address { address } = read_line()?;
        hear(self.heard, self.orders.clone());
        Ok(address)
    }

    fn pin(&mut self) {
        if let Some(Err(note)) = self.job.core.map(pin_thread) {
            self.notes.push(note);
        }
    }
}

/// Hears orders in a thread of its own; it sleeps but for a handful of lines.
fn hear(heard: &Heard, orders: Sender<Order>) {
    let (drain, resume) = (heard.drain.clone(), heard.resume.clone());
    std::thread::spawn(move || {
        loop {
            match read_line::<Order>() {
                Ok(Order::Drain { expected }) => {
                    drain.iter().zip(expected).for_each(|(place, sent)| place.store(sent, Ordering::Relaxed));
                }
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
