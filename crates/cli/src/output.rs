//! Results on the standard output: for people, or as JSON.

use crate::failure::Failure;
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Write};

/// Where results go and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// One JSON document per result, one result per line.
    pub json: bool,
}

impl Output {
    /// As text, or as JSON.
    pub fn new(json: bool) -> Self {
        Output { json }
    }

    /// One result: `text` for people, `value` for programs.
    pub fn result(&self, text: impl AsRef<str>, value: &Value) {
        if self.json {
            write_line(&value.to_string());
        } else {
            write_line(text.as_ref());
        }
    }

    /// Rows under the headings `columns`; members of a row that are no column appear only in JSON.
    pub fn rows(&self, columns: &[&str], rows: &[Value]) {
        if self.json {
            write_line(&json!({ "ok": true, "rows": rows }).to_string());
            return;
        }
        for line in table(columns, rows) {
            write_line(&line);
        }
    }

    /// The first rows of `total`.
    pub fn rows_of_many(&self, columns: &[&str], rows: &[Value], total: u64) {
        if self.json {
            write_line(&json!({ "ok": true, "rows": rows, "rows_total": total }).to_string());
            return;
        }
        self.rows(columns, rows);
    }

    /// One thing in groups: those that are objects as names and values, those that are lists as tables. `order` and
    /// `columns` say what comes first.
    pub fn groups(&self, order: &[&str], columns: &[&str], groups: &Map<String, Value>) {
        if self.json {
            write_line(&json!({ "ok": true, "show": groups }).to_string());
            return;
        }
        for name in ordered(order, groups.keys()) {
            write_line(&name);
            let lines = match &groups[&name] {
                Value::Object(members) => values(members),
                Value::Array(rows) if rows.is_empty() => vec!["none".to_owned()],
                Value::Array(rows) => wide_table(columns, rows),
                other => vec![cell(other)],
            };
            lines.iter().for_each(|line| write_line(&format!("  {line}")));
        }
    }

    /// Counters: each row below its name.
    pub fn counters(&self, rows: &[Value]) {
        if self.json {
            write_line(&json!({ "ok": true, "rows": rows }).to_string());
            return;
        }
        for row in rows.iter().filter_map(Value::as_object) {
            write_line(&cell(row.get("name").unwrap_or(&Value::Null)));
            let mut members = row.clone();
            members.remove("name");
            values(&members).iter().for_each(|line| write_line(&format!("  {line}")));
        }
    }

    /// Why the command ended: JSON on the standard output, else one line on the standard error.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            let error = json!({ "code": failure.exit.name(), "message": failure.message });
            write_line(&json!({ "ok": false, "error": error }).to_string());
        } else {
            // Nothing can be done if the standard error is closed.
            let _ = writeln!(std::io::stderr(), "polyrail: {}", failure.message);
        }
    }
}

/// Writes a line; ends the program quietly if nobody reads any more.
pub fn write_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        std::process::exit(if error.kind() == ErrorKind::BrokenPipe { 0 } else { 1 });
    }
}

/// The names of `all`, those in `order` first.
fn ordered<'a>(order: &[&str], all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = all.cloned().collect();
    let rank = |name: &String| order.iter().position(|known| known == name).unwrap_or(order.len());
    names.sort_by_key(|name| (rank(name), name.clone()));
    names
}

/// Names and values, one a line.
fn values(members: &Map<String, Value>) -> Vec<String> {
    let width = members.keys().map(|name| name.chars().count()).max().unwrap_or_default();
    members.iter().map(|(name, value)| format!("{name:<width$}  {}", cell(value))).collect()
}

/// A table of all members that the rows have.
fn wide_table(order: &[&str], rows: &[Value]) -> Vec<String> {
    let mut names: Vec<&String> = rows.iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
    names.sort_unstable();
    names.dedup();
    let columns = ordered(order, names.into_iter());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    table(&columns, rows)
}

/// The lines of a table, columns aligned, numbers to the right.
pub fn table(columns: &[&str], rows: &[Value]) -> Vec<String> {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
    let is_number: Vec<bool> = columns
        .iter()
        .map(|column| {
            !rows.is_empty() && rows.iter().all(|row| row[*column].is_number() || row[*column].is_null())
        })
        .collect();
    aligned(columns, &cells, &is_number)
}

/// The lines of a table of words; those of the columns that are `to_right` end below each other.
pub fn aligned(headings: &[&str], cells: &[Vec<String>], to_right: &[bool]) -> Vec<String> {
    let headings: Vec<String> = headings.iter().map(|heading| heading.to_string()).collect();
    let width = |index: usize| {
        cells.iter().chain([&headings]).map(|row| row[index].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().enumerate().map(|(index, text)| {
            let width = widths[index];
            if to_right[index] { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    [&headings].into_iter().chain(cells).map(line).collect()
}

/// A value as people read it.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => format!("{float:.1}"),
            _ => number.to_string(),
        },
        Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_words_left_and_numbers_right() {
        let rows =
            [json!({ "name": "a", "rtt_us": 7, "up": true }), json!({ "name": "long", "rtt_us": 1234 })];
        assert_eq!(
            table(&["name", "rtt_us", "up"], &rows),
            ["name  rtt_us  up", "a          7  yes", "long    1234  -"]
        );
    }

    #[test]
    fn groups_and_columns_come_in_their_order_and_others_by_name() {
        let row = json!({ "why": "silence", "at": "now", "bearer": "udp/l0", "age": 1.5 });
        let columns = wide_table(&["at", "why"], std::slice::from_ref(&row));
        assert_eq!(columns, ["at   why      age  bearer", "now  silence  1.5  udp/l0"]);
        assert_eq!(values(row.as_object().unwrap())[..2], ["age     1.5", "at      now"]);
    }

    #[test]
    fn an_empty_table_is_its_headings() {
        assert_eq!(table(&["a", "b"], &[]), ["a  b"]);
    }
}
