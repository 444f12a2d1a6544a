//! What a client of the server may ask for: one side of a measurement, of bounded length, to be answered and no more.

use std::net::IpAddr;
use std::time::Duration;

use crate::check::{CONTENTS_BYTES_MIN, MESSAGE_BYTES_MIN};
use crate::control::{Far, Job, Role, Setup, Task};
use crate::protocol::{self, Reach};
use crate::workload::Workload;

/// Longest warm-up and window together, in ns.
const WINDOW_NS_MAX: u64 = 600_000_000_000;
/// Largest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Flows side by side, and their messages together, in bytes.
const FLOWS_MAX: u32 = 64;
const FLOWS_BYTES_MAX: usize = 256 << 20;
/// Most bytes of a job that ends by bytes.
const JOB_BYTES_MAX: u64 = 64 << 30;
/// Largest socket buffer that is asked of the kernel, in bytes.
const SOCKET_BUFFER_BYTES_MAX: usize = 1 << 30;
/// Measured processes that one connection may start.
pub(super) const JOBS_MAX: u64 = 100_000;
/// Orders to one measured process, and the length of each in bytes: together they fit into the pipe to it, so that one
/// which does not read holds nobody up.
pub(super) const ORDERS_MAX: u32 = 16;
pub(super) const ORDER_BYTES_MAX: usize = 2048;
/// Addresses that a client may name as its own.
const CLIENT_ADDRESSES_MAX: usize = 16;
/// Longest name of a cluster, in bytes.
const CLUSTER_BYTES_MAX: usize = 63;
/// Connections that are in their handshake at a time, all together and from one address.
pub(super) const HANDSHAKES_MAX: usize = 32;
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 4;
/// How long one write to a client may take.
pub(super) const WRITE_MAX: Duration = Duration::from_secs(5);
/// How often both sides say that they are there, when there is nothing else to say.
pub(super) const BEAT: Duration = Duration::from_secs(5);

/// Limits in time; tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Silence after which a client, or a server, is gone.
    pub(super) silence: Duration,
    /// How long a client may hold the server without a measured process.
    pub(super) idle: Duration,
    /// How long a measured process may run.
    pub(super) job: Duration,
    /// How long a handshake may take.
    pub(super) handshake: Duration,
    /// How long a caller that failed waits for the answer.
    pub(super) refusal_delay: Duration,
}

impl Patience {
    pub(super) const USUAL: Self = Self {
        silence: Duration::from_secs(30),
        idle: Duration::from_secs(120),
        job: Duration::from_secs(1_800),
        handshake: Duration::from_secs(5),
        refusal_delay: Duration::from_secs(1),
    };
}

/// Whether the far side of a workload can be played by a server.
///
/// # Errors
/// The reason why not, one line.
pub(crate) fn plays(workload: Workload) -> Result<(), String> {
    match workload {
        Workload::Stream
        | Workload::PingPong
        | Workload::Rate
        | Workload::Transact
        | Workload::Datagram
        | Workload::Buffer
        | Workload::OpenLoop
        | Workload::Stalled => Ok(()),
        Workload::Lone | Workload::Share | Workload::Links | Workload::Incast | Workload::Multicast => Err(format!(
            "{} needs the nodes and links of a testbed: leave out --placement, or say inter",
            workload.name()
        )),
        Workload::Failover => {
            Err("failover cuts links, which only a testbed can: leave out --placement, or say inter".to_owned())
        }
        Workload::Idle => Err(
            "idle counts what both processes cost from outside, on this machine only: leave out --placement, or say inter"
                .to_owned(),
        ),
    }
}

/// Whether a server grants a warm-up and a window of this length.
///
/// # Errors
/// How much it grants, one line.
pub(crate) fn check_window(warmup_ns: u64, duration_ns: u64) -> Result<(), String> {
    let asked_ns = warmup_ns.saturating_add(duration_ns);
    if asked_ns <= WINDOW_NS_MAX {
        return Ok(());
    }
    let (asked_s, most_s) = (asked_ns as f64 / 1e9, WINDOW_NS_MAX / 1_000_000_000);
    Err(format!("--warmup and --duration: {asked_s:.1} s together; a server grants at most {most_s} s"))
}

