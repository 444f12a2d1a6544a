//! A node in a process of its own, and the measured process attached to it.

use super::{config, embed_with};
use crate::agent::AGENT_COMMAND;
use crate::control::Setup;
use polyrail::Node;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The word after [`AGENT_COMMAND`] under which the program runs the node.
pub(crate) const NODE_WORD: &str = "node";

/// What the node's process is to run.
#[derive(Serialize, Deserialize)]
struct Order {
    setup: Setup,
    name: String,
    peers: Vec<String>,
    path: PathBuf,
}

/// Starts a node in another process, and attaches to it. That one ends with this process.
pub(super) fn attach(setup: &Setup, name: &str, peers: &[&str]) -> io::Result<Arc<Node>> {
    let path = path_of(name);
    let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
    let order = Order { setup: setup.clone(), name: name.to_owned(), peers, path: path.clone() };
    let mut command = Command::new(std::env::current_exe()?);
    command.args([AGENT_COMMAND, NODE_WORD]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let (orders, says) = (child.stdin.take(), child.stdout.take());
    let (Some(mut orders), Some(says)) = (orders, says) else { return Err(io::ErrorKind::BrokenPipe.into()) };
    writeln!(orders, "{}", serde_json::to_string(&order)?)?;
    BufReader::new(says).read_line(&mut String::new())?;
    // The pipe closes when this process ends, and the node's process with it.
    std::mem::forget(orders);
    join(setup, name, &path)
}

/// Attaches to a node that is there.
pub(super) fn join(setup: &Setup, name: &str, path: &Path) -> io::Result<Arc<Node>> {
    let node = Node::attach_with(path, config(setup, name, &[])).map_err(io::Error::other)?;
    Ok(Arc::new(node))
}

/// Where programs attach to the node that this process has started under this name.
pub(super) fn path_of(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("polyrail-bench-{}-{name}.attach", std::process::id()))
}

/// Runs the node until the standard input ends.
pub(crate) fn run() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let Order { setup, name, peers, path } = serde_json::from_str(&line)?;
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let _node = embed_with(config(&setup, &name, &peers).attach(path))?;
    println!("ready");
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
