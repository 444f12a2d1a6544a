//! Lines through stretches of sizes, and how many stretches the evidence bears.
//!
//! For each number of pieces the best places to break are found by trying all (by dynamic programming); of these the number is
//! chosen by the Bayesian criterion: twice as small a scatter about the lines is worth only so many parameters.
//! Two things keep chance from being taken for a break. The scatter is divided by the points that are left when each parameter
//! has used up one, and no scatter counts as smaller than what the samples themselves leave open, and [`MATTERS`].

use super::level::Level;
use super::line::{Line, Sums};

/// A line that misses by a share smaller than this is right: nobody needs a break for it.
const MATTERS: f64 = 0.01;
/// Two points lie on any line: a third has to agree.
pub(super) const PIECE_POINTS_MIN: usize = 3;
/// More than this tells of the machine's moods.
const PIECES_MAX: usize = 4;

/// Where each piece begins, by place among the levels, and its line.
pub(super) type Pieces = Vec<(usize, Line)>;

/// Levels of which any stretch's line can be told at once.
pub(super) struct Stretches {
    /// Of the levels before each place.
    before: Vec<Sums>,
}

impl Stretches {
    pub(super) fn new(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let add = |sums: &mut Sums, (bytes, time_us): (f64, f64)| {
            *sums = sums.with(bytes, time_us);
            Some(*sums)
        };
        let before = std::iter::once(Sums::default()).chain(points.scan(Sums::default(), add)).collect();
        Self { before }
    }

    fn len(&self) -> usize {
        self.before.len() - 1
    }

    /// The best line through a stretch, and the sum of the squares of what it misses by.
    fn line(&self, from: usize, to: usize) -> (Line, f64) {
        let sums = self.before[to].without(self.before[from]);
        let line = sums.line();
        (line, sums.squares(line))
    }

    /// The best so many pieces, and the sum of squares of what they miss by; none where there are too few points.
    pub(super) fn best(&self, count: usize) -> Option<(Pieces, f64)> {
        let points = self.len();
        if points < count * PIECE_POINTS_MIN {
            return None;
        }
        // least[piece][end]: sum of squares of `piece + 1` pieces up to `end`, and where the last of them begins.
        let mut least: Vec<Vec<(f64, usize)>> = vec![(0..=points).map(|end| (self.first(end), 0)).collect()];
        for piece in 1..count {
            let last = &least[piece - 1];
            let end = |end: usize| {
                let starts = piece * PIECE_POINTS_MIN..(end + 1).saturating_sub(PIECE_POINTS_MIN);
                let ways = starts.map(|start| (last[start].0 + self.line(start, end).1, start));
                ways.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
            };
            least.push((0..=points).map(end).collect());
        }
        let squares = least[count - 1][points].0;
        let mut end = points;
        let mut pieces = Pieces::new();
        for ways in least.iter().rev() {
            let start = ways[end].1;
            pieces.push((start, self.line(start, end).0));
            end = start;
        }
        pieces.reverse();
        Some((pieces, squares))
    }

    fn first(&self, end: usize) -> f64 {
        if end < PIECE_POINTS_MIN { f64::INFINITY } else { self.line(0, end).1 }
    }
}

/// What was chosen.
pub(super) struct Chosen {
    pub(super) pieces: Pieces,
    /// The share by which the lines miss the levels: square root of the mean square for each point that is left.
    pub(super) misfit: f64,
    /// By how much the criterion prefers it to one piece fewer; none for one piece.
    pub(super) preference: Option<f64>,
}

/// The pieces that the evidence bears. At least [`PIECE_POINTS_MIN`] + 1 levels.
pub(super) fn choose(levels: &[Level]) -> Chosen {
    let stretches = Stretches::new(levels.iter().map(|level| (level.bytes, level.middle.exp())));
    let points = levels.len() as f64;
    let samples: f64 = levels.iter().map(|level| level.samples.len() as f64).sum();
    let open = levels.iter().map(|level| level.error * level.error).sum::<f64>() / points + MATTERS * MATTERS;
    let mut chosen: Option<(f64, Chosen)> = None;
    let mut fewer: Option<f64> = None;
    for count in 1..=PIECES_MAX {
        let parameters = 3.0 * count as f64 - 1.0;
        let left = points - parameters;
        let Some((pieces, squares)) = stretches.best(count).filter(|_| left >= 1.0) else { break };
        let variance = squares / left;
        let criterion = points * variance.max(open).ln() + parameters * samples.max(points).ln();
        if chosen.as_ref().is_none_or(|(least, _)| criterion < *least) {
            let preference = fewer.map(|fewer| fewer - criterion);
            chosen = Some((criterion, Chosen { pieces, misfit: variance.sqrt(), preference }));
        }
        fewer = Some(criterion);
    }
    let (_, chosen) = chosen.expect("one piece takes three points, and there are more");
    chosen
}
