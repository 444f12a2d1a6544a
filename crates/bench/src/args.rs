//! The command line of `bench`.

mod failover;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::check::{CONTENTS_BYTES_MIN, MESSAGE_BYTES_MIN};
use crate::wait::WaitMode;
use crate::workload::Workload;

pub(crate) use failover::FailoverPlan;
pub use failover::{FailoverArgs, FlowClass};

/// Measures protocols beside each other, interleaved, and reports medians, spreads and paired ratios.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    /// What is done instead of measuring a workload.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// What to measure.
    #[arg(value_enum, required = true)]
    pub workload: Option<Workload>,
    /// Protocols, separated by commas; every available one if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Between two nodes of a testbed (inter, if not given), or two processes of this node over loopback.
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// Number of links between the two nodes; 2 for failover and idle, else 1.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub links: Option<u8>,
    /// Rates of the links in Mbit/s, separated by commas, each measured in turn; 0: unthrottled. `1000:250` gives
    /// each link its own. 1000 for failover and idle, else 0.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub rate: Vec<String>,
    /// Message sizes in bytes, separated by commas, each measured in turn; 131072 for stream and stalled, 4096 for
    /// failover, else 64. Not for idle.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<usize>,
    /// How the measuring threads wait; block for failover, idle and stalled, else spin.
    #[arg(long, value_enum)]
    pub wait: Option<WaitMode>,
    /// Length of each measured window, in seconds; 10 for idle, else 1. stalled: how long the receiver stays away once
    /// the sender is blocked, 2. Not for failover.
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,
    /// Time before each window, in seconds; 1 for failover, 3 for idle, else 0.3. Not for stalled.
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Number of repetitions, interleaved over the protocols; 1 for failover and stalled, 3 for idle, else 5.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Write one JSON document to standard output instead of a table.
    #[arg(long, global = true)]
    pub json: bool,
    /// Send and receive buffers of sockets, in bytes; the system's defaults if not given.
    #[arg(long, value_name = "BYTES")]
    pub socket_buffer_max: Option<usize>,
    /// Random loss of the links in percent, separated by commas, each measured in turn; none if not given. `1:0` gives
    /// each link its own.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub loss: Vec<String>,
    /// Send from the application's memory (slice, if not given), or compose messages in the protocol's where it offers
    /// that.
    #[arg(long, value_enum)]
    pub send: Option<SendKind>,
    /// Ratios to report, as A:B; polyrail to every other protocol if not given. Not for stalled.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
    /// Bytes that the sender of stalled pushes, 10G if not given; K, M, G for powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub bytes: Option<u64>,
    /// How links are cut in failover.
    #[command(flatten)]
    pub failover: FailoverArgs,
}

/// What the instrument does besides measuring a workload.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Names protocols, workloads and whether they can run here
    #[command(after_help = "Example: polyrail bench list --json")]
    List,
}

/// Where the two measured processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Two processes of one node, over loopback.
    Intra,
    /// Two nodes: network namespaces joined by links.
    Inter,
}

impl Placement {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intra => "intra",
            Self::Inter => "inter",
        }
    }
}

/// Whose memory messages are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SendKind {
    /// The application's: the protocol copies what it must keep.
    Slice,
    /// The protocol's: composed in place, where the protocol offers it.
    Buffer,
}

/// What a command line asks for, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) placement: Placement,
    /// Per environment: rate of each link in Mbit/s, none for unthrottled.
    pub(crate) rates: Vec<Vec<Option<u32>>>,
    /// Per environment: random loss of each link in percent.
    pub(crate) losses: Vec<Vec<f64>>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) wait: WaitMode,
    pub(crate) warmup_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) repeat: u32,
    pub(crate) socket_buffer_max: Option<usize>,
    pub(crate) send: SendKind,
    pub(crate) protocols: Vec<String>,
    pub(crate) versus: Vec<(String, String)>,
    /// What `stalled` pushes.
    pub(crate) bytes: u64,
    pub(crate) failover: FailoverPlan,
}

/// What `stalled` pushes.
const BYTES_DEFAULT: u64 = 10 << 30;
/// Largest message that is measured: each side holds a few of them.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

impl BenchArgs {
    /// Where the two processes are to be.
    pub(crate) fn placement(&self) -> Placement {
        self.placement.unwrap_or(Placement::Inter)
    }