/// Makes of what a client asks for what is started here: with this machine's addresses and devices, answering only
/// the client.
///
/// # Errors
/// What is not allowed, one line.
pub(super) fn admit(task: Task, here: &Here) -> Result<Task, String> {
    match task {
        Task::Calibrate => Ok(Task::Calibrate),
        Task::Run(_) => Err("the server runs no programs of other systems".to_owned()),
        Task::Tool(_) => Err("the server does not take what the instrument costs".to_owned()),
        Task::Play(job) => Ok(Task::Play(Box::new(admit_job(*job, here)?))),
    }
}

/// What a job gets of the machine it runs on.
pub(super) struct Here {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) devices: Vec<String>,
    /// Where the client's control connection comes from.
    pub(super) client: IpAddr,
}

fn admit_job(job: Job, here: &Here) -> Result<Job, String> {
    if job.role != Role::Receiver {
        return Err("the server only receives".to_owned());
    }
    plays(job.workload)?;
    let protocol = protocol::find(&job.protocol)
        .ok_or_else(|| format!("no protocol {} here", shortened(&job.protocol)))?;
    match protocol.reach() {
        Reach::Network => {}
        Reach::Testbed => return Err(format!("{} needs nodes that are prepared for it", protocol.name())),
        Reach::Machine => return Err(format!("{} does not leave its machine", protocol.name())),
    }
    check_window(job.warmup_ns, job.duration_ns)?;
    if job.bytes_total > JOB_BYTES_MAX && job.workload == Workload::Stalled {
        return Err(format!("{} bytes: the server takes at most {JOB_BYTES_MAX}", job.bytes_total));
    }
    if job.beside.is_some() || job.flows > FLOWS_MAX || job.setup.flow > FLOWS_MAX {
        return Err(format!("the server receives at most {FLOWS_MAX} flows"));
    }
    if job.setup.size.saturating_mul(job.flows as usize) > FLOWS_BYTES_MAX {
        return Err(format!("flows times --size: the server grants at most {FLOWS_BYTES_MAX} bytes"));
    }
    let setup = admit_setup(&job, here)?;
    protocol.supports(job.workload, setup.size)?;
    Ok(Job { setup, ..job })
}

