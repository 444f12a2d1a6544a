//! The two nodes of the demo: this program again, started inside a namespace by a hidden sub-command.
//!
//! A role takes one line of JSON, its [`Job`], on the standard input and tells what happens by lines of JSON on the
//! standard output. Further lines raise the sender's allowance. A role ends when its standard input ends, so no
//! orchestrator that dies leaves it behind.

use super::allowance::Allowance;
use super::{receiver, sender};
use crate::failure::Failure;
use crate::output::write_line;
use polyrail::config::Config;
use polyrail::{Node, ServiceAddress};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The hidden sub-command.
pub const COMMAND: &str = "demo-role";
/// The service that takes the bulk.
pub const BULK: ServiceAddress = ServiceAddress::new(1000, 0);
/// The service that takes the small messages of the open-loop flow.
pub const TICKS: ServiceAddress = ServiceAddress::new(1000, 1);
/// Bytes of a bulk message, its number included.
pub const BULK_BYTES: usize = 256 << 10;
/// Bytes of a message of the open-loop flow, and their spacing.
pub const TICK_BYTES: usize = 4096;
/// Spacing of the open-loop flow.
pub const TICK_SPACING: Duration = Duration::from_millis(1);
/// How often a role looks for news of its node.
const NEWS_SPACING: Duration = Duration::from_millis(20);
/// No single step of the demo takes longer while things work.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a role is to do.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Sends this file.
    Send {
        /// The file.
        path: PathBuf,
        /// Its first allowance; see [`Allowance`](super::allowance::Allowance).
        allowed_bytes: u64,
    },
    /// Receives until the end.
    Receive,
}

/// What a role tells.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The receiver is bound.
    Bound,
    /// Bytes received so far.
    Progress(u64),
    /// Something changed around the node: peers, links, names.
    News(NodeNews),
    /// The sender knows that everything is acknowledged.
    Acknowledged,
    /// The receiver has everything.
    Received(Received),
    /// It did not work.
    Failed(String),
}

/// Something that changed around a node.
#[derive(Serialize, Deserialize)]
pub struct NodeNews {
    /// When the role heard of it, by [`now_us`].
    pub at_us: u64,
    /// The node's name.
    pub node: String,
    /// What changed.
    pub what: Value,
}

/// What the receiver found.
#[derive(Clone, Serialize, Deserialize)]
pub struct Received {
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the bytes in the order of their arrival.
    pub sha256: String,
    /// Messages that did not arrive, of both flows.
    pub lost: u64,
    /// Messages that arrived again, of both flows.
    pub duplicated: u64,
    /// Messages that arrived after a later one, of both flows.
    pub disordered: u64,
    /// From the first byte to the last.
    pub seconds: f64,
    /// The open-loop flow: when each message was due, and how much later it was delivered, both in us.
    pub ticks: Vec<(u64, u64)>,
}

/// Plays the role that the standard input names.
pub fn main() -> ExitCode {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let job = match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
        Some(job) => job,
        None => {
            tell(&Event::Failed("demo-role is started by `polyrail demo`".into()));
            return ExitCode::from(2);
        }
    };
    let (allow, allowed) = channel();
    std::thread::spawn(move || listen_until_the_orchestrator_ends(&allow));
    let played = match job {
        Job::Send { path, allowed_bytes } => sender::play(&path, Allowance::new(allowed_bytes, allowed)),
        Job::Receive => receiver::play(),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&Event::Failed(failure.message));
            failure.exit.into()
        }
    }
}

/// Tells the orchestrator.
pub fn tell(event: &Event) {
    write_line(&serde_json::to_string(event).expect("an event is plain data"));
}

/// A node of the demo's own cluster, over the testbed's links.
pub fn node(name: &str) -> Result<Node, Failure> {
    let config = Config::new().insecure().cluster("demo").name(name).interfaces(["l0", "l1"]);
    Ok(Node::embed(config)?)
}

/// Plays while another thread tells the node's news.
pub fn with_news<T>(node: &Node, play: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.recv_timeout(NEWS_SPACING) == Err(RecvTimeoutError::Timeout) {
                for event in node.events() {
                    let what = serde_json::to_value(&event).unwrap_or_default();
                    tell_news(node.name(), what);
                }
            }
        });
        let played = play();
        drop(stop);
        played
    })
}

/// Tells something that changed now.
pub fn tell_news(node: &str, what: Value) {
    tell(&Event::News(NodeNews { at_us: now_us(), node: node.into(), what }));
}

/// The kernel's monotonic clock, which both roles and the orchestrator share, in us.
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

fn listen_until_the_orchestrator_ends(allow: &Sender<u64>) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Ok(bytes) = line.parse() {
            // The receiver has no use for an allowance.
            let _ = allow.send(bytes);
        }
    }
    std::process::exit(3);
}
