//! How each workload goes, from the two processes' start to their end.

mod crowd;
mod failover;
mod incast;
mod multicast;
mod side_by_side;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) use crowd::crowd;
pub(super) use failover::failover;
pub(super) use incast::incast;
pub(super) use multicast::multicast;
pub(super) use side_by_side::side_by_side;

use super::pair::{DRAIN_MAX, OVERTIME_MAX, Pair, Sample, Which};
use super::side::Launch;
use crate::control::{Event, Job, Order, SideReport};
use crate::idle::{IdleCost, Snapshot};
use crate::workload::{BLOCKED_NS_MIN, Workload};

/// Where one side is started and what it is told to do.
pub(super) type Part = (Launch, Job);

/// Longest time until a sender whose receiver does not read stands still.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Longest time that what was blocked may take in all.
const PUSH_MAX: Duration = Duration::from_secs(600);

/// Measures once. `watch` hears of the receiver's progress.
pub(super) fn conduct(
    receiver: Part,
    sender: Part,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut pair = Pair::new(stop, watch);
    let error = match sender.1.workload {
        Workload::Idle => idle(&mut pair, receiver, sender),
        Workload::Stalled => stalled(&mut pair, receiver, sender),
        _ => until_the_window_closes(&mut pair, receiver, sender),
    };
    Sample { error: error.err(), ..pair.sample() }
}

fn until_the_window_closes(pair: &mut Pair, receiver: Part, sender: Part) -> Result<(), String> {
    let run_max = run_max(&sender.1);
    pair.start(receiver, sender)?;
    pair.go()?;
    pair.wait(Which::Sender, run_max)?;
    drain(pair)
}

/// Longest time that a side which follows its window may take.
fn run_max(job: &Job) -> Duration {
    Duration::from_nanos(job.warmup_ns + job.duration_ns) + OVERTIME_MAX
}

/// Lets the receiver finish once the sender has reported.
fn drain(pair: &mut Pair) -> Result<(), String> {
    let expected = pair.report(Which::Sender)?.sent_each();
    pair.tell(Which::Receiver, &Order::Drain { expected })?;
    pair.wait(Which::Receiver, DRAIN_MAX)?;
    pair.quit();
    Ok(())
}

/// Lets the pair settle and then counts, from outside, what it costs while nothing is asked of it.
fn idle(pair: &mut Pair, receiver: Part, sender: Part) -> Result<(), String> {
    let (settle, watch) =
        (Duration::from_nanos(sender.1.warmup_ns), Duration::from_nanos(sender.1.duration_ns));
    pair.start(receiver, sender)?;
    pair.pass(settle)?;
    let sides = [Which::Sender, Which::Receiver];
    let failed = |error: std::io::Error| format!("/proc: {error}");
    let pids = [pair.pid(sides[0])?, pair.pid(sides[1])?];
    let before = [Snapshot::of(pids[0]).map_err(failed)?, Snapshot::of(pids[1]).map_err(failed)?];
    pair.pass(watch)?;
    let cost = |which: usize| -> Result<IdleCost, String> {
        let after = Snapshot::of(pids[which]).map_err(failed)?;
        after.since(&before[which], pids[which]).map_err(failed)
    };
    let costs = [cost(0)?, cost(1)?];
    // One message: a pair that had lost its connection would cost little for the wrong reason.
    pair.go()?;
    for (which, cost) in sides.into_iter().zip(costs) {
        pair.wait(which, DRAIN_MAX)?;
        pair.report(which)?.idle = Some(cost);
    }
    pair.quit();
    Ok(())
}

/// Waits until the sender stands still, leaves it so for a while, lets the receiver read on.
fn stalled(pair: &mut Pair, receiver: Part, sender: Part) -> Result<(), String> {
    let hold = Duration::from_nanos(sender.1.duration_ns);
    pair.start(receiver, sender)?;
    pair.go()?;
    let still = |event: &Event| match event {
        Event::Progress(report) => report.blocked_ns >= BLOCKED_NS_MIN,
        _ => true,
    };
    match pair.wait_until(Which::Sender, FILL_MAX, still)? {
        Some(Event::Progress(_)) => {}
        Some(_) => return Err("the sender was never blocked: all of it was taken at once".to_owned()),
        None => return Err(format!("the sender was not blocked within {} s", FILL_MAX.as_secs())),
    }
    let sent_before = pair.report(Which::Sender)?.sent;
    pair.pass(hold)?;
    // What it said last may be older than the hold's end; its next word is not.
    pair.wait_until(Which::Sender, OVERTIME_MAX, |event| {
        matches!(event, Event::Progress(_) | Event::Done(_))
    })?
    .ok_or("sender: silent while it was blocked")?;
    let sent_after = pair.report(Which::Sender)?.sent;
    if sent_after > sent_before {
        let sent = sent_after - sent_before;
        return Err(format!("{sent} messages were taken while the receiver did not read"));
    }
    pair.tell(Which::Receiver, &Order::Resume)?;
    pair.wait(Which::Sender, PUSH_MAX)?;
    drain(pair)
}