fn admit_setup(job: &Job, here: &Here) -> Result<Setup, String> {
    let setup = &job.setup;
    let least = if job.workload.carries_times() { CONTENTS_BYTES_MIN } else { MESSAGE_BYTES_MIN };
    if !(least..=MESSAGE_BYTES_MAX).contains(&setup.size) {
        return Err(format!("messages of {} bytes: not within {least} to {MESSAGE_BYTES_MAX}", setup.size));
    }
    if setup.socket_buffer_max.is_some_and(|bytes| bytes > SOCKET_BUFFER_BYTES_MAX) {
        return Err(format!(
            "--socket-buffer-max: the server grants at most {SOCKET_BUFFER_BYTES_MAX} bytes"
        ));
    }
    let far = setup.far.clone().ok_or("no addresses of the client")?;
    if far.peers.len() > CLIENT_ADDRESSES_MAX || far.cluster.len() > CLUSTER_BYTES_MAX {
        return Err(format!(
            "more than {CLIENT_ADDRESSES_MAX} addresses of the client, or too long a cluster"
        ));
    }
    let mut peers = far.peers;
    peers.push(here.client);
    Ok(Setup {
        local: here.addresses.clone(),
        devices: here.devices.clone(),
        far: Some(Far { peers, ..far }),
        ..setup.clone()
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{job_for_tests, setup_for_tests};

    fn here() -> Here {
        let [address, client] = ["10.0.0.2", "10.0.0.1"].map(|text| text.parse().unwrap());
        Here { addresses: vec![address], devices: vec!["eth7".to_owned()], client }
    }

    fn job() -> Job {
        let far = Far { cluster: "c".to_owned(), peers: vec!["10.0.1.1".parse().unwrap()] };
        let setup = Setup { far: Some(far), ..setup_for_tests(64) };
        Job { role: Role::Receiver, protocol: "udp".to_owned(), ..job_for_tests(setup) }
    }

    fn refused(change: impl FnOnce(&mut Job)) -> String {
        let mut job = job();
        change(&mut job);
        admit(Task::Play(Box::new(job)), &here()).unwrap_err()
    }

    #[test]
    fn a_job_gets_this_machines_addresses_whatever_the_client_said() {
        let mut asked = job();
        asked.setup.local = vec!["192.0.2.1".parse().unwrap()];
        asked.setup.devices = vec!["lo".to_owned()];
        let Task::Play(job) = admit(Task::Play(Box::new(asked)), &here()).unwrap() else { panic!("a job") };
        assert_eq!((job.setup.local, job.setup.devices), (here().addresses, here().devices));
        let peers: Vec<String> = job.setup.far.unwrap().peers.iter().map(ToString::to_string).collect();
        assert_eq!(peers, ["10.0.1.1", "10.0.0.1"], "the client's own and the one it calls from");
        assert!(matches!(admit(Task::Calibrate, &here()), Ok(Task::Calibrate)));
        let errand = crate::errand::Errand { program: "/bin/true".into(), ..Default::default() };
        assert!(admit(Task::Run(Box::new(errand)), &here()).unwrap_err().contains("no programs"));
    }

    #[test]
    fn what_the_server_must_not_do_is_refused_by_name() {
        assert!(refused(|job| job.role = Role::Sender).contains("only receives"));
        assert!(refused(|job| job.workload = Workload::Failover).contains("testbed"));
        assert!(refused(|job| job.workload = Workload::Idle).contains("this machine only"));
        assert!(refused(|job| job.protocol = "pipe".to_owned()).contains("does not leave"));
        assert!(refused(|job| job.protocol = "tipc-rdm".to_owned()).contains("prepared"));
        assert!(refused(|job| job.protocol = "x".repeat(99)).ends_with(&format!("{} here", "x".repeat(32))));
        assert!(refused(|job| job.duration_ns = WINDOW_NS_MAX + 1).contains("at most 600 s"));
        assert!(refused(|job| (job.warmup_ns, job.duration_ns) = (u64::MAX, u64::MAX)).contains("600 s"));
        assert!(refused(|job| job.setup.size = 7).contains("7 bytes"));
        assert!(refused(|job| job.setup.size = (64 << 20) + 1).contains("not within"));
        assert!(refused(|job| job.setup.size = 65_508).contains("65507"));
        assert!(
            refused(|job| job.setup.socket_buffer_max = Some(usize::MAX)).contains("--socket-buffer-max")
        );
        assert!(refused(|job| job.flows = 65).contains("at most 64 flows"));
        assert!(refused(|job| job.setup.flow = u32::MAX).contains("at most 64 flows"));
        assert!(refused(|job| (job.flows, job.setup.size) = (5, 64 << 20)).contains("268435456"));
        assert!(refused(|job| job.workload = Workload::Incast).contains("nodes and links of a testbed"));
        assert!(refused(|job| job.setup.far = None).contains("no addresses"));
        assert!(
            refused(|job| job.setup.far.as_mut().unwrap().peers = vec![here().client; 17])
                .contains("more than 16")
        );
        let stalled = |job: &mut Job| {
            (job.workload, job.protocol) = (Workload::Stalled, "tcp-nodelay".to_owned());
            job.bytes_total = JOB_BYTES_MAX + 1;
        };
        assert!(refused(stalled).contains("at most 68719476736"));
    }
}
