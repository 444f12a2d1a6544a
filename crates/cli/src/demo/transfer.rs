//! One transfer: both roles started, the switches thrown as bytes arrive, everything heard.

use super::input::Input;
use super::role::{self, Event, Job, Received};
use super::say;
use super::script::{STEPS, Step};
use crate::failure::{Exit, Failure};
use crate::size::show_bytes;
use crate::{log, node};
use polyrail_bench::netns::Testbed;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const SENDER_NODE: usize = 0;
const RECEIVER_NODE: usize = 1;
/// The orchestrator hears of progress many times a second; this long without any is a failure.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What came of the transfer.
pub struct Transfer {
    /// What the receiver found.
    pub received: Received,
    /// Largest lateness of the open-loop flow between one switch and the next, in ms, by the switch's name.
    /// `None` where nothing was due in between.
    pub gaps_ms: Vec<(&'static str, Option<f64>)>,
    /// Largest lateness before the first switch, in ms.
    pub undisturbed_ms: Option<f64>,
}

/// What reaches the orchestrator.
enum Heard {
    Role(Event),
    Ended(&'static str),
    Interrupted,
}

/// Sends the input from node a to node b and disturbs it by the script.
pub fn run(testbed: &mut Testbed, input: &Input) -> Result<Transfer, Failure> {
    let (tell, heard) = channel();
    hear_signals(tell.clone())?;
    let _receiver = Role::start(testbed, RECEIVER_NODE, "receiver", &Job::Receive, tell.clone())?;
    match next(&heard)? {
        Event::Bound => {}
        _ => return Err(Failure::failed("the receiver did not begin by binding")),
    }
    let job = Job::Send { path: input.path() };
    let _sender = Role::start(testbed, SENDER_NODE, "sender", &job, tell)?;
    let (received, thrown) = watch(testbed, input, &heard)?;
    Ok(conclude(received, &thrown))
}

/// Until the receiver has everything and the sender knows it.
fn watch(
    testbed: &mut Testbed,
    input: &Input,
    heard: &Receiver<Heard>,
) -> Result<(Received, Vec<(Step, u64)>), Failure> {
    let mut steps = STEPS.iter().peekable();
    let mut thrown = Vec::new();
    let mut live = Live::new(input.bytes);
    let (mut received, mut acknowledged) = (None, false);
    loop {
        match next(heard)? {
            Event::Progress(bytes) => {
                live.show(bytes);
                if let Some(step) = steps.next_if(|step| bytes * 100 >= input.bytes * step.at_percent) {
                    thrown.push((*step, role::now_us()));
                    step.throw(testbed)?;
                    log::info(format_args!("{:.3} s  {}", role::now_us() as f64 / 1e6, step.describe()));
                    live.line(format_args!("{:3} %  {}", bytes * 100 / input.bytes, step.describe()));
                }
            }
            Event::Received(found) => received = Some(found),
            Event::Acknowledged => acknowledged = true,
            Event::Failed(message) => return Err(Failure::failed(message)),
            Event::Bound | Event::News(_) => {}
        }
        if let Some(found) = received.take_if(|_| acknowledged) {
            live.line(format_args!("100 %  {} in {:.2} s", show_bytes(found.bytes), found.seconds));
            return Ok((found, thrown));
        }
    }
}

/// The next event that matters; news are passed on to the log.
fn next(heard: &Receiver<Heard>) -> Result<Event, Failure> {
    loop {
        match heard.recv_timeout(SILENCE_MAX) {
            Ok(Heard::Role(Event::Failed(message))) => return Err(Failure::failed(message)),
            Ok(Heard::Role(Event::News(news))) => {
                let seconds = news.at_us as f64 / 1e6;
                log::info(format_args!("{seconds:.3} s  node {}: {}", news.node, news.what));
            }
            Ok(Heard::Role(event)) => return Ok(event),
            Ok(Heard::Ended(name)) => {
                return Err(Failure::failed(format!("the {name} ended before the transfer did")));
            }
            Ok(Heard::Interrupted) => return Err(Failure::failed("interrupted")),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = SILENCE_MAX.as_secs();
                return Err(Failure::new(Exit::TimedOut, format!("no progress for {seconds} s")));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::failed("both roles ended")),
        }
    }
}

/// The largest lateness from each switch to the next one.
fn conclude(received: Received, thrown: &[(Step, u64)]) -> Transfer {
    let worst = |from_us: u64, to_us: u64| {
        // What was due just before the switch may be the first to be late.
        let due = |due_us: u64| due_us + role::TICK_SPACING.as_micros() as u64 >= from_us && due_us < to_us;
        let late = received.ticks.iter().filter(|(due_us, _)| due(*due_us)).map(|(_, late_us)| *late_us);
        late.max().map(|late_us| late_us as f64 / 1e3)
    };
    let ends = thrown.iter().skip(1).map(|(_, at_us)| *at_us).chain([u64::MAX]);
    let gaps_ms = thrown.iter().zip(ends).map(|((step, at_us), end_us)| (step.name, worst(*at_us, end_us)));
    let gaps_ms = gaps_ms.collect();
    let undisturbed_ms = worst(0, thrown.first().map_or(u64::MAX, |(_, at_us)| *at_us));
    Transfer { gaps_ms, undisturbed_ms, received }
}

/// A role's process; ended with the value.
struct Role {
    child: Child,
    /// The role ends when this closes.
    stdin: Option<ChildStdin>,
}

impl Role {
    fn start(
        testbed: &Testbed,
        node: usize,
        name: &'static str,
        job: &Job,
        tell: Sender<Heard>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut command = testbed.command(node, program);
        command.arg(role::COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::failed(format!("{name}: {error}")))?;
        let stdout = child.stdout.take().expect("the role's output is piped");
        let mut role = Role { stdin: child.stdin.take(), child };
        let line = serde_json::to_string(job).expect("a job is plain data");
        if let Some(stdin) = &mut role.stdin {
            writeln!(stdin, "{line}")?;
        }
        std::thread::spawn(move || hear(stdout, name, &tell));
        Ok(role)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Fails only if it has ended already.
        let _ = self.child.wait();
    }
}

fn hear(stdout: impl Read, name: &'static str, tell: &Sender<Heard>) {
    // Nobody listens any more once the transfer is over: then an error of `send` is right.
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if let Ok(event) = serde_json::from_str(&line) {
            let _ = tell.send(Heard::Role(event));
        }
    }
    let _ = tell.send(Heard::Ended(name));
}

