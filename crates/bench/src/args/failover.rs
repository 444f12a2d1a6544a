//! What only `failover` is asked: how links are cut, and what goes over them meanwhile.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::values::seconds;
use crate::failover::Kind;

/// How links are cut in failover.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Failover")]
pub struct FailoverArgs {
    /// Number of cuts of each kind, over the links in turn; 20 if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cuts: Option<u32>,
    /// Kinds of cuts, separated by commas, one after the other; carrier and blackhole if not given.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub kind: Vec<Kind>,
    /// How long a link stays cut, in seconds, give or take a tenth; 0.3 if not given. Flapping goes on for just so long; 10 if not
    /// given.
    #[arg(long, value_name = "S")]
    pub outage: Option<f64>,
    /// From a link's return until the next cut, in seconds, give or take a tenth; 2.2 if not given.
    #[arg(long, value_name = "S")]
    pub pause: Option<f64>,
    /// Class of the watched flow, or of the questions of pingpong --beside bulk, where a protocol has classes; normal if not
    /// given. The bulk is of class bulk.
    #[arg(long, value_enum)]
    pub class: Option<FlowClass>,
}

/// The class of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlowClass {
    /// Before all others.
    Urgent,
    /// What is of no other class: before bulk, which gets a share nevertheless.
    #[default]
    Normal,
    /// After the others.
    Bulk,
}

/// The same, checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FailoverPlan {
    pub(crate) cuts: u32,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) outage_ns: u64,
    /// Of `flapping` alone; a plan without it is as it was before there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flapping_ns: Option<u64>,
    pub(crate) pause_ns: u64,
    pub(crate) arrivals_per_s: u64,
    pub(crate) class: FlowClass,
}

/// Shortest time for which a link flaps, in seconds: down and up twice.
const FLAPPING_S_MIN: f64 = 0.2;

impl FailoverArgs {
    /// `arrivals`: messages of the watched flow per second, as given.
    pub(super) fn plan(&self, arrivals: &[u64]) -> Result<FailoverPlan, String> {
        if arrivals.len() > 1 {
            return Err("--arrivals: failover takes one rate, not several".to_owned());
        }
        let kinds =
            if self.kind.is_empty() { vec![Kind::Carrier, Kind::Blackhole] } else { self.kind.clone() };
        let flaps = kinds.contains(&Kind::Flapping);
        let flapping_ns =
            flaps.then(|| seconds("--kind flapping --outage", self.outage.unwrap_or(10.0), FLAPPING_S_MIN));
        Ok(FailoverPlan {
            cuts: self.cuts.unwrap_or(20),
            kinds,
            outage_ns: seconds("--outage", self.outage.unwrap_or(0.3), 0.01)?,
            flapping_ns: flapping_ns.transpose()?,
            pause_ns: seconds("--pause", self.pause.unwrap_or(2.2), 0.1)?,
            arrivals_per_s: arrivals.first().copied().unwrap_or(10_000),
            class: self.class.unwrap_or_default(),
        })
    }
}
