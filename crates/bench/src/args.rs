//! The command line of `bench`.

mod advise;
mod failover;
mod host;
mod keep;
mod load;
mod model;
mod named;
mod peers;
mod plan;
mod report;
#[cfg(test)]
pub(crate) mod tests;
mod values;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::check::{CONTENTS_BYTES_MIN, MESSAGE_BYTES_MIN};
use crate::wait::WaitMode;
use crate::workload::{Defaults, Workload};

pub use advise::AdviseArgs;
pub(crate) use failover::FailoverPlan;
pub use failover::{FailoverArgs, FlowClass};
pub(crate) use host::HostPlan;
pub use host::{HostArgs, Placement, ServeArgs};
pub use keep::{CompareArgs, KeepArgs};
pub use load::{BesideKind, FlowDirection, LoadArgs};
pub use model::ModelArgs;
pub use named::NamedArgs;
pub use peers::PeersArgs;
pub(crate) use plan::{Environment, Load, Plan, Point};
pub use report::{QuickArgs, ReportArgs};
use values::{parse_bytes, seconds};

/// Measures protocols beside each other, interleaved, and reports medians, spreads and paired ratios.
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    /// What is done instead of measuring a workload.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// What to measure.
    #[arg(value_enum, required = true)]
    pub workload: Option<Workload>,
    /// Protocols, separated by commas; every available one if not given. `policies` stands for polyrail with every policy.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Between two nodes of a testbed (inter, if not given), two processes of this node over loopback (intra), or this
    /// machine and another one, `HOST[:PORT]`, where `polyrail bench serve` runs; separated by commas, each measured in
    /// turn.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub placement: Vec<Placement>,
    /// Number of links between the two nodes; 2 for lone, failover and idle, else 1. links: the most, 4; fewer are measured before.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub links: Option<u8>,
    /// Rates of the links in Mbit/s, separated by commas, each measured in turn; 0: unthrottled. `1000:250` gives
    /// each link its own. 1000 for lone, failover, idle, share, links and incast, else 0.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub rate: Vec<String>,
    /// Message sizes in bytes, separated by commas, each measured in turn: numbers (K, M for powers of 1024), `64..64K` for
    /// powers of two, `mtu` for the largest payloads of one packet. docs/measuring.md names the defaults. Not for idle.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<String>,
    /// Besides each size also those that are smaller and larger by so many bytes: steps at the edges show then.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    pub around: Option<u16>,
    /// How the measuring threads wait, separated by commas, each measured in turn; spin where two threads measure in
    /// stream, pingpong, lone, rate, transact, datagram and openloop, else block.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub wait: Vec<WaitMode>,
    /// Length of each measured window, in seconds; 10 for idle, else 1. stalled: how long the receiver stays away once
    /// the sender is blocked, 2. Not for failover.
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,
    /// Time before each window, in seconds; 1 for failover, 3 for idle, else 0.3. Not for stalled.
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Number of repetitions, interleaved over the protocols; 1 for failover and stalled, 3 for idle and buffer, else 5.
    /// With --tight the most, 50.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Repeat until the 95 % interval of every ratio (without ratios, of every figure) reaches no further than so many percent
    /// from its middle, six times at least.
    #[arg(long, value_name = "PERCENT")]
    pub tight: Option<f64>,
    /// Write one JSON document to standard output instead of a table.
    #[arg(long, global = true)]
    pub json: bool,
    /// Both measuring threads on one core, as where there are more of them than cores: stream, pingpong, rate and transact within this
    /// machine (intra), with --wait block.
    #[arg(long)]
    pub one_core: bool,
    /// Send and receive buffers of sockets in bytes, separated by commas, each measured in turn; the system's defaults if not
    /// given, 2K to 1M for buffer.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_bytes)]
    pub socket_buffer_max: Vec<u64>,
    /// Random loss of the links in percent, separated by commas, each measured in turn; none if not given. `1:0` gives
    /// each link its own.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub loss: Vec<String>,
    /// How long the links take each way in ms, separated by commas, each measured in turn; no longer than they do if not
    /// given. `0:20` gives each link its own. By a relay, a process between two nodes: `--links 2 --rate 1000 --delay 1:20`.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub delay: Vec<String>,
    /// Send from the application's memory (slice, if not given), or compose messages in the protocol's, or hand over up to 64 of
    /// them by one call (batch: stream and rate), where it offers that.
    #[arg(long, value_enum)]
    pub send: Option<SendKind>,
    /// Look at both ends of each message where it lies (place, if not given), or have receivers copy all of it to memory of their
    /// own, where the protocol has not done so; or have sockets of bytes wait for a whole message each time (whole: MSG_WAITALL,
    /// with --wait block): stream and rate.
    #[arg(long, value_enum)]
    pub read: Option<ReadKind>,
    /// Ratios to report, as A:B; polyrail to every other protocol if not given. Not for stalled.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
    /// Tell beside each figure what the model of throttled links expects (docs/measuring.md, section 1.16): stream, links, share and
    /// lone, for example `bench links --protocol policies,mptcp --model`.
    #[arg(long)]
    pub model: bool,
    /// Bytes that the sender of stalled pushes, 10G if not given; K, M, G for powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub bytes: Option<u64>,
    /// How much is asked of a protocol at once.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Where results are kept.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// How links are cut in failover.
    #[command(flatten)]
    pub failover: FailoverArgs,
    /// How another machine is measured to.
    #[command(flatten)]
    pub host: HostArgs,
}