/// A signal ends the demo in order, so that no namespace is left.
fn hear_signals(tell: Sender<Heard>) -> Result<(), Failure> {
    let mut signals = node::signals()?;
    std::thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            let _ = tell.send(Heard::Interrupted);
        }
    });
    Ok(())
}

/// Progress on the standard error, redrawn in place on a terminal.
struct Live {
    bytes_all: u64,
    terminal: bool,
    last: (Instant, u64),
}

impl Live {
    fn new(bytes_all: u64) -> Self {
        Live { bytes_all, terminal: std::io::stderr().is_terminal(), last: (Instant::now(), 0) }
    }

    fn show(&mut self, bytes: u64) {
        let seconds = self.last.0.elapsed().as_secs_f64();
        if self.terminal && seconds >= 0.1 {
            let mbps = (bytes - self.last.1) as f64 * 8e-6 / seconds;
            let percent = bytes * 100 / self.bytes_all;
            let _ = write!(std::io::stderr(), "\r\x1b[K{percent:3} %  {mbps:.0} Mbit/s");
            self.last = (Instant::now(), bytes);
        }
    }

    fn line(&self, text: std::fmt::Arguments<'_>) {
        say(format_args!("{}{text}", if self.terminal { "\r\x1b[K" } else { "" }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_belongs_to_the_switch_before_it() {
        let ticks = vec![(1_000, 400), (9_500, 7_000), (12_000, 300), (20_000, 25_000)];
        let received = Received {
            bytes: 0,
            sha256: String::new(),
            lost: 0,
            duplicated: 0,
            disordered: 0,
            seconds: 0.0,
            ticks,
        };
        let transfer = conclude(received, &[(STEPS[0], 10_000), (STEPS[1], 19_000), (STEPS[2], 28_000)]);
        assert_eq!(
            transfer.gaps_ms,
            [("carrier", Some(7.0)), ("carrier_restored", Some(25.0)), ("black_hole", None)]
        );
        assert_eq!(transfer.undisturbed_ms, Some(7.0));
    }
}
