//! Two flows, and links that are cut beneath them one after the other.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Part;
use crate::args::FailoverPlan;
use crate::clock::machine_ns;
use crate::control::{Event, Order, SideReport, Span};
use crate::failover::{Cut, Kind, Place};
use crate::netns::Testbed;
use crate::run::pair::{DRAIN_MAX, OVERTIME_MAX, Pair, Sample, Which};
use crate::stats::Prng;

/// Longest time for what is missing after a link's return to come, or to be given up.
const JUDGE_MAX: Duration = Duration::from_secs(15);
/// How long before a cut it is looked which link carries how much.
const CARRIED_NS: u64 = 200_000_000;
/// After a link's return what was held up is under way for a while; calm is only counted after this share of the pause.
const CALM_AFTER: f64 = 0.5;

/// Measures once: every kind of cut, one after the other. `told` hears of each.
pub(in crate::run) fn failover(
    receiver: Part,
    sender: Part,
    testbed: &Testbed,
    plan: &FailoverPlan,
    stop: &AtomicBool,
    told: &mut dyn FnMut(usize, &Cut),
) -> Sample {
    let mut cuts = Vec::new();
    let mut nothing = |_: &SideReport| {};
    let mut pair = Pair::new(stop, &mut nothing);
    let warmup = Duration::from_nanos(sender.1.warmup_ns);
    let error = run(&mut pair, receiver, sender, warmup, testbed, plan, &mut |cut| {
        told(cuts.len(), &cut);
        cuts.push(cut);
    });
    Sample { cuts, error: error.err(), ..pair.sample() }
}

fn run(
    pair: &mut Pair,
    receiver: Part,
    sender: Part,
    warmup: Duration,
    testbed: &Testbed,
    plan: &FailoverPlan,
    add: &mut dyn FnMut(Cut),
) -> Result<(), String> {
    // A handle of its own: switching changes it, and it removes nothing when it is dropped.
    let testbed = Testbed::open(&testbed.spec().name).map_err(|error| error.to_string())?;
    let links = testbed.spec().links.len();
    let mut cutter = Cutter { testbed, plan, random: Prng::new(1) };
    cutter.testbed.prepare_faults().map_err(|error| error.to_string())?;
    pair.start(receiver, sender)?;
    pair.go()?;
    pair.pass(warmup)?;
    for &kind in &plan.kinds {
        for number in 0..plan.cuts as usize {
            add(cutter.cut(pair, Place::of(kind, number, links))?);
        }
    }
    pair.tell(Which::Sender, &Order::Stop)?;
    pair.wait(Which::Sender, OVERTIME_MAX)?;
    let expected = pair.report(Which::Sender)?.flows_sent.ok_or("sender: no counts")?;
    pair.tell(Which::Receiver, &Order::DrainFlows { expected })?;
    pair.wait(Which::Receiver, DRAIN_MAX)?;
    pair.quit();
    Ok(())
}

/// Cuts links and gives them back.
struct Cutter<'a> {
    testbed: Testbed,
    plan: &'a FailoverPlan,
    random: Prng,
}

impl Cutter<'_> {
    /// One cut, from the pause before it to its judgement.
    fn cut(&mut self, pair: &mut Pair, place: Place) -> Result<Cut, String> {
        let pause_ns = self.about(self.plan.pause_ns);
        let look_ns = CARRIED_NS.min(pause_ns / 4);
        let calm_ns = machine_ns() + (pause_ns as f64 * CALM_AFTER) as u64;
        pair.pass(Duration::from_nanos(pause_ns - look_ns))?;
        let before = carried(pair)?;
        pair.pass(Duration::from_nanos(look_ns))?;
        let after = carried(pair)?;
        let outage = Duration::from_nanos(self.about(self.plan.outage_ns));
        let cut_ns = machine_ns();
        let cut = self.switch(place, true);
        // Whatever happens meanwhile, the link is given back.
        let passed = cut.and_then(|()| pair.pass(outage));
        self.switch(place, false)?;
        passed?;
        let span = Span { calm_ns, cut_ns, restored_ns: machine_ns() };
        pair.tell(Which::Receiver, &Order::Judge(span))?;
        match pair.wait(Which::Receiver, JUDGE_MAX)? {
            Event::Judged(judgement) => {
                let carried_share = share(&before, &after, place.link);
                Ok(Cut { place, cut_ns, judgement, carried_share })
            }
            other => Err(format!("receiver: unexpected {other:?}")),
        }
    }

    fn switch(&mut self, place: Place, cut: bool) -> Result<(), String> {
        let switched = match place.kind {
            Kind::Carrier => self.testbed.carrier(place.link, place.node, !cut),
            Kind::Blackhole => self.testbed.black_hole(place.link, place.node, place.direction, cut),
        };
        switched.map_err(|error| error.to_string())
    }

    /// A time give or take a tenth: cuts must not fall into step with a protocol's timers.
    fn about(&mut self, ns: u64) -> u64 {
        ns * 9 / 10 + self.random.below((ns / 5) as usize + 1) as u64
    }
}

/// Bytes that left the sender over each link so far.
fn carried(pair: &mut Pair) -> Result<Vec<u64>, String> {
    pair.tell(Which::Sender, &Order::Carried)?;
    match pair.wait(Which::Sender, OVERTIME_MAX)? {
        Event::Carried { bytes } => Ok(bytes),
        other => Err(format!("sender: unexpected {other:?}")),
    }
}

fn share(before: &[u64], after: &[u64], link: usize) -> f64 {
    let sent: Vec<u64> =
        before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect();
    let total: u64 = sent.iter().sum();
    if total == 0 { 0.0 } else { sent.get(link).map_or(0.0, |&bytes| bytes as f64 / total as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_carried_nothing_shows_as_nothing() {
        assert_eq!(share(&[100, 100], &[200, 400], 1), 0.75);
        assert_eq!(share(&[100, 100], &[200, 100], 1), 0.0);
        assert_eq!(share(&[7, 7], &[7, 7], 0), 0.0);
    }
}
