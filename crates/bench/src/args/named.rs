//! What `bench plan` is asked: several measurements under one name, for one report.

use clap::{Args, ValueEnum};

use super::{BenchArgs, LoadArgs};
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Which measurements, and how.
#[derive(Args, Clone, Debug)]
pub struct NamedArgs {
    /// What is measured.
    #[arg(value_enum)]
    pub name: PlanName,
    /// Protocols, separated by commas; of mnc policies (all of Polyrail's), mptcp and mptcp-bbr if not given, of never-slower
    /// polyrail. The best link alone is measured beside them there.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Rate of the two links in Mbit/s, 1000 if not given; `1000:250` gives each its own. Of never-slower: that of the best link.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Message sizes, in bytes, as for a workload; 1K,4K,16K,64K,256K,1M if not given, of never-slower
    /// 64,1K,16K,64K,256K,1M,16M.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<String>,
    /// Length of each measured window, in seconds; 1 if not given, of never-slower 0.5.
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
    /// Whether several links are ever slower than the best of them alone: streams and round trips over sizes, with links that are
    /// equal, 1:4, 1:10, 1:40 and 40:4:1, the slow one last and first, with a link that loses 5 % and with one that takes 5 ms more
    NeverSlower,
}

/// Sizes of the curves.
const SIZES: [&str; 6] = ["1K", "4K", "16K", "64K", "256K", "1M"];
/// Sizes at which several links are compared with the best one.
const SIZES_OF_BEST: [&str; 7] = ["64", "1K", "16K", "64K", "256K", "1M", "16M"];

/// Links beside a best one: by what part their rates are smaller, percent of loss, and ms of delay; the best one is the
/// first, and in a second measurement the last, unless all are alike.
struct Beside {
    parts: &'static [u32],
    loss: u32,
    delay_ms: u32,
}

const BESIDE: [Beside; 7] = [
    Beside::slower(&[1]),
    Beside::slower(&[4]),
    Beside::slower(&[10]),
    Beside::slower(&[40]),
    Beside::slower(&[10, 40]),
    Beside { loss: 5, ..Beside::slower(&[1]) },
    Beside { delay_ms: 5, ..Beside::slower(&[1]) },
];

impl Beside {
    const fn slower(parts: &'static [u32]) -> Beside {
        Beside { parts, loss: 0, delay_ms: 0 }
    }

    fn is_alike(&self) -> bool {
        (self.parts, self.loss, self.delay_ms) == (&[1], 0, 0)
    }

    /// Lists of rates, losses and delays as arguments have them; `first`: the best link is the first.
    fn lists(&self, best_mbit: u32, first: bool) -> [Vec<String>; 3] {
        let list = |best: u32, others: Vec<u32>| {
            let mut all: Vec<u32> = std::iter::once(best).chain(others).collect();
            if !first {
                all.reverse();
            }
            if all.iter().all(|value| *value == 0) {
                return Vec::new();
            }
            vec![all.iter().map(u32::to_string).collect::<Vec<_>>().join(":")]
        };
        let each = |value| vec![value; self.parts.len()];
        [
            list(best_mbit, self.parts.iter().map(|part| (best_mbit / part).max(1)).collect()),
            list(0, each(self.loss)),
            list(0, each(self.delay_ms)),
        ]
    }
}

impl NamedArgs {
    /// The measurements, in order.
    ///
    /// # Errors
    /// A rate that is no number.
    pub(crate) fn measurements(&self) -> Result<Vec<BenchArgs>, String> {
        match self.name {
            PlanName::Mnc => Ok(self.mnc()),
            PlanName::NeverSlower => self.never_slower(),
        }
    }

    fn mnc(&self) -> Vec<BenchArgs> {
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

    fn never_slower(&self) -> Result<Vec<BenchArgs>, String> {
        let rate = self.rate.as_deref().unwrap_or("1000");
        let best_mbit: u32 = rate.parse().ok().filter(|mbit| *mbit > 0).ok_or_else(|| {
            format!(
                "--rate {rate}: of never-slower it is that of the best link, in whole Mbit/s, such as 1000"
            )
        })?;
        let mut all = Vec::new();
        for beside in &BESIDE {
            for first in [true, false].into_iter().take(if beside.is_alike() { 1 } else { 2 }) {
                let lists = beside.lists(best_mbit, first);
                let links = beside.parts.len() as u8 + 1;
                all.extend(
                    [Workload::Stream, Workload::PingPong]
                        .map(|workload| self.beside(workload, links, &lists, first)),
                );
            }
        }
        Ok(all)
    }

    /// Links of these rates, losses and delays against the best of them.
    fn beside(&self, workload: Workload, links: u8, lists: &[Vec<String>; 3], first: bool) -> BenchArgs {
        let best = if first { "polyrail-first" } else { "polyrail-last" };
        let [rate, loss, delay] = lists.clone();
        let mut protocol = or(&self.protocol, &["polyrail"]);
        protocol.push(best.to_owned());
        BenchArgs {
            links: Some(links),
            rate,
            loss,
            delay,
            protocol,
            size: or(&self.size, &SIZES_OF_BEST),
            wait: vec![WaitMode::Block],
            duration: Some(self.duration.unwrap_or(0.5)),
            model: false,
            ..self.measurement(workload)
        }
    }

    fn measurement(&self, workload: Workload) -> BenchArgs {
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

/// What was given, or else the usual.
fn or(given: &[String], otherwise: &[&str]) -> Vec<String> {
    match given {
        [] => otherwise.iter().map(|&word| word.to_owned()).collect(),
        given => given.to_vec(),
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
                args.measurements().expect(line).iter().map(|one| one.plan().expect(line)).collect()
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

    #[test]
    fn every_set_of_links_is_measured_beside_the_best_of_them_wherever_that_stands() {
        let all = plans("plan never-slower --size 64,1M --repeat 2");
        let shape = |plan: &super::super::Plan| {
            let place = &plan.environments[0];
            let rates: Vec<u32> = place.rates.iter().flatten().copied().collect();
            (plan.workload, rates, place.losses.clone(), place.delays_ms.clone(), plan.protocols[1].clone())
        };
        let (first, last) = ("polyrail-first".to_owned(), "polyrail-last".to_owned());
        assert_eq!(all.len(), 2 * 13);
        assert!(
            all.iter().all(|plan| plan.environments.len() == 1 && plan.points.len() == 2 && plan.repeat == 2)
        );
        let seen: Vec<_> = all.iter().map(shape).collect();
        let none = || (vec![0.0, 0.0], Vec::new());
        let has = |workload, rates: &[u32], (losses, delays): (Vec<f64>, Vec<f64>), best: &String| {
            seen.contains(&(workload, rates.to_vec(), losses, delays, best.clone()))
        };
        assert!(has(Workload::Stream, &[1_000, 1_000], none(), &first));
        assert!(has(Workload::PingPong, &[25, 1_000], none(), &last));
        assert!(has(Workload::Stream, &[25, 100, 1_000], (vec![0.0; 3], Vec::new()), &last));
        assert!(has(Workload::Stream, &[1_000, 1_000], (vec![0.0, 5.0], Vec::new()), &first));
        assert!(has(Workload::Stream, &[1_000, 1_000], (vec![0.0, 0.0], vec![5.0, 0.0]), &last));
        let refused = parse("plan never-slower --rate 1000:1").map(|args| match args.command {
            Some(BenchCommand::Plan(args)) => args.measurements().map(|all| all.len()),
            other => panic!("{other:?}"),
        });
        assert!(refused.unwrap().unwrap_err().contains("best link"));
    }
}
