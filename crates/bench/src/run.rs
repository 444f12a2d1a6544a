//! The orchestrator: environments, sizes, interleaved repetitions, and what becomes of errors on the way.

mod conduct;
mod far;
mod journal;
mod keep;
mod live;
mod named;
mod pair;
mod peer;
mod phase;
mod quick;
mod relay;
mod report;
mod side;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{
    BenchArgs, BenchCommand, CompareArgs, Environment, FlowClass, FlowDirection, Load, ModelArgs, Placement,
    Plan, Point, ReadKind,
};
use crate::buckets::{Shape, filler};
use crate::check::MESSAGE_BYTES_MIN;
use crate::control::{Beside, Crowd, Job, Role, Setup, SideReport};
use crate::failover::Cut;
use crate::fit::Models;
use crate::host::{Device, DeviceRow};
use crate::measured::program;
use crate::netns::{LinkSpec, NetnsError, Spec, Testbed, device, reexecute_unprivileged};
use crate::pace::Pace;
use crate::process::core_count;
use crate::protocol::{self, Protocol, Reach};
use crate::remote::Client;
use crate::report::{Case, Comparison, Report, Series, is_tight};
use crate::workload::{LoneJob, ToolCost, Workload};

use conduct::Part;
pub use journal::JOURNAL_SCHEMA;
use journal::Journal;
use keep::Csv;
use live::Live;
pub(crate) use pair::Sample;
pub(crate) use relay::RelayRow;

/// Core of the sending, asking side, and of the receiving, answering one.
const SENDER_CORE: usize = 0;
const RECEIVER_CORE: usize = 1;
/// Message size of the bulk beside the watched flow of failover.
const BULK_BYTES: usize = 1 << 20;
/// What stands for Polyrail with every policy.
const POLICIES: &str = "policies";
/// Nodes of the testbed.
const SENDER_NODE: usize = 0;
const RECEIVER_NODE: usize = 1;

/// Runs `bench` and gives the exit code: 0 good, 1 something could not be measured, or got worse, 2 wrong arguments.
pub fn run(args: BenchArgs) -> i32 {
    match &args.command {
        Some(BenchCommand::List) => {
            let list = crate::report::List::here();
            return emit(if args.json { list.json() } else { list.table() }, 0);
        }
        Some(BenchCommand::Serve(serve)) => return far::serve(serve, args.json),
        Some(BenchCommand::Compare(asked)) => return compare(asked, args.json),
        Some(BenchCommand::Model(asked)) => return model(asked, args.json),
        Some(BenchCommand::Report(asked)) => return report::run(asked, args.json),
        Some(BenchCommand::Quick(asked)) => return finish(args.json, false, &quick::measure(asked)),
        Some(BenchCommand::Peers(peers)) => {
            let report = if peers.needs_testbed() { enter() } else { None };
            return finish(args.json, false, &report.unwrap_or_else(|| peer::measure(peers)));
        }
        Some(BenchCommand::Plan(plan)) => return named::run(plan, args.json),
        None => {}
    }
    let finish = |report: &Report| finish(args.json, keep::to_output(&args.keep), report);
    let csv = match Csv::prepare(&args) {
        Ok(csv) => csv,
        Err(error) => return finish(&Report::refused(error)),
    };
    if args.plan().is_ok_and(|plan| plan.needs_testbed())
        && let Some(report) = enter()
    {
        return finish(&report);
    }
    let mut report = measure(&args);
    if !report.is_refused()
        && let Err(error) = csv.write(&report)
    {
        report.set_error(error);
    }
    finish(&report)
}

/// Without root, network namespaces need a user namespace first; that replaces the process, or gives the reason why
/// not.
pub(crate) fn enter() -> Option<Report> {
    (!rustix::process::geteuid().is_root()).then(|| Report::failed(reexecute_unprivileged().to_string()))
}

fn compare(asked: &CompareArgs, json: bool) -> i32 {
    let comparison = Comparison::of_files(&asked.first, &asked.second, asked.threshold);
    match (comparison.error(), json) {
        (Some(error), _) => eprintln!("polyrail bench compare: {error}"),
        (None, true) => {}
        (None, false) => return emit(comparison.table(), comparison.exit_code()),
    }
    if json { emit(comparison.json(), comparison.exit_code()) } else { comparison.exit_code() }
}

