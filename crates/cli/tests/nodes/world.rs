//! What tests with real nodes share: a testbed, processes in it, questions to their control sockets.
#![allow(dead_code)]

use polyrail_bench::netns::{LinkSpec, NetnsError, Spec, Testbed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_polyrail");

/// Two nodes, two links; `None` where this machine makes no namespaces, said past the capture of test output.
pub fn testbed(name: &str) -> Option<Testbed> {
    testbed_of(name, &LinkSpec::default())
}

/// The same with two such links.
pub fn testbed_of(name: &str, link: &LinkSpec) -> Option<Testbed> {
    let name = format!("cli-{name}-{}", std::process::id());
    match Testbed::create(Spec::pair(name, vec![link.clone(); 2])) {
        Ok(testbed) => Some(testbed),
        Err(error @ (NetnsError::Permission | NetnsError::Missing { .. })) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED nodes: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The program inside a node of the testbed.
pub fn inside(testbed: &Testbed, node: usize, arguments: &[&str]) -> Command {
    let mut command = testbed.command(node, PROGRAM);
    command.arg("--json").args(arguments).args([
        "--insecure",
        "--interface",
        "l*",
        "--cluster",
        &testbed.spec().name,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A process that is ended with the value, if it has not ended by itself.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(mut command: Command) -> Self {
        Running(Some(command.spawn().expect("the program starts")))
    }
    pub fn finish(mut self) -> Output {
        self.0.take().expect("still running").wait_with_output().expect("the program ends")
    }
    pub fn first_line(&mut self) -> Value {
        let stdout = self.0.as_mut().expect("still running").stdout.as_mut().expect("piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }
    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("still running").id()
    }
    /// Where the process reads from, if its command says `piped`.
    pub fn stdin(&mut self) -> ChildStdin {
        self.0.as_mut().and_then(|child| child.stdin.take()).expect("piped, and not taken before")
    }
    pub fn signal(&self, name: &str) {
        let pid = self.0.as_ref().expect("still running").id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The last line that a process wrote, as JSON.
pub fn last_document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// A path in the temporary folder whose file vanishes with the value.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("polyrail-nodes-{}-{name}", std::process::id())))
    }
    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a node answers to a question at its control socket, asked by the program.
pub fn ask(socket: &Scratch, words: &[&str]) -> Value {
    let output = Command::new(PROGRAM).arg("--json").args(words).args(["--control", socket.path()]).output();
    last_document(&output.expect("the program starts"))
}

/// Asks until the answer is as it should be, and gives it; the limit is there for what hangs.
pub fn ask_until(socket: &Scratch, words: &[&str], what: impl Fn(&Value) -> bool) -> Value {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let answer = ask(socket, words);
        if what(&answer) {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "{words:?} stays {answer}");
    }
}
