//! What `bench peers` is asked: our protocols beside other systems.

use clap::Args;

use super::{BenchArgs, Placement, ReadKind};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Which systems are measured, and how.
#[derive(Args, Clone, Debug)]
pub struct PeersArgs {
    /// What to measure: stream, pingpong, rate or transact; the first three in turn if not given.
    #[arg(value_enum)]
    pub workload: Option<Workload>,
    /// Other systems, separated by commas; every one that is installed if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub peer: Vec<String>,
    /// Protocols of ours beside them, separated by commas; polyrail if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Between two nodes of a testbed (inter, if not given), or two processes of this node; separated by commas, each
    /// measured in turn.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub placement: Vec<Placement>,
    /// Number of links between the two nodes; 1 if not given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub links: Option<u8>,
    /// Rates of the links in Mbit/s, separated by commas, each measured in turn; 0: unthrottled. `1000:250` gives
    /// each link its own.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub rate: Vec<String>,
    /// Message sizes in bytes, separated by commas, each measured in turn: numbers (K, M for powers of 1024), `64..64K`
    /// for powers of two; 131072 for stream, else 64.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<String>,
    /// How the measuring threads wait, separated by commas, each measured in turn; spin if not given. What a system
    /// cannot do is told beside its figures.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub wait: Vec<WaitMode>,
    /// Length of each measured window, in seconds; 1 if not given.
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,
    /// Time before each window, in seconds; 1 if not given.
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Number of repetitions, interleaved over all; 5 if not given. With --tight the most, 50.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Repeat until the 95 % interval of every ratio (without ratios, of every figure) reaches no further than so many
    /// percent from its middle, six times at least.
    #[arg(long, value_name = "PERCENT")]
    pub tight: Option<f64>,
    /// Look at both ends of each message where it lies (place, if not given), or have receivers copy all of it to memory of their
    /// own, where the system has not done so: stream and rate.
    #[arg(long, value_enum)]
    pub read: Option<ReadKind>,
    /// Ratios to report, as A:B; polyrail to every other if not given.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
}

/// Some take whole seconds only, and connections that are older are faster.
const WARMUP_S: f64 = 1.0;
/// What other systems are measured by unless one is named. Few make transactions, so that is asked for.
const WORKLOADS: [Workload; 3] = [Workload::Stream, Workload::PingPong, Workload::Rate];

impl PeersArgs {
    /// Whether any of it needs network namespaces.
    pub(crate) fn needs_testbed(&self) -> bool {
        let plans = self.measurements().into_iter().flatten().filter_map(|args| args.plan().ok());
        plans.into_iter().any(|plan| plan.needs_testbed())
    }

    /// The measurements of our protocols that these go beside, one for each workload.
    pub(crate) fn measurements(&self) -> Result<Vec<BenchArgs>, String> {
        if let Some(Placement::Host(name)) =
            self.placement.iter().find(|place| matches!(place, Placement::Host(_)))
        {
            return Err(format!(
                "--placement {name}: other systems are measured on this machine: intra, inter"
            ));
        }
        if self.read == Some(ReadKind::Whole) {
            return Err("--read whole: other systems' receivers are not told how to call their sockets: place or copy".to_owned());
        }
        match self.workload {
            Some(workload) if workload == Workload::Transact || WORKLOADS.contains(&workload) => {
                Ok(vec![self.measurement(workload)])
            }
            Some(workload) => Err(format!(
                "{}: other systems are measured by stream, pingpong, rate and transact",
                workload.name()
            )),
            None => Ok(WORKLOADS.map(|workload| self.measurement(workload)).to_vec()),
        }
    }

    fn measurement(&self, workload: Workload) -> BenchArgs {
        let protocol =
            if self.protocol.is_empty() { vec!["polyrail".to_owned()] } else { self.protocol.clone() };
        BenchArgs {
            workload: Some(workload),
            protocol,
            placement: self.placement.clone(),
            links: self.links,
            rate: self.rate.clone(),
            size: self.size.clone(),
            wait: self.wait.clone(),
            duration: self.duration,
            warmup: self.warmup.or(Some(WARMUP_S)),
            repeat: self.repeat,
            tight: self.tight,
            // Of several workloads, for those that have it.
            read: self.read.filter(|_| self.workload.is_some() || workload.is_one_way()),
            vs: self.vs.clone(),
            ..BenchArgs::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BenchCommand;
    use super::super::tests::parse;
    use super::*;

    fn peers(line: &str) -> PeersArgs {
        match parse(line).unwrap().command {
            Some(BenchCommand::Peers(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn conditions_are_those_of_our_own_measurements() {
        let line = "peers stream --peer iperf3 --protocol tcp-cubic --size 4096 --wait block --repeat 15 --vs tcp-cubic:iperf3";
        let args = peers(line);
        assert_eq!(args.peer, ["iperf3"]);
        let plan = args.measurements().unwrap()[0].plan().unwrap();
        assert_eq!((plan.workload, plan.repeat), (Workload::Stream, 15));
        let points: Vec<_> = plan.points.iter().map(|point| (point.size, point.wait)).collect();
        assert_eq!((points, plan.protocols), (vec![(4096, WaitMode::Block)], vec!["tcp-cubic".to_owned()]));
        assert_eq!(plan.versus, [("tcp-cubic".to_owned(), "iperf3".to_owned())]);
        let reads = |line: &str| {
            peers(line)
                .measurements()
                .unwrap()
                .into_iter()
                .map(|args| args.plan().map(|plan| plan.read))
                .collect::<Vec<_>>()
        };
        assert_eq!(reads("peers --read copy"), [Ok(ReadKind::Copy), Ok(ReadKind::Place), Ok(ReadKind::Copy)]);
        let whole = peers("peers stream --read whole --wait block").measurements();
        assert!(whole.unwrap_err().contains("--read whole"), "no driver is told");
        assert!(reads("peers pingpong --read copy")[0].is_err());
    }

    #[test]
    fn without_a_workload_each_is_measured_and_others_are_refused() {
        let all = peers("peers").measurements().unwrap();
        assert_eq!(all.iter().map(|args| args.workload.unwrap()).collect::<Vec<_>>(), WORKLOADS);
        assert_eq!(all[0].protocol, ["polyrail"]);
        assert!(peers("peers --placement node7").measurements().unwrap_err().contains("node7"));
        assert!(peers("peers idle").measurements().unwrap_err().starts_with("idle"));
    }
}
