//! `polyrail trace`: the packets of a running node, into a file or as text.
//!
//! The node sends them over its control socket; the file is written here, with the rights of whoever asked for it.

use crate::failure::{Exit, Failure};
use crate::list::ListArgs;
use crate::output::{Output, write_line};
use crate::{control, node, size};
use clap::Args;
use polyrail::trace::{END, FILE_HEADER_BYTES, HEAD_BYTES, Packet, RECORD_BYTES_MAX, lengths};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Captures the packets of a running node
#[derive(Args, Debug)]
#[command(after_help = "Example: polyrail trace --out node.pcap --for 5s --peer beta")]
#[command(group = clap::ArgGroup::new("target").required(true).multiple(true).args(["out", "print"]))]
pub struct Trace {
    /// Writes a file that Wireshark reads (with tools/wireshark/polyrail.lua it knows the protocol too)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Writes a line for each packet to the standard output
    #[arg(long, conflicts_with = "headers")]
    print: bool,
    /// Ends after this time; else at SIGINT, SIGTERM or the limits below
    #[arg(long = "for", value_name = "SPAN", value_parser = size::parse_span)]
    span: Option<Duration>,
    /// Ends after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Ends once the file has so many bytes
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size::parse_bytes)]
    size: u64,
    /// Only packets from and to the addresses that this node has now
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Keeps the first 256 bytes of each packet
    #[arg(long)]
    headers: bool,
    #[command(flatten)]
    node: ListArgs,
}

/// What became of a trace.
#[derive(Debug, Default)]
struct Sum {
    packets: u64,
    not_captured: u64,
    bytes: u64,
}

/// Captures until there is a reason to end.
pub fn run(arguments: &Trace, output: &Output) -> Result<ExitCode, Failure> {
    // First what may fail here: the node is to capture nothing in vain.
    let file = arguments.out.as_ref().map(create).transpose()?;
    let signals = node::signals()?;
    let (path, mut stream) = control::open(arguments.node.control.as_deref())?;
    let wish = json!({
        "command": "trace", "peer": arguments.peer, "packets": arguments.packets, "headers": arguments.headers,
    });
    writeln!(stream, "{wish}").map_err(|error| control::no_answer(&path, &error))?;
    let end = stream.try_clone()?;
    let mut from = BufReader::with_capacity(1 << 20, stream);
    let mut answer = String::new();
    from.read_line(&mut answer).map_err(|error| control::no_answer(&path, &error))?;
    let at_node =
        |failure: Failure| Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message));
    control::read(&answer).map_err(at_node)?;
    end_at(arguments.span, signals, end.try_clone()?);
    let mut sink = Sink { file, print: arguments.print, json: output.json, end, bytes_max: arguments.size };
    let sum = sink.drain(&mut from).map_err(at_node)?;
    report(arguments, output, &sum);
    Ok(ExitCode::SUCCESS)
}

/// A new file that nobody else may read: packets hold what messages say.
fn create(path: &PathBuf) -> Result<BufWriter<File>, Failure> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.map(BufWriter::new).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// Tells the node to end after `span`, or when a signal comes. The thread lives as long as the program.
fn end_at(span: Option<Duration>, mut signals: UnixStream, end: UnixStream) {
    std::thread::spawn(move || {
        // A span of zero would mean to wait for ever.
        let limit = span.map(|span| span.max(Duration::from_millis(1)));
        let _ = signals.set_read_timeout(limit);
        // A signal or the end of the time: both end the trace.
        let _ = signals.read(&mut [0]);
        let _ = end.shutdown(Shutdown::Write);
    });
}

/// Where packets go.
struct Sink {
    file: Option<BufWriter<File>>,
    print: bool,
    json: bool,
    end: UnixStream,
    bytes_max: u64,
}

