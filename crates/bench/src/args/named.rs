//! What `bench plan` is asked: a plan, and what of it is to be otherwise.

use std::path::PathBuf;

use clap::Args;

use crate::plans::{Overrides, PlanFile, names, text};

/// Which plan, and what is changed about it.
#[derive(Args, Clone, Debug)]
pub struct NamedArgs {
    /// A plan of the program, or a file (docs/measuring.md, section 1.17). Those of the program: s1-buffers, s1-transactions,
    /// s2-sizes, s2-datagrams, mnc, s4-bandwidth (what was published about protocols from 2003 to 2012, held against what is
    /// measured here), kernel-tipc (the kernel's TIPC and SCTP beside the others, within a node), never-slower (several links
    /// against the best of them alone).
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// Print the plan instead of measuring: a copy can be changed and given as FILE.
    #[arg(long)]
    pub show: bool,
    /// Protocols, separated by commas, in place of those that the plan names, but for those that always take part.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub protocol: Vec<String>,
    /// Rate of the links in Mbit/s, where all measurements have the same; `1000:250` gives each its own.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Message sizes, in bytes, as for a workload, in place of those that the plan names.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<String>,
    /// Length of each measured window, in seconds.
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,
    /// Time before each window, in seconds.
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Number of rounds, each of which measures everything once; fewer than six decide no finding.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Write the JSON document to this file too.
    #[arg(long, value_name = "FILE")]
    pub document: Option<PathBuf>,
    /// Ratios to report, as A:B; polyrail to every other protocol if not given.
    #[arg(long, value_delimiter = ',', value_name = "A:B")]
    pub vs: Vec<String>,
}

impl NamedArgs {
    /// The plan as it is to be measured.
    ///
    /// # Errors
    /// There is no such plan, something in it is wrong, or what is to be otherwise makes no sense in it.
    pub(crate) fn plan(&self) -> Result<PlanFile, String> {
        PlanFile::load(&self.name)?.with(&Overrides {
            protocol: &self.protocol,
            rate: self.rate.as_deref(),
            size: &self.size,
            duration: self.duration,
            warmup: self.warmup,
            repeat: self.repeat,
            vs: &self.vs,
        })
    }

    /// The plan's text, if that is all that is asked for.
    pub(crate) fn shown(&self) -> Option<Result<String, String>> {
        self.show.then(|| {
            let known = names().join(", ");
            text(&self.name).map(str::to_owned).ok_or_else(|| {
                format!(
                    "--show prints plans of the program, and none is named `{}`: there are {known}",
                    self.name
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::super::{BenchCommand, Plan};
    use crate::workload::Workload;

    fn plans(line: &str) -> Result<Vec<Plan>, String> {
        let args = parse(line)?;
        let Some(BenchCommand::Plan(args)) = args.command else { return Err(format!("{line}: no plan")) };
        args.plan()?.plans()
    }

    #[test]
    fn a_plan_is_sharing_and_curves_of_throughput_and_time_with_one_link_and_two() {
        let all = plans("plan mnc --rate 1000:250 --size 4K,64K --repeat 3").unwrap();
        let shape = |plan: &Plan| {
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
        assert_eq!(plans("plan mnc").unwrap()[4].points.len(), 6);
        assert!(plans("plan x").unwrap_err().contains("mnc"), "it says which there are");
    }

    #[test]
    fn every_set_of_links_is_measured_beside_the_best_of_them_wherever_that_stands() {
        let all = plans("plan never-slower --size 64,1M --protocol polyrail-mnc --repeat 2").unwrap();
        let shape = |plan: &Plan| {
            let place = &plan.environments[0];
            let rates: Vec<u32> = place.rates.iter().flatten().copied().collect();
            (plan.workload, rates, place.losses.clone(), place.delays_ms.clone(), plan.protocols[1].clone())
        };
        let (first, last) = ("polyrail-first".to_owned(), "polyrail-last".to_owned());
        assert_eq!(all.len(), 2 * 13);
        assert!(
            all.iter().all(|plan| plan.environments.len() == 1 && plan.points.len() == 2 && plan.repeat == 2)
        );
        assert!(all.iter().all(|plan| plan.protocols.len() == 2 && plan.protocols[0] == "polyrail-mnc"));
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
        assert!(plans("plan never-slower --rate 500").unwrap_err().contains("--show"));
    }
}
