//! A quick measurement: everything is looked at some times, what is close to the best six times more, what is then still open for
//! longer, and when time is up the rest is named with the command that measures it.

use std::fs;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::longer::most_open;
use super::question::{Question, figure, groups, rank};
use super::sizes::WHAT as SIZES;
use crate::args::{AdviseArgs, BenchArgs, LoadArgs, Placement};
use crate::protocol;
use crate::report::Measured;
use crate::run::measure;
use crate::stats::median;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Repetitions of the first look, where that takes no more than a part of the time that is left, and else.
const LOOK: u32 = 4;
const LOOK_PART: f64 = 0.25;
const LOOK_IN_HASTE: u32 = 2;
/// Repetitions of the second.
const LOOK_AGAIN: u32 = 6;
/// What is worse than the best by more than this at the first look is not looked at again.
const CLOSE: f64 = 1.3;
/// So many of the best are looked at again, and beside them the simplest that is close.
const BEST: usize = 4;
/// Warm-up and window of a sample, in seconds.
const WARMUP_S: f64 = 0.03;
const WINDOW_S: f64 = 0.06;
/// The window of links with a rate: large messages are few in the other one, and the links' buckets a good part of them.
const THROTTLED_S: f64 = 0.2;
/// What a sample takes with all that is around it, until it is known better.
const SAMPLE_S: f64 = 0.35;
/// Messages per second of a program that has something to say now and then.
const SELDOM_PER_S: u64 = 1_000;

/// What there was no time for, or what failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unknown {
    pub(super) what: String,
    /// What would tell.
    pub(super) command: String,
}

/// What was measured.
#[derive(Default)]
pub(super) struct Quick {
    pub(super) documents: Vec<Measured>,
    pub(super) unknown: Vec<Unknown>,
    pub(super) error: Option<String>,
    /// What each document was measured by.
    orders: Vec<BenchArgs>,
    pace: Pace,
}

/// Samples taken so far, and seconds that they took.
#[derive(Default)]
struct Pace {
    samples: f64,
    taken_s: f64,
}

impl Pace {
    fn sample_s(&self) -> f64 {
        if self.samples > 0.0 { self.taken_s / self.samples } else { SAMPLE_S }
    }
}

impl Quick {
    /// What documents have that are there already.
    pub(super) fn of(documents: Vec<Measured>) -> Self {
        Self { documents, ..Self::default() }
    }
}

/// Measures what `asked` asks for, within its limit.
pub(super) fn quick(asked: &AdviseArgs) -> Quick {
    let mut quick = Quick::default();
    let deadline = Instant::now() + Duration::from_secs_f64(asked.limit);
    for placement in &asked.placement {
        for (workload, sizes) in cases(asked.placement.len() > 1) {
            let one = BenchArgs { size: words(sizes), ..base(asked, placement, workload) };
            quick.protocols(&one, asked, deadline);
        }
    }
    quick.what_is_open(asked, deadline);
    for (what, one) in further(asked) {
        quick.step(what, one, asked, deadline);
    }
    quick.what_is_open(asked, deadline);
    quick
}

/// Patterns and sizes at which protocols are compared.
fn cases(several_placements: bool) -> Vec<(Workload, &'static [&'static str])> {
    if several_placements {
        return vec![
            (Workload::PingPong, &["64"]),
            (Workload::Stream, &["64K"]),
            (Workload::Transact, &["128"]),
        ];
    }
    vec![
        (Workload::PingPong, &["64", "16K"]),
        (Workload::Stream, &["64K", "1M"]),
        (Workload::Transact, &["128"]),
    ]
}

fn words(sizes: &[&str]) -> Vec<String> {
    sizes.iter().map(|&size| size.to_owned()).collect()
}

fn base(asked: &AdviseArgs, placement: &Placement, workload: Workload) -> BenchArgs {
    let inter = *placement == Placement::Inter;
    BenchArgs {
        workload: Some(workload),
        placement: vec![placement.clone()],
        links: inter.then_some(asked.links),
        rate: if inter { vec![asked.rate.clone()] } else { Vec::new() },
        wait: vec![asked.wait],
        warmup: Some(WARMUP_S),
        duration: Some(WINDOW_S),
        ..BenchArgs::default()
    }
}

/// The window for what decides.
fn window_s(one: &BenchArgs) -> f64 {
    let throttled = one.rate.iter().any(|rate| rate.split(':').any(|link| link != "0"));
    let is_one_way = one.workload.is_some_and(Workload::is_one_way);
    if throttled && is_one_way { THROTTLED_S } else { WINDOW_S }
}

