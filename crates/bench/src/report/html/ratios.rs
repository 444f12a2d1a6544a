//! Ratios with the intervals in which the truth lies, one below the other, beside the line at 1, where both sides are alike.

use super::palette::Look;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::Unit;
use crate::stats::Ratio;

const ROW: f64 = 34.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 4.0;
const BELOW: f64 = 26.0;

/// One of them.
pub(super) struct Line<'a> {
    /// Above it at the left, and at the right; not too long for each other.
    pub(super) label: String,
    pub(super) number: String,
    pub(super) ratio: &'a Ratio,
    pub(super) look: Look,
    /// In words, for who points at it.
    pub(super) told: String,
    /// What is marked beside it: the ratio, its look, and what it is in words.
    pub(super) beside: Option<(f64, Look, String)>,
}

/// The picture; none of nothing. Left of the line at 1 it is shaded if that is `behind`.
pub(super) fn draw(title: &str, lines: &[Line], behind: bool) -> Option<String> {
    let ends = lines.iter().flat_map(|line| {
        let Ratio { low, median, high, .. } = *line.ratio;
        [low, median, high].into_iter().chain(line.beside.iter().map(|(ratio, ..)| *ratio))
    });
    let scale = Scale::log(ends.chain((!lines.is_empty()).then_some(1.0)), LEFT + 8.0, RIGHT - 8.0)?;
    let (top, bottom) = (TOP + 14.0, TOP + ROW * lines.len() as f64 + 4.0);
    let mut canvas = Canvas::new(WIDTH, bottom + BELOW, title);
    if behind {
        canvas.rect([LEFT, top], [scale.place(1.0) - LEFT, bottom - top], "behind", "");
    }
    canvas.lower_axis(&scale, [top, bottom], Unit::Plain, &scale.ticks(6));
    canvas.line([scale.place(1.0), top], [scale.place(1.0), bottom], "one");
    for (number, line) in lines.iter().enumerate() {
        line.draw(&mut canvas, &scale, TOP + ROW * number as f64 + 25.0);
    }
    Some(canvas.finish())
}

impl Line<'_> {
    fn draw(&self, canvas: &mut Canvas, scale: &Scale, y: f64) {
        canvas.line([LEFT, y], [RIGHT, y], "track");
        canvas.text([LEFT, y - 9.0], Anchor::Start, "name", &self.label);
        canvas.text([RIGHT, y - 9.0], Anchor::End, "number", &self.number);
        let [low, high] = [self.ratio.low, self.ratio.high].map(|ratio| [scale.place(ratio), y]);
        canvas.line(low, high, &format!("whisker {}", self.look.class()));
        if let Some((ratio, look, told)) = &self.beside {
            canvas.mark([scale.place(*ratio), y], *look, told);
        }
        canvas.mark([scale.place(self.ratio.median), y], self.look, &self.told);
    }
}
