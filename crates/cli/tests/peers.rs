//! `polyrail bench peers`: other systems beside our protocols. What is not installed is said and passed over.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output};

fn polyrail(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.args(["bench", "peers"]).args(arguments.split_whitespace()).arg("--json");
    command
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn row<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    document["results"].as_array().expect("rows").iter().find(|row| row["protocol"] == name)
}

/// The row of a peer without errors, or nothing where it is not installed.
fn measured(test: &str, peer: &str, arguments: &str) -> Option<Value> {
    let output = polyrail(arguments).output().expect("the program starts");
    let document = document(&output);
    if let Some(row) = row(&document, peer) {
        let errors = row["errors"].to_string();
        // A user who may not make name spaces cannot run peers either.
        if !errors.contains("unshare") {
            assert!(row.get("errors").is_none(), "{errors}");
            return Some(row.clone());
        }
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {errors}");
        return None;
    }
    let reason = document["unavailable"].to_string();
    assert!(reason.contains("apt-get install"), "neither measured nor named: {document}");
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    None
}

#[test]
fn a_stream_of_iperf3_is_counted_by_its_receiver() {
    let arguments =
        "stream --placement intra --peer iperf3 --protocol tcp-cubic --wait block --duration 1 --repeat 1";
    let Some(row) = measured("iperf3", "iperf3", arguments) else { return };
    assert!(row["throughput_mbps"]["median"].as_f64().expect("a figure") > 0.0, "{row}");
    assert_eq!((row["wait"].as_str(), row["lost"].as_u64()), (Some("block"), Some(0)));
    assert!(row["notes"].to_string().contains("iperf 3"), "{row}");
}

#[test]
fn round_trips_of_sockperf_have_all_quantiles() {
    for peer in ["sockperf-tcp", "sockperf-udp"] {
        let arguments = format!(
            "pingpong --placement intra --peer {peer} --protocol udp --wait block --duration 0.3 --repeat 1"
        );
        let Some(row) = measured(peer, peer, &arguments) else { return };
        let quantile = |name: &str| row["latency_us"][name]["median"].as_f64().expect("a figure");
        assert!(
            quantile("p50") > 0.0 && quantile("p50") <= quantile("p99") && quantile("p99") <= quantile("max")
        );
    }
}

#[test]
fn what_is_missing_is_named_with_its_install_line_and_does_not_fail_the_run() {
    let arguments = "pingpong --placement intra --peer sockperf-tcp,openmpi,mpich --protocol udp --duration 0.05 --warmup 0 --repeat 1";
    let output = polyrail(arguments)
        .env("PATH", "/nonexistent")
        .env("POLYRAIL_PEERS", "/nonexistent")
        .env("HOME", "/nonexistent")
        .output()
        .expect("the program starts");
    let document = document(&output);
    assert_eq!(output.status.code(), Some(0), "our own protocol was measured: {document}");
    let missing = document["unavailable"].as_array().expect("some are missing");
    for peer in ["sockperf-tcp", "openmpi", "mpich"] {
        let entry = missing.iter().find(|entry| entry["protocol"] == peer).expect(peer);
        assert!(entry["reason"].as_str().is_some_and(|reason| reason.contains("apt-get install")), "{entry}");
    }
}

#[test]
fn nonsense_is_refused_in_one_line() {
    for (arguments, part) in [
        ("stream --peer nothing", "no peer is named `nothing`"),
        ("idle", "stream, pingpong, rate and transact"),
        ("stream --peer iperf3 --vs tcp-cubic:iperf3", "`tcp-cubic` is not among"),
        ("stream --peer iperf3 --protocol nothing", "nothing"),
    ] {
        let output = polyrail(arguments).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let error = document(&output)["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(part) && error.lines().count() == 1, "{arguments}: {error}");
    }
}
