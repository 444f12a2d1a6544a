//! The fit, and how far each of its parameters may be from what it says: everything is done again with samples drawn anew.
//!
//! A round starts from the fitted lines, adds to each size what the middle of samples drawn anew from that size's own differs
//! from theirs, and fits as many pieces as before, wherever they break now. Where the lines miss the levels by clearly more than
//! the samples leave open (sizes are measured one after the other, and the machine changes in between), that is added to each
//! size too: else the intervals would be those of a steadier machine.

use serde::Serialize;

use super::curve::Curve;
use super::level::{Level, levels, robust_middle};
use super::phase::one_phase;
use super::pieces::{Chosen, PIECE_POINTS_MIN, Pieces, Stretches, choose};
use crate::stats::Prng;

/// With fewer sizes a line is no model: it passes through any two points.
pub(super) const SIZES_MIN: usize = PIECE_POINTS_MIN + 1;
/// With fewer samples of a size nothing is known of its scatter.
pub(super) const SAMPLES_MIN: usize = 3;
/// Rounds of drawing: the ends of an interval move by a few percent of its width.
const ROUNDS: usize = 400;
/// Ends of the 95 % interval among the sorted rounds.
const LOW: usize = ROUNDS * 25 / 1000;
const HIGH: usize = ROUNDS - 1 - LOW;
/// From so many times the error of the levels on the lines miss them by more than chance.
const MISSES_FROM: f64 = 1.5;
/// A fixed seed: the same samples give the same intervals.
const SEED: u64 = 1;

/// A value with its 95 % interval. An end that is infinite is not known, and null in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// From what the rounds gave.
    pub(super) fn of(value: f64, mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |place: usize| rounds.get(place * rounds.len() / ROUNDS).copied().unwrap_or(value);
        Self { value, low: at(LOW).min(value), high: at(HIGH).max(value) }
    }
}

/// One stretch of sizes with its line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Piece {
    pub(crate) from_bytes: usize,
    pub(crate) to_bytes: usize,
    /// What a message takes however short it is.
    pub(crate) t_start_us: Interval,
    /// By which further bytes pass; an infinite one is too fast to be seen at these sizes.
    pub(crate) bandwidth_mbps: Interval,
}

impl Piece {
    /// Whether its sizes show a bandwidth.
    pub(crate) fn shows_bandwidth(&self) -> bool {
        self.bandwidth_mbps.high.is_finite()
    }
}

/// Between which sizes the line changes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Break {
    /// The last size of the piece before, and the interval of that.
    pub(crate) after_bytes: Interval,
    /// The first size of the piece behind.
    pub(crate) before_bytes: usize,
}

/// What was measured of a size, and what the model says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Residual {
    pub(crate) size_bytes: usize,
    pub(crate) measured_us: f64,
    pub(crate) fitted_us: f64,
    /// Measured by fitted, less one.
    pub(crate) residual_percent: f64,
    /// Standard error of what was measured.
    pub(crate) error_percent: f64,
    pub(crate) samples: usize,
    /// Samples that lie so far from the others that they do not count.
    pub(crate) outliers: usize,
}

/// A fitted model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fitted {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) breaks: Vec<Break>,
    /// Size from which half of the last piece's bandwidth is reached; none where no bandwidth shows or none of the sizes has it.
    pub(crate) n_half_bytes: Option<Interval>,
    /// The same of nine tenths.
    pub(crate) n_90_bytes: Option<Interval>,
    /// By which share the lines miss the levels.
    pub(crate) misfit_percent: f64,
    /// By how much the criterion prefers these pieces to one fewer: above 10 is clear. None for one piece.
    pub(crate) preference: Option<f64>,
    pub(crate) residuals: Vec<Residual>,
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    rounds: Vec<Pieces>,
    #[serde(skip)]
    chosen: Pieces,
    #[serde(skip)]
    sizes: Vec<usize>,
}