fn model(asked: &ModelArgs, json: bool) -> i32 {
    let models = match asked.sizes() {
        Ok(at) => Models::of_files(&asked.files, &at),
        Err(error) => Models::refused(error),
    };
    match (models.error(), json) {
        (Some(error), _) => eprintln!("polyrail bench model: {error}"),
        (None, true) => {}
        (None, false) => return emit(models.table(asked.plot), models.exit_code()),
    }
    if json { emit(models.json(), models.exit_code()) } else { models.exit_code() }
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
    if let Some(BenchCommand::Plan(plan)) = &args.command {
        return named::measure(plan);
    }
    let plan = match args.plan().and_then(|plan| select(&plan).map(|protocols| (plan, protocols))) {
        Ok(checked) => checked,
        Err(error) => return Report::refused(error),
    };
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let (plan, protocols) = plan;
    let mut report = Report::new();
    report.set_plan(&plan);
    let journal = match &args.keep.journal {
        Some(path) => match Journal::open(path, &plan, report.host()) {
            Ok(journal) => Some(journal),
            Err(error) => return Report::refused(error),
        },
        None => None,
    };
    if let Some(journal) = journal.as_ref().filter(|journal| journal.len() > 0) {
        eprintln!("{} samples are in the journal already", journal.len());
    }
    let repetitions = 0..plan.repeat;
    let mut run =
        Run { report, plan: &plan, protocols, peers: Vec::new(), stop, far: None, journal, repetitions };
    if let Err(error) = run.environments() {
        run.report.set_error(error);
    }
    if args.model {
        run.report.show_model();
    }
    run.report.add_notes(run.journal.iter().flat_map(Journal::notes));
    let shared = format!("both measuring threads shared core {SENDER_CORE}");
    run.report.add_notes(plan.one_core.then_some(shared).into_iter());
    run.report.conclude(&plan.versus);
    run.report
}

