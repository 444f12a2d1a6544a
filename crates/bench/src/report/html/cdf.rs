//! How many of the single times are below which: a line for each protocol, stretched at its upper end, where what matters is
//! rare.

use super::curve::{SERIES_MAX, legend};
use super::group::{Chart, Series};
use super::palette::Palette;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::Unit;

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 30.0;

/// The most of a hundred thousand: of fewer messages the end says nothing.
const NINES_MAX: f64 = 5.0;
/// Steps of a line: more than a picture has places.
const STEPS_MAX: usize = 400;

/// The shares that are labelled, by how many times rarer the rest is.
const SHARES: [(f64, &str); 6] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
];

/// The picture with its legend at a place of the axis; none where no row there has single times.
pub(super) fn draw(chart: &Chart, place: u64, palette: &Palette) -> Option<String> {
    let lines: Vec<(&Series, Vec<(f64, f64)>)> = chart
        .series
        .iter()
        .filter_map(|series| {
            let steps = cumulated(&series.at(place)?.histogram_ns);
            (!steps.is_empty()).then_some((series, steps))
        })
        .take(SERIES_MAX)
        .collect();
    let times = lines.iter().flat_map(|(_, steps)| steps).map(|(ns, _)| *ns);
    let across = Scale::log(times, LEFT + 4.0, RIGHT - 4.0)?;
    let rarest =
        lines.iter().flat_map(|(_, steps)| steps).map(|(_, share)| nines(*share)).fold(1.0, f64::max);
    let down = Scale::linear(0.0, rarest * 1.02, BOTTOM, TOP);
    let title = format!("share of times below, {}: {}", chart.axis.text(place), chart.about);
    let mut canvas = Canvas::new(WIDTH, HEIGHT, &title);
    for (share, text) in SHARES.into_iter().filter(|(share, _)| nines(*share) <= rarest * 1.02) {
        let y = down.place(nines(share));
        canvas.line([LEFT, y], [RIGHT, y], "grid");
        canvas.text([LEFT - 6.0, y + 3.5], Anchor::End, "tick", text);
    }
    canvas.lower_axis(&across, [TOP, BOTTOM], Unit::Ns, &across.ticks(6));
    canvas.line([LEFT, BOTTOM], [RIGHT, BOTTOM], "axis");
    for (series, steps) in &lines {
        trace(&mut canvas, series, steps, palette, &across, &down);
    }
    Some(format!("{}{}", legend(lines.iter().map(|(series, _)| *series), palette), canvas.finish()))
}

fn trace(
    canvas: &mut Canvas,
    series: &Series,
    steps: &[(f64, f64)],
    palette: &Palette,
    across: &Scale,
    down: &Scale,
) {
    let look = palette.look(series.protocol);
    let path: Vec<[f64; 2]> =
        steps.iter().map(|(ns, share)| [across.place(*ns), down.place(nines(*share))]).collect();
    let limit = if look.is_limit { " dashed" } else { "" };
    canvas.path(&path, &format!("line {}{limit}", look.class()));
    for wanted in [0.5, 0.99] {
        if let Some((ns, _)) = steps.iter().find(|(_, share)| *share >= wanted) {
            let told = format!("{}: {} % within {}", series.label, wanted * 100.0, Unit::Ns.text(*ns));
            canvas.mark([across.place(*ns), down.place(nines(wanted))], look, &told);
        }
    }
}

/// How rare what is beyond a share is: 0 for none, 1 for nine of ten, 2 for 99 of 100.
fn nines(share: f64) -> f64 {
    (-(1.0 - share).max(1e-12).log10()).clamp(0.0, NINES_MAX)
}

/// Times in ns with the share of all that are not above; as many as a picture has room for. In lists that were put together a
/// value may come twice, and in any order.
fn cumulated(histogram_ns: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let mut buckets: Vec<(u64, f64)> = histogram_ns.iter().map(|(ns, count)| (*ns, *count as f64)).collect();
    buckets.sort_by_key(|(ns, _)| *ns);
    buckets.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 += if is_same { next.1 } else { 0.0 };
        is_same
    });
    let all: f64 = buckets.iter().map(|(_, count)| count).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let (mut below, mut steps) = (0.0, Vec::<(f64, f64)>::new());
    for (ns, count) in buckets {
        below += count;
        let step = (ns as f64, below / all);
        // The rare ends are what is looked at: a step there is kept for every hundredth of the height.
        let is_new = steps
            .last()
            .is_none_or(|(_, share)| nines(step.1) - nines(*share) >= NINES_MAX / STEPS_MAX as f64);
        if is_new {
            steps.push(step);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_were_put_together_are_one_distribution() {
        let steps = cumulated(&[(100, 1), (300, 1), (100, 1), (200, 1)]);
        assert_eq!(steps, [(100.0, 0.5), (200.0, 0.75), (300.0, 1.0)]);
        assert!(cumulated(&[]).is_empty() && cumulated(&[(5, 0)]).is_empty());
        let huge: Vec<(u64, u64)> = (0..100_000).map(|ns| (ns, u64::MAX)).collect();
        assert!(cumulated(&huge).len() <= STEPS_MAX + 1, "counts that do not fit are no trouble");
    }

    #[test]
    fn rare_times_have_as_much_room_as_common_ones() {
        assert_eq!(
            [0.0, 0.9, 0.99, 1.0].map(|share| (nines(share) * 1e6).round() / 1e6),
            [0.0, 1.0, 2.0, 5.0]
        );
    }
}
