//! Two nodes of the program at this machine's loopback interface, and a receiver, all of which end with the value and do not
//! outlive a test that hangs.

use super::Running;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Whatever takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that vanishes with the value.
pub struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("polyrail-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed if it hangs; who reads its lines then finds their end.
pub struct Watched {
    _watch: Sender<()>,
    pub running: Running,
}

impl Watched {
    pub fn start(arguments: &[&str]) -> Watched {
        let running = Running::start(arguments);
        let (watch, over) = mpsc::channel();
        let id = running.child.id().to_string();
        std::thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-s", "KILL", &id]).status();
            }
        });
        Watched { _watch: watch, running }
    }

    pub fn document(&mut self) -> Value {
        self.running.document()
    }
}

/// All lines of a command, and its exit code.
pub fn lines(arguments: &[&str]) -> (Vec<String>, Option<i32>) {
    let mut watched = Watched::start(arguments);
    let lines = std::iter::from_fn(|| watched.running.line()).collect();
    (lines, watched.running.exit_code())
}

/// Two nodes, and a receiver that is attached to the second one.
pub struct Pair {
    folder: Folder,
    _alpha: Watched,
    pub beta: Watched,
    pub receiver: Watched,
}

impl Pair {
    pub fn new(test: &str) -> Pair {
        let folder = Folder::new(test);
        let (alpha, port) = node(&folder, "alpha", test, None);
        let (beta, _) = node(&folder, "beta", test, Some(&port));
        let attach = format!("--attach={}", folder.path("beta.attach"));
        let receiver = Watched::start(&["--json", "recv", &attach, "100:0"]);
        Pair { folder, _alpha: alpha, beta, receiver }
    }

    pub fn control(&self, node: &str) -> String {
        self.folder.path(&format!("{node}.sock"))
    }

    /// From the first node to the receiver at the second one, until it is there.
    pub fn send(&mut self, text: &str) {
        let attach = format!("--attach={}", self.folder.path("alpha.attach"));
        let (said, code) = lines(&["send", &attach, "100:0", "--wait=60s", "--text", text]);
        assert_eq!(code, Some(0), "{said:?}");
        assert_eq!(self.receiver.document()["text"], text);
    }

    /// The row of the receiver's port, once it has one.
    pub fn receiving(&self, picture: &Value) -> Option<Value> {
        let pid = self.receiver.running.child.id();
        picture["ports"].as_array()?.iter().find(|row| row["pid"] == pid).cloned()
    }
}

/// A node at the loopback interface, and its UDP port.
fn node(folder: &Folder, name: &str, cluster: &str, peer: Option<&str>) -> (Watched, String) {
    let control = folder.path(&format!("{name}.sock"));
    // If another program takes it meanwhile, the node finds one itself.
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
    let free = free.port().to_string();
    let mut arguments = vec!["--json", "node", "--insecure", "--name", name, "--interface", "lo"];
    arguments.extend(["--no-discovery", "--port", &free, "--cluster", cluster, "--control", &control]);
    let peer = peer.map(|port| format!("127.0.0.1:{port}"));
    arguments.extend(peer.iter().flat_map(|peer| ["--peer", peer]));
    let mut node = Watched::start(&arguments);
    let started = node.document();
    assert_eq!(started["ok"], true, "{started}");
    let (rows, _) = lines(&["--json", "bearer", "list", "--control", &control]);
    let rows: Value = serde_json::from_str(&rows[0]).expect("JSON");
    let address = rows["rows"][0]["address"].as_str().expect("an address").to_owned();
    (node, address.rsplit_once(':').expect("with its port").1.to_owned())
}
