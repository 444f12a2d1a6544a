//! A figure over a condition: a line for each protocol, a mark for each measurement, a whisker for where its middle lies.

use super::escape::escape;
use super::figure::{Figure, Metric};
use super::group::{Chart, Series};
use super::palette::{Palette, is_limit};
use super::scale::Scale;
use super::svg::{Canvas, WIDTH, legend_mark};
use crate::report::document::Row;

/// More lines than this nobody can follow; the table has them all.
pub(super) const SERIES_MAX: usize = 12;

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 30.0;

/// The points of one line: places, rows' figures.
type Line<'a> = (&'a Series<'a>, Vec<(u64, Figure)>);

/// The picture with its legend; none where no row has the figure.
pub(super) fn draw(chart: &Chart, metric: &Metric, palette: &Palette) -> Option<String> {
    let lines: Vec<Line> =
        chart.series.iter().filter_map(|series| line(series, metric)).take(SERIES_MAX).collect();
    let places = chart.places();
    let ends = lines.iter().flat_map(|(_, points)| points).flat_map(|(_, f)| [f.low, f.middle, f.high]);
    let down = Scale::log(ends, BOTTOM, TOP)?;
    // A place of 0 (all that is taken) has no logarithm: it stands before all others.
    let positive = places.iter().map(|place| (*place).max(1) as f64);
    let across = Scale::log(positive.clone(), LEFT + 6.0, RIGHT - 6.0)?;
    let title = format!("{} over {}: {}", metric.name, chart.axis.name(), chart.about);
    let mut canvas = Canvas::new(WIDTH, HEIGHT, &title);
    canvas.left_axis(&down, [LEFT, RIGHT], metric.unit, 6);
    canvas.lower_axis(&across, [TOP, BOTTOM], chart.axis.unit(), &positive.collect::<Vec<f64>>());
    canvas.line([LEFT, BOTTOM], [RIGHT, BOTTOM], "axis");
    for line in &lines {
        trace(&mut canvas, chart, metric, palette, line, &across, &down);
    }
    Some(format!("{}{}", legend(chart.series.iter().take(SERIES_MAX), palette), canvas.finish()))
}

fn line<'a>(series: &'a Series<'a>, metric: &Metric) -> Option<Line<'a>> {
    let figure = |point: &(u64, &Row)| Some((point.0, Figure::of(point.1, metric)?));
    let points: Vec<(u64, Figure)> = series.points.iter().filter_map(figure).collect();
    (!points.is_empty()).then_some((series, points))
}

fn trace(
    canvas: &mut Canvas,
    chart: &Chart,
    metric: &Metric,
    palette: &Palette,
    (series, points): &Line,
    across: &Scale,
    down: &Scale,
) {
    let look = palette.look(series.protocol);
    let class = look.class();
    let at = |place: u64, value: f64| [across.place(place.max(1) as f64), down.place(value)];
    let path: Vec<[f64; 2]> = points.iter().map(|(place, figure)| at(*place, figure.middle)).collect();
    canvas.path(&path, &format!("line {class}{}", if is_limit(series.protocol) { " dashed" } else { "" }));
    for (place, figure) in points {
        canvas.line(at(*place, figure.low), at(*place, figure.high), &format!("whisker {class}"));
    }
    for (place, figure) in points {
        let told = format!("{}, {}: {}", series.label, chart.axis.text(*place), figure.text(metric.unit));
        canvas.mark(at(*place, figure.middle), look, &told);
    }
}

/// Marks and names, which flow as text does: none can lie upon another.
pub(super) fn legend<'a>(series: impl Iterator<Item = &'a Series<'a>>, palette: &Palette) -> String {
    let item = |series: &Series| {
        let limit = if is_limit(series.protocol) { " (limit)" } else { "" };
        format!("<li>{}{}{limit}</li>", legend_mark(palette.look(series.protocol)), escape(&series.label))
    };
    format!(r#"<ul class="legend">{}</ul>"#, series.map(item).collect::<String>())
}
