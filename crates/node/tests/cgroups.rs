//! Which control group pays for memory that a program and its node share: that of who touches a page first. Needs root and a hierarchy
//! of control groups with memory that may be written to, of either version; says so and passes where there is none.

mod processes;

use polyrail::{Config, Node, Scope, ServiceAddress};
use processes::{Door, Other, PATIENCE, ready, role, say, until};
use std::io::Write;
use std::path::{Path, PathBuf};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);
const MIB: u64 = 1 << 20;
/// A message that fits the arenas which it goes by. What else a process touches is far less.
const SENT_BYTES: u64 = 3 * MIB;

#[test]
fn a_role() {
    let Some((role, path)) = role() else { return };
    // Before the first page of what is measured is touched.
    let group = std::env::var_os("POLYRAIL_GROUP").map(PathBuf::from).unwrap();
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    match &role[..] {
        "receiver" => receiver(&path),
        "sender" => sender(&path),
        other => panic!("{other}"),
    }
}

/// Has a port to which messages may come, which it never reads.
fn receiver(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    port.bind(SERVICE, Scope::Node).unwrap();
    ready();
    std::thread::sleep(PATIENCE);
}

/// Sends once it is told to.
fn sender(path: &Path) {
    let node = Node::attach(path).unwrap();
    let port = node.port().unwrap();
    // What it allocates itself is there before it is measured.
    let message = vec![7; SENT_BYTES as usize];
    ready();
    until("it may", || path.with_extension("go").exists());
    port.send(SERVICE, &message).unwrap();
    port.flush(Some(PATIENCE)).unwrap();
    say("sent");
    std::thread::sleep(PATIENCE);
}

/// A control group of its own, gone with the value.
struct Group {
    folder: PathBuf,
    usage: &'static str,
}

impl Group {
    /// `None`: there can be none here, as is said.
    fn new(test: &str) -> Option<Group> {
        let made = Group::of_first(test).or_else(|| Group::of_second(test));
        if made.is_none() {
            let why = "control groups with memory are not there, or not to be written to";
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
        }
        made
    }

    /// Of the first version, below the group of this process.
    fn of_first(test: &str) -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let is_memory = |controllers: &str| controllers.split(',').any(|name| name == "memory");
        let own = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            is_memory(controllers).then_some(group)
        })?;
        let root = Path::new("/sys/fs/cgroup/memory");
        Group::below(&root.join(own.trim_start_matches('/')), test, "memory.usage_in_bytes")
    }

    /// Of the second version, below its root: in any other group there must be no process beside its groups.
    fn of_second(test: &str) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup");
        let handed_on = std::fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
        let has_memory = handed_on.split_whitespace().any(|name| name == "memory");
        has_memory.then(|| Group::below(root, test, "memory.current"))?
    }

    fn below(parent: &Path, test: &str, usage: &'static str) -> Option<Group> {
        let group = Group { folder: parent.join(format!("polyrail-{}-{test}", std::process::id())), usage };
        std::fs::create_dir(&group.folder).ok()?;
        // Some systems have folders that no process may be put into.
        (group.folder.join("cgroup.procs").exists() && group.folder.join(usage).exists()).then_some(group)
    }

    /// Bytes that are charged to it.
    fn used_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(self.usage)).unwrap();
        text.trim().parse().unwrap()
    }

    fn start(&self, role: &str, door: &Door) -> Other {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.env("POLYRAIL_GROUP", &self.folder);
        Other::run(command, role, &door.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process of it may not be gone altogether.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn embed(door: &Door) -> Node {
    Node::embed(Config::new().insecure().interfaces(["lo"]).discovery(false).attach(&door.0)).unwrap()
}

#[test]
fn what_a_program_sends_is_paid_by_its_group_and_what_arrives_by_that_of_the_node() {
    let test = "what_a_program_sends_is_paid_by_its_group_and_what_arrives_by_that_of_the_node";
    let (Some(senders), Some(receivers)) = (Group::new("sends"), Group::new("receives")) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: see above");
        return;
    };
    let door = Door::new("cgroups");
    let node = embed(&door);
    let _receiver = receivers.start("receiver", &door);
    let mut sender = senders.start("sender", &door);
    let before = [&senders, &receivers].map(Group::used_bytes);
    std::fs::write(door.0.with_extension("go"), "").unwrap();
    sender.hear("sent");
    let after = [&senders, &receivers].map(Group::used_bytes);
    std::fs::remove_file(door.0.with_extension("go")).unwrap();
    let [sent, received] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
    assert!(sent >= SENT_BYTES * 9 / 10, "{sent}: the sending arena");
    assert!(received < MIB, "{received}: the node has written to the receiving arena");
    // It is charged there as long as somebody has the memory: the node lets go of it.
    sender.kill();
    until("the sender's group has it no more", || senders.used_bytes() < SENT_BYTES);
    drop(node);
}
