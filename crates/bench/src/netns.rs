//! Topologies in network namespaces: nodes, links between them, and everything that can happen to a link.
//!
//! A namespace has its own devices, addresses and routes: two of them on one machine are two nodes of a cluster as
//! far as every protocol is concerned. The testbed vanishes when it is dropped; what a killed process left behind is
//! found by [`Testbed::list`] and removed by [`Testbed::remove`] from any other process.
//!
//! Namespaces need root. Without root, everything but the TUN device works inside
//! `unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run && exec COMMAND'`; [`reexecute_unprivileged`] does just that.

mod build;
mod command;
mod fault;
mod relay;
mod spec;
mod state;

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub use command::NetnsError;
pub use fault::Direction;
pub(crate) use relay::{RELAY_WORD, run as relay};
pub use spec::{LinkSpec, Spec, device};
pub use state::Record;

/// A set of namespaces joined by links, removed when dropped.
#[derive(Debug)]
pub struct Testbed {
    record: Record,
    faults_ready: bool,
    kept: bool,
    /// The process between the nodes where links are delayed, if this one started it.
    relay: Option<Child>,
}

impl Testbed {
    /// Creates the namespaces and links of `spec`. What killed processes left behind is removed first; a name that
    /// is held is refused.
    ///
    /// # Errors
    /// The specification is impossible, a command is missing or refuses, or namespaces are not permitted.
    pub fn create(spec: Spec) -> Result<Self, NetnsError> {
        spec.check()?;
        if !rustix::process::geteuid().is_root() {
            return Err(NetnsError::Permission);
        }
        state::all().iter().filter(|old| old.is_abandoned()).try_for_each(remove)?;
        let record = Record { pid: std::process::id(), subnet: free_subnet(), spec, kept: false };
        state::claim(&record)?;
        // From here on dropping the value removes whatever part of it exists.
        let mut testbed = Self { record, faults_ready: false, kept: false, relay: None };
        build::create(testbed.spec(), testbed.record.subnet).map_err(explain_permission)?;
        testbed.relay = relay::start(testbed.spec())?;
        for link in 0..testbed.spec().links.len() {
            let percent = testbed.spec().links[link].loss_percent;
            if percent > 0.0 {
                testbed.set_loss(link, percent)?;
            }
        }
        Ok(testbed)
    }

    /// What the testbed looks like now.
    pub fn spec(&self) -> &Spec {
        &self.record.spec
    }

    /// The process between the nodes where links are delayed, if this one started it.
    pub fn relay_pid(&self) -> Option<u32> {
        self.relay.as_ref().map(Child::id)
    }

    /// A node's address on a link.
    pub fn address(&self, node: usize, link: usize) -> IpAddr {
        let last = u8::try_from(node + 1).expect("a testbed has at most 64 nodes");
        let link = u8::try_from(link).expect("a testbed has at most 16 links");
        IpAddr::V4(Ipv4Addr::new(10, self.record.subnet, link, last))
    }

