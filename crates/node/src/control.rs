//! The control socket: one line of JSON in, one line out (docs/operating.md, "Control socket").

use crate::clock::now_ns;
use crate::engine::Status;
use crate::node::Shared;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest request, bytes.
const REQUEST_BYTES_MAX: usize = 4_096;
/// How long a client may take to send its line or to take the answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Listens for questions. The attendant answers them one after the other.
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
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
        Ok(Listener { listener, path: path.to_owned() })
    }

    /// Answers whoever has asked.
    pub(crate) fn serve(&mut self, shared: &Shared) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            // A client that hangs costs its own answer and at most `PATIENCE` of ours.
            let _ = answer(&mut stream, shared);
        }
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

fn answer(stream: &mut UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < REQUEST_BYTES_MAX && stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let reply = match serde_json::from_slice::<Value>(&line) {
        Ok(request) => match request["command"].as_str() {
            Some(command) => reply_to(command, &shared.drive.engine().status(now_ns())),
            None => refuse("request", "no \"command\""),
        },
        Err(error) => refuse("request", &format!("not JSON: {error}")),
    };
    writeln!(stream, "{reply}")
}

fn refuse(code: &str, message: &str) -> Value {
    json!({"ok": false, "error": {"code": code, "message": message}})
}

/// The answer to a command, from a picture of the node.
fn reply_to(command: &str, status: &Status) -> Value {
    let rows: Vec<Value> = match command {
        "status" => return json!({"ok": true, "status": status}),
        "bearer list" => status.bearers.iter().map(bearer_row).collect(),
        "link list" => status.links.iter().map(link_row).collect(),
        "node list" => node_rows(status),
        "service list" => status.services.iter().map(service_row).collect(),
        other => {
            let known = "bearer list, link list, node list, service list, status";
            return refuse("command", &format!("{other:?}: unknown; known: {known}"));
        }
    };
    json!({"ok": true, "rows": rows})
}

fn bearer_row(b: &crate::engine::BearerStatus) -> Value {
    let (medium, interface) = b.name.split_once('/').unwrap_or((&b.name, ""));
    json!({
        "bearer": b.name, "interface": interface, "medium": medium, "address": b.address,
        "state": if b.carrier { "up" } else { "no-carrier" }, "mtu_bytes": b.mtu, "gso": b.gso,
        "express_frames": b.express_frames.is_some(),
        "express_frames_sent": b.express_frames.map(|(sent, _)| sent),
        "express_frames_received": b.express_frames.map(|(_, received)| received),
        "send_buffer_bytes": b.buffers.0, "receive_buffer_bytes": b.buffers.1,
        "queue_target_bytes": b.queue_target_bytes,
    })
}

fn link_row(l: &crate::engine::LinkReport) -> Value {
    json!({
        "peer": l.peer, "link": l.link, "bearer": l.bearer, "to": l.to, "state": l.state, "status": l.status,
        "rtt_us": l.rtt_ns.0 as f64 / 1_000.0, "rtt_min_us": l.rtt_ns.1 as f64 / 1_000.0, "mtu_bytes": l.mtu,
        "rate_bytes_per_s": l.rate_bytes_per_s, "window_bytes": l.window_bytes.0, "inflight_bytes": l.window_bytes.1,
        "packets_sent": l.packets.0, "packets_received": l.packets.1, "packets_lost": l.packets.2,
        "packets_lost_spuriously": l.packets.3, "bytes_sent": l.bytes.0, "bytes_received": l.bytes.1,
        "probe_timeouts": l.troubles.0, "failures": l.troubles.1,
    })
}

fn node_rows(status: &Status) -> Vec<Value> {
    let own = json!({
        "node": status.id, "name": status.name, "state": "self", "incarnation": status.incarnation,
        "links": status.links.len(), "links_up": status.links.iter().filter(|l| l.state == "up").count(),
    });
    let peers = status.peers.iter().map(|p| {
        let links = || status.links.iter().filter(|l| l.peer == p.name);
        json!({
            "node": p.id, "name": p.name, "state": if p.up { "up" } else { "isolated" },
            "incarnation": p.incarnation, "links": links().count(),
            "links_up": links().filter(|l| l.state == "up").count(),
            "messages_sent": p.messages.0, "messages_confirmed": p.messages.1, "messages_received": p.messages.2,
            "messages_failed": p.messages.3, "messages_refused": p.messages.4,
        })
    });
    std::iter::once(own).chain(peers).collect()
}

fn service_row(s: &crate::engine::BindingStatus) -> Value {
    let service = if s.lower == s.upper {
        format!("{}:{}", s.kind, s.lower)
    } else {
        format!("{}:{}-{}", s.kind, s.lower, s.upper)
    };
    json!({
        "service": service, "type": s.kind, "lower": s.lower, "upper": s.upper, "scope": s.scope,
        "node": s.node, "port": s.port,
    })
}