/// What the instrument does besides measuring a workload.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Names protocols, workloads and whether they can run here
    #[command(after_help = "Example: polyrail bench list --json")]
    List,
    /// Plays the receiver for measurements from another machine (`--placement HOST` there)
    #[command(after_help = "Example: polyrail bench serve --make-key key; scp -p key node7:
  polyrail bench serve --listen 0.0.0.0 --key-file key          (on node7)
  polyrail bench stream --placement node7 --key-file key")]
    Serve(ServeArgs),
    /// Compares two documents of --json: what became better, what worse, and whether that is chance
    #[command(after_help = "Example: polyrail bench compare before.json after.json --threshold 2\n\n\
        Exit codes: 0 no regression, 1 at least one, 2 the documents cannot be compared.")]
    Compare(CompareArgs),
    /// Fits T(n) = T_start + n / Bw to documents of --json, in pieces, with intervals, and LogGP's parameters
    #[command(
        after_help = "Example: polyrail bench model pingpong.json stream.json --at 3000,100K --plot, after\n         \
        polyrail bench pingpong --protocol polyrail --size 64..1M --json > pingpong.json\n         \
        polyrail bench stream --protocol polyrail --size 64..1M --json > stream.json\n\n\
        Exit codes: 0 all curves are fitted, 1 something is not, 2 nothing could be."
    )]
    Model(ModelArgs),
    /// Measures what a plan says, and decides what was published about it
    #[command(after_help = "Example: polyrail bench plan s1-transactions --json\n  \
        polyrail bench plan mnc --protocol polyrail,mptcp --rate 1000:250 --duration 0.2\n  \
        polyrail bench plan s2-sizes --show > mine.toml; polyrail bench plan mine.toml")]
    Plan(NamedArgs),
    /// Shows documents of --json as a page for a browser, one file that needs no network
    #[command(after_help = "Example: polyrail bench report a.json b.json --output report.html\n  \
        polyrail bench report docs/results/*.json --markdown\n\n\
        Exit codes: 0 written, 1 it could not be written, 2 a document cannot be shown.")]
    Report(ReportArgs),
    /// Measures what this machine can do, in under three minutes, and writes a page about it
    #[command(after_help = "Example: polyrail bench quick --output report.html")]
    Quick(QuickArgs),
    /// Measures our protocols beside other systems
    #[command(
        after_help = "Example: polyrail bench peers pingpong --peer ucx,nng --protocol polyrail,udp --repeat 15"
    )]
    Peers(Box<PeersArgs>),
}

/// Whose memory messages are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SendKind {
    /// The application's: the protocol copies what it must keep.
    Slice,
    /// The protocol's: composed in place, where the protocol offers it.
    Buffer,
    /// The application's, several messages by one call, where the protocol offers it.
    Batch,
}

/// What receivers of a stream do with each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ReadKind {
    /// They look at both ends of it where it lies.
    #[default]
    Place,
    /// They have a copy of it in memory of their own.
    Copy,
    /// Each reading call returns when a whole message is there, and no earlier (MSG_WAITALL).
    Whole,
}

/// What `stalled` pushes.
const BYTES_DEFAULT: u64 = 10 << 30;
/// The most repetitions where they go on until intervals are narrow.
const TIGHT_REPEAT_MAX: u32 = 50;

impl BenchArgs {
    /// Checks the arguments; the error is one line for the user.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let workload = self.workload.ok_or("which workload?")?;
        self.check_meaning(workload)?;
        let defaults = workload.defaults();
        let send = self.send.unwrap_or(SendKind::Slice);
        if workload.checks_contents() && send == SendKind::Buffer {
            return Err(format!("--send buffer leaves contents out, which {} checks", workload.name()));
        }
        if let Some(percent) = self.tight.filter(|percent| !(0.1..=100.0).contains(percent)) {
            return Err(format!("--tight {percent}: not within 0.1 to 100 percent"));
        }
        let failover = workload == Workload::Failover;
        let repeat = if self.tight.is_some() { TIGHT_REPEAT_MAX } else { defaults.repeat };
        let warmup_ns = seconds("--warmup", self.warmup.unwrap_or(defaults.warmup_s), 0.0)?;
        let duration_ns = seconds("--duration", self.duration.unwrap_or(defaults.duration_s), 0.01)?;
        let points = self.points(workload, &defaults)?;
        let sleeps = points.iter().all(|point| point.wait == WaitMode::Block);
        if self.one_core && (self.placement != [Placement::Intra] || !sleeps) {
            return Err("--one-core is for --placement intra --wait block: who spins there waits for the end of its own time slice".to_owned());
        }
        if self.read == Some(ReadKind::Whole) && !sleeps {
            return Err("--read whole is for --wait block: who does not sleep takes what is there".to_owned());
        }
        let host = self.host.plan(&self.placement)?;
        if host.is_some() {
            crate::remote::plays(workload)?;
            crate::remote::check_window(warmup_ns, duration_ns)?;
        }
        Ok(Plan {
            workload,
            host,
            environments: self.environments(workload, &defaults)?,
            points,
            warmup_ns,
            duration_ns,
            repeat: self.repeat.unwrap_or(repeat),
            tight_percent: self.tight,
            send,
            read: self.read.unwrap_or_default(),
            protocols: self.protocol.clone(),
            versus: self.vs.iter().map(|text| values::versus(text)).collect::<Result<_, _>>()?,
            bytes: self.bytes.unwrap_or(BYTES_DEFAULT),
            one_core: self.one_core,
            failover: self.failover.plan(if failover { &self.load.arrivals } else { &[] })?,
        })
    }

    /// Refuses flags that were given and would change nothing.
    fn check_meaning(&self, asked: Workload) -> Result<(), String> {
        use Workload::{
            Datagram, Failover, Idle, Incast, Links, Lone, Multicast, OpenLoop, PingPong, Rate, Share,
            Stalled, Stream, Transact,
        };
        let (cuts, load) = (&self.failover, &self.load);
        let one_pair = load.clients.is_empty();
        let flags = [
            ("--size", !self.size.is_empty(), asked != Idle),
            ("--around", self.around.is_some(), asked != Idle),
            ("--send", self.send.is_some(), one_pair && !matches!(asked, Idle | Lone)),
            (
                "--send batch",
                self.send == Some(SendKind::Batch),
                load.streams.is_empty() && matches!(asked, Stream | Rate),
            ),
            ("--read", self.read.is_some(), one_pair && matches!(asked, Stream | Rate)),
            ("--duration", self.duration.is_some(), asked != Failover),
            ("--warmup", self.warmup.is_some(), asked != Stalled),
            ("--vs", !self.vs.is_empty(), asked != Stalled),
            ("--one-core", self.one_core, one_pair && matches!(asked, Stream | PingPong | Rate | Transact)),
            ("--model", self.model, matches!(asked, Stream | Links | Share | Lone)),
            ("--tight", self.tight.is_some(), asked != Stalled),
            ("--bytes", self.bytes.is_some(), asked == Stalled),
            ("--cuts", cuts.cuts.is_some(), asked == Failover),
            ("--kind", !cuts.kind.is_empty(), asked == Failover),
            ("--outage", cuts.outage.is_some(), asked == Failover),
            ("--pause", cuts.pause.is_some(), asked == Failover),
            ("--class", cuts.class.is_some(), asked == Failover || load.beside.is_some()),
            ("--beside", load.beside.is_some(), asked == PingPong && one_pair),
            ("--clients", !one_pair, matches!(asked, Stream | PingPong | Rate)),
            ("--arrivals", !load.arrivals.is_empty(), matches!(asked, Failover | OpenLoop)),
            ("--offer", !load.offer.is_empty(), asked == Datagram),
            ("--streams", !load.streams.is_empty(), asked == Stream && one_pair),
            ("--pairs", !load.pairs.is_empty(), asked == Share),
            ("--direction", !load.direction.is_empty(), asked == Share),
            ("--senders", !load.senders.is_empty(), asked == Incast),
            ("--members", !load.members.is_empty(), asked == Multicast),
            ("--member-ports", !load.member_ports.is_empty(), asked == Multicast),
        ];
        match flags.iter().find(|(_, given, has_meaning)| *given && !has_meaning) {
            Some((flag, ..)) => Err(format!("{flag} changes nothing in {}: leave it out", asked.name())),
            None => Ok(()),
        }
    }

    /// Where is measured, in order.
    fn environments(&self, workload: Workload, defaults: &Defaults) -> Result<Vec<Environment>, String> {
        let placements = if self.placement.is_empty() { &[Placement::Inter][..] } else { &self.placement };
        let inter = placements.contains(&Placement::Inter);
        if workload.needs_links() && placements.contains(&Placement::Intra) {
            return Err(format!("{} is about links: --placement intra has none", workload.name()));
        }
        if !self.load.clients.is_empty() && placements != [Placement::Intra] {
            return Err("--clients are processes of one machine: --placement intra".to_owned());
        }
        let shaped = [&self.rate, &self.loss, &self.delay].iter().any(|list| !list.is_empty());
        if !inter && (self.links.is_some() || shaped) {
            return Err(format!(
                "--placement {} has no links to shape: leave out --links, --rate, --loss and --delay",
                placements[0]
            ));
        }
        let mut environments = Vec::new();
        for placement in placements {
            match placement {
                Placement::Host(_) => environments.push(Environment::between_machines(placement.clone(), 1)),
                Placement::Intra => environments.push(Environment::within_a_node()),
                Placement::Inter => environments.extend(self.testbeds(workload, defaults)?),
            }
        }
        Ok(environments)
    }

    /// The testbeds, in order.
    fn testbeds(&self, workload: Workload, defaults: &Defaults) -> Result<Vec<Environment>, String> {
        let links = usize::from(self.links.unwrap_or(defaults.links));
        if workload == Workload::Failover && links < 2 {
            return Err("failover needs a link to fail over to: --links 2 at least".to_owned());
        }
        let (rate, loss) = ([defaults.rate.to_owned()], ["0".to_owned()]);
        let rates = if self.rate.is_empty() { &rate[..] } else { &self.rate };
        let losses = if self.loss.is_empty() { &loss[..] } else { &self.loss };
        let loads = self.load.loads(workload);
        let nodes = loads.iter().map(|load| load.nodes()).max().unwrap_or(2);
        let delays = values::delays(&self.delay, links, nodes)?;
        let mut testbeds = Vec::new();
        for rate in rates {
            for loss in losses {
                let (rates, losses) = (values::rates(rate, links)?, values::losses(loss, links)?);
                if workload == Workload::Lone && rates.contains(&None) {
                    return Err(format!(
                        "--rate {rate}: lone empties token buckets, so each link needs a rate"
                    ));
                }
                let least = if workload == Workload::Links { 1 } else { links };
                let of = |delays_ms: &Vec<f64>, links: usize| Environment {
                    placement: Placement::Inter,
                    rates: rates[..links].to_vec(),
                    losses: losses[..links].to_vec(),
                    delays_ms: delays_ms.iter().take(links).copied().collect(),
                    nodes,
                };
                for delays_ms in &delays {
                    testbeds.extend((least..=links).map(|links| of(delays_ms, links)));
                }
            }
        }
        Ok(testbeds)
    }

    /// What is measured in each environment, in order.
    fn points(&self, workload: Workload, defaults: &Defaults) -> Result<Vec<Point>, String> {
        let least = if workload.carries_times() { CONTENTS_BYTES_MIN } else { MESSAGE_BYTES_MIN };
        let words: Vec<String> = defaults.sizes.iter().map(|&word| word.to_owned()).collect();
        let words = if self.size.is_empty() { &words } else { &self.size };
        let sizes = values::sizes(words, self.around.map(usize::from), least)?;
        let loads = self.load.loads(workload);
        // Where several threads share a core, or none may work at all, spinning would measure the spinning.
        let crowded = loads.iter().any(|load| load.threads() > 2);
        let wait = [if crowded { WaitMode::Block } else { defaults.wait }];
        let waits = if self.wait.is_empty() { &wait[..] } else { &self.wait };
        let buffers = self.socket_buffers(workload)?;
        let mut points = Vec::new();
        for &wait in waits {
            for &size in &sizes {
                for &socket_buffer_max in &buffers {
                    points.extend(loads.iter().map(|&load| Point { size, wait, socket_buffer_max, load }));
                }
            }
        }
        Ok(points)
    }

    fn socket_buffers(&self, workload: Workload) -> Result<Vec<Option<usize>>, String> {
        let given = || {
            let bytes = self.socket_buffer_max.iter().copied();
            bytes.map(|bytes| i32::try_from(bytes).map(|_| Some(bytes as usize)))
        };
        match (self.socket_buffer_max.is_empty(), workload) {
            (false, _) => {
                given().collect::<Result<_, _>>().map_err(|_| "--socket-buffer-max: 2G at most".to_owned())
            }
            (true, Workload::Buffer) => Ok((11..=20).map(|power| Some(1 << power)).collect()),
            (true, _) => Ok(vec![None]),
        }
    }
}
