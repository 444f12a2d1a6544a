//! Other systems in the repetitions of our protocols: the same nodes, pulse, priority, cores and deadlines.
//!
//! Each side runs in a nest: a name space of files with a `/dev/shm` of its own, shared by the sides of one machine,
//! apart for two nodes. Whatever a program leaves there is gone with its last process, and no system can go past the
//! links between two nodes by memory that they would not share.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::pair::{OVERTIME_MAX, START_MAX, Sample};
use super::side::{LOOK_EVERY, Side};
use super::{Entrant, RECEIVER_CORE, RECEIVER_NODE, Run, SENDER_CORE, SENDER_NODE, select, stop_on_signals};
use crate::agent::AGENT_COMMAND;
use crate::args::{Environment, PeersArgs, Placement, Plan, Point};
use crate::clock::now_ns;
use crate::control::{Event, Order, Task};
use crate::errand::Errand;
use crate::netns::{Testbed, device};
use crate::peers::{self, Cast, Facts, Peer, Place, Ready, Scene, Seat, Told, Words};
use crate::process::core_count;
use crate::report::{Case, Report, Series};

/// A peer and its program.
#[derive(Clone)]
pub(super) struct Guest {
    peer: &'static dyn Peer,
    program: PathBuf,
}

impl Guest {
    pub(super) fn facts(&self) -> &'static Facts {
        self.peer.facts()
    }
}

/// Longest time for a receiver to end by itself once the sender has.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Longest time for the system to take fresh interfaces into service.
const SERVICE_MAX: Duration = Duration::from_secs(3);
/// Longest time for a killed program to be gone.
const END_MAX: Duration = Duration::from_secs(4);

/// Measures our protocols beside other systems. What goes wrong is part of the report.
pub(super) fn measure(args: &PeersArgs) -> Report {
    let checked = args.measurements().and_then(|all| {
        let plans = all.iter().map(|args| args.plan()).collect::<Result<Vec<Plan>, _>>()?;
        let peers = select_peers(args)?;
        plans.iter().try_for_each(|plan| check_versus(plan, &peers))?;
        let protocols = plans.first().map(ours).transpose()?.unwrap_or_default();
        Ok((plans, peers, protocols))
    });
    let (plans, peers, protocols) = match checked {
        Ok(checked) => checked,
        Err(error) => return Report::refused(error),
    };
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let mut report = Report::new();
    for plan in &plans {
        let guests = present(&peers, &mut report);
        let (protocols, stop) = (protocols.clone(), stop.clone());
        let mut run = Run {
            report,
            plan,
            protocols,
            peers: guests,
            stop,
            far: None,
            journal: None,
            repetitions: 0..plan.repeat,
        };
        let ended = run.environments();
        report = run.report;
        if let Err(error) = ended {
            report.set_error(error);
            break;
        }
    }
    report.conclude(plans.first().map_or(&[], |plan| &plan.versus));
    report
}

fn select_peers(args: &PeersArgs) -> Result<Vec<&'static dyn Peer>, String> {
    let known = || peers::all().iter().map(|peer| peer.facts().name).collect::<Vec<_>>().join(", ");
    match args.peer.as_slice() {
        [] => Ok(peers::all()),
        names => names
            .iter()
            .map(|name| {
                peers::find(name).ok_or_else(|| format!("no peer is named `{name}`: there are {}", known()))
            })
            .collect(),
    }
}

/// Our protocols that take part.
fn ours(plan: &Plan) -> Result<Vec<&'static dyn crate::protocol::Protocol>, String> {
    // Ratios may be to peers, which this does not know.
    select(&Plan { versus: Vec::new(), ..plan.clone() })
}

fn check_versus(plan: &Plan, peers: &[&dyn Peer]) -> Result<(), String> {
    let measured = |name: &String| {
        plan.protocols.contains(name) || peers.iter().any(|peer| peer.facts().name == name.as_str())
    };
    match plan.versus.iter().flat_map(|(a, b)| [a, b]).find(|name| !measured(name)) {
        Some(name) => Err(format!(
            "--vs: `{name}` is not among those of --protocol and --peer, so there is no ratio to it"
        )),
        None => Ok(()),
    }
}

