//! A measured process of this machine as whoever started it sees it: a task in, orders in, events out, and its end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::Serialize;

use crate::agent::AGENT_COMMAND;
use crate::clock::now_ns;
use crate::control::{Event, Task};

/// How long the last words of a process, and its end, may take once it has closed its output.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// This program again, to be a measured process.
///
/// # Errors
/// The program does not know where it is, one line.
pub(crate) fn program() -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    let mut command = Command::new(program);
    command.arg(AGENT_COMMAND);
    Ok(command)
}

/// One measured process, killed when dropped.
pub(crate) struct Measured {
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it wrote to standard error, once it has ended.
    complaints: Receiver<String>,
}

impl Measured {
    /// Starts it. `told` gets its events, in a thread of its own, until it gives false or the process has ended; it
    /// is dropped then.
    ///
    /// # Errors
    /// It cannot be started, one line.
    pub(crate) fn start(
        mut command: Command,
        task: &Task,
        mut told: impl FnMut(Event) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                // What a library prints to standard output is no event.
                if let Ok(event) = serde_json::from_str(&line)
                    && !told(event)
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
            // Nobody asks a process that has ended well.
            let _ = complain.send(text);
        });
        let stdin = child.stdin.take();
        let mut measured = Self { child, stdin, complaints };
        measured.tell(task)?;
        Ok(measured)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says one line to it.
    ///
    /// # Errors
    /// It has ended or closed its input, one line.
    pub(crate) fn tell(&mut self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        text.push('\n');
        let stdin = self.stdin.as_mut().ok_or("standard input closed")?;
        stdin.write_all(text.as_bytes()).map_err(|error| error.to_string())
    }

    /// Why it has ended without a word. One that has closed its output and goes on is killed.
    pub(crate) fn epitaph(&mut self) -> String {
        let status = self.status().map_or_else(|error| error.to_string(), |status| status.to_string());
        let complaints = self.complaints.recv_timeout(LAST_WORDS_MAX).unwrap_or_default();
        // One line: a panic's first says most.
        let lines: Vec<&str> =
            complaints.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
        format!("ended early ({status}) {}", lines.join(" ")).trim_end().to_owned()
    }

    fn status(&mut self) -> io::Result<ExitStatus> {
        let start_ns = now_ns();
        while u128::from(now_ns() - start_ns) < LAST_WORDS_MAX.as_nanos() {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // With its input still open: one that saw it end might say a last word, which nobody expects of a killed one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_killed_says_nothing_more() {
        for _ in 0..100 {
            let mut command = Command::new("sh");
            let script =
                r#"read task; echo '{"event":"ready"}'; read order; echo '{"event":"ready"}'; exec cat"#;
            command.args(["-c", script]);
            let (told, events) = channel();
            let measured =
                Measured::start(command, &Task::Calibrate, move |event| told.send(event).is_ok()).unwrap();
            assert!(matches!(events.recv_timeout(LAST_WORDS_MAX), Ok(Event::Ready)));
            drop(measured);
            let after = events.recv_timeout(LAST_WORDS_MAX);
            assert!(after.is_err(), "{after:?}");
        }
    }
}