/// What else is measured, of Polyrail, where it is measured first.
fn further(asked: &AdviseArgs) -> Vec<(&'static str, BenchArgs)> {
    let Some(placement) = asked.placement.first() else { return Vec::new() };
    let ours = |workload, size: &[&str], repeat| BenchArgs {
        protocol: vec!["polyrail".to_owned()],
        size: words(size),
        repeat: Some(repeat),
        ..base(asked, placement, workload)
    };
    let mut all = Vec::new();
    if asked.links > 1 && asked.placement.contains(&Placement::Inter) {
        let links = ours(Workload::Links, &["64K", "1M"], LOOK_AGAIN);
        let (placement, rate) = (vec![Placement::Inter], vec![asked.rate.clone()]);
        all.push((
            Question::FurtherLinks.name(),
            BenchArgs { placement, rate, links: Some(asked.links), ..links },
        ));
    }
    let wait = vec![WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block];
    let seldom = LoadArgs { arrivals: vec![SELDOM_PER_S], ..LoadArgs::default() };
    all.push((
        Question::Wait.name(),
        BenchArgs { wait: wait.clone(), load: seldom, ..ours(Workload::OpenLoop, &["64"], LOOK_AGAIN) },
    ));
    all.push((
        "how to wait for answers",
        BenchArgs { wait, ..ours(Workload::PingPong, &["64"], LOOK_AGAIN) },
    ));
    all.push((SIZES, ours(Workload::Stream, &["256", "1K", "4K", "16K", "64K", "256K", "1M"], 3)));
    let buffers = BenchArgs {
        socket_buffer_max: vec![16 << 10, 64 << 10, 256 << 10, 1 << 20],
        ..ours(Workload::Buffer, &["16K"], LOOK_AGAIN)
    };
    let protocol = if *placement == Placement::Inter { "polyrail" } else { "tcp-cubic" };
    all.push((Question::SocketBuffer.name(), BenchArgs { protocol: vec![protocol.to_owned()], ..buffers }));
    all
}

impl Quick {
    /// Looks at every protocol, then at those that are close to the best.
    fn protocols(&mut self, one: &BenchArgs, asked: &AdviseArgs, deadline: Instant) {
        let inter = one.placement == [Placement::Inter];
        let is_asked = |protocol: &&dyn protocol::Protocol| {
            let leaves = protocol.reach() != protocol::Reach::Machine;
            protocol.is_usual() && protocol.reliable() && protocol.available().is_ok() && (leaves || !inter)
        };
        let all = protocol::all().into_iter().filter(is_asked).map(|protocol| protocol.name().to_owned());
        let first = BenchArgs { protocol: all.collect(), repeat: Some(LOOK), ..one.clone() };
        let in_haste = self.expected_s(&first) > LOOK_PART * left_s(deadline);
        let first = BenchArgs { repeat: Some(if in_haste { LOOK_IN_HASTE } else { LOOK }), ..first };
        let what = format!("protocols, {}, first look", one.workload.map_or("", Workload::name));
        let Some(place) = self.step(&what, first, asked, deadline) else { return };
        for (size, close) in close(&self.documents[place]) {
            let again = BenchArgs {
                protocol: close,
                size: vec![size.to_string()],
                repeat: Some(LOOK_AGAIN),
                duration: Some(window_s(one)),
                ..one.clone()
            };
            self.step("protocols that are close", again, asked, deadline);
        }
    }

    /// Each look that is longer takes one open choice away, or time is up.
    fn what_is_open(&mut self, asked: &AdviseArgs, deadline: Instant) {
        while let Some(one) = most_open(&self.documents, &self.orders)
            && self.step("what is still open", one, asked, deadline).is_some()
        {}
    }

    /// How long an order will take.
    fn expected_s(&self, one: &BenchArgs) -> f64 {
        let longer_s = one.duration.map_or(0.0, |window_s| window_s - WINDOW_S);
        samples(one) * (self.pace.sample_s() + longer_s)
    }

    /// Measures one thing, if there is time; gives the place of its document.
    fn step(&mut self, what: &str, one: BenchArgs, asked: &AdviseArgs, deadline: Instant) -> Option<usize> {
        let (expected_s, left_s) = (self.expected_s(&one), left_s(deadline));
        let unknown = |why: &str| Unknown { what: format!("{what}: {why}"), command: command(&one) };
        if self.error.is_some() || expected_s > left_s {
            let unknown = unknown("no time was left");
            // What is open is asked for twice.
            if !self.unknown.contains(&unknown) {
                self.unknown.push(unknown);
            }
            return None;
        }
        eprintln!("{what}: about {:.0} s, {left_s:.0} s are left", expected_s);
        let began = Instant::now();
        let report = measure(&one);
        self.pace.taken_s += began.elapsed().as_secs_f64();
        self.pace.samples += samples(&one);
        let number = self.documents.len() + 1;
        let name = format!("{number:02}-{}.json", one.workload.map_or("", Workload::name));
        let kept = asked.keep.as_ref().map_or(Ok(()), |folder| {
            let write =
                fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(&name), report.json()));
            write.map_err(|error| {
                format!("--keep {}: {error}: name a folder that can be written to", folder.display())
            })
        });
        match kept.and_then(|()| Measured::parse(&name, &report.json())) {
            Ok(measured) => {
                self.documents.push(measured);
                self.orders.push(one.clone());
            }
            Err(error) => {
                self.error = Some(error);
                return None;
            }
        }
        if let Some(error) = report.error() {
            self.unknown.push(unknown(error));
            // A run that was stopped, or a testbed that cannot be made: what follows would end alike.
            self.error = Some(format!("{what}: {error}"));
        }
        Some(self.documents.len() - 1)
    }
}

