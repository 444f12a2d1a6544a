//! Streams and round trips, and a side that hangs.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyrail_bench::netns::Testbed;
use polyrail_bench::protocol::Protocol;

use super::{bench, namespaces, output, run};

pub fn a_throttled_stream_is_counted_and_nothing_is_left() {
    let document =
        bench("stream --protocol tcp-cubic --links 2 --rate 1000 --duration 0.3 --warmup 0.1 --repeat 1");
    let row = &document["results"][0];
    let goodput = row["throughput_mbps"]["median"].as_f64().expect("goodput");
    assert!(goodput > 0.0, "{row:#}");
    assert_eq!((row["lost"].as_u64(), row["damaged"].as_u64()), (Some(0), Some(0)), "{row:#}");
    assert!(!namespaces().contains(&format!("pr-bench-{}", std::process::id())));
    assert!(Testbed::list().iter().all(|record| record.pid != std::process::id()));
}

pub fn every_protocol_answers_between_two_nodes() {
    let document = bench("pingpong --links 2 --duration 0.1 --warmup 0.05 --repeat 1 --wait adaptive");
    let results = document["results"].as_array().expect("results");
    let unavailable = document["unavailable"].as_array().map_or(0, Vec::len);
    let all = polyrail_bench::protocol::all();
    let (usual, named): (Vec<&dyn Protocol>, Vec<&dyn Protocol>) =
        all.into_iter().partition(|protocol| protocol.is_usual());
    assert_eq!(results.len() + unavailable, usual.len(), "each protocol is measured or named with a reason");
    let names = named.iter().map(|protocol| protocol.name()).collect::<Vec<_>>().join(",");
    let others = bench(&format!(
        "pingpong --protocol {names} --links 2 --duration 0.1 --warmup 0.05 --repeat 1 --wait adaptive"
    ));
    let unavailable = others["unavailable"].as_array().map_or(0, Vec::len);
    let others = others["results"].as_array().expect("results");
    assert_eq!(
        others.len() + unavailable,
        named.len(),
        "so are those that take part only where they are named"
    );
    assert!(others.len() > 5, "most of them reach another node");
    for row in results.iter().chain(others) {
        let answered = row["latency_us"]["p50"]["median"].as_f64().is_some_and(|us| us > 0.0);
        // On a busy machine a datagram may wait longer than a lost one is waited for.
        let datagrams =
            row["protocol"].as_str().and_then(polyrail_bench::protocol::find).is_some_and(|p| !p.reliable());
        let excused = datagrams && row["lost"].as_u64() > Some(0);
        assert!(answered || excused, "{row:#}");
    }
}

pub fn a_hung_side_is_killed_and_what_was_told_is_kept() {
    let namespace = format!("pr-bench-{}-a", std::process::id());
    let (running, watched) = (namespace.clone(), namespace);
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let freezer = std::thread::spawn(move || {
        let sent_bytes = || {
            let read = ["netns", "exec", &watched, "cat", "/sys/class/net/l0/statistics/tx_bytes"];
            output("ip", &read).trim().parse::<u64>().unwrap_or(0)
        };
        // Far enough into the window that the receiver has told of its progress; then the sender stops for ever. A machine
        // that stood still meanwhile may never get so far.
        while sent_bytes() < 20_000_000 && !is_over.load(Ordering::Relaxed) {}
        for pid in output("ip", &["netns", "pids", &running]).lines() {
            Command::new("kill").args(["-STOP", pid]).status().expect("kill");
        }
    });
    let line = "stream --protocol tcp-cubic --rate 100 --warmup 0.05 --duration 4 --repeat 1 --wait block";
    let (report, document) = run(line);
    over.store(true, Ordering::Relaxed);
    freezer.join().expect("freezer");
    let row = &document["results"][0];
    assert!(
        row["errors"][0].as_str().is_some_and(|error| error.contains("sender: no sign of life")),
        "{row:#}"
    );
    assert!(row["throughput_mbps"]["median"].as_f64().is_some_and(|mbps| mbps > 0.0), "{row:#}");
    assert_eq!(report.exit_code(), 1);
    assert!(!namespaces().contains(&format!("pr-bench-{}", std::process::id())));
}
