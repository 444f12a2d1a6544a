//! Every sample of a report as CSV, in the long form that statistics programs want: one line per row, figure and
//! repetition, each with all its conditions.

use serde::Serialize;
use serde_json::Value;

use super::document::Row;

/// What follows the conditions.
const FURTHER: [&str; 7] = ["repetition", "complete", "kind", "cut", "figure", "unit", "value"];

/// The lines of all rows, under their headings.
pub(super) fn render(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let conditions = super::document::CONDITIONS.iter().copied();
    let mut lines = vec![conditions.chain(FURTHER).map(str::to_owned).collect::<Vec<String>>()];
    lines.extend(rows.iter().flat_map(of_row));
    for line in lines {
        // Memory takes everything, and every line has as many fields.
        let _ = writer.write_record(line);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn of_row(row: &Row) -> Vec<Vec<String>> {
    let conditions: Vec<String> = row.conditions().iter().map(|(_, value)| cell(value)).collect();
    let line = |point: Point| {
        let complete = !row.failed.contains(&point.repetition);
        let (repetition, unit) = (point.repetition.to_string(), unit(&point.figure).to_owned());
        let further =
            [repetition, complete.to_string(), point.kind, point.cut, point.figure, unit, point.value];
        conditions.iter().cloned().chain(further).collect()
    };
    let mut points = Vec::new();
    spreads(&mut points, "", &to_value(row));
    cuts(&mut points, row);
    calibrations(&mut points, row);
    points.into_iter().map(line).collect()
}

/// One value.
struct Point {
    /// Counted from 1.
    repetition: u32,
    /// The kind of cut, if it is of one.
    kind: String,
    /// The number of the cut within its repetition, counted from 1.
    cut: String,
    figure: String,
    value: String,
}

impl Point {
    fn new(repetition: u32, figure: &str, value: f64) -> Self {
        Self {
            repetition,
            kind: String::new(),
            cut: String::new(),
            figure: figure.to_owned(),
            value: value.to_string(),
        }
    }
}

/// Every figure that has a value for each repetition, by its place in the document.
fn spreads(points: &mut Vec<Point>, path: &str, value: &Value) {
    let Some(members) = value.as_object() else { return };
    if let Some(values) = members.get("values").and_then(Value::as_array) {
        let present = (1..).zip(values).filter_map(|(place, value)| Some((place, value.as_f64()?)));
        points.extend(present.map(|(repetition, value)| Point::new(repetition, path, value)));
        return;
    }
    for (name, member) in members {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        spreads(points, &path, member);
    }
}

fn cuts(points: &mut Vec<Point>, row: &Row) {
    let (mut repetition, mut number) = (0, 0);
    for cut in &row.cuts {
        number = if cut.repetition == repetition { number + 1 } else { 1 };
        repetition = cut.repetition;
        let figures = [
            ("gap_ms", Some(cut.gap_ms)),
            ("gap_net_ms", Some(cut.gap_net_ms)),
            ("return_ms", cut.return_ms),
            ("goodput_mbps", cut.goodput_mbps),
            ("goodput_share", cut.goodput_share),
            ("reuse_ms", cut.reuse_ms),
            ("flaps", cut.flaps.map(f64::from)),
        ];
        for (figure, value) in figures {
            points.extend(value.map(|value| Point {
                kind: cut.kind.name().to_owned(),
                cut: number.to_string(),
                ..Point::new(repetition, figure, value)
            }));
        }
    }
}

/// The machine's pulse around each repetition: what explains a figure belongs beside it.
fn calibrations(points: &mut Vec<Point>, row: &Row) {
    for (repetition, pulses) in (1..).zip(&row.calibration) {
        numbers(points, repetition, "calibration", &to_value(pulses));
    }
}

/// Every number below a value, by its place.
fn numbers(points: &mut Vec<Point>, repetition: u32, path: &str, value: &Value) {
    points.extend(value.as_f64().map(|value| Point::new(repetition, path, value)));
    for (name, member) in value.as_object().into_iter().flatten() {
        numbers(points, repetition, &format!("{path}.{name}"), member);
    }
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The unit at the end of a name in the figure's path: the innermost that has one. Counts and shares have none.
fn unit(figure: &str) -> &'static str {
    const UNITS: [(&str, &str); 10] = [
        ("gb_per_s", "GB/s"),
        ("s_per_gb", "s/GB"),
        ("per_s", "1/s"),
        ("mbps", "Mbit/s"),
        ("percent", "%"),
        ("mib", "MiB"),
        ("ms", "ms"),
        ("us", "us"),
        ("ns", "ns"),
        ("s", "s"),
    ];
    let of_name = |name: &str| {
        let found =
            UNITS.iter().find(|(end, _)| name.strip_suffix(end).is_some_and(|rest| rest.ends_with('_')));
        found.map(|(_, unit)| *unit)
    };
    figure.rsplit('.').find_map(of_name).unwrap_or_default()
}

/// A condition as the command line writes it; what does not apply is empty.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(links) => {
            // An unthrottled link is one of rate 0.
            let cells = links.iter().map(|link| if link.is_null() { "0".to_owned() } else { cell(link) });
            cells.collect::<Vec<String>>().join(":")
        }
        // As Rust shows a number: 0, not 0.0.
        other => other.as_f64().map_or_else(|| other.to_string(), |number| number.to_string()),
    }
}

#[cfg(test)]
mod tests;
