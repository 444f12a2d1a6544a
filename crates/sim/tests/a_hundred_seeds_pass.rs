//! A small share of the swarm runs with every test; the nightly run has many more (docs/testing.md).

#![forbid(unsafe_code)]

use polyrail_sim::engine_node::{self, Options};
use polyrail_sim::runner;

#[test]
fn a_hundred_seeds_pass() {
    let factory = || engine_node::factory(Options::default());
    let summary = runner::run_seeds(0, 100, 2, &factory, &|_| {});
    let failed: Vec<String> = summary
        .failures
        .iter()
        .map(|outcome| format!("sim {}: {}", outcome.seed, outcome.violations[0]))
        .collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), summary.seeds, failed.join("\n"));
    for (group, name) in
        [("frame", "fragment"), ("frame", "credit"), ("link", "up -> suspect"), ("drop", "silent cut")]
    {
        assert!(summary.coverage.get(group, name) > 0, "{group}: {name} was never reached");
    }
}
