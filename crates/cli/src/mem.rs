//! `polyrail mem`: what memory a running node has promised, to whom, and what of it is there.

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::list::ListArgs;
use crate::output::Output;
use clap::Args;
use serde_json::{Map, Value};
use std::process::ExitCode;

/// Of which node.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: polyrail mem
         polyrail mem --json --control /run/polyrail/alpha.sock")]
pub struct Mem {
    #[command(flatten)]
    node: ListArgs,
}

/// The order in which people read it.
const GROUPS: [&str; 5] = ["memory", "kinds", "users", "programs", "refused"];
const COLUMNS: [&str; 15] = [
    "kind",
    "count",
    "program",
    "pid",
    "uid",
    "ports",
    "ports_max",
    "names",
    "names_max",
    "descriptors",
    "descriptors_max",
    "promised_bytes",
    "limit_bytes",
    "resident_bytes",
    "ports_bytes",
];

/// Asks and prints.
pub fn run(mem: &Mem, output: &Output) -> Result<ExitCode, Failure> {
    let question = Question { command: "mem", name: None, only: None };
    let answer = control::ask(mem.node.control.as_deref(), &question)?;
    let groups = control::groups_of(&answer)?;
    if output.json {
        output.groups(&GROUPS, &COLUMNS, groups);
    } else {
        let short = groups.iter().map(|(name, group)| (name.clone(), without_empty_columns(group)));
        output.groups(&GROUPS, &COLUMNS, &short.collect());
    }
    Ok(ExitCode::SUCCESS)
}

/// A table without the columns that tell nothing: of refusals, and of kinds of memory, that no row has.
fn without_empty_columns(group: &Value) -> Value {
    let Value::Array(rows) = group else { return group.clone() };
    let is_kept = |name: &str| {
        COLUMNS.contains(&name) || rows.iter().any(|row| row[name].as_u64().is_none_or(|count| count > 0))
    };
    let short = rows.iter().filter_map(Value::as_object).map(|row| {
        let kept = row.iter().filter(|(name, _)| is_kept(name));
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
    });
    Value::Array(short.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_that_tell_nothing_are_left_out_for_people() {
        let row = |ports: u64, refused: u64| json!({ "uid": 1, "ports": ports, "refused_ports": refused, "refused_names": 0 });
        let short = without_empty_columns(&json!([row(0, 3), row(0, 0)]));
        let expected = json!([
            { "uid": 1, "ports": 0, "refused_ports": 3 },
            { "uid": 1, "ports": 0, "refused_ports": 0 },
        ]);
        assert_eq!(short, expected);
        assert_eq!(without_empty_columns(&json!({ "a": 0 })), json!({ "a": 0 }));
    }
}