/// Those whose programs are there; the others are told.
fn present(peers: &[&'static dyn Peer], report: &mut Report) -> Vec<Guest> {
    let mut guests = Vec::new();
    for &peer in peers {
        match peer.program() {
            Ok(program) => guests.push(Guest { peer, program }),
            Err(reason) => report.add_unavailable(peer.facts().name, reason),
        }
    }
    guests
}

impl Run<'_> {
    /// Lets the peers that can do this take part.
    pub(super) fn add_peers(
        &mut self,
        series: &mut Vec<(Entrant, Series)>,
        environment: &Environment,
        point: &Point,
    ) {
        let place = if environment.placement == Placement::Intra { Place::Intra } else { Place::Inter };
        for guest in &self.peers {
            let facts = guest.facts();
            match guest.peer.supports(self.plan.workload, place, point.size) {
                Ok(()) => {
                    let case = Case::of_peer(self.plan, facts, environment, point);
                    series.push((Entrant::Peer(guest.clone()), Series::new(case)));
                }
                Err(reason) => self.report.add_unavailable(facts.name, reason),
            }
        }
    }

    /// Measures a peer once.
    pub(super) fn one_of_peer(
        &self,
        testbed: Option<&Testbed>,
        guest: &Guest,
        point: &Point,
    ) -> Result<Sample, String> {
        let scene = self.scene(testbed, point)?;
        if let Some(testbed) = testbed {
            await_service(testbed)?;
        }
        let cast = guest.peer.cast(guest.program.clone(), &scene);
        let stage = Stage { testbed, scene: &scene, stop: &self.stop };
        let sample = stage.perform(cast).and_then(|told| guest.peer.sample(&scene, &told));
        match sample {
            Err(error) if error == INTERRUPTED => Err(error),
            Err(error) => Ok(Sample { error: Some(error), ..Sample::default() }),
            Ok(sample) => Ok(sample),
        }
    }

    fn scene(&self, testbed: Option<&Testbed>, point: &Point) -> Result<Scene, String> {
        let plan = self.plan;
        let seat = |node: usize, core: usize| Seat {
            address: testbed.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |testbed| testbed.address(node, 0)),
            core: (core < core_count()).then_some(core),
            namespace: testbed.map(|testbed| testbed.spec().namespace(node)),
        };
        let links = testbed.map_or(0, |testbed| testbed.spec().links.len());
        Ok(Scene {
            workload: plan.workload,
            placement: if testbed.is_some() { Place::Inter } else { Place::Intra },
            size: point.size,
            wait: point.wait,
            read: plan.read,
            warmup_ns: plan.warmup_ns,
            duration_ns: plan.duration_ns,
            sender: seat(SENDER_NODE, SENDER_CORE),
            receiver: seat(RECEIVER_NODE, if plan.one_core { SENDER_CORE } else { RECEIVER_CORE }),
            devices: (0..links).map(device).collect(),
            port: free_port()?,
        })
    }
}

