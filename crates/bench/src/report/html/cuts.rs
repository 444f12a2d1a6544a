//! Links that are cut beneath running traffic: what arrived and how late from moment to moment, and how late each cut made the
//! latest message.

use super::escape::{cut, escape};
use super::palette::{Look, Palette};
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::Unit;
use crate::failover::Kind;
use crate::report::document::Row;
use crate::report::figures::{CutRow, TimelineRow};

/// A wide screen shows a run over its whole width.
const WIDE: f64 = 1_080.0;
/// More cuts are a bar.
const CUTS_MAX: usize = 400;
/// A run of an hour.
const STEPS_MAX: usize = 36_000;

/// Runs over time, each with its cuts: one picture for wide screens, one for phones, of which the style sheet shows one.
pub(super) fn timelines(row: &Row, palette: &Palette) -> String {
    let look = palette.look(&row.protocol);
    let one = |timeline: &TimelineRow| {
        let cuts: Vec<&CutRow> =
            row.cuts.iter().filter(|cut| cut.repetition == timeline.repetition).take(CUTS_MAX).collect();
        let wide = timeline_picture(row, timeline, &cuts, look, WIDE)?;
        let narrow = timeline_picture(row, timeline, &cuts, look, WIDTH)?;
        Some(format!(r#"<div class="wide">{wide}</div><div class="narrow">{narrow}</div>"#))
    };
    row.timelines.iter().filter_map(one).collect()
}

const LEFT: f64 = 76.0;
/// Upper and lower edge of what arrived, of how late it was, and of what left over each link, where that is known.
const ARRIVED: [f64; 2] = [22.0, 120.0];
const LATE: [f64; 2] = [150.0, 240.0];
const LEAVES: [f64; 2] = [270.0, 350.0];
/// Room below the last of them for the times.
const BELOW: f64 = 30.0;
/// Links beyond are in the document: their shades could not be told apart.
const LINKS_MAX: usize = 4;

/// A picture of a run under way.
struct Run<'a> {
    canvas: Canvas,
    across: Scale,
    steps: usize,
    step_s: f64,
    right: f64,
    /// The class that gives the protocol's colour.
    colour: String,
    timeline: &'a TimelineRow,
}

fn timeline_picture(
    row: &Row,
    timeline: &TimelineRow,
    cuts: &[&CutRow],
    look: Look,
    width: f64,
) -> Option<String> {
    let step_s = Some(timeline.step_ms / 1e3).filter(|step| step.is_finite() && *step > 0.0)?;
    let right = width - 14.0;
    let steps = timeline.goodput_mbps.len().min(STEPS_MAX);
    let across = Scale::linear(0.0, (steps as f64 * step_s).max(step_s), LEFT, right);
    let bottom = if timeline.links_mbps.is_empty() { LATE[1] } else { LEAVES[1] };
    let title = format!("{}, run {}: what arrived and how late", row.protocol, timeline.repetition);
    let canvas = Canvas::new(width, bottom + BELOW, &title);
    let mut run = Run { canvas, across, steps, step_s, right, colour: look.class(), timeline };
    cuts.iter().for_each(|cut| run.cut(cut, bottom));
    let most = if width > WIDTH { 12 } else { 5 };
    run.canvas.lower_axis(&across, [bottom, bottom], Unit::Seconds, &across.ticks(most));
    run.arrived()?;
    run.late()?;
    run.leaves();
    Some(run.canvas.finish())
}

impl Run<'_> {
    fn x_of(&self, step: usize) -> f64 {
        self.across.place((step as f64 + 0.5) * self.step_s)
    }

    /// The time for which a link is away, down to the lowest edge.
    fn cut(&mut self, cut: &CutRow, bottom: f64) {
        let (Some(from), Some(until)) = (cut.from_s, cut.until_s) else { return };
        let (x, end) = (self.across.place(from), self.across.place(until));
        let (kind, late) = (cut.kind.name(), Unit::Ms.text(cut.gap_ms));
        let told = format!("link {} cut ({kind}): {late} late at most", cut.link);
        self.canvas.rect([x, ARRIVED[0]], [(end - x).max(1.0), bottom - ARRIVED[0]], "cut", &told);
    }

    fn arrived(&mut self) -> Option<()> {
        let arrived = || self.timeline.goodput_mbps.iter().take(self.steps).copied();
        let down = Scale::from_zero(arrived(), ARRIVED[1], ARRIVED[0])?;
        let line: Vec<[f64; 2]> =
            arrived().enumerate().map(|(n, mbps)| [self.x_of(n), down.place(mbps)]).collect();
        let ends = [0, self.steps.saturating_sub(1)].map(|step| [self.x_of(step), ARRIVED[1]]);
        let area: Vec<[f64; 2]> = [ends[0]].into_iter().chain(line.clone()).chain([ends[1]]).collect();
        self.canvas.left_axis(&down, [LEFT, self.right], Unit::Mbps, 4);
        self.canvas.text([LEFT, ARRIVED[0] - 10.0], Anchor::Start, "name", "arrives, in steps of 0.1 s");
        self.canvas.area(&area, &format!("fill {}", self.colour));
        self.canvas.path(&line, &format!("thin {}", self.colour));
        Some(())
    }

    /// In steps without an arrival nothing was late: there the line has a hole and no zero.
    fn late(&mut self) -> Option<()> {
        let values: Vec<f64> = self.timeline.late_ms.iter().take(self.steps).copied().collect();
        let late = Scale::log(values.iter().copied(), LATE[1], LATE[0])?;
        self.canvas.left_axis(&late, [LEFT, self.right], Unit::Ms, 4);
        self.canvas.text([LEFT, LATE[0] - 8.0], Anchor::Start, "name", "latest message of each step");
        let mut run: Vec<[f64; 2]> = Vec::new();
        for (number, value) in values.iter().enumerate().chain([(values.len(), &0.0)]) {
            if *value > 0.0 {
                run.push([self.x_of(number), late.place(*value)]);
            } else {
                self.canvas.path(&std::mem::take(&mut run), &format!("thin {}", self.colour));
            }
        }
        Some(())
    }

    /// What leaves over each link, one upon the other: the lowest is the first link.
    fn leaves(&mut self) {
        let links: Vec<&Vec<f64>> = self.timeline.links_mbps.iter().take(LINKS_MAX).collect();
        let value = |link: &[f64], step: usize| {
            link.get(step).copied().filter(|mbps| mbps.is_finite() && *mbps > 0.0).unwrap_or(0.0)
        };
        let sum =
            |upto: usize, step: usize| links.iter().take(upto).map(|link| value(link, step)).sum::<f64>();
        let all = (0..self.steps).map(|step| sum(links.len(), step));
        let Some(down) = Scale::from_zero(all, LEAVES[1], LEAVES[0]).filter(|_| !links.is_empty()) else {
            return;
        };
        self.canvas.left_axis(&down, [LEFT, self.right], Unit::Mbps, 3);
        let heading = "leaves by each link, the first one lowest";
        self.canvas.text([LEFT, LEAVES[0] - 8.0], Anchor::Start, "name", heading);
        for number in 0..links.len() {
            let edge = |upto: usize| (0..self.steps).map(move |step| (step, upto));
            let point = |(step, upto): (usize, usize)| [self.x_of(step), down.place(sum(upto, step))];
            let upper: Vec<[f64; 2]> = edge(number + 1).map(point).collect();
            let lower = edge(number).map(point).rev();
            let area: Vec<[f64; 2]> = upper.iter().copied().chain(lower).collect();
            self.canvas.area(&area, &format!("link{number} {}", self.colour));
            self.canvas.path(&upper, &format!("thin {}", self.colour));
        }
    }
}

