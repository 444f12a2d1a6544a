//! One sender whose messages go to several nodes.

use std::sync::atomic::AtomicBool;

use super::{Part, run_max};
use crate::control::{Order, SideReport};
use crate::run::pair::{DRAIN_MAX, Pair, Sample, Which};

/// Measures once: all members listen before the sender looks for them. `watch` hears of the first member's progress.
pub(in crate::run) fn multicast(
    members: Vec<Part>,
    ports: u32,
    sender: Part,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut nothing: Vec<_> = members.iter().skip(1).map(|_| |_: &SideReport| {}).collect();
    let watches = std::iter::once(watch).chain(nothing.iter_mut().map(|n| n as &mut dyn FnMut(&SideReport)));
    let mut pairs: Vec<Pair> = watches.map(|watch| Pair::new(stop, watch)).collect();
    let error = run(&mut pairs, members, ports, sender).err();
    let mut samples = pairs.iter().map(Pair::sample);
    let first = samples.next().unwrap_or_default();
    Sample { further: samples.map(|sample| (sample.sender, sample.receiver)).collect(), error, ..first }
}

/// The sender belongs to the first pair; the others are members alone.
fn run(pairs: &mut [Pair], members: Vec<Part>, ports: u32, sender: Part) -> Result<(), String> {
    let run_max = run_max(&sender.1);
    let mut addresses = Vec::new();
    for (pair, member) in pairs.iter_mut().zip(members) {
        addresses.push(pair.listening(member)?);
    }
    let first = pairs.first_mut().ok_or("no members")?;
    first.connecting(sender, addresses.join(" "))?;
    pairs.iter_mut().try_for_each(Pair::ready)?;
    // The sender last: who has not been told to begin would measure nothing.
    pairs.iter_mut().rev().try_for_each(Pair::go)?;
    pairs[0].wait(Which::Sender, run_max)?;
    let sent = pairs[0].report(Which::Sender)?.sent;
    for pair in pairs.iter_mut() {
        // A protocol may need fewer ports, and leaves the rest of the numbers alone.
        let expected = vec![sent; ports as usize];
        pair.tell(Which::Receiver, &Order::Drain { expected })?;
    }
    for pair in pairs.iter_mut() {
        pair.wait(Which::Receiver, DRAIN_MAX)?;
    }
    pairs.iter_mut().for_each(Pair::quit);
    Ok(())
}
