//! What `bench plan` is asked: several measurements under one name, for one report.

use clap::{Args, ValueEnum};

use super::{BenchArgs, LoadArgs};
use crate::workload::Workload;

/// Which measurements, and how.
#[derive(Args, Clone, Debug)]
pub struct NamedArgs {
    /// What is measured.
    #[arg(value_enum)]
    pub name: PlanName,
    /// Protocols, separated by commas; policies (all of Polyrail's), mptcp and mptcp-bbr if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Rate of the two links in Mbit/s, 1000 if not given; `1000:250` gives each its own.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Message sizes of the curves, in bytes, as for a workload; 1K,4K,16K,64K,256K,1M if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<String>,
    /// Length of each measured window, in seconds; 1 if not given.
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,
    /// Time before each window, in seconds; 0.3 if not given.
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Number of repetitions, interleaved over the protocols; 5 if not given.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Ratios to report, as A:B; polyrail to every other protocol if not given.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
}

/// Names of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanName {
    /// The experiments by which sharing several links was first judged: two pairs on one link and on two, the same way and
    /// against each other; throughput and time of single messages over sizes, with one link and with two
    Mnc,
}

/// Sizes of the curves.
const SIZES: [&str; 6] = ["1K", "4K", "16K", "64K", "256K", "1M"];

impl NamedArgs {
    /// The measurements, in order.
    pub(crate) fn measurements(&self) -> Vec<BenchArgs> {
        let PlanName::Mnc = self.name;
        let one = |links| BenchArgs { links: Some(links), ..self.measurement(Workload::Lone) };
        let share = |links| BenchArgs {
            links: Some(links),
            rate: self.rate(usize::from(links)),
            size: Vec::new(),
            load: LoadArgs { pairs: vec![1, 2], ..LoadArgs::default() },
            ..self.measurement(Workload::Share)
        };
        let curve = BenchArgs { links: Some(2), ..self.measurement(Workload::Links) };
        vec![share(1), share(2), curve, BenchArgs { rate: self.rate(1), ..one(1) }, one(2)]
    }

    fn measurement(&self, workload: Workload) -> BenchArgs {
        let or = |given: &[String], otherwise: &[&str]| match given {
            [] => otherwise.iter().map(|&word| word.to_owned()).collect(),
            given => given.to_vec(),
        };
        BenchArgs {
            workload: Some(workload),
            protocol: or(&self.protocol, &["policies", "mptcp", "mptcp-bbr"]),
            rate: self.rate(2),
            size: or(&self.size, &SIZES),
            duration: self.duration,
            warmup: self.warmup,
            repeat: self.repeat,
            vs: self.vs.clone(),
            model: true,
            ..BenchArgs::default()
        }
    }

    /// The rate of the first so many links.
    fn rate(&self, links: usize) -> Vec<String> {
        let rate = self.rate.as_deref().unwrap_or("1000");
        vec![rate.split(':').take(links.max(1)).collect::<Vec<_>>().join(":")]
    }
}

#[cfg(test)]
mod tests {
    use super::super::BenchCommand;
    use super::super::tests::parse;
    use super::*;

    fn plans(line: &str) -> Vec<super::super::Plan> {
        match parse(line).unwrap().command {
            Some(BenchCommand::Plan(args)) => {
                args.measurements().iter().map(|one| one.plan().expect(line)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plan_is_sharing_and_curves_of_throughput_and_time_with_one_link_and_two() {
        let all = plans("plan mnc --rate 1000:250 --size 4K,64K --repeat 3");
        let shape = |plan: &super::super::Plan| {
            let rates: Vec<_> = plan.environments.iter().map(|place| place.rates.clone()).collect();
            (plan.workload, rates, plan.points.len())
        };
        let (fast, slow) = (Some(1_000), Some(250));
        let expected = [
            (Workload::Share, vec![vec![fast]], 3),
            (Workload::Share, vec![vec![fast, slow]], 3),
            (Workload::Links, vec![vec![fast], vec![fast, slow]], 2),
            (Workload::Lone, vec![vec![fast]], 2),
            (Workload::Lone, vec![vec![fast, slow]], 2),
        ];
        assert_eq!(all.iter().map(shape).collect::<Vec<_>>(), expected);
        assert!(all.iter().all(|plan| plan.repeat == 3 && plan.protocols[0] == "policies"));
        assert_eq!(plans("plan mnc")[4].points.len(), SIZES.len());
        assert!(parse("plan x").unwrap_err().contains("mnc"));
    }
}
