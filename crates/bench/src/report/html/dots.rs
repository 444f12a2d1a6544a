//! A figure under one set of conditions: a row for each protocol, the best one first, every sample a dot, the middle a mark with
//! its whisker and its number.

use super::escape::cut;
use super::figure::{Figure, Metric};
use super::group::{Chart, Series};
use super::palette::{Palette, is_limit};
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};

/// More rows make no picture but a list; the table has them all.
const ROWS_MAX: usize = 40;
/// More samples are a bar.
const DOTS_MAX: usize = 200;
/// What fits beside a number.
const LABEL_CHARS_MAX: usize = 34;

const ROW: f64 = 34.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 4.0;
const BELOW: f64 = 26.0;

/// The picture; none where no row has the figure.
pub(super) fn draw(chart: &Chart, metric: &Metric, palette: &Palette) -> Option<String> {
    let mut rows: Vec<(&Series, Figure)> = chart
        .series
        .iter()
        .filter_map(|series| Some((series, Figure::of(series.points.first()?.1, metric)?)))
        .collect();
    rows.sort_by(|(_, a), (_, b)| a.middle.total_cmp(&b.middle));
    if metric.is_better_high {
        rows.reverse();
    }
    rows.truncate(ROWS_MAX);
    let all = rows.iter().flat_map(|(_, figure)| figure.samples.iter().copied().chain([figure.middle]));
    let scale = Scale::log(all.clone(), LEFT + 8.0, RIGHT - 8.0)
        .or_else(|| Scale::from_zero(all, LEFT + 8.0, RIGHT - 8.0))?;
    let bottom = TOP + ROW * rows.len() as f64 + 4.0;
    let title = format!("{}: {}", metric.name, chart.heading());
    let mut canvas = Canvas::new(WIDTH, bottom + BELOW, &title);
    canvas.lower_axis(&scale, [TOP + 16.0, bottom], metric.unit, &scale.ticks(5));
    for (number, (series, figure)) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64 + 25.0;
        row(&mut canvas, metric, palette, (series, figure), &scale, y);
    }
    Some(canvas.finish())
}

fn row(
    canvas: &mut Canvas,
    metric: &Metric,
    palette: &Palette,
    (series, figure): (&Series, &Figure),
    scale: &Scale,
    y: f64,
) {
    let look = palette.look(series.protocol);
    let limit = if is_limit(series.protocol) { " (limit)" } else { "" };
    let label = format!("{}{limit}", cut(&series.label, LABEL_CHARS_MAX));
    canvas.line([LEFT, y], [RIGHT, y], "track");
    canvas.text([LEFT, y - 9.0], Anchor::Start, "name", &label);
    canvas.text([RIGHT, y - 9.0], Anchor::End, "number", &metric.unit.text(figure.middle));
    for sample in figure.samples.iter().take(DOTS_MAX) {
        canvas.dot([scale.place(*sample), y], look);
    }
    let [low, high] = [figure.low, figure.high].map(|value| [scale.place(value), y]);
    canvas.line(low, high, &format!("whisker {}", look.class()));
    let told = format!("{}: {}", series.label, figure.text(metric.unit));
    canvas.mark([scale.place(figure.middle), y], look, &told);
}
