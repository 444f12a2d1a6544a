//! Two flows, and links that are cut beneath them one after the other.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Part;
use crate::args::FailoverPlan;
use crate::clock::machine_ns;
use crate::control::{Event, Order, SideReport, Span};
use crate::failover::{Cut, Judgement, Kind, Place};
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
    let mut nothing = |_: &SideReport| {};
    let mut pair = Pair::new(stop, &mut nothing);
    let mut cuts = Cuts { told, made: Vec::new() };
    let error = run(&mut pair, receiver, sender, testbed, plan, &mut cuts);
    Sample { cuts: cuts.made, error: error.err(), ..pair.sample() }
}

/// The cuts so far, and who hears of them.
struct Cuts<'a> {
    told: &'a mut dyn FnMut(usize, &Cut),
    made: Vec<Cut>,
}

impl Cuts<'_> {
    fn add(&mut self, cut: Cut) {
        self.close(cut.judgement.aftermath_ns);
        (self.told)(self.made.len(), &cut);
        self.made.push(cut);
    }

    /// What followed on the last cut's end is known once the next one is judged.
    fn close(&mut self, aftermath_ns: u64) {
        if let Some(last) = self.made.last_mut() {
            last.aftermath_ns = Some(aftermath_ns);
        }
    }
}

fn run(
    pair: &mut Pair,
    receiver: Part,
    sender: Part,
    testbed: &Testbed,
    plan: &FailoverPlan,
    cuts: &mut Cuts,
) -> Result<(), String> {
    // A handle of its own: switching changes it, and it removes nothing when it is dropped.
    let testbed = Testbed::open(&testbed.spec().name).map_err(|error| error.to_string())?;
    let links = testbed.spec().links.len();
    let warmup = Duration::from_nanos(sender.1.warmup_ns);
    let mut cutter = Cutter { testbed, plan, random: Prng::new(1) };
    cutter.testbed.prepare_faults().map_err(|error| error.to_string())?;
    pair.start(receiver, sender)?;
    pair.go()?;
    pair.pass(warmup)?;
    for &kind in &plan.kinds {
        for number in 0..plan.cuts as usize {
            cuts.add(cutter.cut(pair, Place::of(kind, number, links))?);
        }
    }
    pair.pass(Duration::from_nanos((plan.pause_ns as f64 * CALM_AFTER) as u64))?;
    let now_ns = machine_ns();
    // A cut of no length: only what followed on the last one is left to be judged.
    cuts.close(judged(pair, Span { calm_ns: now_ns, cut_ns: now_ns, restored_ns: now_ns })?.aftermath_ns);
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
        let passed = self.switch(place, true).and_then(|()| pair.pass(outage));
        // Whatever happens meanwhile, the link is given back.
        let restored = self.switch(place, false);
        passed.and(restored)?;
        let judgement = judged(pair, Span { calm_ns, cut_ns, restored_ns: machine_ns() })?;
        let carried_share = share(&before, &after, place.link);
        Ok(Cut { place, cut_ns, judgement, carried_share, aftermath_ns: None })
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

/// What the receiver says of a cut.
fn judged(pair: &mut Pair, span: Span) -> Result<Judgement, String> {
    pair.tell(Which::Receiver, &Order::Judge(span))?;
    match pair.wait(Which::Receiver, JUDGE_MAX)? {
        Event::Judged(judgement) => Ok(judgement),
        other => Err(format!("receiver: unexpected {other:?}")),
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
