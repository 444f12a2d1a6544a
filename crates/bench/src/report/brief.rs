//! A document without what is large, to be kept in a repository: a row is a line, so that a change of one shows as one.

use serde_json::Value;

/// Parts of rows that pictures need and tables do not.
const LARGE: [&str; 3] = ["histogram_ns", "timelines", "tool_ns"];

/// The document's text without single times and courses over time; the error where it is no object.
pub(crate) fn render(document: &Value) -> Result<String, String> {
    let fields = document.as_object().ok_or("is no document")?;
    let mut lines = Vec::new();
    for (name, value) in fields {
        let name = Value::from(name.as_str());
        match value {
            Value::Array(rows) if name == "results" => {
                let rows: Vec<String> = rows.iter().map(|row| without_large(row).to_string()).collect();
                lines.push(format!("{name}:[\n{}\n]", rows.join(",\n")));
            }
            value => lines.push(format!("{name}:{value}")),
        }
    }
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn without_large(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(fields) = row.as_object_mut() {
        LARGE.iter().for_each(|name| drop(fields.remove(*name)));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_left_out_is_only_what_is_large_and_a_row_is_a_line() {
        let row =
            json!({ "protocol": "a\"b", "histogram_ns": [[1, 2]], "throughput_mbps": { "median": 1.5 } });
        let document = json!({ "schema": "s/1", "results": [row, row], "notes": ["x"] });
        let text = render(&document).unwrap();
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["results"][1], json!({ "protocol": "a\"b", "throughput_mbps": { "median": 1.5 } }));
        assert_eq!((&back["schema"], &back["notes"]), (&document["schema"], &document["notes"]));
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(render(&json!([1])).is_err());
    }
}
