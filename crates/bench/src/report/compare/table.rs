//! A comparison for a person at a terminal.

use std::fmt::Write;

use super::{Compared, Comparison, Middle};
use crate::report::table::{columns, short};

pub(super) fn render(comparison: &Comparison) -> String {
    let Comparison { a, b, rows, only_in_a, only_in_b, notes, .. } = comparison;
    let mut text = format!("A: {a}\nB: {b}\n\n");
    let heading = ["", "better", "A", "B", "B/A", "97 %", "verdict"].map(str::to_owned);
    let cells: Vec<Vec<String>> = rows.iter().flat_map(|row| &row.figures).map(cells).collect();
    let mut figures = String::new();
    columns(&mut figures, &heading, &cells);
    let mut lines = figures.lines();
    text.extend(lines.next().into_iter().flat_map(|line| [line, "\n"]));
    for row in rows {
        let _ = writeln!(text, "{}", row.name);
        text.extend(lines.by_ref().take(row.figures.len()).flat_map(|line| [line, "\n"]));
        text.extend(row.notes.iter().flat_map(|note| ["  note: ", note, "\n"]));
    }
    text.push('\n');
    text.extend(only_in_a.iter().flat_map(|name| ["only in A: ", name, "\n"]));
    text.extend(only_in_b.iter().flat_map(|name| ["only in B: ", name, "\n"]));
    text.extend(notes.iter().flat_map(|note| ["note: ", note, "\n"]));
    let _ = writeln!(text, "{}", summary(comparison));
    text
}

fn cells(figure: &Compared) -> Vec<String> {
    let middle = |middle: Middle| {
        let median = middle.median.map_or("-".to_owned(), short);
        format!("{median} ({})", middle.samples)
    };
    let (ratio, interval) = match figure.ratio {
        Some(ratio) => (format!("{:.3}", ratio.ratio), format!("{:.3} to {:.3}", ratio.low, ratio.high)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let (better, verdict) = (figure.better.name(), figure.verdict.name());
    let verdict = if figure.regression { format!("{verdict}, regression") } else { verdict.to_owned() };
    vec![
        format!("  {}", figure.figure),
        better.to_owned(),
        middle(figure.a),
        middle(figure.b),
        ratio,
        interval,
        verdict,
    ]
}

fn summary(comparison: &Comparison) -> String {
    let figures = comparison.rows.iter().map(|row| row.figures.len()).sum::<usize>();
    let (regressions, threshold) = (comparison.regressions, comparison.threshold_percent);
    let least = if threshold > 0.0 { format!(" of {threshold} % or more") } else { String::new() };
    format!("{regressions} regressions{least} in {figures} figures")
}
