//! Which size of messages to aim at: from the model of the curves that were measured.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::fit::{Fitted, Interval, Series, series};
use crate::report::Measured;
use crate::workload::Workload;

/// The size from which a protocol passes half of what it can, and the one of nine tenths.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SizeAdvice {
    #[serde(flatten)]
    pub(super) conditions: Map<String, Value>,
    pub(super) n_half_bytes: Interval,
    /// None of the sizes measured has it.
    pub(super) n_90_bytes: Option<Interval>,
    /// Of messages that are long.
    pub(super) bandwidth_mbps: Interval,
}

/// The question.
pub(super) const WHAT: &str = "which size to aim at";
/// What measures it.
pub(super) const COMMAND: &str =
    "polyrail bench stream --protocol polyrail --size 64..1M --repeat 10 --json > stream.json";

/// Of each curve of one-way messages that shows a bandwidth.
pub(super) fn sizes(all: &[Measured]) -> Vec<SizeAdvice> {
    let is_one_way = |series: &Series| matches!(series.workload, Workload::Stream | Workload::Links);
    let of = |series: Series| {
        let fitted = Fitted::of(&series.curve).ok()?;
        Some(SizeAdvice {
            n_half_bytes: fitted.n_half_bytes?,
            n_90_bytes: fitted.n_90_bytes,
            bandwidth_mbps: fitted.pieces.last()?.bandwidth_mbps,
            conditions: series.conditions,
        })
    };
    series(all).into_iter().filter(is_one_way).filter_map(of).collect()
}
