//! Several pairs that go at the same time.

use std::sync::atomic::AtomicBool;

use super::{Part, drain, run_max};
use crate::control::SideReport;
use crate::run::pair::{Pair, Sample, Which};

/// Measures once: all are connected before any begins. `watch` hears of the first receiver's progress.
pub(in crate::run) fn side_by_side(
    crews: Vec<[Part; 2]>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut nothing: Vec<_> = crews.iter().skip(1).map(|_| |_: &SideReport| {}).collect();
    let watches = std::iter::once(watch).chain(nothing.iter_mut().map(|n| n as &mut dyn FnMut(&SideReport)));
    let mut pairs: Vec<Pair> = watches.map(|watch| Pair::new(stop, watch)).collect();
    let error = run(&mut pairs, crews).err();
    let mut samples = pairs.iter().map(Pair::sample);
    let first = samples.next().unwrap_or_default();
    Sample { further: samples.map(|sample| (sample.sender, sample.receiver)).collect(), error, ..first }
}

fn run(pairs: &mut [Pair], crews: Vec<[Part; 2]>) -> Result<(), String> {
    let mut longest = std::time::Duration::ZERO;
    for (pair, [receiver, sender]) in pairs.iter_mut().zip(crews) {
        longest = longest.max(run_max(&sender.1));
        pair.start(receiver, sender)?;
    }
    pairs.iter_mut().try_for_each(Pair::go)?;
    for pair in pairs.iter_mut() {
        pair.wait(Which::Sender, longest)?;
    }
    pairs.iter_mut().try_for_each(drain)
}
