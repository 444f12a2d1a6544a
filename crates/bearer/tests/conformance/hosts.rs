//! Hosts made of threads: each in a network name space of its own, which ends with it.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::interface::{self, LinkMonitor};
use polyrail_sys::process::unshare_netns;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in its own network name space. Sockets opened there may be used anywhere.
pub struct Host {
    jobs: Sender<Job>,
    /// The thread's number, by which `ip` finds its name space.
    thread: String,
}

impl Host {
    /// `N` hosts without any link; `None`, and a word about it, where this is not allowed.
    pub fn some<const N: usize>(claim: &str) -> Option<[Host; N]> {
        let hosts: std::io::Result<Vec<Host>> = (0..N).map(|_| Host::new()).collect();
        match hosts {
            Ok(hosts) => hosts.try_into().ok(),
            Err(error) => {
                eprintln!("SKIPPED {claim}: no network name space: {error}");
                None
            }
        }
    }

    fn new() -> std::io::Result<Host> {
        let (jobs, todo) = channel::<Job>();
        let (ready, made) = channel();
        std::thread::spawn(move || {
            let link = unshare_netns().and_then(|()| std::fs::read_link("/proc/thread-self"));
            let failed = link.is_err();
            let _ = ready.send(link);
            if !failed {
                todo.into_iter().for_each(|job| job());
            }
        });
        let link = made.recv().expect("an answer of the thread")?;
        let thread = link.file_name().expect("a number").to_string_lossy().into_owned();
        let host = Host { jobs, thread };
        host.ip("link set lo up");
        Ok(host)
    }

    /// Does `job` on this host and returns what it gives.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        let job: Job = Box::new(move || {
            let _ = answer.send(job());
        });
        self.jobs.send(job).expect("the host is alive");
        answered.recv().expect("the job has not panicked")
    }

    /// Runs `ip ARGUMENTS` on this host.
    pub fn ip(&self, arguments: &str) {
        self.command("ip", arguments);
    }

    /// Runs a program on this host, which must succeed.
    pub fn command(&self, program: &'static str, arguments: &str) {
        let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let output = self.run(move || Command::new(program).args(words).output().unwrap());
        assert!(
            output.status.success(),
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A cable between an interface here and one on `other`, without addresses.
    pub fn link(&self, other: &Host, here: &str, there: &str, mtu_bytes: u32) {
        let peer = &other.thread;
        self.ip(&format!(
            "link add {here} mtu {mtu_bytes} type veth peer name {there} mtu {mtu_bytes} netns {peer}"
        ));
        for (host, device) in [(self, here), (other, there)] {
            host.ip(&format!("link set {device} addrgenmode none"));
            host.ip(&format!("link set {device} up"));
        }
        self.await_running(here);
        other.await_running(there);
    }

    /// Waits until the kernel has noticed that both ends of the cable are in. Until then it drops what is sent
    /// without a word.
    pub fn await_running(&self, device: &str) {
        let device = device.to_owned();
        self.run(move || {
            let (mut monitor, epoll) = (LinkMonitor::open().unwrap(), Epoll::new().unwrap());
            epoll.add(monitor.as_raw_fd(), 0, Interest::READ).unwrap();
            while !interface::list().unwrap().iter().any(|one| one.name == device && one.running) {
                epoll.wait(&mut Events::new(1), None).unwrap();
                monitor.drain(&mut Vec::new()).unwrap();
            }
        });
    }
}
