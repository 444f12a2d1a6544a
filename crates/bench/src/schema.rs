//! Names and versions of the files that the instrument writes and reads again.

use serde_json::Value;

/// Whether a document's `schema` is the `known` one; the error says what it is instead.
pub(crate) fn check(document: &Value, known: &str) -> Result<(), String> {
    let Some(found) = document.get("schema").and_then(Value::as_str) else {
        return Err(format!("names no schema, such as {known}: it is something else"));
    };
    match (version(found), version(known)) {
        _ if found == known => Ok(()),
        ((family, Some(number)), (known_family, Some(known_number)))
            if family == known_family && number > known_number =>
        {
            Err(format!("has schema {found}, this program knows {known}: read it with a newer program"))
        }
        _ => Err(format!("has schema {found}, not {known}")),
    }
}

/// What it is a version of, and which.
fn version(schema: &str) -> (&str, Option<u64>) {
    match schema.rsplit_once('/') {
        Some((family, number)) => (family, number.parse().ok()),
        None => (schema, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_newer_version_another_schema_and_none_are_told_apart() {
        let said = |schema: Value| {
            check(&json!({ "schema": schema }), "a/1").map_or_else(|error| error, |()| "fine".to_owned())
        };
        assert_eq!(said(json!("a/1")), "fine");
        assert!(said(json!("a/2")).contains("a/2, this program knows a/1"));
        for other in ["a/0", "b/2", "a", "a/x", ""] {
            assert_eq!(said(json!(other)), format!("has schema {other}, not a/1"));
        }
        assert!(said(json!(7)).contains("names no schema"));
        assert!(check(&json!([1]), "a/1").is_err());
    }
}
