//! One transfer: both roles started, the switches thrown as bytes arrive, everything heard.
//!
//! A switch is thrown when enough bytes have arrived and both nodes have noticed the one before. That matters most
//! after a fault is healed: a kernel may need a second to put an interface back into service, and to cut the other link
//! meanwhile would isolate the nodes for longer than a session tolerates. The sender, held back by its
//! [`Allowance`], has something left to send until the last switch has been noticed.

use super::allowance::Allowance;
use super::input::Input;
use super::links::Links;
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
/// Both nodes notice a switch within this. It takes milliseconds, but a busy kernel may keep an interface out of service
/// for seconds.
const NOTICE_MAX: Duration = Duration::from_secs(30);
/// The sender may get ahead of the next switch by this share of the bytes, in percent.
const AHEAD_PERCENT: u64 = 10;

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
    let mut ears = Ears { heard, links: Links::default() };
    let _receiver = Role::start(testbed, RECEIVER_NODE, "receiver", &Job::Receive, tell.clone())?;
    loop {
        match ears.next(None)? {
            Some(Event::Bound) => break,
            Some(Event::News(_)) => {}
            _ => return Err(Failure::failed("the receiver did not begin by binding")),
        }
    }
    let job = Job::Send { path: input.path(), allowed_bytes: allowed_bytes(input, STEPS.first()) };
    let sender = Role::start(testbed, SENDER_NODE, "sender", &job, tell)?;
    let mut conductor = Conductor { sender, next: 0, unnoticed_since: None, thrown: Vec::new() };
    let received = watch(testbed, input, &mut ears, &mut conductor)?;
    Ok(conclude(received, &conductor.thrown))
}

/// Until the receiver has everything and the sender knows it.
fn watch(
    testbed: &mut Testbed,
    input: &Input,
    ears: &mut Ears,
    conductor: &mut Conductor,
) -> Result<Received, Failure> {
    let mut live = Live::new(input.bytes);
    let (mut received, mut acknowledged, mut bytes_received) = (None, false, 0);
    loop {
        match ears.next(conductor.unnoticed_since.map(|since| since + NOTICE_MAX))? {
            Some(Event::Progress(bytes)) => {
                bytes_received = bytes;
                live.show(bytes);
            }
            Some(Event::Received(found)) => received = Some(found),
            Some(Event::Acknowledged) => acknowledged = true,
            Some(Event::Bound | Event::News(_) | Event::Failed(_)) | None => {}
        }
        conductor.notice(input, &ears.links)?;
        if let Some(step) = conductor.throw_next(testbed, input, bytes_received)? {
            live.line(format_args!("{:3} %  {}", bytes_received * 100 / input.bytes, step.describe()));
        }
        if let Some(found) = received.take_if(|_| acknowledged) {
            live.line(format_args!("100 %  {} in {:.2} s", show_bytes(found.bytes), found.seconds));
            return Ok(found);
        }
    }
}

/// What the sender may send at full speed while `next` is the next switch.
fn allowed_bytes(input: &Input, next: Option<&Step>) -> u64 {
    next.map_or(Allowance::ALL, |step| input.bytes * (step.at_percent + AHEAD_PERCENT) / 100)
}

/// Goes through the script.
struct Conductor {
    sender: Role,
    /// The index in [`STEPS`] of the switch to throw next.
    next: usize,
    /// When the switch before was thrown, while a node has not noticed it.
    unnoticed_since: Option<Instant>,
    /// Switches thrown, and when, by [`role::now_us`].
    thrown: Vec<(Step, u64)>,
}

impl Conductor {
    /// Throws the next switch if enough bytes have arrived and the one before was noticed.
    fn throw_next(
        &mut self,
        testbed: &mut Testbed,
        input: &Input,
        bytes: u64,
    ) -> Result<Option<Step>, Failure> {
        let Some(step) = STEPS.get(self.next).filter(|_| self.unnoticed_since.is_none()) else {
            return Ok(None);
        };
        if bytes * 100 < input.bytes * step.at_percent {
            return Ok(None);
        }
        self.next += 1;
        let thrown_us = role::now_us();
        self.thrown.push((*step, thrown_us));
        step.throw(testbed)?;
        self.unnoticed_since = Some(Instant::now());
        log::info(format_args!("{:.3} s  {}", thrown_us as f64 / 1e6, step.describe()));
        Ok(Some(*step))
    }

    /// Looks whether both nodes have noticed the last switch; lets the sender go on if they have.
    fn notice(&mut self, input: &Input, links: &Links) -> Result<(), Failure> {
        let (Some(since), Some((step, _))) = (self.unnoticed_since, self.thrown.last()) else {
            return Ok(());
        };
        if links.agree(step.link(), step.heals()) {
            self.unnoticed_since = None;
            return self.sender.say(allowed_bytes(input, STEPS.get(self.next)));
        }
        if since.elapsed() < NOTICE_MAX {
            return Ok(());
        }
        let wanted = if step.heals() { "usable again" } else { "lost" };
        let (what, seconds) = (step.describe(), NOTICE_MAX.as_secs());
        let words = links.describe(step.link());
        let message =
            format!("{what}, but not both nodes held the link for {wanted} after {seconds} s: {words}");
        Err(Failure::new(Exit::TimedOut, message))
    }
}

/// Where everything is heard.
struct Ears {
    heard: Receiver<Heard>,
    /// What the nodes said of their links so far.
    links: Links,
}

impl Ears {
    /// The next event, news among them; `None` if `deadline` came first.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Failure> {
        let patience = deadline.map_or(SILENCE_MAX, |at| at.saturating_duration_since(Instant::now()));
        match self.heard.recv_timeout(patience) {
            Ok(Heard::Role(Event::Failed(message))) => Err(Failure::failed(message)),
            Ok(Heard::Role(Event::News(news))) => {
                let seconds = news.at_us as f64 / 1e6;
                log::info(format_args!("{seconds:.3} s  node {}: {}", news.node, news.what));
                self.links.note(&news);
                Ok(Some(Event::News(news)))
            }
            Ok(Heard::Role(event)) => Ok(Some(event)),
            Ok(Heard::Ended(name)) => {
                Err(Failure::failed(format!("the {name} ended before the transfer did")))
            }
            Ok(Heard::Interrupted) => Err(Failure::failed("interrupted")),
            Err(RecvTimeoutError::Timeout) if deadline.is_some() => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = SILENCE_MAX.as_secs();
                Err(Failure::new(Exit::TimedOut, format!("no progress for {seconds} s")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Failure::failed("both roles ended")),
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
        role.say(serde_json::to_string(job).expect("a job is plain data"))?;
        std::thread::spawn(move || hear(stdout, name, &tell));
        Ok(role)
    }

    /// One line for the role.
    fn say(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        match &mut self.stdin {
            Some(stdin) => Ok(writeln!(stdin, "{line}")?),
            None => Ok(()),
        }
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
    let mut is_done = false;
    // Nobody listens any more once the transfer is over: then an error of `send` is right.
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if let Ok(event) = serde_json::from_str(&line) {
            is_done |= matches!(event, Event::Acknowledged | Event::Received(_));
            let _ = tell.send(Heard::Role(event));
        }
    }
    // A sender may be gone while the receiver still reads the last bytes.
    if !is_done {
        let _ = tell.send(Heard::Ended(name));
    }
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