impl Fitted {
    /// Fits a curve.
    ///
    /// # Errors
    /// Too few sizes, or too few samples of one: one line for the user, with what to measure.
    pub(crate) fn of(curve: &Curve) -> Result<Self, String> {
        let phase = one_phase(curve);
        let sizes: Vec<usize> = phase.points.iter().map(|point| point.size_bytes).collect();
        if sizes.len() < SIZES_MIN {
            return Err(format!(
                "{} sizes, and a line takes {SIZES_MIN} to be wrong: measure more, such as --size 64..1M",
                sizes.len()
            ));
        }
        if let Some(point) = phase.points.iter().find(|point| point.samples.len() < SAMPLES_MIN) {
            return Err(format!(
                "{} samples of {} B, and intervals take {SAMPLES_MIN}: measure with --repeat 5 or more",
                point.samples.len(),
                point.size_bytes
            ));
        }
        let levels = levels(&phase.points);
        let chosen = choose(&levels);
        let rounds = rounds(&levels, &chosen);
        Ok(Self::from_rounds(&levels, sizes, chosen, rounds, phase.note))
    }

    fn from_rounds(
        levels: &[Level],
        sizes: Vec<usize>,
        chosen: Chosen,
        rounds: Vec<Pieces>,
        note: Option<String>,
    ) -> Self {
        let mut notes: Vec<String> = note.into_iter().collect();
        let open = mean_error(levels);
        if chosen.misfit > MISSES_FROM * open.max(super::level::SCATTER_MIN) {
            notes.push(format!(
                "the lines miss the sizes by {:.1} %, their samples scatter by {:.1} %: the machine changed between sizes, or the \
                 time is no line; the intervals are widened by that",
                chosen.misfit * 100.0,
                open * 100.0
            ));
        }
        let ends = |piece: usize| {
            let to = chosen.pieces.get(piece + 1).map_or(sizes.len(), |next| next.0);
            (sizes[chosen.pieces[piece].0], sizes[to - 1])
        };
        let of_rounds =
            |value: f64, of: &dyn Fn(&Pieces) -> f64| Interval::of(value, rounds.iter().map(of).collect());
        let piece = |place: usize| {
            let (from_bytes, to_bytes) = ends(place);
            let line = chosen.pieces[place].1;
            let mbps = |slope_us: f64| 8.0 / slope_us;
            Piece {
                from_bytes,
                to_bytes,
                t_start_us: of_rounds(line.start_us, &|pieces| pieces[place].1.start_us),
                bandwidth_mbps: of_rounds(mbps(line.slope_us), &|pieces| mbps(pieces[place].1.slope_us)),
            }
        };
        let brk = |place: usize| {
            let last = |pieces: &Pieces| sizes[pieces[place].0 - 1] as f64;
            Break {
                after_bytes: of_rounds(last(&chosen.pieces), &last),
                before_bytes: sizes[chosen.pieces[place].0],
            }
        };
        let share = |share: f64| {
            let value = reached(&chosen.pieces, &sizes, share);
            let of = |pieces: &Pieces| reached(pieces, &sizes, share);
            value.is_finite().then(|| of_rounds(value, &of))
        };
        let pieces: Vec<Piece> = (0..chosen.pieces.len()).map(piece).collect();
        let shows = pieces.last().is_some_and(Piece::shows_bandwidth);
        Self {
            breaks: (1..chosen.pieces.len()).map(brk).collect(),
            n_half_bytes: share(0.5).filter(|_| shows),
            n_90_bytes: share(0.9).filter(|_| shows),
            misfit_percent: chosen.misfit * 100.0,
            preference: chosen.preference,
            residuals: residuals(levels, &sizes, &chosen.pieces),
            notes,
            pieces,
            rounds,
            chosen: chosen.pieces,
            sizes,
        }
    }

    /// The time of a message of so many bytes.
    ///
    /// # Errors
    /// A size beyond those measured, or where the line changes: nothing is known there.
    pub(crate) fn time_us(&self, bytes: usize) -> Result<Interval, String> {
        let (first, last) = (self.sizes[0], self.sizes[self.sizes.len() - 1]);
        if !(first..=last).contains(&bytes) {
            return Err(format!(
                "{bytes} B is not within the sizes measured, {first} to {last} B: measure it, --size {bytes}"
            ));
        }
        let Some(place) =
            self.pieces.iter().position(|piece| (piece.from_bytes..=piece.to_bytes).contains(&bytes))
        else {
            return Err(format!(
                "{bytes} B is where the line changes, and nobody knows which one holds there: measure it, --size {bytes}"
            ));
        };
        let at = |pieces: &Pieces| pieces[place].1.at(bytes as f64);
        Ok(Interval::of(at(&self.chosen), self.rounds.iter().map(at).collect()))
    }
}

