//! The orchestrator: environments, sizes, interleaved repetitions, and what becomes of errors on the way.

mod conduct;
mod live;
mod pair;
mod side;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::agent::AGENT_COMMAND;
use crate::args::{BenchArgs, BenchCommand, FlowClass, Placement, Plan};
use crate::check::MESSAGE_BYTES_MIN;
use crate::control::{Beside, Job, Role, Setup};
use crate::failover::Cut;
use crate::netns::{LinkSpec, NetnsError, Spec, Testbed, device, reexecute_unprivileged};
use crate::process::core_count;
use crate::protocol::{self, Protocol, Reach};
use crate::report::{Case, Report, Series};
use crate::workload::Workload;

use live::Live;
pub(crate) use pair::Sample;

/// Core of the sending, asking side, and of the receiving, answering one.
const SENDER_CORE: usize = 0;
const RECEIVER_CORE: usize = 1;
/// Message size of the bulk beside the watched flow of failover.
const BULK_BYTES: usize = 1 << 20;
/// Nodes of the testbed.
const SENDER_NODE: usize = 0;
const RECEIVER_NODE: usize = 1;

/// Runs `bench` and gives the exit code: 0 good, 1 something could not be measured, 2 wrong arguments.
pub fn run(args: BenchArgs) -> i32 {
    match &args.command {
        Some(BenchCommand::List) => {
            let list = crate::report::List::here();
            return emit(if args.json { list.json() } else { list.table() }, 0);
        }
        None => {}
    }
    // Without root, network namespaces need a user namespace first; that replaces the process.
    if args.placement() == Placement::Inter && !rustix::process::geteuid().is_root() && args.plan().is_ok() {
        let error = reexecute_unprivileged();
        return finish(&args, &Report::failed(error.to_string()));
    }
    finish(&args, &measure(&args))
}

/// Tells of arguments that the command line's parser refused, as a report if `json` was among them; gives the exit
/// code. Whoever reads the JSON form must find a valid document in every case.
pub fn refuse(json: bool, error: &str) -> i32 {
    eprintln!("{}", error.trim_end());
    let report = Report::refused(error.trim().to_owned());
    if json { emit(report.json(), report.exit_code()) } else { report.exit_code() }
}

/// Measures what `args` ask for. What goes wrong is part of the report.
pub fn measure(args: &BenchArgs) -> Report {
    let plan = match args.plan().and_then(|plan| select(&plan).map(|protocols| (plan, protocols))) {
        Ok(checked) => checked,
        Err(error) => return Report::refused(error),
    };
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let (plan, protocols) = plan;
    let mut run = Run { report: Report::new(), plan: &plan, protocols, stop };
    if let Err(error) = run.environments() {
        run.report.set_error(error);
    }
    run.report.conclude(&plan.versus);
    run.report
}

fn finish(args: &BenchArgs, report: &Report) -> i32 {
    if let Some(error) = report.error() {
        eprintln!("polyrail bench: {error}");
    }
    match (args.json, report.is_refused()) {
        (true, _) => emit(report.json(), report.exit_code()),
        (false, true) => report.exit_code(),
        (false, false) => emit(report.table(), report.exit_code()),
    }
}

fn emit(text: String, code: i32) -> i32 {
    let mut out = std::io::stdout().lock();
    // A reader that went away has seen enough.
    let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    code
}

/// The first signal asks the run to end in order; a second one ends the process.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn select(plan: &Plan) -> Result<Vec<&'static dyn Protocol>, String> {
    let known = || protocol::all().iter().map(|protocol| protocol.name()).collect::<Vec<_>>().join(", ");
    let find = |name: &String| match protocol::find(name) {
        Some(protocol) => Ok(protocol),
        None if name == "zmq" => {
            Err("this build has no `zmq`: its feature of that name was switched off".to_owned())
        }
        None => Err(format!("no protocol is named `{name}`: there are {}", known())),
    };
    let selected: Vec<&dyn Protocol> = match plan.protocols.as_slice() {
        [] => protocol::all(),
        names => names.iter().map(find).collect::<Result<_, _>>()?,
    };
    for name in plan.versus.iter().flat_map(|(a, b)| [a, b]) {
        let wanted = find(name)?.name();
        if !selected.iter().any(|protocol| protocol.name() == wanted) {
            return Err(format!(
                "--vs: `{wanted}` is not among those of --protocol, so there is no ratio to it"
            ));
        }
    }
    Ok(selected)
}

