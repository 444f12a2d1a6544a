//! What only `failover` is asked: how links are cut, and what goes over them meanwhile.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::seconds;
use crate::failover::Kind;

/// How links are cut in failover.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Failover")]
pub struct FailoverArgs {
    /// Number of cuts of each kind, over the links in turn.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cuts: u32,
    /// Kinds of cuts, separated by commas, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "carrier,blackhole", value_name = "LIST")]
    pub kind: Vec<Kind>,
    /// How long a link stays cut, in seconds, give or take a tenth.
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    pub outage: f64,
    /// From a link's return until the next cut, in seconds, give or take a tenth.
    #[arg(long, default_value_t = 1.5, value_name = "S")]
    pub pause: f64,
    /// Messages of the watched flow per second.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub arrivals: u64,
    /// How the watched flow stands to the bulk, where a protocol has classes.
    #[arg(long, value_enum, default_value = "normal")]
    pub class: FlowClass,
}

/// How a flow stands to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlowClass {
    /// Like all.
    #[default]
    Normal,
    /// Before normal ones.
    Urgent,
}

/// The same, checked.
#[derive(Clone, Debug)]
pub(crate) struct FailoverPlan {
    pub(crate) cuts: u32,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) outage_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) arrivals_per_s: u64,
    pub(crate) class: FlowClass,
}

impl FailoverArgs {
    pub(super) fn plan(&self) -> Result<FailoverPlan, String> {
        Ok(FailoverPlan {
            cuts: self.cuts,
            kinds: self.kind.clone(),
            outage_ns: seconds("--outage", self.outage, 0.01)?,
            pause_ns: seconds("--pause", self.pause, 0.1)?,
            arrivals_per_s: self.arrivals,
            class: self.class,
        })
    }
}
