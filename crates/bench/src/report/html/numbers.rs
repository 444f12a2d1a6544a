//! Everything that was measured, as a table: what the pictures leave out is here.

use super::escape::{escape, note};
use super::figure::Figure;
use super::group::Chart;
use super::page::{details, list, table, table_row};

/// Rows of a table; a browser bears no more with pleasure.
const ROWS_MAX: usize = 2_000;
/// Notes that are listed of a chart.
const NOTES_MAX: usize = 40;

/// The table of a chart, closed at first.
pub(super) fn of_chart(chart: &Chart) -> String {
    let mut heading = vec!["protocol", chart.axis.name()];
    heading.extend(chart.metrics.iter().map(|metric| metric.name));
    heading.extend(["lost / twice / order / damaged", "limit"]);
    let rows = chart.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)));
    let row = |(series, (place, row)): (&super::group::Series, &(u64, &crate::report::document::Row))| {
        let mut cells = vec![escape(&series.label), escape(&chart.axis.text(*place))];
        cells.extend(chart.metrics.iter().map(|metric| {
            Figure::of(row, metric).map_or("–".to_owned(), |figure| escape(&figure.text(metric.unit)))
        }));
        cells.push(format!("{} / {} / {} / {}", row.lost, row.duplicated, row.reordered, row.damaged));
        cells.push(row.limited_by.as_deref().map_or("–".to_owned(), note));
        table_row(&cells)
    };
    let body: String = rows.clone().take(ROWS_MAX).map(row).collect();
    let more = rows.count().saturating_sub(ROWS_MAX);
    let more = if more > 0 { format!("<p>{more} more rows are in the document.</p>") } else { String::new() };
    details("The numbers", &format!("{}{more}{}", table(&heading, &body), notes(chart)))
}

/// What rows say of themselves.
fn notes(chart: &Chart) -> String {
    let mut told: Vec<String> = Vec::new();
    for series in &chart.series {
        for (place, row) in &series.points {
            let begin = format!("{}, {}", escape(&series.label), escape(&chart.axis.text(*place)));
            let errors = row.errors.iter().map(|error| format!("{begin}, failed: {}", note(error)));
            told.extend(errors.chain(row.notes.iter().map(|text| format!("{begin}: {}", note(text)))));
        }
    }
    let more = told.len().saturating_sub(NOTES_MAX);
    told.truncate(NOTES_MAX);
    if more > 0 {
        told.push(format!("{more} more notes are in the document."));
    }
    list("notes", &told)
}
