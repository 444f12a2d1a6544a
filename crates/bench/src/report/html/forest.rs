//! Protocols held against one of them: how many times as fast that one is, with the range in which the truth lies, beside the line
//! at 1, where both are alike.

use super::escape::cut;
use super::group::{Chart, Series};
use super::palette::{Palette, is_limit};
use super::ratios;
use super::versus::{Shown, Versus, times};

/// More make no picture but a list.
const ROWS_MAX: usize = 48;
const LABEL_CHARS_MAX: usize = 38;

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
    let title = format!("{} of {} beside each other protocol, {}", metric.name, first.label, chart.about);
    let has_places = chart.places().len() > 1;
    let drawn: Vec<ratios::Line> = lines
        .iter()
        .map(|line| {
            let place = if has_places { format!("{}, ", chart.axis.text(line.place)) } else { String::new() };
            line.drawn(palette, &place)
        })
        .collect();
    Some((ratios::draw(&title, &drawn, true)?, left_out))
}

impl Line<'_> {
    fn drawn(&self, palette: &Palette, place: &str) -> ratios::Line<'_> {
        let Self { series, versus, .. } = self;
        let times = times(versus.ratio.median);
        let number = match versus.shown() {
            Shown::Better | Shown::Worse => times.clone(),
            Shown::Nothing => format!("{times} ≈"),
            Shown::Few => format!("{times} ?"),
        };
        ratios::Line {
            label: cut(&format!("{place}{}", series.label), LABEL_CHARS_MAX),
            number,
            ratio: &versus.ratio,
            look: palette.look(series.protocol),
            told: format!("{place}{}: {times} ({})", series.label, versus.certainty()),
            beside: None,
        }
    }
}