/// The pieces of each round.
fn rounds(levels: &[Level], chosen: &Chosen) -> Vec<Pieces> {
    let mut random = Prng::new(SEED);
    let open = mean_error(levels);
    let missed = chosen.misfit > MISSES_FROM * open;
    let beside = if missed { (chosen.misfit * chosen.misfit - open * open).max(0.0).sqrt() } else { 0.0 };
    let mut drawn = Vec::new();
    let mut one = |_| {
        let mut times = Vec::with_capacity(levels.len());
        for (place, level) in levels.iter().enumerate() {
            drawn.clear();
            drawn.extend((0..level.samples.len()).map(|_| level.samples[random.below(level.samples.len())]));
            let samples = level.samples.len() as f64;
            // Samples lie closer to their own middle than to the truth.
            let distance =
                (robust_middle(&drawn, level.scatter) - level.middle) * (samples / (samples - 1.0)).sqrt();
            let beside = if beside > 0.0 { beside * normal(&mut random) } else { 0.0 };
            times.push((level.bytes, fitted_us(&chosen.pieces, place, level) * (distance + beside).exp()));
        }
        let best = Stretches::new(times.into_iter()).best(chosen.pieces.len());
        best.map_or_else(|| chosen.pieces.clone(), |(pieces, _)| pieces)
    };
    (0..ROUNDS).map(&mut one).collect()
}

fn mean_error(levels: &[Level]) -> f64 {
    (levels.iter().map(|level| level.error * level.error).sum::<f64>() / levels.len() as f64).sqrt()
}

/// What the pieces say of a level. A line that passes below zero says nothing there: then what was measured.
fn fitted_us(pieces: &Pieces, place: usize, level: &Level) -> f64 {
    let of = pieces.iter().rev().find(|(start, _)| *start <= place);
    let time_us = of.map_or(0.0, |(_, line)| line.at(level.bytes));
    if time_us > 0.0 { time_us } else { level.middle.exp() }
}

fn residuals(levels: &[Level], sizes: &[usize], pieces: &Pieces) -> Vec<Residual> {
    let one = |(place, (level, &size_bytes)): (usize, (&Level, &usize))| {
        let (measured_us, fitted_us) = (level.middle.exp(), fitted_us(pieces, place, level));
        Residual {
            size_bytes,
            measured_us,
            fitted_us,
            residual_percent: (measured_us / fitted_us - 1.0) * 100.0,
            error_percent: level.error * 100.0,
            samples: level.samples.len(),
            outliers: level.outliers,
        }
    };
    levels.iter().zip(sizes).enumerate().map(one).collect()
}

/// The least of the sizes measured, and of those between within a piece, whose bytes pass at a share of the last piece's
/// bandwidth; infinite where none does.
fn reached(pieces: &Pieces, sizes: &[usize], share: f64) -> f64 {
    let Some((_, last)) = pieces.last() else { return f64::INFINITY };
    // In us for a byte.
    let aim_us = last.slope_us / share;
    for (place, (start, line)) in pieces.iter().enumerate() {
        let end = pieces.get(place + 1).map_or(sizes.len(), |next| next.0);
        let (from, to) = (sizes[*start] as f64, sizes[end - 1] as f64);
        if line.at(from) <= aim_us * from {
            return from;
        }
        let bytes = line.start_us / (aim_us - line.slope_us);
        if aim_us > line.slope_us && bytes <= to {
            return bytes.max(from);
        }
    }
    f64::INFINITY
}

/// A number of the normal distribution.
pub(super) fn normal(random: &mut Prng) -> f64 {
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let (radius, angle) = ((1.0 - uniform()).ln(), uniform());
    (-2.0 * radius).sqrt() * (std::f64::consts::TAU * angle).cos()
}
