//! Protocols held against one of them: how many times as fast that one is, with the range in which the truth lies, beside the line
//! at 1, where both are alike.

use super::escape::cut;
use super::group::{Chart, Series};
use super::palette::{Palette, is_limit};
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::Unit;
use super::versus::{Shown, Versus, times};

/// More make no picture but a list.
const ROWS_MAX: usize = 48;
const LABEL_CHARS_MAX: usize = 38;

const ROW: f64 = 34.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 4.0;
const BELOW: f64 = 26.0;

/// One comparison.
struct Line<'a> {
    series: &'a Series<'a>,
    place: u64,
    versus: Versus,
}

/// The protocol that others are held against: Polyrail, or one of its kinds, or else the first one that is no limit.
pub(super) fn reference<'a>(chart: &'a Chart<'a>) -> Option<&'a Series<'a>> {
    let candidates = || chart.series.iter().filter(|series| !is_limit(series.protocol));
    let named = candidates().find(|series| series.protocol == "polyrail");
    named
        .or_else(|| candidates().find(|series| series.protocol.starts_with("polyrail")))
        .or_else(|| candidates().next())
}

/// The picture; none where there is nothing to compare, and how many comparisons it leaves out.
pub(super) fn draw(chart: &Chart, palette: &Palette) -> Option<(String, usize)> {
    let metric = chart.metrics.first()?;
    let first = reference(chart)?;
    let others = chart.series.iter().filter(|series| {
        !std::ptr::eq(*series, first) && series.source == first.source && !is_limit(series.protocol)
    });
    let mut lines: Vec<Line> = Vec::new();
    for series in others {
        for (place, row) in &series.points {
            let Some(ours) = first.at(*place) else { continue };
            lines.extend(Versus::of(ours, row, metric).map(|versus| Line { series, place: *place, versus }));
        }
    }
    let left_out = lines.len().saturating_sub(ROWS_MAX);
    lines.truncate(ROWS_MAX);
    let ends = lines
        .iter()
        .flat_map(|line| [line.versus.ratio.low, line.versus.ratio.high, line.versus.ratio.median]);
    let scale = Scale::log(ends.chain((!lines.is_empty()).then_some(1.0)), LEFT + 8.0, RIGHT - 8.0)?;
    let bottom = TOP + ROW * lines.len() as f64 + 4.0;
    let title = format!("{} of {} beside each other protocol, {}", metric.name, first.label, chart.about);
    let mut canvas = Canvas::new(WIDTH, bottom + BELOW, &title);
    canvas.rect([LEFT, TOP + 14.0], [scale.place(1.0) - LEFT, bottom - TOP - 14.0], "behind", "");
    canvas.lower_axis(&scale, [TOP + 14.0, bottom], Unit::Plain, &scale.ticks(6));
    canvas.line([scale.place(1.0), TOP + 14.0], [scale.place(1.0), bottom], "one");
    let has_places = chart.places().len() > 1;
    for (number, line) in lines.iter().enumerate() {
        let y = TOP + ROW * number as f64 + 25.0;
        let place = if has_places { format!("{}, ", chart.axis.text(line.place)) } else { String::new() };
        row(&mut canvas, line, palette, &scale, y, &place);
    }
    Some((canvas.finish(), left_out))
}

fn row(canvas: &mut Canvas, line: &Line, palette: &Palette, scale: &Scale, y: f64, place: &str) {
    let Line { series, versus, .. } = line;
    let look = palette.look(series.protocol);
    let label = cut(&format!("{place}{}", series.label), LABEL_CHARS_MAX);
    canvas.line([LEFT, y], [RIGHT, y], "track");
    canvas.text([LEFT, y - 9.0], Anchor::Start, "name", &label);
    let number = match versus.shown() {
        Shown::Better | Shown::Worse => times(versus.ratio.median),
        Shown::Nothing => format!("{} ≈", times(versus.ratio.median)),
        Shown::Few => format!("{} ?", times(versus.ratio.median)),
    };
    canvas.text([RIGHT, y - 9.0], Anchor::End, "number", &number);
    let [low, high] = [versus.ratio.low, versus.ratio.high].map(|ratio| [scale.place(ratio), y]);
    canvas.line(low, high, &format!("whisker {}", look.class()));
    let told = format!("{place}{}: {} ({})", series.label, times(versus.ratio.median), versus.certainty());
    canvas.mark([scale.place(versus.ratio.median), y], look, &told);
}
