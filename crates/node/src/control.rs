//! The control socket: one line of JSON in, one line out (docs/operating.md, "Control socket").

mod connections;
mod find;
mod mem;
mod metrics;
mod rows;
mod set;
mod show;
mod stats;
mod stream;
mod why;

use crate::engine::Engine;
use crate::engine::holdings::Holdings;
use crate::moment::Moment;
use crate::node::Home;
use connections::Only;
use polyrail_proto::wire::LinkStatus;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stream::{Stream, Wish};

/// Longest request, bytes.
const REQUEST_BYTES_MAX: usize = 4_096;
/// How long a client may take to send its line or to take the answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Listens for questions. The attendant answers them one after the other.
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// The trace that somebody wants.
    trace: Option<Stream>,
}

impl Listener {
    /// Opens the socket at `path`; one that a killed node left behind is replaced, a live one is an error.
    pub(crate) fn open(path: &Path) -> io::Result<Listener> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if path.exists() {
            if UnixStream::connect(path).is_ok() {
                let what = format!("{}: another node answers there", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener { listener, path: path.to_owned(), trace: None })
    }

    /// Answers whoever has asked, and moves a trace on.
    pub(crate) fn serve(&mut self, home: &Home) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A client that hangs costs its own answer and at most `PATIENCE` of ours.
            let begun = answer(stream, home, self.is_tracing()).unwrap_or(None);
            self.trace = begun.or_else(|| self.trace.take());
        }
        if self.trace.as_mut().is_some_and(|trace| !trace.pump(home)) {
            self.trace = None;
        }
    }

    /// The node ends: whoever reads a trace gets the end of it.
    pub(crate) fn finish(&mut self, home: &Home) {
        if let Some(mut trace) = self.trace.take() {
            trace.finish(home);
        }
    }

    /// Whether a trace runs: then this is to be called often.
    pub(crate) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads a request and answers it; the trace that is to follow, if that is what was asked for.
fn answer(mut stream: UnixStream, home: &Home, tracing: bool) -> io::Result<Option<Stream>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < REQUEST_BYTES_MAX && stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let reply = match Request::read(&line) {
        Ok(Request { trace: Some(_), .. }) if tracing => {
            Err(Refusal::new("busy", "another trace runs; a node has one at a time"))
        }
        Ok(Request { trace: Some(wish), .. }) => {
            let begun = Stream::begin(&wish, &mut home.drive.engine());
            match begun {
                Ok(reader) => return Stream::new(stream, reader, &wish).map(Some),
                Err(refusal) => Err(refusal),
            }
        }
        Ok(request) => {
            // The picture is taken in one piece: its parts belong together.
            let (reply, holdings) = {
                let engine = &mut home.drive.engine();
                (reply_to(&request, engine, &Moment::read()), holdings_for(&request, engine))
            };
            reply.map(|reply| with_memory(reply, holdings))
        }
        Err(refusal) => Err(refusal),
    };
    // What was set leaves now.
    home.drive.inline();
    let reply = reply.unwrap_or_else(|refusal| refusal.to_json());
    writeln!(stream, "{reply}")?;
    Ok(None)
}

/// What somebody asks.
#[derive(PartialEq, Eq, Debug)]
struct Request {
    command: String,
    /// The thing that is meant, for commands that are about one.
    name: Option<String>,
    /// What is to be captured, if that is the command.
    trace: Option<Wish>,
    /// Which of many connections are meant.
    only: Only,
    /// What is wanted of the link.
    status: Option<LinkStatus>,
    /// Bytes of the message that is asked about.
    bytes: Option<u64>,
}

impl Request {
    fn read(line: &[u8]) -> Result<Request, Refusal> {
        let wrong = |message: &str| Refusal::new("request", message);
        let request: Value =
            serde_json::from_slice(line).map_err(|error| wrong(&format!("not JSON: {error}")))?;
        let command = request["command"].as_str().ok_or_else(|| wrong("no \"command\""))?.to_owned();
        let name = match &request["name"] {
            Value::Null => None,
            Value::String(name) => Some(name.clone()),
            other => return Err(wrong(&format!("\"name\" is {other}; allowed: a string"))),
        };
        let trace = if command == "trace" { Some(Wish::read(&request)?) } else { None };
        let only = if command == "connection list" { Only::read(&request)? } else { Only::default() };
        let status = if command == "link set" { Some(set::status_of(&request)?) } else { None };
        let bytes = if command == "why" { Some(why::bytes_of(&request)?) } else { None };
        Ok(Request { command, name, trace, only, status, bytes })
    }
}

