//! Curves whose parameters are known, with the noise of real machines, and what the fit says of them.

use super::bootstrap::normal;
use super::*;
use crate::stats::Prng;

/// A curve that is known.
struct Planted {
    /// From which size on each line holds: bytes, us, Mbit/s.
    lines: Vec<(usize, f64, f64)>,
    sizes: Vec<usize>,
    samples: usize,
    /// Standard deviation of the logarithm.
    scatter: f64,
    /// Share of samples that are disturbed, by a tenth to twice as long.
    disturbed: f64,
    /// Share of samples in the far phase, and how many times as long these take.
    far: (f64, f64),
}

impl Planted {
    fn time_us(&self, size: usize) -> f64 {
        let (_, start_us, mbps) = self.lines.iter().rev().find(|line| line.0 <= size).unwrap();
        start_us + size as f64 * 8.0 / mbps
    }

    fn curve(&self, random: &mut Prng) -> Curve {
        let mut curve = Curve::default();
        for &size in &self.sizes {
            let one = |_| {
                let uniform = |random: &mut Prng| random.below(1_000_000) as f64 / 1e6;
                let disturbed =
                    if uniform(random) < self.disturbed { 1.1 + 0.9 * uniform(random) } else { 1.0 };
                let (share, longer) = self.far;
                let is_far = uniform(random) < share;
                let phase = if is_far { longer } else { 1.0 };
                let cacheline_ns = if is_far { 110.0 } else { 50.0 } * (1.0 + 0.2 * (uniform(random) - 0.5));
                let time_us = self.time_us(size) * (self.scatter * normal(random)).exp() * disturbed * phase;
                TimedSample { time_us, cacheline_ns: Some(cacheline_ns) }
            };
            let samples: Vec<TimedSample> = (0..self.samples).map(one).collect();
            curve.add(size, samples);
        }
        curve
    }
}

/// A curve that a machine might have: one way, or a second and a third that take longer to begin and pass bytes faster or slower;
/// samples that scatter by 2 to 5 %, 5 to 10 % of them disturbed, up to 30 % in the far phase.
fn drawn(random: &mut Prng) -> Planted {
    let pieces = 1 + random.below(3);
    let mut between = |low: f64, high: f64| low * (high / low).powf(random.below(1_000_000) as f64 / 1e6);
    let (mut start_us, mut mbps) = (between(3.0, 30.0), between(2_000.0, 16_000.0));
    // The shorter way's sizes show its bandwidth: half of it is reached before the break.
    let half = start_us * mbps / 8.0;
    let power = (half.log2().ceil() as u32 + 1).clamp(12, 15);
    let mut lines = vec![(0, start_us, mbps)];
    for piece in 1..pieces as u32 {
        start_us *= between(1.5, 3.0);
        mbps *= if between(1.0, 2.0) < 1.4 { between(1.5, 4.0) } else { 1.0 / between(1.5, 4.0) };
        lines.push(((1_usize << (power + 3 * (piece - 1))) + 1, start_us, mbps));
    }
    Planted {
        lines,
        sizes: (6..=22).map(|power| 1 << power).collect(),
        samples: 10,
        scatter: between(0.02, 0.05),
        disturbed: between(0.05, 0.1),
        far: (between(0.1, 0.3), 1.6),
    }
}

fn is_within(value: f64, truth: f64, share: f64) -> bool {
    (value / truth - 1.0).abs() <= share
}

/// How often a fit of a planted curve was right.
#[derive(Default, Debug)]
struct Score {
    start: usize,
    bandwidth: usize,
    broken: usize,
    all: usize,
    covered: usize,
    intervals: usize,
}

impl Score {
    fn add(&mut self, planted: &Planted, fitted: &Fitted) {
        let (lines, pieces) = (&planted.lines, &fitted.pieces);
        let start = is_within(pieces[0].t_start_us.value, lines[0].1, 0.1);
        let last_mbps = lines[lines.len() - 1].2;
        let bandwidth = is_within(pieces[pieces.len() - 1].bandwidth_mbps.value, last_mbps, 0.1);
        let steps = |after: f64, from: usize| (after.log2() - ((from - 1) as f64).log2()).abs();
        let broken = fitted.breaks.len() + 1 == lines.len()
            && fitted
                .breaks
                .iter()
                .zip(&lines[1..])
                .all(|(found, line)| steps(found.after_bytes.value, line.0) <= 1.0);
        self.start += usize::from(start);
        self.bandwidth += usize::from(bandwidth);
        self.broken += usize::from(broken);
        self.all += usize::from(start && bandwidth && broken);
        if pieces.len() == lines.len() {
            let pairs = pieces.iter().zip(lines);
            let truths =
                pairs.flat_map(|(piece, line)| [(piece.t_start_us, line.1), (piece.bandwidth_mbps, line.2)]);
            for (interval, truth) in truths {
                self.intervals += 1;
                self.covered += usize::from(interval.low <= truth && truth <= interval.high);
            }
        }
    }
}

