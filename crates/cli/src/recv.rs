//! `polyrail recv`: binds a service and writes out what arrives.

use crate::failure::{Exit, Failure};
use crate::node_args::NodeChoice;
use crate::output::{Output, write_line};
use crate::service::parse_range;
use crate::size;
use clap::{Args, ValueEnum};
use polyrail::{Message, Scope, ServiceRange};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Longest message whose text appears in JSON.
const TEXT_BYTES_MAX: usize = 4096;

/// What to receive, how long, where to.
#[derive(Args)]
#[command(after_help = "Example: polyrail recv --insecure 100:0-9 --count 1 --output report.pdf")]
pub struct Recv {
    /// What to bind: TYPE:INSTANCE or TYPE:LOWER-UPPER
    #[arg(value_parser = parse_range)]
    service: ServiceRange,
    /// Writes to a file in place of the standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Ends after N messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Ends at the first empty message
    #[arg(long)]
    until_end: bool,
    /// Gives up when nothing arrives for this long
    #[arg(long, value_name = "SPAN", value_parser = size::parse_span)]
    timeout: Option<Duration>,
    /// Writes a line end after each message
    #[arg(long)]
    lines: bool,
    /// Writes the SHA-256 of everything received at the end, in place of the bytes
    #[arg(long, conflicts_with = "lines")]
    digest: bool,
    /// How far the binding is known
    #[arg(long, value_enum, default_value = "cluster")]
    scope: ScopeArg,
    #[command(flatten)]
    node: NodeChoice,
}

/// How far a binding is known.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeArg {
    /// On every node
    Cluster,
    /// On this node
    Node,
}

/// Receives until the count, the end, the time-out, or for ever.
pub fn run(recv: &Recv, output: &Output) -> Result<ExitCode, Failure> {
    let mut sink = Sink::open(recv, output.json)?;
    let node = recv.node.node()?;
    let port = node.port()?;
    let scope = match recv.scope {
        ScopeArg::Cluster => Scope::Cluster,
        ScopeArg::Node => Scope::Node,
    };
    port.bind(recv.service, scope)?;
    while recv.count.is_none_or(|count| sink.messages < count) {
        let message = match recv.timeout {
            None => port.recv()?,
            Some(span) => port.recv_timeout(span)?.ok_or_else(|| silent(recv, span, sink.messages))?,
        };
        if recv.until_end && message.bytes().is_empty() {
            break;
        }
        sink.take(&message)?;
    }
    sink.finish()?;
    drop(port);
    node.leave(Duration::from_secs(5))?;
    Ok(ExitCode::SUCCESS)
}

fn silent(recv: &Recv, span: Duration, messages: u64) -> Failure {
    let seconds = span.as_secs_f64();
    Failure::new(
        Exit::TimedOut,
        format!("service {}: nothing for {seconds} s, after {messages} messages", recv.service),
    )
}

/// Where messages go.
struct Sink {
    file: Box<dyn Write>,
    /// The bytes themselves are written, not only told about.
    writes_bytes: bool,
    lines: bool,
    json: bool,
    digest: Option<Sha256>,
    messages: u64,
    bytes: u64,
}

impl Sink {
    fn open(recv: &Recv, json: bool) -> Result<Self, Failure> {
        let file: Box<dyn Write> = match &recv.output {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                File::create(path)
                    .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?,
            ),
        };
        Ok(Sink {
            file,
            // On the standard output, JSON and the digest take the place of the bytes.
            writes_bytes: recv.output.is_some() || !(json || recv.digest),
            lines: recv.lines,
            json,
            digest: recv.digest.then(Sha256::new),
            messages: 0,
            bytes: 0,
        })
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let bytes = message.bytes();
        self.messages += 1;
        self.bytes += bytes.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        if self.writes_bytes {
            self.file.write_all(bytes)?;
            if self.lines {
                self.file.write_all(b"\n")?;
            }
            self.file.flush()?;
        }
        if self.json {
            let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_BYTES_MAX);
            let line = json!({
                "from": message.from().to_string(),
                "service": message.service().map(|service| service.to_string()),
                "bytes": bytes.len(),
                "text": text,
            });
            write_line(&line.to_string());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let digest = self.digest.take().map(|digest| hexadecimal(&digest.finalize()));
        if self.json {
            let summary =
                json!({ "ok": true, "messages": self.messages, "bytes": self.bytes, "sha256": digest });
            write_line(&summary.to_string());
        } else if let Some(digest) = digest {
            write_line(&digest);
        }
        self.file.flush()?;
        Ok(())
    }
}

/// Two small digits for each byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_sha256sum_writes_it() {
        let empty = hexadecimal(&Sha256::digest(b""));
        assert_eq!(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
