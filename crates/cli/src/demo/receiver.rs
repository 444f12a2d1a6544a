//! The receiving node: binds both services, checks and hashes what arrives.

use super::arrivals::Arrivals;
use super::role::{self, BULK, Event, PATIENCE, Received, TICKS};
use crate::failure::Failure;
use crate::recv::hexadecimal;
use polyrail::{Message, Node, Port, Scope};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// How often the orchestrator hears of progress, in us.
const PROGRESS_US: u64 = 10_000;

/// Receives both flows until their ends.
pub fn play() -> Result<(), Failure> {
    let node = role::node("b")?;
    role::with_news(&node, || receive(&node))?;
    Ok(node.leave(PATIENCE)?)
}

fn receive(node: &Node) -> Result<(), Failure> {
    let bulk = node.port()?;
    let ticks = node.port()?;
    bulk.bind(BULK, Scope::Cluster)?;
    ticks.bind(TICKS, Scope::Cluster)?;
    role::tell(&Event::Bound);
    let ticker = std::thread::spawn(move || hear_ticks(&ticks));
    let mut received = hear_bulk(&bulk)?;
    let heard = ticker.join().map_err(|_| Failure::failed("the open-loop flow broke down"))??;
    received.lost += heard.lost;
    received.duplicated += heard.duplicated;
    received.disordered += heard.disordered;
    received.ticks = heard.ticks;
    role::tell(&Event::Received(received));
    Ok(())
}

fn hear_bulk(port: &Port) -> Result<Received, Failure> {
    let mut book = Book::new("bulk");
    let mut digest = Sha256::new();
    let (mut bytes, mut begun_us, mut told_us) = (0u64, 0, 0);
    let sent = loop {
        let message = next(port)?;
        let (number, piece) = split(&message)?;
        book.note(&message, number);
        let now_us = role::now_us();
        if begun_us == 0 {
            begun_us = now_us;
        }
        if piece.is_empty() {
            break number + 1;
        }
        digest.update(piece);
        bytes += piece.len() as u64;
        if now_us - told_us >= PROGRESS_US {
            told_us = now_us;
            role::tell(&Event::Progress(bytes));
        }
    };
    Ok(Received {
        bytes,
        sha256: hexadecimal(&digest.finalize()),
        lost: book.arrivals.lost(sent),
        duplicated: book.arrivals.duplicated,
        disordered: book.arrivals.disordered,
        seconds: (role::now_us() - begun_us) as f64 / 1e6,
        ticks: Vec::new(),
    })
}

/// What is known of a flow, so that a message that arrives again can be described.
struct Book {
    flow: &'static str,
    arrivals: Arrivals,
    /// Messages received so far.
    position: u64,
    /// By number: position and hash of the first arrival.
    first: BTreeMap<u64, (u64, u64)>,
}

impl Book {
    fn new(flow: &'static str) -> Self {
        Book { flow, arrivals: Arrivals::default(), position: 0, first: BTreeMap::new() }
    }

    /// Notes a message; tells of one that arrived before.
    fn note(&mut self, message: &Message<'_>, number: u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write(message.bytes());
        let hash = hasher.finish();
        if self.arrivals.note(number) {
            self.first.insert(number, (self.position, hash));
        } else if let Some((first_position, first_hash)) = self.first.get(&number) {
            role::tell_news(
                "b",
                json!({
                    "event": "duplicate",
                    "flow": self.flow,
                    "from": message.from().to_string(),
                    "number": number,
                    "position": self.position,
                    "first_position": first_position,
                    "length": message.len(),
                    "same_bytes": hash == *first_hash,
                }),
            );
        }
        self.position += 1;
    }
}

struct Heard {
    lost: u64,
    duplicated: u64,
    disordered: u64,
    ticks: Vec<(u64, u64)>,
}

fn hear_ticks(port: &Port) -> Result<Heard, Failure> {
    let mut book = Book::new("ticks");
    let mut ticks = Vec::new();
    let sent = loop {
        let message = next(port)?;
        let (number, rest) = split(&message)?;
        book.note(&message, number);
        let Some(due) = rest.first_chunk() else { break number + 1 };
        let due_us = u64::from_le_bytes(*due);
        ticks.push((due_us, role::now_us().saturating_sub(due_us)));
    };
    let Arrivals { duplicated, disordered, .. } = book.arrivals;
    Ok(Heard { lost: book.arrivals.lost(sent), duplicated, disordered, ticks })
}

/// The next message, however long it takes: how long silence may last is the orchestrator's to say, who knows whether
/// the sender has been told to wait. A role whose orchestrator gives up is ended.
fn next(port: &Port) -> Result<Message<'_>, Failure> {
    loop {
        if let Some(message) = port.recv_timeout(PATIENCE)? {
            return Ok(message);
        }
    }
}

fn split<'a>(message: &'a Message<'_>) -> Result<(u64, &'a [u8]), Failure> {
    let (number, rest) = message
        .bytes()
        .split_first_chunk()
        .ok_or_else(|| Failure::failed("a message without a number arrived"))?;
    Ok((u64::from_le_bytes(*number), rest))
}
