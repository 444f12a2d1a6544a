//! `polyrail send`: files, words or the standard input to a service.

use crate::failure::{Exit, Failure};
use crate::node_args::NodeChoice;
use crate::output::Output;
use crate::service::{Target, parse_target};
use crate::{log, size};
use clap::Args;
use polyrail::{Destination, Error, Port};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a service is looked for unless `--wait` says otherwise: time enough to hear a beacon.
const LOOKED_FOR: Duration = Duration::from_secs(3);

/// What to send, where to, how.
#[derive(Args)]
#[command(after_help = "Example: polyrail send --insecure 100:0 report.pdf")]
pub struct Send {
    /// Where to: TYPE:INSTANCE, or NODEID:PORT
    #[arg(value_name = "SERVICE", value_parser = parse_target)]
    to: Target,
    /// Files to send; `-` or none: the standard input
    files: Vec<PathBuf>,
    /// Sends this text as one message
    #[arg(long, conflicts_with = "files")]
    text: Option<String>,
    /// Sends everything N times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u64,
    /// Waits until the service is bound: as long as it takes, or at most SPAN
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, value_parser = size::parse_span)]
    wait: Option<Option<Duration>>,
    /// One message for each file, rather than pieces of `--chunk`
    #[arg(long, conflicts_with = "lines")]
    whole: bool,
    /// One message for each line
    #[arg(long)]
    lines: bool,
    /// Most bytes in a message
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = size::parse_bytes)]
    chunk: u64,
    /// Sends an empty message last, which ends `recv --until-end`
    #[arg(long)]
    end: bool,
    /// Gives up when a message is not taken, or the last one not acknowledged, for this long
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = size::parse_span)]
    timeout: Duration,
    #[command(flatten)]
    node: NodeChoice,
}

/// Sends, waits until all is acknowledged, leaves.
pub fn run(send: &Send, output: &Output) -> Result<ExitCode, Failure> {
    let is_input = send.text.is_none()
        && (send.files.is_empty() || send.files.iter().any(|path| is_standard_input(path)));
    if is_input && send.repeat > 1 {
        return Err(Failure::new(
            Exit::Usage,
            "--repeat: the standard input can be read once; allowed: files or --text",
        ));
    }
    // Nobody should have to wait for a service to be told of a wrong name.
    for path in send.files.iter().filter(|path| !is_standard_input(path)) {
        path.metadata().map_err(|error| unreadable(path, &error))?;
    }
    let node = send.node.node()?;
    let port = node.port()?;
    find(send, &port)?;
    let started = Instant::now();
    let mut sender = Sender { port: &port, send, messages: 0, bytes: 0 };
    for _ in 0..send.repeat {
        sender.everything()?;
    }
    if send.end {
        sender.message(&[])?;
    }
    let (messages, bytes) = (sender.messages, sender.bytes);
    port.flush(Some(send.timeout))?;
    let seconds = started.elapsed().as_secs_f64();
    drop(port);
    node.leave(send.timeout)?;
    let summary = format!("sent {messages} messages, {} in {seconds:.3} s", size::show_bytes(bytes));
    log::info(&summary);
    if output.json {
        output.result("", &json!({ "ok": true, "messages": messages, "bytes": bytes, "seconds": seconds }));
    }
    Ok(ExitCode::SUCCESS)
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// Waits for the service; if nobody comes, the error says what is bound.
fn find(send: &Send, port: &Port) -> Result<(), Failure> {
    let Target::Service(service) = send.to else { return Ok(()) };
    port.wait_for(service, send.wait.unwrap_or(Some(LOOKED_FOR))).map_err(|error| match error {
        Error::TimedOut(_) => Failure::new(Exit::NotFound, error.to_string()),
        error => error.into(),
    })
}

struct Sender<'a> {
    port: &'a Port,
    send: &'a Send,
    messages: u64,
    bytes: u64,
}

impl Sender<'_> {
    fn everything(&mut self) -> Result<(), Failure> {
        if let Some(text) = &self.send.text {
            return self.message(text.as_bytes());
        }
        if self.send.files.is_empty() {
            return self.input(Path::new("-"));
        }
        self.send.files.iter().try_for_each(|path| self.input(path))
    }

    fn input(&mut self, path: &Path) -> Result<(), Failure> {
        let unreadable = |error: std::io::Error| unreadable(path, &error);
        let reader: Box<dyn Read> = if is_standard_input(path) {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(unreadable)?)
        };
        let mut reader = BufReader::new(reader);
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let length = if self.send.lines {
                reader.read_until(b'\n', &mut buffer).map_err(unreadable)?
            } else {
                let most = if self.send.whole { u64::MAX } else { self.send.chunk.max(1) };
                (&mut reader).take(most).read_to_end(&mut buffer).map_err(unreadable)?
            };
            if length == 0 {
                return Ok(());
            }
            let message =
                if self.send.lines { buffer.strip_suffix(b"\n").unwrap_or(&buffer) } else { &buffer };
            self.message(message)?;
        }
    }

    fn message(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let to: Destination = match self.send.to {
            Target::Service(service) => Destination::Service(service),
            Target::Port(port) => Destination::Port(port),
        };
        self.port.send_timeout(to, bytes, self.send.timeout)?;
        self.messages += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}
