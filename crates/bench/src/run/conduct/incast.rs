//! One receiver that asks many senders at once.

use std::sync::atomic::AtomicBool;

use super::{Part, run_max};
use crate::control::SideReport;
use crate::run::pair::{OVERTIME_MAX, Pair, Sample, Which};

/// Measures once. The receiver leads: it follows the window, and tells the senders itself when it has ended.
pub(in crate::run) fn incast(
    receiver: Part,
    senders: Vec<Part>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut pair = Pair::new(stop, watch);
    let error = run(&mut pair, receiver, senders);
    Sample { error: error.err(), ..pair.sample() }
}

fn run(pair: &mut Pair, receiver: Part, senders: Vec<Part>) -> Result<(), String> {
    let (run_max, count) = (run_max(&receiver.1), senders.len());
    pair.start_many(receiver, senders)?;
    pair.go()?;
    pair.wait(Which::Receiver, run_max)?;
    for number in 0..count {
        pair.wait(Which::SenderOf(number), OVERTIME_MAX)?;
    }
    pair.quit();
    Ok(())
}
