//! The command line of `bench`.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::check::MESSAGE_BYTES_MIN;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Measures protocols beside each other, interleaved, and reports medians, spreads and paired ratios.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure; `list` names the protocols and workloads of this machine.
    #[arg(value_enum)]
    pub workload: WorkloadArg,
    /// Protocols, separated by commas; every available one if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Between two nodes of a testbed, or two processes of this node over loopback.
    #[arg(long, value_enum, default_value = "inter")]
    pub placement: Placement,
    /// Number of links between the two nodes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub links: u8,
    /// Rates of the links in Mbit/s, separated by commas, each measured in turn; 0: unthrottled. `1000:250` gives
    /// each link its own.
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "LIST")]
    pub rate: Vec<String>,
    /// Message sizes in bytes, separated by commas, each measured in turn; 131072 for stream, else 64.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<usize>,
    /// How the measuring threads wait.
    #[arg(long, value_enum, default_value = "spin")]
    pub wait: WaitMode,
    /// Length of each measured window, in seconds.
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    pub duration: f64,
    /// Time before each window, in seconds.
    #[arg(long, default_value_t = 0.3, value_name = "S")]
    pub warmup: f64,
    /// Number of repetitions, interleaved over the protocols.
    #[arg(long, default_value_t = 5, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Write one JSON document to standard output instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Send and receive buffers of sockets, in bytes; the system's defaults if not given.
    #[arg(long, value_name = "BYTES")]
    pub socket_buffer_max: Option<usize>,
    /// Random loss on every link in percent, separated by commas, each measured in turn.
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "LIST")]
    pub loss: Vec<f64>,
    /// Send from the application's memory, or compose messages in the protocol's where it offers that.
    #[arg(long, value_enum, default_value = "slice")]
    pub send: SendKind,
    /// Ratios to report, as A:B; polyrail to every other protocol if not given.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
}

/// A workload, or the list of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum WorkloadArg {
    /// Name protocols, workloads and whether they can run here.
    List,
    /// One-way messages; bytes counted at the receiver.
    Stream,
    /// Round-trip times, one message at a time.
    PingPong,
    /// One-way messages of 64 bytes; messages counted at the receiver.
    Rate,
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
    pub(crate) losses: Vec<f64>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) wait: WaitMode,
    pub(crate) warmup_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) repeat: u32,
    pub(crate) socket_buffer_max: Option<usize>,
    pub(crate) send: SendKind,
    pub(crate) protocols: Vec<String>,
    pub(crate) versus: Vec<(String, String)>,
}

/// Largest message that is measured: each side holds a few of them.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

impl BenchArgs {
    /// Checks the arguments; the error is one line for the user.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let workload = match self.workload {
            WorkloadArg::Stream => Workload::Stream,
            WorkloadArg::PingPong => Workload::PingPong,
            WorkloadArg::Rate => Workload::Rate,
            WorkloadArg::List => return Err("`list` measures nothing".to_owned()),
        };
        let sizes = if self.size.is_empty() { vec![workload.size_default()] } else { self.size.clone() };
        if let Some(size) = sizes.iter().find(|size| !(MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(*size))
        {
            return Err(format!(
                "--size {size}: not within {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes"
            ));
        }
        if let Some(loss) = self.loss.iter().find(|loss| !(0.0..100.0).contains(*loss)) {
            return Err(format!("--loss {loss}: not within 0 to 100 percent"));
        }
        let shaped = self.rate.iter().any(|rate| rate != "0") || self.loss.iter().any(|&loss| loss > 0.0);
        if self.placement == Placement::Intra && (shaped || self.links != 1) {
            return Err(
                "--placement intra has no links to shape: leave out --links, --rate and --loss".to_owned()
            );
        }
        let links = usize::from(self.links);
        Ok(Plan {
            workload,
            placement: self.placement,
            rates: self.rate.iter().map(|rate| parse_rates(rate, links)).collect::<Result<_, _>>()?,
            losses: self.loss.clone(),
            sizes,
            wait: self.wait,
            warmup_ns: seconds("--warmup", self.warmup, 0.0)?,
            duration_ns: seconds("--duration", self.duration, 0.01)?,
            repeat: self.repeat,
            socket_buffer_max: self.socket_buffer_max,
            send: self.send,
            protocols: self.protocol.clone(),
            versus: self.vs.iter().map(|text| parse_versus(text)).collect::<Result<_, _>>()?,
        })
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
    let rates: Vec<Option<u32>> = text
        .split(':')
        .map(|rate| match rate.parse::<u32>() {
            Ok(0) => Ok(None),
            Ok(rate_mbit) => Ok(Some(rate_mbit)),
            Err(_) => Err(format!("--rate {text}: `{rate}` is no number of Mbit/s")),
        })
        .collect::<Result<_, _>>()?;
    match rates.len() {
        1 => Ok(vec![rates[0]; links]),
        n if n == links => Ok(rates),
        n => Err(format!("--rate {text}: {n} rates for {links} links")),
    }
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
    fn nonsense_is_refused_in_one_line_that_names_it() {
        assert!(refused("stream --size 7").contains("--size 7"));
        assert!(refused("stream --size 99999999999").contains("--size"));
        assert!(refused("stream --loss 100").contains("--loss"));
        assert!(refused("stream --rate fast").contains("fast"));
        assert!(refused("stream --links 3 --rate 1:2").contains("2 rates for 3 links"));
        assert!(refused("stream --duration 0").contains("--duration"));
        assert!(refused("stream --duration nan").contains("--duration"));
        assert!(refused("stream --vs a").contains("A:B"));
        assert!(refused("pingpong --placement intra --links 2").contains("intra"));
        assert!(refused("nothing").contains("nothing"));
        assert!(refused("stream --links 0").contains("links"));
        assert!(refused("stream --repeat 0").contains("repeat"));
    }
}