struct Run<'a> {
    report: Report,
    plan: &'a Plan,
    protocols: Vec<&'static dyn Protocol>,
    stop: Arc<AtomicBool>,
}

impl Run<'_> {
    fn environments(&mut self) -> Result<(), String> {
        self.protocols.retain(|protocol| match protocol.available() {
            Ok(()) => true,
            Err(reason) => {
                self.report.add_unavailable(protocol.name(), reason);
                false
            }
        });
        if self.plan.placement == Placement::Intra {
            return self.sizes(None, &[None], &[0.0]);
        }
        for rates in &self.plan.rates {
            for losses in &self.plan.losses {
                let testbed = self.testbed(rates, losses).map_err(|error| error.to_string())?;
                let measured = self.sizes(Some(&testbed), rates, losses);
                let removed = testbed.down().map_err(|error| error.to_string());
                measured.and(removed)?;
            }
        }
        Ok(())
    }

    fn testbed(&self, rates: &[Option<u32>], losses: &[f64]) -> Result<Testbed, NetnsError> {
        // With large segments passing whole, a "lost packet" would be 64 KiB. Every link is then like that: two that
        // differ in this would differ in more than their loss.
        let gso = losses.iter().all(|&loss_percent| loss_percent == 0.0);
        let link =
            |(&rate_mbit, &loss_percent)| LinkSpec { rate_mbit, loss_percent, gso, ..LinkSpec::default() };
        let name = format!("bench-{}", std::process::id());
        Testbed::create(Spec::pair(name, rates.iter().zip(losses).map(link).collect()))
    }

    fn sizes(
        &mut self,
        testbed: Option<&Testbed>,
        rates: &[Option<u32>],
        losses: &[f64],
    ) -> Result<(), String> {
        let mut ready = Vec::new();
        for &protocol in &self.protocols {
            match testbed.map_or(Ok(()), |testbed| protocol.prepare(testbed, RECEIVER_NODE)) {
                Ok(()) => ready.push(protocol),
                Err(reason) => self.report.add_unavailable(protocol.name(), reason),
            }
        }
        for &size in &self.plan.sizes {
            let mut series = Vec::new();
            for &protocol in &ready {
                match suits(protocol, self.plan, size) {
                    Ok(()) => series
                        .push((protocol, Series::new(Case::new(self.plan, protocol, rates, losses, size)))),
                    Err(reason) => self.report.add_unavailable(protocol.name(), reason),
                }
            }
            let finished = self.repetitions(testbed, size, &mut series);
            // What was measured until an interruption is kept.
            series.into_iter().for_each(|(_, series)| self.report.add(series));
            finished?;
        }
        Ok(())
    }

    fn repetitions(
        &mut self,
        testbed: Option<&Testbed>,
        size: usize,
        series: &mut [(&'static dyn Protocol, Series)],
    ) -> Result<(), String> {
        let mut order: Vec<usize> = (0..series.len()).collect();
        for repetition in 0..self.plan.repeat {
            // Each takes its turn at being first: what one leaves behind would else always meet the same next one.
            if repetition > 0 && !order.is_empty() {
                order.rotate_left(1);
            }
            for &place in &order {
                let (protocol, series) = &mut series[place];
                if self.stop.load(Ordering::Relaxed) {
                    return Err("interrupted".to_owned());
                }
                let calibration = pair::pulse(command(None, 0)?)?;
                let title = format!(
                    "{}/{} {} {} {size} B",
                    repetition + 1,
                    self.plan.repeat,
                    self.plan.workload.name(),
                    protocol.name()
                );
                let mut live = Live::new(title);
                let sample = self.one(testbed, *protocol, size, &mut live)?;
                live.end(&sample, self.plan.workload);
                series.add(repetition, sample, calibration);
            }
        }
        Ok(())
    }

    fn one(
        &self,
        testbed: Option<&Testbed>,
        protocol: &dyn Protocol,
        size: usize,
        live: &mut Live,
    ) -> Result<Sample, String> {
        let receiver_job = self.job(testbed, protocol, Role::Receiver, size);
        let sender_job = self.job(testbed, protocol, Role::Sender, size);
        let receiver = (command(testbed, RECEIVER_NODE)?, &receiver_job);
        let sender = (command(testbed, SENDER_NODE)?, &sender_job);
        Ok(match (testbed, self.plan.workload) {
            (Some(testbed), Workload::Failover) => {
                let mut told = |number: usize, cut: &Cut| live.cut(number, cut);
                conduct::failover(receiver, sender, testbed, &self.plan.failover, &self.stop, &mut told)
            }
            _ => conduct::conduct(receiver, sender, &self.stop, &mut |report| live.show(report)),
        })
    }

    fn job(&self, testbed: Option<&Testbed>, protocol: &dyn Protocol, role: Role, size: usize) -> Job {
        let plan = self.plan;
        let (node, core) = match role {
            Role::Sender => (SENDER_NODE, SENDER_CORE),
            Role::Receiver => (RECEIVER_NODE, RECEIVER_CORE),
        };
        let setup = self.setup(testbed, node, size);
        let beside = (plan.workload == Workload::Failover).then(|| Beside {
            bulk: Setup { size: BULK_BYTES, class: FlowClass::Bulk, ..setup.clone() },
            arrivals_per_s: plan.failover.arrivals_per_s,
            cores: (0..core_count()).collect(),
        });
        Job {
            role,
            protocol: protocol.name().to_owned(),
            workload: plan.workload,
            setup,
            warmup_ns: plan.warmup_ns,
            duration_ns: plan.duration_ns,
            // Several threads on one core would wait for each other while the next core sleeps.
            core: (core < core_count() && beside.is_none()).then_some(core),
            bytes_total: plan.bytes,
            beside,
        }
    }

    fn setup(&self, testbed: Option<&Testbed>, node: usize, size: usize) -> Setup {
        let links = testbed.map_or(0, |testbed| testbed.spec().links.len());
        let local = match testbed {
            Some(testbed) => (0..links).map(|link| testbed.address(node, link)).collect(),
            None => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        Setup {
            size,
            wait: self.plan.wait,
            local,
            devices: (0..links).map(device).collect(),
            socket_buffer_max: self.plan.socket_buffer_max,
            send: self.plan.send,
            both_ways: self.plan.workload == Workload::PingPong,
            class: self.plan.failover.class,
            prompt: self.plan.workload == Workload::Failover,
        }
    }
}

/// Whether a protocol can do this at all, or the reason why not.
fn suits(protocol: &dyn Protocol, plan: &Plan, size: usize) -> Result<(), String> {
    let workload = plan.workload;
    if size < MESSAGE_BYTES_MIN {
        return Err(format!("messages of {size} bytes cannot carry their number"));
    }
    if plan.placement == Placement::Inter && protocol.reach() == Reach::Machine {
        return Err("does not leave its machine: see --placement intra".to_owned());
    }
    if workload == Workload::Failover && !protocol.striped() {
        return Err("uses the first link alone: there is no other to fail over to".to_owned());
    }
    if workload == Workload::Transact && protocol.transactor().is_none() {
        return Err("makes no connections, which transact is about".to_owned());
    }
    if workload.checks_contents() && !protocol.reliable() {
        return Err(format!("promises no delivery, which {} is about", workload.name()));
    }
    protocol.supports(workload, size)
}

/// This program again, as a measured process.
fn command(testbed: Option<&Testbed>, node: usize) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    let mut command = match testbed {
        Some(testbed) => testbed.command(node, program),
        None => Command::new(program),
    };
    command.arg(AGENT_COMMAND);
    Ok(command)
}
