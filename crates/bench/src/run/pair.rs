//! One measurement: two processes started, connected, run and ended, whatever they do.
//!
//! Every wait has a deadline. A side that hangs is killed, and what it had told until then is kept.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;

use crate::calibrate::Calibration;
use crate::clock::now_ns;
use crate::control::{Address, Event, Job, Order, SideReport, Task};

/// What one measurement gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) sender: SideReport,
    pub(crate) receiver: SideReport,
    /// Why it did not come to its end; the reports then hold what was told until then.
    pub(crate) error: Option<String>,
}

/// Longest time to start and to connect.
const START_MAX: Duration = Duration::from_secs(8);
/// Longest time beyond the window that the sender may take.
const OVERTIME_MAX: Duration = Duration::from_secs(5);
/// Longest time for what is under way to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// How often a wait looks whether it shall go on.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs one measurement. `watch` hears of the receiver's progress.
pub(crate) fn measure(
    receiver: (Command, &Job),
    sender: (Command, &Job),
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut pair = Pair { receiver: None, sender: None, stop, watch };
    let error = pair.run(receiver, sender).err();
    let report = |side: &Option<Side>| side.as_ref().map(|side| side.last.clone()).unwrap_or_default();
    Sample { sender: report(&pair.sender), receiver: report(&pair.receiver), error }
}

/// Takes the machine's pulse in a process with the priority of the measured ones.
pub(crate) fn pulse(command: Command) -> Result<Calibration, String> {
    let mut side = Side::start("calibration", command, &Task::Calibrate)?;
    match side.next(START_MAX)? {
        Some(Event::Pulse(calibration)) => Ok(calibration),
        Some(other) => Err(format!("calibration: unexpected {other:?}")),
        None => Err(format!("calibration: no sign of life for {:.1} s, killed", START_MAX.as_secs_f64())),
    }
}

struct Pair<'a> {
    receiver: Option<Side>,
    sender: Option<Side>,
    stop: &'a AtomicBool,
    watch: &'a mut dyn FnMut(&SideReport),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Receiver,
    Sender,
}

impl Pair<'_> {
    fn run(&mut self, receiver: (Command, &Job), sender: (Command, &Job)) -> Result<(), String> {
        let run_max = Duration::from_nanos(sender.1.warmup_ns + sender.1.duration_ns) + OVERTIME_MAX;
        self.receiver = Some(Side::start("receiver", receiver.0, &Task::Play(receiver.1.clone()))?);
        let address = match self.wait(Which::Receiver, START_MAX)? {
            Event::Listening { address } => address,
            other => return Err(format!("receiver: unexpected {other:?}")),
        };
        self.sender = Some(Side::start("sender", sender.0, &Task::Play(sender.1.clone()))?);
        self.tell(Which::Sender, &Address { address })?;
        for which in [Which::Sender, Which::Receiver] {
            match self.wait(which, START_MAX)? {
                Event::Ready => {}
                other => return Err(format!("unexpected {other:?}")),
            }
        }
        self.tell(Which::Receiver, &Order::Go)?;
        self.tell(Which::Sender, &Order::Go)?;
        self.wait(Which::Sender, run_max)?;
        let expected = self.sender.as_ref().map_or(0, |side| side.last.sent);
        self.tell(Which::Receiver, &Order::Drain { expected })?;
        self.wait(Which::Receiver, DRAIN_MAX)?;
        // Both have reported: how they end no longer matters, and dropping ends them for certain.
        let _ = self.tell(Which::Sender, &Order::Quit);
        let _ = self.tell(Which::Receiver, &Order::Quit);
        Ok(())
    }

    fn side(&mut self, which: Which) -> Result<&mut Side, String> {
        let side = if which == Which::Receiver { &mut self.receiver } else { &mut self.sender };
        side.as_mut().ok_or_else(|| "side not started".to_owned())
    }

    fn tell(&mut self, which: Which, line: &impl Serialize) -> Result<(), String> {
        self.side(which)?.tell(line)
    }

    /// Waits for the next event of one side that is not progress, and hears the other side's complaints meanwhile.
    fn wait(&mut self, which: Which, timeout: Duration) -> Result<Event, String> {
        let start_ns = now_ns();
        loop {
            let side = self.side(which)?;
            match side.next(LOOK_EVERY)? {
                Some(Event::Progress(_)) => {}
                Some(event) => return Ok(event),
                None if u128::from(now_ns() - start_ns) > timeout.as_nanos() => {
                    return Err(format!(
                        "{}: no sign of life for {:.1} s, killed",
                        side.name,
                        timeout.as_secs_f64()
                    ));
                }
                None => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if which == Which::Sender
                && let Some(receiver) = &mut self.receiver
            {
                receiver.overhear()?;
            }
            if let Some(receiver) = &self.receiver {
                (self.watch)(&receiver.last);
            }
        }
    }
}

/// One measured process, killed when dropped.
struct Side {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Event>,
    /// An event heard while waiting for the other side.
    kept: Option<Event>,
    complaints: Arc<Mutex<String>>,
    last: SideReport,
}

impl Side {
    fn start(name: &'static str, mut command: Command, task: &Task) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name}: {}: {error}", command.get_program().display()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (told, events) = channel();
        std::thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                // What a library prints to standard output is no event.
                if let Ok(event) = serde_json::from_str(&line)
                    && told.send(event).is_err()
                {
                    return;
                }
            }
        });
        let complaints = Arc::new(Mutex::new(String::new()));
        let kept = complaints.clone();
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_string(&mut text);
            }
            if let Ok(mut kept) = kept.lock() {
                *kept = text;
            }
        });
        let stdin = child.stdin.take();
        let last = SideReport::default();
        let mut side = Self { name, child, stdin, events, kept: None, complaints, last };
        side.tell(task)?;
        Ok(side)
    }

    fn tell(&mut self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        text.push('\n');
        let stdin = self.stdin.as_mut().ok_or("standard input closed")?;
        stdin.write_all(text.as_bytes()).map_err(|error| {
            // A side that has ended has usually said why.
            match self.next(LOOK_EVERY * 10) {
                Err(reason) => reason,
                Ok(_) => format!("{}: {error}", self.name),
            }
        })
    }

    /// The next event within `timeout`; its report is kept as the last one.
    fn next(&mut self, timeout: Duration) -> Result<Option<Event>, String> {
        let event = match self.kept.take() {
            Some(event) => event,
            None => match self.events.recv_timeout(timeout) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.epitaph()),
            },
        };
        match event {
            Event::Failed { error } => Err(format!("{}: {error}", self.name)),
            Event::Progress(ref report) | Event::Done(ref report) => {
                self.last = report.clone();
                Ok(Some(event))
            }
            _ => Ok(Some(event)),
        }
    }

    /// Takes what has come without waiting; keeps an event for its proper time, tells a failure at once.
    fn overhear(&mut self) -> Result<(), String> {
        while self.kept.is_none() {
            match self.next(Duration::ZERO)? {
                Some(Event::Progress(_)) => {}
                Some(event) => self.kept = Some(event),
                None => break,
            }
        }
        Ok(())
    }

    /// Why the process has ended without a word.
    fn epitaph(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let complaints = self.complaints.lock().map_or(String::new(), |text| text.trim().to_owned());
        format!("{}: ended early ({status}) {complaints}", self.name).trim_end().to_owned()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Closing its input ends a healthy process; killing ends any.
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