    /// Checks the arguments; the error is one line for the user.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let workload = self.workload.ok_or("which workload?")?;
        self.check_meaning(workload)?;
        let defaults = workload.defaults();
        let intra = self.placement() == Placement::Intra;
        let links = usize::from(self.links.unwrap_or(if intra { 1 } else { defaults.links }));
        let rates = match self.rate.as_slice() {
            [] => vec![if intra { "0" } else { defaults.rate }.to_owned()],
            rates => rates.to_vec(),
        };
        let losses = if self.loss.is_empty() { vec!["0".to_owned()] } else { self.loss.clone() };
        let shaped = rates.iter().chain(&losses).any(|value| value != "0");
        self.check_placement(workload, links, shaped)?;
        let send = self.send.unwrap_or(SendKind::Slice);
        if workload.checks_contents() && send == SendKind::Buffer {
            return Err(format!("--send buffer leaves contents out, which {} checks", workload.name()));
        }
        Ok(Plan {
            workload,
            placement: self.placement(),
            rates: rates.iter().map(|rate| parse_rates(rate, links)).collect::<Result<_, _>>()?,
            losses: losses.iter().map(|loss| parse_losses(loss, links)).collect::<Result<_, _>>()?,
            sizes: self.sizes(workload)?,
            wait: self.wait.unwrap_or(defaults.wait),
            warmup_ns: seconds("--warmup", self.warmup.unwrap_or(defaults.warmup_s), 0.0)?,
            duration_ns: seconds("--duration", self.duration.unwrap_or(defaults.duration_s), 0.01)?,
            repeat: self.repeat.unwrap_or(defaults.repeat),
            socket_buffer_max: self.socket_buffer_max,
            send,
            protocols: self.protocol.clone(),
            versus: self.vs.iter().map(|text| parse_versus(text)).collect::<Result<_, _>>()?,
            bytes: self.bytes.unwrap_or(BYTES_DEFAULT),
            failover: self.failover.plan()?,
        })
    }

    /// Refuses flags that were given and would change nothing.
    fn check_meaning(&self, asked: Workload) -> Result<(), String> {
        use Workload::{Failover, Idle, Stalled};
        let cuts = &self.failover;
        let flags = [
            ("--size", !self.size.is_empty(), asked != Idle),
            ("--send", self.send.is_some(), asked != Idle),
            ("--duration", self.duration.is_some(), asked != Failover),
            ("--warmup", self.warmup.is_some(), asked != Stalled),
            ("--vs", !self.vs.is_empty(), asked != Stalled),
            ("--bytes", self.bytes.is_some(), asked == Stalled),
            ("--cuts", cuts.cuts.is_some(), asked == Failover),
            ("--kind", !cuts.kind.is_empty(), asked == Failover),
            ("--outage", cuts.outage.is_some(), asked == Failover),
            ("--pause", cuts.pause.is_some(), asked == Failover),
            ("--arrivals", cuts.arrivals.is_some(), asked == Failover),
            ("--class", cuts.class.is_some(), asked == Failover),
        ];
        match flags.iter().find(|(_, given, has_meaning)| *given && !has_meaning) {
            Some((flag, ..)) => Err(format!("{flag} changes nothing in {}: leave it out", asked.name())),
            None => Ok(()),
        }
    }

    fn check_placement(&self, workload: Workload, links: usize, shaped: bool) -> Result<(), String> {
        let needs_links = matches!(workload, Workload::Failover | Workload::Idle);
        if self.placement() == Placement::Intra && (shaped || links != 1 || needs_links) {
            return Err(if needs_links {
                format!("{} is about links: --placement intra has none", workload.name())
            } else {
                "--placement intra has no links to shape: leave out --links, --rate and --loss".to_owned()
            });
        }
        if workload == Workload::Failover && links < 2 {
            return Err("failover needs a link to fail over to: --links 2 at least".to_owned());
        }
        Ok(())
    }

    fn sizes(&self, workload: Workload) -> Result<Vec<usize>, String> {
        let sizes = if self.size.is_empty() { vec![workload.defaults().size] } else { self.size.clone() };
        let least = if workload.checks_contents() { CONTENTS_BYTES_MIN } else { MESSAGE_BYTES_MIN };
        match sizes.iter().find(|size| !(least..=MESSAGE_BYTES_MAX).contains(*size)) {
            Some(size) => Err(format!("--size {size}: not within {least} to {MESSAGE_BYTES_MAX} bytes")),
            None => Ok(sizes),
        }
    }
}

fn seconds(name: &str, value: f64, least: f64) -> Result<u64, String> {
    if !(least..=3_600.0).contains(&value) {
        return Err(format!("{name} {value}: not within {least} to 3600 seconds"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within an hour, checked")]
    let ns = (value * 1e9) as u64;
    Ok(ns)
}

fn parse_rates(text: &str, links: usize) -> Result<Vec<Option<u32>>, String> {
    let rates = text.split(':').map(|rate| match rate.parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(rate_mbit) => Ok(Some(rate_mbit)),
        Err(_) => Err(format!("--rate {text}: `{rate}` is no number of Mbit/s")),
    });
    per_link("--rate", text, rates.collect::<Result<_, _>>()?, links)
}

fn parse_losses(text: &str, links: usize) -> Result<Vec<f64>, String> {
    let losses = text.split(':').map(|loss| match loss.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("--loss {text}: `{loss}` is not within 0 to 100 percent")),
    });
    per_link("--loss", text, losses.collect::<Result<_, _>>()?, links)
}

/// One value for every link, or one for each.
fn per_link<T: Clone>(name: &str, text: &str, values: Vec<T>, links: usize) -> Result<Vec<T>, String> {
    match values.len() {
        1 => Ok(vec![values[0].clone(); links]),
        n if n == links => Ok(values),
        n => Err(format!("{name} {text}: {n} values for {links} links")),
    }
}