fn finish(json: bool, csv: bool, report: &Report) -> i32 {
    if let Some(error) = report.error() {
        eprintln!("polyrail bench: {error}");
    }
    match (json, report.is_refused()) {
        (true, _) => emit(report.json(), report.exit_code()),
        (false, true) => report.exit_code(),
        (false, false) if csv => emit(report.csv(), report.exit_code()),
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

/// The protocols that a plan names, or the usual ones.
///
/// # Errors
/// One that there is not.
pub(crate) fn select(plan: &Plan) -> Result<Vec<&'static dyn Protocol>, String> {
    let known = || protocol::all().iter().map(|protocol| protocol.name()).collect::<Vec<_>>().join(", ");
    let find = |name: &String| match protocol::find(name) {
        Some(protocol) => Ok(protocol),
        None => Err(format!("no protocol is named `{name}`: there are {}", known())),
    };
    let named = |name: &String| match name.as_str() {
        POLICIES => Ok(protocol::policies()),
        _ => find(name).map(|protocol| vec![protocol]),
    };
    let selected: Vec<&dyn Protocol> = match plan.protocols.as_slice() {
        [] => protocol::all().into_iter().filter(|protocol| protocol.is_usual()).collect(),
        names => names.iter().map(named).collect::<Result<Vec<_>, _>>()?.concat(),
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
    /// Other systems that are measured beside them.
    peers: Vec<peer::Guest>,
    stop: Arc<AtomicBool>,
    /// The machine of the receiver, while it is another one.
    far: Option<Arc<Client>>,
    journal: Option<Journal>,
    /// Those that are measured now, counted from 0: all, or one round of a plan.
    repetitions: Range<u32>,
}

/// What takes its turn in a repetition.
#[derive(Clone)]
enum Entrant {
    Protocol(&'static dyn Protocol),
    Peer(peer::Guest),
}

impl Entrant {
    fn name(&self) -> &'static str {
        match self {
            Self::Protocol(protocol) => protocol.name(),
            Self::Peer(guest) => guest.facts().name,
        }
    }

    fn is_reliable(&self) -> bool {
        match self {
            Self::Protocol(protocol) => protocol.reliable(),
            Self::Peer(guest) => guest.facts().reliable,
        }
    }
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
        for environment in &self.plan.environments {
            match &environment.placement {
                Placement::Inter => {}
                Placement::Intra => {
                    self.points(None, environment)?;
                    continue;
                }
                Placement::Host(_) => {
                    self.between_machines(environment)?;
                    continue;
                }
            }
            let mut testbed = testbed(environment).map_err(|error| error.to_string())?;
            let looked = if self.is_first_round() { self.look_at_relay(&mut testbed) } else { Ok(()) };
            let measured = looked.and_then(|()| self.points(Some(&testbed), environment));
            let removed = testbed.down().map_err(|error| error.to_string());
            measured.and(removed)?;
        }
        Ok(())
    }

    /// What stays the same is looked at once.
    fn is_first_round(&self) -> bool {
        self.repetitions.start == 0
    }

    fn points(&mut self, testbed: Option<&Testbed>, environment: &Environment) -> Result<(), String> {
        let opposite = |point: &Point| matches!(point.load, Load::Pairs(2.., FlowDirection::Opposite));
        let both = self.plan.points.iter().any(opposite);
        let receivers = if both { &[RECEIVER_NODE, SENDER_NODE][..] } else { &[RECEIVER_NODE] };
        let leaves_machine = |protocol: &&dyn Protocol| protocol.reach() != Reach::Machine;
        if self.is_first_round() && self.protocols.iter().any(leaves_machine) {
            self.report.add_devices(devices(testbed, self.far.as_deref(), environment));
        }
        let mut ready = Vec::new();
        for &protocol in &self.protocols {
            let prepared = testbed.map_or(Ok(()), |testbed| protocol.prepare(testbed, receivers));
            match prepared.and_then(|()| self.received_there(protocol)) {
                Ok(()) => ready.push(protocol),
                Err(reason) => self.report.add_unavailable(protocol.name(), reason),
            }
        }
        for point in &self.plan.points {
            let tool = self.tool(point)?;
            let mut series = Vec::new();
            for &protocol in &ready {
                match suits(protocol, self.plan, &environment.placement, point) {
                    Ok(()) => {
                        let case = Case::new(self.plan, protocol, environment, point);
                        series.push((Entrant::Protocol(protocol), Series::new(case.with_tool(tool))));
                    }
                    Err(reason) => self.report.add_unavailable(protocol.name(), reason),
                }
            }
            self.add_peers(&mut series, environment, point);
            let finished = self.repetitions(testbed, point, &mut series);
            // What was measured until an interruption is kept.
            series.into_iter().for_each(|(_, series)| self.report.add(series));
            finished?;
        }
        Ok(())
    }

    /// What the instrument itself costs under these conditions.
    fn tool(&self, point: &Point) -> Result<Option<ToolCost>, String> {
        if point.load.threads() > 2 || !self.is_first_round() {
            return Ok(None);
        }
        let job = self.job(None, "", Role::Sender, SENDER_NODE, point, 0);
        pair::tool(command(None, SENDER_NODE)?.into(), job)
    }

    fn repetitions(
        &mut self,
        testbed: Option<&Testbed>,
        point: &Point,
        series: &mut [(Entrant, Series)],
    ) -> Result<(), String> {
        let mut order: Vec<usize> = (0..series.len()).collect();
        let mut last_pulse = None;
        for repetition in self.repetitions.clone() {
            // Each takes its turn at being first: what one leaves behind would else always meet the same next one.
            order.sort_unstable();
            let first = repetition as usize % order.len().max(1);
            order.rotate_left(first);
            for &place in &order {
                let (entrant, series) = &mut series[place];
                let entrant: &Entrant = entrant;
                let known =
                    self.journal.as_mut().and_then(|journal| journal.known(series.case(), repetition));
                if let Some((sample, pulses)) = known {
                    series.add(repetition, sample, pulses);
                    continue;
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Err("interrupted".to_owned());
                }
                let workload = self.plan.workload;
                let take = || {
                    let mut live = Live::new(self.title(repetition, entrant.name(), point));
                    let sample = match entrant {
                        Entrant::Protocol(protocol) => self.one(testbed, *protocol, point, &mut live)?,
                        Entrant::Peer(guest) => self.one_of_peer(testbed, guest, point)?,
                    };
                    live.end(&sample, workload);
                    Ok(sample)
                };
                // Emulated cores have the emulator's phases, which change with every sample.
                let has_phases = !self.report.host().emulated;
                let again = |sample: &Sample| {
                    has_phases
                        && !self.stop.load(Ordering::Relaxed)
                        && phase::may_retake(workload, entrant.is_reliable(), sample)
                };
                let pulse = || pair::pulse(command(None, 0)?.into());
                let (sample, pulses) = phase::steady(&mut last_pulse, pulse, take, again)?;
                let kept = match &mut self.journal {
                    Some(journal) => journal.add(series.case(), repetition, &sample, &pulses),
                    None => Ok(()),
                };
                series.add(repetition, sample, pulses);
                kept?;
            }
            if let Some(percent) = self.plan.tight_percent
                && is_tight(series.iter().map(|(_, series)| series), &self.plan.versus, percent)
            {
                break;
            }
        }
        Ok(())
    }

    fn title(&self, repetition: u32, name: &str, point: &Point) -> String {
        let (count, workload) = (self.plan.repeat, self.plan.workload.name());
        let load = point.load.name();
        let buffer = point.socket_buffer_max.map_or(String::new(), |bytes| format!("sockets {bytes} B "));
        let (number, size) = (repetition + 1, point.size);
        let title = format!("{number}/{count} {workload} {name} {size} B {buffer}{load}");
        title.trim_end().to_owned()
    }

    fn one(
        &self,
        testbed: Option<&Testbed>,
        protocol: &dyn Protocol,
        point: &Point,
        live: &mut Live,
    ) -> Result<Sample, String> {
        let before = self.far.as_ref().map(far::Before::take).transpose()?;
        let clock_offset_ns = before.as_ref().map_or(0, far::Before::offset_ns);
        let crew = |flow: u32, sender_node: usize, receiver_node: usize| -> Result<[Part; 2], String> {
            let receiver = self.job(testbed, protocol.name(), Role::Receiver, receiver_node, point, flow);
            let sender = self.job(testbed, protocol.name(), Role::Sender, sender_node, point, flow);
            let receiver = (self.receiver(testbed, receiver_node)?, Job { clock_offset_ns, ..receiver });
            Ok([receiver, (command(testbed, sender_node)?.into(), sender)])
        };
        let mut watch = |report: &SideReport| live.show(report);
        let sample = match (testbed, self.plan.workload, point.load) {
            (Some(testbed), Workload::Failover, _) => {
                let [receiver, sender] = crew(0, SENDER_NODE, RECEIVER_NODE)?;
                let mut told = |number: usize, cut: &Cut| live.cut(number, cut);
                conduct::failover(receiver, sender, testbed, &self.plan.failover, &self.stop, &mut told)
            }
            (_, _, Load::Pairs(count, direction)) => {
                let crews = (0..count).map(|flow| match direction {
                    FlowDirection::Opposite if flow % 2 == 1 => crew(flow, RECEIVER_NODE, SENDER_NODE),
                    _ => crew(flow, SENDER_NODE, RECEIVER_NODE),
                });
                conduct::side_by_side(crews.collect::<Result<_, _>>()?, &self.stop, &mut watch)
            }
            (_, _, Load::Senders(count)) => {
                let [receiver, first] = crew(0, SENDER_NODE, RECEIVER_NODE)?;
                let further = (1..count).map(|flow| {
                    let [_, sender] = crew(flow, node_of(flow), RECEIVER_NODE)?;
                    Ok(sender)
                });
                let senders = std::iter::once(Ok(first)).chain(further).collect::<Result<_, String>>()?;
                conduct::incast(receiver, senders, &self.stop, &mut watch)
            }
            (_, _, Load::Clients(count)) => {
                let [server, first] = crew(0, SENDER_NODE, RECEIVER_NODE)?;
                let further = (1..count).map(|number| {
                    let [_, client] = crew(number, SENDER_NODE, RECEIVER_NODE)?;
                    Ok(client)
                });
                let clients = std::iter::once(Ok(first)).chain(further).collect::<Result<_, String>>()?;
                conduct::crowd(server, clients, &self.stop, &mut watch)
            }
            (_, _, Load::Members(count, ports)) => {
                let [first, sender] = crew(0, SENDER_NODE, node_of(0))?;
                let further = (1..count).map(|flow| {
                    let [member, _] = crew(flow, SENDER_NODE, node_of(flow))?;
                    Ok(member)
                });
                let members = std::iter::once(Ok(first)).chain(further).collect::<Result<_, String>>()?;
                conduct::multicast(members, ports, sender, &self.stop, &mut watch)
            }
            _ => {
                let [receiver, sender] = crew(0, SENDER_NODE, RECEIVER_NODE)?;
                conduct::conduct(receiver, sender, &self.stop, &mut watch)
            }
        };
        Ok(before.into_iter().fold(sample, |sample, before| before.complete(sample)))
    }

    fn job(
        &self,
        testbed: Option<&Testbed>,
        protocol: &str,
        role: Role,
        node: usize,
        point: &Point,
        flow: u32,
    ) -> Job {
        let plan = self.plan;
        let is_member = matches!(point.load, Load::Members(..));
        let core = match role {
            Role::Sender => SENDER_CORE,
            // Members stand for machines of their own: what their threads do is none of the sender's cost.
            Role::Receiver if is_member => {
                RECEIVER_CORE + flow as usize % core_count().saturating_sub(RECEIVER_CORE).max(1)
            }
            Role::Receiver if plan.one_core => SENDER_CORE,
            Role::Receiver => RECEIVER_CORE,
        };
        let crowd = match point.load {
            Load::Clients(clients) => Some(Crowd { clients, number: flow }),
            _ => None,
        };
        // What clients share has one name.
        let named = if crowd.is_some() { 0 } else { flow };
        let setup = Setup { flow: named, ..self.setup(testbed, node, point) };
        let cuts = plan.workload == Workload::Failover;
        let beside = (cuts || point.load == Load::BesideBulk).then(|| Beside {
            bulk: Setup {
                size: BULK_BYTES,
                class: FlowClass::Bulk,
                flow: 1,
                cut: cuts,
                both_ways: false,
                ..setup.clone()
            },
            arrivals_per_s: plan.failover.arrivals_per_s,
            cores: (0..core_count()).collect(),
        });
        // Several threads on one core would wait for each other while the next core sleeps.
        let crowded = beside.is_some() || (point.load.threads() > 2 && !is_member);
        Job {
            role,
            protocol: protocol.to_owned(),
            workload: plan.workload,
            setup,
            warmup_ns: plan.warmup_ns,
            duration_ns: plan.duration_ns,
            core: (core < core_count() && !crowded).then_some(core),
            bytes_total: plan.bytes,
            pace: match point.load {
                Load::Offered(mbit) if mbit > 0 => Some(Pace::of_mbit(mbit, point.size)),
                Load::Arrivals(per_s) => Some(Pace::per_second(per_s)),
                _ => None,
            },
            flows: match point.load {
                Load::Streams(count) | Load::Senders(count) => count,
                Load::BesideBulk => 2,
                Load::Members(count, _) if role == Role::Sender => count,
                Load::Clients(count) if role == Role::Receiver => count,
                Load::Members(_, ports) => ports,
                _ => 1,
            },
            beside,
            lone: testbed.and_then(|testbed| self.lone(testbed, protocol, point)),
            clock_offset_ns: 0,
            crowd,
        }
    }

    /// What a lone message comes behind, and what it goes by.
    fn lone(&self, testbed: &Testbed, protocol: &str, point: &Point) -> Option<LoneJob> {
        let protocol = protocol::find(protocol).filter(|_| self.plan.workload == Workload::Lone)?;
        let all = &testbed.spec().links;
        let links = protocol.links(all.len());
        let shape = |link: &LinkSpec| {
            let (rate_mbit, burst) = (link.rate_mbit?, f64::from(link.burst_kb) * 1_024.0);
            Some(Shape { rate: f64::from(rate_mbit) * 125_000.0, burst })
        };
        let used = &all[links.clone()];
        let shapes = used.iter().map(shape).collect::<Option<Vec<Shape>>>()?;
        Some(LoneJob {
            sinks: links.map(|link| testbed.address(RECEIVER_NODE, link)).collect(),
            delays_us: used.iter().map(|link| link.delay_us).collect(),
            packet_payload: protocol.packet_payload(),
            filler: filler(&shapes, point.size),
        })
    }

    fn setup(&self, testbed: Option<&Testbed>, node: usize, point: &Point) -> Setup {
        let links = testbed.map_or(0, |testbed| testbed.spec().links.len());
        let far = self.far.as_deref();
        let local = match (testbed, far) {
            (Some(testbed), _) => (0..links).map(|link| testbed.address(node, link)).collect(),
            (None, Some(far)) => far.local.clone(),
            (None, None) => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        let workload = self.plan.workload;
        Setup {
            size: point.size,
            wait: point.wait,
            local,
            devices: far.map_or_else(|| (0..links).map(device).collect(), |far| far.devices.clone()),
            socket_buffer_max: point.socket_buffer_max,
            send: self.plan.send,
            read: self.plan.read,
            both_ways: matches!(workload, Workload::PingPong | Workload::Lone | Workload::Incast),
            class: self.plan.failover.class,
            prompt: matches!(
                workload,
                Workload::Lone | Workload::Failover | Workload::OpenLoop | Workload::Incast
            ),
            cut: false,
            flow: 0,
            member_ports: if let Load::Members(_, ports) = point.load { ports } else { 0 },
            far: far.map(|far| far.far.clone()),
        }
    }
}

/// The node of a flow where each has one of its own: of a further sender, or of one that gets what is sent to several.
fn node_of(flow: u32) -> usize {
    1 + flow as usize
}

fn testbed(environment: &Environment) -> Result<Testbed, NetnsError> {
    // With large segments passing whole, a "lost packet" would be 64 KiB. Every link is then like that: two that
    // differ in this would differ in more than their loss.
    let gso = environment.losses.iter().all(|&loss_percent| loss_percent == 0.0);
    let delays_ms = environment.delays_ms.iter().copied().chain(std::iter::repeat(0.0));
    let link = |((&rate_mbit, &loss_percent), delay_ms): (_, f64)| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000 ms, checked")]
        let delay_us = (delay_ms * 1_000.0).round() as u32;
        LinkSpec { rate_mbit, loss_percent, delay_us, gso, ..LinkSpec::default() }
    };
    let name = format!("bench-{}", std::process::id());
    let links = environment.rates.iter().zip(&environment.losses).zip(delays_ms).map(link).collect();
    Testbed::create(Spec { nodes: environment.nodes, ..Spec::pair(name, links) })
}

/// What is recorded of the devices that messages leave the sender by.
fn devices(testbed: Option<&Testbed>, far: Option<&Client>, environment: &Environment) -> Vec<DeviceRow> {
    let look = |name: String| {
        let device = Device::look(&name, |program| match testbed {
            Some(testbed) => testbed.command(SENDER_NODE, program),
            None => Command::new(program),
        });
        let (rate_mbit, loss_percent) = (environment.rates.clone(), environment.losses.clone());
        DeviceRow { placement: environment.placement.clone(), rate_mbit, loss_percent, device }
    };
    match (testbed, far) {
        (Some(testbed), _) => (0..testbed.spec().links.len()).map(|link| look(device(link))).collect(),
        (None, Some(far)) => far.devices.iter().map(|device| look(device.clone())).collect(),
        (None, None) => vec![look("lo".to_owned())],
    }
}

/// Whether a protocol can do this at all, or the reason why not.
fn suits(protocol: &dyn Protocol, plan: &Plan, placement: &Placement, point: &Point) -> Result<(), String> {
    let (workload, read) = (plan.workload, plan.read);
    let size = point.size;
    if size < MESSAGE_BYTES_MIN {
        return Err(format!("messages of {size} bytes cannot carry their number"));
    }
    if *placement != Placement::Intra && protocol.reach() == Reach::Machine {
        return Err("does not leave its machine: see --placement intra".to_owned());
    }
    if matches!(placement, Placement::Host(_)) && protocol.reach() == Reach::Testbed {
        return Err("needs nodes that are prepared for it: see --placement inter".to_owned());
    }
    if workload == Workload::Failover && !protocol.fails_over() {
        return Err("uses the first link alone: there is no other to fail over to".to_owned());
    }
    if workload == Workload::Transact && protocol.transactor().is_none() {
        return Err("opens no connection for each message, which transact is about".to_owned());
    }
    if workload == Workload::Multicast && protocol.caster().is_none() {
        return Err("does not send to several nodes at once, which multicast is about".to_owned());
    }
    if matches!(point.load, Load::Clients(_)) && protocol.hub().is_none() {
        return Err("serves one sender at a time, and not the several that --clients is about".to_owned());
    }
    let waits = matches!(workload, Workload::Incast | Workload::Lone);
    if (workload.checks_contents() || waits) && !protocol.reliable() {
        return Err(format!("promises no delivery, which {} is about", workload.name()));
    }
    if read == ReadKind::Whole && !protocol.reads_whole() {
        return Err("has no bytes to wait for (MSG_WAITALL): its messages are whole in any case".to_owned());
    }
    if point.load == Load::BesideBulk {
        if !protocol.reliable() {
            return Err("promises no delivery: its bulk would be as much as is offered".to_owned());
        }
        protocol.supports(Workload::Failover, BULK_BYTES)?;
    }
    if let Some(bytes) = point.socket_buffer_max {
        protocol.supports_buffers(size, bytes)?;
    }
    protocol.supports(workload, size)
}

/// This program again, as a measured process.
fn command(testbed: Option<&Testbed>, node: usize) -> Result<Command, String> {
    let here = program()?;
    let Some(testbed) = testbed else { return Ok(here) };
    let mut command = testbed.command(node, here.get_program());
    command.args(here.get_args());
    Ok(command)
}
