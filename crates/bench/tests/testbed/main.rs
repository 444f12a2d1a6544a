//! The instrument end to end: testbeds of network namespaces, measured processes inside, nothing left afterwards.
//!
//! This program is its own measured process, which is why it has a main function instead of the usual harness. A word
//! on its command line leaves out the tests without it in their names.

mod links;
mod loads;
mod machines;
mod probes;
mod speed;

use std::process::Command;

use clap::Parser;
use polyrail_bench::netns::{LinkSpec, NetnsError, Spec, Testbed};
use polyrail_bench::{AGENT_COMMAND, BenchArgs, Report, agent_main, measure};
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArgs,
}

/// The word after which this program is `bench`, for tests that need it in another process.
const PROGRAM: &str = "as-bench";

/// A test by its name.
type Test = (&'static str, fn());

/// Names a function as a test.
macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => { [$((stringify!($name), $module::$name as fn())),*] };
}

const TESTS: [Test; 32] = tests![
    speed::a_throttled_stream_is_counted_and_nothing_is_left,
    speed::every_protocol_answers_between_two_nodes,
    speed::a_hung_side_is_killed_and_what_was_told_is_kept,
    links::carrier_is_lost_and_comes_back,
    links::a_black_hole_swallows_only_its_direction,
    links::three_nodes_share_each_link,
    links::a_delayed_link_takes_its_time_and_can_be_cut,
    loads::what_a_relay_does_is_told_beside_what_goes_over_it,
    links::another_process_finds_and_removes_a_testbed,
    loads::pairs_share_a_link_and_each_gets_some,
    loads::links_are_added_one_by_one,
    loads::a_plan_is_one_report_with_what_is_expected_beside_each_figure,
    loads::rounds_of_a_plan_are_one_row_each_and_decide,
    loads::senders_answer_one_receiver_together,
    loads::what_goes_to_several_is_with_every_port_once_and_in_order,
    loads::a_lone_message_is_held_against_what_its_links_allow,
    loads::questions_are_answered_beside_bulk,
    loads::messages_at_a_fixed_rate_are_timed_from_when_they_were_due,
    loads::what_is_offered_and_what_is_received_are_two_figures,
    loads::streams_go_side_by_side_and_buffers_are_set,
    probes::every_cut_is_judged_and_nothing_is_lost,
    probes::a_link_that_flaps_is_one_cut_and_what_it_did_is_counted,
    probes::one_link_has_nothing_to_fail_over_to,
    probes::an_idle_pair_has_a_cost_and_little_of_it,
    probes::a_receiver_that_stops_reading_gets_everything,
    probes::a_lossy_link_loses_single_packets_at_its_rate,
    machines::every_workload_that_a_server_plays_is_measured_between_machines,
    machines::a_server_with_two_addresses_is_measured_over_both_links,
    machines::a_wrong_key_and_a_wrong_use_are_refused_in_one_line,
    machines::a_server_killed_in_mid_run_leaves_what_was_measured_and_one_error,
    machines::a_client_killed_in_mid_run_frees_the_server_for_the_next,
    machines::an_interrupt_on_either_side_leaves_no_process_behind,
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == AGENT_COMMAND) {
        std::process::exit(agent_main(&args[1..]));
    }
    if args.first().is_some_and(|first| first == PROGRAM) {
        std::process::exit(polyrail_bench::run(Arguments::parse_from(&args).bench));
    }
    match Testbed::create(Spec::pair(name("probe"), vec![LinkSpec::default()])) {
        Ok(testbed) => testbed.down().expect("a testbed can be removed"),
        Err(error @ (NetnsError::Permission | NetnsError::Missing { .. })) => {
            println!("testbed tests SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    let wanted = args.iter().find(|arg| !arg.starts_with('-'));
    for (name, test) in TESTS {
        if wanted.is_none_or(|word| name.contains(word.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}

fn name(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

fn run(line: &str) -> (Report, Value) {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let report = measure(&Arguments::parse_from(words).bench);
    let document = serde_json::from_str(&report.json()).expect("valid JSON");
    (report, document)
}

/// What a measurement tells that goes well.
fn bench(line: &str) -> Value {
    let (report, document) = run(line);
    assert_eq!(report.exit_code(), 0, "{document:#}");
    assert!(!report.table().is_empty());
    document
}

/// What a command writes to its standard output.
fn output(program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn namespaces() -> String {
    output("ip", &["netns", "list"])
}