impl Sink {
    /// Takes packets until the node says that there are no more.
    fn drain(&mut self, from: &mut BufReader<impl Read>) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        let mut file_header = [0; FILE_HEADER_BYTES];
        from.read_exact(&mut file_header).map_err(cut_short)?;
        self.write(&mut sum, &file_header)?;
        let mut record = Vec::new();
        loop {
            if from.buffer().is_empty()
                && let Some(file) = &mut self.file
            {
                // Whoever looks at the file of a quiet node sees everything.
                file.flush()?;
            }
            let mut head = [0; HEAD_BYTES];
            from.read_exact(&mut head).map_err(cut_short)?;
            let (kept, _) = lengths(&head);
            if kept == END {
                break;
            }
            if kept > RECORD_BYTES_MAX {
                return Err(Failure::failed("answer not understood"));
            }
            record.resize(kept as usize, 0);
            from.read_exact(&mut record).map_err(cut_short)?;
            self.take(&mut sum, &head, &record)?;
        }
        let mut last = String::new();
        from.read_line(&mut last).map_err(cut_short)?;
        let last: Value =
            serde_json::from_str(&last).map_err(|_| Failure::failed("answer not understood"))?;
        sum.not_captured = last["not_captured"].as_u64().unwrap_or_default();
        if let Some(file) = &mut self.file {
            file.flush()?;
        }
        Ok(sum)
    }

    fn take(&mut self, sum: &mut Sum, head: &[u8; HEAD_BYTES], record: &[u8]) -> Result<(), Failure> {
        let bytes = sum.bytes + (head.len() + record.len()) as u64;
        if self.file.is_some() && bytes > self.bytes_max {
            // What is still on its way is left out: the file is a whole one.
            let _ = self.end.shutdown(Shutdown::Write);
            self.bytes_max = 0;
            return Ok(());
        }
        sum.packets += 1;
        if self.print {
            self.print(head, record);
        }
        self.write(sum, head)?;
        self.write(sum, record)
    }

    fn print(&self, head: &[u8; HEAD_BYTES], record: &[u8]) {
        let Some(packet) = Packet::read(head, record) else { return };
        if self.json {
            let line = json!({
                "unix_ns": packet.unix_ns, "from": packet.from.to_string(), "to": packet.to.to_string(),
                "bytes": packet.bytes.len(), "text": polyrail::trace::describe(packet.bytes),
            });
            write_line(&line.to_string());
        } else {
            write_line(&packet.to_string());
        }
    }

    fn write(&mut self, sum: &mut Sum, bytes: &[u8]) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        sum.bytes += bytes.len() as u64;
        Ok(file.write_all(bytes)?)
    }
}

fn cut_short(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::UnexpectedEof => Failure::failed("the node ended before the trace did"),
        _ => Failure::new(Exit::Failed, error.to_string()),
    }
}

fn report(arguments: &Trace, output: &Output, sum: &Sum) {
    let Sum { packets, not_captured, bytes } = sum;
    let file = arguments.out.as_ref().map(|path| path.display().to_string());
    let value = json!({
        "ok": true, "packets": packets, "not_captured": not_captured, "bytes": bytes, "file": file,
    });
    let mut text = format!("{packets} packets");
    if let Some(file) = file {
        text = format!("{text} in {file}, {}", size::show_bytes(*bytes));
    }
    if *not_captured > 0 {
        text =
            format!("{text}; {not_captured} came too fast and were not captured (--headers and --peer help)");
    }
    output.result(text, &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream as a node sends it, with packets that say nothing.
    fn stream(packets: usize) -> Vec<u8> {
        let mut out = vec![7; FILE_HEADER_BYTES];
        for length in std::iter::repeat_n(4u32, packets).chain([END]) {
            let mut head = [0; HEAD_BYTES];
            head[8..12].copy_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&head);
            out.extend_from_slice(if length == END {
                b"{\"packets\":9,\"not_captured\":3}\n"
            } else {
                b"abcd"
            });
        }
        out
    }

    /// Drains `stream` into a file of at most so many bytes, and gives that.
    fn drained(name: &str, stream: &[u8], bytes_max: u64) -> (Result<Sum, Failure>, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("polyrail-trace-{}-{name}", std::process::id()));
        let (end, _node) = UnixStream::pair().unwrap();
        let file = Some(create(&path).unwrap());
        let sum = Sink { file, print: false, json: false, end, bytes_max }.drain(&mut BufReader::new(stream));
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (sum, written)
    }

    #[test]
    fn the_file_is_the_stream_without_its_end() {
        let stream = stream(3);
        let (sum, written) = drained("whole", &stream, u64::MAX);
        let sum = sum.unwrap();
        assert_eq!((sum.packets, sum.not_captured, sum.bytes), (3, 3, 84));
        assert_eq!(written, stream[..84]);
    }

    #[test]
    fn a_file_stays_within_its_limit_and_whole() {
        let stream = stream(3);
        let (sum, written) = drained("limit", &stream, 64);
        assert_eq!((sum.unwrap().packets, written), (2, stream[..64].to_vec()));
    }

    #[test]
    fn a_stream_cut_short_is_a_failure() {
        let stream = stream(1);
        for end in [0, 10, 30, 43, 50] {
            let failure = drained("cut", &stream[..end], u64::MAX).0.unwrap_err();
            assert!(failure.message.contains("ended before"), "{end}: {failure:?}");
        }
        let mut long = stream;
        long[FILE_HEADER_BYTES + 8..][..4].copy_from_slice(&(RECORD_BYTES_MAX + 1).to_le_bytes());
        assert!(drained("long", &long, u64::MAX).0.unwrap_err().message.contains("not understood"));
    }
}
