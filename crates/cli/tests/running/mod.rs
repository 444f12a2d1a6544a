//! A process of the program, of which tests read lines while it runs.

#![allow(dead_code, reason = "each test uses its part")]

pub mod pair;

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Ended with the value if it has not ended by itself.
pub struct Running {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
        command.args(arguments);
        Running::of(&mut command)
    }

    /// The process of a command.
    pub fn of(command: &mut Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("piped");
        Running { child, lines: BufReader::new(stdout).lines() }
    }

    pub fn line(&mut self) -> Option<String> {
        self.lines.next().map(|line| line.expect("UTF-8"))
    }

    pub fn document(&mut self) -> Value {
        let line = self.line().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The documents up to the first whose event is `event`.
    pub fn until(&mut self, event: &str) -> Vec<Value> {
        let mut seen = vec![self.document()];
        while seen[seen.len() - 1]["event"] != event {
            seen.push(self.document());
        }
        seen
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("the program ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