fn left_s(deadline: Instant) -> f64 {
    deadline.saturating_duration_since(Instant::now()).as_secs_f64()
}

/// How many samples an order takes.
fn samples(one: &BenchArgs) -> f64 {
    let links = if one.workload == Some(Workload::Links) { one.links.map_or(1, usize::from) } else { 1 };
    let lists = [one.protocol.len(), one.size.len(), one.wait.len(), one.socket_buffer_max.len(), links];
    let all: usize = lists.into_iter().map(|count| count.max(1)).product();
    all as f64 * f64::from(one.repeat.unwrap_or(1))
}

/// For each size the protocols that are close to the best, two at least.
fn close(measured: &Measured) -> Vec<(usize, Vec<String>)> {
    let all = std::slice::from_ref(measured);
    let of = |group: &super::question::Group| {
        let (_, row) = group.rows.first()?;
        figure(row)?;
        let mut by_loss: Vec<(f64, String)> = group
            .rows
            .iter()
            .filter_map(|(_, row)| {
                let (_, better, values) = figure(row)?;
                let middle = median(&values.iter().flatten().copied().collect::<Vec<_>>())?;
                let loss = if better == super::choice::Better::Lower { middle } else { 1.0 / middle };
                Some((loss, row.protocol.clone()))
            })
            .collect();
        by_loss.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best = by_loss.first()?.0;
        let is_close = |place: usize, loss: f64| place < 2 || loss <= CLOSE * best;
        let close = by_loss.into_iter().enumerate().filter(|(place, (loss, _))| is_close(*place, *loss));
        let close: Vec<String> = close.map(|(_, (_, name))| name).collect();
        let simplest = close.iter().skip(BEST).min_by_key(|name| rank(name)).cloned();
        Some((row.size, close.into_iter().take(BEST).chain(simplest).collect()))
    };
    groups(Question::Protocol, all).iter().filter_map(of).collect()
}

/// The command line that measures this at length.
fn command(one: &BenchArgs) -> String {
    let mut words = vec!["polyrail bench".to_owned(), one.workload.map_or("", Workload::name).to_owned()];
    let mut list = |flag: &str, values: Vec<String>| {
        if !values.is_empty() {
            words.push(format!("{flag} {}", values.join(",")));
        }
    };
    list("--placement", one.placement.iter().map(ToString::to_string).collect());
    list("--links", one.links.iter().map(ToString::to_string).collect());
    list("--rate", one.rate.clone());
    list("--protocol", one.protocol.clone());
    list("--size", one.size.clone());
    list("--wait", one.wait.iter().map(|wait| wait.name().to_owned()).collect());
    list("--arrivals", one.load.arrivals.iter().map(ToString::to_string).collect());
    list("--socket-buffer-max", one.socket_buffer_max.iter().map(ToString::to_string).collect());
    words.push("--repeat 15 --json".to_owned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::parse;

    fn asked(placement: Vec<Placement>) -> AdviseArgs {
        AdviseArgs {
            files: Vec::new(),
            placement,
            links: 2,
            rate: "1000:100".to_owned(),
            wait: WaitMode::Adaptive,
            limit: 110.0,
            keep: None,
            against: Vec::new(),
            toml: false,
        }
    }

    #[test]
    fn every_order_is_allowed_and_its_command_line_asks_for_the_same() {
        for placement in
            [vec![Placement::Inter], vec![Placement::Intra], vec![Placement::Inter, Placement::Intra]]
        {
            let asked = asked(placement);
            let of_case = |(workload, sizes)| BenchArgs {
                size: words(sizes),
                ..base(&asked, &asked.placement[0], workload)
            };
            let mut orders: Vec<BenchArgs> =
                cases(asked.placement.len() > 1).into_iter().map(of_case).collect();
            orders.extend(further(&asked).into_iter().map(|(_, order)| order));
            for order in orders {
                let line = command(&order);
                let plan = order.plan().expect(&line);
                let told = parse(line.strip_prefix("polyrail bench ").expect(&line))
                    .expect(&line)
                    .plan()
                    .expect(&line);
                assert_eq!((told.environments, told.points), (plan.environments, plan.points), "{line}");
            }
        }
    }

    #[test]
    fn streams_over_links_with_a_rate_are_looked_at_for_longer() {
        let of = |workload, rate: &str| BenchArgs {
            workload: Some(workload),
            rate: vec![rate.to_owned()],
            ..BenchArgs::default()
        };
        assert_eq!(window_s(&of(Workload::Stream, "1000:0")), THROTTLED_S);
        assert_eq!(window_s(&of(Workload::Stream, "0")), WINDOW_S);
        assert_eq!(window_s(&of(Workload::PingPong, "1000")), WINDOW_S);
    }
}
