//! Another system's program, run by a measured process of ours: under the same priority and pinning as our own
//! measurements, and gone with everything it started once the orchestrator says so or is gone itself.
//!
//! The program cannot be trusted to end: it does not know our standard input, forks, and may ignore what it is asked.
//! So this process stays above it, adopts what it leaves behind, and kills all of it at the end. It sleeps meanwhile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use polyrail_sys::process::{Whose, cpu_usage};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::control::Event;
use crate::process::pin_thread;

/// A program to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// Where it is.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to its environment.
    pub environment: Vec<(String, String)>,
    /// Core that all of it is pinned to; none where it does that itself, or must not.
    pub core: Option<usize>,
    /// A file that it writes, told of with its end.
    pub file: Option<PathBuf>,
}

/// How an errand ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Whether it ended well by its own account.
    pub good: bool,
    /// How it ended: its exit code or the signal.
    pub how: String,
    /// CPU time of all of it, in ns.
    pub cpu_ns: u64,
    /// What is in the file that was asked for.
    pub file: Option<String>,
    /// What could not be had: pinning, priority.
    pub notes: Vec<String>,
}

/// The largest file that is taken from an errand.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Sweeps until what an errand left behind is given up; one each 10 ms.
const SWEEPS_MAX: usize = 200;

/// Runs `errand` to its end and tells what it says; `notes` is what this process could not have.
pub(crate) fn run(errand: &Errand, mut notes: Vec<String>, say: fn(&Event)) -> Result<(), String> {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(|error| format!("orphans: {error}"))?;
    // What is started inherits the core.
    if let Some(Err(note)) = errand.core.map(pin_thread) {
        notes.push(note);
    }
    let mut child = spawn(errand)?;
    let readers = read(&mut child, say);
    obey(&child)?;
    let status = child.wait().map_err(|error| format!("{}: {error}", errand.program.display()))?;
    sweep();
    // With the last writer gone, the readers are at their end.
    readers.into_iter().for_each(|reader| drop(reader.join()));
    let usage = cpu_usage(Whose::Children).unwrap_or_default();
    let file = errand.file.as_ref().map(|path| {
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok::<_, String>(text)
    });
    let file = match file {
        // A program that failed has not written it, and has said why.
        Some(Err(error)) if status.success() => return Err(error),
        file => file.and_then(Result::ok),
    };
    let cpu_ns = usage.user_ns + usage.system_ns;
    say(&Event::Ended(Ending { good: status.success(), how: how(status), cpu_ns, file, notes }));
    Ok(())
}

fn spawn(errand: &Errand) -> Result<Child, String> {
    Command::new(&errand.program)
        .args(&errand.args)
        .envs(errand.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", errand.program.display()))
}

/// Tells every line of the program as it comes.
fn read(child: &mut Child, say: fn(&Event)) -> Vec<JoinHandle<()>> {
    fn lines(from: impl Read + Send + 'static, aside: bool, say: fn(&Event)) -> JoinHandle<()> {
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                say(&Event::Said { line: String::from_utf8_lossy(&line).into_owned(), aside });
            }
        })
    }
    let out = child.stdout.take().map(|out| lines(out, false, say));
    let err = child.stderr.take().map(|err| lines(err, true, say));
    out.into_iter().chain(err).collect()
}

/// Ends the program once the orchestrator says anything or has gone.
fn obey(child: &Child) -> Result<(), String> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a process without a number")?;
    std::thread::spawn(move || {
        let mut order = String::new();
        let _ = std::io::stdin().lock().read_line(&mut order);
        // Nothing of the group may be left; then there is nothing to kill.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    });
    Ok(())
}

/// Kills whatever is below this process, also what has left the program's group or session.
fn sweep() {
    for _ in 0..SWEEPS_MAX {
        for pid in descendants().into_iter().filter_map(Pid::from_raw) {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::waitpid(None, WaitOptions::NOHANG) {}
        if descendants().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Every process below this one.
fn descendants() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: BTreeMap<i32, i32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let below = |pid: &i32| {
        let mut at = *pid;
        // A parent may have ended between two looks: a walk that gets nowhere ends.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(&parent) if parent == own => return true,
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(below).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(parent(pid), Some(own));
        assert!(descendants().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants().contains(&pid));
        assert_eq!(parent(-1), None);
    }

    #[test]
    fn endings_are_told_by_code_or_signal() {
        assert_eq!(how(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(how(ExitStatus::from_raw(9)), "signal 9");
    }
}