/// Waits until every interface of a fresh testbed is in service by the system's account, which is up to a second late:
/// some systems pass over one that is not.
fn await_service(testbed: &Testbed) -> Result<(), String> {
    let states =
        (0..testbed.spec().links.len()).map(|link| format!("/sys/class/net/{}/operstate", device(link)));
    let states: Vec<String> = states.collect();
    let start_ns = now_ns();
    for node in [RECEIVER_NODE, SENDER_NODE] {
        loop {
            let told = testbed.command(node, "cat").args(&states).output();
            let told = told.map_err(|error| format!("state of the links: {error}"))?;
            if String::from_utf8_lossy(&told.stdout).lines().all(|state| state == "up") {
                break;
            }
            // What is cut stays so; the system that needs it will say so.
            if u128::from(now_ns() - start_ns) > SERVICE_MAX.as_nanos() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// A port that is free here, and in a node of its own anyway.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

const INTERRUPTED: &str = "interrupted";

/// Where one measurement of a peer happens.
struct Stage<'a> {
    testbed: Option<&'a Testbed>,
    scene: &'a Scene,
    stop: &'a AtomicBool,
}

impl Stage<'_> {
    fn perform(&self, cast: Cast) -> Result<Told, String> {
        match cast {
            Cast::One { errand, done } => {
                let mut both = self.start("program", SENDER_NODE, None, errand)?;
                self.wait(&mut both, self.play_max(), Some(done))?;
                both.dismiss();
                Ok(Told { sender: both.heard.clone(), receiver: Words::default() })
            }
            Cast::Two { receiver, ready, ends_itself, sender } => {
                let mut receiver = self.start("receiver", RECEIVER_NODE, None, receiver)?;
                self.wait(&mut receiver, START_MAX, Some(ready))?;
                let mut sender = self.start("sender", SENDER_NODE, Some(receiver.pid), sender)?;
                self.wait_beside(&mut sender, &mut receiver)?;
                if ends_itself {
                    self.wait(&mut receiver, LEAVE_MAX, None)?;
                } else {
                    receiver.dismiss();
                }
                let told = Told { sender: sender.words()?, receiver: receiver.heard.clone() };
                if ends_itself {
                    receiver.words()?;
                }
                Ok(told)
            }
        }
    }

    /// Time for all of it: starting, warming up and measuring in whole seconds, and ending.
    fn play_max(&self) -> Duration {
        let measured = Duration::from_nanos(self.scene.warmup_ns + self.scene.duration_ns);
        START_MAX + measured + OVERTIME_MAX
    }

    fn start(
        &self,
        name: &'static str,
        node: usize,
        beside: Option<u32>,
        errand: Errand,
    ) -> Result<Player, String> {
        let command = self.nest(node, beside)?;
        let side = Side::start(name, command.into(), &Task::Run(Box::new(errand)))?;
        Ok(Player { pid: side.pid()?, side, heard: Words::default(), ended: false })
    }

    /// This program again, in a nest of its own or in that of the process `beside`.
    fn nest(&self, node: usize, beside: Option<u32>) -> Result<Command, String> {
        let own = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
        let root = rustix::process::geteuid().is_root();
        let mut command = match (self.testbed, beside) {
            (Some(testbed), _) => {
                let mut command = testbed.command(node, "unshare");
                command.args(["--mount", "--uts", "sh", "-c", NODE_NEST]).arg(format!("node{node}"));
                command
            }
            (None, None) => {
                let mut command = Command::new("unshare");
                command.args((!root).then_some("--map-root-user")).args(["--mount", "sh", "-c", NEST, "sh"]);
                command
            }
            (None, Some(pid)) => {
                let mut command = Command::new("nsenter");
                let user: &[&str] = if root { &[] } else { &["--user", "--preserve-credentials"] };
                command.args(["--target", &pid.to_string(), "--mount"]).args(user).arg("--");
                command
            }
        };
        command.arg(own).arg(AGENT_COMMAND);
        Ok(command)
    }

    /// Waits until a program has ended, or is `ready`.
    fn wait(&self, player: &mut Player, limit: Duration, ready: Option<Ready>) -> Result<(), String> {
        let start_ns = now_ns();
        while !player.ended {
            if ready.is_some_and(|ready| player.is_ready(ready, self.scene.port)) {
                return Ok(());
            }
            player.listen(LOOK_EVERY)?;
            self.check(player.side.name, start_ns, limit)?;
        }
        // It may have said so with its last breath.
        match ready {
            Some(ready) if !player.is_ready(ready, self.scene.port) => Err(player.epitaph()),
            _ => Ok(()),
        }
    }

    /// Waits for the sender's end and hears the receiver meanwhile, whose failure would explain the silence.
    fn wait_beside(&self, sender: &mut Player, receiver: &mut Player) -> Result<(), String> {
        let (start_ns, limit) = (now_ns(), self.play_max());
        while !sender.ended {
            sender.listen(LOOK_EVERY)?;
            receiver.listen(Duration::ZERO)?;
            if receiver.ended && !receiver.heard.ending.good {
                return Err(receiver.epitaph());
            }
            self.check("sender", start_ns, limit)?;
        }
        Ok(())
    }

    fn check(&self, name: &str, start_ns: u64, limit: Duration) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED.to_owned());
        }
        if u128::from(now_ns() - start_ns) > limit.as_nanos() {
            return Err(format!("{name}: not at its end after {:.1} s, killed", limit.as_secs_f64()));
        }
        Ok(())
    }
}