/// Why there is no answer.
#[derive(PartialEq, Eq, Debug)]
struct Refusal {
    code: &'static str,
    message: String,
}

impl Refusal {
    fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    fn to_json(&self) -> Value {
        json!({"ok": false, "error": {"code": self.code, "message": self.message}})
    }
}

/// What can be listed, shown and counted.
const NOUNS: [&str; 6] = ["bearer", "connection", "link", "node", "port", "service"];

/// The answer to a request, from the engine as it is now.
fn reply_to(request: &Request, engine: &mut Engine, moment: &Moment) -> Result<Value, Refusal> {
    let name = request.name.as_deref();
    let (noun, verb) = request.command.split_once(' ').unwrap_or((&request.command, ""));
    let known = NOUNS.contains(&noun);
    if let Some(status) = request.status {
        return Ok(json!({"ok": true, "link": set::link(engine, named(noun, name)?, status)?}));
    }
    if let Some(bytes) = request.bytes {
        return Ok(json!({"ok": true, "why": why::tell(engine, named("peer", name)?, bytes, moment)?}));
    }
    match verb {
        "" if noun == "status" => Ok(json!({"ok": true, "status": engine.status(moment.now.0)})),
        // What there is to tell is added by `with_memory`.
        "" if noun == "mem" => Ok(json!({"ok": true})),
        "" if noun == "metrics" => Ok(json!({"ok": true, "metrics": metrics::text(engine, moment)})),
        "" if noun == "stats" => Ok(json!({"ok": true, "show": stats::total(engine)})),
        "list" if noun == "connection" => {
            let (rows, total) = connections::list(engine, &request.only, moment)?;
            Ok(json!({"ok": true, "rows": rows, "rows_total": total}))
        }
        "list" if known => Ok(json!({"ok": true, "rows": list(noun, engine, moment)})),
        "stats" if known => Ok(json!({"ok": true, "rows": stats::rows(engine, noun, name)?})),
        "show" if known => Ok(json!({"ok": true, "show": show(noun, named(noun, name)?, engine, moment)?})),
        _ => {
            let nouns = NOUNS.join("|");
            let known = format!(
                "{nouns} list, {nouns} show, {nouns} stats, link set, mem, metrics, stats, status, trace, why"
            );
            Err(Refusal::new("command", format!("{:?}: unknown; known: {known}", request.command)))
        }
    }
}

/// What memory is promised, for the requests that are about it.
fn holdings_for(request: &Request, engine: &Engine) -> Option<Holdings> {
    ["mem", "metrics"].contains(&&*request.command).then(|| engine.holdings())
}

/// Adds what of it is there, which is measured when the engine is not held any more.
fn with_memory(mut reply: Value, holdings: Option<Holdings>) -> Value {
    let Some(holdings) = holdings else { return reply };
    match &mut reply["metrics"] {
        Value::String(page) => page.push_str(&metrics::memory::text(holdings)),
        _ => reply["show"] = mem::tell(&holdings),
    }
    reply
}

/// The name of the thing that a request is about.
fn named<'a>(noun: &str, name: Option<&'a str>) -> Result<&'a str, Refusal> {
    name.ok_or_else(|| Refusal::new("request", format!("which {noun}? no \"name\"")))
}

fn list(noun: &str, engine: &mut Engine, moment: &Moment) -> Vec<Value> {
    match noun {
        "port" => rows::port_rows(engine),
        "bearer" => {
            let open = engine.bearer_rows();
            let open = open.iter().map(|bearer| rows::bearer_row(bearer, moment.now));
            open.chain(engine.missing_rows(moment.now).iter().map(rows::missing_row)).collect()
        }
        "service" => engine.service_rows().iter().map(rows::service_row).collect(),
        "link" => engine.status(moment.now.0).links.iter().map(rows::link_row).collect(),
        _ => rows::node_rows(&engine.status(moment.now.0)),
    }
}

fn show(noun: &str, name: &str, engine: &mut Engine, moment: &Moment) -> Result<Value, Refusal> {
    match noun {
        "link" => show::link(engine, name, moment),
        "port" => show::port(engine, name, moment),
        "bearer" => show::bearer(engine, name, moment),
        "service" => show::service(engine, name),
        "connection" => connections::show(engine, name, moment),
        _ => show::node(engine, name, moment),
    }
}

#[cfg(test)]
mod tests;