    /// A command that will run `program` inside a node; the caller adds arguments and spawns it.
    pub fn command(&self, node: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.spec().namespace(node)]).arg(program);
        command
    }

    /// Takes away (`up` false) or gives back the carrier that `node` sees on a link.
    ///
    /// # Errors
    /// A command refuses.
    pub fn carrier(&self, link: usize, node: usize, up: bool) -> Result<(), NetnsError> {
        self.check_place(link, node)?;
        fault::set_carrier(self.spec(), link, node, up)
    }

    /// Lets packets of a node on a link vanish without a sign, or ends that.
    ///
    /// # Errors
    /// A command refuses; ending a hole that is not there is refused too.
    pub fn black_hole(
        &mut self,
        link: usize,
        node: usize,
        direction: Direction,
        on: bool,
    ) -> Result<(), NetnsError> {
        self.check_place(link, node)?;
        self.prepare_faults()?;
        fault::set_hole(self.spec(), link, node, direction, on, None)
    }

    /// A black hole that ends by itself after `length`, timed by the kernel.
    ///
    /// # Errors
    /// A command refuses.
    pub fn black_hole_for(
        &mut self,
        link: usize,
        node: usize,
        direction: Direction,
        length: Duration,
    ) -> Result<(), NetnsError> {
        self.check_place(link, node)?;
        self.prepare_faults()?;
        fault::set_hole(self.spec(), link, node, direction, true, Some(length))
    }

    /// Sets the share of packets that a link loses at random, in percent, in every direction.
    ///
    /// # Errors
    /// A command refuses, or `percent` is not within 0 to 100.
    pub fn set_loss(&mut self, link: usize, percent: f64) -> Result<(), NetnsError> {
        self.check_place(link, 0)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(NetnsError::Invalid(format!("loss {percent} percent")));
        }
        self.prepare_faults()?;
        fault::set_loss(self.spec(), link, percent)?;
        self.record.spec.links[link].loss_percent = percent;
        Ok(())
    }

    /// Sets a link's rate in Mbit/s at every end; none removes the throttle.
    ///
    /// # Errors
    /// A command refuses.
    pub fn set_rate(&mut self, link: usize, rate_mbit: Option<u32>) -> Result<(), NetnsError> {
        self.check_place(link, 0)?;
        let changed = LinkSpec { rate_mbit, ..self.spec().links[link].clone() };
        for (namespace, device) in build::ends(self.spec(), link) {
            build::set_rate(&namespace, &device, &changed)?;
        }
        self.record.spec.links[link] = changed;
        Ok(())
    }

    /// Sets a link's MTU in bytes at every end.
    ///
    /// # Errors
    /// A command refuses.
    pub fn set_mtu(&mut self, link: usize, mtu: u32) -> Result<(), NetnsError> {
        self.check_place(link, 0)?;
        for (namespace, device) in build::ends(self.spec(), link) {
            build::set_mtu(&namespace, &device, mtu)?;
        }
        self.record.spec.links[link].mtu = mtu;
        Ok(())
    }

    /// Makes the tables of black holes and loss beforehand, so that switching is one short command later. They cost
    /// every arriving packet a look-up; a testbed without faults does not have them.
    ///
    /// # Errors
    /// A command refuses.
    pub fn prepare_faults(&mut self) -> Result<(), NetnsError> {
        if !self.faults_ready {
            fault::prepare(self.spec())?;
            self.faults_ready = true;
        }
        Ok(())
    }

    /// Removes the testbed and tells whether that worked; dropping it does the same in silence.
    ///
    /// # Errors
    /// A command refuses. The record is then kept, so that another process can try again.
    pub fn down(mut self) -> Result<(), NetnsError> {
        self.kept = true;
        self.remove_all()
    }

    /// Removes everything, with it the relay, which is ours to bury.
    fn remove_all(&mut self) -> Result<(), NetnsError> {
        remove(&self.record)?;
        if let Some(mut relay) = self.relay.take() {
            // It is dead: whoever lives in a namespace is ended with it.
            let _ = relay.kill();
            let _ = relay.wait();
        }
        Ok(())
    }

    /// Leaves the testbed in place after this process; [`Testbed::remove`] takes it away by name.
    pub fn keep(mut self) {
        self.record.kept = true;
        self.kept = true;
        // If the record cannot be written, the testbed stays as well, but counts as abandoned to the next creation.
        let _ = state::replace(&self.record);
    }

    /// Every testbed on this machine.
    pub fn list() -> Vec<Record> {
        state::all()
    }

    /// Takes up a testbed that another process created, to change its links or run commands in it. It is not
    /// removed when this value is dropped.
    ///
    /// # Errors
    /// No testbed has this name.
    pub fn open(name: &str) -> Result<Self, NetnsError> {
        let record = state::find(name).ok_or_else(|| unknown(name))?;
        // The tables may exist; making them again adds nothing but duplicates, so ask the kernel.
        let list = ["netns", "exec", &record.spec.namespace(0), "nft", "list", "table", "netdev", "polyrail"];
        let faults_ready = command::run("ip", &list).is_ok();
        Ok(Self { record, faults_ready, kept: true, relay: None })
    }

    /// Removes a testbed by name, whoever created it, and ends the processes inside.
    ///
    /// # Errors
    /// No testbed has this name, or a command refuses.
    pub fn remove(name: &str) -> Result<(), NetnsError> {
        remove(&state::find(name).ok_or_else(|| unknown(name))?)
    }

    fn check_place(&self, link: usize, node: usize) -> Result<(), NetnsError> {
        if link >= self.spec().links.len() || node >= self.spec().nodes {
            return Err(NetnsError::Invalid(format!(
                "testbed {}: no node {node} on link {link}",
                self.spec().name
            )));
        }
        Ok(())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody is left to tell; the record stays if it did not work.
            let _ = self.remove_all();
        }
    }
}

/// Replaces this process by itself inside fresh user, network and mount namespaces, where an ordinary user may
/// create testbeds. Returns only if that fails or was done before.
pub fn reexecute_unprivileged() -> NetnsError {
    const MARK: &str = "POLYRAIL_UNSHARED";
    if std::env::var_os(MARK).is_some() {
        return NetnsError::Permission;
    }
    let Ok(program) = std::env::current_exe() else { return NetnsError::Permission };
    // Whoever is replaced cannot say that it was refused.
    let probe =
        Command::new("unshare").args(["-Urnm", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| !status.success()) {
        return NetnsError::Permission;
    }
    // What is measured within a machine needs its loopback, which is down in a fresh namespace.
    let script =
        "mount -t tmpfs tmpfs /run && PATH=\"$PATH:/usr/sbin:/sbin\" ip link set lo up && exec \"$0\" \"$@\"";
    let error = Command::new("unshare")
        .args(["-Urnm", "sh", "-c", script])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            NetnsError::Missing { program: "unshare".to_owned(), package: "util-linux" }
        }
        _ => NetnsError::Permission,
    }
}

fn remove(record: &Record) -> Result<(), NetnsError> {
    build::destroy(&record.spec)?;
    state::release(&record.spec.name)
}

fn unknown(name: &str) -> NetnsError {
    NetnsError::Invalid(format!("no testbed is named {name}"))
}

/// A second address number that neither another testbed nor a route of this machine uses.
fn free_subnet() -> u8 {
    let taken: Vec<u8> = state::all().iter().map(|record| record.subnet).collect();
    let routes = command::run("ip", &["route", "show", "table", "all"]).unwrap_or_default();
    (60..=250)
        .find(|subnet| !taken.contains(subnet) && !routes.contains(&format!("10.{subnet}.")))
        .unwrap_or(60)
}

/// The first command that needs the right says only "Operation not permitted".
fn explain_permission(error: NetnsError) -> NetnsError {
    match &error {
        NetnsError::Refused { command, stderr }
            if command.starts_with("ip netns add") && stderr.contains("ermi") =>
        {
            NetnsError::Permission
        }
        _ => error,
    }
}
