//! The dashboard in the documentation: what it shows is what a node tells.

use super::explained;
use crate::running::pair::{Pair, lines};
use serde_json::Value;
use std::collections::BTreeSet;

const DASHBOARD: &str = include_str!("../../../../docs/grafana-dashboard.json");

/// All members called `name`, wherever they are.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name));
            object.values().for_each(|value| members(value, name, found));
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, name, found)),
        _ => {}
    }
}

/// The words of a query that are metrics of ours.
fn named(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("polyrail_"))
}

#[test]
fn the_dashboard_names_only_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let (mut queries, mut variables) = (Vec::new(), Vec::new());
    members(&dashboard, "expr", &mut queries);
    members(&dashboard["templating"], "definition", &mut variables);
    assert!(queries.len() >= 20 && variables.len() == 2, "{} {}", queries.len(), variables.len());
    let pair = Pair::new("dashboard");
    let (page, _) = lines(&["metrics", "--control", &pair.control("alpha")]);
    let page = page.join("\n");
    let there = explained(&page);
    for query in queries.into_iter().chain(variables) {
        let query = query.as_str().expect("a query");
        let metrics: Vec<&str> = named(query).collect();
        assert!(!metrics.is_empty(), "{query}");
        assert!(metrics.iter().all(|metric| there.contains(metric)), "{query}: there are {there:?}");
    }
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    // An identity of its own, and none of the database that it was made in.
    assert!(dashboard["uid"].is_string() && dashboard.get("id").is_none());
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    let mut sources = Vec::new();
    members(&dashboard, "datasource", &mut sources);
    for source in sources {
        assert_eq!(source["uid"], "${datasource}", "whoever imports it chooses the source");
    }
}
