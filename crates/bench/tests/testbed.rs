//! The instrument end to end: a testbed of network namespaces, measured processes inside, nothing left afterwards.
//!
//! This program is its own measured process, which is why it has a main function instead of the usual harness.

use std::process::Command;

use clap::Parser;
use polyrail_bench::netns::{Direction, LinkSpec, NetnsError, Spec, Testbed};
use polyrail_bench::{AGENT_COMMAND, BenchArgs, agent_main, measure};
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == AGENT_COMMAND) {
        std::process::exit(agent_main(&args[1..]));
    }
    match Testbed::create(Spec::pair(name("probe"), vec![LinkSpec::default()])) {
        Ok(testbed) => testbed.down().expect("a testbed can be removed"),
        Err(error @ (NetnsError::Permission | NetnsError::Missing { .. })) => {
            println!("testbed tests SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    let tests: [(&str, fn()); 7] = [
        (
            "a_throttled_stream_is_counted_and_nothing_is_left",
            a_throttled_stream_is_counted_and_nothing_is_left,
        ),
        ("every_protocol_answers_between_two_nodes", every_protocol_answers_between_two_nodes),
        ("a_hung_side_is_killed_and_what_was_told_is_kept", a_hung_side_is_killed_and_what_was_told_is_kept),
        ("carrier_is_lost_and_comes_back", carrier_is_lost_and_comes_back),
        ("a_black_hole_swallows_only_its_direction", a_black_hole_swallows_only_its_direction),
        ("three_nodes_share_each_link", three_nodes_share_each_link),
        ("another_process_finds_and_removes_a_testbed", another_process_finds_and_removes_a_testbed),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

fn name(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

fn bench(line: &str) -> Value {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let report = measure(&Arguments::parse_from(words).bench);
    let document: Value = serde_json::from_str(&report.json()).expect("valid JSON");
    assert_eq!(report.exit_code(), 0, "{document:#}");
    document
}

fn namespaces() -> String {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sees_carrier(testbed: &Testbed, node: usize) -> bool {
    let output = testbed.command(node, "cat").arg("/sys/class/net/l0/carrier").output().expect("cat");
    String::from_utf8_lossy(&output.stdout).trim() == "1"
}

/// Whether a node answers: a port where nobody listens refuses a connection, which takes both directions.
fn reaches(testbed: &Testbed, from: usize, to: usize, link: usize) -> bool {
    let address = testbed.address(to, link);
    let mut command = testbed.command(from, "timeout");
    command.args(["2", "bash", "-c", &format!("exec 3<>/dev/tcp/{address}/9")]);
    let output = command.output().expect("timeout and bash");
    String::from_utf8_lossy(&output.stderr).contains("refused")
}

fn a_throttled_stream_is_counted_and_nothing_is_left() {
    let document =
        bench("stream --protocol tcp-cubic --links 2 --rate 1000 --duration 0.3 --warmup 0.1 --repeat 1");
    let row = &document["results"][0];
    let goodput = row["throughput_mbps"]["median"].as_f64().expect("goodput");
    assert!(goodput > 0.0, "{row:#}");
    assert_eq!((row["lost"].as_u64(), row["damaged"].as_u64()), (Some(0), Some(0)), "{row:#}");
    assert!(!namespaces().contains(&format!("pr-bench-{}", std::process::id())));
    assert!(Testbed::list().iter().all(|record| record.pid != std::process::id()));
}

fn every_protocol_answers_between_two_nodes() {
    let document = bench("pingpong --links 2 --duration 0.1 --warmup 0.05 --repeat 1 --wait adaptive");
    let results = document["results"].as_array().expect("results");
    let unavailable = document["unavailable"].as_array().map_or(0, Vec::len);
    let known = polyrail_bench::protocol::all().len();
    assert_eq!(results.len() + unavailable, known, "each protocol is measured or named with a reason");
    for row in results {
        let answered = row["latency_us"]["p50"]["median"].as_f64().is_some_and(|us| us > 0.0);
        // On a busy machine a datagram may wait longer than a lost one is waited for.
        let excused = row["protocol"] == "udp" && row["lost"].as_u64() > Some(0);
        assert!(answered || excused, "{row:#}");
    }
}

fn a_hung_side_is_killed_and_what_was_told_is_kept() {
    let namespace = format!("pr-bench-{}-a", std::process::id());
    let (running, watched) = (namespace.clone(), namespace);
    let freezer = std::thread::spawn(move || {
        let ip = |args: &[&str]| {
            let output = Command::new("ip").args(args).output().expect("ip");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let sent_bytes = || {
            let read = ["netns", "exec", &watched, "cat", "/sys/class/net/l0/statistics/tx_bytes"];
            ip(&read).trim().parse::<u64>().unwrap_or(0)
        };
        // Far enough into the window that the receiver has told of its progress; then the sender stops for ever.
        while sent_bytes() < 20_000_000 {}
        for pid in ip(&["netns", "pids", &running]).lines() {
            Command::new("kill").args(["-STOP", pid]).status().expect("kill");
        }
    });
    let line = "stream --protocol tcp-cubic --rate 100 --warmup 0.05 --duration 4 --repeat 1 --wait block";
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let report = measure(&Arguments::parse_from(words).bench);
    freezer.join().expect("freezer");
    let document: Value = serde_json::from_str(&report.json()).expect("valid JSON");
    let row = &document["results"][0];
    assert!(
        row["errors"][0].as_str().is_some_and(|error| error.contains("sender: no sign of life")),
        "{row:#}"
    );
    assert!(row["throughput_mbps"]["median"].as_f64().is_some_and(|mbps| mbps > 0.0), "{row:#}");
    assert_eq!(report.exit_code(), 1);
    assert!(!namespaces().contains(&format!("pr-bench-{}", std::process::id())));
}

fn carrier_is_lost_and_comes_back() {
    let testbed = Testbed::create(Spec::pair(name("carrier"), vec![LinkSpec::default()])).expect("testbed");
    let become_ = |up: bool| {
        testbed.carrier(0, 0, up).expect("carrier");
        while sees_carrier(&testbed, 0) != up {}
    };
    assert!(sees_carrier(&testbed, 0));
    become_(false);
    become_(true);
    assert!(reaches(&testbed, 0, 1, 0));
}

fn a_black_hole_swallows_only_its_direction() {
    let mut testbed =
        Testbed::create(Spec::pair(name("hole"), vec![LinkSpec::default(); 2])).expect("testbed");
    testbed.prepare_faults().expect("faults");
    assert!(reaches(&testbed, 0, 1, 0) && reaches(&testbed, 0, 1, 1));
    for direction in [Direction::Into, Direction::OutOf, Direction::Both] {
        testbed.black_hole(0, 0, direction, true).expect("hole");
        assert!(!reaches(&testbed, 0, 1, 0), "{direction:?}");
        assert!(reaches(&testbed, 0, 1, 1), "the other link is untouched");
        testbed.black_hole(0, 0, direction, false).expect("end of the hole");
        assert!(reaches(&testbed, 0, 1, 0), "after {direction:?}");
    }
    testbed.set_loss(0, 100.0).expect("loss");
    assert!(!reaches(&testbed, 0, 1, 0));
    testbed.set_loss(0, 0.0).expect("no loss");
    testbed.set_rate(0, Some(10)).expect("rate");
    testbed.set_rate(0, None).expect("no rate");
    testbed.set_mtu(0, 9000).expect("mtu");
    assert!(reaches(&testbed, 0, 1, 0));
    assert!(testbed.carrier(7, 0, false).is_err(), "a link that is not there");
}

fn three_nodes_share_each_link() {
    let link = LinkSpec { rate_mbit: Some(100), ..LinkSpec::default() };
    let spec = Spec { name: name("three"), nodes: 3, links: vec![link; 2] };
    let mut testbed = Testbed::create(spec).expect("testbed");
    assert!(reaches(&testbed, 0, 2, 0) && reaches(&testbed, 1, 2, 1));
    testbed.black_hole(0, 2, Direction::OutOf, true).expect("hole");
    assert!(!reaches(&testbed, 0, 2, 0));
    assert!(reaches(&testbed, 0, 1, 0), "the others still reach each other");
    testbed.carrier(1, 1, false).expect("carrier");
    assert!(!reaches(&testbed, 1, 2, 1));
    let prefix = format!("pr-{}", testbed.spec().name);
    testbed.down().expect("down");
    assert!(!namespaces().contains(&prefix));
}

fn another_process_finds_and_removes_a_testbed() {
    let name = name("kept");
    let spec = Spec::pair(name.clone(), vec![LinkSpec::default()]);
    let testbed = Testbed::create(spec.clone()).expect("testbed");
    assert!(matches!(Testbed::create(spec), Err(NetnsError::Exists { .. })));
    // A process inside must not keep the namespace alive.
    let mut sleeper = testbed.command(0, "sleep").arg("1000").spawn().expect("sleep");
    testbed.keep();
    assert!(Testbed::list().iter().any(|record| record.spec.name == name));
    assert!(reaches(&Testbed::open(&name).expect("open"), 0, 1, 0));
    Testbed::remove(&name).expect("remove");
    // The sleeper may not have entered the namespace yet when it was searched; it is ours to end in any case.
    let _ = sleeper.kill();
    sleeper.wait().expect("sleep has ended");
    assert!(!namespaces().contains(&name));
    assert!(Testbed::remove(&name).is_err());
}
