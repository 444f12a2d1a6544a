//! A trace on its way: from the ring that the engine fills to whoever asked for it, over the connection that he asked by.
//!
//! The file is the asker's: it is written by the program that wants it, with the rights of that program, so that a node
//! never writes where its client could not. The attendant moves the packets on, a little at a time and without ever
//! waiting: where the client does not read, the ring is full, and packets are counted as not captured.

use super::{Refusal, find};
use crate::engine::Engine;
use crate::engine::tap::{self, Filter, Reader, Record};
use crate::moment::Moment;
use crate::node::Home;
use crate::trace::{END, HEAD_BYTES, plain};
use polyrail_bearer::Address;
use polyrail_bearer::capture::{Captured, file_header};
use polyrail_proto::time::Duration;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Bytes of each packet in a trace of headers: the packet's header, the longest acknowledgement, and the head of a message.
pub(super) const HEADERS_BYTES: usize = 256;
/// Trains and groups moved on in one go; then carriers are looked after.
const PUMPED_MAX: usize = 64;
/// How long a client that has ended the trace may take to read the rest.
const PATIENCE: Duration = Duration::s(5);
/// The same when the node ends.
const LAST_PATIENCE: Duration = Duration::ms(300);

/// What is wanted of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    peer: Option<String>,
    packets_max: Option<u64>,
    headers: bool,
}

impl Wish {
    /// From the members of a request.
    pub(super) fn read(request: &Value) -> Result<Wish, Refusal> {
        let wrong =
            |name: &str, allowed: &str| Refusal::new("request", format!("\"{name}\"; allowed: {allowed}"));
        let peer = match &request["peer"] {
            Value::Null => None,
            Value::String(peer) => Some(peer.clone()),
            _ => return Err(wrong("peer", "the name of a node")),
        };
        let packets_max = match &request["packets"] {
            Value::Null => None,
            number => {
                Some(number.as_u64().filter(|n| *n > 0).ok_or_else(|| wrong("packets", "a number above 0"))?)
            }
        };
        let headers = match &request["headers"] {
            Value::Null => false,
            Value::Bool(headers) => *headers,
            _ => return Err(wrong("headers", "true, false")),
        };
        Ok(Wish { peer, packets_max, headers })
    }

    fn filter(&self, engine: &Engine) -> Result<Filter, Refusal> {
        let only = self.peer.as_ref().map(|name| addresses_of(engine, name)).transpose()?;
        Ok(Filter { only, bytes_max: if self.headers { HEADERS_BYTES } else { usize::MAX } })
    }
}

/// The addresses of a node that has a session now.
fn addresses_of(engine: &Engine, name: &str) -> Result<Vec<Address>, Refusal> {
    let node = find::node(engine, name)?;
    let session = engine.remote_sessions().find(|s| s.peer.node == node);
    let session = session.ok_or_else(|| {
        Refusal::new(
            "not_found",
            format!("no session with {name:?}, so no packets to capture; see `polyrail node list`"),
        )
    })?;
    let links = session.links.iter().filter_map(|link| plain(&link.spec.to));
    Ok(links.chain(session.peer.bearers.iter().filter_map(|bearer| plain(&bearer.address))).collect())
}

/// A trace under way.
pub(super) struct Stream {
    client: UnixStream,
    reader: Reader,
    moment: Moment,
    packets_left: u64,
    packets: u64,
    out: Vec<u8>,
    sent: usize,
    ending: Option<Ending>,
}

/// The tap is closed, and the rest is on its way.
struct Ending {
    missed: u64,
    give_up_at_ns: u64,
    told: bool,
}

impl Stream {
    /// Has the engine capture what is wanted.
    pub(super) fn begin(wish: &Wish, engine: &mut Engine) -> Result<Reader, Refusal> {
        let (tap, reader) = tap::ring(wish.filter(engine)?);
        engine.open_tap(tap);
        Ok(reader)
    }