const ROW: f64 = 36.0;

/// How late each cut of a kind made the latest message: a dot for each, the middle a mark. None where no row has such a cut.
pub(super) fn gaps(rows: &[&Row], kind: Kind, palette: &Palette) -> Option<String> {
    let of = |row: &Row| -> Vec<f64> {
        row.cuts.iter().filter(|cut| cut.kind == kind).map(|cut| cut.gap_ms).take(CUTS_MAX).collect()
    };
    let mut lines: Vec<(&Row, Vec<f64>, f64)> = rows
        .iter()
        .map(|row| (*row, of(row)))
        .filter_map(|(row, gaps)| {
            let middle = crate::stats::median(&gaps)?;
            Some((row, gaps, middle))
        })
        .collect();
    lines.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (left, right) = (8.0, WIDTH - 8.0);
    let scale = Scale::log(lines.iter().flat_map(|(_, gaps, _)| gaps).copied(), left + 8.0, right - 8.0)?;
    let bottom = ROW * lines.len() as f64 + 8.0;
    let title = format!("how late the latest message was, each cut of kind {}", kind.name());
    let mut canvas = Canvas::new(WIDTH, bottom + 26.0, &title);
    canvas.lower_axis(&scale, [18.0, bottom], Unit::Ms, &scale.ticks(5));
    for (number, (row, gaps, middle)) in lines.iter().enumerate() {
        let (y, look) = (ROW * number as f64 + 28.0, palette.look(&row.protocol));
        canvas.line([left, y], [right, y], "track");
        canvas.text([left, y - 10.0], Anchor::Start, "name", &cut(&row.protocol, 30));
        let worst = gaps.iter().copied().fold(0.0, f64::max);
        let numbers = format!("{}, at most {}", Unit::Ms.text(*middle), Unit::Ms.text(worst));
        canvas.text([right, y - 10.0], Anchor::End, "number", &numbers);
        gaps.iter().for_each(|gap| canvas.dot([scale.place(*gap), y], look));
        let told = format!("{}: {numbers}, {} cuts", row.protocol, gaps.len());
        canvas.mark([scale.place(*middle), y], look, &told);
    }
    Some(canvas.finish())
}

/// What cuts did, as a table: gaps, what arrived meanwhile, how soon a link was used again.
pub(super) fn table(rows: &[&Row]) -> String {
    let ms = |value: Option<f64>| value.map_or("–".to_owned(), |ms| Unit::Ms.text(ms));
    let mut body = String::new();
    for row in rows {
        for gaps in &row.gaps {
            let share = gaps.goodput_share.map_or("–".to_owned(), |share| {
                format!("{:.0} % (lowest {:.0} %)", share.p50 * 100.0, share.low * 100.0)
            });
            let goodput = gaps.goodput_mbps.map_or("–".to_owned(), |goodput| Unit::Mbps.text(goodput.p50));
            let cells = [
                cut(&row.protocol, 60),
                gaps.kind.name().to_owned(),
                gaps.cuts.to_string(),
                ms(Some(gaps.gap_ms.p50)),
                ms(Some(gaps.gap_ms.max)),
                ms(Some(gaps.gap_net_ms.max)),
                goodput,
                share,
                ms(gaps.reuse_ms.map(|reuse| reuse.p50)),
                format!("{} / {}", row.lost, row.duplicated),
            ];
            body += &super::page::table_row(&cells.map(|cell| escape(&cell)));
        }
    }
    let heading = [
        "protocol",
        "cut",
        "cuts",
        "late, median",
        "at most",
        "less stalls",
        "arrives meanwhile",
        "of what is left",
        "used again after",
        "lost / twice",
    ];
    super::page::table(&heading, &body)
}
