//! One measured process as the orchestrator sees it: lines in, events out, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;

use crate::control::{Event, SideReport, Task};

/// How often a wait looks whether it shall go on.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One measured process, killed when dropped.
pub(super) struct Side {
    pub(super) name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Event>,
    /// An event heard while waiting for the other side.
    kept: Option<Event>,
    /// What it wrote to standard error, once it has ended.
    complaints: Receiver<String>,
    /// The last report it gave.
    pub(super) last: SideReport,
}

impl Side {
    pub(super) fn start(name: &'static str, mut command: Command, task: &Task) -> Result<Self, String> {
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
        let (complain, complaints) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_string(&mut text);
            }
            // Nobody asks a side that has ended well.
            let _ = complain.send(text);
        });
        let stdin = child.stdin.take();
        let last = SideReport::default();
        let mut side = Self { name, child, stdin, events, kept: None, complaints, last };
        side.tell(task)?;
        Ok(side)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tell(&mut self, line: &impl Serialize) -> Result<(), String> {
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
    pub(super) fn next(&mut self, timeout: Duration) -> Result<Option<Event>, String> {
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
    pub(super) fn overhear(&mut self) -> Result<(), String> {
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
        let complaints = self.complaints.recv_timeout(LOOK_EVERY * 50).unwrap_or_default();
        // One line: a panic's first says most.
        let lines: Vec<&str> =
            complaints.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
        format!("{}: ended early ({status}) {}", self.name, lines.join(" ")).trim_end().to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_dies_is_told_of_in_one_line_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "read task; echo >&2; echo boom >&2; echo bang >&2; echo more >&2; exit 7"]);
        let mut side = Side::start("receiver", command, &Task::Calibrate).unwrap();
        let error = loop {
            match side.next(LOOK_EVERY) {
                Ok(event) => assert!(event.is_none(), "{event:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, "receiver: ended early (exit status: 7) boom bang");
    }
}