    /// What is captured goes to the client at the other end.
    pub(super) fn new(client: UnixStream, reader: Reader, wish: &Wish) -> io::Result<Stream> {
        client.set_nonblocking(true)?;
        let mut out = format!("{}\n", json!({ "ok": true, "trace": { "format": "pcap" } })).into_bytes();
        out.extend_from_slice(&file_header());
        Ok(Stream {
            client,
            reader,
            moment: Moment::read(),
            packets_left: wish.packets_max.unwrap_or(u64::MAX),
            packets: 0,
            out,
            sent: 0,
            ending: None,
        })
    }

    /// Moves on what was captured; whether there is more to come.
    pub(super) fn pump(&mut self, home: &Home) -> bool {
        let now_ns = crate::clock::now_ns();
        if self.ending.is_none() && (self.packets_left == 0 || self.client_is_done()) {
            self.end(home, now_ns);
        }
        let goes_on = self.ending.as_ref().is_none_or(|ending| now_ns < ending.give_up_at_ns);
        let goes_on = goes_on && self.move_on().unwrap_or(false);
        if !goes_on && self.ending.is_none() {
            self.end(home, now_ns);
        }
        goes_on
    }

    /// Closes the tap: nothing more is captured.
    pub(super) fn end(&mut self, home: &Home, now_ns: u64) {
        let missed = home.drive.engine().close_tap();
        self.ending = Some(Ending { missed, give_up_at_ns: now_ns + PATIENCE.0, told: false });
    }

    /// The node ends: what was captured until now still goes to the client, if he takes it soon.
    pub(super) fn finish(&mut self, home: &Home) {
        let now_ns = crate::clock::now_ns();
        if self.ending.is_none() {
            self.end(home, now_ns);
        }
        let until_ns = now_ns + LAST_PATIENCE.0;
        let wait = std::time::Duration::from_nanos(LAST_PATIENCE.0);
        if self
            .client
            .set_nonblocking(false)
            .and_then(|()| self.client.set_write_timeout(Some(wait)))
            .is_err()
        {
            return;
        }
        // A write that took too long is the last.
        while self.move_on().unwrap_or(false) && crate::clock::now_ns() < until_ns {}
    }

    /// Whether the client wants no more: it has closed its end, or half of it.
    fn client_is_done(&mut self) -> bool {
        match self.client.read(&mut [0; 64]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Writes as much as the client takes now; whether there is more to come.
    fn move_on(&mut self) -> io::Result<bool> {
        for _ in 0..PUMPED_MAX {
            while self.sent < self.out.len() {
                match self.client.write(&self.out[self.sent..]) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.out.clear();
            self.sent = 0;
            if self.packets_left > 0
                && let Some(record) = self.reader.next()
            {
                self.put(&record);
                self.reader.give_back(record);
                continue;
            }
            match &mut self.ending {
                None => return Ok(true),
                Some(ending) if ending.told => return Ok(false),
                Some(ending) => {
                    ending.told = true;
                    let mut head = [0; HEAD_BYTES];
                    head[8..12].copy_from_slice(&END.to_le_bytes());
                    self.out.extend_from_slice(&head);
                    let last = json!({ "packets": self.packets, "not_captured": ending.missed });
                    self.out.extend_from_slice(format!("{last}\n").as_bytes());
                }
            }
        }
        Ok(true)
    }

    fn put(&mut self, record: &Record) {
        let Some((from, to)) = record.way() else { return };
        let unix_ns = self.moment.unix_of(record.at());
        for (bytes, whole_bytes) in record.packets() {
            if self.packets_left == 0 {
                return;
            }
            self.packets_left -= 1;
            self.packets += 1;
            Captured { unix_ns, from, to, bytes, whole_bytes }.put(&mut self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_and_what_is_wrong_with_it_is_told() {
        let wish = Wish::read(&json!({ "command": "trace", "peer": "beta", "packets": 9, "headers": true }));
        assert_eq!(wish, Ok(Wish { peer: Some("beta".to_owned()), packets_max: Some(9), headers: true }));
        let all = Wish { peer: None, packets_max: None, headers: false };
        assert_eq!(Wish::read(&json!({ "command": "trace" })), Ok(all));
        for wrong in [
            json!({ "peer": 3 }),
            json!({ "packets": 0 }),
            json!({ "packets": "9" }),
            json!({ "headers": 1 }),
        ] {
            assert_eq!(Wish::read(&wrong).unwrap_err().code, "request", "{wrong}");
        }
    }
}
