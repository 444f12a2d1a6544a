//! Nodes on the loopback interface, which meet those whose addresses they are given and no others.

use polyrail::{Config, Node, Progress};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// No wait of these tests takes so long, unless something was lost.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether nodes are attached to: what only a program can do that drives its node itself is not tested then.
pub fn are_attached() -> bool {
    env!("CARGO_CRATE_NAME") == "attached" || are_of_one_machine()
}

/// Whether all that is called a node here is attached to one: connections go past it.
pub fn are_of_one_machine() -> bool {
    env!("CARGO_CRATE_NAME") == "trunks"
}

/// A node that is otherwise as `config` wants it: one of this process or, in the tests of `attached.rs`, what is attached to
/// one.
pub fn node(config: Config, peers: &[String]) -> Node {
    let config = config.insecure().interfaces(["lo"]).discovery(false).peers(peers);
    if are_attached() { attached(config, peers) } else { Node::embed(config).unwrap() }
}

/// Attached to a node of its own, which ends when nobody is attached to it any more.
fn attached(config: Config, peers: &[String]) -> Node {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static DOORS: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    if let Some(peer) = peers.first().filter(|_| are_of_one_machine()) {
        let doors = DOORS.lock().unwrap();
        let (_, door) = doors.iter().rev().find(|(address, _)| address == peer).unwrap();
        return Node::attach_with(door, config).unwrap();
    }
    let (of, count) = (module_path!().replace("::", "-"), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("polyrail-{}-{of}-{count}.attach", std::process::id()));
    let node = Node::embed(config.clone().progress(Progress::Auto).attach(&path)).unwrap();
    let attached = Node::attach_with(&path, config).unwrap();
    DOORS.lock().unwrap().push((address(&attached), path));
    std::thread::spawn(move || {
        while node.status().attached > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    attached
}

/// The address at which `node` is reached.
pub fn address(node: &Node) -> String {
    let status = node.status();
    let bearer = status.bearers.iter().find(|b| b.name == "udp/lo" && b.address.starts_with("127.")).unwrap();
    bearer.address.clone()
}