#[test]
fn what_was_planted_is_found_in_nineteen_of_twenty_curves_and_intervals_cover_it_as_often_as_they_say() {
    let mut score = Score::default();
    let trials = 200;
    for seed in 0..trials as u64 {
        let mut random = Prng::new(seed);
        let planted = drawn(&mut random);
        score.add(&planted, &Fitted::of(&planted.curve(&mut random)).unwrap());
    }
    let share = score.covered as f64 / score.intervals as f64;
    println!("of {trials} curves {score:?}, {:.1} % of the intervals cover", share * 100.0);
    for found in [score.start, score.bandwidth, score.broken] {
        assert!(found * 20 >= 19 * trials, "{score:?} of {trials}");
    }
    assert!((0.90..=0.97).contains(&share), "{share} of intervals cover the truth");
}

/// One line, eleven sizes.
fn plain() -> Planted {
    Planted {
        lines: vec![(0, 10.0, 8_000.0)],
        sizes: (6..=16).map(|power| 1 << power).collect(),
        samples: 10,
        scatter: 0.02,
        disturbed: 0.0,
        far: (0.0, 1.0),
    }
}

fn fitted(planted: &Planted) -> Fitted {
    Fitted::of(&planted.curve(&mut Prng::new(1))).unwrap()
}

#[test]
fn nothing_is_said_of_sizes_beyond_those_measured() {
    let model = fitted(&plain());
    let time = model.time_us(3_000).unwrap();
    assert!(time.low < 13.0 && 13.0 < time.high && time.high - time.low < 1.0, "{time:?}");
    for bytes in [63, 65_537, 1 << 30] {
        let refused = model.time_us(bytes).unwrap_err();
        assert!(
            refused.contains("64 to 65536 B") && refused.contains(&format!("--size {bytes}")),
            "{refused}"
        );
    }
    let broken = Planted { lines: vec![(0, 10.0, 8_000.0), (4_097, 40.0, 8_000.0)], ..plain() };
    assert!(fitted(&broken).time_us(6_000).unwrap_err().contains("where the line changes"));
}

#[test]
fn half_of_the_bandwidth_is_reached_where_the_bytes_take_as_long_as_the_start() {
    let model = fitted(&plain());
    let (half, most) = (model.n_half_bytes.unwrap(), model.n_90_bytes);
    assert!(
        half.low <= 10_000.0 && 10_000.0 <= half.high && is_within(half.value, 10_000.0, 0.1),
        "{half:?}"
    );
    assert!(most.is_none(), "90,000 B were not measured: {most:?}");
}

#[test]
fn bytes_that_pass_too_fast_to_be_seen_have_no_bandwidth() {
    let flat = Planted { lines: vec![(0, 10.0, 1e9)], sizes: vec![64, 128, 256, 512, 1_024], ..plain() };
    let model = fitted(&flat);
    assert!(!model.pieces[0].shows_bandwidth() && model.n_half_bytes.is_none(), "{:?}", model.pieces);
}

#[test]
fn too_few_sizes_and_samples_are_refused_with_what_to_measure() {
    let refused = |planted: Planted| Fitted::of(&planted.curve(&mut Prng::new(1))).unwrap_err();
    assert!(refused(Planted { sizes: vec![64, 128, 256], ..plain() }).contains("3 sizes"));
    assert!(refused(Planted { samples: 2, ..plain() }).contains("--repeat 5"));
}

#[test]
fn samples_of_the_other_phase_are_left_out_and_counted() {
    let mixed = Planted { far: (0.3, 3.0), ..plain() };
    let model = fitted(&mixed);
    assert!(is_within(model.pieces[0].t_start_us.value, 10.0, 0.05), "{:?}", model.pieces);
    assert!(model.notes[0].contains("of 110 samples were taken in another phase"), "{:?}", model.notes);
}

#[test]
fn where_no_phase_has_each_size_all_samples_stay_and_that_is_said() {
    let mut curve = Curve::default();
    let add = |curve: &mut Curve, planted: &Planted| {
        for point in planted.curve(&mut Prng::new(1)).points() {
            curve.add(point.size_bytes, point.samples.iter().copied());
        }
    };
    let sizes = plain().sizes;
    add(&mut curve, &Planted { sizes: sizes[..5].to_vec(), ..plain() });
    add(&mut curve, &Planted { sizes: sizes[5..].to_vec(), far: (1.0, 3.0), ..plain() });
    let model = Fitted::of(&curve).unwrap();
    assert!(model.notes[0].contains("no phase has 3 samples of each size"), "{:?}", model.notes);
    assert!(model.residuals.iter().all(|one| one.samples == 10));
}

#[test]
fn a_machine_that_changes_between_sizes_widens_the_intervals_and_is_told() {
    let calm = fitted(&plain());
    let mut random = Prng::new(5);
    let mut curve = Curve::default();
    for point in plain().curve(&mut Prng::new(1)).points() {
        let slower = (0.1 * normal(&mut random)).exp();
        let samples = point.samples.iter();
        curve.add(point.size_bytes, samples.map(|one| TimedSample { time_us: one.time_us * slower, ..*one }));
    }
    let moody = Fitted::of(&curve).unwrap();
    let width = |model: &Fitted| model.pieces[0].t_start_us.high - model.pieces[0].t_start_us.low;
    assert!(width(&moody) > 3.0 * width(&calm), "{} {}", width(&moody), width(&calm));
    assert!(
        moody.notes.iter().any(|note| note.contains("the machine changed between sizes")),
        "{:?}",
        moody.notes
    );
    assert!(calm.notes.is_empty() && calm.breaks.is_empty(), "{:?}", calm.notes);
}
