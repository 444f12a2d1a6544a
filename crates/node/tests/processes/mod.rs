//! Processes that a test starts: its own program, started again for the one "test" `a_role`, which does what the process is to do.

#![allow(dead_code, reason = "no test needs all of it")]

use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No wait of these tests takes so long, unless something was lost.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What this process is to do, and where its node is; `None` in the test itself.
pub fn role() -> Option<(String, PathBuf)> {
    let path = std::env::var_os("POLYRAIL_PATH").map(PathBuf::from);
    std::env::var("POLYRAIL_ROLE").ok().zip(path)
}

/// What a process tells its test.
pub fn say(line: &str) {
    println!("\n{line}");
}

/// It does from now on what it is there for.
pub fn ready() {
    say("ready");
}

/// A process with a role; it is killed with this value.
pub struct Other {
    pub child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub fn start(role: &str, path: &Path) -> Other {
        Other::run(Command::new(std::env::current_exe().unwrap()), role, path)
    }

    /// The same of another user, who may not go where this program lies.
    pub fn start_as(uid: u32, role: &str, path: &Path) -> Other {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let copy = std::env::temp_dir().join(format!("polyrail-{}-program-{count}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&copy);
        command.uid(uid).gid(uid).current_dir("/");
        let other = Other::run(command, role, path);
        std::fs::remove_file(copy).unwrap();
        other
    }

    /// The same by a command that runs the program.
    pub fn run(mut command: Command, role: &str, path: &Path) -> Other {
        command
            .args(["--exact", "a_role", "--nocapture"])
            .env("POLYRAIL_ROLE", role)
            .env("POLYRAIL_PATH", path);
        command.stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // Another thread started a process while a copy was written: that one has the file open until it runs.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                spawned => break spawned.unwrap(),
            }
        };
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut other = Other { child, said };
        other.hear("ready");
        other
    }

    /// The rest of the next line that begins so.
    pub fn hear(&mut self, begins: &str) -> String {
        let found =
            self.said.find_map(|line| line.unwrap().strip_prefix(begins).map(|rest| rest.trim().to_owned()));
        found.unwrap_or_else(|| panic!("it has ended and not said {begins}"))
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether processes of other users can be started; says so if not.
pub fn can_be_others(test: &str) -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: only root can start programs of other users");
    }
    is_root
}

/// Where the programs of a test attach.
pub struct Door(pub PathBuf);

impl Door {
    pub fn new(test: &str) -> Door {
        Door(std::env::temp_dir().join(format!("polyrail-{}-{test}.attach", std::process::id())))
    }

    /// Lets every user in.
    pub fn open_to_all(&self) {
        std::fs::set_permissions(&self.0, Permissions::from_mode(0o666)).unwrap();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