/// Shared memory that ends with the last process that sees it.
const NEST: &str = "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"";
/// The same with a host's name, by which programs tell one node from another.
const NODE_NEST: &str =
    "mount -t tmpfs tmpfs /dev/shm && echo \"$0\" > /proc/sys/kernel/hostname && exec \"$@\"";

/// A program that runs, and what it has said.
struct Player {
    pid: u32,
    side: Side,
    heard: Words,
    ended: bool,
}

impl Player {
    /// Takes what it says until there is nothing for `timeout`.
    fn listen(&mut self, timeout: Duration) -> Result<(), String> {
        let mut wait = timeout;
        while !self.ended {
            match self.side.next(wait)? {
                Some(Event::Said { line, aside: false }) => self.heard.lines.push(line),
                Some(Event::Said { line, aside: true }) => self.heard.asides.push(line),
                Some(Event::Ended(ending)) => {
                    self.heard.ending = ending;
                    self.ended = true;
                }
                Some(other) => return Err(format!("{}: unexpected {other:?}", self.side.name)),
                None => return Ok(()),
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn is_ready(&self, ready: Ready, port: u16) -> bool {
        match ready {
            Ready::Says(start) => self.heard.lines.iter().any(|line| line.starts_with(start)),
            Ready::ListensTcp => has_socket(self.pid, "tcp", port, "0A"),
            Ready::BoundUdp => has_socket(self.pid, "udp", port, "07"),
        }
    }

    /// What it told, if it ended well.
    fn words(&self) -> Result<Words, String> {
        if self.heard.ending.good { Ok(self.heard.clone()) } else { Err(self.epitaph()) }
    }

    /// Why it ended, in its own words where it had any.
    fn epitaph(&self) -> String {
        let said = |lines: &[String]| {
            let full: Vec<String> =
                lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
            full[full.len().saturating_sub(3)..].join(" ")
        };
        let words = match said(&self.heard.asides) {
            words if words.is_empty() => said(&self.heard.lines),
            words => words,
        };
        format!("{}: ended early ({}) {words}", self.side.name, self.heard.ending.how).trim_end().to_owned()
    }

    /// Ends the program and all that it started, and waits until they are gone.
    fn dismiss(&mut self) {
        // A side that has gone hears nothing, which is as well.
        let _ = self.side.tell(&Order::Quit);
        let start_ns = now_ns();
        while !self.ended && u128::from(now_ns() - start_ns) < END_MAX.as_nanos() {
            if self.listen(LOOK_EVERY).is_err() {
                return;
            }
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if !self.ended {
            self.dismiss();
        }
    }
}

/// Whether a socket with this local port is in this state, in the network of process `pid`.
fn has_socket(pid: u32, kind: &str, port: u16, state: &str) -> bool {
    ["", "6"].iter().any(|version| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{kind}{version}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, found) = (fields.next().unwrap_or_default(), fields.nth(1));
            local.ends_with(&format!(":{port:04X}")) && found == Some(state)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_seen_from_outside() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id();
        assert!(has_socket(own, "tcp", port, "0A"));
        assert!(!has_socket(own, "udp", port, "07"));
        drop(listener);
        // A process that another test is starting holds a copy of it until it is the other program.
        let mut looks = 0;
        while has_socket(own, "tcp", port, "0A") {
            looks += 1;
            assert!(looks < 10_000, "it is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
