//! Drawing: a picture as inline SVG, as wide as a phone, so that its letters are as large on every screen.

use std::fmt::Write;

use super::escape::escape;
use super::palette::{Look, Mark};
use super::scale::Scale;
use super::units::Unit;

/// Width of a picture; the page shows it at about this size, beside others where there is room.
pub(super) const WIDTH: f64 = 360.0;

/// A picture under way.
#[derive(Debug)]
pub(super) struct Canvas {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

/// Which side of its place a text stands on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// `title` says in words what is shown, also to those who do not see it.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: escape(title), body: String::new() }
    }

    pub(super) fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        );
    }

    pub(super) fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str, title: &str) {
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" class="{class}">{}</rect>"#,
            width.max(0.0),
            height.max(0.0),
            tooltip(title)
        );
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        );
    }

    /// A line through the points.
    pub(super) fn path(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, class, "");
    }

    /// What the points enclose.
    pub(super) fn area(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, class, "Z");
    }

    fn shape(&mut self, points: &[[f64; 2]], class: &str, end: &str) {
        let mut steps = String::new();
        for (number, [x, y]) in points.iter().enumerate() {
            let _ = write!(steps, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
        }
        if points.len() > 1 {
            let _ = write!(self.body, r#"<path d="{steps}{end}" class="{class}"/>"#);
        }
    }

    /// A point of a protocol, with what it is in words.
    pub(super) fn mark(&mut self, at: [f64; 2], look: Look, title: &str) {
        let class = look.class();
        let _ = write!(
            self.body,
            r#"<g class="{class}">{}<circle cx="{:.1}" cy="{:.1}" r="7" class="reach"/>{}</g>"#,
            tooltip(title),
            at[0],
            at[1],
            form(at, look.mark, 4.0)
        );
    }

    /// A sample among others: small and pale.
    pub(super) fn dot(&mut self, [x, y]: [f64; 2], look: Look) {
        let class = look.class();
        let _ = write!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2" class="sample {class}"/>"#);
    }

    /// Figures up the left side, with a line across for each.
    pub(super) fn left_axis(&mut self, scale: &Scale, [left, right]: [f64; 2], unit: Unit, most: usize) {
        for tick in scale.ticks(most) {
            let y = scale.place(tick);
            self.line([left, y], [right, y], "grid");
            self.text([left - 6.0, y + 3.5], Anchor::End, "tick", &unit.tick(tick));
        }
    }

    /// Figures along the lower side, with a line up for each; those whose text would touch the one before stand without.
    pub(super) fn lower_axis(&mut self, scale: &Scale, [top, bottom]: [f64; 2], unit: Unit, ticks: &[f64]) {
        let mut free_from = 0.0;
        for tick in ticks {
            let (x, text) = (scale.place(*tick), unit.tick(*tick));
            self.line([x, top], [x, bottom], "grid");
            let half = text_width(&text) / 2.0;
            // At the edges a text stands as near to its line as the picture lets it.
            let middle = x.clamp(half + 1.0, (self.width - half - 1.0).max(half + 1.0));
            if middle - half >= free_from {
                self.text([middle, bottom + 15.0], Anchor::Middle, "tick", &text);
                free_from = middle + half + 8.0;
            }
        }
    }

    pub(super) fn finish(self) -> String {
        let Self { width, height, title, body } = self;
        format!(
            r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{title}"><title>{title}</title>{body}</svg>"#
        )
    }
}

/// The mark of a protocol for a legend.
pub(super) fn legend_mark(look: Look) -> String {
    let (class, form) = (look.class(), form([7.0, 7.0], look.mark, 4.5));
    format!(r#"<svg viewBox="0 0 14 14" class="key" aria-hidden="true"><g class="{class}">{form}</g></svg>"#)
}

fn tooltip(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

/// The form of a mark as an element.
fn form([x, y]: [f64; 2], mark: Mark, r: f64) -> String {
    let path = |d: String, class: &str| format!(r#"<path d="{d}" class="{class}"/>"#);
    match mark {
        Mark::Circle => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" class="solid"/>"#),
        Mark::Ring => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{:.1}" class="hollow"/>"#, r - 0.5),
        Mark::Square => {
            path(format!("M{:.1} {:.1}h{s}v{s}h-{s}Z", x - r * 0.9, y - r * 0.9, s = r * 1.8), "solid")
        }
        Mark::Triangle => {
            path(format!("M{x:.1} {:.1}l{r} {h}h-{w}Z", y - r * 1.1, h = r * 1.9, w = 2.0 * r), "solid")
        }
        Mark::Down => {
            path(format!("M{x:.1} {:.1}l{r} -{h}h-{w}Z", y + r * 1.1, h = r * 1.9, w = 2.0 * r), "solid")
        }
        Mark::Diamond => {
            let s = r * 1.2;
            path(format!("M{x:.1} {:.1}l{s} {s}l-{s} {s}l-{s} -{s}Z", y - s), "solid")
        }
        Mark::Cross => {
            let (s, w) = (r * 0.9, r * 1.8);
            path(format!("M{:.1} {:.1}l{w} {w}M{:.1} {:.1}l-{w} {w}", x - s, y - s, x + s, y - s), "hollow")
        }
        Mark::Plus => {
            let w = 2.0 * r;
            path(format!("M{:.1} {y:.1}h{w}M{x:.1} {:.1}v{w}", x - r, y - r), "hollow")
        }
    }
}

/// About how wide a text of a tick is: nothing here can ask the letters.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.6
}
