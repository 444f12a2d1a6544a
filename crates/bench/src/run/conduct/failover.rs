//! Two flows, and links that are cut beneath them one after the other.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Part;
use crate::args::FailoverPlan;
use crate::clock::machine_ns;
use crate::control::{Event, Order, SideReport, Span};
use crate::failover::{Cut, GET_OVER_NS, Judgement, Kind, Look, Place, Returned, Reuse, STEP_NS};
use crate::netns::Testbed;
use crate::run::pair::{DRAIN_MAX, OVERTIME_MAX, Pair, Sample, Which};
use crate::stats::Prng;

/// How often it is looked whether a link that came back is used again.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A link that flaps is down for so long, then up for as long: ten times a second.
const FLAP_NS: u64 = 50_000_000;
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
    let mut looks = Vec::new();
    let error = run(&mut pair, receiver, sender, testbed, plan, &mut cuts, &mut looks);
    Sample { cuts: cuts.made, looks, error: error.err(), ..pair.sample() }
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

    /// So is what became of its link.
    fn returned(&mut self, reuse: Reuse) {
        if let Some(last) = self.made.last_mut() {
            last.reuse = reuse;
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
    looks: &mut Vec<Look>,
) -> Result<(), String> {
    // A handle of its own: switching changes it, and it removes nothing when it is dropped.
    let testbed = Testbed::open(&testbed.spec().name).map_err(|error| error.to_string())?;
    let links = testbed.spec().links.len();
    let warmup = Duration::from_nanos(sender.1.warmup_ns);
    let mut cutter = Cutter { testbed, plan, random: Prng::new(1), returned: None, looks };
    cutter.testbed.prepare_faults().map_err(|error| error.to_string())?;
    pair.start(receiver, sender)?;
    pair.go()?;
    cutter.pass(pair, machine_ns() + warmup.as_nanos() as u64)?;
    for &kind in &plan.kinds {
        for number in 0..plan.cuts as usize {
            let quiet = cutter.quiet(pair)?;
            cuts.returned(cutter.reuse());
            cuts.add(cutter.cut(pair, Place::of(kind, number, links), &quiet)?);
        }
    }
    let calm_ns = cutter.rest_at_the_end(pair)?;
    cuts.returned(cutter.reuse());
    let now_ns = machine_ns();
    // A cut of no length: only what followed on the last one is left to be judged.
    let span = Span {
        calm_ns,
        cut_ns: now_ns,
        counted_from_ns: now_ns,
        counted_until_ns: now_ns,
        restored_ns: now_ns,
    };
    cuts.close(cutter.judged(pair, span)?.aftermath_ns);
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
    /// The link that was given back last.
    returned: Option<Returned>,
    /// What had left over each link from time to time.
    looks: &'a mut Vec<Look>,
}

/// The pause before a cut.
struct Quiet {
    /// From here on nothing was disturbed, in ns.
    calm_ns: u64,
    /// What had left over each link, shortly before the cut and right before it.
    looks: [Look; 2],
}

/// A link while it is away.
struct Away {
    /// When it had gone, in ns: the command that took it away was through.
    gone_ns: u64,
    flaps: u32,
}

impl Cutter<'_> {
    /// The pause before a cut, which shows how the last return went.
    fn quiet(&mut self, pair: &mut Pair) -> Result<Quiet, String> {
        let pause_ns = self.about(self.plan.pause_ns);
        let look_ns = CARRIED_NS.min(pause_ns / 4);
        let now_ns = machine_ns();
        self.rest(pair, now_ns + pause_ns - look_ns)?;
        let before = self.look(pair)?;
        self.rest(pair, before.at_ns + look_ns)?;
        let looks = [before, self.look(pair)?];
        Ok(Quiet { calm_ns: now_ns + calm_after_ns(pause_ns), looks })
    }

    /// One cut, from its beginning to its judgement.
    fn cut(&mut self, pair: &mut Pair, place: Place, quiet: &Quiet) -> Result<Cut, String> {
        let cut_ns = machine_ns();
        let away = self.away(pair, place);
        let counted_until_ns = machine_ns();
        // Whatever happens meanwhile, the link is given back.
        let restored = self.switch(place, false);
        let Away { gone_ns, flaps } = away?;
        restored?;
        let span = Span {
            calm_ns: quiet.calm_ns,
            cut_ns,
            counted_from_ns: gone_ns + GET_OVER_NS,
            counted_until_ns,
            restored_ns: machine_ns(),
        };
        let rate_mbit = self.testbed.spec().links[place.link].rate_mbit;
        self.returned = Some(Returned::new(place.link, rate_mbit, span.restored_ns));
        let judgement = self.judged(pair, span)?;
        let [before, after] = &quiet.looks;
        let carried_share = after.share_since(before, place.link);
        let reuse = Reuse::Unknown;
        let restored_ns = span.restored_ns;
        Ok(Cut { place, cut_ns, restored_ns, judgement, carried_share, aftermath_ns: None, reuse, flaps })
    }

    /// Takes a link away for the time of an outage; giving it back is left to the caller.
    fn away(&mut self, pair: &mut Pair, place: Place) -> Result<Away, String> {
        let begun_ns = machine_ns();
        self.switch(place, true)?;
        let gone_ns = machine_ns();
        if let (Kind::Flapping, Some(flapping_ns)) = (place.kind, self.plan.flapping_ns) {
            let flaps = self.flap(pair, place, begun_ns, flapping_ns)?;
            return Ok(Away { gone_ns, flaps });
        }
        let until_ns = machine_ns() + self.about(self.plan.outage_ns);
        self.pass(pair, until_ns)?;
        Ok(Away { gone_ns, flaps: 0 })
    }

    /// Lets a link that went down at `begun_ns` come up and go down until it is down for the last time; how often it went down.
    fn flap(&mut self, pair: &mut Pair, place: Place, begun_ns: u64, length_ns: u64) -> Result<u32, String> {
        let (mut flaps, mut switched_ns) = (1, begun_ns);
        loop {
            // From the beginning of one command to that of the next: what they take is part of the time.
            pass_until(pair, switched_ns + FLAP_NS)?;
            switched_ns = machine_ns();
            if switched_ns + FLAP_NS + FLAP_NS / 2 >= begun_ns + length_ns {
                return Ok(flaps);
            }
            self.switch(place, false)?;
            pass_until(pair, switched_ns + FLAP_NS)?;
            switched_ns = machine_ns();
            self.switch(place, true)?;
            flaps += 1;
            self.look(pair)?;
        }
    }

    /// What the receiver says of a cut; how its link is used is watched meanwhile.
    fn judged(&mut self, pair: &mut Pair, span: Span) -> Result<Judgement, String> {
        pair.tell(Which::Receiver, &Order::Judge(span))?;
        let given_up_ns = machine_ns() + JUDGE_MAX.as_nanos() as u64;
        while self.is_watching() && machine_ns() < given_up_ns {
            self.look(pair)?;
            pair.pass(LOOK_EVERY)?;
            if let Some(event) = pair.heard(Which::Receiver)? {
                return judgement(event);
            }
        }
        judgement(pair.wait(Which::Receiver, JUDGE_MAX)?)
    }

    /// Lets time pass and watches the link that came back last.
    fn rest(&mut self, pair: &mut Pair, until_ns: u64) -> Result<(), String> {
        while self.is_watching() && machine_ns() < until_ns {
            self.look(pair)?;
            pair.pass(LOOK_EVERY)?;
        }
        self.pass(pair, until_ns)
    }

    /// Lets time pass, and looks once for each step of the timeline what left over each link.
    fn pass(&mut self, pair: &mut Pair, until_ns: u64) -> Result<(), String> {
        loop {
            let next_ns = machine_ns() + STEP_NS;
            if next_ns >= until_ns {
                return pass_until(pair, until_ns);
            }
            // The first look comes late: right behind a cut, and until its gap is over, nobody else is to want the sender's core.
            pass_until(pair, next_ns)?;
            self.look(pair)?;
        }
    }

    /// What follows on the last cut: half a pause, which shows how its return went, and the other half for as long as its link is
    /// not used. Gives where that begins.
    fn rest_at_the_end(&mut self, pair: &mut Pair) -> Result<u64, String> {
        let half_ns = calm_after_ns(self.plan.pause_ns);
        let calm_ns = machine_ns() + half_ns;
        self.rest(pair, calm_ns)?;
        while self.is_watching() && machine_ns() < calm_ns + self.plan.pause_ns - half_ns {
            self.look(pair)?;
            pair.pass(LOOK_EVERY)?;
        }
        Ok(calm_ns)
    }

    /// Bytes that left the sender over each link so far; the link that came back last is judged by them.
    fn look(&mut self, pair: &mut Pair) -> Result<Look, String> {
        pair.tell(Which::Sender, &Order::Carried)?;
        match pair.wait(Which::Sender, OVERTIME_MAX)? {
            Event::Carried { at_ns, bytes } => {
                let look = Look { at_ns, bytes };
                self.returned.iter_mut().for_each(|returned| returned.take(&look));
                if self.looks.last().is_none_or(|last| last.at_ns + STEP_NS / 2 <= at_ns) {
                    self.looks.push(look.clone());
                }
                Ok(look)
            }
            other => Err(format!("sender: unexpected {other:?}")),
        }
    }

    /// Whether a link came back that is not used yet.
    fn is_watching(&self) -> bool {
        self.returned.as_ref().is_some_and(|returned| !returned.is_used())
    }

    /// What became of the link that came back last.
    fn reuse(&self) -> Reuse {
        self.returned.as_ref().map_or(Reuse::Unknown, Returned::reuse)
    }

    fn switch(&mut self, place: Place, cut: bool) -> Result<(), String> {
        let switched = match place.kind {
            Kind::Carrier | Kind::Flapping => self.testbed.carrier(place.link, place.node, !cut),
            Kind::Blackhole => self.testbed.black_hole(place.link, place.node, place.direction, cut),
        };
        switched.map_err(|error| error.to_string())
    }

    /// A time give or take a tenth: cuts must not fall into step with a protocol's timers.
    fn about(&mut self, ns: u64) -> u64 {
        ns * 9 / 10 + self.random.below((ns / 5) as usize + 1) as u64
    }
}

fn judgement(event: Event) -> Result<Judgement, String> {
    match event {
        Event::Judged(judgement) => Ok(judgement),
        other => Err(format!("receiver: unexpected {other:?}")),
    }
}

fn pass_until(pair: &mut Pair, until_ns: u64) -> Result<(), String> {
    pair.pass(Duration::from_nanos(until_ns.saturating_sub(machine_ns())))
}

/// How long after a return the calm begins.
fn calm_after_ns(pause_ns: u64) -> u64 {
    (pause_ns as f64 * CALM_AFTER) as u64
}
