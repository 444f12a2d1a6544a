//! A node of a test's own to which programs attach, and rings between their ports.

use polyrail::{Config, Destination, Node, Port};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// No wait of these tests takes so long, unless something was lost.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node, and where programs attach to it.
pub struct Machine {
    door: PathBuf,
    pub node: Node,
}

impl Machine {
    pub fn new(test: &str) -> Machine {
        let door = std::env::temp_dir().join(format!("polyrail-{}-{test}.attach", std::process::id()));
        let config = Config::new().insecure().interfaces(["lo"]).discovery(false).attach(&door);
        Machine { node: Node::embed(config).unwrap(), door }
    }

    pub fn attach(&self) -> Node {
        Node::attach(&self.door).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.door);
    }
}

/// Sends until messages go past the engine; how many that took.
pub fn until_direct(
    sender: &Port,
    to: impl Into<Destination> + Copy,
    mut message: impl FnMut() -> Vec<u8>,
) -> u64 {
    let began = Instant::now();
    for count in 1.. {
        let before = sender.sent_direct();
        sender.send(to, &message()).unwrap();
        if sender.sent_direct() > before {
            return count;
        }
        assert!(began.elapsed() < PATIENCE, "no ring");
    }
    unreachable!()
}

/// Has messages from the one to the other go past the engine; none is left.
pub fn make_ring(sender: &Port, receiver: &Port) {
    until_direct(sender, receiver.address(), || vec![0; 8]);
    while receiver.try_recv().unwrap().is_some() {}
}
