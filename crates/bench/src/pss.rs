//! The memory of processes that share some of it: each page counts once, divided among those that have it (proportional set size).

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// The memory of a server, its clients, and what runs beside them, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrowdMemory {
    /// Of each client.
    pub(crate) clients_bytes: Vec<u64>,
    /// Of the server.
    pub(crate) server_bytes: u64,
    /// Of what the server has started: a node in a process of its own.
    pub(crate) node_bytes: u64,
    /// What of all that lies in memory that is shared by name or descriptor: queues, rings and arenas.
    pub(crate) shared_bytes: u64,
}

impl CrowdMemory {
    /// That of the processes with these numbers now.
    ///
    /// # Errors
    /// One has ended, or this kernel does not tell.
    pub(crate) fn of(clients: &[u32], server: u32) -> io::Result<Self> {
        let of_clients = clients.iter().map(|pid| Pss::of(*pid)).collect::<io::Result<Vec<_>>>()?;
        let of_server = Pss::of(server)?;
        // One that has ended meanwhile has none.
        let beside: Vec<Pss> = children(server)?.into_iter().filter_map(|pid| Pss::of(pid).ok()).collect();
        let all = of_clients.iter().chain(&beside).chain([&of_server]);
        Ok(Self {
            shared_bytes: all.map(|pss| pss.shared_bytes).sum(),
            clients_bytes: of_clients.iter().map(|pss| pss.bytes).collect(),
            server_bytes: of_server.bytes,
            node_bytes: beside.iter().map(|pss| pss.bytes).sum(),
        })
    }

    /// All of it.
    pub(crate) fn sum_bytes(&self) -> u64 {
        self.clients_bytes.iter().sum::<u64>() + self.server_bytes + self.node_bytes
    }
}

/// The memory of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pss {
    bytes: u64,
    shared_bytes: u64,
}

impl Pss {
    fn of(pid: u32) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Self::parse(&rollup).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// By the contents of `/proc/PID/smaps_rollup` (proc_pid_smaps(5)); `Pss_Shmem` is told since Linux 5.3.
    fn parse(rollup: &str) -> Option<Self> {
        let kib = |name: &str| {
            let rest = rollup.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        Some(Self { bytes: kib("Pss:")? * 1024, shared_bytes: kib("Pss_Shmem:").unwrap_or(0) * 1024 })
    }
}

/// The processes that `pid` has started.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended since has no children.
        let text = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn shared_memory_is_told_apart_and_a_kernel_that_does_not_tell_it_is_no_error() {
        let rollup =
            "00400000-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPss:  123 kB\nPss_Anon: 7 kB\n";
        let plain = Pss::parse(rollup).unwrap();
        assert_eq!(plain, Pss { bytes: 123 << 10, shared_bytes: 0 });
        let shared = Pss::parse(&format!("{rollup}Pss_Shmem:  17 kB\n")).unwrap();
        assert_eq!(shared, Pss { bytes: 123 << 10, shared_bytes: 17 << 10 });
        assert!(Pss::parse("Rss: 900 kB\n").is_none());
    }

    #[test]
    fn what_a_server_has_started_counts_beside_it() {
        let spawn = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut started = [spawn(), spawn()];
        let pids = started.each_ref().map(std::process::Child::id);
        let own = std::process::id();
        assert!(pids.iter().all(|pid| children(own).unwrap().contains(pid)));
        let memory = CrowdMemory::of(&pids, own).unwrap();
        assert!(memory.clients_bytes.len() == 2 && memory.clients_bytes.iter().all(|bytes| *bytes > 0));
        assert!(memory.node_bytes > 0, "{memory:?}");
        assert!(memory.server_bytes > memory.clients_bytes[0], "{memory:?}");
        for child in &mut started {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(CrowdMemory::of(&pids, own).is_err(), "they have ended");
    }
}