/// A number of bytes; K, M, G stand for powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().filter(|&number| number > 0 && number < 1 << (50 - shift));
    number.map(|number| number << shift).ok_or_else(|| format!("`{text}` is no number of bytes, such as 10G"))
}

fn parse_versus(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((first, second)) if !first.is_empty() && !second.is_empty() => Ok((first.into(), second.into())),
        _ => Err(format!("--vs {text}: write it as A:B")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Wrapper {
        #[command(flatten)]
        bench: BenchArgs,
    }

    pub(crate) fn parse(line: &str) -> Result<BenchArgs, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        <Wrapper as clap::Parser>::try_parse_from(words).map(|w| w.bench).map_err(|error| error.to_string())
    }

    fn refused(line: &str) -> String {
        parse(line).and_then(|args| args.plan()).expect_err(line)
    }

    #[test]
    fn defaults_follow_the_workload() {
        let plan = parse("stream").unwrap().plan().unwrap();
        assert_eq!((plan.sizes, plan.repeat, plan.rates), (vec![131_072], 5, vec![vec![None]]));
        assert_eq!(parse("pingpong").unwrap().plan().unwrap().sizes, [64]);
        let plan = parse("failover").unwrap().plan().unwrap();
        assert_eq!((plan.rates, plan.sizes), (vec![vec![Some(1000); 2]], vec![4096]));
        assert_eq!((plan.wait, plan.repeat, plan.failover.cuts), (WaitMode::Block, 1, 20));
        let plan = parse("stalled --placement intra --bytes 3M").unwrap().plan().unwrap();
        assert_eq!((plan.bytes, plan.rates), (3 << 20, vec![vec![None]]));
    }

    #[test]
    fn lists_are_split_and_unequal_links_have_their_own_rates() {
        let plan =
            parse("stream --links 2 --rate 0,1000,1000:250 --size 64,4096 --protocol a,b").unwrap().plan();
        let plan = plan.unwrap();
        let expected = [vec![None, None], vec![Some(1000), Some(1000)], vec![Some(1000), Some(250)]];
        assert_eq!(plan.rates, expected);
        assert_eq!((plan.sizes, plan.protocols), (vec![64, 4096], vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn loss_is_of_every_link_or_of_each_its_own() {
        let plan = parse("stream --links 2 --loss 0,1,5:0").unwrap().plan().unwrap();
        assert_eq!(plan.losses, [[0.0, 0.0], [1.0, 1.0], [5.0, 0.0]]);
    }

    #[test]
    fn nonsense_is_refused_in_one_line_that_names_it() {
        assert!(refused("stream --size 7").contains("--size 7"));
        assert!(refused("stream --size 99999999999").contains("--size"));
        assert!(refused("stream --loss 100").contains("--loss"));
        assert!(refused("stream --rate fast").contains("fast"));
        assert!(refused("stream --links 3 --rate 1:2").contains("2 values for 3 links"));
        assert!(refused("stream --links 2 --loss 1:2:3").contains("3 values for 2 links"));
        assert!(refused("failover --links 1").contains("--links 2"));
        assert!(refused("failover --size 31").contains("--size 31"));
        assert!(refused("failover --cuts 0").contains("cuts"));
        assert!(refused("failover --kind fire").contains("fire"));
        assert!(refused("idle --placement intra").contains("intra"));
        assert!(refused("stalled --send buffer").contains("--send buffer"));
        assert!(refused("stalled --bytes 0").contains("`0`"));
        assert!(refused("stalled --bytes 1T").contains("`1T`"));
        assert!(refused("stream --duration 0").contains("--duration"));
        assert!(refused("stream --duration nan").contains("--duration"));
        assert!(refused("stream --vs a").contains("A:B"));
        assert!(refused("pingpong --placement intra --links 2").contains("intra"));
        assert!(refused("nothing").contains("nothing"));
        assert!(refused("stream --links 0").contains("links"));
        assert!(refused("stream --repeat 0").contains("repeat"));
    }

    #[test]
    fn a_flag_that_would_change_nothing_is_refused_by_its_name() {
        for line in [
            "stream --bytes 1G",
            "stream --cuts 3",
            "rate --kind carrier",
            "pingpong --outage 1",
            "idle --pause 1",
            "stalled --arrivals 10",
            "stream --class urgent",
            "failover --duration 1",
            "stalled --warmup 1",
            "stalled --vs a:b",
            "idle --size 64",
            "idle --send slice",
        ] {
            let flag = line.split_whitespace().nth(1).unwrap();
            let said = refused(line);
            assert!(said.starts_with(flag) && said.lines().count() == 1, "{line}: {said}");
        }
        assert!(matches!(
            parse("list --json").unwrap(),
            BenchArgs { command: Some(BenchCommand::List), json: true, .. }
        ));
        assert!(parse("list --links 2").is_err());
        assert!(parse("").is_err());
    }
}
